// Package lock keeps what the operator of a host agreed to for each hand, in the file
// glovebox.lock, and the modules that were installed, in the folder hands beside it.
//
// The file is TOML, for its owner alone, sorted and replaced as a whole:
//
//	version = 1
//	[hands.feeds]
//	digest = "sha256:…"
//	…
//	seal = "hmac-sha256:…"
//
// Each entry has a seal of its own, made with a key that never leaves the host: one
// that was edited, renamed or copied from another host is told from one that was
// agreed to, and the others are of use all the same. A seal does not tell an entry
// from an earlier one of the same name and host; who may write the data directory may
// put back both.
package lock

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/pelletier/go-toml/v2"

	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/datafile"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

var (
	// ErrDamaged says that the file cannot be understood. Nothing is agreed by it,
	// and nothing is written to it.
	ErrDamaged = errors.New("the lock file is damaged")
	// ErrUnsealed says that an entry was not written here: it was edited, or comes
	// from another host.
	ErrUnsealed = errors.New("the entry was changed by something else than glovebox, or comes from another host")
	// ErrNoEntry says that there is no entry of a name.
	ErrNoEntry = errors.New("there is no entry")
	// ErrChanged says that an entry is not the one that was looked at.
	ErrChanged = errors.New("the entry was changed meanwhile")
)

const (
	// Name is that of the file, Folder that of the folder of modules.
	Name, Folder = "glovebox.lock", "hands"

	formatVersion = 1
	// maxBytes bounds the file: some thousand hands.
	maxBytes = 4 << 20
	// lockTimeout bounds how long a change waits for that of another process.
	lockTimeout = 30 * time.Second

	extension  = ".wasm"
	sealPrefix = "hmac-sha256:"
	comment    = `# What was agreed for each hand on this host: which module, what it asks for, and
# what it was given. glovebox hand install, grant, revoke and remove write this file,
# and docs/operating.md explains it. An entry that is edited, or copied from another
# host, is refused until glovebox hand grant NAME.
`
)

// File is the lock of one data directory. It is safe for concurrent use, by several
// processes.
type File struct {
	dir  string
	path string
	key  []byte
	// last is what was read last. It is set with mu held: who only looks whether the
	// file is another one by now waits for nobody.
	mu   sync.Mutex
	last atomic.Pointer[Snapshot]
}

// New returns the lock in dir, in which nothing need exist. Key seals the entries.
func New(dir string, key []byte) *File {
	return &File{dir: dir, path: filepath.Join(dir, Name), key: bytes.Clone(key)}
}

// Path is where the file is.
func (f *File) Path() string { return f.path }

// Snapshot is what the file said at one moment. It does not change.
type Snapshot struct {
	entries  map[string]Entry
	unsealed map[string]bool
	err      error
	// info is of the file that was read; nil if there was none.
	info fs.FileInfo
	// unread says that the file could not be read, which may be over without a change
	// of the file: too many files were open, or it was not ours to read.
	unread bool
}

// Err is not nil, and wraps ErrDamaged, if the file was there and could not be
// understood or read.
func (s *Snapshot) Err() error { return s.err }

// Names are those that have an entry, sealed or not, sorted.
func (s *Snapshot) Names() []string { return slices.Sorted(maps.Keys(s.entries)) }

// Entry returns the entry of a hand. Errors wrap ErrDamaged, ErrNoEntry and
// ErrUnsealed; with the last, the entry is what somebody wrote there.
func (s *Snapshot) Entry(name string) (Entry, error) {
	if s.err != nil {
		return Entry{}, s.err
	}
	e, ok := s.entries[name]
	switch {
	case !ok:
		return Entry{}, fmt.Errorf("%q: %w", name, ErrNoEntry)
	case s.unsealed[name]:
		return e, fmt.Errorf("%q: %w", name, ErrUnsealed)
	}
	return e, nil
}

// State tells whether what is agreed for a hand is the same in two snapshots: it is
// where the states are equal. It is "" where there is no entry.
func (s *Snapshot) State(name string) string {
	if s.err != nil {
		return s.err.Error()
	}
	e, ok := s.entries[name]
	switch {
	case !ok:
		return ""
	case s.unsealed[name]:
		return "unsealed"
	}
	return e.Seal
}

// Read returns what the file says now. It looks at the file's name alone where that
// is the file which was read last, and returns the same Snapshot then.
func (f *File) Read() *Snapshot {
	if last, _, _ := f.look(); last != nil {
		return last
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// Somebody else may have read it meanwhile.
	same, info, err := f.look()
	if same != nil {
		return same
	}
	now := &Snapshot{}
	switch {
	case err != nil:
		now.err, now.unread = f.damaged(err), true
	case info != nil:
		now = f.parse(info)
	}
	if last := f.last.Load(); last != nil && now.unread && last.unread && now.err.Error() == last.err.Error() {
		return last
	}
	f.last.Store(now)
	return now
}

// look returns what was read last if the file is the same one now; else nil, and what
// the file is, nil if there is none.
func (f *File) look() (*Snapshot, fs.FileInfo, error) {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = nil, nil
	}
	last := f.last.Load()
	if last == nil || err != nil || last.unread {
		return nil, info, err
	}
	if info == nil && last.info == nil || info != nil && last.info != nil &&
		os.SameFile(info, last.info) && info.Size() == last.info.Size() && info.ModTime().Equal(last.info.ModTime()) {
		return last, info, nil
	}
	return nil, info, nil
}

