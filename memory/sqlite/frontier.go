package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

const summaryColumns = "v.id, v.session_id, v.depth, v.text, v.external, v.tokens, v.earliest_at, v.latest_at, v.descendants, v.trust, v.level, v.model, v.created_at"

// ownSummary is the summary ?1 if it is the user's, ?2; else NULL.
const ownSummary = "(SELECT v.id FROM summaries v JOIN sessions s ON s.id = v.session_id WHERE v.id = ?1 AND s.user_id = ?2)"

// revision returns the number of the frontier's state, or memory.ErrNotFound if
// the session is not the user's.
func (s *Store) revision(ctx context.Context, tx *sql.Tx, user memory.UserID, id memory.SessionID) (int64, error) {
	return revision(ctx, tx.StmtContext(ctx, s.showing.revision), user, id)
}

func revision(ctx context.Context, statement *sql.Stmt, user memory.UserID, id memory.SessionID) (number int64, err error) {
	err = statement.QueryRowContext(ctx, blob(id), blob(user)).Scan(&number)
	return number, found(err)
}

// Frontier implements memory.Store.
func (s *Store) Frontier(ctx context.Context, user memory.UserID, id memory.SessionID) (f memory.Frontier, err error) {
	err = s.reading(ctx, "read frontier of session "+id.String(), func(tx *sql.Tx) error {
		number, err := s.revision(ctx, tx, user, id)
		if err != nil {
			return err
		}
		f.Revision = memory.NewRevision(id, number)
		f.Items, err = s.shownBetween(ctx, tx, user, id, 0, math.MaxInt64, math.MaxInt)
		return err
	})
	return f, err
}

