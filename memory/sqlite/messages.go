package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

// ownSession is the session ?1 if it is the user's, ?2; else NULL, which equals
// nothing.
const ownSession = "(SELECT s.id FROM sessions s WHERE s.id = ?1 AND s.user_id = ?2)"

const selectMessages = "SELECT m.id, m.session_id, m.seq, m.role, m.source, m.content, m.tokens, m.trust, coalesce(m.event_key, ''), m.created_at FROM messages m"

const summaryColumns = "v.id, v.session_id, v.depth, v.text, v.external, v.tokens, v.earliest_at, v.latest_at, v.descendants, v.level, v.model, v.created_at"

// appendStatements belong to the writer's connection. They and showStatements
// are prepared once, for a turn is little else than appending and showing.
type appendStatements struct {
	position, event, insert, frontier, update *sql.Stmt
}

func (a *appendStatements) prepare(ctx context.Context, db *sql.DB) error {
	return prepare(ctx, db, map[**sql.Stmt]string{
		&a.position: "SELECT messages, last_active_at, active, user_messages, awaiting, exchanges FROM sessions WHERE id = ?1 AND user_id = ?2",
		&a.event:    selectMessages + " WHERE m.session_id = " + ownSession + " AND m.event_key = ?3",
		&a.insert:   "INSERT INTO messages (id, session_id, seq, role, source, content, text, tokens, trust, event_key, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		&a.frontier: "INSERT INTO frontier (session_id, ordinal, message_id) VALUES (?, ?, ?)",
		&a.update:   "UPDATE sessions SET messages = ?3, last_active_at = ?4, active = ?5, user_messages = ?6, awaiting = ?7, exchanges = ?8 WHERE id = ?1 AND user_id = ?2",
	})
}

func (a *appendStatements) close() {
	closeAll(a.position, a.event, a.insert, a.frontier, a.update)
}

// showStatements belong to the readers.
type showStatements struct {
	session, messages, revision, shownMessages, shownSummaries *sql.Stmt
}

func (s *showStatements) prepare(ctx context.Context, db *sql.DB) error {
	return prepare(ctx, db, map[**sql.Stmt]string{
		&s.session:        "SELECT " + sessionColumns + " FROM sessions WHERE id = ?1 AND user_id = ?2",
		&s.messages:       selectMessages + " WHERE m.session_id = " + ownSession + " AND m.seq > ?3 ORDER BY m.seq LIMIT ?4",
		&s.revision:       "SELECT revision FROM sessions WHERE id = ?1 AND user_id = ?2",
		&s.shownMessages:  selectMessages + " JOIN frontier f ON f.message_id = m.id WHERE f.session_id = " + ownSession + " ORDER BY f.ordinal",
		&s.shownSummaries: "SELECT f.ordinal, " + summaryColumns + " FROM frontier f JOIN summaries v ON v.id = f.summary_id WHERE f.session_id = " + ownSession + " ORDER BY f.ordinal",
	})
}

func (s *showStatements) close() {
	closeAll(s.session, s.messages, s.revision, s.shownMessages, s.shownSummaries)
}

// position is where a session stands: what changes with each message.
type position struct {
	messages     int64
	lastActive   int64
	active       bool
	userMessages int
	awaiting     bool
	exchanges    int
}

// count moves the position past one message.
func (p *position) count(m memory.Message) {
	p.messages++
	if m.Source.IsActivity() {
		p.lastActive, p.active = max(p.lastActive, micros(m.At)), true
	}
	switch unknown := m.Source == memory.SourceUnknown; {
	case m.Source == memory.SourceUser, unknown && m.Role == memory.RoleUser:
		p.userMessages++
		p.awaiting = true
	case m.Role == memory.RoleAssistant && p.awaiting:
		p.exchanges++
		p.awaiting = false
	}
}

// Append implements memory.Store.
func (s *Store) Append(ctx context.Context, user memory.UserID, session memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	for i, d := range drafts {
		err := d.Check()
		if err == nil && d.Source == memory.SourceContextInjection {
			err = fmt.Errorf("a context injection is written by Inject: %w", memory.ErrInvalid)
		}
		if err != nil {
			return nil, fmt.Errorf("append message %d: %w", i+1, err)
		}
	}
	return s.append(ctx, user, session, drafts)
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
	messages, err := s.append(ctx, user, session, []memory.Draft{d})
	if err != nil {
		return memory.Message{}, err
	}
	return messages[0], nil
}

