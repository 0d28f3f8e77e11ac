//go:build unix

package lock_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/registry/lock"
)

// A pipe in the file's place is not waited for.
func TestPipeIsNoLock(t *testing.T) {
	f := lock.New(t.TempDir(), key)
	if err := syscall.Mkfifo(f.Path(), 0o600); err != nil {
		t.Skip(err)
	}
	if s := f.Read(); !errors.Is(s.Err(), lock.ErrDamaged) {
		t.Errorf("%v", s.Err())
	}
	f = lock.New(t.TempDir(), key)
	put(t, f, "one", 1)
	only := filepath.Join(filepath.Dir(f.Path()), lock.Folder, ".lock")
	if err := errors.Join(os.Remove(only), syscall.Mkfifo(only, 0o600)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { failed <- f.Change(t.Context(), func(*lock.Edit) error { return nil }) }()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), only) {
			t.Errorf("a pipe that is to be locked: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a pipe that is to be locked is waited for")
	}
}

// What keeps the file from being read is over when it is over, though the file is the
// same: too many files were open.
func TestReadAgain(t *testing.T) {
	dir := t.TempDir()
	put(t, lock.New(dir, key), "one", 1)
	f := lock.New(dir, key)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Skip(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Skip(err)
	}
	first, second := f.Read(), f.Read()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(first.Err(), lock.ErrDamaged) || first != second {
		t.Errorf("without a file to open: %v, %v", first.Err(), second.Err())
	}
	if _, err := f.Read().Entry("one"); err != nil {
		t.Errorf("when there is one again: %v", err)
	}
}
