//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// One program serves all: the test binary is no compiler.
func TestHandTest(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	program := filepath.Join(t.TempDir(), "glovebox")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	t.Run("fails broken hands", func(t *testing.T) { failsBrokenHands(t, program) })
	t.Run("takes grants and values", func(t *testing.T) { takesGrantsAndValues(t, program) })
	t.Run("prints what the documentation shows", func(t *testing.T) { printsAsDocumented(t, program) })
	t.Run("watches", func(t *testing.T) { watches(t, program) })
	t.Run("samples", func(t *testing.T) { checksSamples(t, program) })
}

const brokenDir = "../../../testdata/abi/broken"

// broken says which checks each module of the corpus fails and with what words; its
// source says what is wrong with it. None means that it passes.
var broken = map[string]struct {
	arguments []string
	checks    []string
	words     string
}{
	// H1
	"no-entry": {checks: []string{"module"}, words: "bad_module: it exports neither glovebox_query_v1 nor _start"},
	"abi-2":    {checks: []string{"module"}, words: "abi_mismatch: needs ABI 2, this host speaks 1"},
	// H6
	"ungranted-import": {checks: []string{"load"}, words: `not_granted: hand "ungranted-import": it imports glovebox_kv, which needs the capability "kv": grant it, or use a hand that does not need it; all that it asks for is granted by --grant kv`},

	"unknown-import":        {checks: []string{"module"}, words: "bad_module: import 0 is not in ABI 1 (glovebox.session_read)"},
	"bad-manifest":          {checks: []string{"manifest"}, words: "line 4, column 1: colour: unknown key"},
	"undeclared-import":     {checks: []string{"imports"}, words: `the module imports glovebox_kv, and its manifest does not ask for "kv"`},
	"lying-manifest":        {checks: []string{"imports"}, words: `the manifest asks for "files", and the module does not import glovebox_files`},
	"needs-value":           {checks: []string{"config"}, words: `config.project: hand "needs-value" needs a value of type integer`},
	"ignores-budget":        {checks: []string{"one-token", "sixteen-tokens"}, words: "the reply costs more than max_output_tokens = 1"},
	"not-text":              {checks: []string{"normal", "no-subject"}, words: "bad_reply: the reply has 2 bytes that are not UTF-8"},
	"too-long":              {checks: []string{"normal"}, words: "too_large: the reply is 70000 bytes, of which the last 4464 are over the host's limit"},
	"reads-size":            {checks: []string{"unknown-fields", "other-spelling"}, words: "to the same question as normal it answers"},
	"random":                {checks: []string{"normal"}, words: "with other random numbers, it answers"},
	"reads-clock":           {checks: []string{"normal"}, words: "with another clock in the box, it answers"},
	"draws-early":           {checks: []string{"normal"}, words: "with other random numbers before the query, it answers"},
	"reads-clock-early":     {checks: []string{"normal"}, words: "with another clock before the query, it answers"},
	"answers-by-warmth":     {checks: []string{"normal"}, words: `beginning from its image it answers "warm", and "cold" where all runs in the query`},
	"silent-failure":        {checks: []string{"normal"}, words: "hand_failed: it fails without a message"},
	"exits":                 {checks: []string{"normal"}, words: "exit: hand \"exits\": exited with code 0 before it answered"},
	"traps-on-empty-window": {checks: []string{"empty-window"}, words: "trapped: integer divide by zero"},
	"polite-failure":        {},
	"sets-table":            {},
	"logs-early":            {},
}

