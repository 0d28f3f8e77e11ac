package boundary

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// removed stands where something was that structures prompts.
const removed = "[marker removed]"

// maxPasses bounds neutralise. Two settle every text but those that were made
// to need more.
const maxPasses = 4

// neutralise makes text harmless to a prompt's structure and leaves its words
// alone. It is linear, and idempotent by construction: what takes a marker's
// place moves the marker's neighbours, an emoji joiner for one, so that passes
// go on until one finds nothing to do. A text that still moves then was built
// for it and is replaced whole.
func neutralise(raw string) (string, Report) {
	var report Report
	if harmless(raw) {
		return strings.TrimSpace(raw), report
	}
	f := folders.Get().(*folder)
	defer func() {
		if cap(f.cells) <= maxKeptCells {
			folders.Put(f)
		}
	}()
	text := raw
	for n := range maxPasses {
		if n > 0 && harmless(text) {
			return strings.TrimSpace(text), report
		}
		next := f.pass(text, &report)
		if next == text {
			return text, report
		}
		text = next
	}
	if f.pass(text, new(Report)) != text {
		return removed, report
	}
	return text, report
}

func (f *folder) pass(raw string, report *Report) string {
	text := visible(raw, report)
	spans := findMarkers(f.fold(text))
	if len(spans) > 0 {
		var b strings.Builder
		done := 0
		for _, s := range spans {
			// Two markers can share a code point that folds to several letters.
			if s.end <= done {
				continue
			}
			b.WriteString(text[done:max(done, s.start)])
			b.WriteString(removed)
			report.Markers++
			done = s.end
		}
		b.WriteString(text[done:])
		text = b.String()
	}
	return strings.TrimSpace(text)
}

// visible removes what nobody can see, so that a reader and a model have the
// same text before them. Line ends become line feeds.
func visible(raw string, report *Report) string {
	i := stays(raw)
	if i == len(raw) {
		return raw
	}
	var b strings.Builder
	b.Grow(len(raw))
	b.WriteString(raw[:i])
	terminator := terminators{text: raw}
	before, _ := utf8.DecodeLastRuneInString(raw[:i]) // the last rune kept
	for i < len(raw) {
		if n := stays(raw[i:]); n > 0 {
			b.WriteString(raw[i : i+n])
			before, _ = utf8.DecodeLastRuneInString(raw[i : i+n])
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(raw[i:])
		next := i + size
		switch {
		case r == utf8.RuneError && size == 1:
			report.InvalidUTF8++
		case r == '\n' || r == '\t':
		case r == blackFlag:
			next += subdivision(raw[next:])
		case r == '\r':
			if next < len(raw) && raw[next] == '\n' {
				next++
			}
			r = '\n'
		case r == '\u2028' || r == '\u2029' || r == '\u0085':
			r = '\n'
		case r == 0x1b || r == 0x9b || r == 0x9d || r == 0x90:
			report.Escapes++
			i = terminator.escapeEnd(i, next, r)
			continue
		case unicode.IsControl(r):
			report.Controls++
			i = next
			continue
		case isBidiControl(r):
			report.Bidi++
			i = next
			continue
		case r >= 0xE0000 && r <= 0xE007F:
			report.Tags++
			i = next
			continue
		case isInvisible(r) && !inEmoji(before, r, raw[next:]):
			report.Invisible++
			i = next
			continue
		}
		b.WriteRune(r)
		if next > i+size && r == blackFlag {
			b.WriteString(raw[i+size : next])
		}
		before = r
		i = next
	}
	return b.String()
}

// stays returns how much of the beginning of text visible leaves as it is, whatever
// stands around.
func stays(text string) int {
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			if asciiSymbols[text[i]] == symbolUnseen {
				return i
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if _, kept := foldedRune(r); !kept || r == blackFlag || r == utf8.RuneError {
			return i
		}
		i += size
	}
	return len(text)
}

// terminators finds the ends of escape sequences that run up to a terminator.
// It remembers where the next one is, so that many beginnings without an end
// cost no more than one.
type terminators struct {
	text string
	next int // the next BEL, ST or ESC \ at or after some earlier position
	end  int // the end of it
}

// escapeEnd returns where the sequence that begins at start, and whose
// introducer ends at after, is over. A sequence without an end is its
// introducer alone: nothing that follows is swallowed.
func (t *terminators) escapeEnd(start, after int, introducer rune) int {
	kind := byte(0)
	switch introducer {
	case 0x9b:
		kind = '['
	case 0x9d, 0x90:
		kind = ']'
	default:
		if after == len(t.text) {
			return after
		}
		kind = t.text[after]
		if kind >= 0x80 {
			return after
		}
		after++
	}
	switch {
	case kind == '[':
		// Parameters, intermediates, one final byte.
		for i := after; i < len(t.text) && i < after+64; i++ {
			c := t.text[i]
			if c >= 0x40 && c <= 0x7e {
				return i + 1
			}
			if c < 0x20 || c > 0x7e {
				return i
			}
		}
		return after
	case strings.IndexByte("]PX^_", kind) >= 0:
		if t.next < after {
			t.find(after)
		}
		if t.next < len(t.text) {
			return t.end
		}
		return after
	case kind >= 0x20 && kind <= 0x2f && after < len(t.text) && t.text[after] >= 0x20 && t.text[after] <= 0x7e:
		return after + 1
	case kind >= 0x30 && kind <= 0x7e:
		return after
	}
	return start + 1
}

func (t *terminators) find(from int) {
	for i := from; i < len(t.text); i++ {
		switch {
		case t.text[i] == 0x07:
			t.next, t.end = i, i+1
			return
		case t.text[i] == 0x1b && i+1 < len(t.text) && t.text[i+1] == '\\', t.text[i] == 0xc2 && i+1 < len(t.text) && t.text[i+1] == 0x9c:
			t.next, t.end = i, i+2
			return
		}
	}
	t.next = len(t.text)
}

func isBidiControl(r rune) bool {
	return r == 0x061C || r == 0x200E || r == 0x200F || (r >= 0x202A && r <= 0x202E) || (r >= 0x2066 && r <= 0x2069)
}

// isUnseen reports whether visible removes r wherever it stands, or keeps it
// only in an emoji sequence.
func isUnseen(r rune) bool {
	return unicode.IsControl(r) || isBidiControl(r) || r >= 0xE0000 && r <= 0xE007F || isInvisible(r)
}

// isInvisible reports whether r is a default-ignorable code point (Unicode
// Standard, DerivedCoreProperties) or else shows as nothing.
func isInvisible(r rune) bool {
	if r < 0xAD {
		return false
	}
	switch {
	case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), unicode.Is(unicode.Variation_Selector, r):
		return true
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r), r >= 0x13430 && r <= 0x1343F:
		return false
	}
	return unicode.Is(unicode.Cf, r) || r == 0x2800 || unicode.Is(unicode.Noncharacter_Code_Point, r)
}

