package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

var key = bytes.Repeat([]byte{7}, 32)

// moduleOf are bytes with a digest of their own; the lock does not look into them.
func moduleOf(n int) []byte { return fmt.Appendf(nil, "module %d", n) }

// entry has a value in every field.
func entry(n int) lock.Entry {
	return lock.Entry{
		Facts: lock.Facts{
			Digest: sandbox.Digest(moduleOf(n)), Manifest: sandbox.Digest([]byte("manifest")), Version: "1.0.0", Key: "RW" + strings.Repeat("A", 54),
			Asks: []lock.Ask{
				{Capability: abi.CapabilityFiles, Paths: []string{"a", "b"}},
				{Capability: abi.CapabilityHTTP, Hosts: []string{"https://a.example", "it's \"quoted\"\n# and \x1b long"}, Secrets: []string{"token"}},
				{Capability: abi.CapabilityLLM, MaxTokens: 7},
			},
		},
		Source: "oci://registry.example/x@sha256:1", Installed: true, Unsigned: true, Revoked: []string{"http", "llm"}, RevokedAll: true,
		At: time.Date(2026, 3, 23, 9, 0, 0, 123, time.FixedZone("", 3600)),
		Grant: lock.Grant{
			Files: map[string]string{"a": "/a", "b": "/b/{user}"}, HTTP: []string{"https://a.example/"}, AllowPrivate: []string{"10.0.0.1:80"},
			Secrets: map[string]lock.Secret{"token": {From: "env:TOKEN", Host: "https://a.example", Header: "X", Format: "{}", Insecure: true}}, KV: true, LLM: true,
		},
		Config: map[string]any{"text": "t", "many": []any{"a", "b"}, "whole": int64(3), "part": 1.0, "yes": true, "big": 1e300},
	}
}