// shownBetween returns the items of the frontier from one ordinal to before another,
// of which there are at most so many.
func (s *Store) shownBetween(ctx context.Context, tx *sql.Tx, user memory.UserID, id memory.SessionID, from, to int64, most int) (items []memory.Item, err error) {
	type placed struct {
		ordinal int64
		memory.Summary
	}
	rows, err := tx.StmtContext(ctx, s.showing.shownMessages).QueryContext(ctx, blob(id), blob(user), from, to)
	messages, err := all(rows, err, scanMessage)
	if err != nil {
		return nil, err
	}
	if len(messages) == most {
		items = make([]memory.Item, most)
		for i := range messages {
			items[i].Message = &messages[i]
		}
		return items, nil
	}
	rows, err = tx.StmtContext(ctx, s.showing.shownSummaries).QueryContext(ctx, blob(id), blob(user), from, to)
	summaries, err := all(rows, err, func(r row) (p placed, err error) {
		p.Summary, err = scanSummary(r, &p.ordinal)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	// A message's ordinal is its Seq: the two lists merge by it.
	for len(messages)+len(summaries) > 0 {
		if len(summaries) == 0 || len(messages) > 0 && messages[0].Seq < summaries[0].ordinal {
			items = append(items, memory.Item{Message: &messages[0]})
			messages = messages[1:]
		} else {
			items = append(items, memory.Item{Summary: &summaries[0].Summary})
			summaries = summaries[1:]
		}
	}
	return items, nil
}

// FrontierTail implements memory.Store.
func (s *Store) FrontierTail(ctx context.Context, user memory.UserID, id memory.SessionID, tokens int) (end memory.Frontier, older memory.FrontierRest, err error) {
	what := "read the end of the frontier of session " + id.String()
	if err := ctx.Err(); err != nil {
		return end, older, s.failed(ctx, what, err)
	}
	// It is as short as tokens say: to watch ctx would cost more.
	ctx = context.WithoutCancel(ctx)
	era := s.tails.now()
	keep := func(number, messages int64, items []memory.Item) {
		s.tails.put(id, tail{user, number, messages, items}, era)
	}
	err = s.reading(ctx, what, func(tx *sql.Tx) error {
		var number, messages int64
		if err := tx.StmtContext(ctx, s.showing.shown).QueryRowContext(ctx, blob(id), blob(user)).Scan(&number, &older.Items, &older.Tokens, &messages); err != nil {
			return found(err)
		}
		end.Revision = memory.NewRevision(id, number)
		if kept, ok := s.tails.get(id, user, number, messages); ok {
			if kept.messages < messages {
				fresh, err := s.shownBetween(ctx, tx, user, id, kept.messages+1, math.MaxInt64, int(messages-kept.messages))
				if err != nil {
					return err
				}
				kept.items = append(slices.Clip(kept.items), fresh...)
			}
			if start, from, ok := tailStart(kept.items, tokens, len(kept.items) == older.Items); ok {
				end.Items = own(kept.items[start:])
				keep(number, messages, trimmed(kept.items, from))
				return nil
			}
		}
		// Of most conversations everything is asked for.
		from, all := int64(0), older.Items
		if tokens <= 0 || tokens < older.Tokens {
			if from, err = s.tailFrom(ctx, tx, user, id, tokens); err != nil {
				return err
			}
			all = math.MaxInt
		}
		items, err := s.shownBetween(ctx, tx, user, id, from, math.MaxInt64, all)
		if err != nil {
			return err
		}
		reach := 0
		start, open := memory.TailStart(items, reach)
		for open && reach < memory.MaxTailReach {
			var before int64
			if err := tx.StmtContext(ctx, s.showing.shownBefore).QueryRowContext(ctx, blob(id), blob(user), from, tailStep).Scan(&before); err != nil {
				return err
			}
			earlier, err := s.shownBetween(ctx, tx, user, id, before, from, math.MaxInt)
			if err != nil {
				return err
			}
			if len(earlier) == 0 {
				break
			}
			items, from, reach = append(earlier, items...), before, reach+len(earlier)
			start, open = memory.TailStart(items, reach)
		}
		end.Items = items[start:]
		if s.tails.keeps(items) {
			end.Items = own(end.Items)
			keep(number, messages, items)
		}
		return nil
	})
	if err != nil {
		return memory.Frontier{}, memory.FrontierRest{}, err
	}
	older.Items -= len(end.Items)
	older.Tokens -= end.Tokens()
	return end, older, nil
}

// tailStep is how many items are read at once to find a call: few stand far from
// their results.
const tailStep = memory.MaxTailReach / 8

// tailFrom returns the ordinal of the first of the last items that have so many
// tokens together.
func (s *Store) tailFrom(ctx context.Context, tx *sql.Tx, user memory.UserID, id memory.SessionID, tokens int) (from int64, err error) {
	if tokens <= 0 {
		return math.MaxInt64, nil
	}
	// SQLite finds the rows one by one: those that are not asked for cost nothing.
	rows, err := tx.StmtContext(ctx, s.showing.shownTokens).QueryContext(ctx, blob(id), blob(user))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for tokens > 0 && rows.Next() {
		cost := 0
		if err := rows.Scan(&from, &cost); err != nil {
			return 0, err
		}
		tokens -= cost
	}
	return from, rows.Err()
}

// scanSummary reads summaryColumns after what before is for.
func scanSummary(r row, before ...any) (v memory.Summary, err error) {
	var external []byte
	if err := r.Scan(append(before, into(&v.ID), into(&v.Session), &v.Depth, &v.Text, &external, &v.Tokens, instant{&v.Earliest}, instant{&v.Latest},
		&v.Descendants, &v.Trust, &v.Level, &v.Model, instant{&v.CreatedAt})...); err != nil {
		return memory.Summary{}, err
	}
	if external != nil {
		if err := json.Unmarshal(external, &v.External); err != nil {
			return memory.Summary{}, fmt.Errorf("summary %s as stored: %w", v.ID, err)
		}
	}
	return v, nil
}

// CommitSummary implements memory.Store. One transaction writes the summary,
// its sources and the frontier: a crash leaves the frontier as it was or as it
// is to be.
func (s *Store) CommitSummary(ctx context.Context, user memory.UserID, r memory.Revision, n memory.NewSummary) (v memory.Summary, err error) {
	what := "commit summary in session " + r.Session().String()
	if n.ID.IsZero() || n.At.IsZero() || (len(n.Messages) == 0) == (len(n.Summaries) == 0) {
		return v, fmt.Errorf("%s: it needs an id, a time, and messages or summaries: %w", what, memory.ErrInvalid)
	}
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.unchanged(ctx, tx, user, r); err != nil {
			return err
		}
		v, err = s.commit(ctx, tx, user, r.Session(), n)
		return err
	})
	if err != nil {
		return memory.Summary{}, err
	}
	return v, nil
}

