package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// A statement of unseenGaps and fromUnseen is about the messages m of session ?1
// that nobody looked at to learn from them. It goes to the gaps between what was
// looked at: what was costs nothing but the rows of session_learned, of which there
// is one for each gap.
const (
	unseenGaps = `WITH learned AS (SELECT first_seq, last_seq FROM session_learned WHERE session_id = ?1 UNION ALL SELECT 9223372036854775807, 9223372036854775807),
		gap AS (SELECT coalesce(lag(last_seq) OVER (ORDER BY first_seq), 0) + 1 AS first, first_seq - 1 AS last FROM learned) `
	fromUnseen = " FROM gap g CROSS JOIN messages m WHERE m.session_id = ?1 AND m.seq BETWEEN g.first AND g.last"
	// isUsers is memory.Message.IsUsers.
	isUsers = "(m.source = 'user' OR m.source = '' AND m.role = 'user')"
)

// optional is instant for a column that may be NULL, which is the zero time.
type optional struct{ to *time.Time }

// Scan implements sql.Scanner.
func (o optional) Scan(value any) error {
	if value == nil {
		*o.to = time.Time{}
		return nil
	}
	return instant{o.to}.Scan(value)
}

// moment is a time as a parameter; the zero time is NULL.
func moment(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: micros(t), Valid: !t.IsZero()}
}

