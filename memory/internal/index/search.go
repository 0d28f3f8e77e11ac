package index

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// The parameters of BM25, and how much a neighbour's words count for a message
// in the order of hits.
const (
	k1         = 1.2
	b          = 0.75
	nearWeight = 0.5
)

// reach is how far away a neighbour is.
const reach = 2

const (
	// maxPostings bounds the postings that a search reads one by one: those of
	// the rarest terms, of the newest segments. Whatever else a query asks for
	// is only looked up for the candidates that these have brought.
	maxPostings = 1 << 17
	// maxCandidates bounds the documents for which it is looked up; it is twice
	// the hits asked for if that is more.
	maxCandidates = 1 << 9
)

// Query is what Search looks for.
type Query struct {
	Terms []Term
	// Sessions, if not nil, are those whose documents are looked at.
	Sessions map[[16]byte]bool
	// Only documents with From <= At < To are looked at, also as neighbours.
	From, To int64
	// Near says that neighbours count.
	Near bool
	// Limit is the most hits, at least 1.
	Limit int
}

// Term is a term as a Tokenizer makes it. Its weight is positive.
type Term struct {
	Text   string
	Weight float64
}

// Hit is a document that was found. Own is the sum of weight × BM25 over the
// query's terms, Near the same of the two documents before it in its session
// and of the two after it.
type Hit struct {
	Session   [16]byte
	Seq, At   int64
	Own, Near float64
}

// Rank is what hits are ordered by, the highest first; ties by time, then
// session and seq, the last first.
func (h Hit) Rank() float64 { return h.Own + nearWeight*h.Near }

func (h Hit) compare(o Hit) int {
	return cmp.Or(cmp.Compare(h.Rank(), o.Rank()), cmp.Compare(h.At, o.At), bytes.Compare(h.Session[:], o.Session[:]), cmp.Compare(h.Seq, o.Seq))
}

// Result is what a search finds.
type Result struct {
	// Hits are in order.
	Hits []Hit
	// Documents is how many there are in all; Frequency, for each of the
	// query's terms, how many of them hold it.
	Documents int
	Frequency []int
}

// Search returns the best hits of a query in order. The sources are given from
// the oldest to the newest and hold no document twice; frequencies are counted
// over all of them.
//
// The answer is exact as long as the query's terms have up to maxPostings
// postings together. Beyond that the rarest terms are still exact, and frequent
// terms change the order of documents which these have found, but no longer
// find any themselves; unless the rare terms find fewer than Limit, when the
// newest documents of the next term come in. Beyond it too, a term that more
// than half of the documents have is left out: it tells next to nothing, and
// plain BM25 would count it against a document.
func Search(ctx context.Context, sources []Source, q Query) (Result, error) {
	result := Result{Frequency: make([]int, len(q.Terms))}
	s := &search{Query: q}
	tokens := int64(0)
	for _, source := range sources {
		p := part{Source: source, base: s.documents, ranges: q.ranges(source.Segment)}
		for _, r := range p.ranges {
			p.looked += r.end - r.start
		}
		s.parts = append(s.parts, p)
		s.documents += source.Documents()
		tokens += source.Tokens
	}
	if result.Documents = s.documents; s.documents == 0 {
		return result, nil
	}
	s.perToken = k1 * b * float64(s.documents) / float64(max(tokens, 1))
	words, err := s.words(ctx)
	for _, w := range words {
		for i, t := range q.Terms {
			if t.Text == w.text {
				result.Frequency[i] = w.documents
			}
		}
	}
	if err != nil || len(words) == 0 {
		return result, err
	}
	s.own, s.seen = floats.take(s.documents), bitmaps.take(s.documents/64+1)
	defer func() {
		floats.give(s.own)
		bitmaps.give(s.seen)
	}()
	gain, err := s.scan(ctx, words)
	if err != nil {
		return result, err
	}
	if gain == 0 {
		result.Hits = s.hits(s.best(q.Limit))
		return result, nil
	}
	candidates := s.best(max(maxCandidates, 2*q.Limit))
	slices.SortFunc(candidates, func(a, b candidate) int { return b.compare(&a) })
	if len(candidates) > q.Limit {
		enough := candidates[q.Limit-1].rank
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return c.rank < enough-gain })
	}
	if err := s.complete(ctx, words, candidates); err != nil {
		return result, err
	}
	result.Hits = s.hits(candidates)
	return result, nil
}

// ranges returns the documents of a segment that the query looks at.
func (q Query) ranges(s *Segment) []span {
	if q.Sessions == nil && q.From == math.MinInt64 && q.To == math.MaxInt64 {
		return []span{{0, s.Documents()}}
	}
	var ranges []span
	for i, r := range s.runs {
		if q.Sessions != nil && !q.Sessions[r.session] {
			continue
		}
		for d := r.start; d < s.end(i); d++ {
			if !q.during(s, d) {
				continue
			}
			if last := len(ranges) - 1; last >= 0 && ranges[last].end == d {
				ranges[last].end++
			} else {
				ranges = append(ranges, span{d, d + 1})
			}
		}
	}
	return ranges
}