// unchanged returns memory.ErrConflict unless the frontier is the one that was
// read.
func (s *Store) unchanged(ctx context.Context, tx *sql.Tx, user memory.UserID, r memory.Revision) error {
	if _, err := s.position(ctx, tx, user, r.Session()); err != nil {
		return err
	}
	var number int64
	if err := tx.QueryRowContext(ctx, "SELECT revision FROM sessions WHERE id = ?", blob(r.Session())).Scan(&number); err != nil {
		return err
	}
	if number != r.Number() {
		return fmt.Errorf("the frontier has revision %d, %d was read: %w", number, r.Number(), memory.ErrConflict)
	}
	return nil
}

func (s *Store) commit(ctx context.Context, tx *sql.Tx, user memory.UserID, session memory.SessionID, n memory.NewSummary) (memory.Summary, error) {
	taken := false
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM summaries WHERE id = ?)", blob(n.ID)).Scan(&taken); err != nil {
		return memory.Summary{}, err
	}
	if taken {
		return memory.Summary{}, fmt.Errorf("the summary's id is taken: %w", memory.ErrConflict)
	}
	found, err := findRun(ctx, tx, session, n)
	if err != nil {
		return memory.Summary{}, err
	}
	v := memory.Summary{
		ID: n.ID, Session: session, Depth: found.depth, Text: valid(n.Text), External: n.External,
		Earliest: fromMicros(found.earliest), Latest: fromMicros(found.latest), Descendants: found.descendants,
		Trust: found.trust, Level: n.Level, Model: valid(n.Model), CreatedAt: fromMicros(micros(n.At)),
	}
	if !v.External.IsEmpty() {
		v.Trust = memory.TrustExternal
	}
	v.Tokens = tokens.Estimate(v.Shown())
	return v, replaceRun(ctx, tx, user, v, found)
}

// run is a stretch of the frontier: messages alone, or summaries of one depth.
type run struct {
	first, last      int64 // ordinals
	earliest, latest int64 // microseconds
	// depth is that of the summary which is to stand for it.
	depth, descendants int
	trust              memory.Trust
	// items and tokens are what it takes in the frontier.
	items, tokens int
}

// place is one item of the frontier.
type place struct {
	ordinal          int64
	message          memory.MessageID
	summary          memory.SummaryID
	earliest, latest int64
	// depth is -1 for a message.
	depth, descendants int
	trust              memory.Trust
	tokens             int
}

// findRun returns where the sources are if they are neighbours in the frontier,
// in this order.
func findRun(ctx context.Context, tx *sql.Tx, session memory.SessionID, n memory.NewSummary) (run, error) {
	count := len(n.Messages) + len(n.Summaries)
	start, first := "(SELECT seq FROM messages WHERE id = ?2 AND session_id = ?1)", []byte(nil)
	if len(n.Messages) > 0 {
		first = blob(n.Messages[0])
	} else {
		start, first = "(SELECT ordinal FROM frontier WHERE session_id = ?1 AND summary_id = ?2)", blob(n.Summaries[0])
	}
	rows, err := tx.QueryContext(ctx, `SELECT f.ordinal, f.message_id, f.summary_id, coalesce(v.earliest_at, m.created_at), coalesce(v.latest_at, m.created_at),
		coalesce(v.depth, -1), coalesce(v.descendants, 1), coalesce(v.trust, m.trust),
		coalesce(v.tokens, m.tokens) FROM frontier f LEFT JOIN messages m ON m.id = f.message_id LEFT JOIN summaries v ON v.id = f.summary_id
		WHERE f.session_id = ?1 AND f.ordinal >= `+start+` ORDER BY f.ordinal LIMIT ?3 + 0`, blob(session), first, count)
	places, err := all(rows, err, func(r row) (p place, err error) {
		return p, r.Scan(&p.ordinal, into(&p.message), into(&p.summary), &p.earliest, &p.latest, &p.depth, &p.descendants, &p.trust, &p.tokens)
	})
	if err != nil {
		return run{}, err
	}
	isMessage := func(p place, id memory.MessageID) bool { return p.message == id && !id.IsZero() }
	isSummary := func(p place, id memory.SummaryID) bool {
		return p.summary == id && !id.IsZero() && p.depth == places[0].depth
	}
	if len(n.Messages) > 0 && !slices.EqualFunc(places, n.Messages, isMessage) || len(n.Summaries) > 0 && !slices.EqualFunc(places, n.Summaries, isSummary) {
		return run{}, fmt.Errorf("the sources are not neighbours of one depth in the frontier: %w", memory.ErrInvalid)
	}
	found := run{first: places[0].ordinal, last: places[len(places)-1].ordinal, depth: places[0].depth + 1,
		earliest: places[0].earliest, latest: places[0].latest, trust: memory.TrustDirect, items: len(places)}
	for _, p := range places {
		found.earliest, found.latest = min(found.earliest, p.earliest), max(found.latest, p.latest)
		found.descendants += p.descendants
		found.tokens += p.tokens
		found.trust = found.trust.Least(p.trust)
	}
	return found, nil
}

