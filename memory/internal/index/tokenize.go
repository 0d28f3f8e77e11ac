package index

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

const (
	// MaxTerm is the most bytes of a term; a longer word is found by its
	// first MaxTerm bytes.
	MaxTerm = 64
	// MaxLength is how many terms of one text are indexed. What a longer text
	// says after them is not found.
	MaxLength = 1<<16 - 1
)

// maxStems bounds the memory of a Tokenizer: words whose stem it remembers.
const maxStems = 1 << 15

// spaceless are the scripts that write words without spaces between them:
// their terms are pairs of neighbouring characters.
var spaceless = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar}

// accented are the scripts in which a word with its marks taken away is still
// the same word to most who search for it.
var accented = []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic}

// Tokenizer turns texts into terms: words of letters and digits in lower case,
// without diacritics, English words by their stem. The zero value is ready. It
// is not safe for concurrent use, for it remembers stems.
type Tokenizer struct {
	stems map[string]string
}

// Terms returns the terms of text in order, at most MaxLength. It takes time
// linear in the length of text.
func (t *Tokenizer) Terms(text string) []string {
	terms := make([]string, 0, min(len(text)/6+1, MaxLength))
	for at := 0; at < len(text) && len(terms) < MaxLength; {
		r, size := decodeRune(text[at:])
		switch {
		case unicode.In(r, spaceless...) && unicode.IsLetter(r):
			end := at + size
			at, terms = t.pairs(text, at, end, terms)
		case isWord(r):
			end, ascii := at, true
			for end < len(text) {
				r, size := decodeRune(text[end:])
				if !isWord(r) && !unicode.IsMark(r) || r >= utf8.RuneSelf && unicode.IsLetter(r) && unicode.In(r, spaceless...) {
					break
				}
				ascii = ascii && r < utf8.RuneSelf
				end += size
			}
			if term := t.term(text[at:end], ascii); term != "" {
				terms = append(terms, term)
			}
			at = end
		default:
			at += size
		}
	}
	return terms
}

func decodeRune(text string) (rune, int) {
	if text[0] < utf8.RuneSelf {
		return rune(text[0]), 1
	}
	return utf8.DecodeRuneInString(text)
}

func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r)
}

// pairs appends the pairs of the run of spaceless characters that begins with
// text[at:end], or the one character that the run is, and returns its end.
func (t *Tokenizer) pairs(text string, at, end int, terms []string) (int, []string) {
	alone := true
	for end < len(text) {
		r, size := decodeRune(text[end:])
		if r < utf8.RuneSelf || !unicode.In(r, spaceless...) {
			break
		}
		_, first := decodeRune(text[at:])
		if len(terms) < MaxLength {
			terms = append(terms, cut(norm.NFKC.String(text[at:end+size]), MaxTerm))
		}
		alone = false
		at += first
		end += size
	}
	if alone {
		terms = append(terms, cut(norm.NFKC.String(text[at:end]), MaxTerm))
	}
	return end, terms
}

// term returns the term that a word is found by.
func (t *Tokenizer) term(word string, ascii bool) string {
	// Nobody searches for what comes after; a word of a megabyte is not
	// folded, nor remembered, whole.
	word = cut(word, 4*MaxTerm)
	if known, ok := t.stems[word]; ok {
		return known
	}
	term := ""
	if ascii {
		term = strings.ToLower(word)
	} else {
		term = fold(word)
	}
	term = cut(term, MaxTerm)
	if isEnglish(term) {
		term = english.Stem(term, true)
	}
	if t.stems == nil || len(t.stems) >= maxStems {
		t.stems = make(map[string]string)
	}
	// A clone, so that what is remembered does not hold the whole text.
	t.stems[strings.Clone(word)] = term
	return term
}

// fold takes case, compatibility forms and the marks of accented scripts away.
func fold(word string) string {
	var b strings.Builder
	bare := false
	for _, r := range norm.NFKD.String(word) {
		if unicode.IsMark(r) {
			if bare {
				continue
			}
		} else {
			bare = unicode.In(r, accented...)
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return norm.NFC.String(b.String())
}

func isEnglish(term string) bool {
	for i := range len(term) {
		if term[i] < 'a' || term[i] > 'z' {
			return false
		}
	}
	return len(term) > 2
}

// cut returns at most n bytes of text, whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
