package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of one transaction of an import, for which a turn may have to wait.
const (
	importRows  = 256
	importBytes = 4 << 20
)

// Import implements memory.Store. Records are checked as drafts are, before the
// one writer sees them; then each transaction leaves every session whole: its
// messages in a row, its frontier over them, a file with the message that names
// it. A process that dies has stored what was before, and the same import again
// goes on from there.
func (s *Store) Import(ctx context.Context, user memory.UserID, records iter.Seq2[memory.Record, error]) (memory.ImportReport, error) {
	im := &importer{store: s, user: user, what: "import for user " + user.String(),
		report: memory.ImportReport{Added: map[memory.RecordKind]int{}, Skipped: map[memory.RecordKind]int{}}}
	number := 0
	for r, err := range records {
		number++
		if err == nil {
			if err = ctx.Err(); err == nil {
				err = im.add(ctx, number, r)
			}
			if err == nil {
				continue
			}
			err = fmt.Errorf("%s: record %d: %w", im.what, number, err)
		}
		// What stands before it stays.
		return im.report, errors.Join(im.flush(ctx), err)
	}
	if len(im.files) > 0 {
		err := fmt.Errorf("%s: record %d: a file stands before the message that names it: %w", im.what, number, memory.ErrInvalid)
		return im.report, errors.Join(im.flush(ctx), err)
	}
	return im.report, im.flush(ctx)
}

type importer struct {
	store  *Store
	user   memory.UserID
	what   string
	report memory.ImportReport

	// session is that of the last session record: what follows belongs to it.
	session memory.SessionID
	// files wait for the message that names them.
	files []preparedFile
	batch []preparedRecord
	size  int

	// run is the last row of the session's compactions that was found or made.
	run int64
	// learned is what was looked at of the session and is not stored as such yet,
	// because its messages are still to come.
	learned []memory.SeqRange
}

// preparedRecord is a record that was checked and lacks only its place.
type preparedRecord struct {
	number int
	memory.Record
	// message is that of a message record, whole its blocks with the files that
	// stand before it, files their number.
	message preparedMessage
	whole   []memory.Block
	files   int
}

// add checks one record and puts it into the batch.
func (im *importer) add(ctx context.Context, number int, r memory.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	p := preparedRecord{number: number, Record: r}
	if len(im.files) > 0 && r.Kind != memory.RecordMessage && r.Kind != memory.RecordFile {
		return fmt.Errorf("a file stands before the message that names it: %w", memory.ErrInvalid)
	}
	var err error
	switch r.Kind {
	case memory.RecordSession:
		err = checkSession(*r.Session)
		im.session = r.Session.ID
	case memory.RecordFile:
		err = im.belongs(r.File.Session)
		if err == nil {
			err = im.prepareFile(*r.File)
		}
	case memory.RecordMessage:
		err = im.belongs(r.Message.Session)
		if err == nil {
			err = im.prepareMessage(&p)
		}
	case memory.RecordSummary:
		err = im.belongs(r.Summary.Session)
		if err == nil {
			err = checkSummary(*r.Summary)
		}
	case memory.RecordCompaction:
		err = im.belongs(r.Compaction.Session)
		if err == nil {
			err = checkCompaction(r.Compaction.CompactionRun)
		}
	case memory.RecordExtraction:
		p.Extraction, err = checkExtraction(*r.Extraction)
	case memory.RecordTopic:
		p.Topic, err = checkTopic(*r.Topic)
	}
	// A file is stored with its message.
	if err != nil || r.Kind == memory.RecordFile {
		return err
	}
	im.batch = append(im.batch, p)
	im.size += p.weigh()
	if len(im.batch) < importRows && im.size < importBytes {
		return nil
	}
	return im.flush(ctx)
}