// append is one transaction: when it returns without error, every message is
// on disk; when the process dies before, none is.
func (s *Store) append(ctx context.Context, user memory.UserID, session memory.SessionID, drafts []memory.Draft) ([]memory.Message, error) {
	what := "append to session " + session.String()
	// Whatever takes time with long texts is done before the one writer is.
	prepared := make([]preparedMessage, len(drafts))
	for i, d := range drafts {
		var err error
		if prepared[i], err = prepareMessage(session, d); err != nil {
			return nil, fmt.Errorf("%s: message %d: %w", what, i+1, err)
		}
	}
	stored := make([]memory.Message, 0, len(drafts))
	err := s.writing(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		var p position
		if err := tx.StmtContext(ctx, s.appending.position).QueryRowContext(ctx, blob(session), blob(user)).
			Scan(&p.messages, &p.lastActive, &p.active, &p.userMessages, &p.awaiting, &p.exchanges); err != nil {
			return found(err)
		}
		before := p.messages
		for _, m := range prepared {
			m, err := s.appendOne(ctx, tx, user, &p, m)
			if err != nil {
				return err
			}
			stored = append(stored, m)
		}
		if p.messages == before {
			return nil
		}
		_, err := tx.StmtContext(ctx, s.appending.update).ExecContext(ctx, blob(session), blob(user), p.messages, p.lastActive, p.active, p.userMessages, p.awaiting, p.exchanges)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// preparedMessage is a message that lacks only its place.
type preparedMessage struct {
	memory.Message
	content, text string
}

func prepareMessage(session memory.SessionID, d memory.Draft) (preparedMessage, error) {
	content, blocks, err := encode(d.Blocks)
	if err != nil {
		return preparedMessage{}, err
	}
	return preparedMessage{
		content: content,
		text:    memory.Plain(blocks),
		Message: memory.Message{
			ID: memory.NewID[memory.MessageID](), Session: session, Role: d.Role, Source: d.Source, Blocks: blocks,
			Tokens: memory.Count(blocks), Trust: d.Sealed(), EventKey: d.EventKey, At: fromMicros(micros(d.At)),
		},
	}, nil
}

func (s *Store) appendOne(ctx context.Context, tx *sql.Tx, user memory.UserID, p *position, m preparedMessage) (memory.Message, error) {
	if m.EventKey != "" {
		known, err := scanMessage(tx.StmtContext(ctx, s.appending.event).QueryRowContext(ctx, blob(m.Session), blob(user), m.EventKey))
		if !errors.Is(err, sql.ErrNoRows) {
			return known, err
		}
	}
	p.count(m.Message)
	m.Seq = p.messages
	if _, err := tx.StmtContext(ctx, s.appending.insert).ExecContext(ctx, blob(m.ID), blob(m.Session), m.Seq, string(m.Role), string(m.Source),
		m.content, m.text, m.Tokens, string(m.Trust), sql.NullString{String: m.EventKey, Valid: m.EventKey != ""}, micros(m.At)); err != nil {
		return memory.Message{}, err
	}
	_, err := tx.StmtContext(ctx, s.appending.frontier).ExecContext(ctx, blob(m.Session), m.Seq, blob(m.ID))
	return m.Message, err
}

// encode writes the list of blocks as it is stored, each block's own bytes, which
// an encoder of the whole list would reformat; and returns them as they will be
// read.
func encode(blocks []memory.Block) (string, []memory.Block, error) {
	list := []byte{'['}
	read := make([]memory.Block, len(blocks))
	for i, b := range blocks {
		encoded, err := b.MarshalJSON()
		if err == nil {
			encoded = bytes.ToValidUTF8(encoded, []byte("\ufffd"))
			err = read[i].UnmarshalJSON(encoded)
		}
		if err != nil {
			return "", nil, fmt.Errorf("block %d: %w", i+1, err)
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, encoded...)
	}
	return string(append(list, ']')), read, nil
}

func decode(content []byte) ([]memory.Block, error) {
	var blocks []memory.Block
	err := json.Unmarshal(content, &blocks)
	return blocks, err
}

func scanMessage(r row) (m memory.Message, err error) {
	var content []byte
	if err := r.Scan(into(&m.ID), into(&m.Session), &m.Seq, &m.Role, &m.Source, &content, &m.Tokens, &m.Trust, &m.EventKey, instant{&m.At}); err != nil {
		return memory.Message{}, err
	}
	if m.Blocks, err = decode(content); err != nil {
		return memory.Message{}, fmt.Errorf("message %s as stored: %w", m.ID, err)
	}
	return m, nil
}

// Messages implements memory.Store.
func (s *Store) Messages(ctx context.Context, user memory.UserID, id memory.SessionID, q memory.MessageQuery) (messages []memory.Message, err error) {
	err = s.reading(ctx, "read messages of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.StmtContext(ctx, s.showing.messages).QueryContext(ctx, blob(id), blob(user), q.After, limit(q.Limit))
		messages, err = all(rows, err, scanMessage)
		return err
	})
	return messages, err
}

// limit is a bound as SQLite has it: none is negative.
func limit(n int) int {
	if n <= 0 {
		return -1
	}
	return n
}

// revision returns the number of the frontier's state, or memory.ErrNotFound if
// the session is not the user's.
func (s *Store) revision(ctx context.Context, tx *sql.Tx, user memory.UserID, id memory.SessionID) (number int64, err error) {
	err = tx.StmtContext(ctx, s.showing.revision).QueryRowContext(ctx, blob(id), blob(user)).Scan(&number)
	return number, found(err)
}

// Frontier implements memory.Store.
func (s *Store) Frontier(ctx context.Context, user memory.UserID, id memory.SessionID) (f memory.Frontier, err error) {
	type placed struct {
		ordinal int64
		memory.Summary
	}
	err = s.reading(ctx, "read frontier of session "+id.String(), func(tx *sql.Tx) error {
		number, err := s.revision(ctx, tx, user, id)
		if err != nil {
			return err
		}
		rows, err := tx.StmtContext(ctx, s.showing.shownMessages).QueryContext(ctx, blob(id), blob(user))
		messages, err := all(rows, err, scanMessage)
		if err != nil {
			return err
		}
		rows, err = tx.StmtContext(ctx, s.showing.shownSummaries).QueryContext(ctx, blob(id), blob(user))
		summaries, err := all(rows, err, func(r row) (p placed, err error) {
			p.Summary, err = scanSummary(r, &p.ordinal)
			return p, err
		})
		if err != nil {
			return err
		}
		f.Revision = memory.NewRevision(id, number)
		// A message's ordinal is its Seq: the two lists merge by it.
		for len(messages)+len(summaries) > 0 {
			if len(summaries) == 0 || len(messages) > 0 && messages[0].Seq < summaries[0].ordinal {
				f.Items = append(f.Items, memory.Item{Message: &messages[0]})
				messages = messages[1:]
			} else {
				f.Items = append(f.Items, memory.Item{Summary: &summaries[0].Summary})
				summaries = summaries[1:]
			}
		}
		return nil
	})
	return f, err
}

// scanSummary reads summaryColumns after what before is for.
func scanSummary(r row, before ...any) (v memory.Summary, err error) {
	var external []byte
	if err := r.Scan(append(before, into(&v.ID), into(&v.Session), &v.Depth, &v.Text, &external, &v.Tokens, instant{&v.Earliest}, instant{&v.Latest},
		&v.Descendants, &v.Level, &v.Model, instant{&v.CreatedAt})...); err != nil {
		return memory.Summary{}, err
	}
	if external != nil {
		if err := json.Unmarshal(external, &v.External); err != nil {
			return memory.Summary{}, fmt.Errorf("summary %s as stored: %w", v.ID, err)
		}
	}
	return v, nil
}

// CommitLeaf implements memory.Store. One transaction writes the summary, its
// sources and the frontier: a crash leaves the frontier as it was or as it is
// to be.
func (s *Store) CommitLeaf(ctx context.Context, user memory.UserID, r memory.Revision, leaf memory.Leaf) (v memory.Summary, err error) {
	what := "commit leaf in session " + r.Session().String()
	if leaf.ID.IsZero() || len(leaf.Messages) == 0 || leaf.At.IsZero() {
		return v, fmt.Errorf("%s: it needs an id, a time and messages: %w", what, memory.ErrInvalid)
	}
	err = s.writing(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		var revision int64
		if err := tx.QueryRowContext(ctx, "SELECT revision FROM sessions WHERE id = ? AND user_id = ?", blob(r.Session()), blob(user)).Scan(&revision); err != nil {
			return found(err)
		}
		if revision != r.Number() {
			return fmt.Errorf("the frontier has revision %d, %d was read: %w", revision, r.Number(), memory.ErrConflict)
		}
		run, err := findRun(ctx, tx, user, r.Session(), leaf.Messages)
		if err != nil {
			return err
		}
		v = summaryOf(r.Session(), leaf, run)
		return replaceRun(ctx, tx, user, v, run)
	})
	if err != nil {
		return memory.Summary{}, err
	}
	return v, nil
}

