package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Topics implements memory.Store.
func (s *Store) Topics(ctx context.Context, user memory.UserID, q memory.TopicQuery) (topics []memory.Topic, r memory.TopicRevision, err error) {
	// What is in no form has no rows.
	name, unnamed := "", error(nil)
	if q.Name != "" {
		name, unnamed = memory.TopicName(q.Name)
	}
	err = s.reading(ctx, "read topics of user "+user.String(), func(tx *sql.Tx) error {
		var number int64
		if err := tx.QueryRowContext(ctx, "SELECT memory_revision FROM users WHERE id = ?", blob(user)).Scan(&number); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		r = memory.NewTopicRevision(user, number)
		if unnamed != nil {
			return nil
		}
		selected := `SELECT t.id, t.agent_id, t.name, t.content, t.valid_from, t.expires_at, t.superseded_by, n.valid_from, t.updated_at
			FROM topics t LEFT JOIN topics n ON n.id = t.superseded_by
			WHERE t.user_id = ?1 AND t.agent_id IS ?2 AND (?3 = '' OR t.name = ?3)
			AND (?4 IS NULL OR t.valid_from <= ?4 AND (t.expires_at IS NULL OR t.expires_at > ?4) AND (t.superseded_by IS NULL OR n.valid_from > ?4))`
		arguments := []any{blob(user), blob(q.Agent), name, moment(q.At), limit(q.Limit)}
		of := selected
		if q.Names > 0 {
			// The names come in the order of the index: it is read as far as the page goes.
			of += " AND t.name IN (SELECT p.name FROM (" + selected + ") p GROUP BY p.name ORDER BY p.name LIMIT ?6 + 0 OFFSET ?7 + 0)"
			arguments = append(arguments, q.Names, max(q.SkipNames, 0))
		}
		if q.Latest > 0 {
			of += fmt.Sprintf(" AND t.id IN (SELECT l.id FROM (%s) l ORDER BY l.valid_from DESC, l.id DESC LIMIT ?%d + 0)", of, len(arguments)+1)
			arguments = append(arguments, q.Latest)
		}
		rows, err := tx.QueryContext(ctx, of+" ORDER BY t.name, t.valid_from, t.id LIMIT ?5 + 0", arguments...)
		if topics, err = all(rows, err, scanTopic); err != nil || len(topics) == 0 || q.Latest > 0 || q.Names > 0 {
			return err
		}
		sources, err := sourcesOf(ctx, tx, "SELECT id FROM topics WHERE user_id = ?1 AND agent_id IS ?2 AND (?3 = '' OR name = ?3)", blob(user), blob(q.Agent), name)
		for i := range topics {
			topics[i].Sources = sources[topics[i].ID]
		}
		return err
	})
	if err != nil {
		return nil, memory.TopicRevision{}, err
	}
	return topics, r, nil
}

func scanTopic(r row) (t memory.Topic, err error) {
	return t, r.Scan(into(&t.ID), into(&t.Agent), &t.Name, &t.Content, instant{&t.ValidFrom}, optional{&t.ExpiresAt}, into(&t.SupersededBy), optional{&t.SupersededAt}, instant{&t.UpdatedAt})
}

// sourcesOf returns the sources of topics, which a statement selects by their ids.
func sourcesOf(ctx context.Context, tx *sql.Tx, topics string, arguments ...any) (map[memory.TopicID][]memory.MessageID, error) {
	type source struct {
		topic   memory.TopicID
		message memory.MessageID
	}
	rows, err := tx.QueryContext(ctx, "SELECT topic_id, message_id FROM topic_sources WHERE topic_id IN ("+topics+") ORDER BY topic_id, message_id", arguments...)
	list, err := all(rows, err, func(r row) (o source, err error) { return o, r.Scan(into(&o.topic), into(&o.message)) })
	sources := map[memory.TopicID][]memory.MessageID{}
	for _, o := range list {
		sources[o.topic] = append(sources[o.topic], o.message)
	}
	return sources, err
}

