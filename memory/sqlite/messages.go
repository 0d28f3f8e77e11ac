package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

// appendStatements are prepared once, for appending is what every turn does.
type appendStatements struct {
	position, insert, frontier, update *sql.Stmt
}

func (a *appendStatements) prepare(ctx context.Context, db *sql.DB) (err error) {
	for _, p := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&a.position, "SELECT messages, last_active_at, active, user_messages, awaiting, exchanges FROM sessions WHERE id = ? AND user_id = ?"},
		{&a.insert, "INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, event_key, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&a.frontier, "INSERT INTO frontier (session_id, ordinal, message_id) VALUES (?, ?, ?)"},
		{&a.update, "UPDATE sessions SET messages = ?, last_active_at = ?, active = ?, user_messages = ?, awaiting = ?, exchanges = ? WHERE id = ?"},
	} {
		if *p.to, err = db.PrepareContext(ctx, p.query); err != nil {
			return explain(err)
		}
	}
	return nil
}

func (a *appendStatements) close() {
	for _, s := range []*sql.Stmt{a.position, a.insert, a.frontier, a.update} {
		if s != nil {
			_ = s.Close()
		}
	}
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
func (p *position) count(d memory.Draft) {
	p.messages++
	if d.Source.IsActivity() {
		p.lastActive, p.active = max(p.lastActive, micros(d.At)), true
	}
	switch unknown := d.Source == memory.SourceUnknown; {
	case d.Source == memory.SourceUser, unknown && d.Role == memory.RoleUser:
		p.userMessages++
		p.awaiting = true
	case d.Role == memory.RoleAssistant && p.awaiting:
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
	encoded := make([]string, len(drafts))
	for i := range drafts {
		content, err := encode(drafts[i].Blocks)
		if err != nil {
			return nil, fmt.Errorf("append message %d: %w", i+1, err)
		}
		encoded[i] = content
	}
	stored := make([]memory.Message, 0, len(drafts))
	err := s.writing(ctx, "append to session "+session.String(), func(tx *sql.Tx) error {
		var p position
		if err := tx.StmtContext(ctx, s.appending.position).QueryRowContext(ctx, blob(session), blob(user)).
			Scan(&p.messages, &p.lastActive, &p.active, &p.userMessages, &p.awaiting, &p.exchanges); err != nil {
			return found(err)
		}
		for i, d := range drafts {
			m, err := s.appendOne(ctx, tx, session, &p, d, encoded[i])
			if err != nil {
				return err
			}
			stored = append(stored, m)
		}
		_, err := tx.StmtContext(ctx, s.appending.update).ExecContext(ctx, p.messages, p.lastActive, p.active, p.userMessages, p.awaiting, p.exchanges, blob(session))
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

func (s *Store) appendOne(ctx context.Context, tx *sql.Tx, session memory.SessionID, p *position, d memory.Draft, content string) (memory.Message, error) {
	if d.EventKey != "" {
		m, err := scanMessage(tx.QueryRowContext(ctx, "SELECT "+messageColumns+" FROM messages WHERE session_id = ? AND event_key = ?", blob(session), d.EventKey))
		if !errors.Is(err, sql.ErrNoRows) {
			return m, err
		}
	}
	p.count(d)
	// The message is given back as it will be read.
	blocks, err := decode([]byte(content))
	if err != nil {
		return memory.Message{}, err
	}
	m := memory.Message{
		ID: memory.NewID[memory.MessageID](), Session: session, Seq: p.messages, Role: d.Role, Source: d.Source, Blocks: blocks,
		Tokens: memory.Count(blocks), Trust: d.Sealed(), EventKey: d.EventKey, At: fromMicros(micros(d.At)),
	}
	if _, err := tx.StmtContext(ctx, s.appending.insert).ExecContext(ctx, blob(m.ID), blob(session), m.Seq, string(m.Role), string(m.Source),
		content, m.Tokens, string(m.Trust), sql.NullString{String: m.EventKey, Valid: m.EventKey != ""}, micros(m.At)); err != nil {
		return m, err
	}
	_, err = tx.StmtContext(ctx, s.appending.frontier).ExecContext(ctx, blob(session), m.Seq, blob(m.ID))
	return m, err
}

// encode writes blocks as they are stored. SQLite's text and JSON both want
// UTF-8, so what is invalid becomes U+FFFD.
func encode(blocks []memory.Block) (string, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(blocks); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(strings.TrimRight(buf.String(), "\n"), "\ufffd"), nil
}

func decode(content []byte) ([]memory.Block, error) {
	var blocks []memory.Block
	err := json.Unmarshal(content, &blocks)
	return blocks, err
}

const messageColumns = "id, session_id, seq, role, source, content, tokens, trust, coalesce(event_key, ''), created_at"

func scanMessage(r row) (m memory.Message, err error) {
	var content []byte
	if err := r.Scan(into(&m.ID), into(&m.Session), &m.Seq, &m.Role, &m.Source, &content, &m.Tokens, &m.Trust, &m.EventKey, instant{&m.At}); err != nil {
		return m, err
	}
	if m.Blocks, err = decode(content); err != nil {
		return m, fmt.Errorf("message %s as stored: %w", m.ID, err)
	}
	return m, nil
}

// Messages implements memory.Store.
func (s *Store) Messages(ctx context.Context, user memory.UserID, id memory.SessionID, q memory.MessageQuery) (messages []memory.Message, err error) {
	limit := -1
	if q.Limit > 0 {
		limit = q.Limit
	}
	err = s.reading(ctx, "read messages of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := session(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+messageColumns+" FROM messages WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?", blob(id), q.After, limit)
		messages, err = all(rows, err, scanMessage)
		return err
	})
	return messages, err
}

// Frontier implements memory.Store.
func (s *Store) Frontier(ctx context.Context, user memory.UserID, id memory.SessionID) (f memory.Frontier, err error) {
	err = s.reading(ctx, "read frontier of session "+id.String(), func(tx *sql.Tx) error {
		var revision int64
		if err := tx.QueryRowContext(ctx, "SELECT revision FROM sessions WHERE id = ? AND user_id = ?", blob(id), blob(user)).Scan(&revision); err != nil {
			return found(err)
		}
		f = memory.Frontier{Revision: memory.NewRevision(id, revision)}
		rows, err := tx.QueryContext(ctx, "SELECT message_id, summary_id FROM frontier WHERE session_id = ? ORDER BY ordinal", blob(id))
		if err != nil {
			return err
		}
		type pair struct {
			message memory.MessageID
			summary memory.SummaryID
		}
		places, err := all(rows, err, func(r row) (p pair, err error) { return p, r.Scan(into(&p.message), into(&p.summary)) })
		if err != nil {
			return err
		}
		for _, p := range places {
			item := memory.Item{}
			if p.summary.IsZero() {
				m, err := scanMessage(tx.QueryRowContext(ctx, "SELECT "+messageColumns+" FROM messages WHERE id = ?", blob(p.message)))
				if err != nil {
					return err
				}
				item.Message = &m
			} else {
				v, err := scanSummary(tx.QueryRowContext(ctx, "SELECT "+summaryColumns+" FROM summaries WHERE id = ?", blob(p.summary)))
				if err != nil {
					return err
				}
				item.Summary = &v
			}
			f.Items = append(f.Items, item)
		}
		return nil
	})
	return f, err
}

const summaryColumns = "id, session_id, depth, text, external, tokens, earliest_at, latest_at, descendants, level, model, created_at"

func scanSummary(r row) (v memory.Summary, err error) {
	var external []byte
	if err := r.Scan(into(&v.ID), into(&v.Session), &v.Depth, &v.Text, &external, &v.Tokens, instant{&v.Earliest}, instant{&v.Latest},
		&v.Descendants, &v.Level, &v.Model, instant{&v.CreatedAt}); err != nil {
		return v, err
	}
	if external != nil {
		if err := json.Unmarshal(external, &v.External); err != nil {
			return v, fmt.Errorf("summary %s as stored: %w", v.ID, err)
		}
	}
	return v, nil
}

// CommitLeaf implements memory.Store. One transaction writes the summary, its
// sources and the frontier: a crash leaves the frontier as it was or as it is
// to be.
func (s *Store) CommitLeaf(ctx context.Context, user memory.UserID, r memory.Revision, leaf memory.Leaf) (v memory.Summary, err error) {
	if leaf.ID.IsZero() || len(leaf.Messages) == 0 || leaf.At.IsZero() {
		return v, fmt.Errorf("commit leaf: it needs an id, a time and messages: %w", memory.ErrInvalid)
	}
	err = s.writing(ctx, "commit leaf in session "+r.Session().String(), func(tx *sql.Tx) error {
		var revision int64
		if err := tx.QueryRowContext(ctx, "SELECT revision FROM sessions WHERE id = ? AND user_id = ?", blob(r.Session()), blob(user)).Scan(&revision); err != nil {
			return found(err)
		}
		if revision != r.Number() {
			return fmt.Errorf("the frontier has revision %d, %d was read: %w", revision, r.Number(), memory.ErrConflict)
		}
		run, err := runInFrontier(ctx, tx, r.Session(), leaf.Messages)
		if err != nil {
			return err
		}
		v = summaryOf(r.Session(), leaf, run)
		return replaceRun(ctx, tx, v, run)
	})
	if err != nil {
		return memory.Summary{}, err
	}
	return v, nil
}

// runInFrontier returns the messages if they are neighbours in the frontier,
// in this order.
func runInFrontier(ctx context.Context, tx *sql.Tx, session memory.SessionID, ids []memory.MessageID) ([]memory.Message, error) {
	rows, err := tx.QueryContext(ctx, `SELECT f.message_id FROM frontier f
		WHERE f.session_id = ?1 AND f.ordinal >= (SELECT seq FROM messages WHERE id = ?2 AND session_id = ?1) ORDER BY f.ordinal LIMIT ?3`,
		blob(session), blob(ids[0]), len(ids))
	places, err := all(rows, err, func(r row) (id memory.MessageID, err error) { return id, r.Scan(into(&id)) })
	if err != nil {
		return nil, err
	}
	if !slices.Equal(places, ids) {
		return nil, fmt.Errorf("the messages are not neighbours in the frontier: %w", memory.ErrInvalid)
	}
	run := make([]memory.Message, 0, len(ids))
	for _, id := range ids {
		m, err := scanMessage(tx.QueryRowContext(ctx, "SELECT "+messageColumns+" FROM messages WHERE id = ?", blob(id)))
		if err != nil {
			return nil, err
		}
		run = append(run, m)
	}
	return run, nil
}

func summaryOf(session memory.SessionID, leaf memory.Leaf, run []memory.Message) memory.Summary {
	v := memory.Summary{
		ID: leaf.ID, Session: session, Text: strings.ToValidUTF8(leaf.Text, "\ufffd"), External: leaf.External,
		Earliest: run[0].At, Latest: run[0].At, Descendants: len(run), Level: leaf.Level, Model: leaf.Model, CreatedAt: fromMicros(micros(leaf.At)),
	}
	for _, m := range run {
		if m.At.Before(v.Earliest) {
			v.Earliest = m.At
		}
		if m.At.After(v.Latest) {
			v.Latest = m.At
		}
	}
	v.Tokens = tokens.Estimate(v.Shown())
	return v
}

func replaceRun(ctx context.Context, tx *sql.Tx, v memory.Summary, run []memory.Message) error {
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
	if _, err := tx.ExecContext(ctx, "INSERT INTO summaries ("+summaryColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		blob(v.ID), blob(v.Session), v.Depth, v.Text, external, v.Tokens, micros(v.Earliest), micros(v.Latest), v.Descendants,
		string(v.Level), v.Model, micros(v.CreatedAt)); err != nil {
		return err
	}
	for i, m := range run {
		if _, err := tx.ExecContext(ctx, "INSERT INTO summary_sources (summary_id, ordinal, message_id) VALUES (?, ?, ?)", blob(v.ID), i, blob(m.ID)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM frontier WHERE session_id = ? AND ordinal = ?", blob(v.Session), m.Seq); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO frontier (session_id, ordinal, summary_id) VALUES (?, ?, ?)", blob(v.Session), run[0].Seq, blob(v.ID)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE sessions SET revision = revision + 1 WHERE id = ?", blob(v.Session))
	return err
}

// Summaries implements memory.Store.
func (s *Store) Summaries(ctx context.Context, user memory.UserID, id memory.SessionID) (summaries []memory.Summary, err error) {
	err = s.reading(ctx, "read summaries of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := session(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+summaryColumns+" FROM summaries WHERE session_id = ? ORDER BY rowid", blob(id))
		summaries, err = all(rows, err, scanSummary)
		return err
	})
	return summaries, err
}

// Expand implements memory.Store.
func (s *Store) Expand(ctx context.Context, user memory.UserID, id memory.SummaryID) (messages []memory.Message, err error) {
	err = s.reading(ctx, "expand summary "+id.String(), func(tx *sql.Tx) error {
		exists := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM summaries v JOIN sessions s ON s.id = v.session_id WHERE v.id = ? AND s.user_id = ?)", blob(id), blob(user)).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return memory.ErrNotFound
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+messageColumns+" FROM messages JOIN (SELECT message_id, ordinal FROM summary_sources WHERE summary_id = ?) ON message_id = id ORDER BY ordinal", blob(id))
		messages, err = all(rows, err, scanMessage)
		return err
	})
	return messages, err
}

// RecordCompaction implements memory.Store.
func (s *Store) RecordCompaction(ctx context.Context, user memory.UserID, run memory.CompactionRun) error {
	return s.writing(ctx, "record compaction of session "+run.Session.String(), func(tx *sql.Tx) error {
		if _, err := session(ctx, tx, user, run.Session); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO compaction_runs (session_id, agent_id, trigger, outcome, reason, items_before, items_after,
			tokens_before, tokens_after, summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			blob(run.Session), blob(run.Agent), string(run.Trigger), string(run.Outcome), strings.ToValidUTF8(run.Reason, "\ufffd"), run.ItemsBefore, run.ItemsAfter,
			run.TokensBefore, run.TokensAfter, run.Summaries, run.RefreshBlocks, run.RefreshTokens, run.RefreshSkipped, micros(run.StartedAt), int64(run.Took))
		return err
	})
}

// Compactions implements memory.Store.
func (s *Store) Compactions(ctx context.Context, user memory.UserID, id memory.SessionID) (runs []memory.CompactionRun, err error) {
	err = s.reading(ctx, "read compactions of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := session(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT session_id, agent_id, trigger, outcome, reason, items_before, items_after, tokens_before, tokens_after,
			summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took FROM compaction_runs WHERE session_id = ? ORDER BY id`, blob(id))
		runs, err = all(rows, err, func(r row) (c memory.CompactionRun, err error) {
			return c, r.Scan(into(&c.Session), into(&c.Agent), &c.Trigger, &c.Outcome, &c.Reason, &c.ItemsBefore, &c.ItemsAfter, &c.TokensBefore, &c.TokensAfter,
				&c.Summaries, &c.RefreshBlocks, &c.RefreshTokens, &c.RefreshSkipped, instant{&c.StartedAt}, &c.Took)
		})
		return err
	})
	return runs, err
}