// ranges returns seen in order, without what overlaps or touches.
func ranges(seen []memory.SeqRange) []memory.SeqRange {
	sorted := slices.SortedFunc(slices.Values(seen), func(a, b memory.SeqRange) int { return cmp.Compare(a.First, b.First) })
	joined := sorted[:0]
	for _, r := range sorted {
		if n := len(joined); n > 0 && r.First <= joined[n-1].Last+1 {
			joined[n-1].Last = max(joined[n-1].Last, r.Last)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// look records that somebody looked at messages of a session, which has the given
// number of them. It returns memory.ErrInvalid for what the session does not have
// and memory.ErrConflict if one of them was looked at before.
func look(ctx context.Context, tx *sql.Tx, session memory.SessionID, messages int64, seen []memory.SeqRange) error {
	for _, r := range seen {
		if r.First < 1 || r.Last < r.First || r.Last > messages {
			return fmt.Errorf("session %s has %d messages, not %d to %d: %w", session, messages, r.First, r.Last, memory.ErrInvalid)
		}
	}
	for _, r := range ranges(seen) {
		known, err := lookAgain(ctx, tx, session, r)
		if err != nil {
			return err
		}
		if known {
			return fmt.Errorf("some of the messages %d to %d of session %s were looked at: %w", r.First, r.Last, session, memory.ErrConflict)
		}
	}
	return nil
}

// lookAgain is look for a run of messages of which some may have been looked at;
// known says that some were.
func lookAgain(ctx context.Context, tx *sql.Tx, session memory.SessionID, r memory.SeqRange) (known bool, err error) {
	whole := r
	rows, err := tx.QueryContext(ctx, "SELECT first_seq, last_seq FROM session_learned WHERE session_id = ? AND first_seq <= ? ORDER BY first_seq DESC", blob(session), r.Last+1)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var stored memory.SeqRange
		if err := rows.Scan(&stored.First, &stored.Last); err != nil {
			return false, err
		}
		if stored.Last < r.First-1 {
			break
		}
		known = known || stored.First <= r.Last && stored.Last >= r.First
		whole.First, whole.Last = min(whole.First, stored.First), max(whole.Last, stored.Last)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM session_learned WHERE session_id = ? AND first_seq BETWEEN ? AND ?", blob(session), whole.First, whole.Last); err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO session_learned VALUES (?, ?, ?)", blob(session), whole.First, whole.Last)
	return known, err
}

// learnedRanges returns what was looked at of the first messages of a session.
func learnedRanges(ctx context.Context, tx *sql.Tx, session memory.SessionID, messages int64) ([]memory.SeqRange, error) {
	rows, err := tx.QueryContext(ctx, "SELECT first_seq, min(last_seq, ?2) FROM session_learned WHERE session_id = ?1 AND first_seq <= ?2 ORDER BY first_seq", blob(session), messages)
	return all(rows, err, func(r row) (run memory.SeqRange, err error) { return run, r.Scan(&run.First, &run.Last) })
}

// isDue is whether there is something to learn from session ?1, after unseenGaps.
const isDue = `(EXISTS (SELECT 1 FROM session_extractions x JOIN sessions o ON o.id = x.session_id AND o.user_id = x.user_id WHERE x.session_id = ?1 AND x.merged_at IS NULL)
	OR EXISTS (SELECT 1` + fromUnseen + " AND " + isUsers + "))"

// settleDue sets whether there is something to learn from a session after that may
// have changed. A session that has gone is none.
func settleDue(ctx context.Context, tx *sql.Tx, session memory.SessionID) error {
	_, err := tx.ExecContext(ctx, unseenGaps+"UPDATE sessions SET due_since = CASE WHEN "+isDue+" THEN min(coalesce(due_since, last_active_at), last_active_at) END WHERE id = ?1", blob(session))
	return err
}

func settleAll(ctx context.Context, tx *sql.Tx, sessions map[memory.SessionID]bool) error {
	for id := range sessions {
		if err := settleDue(ctx, tx, id); err != nil {
			return err
		}
	}
	return nil
}

// UnseenMessages implements memory.Store.
func (s *Store) UnseenMessages(ctx context.Context, user memory.UserID, id memory.SessionID, q memory.MessageQuery) (messages []memory.Message, err error) {
	err = s.reading(ctx, "read unseen messages of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, unseenGaps+"SELECT max(g.first, ?2 + 1), g.last FROM gap g JOIN sessions s ON s.id = ?1 WHERE max(g.first, ?2 + 1) <= min(g.last, s.messages) ORDER BY g.first",
			blob(id), min(max(q.After, 0), math.MaxInt64-1))
		runs, err := all(rows, err, func(r row) (run memory.SeqRange, err error) { return run, r.Scan(&run.First, &run.Last) })
		if err != nil {
			return err
		}
		for _, run := range runs {
			left := limit(q.Limit)
			if left >= 0 {
				if left -= len(messages); left <= 0 {
					return nil
				}
			}
			rows, err := tx.QueryContext(ctx, selectMessages+" WHERE m.session_id = ? AND m.seq BETWEEN ? AND ? ORDER BY m.seq LIMIT ? + 0", blob(id), run.First, run.Last, left)
			more, err := all(rows, err, scanMessage)
			if err != nil {
				return err
			}
			messages = append(messages, more...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return messages, nil
}

// Unseen implements memory.Store.
func (s *Store) Unseen(ctx context.Context, user memory.UserID, id memory.SessionID) (u memory.Unseen, err error) {
	err = s.reading(ctx, "count unseen messages of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, id); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, unseenGaps+"SELECT count(*), coalesce(sum(m.tokens), 0), coalesce(sum(m.role = 'tool'), 0), coalesce(sum("+isUsers+"), 0)"+fromUnseen, blob(id)).
			Scan(&u.Messages, &u.Tokens, &u.ToolResults, &u.UserMessages)
	})
	return u, err
}

// items is a list of an extraction in its column.
type items struct{ list *[]memory.Learned }

// Scan implements sql.Scanner.
func (i items) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("a list of what was learned that is a %T", value)
	}
	list := []memory.Learned{}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fmt.Errorf("a list of what was learned: %w", err)
	}
	*i.list = list
	return nil
}

func encodeItems(list []memory.Learned) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	encoded, err := json.Marshal(list)
	return string(encoded), err
}

// itemColumns are those of memory.Learnings.
const itemColumns = "x.facts, x.preferences, x.decisions, x.tasks, x.open_items"

func scanItems(l *memory.Learnings) []any {
	return []any{items{&l.Facts}, items{&l.Preferences}, items{&l.Decisions}, items{&l.Tasks}, items{&l.OpenItems}}
}

func encodeLearnings(l memory.Learnings) (columns []any, err error) {
	for _, list := range [][]memory.Learned{l.Facts, l.Preferences, l.Decisions, l.Tasks, l.OpenItems} {
		encoded, err := encodeItems(list)
		if err != nil {
			return nil, err
		}
		columns = append(columns, encoded)
	}
	return columns, nil
}

// learned calls f for each thing of l.
func learned(l memory.Learnings, f func(*memory.Learned)) {
	for _, list := range [][]memory.Learned{l.Facts, l.Preferences, l.Decisions, l.Tasks, l.OpenItems} {
		for i := range list {
			f(&list[i])
		}
	}
}

