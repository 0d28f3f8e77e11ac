package boundary

import (
	"html"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The folded view is what a careless reader sees: letters whatever their case,
// script, width or accent, brackets whatever their shape, escapes decoded,
// separators gone. Markers are looked for there and nowhere else. The text is
// never rewritten to its view: each cell knows the bytes it stands for.

// cell is one character of the folded view.
type cell struct {
	// text[start:end] is what the cell stands for. A code point that folds to
	// several characters has several cells with the same bytes.
	start, end int
	// char is a lower-case ASCII letter, a digit, one of <>[]|/:#*, or one of
	// the constants below.
	char byte
	gap  gap
	// plain is set if the text itself has this ASCII character, in either
	// case, not something that folds to it.
	plain bool
}

const (
	// opaque stands for a run of characters that occur in no marker.
	opaque byte = iota
	// Angle brackets that languages also quote with.
	quoteOpen
	quoteClose
	// wrapping is any other punctuation or symbol, such as what a word is quoted
	// or set in type with. Each has a cell of its own.
	wrapping
	// roundOpen is wrapping that opens, as ( and { do.
	roundOpen
)

// gap is the set of separators between a cell and the one before it.
type gap byte

const (
	gapSpace gap = 1 << iota
	gapLine      // also set before the first cell
	gapUnderscore
	gapDash // and dots
)

// folder makes a folded view. It can be used again, and then overwrites the cells
// that it made before.
type folder struct {
	cells   []cell
	glyphs  []glyph
	pending gap
}

// folders are those that are not in use. A text of maxKeptCells is longer than most
// replies.
var folders = sync.Pool{New: func() any { return new(folder) }}

const maxKeptCells = 128 << 10

// fold returns the folded view of text, in time and space linear in len(text).
func (f *folder) fold(text string) []cell {
	f.cells, f.pending = slices.Grow(f.cells[:0], len(text)), gapLine
	if !escapes(text) {
		for i, r := range text {
			f.add(glyph{r: r, start: i, end: i + utf8.RuneLen(r)})
		}
		return f.cells
	}
	for _, g := range f.decode(text) {
		f.add(g)
	}
	return f.cells
}

// escapes reports whether decode may find something in text.
func escapes(text string) bool {
	for i := 0; i < len(text); i++ {
		n := strings.IndexAny(text[i:], `&\`)
		if n < 0 {
			return false
		}
		i += n
		if text[i] == '&' && isReference(text[i:]) || text[i] == '\\' && isEscape(text[i:]) {
			return true
		}
	}
	return false
}

// add adds a code point as addRune and addASCII do, by their tables.
func (f *folder) add(g glyph) {
	if g.r >= utf8.RuneSelf {
		steps, _ := foldedRune(g.r)
		for i := range len(steps) {
			f.addSymbol(steps[i], g, false)
		}
		return
	}
	plain := g.end-g.start == 1
	symbol := asciiSymbols[g.r]
	if symbol >= symbols {
		f.addASCII(byte(g.r), g, plain)
		return
	}
	f.addSymbol(symbol, g, plain)
}

func (f *folder) addSymbol(symbol byte, g glyph, plain bool) {
	if symbol >= symbolLine {
		f.pending |= gapOf(symbol)
		return
	}
	c := alphabet[symbol]
	if c == opaque {
		f.addOpaque(g)
		return
	}
	// What the constants stand for is no character of the text.
	f.addCell(c, g, plain && c > roundOpen)
}

// addRune adds a code point that is not ASCII.
func (f *folder) addRune(g glyph) {
	if isUnseen(g.r) {
		return
	}
	if folded, ok := lookalikes[g.r]; ok {
		f.addAll(folded, g)
		return
	}
	if isIdeograph(g.r) {
		f.addOpaque(g)
		return
	}
	f.addOther(g)
}

// isIdeograph reports whether r is one of the ideographs and Hangul syllables, which
// have no part in any marker.
func isIdeograph(r rune) bool { return 0x3400 <= r && r <= 0x9FFF || 0xAC00 <= r && r <= 0xD7A3 }

// addOther adds a code point by its compatibility decomposition without its
// combining marks and format characters, those with a shape (U+0601) included.
func (f *folder) addOther(g glyph) {
	var buf [utf8.UTFMax]byte
	encoded := buf[:utf8.EncodeRune(buf[:], g.r)]
	if d := norm.NFKD.Properties(encoded).Decomposition(); d != nil {
		encoded = d
	}
	for len(encoded) > 0 {
		r, size := utf8.DecodeRune(encoded)
		encoded = encoded[size:]
		folded, known := lookalikes[r]
		switch {
		case r < utf8.RuneSelf:
			f.addASCII(byte(r), g, false)
		case known:
			f.addAll(folded, g)
		case r == utf8.RuneError || unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) || isUnseen(r):
		case unicode.In(r, unicode.Zl, unicode.Zp):
			f.pending |= gapLine
		case unicode.IsSpace(r):
			f.pending |= gapSpace
		case unicode.Is(unicode.Pd, r):
			f.pending |= gapDash
		case unicode.Is(unicode.Pc, r):
			f.pending |= gapUnderscore
		case unicode.Is(unicode.Ps, r):
			f.addCell(roundOpen, g, false)
		case unicode.In(r, unicode.P, unicode.S):
			f.addCell(wrapping, g, false)
		default:
			f.addOpaque(g)
		}
	}
}

func (f *folder) addAll(folded string, g glyph) {
	for i := range len(folded) {
		f.addASCII(folded[i], g, false)
	}
}

func (f *folder) addASCII(c byte, g glyph, plain bool) {
	switch {
	case 'A' <= c && c <= 'Z':
		f.addCell(c+('a'-'A'), g, plain)
	case isLowerDigit(c), strings.IndexByte("<>[]|/:#*", c) >= 0:
		f.addCell(c, g, plain)
	case c == quoteOpen && !plain, c == quoteClose && !plain:
		f.addCell(c, g, false)
	case c == '\n':
		f.pending |= gapLine
	case c == ' ', c == '\t':
		f.pending |= gapSpace
	case c == '_':
		f.pending |= gapUnderscore
	case c == '-', c == '.':
		f.pending |= gapDash
	case c < ' ', c == 0x7F:
		// Only an escape can still spell a control.
	case c == '(', c == '{':
		f.addCell(roundOpen, g, false)
	default:
		f.addCell(wrapping, g, false)
	}
}

func (f *folder) addCell(c byte, g glyph, plain bool) {
	f.cells = append(f.cells, cell{start: g.start, end: g.end, char: c, gap: f.pending, plain: plain})
	f.pending = 0
}

func (f *folder) addOpaque(g glyph) {
	if n := len(f.cells); n > 0 && f.cells[n-1].char == opaque {
		f.cells[n-1].end = g.end
		f.pending = 0
		return
	}
	f.addCell(opaque, g, false)
}

// glyph is one code point of a text, or of what an escape in it stands for.
type glyph struct {
	r          rune
	start, end int
}

// decodeDepth is how many layers of escaping the view sees through. One is
// what a reader may undo; the others are there so that a text which somebody
// unescapes on its way here or from here cannot turn into a marker by it.
const decodeDepth = 3

// decode returns the code points of text with HTML character references and
// the backslash escapes of JSON, JavaScript and Markdown decoded.
func (f *folder) decode(text string) []glyph {
	glyphs := slices.Grow(f.glyphs[:0], len(text))
	for i, r := range text {
		glyphs = append(glyphs, glyph{r, i, i + utf8.RuneLen(r)})
	}
	f.glyphs = glyphs
	for range decodeDepth {
		n := len(glyphs)
		if glyphs = decodeLayer(glyphs); len(glyphs) == n {
			break
		}
	}
	return glyphs
}

// decodeLayer decodes each escape once, in place: an escape is longer than
// what it stands for.
func decodeLayer(in []glyph) []glyph {
	out := in[:0]
	for i := 0; i < len(in); {
		var (
			decoded []rune
			n       int
			buf     [1]rune
		)
		switch in[i].r {
		case '&':
			decoded, n = reference(in[i:], buf[:0])
		case '\\':
			decoded, n = escape(in[i:], buf[:0])
		}
		if n == 0 {
			out = append(out, in[i])
			i++
			continue
		}
		start, end := in[i].start, in[i+n-1].end
		for _, r := range decoded {
			out = append(out, glyph{r, start, end})
		}
		i += n
	}
	return out
}

// maxReference bounds a name and the & before it: the longest in the HTML standard
// has 31 letters.
const maxReference = 33

// reference decodes the HTML character reference at the start of in, with or
// without its semicolon, appending to dst; n is its length, 0 if there is none.
func reference(in []glyph, dst []rune) (decoded []rune, n int) {
	if len(in) > 1 && in[1].r == '#' {
		base, i := 10, 2
		if i < len(in) && in[i].r|0x20 == 'x' {
			base, i = 16, 3
		}
		value, digits := number(in[i:], base, len(in))
		if digits == 0 {
			return nil, 0
		}
		if i += digits; i < len(in) && in[i].r == ';' {
			i++
		}
		return append(dst, value), i
	}
	var name [maxReference + 1]byte
	name[0], n = '&', 1
	for n < len(in) && n < len(name)-1 && in[n].r < utf8.RuneSelf && isLetterDigit(byte(in[n].r)) {
		name[n] = byte(in[n].r)
		n++
	}
	if n < len(in) && in[n].r == ';' {
		name[n] = ';'
		n++
	}
	written := string(name[:n])
	unescaped := html.UnescapeString(written)
	if unescaped == written {
		return nil, 0
	}
	for _, r := range unescaped {
		dst = append(dst, r)
	}
	return dst, n
}

// escape decodes the backslash escape at the start of in, appending to dst; n
// is its length, 0 if there is none.
func escape(in []glyph, dst []rune) (decoded []rune, n int) {
	if len(in) < 2 {
		return nil, 0
	}
	width := 0
	switch r := in[1].r; r {
	case 'n', 'r':
		return append(dst, '\n'), 2
	case 't', 'b', 'f':
		return append(dst, '\t'), 2
	case 'x':
		width = 2
	case 'u':
		if len(in) > 2 && in[2].r == '{' {
			value, digits := number(in[3:], 16, len(in))
			if end := 3 + digits; digits > 0 && end < len(in) && in[end].r == '}' {
				return append(dst, value), end + 1
			}
			return nil, 0
		}
		width = 4
	case 'U':
		width = 8
	default:
		if r < utf8.RuneSelf && unicode.In(r, unicode.P, unicode.S) {
			return append(dst, r), 2
		}
		return nil, 0
	}
	value, digits := number(in[2:], 16, width)
	if digits < width {
		return nil, 0
	}
	n = 2 + width
	if utf16.IsSurrogate(value) && n+6 <= len(in) && in[n].r == '\\' && in[n+1].r == 'u' {
		if low, digits := number(in[n+2:], 16, 4); digits == 4 {
			if r := utf16.DecodeRune(value, low); r != utf8.RuneError {
				return append(dst, r), n + 6
			}
		}
	}
	return append(dst, value), n
}

// number reads up to most digits. A value that is no code point is U+FFFD.
func number(in []glyph, base, most int) (value rune, digits int) {
	for digits < len(in) && digits < most {
		d := digitOf(in[digits].r)
		if d >= base {
			break
		}
		if value <= unicode.MaxRune {
			value = value*rune(base) + rune(d)
		}
		digits++
	}
	if value > unicode.MaxRune {
		value = utf8.RuneError
	}
	return value, digits
}

// digitOf returns the value of a hexadecimal digit, 16 for anything else.
func digitOf(r rune) int {
	switch {
	case '0' <= r && r <= '9':
		return int(r - '0')
	case 'a' <= r && r <= 'f':
		return int(r-'a') + 10
	case 'A' <= r && r <= 'F':
		return int(r-'A') + 10
	}
	return 16
}

func isLowerDigit(b byte) bool  { return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' }
func isLetterDigit(b byte) bool { return isLowerDigit(b) || 'A' <= b && b <= 'Z' }
func isLowerHex(b byte) bool    { return 'a' <= b && b <= 'f' || '0' <= b && b <= '9' }