// run is a stretch of the frontier that holds messages alone.
type run struct {
	first, last      int64 // ordinals
	earliest, latest int64 // microseconds
}

// findRun returns where the messages are if they are neighbours in the
// frontier, in this order.
func findRun(ctx context.Context, tx *sql.Tx, user memory.UserID, session memory.SessionID, ids []memory.MessageID) (run, error) {
	type place struct {
		ordinal, at int64
		message     memory.MessageID
	}
	rows, err := tx.QueryContext(ctx, `SELECT f.ordinal, f.message_id, coalesce(m.created_at, 0) FROM frontier f LEFT JOIN messages m ON m.id = f.message_id
		WHERE f.session_id = `+ownSession+` AND f.ordinal >= (SELECT seq FROM messages WHERE id = ?3 AND session_id = ?1) ORDER BY f.ordinal LIMIT ?4`,
		blob(session), blob(user), blob(ids[0]), len(ids))
	places, err := all(rows, err, func(r row) (p place, err error) { return p, r.Scan(&p.ordinal, into(&p.message), &p.at) })
	if err != nil {
		return run{}, err
	}
	if !slices.EqualFunc(places, ids, func(p place, id memory.MessageID) bool { return p.message == id && !id.IsZero() }) {
		return run{}, fmt.Errorf("the messages are not neighbours in the frontier: %w", memory.ErrInvalid)
	}
	found := run{first: places[0].ordinal, last: places[len(places)-1].ordinal, earliest: places[0].at, latest: places[0].at}
	for _, p := range places {
		found.earliest, found.latest = min(found.earliest, p.at), max(found.latest, p.at)
	}
	return found, nil
}

