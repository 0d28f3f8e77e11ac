package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gloveboxhq/glovebox/memory"
)

// ownSession is the session ?1 if it is the user's, ?2; else NULL, which equals
// nothing.
const ownSession = "(SELECT s.id FROM sessions s WHERE s.id = ?1 AND s.user_id = ?2)"

const selectMessages = "SELECT m.id, m.session_id, m.seq, m.role, m.source, m.content, m.tokens, m.trust, coalesce(m.event_key, ''), m.transcript, m.created_at FROM messages m"

// appendStatements belong to the writer's connection. They and showStatements
// are prepared once, for a turn is little else than appending and showing.
type appendStatements struct {
	position, event, insert, frontier, update, due, run *sql.Stmt
}

func (a *appendStatements) prepare(ctx context.Context, db *sql.DB) error {
	return prepare(ctx, db, map[**sql.Stmt]string{
		&a.position: "SELECT messages, last_active_at, active, user_messages, awaiting, exchanges, shown_items, shown_tokens, placed, due_since IS NOT NULL, EXISTS (SELECT 1 FROM wipes w WHERE w.user_id = ?2) FROM sessions WHERE id = ?1 AND user_id = ?2",
		&a.event:    selectMessages + " WHERE m.session_id = " + ownSession + " AND m.event_key = ?3",
		&a.insert:   "INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, event_key, transcript, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		&a.frontier: "INSERT INTO frontier (session_id, ordinal, message_id) VALUES (?, ?, ?)",
		&a.update:   "UPDATE sessions SET messages = ?3, last_active_at = ?4, active = ?5, user_messages = ?6, awaiting = ?7, exchanges = ?8, shown_items = ?9, shown_tokens = ?10, placed = ?11 WHERE id = ?1 AND user_id = ?2",
		&a.due:      "UPDATE sessions SET due_since = last_active_at WHERE id = ?1 AND user_id = ?2",
		&a.run:      "INSERT INTO pending_runs (session_id, user_id, trigger, exchanges, budget, system, since, begun_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)" + replacesRun,
	})
}

func (a *appendStatements) close() {
	closeAll(a.position, a.event, a.insert, a.frontier, a.update, a.due, a.run)
}

// showStatements belong to the readers.
type showStatements struct {
	session, lastActive, messages, event, places, revision, shown, shownTokens, shownBefore, shownMessages, shownSummaries *sql.Stmt

	segments segmentReader
}

func (s *showStatements) prepare(ctx context.Context, db *sql.DB) error {
	return prepare(ctx, db, map[**sql.Stmt]string{
		&s.session:    "SELECT " + sessionColumns + " FROM sessions WHERE id = ?1 AND user_id = ?2",
		&s.lastActive: "SELECT max(last_active_at) FROM sessions WHERE agent_id = ? AND user_id = ? AND active",
		&s.messages:   selectMessages + " WHERE m.session_id = " + ownSession + " AND m.seq > ?3 ORDER BY m.seq LIMIT ?4 + 0",
		&s.event:      selectMessages + " WHERE m.session_id = " + ownSession + " AND m.event_key = ?3 AND m.seq > ?4",
		// CROSS JOIN begins with the few that have the digest, not with all sessions.
		&s.places: `SELECT m.session_id, m.seq, m.seq = s.placed AS last FROM messages m CROSS JOIN sessions s ON s.id = m.session_id
			WHERE m.transcript = ?1 AND s.user_id = ?2 AND s.agent_id = ?3 ORDER BY last DESC, s.last_active_at DESC, s.id DESC, m.seq DESC LIMIT ?4 + 0`,
		&s.revision: "SELECT revision FROM sessions WHERE id = ?1 AND user_id = ?2",
		&s.shown:    "SELECT revision, shown_items, shown_tokens, messages FROM sessions WHERE id = ?1 AND user_id = ?2",
		&s.shownTokens: "SELECT f.ordinal, coalesce(m.tokens, v.tokens) FROM frontier f LEFT JOIN messages m ON m.id = f.message_id LEFT JOIN summaries v ON v.id = f.summary_id WHERE f.session_id = " +
			ownSession + " ORDER BY f.ordinal DESC",
		&s.shownBefore:    "SELECT coalesce(min(ordinal), ?3) FROM (SELECT f.ordinal FROM frontier f WHERE f.session_id = " + ownSession + " AND f.ordinal < ?3 ORDER BY f.ordinal DESC LIMIT ?4 + 0)",
		&s.shownMessages:  selectMessages + " JOIN frontier f ON f.message_id = m.id WHERE f.session_id = " + ownSession + " AND f.ordinal >= ?3 AND f.ordinal < ?4 ORDER BY f.ordinal",
		&s.shownSummaries: "SELECT f.ordinal, " + summaryColumns + " FROM frontier f JOIN summaries v ON v.id = f.summary_id WHERE f.session_id = " + ownSession + " AND f.ordinal >= ?3 AND f.ordinal < ?4 ORDER BY f.ordinal",
		&s.segments.head:  "SELECT head FROM index_segments WHERE id = ?",
		&s.segments.page:  "SELECT data FROM index_pages WHERE id = ?",
	})
}

