// Package files reads the directories that the operator granted to a hand.
// Importing it makes the module ask for the capability "files"; the manifest
// must ask for it too.
package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

// pieceBytes is what one host call reads. The host's default limit is 1 MiB.
const pieceBytes = 512 << 10

func init() {
	guest.WarmJSON(
		abi.FilesListRequest{Root: "x", Path: ".", After: "x", Limit: 1},
		abi.FilesReadRequest{Root: "x", Path: "x", Offset: 1, Length: 1},
		abi.FilesListResult{Self: abi.FileEntry{Name: ".", Type: "dir"}, Entries: []abi.FileEntry{{Name: "x", Type: "file", Size: 1}}, More: true},
	)
}

type rootKey string

// WithRoot returns a context in which Root(ctx, name) is fsys. It is how a
// native test gives a hand its files.
func WithRoot(ctx context.Context, name string, fsys fs.FS) context.Context {
	return context.WithValue(ctx, rootKey(name), fsys)
}

// Root returns the directory that was granted under name. It never fails;
// opening something in a root that was not granted fails with an error that
// matches fs.ErrPermission. The file system is read-only. Its files implement
// io.ReaderAt; it implements fs.ReadDirFS, fs.ReadFileFS and fs.StatFS.
func Root(ctx context.Context, name string) fs.FS {
	if fsys, ok := ctx.Value(rootKey(name)).(fs.FS); ok {
		return fsys
	}
	return root(name)
}

type root string

func (r root) Open(name string) (fs.File, error) {
	d, err := r.directory("open", name)
	if err != nil {
		return nil, err
	}
	if d.info.IsDir() {
		return d, nil
	}
	return &file{root: r, name: name, info: d.info}, nil
}

// directory describes what is at a path. If it is a directory, its first page
// comes along: who opens one reads it, and every call of the host costs.
func (r root) directory(op, name string) (*directory, error) {
	d := &directory{root: r, name: name}
	return d, d.list(op)
}

func (r root) Stat(name string) (fs.FileInfo, error) { return r.stat("stat", name) }

func (r root) stat(op, name string) (fs.FileInfo, error) {
	result, err := r.list(op, name, "", 1)
	if err != nil {
		return nil, err
	}
	return entry{result.Self}, nil
}

func (r root) ReadDir(name string) ([]fs.DirEntry, error) {
	d, err := r.directory("readdir", name)
	if err != nil {
		return nil, err
	}
	if !d.info.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	return d.ReadDir(-1)
}

func (r root) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readfile", Path: name, Err: fs.ErrInvalid}
	}
	var all []byte
	for {
		piece, err := r.read(name, int64(len(all)), pieceBytes)
		if err != nil {
			return all, err
		}
		if all = append(all, piece...); len(piece) < pieceBytes {
			return all, nil
		}
	}
}

func (r root) list(op, name, after string, limit int) (abi.FilesListResult, error) {
	var result abi.FilesListResult
	if !fs.ValidPath(name) {
		return result, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	request := abi.FilesListRequest{Root: string(r), Path: name, After: after, Limit: limit}
	data, err := call(hostList, request)
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil {
		return result, &fs.PathError{Op: op, Path: name, Err: portable(err)}
	}
	return result, nil
}

func (r root) read(name string, offset int64, length int) ([]byte, error) {
	request := abi.FilesReadRequest{Root: string(r), Path: name, Offset: offset, Length: length}
	data, err := call(hostRead, request)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: portable(err)}
	}
	return data, nil
}

func call(f guest.Function, request any) ([]byte, error) {
	encoded, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return guest.Call(f, encoded)
}

// portable adds the standard error that callers of io/fs test for.
func portable(err error) error {
	switch {
	case errors.Is(err, abi.KindNotFound):
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case errors.Is(err, abi.KindDenied), errors.Is(err, abi.KindNotGranted), errors.Is(err, abi.KindDisabled):
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	return err
}

// entry is an abi.FileEntry as the standard library wants it.
type entry struct{ e abi.FileEntry }

func (e entry) Name() string       { return e.e.Name }
func (e entry) Size() int64        { return e.e.Size }
func (e entry) ModTime() time.Time { return e.e.ModTime }
func (e entry) IsDir() bool        { return e.e.Type == "dir" }
func (e entry) Sys() any           { return nil }
func (e entry) Mode() fs.FileMode {
	switch e.e.Type {
	case "dir":
		return fs.ModeDir | 0o555
	case "file":
		return 0o444
	}
	return fs.ModeIrregular
}

// file reads ahead, because every host call counts.
type file struct {
	root root
	name string
	info fs.FileInfo
	// ahead is what was read beyond the last Read; it ends at offset.
	ahead  []byte
	offset int64
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

func (f *file) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(f.ahead) == 0 {
		piece, err := f.root.read(f.name, f.offset, pieceBytes)
		if err != nil {
			return 0, err
		}
		if len(piece) == 0 {
			return 0, io.EOF
		}
		f.ahead, f.offset = piece, f.offset+int64(len(piece))
	}
	n := copy(b, f.ahead)
	f.ahead = f.ahead[n:]
	return n, nil
}

func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	total := 0
	for total < len(b) {
		piece, err := f.root.read(f.name, offset+int64(total), min(len(b)-total, pieceBytes))
		if err != nil {
			return total, err
		}
		if len(piece) == 0 {
			return total, io.EOF
		}
		total += copy(b[total:], piece)
	}
	return total, nil
}

// directory reads a page at a time, so that a folder of any size can be walked
// in little memory.
type directory struct {
	root root
	name string
	info fs.FileInfo
	// page is what was listed and not yet returned; after names the last
	// entry listed, and last says that none follows it.
	page  []fs.DirEntry
	after string
	last  bool
}

func (d *directory) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *directory) Close() error               { return nil }

func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a directory")}
}

func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	var entries []fs.DirEntry
	for n <= 0 || len(entries) < n {
		if len(d.page) == 0 && !d.last {
			if err := d.list("readdir"); err != nil {
				return entries, err
			}
		}
		if len(d.page) == 0 {
			break
		}
		take := len(d.page)
		if n > 0 {
			take = min(take, n-len(entries))
		}
		entries = append(entries, d.page[:take]...)
		d.page = d.page[take:]
	}
	if n > 0 && len(entries) == 0 {
		return nil, io.EOF
	}
	return entries, nil
}

func (d *directory) list(op string) error {
	page, err := d.root.list(op, d.name, d.after, 0)
	if err != nil {
		return err
	}
	for _, e := range page.Entries {
		d.page = append(d.page, fs.FileInfoToDirEntry(entry{e}))
		d.after = e.Name
	}
	d.info, d.last = entry{page.Self}, !page.More || len(page.Entries) == 0
	return nil
}

var (
	_ fs.ReadDirFS  = root("")
	_ fs.ReadFileFS = root("")
	_ fs.StatFS     = root("")
	_ io.ReaderAt   = (*file)(nil)
)
