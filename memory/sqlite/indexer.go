package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/internal/index"
)

// kind is what a segment holds.
type kind int

const (
	ofMessages kind = iota
	ofSummaries
)

var kinds = []kind{ofMessages, ofSummaries}

const (
	// settle is how long a message waits for others to be indexed with.
	settle = 250 * time.Millisecond
	// retry is how long the indexer rests after a failure.
	retry = time.Second

	// A batch ends with whatever comes first, so that to write it takes the
	// writer a few milliseconds.
	batchRows  = 1024
	batchBytes = 2 << 20
	// batchWindow is how many rows are looked at for those of one user.
	batchWindow = 1 << 15
	// batchPages is how many pages one transaction writes or deletes.
	batchPages = 32

	// fanIn is how many segments are merged into one.
	fanIn = 8

	pageBits = 20
)

// indexer puts what was stored into the search index, behind the writers. It
// reads, tokenises, encodes and merges outside of any lock that they take, and
// writes in transactions of a few milliseconds. Each moves the cursor in the
// transaction that writes the segments: after a crash it goes on where it was.
type indexer struct {
	store *Store
	wake  chan struct{} // holds one
	stop  context.CancelFunc
	done  chan struct{}

	turn      chan struct{} // holds one: whoever makes a batch or a merge
	tokenizer index.Tokenizer
	// latest is when indexNew was last through.
	latest time.Time
	// grown are the users with new segments, which may have to be merged.
	grown map[owner]bool
}

// owner is whose a segment is.
type owner struct {
	user memory.UserID
	kind kind
}

// errMoved says that rows of the index were taken away under the hands of the
// indexer: it starts anew.
var errMoved = errors.New("the index was changed in the meantime")

func (s *Store) startIndexer(ctx context.Context) error {
	i := &indexer{store: s, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1), done: make(chan struct{}), grown: make(map[owner]bool)}
	if err := i.recover(ctx); err != nil {
		return err
	}
	ctx, i.stop = context.WithCancel(context.Background())
	s.indexer = i
	go i.run(ctx)
	i.notify()
	return nil
}

// notify tells the indexer that there may be something new.
func (i *indexer) notify() {
	if i == nil {
		return
	}
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// close ends the indexer, which leaves what it has not done to the next.
func (i *indexer) close() {
	if i != nil {
		i.stop()
		<-i.done
	}
}

func (i *indexer) run(ctx context.Context) {
	defer close(i.done)
	pause := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		select {
		case <-i.wake:
		case <-ctx.Done():
			return
		}
		pause(settle)
		if err := i.catchUp(ctx); err != nil && ctx.Err() == nil {
			// Nothing is lost: the cursor stands before what was not done.
			pause(retry)
			i.notify()
		}
	}
}

// recover looks for what an older version or an earlier process has left.
func (i *indexer) recover(ctx context.Context) error {
	return i.store.writingIndex(ctx, "open the search index", func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT DISTINCT user_id FROM index_segments WHERE version <> ?", index.Version)
		users, err := all(rows, err, func(r row) (u memory.UserID, err error) { return u, r.Scan(into(&u)) })
		if err != nil {
			return err
		}
		for _, user := range users {
			if err := rebuildIndex(ctx, tx, user, kinds...); err != nil {
				return err
			}
		}
		rows, err = tx.QueryContext(ctx, "SELECT user_id, kind FROM index_segments WHERE live GROUP BY user_id, kind HAVING count(*) >= ?", fanIn)
		owners, err := all(rows, err, func(r row) (o owner, err error) { return o, r.Scan(into(&o.user), &o.kind) })
		for _, o := range owners {
			i.grown[o] = true
		}
		return err
	})
}