func (s *showStatements) close() {
	closeAll(s.session, s.lastActive, s.messages, s.event, s.places, s.revision, s.shown, s.shownTokens, s.shownBefore, s.shownMessages, s.shownSummaries, s.segments.head, s.segments.page)
}

// position is where a session stands: what changes with each message.
type position struct {
	owner        memory.UserID
	messages     int64
	lastActive   int64
	active       bool
	userMessages int
	awaiting     bool
	exchanges    int
	// shownItems and shownTokens are what the frontier has.
	shownItems, shownTokens int
	// placed is the last message with a transcript, 0 if none has one.
	placed int64
	// due says that there was something to learn from the session, roused that
	// there is now: that is stored once.
	due, roused bool
}

// position returns where the user's session stands, for a write.
func (s *Store) position(ctx context.Context, tx *sql.Tx, user memory.UserID, session memory.SessionID) (p position, err error) {
	wiped := false
	p.owner = user
	err = tx.StmtContext(ctx, s.appending.position).QueryRowContext(ctx, blob(session), blob(user)).
		Scan(&p.messages, &p.lastActive, &p.active, &p.userMessages, &p.awaiting, &p.exchanges, &p.shownItems, &p.shownTokens, &p.placed, &p.due, &wiped)
	if err == nil && wiped {
		err = memory.ErrWiped
	}
	return p, found(err)
}

// count moves the position past one message. What was said before the session was
// made is no activity in it.
func (p *position) count(m memory.Message) {
	p.messages++
	if at := micros(m.At); m.Source.IsActivity() && at >= p.lastActive {
		p.lastActive, p.active = at, true
	}
	if !m.Transcript.IsZero() {
		p.placed = p.messages
	}
	switch {
	case m.IsUsers():
		p.userMessages++
		p.awaiting = true
	case p.awaiting && m.IsAnswer():
		p.exchanges++
		p.awaiting = false
	}
}

// Append implements memory.Store.
func (s *Store) Append(ctx context.Context, user memory.UserID, session memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	what := "append to session " + session.String()
	prepared, err := prepareDrafts(what, session, drafts)
	if err != nil {
		return nil, err
	}
	return s.append(ctx, what, user, session, prepared)
}

// prepareDrafts does whatever takes time with long texts, before the one writer
// does what is left.
func prepareDrafts(what string, session memory.SessionID, drafts []memory.Draft) ([]preparedMessage, error) {
	prepared := make([]preparedMessage, len(drafts))
	for i, d := range drafts {
		err := d.Check()
		if err == nil && d.Source == memory.SourceContextInjection {
			err = fmt.Errorf("a context injection is written by Inject: %w", memory.ErrInvalid)
		}
		if err == nil {
			prepared[i], err = prepareMessage(session, d)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: message %d: %w", what, i+1, err)
		}
	}
	return prepared, nil
}

// Inject implements memory.Store.
func (s *Store) Inject(ctx context.Context, user memory.UserID, session memory.SessionID, i memory.Injection) (memory.Message, error) {
	d := i.Draft()
	err := d.Check()
	if err == nil && len(d.Blocks) < 2 {
		err = fmt.Errorf("no block has text: %w", memory.ErrInvalid)
	}
	if err != nil {
		return memory.Message{}, fmt.Errorf("inject context refresh: %w", err)
	}
	m, err := prepareMessage(session, d)
	if err != nil {
		return memory.Message{}, fmt.Errorf("inject context refresh: %w", err)
	}
	messages, err := s.append(ctx, "inject context refresh into session "+session.String(), user, session, []preparedMessage{m})
	if err != nil {
		return memory.Message{}, err
	}
	return messages[0], nil
}

