package boundary

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reference is Wrap without any of its short cuts, which must never make a
// difference: every code point is looked at by itself, and every rule at every cell.
func Reference(raw string) (string, Report) {
	var report Report
	text := raw
	for range maxPasses {
		next := referencePass(text, &report)
		if next == text {
			return text, report
		}
		text = next
	}
	if referencePass(text, new(Report)) != text {
		return removed, report
	}
	return text, report
}

func referencePass(raw string, report *Report) string {
	text := referenceVisible(raw, report)
	var b strings.Builder
	done := 0
	for _, s := range referenceMarkers(ReferenceFold(text)) {
		if s.end <= done {
			continue
		}
		b.WriteString(text[done:max(done, s.start)])
		b.WriteString(removed)
		report.Markers++
		done = s.end
	}
	b.WriteString(text[done:])
	return strings.TrimSpace(b.String())
}

// ReferenceFold is fold without its tables.
func ReferenceFold(text string) []cell {
	f := folder{pending: gapLine}
	for _, g := range new(folder).decode(text) {
		if g.r < utf8.RuneSelf {
			f.addASCII(byte(g.r), g, g.end-g.start == 1)
		} else {
			f.addRune(g)
		}
	}
	return f.cells
}

// Fold returns the folded view.
func Fold(text string) []cell { return new(folder).fold(text) }

func referenceMarkers(cells []cell) []span {
	v := view{cells: cells}
	var found []span
	for i := 0; i < len(cells); {
		start, end := v.markerAt(i)
		if end == 0 {
			i++
			continue
		}
		found = append(found, span{cells[start].start, cells[end-1].end})
		v.done, i = end, end
	}
	return found
}

func referenceVisible(raw string, report *Report) string {
	var b strings.Builder
	b.Grow(len(raw))
	terminator := terminators{text: raw}
	var before rune // the last rune kept
	for i := 0; i < len(raw); {
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

// Harmless reports whether a text is seen to need nothing.
func Harmless(text string) bool { return harmless(text) }

// FoldedRune and FoldRune are what the folded view has of a code point, by its table
// and without.
func FoldedRune(r rune) (string, bool) { return foldedRune(r) }
func FoldRune(r rune) (string, bool)   { return foldRune(r) }

// ReferenceDecode is UnmarshalJSON by encoding/json alone.
func ReferenceDecode(data []byte) (c Content, err error) {
	if string(data) == "null" {
		return Content{}, nil
	}
	var in contentJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return Content{}, fmt.Errorf("external content: %w", err)
	}
	return c, c.read(in)
}