const (
	zeroWidthJoiner = 0x200D
	emojiSelector   = 0xFE0F
	keycap          = 0x20E3
	blackFlag       = 0x1F3F4
)

// subdivisions are the flags spelled with tag characters that Unicode
// recommends for interchange: England, Scotland, Wales. Any other sequence of
// tags could spell a hidden sentence.
var subdivisions = [...]string{tagged("gbeng"), tagged("gbsct"), tagged("gbwls")}

func tagged(code string) string {
	const base, cancel = 0xE0000, "\U000E007F"
	return strings.Map(func(r rune) rune { return base + r }, code) + cancel
}

// subdivision returns the length of the tags in after, which follows a black
// flag, that make it one of the flags above.
func subdivision(after string) int {
	for _, tags := range subdivisions {
		if strings.HasPrefix(after, tags) {
			return len(tags)
		}
	}
	return 0
}

// inEmoji reports whether an invisible r holds an emoji sequence together:
// a joiner between two pictures, a selector after one, or in a keycap.
func inEmoji(before, r rune, after string) bool {
	next, _ := utf8.DecodeRuneInString(after)
	switch r {
	case zeroWidthJoiner:
		return (isPicture(before) || before == emojiSelector) && isPicture(next)
	case emojiSelector:
		return isPicture(before) || next == keycap && (before >= '0' && before <= '9' || before == '#' || before == '*')
	}
	return false
}

// isPicture covers the blocks of Extended_Pictographic and the skin tones.
func isPicture(r rune) bool {
	switch {
	case r >= 0x1F000 && r <= 0x1FAFF, r >= 0x2600 && r <= 0x27BF, r >= 0x2190 && r <= 0x21FF, r >= 0x2300 && r <= 0x23FF,
		r >= 0x25A0 && r <= 0x25FF, r >= 0x2B00 && r <= 0x2BFF:
		return true
	}
	switch r {
	case 0xA9, 0xAE, 0x203C, 0x2049, 0x2122, 0x2139, 0x2934, 0x2935, 0x3030, 0x303D, 0x3297, 0x3299:
		return true
	}
	return false
}
