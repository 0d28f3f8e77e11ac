package boundary

import "slices"

// span is a half-open range of bytes.
type span struct{ start, end int }

// family is the word that all markers of external content share.
const family = "extcontent"

// phrases structure prompts of this program and of those whose transcripts it
// imports. They are written as fold shows them, without separators.
var phrases = []string{
	"[contextrefresh", "[anearliercontextrefresh", "[externalcontentfrom", "[theconversationbeganearlier",
	"beginopenclawinternalcontext", "endopenclawinternalcontext", "[intersessionmessage]", "[internaltaskcompletionevent]",
	"[retryafterthepreviousmodelattempt",
	"[inst]", "[/inst]", "<<sys>>", "<</sys>>", "<startofturn>", "<endofturn>", "<bos>", "<eos>",
}

// tight are tokens so short that only their exact form counts: with white
// space inside they are arithmetic.
var tight = []string{"<s>", "</s>"}

// roles open a turn when they begin a line. "User:" and "Tool:" are left out:
// ordinary mail is full of them, and no chat format in use reads them so.
var roles = []string{"system:", "assistant:", "human:"}

// byFirst finds the patterns that can begin with a letter.
var byFirst = func() map[rune][]string {
	m := map[rune][]string{}
	for _, p := range slices.Concat(phrases, tight) {
		m[rune(p[0])] = append(m[rune(p[0])], p)
	}
	return m
}()

// findMarkers returns what has to be replaced, in order and without overlaps.
func findMarkers(text string) []span {
	view := fold(text)
	var spans []span
	for i := range view {
		from, to, ok := markerAt(view, i)
		if !ok {
			continue
		}
		s := span{view[from].start, view[to-1].end}
		if n := len(spans); n > 0 && s.start <= spans[n-1].end {
			spans[n-1].start = min(spans[n-1].start, s.start)
			spans[n-1].end = max(spans[n-1].end, s.end)
			continue
		}
		spans = append(spans, s)
	}
	return spans
}

// markerAt looks for a marker whose word begins at i.
func markerAt(view []folded, i int) (from, to int, ok bool) {
	if end, ok := familyAt(view, i); ok {
		return wholeMarker(view, i, end)
	}
	if view[i].opens {
		for _, role := range roles {
			if hasPrefix(view[i:], role) {
				return i, i + len(role), true
			}
		}
	}
	for _, p := range byFirst[view[i].r] {
		if hasPrefix(view[i:], p) && (!slices.Contains(tight, p) || joined(view[i:i+len(p)])) {
			return i, i + len(p), true
		}
	}
	if end := templateToken(view, i); end > 0 {
		return i, end, true
	}
	return 0, 0, false
}

func hasPrefix(view []folded, pattern string) bool {
	if len(view) < len(pattern) {
		return false
	}
	for i := range len(pattern) {
		if view[i].r != rune(pattern[i]) {
			return false
		}
	}
	return true
}

// joined reports whether no separators stand inside.
func joined(view []folded) bool {
	for _, f := range view[1:] {
		if f.apart {
			return false
		}
	}
	return true
}

// familyAt reports whether the family's word begins at i. Inside a longer word,
// as in textContent or "text content", it is one only if an id follows.
func familyAt(view []folded, i int) (end int, ok bool) {
	if view[i].r != 'e' || !hasPrefix(view[i:], family) {
		return 0, false
	}
	end = i + len(family)
	if i > 0 && !view[i].apart && isAlphanumeric(view[i-1].r) {
		return end, idLength(view[end:]) >= 8
	}
	return end, true
}

// wholeMarker takes the brackets, the slash and the id in.
func wholeMarker(view []folded, word, end int) (from, to int, ok bool) {
	from, to = word, end
	for from > 0 && word-from < 8 && (view[from-1].r == '<' || view[from-1].r == '/' || view[from-1].r == '\\') {
		from--
	}
	to += min(idLength(view[to:]), 64)
	for n := 0; to < len(view) && n < 8 && view[to].r == '>'; n++ {
		to++
	}
	return from, to, true
}

// idLength counts hexadecimal digits; a zero is folded to the letter o. An id
// follows its word at once, if need be after separators, and has none inside.
func idLength(view []folded) int {
	n := 0
	for n < len(view) && n < 64 && (n == 0 || !view[n].apart) && isHex(view[n].r) {
		n++
	}
	return n
}

func isHex(r rune) bool {
	return r >= '1' && r <= '9' || r >= 'a' && r <= 'f' || r == 'o'
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '1' && r <= '9'
}

// maxTokenLetters bounds the word between the bars of a template token.
const maxTokenLetters = 40

// templateToken returns the end of a token like <|im_start|> that begins at i,
// or 0.
func templateToken(view []folded, i int) int {
	if view[i].r != '<' || i+1 >= len(view) || view[i+1].r != '|' {
		return 0
	}
	j := i + 2
	for j < len(view) && j < i+2+maxTokenLetters && isAlphanumeric(view[j].r) {
		j++
	}
	if j == i+2 || j+1 >= len(view) || view[j].r != '|' || view[j+1].r != '>' {
		return 0
	}
	return j + 2
}