// weigh returns about how many bytes the record takes.
func (p preparedRecord) weigh() int {
	size := len(p.message.content)
	for _, f := range p.message.files {
		size += len(f.block)
	}
	switch p.Kind {
	case memory.RecordSummary:
		size += len(p.Summary.Text) + 16*(len(p.Summary.Messages)+len(p.Summary.Summaries))
	case memory.RecordExtraction:
		learned(p.Extraction.Learnings, func(item *memory.Learned) { size += len(item.Text) + 36*len(item.Sources) })
	case memory.RecordTopic:
		size += len(p.Topic.Content) + len(p.Topic.Embedding) + 16*len(p.Topic.Sources)
	}
	return size
}

func (im *importer) belongs(session memory.SessionID) error {
	if session.IsZero() || session != im.session {
		return fmt.Errorf("it is of session %s, but the session before it is %s: %w", session, im.session, memory.ErrInvalid)
	}
	return nil
}

// flush stores the batch. When a record is refused, those before it are stored
// without it.
func (im *importer) flush(ctx context.Context) error {
	batch := im.batch
	im.batch, im.size = nil, 0
	if len(batch) == 0 {
		return nil
	}
	refused, err := im.storeAll(ctx, batch)
	if err == nil || refused <= 0 {
		return err
	}
	_, before := im.storeAll(ctx, batch[:refused])
	return errors.Join(before, err)
}

// storeAll stores all or none, and returns the index of the record that was
// refused.
func (im *importer) storeAll(ctx context.Context, batch []preparedRecord) (refused int, err error) {
	run, awaiting := im.run, im.learned
	added := make([]bool, len(batch))
	at := -1
	err = im.store.writing(ctx, im.what, func(ctx context.Context, tx *sql.Tx) error {
		if err := im.welcome(ctx, tx); err != nil {
			return err
		}
		w := &importing{importer: im, tx: tx}
		for i, p := range batch {
			at = i
			if added[i], err = w.put(ctx, p); err != nil {
				return fmt.Errorf("record %d: %w", p.number, err)
			}
		}
		at = -1
		return w.leave(ctx)
	})
	if err != nil {
		im.run, im.learned = run, awaiting
		return at, err
	}
	for i, p := range batch {
		counts := im.report.Skipped
		if added[i] {
			counts = im.report.Added
		}
		counts[p.Kind]++
		if p.files > 0 {
			counts[memory.RecordFile] += p.files
		}
	}
	return -1, nil
}

// welcome returns memory.ErrNotFound or memory.ErrWiped unless something can be
// written for the user.
func (im *importer) welcome(ctx context.Context, tx *sql.Tx) error {
	var known, wiped bool
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM users WHERE id = ?1), EXISTS (SELECT 1 FROM wipes WHERE user_id = ?1)", blob(im.user)).Scan(&known, &wiped); err != nil {
		return err
	}
	switch {
	case !known:
		return memory.ErrNotFound
	case wiped:
		return memory.ErrWiped
	}
	return nil
}

// prepareFile checks a file, which then waits for its message. Everything but
// the block is made anew from it.
func (im *importer) prepareFile(r memory.FileRecord) error {
	if r.ID.IsZero() || slices.ContainsFunc(im.files, func(f preparedFile) bool { return f.ID == r.ID }) {
		return fmt.Errorf("file %s has no id of its own: %w", r.ID, memory.ErrInvalid)
	}
	if err := checkTrust(r.Trust); err != nil {
		return err
	}
	encoded, read, err := memory.Encode([]memory.Block{r.Block})
	if err != nil {
		return err
	}
	f, _, err := memory.NewFile(r.ID, r.Session, read[0], r.Trust, r.CreatedAt)
	if err != nil {
		return err
	}
	if f.Digest != r.Digest {
		return fmt.Errorf("file %s has digest %s, not %q: %w", r.ID, f.Digest, r.Digest, memory.ErrInvalid)
	}
	im.files = append(im.files, preparedFile{f, encoded[0]})
	return nil
}

