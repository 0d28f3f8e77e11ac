// Package index is a full-text index that only grows by segments: immutable
// lists of which documents hold which terms. It knows nothing of where segments
// are kept.
//
// A segment is a head and pages. The pages hold the postings, term by term; the
// head holds what is known of each document, and which term each page begins
// with, so that looking a term up reads one page:
//
//	head: documents, tokens,
//	      runs:    { session[16], first seq, documents }…
//	      lengths: [2]byte a document
//	      times:   base, width, [width]byte a document
//	      pages:   { first term, first document, continued }…
//	page: { term, documents in all, documents here, { last document, bytes, { document, tf }… }… }…
//
// Numbers are varints, terms lack what they share with the one before, lists of
// documents hold differences, in blocks of 128. A document is named by its
// ordinal within the segment. Ordinals follow (session, seq): the messages said
// around one are beside it.
package index

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

// Version is that of the format of heads and pages, and of the terms in them.
const Version = 1

const (
	// MaxDocuments is the most documents of a segment.
	MaxDocuments = 1 << 16
	// PageSize is what a page is filled up to, in bytes. A page is larger by
	// at most one block.
	PageSize = 16 << 10

	blockSize = 128
	maxBlock  = blockSize * 2 * binary.MaxVarintLen32
)

// ErrCorrupt says that a head or a page is not what Build or Merge has made.
var ErrCorrupt = errors.New("index is corrupt")

func corrupt(what string) error { return fmt.Errorf("%s: %w", what, ErrCorrupt) }

// Document is one text. Session and Seq name it; At is its time in
// microseconds.
type Document struct {
	Session [16]byte
	Seq     int64
	At      int64
	Terms   []string
}

// Pages reads the page of a segment, counted from 0. What it returns is not
// changed any more, by either side.
type Pages func(number int) ([]byte, error)

// Segment is the head of a segment, decoded. It is immutable.
type Segment struct {
	// Tokens is the sum of the lengths of all documents.
	Tokens int64

	runs      []run
	lengths   []byte
	times     []byte
	timeBase  int64
	timeWidth int
	directory []pageStart
	size      int
}

// run is documents of one session whose seqs follow each other.
type run struct {
	session [16]byte
	seq     int64
	start   int // ordinal of the first document
}

func (r run) compare(session [16]byte, seq int64) int {
	return cmp.Or(bytes.Compare(r.session[:], session[:]), cmp.Compare(r.seq, seq))
}

type pageStart struct {
	term string
	// document is the first of the page's first list.
	document int
	// continued says that the list began on an earlier page.
	continued bool
}

// Documents returns how many documents the segment holds.
func (s *Segment) Documents() int { return len(s.lengths) / 2 }

// PageCount returns how many pages the segment has.
func (s *Segment) PageCount() int { return len(s.directory) }

// Size returns about how much memory the segment takes, in bytes.
func (s *Segment) Size() int { return s.size }

func (s *Segment) length(document int) int {
	return int(binary.LittleEndian.Uint16(s.lengths[2*document:]))
}

func (s *Segment) time(document int) int64 {
	var b [8]byte
	copy(b[:], s.times[document*s.timeWidth:(document+1)*s.timeWidth])
	return s.timeBase + int64(binary.LittleEndian.Uint64(b[:]))
}

// end returns the ordinal after the last of run i.
func (s *Segment) end(i int) int {
	if i+1 < len(s.runs) {
		return s.runs[i+1].start
	}
	return s.Documents()
}

// find returns the ordinal of a document.
func (s *Segment) find(session [16]byte, seq int64) (int, bool) {
	last := len(s.runs) - 1
	if last < 0 || s.runs[0].compare(session, seq) > 0 || bytes.Compare(s.runs[last].session[:], session[:]) < 0 {
		return 0, false
	}
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].compare(session, seq) > 0 }) - 1
	if i < 0 || s.runs[i].session != session {
		return 0, false
	}
	document := int64(s.runs[i].start) + seq - s.runs[i].seq
	return int(document), document < int64(s.end(i))
}