// topicWriter changes the topics of one user in one transaction.
type topicWriter struct {
	tx   *sql.Tx
	user memory.UserID
	// at is when it happens.
	at time.Time
	// merged are the extractions of the dream, and cited what they name: read when
	// the first source is met that is not there.
	merged []memory.ExtractionID
	cited  map[memory.MessageID]bool
	// due are the sessions from which there may be more or less to learn now.
	due map[memory.SessionID]bool
}

// begin returns memory.ErrConflict if the topics are not those that were read at r,
// unless that is the zero revision.
func (w *topicWriter) begin(ctx context.Context, r memory.TopicRevision) error {
	if err := notWiped(ctx, w.tx, w.user); err != nil {
		return err
	}
	var number int64
	if err := w.tx.QueryRowContext(ctx, "SELECT memory_revision FROM users WHERE id = ?", blob(w.user)).Scan(&number); err != nil {
		return found(err)
	}
	if r != (memory.TopicRevision{}) && number != r.Number() {
		return fmt.Errorf("the topics are not those that were read: %w", memory.ErrConflict)
	}
	return nil
}

// end makes what was read before out of date, and says from which sessions there
// is something to learn.
func (w *topicWriter) end(ctx context.Context, changed bool) error {
	if changed {
		if err := revise(ctx, w.tx, w.user); err != nil {
			return err
		}
	}
	return settleAll(ctx, w.tx, w.due)
}

// revise gives the user's topics another revision.
func revise(ctx context.Context, tx *sql.Tx, user memory.UserID) error {
	_, err := tx.ExecContext(ctx, "UPDATE users SET memory_revision = memory_revision + 1 WHERE id = ?", blob(user))
	return err
}

func agentExists(ctx context.Context, tx *sql.Tx, agent memory.AgentID) error {
	exists := false
	err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM agents WHERE id = ?)", blob(agent)).Scan(&exists)
	if err == nil && !exists {
		err = fmt.Errorf("agent %s: %w", agent, memory.ErrNotFound)
	}
	return err
}

// put stores one topic of the user with the agent, or, if that is zero, with every
// agent.
func (w *topicWriter) put(ctx context.Context, agent memory.AgentID, n memory.NewTopic) (memory.Topic, error) {
	t := memory.Topic{
		ID: memory.NewID[memory.TopicID](), Agent: agent, Name: n.Name, Content: n.Content,
		ValidFrom: fromMicros(micros(n.ValidFrom)), UpdatedAt: fromMicros(micros(w.at)), Sources: slices.Clone(n.Sources),
	}
	if !n.ExpiresAt.IsZero() {
		t.ExpiresAt = fromMicros(micros(n.ExpiresAt))
	}
	slices.SortFunc(t.Sources, func(a, b memory.MessageID) int { return bytes.Compare(a[:], b[:]) })
	if _, err := w.tx.ExecContext(ctx, "INSERT INTO topics (id, user_id, agent_id, name, content, valid_from, expires_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		blob(t.ID), blob(w.user), blob(agent), t.Name, t.Content, micros(t.ValidFrom), moment(t.ExpiresAt), micros(t.UpdatedAt)); err != nil {
		return t, err
	}
	for _, id := range t.Sources {
		if err := w.source(ctx, id); err != nil {
			return t, fmt.Errorf("topic %q: %w", n.Name, err)
		}
		if _, err := w.tx.ExecContext(ctx, "INSERT INTO topic_sources (topic_id, message_id) VALUES (?, ?)", blob(t.ID), blob(id)); err != nil {
			return t, err
		}
	}
	return t, nil
}