// prepareMessage checks the message as a draft is checked, and gives it the files
// that wait for it.
func (im *importer) prepareMessage(p *preparedRecord) error {
	r := p.Record.Message
	if r.ID.IsZero() || r.Seq < 1 {
		return fmt.Errorf("a message needs an id and a place: %w", memory.ErrInvalid)
	}
	d := memory.Draft{Role: r.Role, Source: r.Source, Blocks: r.Blocks, Trust: r.Trust, EventKey: r.EventKey, Transcript: r.Transcript, At: r.At}
	err := d.Check()
	if err == nil && d.Source == memory.SourceContextInjection {
		err = checkInjection(d)
	}
	if err != nil {
		return err
	}
	m, err := prepareMessage(r.Session, d)
	if err != nil {
		return err
	}
	m.ID, m.Seq = r.ID, r.Seq
	whole := slices.Clone(m.came)
	waiting := im.files
	im.files = nil
	for _, f := range waiting {
		i := slices.IndexFunc(m.came, func(b memory.Block) bool { return b.File == f.ID })
		if i < 0 {
			return fmt.Errorf("file %s stands before it, which it does not name: %w", f.ID, memory.ErrInvalid)
		}
		var b memory.Block
		if err := b.UnmarshalJSON([]byte(f.block)); err != nil {
			return err
		}
		for i, place := range m.came {
			if place.File != f.ID {
				continue
			}
			if !stands(place, b) {
				return fmt.Errorf("block %d is no outline of file %s: %w", i+1, f.ID, memory.ErrInvalid)
			}
			whole[i] = b
		}
		f.CreatedAt = m.At
		m.files = append(m.files, f)
		m.refers = slices.DeleteFunc(m.refers, func(id memory.FileID) bool { return id == f.ID })
	}
	p.message, p.whole, p.files = m, whole, len(waiting)
	return nil
}

// stands reports whether place is of the form that b leaves when it becomes a
// file: above all, external text never stands behind words that are not.
func stands(place, b memory.Block) bool {
	if b.Type == memory.BlockText {
		return place.Type == memory.BlockFile
	}
	return place.Type == b.Type && place.ID == b.ID && place.Name == b.Name && place.IsError == b.IsError &&
		!place.External.IsEmpty() && place.External.Source() == b.External.Source()
}

// checkInjection refuses what Inject would not have written.
func checkInjection(d memory.Draft) error {
	i := memory.Injection{At: d.At}
	for _, b := range d.Blocks[1:] {
		if b.Type == memory.BlockExternal {
			i.Blocks = append(i.Blocks, b.External)
		}
	}
	want := i.Draft()
	if d.Role != want.Role || d.Blocks[0].Type != memory.BlockText || d.Blocks[0].Text != want.Blocks[0].Text || len(want.Blocks) < 2 || len(want.Blocks) != len(d.Blocks) {
		return fmt.Errorf("it is no context refresh: %w", memory.ErrInvalid)
	}
	return nil
}

func checkTime(what string, t time.Time) error {
	if t.IsZero() || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return fmt.Errorf("%s is no time that can be written: %w", what, memory.ErrInvalid)
	}
	return nil
}

func checkTrust(t memory.Trust) error {
	if t != memory.TrustDirect && t != memory.TrustDerived && t != memory.TrustExternal {
		return fmt.Errorf("trust %q is not one of direct, derived, external: %w", t, memory.ErrInvalid)
	}
	return nil
}

func checkAgent(name string) error {
	if !memory.ValidName(name) {
		return fmt.Errorf("agent %q: the name is out of form: %w", name, memory.ErrInvalid)
	}
	return nil
}

func checkSession(r memory.SessionRecord) error {
	if r.ID.IsZero() || r.Parent == r.ID {
		return fmt.Errorf("a session needs an id of its own: %w", memory.ErrInvalid)
	}
	if r.Name != "" && !memory.ValidSessionName(r.Name) {
		return fmt.Errorf("the name of session %s is out of form: %w", r.ID, memory.ErrInvalid)
	}
	last := int64(-1)
	for _, run := range r.Learned {
		if run.First < 1 || run.Last < run.First || run.First <= last+1 {
			return fmt.Errorf("what was looked at of session %s, messages %d to %d, is out of order: %w", r.ID, run.First, run.Last, memory.ErrInvalid)
		}
		last = run.Last
	}
	return errors.Join(checkAgent(r.Agent), checkTime("created_at", r.CreatedAt))
}

