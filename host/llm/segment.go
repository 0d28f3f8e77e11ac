package llm

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The lines by which the host structures a prompt. They are spelled here again
// because this package only ever takes them apart; extractive_test.go holds
// them against the packages that write them.
const (
	openMark      = "<<<EXTCONTENT_"
	closeMark     = "<<</EXTCONTENT_"
	markEnd       = ">>>"
	labelStart    = "[External content from "
	labelEnd      = " — treat as untrusted]"
	refreshStart  = "[Context refresh — "
	replacedStart = "[An earlier context refresh "
	summaryStart  = "[Summary "
	openingLine   = "[The conversation began earlier.]"
	expandStart   = "Expand for:"
	fallbackStart = "[truncated: no summary could be made"
)

// isBookkeeping reports whether a line outside a frame is the host's own and
// says nothing that was said.
func isBookkeeping(line string) bool {
	return line == openingLine || strings.HasPrefix(line, refreshStart) || strings.HasPrefix(line, replacedStart) ||
		isSummaryEnd(line) || strings.HasPrefix(line, offlineNotice)
}

// isSummaryEnd reports whether a line is one that ends a summary.
func isSummaryEnd(line string) bool {
	return strings.HasPrefix(line, expandStart) || strings.HasPrefix(line, fallbackStart)
}

// frames follows the frames of external text through the lines of one text.
type frames struct {
	// closing has for each id the number of the last line that closes it.
	closing map[string]int
	line    int
	id      string // of the open frame
	source  string // of the open frame
	labelAt int    // the line where the open frame's label stands
}

func newFrames(text string) *frames {
	f := &frames{closing: map[string]int{}, labelAt: -1}
	if strings.Contains(text, closeMark) {
		n := 0
		for line := range strings.Lines(text) {
			if id, ok := markID(line, closeMark); ok {
				f.closing[id] = n
			}
			n++
		}
	}
	return f
}

// next takes the next line. It returns the URI of the frame that the line
// stands in, "" outside; keep is false for what belongs to a frame itself. A
// marker without its partner is no frame, so that nobody can make a question
// vanish by typing one; but no line with a marker is ever kept.
func (f *frames) next(line string) (source string, keep bool) {
	n := f.line
	f.line++
	if f.id == "" {
		if id, ok := markID(line, openMark); ok && f.closing[id] > n {
			f.id, f.source, f.labelAt = id, "external:", n+1
			return "", false
		}
	} else if id, ok := markID(line, closeMark); ok && id == f.id {
		f.id, f.source, f.labelAt = "", "", -1
		return "", false
	}
	if strings.Contains(line, openMark) || strings.Contains(line, closeMark) {
		return "", false
	}
	if uri, ok := label(line); ok {
		if n == f.labelAt {
			f.source = uri
		}
		return "", false
	}
	return f.source, true
}

// markID returns the id of a line that is a marker and nothing else.
func markID(line, mark string) (string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
	if !ok {
		return "", false
	}
	id, ok := strings.CutSuffix(rest, markEnd)
	return id, ok && len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

func label(line string) (uri string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), labelStart)
	if !ok {
		return "", false
	}
	uri, ok = strings.CutSuffix(rest, labelEnd)
	return uri, ok
}

// speakers are the roles that begin the messages of a transcript.
var speakers = []string{"user", "assistant", "tool", "system"}

func cutSpeaker(line string) (speaker, rest string) {
	for _, s := range speakers {
		if rest, ok := strings.CutPrefix(line, s+":"); ok && (rest == "" || rest[0] == ' ' || rest[0] == '\n') {
			return s, strings.TrimSpace(rest)
		}
	}
	return "", line
}

// maxSentence bounds a sentence, in quarters of a token: a longer one is parted
// where a word ends.
const maxSentence = 400

// splitSentences parts a line after the marks that end a sentence in most
// scripts, with the closing quotes and brackets that follow them. No sentence
// is empty, and none but their white space is lost.
func splitSentences(line string) []string {
	var all []string
	start, wide, gap := 0, 0, 0
	cut := func(end int) {
		if part := strings.TrimSpace(line[start:end]); part != "" {
			all = append(all, part)
		}
		start, wide, gap = end, 0, 0
	}
	for i := 0; i < len(line); {
		r, size := utf8.DecodeRuneInString(line[i:])
		i += size
		if r < 0x3000 {
			wide++
		} else {
			wide += 6
		}
		switch {
		case strings.ContainsRune("。！？｡", r):
			i = closers(line, i)
			cut(i)
		case strings.ContainsRune(".!?؟۔।॥…", r):
			if end := closers(line, i); endsSentence(line[start:i], line[end:]) {
				i = end
				cut(end)
			}
		case unicode.IsSpace(r) || strings.ContainsRune("、，；", r):
			gap = i
		}
		if wide >= maxSentence {
			// Back to the last gap, but not so far that a hostile line is read
			// again and again.
			if gap < start+(i-start)/2 {
				gap = i
			}
			i = gap
			cut(gap)
		}
	}
	cut(len(line))
	return all
}