// append returns when every message is on disk; when it fails, or the process dies
// before, none is. Those who wait for the writer at the same time are stored in one
// transaction, by whoever of them comes first: to wait for the disk takes longer than
// all the rest of it.
func (s *Store) append(ctx context.Context, what string, user memory.UserID, session memory.SessionID, prepared []preparedMessage) ([]memory.Message, error) {
	a := &appending{ctx: ctx, user: user, session: session, prepared: prepared, settled: make(chan struct{})}
	s.appends.add(a)
	err := s.asWriterUnless(ctx, what, a.settled, func(writer *sql.Conn) error {
		for !a.isSettled() {
			s.appendAll(writer, s.appends.next())
		}
		return nil
	})
	if !s.appends.remove(a) {
		// Who has it in hand says what comes of it, though ctx may be done: nobody is
		// told of a failure whose messages are stored.
		<-a.settled
		if err = a.err; err != nil {
			err = s.failed(ctx, what, err)
		}
	}
	if err != nil {
		return nil, err
	}
	s.indexer.notify()
	return a.stored, nil
}

// appending is an append that waits to be stored.
type appending struct {
	ctx      context.Context
	user     memory.UserID
	session  memory.SessionID
	prepared []preparedMessage
	// settled is closed when stored and err are what came of it. Until then they are
	// for whoever has the writer.
	settled chan struct{}
	stored  []memory.Message
	err     error
}

func (a *appending) settle(err error) {
	if a.err = err; err != nil {
		a.stored = nil
	}
	close(a.settled)
}

func (a *appending) isSettled() bool { return waiting{settled: a.settled}.isSettled() }

// appendQueue holds what waits to be appended, in the order of coming. The zero
// value is empty.
type appendQueue struct {
	mu  sync.Mutex
	all []*appending // guarded by mu
}

// maxTogether bounds how many messages one transaction stores for those who wait, if
// not one of them brings more.
const maxTogether = 64

func (q *appendQueue) add(a *appending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, a)
}

// remove reports false if somebody took a, and settles it.
func (q *appendQueue) remove(a *appending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.all, a)
	if i < 0 {
		return false
	}
	q.all = slices.Delete(q.all, i, i+1)
	return true
}

// next takes those that are stored together.
func (q *appendQueue) next() []*appending {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, messages := 0, 0
	for n < len(q.all) && (n == 0 || messages+len(q.all[n].prepared) <= maxTogether) {
		messages += len(q.all[n].prepared)
		n++
	}
	together := q.all[:n:n]
	q.all = q.all[n:]
	return together
}

// appendAll stores what waits together, and settles it. One that fails takes no other
// with it.
func (s *Store) appendAll(writer *sql.Conn, together []*appending) {
	together = slices.DeleteFunc(together, func(a *appending) bool {
		gone := a.ctx.Err()
		if gone != nil {
			a.settle(gone)
		}
		return gone != nil
	})
	if len(together) == 0 {
		return
	}
	committing, err := s.appendTogether(writer, together)
	if err == nil || committing || len(together) == 1 {
		for _, a := range together {
			a.settle(err)
		}
		return
	}
	for _, a := range together {
		_, err := s.appendTogether(writer, []*appending{a})
		a.settle(err)
	}
}

// appendTogether is one transaction. If it fails, nothing is stored; committing says
// that no single one of them was the reason.
func (s *Store) appendTogether(writer *sql.Conn, together []*appending) (committing bool, err error) {
	ctx := together[0].ctx
	if len(together) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	moved := make(map[memory.SessionID]position, len(together))
	err = transact(ctx, writer, func(ctx context.Context, tx *sql.Tx) error {
		for _, a := range together {
			p, known := moved[a.session]
			if !known {
				p, known = s.positions[a.session]
			}
			if !known || p.owner != a.user {
				if p, err = s.position(ctx, tx, a.user, a.session); err != nil {
					return err
				}
			}
			before := p.messages
			a.stored = make([]memory.Message, 0, len(a.prepared))
			for _, m := range a.prepared {
				m, err := s.appendOne(ctx, tx, a.user, &p, m)
				if err != nil {
					return err
				}
				a.stored = append(a.stored, m)
			}
			if p.messages > before {
				if err := s.advance(ctx, tx, a.user, a.session, &p); err != nil {
					return err
				}
			}
			moved[a.session] = p
		}
		committing = true
		return nil
	})
	if len(s.positions)+len(moved) > maxPositions || err != nil {
		clear(s.positions)
	}
	if err == nil {
		maps.Copy(s.positions, moved)
	}
	return committing, err
}

