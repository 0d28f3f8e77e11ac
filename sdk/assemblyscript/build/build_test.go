package build_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/sdk/assemblyscript/build"
)

const (
	sdk    = ".."
	sample = "../../../examples/hand-assemblyscript"
)

// needs skips the test where a project's packages are not installed.
func needs(t *testing.T, project string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: install Node.js 20 or newer", program)
		}
	}
	if _, err := os.Stat(filepath.Join(project, "node_modules", "assemblyscript")); err != nil {
		t.Skipf("its packages are not installed: npm ci in %s", project)
	}
}

func npmTest(t *testing.T, project string) {
	t.Helper()
	needs(t, project)
	if testing.Short() {
		t.Skip("it compiles several modules")
	}
	command := exec.CommandContext(t.Context(), "npm", "test")
	command.Dir = project
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("npm test: %v\n%s", err, output)
	}
	if !regexp.MustCompile(`(?m)^# pass [1-9]`).Match(output) {
		t.Errorf("no test passed\n%s", output)
	}
}

func TestSDK(t *testing.T) { npmTest(t, sdk) }

func TestSampleInNode(t *testing.T) { npmTest(t, sample) }

// project lays out a hand whose packages are those of the sample.
func project(t *testing.T, source string) string {
	t.Helper()
	packages, err := filepath.Abs(filepath.Join(sample, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"package.json":      `{"name": "hand", "private": true, "type": "module"}`,
		"asconfig.json":     `{"extends": "@gloveboxhq/hand/asconfig.json"}`,
		"assembly/index.ts": source,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// blocks returns the code of a document by the first name in backquotes in the line
// that stands before it.
func blocks(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, match := range regexp.MustCompile("(?s)\n`([^`\n]+)`[^\n]*\n\n```[a-z]+\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		found[match[1]] = match[2] + "\n"
	}
	return found
}

// The first hand of README.md, as a reader would lay it out.
func TestFirstHand(t *testing.T) {
	needs(t, sample)
	files := blocks(t, filepath.Join(sdk, "README.md"))
	document := []byte(files["manifest.toml"])
	if m, err := manifest.Parse(document); err != nil || m.Name != "notes" {
		t.Errorf("manifest.toml: %+v, %v", m, err)
	}
	dir := project(t, files["assembly/index.ts"])
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	module, err := build.Hand(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "build"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "build", "hand.wasm"), module, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "node", "--test", "test/")
	command.Dir = dir
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "# pass 2") {
		t.Errorf("node --test: %v\n%s", err, output)
	}
}

func TestHandIsReproducible(t *testing.T) {
	needs(t, sample)
	module, err := build.Hand(t.Context(), sample, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")) {
		t.Fatalf("it is no module: % x", module[:min(len(module), 8)])
	}
	source, err := os.ReadFile(filepath.Join(sample, "assembly", "index.ts"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := project(t, string(source))
	again, err := build.Hand(t.Context(), elsewhere, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(module, again) {
		t.Errorf("the same source in another directory gives another module: %d and %d bytes", len(module), len(again))
	}
}

func TestHandSaysWhatIsWrong(t *testing.T) {
	needs(t, sample)
	without := func(name string) string {
		dir := project(t, "")
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, test := range []struct {
		name, dir string
		want      []string
	}{
		{"no project", t.TempDir(), []string{"there is no package.json", "npm init"}},
		{"no source", without("assembly/index.ts"), []string{"there is no assembly/index.ts"}},
		{"no settings", without("asconfig.json"), []string{"there is no asconfig.json", `{"extends": "@gloveboxhq/hand/asconfig.json"}`}},
		{"a mistake", project(t, "import { register } from \"@gloveboxhq/hand\";\nregister(1);\n"), []string{"asc.js", "assembly/index.ts(2,10)", "not assignable"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := build.Hand(t.Context(), test.dir, nil)
			if err == nil {
				t.Fatal("it was built")
			}
			for _, want := range append(test.want, test.dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
}

// A stand-in for npm shows how it is called, for the real one needs the network.
func TestHandInstallsPackages(t *testing.T) {
	needs(t, sample)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := filepath.Abs(filepath.Join(sample, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	const source = "import { Query, register } from \"@gloveboxhq/hand\";\nregister((q: Query): string => q.prompt);\n"
	for _, test := range []struct {
		name, npm, lock, command, fails string
	}{
		{name: "with a lock file", npm: "ln -s '" + packages + "' node_modules\n", lock: "{}", command: "ci"},
		{name: "without", npm: "ln -s '" + packages + "' node_modules\n", command: "install"},
		{name: "that fails", npm: "echo no network\nexit 1\n", lock: "{}", command: "ci", fails: "no network"},
		{name: "for another project", npm: "mkdir node_modules\n", lock: "{}", command: "ci", fails: "package.json must ask for assemblyscript"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, bin := project(t, source), t.TempDir()
			if err := os.Remove(filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			if test.lock != "" {
				if err := os.WriteFile(filepath.Join(dir, "package-lock.json"), []byte(test.lock), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\n[ \"$1\" = "+test.command+" ] && [ \"$2\" = --ignore-scripts ] || exit 2\n"+test.npm), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(node, filepath.Join(bin, "node")); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			var progress strings.Builder
			_, err := build.Hand(t.Context(), dir, &progress)
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("got %v, want %q", err, test.fails)
			}
			if want := "npm " + test.command + " in " + dir + "\n"; !strings.HasSuffix(progress.String(), want) {
				t.Errorf("it said %q, want %q at the end", progress.String(), want)
			}
		})
	}
}

func TestHandWithoutNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "assembly"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package.json", "asconfig.json", "assembly/index.ts"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	_, err := build.Hand(t.Context(), dir, nil)
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install Node.js 20") {
		t.Errorf("got %v", err)
	}
}
