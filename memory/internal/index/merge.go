package index

import (
	"fmt"
	"slices"
)

// Source is a segment with its pages.
type Source struct {
	*Segment
	Pages Pages
}

// Merge makes one segment of several, which hold no document twice and at most
// MaxDocuments together. It gives each page of the new segment to emit, in
// order, and returns its head. It holds one page of each source and the
// postings of one term; an error of emit ends it.
func Merge(sources []Source, emit func(page []byte) error) (head []byte, err error) {
	all, ordinals, err := mergeDocuments(sources)
	if err != nil {
		return nil, err
	}
	walks := make([]walk, len(sources))
	for i, s := range sources {
		walks[i] = walk{Source: s, pageReader: pageReader{limit: s.Documents()}}
		if err := walks[i].advance(); err != nil {
			return nil, err
		}
	}
	w := writer{emit: emit}
	var postings []posting
	for {
		term, more := "", false
		for i := range walks {
			if at := &walks[i]; !at.done && (!more || string(at.term) < term) {
				term, more = string(at.term), true
			}
		}
		if !more {
			break
		}
		postings = postings[:0]
		for i := range walks {
			for !walks[i].done && string(walks[i].term) == term {
				if postings, err = walks[i].take(postings, ordinals[i]); err != nil {
					return nil, err
				}
			}
		}
		slices.Sort(postings)
		for i := 1; i < len(postings); i++ {
			if postings[i].document() == postings[i-1].document() {
				return nil, corrupt("a document is twice in the list of a term")
			}
		}
		if err := w.add(term, postings); err != nil {
			return nil, err
		}
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	return all.head(w.directory), nil
}

// mergeDocuments puts the documents of all sources in order and returns, for
// each source, the new ordinals of its documents.
func mergeDocuments(sources []Source) (all documents, ordinals [][]int, err error) {
	type stretch struct {
		run
		source, documents int
	}
	var stretches []stretch
	count := 0
	for i, s := range sources {
		count += s.Documents()
		ordinals = append(ordinals, make([]int, s.Documents()))
		for j, r := range s.runs {
			stretches = append(stretches, stretch{r, i, s.end(j) - r.start})
		}
	}
	if count > MaxDocuments {
		return all, nil, fmt.Errorf("merge %d documents: at most %d fit into a segment", count, MaxDocuments)
	}
	slices.SortFunc(stretches, func(a, b stretch) int { return a.compare(b.session, b.seq) })
	for i, r := range stretches {
		if i > 0 && stretches[i-1].session == r.session && stretches[i-1].seq+int64(stretches[i-1].documents) > r.seq {
			return all, nil, corrupt("two segments hold the same document")
		}
		s := sources[r.source]
		for k := range r.documents {
			ordinals[r.source][r.start+k] = len(all.lengths)
			all.add(r.session, r.seq+int64(k), s.length(r.start+k), s.time(r.start+k))
		}
	}
	return all, ordinals, nil
}

// walk reads all lists of a source, part by part.
type walk struct {
	Source
	pageReader
	page int
	done bool
}

// advance goes to the next part of a list.
func (w *walk) advance() error {
	before := string(w.term)
	for len(w.rest) == 0 {
		if w.page == w.PageCount() {
			w.done = true
			return nil
		}
		page, err := w.Pages(w.page)
		if err != nil {
			return err
		}
		w.page++
		w.rest = page
		w.term = w.term[:0]
	}
	if !w.next() || string(w.term) < before {
		return corrupt("a page")
	}
	return nil
}

// take appends the part that the walk is at, with new ordinals, and advances.
func (w *walk) take(to []posting, ordinals []int) ([]posting, error) {
	l := list{segment: w.Segment, data: w.blocks, left: w.here, before: -1}
	for l.left > 0 {
		if err := l.read(0); err != nil {
			return nil, err
		}
		for _, p := range l.block[:l.n] {
			to = append(to, newPosting(ordinals[p.document()], p.tf()))
		}
	}
	if len(to) > MaxDocuments {
		return nil, corrupt("a list")
	}
	return to, w.advance()
}

// Check reads all pages of a segment and returns an error matching ErrCorrupt,
// or of pages, if one of them cannot be used.
func (s Source) Check() error {
	w := walk{Source: s, pageReader: pageReader{limit: s.Documents()}}
	if err := w.advance(); err != nil {
		return err
	}
	ordinals := make([]int, s.Documents())
	for i := range ordinals {
		ordinals[i] = i
	}
	tokens := int64(0)
	var part []posting
	for !w.done {
		var err error
		if part, err = w.take(part[:0], ordinals); err != nil {
			return err
		}
		for _, p := range part {
			tokens += int64(p.tf())
		}
	}
	if tokens != s.Tokens {
		return corrupt("the number of tokens")
	}
	return nil
}
