package host_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// sampleHand writes the sample hand into a directory, with server in place of its
// manifest's host, and returns its configuration with everything granted.
func sampleHand(t *testing.T, server string) host.HandConfig {
	t.Helper()
	module, err := build.Hand(t.Context(), filepath.Join("..", "examples", "hand-go"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join("..", "examples", "sample.toml"))
	if err != nil {
		t.Fatal(err)
	}
	outline, err := wasm.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	module = outline.WithCustom(abi.ManifestSection, []byte(strings.ReplaceAll(string(document), "sample.example", server)))
	file := filepath.Join(t.TempDir(), "sample.wasm")
	if err := os.WriteFile(file, module, 0o600); err != nil {
		t.Fatal(err)
	}
	docs := t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	return host.HandConfig{Module: file, Digest: sandbox.Digest(module), Grant: host.GrantConfig{
		Files: map[string]string{"docs": docs}, KV: true, LLM: true, HTTP: []string{"GET,POST http://" + server}, AllowPrivate: []string{server},
	}}
}

// A hand under test reaches what is granted; each question meets values of its own,
// and a server is asked once for the same.
func TestHandRunner(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "answer %d", requests.Add(1))
	}))
	defer server.Close()
	h := open(t, host.Config{Hands: map[string]host.HandConfig{"sample": sampleHand(t, strings.TrimPrefix(server.URL, "http://"))}})
	run, err := h.HandRunner(t.Context(), "sample")
	if err != nil {
		t.Fatal(err)
	}
	fromStart := false
	ask := func(lines ...string) conformance.Outcome {
		t.Helper()
		query := fmt.Appendf(nil, `{"prompt":%q,"from":"2026-03-23T00:00:00Z","to":"2026-03-24T00:00:00Z","now":"2026-03-24T08:00:00Z","timezone":"UTC","max_output_tokens":100}`, strings.Join(lines, "\n"))
		o, err := run(t.Context(), conformance.Ask{Query: query, Now: monday, Seed: 1, FromStart: fromStart})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	first := ask("read a.txt", "kv-get k", "kv-set k v", "kv-get k", "get "+server.URL+"/x")
	if want := "hello\nerror: not_found\nok\nv\n200 - answer 1"; first.Reply != want || first.Kind != "" {
		t.Errorf("%q, %s %s", first.Reply, first.Kind, first.Text)
	}
	again := ask("read a.txt", "kv-get k", "kv-set k v", "kv-get k", "get "+server.URL+"/x")
	if again.ReplyDigest != first.ReplyDigest || again.Cost.Fuel != first.Cost.Fuel || first.Cost.Calls != 5 || first.Cost.Fuel == 0 {
		t.Errorf("%q, and then %q; %+v", first.Reply, again.Reply, again.Cost)
	}
	fromStart = true
	started := ask("read a.txt", "kv-get k", "kv-set k v", "kv-get k", "get "+server.URL+"/x")
	fromStart = false
	// Go's runtime takes over a million units to begin.
	if started.ReplyDigest != first.ReplyDigest || started.Cost.Fuel < first.Cost.Fuel+1_000_000 {
		t.Errorf("from its start it answers %q; %+v, from its image %+v", started.Reply, started.Cost, first.Cost)
	}
	if other := ask("get "+server.URL+"/y", "post "+server.URL+"/x a", "post "+server.URL+"/x b"); other.Reply != "200 - answer 2\n200 - answer 3\n200 - answer 4" {
		t.Errorf("%q", other.Reply)
	}
	if o := ask("ask Is the pump running?"); !strings.Contains(o.Reply, "tokens)") {
		t.Errorf("%q", o.Reply)
	}
	if o := ask("fail no ward"); o.Kind != abi.KindHandFailed || o.Said != "no ward" {
		t.Errorf("%+v", o)
	}
	i, err := h.Installer()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Revoke(t.Context(), "sample", abi.CapabilityKV); err != nil {
		t.Fatal(err)
	}
	if o := ask("kv-get k"); o.Reply != "error: disabled" {
		t.Errorf("after it was revoked: %q", o.Reply)
	}
	if _, err := h.HandRunner(t.Context(), "sample"); !errors.Is(err, abi.KindDisabled) {
		t.Errorf("a hand that was revoked: %v", err)
	}
	if _, err := h.HandRunner(t.Context(), "other"); !errors.Is(err, abi.KindUnknownHand) {
		t.Errorf("a hand that is not there: %v", err)
	}
}

// What the manifest asks for of the model, 256 tokens, bounds its answers to one query,
// whatever the reply may have.
func TestAManifestBoundsWhatTheModelAnswers(t *testing.T) {
	var asked []int
	answers := &model{}
	answers.answer = func(context.Context) (llm.Response, error) {
		asked = append(asked, answers.last.MaxOutputTokens)
		return llm.Response{Text: strings.Repeat("word", answers.last.MaxOutputTokens), OutputTokens: answers.last.MaxOutputTokens}, nil
	}
	h := open(t, host.Config{LLM: answers, Hands: map[string]host.HandConfig{"sample": sampleHand(t, "192.0.2.1:1")}})
	result, err := h.Query(t.Context(), host.HandQuery{Hand: "sample", Prompt: strings.Repeat("ask words\n", 6), MaxTokens: 4000})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(asked) != "[64 64 64 64]" || strings.Count(result.Reply.Render(), "error: quota_exceeded") != 2 {
		t.Errorf("the model was asked for %v tokens: %s", asked, result.Reply.Render())
	}
}