func (q Query) during(s *Segment, document int) bool {
	if q.From == math.MinInt64 && q.To == math.MaxInt64 {
		return true
	}
	t := s.time(document)
	return q.From <= t && t < q.To
}

type span struct{ start, end int }

// search is one search. Documents of all sources are numbered through: those of
// a part begin with its base.
type search struct {
	Query
	parts     []part
	documents int
	// perToken is the part of BM25's length normalisation that a token adds.
	perToken float64

	own  []float32 // the score of each document's own words, so far
	seen []uint64  // a bit for each document that has one
}

type part struct {
	Source
	base   int
	ranges []span
	looked int // documents in ranges
}

// word is a term of the query that documents have.
type word struct {
	text      string
	documents int
	score     float64 // weight × idf × (k1+1): no document gets more
	lists     []*list // for each part; nil without one
	scanned   []bool  // for each part
}

// words looks the query's terms up and returns those that exist, the rarest
// first.
func (s *search) words(ctx context.Context) ([]word, error) {
	weights := make(map[string]float64)
	for _, t := range s.Terms {
		weights[t.Text] += t.Weight
	}
	var words []word
	for text, weight := range weights {
		w := word{text: text, lists: make([]*list, len(s.parts)), scanned: make([]bool, len(s.parts))}
		for i, p := range s.parts {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			l, err := p.lookup(p.Pages, text)
			if err != nil {
				return nil, err
			}
			if l != nil {
				w.lists[i] = l
				w.documents += l.documents
			}
		}
		if w.documents > 0 {
			n, df := float64(s.documents), float64(w.documents)
			w.score = weight * math.Log1p((n-df+0.5)/(df+0.5)) * (k1 + 1)
			words = append(words, w)
		}
	}
	slices.SortFunc(words, func(a, b word) int { return cmp.Or(cmp.Compare(a.documents, b.documents), cmp.Compare(a.text, b.text)) })
	return words, nil
}

// scan reads what maxPostings allows and returns by how much the rank of a
// document can still grow by what it has left.
func (s *search) scan(ctx context.Context, words []word) (gain float64, err error) {
	left, found := maxPostings, 0
	for _, w := range words {
		// With a filter a part of the list is read; take it as even.
		costs, cost := make([]int, len(s.parts)), 0
		for i, p := range s.parts {
			if w.lists[i] != nil {
				costs[i] = (w.lists[i].documents*p.looked + p.Documents() - 1) / p.Documents()
				cost += costs[i]
			}
		}
		whole, few := cost <= left, found < s.Limit
		complete := true
		for i := len(s.parts) - 1; i >= 0; i-- {
			if costs[i] == 0 {
				continue
			}
			if costs[i] > left || !whole && !few {
				complete = false
				continue
			}
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			left -= costs[i]
			found += costs[i]
			w.scanned[i] = true
			if err := s.scanList(s.parts[i], w.lists[i], w.score); err != nil {
				return 0, err
			}
		}
		switch {
		case complete:
		case 2*w.documents > s.documents && !few:
			clear(w.lists)
		default:
			gain += w.score
		}
	}
	if s.Near {
		gain *= 1 + 2*reach*nearWeight
	}
	return gain, nil
}

func (s *search) scanList(p part, l *list, score float64) error {
	for _, r := range p.ranges {
		for at := r.start; at < r.end; {
			block, err := l.seek(at)
			if err != nil {
				return err
			}
			if len(block) == 0 {
				return nil
			}
			at = block[len(block)-1].document() + 1
			for _, posting := range block {
				d := posting.document()
				if d >= r.end {
					break
				}
				s.add(p, posting, score)
				d += p.base
				s.seen[d/64] |= 1 << (d % 64)
			}
		}
	}
	return nil
}

func (s *search) add(p part, posting posting, score float64) {
	d, tf := posting.document(), float64(posting.tf())
	s.own[p.base+d] += float32(score * tf / (tf + k1*(1-b) + s.perToken*float64(p.length(d))))
}

// candidate is a document that may be a hit.
type candidate struct {
	Hit
	rank                float64
	part, run, document int
}

func (c *candidate) compare(o *candidate) int {
	if c.rank != o.rank {
		return cmp.Compare(c.rank, o.rank)
	}
	return c.Hit.compare(o.Hit)
}