func (f *File) damaged(err error) error {
	return fmt.Errorf("%s: %w: %w", f.Path(), ErrDamaged, err)
}

// parse reads the file that info is of, or the one that has its name by now.
func (f *File) parse(info fs.FileInfo) *Snapshot {
	s := &Snapshot{entries: map[string]Entry{}, unsealed: map[string]bool{}, info: info}
	refuse := func(err error) *Snapshot {
		return &Snapshot{info: s.info, err: f.damaged(err)}
	}
	unread := func(err error) *Snapshot { return &Snapshot{err: f.damaged(err), unread: true} }
	// Looked at first: to open a pipe waits for who writes it.
	if !info.Mode().IsRegular() {
		return refuse(errors.New("it is no file"))
	}
	file, err := os.Open(f.Path())
	if err != nil {
		return unread(err)
	}
	defer file.Close()
	if s.info, err = file.Stat(); err != nil {
		return unread(err)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return unread(err)
	}
	if len(data) > maxBytes {
		return refuse(fmt.Errorf("it is longer than %d bytes", maxBytes))
	}
	var written document
	if err := manifest.Decode(data, &written); err != nil {
		return refuse(err)
	}
	if written.Version != formatVersion {
		return refuse(fmt.Errorf("it has version %d, this glovebox reads version %d", written.Version, formatVersion))
	}
	for name, e := range written.Hands {
		if !manifest.ValidName(name) {
			return refuse(fmt.Errorf("%s is no name of a hand", quoted(name)))
		}
		if err := e.check(); err != nil {
			return refuse(fmt.Errorf("hands.%s: %w", name, err))
		}
		s.entries[name] = e
		if seal, err := f.seal(name, e); err != nil || !hmac.Equal([]byte(seal), []byte(e.Seal)) {
			s.unsealed[name] = true
		}
	}
	return s
}

// document is the whole file.
type document struct {
	Version int              `toml:"version"`
	Hands   map[string]Entry `toml:"hands"`
}

// seal is of the entry as it stands in the file: what is read is encoded again.
func (f *File) seal(name string, e Entry) (string, error) {
	e.Seal = ""
	text, err := toml.Marshal(e)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, f.key)
	fmt.Fprintf(mac, "%s %d\x00%s\x00%s", Name, formatVersion, name, text)
	return sealPrefix + hex.EncodeToString(mac.Sum(nil)), nil
}

// again is the seal of an entry that was written and read.
func (f *File) again(name string, e Entry) (string, error) {
	text, err := toml.Marshal(e)
	if err != nil {
		return "", err
	}
	var read Entry
	if err := manifest.Decode(text, &read); err != nil {
		return "", err
	}
	return f.seal(name, read)
}

// Edit is a change that is being made.
type Edit struct {
	file    *File
	entries map[string]Entry
	before  *Snapshot
}

// Expect returns an error that wraps ErrChanged if the state of a name is not the one
// of a Snapshot that was looked at.
func (e *Edit) Expect(name, state string) error {
	if e.before.State(name) != state {
		return fmt.Errorf("%q: %w: look at it again", name, ErrChanged)
	}
	return nil
}

// Entry is Snapshot.Entry of what the file says before the change.
func (e *Edit) Entry(name string) (Entry, error) { return e.before.Entry(name) }

// Put sets the entry of a name and seals it. Module is kept for one that is Installed
// and may be nil if it is kept already; its digest must be the entry's.
func (e *Edit) Put(name string, entry Entry, module []byte) error {
	if !manifest.ValidName(name) {
		return fmt.Errorf("%s: a hand's name is 1 to 63 of a-z, 0-9 and -, not beginning with -", quoted(name))
	}
	if err := entry.check(); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	entry.At = entry.At.UTC().Truncate(time.Second)
	seal, err := e.file.seal(name, entry)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	entry.Seal = seal
	if again, err := e.file.again(name, entry); err != nil || again != seal {
		return fmt.Errorf("%q: a path or a value of it cannot be written so that it is read as the same: use text in UTF-8", name)
	}
	if module != nil {
		if sandbox.Digest(module) != entry.Digest {
			return fmt.Errorf("%q: the module is not that of the entry", name)
		}
		if err := e.file.keep(entry.Digest, module); err != nil {
			return fmt.Errorf("keep the module of %q: %w", name, err)
		}
	}
	e.entries[name] = entry
	return nil
}

