//go:build unix

package datafile_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/datafile"
)

const nobody = 65534

// dirOf returns a directory of somebody else's.
func dirOf(t *testing.T, owner int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, owner, owner); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantOwner(t *testing.T, path string, want int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != want || int(owner.Gid) != want || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%s belongs to %d:%d, with %v", filepath.Base(path), owner.Uid, owner.Gid, info.Mode())
	}
}

// What root begins in the directory of a server does not shut the server out.
func TestDataBelongsToTheOwnerOfTheDirectory(t *testing.T) {
	dir := dirOf(t, nobody)
	h, err := host.New(context.Background(), host.Config{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Send(context.Background(), host.Message{Text: "Hello."})
	if err != nil {
		t.Error(err)
	}
	check := func() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) < 3 {
			t.Errorf("%d files", len(entries))
		}
		for _, entry := range entries {
			wantOwner(t, filepath.Join(dir, entry.Name()), nobody)
		}
	}
	check() // what stands beside an open database included
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	check()
}

// Only what was made is given away: a name that leads elsewhere changes nobody's
// file.
func TestMakeLeavesWhatIsThere(t *testing.T) {
	dir := dirOf(t, nobody)
	elsewhere := filepath.Join(t.TempDir(), "roots")
	if err := os.WriteFile(elsewhere, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, dangling := filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	missing := filepath.Join(filepath.Dir(elsewhere), "missing")
	for at, to := range map[string]string{link: elsewhere, dangling: missing} {
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		if err := datafile.Make(at); err != nil {
			t.Fatal(err)
		}
	}
	wantOwner(t, elsewhere, 0)
	if text, _ := os.ReadFile(elsewhere); string(text) != "kept" {
		t.Errorf("it says %q", text)
	}
	if _, err := os.Lstat(missing); !os.IsNotExist(err) {
		t.Errorf("a file was made behind a link: %v", err)
	}
}
