// Package build calls clang the way a hand wants it: for tests, generators and
// command lines that turn a directory of C into a module. A project needs no
// Makefile.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gloveboxhq/glovebox/sdk"
)

// Profile is how the module is entered.
type Profile string

// The profiles: a reactor exports glovebox_query_v1, a command _start. A command
// is a program with a main, and is built without the SDK.
const (
	Reactor Profile = "reactor"
	Command Profile = "command"
)

// MissingError says that a part of the toolchain is not installed. It matches
// exec.ErrNotFound.
type MissingError struct {
	// Part is what is missing, Remedy what to do about it.
	Part, Remedy string
}

func (e *MissingError) Error() string { return "there is no " + e.Part + ": " + e.Remedy }

// Is reports whether target is exec.ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == exec.ErrNotFound }

// The SDK's files, and the folder of a project that may hold its own copy.
const (
	header   = "glovebox.h"
	source   = "glovebox.c"
	vendored = "glovebox"
)

// stackBytes is room for the deepest that the SDK and the C library go, and for
// arrays of the author's; it costs no byte in the module.
const stackBytes = 256 << 10

// Hand builds all .c files of dir, not of folders below it, and returns the
// module, without a manifest. A reactor is built with the SDK: the project's own
// glovebox.c in dir or in dir/glovebox, or else this program's.
//
// It takes clang from $WASI_SDK_PATH, if that is set, or else from PATH, where
// Debian's packages clang, lld, wasi-libc and libclang-rt-dev-wasm32 are what is
// needed. The bytes depend on the sources, the SDK and the toolchain alone, not
// on paths. The error is a *MissingError if the toolchain is not whole, or else
// holds what clang printed.
func Hand(ctx context.Context, dir string, profile Profile) ([]byte, error) {
	module, err := hand(ctx, dir, profile)
	if err != nil {
		return nil, fmt.Errorf("build hand in %s: %w", dir, err)
	}
	return module, nil
}