func checkSummary(r memory.SummaryRecord) error {
	if r.ID.IsZero() || (len(r.Messages) == 0) == (len(r.Summaries) == 0) {
		return fmt.Errorf("a summary needs an id, and messages or summaries: %w", memory.ErrInvalid)
	}
	if r.Level != memory.LevelNormal && r.Level != memory.LevelAggressive && r.Level != memory.LevelFallback {
		return fmt.Errorf("level %q is not one of normal, aggressive, fallback: %w", r.Level, memory.ErrInvalid)
	}
	return errors.Join(checkTrust(r.Trust), checkTime("created_at", r.CreatedAt))
}

func checkTrigger(t memory.Trigger) error {
	switch t {
	case memory.TriggerCadence, memory.TriggerGap, memory.TriggerThreshold, memory.TriggerManual:
		return nil
	}
	return fmt.Errorf("trigger %q is unknown: %w", t, memory.ErrInvalid)
}

func checkCompaction(r memory.CompactionRun) error {
	if err := checkTrigger(r.Trigger); err != nil {
		return err
	}
	switch r.Outcome {
	case memory.OutcomeDone, memory.OutcomeSkipped, memory.OutcomeFailed:
	default:
		return fmt.Errorf("outcome %q is unknown: %w", r.Outcome, memory.ErrInvalid)
	}
	if min(r.ItemsBefore, r.ItemsAfter, r.TokensBefore, r.TokensAfter, r.Summaries, r.RefreshBlocks, r.RefreshTokens, r.RefreshSkipped) < 0 || r.Took < 0 {
		return fmt.Errorf("a count is below 0: %w", memory.ErrInvalid)
	}
	return checkTime("started_at", r.StartedAt)
}

// checkExtraction returns the record as it is stored.
func checkExtraction(r memory.ExtractionRecord) (*memory.ExtractionRecord, error) {
	if r.ID.IsZero() || r.Session.IsZero() {
		return nil, fmt.Errorf("an extraction needs an id and a session: %w", memory.ErrInvalid)
	}
	err := errors.Join(checkAgent(r.Agent), checkTime("created_at", r.CreatedAt))
	if !r.MergedAt.IsZero() {
		err = errors.Join(err, checkTime("merged_at", r.MergedAt))
	}
	if err != nil {
		return nil, err
	}
	if r.Learnings, err = r.Learnings.Kept(); err != nil {
		return nil, err
	}
	r.CreatedAt = fromMicros(micros(r.CreatedAt))
	switch {
	case !r.MergedAt.IsZero():
		r.MergedAt = fromMicros(micros(r.MergedAt))
	case isBlank(r.Learnings):
		r.MergedAt = r.CreatedAt
	}
	return &r, nil
}

// checkTopic returns the record as it is stored.
func checkTopic(r memory.TopicRecord) (*memory.TopicRecord, error) {
	if r.ID.IsZero() || r.SupersededBy == r.ID || slices.ContainsFunc(r.Sources, func(m memory.MessageID) bool { return m.IsZero() }) {
		return nil, fmt.Errorf("a topic needs an id of its own and sources that have one: %w", memory.ErrInvalid)
	}
	err := errors.Join(checkTime("valid_from", r.ValidFrom), checkTime("updated_at", r.UpdatedAt))
	if r.Agent != "" {
		err = errors.Join(err, checkAgent(r.Agent))
	}
	if !r.ExpiresAt.IsZero() {
		err = errors.Join(err, checkTime("expires_at", r.ExpiresAt))
	}
	if len(r.Embedding) > maxEmbedding {
		err = errors.Join(err, fmt.Errorf("an embedding has at most %d bytes: %w", maxEmbedding, memory.ErrInvalid))
	}
	if err != nil {
		return nil, err
	}
	n, err := memory.NewTopic{Name: r.Topic, Content: r.Content, Sources: r.Sources}.Canonical(r.ValidFrom)
	if err != nil {
		return nil, err
	}
	r.Topic, r.Content, r.Sources = n.Name, n.Content, slices.Clone(n.Sources)
	slices.SortFunc(r.Sources, func(a, b memory.MessageID) int { return bytes.Compare(a[:], b[:]) })
	r.ValidFrom, r.UpdatedAt = fromMicros(micros(r.ValidFrom)), fromMicros(micros(r.UpdatedAt))
	if !r.ExpiresAt.IsZero() {
		r.ExpiresAt = fromMicros(micros(r.ExpiresAt))
	}
	if len(r.Embedding) == 0 {
		r.Embedding = nil
	}
	return &r, nil
}