// maxPositions bounds how many sessions' positions are kept.
const maxPositions = 1024

// advance stores where the session stands now.
func (s *Store) advance(ctx context.Context, tx *sql.Tx, user memory.UserID, session memory.SessionID, p *position) error {
	_, err := tx.StmtContext(ctx, s.appending.update).ExecContext(ctx, blob(session), blob(user), p.messages, p.lastActive, p.active, p.userMessages, p.awaiting, p.exchanges, p.shownItems, p.shownTokens, p.placed)
	if err != nil || !p.roused {
		return err
	}
	p.due, p.roused = true, false
	_, err = tx.StmtContext(ctx, s.appending.due).ExecContext(ctx, blob(session), blob(user))
	return err
}

// preparedMessage is a message that lacks only its place.
type preparedMessage struct {
	memory.Message
	content string
	// came are the blocks before large ones became files.
	came  []memory.Block
	files []preparedFile
	// refers are files that the message names and does not bring.
	refers []memory.FileID
	runs   []memory.DueRun
}

func prepareMessage(session memory.SessionID, d memory.Draft) (preparedMessage, error) {
	encoded, came, err := memory.Encode(d.Blocks)
	if err != nil {
		return preparedMessage{}, err
	}
	m := preparedMessage{came: came, runs: d.Runs, Message: memory.Message{
		ID: memory.NewID[memory.MessageID](), Session: session, Role: d.Role, Source: d.Source, Blocks: came,
		Trust: d.Sealed(), EventKey: d.EventKey, Transcript: d.Transcript, At: fromMicros(micros(d.At)),
	}}
	for i, b := range came {
		if !b.File.IsZero() {
			m.refers = append(m.refers, b.File)
		}
		if !b.IsLarge() {
			continue
		}
		file, outline, err := memory.NewFile(memory.NewID[memory.FileID](), session, b, d.Trust, m.At)
		if err != nil {
			return preparedMessage{}, err
		}
		place, read, err := memory.Encode([]memory.Block{outline})
		if err != nil {
			return preparedMessage{}, err
		}
		if len(m.files) == 0 {
			m.Blocks = slices.Clone(came)
		}
		m.files = append(m.files, preparedFile{file, encoded[i]})
		encoded[i], m.Blocks[i] = place[0], read[0]
	}
	m.content = joined(encoded)
	m.Tokens = memory.Count(m.Blocks)
	return m, nil
}

// joined is a list of encoded blocks as it is stored.
func joined(encoded []string) string { return "[" + strings.Join(encoded, ",") + "]" }

func (s *Store) appendOne(ctx context.Context, tx *sql.Tx, user memory.UserID, p *position, m preparedMessage) (memory.Message, error) {
	if m.EventKey != "" {
		known, err := scanMessage(tx.StmtContext(ctx, s.appending.event).QueryRowContext(ctx, blob(m.Session), blob(user), m.EventKey))
		if !errors.Is(err, sql.ErrNoRows) {
			return known, err
		}
	}
	for _, id := range m.refers {
		if err := refer(ctx, tx, m.Session, id); err != nil {
			return memory.Message{}, err
		}
	}
	exchanges := p.exchanges
	p.count(m.Message)
	m.Seq = p.messages
	if _, err := tx.StmtContext(ctx, s.appending.insert).ExecContext(ctx, blob(m.ID), blob(m.Session), m.Seq, string(m.Role), string(m.Source),
		m.content, m.Tokens, string(m.Trust), optionalText(m.EventKey), digestColumn(m.Transcript), micros(m.At)); err != nil {
		return memory.Message{}, err
	}
	for _, f := range m.files {
		if err := insertFile(ctx, tx, f); err != nil {
			return memory.Message{}, err
		}
	}
	p.shownItems++
	p.shownTokens += m.Tokens
	p.roused = p.roused || m.IsUsers() && !p.due
	for _, run := range m.runs {
		if run.Every > 0 && (p.exchanges == exchanges || p.exchanges%run.Every != 0) {
			continue
		}
		if _, err := tx.StmtContext(ctx, s.appending.run).ExecContext(ctx, blob(m.Session), blob(user), string(run.Trigger), p.exchanges, run.Budget, run.System, micros(m.At)); err != nil {
			return memory.Message{}, err
		}
	}
	_, err := tx.StmtContext(ctx, s.appending.frontier).ExecContext(ctx, blob(m.Session), m.Seq, blob(m.ID))
	return m.Message, err
}

