package compose

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// Text returns b, of which no charset is known, as valid UTF-8: what is not
// UTF-8 is taken for windows-1252.
func Text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	s, _ := charmap.Windows1252.NewDecoder().Bytes(b)
	return string(s)
}

// OneLine returns s as one line of at most most runes: every run of white space
// and control characters becomes one space, invisible format characters go
// away, and what is too long ends in "…". This is what keeps the words of
// strangers from writing lines of the reply.
func OneLine(s string, most int) string {
	if len(s) <= most && isPlain(s) {
		return strings.Clone(s)
	}
	var b strings.Builder
	runes, gap := 0, false
	cut := -1 // where the last word that leaves room for the ellipsis ends
	for _, r := range s {
		switch {
		case r > ' ' && r <= '~':
		case unicode.IsSpace(r), unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\u034F':
			gap = true
			continue
		case r == '\u200C', r == '\u200D':
			// Joiners shape words and emoji; elsewhere they are padding.
			if gap || runes == 0 {
				continue
			}
		case unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r), r == '\uFFFC':
			continue
		case r == utf8.RuneError:
			r = '\uFFFD'
		}
		if gap && runes > 0 {
			if runes < most {
				cut = b.Len()
			}
			b.WriteByte(' ')
			runes++
		}
		gap = false
		if runes >= most {
			text := b.String()
			if cut < len(text)/2 {
				cut = len(string([]rune(text)[:max(most-1, 0)]))
			}
			return strings.TrimRight(text[:cut], " ,;:.-–—") + "…"
		}
		b.WriteRune(r)
		runes++
	}
	return b.String()
}

// isPlain tells whether s is printable ASCII without a space too many.
func isPlain(s string) bool {
	last := byte(' ')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < ' ' || c > '~' || c == ' ' && last == ' ' {
			return false
		}
		last = c
	}
	return last != ' ' || s == ""
}