// externalColumn is a content as it is stored.
func externalColumn(v memory.Summary) (any, error) {
	if v.External.IsEmpty() {
		return nil, nil
	}
	encoded, err := json.Marshal(v.External)
	return string(encoded), err
}

func replaceRun(ctx context.Context, tx *sql.Tx, user memory.UserID, v memory.Summary, r run) error {
	external, err := externalColumn(v)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		statement string
		arguments []any
	}{
		{"INSERT INTO summaries (id, session_id, depth, text, external, tokens, earliest_at, latest_at, descendants, trust, level, model, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			[]any{blob(v.ID), blob(v.Session), v.Depth, v.Text, external, v.Tokens, micros(v.Earliest), micros(v.Latest), v.Descendants,
				string(v.Trust), string(v.Level), v.Model, micros(v.CreatedAt)}},
		{"INSERT INTO summary_sources (summary_id, ordinal, message_id, source_summary_id) SELECT ?2, ordinal, message_id, summary_id FROM frontier WHERE session_id = ?1 AND ordinal BETWEEN ?3 AND ?4",
			[]any{blob(v.Session), blob(v.ID), r.first, r.last}},
		{"DELETE FROM frontier WHERE session_id = ?1 AND ordinal BETWEEN ?2 AND ?3",
			[]any{blob(v.Session), r.first, r.last}},
		{"INSERT INTO frontier (session_id, ordinal, summary_id) VALUES (?1, ?2, ?3)",
			[]any{blob(v.Session), r.first, blob(v.ID)}},
		{"UPDATE sessions SET revision = revision + 1, shown_items = shown_items + ?3, shown_tokens = shown_tokens + ?4 WHERE id = ?1 AND user_id = ?2",
			[]any{blob(v.Session), blob(user), 1 - r.items, v.Tokens - r.tokens}},
	} {
		if _, err := tx.ExecContext(ctx, step.statement, step.arguments...); err != nil {
			return err
		}
	}
	return nil
}

// RepairSummary implements memory.Store.
func (s *Store) RepairSummary(ctx context.Context, user memory.UserID, r memory.Revision, id memory.SummaryID, text memory.SummaryText) (v memory.Summary, err error) {
	what := "repair summary " + id.String()
	if text.Level == memory.LevelFallback || text.Level == "" {
		return v, fmt.Errorf("%s: a text of level %q repairs nothing: %w", what, text.Level, memory.ErrInvalid)
	}
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.unchanged(ctx, tx, user, r); err != nil {
			return err
		}
		v, err = scanSummary(tx.QueryRowContext(ctx, "SELECT "+summaryColumns+" FROM summaries v WHERE v.id = ? AND v.session_id = ?", blob(id), blob(r.Session())))
		switch {
		case err != nil:
			return found(err)
		case v.Level != memory.LevelFallback:
			return fmt.Errorf("its level is %s: %w", v.Level, memory.ErrConflict)
		}
		before := v.Tokens
		v.Text, v.External, v.Level, v.Model = valid(text.Text), text.External, text.Level, valid(text.Model)
		if !v.External.IsEmpty() {
			v.Trust = memory.TrustExternal
		}
		v.Tokens = tokens.Estimate(v.Shown())
		external, err := externalColumn(v)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE summaries SET text = ?, external = ?, trust = ?, level = ?, model = ?, tokens = ? WHERE id = ?",
			v.Text, external, string(v.Trust), string(v.Level), v.Model, v.Tokens, blob(v.ID)); err != nil {
			return err
		}
		// One that was condensed is not in the frontier. Where it would be, its first
		// source was.
		if _, err = tx.ExecContext(ctx, `UPDATE sessions SET revision = revision + 1, shown_tokens = shown_tokens + ?3 * (SELECT count(*) FROM frontier
			WHERE session_id = ?1 AND summary_id = ?2 AND ordinal = (SELECT min(ordinal) FROM summary_sources WHERE summary_id = ?2)) WHERE id = ?1`,
			blob(v.Session), blob(v.ID), v.Tokens-before); err != nil {
			return err
		}
		return rebuildIndex(ctx, tx, user, ofSummaries)
	})
	if err != nil {
		return memory.Summary{}, err
	}
	return v, nil
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

