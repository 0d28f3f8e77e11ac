package capability

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gloveboxhq/glovebox/abi"
)

// Run is one query, as the ledger keeps it. Text is in the host's own words.
type Run struct {
	At          time.Time     `json:"at"`
	Hand        string        `json:"hand"`
	Digest      string        `json:"digest"`
	Subject     string        `json:"subject"`
	Outcome     abi.Kind      `json:"outcome"` // "" if the query was answered
	Text        string        `json:"text,omitempty"`
	Took        time.Duration `json:"took_ns"`
	MemoryBytes int64         `json:"memory_bytes"`
	ReplyTokens int           `json:"reply_tokens"`
	Calls       int           `json:"calls"`
}

// Ledger is hands.db: the record of what hands did and what they were refused.
// It is apart from the store of sessions, so that nothing a hand does touches
// that. Runs and permissions are written in batches, at most a second late;
// refusals are durable at once. It is safe for concurrent use.
type Ledger struct {
	db   *sql.DB
	path string
	key  []byte
	now  func() time.Time

	queue   chan record
	done    chan struct{} // closed by Close
	written chan struct{} // closed by the writer, after done
	closed  sync.Once

	mu sync.Mutex
	// failed is the first error of the background writer; guarded by mu.
	failed error
}

type record struct {
	run      *Run
	decision *Decision
	flushed  chan struct{}
}

// ledgerVersion is the schema's; ledgerApplication marks the file as ours
// ("GBXH").
const (
	ledgerVersion     = 1
	ledgerApplication = 0x47425848
	keptRows          = 100_000
	flushEvery        = time.Second
)

const ledgerSchema = `
CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE runs (
	id INTEGER PRIMARY KEY, at INTEGER NOT NULL, hand TEXT NOT NULL, digest TEXT NOT NULL, subject TEXT NOT NULL,
	outcome TEXT NOT NULL, text TEXT NOT NULL, took INTEGER NOT NULL, memory INTEGER NOT NULL,
	reply_tokens INTEGER NOT NULL, calls INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_hand ON runs (hand, id);
CREATE TABLE audit (
	id INTEGER PRIMARY KEY, at INTEGER NOT NULL, hand TEXT NOT NULL, subject TEXT NOT NULL, action TEXT NOT NULL,
	target TEXT NOT NULL, allowed INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT;
CREATE INDEX audit_hand ON audit (hand, id);
`

// OpenLedger opens or creates the ledger at path. Now is the clock of its rows;
// nil means time.Now. A database of another program or of a newer version is
// refused and left as it is.
func OpenLedger(ctx context.Context, path string, now func() time.Time) (*Ledger, error) {
	if now == nil {
		now = time.Now
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	query := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "secure_delete(ON)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	l := &Ledger{db: db, path: path, now: now, queue: make(chan record, 1024), done: make(chan struct{}), written: make(chan struct{})}
	if err := l.prepare(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	go l.write()
	return l, nil
}

func (l *Ledger) prepare(ctx context.Context) error {
	var application, version int
	if err := l.db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return err
	}
	if err := l.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	switch {
	case version > ledgerVersion && application == ledgerApplication:
		return fmt.Errorf("it has schema %d and this version knows %d: use the newer glovebox that wrote it", version, ledgerVersion)
	case application == ledgerApplication:
	default:
		var tables int
		if err := l.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return err
		}
		if tables > 0 || application != 0 {
			return errors.New("it is a database of another program: choose another data directory")
		}
		if err := l.create(ctx); err != nil {
			return err
		}
	}
	return l.db.QueryRowContext(ctx, "SELECT value FROM settings WHERE key = 'subject_key'").Scan(&l.key)
}

func (l *Ledger) create(ctx context.Context) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, says crypto/rand
	if _, err := tx.ExecContext(ctx, ledgerSchema+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", ledgerApplication, ledgerVersion)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO settings VALUES ('subject_key', ?)", key); err != nil {
		return err
	}
	return tx.Commit()
}

// Subject returns the opaque name of a user towards one hand: a keyed hash, so
// that hands cannot compare notes.
func (l *Ledger) Subject(hand, user string) string {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(hand + "\x00" + user))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// RecordRun keeps one query. It does not wait for the disk. The time of the
// row is the ledger's.
func (l *Ledger) RecordRun(ctx context.Context, run Run) error {
	run.At = l.now()
	return l.enqueue(ctx, record{run: &run})
}