// isBlank reports whether nothing of l is to be remembered.
func isBlank(l memory.Learnings) bool {
	blank := true
	learned(l, func(item *memory.Learned) { blank = blank && item.Text == "" })
	return blank
}

// CommitExtraction implements memory.Store.
func (s *Store) CommitExtraction(ctx context.Context, user memory.UserID, n memory.NewExtraction) (memory.Extraction, error) {
	what := "commit what was learned from session " + n.Session.String()
	learnings, err := n.Learnings.Canonical()
	if err == nil {
		err = checkTime("the time of an extraction", n.At)
	}
	if err == nil && len(n.Seen) == 0 {
		err = fmt.Errorf("no message was looked at: %w", memory.ErrInvalid)
	}
	if err != nil {
		return memory.Extraction{}, fmt.Errorf("%s: %w", what, err)
	}
	x := memory.Extraction{ID: memory.NewID[memory.ExtractionID](), Session: n.Session, Learnings: learnings, CreatedAt: fromMicros(micros(n.At))}
	if isBlank(learnings) {
		x.MergedAt = x.CreatedAt
	}
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if err := notWiped(ctx, tx, user); err != nil {
			return err
		}
		var messages int64
		if err := tx.QueryRowContext(ctx, "SELECT agent_id, messages FROM sessions WHERE id = ? AND user_id = ?", blob(n.Session), blob(user)).Scan(into(&x.Agent), &messages); err != nil {
			return found(err)
		}
		if err := look(ctx, tx, n.Session, messages, n.Seen); err != nil {
			return err
		}
		if err := saidHere(ctx, tx, n.Session, learnings); err != nil {
			return err
		}
		if err := insertExtraction(ctx, tx, user, x); err != nil {
			return err
		}
		return settleDue(ctx, tx, n.Session)
	})
	if err != nil {
		return memory.Extraction{}, err
	}
	return x, nil
}

// saidHere returns memory.ErrInvalid unless each source is a message of the user
// in the session.
func saidHere(ctx context.Context, tx *sql.Tx, session memory.SessionID, l memory.Learnings) (err error) {
	known := map[memory.MessageID]bool{}
	learned(l, func(item *memory.Learned) {
		for _, id := range item.Sources {
			if err != nil || known[id] {
				continue
			}
			said := false
			if err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM messages WHERE id = ? AND session_id = ? AND source = 'user')", blob(id), blob(session)).Scan(&said); err == nil && !said {
				err = fmt.Errorf("message %s is none of the user in session %s: %w", id, session, memory.ErrInvalid)
			}
			known[id] = true
		}
	})
	return err
}

func insertExtraction(ctx context.Context, tx *sql.Tx, user memory.UserID, x memory.Extraction) error {
	lists, err := encodeLearnings(x.Learnings)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO session_extractions (id, user_id, agent_id, session_id, created_at, merged_at, facts, preferences, decisions, tasks, open_items) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		append([]any{blob(x.ID), blob(user), blob(x.Agent), blob(x.Session), micros(x.CreatedAt), moment(x.MergedAt)}, lists...)...)
	return err
}

// Extractions implements memory.Store.
func (s *Store) Extractions(ctx context.Context, user memory.UserID, q memory.ExtractionQuery) (list []memory.Extraction, err error) {
	err = s.reading(ctx, "read what was learned of user "+user.String(), func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT x.id, x.agent_id, x.session_id, NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = x.session_id AND s.user_id = x.user_id), x.created_at, x.merged_at, "+itemColumns+
			` FROM session_extractions x LEFT JOIN session_extractions last ON last.id = ?4 AND last.user_id = ?1
			WHERE x.user_id = ?1 AND (?2 IS NULL OR x.agent_id = ?2) AND (NOT ?3 OR x.merged_at IS NULL) AND (last.id IS NULL OR (x.created_at, x.id) > (last.created_at, last.id))
			ORDER BY x.created_at, x.id LIMIT ?5 + 0`, blob(user), blob(q.Agent), q.Pending, blob(q.After), limit(q.Limit))
		list, err = all(rows, err, func(r row) (x memory.Extraction, err error) {
			return x, r.Scan(append([]any{into(&x.ID), into(&x.Agent), into(&x.Session), &x.SessionDeleted, instant{&x.CreatedAt}, optional{&x.MergedAt}}, scanItems(&x.Learnings)...)...)
		})
		return err
	})
	return list, err
}

