package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/memory"
)

// Finding is something that is wrong with a database.
type Finding struct {
	// What is wrong, Where: a table, a session, a file.
	What  string `json:"what"`
	Where string `json:"where"`
	// Advice is what to do about it.
	Advice string `json:"advice"`
	// Mendable says that Repair mends it, without losing anything that was
	// said.
	Mendable bool `json:"mendable"`

	mend mend
}

// mend is how a finding is mended.
type mend int

const (
	mendNothing mend = iota
	mendIndexes
	mendCounts
	mendFrontier
	mendReferences
	mendLearned
	mendTopics
	mendSearch
	mendFiles
	mendScrub
)

const (
	adviseRepair  = "run glovebox doctor --repair"
	adviseRestore = "put a backup in its place; what can still be read can be exported"
)

// mostAlike is how many findings of a kind are told; of the others the number.
const mostAlike = 20

// findings collects what an examination finds, in bounded memory.
type findings struct {
	list  []Finding
	alike map[string]int
	// visit, if not nil, is told which sessions are to be mended, and how.
	visit func(mend, memory.SessionID)
}

// kind is what findings have in common that differ by numbers and ids alone.
func (f Finding) kind() string {
	what, _, _ := strings.Cut(f.What, ":")
	return strings.Trim(what, "0123456789")
}

func (f *findings) add(finding Finding) {
	if finding.mend != mendNothing {
		finding.Mendable = true
		if finding.Advice == "" {
			finding.Advice = adviseRepair
		}
	}
	if f.alike[finding.kind()]++; f.alike[finding.kind()] <= mostAlike {
		f.list = append(f.list, finding)
	}
}

// all returns the findings, and for each kind of which there are more how many.
func (f *findings) all() []Finding {
	list := slices.Clone(f.list)
	for _, finding := range f.list {
		if more := f.alike[finding.kind()] - mostAlike; more > 0 {
			finding.Where = fmt.Sprintf("%d more", more)
			list = append(list, finding)
			f.alike[finding.kind()] = 0
		}
	}
	return list
}

// Check examines the whole database and returns what is wrong with it; nothing if
// all is well. It reads every row once, in memory that does not depend on how many
// there are, beside a writer or in a read-only store. An error means that it could
// not be examined, and what was found by then is returned with it.
func (s *Store) Check(ctx context.Context) ([]Finding, error) {
	f := &findings{alike: map[string]int{}}
	err := s.examine(ctx, f)
	if errors.Is(err, errDamaged) {
		f.add(Finding{What: "the file is damaged: " + err.Error(), Where: s.path, Advice: adviseRestore})
		err = nil
	}
	return f.all(), err
}