// source returns memory.ErrInvalid unless the message is the user's own words, or
// was when something was learned from it and has gone since.
func (w *topicWriter) source(ctx context.Context, id memory.MessageID) error {
	var source memory.Source
	err := w.tx.QueryRowContext(ctx, "SELECT m.source FROM messages m JOIN sessions s ON s.id = m.session_id WHERE m.id = ? AND s.user_id = ?", blob(id), blob(w.user)).Scan(&source)
	switch {
	case err == nil && source == memory.SourceUser:
		return nil
	case err == nil:
		return fmt.Errorf("message %s is not the user's: %w", id, memory.ErrInvalid)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	if w.cited == nil {
		w.cited = map[memory.MessageID]bool{}
		for _, x := range w.merged {
			var l memory.Learnings
			if err := w.tx.QueryRowContext(ctx, "SELECT "+itemColumns+" FROM session_extractions x WHERE x.id = ?", blob(x)).Scan(scanItems(&l)...); err != nil {
				return err
			}
			learned(l, func(item *memory.Learned) {
				for _, m := range item.Sources {
					w.cited[m] = true
				}
			})
		}
	}
	if w.cited[id] {
		return nil
	}
	known := false
	if err := w.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM topics t JOIN topic_sources o ON o.topic_id = t.id WHERE t.user_id = ? AND o.message_id = ?)", blob(w.user), blob(id)).Scan(&known); err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("message %s is not the user's: %w", id, memory.ErrInvalid)
	}
	return nil
}

// retire lets something take the place of a topic, unless something else has.
func (w *topicWriter) retire(ctx context.Context, old, by memory.TopicID) error {
	_, err := w.tx.ExecContext(ctx, "UPDATE topics SET superseded_by = ? WHERE id = ? AND user_id = ? AND superseded_by IS NULL", blob(by), blob(old), blob(w.user))
	return err
}

// supersede lets another topic take the place of one, both in reach of the dream of
// an agent.
func (w *topicWriter) supersede(ctx context.Context, agent memory.AgentID, old, by memory.TopicID) error {
	if old == by {
		return fmt.Errorf("topic %s by itself: %w", old, memory.ErrNotFound)
	}
	if err := w.reaches(ctx, agent, old); err != nil {
		return err
	}
	return w.retire(ctx, old, by)
}

// reaches returns memory.ErrNotFound unless the topic is the user's, with the agent
// or with all.
func (w *topicWriter) reaches(ctx context.Context, agent memory.AgentID, id memory.TopicID) error {
	known := false
	if err := w.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM topics WHERE id = ? AND user_id = ? AND (agent_id IS NULL OR agent_id = ?))", blob(id), blob(w.user), blob(agent)).Scan(&known); err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("topic %s: %w", id, memory.ErrNotFound)
	}
	return nil
}

// forgetSources has it that nothing is learned again from what the topics were
// learned from, and returns those messages, be they there or not.
func (w *topicWriter) forgetSources(ctx context.Context, topics []memory.TopicID) (map[memory.MessageID]bool, error) {
	forgotten := map[memory.MessageID]bool{}
	for _, topic := range topics {
		sources, err := sourcesOf(ctx, w.tx, "SELECT ?", blob(topic))
		if err != nil {
			return nil, err
		}
		for _, id := range sources[topic] {
			if forgotten[id] {
				continue
			}
			forgotten[id] = true
			var session memory.SessionID
			var seq int64
			err := w.tx.QueryRowContext(ctx, "SELECT m.session_id, m.seq FROM messages m JOIN sessions s ON s.id = m.session_id WHERE m.id = ? AND s.user_id = ?", blob(id), blob(w.user)).Scan(into(&session), &seq)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			} else if err != nil {
				return nil, err
			}
			if _, err := lookAgain(ctx, w.tx, session, memory.SeqRange{First: seq, Last: seq}); err != nil {
				return nil, err
			}
			w.due[session] = true
		}
	}
	return forgotten, nil
}