// Summary implements memory.Store.
func (s *Store) Summary(ctx context.Context, user memory.UserID, id memory.SummaryID) (v memory.Summary, parent memory.SummaryID, err error) {
	err = s.reading(ctx, "read summary "+id.String(), func(tx *sql.Tx) error {
		v, err = scanSummary(tx.QueryRowContext(ctx, "SELECT (SELECT o.summary_id FROM summary_sources o WHERE o.source_summary_id = v.id), "+summaryColumns+
			" FROM summaries v WHERE v.id = "+ownSummary, blob(id), blob(user)), into(&parent))
		return found(err)
	})
	return v, parent, err
}

// Sources implements memory.Store.
func (s *Store) Sources(ctx context.Context, user memory.UserID, id memory.SummaryID) (items []memory.Item, err error) {
	err = s.reading(ctx, "read sources of summary "+id.String(), func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectMessages+" JOIN summary_sources o ON o.message_id = m.id WHERE o.summary_id = "+ownSummary+" ORDER BY o.ordinal", blob(id), blob(user))
		messages, err := all(rows, err, scanMessage)
		if err != nil {
			return err
		}
		for i := range messages {
			items = append(items, memory.Item{Message: &messages[i]})
		}
		rows, err = tx.QueryContext(ctx, "SELECT "+summaryColumns+" FROM summaries v JOIN summary_sources o ON o.source_summary_id = v.id WHERE o.summary_id = "+
			ownSummary+" ORDER BY o.ordinal", blob(id), blob(user))
		summaries, err := all(rows, err, func(r row) (memory.Summary, error) { return scanSummary(r) })
		if err != nil {
			return err
		}
		for i := range summaries {
			items = append(items, memory.Item{Summary: &summaries[i]})
		}
		// There is no summary of nothing.
		if len(items) == 0 {
			return memory.ErrNotFound
		}
		return nil
	})
	return items, err
}

// Expand implements memory.Store.
func (s *Store) Expand(ctx context.Context, user memory.UserID, id memory.SummaryID, q memory.MessageQuery) (messages []memory.Message, err error) {
	err = s.reading(ctx, "expand summary "+id.String(), func(tx *sql.Tx) error {
		exists := false
		if err := tx.QueryRowContext(ctx, "SELECT "+ownSummary+" IS NOT NULL", blob(id), blob(user)).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return memory.ErrNotFound
		}
		// CROSS JOIN begins with the summary: the planner would begin with the
		// sources of all summaries of everybody.
		rows, err := tx.QueryContext(ctx, `WITH RECURSIVE below (id) AS (SELECT `+ownSummary+` UNION ALL SELECT o.source_summary_id FROM below JOIN summary_sources o ON o.summary_id = below.id WHERE o.source_summary_id IS NOT NULL) `+
			selectMessages+` WHERE m.id IN (SELECT o.message_id FROM below CROSS JOIN summary_sources o ON o.summary_id = below.id WHERE o.message_id IS NOT NULL) AND m.seq > ?3 ORDER BY m.seq LIMIT ?4 + 0`,
			blob(id), blob(user), q.After, limit(q.Limit))
		messages, err = all(rows, err, scanMessage)
		return err
	})
	return messages, err
}