// best returns the n best of the documents that are seen and of their
// neighbours, in no order.
func (s *search) best(n int) []candidate {
	var top worstFirst
	least := 0.0
	across := s.across()
	for i, p := range s.parts {
		own := s.own[p.base : p.base+p.Documents()]
		run, start, end, next := -1, 0, 0, 0
		// All of a part's documents go by; most searches have seen few.
		for word := p.base / 64; word*64 < p.base+len(own); word++ {
			for rest := s.seen[word]; rest != 0; rest &= rest - 1 {
				seen := word*64 + bits.TrailingZeros64(rest) - p.base
				if seen < 0 || seen >= len(own) {
					continue
				}
				for seen >= end {
					run++
					start, end = p.runs[run].start, p.end(run)
				}
				from, to := seen, seen+1
				if s.Near {
					from, to = max(start, next, seen-reach), min(end, seen+reach+1)
				}
				next = to
				for d := from; d < to; d++ {
					near := float32(0)
					switch {
					case !s.Near:
					case d-start >= reach && end-d > reach:
						near = own[d-2] + own[d-1] + own[d+1] + own[d+2]
					default:
						for _, v := range own[max(start, d-reach):d] {
							near += v
						}
						for _, v := range own[d+1 : min(end, d+reach+1)] {
							near += v
						}
						near += across[p.base+d]
					}
					hit := Hit{Own: float64(own[d]), Near: float64(near)}
					if rank := hit.Rank(); rank == 0 || rank < least || !s.during(p.Segment, d) {
						continue
					}
					hit.Session, hit.Seq, hit.At = p.runs[run].session, p.runs[run].seq+int64(d-start), p.time(d)
					c := candidate{hit, hit.Rank(), i, run, d}
					if len(top) < n {
						heap.Push(&top, c)
					} else if c.compare(&top[0]) > 0 {
						top[0] = c
						heap.Fix(&top, 0)
					}
					if len(top) == n {
						least = top[0].rank
					}
				}
			}
		}
	}
	return top
}

// across returns what documents at the ends of runs have from neighbours in
// other runs, and marks them as seen.
func (s *search) across() map[int]float32 {
	if !s.Near {
		return nil
	}
	sums := make(map[int]float32)
	bring := func(from, to int) {
		if s.own[from] > 0 {
			sums[to] += s.own[from]
			s.seen[to/64] |= 1 << (to % 64)
		}
	}
	for i, p := range s.parts {
		for j, r := range p.runs {
			// Only a run that does not begin its session has others before it.
			for away := int64(1); away <= min(reach, r.seq-1); away++ {
				before, ok := s.find(i, r.session, r.seq-away)
				if !ok {
					continue
				}
				for d := r.start; d < min(p.end(j), r.start+reach+1-int(away)); d++ {
					bring(before, p.base+d)
					bring(p.base+d, before)
				}
			}
		}
	}
	return sums
}

// find returns the number of a document that is in a part or in one before it.
func (s *search) find(part int, session [16]byte, seq int64) (int, bool) {
	for i := part; i >= 0; i-- {
		if d, ok := s.parts[i].find(session, seq); ok {
			return s.parts[i].base + d, true
		}
	}
	return 0, false
}

// neighbours calls f with the number of each neighbour that the query looks at.
func (s *search) neighbours(c candidate, f func(int)) {
	p := s.parts[c.part]
	r, end := p.runs[c.run], p.end(c.run)
	for away := -reach; away <= reach; away++ {
		d := c.document + away
		number, ok := p.base+d, r.start <= d && d < end
		if !ok && c.Seq+int64(away) > 0 {
			number, ok = s.find(len(s.parts)-1, c.Session, c.Seq+int64(away))
		}
		if ok && away != 0 {
			f(number)
		}
	}
}

// complete adds to the candidates what was not scanned.
func (s *search) complete(ctx context.Context, words []word, candidates []candidate) error {
	var needed []int
	for _, c := range candidates {
		needed = append(needed, s.parts[c.part].base+c.document)
		if s.Near {
			s.neighbours(c, func(d int) { needed = append(needed, d) })
		}
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	for i, p := range s.parts {
		n, _ := slices.BinarySearch(needed, p.base+p.Documents())
		mine := needed[:n]
		needed = needed[n:]
		for _, w := range words {
			if w.scanned[i] || w.lists[i] == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			for _, d := range mine {
				block, err := w.lists[i].seek(d - p.base)
				if err != nil {
					return err
				}
				if len(block) == 0 {
					break
				}
				if block[0].document() == d-p.base && s.during(p.Segment, d-p.base) {
					s.add(p, block[0], w.score)
				}
			}
		}
	}
	for i := range candidates {
		c := &candidates[i]
		c.Own, c.Near = float64(s.own[s.parts[c.part].base+c.document]), 0
		if s.Near {
			s.neighbours(*c, func(d int) { c.Near += float64(s.own[d]) })
		}
		c.rank = c.Rank()
	}
	return nil
}

// hits returns the best candidates in order.
func (s *search) hits(candidates []candidate) []Hit {
	slices.SortFunc(candidates, func(a, b candidate) int { return b.compare(&a) })
	var hits []Hit
	for _, c := range candidates[:min(len(candidates), s.Limit)] {
		hits = append(hits, c.Hit)
	}
	return hits
}

// worstFirst is a heap of candidates.
type worstFirst []candidate

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return h[i].compare(&h[j]) < 0 }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *worstFirst) Push(c any)        { *h = append(*h, c.(candidate)) }
func (h *worstFirst) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}

// pool keeps slices of zeros, for searches over many documents.
type pool[T any] struct{ kept sync.Pool }

var (
	floats  pool[float32]
	bitmaps pool[uint64]
)

// take returns n zeros.
func (p *pool[T]) take(n int) []T {
	if list, ok := p.kept.Get().(*[]T); ok && cap(*list) >= n {
		return (*list)[:n]
	}
	return make([]T, n)
}

func (p *pool[T]) give(list []T) {
	clear(list)
	p.kept.Put(&list)
}
