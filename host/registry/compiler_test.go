package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

func TestMain(m *testing.M) {
	registry.CompilerMain()
	os.Exit(m.Run())
}

func self(t *testing.T) registry.Compiler {
	t.Helper()
	compiler, err := registry.Self()
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

// module has one function, of type () -> i32 and exported as the entry, with
// locals of type i32.
func module(locals int, code []byte) []byte {
	leb := func(b []byte, v int) []byte {
		for v >= 0x80 {
			b = append(b, byte(v)|0x80)
			v >>= 7
		}
		return append(b, byte(v))
	}
	m := []byte("\x00asm\x01\x00\x00\x00\x01\x05\x01\x60\x00\x01\x7f\x03\x02\x01\x00\x07\x15\x01\x11glovebox_query_v1\x00\x00")
	body := append(leb([]byte{1}, locals), 0x7f)
	body = append(append(body, code...), 0x41, 0, 0x0b)
	section := append(leb([]byte{1}, len(body)), body...)
	return append(leb(append(m, 10), len(section)), section...)
}

// ifs is a body of n conditional blocks, each of which changes another local.
func ifs(n, locals int) []byte {
	var code []byte
	for i := range n {
		local := i % locals
		index := []byte{byte(local)&0x7f | 0x80, byte(local >> 7)}
		code = append(code, 0x20, 0, 0x04, 0x40, 0x20)
		code = append(append(code, index...), 0x41, 1, 0x6a, 0x21)
		code = append(append(code, index...), 0x0b)
	}
	return code
}

func TestModulesAreCompiledInAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	engine, err := sandbox.New(sandbox.Config{CacheDir: dir, Compiler: self(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	loaded, err := engine.Load(t.Context(), module(10, ifs(50, 10)), sandbox.Options{Name: "small"})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil || result.Fuel == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	// A known module needs no compiler.
	other, err := sandbox.New(sandbox.Config{CacheDir: dir, Compiler: registry.Compiler{Command: []string{filepath.Join(dir, "absent")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Load(t.Context(), module(10, ifs(50, 10)), sandbox.Options{Name: "known"}); err != nil {
		t.Error(err)
	}
	if _, err := other.Load(t.Context(), module(10, ifs(51, 10)), sandbox.Options{Name: "unknown"}); !errors.Is(err, abi.KindUnavailable) {
		t.Errorf("without a compiler: %v", err)
	}
}

// A module whose seal does not fit its code is compiled again, never run, and so is its
// image taken again.
func TestACacheThatWasChangedIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	load := func() error {
		engine, err := sandbox.New(sandbox.Config{CacheDir: dir, Compiler: self(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		loaded, err := engine.Load(t.Context(), module(10, ifs(50, 10)), sandbox.Options{Name: "small"})
		if err != nil {
			return err
		}
		_, err = loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{})
		return err
	}
	if err := load(); err != nil {
		t.Fatal(err)
	}
	changed := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "lock" || d.Name() == "seal" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		content[len(content)/2] ^= 0xff
		changed++
		return os.WriteFile(path, content, 0o600)
	})
	if err != nil || changed != 3 {
		t.Fatalf("%d files changed, %v", changed, err)
	}
	if err := load(); err != nil {
		t.Errorf("after a change: %v", err)
	}
}

// A compile bomb of 28 KB ends with its process: the host goes on, and the error
// says which limit it met.
func TestCompileBombsEndWithTheirProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the 10 s of processor time that a compilation may take")
	}
	engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir(), Compiler: self(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	_, err = engine.Load(t.Context(), module(8000, ifs(8000, 8000)), sandbox.Options{Name: "bomb"})
	if !errors.Is(err, abi.KindBadModule) || !strings.Contains(err.Error(), `hand "bomb": compiling it takes`) {
		t.Errorf("got %v", err)
	}
}

func TestCompilationCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := self(t).Compile(ctx, t.TempDir(), module(8000, ifs(8000, 8000)))
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// What was compiled and cannot be kept is no fault of the module, nor of the program: the
// error names the place, and what to do.
func TestWhatTheCompilerCannotKeep(t *testing.T) {
	compiled := t.TempDir()
	if err := self(t).Compile(t.Context(), compiled, module(1, nil)); err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(compiled, "*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("it leaves %v, %v", folders, err)
	}
	inTheWay := filepath.Join(t.TempDir(), filepath.Base(folders[0]))
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = self(t).Compile(t.Context(), filepath.Dir(inTheWay), module(1, nil))
	if !errors.Is(err, abi.KindUnavailable) || !strings.Contains(err.Error(), inTheWay) || !strings.Contains(err.Error(), "make room for the compilation cache") {
		t.Error(err)
	}
}

func TestCompilersThatAreNone(t *testing.T) {
	for name, compiler := range map[string]registry.Compiler{
		"nothing":      {},
		"absent":       {Command: []string{"/nowhere/at/all"}},
		"another one":  {Command: []string{"/bin/sh", "-c", "exit 1"}},
		"one that ran": {Command: []string{"/bin/true"}},
	} {
		engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir(), Compiler: compiler})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Load(t.Context(), module(1, nil), sandbox.Options{Name: "hand"}); !errors.Is(err, abi.KindUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		engine.Close()
	}
}

// Without a compiler process, what may take long is refused and says what to do.
func TestWithoutACompilerLongCompilationsAreRefused(t *testing.T) {
	engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if _, err := engine.Load(t.Context(), module(10, ifs(50, 10)), sandbox.Options{Name: "small"}); err != nil {
		t.Error(err)
	}
	_, err = engine.Load(t.Context(), module(2000, ifs(2000, 2000)), sandbox.Options{Name: "bomb"})
	if !errors.Is(err, abi.KindBadModule) || !strings.Contains(err.Error(), "without a compiler process") {
		t.Errorf("got %v", err)
	}
}