func summaryOf(session memory.SessionID, leaf memory.Leaf, r run) memory.Summary {
	v := memory.Summary{
		ID: leaf.ID, Session: session, Text: valid(leaf.Text), External: leaf.External,
		Earliest: fromMicros(r.earliest), Latest: fromMicros(r.latest), Descendants: len(leaf.Messages),
		Level: leaf.Level, Model: valid(leaf.Model), CreatedAt: fromMicros(micros(leaf.At)),
	}
	v.Tokens = tokens.Estimate(v.Shown())
	return v
}

func replaceRun(ctx context.Context, tx *sql.Tx, user memory.UserID, v memory.Summary, r run) error {
	var external any
	if !v.External.IsEmpty() {
		encoded, err := json.Marshal(v.External)
		if err != nil {
			return err
		}
		external = string(encoded)
	}
	taken := false
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM summaries WHERE id = ?)", blob(v.ID)).Scan(&taken); err != nil {
		return err
	}
	if taken {
		return fmt.Errorf("the summary's id is taken: %w", memory.ErrConflict)
	}
	for _, step := range []struct {
		statement string
		arguments []any
	}{
		{"INSERT INTO summaries (id, session_id, depth, text, external, tokens, earliest_at, latest_at, descendants, level, model, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			[]any{blob(v.ID), blob(v.Session), v.Depth, v.Text, external, v.Tokens, micros(v.Earliest), micros(v.Latest), v.Descendants,
				string(v.Level), v.Model, micros(v.CreatedAt)}},
		{"INSERT INTO summary_sources (summary_id, ordinal, message_id) SELECT ?2, ordinal, message_id FROM frontier WHERE session_id = ?1 AND ordinal BETWEEN ?3 AND ?4",
			[]any{blob(v.Session), blob(v.ID), r.first, r.last}},
		{"DELETE FROM frontier WHERE session_id = ?1 AND ordinal BETWEEN ?2 AND ?3",
			[]any{blob(v.Session), r.first, r.last}},
		{"INSERT INTO frontier (session_id, ordinal, summary_id) VALUES (?1, ?2, ?3)",
			[]any{blob(v.Session), r.first, blob(v.ID)}},
		{"UPDATE sessions SET revision = revision + 1 WHERE id = ?1 AND user_id = ?2",
			[]any{blob(v.Session), blob(user)}},
	} {
		if _, err := tx.ExecContext(ctx, step.statement, step.arguments...); err != nil {
			return err
		}
	}
	return nil
}

