package examples

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// wayIn returns the first block of README.md in a language that holds a text. It has
// less than ten lines.
func wayIn(t *testing.T, language, holding string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	fence := "\n```" + language + "\n"
	for rest := string(text); ; {
		_, after, found := strings.Cut(rest, fence)
		if !found {
			t.Fatalf("README.md has no block of %s with %s", language, holding)
		}
		block, next, closed := strings.Cut(after, "\n```\n")
		if !closed {
			t.Fatalf("README.md has a block of %s without an end", language)
		}
		if strings.Contains(block, holding) {
			if lines := strings.Count(block, "\n") + 1; lines >= 10 {
				t.Errorf("the block of README.md with %s has %d lines", holding, lines)
			}
			return block
		}
		rest = "\n" + next
	}
}

func TestReadmeLibrary(t *testing.T) {
	program := `package main

import (
	"context"
	"fmt"
	"log"

	"github.com/gloveboxhq/glovebox/host"
)

func main() {
	ctx := context.Background()
` + wayIn(t, "go", "host.New") + "\n}\n"
	dir := t.TempDir()
	binary := filepath.Join(dir, "way.exe")
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, file).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	command := exec.CommandContext(t.Context(), binary)
	command.Dir = dir
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "I am the offline model") {
		t.Errorf("%v:\n%s", err, output)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "glovebox.db")); err != nil {
		t.Errorf("what was said is not kept: %v", err)
	}
}

func TestReadmeHand(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and a hand")
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	bin := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "glovebox"), "../host/cmd/glovebox").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	command := exec.CommandContext(t.Context(), "sh", "-e", "-c", wayIn(t, "sh", "hand new"))
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "checks, 0 failed") {
		t.Errorf("%v:\n%s", err, output)
	}
}

// Only the port is another one, for somebody may be at the standard one.
func TestReadmeGateway(t *testing.T) {
	for _, needed := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("there is no %s", needed)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	home, bin := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "glovebox.toml"), fmt.Appendf(nil, "[server]\nlisten = %q\n", address), 0o600); err != nil {
		t.Fatal(err)
	}
	// The server ends with the shell, whatever came of it.
	script := "trap 'kill $! && wait $!' EXIT\n" + strings.ReplaceAll(wayIn(t, "sh", "glovebox serve"), "127.0.0.1:7780", address) + "\n"
	command := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	command.Dir = ".."
	command.Env = append(os.Environ(), "GLOVEBOX_HOME="+home, "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), `"object":"chat.completion"`) || !strings.Contains(string(output), "I am the offline model") {
		t.Errorf("%v:\n%s", err, output)
	}
}