func failsBrokenHands(t *testing.T, program string) {
	modules, err := filepath.Glob(filepath.Join(brokenDir, "*.wasm"))
	if err != nil || len(modules) != len(broken) {
		t.Errorf("%d modules (%v) for %d rows", len(modules), err, len(broken))
	}
	cache := t.TempDir()
	for name, want := range broken {
		t.Run(name, func(t *testing.T) {
			seen, code := handTested(t, program, cache, filepath.Join(brokenDir, name+".wasm"))
			if asked := slices.ContainsFunc(seen.Checks, func(r testedRow) bool { return r.Cost != nil }); asked != (seen.Image != nil) {
				t.Errorf("it is asked: %t, and each query begins %v", asked, seen.Image)
			}
			if passes := len(want.checks) == 0; seen.Passed != passes || (code == 0) != passes {
				t.Errorf("passed: %t, exit code %d", seen.Passed, code)
			}
			var failed []string
			for _, row := range seen.Checks {
				if row.Passed {
					continue
				}
				failed = append(failed, row.Name)
				if row.Name == want.checks[0] && !strings.Contains(strings.Join(row.Faults, "\n"), want.words) {
					t.Errorf("%s: %q", row.Name, row.Faults)
				}
			}
			for _, check := range want.checks {
				if !slices.Contains(failed, check) {
					t.Errorf("%s passes; there failed %v", check, failed)
				}
			}
			if len(want.checks) == 1 && want.checks[0] != "normal" && len(failed) > 1 {
				t.Errorf("there failed %v", failed)
			}
		})
	}
}

func handTested(t *testing.T, program, cache string, arguments ...string) (tested, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, append([]string{"hand", "test", "--json"}, arguments...)...)
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "GLOVEBOX_HOME="+filepath.Join(cache, "none"))
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var seen tested
	if err := json.Unmarshal(out.Bytes(), &seen); err != nil {
		t.Fatalf("%v: %s%s", err, out.Bytes(), errs.Bytes())
	}
	return seen, command.ProcessState.ExitCode()
}

// What a hand needs makes it whole, and its costs are told.
func takesGrantsAndValues(t *testing.T, program string) {
	cache := t.TempDir()
	for name, arguments := range map[string][]string{
		"needs-value":      {"--set", "project=7"},
		"ungranted-import": {"--grant", "kv"},
	} {
		seen, code := handTested(t, program, cache, append(arguments, filepath.Join(brokenDir, name+".wasm"))...)
		if !seen.Passed || code != 0 {
			t.Errorf("%s: exit code %d, %+v", name, code, seen.Checks)
		}
		for _, row := range seen.Checks {
			if c := row.Cost; row.Name == "normal" && (c == nil || c.Fuel == 0 || c.Ms == 0 || c.MemoryBytes != 64<<10 || c.Tokens != 1 || c.Bytes != 2) {
				t.Errorf("%s costs %+v", name, c)
			}
		}
	}
	seen, code := handTested(t, program, cache, "--set", "project=seven", filepath.Join(brokenDir, "needs-value.wasm"))
	if seen.Passed || code != exitFailed || !strings.Contains(strings.Join(seen.Checks[3].Faults, ""), "config.project: needs a value of type integer") {
		t.Errorf("with a value of another type: %d, %+v", code, seen.Checks)
	}
	// The bundled hands are whole.
	for reference, files := range map[string]string{
		"bundled:calendar": "calendars=../../../testdata/demo/calendars",
		"bundled:mail":     "mail=../../../testdata/demo/mail",
	} {
		if seen, code := handTested(t, program, cache, reference, "--files", files); !seen.Passed || code != 0 {
			t.Errorf("%s: exit code %d, %+v", reference, code, seen.Checks)
		}
	}
}

