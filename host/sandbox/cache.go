package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/cpu"
)

// cache keeps compiled modules on disk, a directory per digest:
//
//	CacheDir/<hex digest>/lock      held shared while the entry is read, written or loaded
//	CacheDir/<hex digest>/<key>     a compiledFolder
//	CacheDir/engine-<random>/       an engine's stage, its lock held as long as it lives
//
// The digest is that of a module without its custom sections.
// Whoever evicts an entry holds its lock exclusively, so that no process loses
// an entry that it is reading, or may read again.
type cache struct {
	dir   string
	bytes int64
}

func openCache(dir string, bytes int64) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: see that it can be written, and has room", err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(dir); err != nil {
		return nil, err
	}
	return &cache{dir: dir, bytes: bytes}, nil
}

// checkPrivate says why what is in a directory may not be this user's: others can put
// something in its place.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory: remove it", dir)
	}
	if writableByOthers(info) {
		return fmt.Errorf("%s can be written by others (mode %v), and holds native code: run chmod 700 on it", dir, info.Mode().Perm())
	}
	if ofAnother(info) {
		return fmt.Errorf("%s belongs to another user, and holds native code: run chown on it, or name another directory", dir)
	}
	return nil
}

func entryName(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// acquire makes the entry of a digest, if it is absent, and keeps it from
// eviction until the lock is released.
func (c *cache) acquire(digest string) (*flock.Flock, error) {
	dir := filepath.Join(c.dir, entryName(digest))
	tidy(dir)
	lock, err := lockEntry(dir)
	if err != nil {
		return nil, fmt.Errorf("lock compilation cache: %w", err)
	}
	// The time tells eviction when the entry was last of use.
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
	return lock, nil
}

// What is being written stands beside its place, under names that begin so.
const (
	makingPrefix = ".making-"
	imagePrefix  = ".image-"
)

// tidy removes what those left in an entry that were killed while they wrote, if nobody
// is at it now.
func tidy(dir string) {
	lock, ok := tryAlone(dir)
	if !ok {
		return
	}
	defer lock.Unlock()
	removeHalves(dir, makingPrefix)
	folders, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, d := range folders {
		if path := filepath.Join(dir, d.Name()); checkPrivate(path) == nil {
			removeHalves(path, imagePrefix)
		}
	}
}

func removeHalves(dir, prefix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// tryAlone locks a directory of the cache if nobody else does, and it is there and this
// user's alone.
func tryAlone(dir string) (*flock.Flock, bool) {
	if checkPrivate(dir) != nil {
		return nil, false
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil, false
	}
	if !holds(lock) {
		_ = lock.Unlock()
		return nil, false
	}
	return lock, true
}

// holds reports whether what is locked is what stands there: whoever evicts a directory
// removes the file that another may have opened to lock it, and it is made anew.
func holds(lock *flock.Flock) bool {
	locked, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(lock.Path())
	return err == nil && os.SameFile(locked, there)
}

// lockEntry makes a directory of the cache, if it is absent, and locks it, shared.
func lockEntry(dir string) (*flock.Flock, error) {
	// Another process may evict the directory between its making and its
	// locking; then the lock file is gone from its path and a new round
	// begins.
	for range 100 {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%w: see that it can be written, and has room", err)
		}
		if err := checkPrivate(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		lock := flock.New(filepath.Join(dir, "lock"))
		if err := lock.RLock(); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if !holds(lock) {
			_ = lock.Unlock()
			continue
		}
		return lock, nil
	}
	return nil, fmt.Errorf("%s keeps being removed", dir)
}

// stage is where an engine finds what it loads: the files of a compiledFolder, under
// the names that it looks for, while it looks. It is safe for concurrent use.
type stage struct {
	dir  string
	lock *flock.Flock
	// engine names the engine and the processor: what one compiled is of no use
	// to another.
	engine string

	mu sync.Mutex
	// files counts who needs a file to be there; guarded by mu. Folders for several
	// limits may have the same.
	files map[string]int
}

const stagePrefix = "engine-"

// newStage makes a stage, and removes those of engines that were killed.
func (c *cache) newStage() (*stage, error) {
	old, err := filepath.Glob(filepath.Join(c.dir, stagePrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range old {
		if lock, ok := tryAlone(dir); ok {
			_ = os.RemoveAll(dir)
			_ = lock.Unlock()
		}
	}
	dir := filepath.Join(c.dir, stagePrefix+rand.Text())
	lock, err := lockEntry(dir)
	if err != nil {
		return nil, err
	}
	return &stage{dir: dir, lock: lock, files: map[string]int{}}, nil
}

// findEngine looks at what the engine has made of the stage: it tells its version
// only by the name of its folder.
func (s *stage) findEngine() error {
	found, err := filepath.Glob(filepath.Join(s.dir, "wazero-*"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("find out the engine's version: %d folders in %s, %w", len(found), s.dir, err)
	}
	s.engine = fmt.Sprintf("%s %v %v", filepath.Base(found[0]), cpu.X86, cpu.ARM64)
	return nil
}

// close frees the stage. What it cannot remove the next one does: another process that
// begins just now may be at it, too.
func (s *stage) close() error {
	err := s.lock.Unlock()
	_ = os.RemoveAll(s.dir)
	return err
}

// put puts the engine's files of a folder, of so many bytes, onto the stage until
// remove is called.
func (s *stage) put(folder compiledFolder, files []string) (bytes int64, remove func(), err error) {
	var put []string
	s.mu.Lock()
	defer s.mu.Unlock()
	remove = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.take(put)
	}
	for _, name := range files {
		path, to := filepath.Join(folder.path, name), filepath.Join(s.dir, name)
		size, err := s.putFile(path, to)
		if err != nil {
			s.take(put)
			return 0, nil, err
		}
		bytes += size
		s.files[to]++
		put = append(put, to)
	}
	return bytes, remove, nil
}

func (s *stage) putFile(path, to string) (size int64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if s.files[to] > 0 {
		return info.Size(), nil
	}
	// Who tidies up may have removed the stage under a process that runs for long.
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return 0, err
	}
	if err := os.Link(path, to); err != nil {
		return info.Size(), copyFile(path, to)
	}
	return info.Size(), nil
}

func (s *stage) take(files []string) {
	for _, f := range files {
		if s.files[f]--; s.files[f] == 0 {
			delete(s.files, f)
			_ = os.Remove(f)
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// evict removes entries but keep, the longest unused first, until the rest is within
// the bound. It leaves alone what is locked or not this user's alone. A cache that cannot be tidied is
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
		if path != keep {
			entries = append(entries, entry{path, info.ModTime(), size})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.used.Compare(b.used) })
	for _, e := range entries {
		if total <= c.bytes {
			return
		}
		lock, ok := tryAlone(e.path)
		if !ok {
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
