package source_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/registry/source"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/plugins"
)

// calendar is a whole hand with a manifest.
func calendar(t *testing.T) []byte {
	t.Helper()
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func parse(t *testing.T, text string) source.Reference {
	t.Helper()
	ref, err := source.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// serveRegistry runs a registry on loopback until the test ends and returns its
// address. auth is the part of its configuration that says who may.
func serveRegistry(t *testing.T, auth string) string {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Skip("needs a registry server: apt install docker-registry")
	}
	dir := t.TempDir()
	// The port is free a moment before the server takes it; another may be
	// quicker, so try again.
	for range 5 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		listener.Close()
		config := filepath.Join(dir, "config.yml")
		text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n%s", dir, address, auth)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		server := exec.Command(program, "serve", config)
		var log strings.Builder
		server.Stdout, server.Stderr = &log, &log
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { server.Wait(); close(ended) }()
		t.Cleanup(func() { server.Process.Kill(); <-ended })
		if answers(t.Context(), "http://"+address+"/v2/", ended) {
			return address
		}
		<-ended
		t.Logf("docker-registry ended: %s", log.String())
	}
	t.Fatal("docker-registry does not come up")
	return ""
}

// answers waits until a server answers, or has ended.
func answers(ctx context.Context, url string, ended <-chan struct{}) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

func TestRegistryRoundTrip(t *testing.T) {
	address := serveRegistry(t, "")
	module := calendar(t)
	moved := 0
	local := source.Options{PlainHTTP: true, Progress: func(n int) { moved += n }}
	at := "oci://" + address + "/hands/calendar"
	pushed, err := source.Push(t.Context(), parse(t, at+":1.2.3"), module, local)
	if err != nil {
		t.Fatal(err)
	}
	if moved < len(module) {
		t.Errorf("of %d bytes, %d were told of", len(module), moved)
	}
	if pushed.Digest != sandbox.Digest(module) || pushed.Bytes != len(module) || pushed.Annotations["org.opencontainers.image.title"] != "calendar" {
		t.Errorf("pushed %+v", pushed)
	}
	for _, ref := range []string{at + ":1.2.3", pushed.From, strings.Replace(pushed.From, ":1.2.3@", "@", 1)} {
		got, err := source.Fetch(t.Context(), parse(t, ref), local)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Module) != string(module) || got.Digest != pushed.Digest || parse(t, got.From).Pin() != parse(t, pushed.From).Pin() {
			t.Errorf("%s: %d bytes, digest %s from %s", ref, len(got.Module), got.Digest, got.From)
		}
	}
	again, err := source.Push(t.Context(), parse(t, at+":latest"), module, local)
	if err != nil || parse(t, again.From).Pin() != parse(t, pushed.From).Pin() {
		t.Errorf("a second push made another artifact: %s, %v", again.From, err)
	}
	if got, err := source.Fetch(t.Context(), parse(t, at), local); err != nil || got.From != again.From {
		t.Errorf("without a tag: %s, %v", got.From, err)
	}
	for ref, want := range map[string]error{
		at + ":9.9.9":                             source.ErrNotFound,
		"oci://" + address + "/hands/nothing:1":   source.ErrNotFound,
		at + "@sha256:" + strings.Repeat("0", 64): source.ErrNotFound,
	} {
		if _, err := source.Fetch(t.Context(), parse(t, ref), local); !errors.Is(err, want) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	// Without the word for it, no http is spoken, with loopback either.
	if got, err := source.Fetch(t.Context(), parse(t, pushed.From), source.Options{}); err == nil || got.Module != nil {
		t.Errorf("fetched by http unasked: %v", err)
	}
	checkManifest(t, address, pushed)
}

// checkManifest holds what stands in the registry against docs/oci.md.
func checkManifest(t *testing.T, address string, pushed source.Pushed) {
	t.Helper()
	request, _ := http.NewRequest(http.MethodGet, "http://"+address+"/v2/hands/calendar/manifests/1.2.3", nil)
	request.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, _ := io.ReadAll(response.Body)
	var m struct {
		ArtifactType string
		Config       struct{ MediaType string }
		Layers       []struct {
			MediaType, Digest string
			Annotations       map[string]string
		}
		Annotations map[string]string
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	if m.ArtifactType != source.ArtifactType || m.Config.MediaType != source.ConfigMediaType || len(m.Layers) != 1 ||
		m.Layers[0].MediaType != source.LayerMediaType || m.Layers[0].Digest != pushed.Digest ||
		m.Layers[0].Annotations["org.opencontainers.image.title"] != "calendar.wasm" || m.Annotations["org.opencontainers.image.version"] == "" {
		t.Errorf("the registry has %s", data)
	}
}

// A private registry is pushed to and read with the login of the docker
// configuration, and tells whoever has none what to do.
func TestRegistryLogin(t *testing.T) {
	dir := t.TempDir()
	// bcrypt of "open sesame"
	passwords := filepath.Join(dir, "htpasswd")
	if err := os.WriteFile(passwords, []byte("author:$2y$04$bWLCqHEtx0tX1CCCoP.FNOzAQAwv.ihGmzCw9YKL194et4nfCwK5i\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serveRegistry(t, fmt.Sprintf("auth: {htpasswd: {realm: hands, path: %q}}\n", passwords))
	ref := parse(t, "oci://"+address+"/hands/calendar:1")
	t.Setenv("DOCKER_CONFIG", dir)
	local := source.Options{PlainHTTP: true, Logins: true}
	_, err := source.Push(t.Context(), ref, calendar(t), local)
	if !errors.Is(err, source.ErrUnauthorized) || !strings.Contains(err.Error(), "docker login "+address) {
		t.Errorf("without a login: %v", err)
	}
	login := base64.StdEncoding.EncodeToString([]byte("author:open sesame"))
	config := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, address, login)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Push(t.Context(), ref, calendar(t), local); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Fetch(t.Context(), ref, local); err != nil {
		t.Error(err)
	}
	if _, err := source.Fetch(t.Context(), ref, source.Options{PlainHTTP: true}); !errors.Is(err, source.ErrUnauthorized) {
		t.Errorf("logins that were not asked for: %v", err)
	}
}
