package gaps

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// The kinds of pages of SQLite's trees: the first byte of each. Pages of other
// kinds begin with the number of another page, whose highest byte is smaller
// than any of these in a file of less than MaxPages pages.
const (
	pageIndexInterior = 2
	pageTableInterior = 5
	pageIndexLeaf     = 10
	pageTableLeaf     = 13
)

// MaxPages is where the number of a page could be taken for the kind of one: 128
// GiB with pages of 4 KiB.
const MaxPages = pageIndexInterior << 24

// minPage is the least size of a page in bytes.
const minPage = 512

var errPage = errors.New("the page is not what SQLite's file format says")

// clearGap looks at one page of the file, or overwrites with zeros what is in it
// but belongs to no row and is not SQLite's own. It reports whether there was
// anything else than zeros and old pointers. A page that is not of a tree has no gap.
//
//	0    kind, first freeblock, number of cells, start of cells, fragments
//	8    number of the rightmost child (interior pages)
//	8/12 where the cells are: two bytes each
//	…    the gap, then cells, freeblocks and fragments in any order
//
// See "B-tree Pages" in SQLite's description of its file format. No bytes are
// reserved at the end of pages.
func clearGap(number int64, page []byte, overwrite bool) (found bool, err error) {
	size := len(page)
	start := 0
	if number == 1 {
		start = 100
	}
	if size < minPage || size > 65536 {
		return false, errPage
	}
	head := page[start:]
	kind := head[0]
	headSize := 8
	switch kind {
	case pageIndexInterior, pageTableInterior:
		headSize = 12
	case pageIndexLeaf, pageTableLeaf:
	default:
		return false, nil
	}
	count := int(binary.BigEndian.Uint16(head[3:]))
	content := start + headSize + 2*count
	if content > size {
		return false, errPage
	}
	taken := make([]span, 0, count+16)
	for i := range count {
		at := int(binary.BigEndian.Uint16(page[start+headSize+2*i:]))
		length, ok := cellLength(kind, page, at)
		if !ok || at < content {
			return false, errPage
		}
		taken = append(taken, spanOf(at, at+length))
	}
	// A freeblock's own four bytes are SQLite's. They are in order, so that a
	// ring is an error.
	for at, before := int(binary.BigEndian.Uint16(head[1:])), 0; at != 0; {
		if at < content || at <= before || at+4 > size {
			return false, errPage
		}
		taken = append(taken, spanOf(at, at+4))
		at, before = int(binary.BigEndian.Uint16(page[at:])), at
	}
	slices.Sort(taken)
	at := content
	for _, t := range append(taken, spanOf(size, size)) {
		from, to := t.bounds()
		if from < at {
			return false, errPage
		}
		gap := page[at:from]
		if at == content && size <= 8192 {
			gap = gap[oldPointers(gap, content, size):]
		}
		if !isZero(gap) {
			found = true
			if overwrite {
				clear(gap)
			}
		}
		at = to
	}
	return found, nil
}

// span is a stretch of a page, in one number, since sorting them is most of the
// work: where it begins, times 2^32, plus where it ends.
type span uint64

func spanOf(from, to int) span { return span(from)<<32 | span(to) }

func (s span) bounds() (from, to int) { return int(s >> 32), int(s & 0xffffffff) }

// oldPointers returns how many bytes at the beginning of the gap are where cells
// were: deleting one moves those of the others up and leaves the last. They say
// nothing, and every page from which something was deleted has them. In pages of
// this size the first byte of each is no letter, so that text is not taken for
// them.
func oldPointers(gap []byte, content, size int) (n int) {
	for n+2 <= len(gap) {
		if at := int(binary.BigEndian.Uint16(gap[n:])); at < content || at >= size {
			break
		}
		n += 2
	}
	return n
}

var zeros [65536]byte

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// cellLength returns how many bytes of the page the cell at an offset takes.
func cellLength(kind byte, page []byte, at int) (length int, ok bool) {
	size := len(page)
	rest := page[min(at, size):]
	if len(rest) < 4 {
		return 0, false
	}
	if kind == pageIndexInterior || kind == pageTableInterior {
		rest, length = rest[4:], 4
	}
	first, n := varint(rest)
	if n == 0 {
		return 0, false
	}
	length += n
	if kind == pageTableInterior {
		// first is the row's number.
		return max(length, 4), true
	}
	if kind == pageTableLeaf {
		_, m := varint(rest[n:])
		if m == 0 {
			return 0, false
		}
		length += m
	}
	// What is longer than most lies on other pages, but for its beginning.
	most, least := (size-12)*64/255-23, (size-12)*32/255-23
	if kind == pageTableLeaf {
		most = size - 35
	}
	switch {
	case first <= uint64(most):
		length += int(first)
	default:
		local := least + int((first-uint64(least))%uint64(size-4))
		if local > most {
			local = least
		}
		length += local + 4
	}
	length = max(length, 4)
	return length, at+length <= size
}

// varint reads one of SQLite's integers and how long it is; 0 if it is cut off.
func varint(b []byte) (v uint64, n int) {
	for n < min(len(b), 9) {
		if n == 8 {
			return v<<8 | uint64(b[8]), 9
		}
		v = v<<7 | uint64(b[n]&0x7f)
		n++
		if b[n-1] < 0x80 {
			return v, n
		}
	}
	return 0, 0
}