// maxEmbedding is the most bytes of one: 4096 numbers of 4.
const maxEmbedding = 16 << 10

// importing is one transaction of an import.
type importing struct {
	*importer
	tx *sql.Tx
	// entered is the session whose position is kept, until it is left.
	entered memory.SessionID
	position
	moved bool
}

// put stores one record, unless it is there already.
func (w *importing) put(ctx context.Context, p preparedRecord) (added bool, err error) {
	switch p.Kind {
	case memory.RecordSession:
		if err := w.leave(ctx); err != nil {
			return false, err
		}
		w.run, w.learned = 0, p.Session.Learned
		return w.putSession(ctx, *p.Session)
	case memory.RecordMessage:
		return w.putMessage(ctx, p)
	case memory.RecordSummary:
		return w.putSummary(ctx, *p.Summary)
	case memory.RecordCompaction:
		return w.putCompaction(ctx, p.Compaction.CompactionRun)
	case memory.RecordExtraction:
		return w.putExtraction(ctx, *p.Extraction)
	default:
		return w.putTopic(ctx, *p.Topic)
	}
}

// enter keeps the position of the session, which must be the user's.
func (w *importing) enter(ctx context.Context, session memory.SessionID) (err error) {
	if w.entered == session {
		return nil
	}
	if err := w.leave(ctx); err != nil {
		return err
	}
	if w.position, err = w.store.position(ctx, w.tx, w.user, session); err != nil {
		return err
	}
	w.entered = session
	return nil
}

// leave stores where the session stands.
func (w *importing) leave(ctx context.Context) error {
	if !w.moved {
		return nil
	}
	w.moved = false
	if err := w.store.advance(ctx, w.tx, w.user, w.entered, &w.position); err != nil {
		return err
	}
	return w.look(ctx, w.entered, w.messages)
}

// look stores what was looked at of a session as far as it has those messages.
func (w *importing) look(ctx context.Context, session memory.SessionID, messages int64) error {
	if len(w.learned) == 0 || w.learned[0].First > messages {
		return nil
	}
	for len(w.learned) > 0 && w.learned[0].First <= messages {
		run := w.learned[0]
		if run.Last > messages {
			// The rest is still to come; the slice is the record's own.
			w.learned = slices.Concat([]memory.SeqRange{{First: messages + 1, Last: run.Last}}, w.learned[1:])
			run.Last = messages
		} else {
			w.learned = w.learned[1:]
		}
		if _, err := lookAgain(ctx, w.tx, session, run); err != nil {
			return err
		}
	}
	return settleDue(ctx, w.tx, session)
}

// taken is for an id that something else has.
func taken(what string, id fmt.Stringer) error {
	return fmt.Errorf("%s %s is there already and is not this one: %w", what, id, memory.ErrConflict)
}

// agent returns the id of the agent, which is made if there is none.
func (w *importing) agent(ctx context.Context, name string, at time.Time) (id memory.AgentID, err error) {
	err = w.tx.QueryRowContext(ctx, "SELECT id FROM agents WHERE name = ?", name).Scan(into(&id))
	if err != sql.ErrNoRows {
		return id, err
	}
	id = memory.NewID[memory.AgentID]()
	_, err = w.tx.ExecContext(ctx, "INSERT INTO agents VALUES (?, ?, '', ?)", blob(id), name, micros(at))
	return id, err
}