func (s *Store) examine(ctx context.Context, f *findings) error {
	s.examineFiles(f)
	whole := true
	err := s.reading(ctx, "examine", func(tx *sql.Tx) error {
		var err error
		if whole, err = examineIntegrity(ctx, tx, f); err != nil || !whole {
			return err
		}
		for _, examination := range []func(context.Context, *sql.Tx, *findings) error{
			examineReferences, examineDefaultUser, examineWipes, examineTopics, s.examineSessions,
		} {
			if err := examination(ctx, tx, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !whole {
		return err
	}
	wrong, err := s.checkIndex(ctx)
	for _, what := range wrong {
		f.add(Finding{What: what, Where: "search index", mend: mendSearch})
	}
	return err
}

// rebuildSearch makes the search index of everybody anew.
func (s *Store) rebuildSearch(ctx context.Context) error {
	users, err := s.Users(ctx)
	if err != nil {
		return err
	}
	for _, u := range users {
		if err := s.Reindex(ctx, u.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) examineFiles(f *findings) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(s.path + suffix); err == nil && info.Mode().Perm()&0o077 != 0 {
			f.add(Finding{What: fmt.Sprintf("others may read or write the file: its mode is %04o, not 0600", info.Mode().Perm()), Where: s.path + suffix, mend: mendFiles})
		}
	}
}

// examineIntegrity has SQLite check its own structures. Whole is false if nothing
// else can be relied on.
func examineIntegrity(ctx context.Context, tx *sql.Tx, f *findings) (whole bool, err error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("PRAGMA integrity_check(%d)", 2*mostAlike))
	lines, err := all(rows, err, func(r row) (line string, err error) { return line, r.Scan(&line) })
	if err != nil {
		return false, err
	}
	whole = true
	for _, line := range lines {
		switch {
		case line == "ok":
		case strings.Contains(line, "from index") || strings.Contains(line, "in index"):
			f.add(Finding{What: "an index does not fit its table: " + line, Where: "file", mend: mendIndexes})
		default:
			whole = false
			f.add(Finding{What: "the file is damaged: " + line, Where: "file", Advice: adviseRestore})
		}
	}
	return whole, nil
}

// expendable are the tables whose rows mean nothing without what they refer to.
var expendable = []string{"frontier", "summary_sources", "compaction_runs", "session_learned", "pending_runs"}

func examineReferences(ctx context.Context, tx *sql.Tx, f *findings) error {
	rows, err := tx.QueryContext(ctx, "PRAGMA foreign_key_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var table, parent string
		var number sql.NullInt64
		var key int
		if err := rows.Scan(&table, &number, &parent, &key); err != nil {
			return err
		}
		finding := Finding{What: "a row refers to one in " + parent + " that does not exist", Where: table, Advice: adviseRestore}
		if number.Valid {
			finding.Where = fmt.Sprintf("%s, row %d", table, number.Int64)
		}
		// A session's parent is a hint, and what is learned twice is no loss.
		if slices.Contains(expendable, table) || table == parent {
			finding.mend, finding.Advice = mendReferences, ""
		}
		f.add(finding)
	}
	return rows.Err()
}

func examineDefaultUser(ctx context.Context, tx *sql.Tx, f *findings) error {
	fine := false
	if err := tx.QueryRowContext(ctx, `SELECT count(*) = 1 FROM users WHERE is_default AND id = (SELECT value FROM kv WHERE scope = ? AND key = ?)`,
		kvShared, keyDefaultUser).Scan(&fine); err != nil {
		return err
	}
	if !fine {
		f.add(Finding{What: "the default user is not the one that kv names", Where: "users", Advice: adviseRestore})
	}
	return nil
}

func examineWipes(ctx context.Context, tx *sql.Tx, f *findings) error {
	var begun int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM wipes").Scan(&begun); err != nil {
		return err
	}
	if begun > 0 {
		f.add(Finding{What: fmt.Sprintf("%d wipes were begun and not ended", begun), Where: "wipes",
			Advice: "start glovebox, which finishes them first, or run glovebox doctor --repair"})
	}
	pending, err := scrubPending(ctx, tx)
	if pending {
		f.add(Finding{What: "deleted text may still be in the files", Where: "file", mend: mendScrub})
	}
	return err
}

// wrongHeirs are the topics that were superseded by what cannot have done so, and
// unreached those that no topic that holds has in its history: they go in a ring.
const (
	wrongHeirs = `t.superseded_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM topics n WHERE n.id = t.superseded_by AND n.user_id = t.user_id
		AND (n.agent_id IS NULL OR t.agent_id IS NULL OR n.agent_id = t.agent_id))`
	unreached = `t.id NOT IN (WITH RECURSIVE reached (id) AS (SELECT id FROM topics WHERE superseded_by IS NULL
		UNION SELECT o.id FROM reached r JOIN topics o ON o.superseded_by = r.id) SELECT id FROM reached)`
)

func examineTopics(ctx context.Context, tx *sql.Tx, f *findings) error {
	for _, wrong := range []struct{ what, condition string }{
		{"topics were superseded by none of the same user and agent", wrongHeirs},
		{"topics were superseded by one another", unreached + " AND NOT (" + wrongHeirs + ")"},
	} {
		n := 0
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM topics t WHERE "+wrong.condition).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			f.add(Finding{What: fmt.Sprintf("%d %s", n, wrong.what), Where: "topics", mend: mendTopics})
		}
	}
	if err := eachUnformed(ctx, tx, func(id memory.TopicID, name, content string) {
		f.add(Finding{What: "a topic's name or content is out of form", Where: "topics " + id.String(), mend: mendTopics})
	}); err != nil {
		return err
	}
	if err := examineExtractions(ctx, tx, f); err != nil {
		return err
	}
	var orphans int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM topic_sources o WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.id = o.topic_id)`).Scan(&orphans)
	if orphans > 0 {
		f.add(Finding{What: fmt.Sprintf("%d sources belong to topics that do not exist", orphans), Where: "topic_sources", mend: mendReferences})
	}
	return err
}

// examineExtractions looks whether what was learned can be read.
func examineExtractions(ctx context.Context, tx *sql.Tx, f *findings) error {
	rows, err := tx.QueryContext(ctx, "SELECT x.id, "+itemColumns+" FROM session_extractions x")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id memory.ExtractionID
		var l memory.Learnings
		if err := rows.Scan(append([]any{into(&id)}, scanItems(&l)...)...); err != nil {
			f.add(Finding{What: "what was learned cannot be read: " + err.Error(), Where: "session_extractions " + id.String(), Advice: adviseRestore})
		}
	}
	return rows.Err()
}

// mendTopicRows gives topics their form, and lets those whose heir cannot be hold
// no more: what took their place is not known, but something did.
func (s *Store) mendTopicRows(ctx context.Context) error {
	return s.unenforced(ctx, "mend topics", func(ctx context.Context, tx *sql.Tx) error {
		if err := canonicalTopics(ctx, tx); err != nil {
			return err
		}
		for _, condition := range []string{wrongHeirs, unreached} {
			if _, err := tx.ExecContext(ctx, "UPDATE topics AS t SET superseded_by = NULL, expires_at = min(coalesce(expires_at, valid_from), valid_from) WHERE "+condition); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE users SET memory_revision = memory_revision + 1")
		return err
	})
}

// examineSessions looks at one session after the other.
func (s *Store) examineSessions(ctx context.Context, tx *sql.Tx, f *findings) error {
	rows, err := tx.QueryContext(ctx, "SELECT id FROM sessions ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id memory.SessionID
		if err := rows.Scan(into(&id)); err != nil {
			return err
		}
		if err := examineSession(ctx, tx, id, f); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
	}
	return rows.Err()
}

func examineSession(ctx context.Context, tx *sql.Tx, id memory.SessionID, f *findings) error {
	where := "session " + id.String()
	report := func(m mend, what string) {
		f.add(Finding{What: what, Where: where, mend: m})
		if f.visit != nil {
			f.visit(m, id)
		}
	}
	have, err := storedPosition(ctx, tx, id)
	if err != nil {
		return err
	}
	want, gaps, err := countedPosition(ctx, tx, id, func(what, row string) {
		f.add(Finding{What: what, Where: where + ", " + row, Advice: adviseRestore})
	})
	if err != nil {
		return err
	}
	if gaps > 0 {
		f.add(Finding{What: fmt.Sprintf("%d messages are missing in between", gaps), Where: where, Advice: adviseRestore})
	}
	if have != want {
		report(mendCounts, "what the session counts is not what it has")
	}
	if err := examineLearned(ctx, tx, id, func(what string) { report(mendLearned, what) }); err != nil {
		return err
	}
	if err := examineDerived(ctx, tx, id, func(what, row string) {
		f.add(Finding{What: what, Where: where + ", " + row, Advice: adviseRestore})
	}); err != nil {
		return err
	}
	for _, coverage := range coverages {
		wrong := 0
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM ("+coverage.query+")", blob(id)).Scan(&wrong); err != nil {
			return err
		}
		if wrong > 0 {
			report(mendFrontier, fmt.Sprintf("%d %s", wrong, coverage.what))
			return nil
		}
	}
	return nil
}

// coverages find what is wrong between the frontier, summaries and messages of
// session ?1. Together they say: each message is in one place, a frontier or a
// summary of depth 0; each summary is in one place, a frontier or a summary of the
// next depth. So the frontier reaches all, once.
var coverages = []struct{ what, query string }{
	{"messages are not in the frontier or one summary, once", `
		SELECT id FROM (
			SELECT id, 1 AS stored, 0 AS placed FROM messages WHERE session_id = ?1
			UNION ALL SELECT message_id, 0, 1 FROM frontier WHERE session_id = ?1 AND message_id IS NOT NULL
			UNION ALL SELECT o.message_id, 0, 1 FROM summaries v JOIN summary_sources o ON o.summary_id = v.id WHERE v.session_id = ?1 AND o.message_id IS NOT NULL
		) GROUP BY id HAVING sum(stored) <> 1 OR sum(placed) <> 1`},
	{"summaries are not in the frontier or another one, once", `
		SELECT id FROM (
			SELECT id, 1 AS stored, 0 AS placed FROM summaries WHERE session_id = ?1
			UNION ALL SELECT summary_id, 0, 1 FROM frontier WHERE session_id = ?1 AND summary_id IS NOT NULL
			UNION ALL SELECT o.source_summary_id, 0, 1 FROM summaries v JOIN summary_sources o ON o.summary_id = v.id WHERE v.session_id = ?1 AND o.source_summary_id IS NOT NULL
		) GROUP BY id HAVING sum(stored) <> 1 OR sum(placed) <> 1`},
	{"summaries do not have the depth or the number of messages that their sources give", `
		SELECT v.id FROM summaries v WHERE v.session_id = ?1 AND (v.depth, v.descendants) IS NOT (
			SELECT 1 + max(coalesce(c.depth, -1)), sum(coalesce(c.descendants, 1))
			FROM summary_sources o LEFT JOIN summaries c ON c.id = o.source_summary_id WHERE o.summary_id = v.id)`},
	{"items of the frontier are out of place", `
		SELECT f.ordinal FROM frontier f LEFT JOIN messages m ON m.id = f.message_id WHERE f.session_id = ?1
			AND f.ordinal IS NOT coalesce(m.seq, (SELECT min(o.ordinal) FROM summary_sources o WHERE o.summary_id = f.summary_id))`},
	{"counts of what the frontier has are wrong", "SELECT s.id FROM sessions s WHERE s.id = ?1 AND (s.shown_items, s.shown_tokens) IS NOT " + countShown},
}

// countShown is what the frontier of session ?1 has: items and tokens.
const countShown = `(SELECT count(*), coalesce(sum(coalesce(m.tokens, v.tokens)), 0) FROM frontier f
	LEFT JOIN messages m ON m.id = f.message_id LEFT JOIN summaries v ON v.id = f.summary_id WHERE f.session_id = ?1)`

func storedPosition(ctx context.Context, tx *sql.Tx, id memory.SessionID) (p position, err error) {
	return p, tx.QueryRowContext(ctx, "SELECT messages, last_active_at, active, user_messages, awaiting, exchanges, placed FROM sessions WHERE id = ?", blob(id)).
		Scan(&p.messages, &p.lastActive, &p.active, &p.userMessages, &p.awaiting, &p.exchanges, &p.placed)
}

// countedPosition is where a session stands by its messages. Gaps are numbers that
// no message has. Damaged is told of messages that cannot be read, or whose file is
// missing.
func countedPosition(ctx context.Context, tx *sql.Tx, id memory.SessionID, damaged func(what, row string)) (p position, gaps int64, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT created_at FROM sessions WHERE id = ?", blob(id)).Scan(&p.lastActive); err != nil {
		return p, 0, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT id, seq, role, source, content, transcript, created_at FROM messages WHERE session_id = ? ORDER BY seq", blob(id))
	if err != nil {
		return p, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var m memory.Message
		var content string
		if err := rows.Scan(into(&m.ID), &m.Seq, &m.Role, &m.Source, &content, digest{&m.Transcript}, instant{&m.At}); err != nil {
			return p, 0, err
		}
		row := "message " + m.ID.String()
		if m.Blocks, err = memory.Decode(content); err != nil {
			damaged("a message cannot be read: "+err.Error(), row)
		}
		for _, b := range m.Blocks {
			if b.File.IsZero() {
				continue
			}
			found := false
			if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM files WHERE id = ? AND session_id = ?)", blob(b.File), blob(id)).Scan(&found); err != nil {
				return p, 0, err
			}
			if !found {
				damaged("the file that a message had is missing", row)
			}
		}
		gaps += m.Seq - p.messages - 1
		// The next one gets the number after the highest.
		p.messages = m.Seq - 1
		p.count(m)
	}
	return p, gaps, rows.Err()
}

// examineLearned looks whether what was looked at of session ?1 is a part of it,
// in order, and whether there is something to learn from it as it says.
func examineLearned(ctx context.Context, tx *sql.Tx, id memory.SessionID, wrong func(what string)) error {
	misplaced, mistaken := 0, false
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM (
		SELECT first_seq, last_seq, lag(last_seq) OVER (ORDER BY first_seq) AS before FROM session_learned WHERE session_id = ?1)
		WHERE first_seq <= coalesce(before + 1, 0) OR last_seq > (SELECT coalesce(max(seq), 0) FROM messages WHERE session_id = ?1)`, blob(id)).Scan(&misplaced); err != nil {
		return err
	}
	if misplaced > 0 {
		wrong(fmt.Sprintf("%d runs of messages that were looked at overlap, touch or are not there", misplaced))
	}
	if err := tx.QueryRowContext(ctx, unseenGaps+"SELECT (due_since IS NOT NULL) <> "+isDue+" OR coalesce(due_since > last_active_at, 0) FROM sessions WHERE id = ?1", blob(id)).Scan(&mistaken); err != nil {
		return err
	}
	if mistaken {
		wrong("whether there is something to learn is not what the session says")
	}
	return nil
}

