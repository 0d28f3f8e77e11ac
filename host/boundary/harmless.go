package boundary

import (
	"html"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// Most texts need nothing, and one look at each character shows it: harmless
// proves that neutralise would only trim a text. It reads the folded view without
// making one, by an automaton that knows what every rule of findMarkers needs at
// least. What it cannot rule out, the rules themselves look at.

// harmless reports whether neutralise would do nothing to text but trim it. It may
// be wrong about a text that is, and never about one that is not.
func harmless(text string) bool {
	m := suspicion()
	at := m.start
	for i := 0; i < len(text); {
		c := text[i]
		if symbol := asciiSymbols[c]; symbol < symbols {
			if at = m.next[int(at)<<symbolBits|int(symbol)]; at == suspect {
				return false
			}
			i++
			continue
		}
		var steps string
		size := 1
		switch {
		case c >= utf8.RuneSelf:
			var r rune
			if r, size = utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
				return false
			}
			var kept bool
			if steps, kept = foldedRune(r); !kept && !heldInEmoji(text, i, r, size) {
				return false
			}
		case c == '&' && !isReference(text[i:]), c == '\\' && !isEscape(text[i:]):
			steps = one(symbolOf(wrapping))
		default:
			return false
		}
		for k := range len(steps) {
			if at = m.next[int(at)<<symbolBits|int(steps[k])]; at == suspect {
				return false
			}
		}
		i += size
	}
	return true
}

