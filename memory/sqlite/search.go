package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/internal/index"
)

const (
	defaultHits = 50
	// maxTerms bounds what the words of one query come to.
	maxTerms = 128

	// maxTail is how many rows behind the index a search looks at. There are
	// more only while a whole database is indexed, or a user's index is made
	// anew after a session was deleted; then it finds the newest.
	maxTail = 8192

	// cacheSize is how much memory what searches have read of segments may
	// take, in bytes.
	cacheSize = 64 << 20
)

// SearchWords implements memory.Store. It finds whatever was acknowledged before
// the call: it reads the index, and the messages that are not yet in it, in one
// snapshot.
func (s *Store) SearchWords(ctx context.Context, user memory.UserID, q memory.WordQuery) (found memory.WordHits, err error) {
	found.Frequency = make([]int, len(q.Words))
	err = s.search(ctx, "search messages", user, ofMessages, q, func(tx *sql.Tx, result index.Result, each []int) error {
		found.Messages = result.Documents
		for i, word := range each {
			if f := &found.Frequency[word]; i == 0 || each[i-1] != word || result.Frequency[i] < *f {
				*f = result.Frequency[i]
			}
		}
		message, err := tx.PrepareContext(ctx, selectMessages+" WHERE m.session_id = ? AND m.seq = ?")
		if err != nil {
			return err
		}
		defer message.Close()
		for _, h := range result.Hits {
			session := memory.SessionID(h.Session)
			m, err := scanMessage(message.QueryRowContext(ctx, blob(session), h.Seq))
			if err != nil {
				return fmt.Errorf("message %d of session %s, as the index has it: %w", h.Seq, session, err)
			}
			found.Hits = append(found.Hits, memory.WordHit{Message: m, Own: h.Own, Near: h.Near})
		}
		return nil
	})
	return found, err
}

// SearchSummaries implements memory.Store. A summary's time is its Latest.
func (s *Store) SearchSummaries(ctx context.Context, user memory.UserID, q memory.WordQuery) (hits []memory.SummaryHit, err error) {
	err = s.search(ctx, "search summaries", user, ofSummaries, q, func(tx *sql.Tx, result index.Result, _ []int) error {
		for _, h := range result.Hits {
			// The index is only a hint: whatever it names must be the user's.
			v, err := scanSummary(tx.QueryRowContext(ctx, "SELECT "+summaryColumns+" FROM summaries v JOIN sessions s ON s.id = v.session_id WHERE v.number = ? AND s.user_id = ?", h.Seq, blob(user)))
			if err != nil {
				return fmt.Errorf("summary %d, as the index has it: %w", h.Seq, err)
			}
			hits = append(hits, memory.SummaryHit{Summary: v, Score: h.Own})
		}
		return nil
	})
	return hits, err
}

func (s *Store) search(ctx context.Context, what string, user memory.UserID, k kind, q memory.WordQuery, f func(tx *sql.Tx, result index.Result, words []int) error) error {
	query, each, err := s.query(q)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	query.Near = k == ofMessages
	return s.reading(ctx, what, func(tx *sql.Tx) error {
		if !q.Session.IsZero() || !q.Agent.IsZero() {
			rows, err := tx.QueryContext(ctx, "SELECT id FROM sessions WHERE user_id = ?1 AND (?2 IS NULL OR id = ?2) AND (?3 IS NULL OR agent_id = ?3)", blob(user), blob(q.Session), blob(q.Agent))
			sessions, err := all(rows, err, func(r row) (id memory.SessionID, err error) { return id, r.Scan(into(&id)) })
			if err != nil {
				return err
			}
			query.Sessions = make(map[[16]byte]bool)
			for _, id := range sessions {
				query.Sessions[id] = true
			}
		}
		if len(query.Terms) == 0 || query.Sessions != nil && len(query.Sessions) == 0 {
			return nil
		}
		sources, err := s.sources(ctx, tx, owner{user, k})
		if err != nil {
			return err
		}
		result, err := index.Search(ctx, sources, query)
		if err != nil {
			return err
		}
		return f(tx, result, each)
	})
}

// query checks and translates a query; each term is of the word whose place is
// beside it.
func (s *Store) query(q memory.WordQuery) (query index.Query, each []int, err error) {
	if len(q.Words) > memory.MaxWords {
		return index.Query{}, nil, fmt.Errorf("%d words, at most %d can be searched for: %w", len(q.Words), memory.MaxWords, memory.ErrInvalid)
	}
	query = index.Query{Limit: q.Limit, From: math.MinInt64, To: math.MaxInt64}
	if query.Limit <= 0 {
		query.Limit = defaultHits
	}
	query.Limit = min(query.Limit, memory.MaxHits)
	if !q.From.IsZero() {
		// Times are kept in microseconds: the first that is not before From.
		query.From = micros(q.From.Add(time.Microsecond - 1))
	}
	if !q.To.IsZero() {
		query.To = micros(q.To.Add(time.Microsecond - 1))
	}
	tokenizer := s.tokenizer()
	defer s.tokenizers.Put(tokenizer)
	for i, w := range q.Words {
		if !(w.Weight > 0) || math.IsInf(w.Weight, 0) {
			return index.Query{}, nil, fmt.Errorf("the weight of %q is not positive: %w", w.Text, memory.ErrInvalid)
		}
		for _, term := range tokenizer.Terms(w.Text) {
			query.Terms = append(query.Terms, index.Term{Text: term, Weight: w.Weight})
			each = append(each, i)
		}
	}
	if len(query.Terms) > maxTerms {
		return index.Query{}, nil, fmt.Errorf("the words come to %d terms, at most %d can be searched for: %w", len(query.Terms), maxTerms, memory.ErrInvalid)
	}
	return query, each, nil
}