func (l *Ledger) recordDecision(ctx context.Context, d Decision) error {
	d.At = l.now()
	r := record{decision: &d}
	if !d.Allowed {
		r.flushed = make(chan struct{})
	}
	if err := l.enqueue(ctx, r); err != nil {
		return err
	}
	if r.flushed == nil {
		return nil
	}
	select {
	case <-r.flushed:
		return l.err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Ledger) enqueue(ctx context.Context, r record) error {
	if err := l.err(); err != nil {
		return err
	}
	select {
	case <-l.done:
		return errors.New("the ledger is closed")
	default:
	}
	select {
	case l.queue <- r:
		return nil
	case <-l.done:
		return errors.New("the ledger is closed")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// write is the only writer after opening. It returns when done is closed and
// what was queued is written.
func (l *Ledger) write() {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	var batch []record
	flush := func() {
		if err := l.commit(batch); err != nil {
			l.mu.Lock()
			l.failed = fmt.Errorf("write ledger %s: %w", l.path, err)
			l.mu.Unlock()
		}
		for _, r := range batch {
			if r.flushed != nil {
				close(r.flushed)
			}
		}
		batch = batch[:0]
	}
	for {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
			if r.flushed != nil || len(batch) >= cap(l.queue) {
				flush()
			}
		case <-ticker.C:
			flush()
		case <-l.done:
			for {
				select {
				case r := <-l.queue:
					batch = append(batch, r)
					continue
				default:
				}
				flush()
				close(l.written)
				return
			}
		}
	}
}

func (l *Ledger) commit(batch []record) error {
	if len(batch) == 0 {
		return nil
	}
	ctx := context.Background()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, r := range batch {
		if run := r.run; run != nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO runs (at, hand, digest, subject, outcome, text, took, memory, reply_tokens, calls) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				run.At.UnixMicro(), run.Hand, run.Digest, run.Subject, string(run.Outcome), run.Text, int64(run.Took), run.MemoryBytes, run.ReplyTokens, run.Calls)
		} else {
			d := r.decision
			_, err = tx.ExecContext(ctx, "INSERT INTO audit (at, hand, subject, action, target, allowed, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
				d.At.UnixMicro(), d.Hand, d.Subject, string(d.Action), d.Target, d.Allowed, d.Reason)
		}
		if err != nil {
			return err
		}
	}
	for _, table := range []string{"runs", "audit"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE id <= (SELECT max(id) FROM "+table+") - ?", keptRows); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Runs returns the last runs of a hand, newest first; "" means all hands. It
// sees what is on disk.
func (l *Ledger) Runs(ctx context.Context, hand string, limit int) ([]Run, error) {
	rows, err := l.db.QueryContext(ctx, "SELECT at, hand, digest, subject, outcome, text, took, memory, reply_tokens, calls FROM runs WHERE ? IN ('', hand) ORDER BY id DESC LIMIT ?", hand, limit)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	defer rows.Close()
	var runs []Run
	for rows.Next() {
		var r Run
		var at int64
		if err := rows.Scan(&at, &r.Hand, &r.Digest, &r.Subject, &r.Outcome, &r.Text, &r.Took, &r.MemoryBytes, &r.ReplyTokens, &r.Calls); err != nil {
			return nil, fmt.Errorf("read runs: %w", err)
		}
		r.At = time.UnixMicro(at).UTC()
		runs = append(runs, r)
	}
	return runs, rows.Err()
}

// Decisions returns the last rows of the audit, newest first, like Runs.
func (l *Ledger) Decisions(ctx context.Context, hand string, limit int) ([]Decision, error) {
	rows, err := l.db.QueryContext(ctx, "SELECT at, hand, subject, action, target, allowed, reason FROM audit WHERE ? IN ('', hand) ORDER BY id DESC LIMIT ?", hand, limit)
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	defer rows.Close()
	var decisions []Decision
	for rows.Next() {
		var d Decision
		var at int64
		if err := rows.Scan(&at, &d.Hand, &d.Subject, &d.Action, &d.Target, &d.Allowed, &d.Reason); err != nil {
			return nil, fmt.Errorf("read audit: %w", err)
		}
		d.At = time.UnixMicro(at).UTC()
		decisions = append(decisions, d)
	}
	return decisions, rows.Err()
}

// Close writes what is queued and closes the file.
func (l *Ledger) Close() error {
	var err error
	l.closed.Do(func() {
		close(l.done)
		<-l.written
		err = errors.Join(l.err(), l.db.Close())
	})
	return err
}