// Decode reads a head. It keeps the slice.
func Decode(head []byte) (*Segment, error) {
	d := decoder{rest: head}
	count := d.number(MaxDocuments)
	s := &Segment{Tokens: int64(d.number(math.MaxInt64)), size: len(head)}
	runs := d.number(count)
	s.runs = make([]run, 0, min(runs, len(d.rest)/18))
	start := 0
	for range runs {
		r := run{start: start}
		copy(r.session[:], d.bytes(16))
		r.seq = int64(d.number(math.MaxInt64 - MaxDocuments))
		documents := d.number(count - start)
		if d.failed || documents == 0 || len(s.runs) > 0 && s.runs[len(s.runs)-1].compare(r.session, r.seq) >= 0 {
			return nil, corrupt("runs of a head")
		}
		start += documents
		s.runs = append(s.runs, r)
		s.size += 32
	}
	s.lengths = d.bytes(2 * count)
	s.timeBase = d.signed()
	s.timeWidth = d.number(8)
	s.times = d.bytes(count * s.timeWidth)
	pages := d.number(len(d.rest))
	s.directory = make([]pageStart, 0, pages)
	term := []byte(nil)
	for range pages {
		term = d.term(term)
		place := d.number(2*MaxDocuments - 1)
		p := pageStart{term: string(term), document: place >> 1, continued: place&1 == 1}
		if n := len(s.directory); d.failed || n > 0 && p.term < s.directory[n-1].term || p.document >= count {
			return nil, corrupt("pages of a head")
		}
		s.directory = append(s.directory, p)
		s.size += 32 + len(term)
	}
	if d.failed || start != count || len(d.rest) > 0 {
		return nil, corrupt("a head")
	}
	return s, nil
}

// decoder reads what a writer has appended. Once failed, it returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) fail() { d.rest, d.failed = nil, true }