func (s *Store) tokenizer() *index.Tokenizer {
	if t, ok := s.tokenizers.Get().(*index.Tokenizer); ok {
		return t
	}
	return new(index.Tokenizer)
}

// sources returns the segments of a user, the oldest first, and at last one of
// what is not yet indexed.
func (s *Store) sources(ctx context.Context, tx *sql.Tx, o owner) ([]index.Source, error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, version FROM index_segments WHERE user_id = ? AND kind = ? AND live ORDER BY first", blob(o.user), o.kind)
	segments, err := all(rows, err, func(r row) (v [2]int64, err error) { return v, r.Scan(&v[0], &v[1]) })
	if err != nil {
		return nil, err
	}
	reader := s.showing.segments.in(ctx, tx)
	var sources []index.Source
	for _, v := range segments {
		if v[1] != index.Version {
			return nil, fmt.Errorf("the search index is of another version: %w: %w", memory.ErrUnsettled, memory.ErrReadOnly)
		}
		source, err := s.openSegment(ctx, reader, v[0])
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	tail, err := s.tail(ctx, tx, o)
	if err != nil || tail.Segment == nil {
		return sources, err
	}
	return append(sources, tail), nil
}

// tail returns a segment, in memory, of what is stored and not indexed.
func (s *Store) tail(ctx context.Context, tx *sql.Tx, o owner) (index.Source, error) {
	at, err := readState(ctx, tx, o.kind)
	if err != nil {
		return index.Source{}, err
	}
	var newest int64
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(number), 0) FROM "+o.kind.table()).Scan(&newest); err != nil {
		return index.Source{}, err
	}
	ranges := [][2]int64{{at.cursor, newest}}
	var cursor, last int64
	switch err := tx.QueryRowContext(ctx, "SELECT cursor, last FROM index_rebuilds WHERE user_id = ? AND kind = ?", blob(o.user), o.kind).Scan(&cursor, &last); err {
	case nil:
		ranges = append(ranges, [2]int64{cursor, last})
	case sql.ErrNoRows:
	default:
		return index.Source{}, err
	}
	tokenizer := s.tokenizer()
	defer s.tokenizers.Put(tokenizer)
	var documents []index.Document
	for _, r := range ranges {
		for after := max(r[0], r[1]-maxTail); after < r[1]; {
			texts, err := readTexts(ctx, tx, o.kind, o.user, after, r[1])
			if err != nil {
				return index.Source{}, err
			}
			for _, t := range texts {
				documents = append(documents, t.document(tokenizer))
			}
			if !full(texts) {
				break
			}
			after = texts[len(texts)-1].number
		}
	}
	if len(documents) == 0 {
		return index.Source{}, nil
	}
	head, pages, err := index.Build(documents)
	if err != nil {
		return index.Source{}, err
	}
	segment, err := index.Decode(head)
	return index.Source{Segment: segment, Pages: func(n int) ([]byte, error) { return pages[n], nil }}, err
}

// segmentReader is the statements that read a segment.
type segmentReader struct{ head, page *sql.Stmt }

// in returns the reader within a transaction.
func (r segmentReader) in(ctx context.Context, tx *sql.Tx) segmentReader {
	return segmentReader{tx.StmtContext(ctx, r.head), tx.StmtContext(ctx, r.page)}
}

// openSegment returns a segment whose pages r reads, as long as ctx lasts.
func (s *Store) openSegment(ctx context.Context, r segmentReader, id int64) (source index.Source, err error) {
	source.Pages = func(n int) ([]byte, error) {
		data, err := s.segments.page(id<<pageBits+int64(n), func() (data []byte, err error) {
			return data, r.page.QueryRowContext(ctx, id<<pageBits+int64(n)).Scan(&data)
		})
		if err != nil {
			return nil, fmt.Errorf("page %d of segment %d: %w", n, id, err)
		}
		return data, nil
	}
	source.Segment, err = s.segments.head(id, func() (head []byte, err error) {
		return head, r.head.QueryRowContext(ctx, id).Scan(&head)
	})
	if err != nil {
		return index.Source{}, fmt.Errorf("segment %d: %w", id, err)
	}
	return source, nil
}

