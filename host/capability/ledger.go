package capability

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/datafile"
)

// Run is one query, as the ledger keeps it. Text is in the host's own words.
type Run struct {
	// ID orders the runs of a ledger: a later one has a larger. The ledger gives it.
	ID      int64         `json:"id,omitzero"`
	At      time.Time     `json:"at"`
	Hand    string        `json:"hand"`
	Digest  string        `json:"digest"`
	Subject string        `json:"subject"`
	Outcome abi.Kind      `json:"outcome"` // "" if the query was answered
	Text    string        `json:"text,omitempty"`
	Took    time.Duration `json:"took_ns"`
	// Fuel is in the units of abi.Limits; 0 if it was not metered.
	Fuel        int64 `json:"fuel"`
	MemoryBytes int64 `json:"memory_bytes"`
	// ReplyBytes is what the hand wrote, ReplyTokens what was kept of it.
	ReplyBytes  int `json:"reply_bytes"`
	ReplyTokens int `json:"reply_tokens"`
	Calls       int `json:"calls"`
	// HTTPTargets are the servers that requests were sent to, as
	// "scheme://host:port". RecordRun brings URLs into this form, drops
	// repetitions and keeps the first maxHTTPTargets.
	HTTPTargets []string `json:"http_targets,omitempty"`
}

// maxHTTPTargets bounds Run.HTTPTargets.
const maxHTTPTargets = 20

// Health is how a hand fared lately.
type Health struct {
	// LastRun, LastOutcome and LastText are the At, Outcome and Text of the
	// last run.
	LastRun     time.Time `json:"last_run"`
	LastOutcome abi.Kind  `json:"last_outcome"`
	LastText    string    `json:"last_text,omitempty"`
	// Failed counts those of the last Runs runs, at most HealthRuns, that
	// were not answered.
	Runs   int `json:"runs"`
	Failed int `json:"failed"`
}

// HealthRuns is how many of its last runs the health of a hand is told from.
const HealthRuns = 100

// Ledger is hands.db: the record of what hands did and what they were refused,
// and the values that they keep. It is apart from the store of sessions, so that
// nothing a hand does touches that. Runs and permissions are written in batches,
// at most a second late; refusals and values are durable at once. Reads have
// connections of their own and never wait for a write. It is safe for concurrent
// use.
type Ledger struct {
	db   *sql.DB // one connection, for writing
	read *sql.DB
	path string
	key  []byte
	macs sync.Pool // of hash.Hash, keyed with key
	now  func() time.Time

	insertRun, insertDecision *sql.Stmt
	// values holds the statements of KV.
	values valueStatements

	queue   chan record
	done    chan struct{} // closed by Close
	written chan struct{} // closed by the writer, after done

	// sending is held for reading while something is put into queue, and
	// guards closed: what got into the queue is written.
	sending sync.RWMutex
	closed  bool

	mu sync.Mutex
	// failed is the first error of the background writer; guarded by mu.
	failed error

	// inserted counts the rows of each kind since it was last trimmed. It is
	// owned by the writer.
	inserted map[rowKind]int
}

// record is what the writer is given: one of run, decision and change.
type record struct {
	run      *Run
	decision *Decision
	change   change
	// bytes is about what the change will write.
	bytes int
	// done, if not nil, has room for one error, the outcome.
	done chan error
}

// change writes in the writer's transaction, which others share. With refused
// it has changed nothing; with err the transaction is of no more use.
type change func(ctx context.Context, tx *sql.Tx) (refused, err error)

// rowKind is what rows compete with each other for being kept. Those of one hand
// never drive out another's, nor permissions, which are cheap to collect, the
// refusals.
type rowKind struct {
	hand    string
	run     bool
	allowed bool
}

// ledgerApplication marks the file as ours ("GBXH").
const (
	ledgerApplication = 0x47425848
	flushEvery        = time.Second
	ledgerReaders     = 4
	// keptRows is how many rows of a kind are kept at least; a tenth more are
	// there at most.
	keptRows = 20_000
	// batchBytes is how much is changed in one transaction, about: a refusal
	// that waits behind it does not wait for long.
	batchBytes = 4 << 20
)

