package vectors

import (
	"strings"
	"unicode"
	"unicode/utf16"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// minCarried is the least that a message says, in UTF-16 units, for a summary to
// be taken for one that carries it.
const minCarried = 24

// SummaryCarries reports whether a host's own summary carries a message word for
// word: at its very beginning or end, or within quotes (", ' or `, each paired with
// the next of its kind). Case and white space do not count; a message of less than
// 24 UTF-16 units is never carried.
//
// It is for importers of transcripts that carry such summaries. None of the forms
// that memory/transfer reads does, so that only the vectors use it, and no live
// session is ever decided by it: a summary tells of a past occurrence. It takes
// linear time.
func SummaryCarries(message, summary string) bool {
	message, summary = folded(message), folded(summary)
	if units(message) < minCarried {
		return false
	}
	if strings.HasPrefix(summary, message) || strings.HasSuffix(summary, message) {
		return true
	}
	if len(message) > len(summary) {
		return false
	}
	wanted := newPattern(message)
	for _, quote := range []string{`"`, `'`, "`"} {
		rest := summary
		for {
			_, quoted, opened := strings.Cut(rest, quote)
			span, after, closed := strings.Cut(quoted, quote)
			if !opened || !closed {
				break
			}
			if wanted.in(span) {
				return true
			}
			rest = after
		}
	}
	return false
}

// folded is text in lower case with one blank for each run of white space, as
// ECMAScript defines both.
func folded(text string) string {
	text = strings.Join(strings.FieldsFunc(text, isSpace), " ")
	// Of all letters only the dotted I and the sigma at a word's end become others
	// than one by one, which takes much longer to tell.
	if strings.ContainsAny(text, "\u0130\u03a3") {
		return cases.Lower(language.Und).String(text)
	}
	return strings.ToLower(text)
}

// isSpace reports whether ECMAScript calls r white space or a line terminator.
func isSpace(r rune) bool { return unicode.IsSpace(r) && r != '\u0085' || r == '\ufeff' }

func units(text string) int {
	n := 0
	for _, r := range text {
		n += utf16.RuneLen(r)
	}
	return n
}

// pattern finds a text in others in linear time, whatever they are made of
// (Knuth, Morris and Pratt): strings.Contains has texts that take it longer.
type pattern struct {
	text string
	// border is, for each beginning of text, the length of the longest shorter
	// beginning that it also ends with.
	border []int32
}

func newPattern(text string) pattern {
	p := pattern{text, make([]int32, len(text)+1)}
	for i := 1; i < len(text); i++ {
		p.border[i+1] = int32(p.step(int(p.border[i]), text[i]))
	}
	return p
}

// step returns how much of the pattern is matched after one more byte.
func (p pattern) step(matched int, c byte) int {
	for matched > 0 && p.text[matched] != c {
		matched = int(p.border[matched])
	}
	if p.text[matched] == c {
		matched++
	}
	return matched
}

func (p pattern) in(text string) bool {
	if len(text) < len(p.text) {
		return false
	}
	matched := 0
	for i := range len(text) {
		if matched = p.step(matched, text[i]); matched == len(p.text) {
			return true
		}
	}
	return false
}
