package project_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/sdk/project"
)

// toolchains say how the tests of a new project are run, and what has to be there for
// it and for building the module.
var toolchains = map[project.Language]struct {
	needs []string
	tests []string
}{
	project.Go:             {[]string{"go"}, []string{"go", "test", "./..."}},
	project.Rust:           {[]string{"cargo"}, []string{"cargo", "test", "--quiet"}},
	project.C:              {[]string{"clang", "make", "wasm-ld"}, []string{"make", "test", "CC=clang"}},
	project.AssemblyScript: {[]string{"node", "npm"}, []string{"npm", "test"}},
}

// A new project builds at once, and its tests pass, with nothing but what is in it and
// its toolchain.
func TestNewProjectsBuild(t *testing.T) {
	for _, language := range project.Languages() {
		t.Run(string(language), func(t *testing.T) {
			if testing.Short() {
				t.Skip("calls the toolchain")
			}
			chain := toolchains[language]
			for _, tool := range chain.needs {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skipf("%s is not installed", tool)
				}
			}
			dir := filepath.Join(t.TempDir(), "my-hand")
			files, err := project.New(dir, "my-hand", language, project.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"README.md", "manifest.toml", ".gitignore"} {
				if !slices.Contains(files, file) {
					t.Errorf("there is no %s among %v", file, files)
				}
			}
			if got, err := project.LanguageOf(dir); got != language || err != nil {
				t.Errorf("it is in %q, %v", got, err)
			}
			module, err := project.Build(t.Context(), dir, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(module), "\x00asm") {
				t.Errorf("built %.20q", module)
			}
			command := exec.CommandContext(t.Context(), chain.tests[0], chain.tests[1:]...)
			command.Dir = dir
			if printed, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", strings.Join(chain.tests, " "), err, printed)
			}
		})
	}
}

// A hand may be called as the go command calls packages and patterns of its own.
func TestNamesOfTheGoCommandBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("calls the toolchain")
	}
	for _, name := range []string{"std", "cmd", "all", "go", "tool", "work", "fmt", "a-"} {
		dir := filepath.Join(t.TempDir(), name)
		if _, err := project.New(dir, name, project.Go, project.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := project.Build(t.Context(), dir, t.Output()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The files of a project hold its name and nothing that is left of a template, and
// published ones bring no SDK along.
func TestProjectsAreFilledIn(t *testing.T) {
	for _, language := range project.Languages() {
		for _, version := range []string{"", "1.2.3"} {
			if language == project.C && version != "" {
				continue
			}
			dir := filepath.Join(t.TempDir(), "deep", "down")
			files, err := project.New(dir, "my-hand", language, project.Options{Published: version})
			if err != nil {
				t.Fatal(err)
			}
			all := ""
			for _, file := range files {
				content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(content), "{{"+".") || strings.Contains(string(content), "<no value>") {
					t.Errorf("%s: %s holds\n%s", language, file, content)
				}
				all += string(content)
			}
			if !strings.Contains(all, `name = "my-hand"`) || strings.Contains(all, "1.2.3") != (version != "") {
				t.Errorf("%s %q: the project is\n%s", language, version, all)
			}
			if _, err := os.Stat(filepath.Join(dir, "glovebox")); (err == nil) != (version == "") {
				t.Errorf("%s %q: its SDK: %v", language, version, err)
			}
		}
	}
}

func TestProjectsThatCannotBe(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what, dir, name string
		language        project.Language
		options         project.Options
		want            error
	}{
		{"a path for a name", "", "../up", project.Go, project.Options{}, project.ErrName},
		{"a name with a newline", "", "a\nb", project.Go, project.Options{}, project.ErrName},
		{"no name", "", "", project.C, project.Options{}, project.ErrName},
		{"no language", "", "hand", "", project.Options{}, project.ErrLanguage},
		{"another language", "", "hand", "cobol", project.Options{}, project.ErrLanguage},
		{"a directory with something in it", full, "hand", project.Rust, project.Options{}, project.ErrNotEmpty},
		{"a version that is none", "", "hand", project.Go, project.Options{Published: "latest\n"}, project.ErrVersion},
		{"half a version", "", "hand", project.Go, project.Options{Published: "1"}, project.ErrVersion},
		{"C from a registry", "", "hand", project.C, project.Options{Published: "1.0.0"}, project.ErrNoRegistry},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir := test.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "new")
			}
			if _, err := project.New(dir, test.name, test.language, test.options); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if _, err := os.Stat(dir); test.dir == "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
	if left, err := os.ReadFile(filepath.Join(full, "mine.txt")); err != nil || string(left) != "mine" {
		t.Errorf("what was there is %q, %v", left, err)
	}
}

func TestDirectoriesWithoutAProject(t *testing.T) {
	if _, err := project.Build(t.Context(), t.TempDir(), io.Discard); !errors.Is(err, project.ErrNoProject) {
		t.Errorf("got %v", err)
	}
	if _, err := project.Build(t.Context(), filepath.Join(t.TempDir(), "absent"), io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
