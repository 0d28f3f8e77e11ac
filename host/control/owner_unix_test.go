//go:build unix

package control_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// A token that root makes does not shut out a server that runs as somebody else.
func TestTokensBelongToTheOwnerOfTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	const nobody = 65534
	dir := t.TempDir()
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tokens.json")
	tokens, err := control.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Create(memory.UserID{1}, control.ScopeAdmin, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".lock"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != nobody || owner.Gid != nobody || info.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d:%d, with %v", filepath.Base(name), owner.Uid, owner.Gid, info.Mode())
		}
	}
}