// IdleSessions implements memory.Store. An index has the sessions that are due by a
// time that is not after LastActive, which moves too often to have one: they are
// met in the order of that time, until it is later than the LastActive of all that
// were found.
func (s *Store) IdleSessions(ctx context.Context, agents []memory.AgentID, idleSince time.Time, most int) (idle []memory.IdleSession, err error) {
	err = s.reading(ctx, "look for idle sessions", func(tx *sql.Tx) error {
		sorted := slices.SortedFunc(slices.Values(agents), func(a, b memory.AgentID) int { return slices.Compare(a[:], b[:]) })
		for _, agent := range slices.Compact(sorted) {
			if idle, err = idleOf(ctx, tx, agent, idleSince, most, idle); err != nil {
				return err
			}
		}
		return nil
	})
	return idle, err
}

// idleOf adds those of one agent to others, in their order.
func idleOf(ctx context.Context, tx *sql.Tx, agent memory.AgentID, idleSince time.Time, most int, idle []memory.IdleSession) ([]memory.IdleSession, error) {
	rows, err := tx.QueryContext(ctx, `SELECT s.user_id, s.agent_id, s.id, s.last_active_at, s.due_since FROM sessions s INDEXED BY sessions_due
		WHERE s.agent_id = ?1 AND s.due_since < ?2 AND s.last_active_at < ?2 AND NOT EXISTS (SELECT 1 FROM wipes w WHERE w.user_id = s.user_id) ORDER BY s.due_since`, blob(agent), micros(idleSince))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	longest := func(a, b memory.IdleSession) int {
		return cmp.Or(a.LastActive.Compare(b.LastActive), slices.Compare(a.Session[:], b.Session[:]))
	}
	for rows.Next() {
		var next memory.IdleSession
		var due time.Time
		if err := rows.Scan(into(&next.User), into(&next.Agent), into(&next.Session), instant{&next.LastActive}, instant{&due}); err != nil {
			return nil, err
		}
		full := most > 0 && len(idle) == most
		if full && due.After(idle[most-1].LastActive) {
			break
		}
		if full && longest(next, idle[most-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(idle, next, longest)
		idle = slices.Insert(idle, at, next)
		if full {
			idle = idle[:most]
		}
	}
	return idle, rows.Err()
}

// NextIdleSession implements memory.Store. An index has the sessions of each agent that
// there is something to learn from, by user and by since when; the others on the way
// have not rested.
func (s *Store) NextIdleSession(ctx context.Context, q memory.DueQuery) (next memory.IdleSession, err error) {
	except := hexes(q.Except)
	err = s.reading(ctx, "look for the next idle session", func(tx *sql.Tx) error {
		first := int64(0)
		for _, agent := range q.Agents {
			idle, since := memory.IdleSession{Agent: agent}, int64(0)
			err := tx.QueryRowContext(ctx, `SELECT s.user_id, s.id, s.last_active_at, s.due_since FROM sessions s INDEXED BY sessions_due_user
				WHERE s.agent_id = ?1 AND s.user_id > coalesce(?2, x'') AND s.due_since < ?3 AND s.last_active_at < ?3
				AND s.id NOT IN (SELECT unhex(value) FROM json_each(?4))
				AND NOT EXISTS (SELECT 1 FROM wipes w WHERE w.user_id = s.user_id) ORDER BY s.user_id, s.due_since, s.id LIMIT 1`,
				blob(agent), blob(q.After), micros(q.IdleSince), except).
				Scan(into(&idle.User), into(&idle.Session), instant{&idle.LastActive}, &since)
			switch {
			case errors.Is(err, sql.ErrNoRows):
			case err != nil:
				return err
			case next.User.IsZero() || cmp.Or(bytes.Compare(idle.User[:], next.User[:]), cmp.Compare(since, first), bytes.Compare(idle.Session[:], next.Session[:])) < 0:
				next, first = idle, since
			}
		}
		if next.User.IsZero() {
			return memory.ErrNotFound
		}
		return nil
	})
	return next, err
}

// hexes is a list of ids as a parameter, a JSON array of their digits.
func hexes[K any](ids []memory.ID[K]) string {
	list := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `"%x"`, id[:])
	}
	return string(append(list, ']'))
}

