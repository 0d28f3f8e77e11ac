// Package sqlite keeps a memory.Store in one SQLite file.
//
// Writes go through one connection, in transactions that are on disk when they
// return (WAL, synchronous=FULL); reads have connections of their own and never
// wait for the writer. One process at a time writes: it holds a lock on the file
// beside the database whose name ends in ".lock".
package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/gloveboxhq/glovebox/host/datafile"
	"github.com/gloveboxhq/glovebox/memory"
)

// Options for Open. The zero value opens for writing.
type Options struct {
	// ReadOnly opens an existing database beside whoever writes it. Every
	// write then fails with memory.ErrReadOnly.
	ReadOnly bool
	// Now is the clock for what the store dates itself; nil means time.Now.
	Now func() time.Time
}

// Store is a memory.Store in one SQLite file.
type Store struct {
	path     string
	readOnly bool
	lock     *flock.Flock
	// write is one connection, read a pool; the same in a read-only store.
	// writer is held by who has the former: the pool would choose one of those who
	// wait at random, and some wait long.
	writer turnstile
	write  *sql.DB
	read   *sql.DB

	appending appendStatements
	showing   showStatements
	appends   appendQueue
	// positions is where sessions stand that were appended to and not touched
	// since; it is for whoever has the writer.
	positions map[memory.SessionID]position

	tails      tails
	indexer    *indexer // nil in a read-only store
	segments   segmentCache
	tokenizers sync.Pool // of *index.Tokenizer

	// reads are those that go on; scrubbing has room for the one Scrub that
	// waits for them.
	reads     epochs
	scrubbing chan struct{}

	mu sync.RWMutex
	// closed is guarded by mu, which every operation holds for reading.
	closed bool
}

var _ memory.Store = (*Store)(nil)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks the file as ours: "GBXS".
const applicationID = 0x47425853

// busyTimeout is for what little the processes can contend for: a checkpoint,
// a reader's first look.
const busyTimeout = 10 * time.Second

// readers is how many connections read at the same time.
const readers = 4

// smallestPage is the least size in bytes of a page, and so of a database.
const smallestPage = 512

// errDamaged is for a file of ours that cannot be right.
var errDamaged = errors.New("the file is damaged: put a backup in its place")

const (
	kvShared       = "shared"
	keyDefaultUser = "default_user_uuid"
	keyAdopted     = "default_user_bootstrap_done"
)

// Open opens or creates the database at path, with its directory, and brings
// its schema up to date. Errors wrap memory.ErrInUse, memory.ErrNewer,
// memory.ErrForeign and memory.ErrReadOnly; a file that was refused is left as
// it was.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	s := &Store{path: path, readOnly: options.ReadOnly, positions: map[memory.SessionID]position{}, scrubbing: make(chan struct{}, 1)}
	// Two names of one file are to meet at one lock.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		s.path = target
	}
	if err := s.open(ctx, options); err != nil {
		s.shut()
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, options Options) error {
	if err := looksLikeDatabase(s.path, s.readOnly); err != nil {
		return err
	}
	if s.readOnly {
		var err error
		if s.read, err = connect(s.path, "ro", readers, "query_only(ON)"); err != nil {
			return err
		}
		s.write = s.read
		if err := s.checkVersion(ctx, s.read); err != nil {
			return err
		}
		return s.showing.prepare(ctx, s.read)
	}
	if err := s.prepareFiles(); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	if err := ownersAlone(s.path); err != nil {
		return err
	}
	var err error
	if s.write, err = connect(s.path, "rw", 1, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)", "secure_delete(ON)"); err != nil {
		return err
	}
	now := options.Now
	if now == nil {
		now = time.Now
	}
	if err := s.migrate(ctx, now()); err != nil {
		return err
	}
	if err := s.adopt(ctx); err != nil {
		return fmt.Errorf("give the rows of nobody to the default user: %w", err)
	}
	if s.read, err = connect(s.path, "rw", readers, "query_only(ON)"); err != nil {
		return err
	}
	if err := s.showing.prepare(ctx, s.read); err != nil {
		return err
	}
	if err := s.appending.prepare(ctx, s.write); err != nil {
		return err
	}
	s.tails.least = leastTail
	return s.startIndexer(ctx)
}