// CommitDream implements memory.Store.
func (s *Store) CommitDream(ctx context.Context, user memory.UserID, r memory.TopicRevision, d memory.Dream) ([]memory.Topic, error) {
	what := "commit a dream of user " + user.String()
	topics := make([]memory.NewTopic, len(d.Topics))
	err := checkTime("the time of a dream", d.At)
	for i := 0; i < len(topics) && err == nil; i++ {
		topics[i], err = d.Topics[i].Canonical(d.At)
	}
	switch {
	case err != nil:
	case r.User() != user:
		err = fmt.Errorf("the revision is that of another user: %w", memory.ErrInvalid)
	case len(d.Seen) > 0 && d.Session.IsZero():
		err = fmt.Errorf("messages that were looked at are of a session: %w", memory.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	stored := make([]memory.Topic, len(topics))
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		w := &topicWriter{tx: tx, user: user, at: d.At, merged: slices.Clone(d.Extractions), due: map[memory.SessionID]bool{}}
		if err := w.begin(ctx, r); err != nil {
			return err
		}
		if err := agentExists(ctx, tx, d.Agent); err != nil {
			return err
		}
		if err := w.merge(ctx, d); err != nil {
			return err
		}
		for i, n := range topics {
			agent := d.Agent
			if !n.OfAgent {
				agent = memory.AgentID{}
			}
			var err error
			if stored[i], err = w.put(ctx, agent, n); err != nil {
				return err
			}
			for _, old := range n.Supersedes {
				if err := w.supersede(ctx, d.Agent, old, stored[i].ID); err != nil {
					return fmt.Errorf("what topic %q supersedes: %w", n.Name, err)
				}
			}
		}
		for _, r := range d.Retired {
			if err := w.reaches(ctx, d.Agent, r.By); err != nil {
				return err
			}
			if err := w.supersede(ctx, d.Agent, r.Topic, r.By); err != nil {
				return err
			}
		}
		return w.end(ctx, len(topics)+len(d.Retired) > 0)
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// merge records which extractions were merged and what was looked at beside them,
// for each the first and only time.
func (w *topicWriter) merge(ctx context.Context, d memory.Dream) error {
	slices.SortFunc(w.merged, func(a, b memory.ExtractionID) int { return bytes.Compare(a[:], b[:]) })
	w.merged = slices.Compact(w.merged)
	for _, id := range w.merged {
		var session memory.SessionID
		var merged sql.NullInt64
		if err := w.tx.QueryRowContext(ctx, "SELECT session_id, merged_at FROM session_extractions WHERE id = ? AND user_id = ? AND agent_id = ?", blob(id), blob(w.user), blob(d.Agent)).
			Scan(into(&session), &merged); err != nil {
			return fmt.Errorf("extraction %s: %w", id, found(err))
		}
		if merged.Valid {
			return fmt.Errorf("extraction %s was merged: %w", id, memory.ErrConflict)
		}
		if _, err := w.tx.ExecContext(ctx, "UPDATE session_extractions SET merged_at = ? WHERE id = ?", micros(d.At), blob(id)); err != nil {
			return err
		}
		w.due[session] = true
	}
	if d.Session.IsZero() {
		return nil
	}
	var messages int64
	if err := w.tx.QueryRowContext(ctx, "SELECT messages FROM sessions WHERE id = ? AND user_id = ? AND agent_id = ?", blob(d.Session), blob(w.user), blob(d.Agent)).Scan(&messages); err != nil {
		return fmt.Errorf("session %s: %w", d.Session, found(err))
	}
	w.due[d.Session] = true
	return look(ctx, w.tx, d.Session, messages, d.Seen)
}

// PutTopic implements memory.Store.
func (s *Store) PutTopic(ctx context.Context, user memory.UserID, agent memory.AgentID, r memory.TopicRevision, n memory.NewTopic, at time.Time) (t memory.Topic, err error) {
	what := "put a topic of user " + user.String()
	err = checkTime("the time of a topic", at)
	if err == nil {
		n, err = n.Canonical(at)
	}
	if err == nil && r != (memory.TopicRevision{}) && r.User() != user {
		err = fmt.Errorf("the revision is that of another user: %w", memory.ErrInvalid)
	}
	if err != nil {
		return memory.Topic{}, fmt.Errorf("%s: %w", what, err)
	}
	err = s.writingBeside(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		w := &topicWriter{tx: tx, user: user, at: at, due: map[memory.SessionID]bool{}}
		if err := w.begin(ctx, r); err != nil {
			return err
		}
		if !agent.IsZero() {
			if err := agentExists(ctx, tx, agent); err != nil {
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, "SELECT id FROM topics WHERE user_id = ? AND agent_id IS ? AND name = ? AND superseded_by IS NULL AND (expires_at IS NULL OR expires_at > ?)",
			blob(user), blob(agent), n.Name, micros(at))
		valid, err := all(rows, err, func(r row) (id memory.TopicID, err error) { return id, r.Scan(into(&id)) })
		if err != nil {
			return err
		}
		if _, err := w.forgetSources(ctx, valid); err != nil {
			return err
		}
		if t, err = w.put(ctx, agent, n); err != nil {
			return err
		}
		for _, old := range valid {
			if err := w.retire(ctx, old, t.ID); err != nil {
				return err
			}
		}
		return w.end(ctx, true)
	})
	if err != nil {
		return memory.Topic{}, err
	}
	return t, nil
}

// withHistory selects the ids of topics of user ?1, which the condition selects,
// and of those whose place they took.
func withHistory(condition string) string {
	return `WITH RECURSIVE gone (id) AS (SELECT id FROM topics WHERE user_id = ?1 AND ` + condition + `
		UNION SELECT t.id FROM topics t JOIN gone g ON t.superseded_by = g.id WHERE t.user_id = ?1) SELECT id FROM gone`
}

// dropTopics removes topics and the record of what they were learned from. They
// refer to one another: it is for unenforced.
func dropTopics(ctx context.Context, tx *sql.Tx, topics []memory.TopicID, counts *memory.WipeCounts) error {
	for _, id := range topics {
		if _, err := tx.ExecContext(ctx, "DELETE FROM topic_sources WHERE topic_id = ?", blob(id)); err != nil {
			return err
		}
		var agent memory.AgentID
		if err := tx.QueryRowContext(ctx, "DELETE FROM topics WHERE id = ? RETURNING agent_id", blob(id)).Scan(into(&agent)); err != nil {
			return err
		}
		if agent.IsZero() {
			counts.Topics++
		} else {
			counts.AgentTopics++
		}
	}
	if len(topics) == 0 {
		return nil
	}
	return scrubLater(ctx, tx)
}

// DeleteTopic implements memory.Store.
func (s *Store) DeleteTopic(ctx context.Context, user memory.UserID, agent memory.AgentID, name string) (int, error) {
	what := "delete a topic of user " + user.String()
	canonical, err := memory.TopicName(name)
	if err != nil {
		return 0, fmt.Errorf("%s: no topic has such a name: %w", what, memory.ErrNotFound)
	}
	var counts memory.WipeCounts
	err = s.unenforced(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, withHistory("agent_id IS ?2 AND name = ?3"), blob(user), blob(agent), canonical)
		topics, err := all(rows, err, func(r row) (id memory.TopicID, err error) { return id, r.Scan(into(&id)) })
		if err != nil {
			return err
		}
		if len(topics) == 0 {
			return memory.ErrNotFound
		}
		w := &topicWriter{tx: tx, user: user, due: map[memory.SessionID]bool{}}
		sources, err := w.forgetSources(ctx, topics)
		if err != nil {
			return err
		}
		said := map[string]bool{}
		for _, id := range topics {
			var content string
			if err := tx.QueryRowContext(ctx, "SELECT content FROM topics WHERE id = ?", blob(id)).Scan(&content); err != nil {
				return err
			}
			said[folded(content)] = true
		}
		if err := dropTopics(ctx, tx, topics, &counts); err != nil {
			return err
		}
		if err := w.blank(ctx, sources, said); err != nil {
			return err
		}
		return w.end(ctx, true)
	})
	if err != nil {
		return 0, err
	}
	return counts.Topics + counts.AgentTopics, nil
}

// folded is a text without what makes no difference to what it says: its case, its
// spaces, and the full stop that one writes and another does not.
func folded(text string) string {
	return strings.TrimRight(strings.Join(strings.Fields(strings.ToLower(text)), " "), ".!。 ")
}

// blank removes what was learned from messages out of the extractions, and what
// says the same as that or as the texts, which are folded: who says a thing twice
// has it extracted twice, and remembered once.
func (w *topicWriter) blank(ctx context.Context, messages map[memory.MessageID]bool, texts map[string]bool) error {
	cites := func(item memory.Learned) bool {
		return slices.ContainsFunc(item.Sources, func(m memory.MessageID) bool { return messages[m] })
	}
	if err := w.eachExtraction(ctx, func(x memory.Extraction) {
		learned(x.Learnings, func(item *memory.Learned) {
			if cites(*item) {
				texts[folded(item.Text)] = true
			}
		})
	}); err != nil {
		return err
	}
	var wrong []memory.Extraction
	if err := w.eachExtraction(ctx, func(x memory.Extraction) {
		changed := false
		learned(x.Learnings, func(item *memory.Learned) {
			if item.Text != "" && (cites(*item) || texts[folded(item.Text)]) {
				*item = memory.Learned{}
				changed = true
			}
		})
		if changed {
			wrong = append(wrong, x)
		}
	}); err != nil {
		return err
	}
	for _, x := range wrong {
		if x.MergedAt.IsZero() && isBlank(x.Learnings) {
			x.MergedAt = x.CreatedAt
			w.due[x.Session] = true
		}
		lists, err := encodeLearnings(x.Learnings)
		if err != nil {
			return err
		}
		if _, err := w.tx.ExecContext(ctx, "UPDATE session_extractions SET merged_at = ?, facts = ?, preferences = ?, decisions = ?, tasks = ?, open_items = ? WHERE id = ?",
			append(append([]any{moment(x.MergedAt)}, lists...), blob(x.ID))...); err != nil {
			return err
		}
	}
	return nil
}

// eachExtraction calls f for the user's extractions, without their agents.
func (w *topicWriter) eachExtraction(ctx context.Context, f func(memory.Extraction)) error {
	rows, err := w.tx.QueryContext(ctx, "SELECT x.id, x.session_id, x.created_at, x.merged_at, "+itemColumns+" FROM session_extractions x WHERE x.user_id = ?", blob(w.user))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var x memory.Extraction
		if err := rows.Scan(append([]any{into(&x.ID), into(&x.Session), instant{&x.CreatedAt}, optional{&x.MergedAt}}, scanItems(&x.Learnings)...)...); err != nil {
			return err
		}
		f(x)
	}
	return errors.Join(rows.Err(), rows.Close())
}