// errLedgerClosed is returned by everything that writes after Close.
var errLedgerClosed = errors.New("the ledger is closed")

// ledgerMigrations bring the schema from version 0 to 1, from 1 to 2 and so on.
// They only ever grow.
//
// Values lie in pages of their own beside the index of their keys, so that
// listing reads no values; owners.bytes is the sum of the lengths of an owner's
// keys and values, kept in the transaction of each change.
var ledgerMigrations = []string{`
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
`, `
ALTER TABLE runs ADD COLUMN fuel INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN reply_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN http_targets TEXT NOT NULL DEFAULT '[]';
DROP INDEX audit_hand;
CREATE INDEX audit_kind ON audit (hand, allowed, id);
CREATE TABLE owners (
	id INTEGER PRIMARY KEY, hand TEXT NOT NULL, subject TEXT NOT NULL, bytes INTEGER NOT NULL,
	UNIQUE (hand, subject)
) STRICT;
CREATE TABLE kv (
	id INTEGER PRIMARY KEY, owner INTEGER NOT NULL REFERENCES owners (id), key BLOB NOT NULL, value BLOB NOT NULL,
	UNIQUE (owner, key)
) STRICT;
`}

// OpenLedger opens or creates the ledger at path and brings its schema up to
// date. Now is the clock of its rows; nil means time.Now. A database of another
// program or of a newer version is refused and left as it is.
func OpenLedger(ctx context.Context, path string, now func() time.Time) (*Ledger, error) {
	if now == nil {
		now = time.Now
	}
	l := &Ledger{
		path: path, now: now, inserted: map[rowKind]int{},
		queue: make(chan record, 1024), done: make(chan struct{}), written: make(chan struct{}),
	}
	if err := l.open(ctx); err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, errors.Join(err, l.shut()))
	}
	go l.write()
	return l, nil
}

func (l *Ledger) open(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	if err := datafile.Make(l.path); err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := l.look(ctx); err != nil {
		return err
	}
	if l.db, err = l.connect(1, "rw", "immediate", "journal_mode(WAL)", "synchronous(FULL)", "secure_delete(ON)"); err != nil {
		return err
	}
	for version := range ledgerMigrations {
		if err := l.migrate(ctx, version); err != nil {
			return fmt.Errorf("migrate to schema %d: %w", version+1, err)
		}
	}
	if err := l.db.QueryRowContext(ctx, "SELECT value FROM settings WHERE key = 'subject_key'").Scan(&l.key); err != nil {
		return err
	}
	if l.read, err = l.connect(ledgerReaders, "rw", "deferred", "query_only(ON)"); err != nil {
		return err
	}
	if l.insertRun, err = l.db.PrepareContext(ctx, `INSERT INTO runs
		(at, hand, digest, subject, outcome, text, took, fuel, memory, reply_bytes, reply_tokens, calls, http_targets)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`); err != nil {
		return err
	}
	if l.insertDecision, err = l.db.PrepareContext(ctx, "INSERT INTO audit (at, hand, subject, action, target, allowed, reason) VALUES (?, ?, ?, ?, ?, ?, ?)"); err != nil {
		return err
	}
	return l.values.prepare(ctx, l.db, l.read)
}