func (w *importing) putSession(ctx context.Context, r memory.SessionRecord) (bool, error) {
	var user memory.UserID
	var known memory.SessionRecord
	var messages int64
	err := w.tx.QueryRowContext(ctx, "SELECT s.user_id, s.messages, s.id, a.name, s.parent_session_id, s.title, s.created_at FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = ?", blob(r.ID)).
		Scan(into(&user), &messages, into(&known.ID), &known.Agent, into(&known.Parent), &known.Title, instant{&known.CreatedAt})
	r.Title, r.CreatedAt = valid(r.Title), fromMicros(micros(r.CreatedAt))
	switch {
	case err == nil && user == w.user && known.Agent == r.Agent && known.Parent == r.Parent && known.Title == r.Title && known.CreatedAt.Equal(r.CreatedAt):
		// What was looked at here or there was looked at. A name may have been given
		// since, or taken away.
		return false, w.look(ctx, r.ID, messages)
	case err == nil:
		return false, taken("session", r.ID)
	case err != sql.ErrNoRows:
		return false, err
	}
	var parent, named bool
	if err := w.tx.QueryRowContext(ctx, `SELECT ?1 IS NULL OR EXISTS (SELECT 1 FROM sessions WHERE id = ?1 AND user_id = ?2),
		EXISTS (SELECT 1 FROM sessions WHERE user_id = ?2 AND name = ?3)`, blob(r.Parent), blob(w.user), optionalText(r.Name)).Scan(&parent, &named); err != nil {
		return false, err
	}
	switch {
	case !parent:
		return false, fmt.Errorf("session %s stands before its parent %s: %w", r.ID, r.Parent, memory.ErrInvalid)
	case named:
		return false, fmt.Errorf("another session has the name %q of session %s: %w", r.Name, r.ID, memory.ErrConflict)
	}
	agent, err := w.agent(ctx, r.Agent, r.CreatedAt)
	if err != nil {
		return false, err
	}
	_, err = w.tx.ExecContext(ctx, "INSERT INTO sessions (id, agent_id, user_id, parent_session_id, title, created_at, last_active_at, name) VALUES (?, ?, ?, ?, ?, ?6, ?6, ?7)",
		blob(r.ID), blob(agent), blob(w.user), blob(r.Parent), r.Title, micros(r.CreatedAt), optionalText(r.Name))
	return true, err
}

func (w *importing) putMessage(ctx context.Context, p preparedRecord) (bool, error) {
	m := p.message
	if err := w.enter(ctx, m.Session); err != nil {
		return false, err
	}
	known, err := scanMessage(w.tx.QueryRowContext(ctx, selectMessages+" WHERE m.id = ?", blob(m.ID)))
	if err == nil {
		if same, err := w.sameMessage(ctx, known, p); err != nil || same {
			return false, err
		}
		return false, taken("message", m.ID)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	switch next := w.messages + 1; {
	case m.Seq < next:
		return false, fmt.Errorf("another message has place %d of session %s: %w", m.Seq, m.Session, memory.ErrConflict)
	case m.Seq > next:
		return false, fmt.Errorf("message %d stands where message %d of session %s must: %w", m.Seq, next, m.Session, memory.ErrInvalid)
	}
	for _, f := range m.files {
		exists := false
		if err := w.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM files WHERE id = ?)", blob(f.ID)).Scan(&exists); err != nil {
			return false, err
		}
		if exists {
			return false, taken("file", f.ID)
		}
	}
	stored, err := w.store.appendOne(ctx, w.tx, w.user, &w.position, m)
	if err != nil {
		return false, err
	}
	if stored.ID != m.ID {
		return false, fmt.Errorf("message %s has the event key %q: %w", stored.ID, m.EventKey, memory.ErrConflict)
	}
	w.moved = true
	return true, nil
}

// sameMessage reports whether the record is what is stored.
func (w *importing) sameMessage(ctx context.Context, known memory.Message, p preparedRecord) (bool, error) {
	m := p.message
	if known.Session != m.Session || known.Seq != m.Seq || known.Role != m.Role || known.Source != m.Source || known.EventKey != m.EventKey || known.Transcript != m.Transcript || !known.At.Equal(m.At) {
		return false, nil
	}
	before, err := utterance(ctx, w.tx, m.Session, known.Role, known.Blocks)
	if err != nil {
		return false, err
	}
	now, err := utterance(ctx, w.tx, m.Session, m.Role, p.whole)
	return now == before, err
}