// replacesRun ends an INSERT of a pending run: a later one takes the place of the
// earlier, which keeps its place in the order. By a clock that was set back it is later
// all the same, or the end of the earlier would be its own.
const replacesRun = ` ON CONFLICT DO UPDATE SET exchanges = excluded.exchanges, budget = excluded.budget, system = excluded.system, since = min(since, excluded.since),
	begun_at = CASE WHEN excluded.begun_at < begun_at THEN begun_at + 1 ELSE excluded.begun_at END`

// PutPendingRun implements memory.Store.
func (s *Store) PutPendingRun(ctx context.Context, run memory.PendingRun) error {
	what := "record that a compaction of session " + run.Session.String() + " has begun"
	if err := errors.Join(checkTrigger(run.Trigger), checkTime("the time of a run", run.At)); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if err := notWiped(ctx, tx, run.User); err != nil {
			return err
		}
		put, err := tx.ExecContext(ctx, `INSERT INTO pending_runs (session_id, user_id, trigger, exchanges, budget, system, since, begun_at)
			SELECT s.id, s.user_id, ?4, ?5, ?6, ?7, ?8, ?8 FROM sessions s WHERE s.id = ?1 AND s.user_id = ?2 AND s.agent_id = ?3`+replacesRun,
			blob(run.Session), blob(run.User), blob(run.Agent), string(run.Trigger), run.Exchanges, run.Budget, run.System, micros(run.At))
		if err != nil {
			return err
		}
		if n, err := put.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return memory.ErrNotFound
	})
}

// EndPendingRun implements memory.Store. One that became due meanwhile is due since
// then, behind what else its user has.
func (s *Store) EndPendingRun(ctx context.Context, user memory.UserID, session memory.SessionID, trigger memory.Trigger, until time.Time) error {
	return s.writingBeside(ctx, "record that a compaction of session "+session.String()+" is over", func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range []string{
			"DELETE FROM pending_runs WHERE session_id = " + ownSession + " AND trigger = ?3 AND begun_at <= ?4",
			"UPDATE pending_runs SET since = begun_at WHERE session_id = " + ownSession + " AND trigger = ?3 AND begun_at > ?4",
		} {
			if _, err := tx.ExecContext(ctx, statement, blob(session), blob(user), string(trigger), micros(until)); err != nil {
				return err
			}
		}
		return nil
	})
}

// A row that names another user than its session is nobody's run: whose turn it is goes
// round by the one, and would not come past the other. CROSS JOIN begins with the runs.
const selectPendingRuns = "SELECT s.user_id, s.agent_id, s.id, p.trigger, p.exchanges, p.budget, p.system, p.begun_at FROM pending_runs p CROSS JOIN sessions s ON s.id = p.session_id AND s.user_id = p.user_id"

func scanPendingRun(r row) (run memory.PendingRun, err error) {
	return run, r.Scan(into(&run.User), into(&run.Agent), into(&run.Session), &run.Trigger, &run.Exchanges, &run.Budget, &run.System, instant{&run.At})
}

// NextPendingRun implements memory.Store.
func (s *Store) NextPendingRun(ctx context.Context, after memory.UserID) (run memory.PendingRun, err error) {
	err = s.reading(ctx, "look for the next compaction", func(tx *sql.Tx) error {
		run, err = scanPendingRun(tx.QueryRowContext(ctx, selectPendingRuns+` WHERE p.user_id > coalesce(?1, x'') AND NOT EXISTS (SELECT 1 FROM wipes w WHERE w.user_id = p.user_id)
			ORDER BY p.user_id, p.since, p.session_id, p.trigger LIMIT 1`, blob(after)))
		return found(err)
	})
	return run, err
}

// PendingRuns implements memory.Store.
func (s *Store) PendingRuns(ctx context.Context) (runs []memory.PendingRun, err error) {
	err = s.reading(ctx, "read the compactions that are not over", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectPendingRuns+" ORDER BY p.begun_at, p.session_id, p.trigger")
		runs, err = all(rows, err, scanPendingRun)
		return err
	})
	return runs, err
}