// catchUp indexes all that is stored, and merges what there is to merge.
func (i *indexer) catchUp(ctx context.Context) error {
	for done := false; !done; {
		if err := i.lock(ctx); err != nil {
			return err
		}
		var err error
		done, err = i.step(ctx)
		i.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// lock waits for its turn no longer than ctx allows.
func (i *indexer) lock(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *indexer) unlock() { <-i.turn }

// settle deletes what is dead, which is what a wipe waits for: it must not wait
// for what others say to be indexed.
func (i *indexer) settle(ctx context.Context) error {
	if err := i.lock(ctx); err != nil {
		return err
	}
	defer i.unlock()
	return i.sweep(ctx)
}

// step indexes, rebuilds and merges a part, and reports whether nothing is left.
func (i *indexer) step(ctx context.Context) (done bool, err error) {
	// One of each, so that a backlog is merged while it is indexed.
	more, err := i.indexNew(ctx)
	if err != nil {
		return false, err
	}
	rebuilt, err := i.rebuild(ctx)
	if err != nil {
		return false, err
	}
	merged, err := i.mergeOne(ctx)
	if err != nil || more || rebuilt || merged {
		return false, err
	}
	return true, i.sweep(ctx)
}

// indexNew indexes a batch of what is behind each cursor and reports whether
// more is.
func (i *indexer) indexNew(ctx context.Context) (more bool, err error) {
	for _, k := range kinds {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		moreOf, err := i.indexBatch(ctx, k)
		if err != nil {
			return false, err
		}
		more = more || moreOf
	}
	i.latest = time.Now()
	return more, nil
}

func (i *indexer) indexBatch(ctx context.Context, k kind) (more bool, err error) {
	var at state
	var batch []text
	err = i.store.reading(ctx, "read what is not indexed", func(tx *sql.Tx) error {
		if at, err = readState(ctx, tx, k); err != nil {
			return err
		}
		batch, err = readTexts(ctx, tx, k, memory.UserID{}, at.cursor, math.MaxInt64)
		return err
	})
	if err != nil || len(batch) == 0 {
		return false, err
	}
	segments, err := i.build(ctx, k, batch)
	if err != nil {
		return false, err
	}
	err = i.store.writingIndex(ctx, "write the search index", func(ctx context.Context, tx *sql.Tx) error {
		if now, err := readState(ctx, tx, k); err != nil {
			return err
		} else if now != at {
			return errMoved
		}
		if err := insertSegments(ctx, tx, segments); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE index_state SET cursor = ? WHERE kind = ?", batch[len(batch)-1].number, k)
		return err
	})
	// What comes meanwhile is left to be indexed together with what follows.
	return full(batch) || errors.Is(err, errMoved), unmoved(err)
}

// unmoved takes errMoved away: the next round reads what there is now.
func unmoved(err error) error {
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

// rebuild indexes a batch of a user whose index is being rebuilt.
func (i *indexer) rebuild(ctx context.Context) (more bool, err error) {
	var o owner
	var at state
	var cursor, last, end int64
	var batch []text
	err = i.store.reading(ctx, "read what is to be indexed again", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT user_id, kind, cursor, last FROM index_rebuilds LIMIT 1").Scan(into(&o.user), &o.kind, &cursor, &last)
		if err != nil {
			return err
		}
		if at, err = readState(ctx, tx, o.kind); err != nil {
			return err
		}
		end = min(last, cursor+batchWindow)
		if batch, err = readTexts(ctx, tx, o.kind, o.user, cursor, end); full(batch) {
			end = batch[len(batch)-1].number
		}
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	segments, err := i.build(ctx, o.kind, batch)
	if err != nil {
		return false, err
	}
	err = i.store.writingIndex(ctx, "rebuild the search index", func(ctx context.Context, tx *sql.Tx) error {
		if now, err := readState(ctx, tx, o.kind); err != nil {
			return err
		} else if now.drops != at.drops {
			return errMoved
		}
		if err := insertSegments(ctx, tx, segments); err != nil {
			return err
		}
		if end == last {
			_, err := tx.ExecContext(ctx, "DELETE FROM index_rebuilds WHERE user_id = ? AND kind = ?", blob(o.user), o.kind)
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE index_rebuilds SET cursor = ? WHERE user_id = ? AND kind = ?", end, blob(o.user), o.kind)
		return err
	})
	return true, unmoved(err)
}

// state is a row of index_state.
type state struct{ cursor, drops int64 }

func readState(ctx context.Context, tx *sql.Tx, k kind) (s state, err error) {
	return s, tx.QueryRowContext(ctx, "SELECT cursor, drops FROM index_state WHERE kind = ?", k).Scan(&s.cursor, &s.drops)
}

// text is a row of messages or summaries as it is indexed.
type text struct {
	number  int64
	user    memory.UserID
	session memory.SessionID
	seq, at int64
	words   string
	// bytes is what was read for it.
	bytes int
}

// full reports whether readTexts stopped at a batch's bounds.
func full(batch []text) bool {
	bytes := 0
	for _, t := range batch {
		bytes += t.bytes
	}
	return len(batch) == batchRows || bytes >= batchBytes
}

func (k kind) table() string {
	if k == ofSummaries {
		return "summaries"
	}
	return "messages"
}

// readTexts reads the next batch of rows after a number, up to another, of one
// user if it is not zero.
func readTexts(ctx context.Context, tx *sql.Tx, k kind, user memory.UserID, after, last int64) ([]text, error) {
	// CROSS JOIN keeps the order of the tables: by number, whatever the
	// statistics say.
	columns := "t.seq, t.created_at, t.content, NULL"
	if k == ofSummaries {
		columns = "t.number, t.latest_at, t.text, t.external"
	}
	rows, err := tx.QueryContext(ctx, "SELECT t.number, s.user_id, t.session_id, "+columns+" FROM "+k.table()+` t CROSS JOIN sessions s ON s.id = t.session_id
		WHERE t.number > ?1 AND t.number <= ?2 AND (?3 IS NULL OR s.user_id = ?3) ORDER BY t.number LIMIT ?4 + 0`, after, last, blob(user), batchRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var batch []text
	for bytes := 0; bytes < batchBytes && rows.Next(); {
		var t text
		var content, external sql.RawBytes
		if err := rows.Scan(&t.number, into(&t.user), into(&t.session), &t.seq, &t.at, &content, &external); err != nil {
			return nil, err
		}
		t.bytes = len(content) + len(external)
		bytes += t.bytes
		t.words = k.plain(content, external)
		batch = append(batch, t)
	}
	return batch, rows.Err()
}

// plain returns the words of a row. One that cannot be decoded has none: it
// must not keep others from being found.
func (k kind) plain(content, external []byte) string {
	if k == ofMessages {
		blocks, err := memory.Decode(string(content))
		if err != nil {
			return ""
		}
		return memory.Plain(blocks)
	}
	var outside boundary.Content
	if len(external) > 0 && json.Unmarshal(external, &outside) != nil {
		return string(content)
	}
	return memory.Plain([]memory.Block{memory.Text(string(content)), memory.External(outside)})
}

// segment is one that is to be written.
type segment struct {
	owner
	first, last int64
	documents   int
	head        []byte
	pages       [][]byte
}

// build makes a segment for each user of a batch.
func (i *indexer) build(ctx context.Context, k kind, batch []text) ([]segment, error) {
	documents := make(map[memory.UserID][]index.Document)
	var segments []segment
	place := make(map[memory.UserID]int)
	for _, t := range batch {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, known := place[t.user]; !known {
			place[t.user] = len(segments)
			segments = append(segments, segment{owner: owner{t.user, k}, first: t.number})
		}
		s := &segments[place[t.user]]
		s.last = t.number
		s.documents++
		documents[t.user] = append(documents[t.user], t.document(&i.tokenizer))
	}
	for n := range segments {
		s := &segments[n]
		var err error
		if s.head, s.pages, err = index.Build(documents[s.user]); err != nil {
			return nil, err
		}
		i.grown[s.owner] = true
	}
	return segments, nil
}

func (t text) document(tokenizer *index.Tokenizer) index.Document {
	return index.Document{Session: t.session, Seq: t.seq, At: t.at, Terms: tokenizer.Terms(t.words)}
}

func insertSegments(ctx context.Context, tx *sql.Tx, segments []segment) error {
	for _, s := range segments {
		id, err := insertSegment(ctx, tx, s, true)
		if err == nil {
			err = insertPages(ctx, tx, id, 0, s.pages)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func insertSegment(ctx context.Context, tx *sql.Tx, s segment, live bool) (id int64, err error) {
	head := s.head
	if head == nil {
		head = []byte{}
	}
	inserted, err := tx.ExecContext(ctx, "INSERT INTO index_segments (user_id, kind, version, live, first, last, documents, head) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		blob(s.user), s.kind, index.Version, live, s.first, s.last, s.documents, head)
	if err != nil {
		return 0, err
	}
	return inserted.LastInsertId()
}

func insertPages(ctx context.Context, tx *sql.Tx, id int64, number int, pages [][]byte) error {
	if number+len(pages) > 1<<pageBits {
		return fmt.Errorf("a segment of %d pages", number+len(pages))
	}
	for n, page := range pages {
		if _, err := tx.ExecContext(ctx, "INSERT INTO index_pages VALUES (?, ?)", id<<pageBits+int64(number+n), page); err != nil {
			return err
		}
	}
	return nil
}

// stored is a segment that can be merged.
type stored struct {
	id          int64
	first, last int64
	documents   int
}

// tier is the power of fanIn that a segment has reached.
func (s stored) tier() int { return (bits.Len(uint(s.documents)) - 1) / 3 }

// mergeOne merges one user's segments once, if there are enough of a size.
func (i *indexer) mergeOne(ctx context.Context) (merged bool, err error) {
	for o := range i.grown {
		var segments []stored
		err := i.store.reading(ctx, "read segments", func(tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT id, first, last, documents FROM index_segments WHERE user_id = ? AND kind = ? AND live ORDER BY first", blob(o.user), o.kind)
			segments, err = all(rows, err, func(r row) (s stored, err error) { return s, r.Scan(&s.id, &s.first, &s.last, &s.documents) })
			return err
		})
		if err != nil {
			return false, err
		}
		choice := choose(segments)
		if choice == nil {
			delete(i.grown, o)
			continue
		}
		err = i.merge(ctx, o, choice)
		if errors.Is(err, index.ErrCorrupt) {
			// All that it was made of is still there.
			err = i.store.writingIndex(ctx, "rebuild the search index", func(ctx context.Context, tx *sql.Tx) error { return rebuildIndex(ctx, tx, o.user, kinds...) })
		}
		return true, unmoved(err)
	}
	return false, nil
}

// choose returns neighbours that are to be merged: the smallest tier that has
// fanIn of its size or smaller in a row. Segments that are half full already
// stay as they are.
func choose(segments []stored) []stored {
	const full = index.MaxDocuments / 2
	for tier := 0; tier <= (stored{documents: full}).tier(); tier++ {
		for at := 0; at < len(segments); at++ {
			n, documents := 0, 0
			for ; at+n < len(segments) && n < fanIn; n++ {
				s := segments[at+n]
				if s.tier() > tier || s.documents >= full || documents+s.documents > index.MaxDocuments {
					break
				}
				documents += s.documents
			}
			if n == fanIn || n > 1 && documents >= full {
				return segments[at : at+n]
			}
		}
	}
	return nil
}

// merge replaces segments by one. Its pages are written a few at a time, before
// it is live; the last transaction makes it so and takes the others out.
func (i *indexer) merge(ctx context.Context, o owner, parts []stored) error {
	made := segment{owner: o, first: parts[0].first, last: parts[len(parts)-1].last}
	var sources []index.Source
	for _, p := range parts {
		source, err := i.store.openSegment(ctx, i.store.showing.segments, p.id)
		if err != nil {
			return i.missing(ctx, parts, err)
		}
		sources = append(sources, source)
		made.documents += source.Documents()
	}
	var id int64
	written := 0
	write := func(last bool) error {
		return i.store.writingIndex(ctx, "merge segments", func(ctx context.Context, tx *sql.Tx) error {
			// A wipe or a rebuild may have come between: what is made of its
			// words must not be written.
			for _, p := range parts {
				var live bool
				if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM index_segments WHERE id = ? AND live)", p.id).Scan(&live); err != nil {
					return err
				}
				if !live {
					return errMoved
				}
			}
			var err error
			if id == 0 {
				id, err = insertSegment(ctx, tx, made, false)
			}
			if err == nil {
				err = insertPages(ctx, tx, id, written, made.pages)
			}
			if err != nil || !last {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE index_segments SET live = 1, head = ? WHERE id = ?", made.head, id); err != nil {
				return err
			}
			for _, p := range parts {
				if _, err := tx.ExecContext(ctx, "UPDATE index_segments SET live = 0 WHERE id = ?", p.id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var err error
	made.head, err = index.Merge(sources, func(page []byte) error {
		made.pages = append(made.pages, page)
		if len(made.pages) < batchPages {
			return ctx.Err()
		}
		if err := write(false); err != nil {
			return err
		}
		written += len(made.pages)
		made.pages = nil
		// A merge takes seconds; what is said meanwhile does not wait for it.
		if time.Since(i.latest) < settle {
			return nil
		}
		_, err := i.indexNew(ctx)
		return err
	})
	if err == nil {
		err = write(true)
	}
	return errors.Join(i.missing(ctx, parts, err), i.sweep(ctx))
}

// missing says what it means that a row of live segments was not found: that
// they are no longer live, or are damaged. Another error stays what it is.
func (i *indexer) missing(ctx context.Context, parts []stored, err error) error {
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	for _, p := range parts {
		var live bool
		if err := i.store.read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM index_segments WHERE id = ? AND live)", p.id).Scan(&live); err != nil {
			return err
		}
		if !live {
			return errMoved
		}
	}
	return fmt.Errorf("a page is missing: %w", index.ErrCorrupt)
}

// sweep deletes the segments that are not live, a few pages at a time.
func (i *indexer) sweep(ctx context.Context) error {
	for left := 0; left == 0; {
		var any bool
		if err := i.store.read.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM index_segments WHERE NOT live)").Scan(&any); err != nil || !any {
			return err
		}
		left = batchPages
		err := i.store.writingIndex(ctx, "delete dead segments", func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, "SELECT id FROM index_segments WHERE NOT live LIMIT ? + 0", batchPages)
			dead, err := all(rows, err, func(r row) (id int64, err error) { return id, r.Scan(&id) })
			if err != nil {
				return err
			}
			for _, id := range dead {
				deleted, err := tx.ExecContext(ctx, "DELETE FROM index_pages WHERE id IN (SELECT id FROM index_pages WHERE id >= ? AND id < ? LIMIT ? + 0)", id<<pageBits, (id+1)<<pageBits, left)
				if err != nil {
					return err
				}
				n, err := deleted.RowsAffected()
				if err != nil {
					return err
				}
				// None left means that of this one there may be more.
				if left -= int(n); left == 0 {
					return nil
				}
				if _, err := tx.ExecContext(ctx, "DELETE FROM index_segments WHERE id = ?", id); err != nil {
					return err
				}
			}
			if len(dead) == batchPages {
				left = 0
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dropIndex deletes every row of the index that holds words of a user. It is
// called after the user's messages and summaries are deleted: a number that is
// given again must not seem to be indexed.
func (s *Store) dropIndex(ctx context.Context, tx *sql.Tx, user memory.UserID) error {
	s.segments.clear()
	rows, err := tx.QueryContext(ctx, "SELECT id FROM index_segments WHERE user_id = ?", blob(user))
	segments, err := all(rows, err, func(r row) (id int64, err error) { return id, r.Scan(&id) })
	if err != nil {
		return err
	}
	for _, id := range segments {
		if _, err := tx.ExecContext(ctx, "DELETE FROM index_pages WHERE id >= ? AND id < ?", id<<pageBits, (id+1)<<pageBits); err != nil {
			return err
		}
	}
	return executeAll(ctx, tx, user,
		"DELETE FROM index_segments WHERE user_id = ?1",
		"DELETE FROM index_rebuilds WHERE user_id = ?1",
		stepBack)
}

// stepBack sets the cursors back to what there is, and with them the end of what
// is being rebuilt: what is given a number again comes after the cursor, and must
// not be indexed twice.
const stepBack = `UPDATE index_state SET drops = drops + 1,
	cursor = min(cursor, (SELECT coalesce(max(number), 0) FROM (SELECT 0 AS kind, max(number) AS number FROM messages UNION ALL SELECT 1, max(number) FROM summaries) n WHERE n.kind = index_state.kind));
	UPDATE index_rebuilds SET last = min(last, (SELECT cursor FROM index_state WHERE kind = index_rebuilds.kind))`

func executeAll(ctx context.Context, tx *sql.Tx, user memory.UserID, statements ...string) error {
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement, blob(user)); err != nil {
			return err
		}
	}
	return nil
}

// rebuildIndex has the indexer make the user's index of some kinds anew. Until it
// has, searches look at the newest texts that it has not come to.
func rebuildIndex(ctx context.Context, tx *sql.Tx, user memory.UserID, of ...kind) error {
	if err := executeAll(ctx, tx, user, stepBack); err != nil {
		return err
	}
	for _, k := range of {
		for _, statement := range []string{
			"UPDATE index_segments SET live = 0 WHERE user_id = ?1 AND kind = ?2 AND live",
			"INSERT OR REPLACE INTO index_rebuilds SELECT ?1, kind, 0, cursor FROM index_state WHERE kind = ?2",
		} {
			if _, err := tx.ExecContext(ctx, statement, blob(user), k); err != nil {
				return err
			}
		}
	}
	return nil
}
