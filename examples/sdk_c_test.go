package examples

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk"
	c "github.com/gloveboxhq/glovebox/sdk/c/build"
)

// blocks returns the fenced blocks of a Markdown file in a language.
func blocks(t *testing.T, file, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for rest := string(text); ; {
		_, after, more := strings.Cut(rest, "\n```"+language+"\n")
		if !more {
			return found
		}
		block, next, closed := strings.Cut(after, "\n```\n")
		if !closed {
			t.Fatalf("%s has a block of %s without an end", file, language)
		}
		found = append(found, block+"\n")
		rest = "\n" + next
	}
}

// glovebox installs the command line and returns its folder.
func glovebox(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "install", "./host/cmd/glovebox")
	command.Dir = ".."
	command.Env = append(os.Environ(), "GOBIN="+bin)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, output)
	}
	return bin
}

// A reader who does what sdk/c/README.md says has a hand that answers.
func TestReadmeOfC(t *testing.T) {
	const readme = "../sdk/c/README.md"
	sources, manifests, scripts := blocks(t, readme, "c"), blocks(t, readme, "toml"), blocks(t, readme, "sh")
	if len(sources) != 2 || len(manifests) != 1 || len(scripts) != 2 {
		t.Fatalf("%s has %d blocks of C, %d of TOML and %d of sh, not 2, 1 and 2", readme, len(sources), len(manifests), len(scripts))
	}
	dir := t.TempDir()
	files := map[string]string{"hand.c": sources[0], "test.c": sources[1], "manifest.toml": manifests[0]}
	for _, name := range []string{"glovebox.h", "glovebox.c"} {
		content, err := fs.ReadFile(sdk.Sources(), "c/"+name)
		if err != nil {
			t.Fatal(err)
		}
		files["glovebox/"+name] = string(content)
	}
	if err := os.Mkdir(filepath.Join(dir, "glovebox"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Hand(t.Context(), "hand-c", c.Reactor); errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	path := glovebox(t) + string(os.PathListSeparator) + os.Getenv("PATH")
	shell := func(script string) string {
		command := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		command.Dir = dir
		command.Env = append(os.Environ(), "GLOVEBOX_HOME="+t.TempDir(), "PATH="+path)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, output)
		}
		return string(output)
	}
	output := shell(scripts[0])
	for _, want := range []string{"glovebox_files.list", "admitted    yes", "[External content from hand://reports", "Z monday.txt (15 bytes)"} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q in\n%s", want, output)
		}
	}
	if strings.Contains(output, "glovebox_http") {
		t.Errorf("it asks for what it does not use:\n%s", output)
	}
	if sanitizers, err := exec.Command("clang", "-print-file-name=libclang_rt.asan-x86_64.a").Output(); err != nil || !filepath.IsAbs(strings.TrimSpace(string(sanitizers))) {
		t.Log("clang has no sanitizers here (Debian: libclang-rt-14-dev): the native test is left out")
		return
	}
	shell(scripts[1])
}

// A hand in C that has no memory left is told so, and goes on.
func TestMemoryOfC(t *testing.T) {
	module, err := c.Hand(t.Context(), "hand-c", c.Reactor)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	world := conformance.World{Files: &conformance.FilesWorld{Entries: []conformance.File{
		{Path: "small", Text: "here"}, {Path: "big", Text: conformance.Text(strings.Repeat("x", 3<<20))},
	}}}
	loaded := loadWith(t, withManifest(t, module), abi.Limits{MemoryBytes: 2 << 20})
	got := outcome(loaded.Query(t.Context(), abi.Query{Prompt: "read big\nread small\nsize big"}, sandbox.Ports{Files: world.Ports().Files}))
	if want := "error: out_of_memory\nhere\n3145728"; got != want {
		t.Errorf("got %.200q, want %q", got, want)
	}
	// What a call needs for itself, some 300 KB here, it gives back.
	world = conformance.World{Files: &conformance.FilesWorld{Entries: []conformance.File{{Path: "a", Copies: 1000}}}}
	loaded = loadWith(t, withManifest(t, module), abi.Limits{MemoryBytes: 12 << 20})
	prompt := strings.Repeat("list\n", 60) + "say done"
	result, err := loaded.Query(t.Context(), abi.Query{Prompt: prompt, MaxOutputTokens: 1_000_000}, sandbox.Ports{Files: world.Ports().Files})
	if err != nil || !strings.HasPrefix(outcome(result, nil), "file 0 ") || result.ReplyBytes < 60*1000*30 {
		t.Errorf("%v, %d bytes that begin with %.100q", err, result.ReplyBytes, outcome(result, nil))
	}
}

// And one who does what the README of the hand in JavaScript says, but for the
// installation, which changes the folder.
func TestReadmeOfJavaScript(t *testing.T) {
	scripts := blocks(t, "hand-javascript/README.md", "sh")
	if len(scripts) != 1 || !strings.HasPrefix(scripts[0], "npm ci\nnpm run build\n") {
		t.Fatalf("the README's way is another one: %q", scripts)
	}
	file := filepath.Join(t.TempDir(), "hand.wasm")
	if err := os.WriteFile(file, javaScript(t, filepath.Join("hand-javascript", "hand.js")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(scripts[0], "npm run build\n")
	command := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.ReplaceAll(commands, "hand.wasm", file))
	command.Dir = "hand-javascript"
	command.Env = append(os.Environ(), "GLOVEBOX_HOME="+t.TempDir(), "PATH="+glovebox(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "You asked: What is on?") {
		t.Errorf("%v\n%s", err, output)
	}
}