// prepareFiles creates the directory and the file with the modes that they are
// to have, and takes the lock.
func (s *Store) prepareFiles() error {
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return writable(err)
	}
	if err := datafile.Make(s.path + ".lock"); err != nil {
		return writable(err)
	}
	s.lock = flock.New(s.path+".lock", flock.SetPermissions(0o600))
	ok, err := s.lock.TryLock()
	if err != nil {
		return writable(err)
	}
	if !ok {
		return fmt.Errorf("%w: stop the process that holds %s, or open the database for reading", memory.ErrInUse, s.lock.Path())
	}
	if err := datafile.Make(s.path); err != nil {
		return writable(err)
	}
	file, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return writable(err)
	}
	return file.Close()
}

// ownersAlone takes a database that was made with wider modes, by a copy or a
// restored backup, away from everybody else. What SQLite puts beside it has the
// modes of the file itself.
func ownersAlone(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(name, 0o600); err != nil {
			return writable(err)
		}
	}
	return nil
}

// writable says of an error of the file system that it means a store which
// cannot be written, if it does.
func writable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w: make the directory and the file writable, or choose another place", memory.ErrReadOnly, err)
	}
	return err
}

// looksLikeDatabase refuses other files before SQLite, which might change
// them, sees them. An absent or empty file will become a database, unless it
// must exist.
func looksLikeDatabase(path string, exists bool) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !exists {
		return nil
	} else if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("not allowed to read it: %w", err)
	} else if err != nil {
		return writable(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file: %w", memory.ErrForeign)
	}
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	n, err := file.ReadAt(head, 0)
	switch {
	case err != nil && err != io.EOF:
		return err
	case string(head[:n]) != magic[:n]:
		return fmt.Errorf("it is not an SQLite file: %w", memory.ErrForeign)
	case n > 0 && info.Size() < smallestPage:
		// SQLite takes so short a file for a new one and writes over it.
		return errDamaged
	}
	return nil
}