// segmentCache remembers heads and pages of segments, which never change, up to
// cacheSize. It is safe for concurrent use; the zero value is empty.
type segmentCache struct {
	mu    sync.Mutex
	heads map[int64]*index.Segment // guarded by mu
	pages map[int64][]byte         // guarded by mu
	size  int                      // of all, in bytes; guarded by mu
}

func (c *segmentCache) head(id int64, read func() ([]byte, error)) (*index.Segment, error) {
	c.mu.Lock()
	head := c.heads[id]
	c.mu.Unlock()
	if head != nil {
		return head, nil
	}
	data, err := read()
	if err != nil {
		return nil, err
	}
	if head, err = index.Decode(data); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heads == nil {
		c.heads, c.pages = make(map[int64]*index.Segment), make(map[int64][]byte)
	}
	if c.heads[id] == nil && c.room(head.Size()) {
		c.heads[id] = head
	}
	return head, nil
}

func (c *segmentCache) page(id int64, read func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	page := c.pages[id]
	c.mu.Unlock()
	if page != nil {
		return page, nil
	}
	page, err := read()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages[id] == nil && c.room(len(page)) {
		c.pages[id] = page
	}
	return page, nil
}

// room makes room and takes it. Whatever goes first is as good as another: what
// is used often soon comes back.
func (c *segmentCache) room(size int) bool {
	for id, page := range c.pages {
		if c.size+size <= cacheSize {
			break
		}
		delete(c.pages, id)
		c.size -= len(page)
	}
	for id, head := range c.heads {
		if c.size+size <= cacheSize {
			break
		}
		delete(c.heads, id)
		c.size -= head.Size()
	}
	if c.size+size > cacheSize {
		return false
	}
	c.size += size
	return true
}

// clear forgets everything.
func (c *segmentCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.heads)
	clear(c.pages)
	c.size = 0
}

// Reindex makes the search index of a user anew, and returns when it is done. A
// call that fails in between leaves the rest to the store, which goes on with
// it whenever it is open for writing.
func (s *Store) Reindex(ctx context.Context, user memory.UserID) error {
	err := s.writing(ctx, "rebuild the search index", func(ctx context.Context, tx *sql.Tx) error {
		return rebuildIndex(ctx, tx, user, kinds...)
	})
	if err != nil {
		return err
	}
	return s.indexer.catchUp(ctx)
}

// checkIndex reads the whole search index and returns what is wrong with it, in
// words for an operator. Reindex mends all of it.
func (s *Store) checkIndex(ctx context.Context) (findings []string, err error) {
	found := func(format string, arguments ...any) { findings = append(findings, fmt.Sprintf(format, arguments...)) }
	err = s.reading(ctx, "check the search index", func(tx *sql.Tx) error {
		for _, k := range kinds {
			at, err := readState(ctx, tx, k)
			if err != nil {
				return err
			}
			var newest int64
			if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(number), 0) FROM "+k.table()).Scan(&newest); err != nil {
				return err
			}
			if at.cursor > newest {
				found("the search index of %s is at %d, beyond the last, %d", k.table(), at.cursor, newest)
			}
			// What segments hold is compared with what they should, user by user.
			rows, err := tx.QueryContext(ctx, `SELECT u.id, (SELECT coalesce(sum(documents), 0) FROM index_segments WHERE user_id = u.id AND kind = ?1 AND live),
				(SELECT count(*) FROM sessions s JOIN `+k.table()+` t ON t.session_id = s.id WHERE s.user_id = u.id AND t.number <= ?2
					AND NOT EXISTS (SELECT 1 FROM index_rebuilds r WHERE r.user_id = u.id AND r.kind = ?1 AND t.number > r.cursor AND t.number <= r.last)) FROM users u`, k, at.cursor)
			type count struct {
				user       memory.UserID
				have, want int
			}
			counts, err := all(rows, err, func(r row) (c count, err error) { return c, r.Scan(into(&c.user), &c.have, &c.want) })
			if err != nil {
				return err
			}
			for _, c := range counts {
				if c.have != c.want {
					found("the search index of user %s has %d %s, there are %d", c.user, c.have, k.table(), c.want)
				}
			}
		}
		rows, err := tx.QueryContext(ctx, "SELECT id, user_id, documents FROM index_segments WHERE live ORDER BY id")
		type segment struct {
			id        int64
			user      memory.UserID
			documents int
		}
		segments, err := all(rows, err, func(r row) (v segment, err error) { return v, r.Scan(&v.id, into(&v.user), &v.documents) })
		if err != nil {
			return err
		}
		for _, v := range segments {
			source, err := s.openSegment(ctx, s.showing.segments.in(ctx, tx), v.id)
			if err == nil {
				err = source.Check()
			}
			if err == nil && source.Documents() != v.documents {
				err = fmt.Errorf("it holds %d documents, not %d", source.Documents(), v.documents)
			}
			if ended := ctx.Err(); ended != nil {
				return ended
			}
			if err != nil {
				found("the search index of user %s is damaged: %v", v.user, err)
			}
		}
		return nil
	})
	return findings, err
}