// heldInEmoji reports whether r, which stands at i, is one of those that visible
// removes everywhere but there.
func heldInEmoji(text string, i int, r rune, size int) bool {
	if r != zeroWidthJoiner && r != emojiSelector {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	return inEmoji(before, r, text[i+size:])
}

// isReference reports whether reference may decode what text begins with.
func isReference(text string) bool {
	n := 1
	for n < len(text) && n < maxReference && isLetterDigit(text[n]) {
		n++
	}
	if n == 1 {
		return len(text) > 1 && text[1] == '#'
	}
	if n < len(text) && text[n] == ';' {
		n++
	}
	return html.UnescapeString(text[:n]) != text[:n]
}

// isEscape reports whether escape may decode what text begins with.
func isEscape(text string) bool {
	if len(text) < 2 || text[1] >= utf8.RuneSelf {
		return false
	}
	return strings.IndexByte("nrtbfxuU", text[1]) >= 0 || unicode.In(rune(text[1]), unicode.P, unicode.S)
}

// The symbols that the automaton reads: the characters of cells, and gaps.
const (
	alphabet = "abcdefghijklmnopqrstuvwxyz0123456789<>[]|/:#*\x00\x01\x02\x03\x04"
	// The gaps, in their order.
	symbolLine       = byte(len(alphabet))
	symbolSpace      = symbolLine + 1
	symbolUnderscore = symbolLine + 2
	symbolDash       = symbolLine + 3
	symbols          = symbolLine + 4
	// symbolEscape may begin an escape, and symbolUnseen is not to stay.
	symbolBits   = 6
	symbolEscape = 0xfe
	symbolUnseen = 0xff
)

func gapOf(symbol byte) gap {
	return [...]gap{gapLine, gapSpace, gapUnderscore, gapDash}[symbol-symbolLine]
}

func symbolOf(c byte) byte { return byte(strings.IndexByte(alphabet, c)) }

// each has every symbol once, for strings of one of them.
var each = func() string {
	var b [symbols]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()

func one(symbol byte) string { return each[symbol : symbol+1] }

// asciiSymbols says what is read of each byte that stands for itself, the same as
// what addASCII makes of it.
var asciiSymbols = func() (read [256]uint8) {
	for c := range read {
		switch {
		case c == '&', c == '\\':
			read[c] = symbolEscape
		case c >= utf8.RuneSelf, unicode.IsControl(rune(c)) && c != '\n' && c != '\t':
			read[c] = symbolUnseen
		default:
			var f folder
			f.addASCII(byte(c), glyph{end: 1}, true)
			read[c] = stepsOf(&f)[0]
		}
	}
	return read
}()

// stepsOf returns what the automaton reads of what was added to f.
func stepsOf(f *folder) string {
	var steps []byte
	gaps := func(g gap) {
		for symbol := symbolLine; symbol < symbols; symbol++ {
			if g&gapOf(symbol) != 0 {
				steps = append(steps, symbol)
			}
		}
	}
	for _, c := range f.cells {
		gaps(c.gap)
		steps = append(steps, symbolOf(c.char))
	}
	gaps(f.pending)
	if len(steps) == 1 {
		return one(steps[0])
	}
	return string(steps)
}

// foldedRune returns what addRune makes of a code point, as the automaton reads it;
// not kept if visible may not leave it as it is.
func foldedRune(r rune) (steps string, kept bool) {
	if isIdeograph(r) {
		return one(symbolOf(opaque)), true
	}
	page := int(r >> 8)
	if page >= len(foldedPages) {
		return foldRune(r)
	}
	p := foldedPages[page].Load()
	if p == nil {
		p = new(foldedPage)
		for low := range p {
			p[low].steps, p[low].kept = foldRune(r&^0xff | rune(low))
		}
		foldedPages[page].Store(p)
	}
	return p[r&0xff].steps, p[r&0xff].kept
}

// foldedPage is what foldRune says of 256 code points.
type foldedPage [256]struct {
	steps string
	kept  bool
}

// foldedPages are those that somebody used, up to the last one of pictures: at most
// 3 MB.
var foldedPages [0x1FB]atomic.Pointer[foldedPage]

func foldRune(r rune) (steps string, kept bool) {
	var f folder
	f.addRune(glyph{r: r, end: utf8.RuneLen(r)})
	return stepsOf(&f), !isUnseen(r) && r != '\u2028' && r != '\u2029'
}

// A pattern is what some rule of findMarkers needs to see, symbol by symbol; gaps
// may stand anywhere between.
type pattern struct {
	steps []set
	// atRole says that it begins where role may look for one: not straight after a
	// letter on the same line.
	atRole bool
	// between may stand any number of times before the last step.
	between set
}

// set is a set of symbols.
type set uint64

func setOf(chars string) (s set) {
	for i := range len(chars) {
		s |= 1 << symbolOf(chars[i])
	}
	return s
}

// patterns are made of the lists of the rules, so that a name that is added to one
// is known here too.
func patterns() (all []pattern) {
	var opens, closes, dressing, folded set
	for i := range len(alphabet) {
		c, one := alphabet[i], set(1)<<i
		folded |= one
		if isOpen(c) {
			opens |= one
		}
		if isClose(c) {
			closes |= one
		}
		if isDressing(c) {
			dressing |= one
		}
	}
	word := func(name string) (steps []set) {
		for i := range len(name) {
			var s set
			for k := range len(alphabet) {
				if like(alphabet[k], name[i]) {
					s |= 1 << k
				}
			}
			steps = append(steps, s)
		}
		return steps
	}
	add := func(before []set, name string, after ...set) {
		all = append(all, pattern{steps: append(append(before[:len(before):len(before)], word(name)...), after...)})
	}
	for _, name := range roles {
		all = append(all, pattern{steps: append(word(name), setOf(":<")), atRole: true, between: dressing})
	}
	add([]set{opens, setOf("|")}, "")
	for _, name := range doubled {
		add([]set{opens, opens}, name, closes)
	}
	for _, name := range angled {
		add([]set{opens}, name, closes)
	}
	for _, name := range squared {
		add([]set{setOf("[")}, name, setOf("]"))
	}
	for _, name := range squaredStarts {
		add([]set{setOf("[")}, name)
	}
	add([]set{setOf("[")}, "summary")
	for _, name := range []string{frameName, hostBegin, hostEnd, labelName, cutName} {
		add(nil, name)
	}
	return all
}

// automaton finds patterns, one state for each set of those that may have begun.
type automaton struct {
	start uint16
	// next has the state that a symbol leads to from another at its number and the
	// symbol's.
	next []uint16
}

// suspect is the state in which a pattern was found.
const suspect = 0

// suspicion is made when it is first needed, of the patterns.
var suspicion = sync.OnceValue(func() *automaton { return newAutomaton(patterns()) })

// place is how much of a pattern was seen.
type place struct{ pattern, seen uint8 }

// newAutomaton makes the automaton by the subset construction.
func newAutomaton(all []pattern) *automaton {
	letters := setOf("abcdefghijklmnopqrstuvwxyz\x00")
	// begin are the places after the first symbol of a pattern: begin[0] where no role
	// may begin, begin[1] where one may.
	var begin [2][symbols][]place
	for i, p := range all {
		for symbol := range symbols {
			if p.steps[0]&(1<<symbol) == 0 {
				continue
			}
			begin[1][symbol] = append(begin[1][symbol], place{uint8(i), 1})
			if !p.atRole {
				begin[0][symbol] = append(begin[0][symbol], place{uint8(i), 1})
			}
		}
	}
	// A state is the places it is in, and whether a role may begin.
	type state struct {
		places []place
		atRole uint8
	}
	m := &automaton{next: make([]uint16, 1<<symbolBits, 1200<<symbolBits)}
	states := make([]state, 1, 1500)
	known := make(map[string]uint16, 1500)
	var key []byte
	number := func(places []place, atRole uint8) uint16 {
		key = append(key[:0], atRole)
		for _, p := range places {
			key = append(key, p.pattern, p.seen)
		}
		n, ok := known[string(key)]
		if !ok {
			n = uint16(len(states))
			known[string(key)] = n
			m.next = append(m.next, make([]uint16, 1<<symbolBits)...)
			states = append(states, state{slices.Clone(places), atRole})
		}
		return n
	}
	idle := [2]uint16{number(nil, 0), number(nil, 1)}
	m.start = idle[1]
	var places []place
	for n := idle[0]; int(n) < len(states); n++ {
		from := states[n]
		next := func(symbol byte, state uint16) { m.next[int(n)<<symbolBits|int(symbol)] = state }
		for symbol := symbolLine; symbol < symbols; symbol++ {
			next(symbol, n)
		}
		next(symbolLine, number(from.places, 1))
		for symbol := range symbolLine {
			places = append(places[:0], begin[from.atRole][symbol]...)
			found := false
			for _, p := range from.places {
				steps, between := all[p.pattern].steps, all[p.pattern].between
				last := int(p.seen) == len(steps)-1
				if steps[p.seen]&(1<<symbol) != 0 {
					found = found || last
					places = append(places, place{p.pattern, p.seen + 1})
				}
				if last && between&(1<<symbol) != 0 {
					places = append(places, p)
				}
			}
			switch atRole := uint8(^letters >> symbol & 1); {
			case found:
				next(symbol, suspect)
			case len(places) == 0:
				next(symbol, idle[atRole])
			default:
				next(symbol, number(places, atRole))
			}
		}
	}
	return m
}
