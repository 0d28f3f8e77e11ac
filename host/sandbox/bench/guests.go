package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// languages are what the trivial hand is written in. Its sources lie in
// hands/NAME, one for each host's contract.
var languages = []language{
	{name: "c", suffix: ".c", build: buildC},
	{name: "rust-nostd", suffix: ".rs", build: buildRust("-O", "-Cpanic=abort", "-Clink-arg=-zstack-size=32768")},
	{name: "rust-std", suffix: ".rs", build: buildRust("-Copt-level=s", "-Clto=fat", "-Ccodegen-units=1", "-Cpanic=abort", "-Clink-arg=-zstack-size=32768")},
	{name: "assemblyscript", suffix: ".ts", build: buildAssemblyScript},
	{name: "go", build: buildGo},
	{name: "go-json", build: buildGo},
	{name: "go-json-warm", build: buildGo, others: "go-json"},
	{name: "go-sdk", build: buildGo, others: "go-json"},
}

type language struct {
	name   string
	suffix string // of a source; a Go hand is a directory
	build  func(ctx context.Context, source, output string) error
	// others is the language whose sources the peers' contracts have; "" means
	// this one: no peer has an answer to glovebox_warm_v1 or to the SDK.
	others string
}

// builtHands are the modules that hand has built, by source.
var builtHands sync.Map

// hand builds the trivial hand for the contract of one host, once. The error
// matches errMissing if there is no toolchain for it.
func (l language) hand(ctx context.Context, contract string) ([]byte, error) {
	folder := l.name
	if l.others != "" && contract != "glovebox" {
		folder = l.others
	}
	source := filepath.Join("hands", folder, contract+l.suffix)
	if module, ok := builtHands.Load(source); ok {
		return module.([]byte), nil
	}
	module, err := built(ctx, l.build, source)
	if err == nil {
		builtHands.Store(source, module)
	}
	return module, err
}

// errMissing says that a toolchain is not installed.
var errMissing = errors.New("toolchain not found")

func missing(tool, packages string) error {
	return fmt.Errorf("%w: no usable %s in PATH: install %s", errMissing, tool, packages)
}

// built runs one build into a directory of its own and returns the module.
func built(ctx context.Context, build func(ctx context.Context, source, output string) error, source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "glovebox-bench-")
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", source, err)
	}
	defer os.RemoveAll(dir)
	output := filepath.Join(dir, "hand.wasm")
	if err := build(ctx, source, output); err != nil {
		return nil, fmt.Errorf("build %s: %w", source, err)
	}
	return os.ReadFile(output)
}

// buildC links in a step of its own: clang, when it links, runs a wasm-opt that
// it finds in PATH, and what is measured would depend on that.
func buildC(ctx context.Context, source, output string) error {
	for _, tool := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(tool); err != nil {
			return missing(tool, "Debian's clang and lld")
		}
	}
	object := output + ".o"
	if err := run(ctx, "clang", "--target=wasm32", "-mbulk-memory", "-O2", "-ffreestanding", "-c", "-o", object, source); err != nil {
		return err
	}
	return run(ctx, "wasm-ld", "--no-entry", "--strip-all", "-z", "stack-size=16384", "-o", output, object)
}

// buildRust takes the first rustc in PATH that has the target: a toolchain
// without it may stand before one that has it.
func buildRust(options ...string) func(ctx context.Context, source, output string) error {
	return func(ctx context.Context, source, output string) error {
		const target = "--target=wasm32-unknown-unknown"
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			rustc := filepath.Join(dir, "rustc")
			libraries, err := exec.CommandContext(ctx, rustc, "--print=target-libdir", target).Output()
			if err != nil {
				continue
			}
			if _, err := os.Stat(strings.TrimSpace(string(libraries))); err != nil {
				continue
			}
			args := append([]string{target, "--edition=2021", "--crate-type=cdylib", "-Cstrip=symbols", "-o", output}, options...)
			return run(ctx, rustc, append(args, source)...)
		}
		return missing("rustc with the target wasm32-unknown-unknown", "Debian's rustc and libstd-rust-dev-wasm32")
	}
}

func buildAssemblyScript(ctx context.Context, source, output string) error {
	if _, err := exec.LookPath("asc"); err != nil {
		return missing("asc", "npm's assemblyscript, and put its node_modules/.bin into PATH")
	}
	return run(ctx, "asc", source, "-O3", "--use", "abort=", "--runtime", "stub", "--exportRuntime", "-o", output)
}

func buildGo(ctx context.Context, source, output string) error {
	module, err := build.Hand(ctx, source, build.Reactor)
	if err != nil {
		return err
	}
	return os.WriteFile(output, module, 0o600)
}

func run(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(printed.String()))
	}
	return nil
}