// The lines that docs/authors/testing.md shows are printed so, with a table of costs.
func printsAsDocumented(t *testing.T, program string) {
	page, err := os.ReadFile("../../../docs/authors/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "\n```text\n")
	block, _, found := strings.Cut(after, "```")
	if !found || !strings.Contains(block, "FAIL") {
		t.Fatalf("the page shows no output: %q", block)
	}
	output, err := exec.CommandContext(t.Context(), program, "hand", "test", filepath.Join(brokenDir, "ignores-budget.wasm")).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(string(output), block) {
		t.Errorf("%v: no %q in\n%s", err, block, output)
	}
	for _, want := range []string{"\neach query begins initialised\n\nok    module\n", "\nok    normal\n", "tokens  bytes", "0.1 MiB", "30000  10000000000  64.0 MiB  10000", "\n23 checks, 2 failed\n"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("no %q in\n%s", want, output)
		}
	}
	for _, arguments := range [][]string{{"calendar"}, {"bundled:calendar", "--watch"}, {"./x.wasm", "--sample", "--grant", "kv"}, {brokenDir + "/not-text.wasm", "--set", "x"}, {brokenDir + "/not-text.wasm", "--name", "A B"}, {brokenDir + "/not-text.wasm", "--grant", "all"}, {brokenDir + "/not-text.wasm", "--http", "nonsense"}, {brokenDir + "/not-text.wasm", "--allow-private", "here"}, {brokenDir + "/not-text.wasm", "--timeout", "-5s"}, {brokenDir + "/not-text.wasm", "--timeout", "100ms"}, {brokenDir + "/not-text.wasm", "--timeout", "1h", "--sample"}} {
		if output, err := exec.CommandContext(t.Context(), program, append([]string{"hand", "test"}, arguments...)...).CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
			t.Errorf("%v: %v: %s", arguments, err, output)
		}
	}
}

// A file is checked again when it has changed, and a signal is no failure.
func watches(t *testing.T, program string) {
	file := filepath.Join(t.TempDir(), "hand.wasm")
	put := func(name string) {
		module, err := os.ReadFile(filepath.Join(brokenDir, name+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		if err := replaceFile(file, module); err != nil {
			t.Fatal(err)
		}
	}
	put("silent-failure")
	command := exec.CommandContext(t.Context(), program, "hand", "test", file, "--watch", "--json")
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Process.Kill()
	reports := json.NewDecoder(out)
	for _, name := range []string{"silent-failure", "polite-failure", "no-entry"} {
		if name != "silent-failure" {
			put(name)
		}
		var seen tested
		if err := reports.Decode(&seen); err != nil {
			t.Fatal(err)
		}
		if seen.Hand != name || seen.Passed != (name == "polite-failure") {
			t.Errorf("after %s is there: %+v", name, seen)
		}
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

// The cases of the sample hand are in the program too.
func checksSamples(t *testing.T, program string) {
	module, err := build.Hand(t.Context(), filepath.Join("..", "..", "..", "examples", "hand-go"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sample.wasm")
	if err := os.WriteFile(file, module, 0o600); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	if seen, code := handTested(t, program, cache, "--sample", file); !seen.Passed || code != 0 || len(seen.Checks) < 150 || seen.Image == nil || seen.Image.Stage != sandbox.StageWarmed {
		t.Errorf("exit code %d, %d checks, %+v", code, len(seen.Checks), seen.Image)
	}
	seen, code := handTested(t, program, cache, "--sample", filepath.Join(brokenDir, "not-text.wasm"))
	if seen.Passed || code != exitFailed || seen.Checks[1].Passed || !strings.Contains(seen.Checks[1].Faults[0], `, 2 bytes, not "hello"`) {
		t.Errorf("exit code %d, %+v", code, seen.Checks[1])
	}
}

// The modules of the corpus are those of their sources.
func TestBrokenHandsAreBuilt(t *testing.T) {
	if _, err := exec.LookPath("wat2wasm"); err != nil {
		t.Skip("wat2wasm is not installed: apt-get install wabt")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(brokenDir)); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "build.sh")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.wat"))
	if err != nil || len(sources) != len(broken) {
		t.Errorf("%d sources (%v) for %d rows", len(sources), err, len(broken))
	}
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".wat") + ".wasm"
		have, err := os.ReadFile(filepath.Join(brokenDir, name))
		if err != nil {
			t.Fatal(err)
		}
		built, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(have, built) {
			t.Errorf("%s is not what its source gives (%v): run build.sh", name, err)
		}
	}
}
