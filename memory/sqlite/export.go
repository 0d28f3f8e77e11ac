package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of what an export holds in memory and for how long one of its reads
// lasts, which keeps the log from being written back.
const (
	exportRows  = 256
	exportBytes = 4 << 20
)

// Export implements memory.Store. It reads in small steps, each with a snapshot
// of its own: a session is exported as it was when its turn came.
func (s *Store) Export(ctx context.Context, user memory.UserID, visit func(memory.Record) error) error {
	e := &exporter{store: s, user: user, visit: visit, what: "export user " + user.String()}
	return e.run(ctx, e.sessions, e.extractions, e.topics)
}

// ExportMemory implements memory.Store.
func (s *Store) ExportMemory(ctx context.Context, user memory.UserID, visit func(memory.Record) error) error {
	e := &exporter{store: s, user: user, visit: visit, what: "export what is remembered of user " + user.String()}
	return e.run(ctx, e.extractions, e.topics)
}

// run exports what there is to export of a user who is known.
func (e *exporter) run(ctx context.Context, exports ...func(context.Context) error) error {
	if err := e.store.reading(ctx, e.what, func(tx *sql.Tx) error {
		known := false
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM users WHERE id = ?)", blob(e.user)).Scan(&known)
		if err == nil && !known {
			err = memory.ErrNotFound
		}
		return err
	}); err != nil {
		return err
	}
	for _, export := range exports {
		if err := export(ctx); err != nil {
			return err
		}
	}
	return nil
}

type exporter struct {
	store *Store
	user  memory.UserID
	visit func(memory.Record) error
	what  string
}

// page reads rows with one statement that has the user as ?1.
func page[T any](ctx context.Context, e *exporter, query string, arguments []any, scan func(row) (T, error)) (list []T, err error) {
	err = e.store.reading(ctx, e.what, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, append([]any{blob(e.user)}, arguments...)...)
		list, err = all(rows, err, scan)
		return err
	})
	return list, err
}

// sibling is a session's place among those of one parent.
type sibling struct {
	at int64
	id memory.SessionID
}

// sessions exports each after its parent, and those of one parent by time and then
// by id: an order that depends on nothing but the sessions. It holds one page for
// each level.
func (e *exporter) sessions(ctx context.Context) error {
	type siblings struct {
		parent memory.SessionID
		page   []sibling
		last   sibling
		ended  bool
	}
	levels := []siblings{{}}
	for len(levels) > 0 {
		level := &levels[len(levels)-1]
		if len(level.page) == 0 && !level.ended {
			index := "sessions_parent"
			if level.parent.IsZero() {
				index = "sessions_user"
			}
			var err error
			if level.page, err = page(ctx, e, "SELECT created_at, id FROM sessions INDEXED BY "+index+" WHERE user_id = ?1 AND parent_session_id IS ?2 AND (?4 IS NULL OR (created_at, id) > (?3, ?4)) ORDER BY created_at, id LIMIT ?5 + 0",
				[]any{blob(level.parent), level.last.at, blob(level.last.id), exportRows}, func(r row) (n sibling, err error) { return n, r.Scan(&n.at, into(&n.id)) }); err != nil {
				return err
			}
			level.ended = len(level.page) < exportRows
		}
		if len(level.page) == 0 {
			levels = levels[:len(levels)-1]
			continue
		}
		next := level.page[0]
		level.page, level.last = level.page[1:], next
		if err := e.session(ctx, next.id); err != nil {
			return err
		}
		levels = append(levels, siblings{parent: next.id})
	}
	return nil
}

