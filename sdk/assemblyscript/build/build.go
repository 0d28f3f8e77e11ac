// Package build calls the AssemblyScript compiler the way a hand wants it: for tests
// and command lines that turn an npm project into a module.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The parts of a project, beside its package.json.
const (
	source   = "assembly/index.ts"
	settings = "asconfig.json"
	lock     = "package-lock.json"
	compiler = "node_modules/assemblyscript/bin/asc.js"
	sdk      = "node_modules/@gloveboxhq/hand/asconfig.json"
)

// Hand builds the project in dir and returns the module, without a manifest. The
// compiler is that of the project's node_modules, its flags are those of the
// project's asconfig.json, which has them from the SDK's. Where either package is
// not installed, npm installs what the project's lock file says, or without one
// what its package.json asks for, and progress (if it is not nil) is told so in a
// line before; no package's scripts are run.
//
// The bytes depend on the sources and the installed packages alone, not on the
// path. An error that matches exec.ErrNotFound says that there is no Node.js or no
// npm; others hold what npm or the compiler printed.
func Hand(ctx context.Context, dir string, progress io.Writer) ([]byte, error) {
	module, err := hand(ctx, dir, progress)
	if err != nil {
		return nil, fmt.Errorf("build hand in %s: %w", dir, err)
	}
	return module, nil
}

func hand(ctx context.Context, dir string, progress io.Writer) ([]byte, error) {
	for _, file := range []struct{ name, missing string }{
		{"package.json", `it is no npm project: "npm init" makes one, then install @gloveboxhq/hand and assemblyscript`},
		{source, "it is where the hand's source begins"},
		{settings, `write {"extends": "@gloveboxhq/hand/asconfig.json"} into it`},
	} {
		if there, err := exists(dir, file.name); err != nil {
			return nil, err
		} else if !there {
			return nil, fmt.Errorf("there is no %s: %s", file.name, file.missing)
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("node: %w: install Node.js 20 or newer", exec.ErrNotFound)
	}
	if err := install(ctx, dir, progress); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "glovebox-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	output := filepath.Join(temp, "hand.wasm")
	if err := run(ctx, dir, node, filepath.FromSlash(compiler), source, "--config", settings, "--noColors", "--outFile", output); err != nil {
		return nil, err
	}
	return os.ReadFile(output)
}

// install leaves alone what is there: an author may have linked a package.
func install(ctx context.Context, dir string, progress io.Writer) error {
	missing, err := firstMissing(dir, compiler, sdk)
	if err != nil || missing == "" {
		return err
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm: %w: install npm, which comes with Node.js", exec.ErrNotFound)
	}
	command := "install"
	if locked, err := exists(dir, lock); err != nil {
		return err
	} else if locked {
		command = "ci"
	}
	if progress != nil {
		fmt.Fprintf(progress, "there is no %s: npm %s in %s\n", missing, command, dir)
	}
	if err := run(ctx, dir, npm, command, "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return err
	}
	if missing, err = firstMissing(dir, compiler, sdk); err != nil || missing == "" {
		return err
	}
	return fmt.Errorf("there is no %s after npm %s: package.json must ask for assemblyscript and @gloveboxhq/hand", missing, command)
}

func firstMissing(dir string, names ...string) (string, error) {
	for _, name := range names {
		if there, err := exists(dir, name); err != nil || !there {
			return name, err
		}
	}
	return "", nil
}

func exists(dir, name string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func run(ctx context.Context, dir, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(printed.String()))
	}
	return nil
}
