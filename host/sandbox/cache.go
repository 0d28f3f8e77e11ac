package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// cache keeps compiled modules on disk, a directory per digest:
//
//	CacheDir/<hex digest>/lock      held shared while the entry is read or written
//	CacheDir/<hex digest>/<key>     a compiledFolder
//
// Whoever evicts an entry holds its lock exclusively, so that no process loses
// an entry that it is reading.
type cache struct {
	dir   string
	bytes int64
}

func openCache(dir string, bytes int64) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if writableByOthers(info) {
		return nil, fmt.Errorf("%s can be written by others (mode %v), and holds native code: run chmod 700 on it", dir, info.Mode().Perm())
	}
	return &cache{dir: dir, bytes: bytes}, nil
}

func entryName(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// acquire makes the entry of a digest, if it is absent, and keeps it from
// eviction until the lock is released.
func (c *cache) acquire(digest string) (*flock.Flock, error) {
	c.evict(digest)
	dir := filepath.Join(c.dir, entryName(digest))
	// Another process may evict the directory between its making and its
	// locking; then the lock file is gone from its path and a new round
	// begins.
	for range 100 {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		lock := flock.New(filepath.Join(dir, "lock"))
		if err := lock.RLock(); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("lock compilation cache %s: %w", dir, err)
		}
		if _, err := os.Stat(lock.Path()); err != nil {
			_ = lock.Unlock()
			continue
		}
		// The time tells eviction when the entry was last of use.
		now := time.Now()
		_ = os.Chtimes(dir, now, now)
		return lock, nil
	}
	return nil, fmt.Errorf("lock compilation cache %s: it keeps being removed", dir)
}

// evict removes entries, the longest unused first, until the rest is within
// the bound. It leaves alone what is locked. A cache that cannot be tidied is
// no reason to fail.
func (c *cache) evict(keep string) {
	type entry struct {
		path string
		used time.Time
		size int64
	}
	dirs, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var entries []entry
	total := int64(0)
	for _, d := range dirs {
		info, err := d.Info()
		if err != nil || !d.IsDir() {
			continue
		}
		path := filepath.Join(c.dir, d.Name())
		size := sizeOf(path)
		total += size
		if d.Name() != entryName(keep) {
			entries = append(entries, entry{path, info.ModTime(), size})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.used.Compare(b.used) })
	for _, e := range entries {
		if total <= c.bytes {
			return
		}
		lock := flock.New(filepath.Join(e.path, "lock"))
		if ok, err := lock.TryLock(); err != nil || !ok {
			continue
		}
		if os.RemoveAll(e.path) == nil {
			total -= e.size
		}
		_ = lock.Unlock()
	}
}

func sizeOf(dir string) int64 {
	total := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}
