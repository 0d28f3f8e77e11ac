package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/sdk/project"
)

// manifestFile is where a project has its manifest.
const manifestFile = "manifest.toml"

func (a *app) handNew() *cobra.Command {
	var language, dir, published string
	c := &cobra.Command{
		Use: "new NAME --lang go|rust|c|assemblyscript", Short: "Begin a hand: a project that builds, tests and passes at once",
		Long: "Begin a hand: a project that builds, tests and passes glovebox hand test at once.\n\n" +
			"The SDK's sources are written into the project, in the folder glovebox; with --published VERSION the project\nnames the SDK of that version in the language's registry instead.",
		Example: "  glovebox hand new my-calendar --lang rust",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if language == "" {
				return usagef("--lang is missing: write one of %v", project.Languages())
			}
			name := args[0]
			if dir == "" {
				dir = name
			}
			files, err := project.New(dir, name, project.Language(language), project.Options{Published: strings.TrimPrefix(published, "v")})
			switch {
			case errors.Is(err, project.ErrName), errors.Is(err, project.ErrLanguage), errors.Is(err, project.ErrNoRegistry), errors.Is(err, project.ErrVersion):
				return &usageError{err}
			case err != nil:
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"name": name, "language": language, "directory": dir, "files": files})
			}
			for _, file := range files {
				a.printf("%s\n", filepath.Join(dir, filepath.FromSlash(file)))
			}
			a.printf("\nnext: cd %s && glovebox hand build && glovebox hand test %s.wasm\n", dir, name)
			return nil
		},
	}
	c.Flags().StringVar(&language, "lang", "", "language: go, rust, c or assemblyscript")
	c.Flags().StringVar(&dir, "dir", "", "directory to write into (default NAME)")
	c.Flags().StringVar(&published, "published", "", "name the SDK of this `VERSION` in the language's registry, in place of its sources")
	return c
}

// built is what hand build prints.
type built struct {
	File     string           `json:"file"`
	Language project.Language `json:"language"`
	Digest   string           `json:"digest"`
	Bytes    int              `json:"bytes"`
}

func (a *app) handBuild() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "build [DIR]", Short: "Build a hand's project, with its manifest in the module",
		Long: "Build a hand's project with the toolchain of its language, and write manifest.toml into the module.\n\n" +
			"DIR, by default the working directory, has a go.mod, a Cargo.toml, a package.json with an assembly folder, or .c files.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			language, err := project.LanguageOf(dir)
			if err != nil {
				return err
			}
			// A manifest that is wrong is said before a build that takes long.
			path := filepath.Join(dir, manifestFile)
			document, m, err := readManifest(path)
			if err != nil {
				return err
			}
			if output == "" {
				output = filepath.Join(dir, m.Name+".wasm")
				// The project chose the name: a link of its own is not to lead to
				// somebody's file.
				if info, err := os.Lstat(output); err == nil && info.Mode()&os.ModeSymlink != 0 {
					return fmt.Errorf("%s is a link: remove it, or name the file to write with --output", output)
				}
			}
			module, err := project.Build(c.Context(), dir, a.stderr)
			if c.Context().Err() != nil {
				return c.Context().Err()
			}
			if err != nil {
				return err
			}
			embedded, seen, err := embed(module, document, m)
			if err != nil {
				return fmt.Errorf("%s and what was built of %s: %w", path, dir, err)
			}
			if err := replaceFile(output, embedded); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(built{output, language, seen.Digest, len(embedded)})
			}
			a.printf("%s\n%s, %d bytes\n", output, seen.Digest, len(embedded))
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default DIR/NAME.wasm, with the manifest's name)")
	return c
}

// readManifest reads a manifest for embedding. Errors name the file, and for syntax
// the line and column.
func readManifest(path string) (document []byte, m manifest.Manifest, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, m, fmt.Errorf("read manifest: %w", err)
	case !info.Mode().IsRegular():
		// A pipe would be waited for, and a device may never end.
		return nil, m, fmt.Errorf("read manifest: %s is not a file", path)
	case info.Size() > manifest.MaxBytes:
		return nil, m, fmt.Errorf("read manifest: %s is %d bytes, at most %d are allowed", path, info.Size(), manifest.MaxBytes)
	}
	if document, err = os.ReadFile(path); err != nil {
		return nil, m, fmt.Errorf("read manifest: %w", err)
	}
	if m, err = manifest.Parse(document); err != nil {
		if at, ok := errors.AsType[*manifest.SyntaxError](err); ok {
			return nil, m, fmt.Errorf("%s:%d:%d: %w", path, at.Line, at.Column, err)
		}
		return nil, m, fmt.Errorf("%s: %w", path, err)
	}
	return document, m, nil
}
