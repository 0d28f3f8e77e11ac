package tokenizer

import (
	"math"

	"github.com/tiktoken-go/tokenizer/codec"
)

// vocabulary is the tokens by their bytes. A token of a lower rank is merged
// first.
type vocabulary struct {
	ranks   map[string]uint32
	longest int // bytes of a token
}

// loaded takes the tokens out of a codec: all up to the first rank without one,
// behind which the special tokens are.
func loaded(c *codec.Codec) *vocabulary {
	v := &vocabulary{ranks: map[string]uint32{}}
	for rank := uint32(0); ; rank++ {
		token, err := c.Decode([]uint{uint(rank)})
		if err != nil {
			return v
		}
		v.ranks[token] = rank
		v.longest = max(v.longest, len(token))
	}
}

// unmergeable is the rank of bytes that are no token.
const unmergeable = math.MaxUint32

func (v *vocabulary) rank(s string) uint32 {
	if len(s) <= v.longest {
		if rank, ok := v.ranks[s]; ok {
			return rank
		}
	}
	return unmergeable
}

// merger is the working space of count. A token is named by the offset of its
// first byte.
type merger struct {
	end  [maxPiece]int32  // of the token here
	prev [maxPiece]int32  // the token before it; -1 is none
	rank [maxPiece]uint32 // of the token here and the next one as one
	next candidates
}

// count returns how many tokens byte-pair encoding makes of at most maxPiece
// bytes: the two neighbours with the lowest rank are merged, the first of them
// where there are several, until no two make a token.
func (m *merger) count(v *vocabulary, piece string) int {
	if v.rank(piece) != unmergeable {
		return 1
	}
	m.next = m.next[:0]
	for i := range len(piece) {
		m.end[i], m.prev[i] = int32(i+1), int32(i-1)
	}
	for i := range len(piece) {
		if m.look(v, piece, i) {
			m.next = append(m.next, candidate(m.rank[i], i))
		}
	}
	for i := len(m.next)/2 - 1; i >= 0; i-- {
		m.next.down(i)
	}
	tokens := len(piece)
	for len(m.next) > 0 {
		rank, i := m.next.pop()
		if m.rank[i] != rank {
			continue // one of the two was merged with another
		}
		second := m.end[i]
		end := m.end[second]
		m.rank[second] = unmergeable
		m.end[i] = end
		if int(end) < len(piece) {
			m.prev[end] = int32(i)
		}
		tokens--
		if m.look(v, piece, i) {
			m.next.push(candidate(m.rank[i], i))
		}
		if before := int(m.prev[i]); before >= 0 && m.look(v, piece, before) {
			m.next.push(candidate(m.rank[before], before))
		}
	}
	return tokens
}

// look sets the rank of the token at i, and reports whether it can be merged
// with the next one.
func (m *merger) look(v *vocabulary, piece string, i int) bool {
	m.rank[i] = unmergeable
	if next := int(m.end[i]); next < len(piece) {
		m.rank[i] = v.rank(piece[i:m.end[next]])
	}
	return m.rank[i] != unmergeable
}

// candidates is a heap of merges, the one to make first at its root: its rank in
// the upper half, its offset in the lower.
type candidates []uint64

func candidate(rank uint32, offset int) uint64 { return uint64(rank)<<32 | uint64(offset) }

func (c *candidates) push(v uint64) {
	*c = append(*c, v)
	h := *c
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent] <= h[i] {
			return
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func (c *candidates) pop() (rank uint32, offset int) {
	h := *c
	first, last := h[0], len(h)-1
	h[0] = h[last]
	*c = h[:last]
	c.down(0)
	return uint32(first >> 32), int(uint32(first))
}

func (c candidates) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(c) {
			return
		}
		if child+1 < len(c) && c[child+1] < c[child] {
			child++
		}
		if c[i] <= c[child] {
			return
		}
		c[i], c[child] = c[child], c[i]
		i = child
	}
}