// relearn mends what examineLearned finds.
func (s *Store) relearn(ctx context.Context, id memory.SessionID) error {
	return s.writing(ctx, "mend what was looked at of session "+id.String(), func(ctx context.Context, tx *sql.Tx) error {
		var messages int64
		if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM messages WHERE session_id = ?", blob(id)).Scan(&messages); err != nil {
			return err
		}
		seen, err := learnedRanges(ctx, tx, id, messages)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM session_learned WHERE session_id = ?", blob(id)); err != nil {
			return err
		}
		for _, run := range ranges(seen) {
			if _, err := tx.ExecContext(ctx, "INSERT INTO session_learned VALUES (?, ?, ?)", blob(id), run.First, run.Last); err != nil {
				return err
			}
		}
		return settleDue(ctx, tx, id)
	})
}

// examineDerived looks whether what was made from messages can be read.
func examineDerived(ctx context.Context, tx *sql.Tx, id memory.SessionID, damaged func(what, row string)) error {
	rows, err := tx.QueryContext(ctx, "SELECT "+summaryColumns+" FROM summaries v WHERE v.session_id = ?", blob(id))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if v, err := scanSummary(rows); err != nil {
			damaged("a summary cannot be read: "+err.Error(), "summaries "+v.ID.String())
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	files, err := tx.QueryContext(ctx, "SELECT id, digest, block FROM files WHERE session_id = ?", blob(id))
	if err != nil {
		return err
	}
	defer files.Close()
	for files.Next() {
		var file memory.FileID
		var digest string
		var block []byte
		if err := files.Scan(into(&file), &digest, &block); err != nil {
			return err
		}
		if digest != fmt.Sprintf("sha256:%x", sha256.Sum256(block)) {
			damaged("a file is not what its digest says", "file "+file.String())
		}
	}
	return files.Err()
}

// Repair mends what can be mended without losing anything that was said, and
// returns what it found and could not mend. Each session is mended in a transaction
// of its own: a process that dies leaves the rest as it was. Wipes that were begun
// are not its business, because they concern another file too.
func (s *Store) Repair(ctx context.Context) ([]Finding, error) {
	f := &findings{alike: map[string]int{}}
	todo := map[mend]bool{}
	// Sessions are kept by id alone, one for each that is wrong.
	var counts, frontiers, unlearned []memory.SessionID
	f.visit = func(m mend, id memory.SessionID) {
		switch m {
		case mendCounts:
			counts = append(counts, id)
		case mendLearned:
			unlearned = append(unlearned, id)
		default:
			frontiers = append(frontiers, id)
		}
	}
	if err := s.examine(ctx, f); err != nil {
		return f.all(), err
	}
	for _, finding := range f.list {
		todo[finding.mend] = true
	}
	for _, step := range []struct {
		due  bool
		mend func() error
	}{
		{todo[mendFiles], func() error { return ownersAlone(s.path) }},
		{todo[mendIndexes], func() error { return s.rebuildIndexes(ctx) }},
		{todo[mendReferences], func() error { return s.dropOrphans(ctx) }},
		{len(counts) > 0, func() error { return each(counts, func(id memory.SessionID) error { return s.recount(ctx, id) }) }},
		{todo[mendTopics] || todo[mendReferences], func() error { return s.mendTopicRows(ctx) }},
		// After the counts, which tell when the session was active.
		{len(unlearned)+len(counts) > 0, func() error {
			return each(append(unlearned, counts...), func(id memory.SessionID) error { return s.relearn(ctx, id) })
		}},
		// Without an orphan there may be an item less than there should be.
		{todo[mendFrontier] || todo[mendReferences], func() error {
			return s.eachWrongFrontier(ctx, frontiers, func(id memory.SessionID) error { return s.rebuildFrontier(ctx, id) })
		}},
		{todo[mendSearch], func() error { return s.rebuildSearch(ctx) }},
		{todo[mendScrub], func() error { _, err := s.Scrub(ctx); return err }},
	} {
		if !step.due {
			continue
		}
		if err := step.mend(); err != nil {
			return f.all(), err
		}
	}
	return s.Check(ctx)
}

func each(ids []memory.SessionID, f func(memory.SessionID) error) error {
	for _, id := range ids {
		if err := f(id); err != nil {
			return err
		}
	}
	return nil
}

// eachWrongFrontier calls f for the sessions and for those that became wrong.
func (s *Store) eachWrongFrontier(ctx context.Context, known []memory.SessionID, f func(memory.SessionID) error) error {
	if err := each(known, f); err != nil {
		return err
	}
	var more []memory.SessionID
	again := &findings{alike: map[string]int{}, visit: func(m mend, id memory.SessionID) {
		if m == mendFrontier {
			more = append(more, id)
		}
	}}
	if err := s.reading(ctx, "examine", func(tx *sql.Tx) error { return s.examineSessions(ctx, tx, again) }); err != nil {
		return err
	}
	return each(more, f)
}

func (s *Store) rebuildIndexes(ctx context.Context) error {
	return s.writing(ctx, "rebuild the indexes", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "REINDEX")
		return err
	})
}

