package main

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
)

// Bounds of one query. The host has its own; these leave room below them, so
// that the reply says what was left out and no read fails for want of quota.
const (
	maxCalls      = 8_000
	maxReadBytes  = 192 << 20
	pageBytes     = 32 << 10 // what is read of an index or pack at once
	maxPages      = 256      // kept
	maxDirEntries = 20_000
)

var errTooLarge = errors.New("larger than this hand reads")

// reader reads the granted folder, and counts. It is used by one goroutine.
type reader struct {
	ctx  context.Context
	fsys fs.FS

	budget *budget.Budget
	opened []io.Closer
	pages  map[pageKey][]byte
	order  []pageKey // of pages, the oldest first
}

type pageKey struct {
	file   *pagedFile
	number int64
}

func (r *reader) stat(name string) (fs.FileInfo, error) {
	if err := r.budget.Spend(1, 0); err != nil {
		return nil, err
	}
	return fs.Stat(r.fsys, name)
}

// file returns the content of a file of at most most bytes.
func (r *reader) file(name string, most int) ([]byte, error) {
	f, err := r.open(name)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if f.size > int64(most) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errTooLarge}
	}
	if err := r.budget.Spend(1, int(f.size)); err != nil {
		return nil, err
	}
	content := make([]byte, f.size)
	n, err := f.content.ReadAt(content, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return content[:n], err
}

// list returns the entries of a folder; none if it is not there.
func (r *reader) list(dir string) ([]fs.DirEntry, error) {
	if err := r.budget.Spend(2, 0); err != nil {
		return nil, err
	}
	opened, err := r.fsys.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	lister, ok := opened.(fs.ReadDirFile)
	if !ok {
		return nil, nil
	}
	var all []fs.DirEntry
	for len(all) < maxDirEntries {
		page, err := lister.ReadDir(1_000)
		all = append(all, page...)
		if err == io.EOF || err == nil && len(page) == 0 {
			break
		}
		if err != nil {
			return all, err
		}
		if err := r.budget.Spend(1, 0); err != nil {
			return all, err
		}
	}
	return all, nil
}

// pagedFile is a file of which pieces are wanted, now here, now there.
type pagedFile struct {
	reader  *reader
	name    string
	content io.ReaderAt
	size    int64
}

// close closes the files that were opened and not closed.
func (r *reader) close() {
	for _, f := range r.opened {
		f.Close()
	}
	r.opened = nil
}

// close closes the file now; what was opened last is.
func (f *pagedFile) close() {
	last := len(f.reader.opened) - 1
	f.reader.opened[last].Close()
	f.reader.opened = f.reader.opened[:last]
}

// open opens a regular file.
func (r *reader) open(name string) (*pagedFile, error) {
	if err := r.budget.Spend(1, 0); err != nil {
		return nil, err
	}
	opened, err := r.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat()
	if err != nil {
		opened.Close()
		return nil, err
	}
	content, ok := opened.(io.ReaderAt)
	if !ok || !info.Mode().IsRegular() {
		opened.Close()
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	r.opened = append(r.opened, opened)
	return &pagedFile{reader: r, name: name, content: content, size: info.Size()}, nil
}

// page returns the piece of the file that holds offset, and what of it follows.
func (f *pagedFile) page(offset int64) ([]byte, error) {
	if offset < 0 || offset >= f.size {
		return nil, io.ErrUnexpectedEOF
	}
	r, key := f.reader, pageKey{f, offset / pageBytes}
	page, ok := r.pages[key]
	if !ok {
		start := key.number * pageBytes
		page = make([]byte, min(pageBytes, f.size-start))
		if err := r.budget.Spend(1, len(page)); err != nil {
			return nil, err
		}
		n, err := f.content.ReadAt(page, start)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		page = page[:n]
		if r.pages == nil {
			r.pages = make(map[pageKey][]byte)
		}
		if len(r.order) >= maxPages {
			delete(r.pages, r.order[0])
			r.order = r.order[1:]
		}
		r.pages[key] = page
		r.order = append(r.order, key)
	}
	within := int(offset % pageBytes)
	if within >= len(page) {
		return nil, io.ErrUnexpectedEOF // the file became shorter
	}
	return page[within:], nil
}

// ReadAt fills b or fails.
func (f *pagedFile) ReadAt(b []byte, offset int64) (int, error) {
	done := 0
	for done < len(b) {
		page, err := f.page(offset + int64(done))
		if err != nil {
			return done, err
		}
		done += copy(b[done:], page)
	}
	return done, nil
}

// from returns the bytes of the file from offset on.
func (f *pagedFile) from(offset int64) *stream { return &stream{file: f, offset: offset} }

// stream implements io.Reader and io.ByteReader, so that inflating takes no more
// than it needs.
type stream struct {
	file   *pagedFile
	offset int64
	ahead  []byte
}

func (s *stream) fill() error {
	if len(s.ahead) > 0 {
		return nil
	}
	if s.offset >= s.file.size {
		return io.EOF
	}
	page, err := s.file.page(s.offset)
	if err != nil {
		return err
	}
	s.ahead, s.offset = page, s.offset+int64(len(page))
	return nil
}

func (s *stream) ReadByte() (byte, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	b := s.ahead[0]
	s.ahead = s.ahead[1:]
	return b, nil
}

func (s *stream) Read(b []byte) (int, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	n := copy(b, s.ahead)
	s.ahead = s.ahead[n:]
	return n, nil
}