// digestColumn is a digest as a parameter; the zero digest is NULL.
func digestColumn(d memory.Digest) []byte {
	if d.IsZero() {
		return nil
	}
	return d[:]
}

// digest reads one from a column.
type digest struct{ to *memory.Digest }

// Scan implements sql.Scanner.
func (d digest) Scan(value any) error {
	if value == nil {
		*d.to = memory.Digest{}
		return nil
	}
	b, ok := value.([]byte)
	if !ok || len(b) != len(d.to) {
		return fmt.Errorf("a digest of %d bytes", len(b))
	}
	copy(d.to[:], b)
	return nil
}

func scanMessage(r row) (m memory.Message, err error) {
	var content string
	if err := r.Scan(into(&m.ID), into(&m.Session), &m.Seq, &m.Role, &m.Source, &content, &m.Tokens, &m.Trust, &m.EventKey, digest{&m.Transcript}, instant{&m.At}); err != nil {
		return memory.Message{}, err
	}
	if m.Blocks, err = memory.Decode(content); err != nil {
		return memory.Message{}, fmt.Errorf("message %s as stored: %w", m.ID, err)
	}
	return m, nil
}

// Message implements memory.Store.
func (s *Store) Message(ctx context.Context, user memory.UserID, id memory.MessageID) (m memory.Message, err error) {
	err = s.reading(ctx, "read message "+id.String(), func(tx *sql.Tx) error {
		m, err = scanMessage(tx.QueryRowContext(ctx, selectMessages+" JOIN sessions s ON s.id = m.session_id WHERE m.id = ? AND s.user_id = ?", blob(id), blob(user)))
		return found(err)
	})
	return m, err
}

// Messages implements memory.Store.
func (s *Store) Messages(ctx context.Context, user memory.UserID, id memory.SessionID, q memory.MessageQuery) (messages []memory.Message, err error) {
	what := "read messages of session " + id.String()
	read := func(ctx context.Context, in func(*sql.Stmt) *sql.Stmt) (err error) {
		var rows *sql.Rows
		if q.EventKey != "" {
			rows, err = in(s.showing.event).QueryContext(ctx, blob(id), blob(user), q.EventKey, q.After)
		} else {
			rows, err = in(s.showing.messages).QueryContext(ctx, blob(id), blob(user), q.After, limit(q.Limit))
		}
		if messages, err = all(rows, err, scanMessage); err == nil && len(messages) == 0 {
			_, err = revision(ctx, in(s.showing.revision), user, id)
		}
		return err
	}
	if q.EventKey != "" || 0 < q.Limit && q.Limit <= glance {
		err = s.glancing(ctx, what, func(ctx context.Context) error {
			return read(ctx, func(statement *sql.Stmt) *sql.Stmt { return statement })
		})
	} else {
		err = s.reading(ctx, what, func(tx *sql.Tx) error {
			return read(ctx, func(statement *sql.Stmt) *sql.Stmt { return tx.StmtContext(ctx, statement) })
		})
	}
	return messages, err
}

// glance is the most messages that are read without watching whether they are still
// wanted.
const glance = 64

// limit is a bound as SQLite has it: none is negative. Queries say LIMIT ?n + 0, for
// SQLite plans a statement anew each time that a parameter is bound which is a LIMIT
// by itself (sqlite3ExprIsInteger), prepared or not.
func limit(n int) int {
	if n <= 0 {
		return -1
	}
	return n
}