func (l *Ledger) connect(connections int, mode, lock string, pragmas ...string) (*sql.DB, error) {
	query := url.Values{"mode": {mode}, "_txlock": {lock}, "_pragma": append([]string{"busy_timeout(10000)"}, pragmas...)}
	absolute, err := filepath.Abs(l.path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.ToSlash(absolute)}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// look refuses what is not ours before a connection is made that changes the
// file: setting the journal mode does.
func (l *Ledger) look(ctx context.Context) error {
	db, err := l.connect(1, "ro", "deferred")
	if err != nil {
		return err
	}
	defer db.Close()
	var application, version, tables int
	for query, into := range map[string]*int{
		"PRAGMA application_id": &application, "PRAGMA user_version": &version, "SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := db.QueryRowContext(ctx, query).Scan(into); err != nil {
			return err
		}
	}
	switch {
	case application != ledgerApplication && (application != 0 || version != 0 || tables > 0):
		return errors.New("it is a database of another program: choose another data directory")
	case version > len(ledgerMigrations):
		return fmt.Errorf("it has schema %d and this version knows %d: use the newer glovebox that wrote it", version, len(ledgerMigrations))
	}
	return nil
}

// migrate brings the schema from version to the next, if it is there. A crash
// leaves the one or the other.
func (l *Ledger) migrate(ctx context.Context, version int) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var found int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found); err != nil || found != version {
		return err
	}
	script := ledgerMigrations[version] + fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", ledgerApplication, version+1)
	if _, err := tx.ExecContext(ctx, script); err != nil {
		return err
	}
	if version == 0 {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails, says crypto/rand
		if _, err := tx.ExecContext(ctx, "INSERT INTO settings VALUES ('subject_key', ?)", key); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Subject returns the opaque name of a user towards one hand: a keyed hash, so
// that hands cannot compare notes.
func (l *Ledger) Subject(hand, user string) string {
	mac, ok := l.macs.Get().(hash.Hash)
	if !ok {
		mac = hmac.New(sha256.New, l.key)
	}
	defer l.macs.Put(mac)
	mac.Reset()
	var text [128]byte
	mac.Write(append(append(append(text[:0], hand...), 0), user...))
	return hex.EncodeToString(mac.Sum(text[:0])[:16])
}

// LockKey is the key that seals what was agreed for hands. It belongs to this ledger
// alone, and nothing else that is made of the ledger's secret tells it.
func (l *Ledger) LockKey() ([]byte, error) {
	return hkdf.Key(sha256.New, l.key, nil, "glovebox.lock", sha256.Size)
}

// RecordRun keeps one query. It does not wait for the disk. The time of the
// row is the ledger's.
func (l *Ledger) RecordRun(ctx context.Context, run Run) error {
	run.At = l.now()
	run.HTTPTargets = origins(run.HTTPTargets)
	return l.enqueue(ctx, record{run: &run})
}

// origins returns the distinct servers of URLs. What is no URL of a server is
// left out.
func origins(urls []string) []string {
	var kept []string
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme == "" || u.Hostname() == "" {
			continue
		}
		port := u.Port()
		switch {
		case port != "":
		case u.Scheme == "https":
			port = "443"
		case u.Scheme == "http":
			port = "80"
		}
		origin := u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
		if len(kept) < maxHTTPTargets && len(origin) <= maxTargetBytes && !slices.Contains(kept, origin) {
			kept = append(kept, origin)
		}
	}
	return kept
}

func (l *Ledger) recordDecision(ctx context.Context, d Decision) error {
	d.At = l.now()
	r := record{decision: &d}
	if d.Allowed {
		return l.enqueue(ctx, r)
	}
	return l.wait(ctx, r)
}

// apply has the writer make a change of about the given size, and returns when
// it is durable or refused. If ctx is done before, the change is made or not.
func (l *Ledger) apply(ctx context.Context, bytes int, c change) error {
	return l.wait(ctx, record{bytes: bytes, change: func(inner context.Context, tx *sql.Tx) (error, error) {
		if err := ctx.Err(); err != nil {
			return err, nil
		}
		return c(inner, tx)
	}})
}

