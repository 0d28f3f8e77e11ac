package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/plugins"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// TestMain lets this program be the compiler of the commands that tests run in it.
func TestMain(m *testing.M) {
	registry.CompilerMain()
	os.Exit(m.Run())
}

// The scripts drive the binary as a person would; several of their lines are
// hostile.
func TestScripts(t *testing.T) {
	guest, err := build.Hand(t.Context(), filepath.Join("..", "..", "..", "examples", "hand-go", "smallest"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	injector, err := build.Hand(t.Context(), filepath.Join("..", "..", "testdata", "injector"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := build.Hand(t.Context(), filepath.Join("..", "..", "capability", "testdata", "keeper"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	// The program itself, not the test binary under another name: what is run
	// is what is shipped, also when the tests run under the race detector, in
	// which compiling modules takes minutes.
	bin := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	demo, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "demo"))
	if err != nil {
		t.Fatal(err)
	}
	signing := documented(t, filepath.Join("..", "..", "..", "docs", "signing.md"), "")
	installing := documented(t, filepath.Join("..", "..", "..", "docs", "operating.md"), "Installing hands")
	// All scripts share one compilation cache, as the commands of one user do.
	cache := t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GLOVEBOX_HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("XDG_CACHE_HOME", cache)
			env.Setenv("DEMO", demo)
			env.Setenv("TZ", "UTC")
			for name, content := range map[string][]byte{"hand.wasm": guest, "injector.wasm": injector, "signing.sh": signing, "installing.sh": installing, "keeper.wasm": keeper, "reader.wasm": reader} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), content, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

var fenced = regexp.MustCompile("(?ms)^( *)```(sh|toml)\n(.*?)^ *```$")

// documented makes a shell script of the blocks of a page, or of one section of it: commands as they stand, and
// configuration for the end of the file, with the key of acme.pub and the digest of
// homemade.wasm where the page has dots.
func documented(t *testing.T, page, section string) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if section != "" {
		_, after, found := bytes.Cut(text, []byte("\n## "+section+"\n"))
		if text, _, _ = bytes.Cut(after, []byte("\n## ")); !found {
			t.Fatalf("%s has no section %q", page, section)
		}
	}
	script := []byte("set -eu\n")
	for _, block := range fenced.FindAllSubmatch(text, -1) {
		lines := bytes.ReplaceAll(block[3], append([]byte("\n"), block[1]...), []byte("\n"))
		lines = bytes.TrimPrefix(lines, block[1])
		if string(block[2]) == "toml" {
			script = append(script, `digest=$(glovebox hand inspect "$GLOVEBOX_HOME/homemade.wasm" | sed -n 's/^digest *//p')`+"\n"+
				`sed "s|RW…|$(tail -n 1 acme.pub)|; s|sha256:…|$digest|" >>"$GLOVEBOX_HOME/glovebox.toml" <<'END'`+"\n"...)
			lines = append(lines, "END\n"...)
		}
		script = append(script, lines...)
	}
	return script
}

// commandOn returns the program, in this process, with a data directory; "hello"
// is what it is told.
func commandOn(home string) func(args ...string) (code int, out, errs string) {
	return func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = run(append(args, "--data", home), strings.NewReader("hello\n"), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[31mb\u202ec\u2066d\te\nf\u0085g👩‍🚀"); got != "a[31mbcd\te\nfg👩‍🚀" {
		t.Errorf("got %q", got)
	}
}
