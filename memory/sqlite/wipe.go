package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// keyScrub is set while deleted text may still be in the files, and taken away
// by a Scrub that was finished: a process that dies in between leaves it to the
// next one. Each deletion gives it another value, so that a Scrub that began
// before does not take it for its own.
const keyScrub = "scrub_pending"

// deletion is one statement of a removal and where its count goes, if anywhere.
type deletion struct {
	statement string
	count     *int
}

// sessionRows are the rows of sessions, which the condition selects from table
// sessions: children before parents.
func sessionRows(condition string, counts *memory.WipeCounts) []deletion {
	sessions := "(SELECT id FROM sessions WHERE " + condition + ")"
	return []deletion{
		{"DELETE FROM frontier WHERE session_id IN " + sessions, nil},
		{"DELETE FROM summary_sources WHERE summary_id IN (SELECT id FROM summaries WHERE session_id IN " + sessions + ")", nil},
		{"DELETE FROM summaries WHERE session_id IN " + sessions, &counts.Summaries},
		{"DELETE FROM files WHERE session_id IN " + sessions, &counts.Files},
		{"DELETE FROM messages WHERE session_id IN " + sessions, &counts.Messages},
		{"DELETE FROM compaction_runs WHERE session_id IN " + sessions, &counts.Compactions},
		{"DELETE FROM pending_runs WHERE session_id IN " + sessions, nil},
		{"DELETE FROM session_learned WHERE session_id IN " + sessions, nil},
		{"UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN " + sessions, nil},
		{"DELETE FROM sessions WHERE " + condition, &counts.Sessions},
	}
}

// memoryRows are what is remembered of user ?1.
func memoryRows(counts *memory.WipeCounts) []deletion {
	return []deletion{
		{"DELETE FROM topic_sources WHERE topic_id IN (SELECT id FROM topics WHERE user_id = ?1)", nil},
		{"DELETE FROM topics WHERE user_id = ?1 AND agent_id IS NULL", &counts.Topics},
		{"DELETE FROM topics WHERE user_id = ?1", &counts.AgentTopics},
		{"DELETE FROM session_extractions WHERE user_id = ?1", &counts.Extractions},
	}
}

// remove runs deletions in order. If they took anything away, it is recorded
// that the files are to be scrubbed.
func remove(ctx context.Context, tx *sql.Tx, deletions []deletion, arguments ...any) error {
	removed := int64(0)
	for _, d := range deletions {
		result, err := tx.ExecContext(ctx, d.statement, arguments...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if d.count != nil {
			*d.count = int(n)
		}
		removed += n
	}
	if removed == 0 {
		return nil
	}
	return scrubLater(ctx, tx)
}

// scrubLater records that the files are to be scrubbed.
func scrubLater(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO kv VALUES (?, ?, randomblob(8))", kvShared, keyScrub)
	return err
}

// unenforced is writing without the enforcement of references, which a
// transaction cannot change. To delete a message, SQLite would look through the
// frontiers of everybody for one that refers to it, because no index answers
// that; the callers delete what refers first, and doctor looks at the rest.
func (s *Store) unenforced(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	err := s.asWriter(ctx, what, func(writer *sql.Conn) error {
		clear(s.positions)
		defer s.tails.change()()
		unending := context.WithoutCancel(ctx)
		if _, err := writer.ExecContext(unending, "PRAGMA foreign_keys = OFF"); err != nil {
			return err
		}
		err := transact(ctx, writer, f)
		if _, failed := writer.ExecContext(unending, "PRAGMA foreign_keys = ON"); failed != nil {
			return errors.Join(err, failed)
		}
		return err
	})
	if err == nil {
		s.indexer.notify()
	}
	return err
}

// DeleteSession implements memory.Store.
func (s *Store) DeleteSession(ctx context.Context, user memory.UserID, id memory.SessionID) error {
	return s.unenforced(ctx, "delete session "+id.String(), func(ctx context.Context, tx *sql.Tx) error {
		var counts memory.WipeCounts
		if err := remove(ctx, tx, sessionRows("id = ?1 AND user_id = ?2", &counts), blob(id), blob(user)); err != nil {
			return err
		}
		if counts.Sessions == 0 {
			return memory.ErrNotFound
		}
		if err := s.dropIndex(ctx, tx, user); err != nil {
			return err
		}
		return rebuildIndex(ctx, tx, user, kinds...)
	})
}

// WipeMemory implements memory.Store.
func (s *Store) WipeMemory(ctx context.Context, user memory.UserID) (counts memory.WipeCounts, err error) {
	err = s.unenforced(ctx, "wipe the memory of user "+user.String(), func(ctx context.Context, tx *sql.Tx) error {
		if err := remove(ctx, tx, memoryRows(&counts), blob(user)); err != nil {
			return err
		}
		return startAnew(ctx, tx, user, memory.AgentID{})
	})
	if err != nil {
		return memory.WipeCounts{}, err
	}
	return counts, nil
}

// WipeAgentMemory implements memory.Store. Topics of the user with every agent go
// too where one of the agent's took their place: they are its history.
func (s *Store) WipeAgentMemory(ctx context.Context, user memory.UserID, agent memory.AgentID) (counts memory.WipeCounts, err error) {
	if agent.IsZero() {
		return counts, nil
	}
	err = s.unenforced(ctx, "wipe the memory of user "+user.String()+" with agent "+agent.String(), func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, withHistory("agent_id = ?2"), blob(user), blob(agent))
		topics, err := all(rows, err, func(r row) (id memory.TopicID, err error) { return id, r.Scan(into(&id)) })
		if err != nil {
			return err
		}
		if err := dropTopics(ctx, tx, topics, &counts); err != nil {
			return err
		}
		if err := remove(ctx, tx, []deletion{{"DELETE FROM session_extractions WHERE user_id = ?1 AND agent_id = ?2", &counts.Extractions}}, blob(user), blob(agent)); err != nil {
			return err
		}
		return startAnew(ctx, tx, user, agent)
	})
	if err != nil {
		return memory.WipeCounts{}, err
	}
	return counts, nil
}

