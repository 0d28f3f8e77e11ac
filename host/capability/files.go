package capability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/gloveboxhq/glovebox/abi"
)

// Files is the port of one query: read-only access to granted directories. It
// implements sandbox.Files. One goroutine owns it; Close it after the query.
type Files struct {
	door    door
	granted map[string]string

	// open and used are made when a file is first asked for.
	open map[string]*os.Root
	// used are the uses that are recorded.
	used map[use]bool
	// last is the directory listed last, kept so that paging through it reads
	// it once.
	last listing
}

type listing struct {
	root, path string
	names      []string
}

// use is one action on one target.
type use struct {
	action Action
	target string
}

// maxRemembered bounds the uses that are remembered as recorded; beyond it each
// page and piece is recorded.
const maxRemembered = 10_000

// maxDirectoryEntries bounds one directory: names are sorted in memory.
const maxDirectoryEntries = 200_000

// NewFiles returns the port. Granted maps the names of roots to directories of
// this machine; they are opened when they are first used.
func NewFiles(ledger *Ledger, caller Caller, granted map[string]string) *Files {
	return &Files{door: door{ledger, caller}, granted: granted}
}

// Close closes the directories.
func (f *Files) Close() error {
	var errs []error
	for _, root := range f.open {
		errs = append(errs, root.Close())
	}
	f.open = nil
	return errors.Join(errs...)
}

// List implements sandbox.Files.
func (f *Files) List(ctx context.Context, r abi.FilesListRequest) (abi.FilesListResult, error) {
	if r.Path == "" {
		r.Path = "."
	}
	root, err := f.enter(ctx, ActionFilesList, r.Root, r.Path)
	if err != nil {
		return abi.FilesListResult{}, err
	}
	info, err := root.Stat(r.Path)
	if err != nil {
		return abi.FilesListResult{}, f.translate(ctx, ActionFilesList, r.Root, r.Path, err)
	}
	result := abi.FilesListResult{Self: entryOf(path.Base(r.Path), info), Entries: []abi.FileEntry{}}
	if !info.IsDir() {
		return result, nil
	}
	names, err := f.names(root, r.Root, r.Path)
	if err != nil {
		return abi.FilesListResult{}, f.translate(ctx, ActionFilesList, r.Root, r.Path, err)
	}
	from, found := slices.BinarySearch(names, r.After)
	if found {
		from++
	}
	for _, name := range names[from:] {
		if len(result.Entries) == r.Limit {
			result.More = true
			break
		}
		if err := ctx.Err(); err != nil {
			return abi.FilesListResult{}, err
		}
		entry := abi.FileEntry{Name: name, Type: "other"}
		// A link that leads out of the root is shown but is nothing: not
		// even its target's size is told.
		if info, err := root.Stat(path.Join(r.Path, name)); err == nil {
			entry = entryOf(name, info)
		}
		result.Entries = append(result.Entries, entry)
	}
	return result, nil
}

// Read implements sandbox.Files.
func (f *Files) Read(ctx context.Context, r abi.FilesReadRequest) ([]byte, error) {
	root, err := f.enter(ctx, ActionFilesRead, r.Root, r.Path)
	if err != nil {
		return nil, err
	}
	data, err := readRegular(root, r)
	if err != nil {
		return nil, f.translate(ctx, ActionFilesRead, r.Root, r.Path, err)
	}
	return data, nil
}

// errNotRegular says that a path names a device, a pipe, a socket or a
// directory.
var errNotRegular = errors.New("not a regular file")

func readRegular(root *os.Root, r abi.FilesReadRequest) ([]byte, error) {
	// The first look keeps us from opening a device at all, the second holds
	// for what was opened.
	if info, err := root.Stat(r.Path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := root.OpenFile(r.Path, os.O_RDONLY|openNonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if r.Offset >= info.Size() {
		return nil, nil
	}
	data := make([]byte, min(int64(r.Length), info.Size()-r.Offset))
	n, err := file.ReadAt(data, r.Offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// enter decides on a call and returns the root it is about. Pages and pieces
// after the first are decided like the first and recorded only if refused.
func (f *Files) enter(ctx context.Context, action Action, name, filePath string) (*os.Root, error) {
	if f.used == nil {
		f.open, f.used = map[string]*os.Root{}, map[use]bool{}
	}
	target := name + ":" + filePath
	dir, granted := f.granted[name]
	var no *refusal
	switch {
	case !granted:
		no = &refusal{abi.KindNotGranted, "no directory is granted under this name"}
	case !fs.ValidPath(filePath) || strings.ContainsAny(filePath, "\x00\\"):
		no = &refusal{abi.KindDenied, "the path is not a plain relative path"}
	}
	if use := (use{action, target}); no != nil || !f.used[use] || f.door.withdrawn() != nil {
		if len(f.used) < maxRemembered {
			f.used[use] = true
		}
		if err := f.door.decide(ctx, action, target, no); err != nil {
			return nil, err
		}
	}
	if root, ok := f.open[name]; ok {
		return root, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, f.translate(ctx, action, name, filePath, err)
	}
	f.open[name] = root
	return root, nil
}

// translate gives an error of the file system its kind. What the root itself
// refused, a path that leaves it, is a refusal and recorded as one.
func (f *Files) translate(ctx context.Context, action Action, name, filePath string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w", action, abi.KindNotFound)
	case errors.Is(err, errNotRegular):
		return f.door.decide(ctx, action, name+":"+filePath, &refusal{abi.KindDenied, errNotRegular.Error()})
	case errors.Is(err, fs.ErrPermission):
		return f.door.decide(ctx, action, name+":"+filePath, &refusal{abi.KindDenied, "the operating system denies it"})
	case errors.Is(err, errTooManyEntries):
		return fmt.Errorf("%s: %w: %w", action, err, abi.KindTooLarge)
	case isEscape(err):
		return f.door.decide(ctx, action, name+":"+filePath, &refusal{abi.KindDenied, "the path leads out of the granted directory"})
	}
	return fmt.Errorf("%s: %w: %w", action, err, abi.KindUnavailable)
}

// isEscape recognises os.Root's refusal, which has no exported value.
func isEscape(err error) bool {
	pathErr, ok := errors.AsType[*fs.PathError](err)
	return ok && strings.Contains(pathErr.Err.Error(), "escapes from parent")
}

var errTooManyEntries = fmt.Errorf("a directory of more than %d entries", maxDirectoryEntries)

func (f *Files) names(root *os.Root, name, dirPath string) ([]string, error) {
	if f.last.names != nil && f.last.root == name && f.last.path == dirPath {
		return f.last.names, nil
	}
	dir, err := root.Open(dirPath)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxDirectoryEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxDirectoryEntries {
		return nil, errTooManyEntries
	}
	// A name that is not UTF-8 cannot be told in JSON, nor asked for: what is
	// told stands in the order in which it is paged through.
	for i, n := range names {
		names[i] = strings.ToValidUTF8(n, "\ufffd")
	}
	slices.Sort(names)
	names = slices.Compact(names)
	f.last = listing{name, dirPath, names}
	return names, nil
}

func entryOf(name string, info fs.FileInfo) abi.FileEntry {
	entry := abi.FileEntry{Name: name, Type: "other", ModTime: info.ModTime().UTC()}
	switch {
	case info.IsDir():
		entry.Type = "dir"
	case info.Mode().IsRegular():
		entry.Type, entry.Size = "file", info.Size()
	}
	return entry
}
