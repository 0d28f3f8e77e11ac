package sqlite

import (
	"context"
	"crypto/sha256"
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
	said := make([]utterance, len(prepared))
	for i, m := range prepared {
		said[i] = m.utterance()
	}
	var added []memory.Message
	err = s.writing(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		p, err := s.position(ctx, tx, user, session)
		if err != nil {
			return err
		}
		known, err := knownBeginning(ctx, tx, session, said)
		if err != nil {
			return err
		}
		for _, m := range prepared[known:] {
			before := p.messages
			stored, err := s.appendOne(ctx, tx, user, &p, m)
			if err != nil {
				return err
			}
			if p.messages > before {
				added = append(added, stored)
			}
		}
		return s.advance(ctx, tx, user, session, p)
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

// utterance identifies what was said by whom.
type utterance [sha256.Size]byte

func (m preparedMessage) utterance() utterance { return utteranceOf(m.Role, []byte(m.content)) }

func utteranceOf(role memory.Role, content []byte) utterance {
	return sha256.Sum256(fmt.Appendf(nil, "%s\x00%s", role, content))
}

// knownBeginning returns how many of the first utterances are stored already: all,
// if the session begins with them, else the most that the session ends with.
func knownBeginning(ctx context.Context, tx *sql.Tx, session memory.SessionID, said []utterance) (int, error) {
	if len(said) == 0 {
		return 0, nil
	}
	read := func(order string) ([]utterance, error) {
		rows, err := tx.QueryContext(ctx, "SELECT role, content FROM messages WHERE session_id = ? AND source <> ? ORDER BY seq "+order+" LIMIT ?",
			blob(session), string(memory.SourceContextInjection), len(said))
		return all(rows, err, func(r row) (utterance, error) {
			var role memory.Role
			var content sql.RawBytes
			if err := r.Scan(&role, &content); err != nil {
				return utterance{}, err
			}
			return utteranceOf(role, content), nil
		})
	}
	first, err := read("ASC")
	if err != nil || slices.Equal(first, said) {
		return len(first), err
	}
	last, err := read("DESC")
	slices.Reverse(last)
	return overlap(last, said), err
}

// overlap returns the greatest k for which the last k of before are the first k
// of after, in linear time (Knuth, Morris, Pratt: Fast pattern matching in
// strings, 1977).
func overlap(before, after []utterance) int {
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
