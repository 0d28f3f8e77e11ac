// Package build calls the Go toolchain the way a hand wants it: for tests,
// generators and command lines that turn a directory of Go into a module.
package build

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Profile is how the module is entered.
type Profile string

// The profiles: a reactor exports glovebox_query_v1, a command _start.
const (
	Reactor Profile = "reactor"
	Command Profile = "command"
)

// Hand builds the package main in dir and returns the module, without a
// manifest. The bytes depend on the sources and the toolchain alone, not on
// the path or the commit. The error holds what the toolchain printed.
func Hand(ctx context.Context, dir string, profile Profile) ([]byte, error) {
	temp, err := os.MkdirTemp("", "glovebox-build-")
	if err != nil {
		return nil, fmt.Errorf("build hand in %s: %w", dir, err)
	}
	defer os.RemoveAll(temp)
	output := filepath.Join(temp, "hand.wasm")
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", output}
	if profile == Reactor {
		args = append(args, "-buildmode=c-shared")
	}
	command := exec.CommandContext(ctx, "go", append(args, ".")...)
	command.Dir = dir
	// Settings that would change the bytes are put back to the defaults.
	command.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=", "GOWASM=", "GOEXPERIMENT=")
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("build hand in %s: %w\n%s", dir, err, strings.TrimSpace(printed.String()))
	}
	return os.ReadFile(output)
}