// session exports a session up to where it stands now.
func (e *exporter) session(ctx context.Context, id memory.SessionID) error {
	var (
		head                       memory.SessionRecord
		messages, summary, compact int64
		gone                       bool
	)
	if err := e.store.reading(ctx, e.what, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT s.id, a.name, s.parent_session_id, s.title, coalesce(s.name, ''), s.created_at, s.messages,
			coalesce((SELECT max(v.number) FROM summaries v WHERE v.session_id = s.id), 0), coalesce((SELECT max(c.id) FROM compaction_runs c WHERE c.session_id = s.id), 0)
			FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.user_id = ?1 AND s.id = ?2`, blob(e.user), blob(id)).
			Scan(into(&head.ID), &head.Agent, into(&head.Parent), &head.Title, &head.Name, instant{&head.CreatedAt}, &messages, &summary, &compact)
		gone = err == sql.ErrNoRows
		if gone {
			return nil
		}
		if err == nil {
			head.Learned, err = learnedRanges(ctx, tx, id, messages)
		}
		return err
	}); err != nil || gone {
		return err
	}
	if err := e.visit(memory.Record{Kind: memory.RecordSession, Session: &head}); err != nil {
		return err
	}
	if err := e.messages(ctx, id, messages); err != nil {
		return err
	}
	if err := e.summaries(ctx, id, summary); err != nil {
		return err
	}
	return e.compactions(ctx, id, compact)
}

// messages exports those up to last, each after the files that it is the first to
// name.
func (e *exporter) messages(ctx context.Context, session memory.SessionID, last int64) error {
	exported := map[memory.FileID]bool{}
	for seq := int64(0); seq < last; {
		var messages []memory.Message
		if err := e.store.reading(ctx, e.what, func(tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, selectMessages+" WHERE m.session_id = "+ownSession+" AND m.seq > ?3 AND m.seq <= ?4 ORDER BY m.seq", blob(session), blob(e.user), seq, last)
			messages, err = some(rows, err)
			return err
		}); err != nil {
			return err
		}
		if len(messages) == 0 {
			return fmt.Errorf("%s: session %s was removed meanwhile: %w", e.what, session, memory.ErrConflict)
		}
		for i := range messages {
			if err := e.files(ctx, messages[i], exported); err != nil {
				return err
			}
			if err := e.visit(memory.Record{Kind: memory.RecordMessage, Message: &messages[i]}); err != nil {
				return err
			}
			seq = messages[i].Seq
		}
	}
	return nil
}

// some reads messages until there are enough for one step.
func some(rows *sql.Rows, err error) (messages []memory.Message, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for size := 0; size < exportBytes && len(messages) < exportRows && rows.Next(); {
		m, err := scanMessage(rows)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
		size += weigh(m.Blocks)
	}
	return messages, rows.Err()
}

// weigh returns about how many bytes blocks take.
func weigh(blocks []memory.Block) int {
	size := 0
	for _, b := range blocks {
		if encoded, err := b.MarshalJSON(); err == nil {
			size += len(encoded)
		}
	}
	return size
}

func (e *exporter) files(ctx context.Context, m memory.Message, exported map[memory.FileID]bool) error {
	for _, b := range m.Blocks {
		if b.File.IsZero() || exported[b.File] {
			continue
		}
		f, whole, err := e.store.File(ctx, e.user, b.File)
		if err != nil {
			return fmt.Errorf("%s: message %s: %w", e.what, m.ID, err)
		}
		exported[b.File] = true
		if err := e.visit(memory.Record{Kind: memory.RecordFile, File: &memory.FileRecord{File: f, Block: whole}}); err != nil {
			return err
		}
	}
	return nil
}

func (e *exporter) summaries(ctx context.Context, session memory.SessionID, last int64) error {
	type numbered struct {
		number int64
		memory.SummaryRecord
	}
	for number := int64(0); number < last; {
		var list []numbered
		if err := e.store.reading(ctx, e.what, func(tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT v.number, "+summaryColumns+" FROM summaries v WHERE v.session_id = "+ownSession+" AND v.number > ?3 AND v.number <= ?4 ORDER BY v.number LIMIT ?5 + 0",
				blob(session), blob(e.user), number, last, exportRows)
			list, err = all(rows, err, func(r row) (n numbered, err error) {
				n.Summary, err = scanSummary(r, &n.number)
				return n, err
			})
			for i := 0; i < len(list) && err == nil; i++ {
				list[i].Messages, list[i].Summaries, err = sourceIDs(ctx, tx, list[i].ID)
			}
			return err
		}); err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("%s: session %s was removed meanwhile: %w", e.what, session, memory.ErrConflict)
		}
		for i := range list {
			if err := e.visit(memory.Record{Kind: memory.RecordSummary, Summary: &list[i].SummaryRecord}); err != nil {
				return err
			}
			number = list[i].number
		}
	}
	return nil
}

// sourceIDs returns what a summary was made from.
func sourceIDs(ctx context.Context, tx *sql.Tx, id memory.SummaryID) (messages []memory.MessageID, summaries []memory.SummaryID, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT message_id, source_summary_id FROM summary_sources WHERE summary_id = ? ORDER BY ordinal", blob(id))
	_, err = all(rows, err, func(r row) (struct{}, error) {
		var m memory.MessageID
		var v memory.SummaryID
		err := r.Scan(into(&m), into(&v))
		if !m.IsZero() {
			messages = append(messages, m)
		}
		if !v.IsZero() {
			summaries = append(summaries, v)
		}
		return struct{}{}, err
	})
	return messages, summaries, err
}

const compactionColumns = "c.session_id, c.trigger, c.outcome, c.reason, c.items_before, c.items_after, c.tokens_before, c.tokens_after, c.summaries, c.refresh_blocks, c.refresh_tokens, c.refresh_skipped, c.started_at, c.took"

// scanCompaction reads what comes before and compactionColumns.
func scanCompaction(r row, before ...any) (c memory.CompactionRun, err error) {
	return c, r.Scan(append(before, into(&c.Session), &c.Trigger, &c.Outcome, &c.Reason, &c.ItemsBefore, &c.ItemsAfter, &c.TokensBefore, &c.TokensAfter,
		&c.Summaries, &c.RefreshBlocks, &c.RefreshTokens, &c.RefreshSkipped, instant{&c.StartedAt}, &c.Took)...)
}

func (e *exporter) compactions(ctx context.Context, session memory.SessionID, last int64) error {
	for id := int64(0); id < last; {
		before := id
		runs, err := page(ctx, e, "SELECT c.id, "+compactionColumns+" FROM compaction_runs c JOIN sessions s ON s.id = c.session_id WHERE s.user_id = ?1 AND c.session_id = ?2 AND c.id > ?3 AND c.id <= ?4 ORDER BY c.id LIMIT ?5 + 0",
			[]any{blob(session), id, last, exportRows}, func(r row) (memory.CompactionRun, error) { return scanCompaction(r, &id) })
		if err != nil {
			return err
		}
		if id == before {
			return fmt.Errorf("%s: session %s was removed meanwhile: %w", e.what, session, memory.ErrConflict)
		}
		for _, run := range runs {
			if err := e.visit(memory.Record{Kind: memory.RecordCompaction, Compaction: &memory.CompactionRecord{CompactionRun: run}}); err != nil {
				return err
			}
		}
	}
	return nil
}

const extractionColumns = "x.id, a.name, x.session_id, x.created_at, x.merged_at, " + itemColumns

func scanExtraction(r row) (x memory.ExtractionRecord, err error) {
	err = r.Scan(append([]any{into(&x.ID), &x.Agent, into(&x.Session), instant{&x.CreatedAt}, optional{&x.MergedAt}}, scanItems(&x.Learnings)...)...)
	return x, err
}

func (e *exporter) extractions(ctx context.Context) error {
	var last memory.ExtractionRecord
	for first := true; ; first = false {
		list, err := page(ctx, e, "SELECT "+extractionColumns+" FROM session_extractions x JOIN agents a ON a.id = x.agent_id WHERE x.user_id = ?1 AND (?2 OR (x.created_at, x.id) > (?3, ?4)) ORDER BY x.created_at, x.id LIMIT ?5 + 0",
			[]any{first, micros(last.CreatedAt), blob(last.ID), exportRows}, scanExtraction)
		if err != nil {
			return err
		}
		for i := range list {
			if err := e.visit(memory.Record{Kind: memory.RecordExtraction, Extraction: &list[i]}); err != nil {
				return err
			}
		}
		if len(list) < exportRows {
			return nil
		}
		last = list[len(list)-1]
	}
}

// topics exports each after the one that superseded it, else by time and then by
// id. It holds the ids of them all, which are few.
func (e *exporter) topics(ctx context.Context) error {
	type key struct{ id, supersededBy memory.TopicID }
	keys, err := page(ctx, e, "SELECT id, superseded_by FROM topics WHERE user_id = ?1 ORDER BY updated_at, id", nil,
		func(r row) (k key, err error) { return k, r.Scan(into(&k.id), into(&k.supersededBy)) })
	if err != nil {
		return err
	}
	superseded := map[memory.TopicID][]memory.TopicID{}
	for _, k := range keys {
		superseded[k.supersededBy] = append(superseded[k.supersededBy], k.id)
	}
	// The next is the last of waiting.
	waiting := slices.Clone(superseded[memory.TopicID{}])
	slices.Reverse(waiting)
	for len(waiting) > 0 {
		id := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		for _, older := range slices.Backward(superseded[id]) {
			waiting = append(waiting, older)
		}
		var topic *memory.TopicRecord
		if err := e.store.reading(ctx, e.what, func(tx *sql.Tx) (err error) {
			topic, err = readTopic(ctx, tx, e.user, id)
			return err
		}); err != nil {
			return err
		}
		// It may have gone meanwhile.
		if topic == nil {
			continue
		}
		if err := e.visit(memory.Record{Kind: memory.RecordTopic, Topic: topic}); err != nil {
			return err
		}
	}
	return nil
}

// readTopic returns one topic, or nil if the user has none with this id.
func readTopic(ctx context.Context, tx *sql.Tx, user memory.UserID, id memory.TopicID) (*memory.TopicRecord, error) {
	var v memory.TopicRecord
	err := tx.QueryRowContext(ctx, `SELECT t.id, coalesce(a.name, ''), t.name, t.content, t.embedding, t.expires_at, t.superseded_by, t.valid_from, t.updated_at
		FROM topics t LEFT JOIN agents a ON a.id = t.agent_id WHERE t.user_id = ? AND t.id = ?`, blob(user), blob(id)).
		Scan(into(&v.ID), &v.Agent, &v.Topic, &v.Content, &v.Embedding, optional{&v.ExpiresAt}, into(&v.SupersededBy), instant{&v.ValidFrom}, instant{&v.UpdatedAt})
	if err == sql.ErrNoRows {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sources, err := sourcesOf(ctx, tx, "SELECT ?", blob(id))
	v.Sources = sources[id]
	return &v, err
}