func hand(ctx context.Context, dir string, profile Profile) ([]byte, error) {
	chain, err := find(ctx)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "glovebox-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	sources, include, err := plan(dir, temp, profile)
	if err != nil {
		return nil, err
	}
	var objects []string
	for i, file := range sources {
		object := filepath.Join(temp, fmt.Sprintf("%d.o", i))
		if err := chain.compile(ctx, file, include, object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	output := filepath.Join(temp, "hand.wasm")
	if err := chain.link(ctx, objects, profile, output); err != nil {
		return nil, err
	}
	return os.ReadFile(output)
}

// plan returns the files to compile, in an order that is always the same, and the
// folder with the SDK's header; it writes the SDK to temp if the project has none.
func plan(dir, temp string, profile Profile) (sources []string, include string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".c" && !e.IsDir() {
			sources = append(sources, filepath.Join(dir, e.Name()))
		}
	}
	if len(sources) == 0 {
		return nil, "", errors.New("there are no .c files: write the hand into one, such as hand.c")
	}
	if profile == Command {
		return sources, dir, nil
	}
	own := filepath.Join(dir, vendored)
	switch {
	case exists(filepath.Join(dir, source)):
		return sources, dir, nil
	case exists(filepath.Join(own, source)):
		return append(sources, filepath.Join(own, source)), own, nil
	}
	for _, name := range []string{header, source} {
		content, err := fs.ReadFile(sdk.Sources(), "c/"+name)
		if err != nil {
			return nil, "", err
		}
		if err := os.WriteFile(filepath.Join(temp, name), content, 0o600); err != nil {
			return nil, "", err
		}
	}
	return append(sources, filepath.Join(temp, source)), temp, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// toolchain is a clang that builds for WASI.
type toolchain struct {
	clang    string
	sysroot  string
	builtins string // the archive of what clang expects to be there
}

const target = "--target=wasm32-wasi"

// find looks for each part, since clang's own messages name none to install.
func find(ctx context.Context) (toolchain, error) {
	chain := toolchain{clang: "clang", sysroot: "/usr"}
	remedy := "install Debian's clang, lld, wasi-libc and libclang-rt-dev-wasm32, or set WASI_SDK_PATH to a wasi-sdk"
	if root := os.Getenv("WASI_SDK_PATH"); root != "" {
		chain.clang = filepath.Join(root, "bin", "clang")
		chain.sysroot = filepath.Join(root, "share", "wasi-sysroot")
		remedy = fmt.Sprintf("WASI_SDK_PATH is %s: set it to a whole wasi-sdk, or to nothing", root)
	}
	missing := func(what string) (toolchain, error) {
		return toolchain{}, &MissingError{what, remedy}
	}
	if _, err := exec.LookPath(chain.clang); err != nil {
		return missing(chain.clang)
	}
	linker, err := chain.ask(ctx, "-print-prog-name=wasm-ld")
	if err != nil {
		return toolchain{}, err
	}
	if _, err := exec.LookPath(linker); err != nil {
		return missing("wasm-ld, which is in lld")
	}
	for _, part := range []string{"include/wasm32-wasi/stdio.h", "lib/wasm32-wasi/crt1-reactor.o"} {
		if name := filepath.Join(chain.sysroot, filepath.FromSlash(part)); !exists(name) {
			return missing(name + ", which is in wasi-libc")
		}
	}
	if chain.builtins, err = chain.ask(ctx, "--rtlib=compiler-rt", "-print-libgcc-file-name"); err != nil {
		return toolchain{}, err
	}
	if !exists(chain.builtins) {
		// Debian installs it for its own version of clang, whichever runs.
		found, err := filepath.Glob("/usr/lib/llvm-*/lib/clang/*/lib/wasi/libclang_rt.builtins-wasm32.a")
		if err != nil || len(found) == 0 {
			return missing(chain.builtins + ", which is in libclang-rt-dev-wasm32")
		}
		chain.builtins = found[len(found)-1]
	}
	return chain, nil
}

// ask returns what clang says of itself.
func (c toolchain) ask(ctx context.Context, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, c.clang, append([]string{target, "--sysroot=" + c.sysroot}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for wasm32-wasi: %w: it may have been built without WebAssembly", c.clang, err)
	}
	return strings.TrimSpace(string(output)), nil
}

func (c toolchain) compile(ctx context.Context, file, include, object string) error {
	// __FILE__, in an assert, is the name alone.
	folder := filepath.Dir(file) + string(filepath.Separator)
	if file[0] == '-' || file[0] == '@' {
		// A name of somebody's file is not to be a flag.
		file = "." + string(filepath.Separator) + file
	}
	return c.run(ctx, "-std=c11", "-Os", "-DNDEBUG",
		"-Wall", "-Wextra", "-fdiagnostics-color=never", "-ffile-prefix-map="+folder+"=", "-I", include, "-c", "-o", object, file)
}

// link keeps only what the entry needs: what is imported is what is asked for. It
// names no level of optimisation, with which clang would run a wasm-opt that it
// finds in PATH, and the bytes depend on that.
func (c toolchain) link(ctx context.Context, objects []string, profile Profile, output string) error {
	args := append([]string{
		"-mexec-model=" + string(profile), "-nodefaultlibs",
		"-Wl,--gc-sections", "-Wl,--strip-all", "-Wl,--stack-first", fmt.Sprintf("-Wl,-z,stack-size=%d", stackBytes), "-o", output,
	}, objects...)
	return c.run(ctx, append(args, "-lc", c.builtins)...)
}

func (c toolchain) run(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, c.clang, append([]string{target, "--sysroot=" + c.sysroot}, args...)...)
	// Paths of the environment would add headers and libraries of the machine.
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS", "COMPILER_PATH":
		default:
			command.Env = append(command.Env, entry)
		}
	}
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(c.clang), err, strings.TrimSpace(printed.String()))
	}
	return nil
}
