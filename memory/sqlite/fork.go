package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// NameSession implements memory.Store.
func (s *Store) NameSession(ctx context.Context, user memory.UserID, id memory.SessionID, name string) error {
	what := "name session " + id.String()
	if name != "" && !memory.ValidSessionName(name) {
		return fmt.Errorf("%s: the name is out of form: %w", what, memory.ErrInvalid)
	}
	return s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := s.position(ctx, tx, user, id); err != nil {
			return err
		}
		for _, statement := range []string{
			"UPDATE sessions SET name = NULL WHERE user_id = ?2 AND name = ?3 AND id <> ?1",
			"UPDATE sessions SET name = ?3 WHERE id = ?1 AND user_id = ?2 AND name IS NOT ?3",
		} {
			if _, err := tx.ExecContext(ctx, statement, blob(id), blob(user), optionalText(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Places implements memory.Store.
func (s *Store) Places(ctx context.Context, user memory.UserID, agent memory.AgentID, digest memory.Digest, limit int) (places []memory.Place, err error) {
	if limit <= 0 {
		return nil, fmt.Errorf("look for a transcript: a limit of %d: %w", limit, memory.ErrInvalid)
	}
	if digest.IsZero() {
		return nil, nil
	}
	err = s.glancing(ctx, "look for a transcript", func(ctx context.Context) error {
		rows, err := s.showing.places.QueryContext(ctx, digest[:], blob(user), blob(agent), limit)
		places, err = all(rows, err, func(r row) (p memory.Place, err error) { return p, r.Scan(into(&p.Session), &p.Seq, &p.Last) })
		return err
	})
	return places, err
}

// forkRows is how many messages one statement copies.
const forkRows = 4096

// Fork implements memory.Store. One transaction writes all: a crash leaves no fork
// or a whole one. What it writes are copies of rows, made by SQLite from rows, so
// that others who write wait as briefly as can be; messages that name files, of
// which there are few, pass through here.
func (s *Store) Fork(ctx context.Context, user memory.UserID, id memory.SessionID, last int64, at time.Time) (fork memory.Session, err error) {
	what := fmt.Sprintf("fork session %s at message %d", id, last)
	if err := checkTime("the time of a fork", at); err != nil {
		return fork, fmt.Errorf("%s: %w", what, err)
	}
	made := memory.NewID[memory.SessionID]()
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		p, err := s.position(ctx, tx, user, id)
		if err != nil {
			return err
		}
		if last < 0 || last > p.messages {
			return fmt.Errorf("the session has %d messages: %w", p.messages, memory.ErrInvalid)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO sessions (id, agent_id, user_id, parent_session_id, title, created_at, last_active_at)
			SELECT ?1, agent_id, user_id, id, iif(?3 > 0, title, ''), ?4, ?4 FROM sessions WHERE id = ?2`, blob(made), blob(id), last, micros(at)); err != nil {
			return err
		}
		if last > 0 {
			f := forking{store: s, tx: tx, user: user, parent: id, made: made, last: last}
			if err := f.copy(ctx); err != nil {
				return err
			}
		}
		fork, err = scanSession(tx.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE id = ?", blob(made)))
		return err
	})
	if err != nil {
		return memory.Session{}, err
	}
	return fork, nil
}

// forking is the transaction that makes a session of the first messages of another.
type forking struct {
	store        *Store
	tx           *sql.Tx
	user         memory.UserID
	parent, made memory.SessionID
	last         int64
}

func (f forking) copy(ctx context.Context) error {
	for _, step := range []func(context.Context) error{f.messages, f.files, f.summaries, f.frontier} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	// What there is to learn from them is learned from the parent: from both, it
	// would come back after it was deleted.
	if _, err := f.tx.ExecContext(ctx, "INSERT INTO session_learned VALUES (?, 1, ?)", blob(f.made), f.last); err != nil {
		return err
	}
	p, err := f.position(ctx)
	if err != nil {
		return err
	}
	return f.store.advance(ctx, f.tx, f.user, f.made, &p)
}

// messages copies them without their event keys, which are for the parent's writer.
func (f forking) messages(ctx context.Context) error {
	for first := int64(1); first <= f.last; first += forkRows {
		ids := make([]string, min(forkRows, f.last-first+1))
		for i := range ids {
			id := memory.NewID[memory.MessageID]()
			ids[i] = hex.EncodeToString(id[:])
		}
		list, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		copied, err := f.tx.ExecContext(ctx, `INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, transcript, created_at)
			SELECT unhex(j.value), ?2, m.seq, m.role, m.source, m.content, m.tokens, m.trust, m.transcript, m.created_at
			FROM json_each(?4) j CROSS JOIN messages m ON m.session_id = ?1 AND m.seq = ?3 + j.key`, blob(f.parent), blob(f.made), first, string(list))
		if err != nil {
			return err
		}
		if n, err := copied.RowsAffected(); err != nil {
			return err
		} else if n != int64(len(ids)) {
			return fmt.Errorf("of messages %d to %d, %d are missing: run glovebox doctor", first, first+int64(len(ids))-1, int64(len(ids))-n)
		}
	}
	return nil
}

// files gives the fork's blocks files of its own.
func (f forking) files(ctx context.Context) error {
	some := false
	if err := f.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM files WHERE session_id = ?)", blob(f.parent)).Scan(&some); err != nil || !some {
		return err
	}
	copies := map[memory.FileID]memory.FileID{}
	for seq := int64(0); ; {
		var content string
		// The field may be spelled in any case, and with escapes.
		err := f.tx.QueryRowContext(ctx, `SELECT seq, content FROM messages WHERE session_id = ? AND seq > ? AND (content LIKE '%"file"%' OR content LIKE '%\u%') ORDER BY seq LIMIT 1`,
			blob(f.made), seq).Scan(&seq, &content)
		if err == sql.ErrNoRows {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.refile(ctx, seq, content, copies); err != nil {
			return fmt.Errorf("message %d: %w", seq, err)
		}
	}
}

// refile has the blocks of one message name copies of their files.
func (f forking) refile(ctx context.Context, seq int64, content string, copies map[memory.FileID]memory.FileID) error {
	blocks, err := memory.Decode(content)
	if err != nil {
		return err
	}
	changed := false
	for i, b := range blocks {
		if b.File.IsZero() {
			continue
		}
		made, known := copies[b.File]
		if !known {
			made = memory.NewID[memory.FileID]()
			copied, err := f.tx.ExecContext(ctx, `INSERT INTO files (id, session_id, name, mime, bytes, tokens, digest, outline, trust, created_at, block)
				SELECT ?3, ?4, name, mime, bytes, tokens, digest, outline, trust, created_at, block FROM files WHERE id = ?1 AND session_id = ?2`,
				blob(b.File), blob(f.parent), blob(made), blob(f.made))
			if err != nil {
				return err
			}
			if n, err := copied.RowsAffected(); err != nil {
				return err
			} else if n == 0 {
				return fmt.Errorf("file %s is missing: run glovebox doctor", b.File)
			}
			copies[b.File] = made
		}
		if blocks[i], err = b.Refile(made); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	encoded, _, err := memory.Encode(blocks)
	if err != nil {
		return err
	}
	_, err = f.tx.ExecContext(ctx, "UPDATE messages SET content = ? WHERE session_id = ? AND seq = ?", joined(encoded), blob(f.made), seq)
	return err
}

// summaries copies those that stand for no message after the last one, with what
// they were made from, in the order in which they were made.
func (f forking) summaries(ctx context.Context) error {
	// A source's ordinal is the number of the first message that it stands for.
	rows, err := f.tx.QueryContext(ctx, `WITH RECURSIVE late (id) AS (
			SELECT v.id FROM summaries v CROSS JOIN summary_sources o ON o.summary_id = v.id WHERE v.session_id = ?1 AND o.ordinal > ?2
			UNION SELECT o.summary_id FROM late CROSS JOIN summary_sources o ON o.source_summary_id = late.id)
		SELECT v.id FROM summaries v WHERE v.session_id = ?1 AND v.id NOT IN late ORDER BY v.number`, blob(f.parent), f.last)
	old, err := all(rows, err, func(r row) (id memory.SummaryID, err error) { return id, r.Scan(into(&id)) })
	if err != nil || len(old) == 0 {
		return err
	}
	pairs := make([]string, len(old))
	for i, id := range old {
		made := memory.NewID[memory.SummaryID]()
		pairs[i] = hex.EncodeToString(id[:]) + hex.EncodeToString(made[:])
	}
	list, err := json.Marshal(pairs)
	if err != nil {
		return err
	}
	const copies = `WITH copies (old, new) AS MATERIALIZED (SELECT unhex(substr(value, 1, 32)), unhex(substr(value, 33)) FROM json_each(?3)) `
	for _, statement := range []string{
		copies + `INSERT INTO summaries (id, session_id, depth, text, external, tokens, earliest_at, latest_at, descendants, trust, level, model, created_at)
			SELECT c.new, ?2, v.depth, v.text, v.external, v.tokens, v.earliest_at, v.latest_at, v.descendants, v.trust, v.level, v.model, v.created_at
			FROM copies c JOIN summaries v ON v.id = c.old WHERE v.session_id = ?1 ORDER BY v.number`,
		copies + `INSERT INTO summary_sources (summary_id, ordinal, message_id, source_summary_id)
			SELECT c.new, o.ordinal, n.id, below.new FROM copies c CROSS JOIN summary_sources o ON o.summary_id = c.old
			LEFT JOIN messages m ON m.id = o.message_id AND m.session_id = ?1 LEFT JOIN messages n ON n.session_id = ?2 AND n.seq = m.seq
			LEFT JOIN copies below ON below.old = o.source_summary_id`,
	} {
		if _, err := f.tx.ExecContext(ctx, statement, blob(f.parent), blob(f.made), string(list)); err != nil {
			return err
		}
	}
	return nil
}

// frontier shows what is in none of the summaries that were copied: one that stands
// for messages on both sides of the last is open, down to what stands for one side.
func (f forking) frontier(ctx context.Context) error {
	for _, statement := range []string{showSummaries, showMessages} {
		if _, err := f.tx.ExecContext(ctx, statement, blob(f.made)); err != nil {
			return err
		}
	}
	return nil
}

// position is where the fork stands by what was copied.
func (f forking) position(ctx context.Context) (p position, err error) {
	if p, err = f.store.position(ctx, f.tx, f.user, f.made); err != nil {
		return p, err
	}
	// Only what may be a call is worth decoding.
	rows, err := f.tx.QueryContext(ctx, `SELECT role, source, transcript, created_at, iif(role = 'assistant' AND (content LIKE '%"tool_call"%' OR content LIKE '%\u%'), content, NULL)
		FROM messages WHERE session_id = ? ORDER BY seq`, blob(f.made))
	if err != nil {
		return p, err
	}
	defer rows.Close()
	for rows.Next() {
		var m memory.Message
		var content sql.RawBytes
		if err := rows.Scan(&m.Role, &m.Source, digest{&m.Transcript}, instant{&m.At}, &content); err != nil {
			return p, err
		}
		if content != nil {
			if m.Blocks, err = memory.Decode(string(content)); err != nil {
				return p, err
			}
		}
		p.count(m)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return p, err
	}
	return p, f.tx.QueryRowContext(ctx, "SELECT * FROM "+countShown, blob(f.made)).Scan(&p.shownItems, &p.shownTokens)
}
