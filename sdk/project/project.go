// Package project begins hands and builds them: it writes a project that builds,
// tests and passes the conformance kit at once, with the SDK beside it, and calls the
// toolchain of whatever language a project is in.
package project

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/mod/semver"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/sdk"
	assemblyscript "github.com/gloveboxhq/glovebox/sdk/assemblyscript/build"
	c "github.com/gloveboxhq/glovebox/sdk/c/build"
	golang "github.com/gloveboxhq/glovebox/sdk/go/build"
	rust "github.com/gloveboxhq/glovebox/sdk/rust/build"
)

// Language is one that has an SDK.
type Language string

// The languages.
const (
	Go             Language = "go"
	Rust           Language = "rust"
	C              Language = "c"
	AssemblyScript Language = "assemblyscript"
)

// Languages returns all languages, in the order of the documentation.
func Languages() []Language { return []Language{Go, Rust, C, AssemblyScript} }

// Errors that callers branch on.
var (
	// ErrName: a project's name is not a hand's.
	ErrName = errors.New("a hand's name is 1 to 63 of a-z, 0-9 and -, not beginning with -")
	// ErrLanguage: there is no SDK for the language.
	ErrLanguage = errors.New("no such language")
	// ErrNotEmpty: there is something where the project was to be.
	ErrNotEmpty = errors.New("it is there already and not empty")
	// ErrNoProject: a directory has nothing that Build knows how to build.
	ErrNoProject = errors.New("no project of a hand: there is no go.mod, Cargo.toml, package.json with an assembly folder, or .c file")
	// ErrVersion: Options.Published is not a version.
	ErrVersion = errors.New("not a semantic version such as 1.2.3")
	// ErrNoRegistry: the SDK of a language is in no registry.
	ErrNoRegistry = errors.New("no registry has the SDK for C: leave --published out, and its two files are written into the project")
)

// vendored is the folder of a project that has the SDK.
const vendored = "glovebox"

//go:embed all:templates
var templates embed.FS

// Options of New.
type Options struct {
	// Published is a version of the SDK, such as "1.2.3": the project then names that
	// in the language's registry. "" writes the SDK's sources into the project.
	Published string
}

// New writes a project for a hand called name into dir, which is made and must be
// empty if it is there. It returns the files of the project, without those of the
// SDK, as slash-separated paths below dir, sorted. When it fails, what it wrote is
// removed. Errors wrap ErrName, ErrLanguage, ErrNotEmpty, ErrVersion, ErrNoRegistry or the file
// system's.
func New(dir, name string, language Language, o Options) (files []string, err error) {
	switch {
	case !manifest.ValidName(name):
		return nil, fmt.Errorf("%q: %w", name, ErrName)
	case !slices.Contains(Languages(), language):
		return nil, fmt.Errorf("%w as %q: there are %v", ErrLanguage, language, Languages())
	case o.Published != "" && !isVersion(o.Published):
		return nil, fmt.Errorf("%q is %w", o.Published, ErrVersion)
	case language == C && o.Published != "":
		return nil, ErrNoRegistry
	}
	made, err := makeEmpty(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo(dir, made))
		}
	}()
	values := struct{ Name, Identifier, Published string }{name, identifier(name), o.Published}
	root := path.Join("templates", string(language))
	err = fs.WalkDir(templates, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := template.ParseFS(templates, name)
		if err != nil {
			return err
		}
		var content bytes.Buffer
		if err := text.Option("missingkey=error").Execute(&content, values); err != nil {
			return err
		}
		file := strings.TrimSuffix(strings.TrimPrefix(name, root+"/"), ".tmpl")
		files = append(files, file)
		return write(dir, file, content.Bytes())
	})
	if err != nil {
		return nil, fmt.Errorf("write the project %s: %w", dir, err)
	}
	if o.Published == "" {
		if err := writeSDK(filepath.Join(dir, vendored), language); err != nil {
			return nil, fmt.Errorf("write the SDK into %s: %w", dir, err)
		}
	}
	slices.Sort(files)
	return files, nil
}

// isVersion leaves out the short forms v1 and v1.2, which package semver takes and a
// go.mod does not.
func isVersion(version string) bool {
	v := "v" + version
	return semver.IsValid(v) && strings.HasPrefix(v, semver.Canonical(v))
}

// makeEmpty makes dir unless it is there, and reports whether it did.
func makeEmpty(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, os.MkdirAll(dir, 0o755)
	case err != nil:
		return false, err
	case len(entries) > 0:
		return false, fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	}
	return false, nil
}

// undo leaves nothing of a project that was not finished.
func undo(dir string, made bool) error {
	if made {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func write(dir, name string, content []byte) error {
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// identifier is a hand's name as languages write names.
func identifier(name string) string {
	if name[0] >= '0' && name[0] <= '9' {
		name = "hand-" + name
	}
	return strings.ReplaceAll(name, "-", "_")
}

// writeSDK writes the sources of an SDK as a project uses them.
func writeSDK(dir string, language Language) error {
	sources, err := fs.Sub(sdk.Sources(), string(language))
	if err != nil {
		return err
	}
	if language != Go {
		return copyAll(dir, sources, ".")
	}
	// The module that the imports name, with the packages that a hand reaches.
	if err := write(dir, "go.mod", []byte("module github.com/gloveboxhq/glovebox\n\ngo 1.26.0\n")); err != nil {
		return err
	}
	return errors.Join(copyAll(filepath.Join(dir, "abi"), abi.Source(), "."), copyAll(filepath.Join(dir, "sdk", "go"), sources, "."))
}

func copyAll(dir string, from fs.FS, root string) error {
	return fs.WalkDir(from, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return write(dir, name, content)
	})
}

// LanguageOf tells in which language a project is. The error wraps ErrNoProject.
func LanguageOf(dir string) (Language, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	hasC := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return filepath.Ext(e.Name()) == ".c" })
	switch {
	case has("go.mod"):
		return Go, nil
	case has("Cargo.toml"):
		return Rust, nil
	case has("package.json") && has("assembly"):
		return AssemblyScript, nil
	case hasC:
		return C, nil
	}
	return "", fmt.Errorf("%s: %w", dir, ErrNoProject)
}

// Build builds the project in dir, in whichever language it is, and returns the
// module, without a manifest. What takes long, such as the download of a compiler, is
// said to progress. The error wraps ErrNoProject, or says what the toolchain
// printed or which part of it to install.
func Build(ctx context.Context, dir string, progress io.Writer) ([]byte, error) {
	language, err := LanguageOf(dir)
	if err != nil {
		return nil, err
	}
	switch language {
	case Rust:
		return rust.Hand(ctx, dir)
	case C:
		return c.Hand(ctx, dir, c.Reactor)
	case AssemblyScript:
		return assemblyscript.Hand(ctx, dir, progress)
	}
	return golang.Hand(ctx, dir, golang.Reactor)
}