// Delete removes the entry of a name.
func (e *Edit) Delete(name string) { delete(e.entries, name) }

// Change has edit make a change, by nobody else meanwhile, and replaces the file
// after it. When it fails, nothing is agreed that was not; a process that dies within
// it leaves the file before or the one after, and perhaps a module that no entry has,
// which the next change removes. Errors wrap ErrDamaged and those of edit.
//
// Modules are there before an entry names them, and go after none does.
func (f *File) Change(ctx context.Context, edit func(*Edit) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("change %s: %w", Name, err)
		}
	}()
	if err := f.makeFolder(); err != nil {
		return err
	}
	path := filepath.Join(f.dir, Folder, ".lock")
	if err := datafile.Make(path); err != nil {
		return err
	}
	// Looked at first: to open a pipe waits for who writes it.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file that can be locked: take it away", path)
	}
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	only := flock.New(path, flock.SetPermissions(0o600))
	if _, err := only.TryLockContext(waiting, 20*time.Millisecond); err != nil {
		return fmt.Errorf("wait for another glovebox that changes it: %w", err)
	}
	defer func() { err = errors.Join(err, only.Unlock()) }()
	before := f.Read()
	if before.err != nil {
		return fmt.Errorf("%w: put a copy of it back, or move it away and install and grant the hands again", before.err)
	}
	e := &Edit{file: f, entries: maps.Clone(before.entries), before: before}
	if e.entries == nil {
		e.entries = map[string]Entry{}
	}
	if err := edit(e); err != nil {
		return errors.Join(err, f.sweep(before.entries))
	}
	if err := f.write(e.entries); err != nil {
		return errors.Join(err, f.sweep(before.entries))
	}
	// What is not swept now is swept by the next change.
	_ = f.sweep(e.entries)
	return nil
}

func (f *File) write(entries map[string]Entry) error {
	text, err := toml.Marshal(document{formatVersion, entries})
	if err != nil {
		return err
	}
	data := append([]byte(comment), text...)
	if len(data) > maxBytes {
		return fmt.Errorf("%d hands are too many: remove some", len(entries))
	}
	return datafile.Replace(f.Path(), data, 0o600)
}

func (f *File) makeFolder() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	folder := filepath.Join(f.dir, Folder)
	if err := os.Mkdir(folder, 0o700); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(datafile.GiveToOwner(d, f.dir), d.Close())
}

// moduleAt is where a module is kept. The digest was checked.
func (f *File) moduleAt(digest string) string {
	return filepath.Join(f.dir, Folder, strings.TrimPrefix(digest, "sha256:")+extension)
}

func (f *File) keep(digest string, module []byte) error {
	if kept, err := f.Module(digest); err == nil && bytes.Equal(kept, module) {
		return nil
	}
	return datafile.Replace(f.moduleAt(digest), module, 0o600)
}

// Module returns an installed module. What lies in its place and is another one is an
// error.
func (f *File) Module(digest string) ([]byte, error) {
	if !validDigest(digest) {
		return nil, fmt.Errorf("digest %s is not sha256: and 64 hexadecimal digits", quoted(digest))
	}
	path := f.moduleAt(digest)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not there any more: install the hand again", path)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > sandbox.MaxModuleBytes:
		return nil, fmt.Errorf("%s is not the module that was installed: install the hand again", path)
	}
	module, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if sandbox.Digest(module) != digest {
		return nil, fmt.Errorf("%s is not the module that was installed: its digest is %s; install the hand again", path, sandbox.Digest(module))
	}
	return module, nil
}

// sweep removes what no entry has: modules, and what is left of a change that did not
// end.
func (f *File) sweep(entries map[string]Entry) error {
	wanted := map[string]bool{}
	for _, e := range entries {
		if e.Installed {
			wanted[filepath.Base(f.moduleAt(e.Digest))] = true
		}
	}
	found, err := os.ReadDir(filepath.Join(f.dir, Folder))
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range found {
		name := entry.Name()
		if entry.Type().IsRegular() && ours(name) && !wanted[name] {
			errs = append(errs, os.Remove(filepath.Join(f.dir, Folder, name)))
		}
	}
	if found, err = os.ReadDir(f.dir); err != nil {
		errs = append(errs, err)
	}
	for _, entry := range found {
		// Nobody else is writing one.
		if entry.Type().IsRegular() && strings.HasPrefix(entry.Name(), "."+Name+".") {
			errs = append(errs, os.Remove(filepath.Join(f.dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// ours reports whether keep gives a file this name, or one that it writes first. The
// folder may hold what is not ours, such as a module that the configuration names.
func ours(name string) bool {
	hidden, isHidden := strings.CutPrefix(name, ".")
	digest, rest, found := strings.Cut(hidden, extension)
	return found && validDigest("sha256:"+digest) && isHidden == (rest != "")
}
