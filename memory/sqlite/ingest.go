package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// Ingest implements memory.Store.
func (s *Store) Ingest(ctx context.Context, user memory.UserID, session memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	what := "ingest into session " + session.String()
	prepared, err := prepareDrafts(what, session, drafts)
	if err != nil {
		return nil, err
	}
	said := make([]memory.Utterance, len(prepared))
	for i, m := range prepared {
		// One that names files waits for them.
		if len(m.refers) > 0 {
			continue
		}
		if said[i], err = memory.UtteranceOf(m.Role, m.came); err != nil {
			return nil, fmt.Errorf("%s: message %d: %w", what, i+1, err)
		}
	}
	var added []memory.Message
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		p, err := s.position(ctx, tx, user, session)
		if err != nil {
			return err
		}
		for i, m := range prepared {
			if len(m.refers) > 0 {
				if said[i], err = utterance(ctx, tx, session, m.Role, m.came); err != nil {
					return err
				}
			}
		}
		known, err := knownBeginning(ctx, tx, session, said)
		if err != nil {
			return err
		}
		before := p.messages
		for _, m := range prepared[known:] {
			place := p.messages
			stored, err := s.appendOne(ctx, tx, user, &p, m)
			if err != nil {
				return err
			}
			if p.messages > place {
				added = append(added, stored)
			}
		}
		if p.messages == before {
			return nil
		}
		return s.advance(ctx, tx, user, session, &p)
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

// utterance identifies a message of the session, whose files are in its place.
func utterance(ctx context.Context, tx *sql.Tx, session memory.SessionID, role memory.Role, blocks []memory.Block) (memory.Utterance, error) {
	blocks, err := whole(ctx, tx, session, blocks)
	if err != nil {
		return memory.Utterance{}, err
	}
	return memory.UtteranceOf(role, blocks)
}

// knownBeginning returns how many of the first utterances are stored already: all,
// if they are what the session begins with, else the most that it ends with. One
// message alone is too little to tell a beginning by: people greet each other
// more than once.
func knownBeginning(ctx context.Context, tx *sql.Tx, session memory.SessionID, said []memory.Utterance) (int, error) {
	if len(said) == 0 {
		return 0, nil
	}
	read := func(order string) ([]memory.Utterance, error) {
		type stored struct {
			role   memory.Role
			blocks []memory.Block
			memory.Utterance
		}
		rows, err := tx.QueryContext(ctx, "SELECT role, content FROM messages WHERE session_id = ? AND source <> ? ORDER BY seq "+order+" LIMIT ? + 0",
			blob(session), string(memory.SourceContextInjection), len(said))
		messages, err := all(rows, err, func(r row) (m stored, err error) {
			var content string
			if err := r.Scan(&m.role, &content); err != nil {
				return m, err
			}
			blocks, err := memory.Decode(content)
			if err != nil {
				return m, err
			}
			if slices.ContainsFunc(blocks, func(b memory.Block) bool { return !b.File.IsZero() }) {
				m.blocks = blocks
				return m, nil
			}
			m.Utterance, err = memory.UtteranceOf(m.role, blocks)
			return m, err
		})
		if err != nil {
			return nil, err
		}
		list := make([]memory.Utterance, len(messages))
		for i, m := range messages {
			if list[i] = m.Utterance; m.blocks != nil {
				if list[i], err = utterance(ctx, tx, session, m.role, m.blocks); err != nil {
					return nil, err
				}
			}
		}
		return list, nil
	}
	if len(said) > 1 {
		first, err := read("ASC")
		if err != nil || slices.Equal(first, said) {
			return len(first), err
		}
	}
	last, err := read("DESC")
	slices.Reverse(last)
	return overlap(last, said), err
}

// overlap returns the greatest k for which the last k of before are the first k
// of after, in linear time (Knuth, Morris, Pratt: Fast pattern matching in
// strings, 1977).
func overlap(before, after []memory.Utterance) int {
	borders := make([]int, len(after))
	k := 0
	for i := 1; i < len(after); i++ {
		for k > 0 && after[i] != after[k] {
			k = borders[k-1]
		}
		if after[i] == after[k] {
			k++
		}
		borders[i] = k
	}
	k = 0
	for i, u := range before {
		for k > 0 && (k == len(after) || u != after[k]) {
			k = borders[k-1]
		}
		if u == after[k] {
			k++
		}
		// A match of the whole that is not at the end is none.
		if k == len(after) && i < len(before)-1 {
			k = borders[k-1]
		}
	}
	return k
}