// dropOrphans removes rows that mean nothing without what they refer to.
func (s *Store) dropOrphans(ctx context.Context) error {
	return s.unenforced(ctx, "remove orphans", func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range []string{
			"DELETE FROM frontier WHERE session_id NOT IN (SELECT id FROM sessions)",
			"DELETE FROM frontier WHERE message_id IS NOT NULL AND message_id NOT IN (SELECT id FROM messages)",
			"DELETE FROM frontier WHERE summary_id IS NOT NULL AND summary_id NOT IN (SELECT id FROM summaries)",
			"DELETE FROM summary_sources WHERE summary_id NOT IN (SELECT id FROM summaries)",
			"DELETE FROM summary_sources WHERE message_id IS NOT NULL AND message_id NOT IN (SELECT id FROM messages)",
			"DELETE FROM summary_sources WHERE source_summary_id IS NOT NULL AND source_summary_id NOT IN (SELECT id FROM summaries)",
			"DELETE FROM compaction_runs WHERE session_id NOT IN (SELECT id FROM sessions)",
			"UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id NOT IN (SELECT id FROM sessions)",
			"DELETE FROM session_learned WHERE session_id NOT IN (SELECT id FROM sessions)",
			"DELETE FROM pending_runs WHERE session_id NOT IN (SELECT id FROM sessions)",
			"DELETE FROM topic_sources WHERE topic_id NOT IN (SELECT id FROM topics)",
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// recount sets what a session counts to what its messages give.
func (s *Store) recount(ctx context.Context, id memory.SessionID) error {
	return s.writing(ctx, "count the messages of session "+id.String(), func(ctx context.Context, tx *sql.Tx) error {
		var user memory.UserID
		if err := tx.QueryRowContext(ctx, "SELECT user_id FROM sessions WHERE id = ?", blob(id)).Scan(into(&user)); errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		p, _, err := countedPosition(ctx, tx, id, func(string, string) {})
		if err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT * FROM "+countShown, blob(id)).Scan(&p.shownItems, &p.shownTokens); err != nil {
			return err
		}
		return s.advance(ctx, tx, user, id, &p)
	})
}

// mine are the summaries of session ?1. showSummaries and showMessages make its
// frontier, which has none, of what is in no summary.
const (
	mine          = "(SELECT id FROM summaries WHERE session_id = ?1)"
	showSummaries = `INSERT INTO frontier (session_id, ordinal, summary_id)
		SELECT ?1, (SELECT min(o.ordinal) FROM summary_sources o WHERE o.summary_id = v.id), v.id FROM summaries v
		WHERE v.session_id = ?1 AND v.id NOT IN (SELECT source_summary_id FROM summary_sources WHERE summary_id IN ` + mine + ` AND source_summary_id IS NOT NULL)`
	showMessages = `INSERT INTO frontier (session_id, ordinal, message_id) SELECT ?1, m.seq, m.id FROM messages m
		WHERE m.session_id = ?1 AND m.id NOT IN (SELECT message_id FROM summary_sources WHERE summary_id IN ` + mine + ` AND message_id IS NOT NULL)`
)

// rebuildFrontier makes the frontier of a session anew from what there is. Sources
// that cannot be are taken from summaries, summaries without sources are removed,
// and what is in no summary is shown itself.
func (s *Store) rebuildFrontier(ctx context.Context, id memory.SessionID) error {
	return s.unenforced(ctx, "rebuild the frontier of session "+id.String(), func(ctx context.Context, tx *sql.Tx) error {
		run := func(statement string) (int64, error) {
			result, err := tx.ExecContext(ctx, statement, blob(id))
			if err != nil {
				return 0, err
			}
			return result.RowsAffected()
		}
		var before, after int
		const count = "SELECT count(*) FROM summaries WHERE session_id = ?1"
		if err := tx.QueryRowContext(ctx, count, blob(id)).Scan(&before); err != nil {
			return err
		}
		for changed := true; changed; {
			changed = false
			for _, statement := range []string{
				"DELETE FROM frontier WHERE session_id = ?1",
				// A source is of this session, and below: else there could be a ring.
				`DELETE FROM summary_sources WHERE summary_id IN ` + mine + ` AND message_id IS NOT NULL AND
					NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = message_id AND m.session_id = ?1)`,
				`DELETE FROM summary_sources WHERE summary_id IN ` + mine + ` AND source_summary_id IS NOT NULL AND
					NOT EXISTS (SELECT 1 FROM summaries c, summaries v WHERE c.id = source_summary_id AND c.session_id = ?1 AND v.id = summary_id AND c.depth < v.depth)`,
				// What is a source twice belongs to the first.
				`DELETE FROM summary_sources WHERE (summary_id, ordinal) IN (SELECT id, ordinal FROM (
					SELECT v.id, o.ordinal, row_number() OVER (PARTITION BY coalesce(o.message_id, o.source_summary_id) ORDER BY v.number, o.ordinal) AS place
					FROM summaries v JOIN summary_sources o ON o.summary_id = v.id WHERE v.session_id = ?1) WHERE place > 1)`,
				"DELETE FROM summaries WHERE session_id = ?1 AND id NOT IN (SELECT summary_id FROM summary_sources WHERE summary_id IN " + mine + ")",
			} {
				n, err := run(statement)
				if err != nil {
					return err
				}
				changed = changed || n > 0
			}
		}
		if err := tx.QueryRowContext(ctx, count, blob(id)).Scan(&after); err != nil {
			return err
		}
		if after < before {
			// The index must not name summaries that are gone.
			var user memory.UserID
			if err := tx.QueryRowContext(ctx, "SELECT user_id FROM sessions WHERE id = ?", blob(id)).Scan(into(&user)); err != nil {
				return err
			}
			if err := rebuildIndex(ctx, tx, user, ofSummaries); err != nil {
				return err
			}
		}
		if err := redepth(ctx, tx, id); err != nil {
			return err
		}
		for _, statement := range []string{
			showSummaries, showMessages,
			"UPDATE sessions SET revision = revision + 1, (shown_items, shown_tokens) = " + countShown + " WHERE id = ?1",
		} {
			if _, err := run(statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// redepth gives the summaries of a session the depth, the place and the number of
// messages that their sources have, the lowest first.
func redepth(ctx context.Context, tx *sql.Tx, id memory.SessionID) error {
	if _, err := tx.ExecContext(ctx, `UPDATE summary_sources SET ordinal = -(SELECT seq FROM messages WHERE id = message_id)
		WHERE message_id IS NOT NULL AND summary_id IN (SELECT id FROM summaries WHERE session_id = ?1)`, blob(id)); err != nil {
		return err
	}
	var depths []int
	rows, err := tx.QueryContext(ctx, "SELECT DISTINCT depth FROM summaries WHERE session_id = ? ORDER BY depth", blob(id))
	if depths, err = all(rows, err, func(r row) (d int, err error) { return d, r.Scan(&d) }); err != nil {
		return err
	}
	for _, depth := range depths {
		for _, statement := range []string{
			`UPDATE summary_sources SET ordinal = -(SELECT min(o.ordinal) FROM summary_sources o WHERE o.summary_id = summary_sources.source_summary_id)
				WHERE source_summary_id IS NOT NULL AND summary_id IN (SELECT id FROM summaries WHERE session_id = ?1 AND depth = ?2)`,
			`UPDATE summary_sources SET ordinal = -ordinal WHERE ordinal < 0 AND summary_id IN (SELECT id FROM summaries WHERE session_id = ?1 AND depth = ?2)`,
		} {
			if _, err := tx.ExecContext(ctx, statement, blob(id), depth); err != nil {
				return err
			}
		}
	}
	for _, depth := range depths {
		// A summary that goes down a level is not met again: the lower ones came
		// before.
		if _, err := tx.ExecContext(ctx, `UPDATE summaries SET (depth, descendants) = (
			SELECT 1 + max(coalesce(c.depth, -1)), sum(coalesce(c.descendants, 1))
			FROM summary_sources o LEFT JOIN summaries c ON c.id = o.source_summary_id WHERE o.summary_id = summaries.id)
			WHERE session_id = ?1 AND depth = ?2`, blob(id), depth); err != nil {
			return err
		}
	}
	return nil
}