// number reads an unsigned number of at most limit.
func (d *decoder) number(limit int) int {
	if len(d.rest) > 0 && d.rest[0] < 0x80 && int(d.rest[0]) <= limit {
		n := d.rest[0]
		d.rest = d.rest[1:]
		return int(n)
	}
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || limit < 0 || n > uint64(limit) {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

func (d *decoder) signed() int64 {
	n, size := binary.Varint(d.rest)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.fail()
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

// term reads a term that may share its beginning with the one before, in whose
// place it is written.
func (d *decoder) term(before []byte) []byte {
	shared := d.number(len(before))
	return append(before[:shared], d.bytes(d.number(MaxTerm-shared))...)
}

// appendTerm is the inverse of decoder.term.
func appendTerm(to []byte, before, term string) []byte {
	shared := 0
	for shared < min(len(before), len(term)) && before[shared] == term[shared] {
		shared++
	}
	to = binary.AppendUvarint(to, uint64(shared))
	to = binary.AppendUvarint(to, uint64(len(term)-shared))
	return append(to, term[shared:]...)
}

// posting is a document in the upper half and how often it has the term.
type posting uint64

func (p posting) document() int { return int(p >> 32) }

func (p posting) tf() int { return int(uint32(p)) }

func newPosting(document, tf int) posting { return posting(document)<<32 | posting(uint32(tf)) }

// writer makes the pages of one segment, terms in order.
type writer struct {
	emit func(page []byte) error

	directory []pageStart
	page      []byte
	last      string // the term before, on the page
	part      []byte // scratch
}

// add writes the list of one term, which is not empty.
func (w *writer) add(term string, list []posting) error {
	all, continued := len(list), false
	for len(list) > 0 {
		const heading = MaxTerm + 5*binary.MaxVarintLen32
		room := PageSize - len(w.page) - heading
		count, before := 0, -1
		w.part = w.part[:0]
		for count < len(list) {
			block := list[count:min(count+blockSize, len(list))]
			fitting := len(w.part)
			w.part = appendBlock(w.part, before, block)
			if len(w.part) > room {
				w.part = w.part[:fitting]
				break
			}
			count += len(block)
			before = block[len(block)-1].document()
		}
		if count > 0 {
			if len(w.page) == 0 {
				w.directory = append(w.directory, pageStart{term, list[0].document(), continued})
				w.last = ""
			}
			w.page = appendTerm(w.page, w.last, term)
			w.page = binary.AppendUvarint(w.page, uint64(all))
			w.page = binary.AppendUvarint(w.page, uint64(count))
			w.page = binary.AppendUvarint(w.page, uint64(len(w.part)))
			w.page = append(w.page, w.part...)
			w.last = term
			list, continued = list[count:], true
		}
		if len(list) > 0 {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func appendBlock(to []byte, before int, block []posting) []byte {
	var buffer [maxBlock]byte
	payload, previous := buffer[:0], before
	for _, p := range block {
		delta := uint64(p.document()-previous-1) << 1
		if p.tf() == 1 {
			payload = binary.AppendUvarint(payload, delta)
		} else {
			payload = binary.AppendUvarint(payload, delta|1)
			payload = binary.AppendUvarint(payload, uint64(p.tf()))
		}
		previous = p.document()
	}
	to = binary.AppendUvarint(to, uint64(previous-before-1))
	to = binary.AppendUvarint(to, uint64(len(payload)))
	return append(to, payload...)
}

func (w *writer) flush() error {
	if len(w.page) == 0 {
		return nil
	}
	page := w.page
	w.page = nil
	return w.emit(page)
}

// documents is what a head says of documents, in the order of their ordinals.
type documents struct {
	runs    []run
	lengths []int
	times   []int64
}

// add appends one document. Its session and seq are after those of the last.
func (d *documents) add(session [16]byte, seq int64, length int, time int64) {
	n := len(d.lengths)
	if last := len(d.runs) - 1; last < 0 || d.runs[last].session != session || d.runs[last].seq+int64(n-d.runs[last].start) != seq {
		d.runs = append(d.runs, run{session: session, seq: seq, start: n})
	}
	d.lengths = append(d.lengths, length)
	d.times = append(d.times, time)
}

// head encodes the head of a segment with these documents and pages.
func (d *documents) head(directory []pageStart) []byte {
	count, tokens := len(d.lengths), 0
	for _, n := range d.lengths {
		tokens += n
	}
	head := binary.AppendUvarint(nil, uint64(count))
	head = binary.AppendUvarint(head, uint64(tokens))
	head = binary.AppendUvarint(head, uint64(len(d.runs)))
	for i, r := range d.runs {
		end := count
		if i+1 < len(d.runs) {
			end = d.runs[i+1].start
		}
		head = append(head, r.session[:]...)
		head = binary.AppendUvarint(head, uint64(r.seq))
		head = binary.AppendUvarint(head, uint64(end-r.start))
	}
	for _, n := range d.lengths {
		head = binary.LittleEndian.AppendUint16(head, uint16(n))
	}
	base := int64(0)
	width := 0
	if count > 0 {
		base = slices.Min(d.times)
		width = (bits.Len64(uint64(slices.Max(d.times)-base)) + 7) / 8
	}
	head = binary.AppendVarint(head, base)
	head = binary.AppendUvarint(head, uint64(width))
	for _, t := range d.times {
		head = append(head, binary.LittleEndian.AppendUint64(nil, uint64(t-base))[:width]...)
	}
	head = binary.AppendUvarint(head, uint64(len(directory)))
	before := ""
	for _, p := range directory {
		head = appendTerm(head, before, p.term)
		place := uint64(p.document) << 1
		if p.continued {
			place |= 1
		}
		head = binary.AppendUvarint(head, place)
		before = p.term
	}
	return head
}

// Build makes a segment of at most MaxDocuments documents in any order, each
// once; it sorts the slice. A document has at most MaxLength terms.
func Build(list []Document) (head []byte, pages [][]byte, err error) {
	if len(list) > MaxDocuments {
		return nil, nil, fmt.Errorf("build a segment of %d documents: at most %d fit", len(list), MaxDocuments)
	}
	slices.SortFunc(list, func(a, b Document) int {
		return cmp.Or(bytes.Compare(a.Session[:], b.Session[:]), cmp.Compare(a.Seq, b.Seq))
	})
	var all documents
	numbers := make(map[string]int)
	var terms []string
	var lists [][]posting
	for i, d := range list {
		if d.Seq < 0 || len(d.Terms) > MaxLength || i > 0 && list[i-1].Session == d.Session && list[i-1].Seq == d.Seq {
			return nil, nil, fmt.Errorf("build a segment: document %x/%d is out of form or there twice", d.Session, d.Seq)
		}
		all.add(d.Session, d.Seq, len(d.Terms), d.At)
		for _, term := range d.Terms {
			n, known := numbers[term]
			if !known {
				n = len(terms)
				numbers[term] = n
				terms = append(terms, term)
				lists = append(lists, nil)
			}
			if l := lists[n]; len(l) > 0 && l[len(l)-1].document() == i {
				l[len(l)-1]++
			} else {
				lists[n] = append(l, newPosting(i, 1))
			}
		}
	}
	w := writer{emit: func(page []byte) error {
		pages = append(pages, page)
		return nil
	}}
	slices.Sort(terms)
	for _, term := range terms {
		if err := w.add(cut(term, MaxTerm), lists[numbers[term]]); err != nil {
			return nil, nil, err
		}
	}
	if err := w.flush(); err != nil {
		return nil, nil, err
	}
	return all.head(w.directory), pages, nil
}

// list is the postings of one term in one segment, read from the first on.
type list struct {
	segment *Segment
	pages   Pages
	term    string
	// documents is how many there are in all.
	documents int

	page   int    // that data is of
	data   []byte // blocks that are not read yet
	left   int    // documents in data
	before int    // the last document of the block before
	block  [blockSize]posting
	at, n  int // place in block, and its size
}

// lookup returns the list of term, or nil if no document has it.
func (s *Segment) lookup(pages Pages, term string) (*list, error) {
	page := sort.Search(len(s.directory), func(i int) bool { return s.directory[i].term >= term })
	// The list can begin within the page before, unless one begins with it.
	if page == len(s.directory) || s.directory[page].term != term || s.directory[page].continued {
		page--
	}
	if page < 0 {
		return nil, nil
	}
	l := &list{segment: s, pages: pages, term: term, page: page}
	found, err := l.open()
	if !found {
		return nil, err
	}
	return l, nil
}

// open finds the term on the list's page.
func (l *list) open() (bool, error) {
	data, err := l.pages(l.page)
	if err != nil {
		return false, err
	}
	p := pageReader{decoder: decoder{rest: data}, limit: l.segment.Documents()}
	for p.next() {
		order := strings.Compare(string(p.term), l.term)
		if order > 0 {
			return false, nil
		}
		if order == 0 {
			l.documents, l.left, l.data, l.before = p.documents, p.here, p.blocks, -1
			return true, nil
		}
	}
	if p.failed {
		return false, corrupt("a page")
	}
	return false, nil
}

// pageReader walks the entries of a page.
type pageReader struct {
	decoder
	limit int // documents of the segment

	term            []byte
	documents, here int
	blocks          []byte
}

func (p *pageReader) next() bool {
	if len(p.rest) == 0 {
		return false
	}
	p.term = p.decoder.term(p.term)
	p.documents = p.number(p.limit)
	p.here = p.number(p.documents)
	p.blocks = p.bytes(p.number(len(p.rest)))
	p.failed = p.failed || p.here == 0 || len(p.term) == 0
	return !p.failed
}

// seek returns the first posting at or after a document and those that follow
// it in its block; none after the last. It never goes back.
func (l *list) seek(document int) ([]posting, error) {
	for {
		if l.n > 0 && l.block[l.n-1].document() >= document {
			for l.block[l.at].document() < document {
				l.at++
			}
			return l.block[l.at:l.n], nil
		}
		if l.left == 0 {
			if more, err := l.turn(document); !more {
				return nil, err
			}
		}
		if err := l.read(document); err != nil {
			return nil, err
		}
	}
}

// turn goes to the next page on which the list continues, or to the last that
// does not begin after document.
func (l *list) turn(document int) (bool, error) {
	next := l.page + 1
	directory := l.segment.directory
	mine := func(i int) bool { return i < len(directory) && directory[i].continued && directory[i].term == l.term }
	if !mine(next) {
		return false, nil
	}
	for mine(next+1) && directory[next+1].document <= document {
		next++
	}
	l.page = next
	found, err := l.open()
	if err == nil && (!found || l.left == 0) {
		err = corrupt("a list")
	}
	return found, err
}

// read takes the next block off data and decodes it, unless all of it is before
// document.
func (l *list) read(document int) error {
	d := decoder{rest: l.data}
	limit := l.segment.Documents()
	last := l.before + 1 + d.number(limit)
	payload := d.bytes(d.number(len(d.rest)))
	n := min(l.left, blockSize)
	if d.failed || last >= limit {
		return corrupt("a list")
	}
	l.data = d.rest
	l.left -= n
	before := l.before
	l.before = last
	l.at, l.n = 0, 0
	if last < document {
		return nil
	}
	d = decoder{rest: payload}
	for i := range l.block[:n] {
		delta := 0
		if len(d.rest) > 0 && d.rest[0] < 0x80 {
			delta, d.rest = int(d.rest[0]), d.rest[1:]
		} else {
			delta = d.number(2*MaxDocuments - 1)
		}
		tf := 1
		if delta&1 == 1 {
			tf = d.number(MaxLength)
		}
		before += 1 + delta>>1
		l.block[i] = newPosting(before, tf)
	}
	if d.failed || before != last {
		return corrupt("a list")
	}
	l.n = n
	return nil
}