// Summaries implements memory.Store.
func (s *Store) Summaries(ctx context.Context, user memory.UserID, id memory.SessionID) (summaries []memory.Summary, err error) {
	err = s.reading(ctx, "read summaries of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+summaryColumns+" FROM summaries v WHERE v.session_id = "+ownSession+" ORDER BY v.number", blob(id), blob(user))
		summaries, err = all(rows, err, func(r row) (memory.Summary, error) { return scanSummary(r) })
		return err
	})
	return summaries, err
}

// Expand implements memory.Store.
func (s *Store) Expand(ctx context.Context, user memory.UserID, id memory.SummaryID) (messages []memory.Message, err error) {
	err = s.reading(ctx, "expand summary "+id.String(), func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectMessages+` JOIN summary_sources o ON o.message_id = m.id
			WHERE o.summary_id = (SELECT v.id FROM summaries v JOIN sessions s ON s.id = v.session_id WHERE v.id = ?1 AND s.user_id = ?2) ORDER BY o.ordinal`,
			blob(id), blob(user))
		messages, err = all(rows, err, scanMessage)
		// There is no summary of nothing.
		if err == nil && len(messages) == 0 {
			err = memory.ErrNotFound
		}
		return err
	})
	return messages, err
}

// RecordCompaction implements memory.Store.
func (s *Store) RecordCompaction(ctx context.Context, user memory.UserID, run memory.CompactionRun) error {
	return s.writing(ctx, "record compaction of session "+run.Session.String(), func(ctx context.Context, tx *sql.Tx) error {
		recorded, err := tx.ExecContext(ctx, `INSERT INTO compaction_runs (session_id, agent_id, trigger, outcome, reason, items_before, items_after,
			tokens_before, tokens_after, summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took)
			SELECT s.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16 FROM sessions s WHERE s.id = ?1 AND s.user_id = ?2 AND s.agent_id = ?3`,
			blob(run.Session), blob(user), blob(run.Agent), string(run.Trigger), string(run.Outcome), valid(run.Reason), run.ItemsBefore, run.ItemsAfter,
			run.TokensBefore, run.TokensAfter, run.Summaries, run.RefreshBlocks, run.RefreshTokens, run.RefreshSkipped, micros(run.StartedAt), int64(run.Took))
		if err != nil {
			return err
		}
		if n, err := recorded.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return memory.ErrNotFound
	})
}

// Compactions implements memory.Store.
func (s *Store) Compactions(ctx context.Context, user memory.UserID, id memory.SessionID) (runs []memory.CompactionRun, err error) {
	err = s.reading(ctx, "read compactions of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT session_id, agent_id, trigger, outcome, reason, items_before, items_after, tokens_before, tokens_after,
			summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took FROM compaction_runs WHERE session_id = `+ownSession+` ORDER BY id`,
			blob(id), blob(user))
		runs, err = all(rows, err, func(r row) (c memory.CompactionRun, err error) {
			return c, r.Scan(into(&c.Session), into(&c.Agent), &c.Trigger, &c.Outcome, &c.Reason, &c.ItemsBefore, &c.ItemsAfter, &c.TokensBefore, &c.TokensAfter,
				&c.Summaries, &c.RefreshBlocks, &c.RefreshTokens, &c.RefreshSkipped, instant{&c.StartedAt}, &c.Took)
		})
		return err
	})
	return runs, err
}
