package sandbox_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// mounted puts a file system in memory over a folder, until the test ends.
func mounted(t *testing.T, dir, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("a file system cannot be mounted: %v: run as root, with the capability sys_admin", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// A disk that is full while the image is written costs the image its place, and while code is
// written the hand: that is said, and nothing half-written is left or believed.
func TestCacheOnAFullDisk(t *testing.T) {
	k := keep(t, "c", keptMemory)
	const block = 4096
	blocks := func(path string) int { return (len(k.files[path]) + block - 1) / block }
	all, image := 0, blocks(k.path(t, "image"))
	for path := range k.files {
		all += blocks(path)
	}
	for name, test := range map[string]struct {
		blocks int
		loads  bool
	}{"no room for the image": {all - 1, true}, "room for half of the image": {all - image/2, true}, "no room for the code": {blocks(k.path(t, "code")) / 2, false}} {
		t.Run(name, func(t *testing.T) {
			full := k
			full.dir = filepath.Join(t.TempDir(), "full")
			// Folders and the page in which a file begins count as blocks here and there.
			mounted(t, full.dir, "mode=0700,size="+strconv.Itoa(test.blocks*block))
			if test.loads {
				full.folder = ""
				full.reload(t, keptMemory) // begins from an image all the same
				full.reload(t, keptMemory)
			} else {
				refusedWith(t, full, "no space left")
				refusedWith(t, full, full.dir)
			}
			for _, pattern := range []string{"*/*/.image-*", "*/.making-*", "*/*/image"} {
				if left, err := filepath.Glob(filepath.Join(full.dir, pattern)); err != nil || len(left) > 0 {
					t.Errorf("%v is left, %v", left, err)
				}
			}
			// With room, all is kept.
			if err := unix.Mount("tmpfs", full.dir, "tmpfs", unix.MS_REMOUNT, "mode=0700,size=64m"); err != nil {
				t.Fatal(err)
			}
			full.folder = ""
			full.reload(t, keptMemory)
			if images, err := filepath.Glob(filepath.Join(full.dir, "*", "*", "image")); err != nil || len(images) != 1 {
				t.Errorf("%d images with room, %v", len(images), err)
			}
		})
	}
}

// A file system that cannot be written is refused with its name.
func TestCacheOnAFileSystemToReadOnly(t *testing.T) {
	k := keep(t, "globals", keptMemory)
	full := k
	full.dir = filepath.Join(t.TempDir(), "cache")
	mounted(t, full.dir, "mode=0700")
	if err := os.CopyFS(full.dir, os.DirFS(k.dir)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", full.dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, full, full.dir)
	refusedWith(t, full, "read-only")
}

// A pipe in the place of a file has nobody wait for what comes out of it.
func TestCacheFilesThatArePipes(t *testing.T) {
	k := keep(t, "globals", keptMemory)
	for _, name := range []string{"image", "seal", "module.wasm", "code"} {
		k.restore(t)
		path := k.path(t, name)
		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		k.reload(t, keptMemory)
	}
}

// A cache that belongs to somebody else holds what they want, whatever its mode: it is
// refused; and a file of theirs in it is not read.
func TestCacheOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	const nobody = 65534
	k := keep(t, "globals", keptMemory)
	for _, name := range []string{"image", "seal", "module.wasm", "code"} {
		k.restore(t)
		path := k.path(t, name)
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		k.reload(t, keptMemory)
		var info unix.Stat_t
		if err := unix.Stat(path, &info); err != nil || info.Uid == nobody {
			t.Errorf("%s is theirs still, and was used, %v", name, err)
		}
	}
	k.restore(t)
	if err := os.Chown(k.dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	_, err := sandbox.New(sandbox.Config{CacheDir: k.dir})
	if err == nil || !strings.Contains(err.Error(), k.dir) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
