//go:build unix

package lock_test

import (
	"errors"
	"syscall"
	"testing"

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
}
