package capability_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

var _ sandbox.HTTP = (*capability.HTTP)(nil)

// H7, H8 from inside the box: the whole way from the SDK to a server and back.
func TestHTTPFromAHand(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and does one thing after the other: left to the whole run")
	}
	module, err := build.Hand(t.Context(), filepath.Join("testdata", "fetcher"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	loaded, err := engine.Load(t.Context(), module, sandbox.Options{Trusted: true, Name: "fetcher", Granted: []abi.Capability{abi.CapabilityHTTP}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Answer", "42")
		fmt.Fprintf(rw, "%s\n%s", r.Method, r.Header.Get("Authorization"))
	})
	w.names["example.com"] = [][]string{{publicAddr}}
	w.names["inside.example"] = [][]string{{"127.0.0.1"}}
	grant := grantHTTP(t, capability.HTTPConfig{
		Hosts:   []string{"GET,POST https://example.com", "https://inside.example"},
		Secrets: []capability.SecretBinding{{Name: "api", From: "env:X", Host: "https://example.com", Format: "Bearer {}"}},
	}, "api")
	ask := func(prompt string, ports sandbox.Ports) (string, error) {
		result, err := loaded.Query(t.Context(), abi.Query{Prompt: prompt, MaxOutputTokens: 1000}, ports)
		return boundary.Neutral(result.Reply) + boundary.Neutral(result.Said), err
	}
	port, _ := openHTTP(t, w.egress(), grant)
	got, err := ask("https://example.com/a hello", sandbox.Ports{HTTP: port})
	if err != nil || !strings.HasPrefix(got, "200 https://example.com/a 42 POST") || !strings.Contains(got, "Bearer [redacted]") || w.sentBodies()[0] != "hello" {
		t.Errorf("%q, %v; the server got %q", got, err, w.sentBodies())
	}
	if w.requests()[0].Header.Get("Authorization") != "Bearer "+secret {
		t.Errorf("the bound host got %v", w.requests()[0].Header)
	}
	for prompt, want := range map[string]string{
		"https://inside.example/": "denied",
		"https://other.example/":  "denied",
		"http://2130706433/":      "bad request",
	} {
		if got, err := ask(prompt, sandbox.Ports{HTTP: port}); err == nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v", prompt, got, err)
		}
	}
	if got, err := ask("https://example.com/", sandbox.Ports{}); err == nil || !strings.Contains(got, "not granted") {
		t.Errorf("without a port: %q, %v", got, err)
	}
}
