// Package build calls Cargo the way a hand wants it: for tests and command lines
// that turn a crate into a module.
package build

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Targets returns the targets that a hand can be built for, the preferred first:
// wasm32-wasi is what toolchains before 1.78 call wasm32-wasip1.
func Targets() []string {
	return []string{"wasm32-wasip1", "wasm32-wasi", "wasm32-unknown-unknown"}
}

// Hand builds the crate in dir in its release profile and returns the module,
// without a manifest. The crate is of the type cdylib, which makes a reactor.
//
// It takes the first toolchain that has one of the targets, which are tried in
// their order; none means Targets. Toolchains are looked for in PATH, then in
// ~/.cargo/bin and /usr/bin; where the environment has RUSTC, that one alone
// counts. Dependencies and what is built are kept where Cargo keeps them.
//
// No path of this machine gets into the module. The bytes depend on the sources,
// the toolchain and the target alone as long as every path dependency lies below
// dir: Cargo makes the path of others a part of the names by which the compiler
// orders functions. The error holds what Cargo printed; one that matches
// exec.ErrNotFound names what to install.
func Hand(ctx context.Context, dir string, targets ...string) ([]byte, error) {
	module, err := hand(ctx, dir, targets)
	if err != nil {
		return nil, fmt.Errorf("build hand in %s: %w", dir, err)
	}
	return module, nil
}

func hand(ctx context.Context, dir string, targets []string) ([]byte, error) {
	if _, err := os.Stat(filepath.Join(dir, "Cargo.toml")); err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		targets = Targets()
	}
	tools, err := find(ctx, dir, targets)
	if err != nil {
		return nil, err
	}
	remapped, err := tools.remapped(ctx, dir)
	if err != nil {
		return nil, err
	}
	// It also takes the place of the flags that the environment and Cargo's
	// configuration have, which would change the bytes.
	flags := "CARGO_ENCODED_RUSTFLAGS=" + strings.Join(remapped, "\x1f")
	messages, err := tools.cargo(ctx, dir, []string{flags, "CARGO_INCREMENTAL=0"}, "build", "--release", "--message-format=json-render-diagnostics")
	if err != nil {
		return nil, err
	}
	module, err := moduleOf(messages)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(module)
}

// toolchain is a Cargo and a rustc that go together, and a target they have.
type toolchain struct{ cargoPath, rustcPath, target string }

func find(ctx context.Context, dir string, targets []string) (toolchain, error) {
	var without []string
	for _, t := range candidates() {
		for _, target := range targets {
			command := exec.CommandContext(ctx, t.rustcPath, "--print=target-libdir", "--target="+target)
			command.Dir = dir // which may name a toolchain of rustup's
			libraries, err := command.Output()
			if err != nil {
				continue
			}
			if found, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(libraries)), "libstd-*.rlib")); len(found) > 0 {
				t.target = target
				return t, nil
			}
		}
		without = append(without, t.rustcPath)
	}
	if err := ctx.Err(); err != nil {
		return toolchain{}, err
	}
	found := "there is no cargo with a rustc"
	if len(without) > 0 {
		found = fmt.Sprintf("%s cannot build for %s", strings.Join(without, " and "), strings.Join(targets, " or "))
	}
	return toolchain{}, missing(fmt.Sprintf("%s: run rustup target add %s, or install Debian's cargo, rustc, lld and libstd-rust-dev-wasm32", found, targets[0]))
}

// missing says what to install.
type missing string

func (m missing) Error() string { return string(m) }

func (missing) Is(target error) bool { return target == exec.ErrNotFound }

