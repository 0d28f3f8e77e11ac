package examples

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	c "github.com/gloveboxhq/glovebox/sdk/c/build"
)

// outcome is what a query ends with, in words: the reply, or a kind and what the
// hand says of its failure.
func outcome(result sandbox.Result, err error) string {
	if err != nil {
		return string(abi.KindOf(err)) + ": " + boundary.Neutral(result.Said)
	}
	return boundary.Neutral(result.Reply)
}

// checkCommand asks a command that repeats its prompt.
func checkCommand(t *testing.T, module []byte, ask func(prompt string) string) {
	t.Helper()
	outline, err := sandbox.Inspect(module)
	if err != nil {
		t.Fatal(err)
	}
	if outline.Profile != sandbox.ProfileCommand || outline.Refusal != nil || len(outline.Permissions) != 0 {
		t.Errorf("profile %s, permissions %v, refused: %v", outline.Profile, outline.Permissions, outline.Refusal)
	}
	for _, i := range outline.Imports {
		if i.Module != abi.ModuleWASI {
			t.Errorf("it imports %s.%s", i.Module, i.Name)
		}
	}
	loaded := load(t, module)
	for _, prompt := range []string{"", "hello", "two\nlines", `"quoted" \ and / \u0041`, "\b\f\r\t\x01", "Grüße, 日本語, 😀", strings.Repeat("long ", 3000)} {
		query, err := json.Marshal(abi.Query{Prompt: prompt, Now: time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC), Timezone: "UTC", MaxOutputTokens: 20_000, Config: map[string]any{"prompt": "not this", "list": []string{"}", `"`}}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := loaded.QueryEncoded(t.Context(), query, sandbox.Ports{Fixed: &sandbox.Fixed{Seed: 1}})
		if want := ask(prompt); err != nil || result.Exact.Reply != sha256.Sum256([]byte(want)) {
			t.Errorf("of %.40q: %.200q, %v, want %.200q", prompt, boundary.Neutral(result.Reply), err, want)
		}
	}
}

// A program for WASI is a hand as it is.
func TestHandCommand(t *testing.T) {
	module, err := c.Hand(t.Context(), "hand-command", c.Command)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkCommand(t, module, func(prompt string) string {
		if prompt == "" {
			return ""
		}
		return "You asked: " + prompt
	})
	loaded := load(t, module)
	for query, want := range map[string]string{
		`{}`:                                     "hand_failed: the query has no prompt",
		`{"a":[{"prompt":1}],"prompt":"\ud83d"}`: "You asked: \ufffd",
		` { "a" : -1.5e3 , "prompt" : "\ud83d\ude00\u00e9" } `: "You asked: 😀é",
	} {
		if got := outcome(loaded.QueryEncoded(t.Context(), []byte(query), sandbox.Ports{})); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// javaScript makes a module of a script, as the example's README says.
func javaScript(t *testing.T, script string) []byte {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("install node 20 or newer: hands in JavaScript are not tested without")
	}
	if _, err := os.Stat(filepath.Join("hand-javascript", "node_modules")); err != nil {
		t.Skip("run npm ci --prefix examples/hand-javascript: hands in JavaScript are not tested without")
	}
	output := filepath.Join(t.TempDir(), "hand.wasm")
	if printed, err := exec.CommandContext(t.Context(), "node", "hand-javascript/build.mjs", script, output).CombinedOutput(); err != nil {
		t.Fatalf("node build.mjs: %v\n%s", err, printed)
	}
	module, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func TestHandJavaScript(t *testing.T) {
	module := javaScript(t, filepath.Join("hand-javascript", "hand.js"))
	checkCommand(t, module, func(prompt string) string {
		if prompt == "" {
			return ""
		}
		return "You asked: " + prompt + "\nIt is Monday 09:00 in UTC."
	})
	document, err := os.ReadFile(filepath.Join("hand-javascript", "manifest.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Parse(document); err != nil {
		t.Error(err)
	}
	outline, err := wasm.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	if whole := outline.WithCustom(abi.ManifestSection, document); len(whole) > 1<<20 {
		t.Errorf("it has %d bytes", len(whole))
	}
	if again := javaScript(t, filepath.Join("hand-javascript", "hand.js")); string(again) != string(module) {
		t.Error("built twice, it is not the same")
	}
}

func TestJavaScriptThatFails(t *testing.T) {
	script := func(text string) *sandbox.Module {
		file := filepath.Join(t.TempDir(), "script.js")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return load(t, javaScript(t, file))
	}
	ask := func(loaded *sandbox.Module, prompt string) string {
		return outcome(loaded.Query(t.Context(), abi.Query{Prompt: prompt, MaxOutputTokens: 7}, sandbox.Ports{}))
	}
	loaded := script(`const answers = {
  throws(q) { throw new Error("no " + q.prompt); },
  says() { throw "because"; },
  nothing() {},
  number: (q) => q.max_output_tokens,
  quotes: () => "\"\\ é",
  ever() { for (;;) {} },
  memory(q) { const all = []; for (;;) all.push(new Array(1e6).fill(q)); },
  itself: (q) => answers.itself(q) + 1,
};
const answer = (q) => answers[q.prompt](q);
`)
	for prompt, want := range map[string]string{
		"throws":  "hand_failed: Error: no throws\n    at throws (hand.js:2",
		"says":    "hand_failed: because",
		"nothing": "",
		"number":  "7",
		"quotes":  `"\ é`,
		"ever":    "out_of_fuel: ",
		"memory":  "hand_failed: InternalError: out of memory",
		"itself":  "hand_failed: RangeError: Maximum call stack size exceeded",
	} {
		if got := ask(loaded, prompt); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", prompt, got, want)
		}
	}
	if got, want := ask(script("function answer(q) {"), "x"), "hand_failed: SyntaxError: "; !strings.HasPrefix(got, want) {
		t.Errorf("what is no script: %q, want %q", got, want)
	}
}