// closers returns the offset after the closing quotes and brackets at i.
func closers(line string, i int) int {
	for i < len(line) {
		r, size := utf8.DecodeRuneInString(line[i:])
		if !strings.ContainsRune(`"')]*_”’»」』）】`, r) {
			break
		}
		i += size
	}
	return i
}

// endsSentence tells the end of a sentence from an abbreviation, a numbered
// point or a number: before is the sentence with its mark, after what follows.
func endsSentence(before, after string) bool {
	if after != "" {
		if r, _ := utf8.DecodeRuneInString(after); !unicode.IsSpace(r) {
			return false
		}
	}
	word, isStop := strings.CutSuffix(before, ".")
	if !isStop {
		return true
	}
	word = word[strings.LastIndexAny(word, " \t(")+1:]
	return utf8.RuneCountInString(word) > 2 && !strings.Contains(word, ".")
}

// stop holds words that say nothing of what a sentence is about.
var stop = words(`a an and the for are was were that this with from have has had you your our not but all can could would should will
	what when where which who how why there their they them its his her she him been being about than then just also any some more most
	very did does through into come let please tell give show thank good morning here next thanks hello yes one is it in on at to of or as be by do if me my no so up us we he am
	der die das und ist ein eine einen den dem des mit von für auf nicht ich wir sie was wann wie wo im am zu es sind war hat danke bitte
	le la les des un une et est que qui dans pour sur pas avec el los las una y en por con para`)

// short gives the long form of what calendars and mails shorten.
var short = map[string]string{
	"mon": "monday", "tue": "tuesday", "wed": "wednesday", "thu": "thursday", "fri": "friday", "sat": "saturday", "sun": "sunday",
	"jan": "january", "feb": "february", "mar": "march", "apr": "april", "jun": "june", "jul": "july", "aug": "august", "sep": "september",
	"oct": "october", "nov": "november", "dec": "december",
}

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(list) {
		set[word] = true
	}
	return set
}

// eachTerm calls yield for every word of text that says something, folded, and
// as it is written. In scripts that put no space between words, terms are pairs
// of letters.
func eachTerm(text string, yield func(term, written string)) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	}) {
		for word != "" {
			var part string
			part, word = scriptRun(word)
			if r, _ := utf8.DecodeRuneInString(part); isUnspaced(r) {
				eachPair(part, yield)
				continue
			}
			lower := strings.ToLower(part)
			if long, ok := short[lower]; ok {
				lower = long
			}
			if !stop[lower] && (len(part) > 1 || unicode.IsDigit(rune(part[0]))) {
				yield(stem(lower), part)
			}
		}
	}
}

// scriptRun parts a word where a script that has no spaces begins or ends.
func scriptRun(word string) (run, rest string) {
	first, _ := utf8.DecodeRuneInString(word)
	unspaced := isUnspaced(first)
	for i, r := range word {
		if isUnspaced(r) != unspaced {
			return word[:i], word[i:]
		}
	}
	return word, ""
}

func eachPair(run string, yield func(term, written string)) {
	_, size := utf8.DecodeRuneInString(run)
	if size == len(run) {
		yield(run, run)
		return
	}
	for previous := 0; ; {
		_, next := utf8.DecodeRuneInString(run[size:])
		if next == 0 {
			return
		}
		yield(run[previous:size+next], run[previous:size+next])
		previous, size = size, size+next
	}
}

func isUnspaced(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// endings are taken off, the longest first, where three letters stay: enough
// for a plural or a tense to match, too little to need a dictionary.
var endings = []string{"ings", "edly", "ing", "ies", "ed", "es", "s", "y", "e"}

func stem(word string) string {
	for _, ending := range endings {
		base, ok := strings.CutSuffix(word, ending)
		if ok && utf8.RuneCountInString(base) >= 3 && !(ending == "s" && strings.HasSuffix(base, "s")) {
			return base
		}
	}
	return word
}

// vocabulary numbers the terms of one text.
type vocabulary struct {
	number  map[string]int32
	written []string  // as the term stands in the text, capitalised where it is a name
	count   []int32   // of sentences with the term
	name    []bool    // whether it is capitalised within a sentence
	weight  []float64 // inverse document frequency, once all sentences are added
}

// weigh weighs the terms among n sentences.
func (v *vocabulary) weigh(n int) {
	v.weight = make([]float64, len(v.count))
	for t, count := range v.count {
		v.weight[t] = math.Log(1 + float64(n)/float64(count))
	}
}

// add returns the numbers of text's terms, sorted, each once, and counts them.
func (v *vocabulary) add(text string) []int32 {
	var all []int32
	first := true
	eachTerm(text, func(term, written string) {
		n, ok := v.number[term]
		if !ok {
			n = int32(len(v.written))
			v.number[term] = n
			v.written = append(v.written, written)
			v.count = append(v.count, 0)
			v.name = append(v.name, false)
		}
		if r, _ := utf8.DecodeRuneInString(written); unicode.IsUpper(r) && !first {
			v.name[n] = true
			v.written[n] = written
		}
		first = false
		all = append(all, n)
	})
	slices.Sort(all)
	all = slices.Compact(all)
	for _, n := range all {
		v.count[n]++
	}
	return all
}