// candidates returns the toolchains in the order in which they are tried.
func candidates() []toolchain {
	if rustc := os.Getenv("RUSTC"); rustc != "" {
		path, err := exec.LookPath(rustc)
		if err != nil {
			return nil
		}
		cargo, err := exec.LookPath(filepath.Join(filepath.Dir(path), "cargo"))
		if err != nil {
			cargo, err = exec.LookPath("cargo")
		}
		if err != nil {
			return nil
		}
		return []toolchain{{cargoPath: cargo, rustcPath: path}}
	}
	folders := filepath.SplitList(os.Getenv("PATH"))
	if home, err := os.UserHomeDir(); err == nil {
		folders = append(folders, filepath.Join(home, ".cargo", "bin"))
	}
	folders = append(folders, "/usr/bin")
	var found []toolchain
	seen := map[string]bool{}
	for _, folder := range folders {
		if !filepath.IsAbs(folder) || seen[filepath.Clean(folder)] {
			continue
		}
		seen[filepath.Clean(folder)] = true
		rustc, err := exec.LookPath(filepath.Join(folder, "rustc"))
		if err != nil {
			continue
		}
		cargo, err := exec.LookPath(filepath.Join(folder, "cargo"))
		if err != nil {
			continue
		}
		found = append(found, toolchain{cargoPath: cargo, rustcPath: rustc})
	}
	return found
}

// cargo runs one command of Cargo's for the target and returns what it wrote to
// standard output.
func (t toolchain) cargo(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	target := "--target=" + t.target
	if name == "metadata" {
		target = "--filter-platform=" + t.target
	}
	command := exec.CommandContext(ctx, t.cargoPath, append([]string{name, target}, args...)...)
	command.Dir = dir
	// The rustc that was looked at, not another one in PATH.
	command.Env = append(append(os.Environ(), "RUSTC="+t.rustcPath), env...)
	var output, printed bytes.Buffer
	command.Stdout, command.Stderr = &output, &printed
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("cargo %s: %w\n%s", name, err, strings.TrimSpace(printed.String()))
	}
	return output.Bytes(), nil
}

// remapped returns the flags that give the sources of each package a path that is
// the same on every machine.
func (t toolchain) remapped(ctx context.Context, dir string) ([]string, error) {
	output, err := t.cargo(ctx, dir, nil, "metadata", "--format-version=1")
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Packages []struct {
			Name     string `json:"name"`
			Version  string `json:"version"`
			Manifest string `json:"manifest_path"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(output, &metadata); err != nil {
		return nil, fmt.Errorf("read cargo metadata: %w", err)
	}
	type mapping struct{ from, to string }
	var mappings []mapping
	for _, p := range metadata.Packages {
		mappings = append(mappings, mapping{filepath.Dir(p.Manifest), "/" + p.Name + "-" + p.Version})
	}
	// The last that fits counts, and it is to be the innermost.
	slices.SortStableFunc(mappings, func(a, b mapping) int { return cmp.Compare(len(a.from), len(b.from)) })
	var flags []string
	for _, m := range mappings {
		flags = append(flags, "--remap-path-prefix="+m.from+"="+m.to)
	}
	return flags, nil
}

var errNoModule = errors.New(`the crate makes no module: it needs crate-type = ["cdylib"] under [lib] in Cargo.toml`)

// moduleOf finds the file that Cargo made in what it says about its work.
func moduleOf(messages []byte) (string, error) {
	modules := map[string]bool{}
	decoder := json.NewDecoder(bytes.NewReader(messages))
	for {
		var message struct {
			Reason string   `json:"reason"`
			Files  []string `json:"filenames"`
		}
		if err := decoder.Decode(&message); err == io.EOF {
			break
		} else if err != nil {
			return "", fmt.Errorf("read what cargo says: %w", err)
		}
		if message.Reason != "compiler-artifact" {
			continue
		}
		for _, file := range message.Files {
			if filepath.Ext(file) == ".wasm" {
				modules[file] = true
			}
		}
	}
	if len(modules) == 0 {
		return "", errNoModule
	}
	if len(modules) > 1 {
		return "", fmt.Errorf("the crate makes %d modules, and a hand is one", len(modules))
	}
	for module := range modules {
		return module, nil
	}
	return "", errNoModule
}
