package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes what the store holds at one moment into a new file at path, which
// nobody but its owner can read and which Open opens. It works beside a writer,
// which does not wait for it; a read-only store can do it too. Either the whole
// backup is there afterwards, on disk, or nothing: a process that dies leaves at
// most a file beside it whose name ends in ".part". Errors: fs.ErrExist if there is
// something at path, which is left as it is.
//
// A backup keeps what is wiped afterwards.
func (s *Store) Backup(ctx context.Context, path string) error {
	what := "back up to " + path
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return s.failed(ctx, what, errClosed)
	}
	defer s.reads.enter()()
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w: choose another name, or move it away", what, fs.ErrExist)
	}
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer os.Remove(part.Name())
	defer part.Close()
	if err := s.copyInto(ctx, part.Name()); err != nil {
		return s.failed(ctx, what, err)
	}
	// SQLite does not wait for the disk there.
	if err := part.Sync(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := publish(part.Name(), path); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// copyInto writes the database, without what is free in it, into an empty file.
func (s *Store) copyInto(ctx context.Context, path string) error {
	// Of its own, for readers may not write anywhere.
	db, err := connect(s.path, "ro", 1)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	return errors.Join(err, db.Close())
}

// publish gives a file its name, which nothing has, for good.
func publish(part, path string) error {
	if err := os.Link(part, path); errors.Is(err, fs.ErrExist) {
		return err
	} else if err != nil {
		// Not every file system knows links.
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s: %w", path, fs.ErrExist)
		}
		if err := os.Rename(part, path); err != nil {
			return err
		}
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
