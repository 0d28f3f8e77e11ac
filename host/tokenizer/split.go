package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The functions here do what OpenAI's patterns for the two vocabularies do
// (tiktoken_ext/openai_public.py), each alternative tried in its order:
//
//	cl100k_base: (?i:'s|'t|'re|'ve|'m|'ll|'d)
//	             [^\r\n\p{L}\p{N}]?\p{L}+
//	             \p{N}{1,3}
//	              ?[^\s\p{L}\p{N}]+[\r\n]*
//	             \s*[\r\n]+
//	             \s+(?!\S)
//	             \s+
//	o200k_base:  [^\r\n\p{L}\p{N}]?U*W+C?   U: \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}
//	             [^\r\n\p{L}\p{N}]?U+W*C?   W: \p{Ll}\p{Lm}\p{Lo}\p{M}
//	             \p{N}{1,3}                 C: the first line of cl100k_base
//	              ?[^\s\p{L}\p{N}]+[\r\n/]*
//	             and the last three of cl100k_base
//
// Each returns the length of the first piece of a text that is not empty.

// class is what the patterns tell apart.
type class uint8

const (
	other class = iota
	newline
	blank // white space but CR and LF
	number
	mark
	upper
	lower
	letter // neither of the two
)

func (c class) isSpace() bool  { return c == newline || c == blank }
func (c class) isLetter() bool { return c >= upper }

// leads: one such may stand before the letters of a word.
func (c class) leads() bool { return c != newline && c != number && !c.isLetter() }

// isSign: neither white space, nor letter, nor number.
func (c class) isSign() bool { return c == other || c == mark }

func (c class) isU() bool { return c == upper || c.isUW() }
func (c class) isW() bool { return c == lower || c.isUW() }

// isUW: both U and W.
func (c class) isUW() bool { return c == letter || c == mark }

var ascii = func() (table [utf8.RuneSelf]class) {
	for i := range table {
		table[i] = classOf(rune(i))
	}
	return table
}()

func classOf(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsSpace(r):
		return blank
	case unicode.IsLetter(r):
		switch {
		case unicode.Is(unicode.Ll, r):
			return lower
		case unicode.In(r, unicode.Lu, unicode.Lt):
			return upper
		}
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsMark(r):
		return mark
	}
	return other
}

// at returns the class of the character at i and where the next one is; behind
// the end it is a character of no class.
func at(text string, i int) (c class, next int) {
	if i >= len(text) {
		return none, i
	}
	if b := text[i]; b < utf8.RuneSelf {
		return ascii[b], i + 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return classOf(r), i + size
}

// none is what at says behind the end.
const none = newline

// run returns where the characters from i on are no longer of a kind.
func run(text string, i int, of func(class) bool) int {
	for i < len(text) {
		c, next := at(text, i)
		if !of(c) {
			break
		}
		i = next
	}
	return i
}

func splitCL100K(text string) int {
	if n := contraction(text); n > 0 {
		return n
	}
	first, next := at(text, 0)
	switch second, _ := at(text, next); {
	case first.isLetter(), first.leads() && second.isLetter():
		return run(text, next, class.isLetter)
	case first == number:
		return digits(text)
	}
	if n := signs(text, "\r\n"); n > 0 {
		return n
	}
	return space(text)
}

func splitO200K(text string) int {
	first, next := at(text, 0)
	if first == number {
		return digits(text)
	}
	// The prefix is tried first, for both kinds of words; a mark may be one and
	// may as well begin the word.
	starts := []int{0}
	switch {
	case first == mark:
		starts = []int{next, 0}
	case first.leads():
		starts = []int{next}
	}
	for _, word := range []func(string, int) int{lowerWord, upperWord} {
		for _, start := range starts {
			if end := word(text, start); end > start {
				return end + contraction(text[end:])
			}
		}
	}
	if n := signs(text, "\r\n/"); n > 0 {
		return n
	}
	return space(text)
}

// lowerWord returns where U*W+ from start ends, or start.
func lowerWord(text string, start int) int {
	end, lastUW := start, start
	for end < len(text) {
		c, next := at(text, end)
		if !c.isU() {
			break
		}
		if end = next; c.isUW() {
			lastUW = end
		}
	}
	if c, _ := at(text, end); c == lower {
		return run(text, end, class.isW)
	}
	// U* gives back what W+ needs.
	return lastUW
}

// upperWord returns where U+W* from start ends, or start. It comes after
// lowerWord, so no W follows.
func upperWord(text string, start int) int { return run(text, start, class.isU) }

// contraction returns the length of an English one, such as 's, or zero.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch text[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if strings.HasPrefix(text[1:], "ſ") {
		return 1 + len("ſ") // the long s is an s without regard to case
	}
	if len(text) >= 3 {
		switch string([]byte{text[1] | 0x20, text[2] | 0x20}) {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// digits returns the length of 1 to 3 numbers.
func digits(text string) int {
	end := 0
	for range 3 {
		c, next := at(text, end)
		if c != number {
			break
		}
		end = next
	}
	return end
}

// signs returns the length of signs, with a space before them and with those of
// tail after them, or zero.
func signs(text, tail string) int {
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	end := run(text, start, class.isSign)
	if end == start {
		return 0
	}
	for end < len(text) && strings.IndexByte(tail, text[end]) >= 0 {
		end++
	}
	return end
}

// space returns the length of white space up to its last line break, or without
// its last character if more than that precedes something else: the last one
// belongs to what follows.
func space(text string) int {
	end, last, afterBreak := 0, 0, 0
	for end < len(text) {
		c, next := at(text, end)
		if !c.isSpace() {
			break
		}
		if last, end = end, next; c == newline {
			afterBreak = end
		}
	}
	switch {
	case afterBreak > 0:
		return afterBreak
	case end == len(text) || last == 0:
		return end
	}
	return last
}