func connect(path, mode string, connections int, pragmas ...string) (*sql.DB, error) {
	query := url.Values{
		"mode":    {mode},
		"_txlock": {"immediate"},
		"_pragma": append([]string{"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")"}, pragmas...),
	}
	if slices.Contains(pragmas, "query_only(ON)") {
		query.Set("_txlock", "deferred")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	dsn := "file:" + (&url.URL{Path: filepath.ToSlash(absolute)}).EscapedPath() + "?" + query.Encode()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// look checks the file before a connection that could change it is made: the
// first thing that a writer does is to set the journal mode.
func (s *Store) look(ctx context.Context) error {
	mode := "ro"
	if hot, err := s.diedBeforeWAL(); err != nil {
		return err
	} else if hot {
		mode = "rw"
	}
	db, err := connect(s.path, mode, 1)
	if err != nil {
		return err
	}
	return errors.Join(s.checkVersion(ctx, db), db.Close())
}

// diedBeforeWAL reports whether a rollback journal lies beside a file of ours,
// or one that was to become ours: whoever set the journal mode of a new file, or
// of a backup, died over it. Only a connection that may write can read the file
// then, since it undoes what was half done. Another program's file is not
// touched.
func (s *Store) diedBeforeWAL() (bool, error) {
	journal := make([]byte, 20)
	n, err := readBeginning(s.path+"-journal", journal)
	if err != nil || n < len(journal) || !bytes.HasPrefix(journal, []byte(journalMagic)) {
		// Without a whole head it undoes nothing.
		return false, err
	}
	header := make([]byte, 72)
	if n, err = readBeginning(s.path, header); err != nil {
		return false, err
	}
	// See "The Rollback Journal" and "The Database Header" in SQLite's
	// description of its file format.
	wasEmpty := binary.BigEndian.Uint32(journal[16:]) == 0
	isOurs := n == len(header) && binary.BigEndian.Uint32(header[68:]) == applicationID
	return wasEmpty || isOurs, nil
}

const journalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// readBeginning fills buffer from a file and returns how much there was; 0 if
// there is no such file.
func readBeginning(path string, buffer []byte) (int, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, writable(err)
	}
	defer file.Close()
	n, err := io.ReadFull(file, buffer)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// checkVersion refuses what this version cannot work with.
func (s *Store) checkVersion(ctx context.Context, db *sql.DB) error {
	application, version, err := stamp(ctx, db)
	if err != nil {
		return err
	}
	tables := 0
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return explain(err)
	}
	latest := len(versions())
	switch {
	case application != applicationID && (application != 0 || version != 0 || tables > 0):
		return fmt.Errorf("it belongs to another program: %w", memory.ErrForeign)
	case version > latest:
		return fmt.Errorf("it has schema %d, this version knows %d: %w", version, latest, memory.ErrNewer)
	case s.readOnly && version < latest:
		return fmt.Errorf("it has schema %d, this version needs %d: %w: %w", version, latest, memory.ErrUnsettled, memory.ErrReadOnly)
	}
	return nil
}

func stamp(ctx context.Context, db *sql.DB) (application, version int, err error) {
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return 0, 0, explain(err)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, 0, explain(err)
	}
	return application, version, nil
}

// versions returns the names of the migrations in order: the first brings the
// schema to 1.
func versions() []string {
	entries, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// migrate applies what is missing, each step in a transaction of its own: a
// crash between two steps leaves a whole older schema.
func (s *Store) migrate(ctx context.Context, now time.Time) error {
	_, version, err := stamp(ctx, s.write)
	if err != nil {
		return err
	}
	for i, name := range versions() {
		if i < version {
			continue
		}
		script, err := migrations.ReadFile("migrations/" + name)
		if err != nil {
			return err
		}
		if err := s.step(ctx, i+1, string(script), now); err != nil {
			return fmt.Errorf("migrate to schema %d (%s): %w", i+1, name, err)
		}
	}
	return nil
}

// step applies one migration. A table that others refer to can only be made
// anew while references are not enforced, which is not for a transaction to
// change; doctor looks whether they hold.
func (s *Store) step(ctx context.Context, version int, script string, now time.Time) error {
	writer, err := s.write.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	defer writer.Close()
	if _, err := writer.ExecContext(ctx, "PRAGMA foreign_keys = OFF"); err != nil {
		return explain(err)
	}
	defer writer.ExecContext(context.WithoutCancel(ctx), "PRAGMA foreign_keys = ON")
	tx, err := writer.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, script); err != nil {
		return explain(err)
	}
	if version == 1 {
		if err := createDefaultUser(ctx, tx, now); err != nil {
			return err
		}
	}
	if version == 5 {
		if err := canonicalTopics(ctx, tx); err != nil {
			return explain(err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", version, applicationID)); err != nil {
		return explain(err)
	}
	return explain(tx.Commit())
}

// adopt gives the rows of nobody, which have the nil UUID, to the default user:
// once, for good. When it fails nothing has changed, and the next open tries
// again.
func (s *Store) adopt(ctx context.Context) error {
	return transactAlone(ctx, s.write, func(tx *sql.Tx) error {
		done := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM kv WHERE scope = ? AND key = ?)", kvShared, keyAdopted).Scan(&done); err != nil || done {
			return err
		}
		for _, table := range []string{"sessions", "pending_runs", "session_extractions", "topics"} {
			if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET user_id = (SELECT value FROM kv WHERE scope = ? AND key = ?) WHERE user_id = ?",
				kvShared, keyDefaultUser, uuid.Nil[:]); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO kv VALUES (?, ?, x'01')", kvShared, keyAdopted)
		return err
	})
}

func transactAlone(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return explain(err)
	}
	return explain(tx.Commit())
}

func createDefaultUser(ctx context.Context, tx *sql.Tx, now time.Time) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO kv VALUES (?, ?, ?)", kvShared, keyDefaultUser, id[:]); err != nil {
		return explain(err)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO users VALUES (?, ?, 1, ?)", id[:], memory.DefaultUserName, micros(now))
	return explain(err)
}

// Close implements memory.Store.
func (s *Store) Close() error {
	s.indexer.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := s.shut(); err != nil {
		return fmt.Errorf("close database %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) shut() error {
	s.appending.close()
	s.showing.close()
	var errs []error
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil && s.write != s.read {
		errs = append(errs, s.write.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	return errors.Join(errs...)
}

// explain gives errors of SQLite the meaning that callers branch on.
func explain(err error) error {
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	if failure.Code() == sqlite3.SQLITE_READONLY_ROLLBACK {
		return fmt.Errorf("%w: a program died while it wrote to the file: %w, with the program that it belongs to: %w", memory.ErrReadOnly, memory.ErrUnsettled, err)
	}
	switch failure.Code() & 0xff {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%w: %w: make the directory and the file writable, or choose another place", memory.ErrReadOnly, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("another program holds the database, close it there: %w", err)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", memory.ErrForeign, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk is full, nothing was written: %w", err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("the file cannot be read or written, look whether the disk is full or failing: %w", err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