// putSummary does to the frontier again what CommitSummary did.
func (w *importing) putSummary(ctx context.Context, r memory.SummaryRecord) (bool, error) {
	if err := w.enter(ctx, r.Session); err != nil {
		return false, err
	}
	n := memory.NewSummary{ID: r.ID, Messages: r.Messages, Summaries: r.Summaries, At: fromMicros(micros(r.CreatedAt)),
		SummaryText: memory.SummaryText{Text: valid(r.Text), External: r.External, Level: r.Level, Model: valid(r.Model)}}
	known, err := scanSummary(w.tx.QueryRowContext(ctx, "SELECT "+summaryColumns+" FROM summaries v WHERE v.id = ?", blob(r.ID)))
	if err == nil {
		messages, summaries, err := sourceIDs(ctx, w.tx, r.ID)
		if err != nil {
			return false, err
		}
		if known.Session != r.Session || !known.CreatedAt.Equal(n.At) || !slices.Equal(messages, n.Messages) || !slices.Equal(summaries, n.Summaries) ||
			n.SummaryText != (memory.SummaryText{Text: known.Text, External: known.External, Level: known.Level, Model: known.Model}) {
			return false, taken("summary", r.ID)
		}
		return false, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	// The session does not stand there any more afterwards.
	if err := w.leave(ctx); err != nil {
		return false, err
	}
	w.entered = memory.SessionID{}
	v, err := w.store.commit(ctx, w.tx, w.user, r.Session, n)
	if err != nil {
		return false, err
	}
	// A record may know of reasons for less trust, never for more.
	if least := v.Trust.Least(r.Trust); least != v.Trust {
		_, err = w.tx.ExecContext(ctx, "UPDATE summaries SET trust = ? WHERE id = ?", string(least), blob(r.ID))
	}
	return true, err
}

// putCompaction follows the session's record of runs, which have no ids: what is
// stored in a run's place must be that run.
func (w *importing) putCompaction(ctx context.Context, r memory.CompactionRun) (bool, error) {
	if err := w.enter(ctx, r.Session); err != nil {
		return false, err
	}
	r.Reason, r.StartedAt = valid(r.Reason), fromMicros(micros(r.StartedAt))
	known, err := scanCompaction(w.tx.QueryRowContext(ctx, "SELECT c.id, "+compactionColumns+" FROM compaction_runs c WHERE c.session_id = ? AND c.id > ? ORDER BY c.id LIMIT 1", blob(r.Session), w.run), &w.run)
	switch {
	case err == nil && known == r:
		return false, nil
	case err == nil:
		return false, fmt.Errorf("another compaction of session %s stands in its place: %w", r.Session, memory.ErrConflict)
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	}
	return true, w.tx.QueryRowContext(ctx, `INSERT INTO compaction_runs (session_id, agent_id, trigger, outcome, reason, items_before, items_after,
		tokens_before, tokens_after, summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took)
		SELECT s.id, s.agent_id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14 FROM sessions s WHERE s.id = ?1 RETURNING id`,
		blob(r.Session), string(r.Trigger), string(r.Outcome), r.Reason, r.ItemsBefore, r.ItemsAfter, r.TokensBefore, r.TokensAfter,
		r.Summaries, r.RefreshBlocks, r.RefreshTokens, r.RefreshSkipped, micros(r.StartedAt), int64(r.Took)).Scan(&w.run)
}

func (w *importing) putExtraction(ctx context.Context, r memory.ExtractionRecord) (bool, error) {
	known, err := scanExtraction(w.tx.QueryRowContext(ctx, "SELECT "+extractionColumns+" FROM session_extractions x JOIN agents a ON a.id = x.agent_id WHERE x.id = ? AND x.user_id = ?", blob(r.ID), blob(w.user)))
	if err == nil && isSince(known, r) {
		return false, nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	exists := false
	if err := w.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM session_extractions WHERE id = ?)", blob(r.ID)).Scan(&exists); err != nil {
		return false, err
	}
	if exists {
		return false, taken("extraction", r.ID)
	}
	agent, err := w.agent(ctx, r.Agent, r.CreatedAt)
	if err != nil {
		return false, err
	}
	if err := insertExtraction(ctx, w.tx, w.user, memory.Extraction{ID: r.ID, Agent: agent, Session: r.Session, Learnings: r.Learnings, CreatedAt: r.CreatedAt, MergedAt: r.MergedAt}); err != nil {
		return false, err
	}
	return true, settleDue(ctx, w.tx, r.Session)
}