// canonicalTopics gives names and contents of topics the form that they must have.
func canonicalTopics(ctx context.Context, tx *sql.Tx) error {
	type unformed struct {
		id            memory.TopicID
		name, content string
	}
	var list []unformed
	if err := eachUnformed(ctx, tx, func(id memory.TopicID, name, content string) {
		list = append(list, unformed{id, name, content})
	}); err != nil {
		return err
	}
	for _, t := range list {
		if _, err := tx.ExecContext(ctx, "UPDATE topics SET name = ?, content = ? WHERE id = ?", t.name, t.content, blob(t.id)); err != nil {
			return err
		}
	}
	return nil
}

// eachUnformed calls f for the topics whose name or content is not in the form
// that it must have, with that form. What is too long is cut, and what is nothing
// gets a name.
func eachUnformed(ctx context.Context, tx *sql.Tx, f func(id memory.TopicID, name, content string)) error {
	rows, err := tx.QueryContext(ctx, "SELECT id, name, content FROM topics ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id memory.TopicID
		var name, content string
		if err := rows.Scan(into(&id), &name, &content); err != nil {
			return err
		}
		formedName, formedContent := formed(name, memory.MaxTopicName, memory.TopicName), formed(content, memory.MaxTopicContent, memory.TopicContent)
		if formedName != name || formedContent != content {
			f(id, formedName, formedContent)
		}
	}
	return rows.Err()
}

// formed returns text in a form, cut if it is too long for that.
func formed(text string, most int, form func(string) (string, error)) string {
	for _, candidate := range []string{text, text[:min(len(text), most)], text[:min(len(text), most/4)]} {
		if canonical, err := form(candidate); err == nil {
			return canonical
		}
	}
	return "unnamed"
}