func (l *Ledger) wait(ctx context.Context, r record) error {
	r.done = make(chan error, 1)
	if err := l.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Ledger) enqueue(ctx context.Context, r record) error {
	if err := l.err(); err != nil {
		return err
	}
	l.sending.RLock()
	defer l.sending.RUnlock()
	if l.closed {
		return errLedgerClosed
	}
	select {
	case l.queue <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// write is the only writer after opening, but for the checkpoint of
// ForgetSubject. It returns when done is closed and what was queued is written.
func (l *Ledger) write() {
	defer close(l.written)
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	var batch []record
	bytes, awaited := 0, false
	add := func(r record) {
		batch = append(batch, r)
		bytes += r.bytes
		awaited = awaited || r.done != nil
	}
	flush := func() {
		l.flush(batch)
		clear(batch)
		batch, bytes, awaited = batch[:0], 0, false
	}
	for {
		select {
		case r := <-l.queue:
			add(r)
		case <-ticker.C:
			flush()
			continue
		case <-l.done:
			// Nothing is sent any more.
			close(l.queue)
			for r := range l.queue {
				add(r)
			}
			flush()
			return
		}
		// Those who wait share one transaction with all that is there.
		for more := awaited; more && bytes < batchBytes && len(batch) < cap(l.queue); {
			select {
			case r := <-l.queue:
				add(r)
			default:
				more = false
			}
		}
		if awaited || len(batch) >= cap(l.queue) {
			flush()
		}
	}
}

// flush commits a batch and tells those who wait. A change that cannot be made
// fails alone: only what cannot be recorded stops the ledger.
func (l *Ledger) flush(batch []record) {
	refused, err := l.commit(batch)
	if err != nil {
		changes := slices.ContainsFunc(batch, func(r record) bool { return r.change != nil })
		var rest []record
		for _, r := range batch {
			if r.change == nil {
				rest = append(rest, r)
			}
		}
		if changes {
			_, err = l.commit(rest)
		}
		if err != nil {
			err = fmt.Errorf("write ledger %s: %w", l.path, err)
			l.mu.Lock()
			l.failed = err
			l.mu.Unlock()
		}
		for _, r := range batch {
			if r.change != nil && err == nil {
				alone, err := l.commit([]record{r})
				r.done <- errors.Join(append(alone, err)...)
			} else if r.done != nil {
				r.done <- err
			}
		}
		return
	}
	for i, r := range batch {
		if r.done != nil {
			r.done <- refused[i]
		}
	}
}

// commit writes a batch in one transaction. It returns what was refused of it,
// by place.
func (l *Ledger) commit(batch []record) (refused []error, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	ctx := context.Background()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	insertRun, insertDecision := tx.StmtContext(ctx, l.insertRun), tx.StmtContext(ctx, l.insertDecision)
	refused = make([]error, len(batch))
	added := map[rowKind]int{}
	for i, r := range batch {
		switch {
		case r.run != nil:
			added[rowKind{hand: r.run.Hand, run: true}]++
			err = writeRun(ctx, insertRun, r.run)
		case r.decision != nil:
			d := r.decision
			added[rowKind{hand: d.Hand, allowed: d.Allowed}]++
			_, err = insertDecision.ExecContext(ctx,
				d.At.UnixMicro(), d.Hand, d.Subject, string(d.Action), d.Target, d.Allowed, d.Reason)
		default:
			refused[i], err = r.change(ctx, tx)
		}
		if err != nil {
			return nil, err
		}
	}
	for kind, n := range added {
		if err := l.trim(ctx, tx, kind, n); err != nil {
			return nil, err
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	for kind, n := range added {
		if l.inserted[kind] += n; l.inserted[kind] >= keptRows/10 {
			l.inserted[kind] = 0
		}
	}
	return refused, nil
}

func writeRun(ctx context.Context, insert *sql.Stmt, run *Run) (err error) {
	targets := []byte("[]")
	if run.HTTPTargets != nil {
		if targets, err = json.Marshal(run.HTTPTargets); err != nil {
			return err
		}
	}
	_, err = insert.ExecContext(ctx,
		run.At.UnixMicro(), run.Hand, run.Digest, run.Subject, string(run.Outcome), run.Text, int64(run.Took), run.Fuel, run.MemoryBytes,
		run.ReplyBytes, run.ReplyTokens, run.Calls, string(targets))
	return err
}

// trim deletes the oldest rows of a kind to which n are being added, now and
// then: the first time, because earlier processes may have left some.
func (l *Ledger) trim(ctx context.Context, tx *sql.Tx, kind rowKind, n int) error {
	if before, seen := l.inserted[kind]; seen && before+n < keptRows/10 {
		return nil
	}
	var err error
	if kind.run {
		_, err = tx.ExecContext(ctx, `DELETE FROM runs WHERE hand = ?1 AND id <=
			(SELECT id FROM runs WHERE hand = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`, kind.hand, keptRows)
	} else {
		_, err = tx.ExecContext(ctx, `DELETE FROM audit WHERE hand = ?1 AND allowed = ?2 AND id <=
			(SELECT id FROM audit WHERE hand = ?1 AND allowed = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)`, kind.hand, kind.allowed, keptRows)
	}
	return err
}

// Flush returns when what was recorded before is on disk, where Runs, Decisions and
// Health look.
func (l *Ledger) Flush(ctx context.Context) error {
	return l.apply(ctx, 0, func(context.Context, *sql.Tx) (refused, err error) { return nil, nil })
}

// Runs returns the last runs of a hand, newest first; "" means all hands. It
// sees what is on disk.
func (l *Ledger) Runs(ctx context.Context, hand string, limit int) ([]Run, error) {
	return l.RunsBefore(ctx, hand, 0, limit)
}

// RunsBefore is Runs for those that are older than the run with the ID before; 0
// means all. It takes time by limit, not by how many there are.
func (l *Ledger) RunsBefore(ctx context.Context, hand string, before int64, limit int) ([]Run, error) {
	where, arguments := older(hand, before)
	rows, err := l.read.QueryContext(ctx, `SELECT id, at, hand, digest, subject, outcome, text, took, fuel, memory, reply_bytes, reply_tokens, calls, http_targets
		FROM runs WHERE `+where+` ORDER BY id DESC LIMIT ? + 0`, append(arguments, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	defer rows.Close()
	var runs []Run
	for rows.Next() {
		var r Run
		var at int64
		var targets []byte
		if err := rows.Scan(&r.ID, &at, &r.Hand, &r.Digest, &r.Subject, &r.Outcome, &r.Text, &r.Took, &r.Fuel, &r.MemoryBytes,
			&r.ReplyBytes, &r.ReplyTokens, &r.Calls, &targets); err != nil {
			return nil, fmt.Errorf("read runs: %w", err)
		}
		if err := json.Unmarshal(targets, &r.HTTPTargets); err != nil {
			return nil, fmt.Errorf("read runs: %w", err)
		}
		r.At = time.UnixMicro(at).UTC()
		runs = append(runs, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return runs, nil
}

// older is a condition on rows, which an index serves: those of a hand, or of all
// for "", with an id below before, or any for 0.
func older(hand string, before int64) (where string, arguments []any) {
	if before <= 0 {
		before = math.MaxInt64
	}
	if hand == "" {
		return "id < ?", []any{before}
	}
	return "hand = ? AND id < ?", []any{hand, before}
}

// Health returns how each hand that ever ran fared lately, by its name. It sees
// what is on disk, and takes time by the number of hands, not of runs.
func (l *Ledger) Health(ctx context.Context) (map[string]Health, error) {
	// Beside max(), SQLite takes the other columns from the row that has it.
	rows, err := l.read.QueryContext(ctx, `
		WITH RECURSIVE hands (hand) AS (
			SELECT min(hand) FROM runs
			UNION ALL
			SELECT (SELECT min(hand) FROM runs WHERE hand > hands.hand) FROM hands WHERE hands.hand IS NOT NULL
		)
		SELECT hands.hand, max(runs.id), runs.at, runs.outcome, runs.text, count(*), sum(runs.outcome <> '')
		FROM hands JOIN runs ON runs.hand = hands.hand
			AND runs.id >= ifnull((SELECT id FROM runs WHERE hand = hands.hand ORDER BY id DESC LIMIT 1 OFFSET ?), 0)
		WHERE hands.hand IS NOT NULL GROUP BY hands.hand`, HealthRuns-1)
	if err != nil {
		return nil, fmt.Errorf("read health: %w", err)
	}
	defer rows.Close()
	all := map[string]Health{}
	for rows.Next() {
		var hand string
		var h Health
		var id, at int64
		if err := rows.Scan(&hand, &id, &at, &h.LastOutcome, &h.LastText, &h.Runs, &h.Failed); err != nil {
			return nil, fmt.Errorf("read health: %w", err)
		}
		h.LastRun = time.UnixMicro(at).UTC()
		all[hand] = h
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read health: %w", err)
	}
	return all, nil
}

// Decisions returns the last rows of the audit, newest first, like Runs.
func (l *Ledger) Decisions(ctx context.Context, hand string, limit int) ([]Decision, error) {
	where, arguments := older(hand, 0)
	return l.decisions(ctx, where, append(arguments, limit)...)
}

// RefusalsBefore returns the last decisions against one hand, newest first, of those
// that are older than the one with the ID before; 0 means all.
func (l *Ledger) RefusalsBefore(ctx context.Context, hand string, before int64, limit int) ([]Decision, error) {
	if hand == "" {
		return nil, nil
	}
	where, arguments := older(hand, before)
	return l.decisions(ctx, "allowed = 0 AND "+where, append(arguments, limit)...)
}

func (l *Ledger) decisions(ctx context.Context, where string, arguments ...any) ([]Decision, error) {
	rows, err := l.read.QueryContext(ctx, "SELECT id, at, hand, subject, action, target, allowed, reason FROM audit WHERE "+where+" ORDER BY id DESC LIMIT ? + 0", arguments...)
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	defer rows.Close()
	var decisions []Decision
	for rows.Next() {
		var d Decision
		var at int64
		if err := rows.Scan(&d.ID, &at, &d.Hand, &d.Subject, &d.Action, &d.Target, &d.Allowed, &d.Reason); err != nil {
			return nil, fmt.Errorf("read audit: %w", err)
		}
		d.At = time.UnixMicro(at).UTC()
		decisions = append(decisions, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	return decisions, nil
}

// Forgotten counts what ForgetSubject deleted.
type Forgotten struct {
	Values    int `json:"values"`
	Runs      int `json:"runs"`
	Decisions int `json:"decisions"`
}

// ForgetSubject deletes all that the ledger has of one hand and one subject: the
// values, the runs, and the decisions, whose targets may name what the values
// were about. When it returns nil, no byte of them is in the file or its log.
// An error may come after the deletion, when another process reads the file and
// so keeps its log; the counts are then right, and asking again finishes.
func (l *Ledger) ForgetSubject(ctx context.Context, hand, subject string) (Forgotten, error) {
	var f Forgotten
	err := l.apply(ctx, 0, func(ctx context.Context, tx *sql.Tx) (refused, err error) {
		f = Forgotten{}
		return nil, f.forget(ctx, tx, hand, subject)
	})
	if err != nil {
		return Forgotten{}, fmt.Errorf("forget a subject of hand %q: %w", hand, err)
	}
	done, err := l.scrub(ctx)
	if err != nil {
		return f, fmt.Errorf("forget a subject of hand %q: %w", hand, err)
	}
	if !done {
		return f, fmt.Errorf("forget a subject of hand %q: another process reads the ledger, whose log still has what was deleted: ask again when it is done", hand)
	}
	return f, nil
}

// Close writes what is queued and closes the file.
func (l *Ledger) Close() error {
	l.sending.Lock()
	if l.closed {
		l.sending.Unlock()
		return nil
	}
	l.closed = true
	l.sending.Unlock()
	close(l.done)
	<-l.written
	return errors.Join(l.err(), l.shut())
}

func (l *Ledger) shut() error {
	var errs []error
	for _, db := range []*sql.DB{l.read, l.db} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}