// isSince reports whether an extraction is what became of a record: merged since, or
// with some of what it says deleted. A deletion stays.
func isSince(known, r memory.ExtractionRecord) bool {
	if r.MergedAt.IsZero() {
		r.MergedAt = known.MergedAt
	}
	lists := func(l *memory.Learnings) []*[]memory.Learned {
		return []*[]memory.Learned{&l.Facts, &l.Preferences, &l.Decisions, &l.Tasks, &l.OpenItems}
	}
	had, has := lists(&r.Learnings), lists(&known.Learnings)
	for i := range had {
		*had[i] = slices.Clone(*had[i])
		for k := range min(len(*had[i]), len(*has[i])) {
			if learned := (*has[i])[k]; learned.Text == "" && len(learned.Sources) == 0 {
				(*had[i])[k] = learned
			}
		}
	}
	return reflect.DeepEqual(known, r)
}

func (w *importing) putTopic(ctx context.Context, r memory.TopicRecord) (bool, error) {
	known, err := readTopic(ctx, w.tx, w.user, r.ID)
	if err != nil {
		return false, err
	}
	if known != nil {
		// What was said of it since the record was written stays: its successor.
		later := r
		if later.SupersededBy.IsZero() {
			later.SupersededBy = known.SupersededBy
		}
		if reflect.DeepEqual(normal(*known), normal(later)) {
			return false, nil
		}
	}
	exists := false
	if err := w.tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM topics WHERE id = ?)", blob(r.ID)).Scan(&exists); err != nil {
		return false, err
	}
	if exists {
		return false, taken("topic", r.ID)
	}
	var agent memory.AgentID
	if r.Agent != "" {
		if agent, err = w.agent(ctx, r.Agent, r.UpdatedAt); err != nil {
			return false, err
		}
	}
	// As in a dream: one kind of topic takes the place of the other, but those with
	// one agent never that of those with another.
	supersedable := false
	if err := w.tx.QueryRowContext(ctx, "SELECT ?1 IS NULL OR EXISTS (SELECT 1 FROM topics WHERE id = ?1 AND user_id = ?2 AND (agent_id IS NULL OR ?3 IS NULL OR agent_id = ?3))",
		blob(r.SupersededBy), blob(w.user), blob(agent)).Scan(&supersedable); err != nil {
		return false, err
	}
	if !supersedable {
		return false, fmt.Errorf("topic %s stands before %s, which superseded it: %w", r.ID, r.SupersededBy, memory.ErrInvalid)
	}
	if _, err := w.tx.ExecContext(ctx, "INSERT INTO topics (id, user_id, agent_id, name, content, embedding, valid_from, expires_at, superseded_by, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		blob(r.ID), blob(w.user), blob(agent), r.Topic, r.Content, r.Embedding, micros(r.ValidFrom), moment(r.ExpiresAt), blob(r.SupersededBy), micros(r.UpdatedAt)); err != nil {
		return false, err
	}
	for _, m := range r.Sources {
		if _, err := w.tx.ExecContext(ctx, "INSERT INTO topic_sources (topic_id, message_id) VALUES (?, ?)", blob(r.ID), blob(m)); err != nil {
			return false, err
		}
	}
	return true, revise(ctx, w.tx, w.user)
}

// normal is a topic without the difference between none and nil.
func normal(r memory.TopicRecord) memory.TopicRecord {
	if len(r.Sources) == 0 {
		r.Sources = nil
	}
	if len(r.Embedding) == 0 {
		r.Embedding = nil
	}
	return r
}