func put(t testing.TB, f *lock.File, name string, n int) lock.Entry {
	t.Helper()
	if err := f.Change(t.Context(), func(e *lock.Edit) error { return e.Put(name, entry(n), moduleOf(n)) }); err != nil {
		t.Fatal(err)
	}
	got, err := f.Read().Entry(name)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// What is put is what is read, by another process too, and every value of it is
// sealed.
func TestEntryIsSealed(t *testing.T) {
	dir := t.TempDir()
	ours := lock.New(dir, key)
	if s := ours.Read(); s.Err() != nil || len(s.Names()) > 0 || s.State("x") != "" {
		t.Fatalf("before there is a file: %+v", s)
	}
	got := put(t, ours, "one", 1)
	want := entry(1)
	want.At = time.Date(2026, 3, 23, 8, 0, 0, 0, time.UTC)
	want.Seal = got.Seal
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, put\n%+v", got, want)
	}
	if info, err := os.Stat(ours.Path()); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", info, err)
	}
	put(t, ours, "another", 2)
	again := lock.New(dir, key).Read()
	if e, err := again.Entry("one"); err != nil || !reflect.DeepEqual(e, got) || !slices.Equal(again.Names(), []string{"another", "one"}) {
		t.Errorf("%+v, %v", e, err)
	}
	if ours.Read() != ours.Read() {
		t.Error("what has not changed is read again")
	}
	if module, err := ours.Module(got.Digest); err != nil || !bytes.Equal(module, moduleOf(1)) {
		t.Errorf("%q, %v", module, err)
	}
	text, err := os.ReadFile(ours.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.New(dir, bytes.Repeat([]byte{8}, 32)).Read().Entry("one"); !errors.Is(err, lock.ErrUnsealed) {
		t.Errorf("with the key of another host: %v", err)
	}
	// Each line of an entry is one that cannot be another one.
	lines := strings.SplitAfter(string(text), "\n")
	begin := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "[hands.one]") })
	tried := 0
	for i := begin + 1; i < len(lines); i++ {
		var changed string
		switch line := lines[i]; {
		case strings.Contains(line, "true"):
			changed = strings.Replace(line, "true", "false", 1)
		case strings.Contains(line, "'a"):
			changed = strings.Replace(line, "'a", "'c", 1)
		case strings.Contains(line, "= 'sha256:"):
			changed = strings.Replace(line, "= 'sha256:", "= 'sha256:"+string("ab"[btoi(line[strings.Index(line, "sha256:")+7] == 'a')]), 1)
			at := strings.LastIndex(changed, "'")
			changed = changed[:at-1] + changed[at:]
		case strings.Contains(line, "= '"):
			changed = strings.Replace(line, "= '", "= 'x", 1)
		case strings.Contains(line, "2026-"):
			changed = strings.Replace(line, "2026-", "2027-", 1)
		case strings.HasSuffix(line, "= 7\n"), strings.HasSuffix(line, "= 3\n"):
			changed = strings.Replace(line, "= ", "= 1", 1)
		default:
			continue
		}
		tried++
		edited := strings.Join(slices.Concat(lines[:i], []string{changed}, lines[i+1:]), "")
		file := lock.New(t.TempDir(), key)
		if err := os.WriteFile(file.Path(), []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
		s := file.Read()
		if _, err := s.Entry("one"); !errors.Is(err, lock.ErrUnsealed) || s.State("one") == got.Seal {
			t.Errorf("%q for %q: %v", changed, lines[i], err)
		}
		if _, err := s.Entry("another"); err != nil {
			t.Errorf("%q: the other entry: %v", changed, err)
		}
	}
	if tried < 20 {
		t.Errorf("%d lines of\n%s", tried, text)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A module that is kept is the one that was put, and is there as long as an entry has
// it.
func TestModules(t *testing.T) {
	dir := t.TempDir()
	f := lock.New(dir, key)
	kept := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, lock.Folder, "*.wasm*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	first := put(t, f, "one", 1)
	put(t, f, "same", 1)
	put(t, f, "two", 2)
	if got := kept(); len(got) != 2 {
		t.Errorf("kept are %v", got)
	}
	put(t, f, "two", 3)
	change := func(edit func(*lock.Edit) error) error { return f.Change(t.Context(), edit) }
	if err := change(func(e *lock.Edit) error { e.Delete("one"); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := kept(); len(got) != 2 {
		t.Errorf("kept are %v", got)
	}
	if _, err := f.Module(first.Digest); err != nil {
		t.Errorf("one that another entry has: %v", err)
	}
	// What is refused leaves nothing, and what was left by one who died goes.
	digest := strings.TrimPrefix(sandbox.Digest(moduleOf(8)), "sha256:")
	begun := filepath.Join(dir, "."+lock.Name+".123")
	for _, path := range []string{
		begun, filepath.Join(dir, lock.Folder, "."+digest+".wasm.123"), filepath.Join(dir, lock.Folder, digest+".wasm"),
		// What somebody else put there stays.
		filepath.Join(dir, lock.Folder, "README"), filepath.Join(dir, lock.Folder, "mine.wasm"), filepath.Join(dir, lock.Folder, "mine.wasm.old"),
	} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("no")
	before := f.Read()
	if err := change(func(e *lock.Edit) error { return errors.Join(e.Put("four", entry(4), moduleOf(4)), failed) }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if got, _ := filepath.Glob(filepath.Join(dir, lock.Folder, "*")); len(got) != 6 || f.Read() != before {
		t.Errorf("left are %v", got) // two modules, what is not ours and .lock
	}
	if _, err := os.Lstat(begun); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that somebody began to write: %v", err)
	}
	for name, try := range map[string]func(*lock.Edit) error{
		"another module": func(e *lock.Edit) error { return e.Put("x", entry(1), moduleOf(2)) },
		"a path":         func(e *lock.Edit) error { return e.Put("../x", entry(1), moduleOf(1)) },
		"a digest": func(e *lock.Edit) error {
			bad := entry(1)
			bad.Digest = "sha256:../../x"
			return e.Put("x", bad, nil)
		},
		"not UTF-8": func(e *lock.Edit) error {
			bad := entry(4)
			bad.Grant.Files["a"] = "/a\xff"
			return e.Put("x", bad, moduleOf(4))
		},
		"too long": func(e *lock.Edit) error {
			bad := entry(4)
			bad.Source = strings.Repeat("x", 5<<20)
			return e.Put("x", bad, moduleOf(4))
		},
		"what was changed": func(e *lock.Edit) error { return e.Expect("two", first.Seal) },
	} {
		if err := change(try); err == nil || f.Read() != before || len(kept()) != 4 {
			t.Errorf("%s: %v, kept are %v", name, err, kept())
		}
	}
	for _, digest := range []string{"", "sha256:", "sha256:../../../etc/passwd", "sha256:" + strings.Repeat("0", 63) + "/", sandbox.Digest(moduleOf(9))} {
		if module, err := f.Module(digest); err == nil {
			t.Errorf("%q is %q", digest, module)
		}
	}
	for _, path := range kept() {
		if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Module(first.Digest); err == nil || !strings.Contains(err.Error(), "not the module that was installed") {
		t.Errorf("%v", err)
	}
}

// What is no file, or not one of ours, is an error that names it, and is not waited
// for.
func TestDamaged(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"empty":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"binary":   func(path string) error { return os.WriteFile(path, []byte{0, 1, 2, 255}, 0o600) },
		"a name":   func(path string) error { return os.WriteFile(path, []byte("version = 1\n[hands.\"../x\"]\n"), 0o600) },
		"a link":   func(path string) error { return os.Symlink(filepath.Dir(path), path) },
	} {
		f := lock.New(t.TempDir(), key)
		if err := make(f.Path()); err != nil {
			t.Skip(err)
		}
		s := f.Read()
		if _, err := s.Entry("x"); !errors.Is(err, lock.ErrDamaged) || !strings.Contains(err.Error(), f.Path()) || f.Read() != s || s.State("x") == "" {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Change(t.Context(), func(*lock.Edit) error { return nil }); !errors.Is(err, lock.ErrDamaged) {
			t.Errorf("%s: changed: %v", name, err)
		}
	}
}

// Many who change it at once lose nothing of each other.
func TestChangesWaitForEachOther(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for n := range 16 {
		f := lock.New(dir, key) // as another process has it
		wg.Go(func() {
			if err := f.Change(context.Background(), func(e *lock.Edit) error {
				return e.Put(fmt.Sprintf("hand-%d", n), entry(n), moduleOf(n))
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f := lock.New(dir, key)
	if names := f.Read().Names(); len(names) != 16 {
		t.Errorf("there are %v", names)
	}
	checkWhole(t, f)
}

// checkWhole fails unless every entry is sealed and has its module.
func checkWhole(t testing.TB, f *lock.File) {
	t.Helper()
	s := f.Read()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	for _, name := range s.Names() {
		e, err := s.Entry(name)
		if err == nil {
			_, err = f.Module(e.Digest)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// childDir, where it is set, has this test be the process that is killed.
const childDir = "GLOVEBOX_TEST_LOCK_DIR"

// A process that is killed while it changes the file leaves it as it was before or
// after a change, with every module, and keeps nobody else from changing it.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		f := lock.New(dir, key)
		for n := 0; ; n++ {
			if err := f.Change(context.Background(), func(e *lock.Edit) error {
				e.Delete(fmt.Sprintf("hand-%d", n-2))
				return e.Put(fmt.Sprintf("hand-%d", n), entry(n), moduleOf(n))
			}); err != nil {
				fmt.Println("failed:", err)
				os.Exit(1)
			}
			fmt.Println(n)
		}
	}
	dir := t.TempDir()
	times := 30
	if testing.Short() {
		times = 8
	}
	for round := range times {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// It has acknowledged a few, and is somewhere in the next.
		acknowledged := -1
		seen := make([]byte, 0, 4096)
		for lines := 0; lines <= round%5; {
			piece := make([]byte, 64)
			n, err := out.Read(piece)
			if err != nil {
				t.Fatalf("%v: %s", err, seen)
			}
			seen = append(seen, piece[:n]...)
			lines = bytes.Count(seen, []byte("\n"))
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Fields(string(seen[:bytes.LastIndexByte(seen, '\n')])) {
			if acknowledged, err = strconv.Atoi(line); err != nil {
				t.Fatalf("it said %q", seen)
			}
		}
		_ = child.Wait()
		f := lock.New(dir, key)
		checkWhole(t, f)
		names := f.Read().Names()
		if !slices.ContainsFunc(names, func(name string) bool {
			n, err := strconv.Atoi(strings.TrimPrefix(name, "hand-"))
			return err == nil && n >= acknowledged
		}) {
			t.Errorf("acknowledged was hand-%d, there are %v", acknowledged, names)
		}
		put(t, f, "after", 1000+round)
		left, err := filepath.Glob(filepath.Join(dir, lock.Folder, "*.wasm*"))
		if err != nil || len(left) != len(f.Read().Names()) {
			t.Errorf("%d modules of %v: %v", len(left), f.Read().Names(), err)
		}
		// The next round begins without hands.
		if err := f.Change(t.Context(), func(e *lock.Edit) error {
			for name := range maps.Keys(map[string]bool{"after": true}) {
				e.Delete(name)
			}
			for _, name := range names {
				e.Delete(name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDifferences(t *testing.T) {
	agreed := entry(1).Facts
	many := agreed
	many.Asks = slices.Clone(agreed.Asks)
	many.Asks[1].Hosts = nil
	for n := range 5000 {
		many.Asks[1].Hosts = append(many.Asks[1].Hosts, fmt.Sprintf("https://%d.example/%s\x1b[31m\u202e", n, strings.Repeat("x", 1000)))
	}
	many.Key, many.Version = "", "0.9.0"
	if all := agreed.Differences(many); len(all) != 21 || !strings.HasPrefix(all[0], "it is signed by nobody") || all[1] != `its version "0.9.0" is older than "1.0.0", which was agreed` || all[20] != "and 4983 more differences" || strings.ContainsAny(strings.Join(all, ""), "\x1b\u202e") || len(strings.Join(all, "")) > 10_000 {
		t.Errorf("%d: %q", len(all), all)
	}
	if all := agreed.Differences(agreed); all != nil {
		t.Errorf("of the same: %q", all)
	}
	less := lock.Facts{Digest: sandbox.Digest(moduleOf(2))}
	want := []string{
		"it is signed by nobody who counts, agreed was the key " + agreed.Key, `its version is none, agreed was "1.0.0"`,
		"it does not ask for files any more", "it does not ask for http any more", "it does not ask for llm any more", "its digest is " + less.Digest + ", agreed was " + agreed.Digest,
	}
	if got := agreed.Differences(less); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// FuzzRead: no bytes are an entry that is agreed to, and none end the program.
func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	put(f, lock.New(dir, key), "one", 1)
	text, err := os.ReadFile(filepath.Join(dir, lock.Name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("version = 1\n[hands.x]\ndigest = 'sha256:" + strings.Repeat("0", 64) + "'\nat = 2026-01-01T00:00:00Z\nseal = ''\n"))
	other := lock.New(f.TempDir(), bytes.Repeat([]byte{9}, 32))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(other.Path(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		fresh := lock.New(filepath.Dir(other.Path()), bytes.Repeat([]byte{9}, 32)).Read()
		for _, name := range fresh.Names() {
			if _, err := fresh.Entry(name); !errors.Is(err, lock.ErrUnsealed) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

// BenchmarkRead is what each question and each call of a capability pays.
func BenchmarkRead(b *testing.B) {
	f := lock.New(b.TempDir(), key)
	put(b, f, "one", 1)
	for b.Loop() {
		if f.Read().State("one") == "" {
			b.Fatal("it is gone")
		}
	}
}