// startAnew has it that nothing is learned from what the user said so far, to the
// agent or, if that is zero, to anybody, and that no dream that goes on remembers
// it.
func startAnew(ctx context.Context, tx *sql.Tx, user memory.UserID, agent memory.AgentID) error {
	const sessions = "user_id = ?1 AND (?2 IS NULL OR agent_id = ?2)"
	for _, statement := range []string{
		"DELETE FROM session_learned WHERE session_id IN (SELECT id FROM sessions WHERE " + sessions + ")",
		"INSERT INTO session_learned SELECT id, 1, messages FROM sessions WHERE messages > 0 AND " + sessions,
		"UPDATE sessions SET due_since = NULL WHERE due_since IS NOT NULL AND " + sessions,
	} {
		if _, err := tx.ExecContext(ctx, statement, blob(user), blob(agent)); err != nil {
			return err
		}
	}
	return revise(ctx, tx, user)
}

// WipeUser implements memory.Store. A process that dies before the commit leaves
// all of it, one that dies after nothing but what Scrub is for.
func (s *Store) WipeUser(ctx context.Context, user memory.UserID) (counts memory.WipeCounts, err error) {
	err = s.unenforced(ctx, "wipe user "+user.String(), func(ctx context.Context, tx *sql.Tx) error {
		deletions := append(sessionRows("user_id = ?1", &counts), memoryRows(&counts)...)
		deletions = append(deletions,
			deletion{"DELETE FROM users WHERE id = ?1 AND NOT is_default", &counts.Users},
			deletion{"UPDATE users SET name = '" + memory.DefaultUserName + "' WHERE id = ?1 AND name <> '" + memory.DefaultUserName + "'", nil})
		if err := remove(ctx, tx, deletions, blob(user)); err != nil {
			return err
		}
		// What is kept of a user under names has the id as its scope.
		if err := remove(ctx, tx, []deletion{{"DELETE FROM kv WHERE scope = ?1", nil}}, user.String()); err != nil {
			return err
		}
		// The default user is still there.
		if err := revise(ctx, tx, user); err != nil {
			return err
		}
		return s.dropIndex(ctx, tx, user)
	})
	if err != nil {
		return memory.WipeCounts{}, err
	}
	return counts, nil
}

// settleIndex waits until the search index has deleted what it is to delete.
func (s *Store) settleIndex(ctx context.Context) error {
	if s.indexer == nil {
		return nil
	}
	return s.indexer.settle(ctx)
}

// Wipes implements memory.Store.
func (s *Store) Wipes(ctx context.Context) (wipes []memory.Wipe, err error) {
	err = s.reading(ctx, "read the wipes that have begun", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT user_id, begun_at FROM wipes ORDER BY begun_at, user_id")
		wipes, err = all(rows, err, func(r row) (w memory.Wipe, err error) {
			return w, r.Scan(into(&w.User), instant{&w.BegunAt})
		})
		return err
	})
	return wipes, err
}

// BeginWipe implements memory.Store.
func (s *Store) BeginWipe(ctx context.Context, user memory.UserID, at time.Time) error {
	return s.writing(ctx, "begin to wipe user "+user.String(), func(ctx context.Context, tx *sql.Tx) error {
		known := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM users WHERE id = ?1) OR EXISTS (SELECT 1 FROM wipes WHERE user_id = ?1)", blob(user)).Scan(&known); err != nil {
			return err
		}
		if !known {
			return memory.ErrNotFound
		}
		_, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO wipes VALUES (?, ?)", blob(user), micros(at))
		return err
	})
}

// EndWipe implements memory.Store.
func (s *Store) EndWipe(ctx context.Context, user memory.UserID) error {
	return s.writing(ctx, "end the wipe of user "+user.String(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM wipes WHERE user_id = ?", blob(user))
		return err
	})
}

// notWiped returns memory.ErrWiped if a wipe of the user has begun.
func notWiped(ctx context.Context, tx *sql.Tx, user memory.UserID) error {
	wiped := false
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM wipes WHERE user_id = ?)", blob(user)).Scan(&wiped); err != nil {
		return err
	}
	if wiped {
		return memory.ErrWiped
	}
	return nil
}
