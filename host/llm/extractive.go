package llm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
)

// Extractive is the offline model: no network, no vocabulary, the same answer
// to the same prompt. It makes nothing up, because it only selects: summaries
// are the sentences that the others support most, answers the passages of the
// prompt that come closest to the question. It says so in every answer.
type Extractive struct{}

// NewExtractive returns the offline model. It is safe for concurrent use.
func NewExtractive() *Extractive { return &Extractive{} }

// Bounds that keep the ranking, which compares every sentence with every
// other, from costing more than a moment.
const (
	maxRanked        = 120
	maxSentenceRunes = 400
	rankRounds       = 20
	damping          = 0.85
)

// Summarize returns sentences of text in their order, chosen by graph ranking
// (TextRank: Mihalcea and Tarau, "TextRank: Bringing Order into Texts", EMNLP
// 2004) with a preference for names, numbers, paths and decisions. Its last
// line names what was left out. The result costs at most maxTokens and never
// more than text; text that fits is returned as it is. Time is linear in the
// length of text.
func (x *Extractive) Summarize(text string, maxTokens int) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd"))
	if maxTokens <= 0 || text == "" {
		return ""
	}
	if tokens.Estimate(text) <= maxTokens {
		return text
	}
	// A long text is summarised a part at a time, so that each part is heard.
	parts := chunks(sentences(text), maxRanked)
	room := maxTokens - expandRoom(maxTokens)
	var chosen, left []sentence
	for i, part := range parts {
		share := room / (len(parts) - i)
		in, out := choose(part, share)
		for _, s := range in {
			room -= s.cost
		}
		chosen, left = append(chosen, in...), append(left, out...)
	}
	if len(chosen) == 0 {
		return tokens.Cut(text, maxTokens)
	}
	lines := make([]string, 0, len(chosen)+1)
	for _, s := range chosen {
		lines = append(lines, s.shown())
	}
	summary := strings.Join(lines, "\n")
	if more := expandFor(left, maxTokens-tokens.Estimate(summary)-1); more != "" {
		summary += "\n" + more
	}
	return tokens.Cut(summary, maxTokens)
}

// expandRoom is what the last line may cost.
func expandRoom(maxTokens int) int { return min(40, maxTokens/5) }

// sentence is one sentence and what is known of it.
type sentence struct {
	speaker string
	text    string
	terms   map[string]float64
	cost    int
	rank    float64
	index   int
}

func (s sentence) shown() string {
	if s.speaker != "" {
		return s.speaker + ": " + s.text
	}
	return s.text
}

func chunks(all []sentence, size int) [][]sentence {
	var parts [][]sentence
	for len(all) > 0 {
		n := min(size, len(all))
		parts = append(parts, all[:n])
		all = all[n:]
	}
	return parts
}

// choose ranks one part and returns the best sentences that cost at most room,
// and the others, both in the order of the text.
func choose(part []sentence, room int) (in, out []sentence) {
	rank(part)
	byRank := slices.Clone(part)
	slices.SortStableFunc(byRank, func(a, b sentence) int { return cmp.Compare(b.rank, a.rank) })
	picked := map[int]bool{}
	said := map[string]bool{}
	for _, s := range byRank {
		if s.cost <= room && !said[s.text] {
			room -= s.cost
			picked[s.index], said[s.text] = true, true
		}
	}
	for _, s := range part {
		if picked[s.index] {
			in = append(in, s)
		} else {
			out = append(out, s)
		}
	}
	return in, out
}

// rank gives each sentence the weight that the others lend it, by what they
// have in common.
func rank(part []sentence) {
	n := len(part)
	weights := make([][]float64, n)
	sums := make([]float64, n)
	for i := range part {
		weights[i] = make([]float64, n)
	}
	for i := range part {
		for j := i + 1; j < n; j++ {
			w := overlap(part[i], part[j])
			weights[i][j], weights[j][i] = w, w
			sums[i] += w
			sums[j] += w
		}
	}
	score := make([]float64, n)
	for i := range score {
		score[i] = 1
	}
	next := make([]float64, n)
	for range rankRounds {
		for i := range part {
			heard := 0.0
			for j := range part {
				if weights[j][i] > 0 {
					heard += weights[j][i] / sums[j] * score[j]
				}
			}
			next[i] = 1 - damping + damping*heard
		}
		score, next = next, score
	}
	for i := range part {
		part[i].rank = score[i] * substance(part[i].text) / math.Sqrt(float64(max(part[i].cost, 8)))
	}
}

// overlap is the measure of TextRank: common terms over the logarithms of both
// lengths.
func overlap(a, b sentence) float64 {
	if len(a.terms) > len(b.terms) {
		a, b = b, a
	}
	common := 0.0
	for term := range a.terms {
		if _, ok := b.terms[term]; ok {
			common++
		}
	}
	if common == 0 {
		return 0
	}
	return common / (math.Log(float64(len(a.terms))+1) + math.Log(float64(len(b.terms))+1))
}

// decisive are words at the beginning of what people decide, promise or need.
var decisive = []string{"decid", "agree", "must", "deadline", "will ", "never", "always", "remember", "because", "approved", "cancel", "moved to",
	"beschlossen", "entschied", "muss", "zusage", "frist", "決定"}

// substance prefers what a reader cannot guess: numbers, names, paths,
// decisions.
func substance(text string) float64 {
	weight := 1.0
	if strings.ContainsFunc(text, unicode.IsDigit) {
		weight += 0.4
	}
	if strings.ContainsAny(text, "/\\@`€$%") {
		weight += 0.3
	}
	capitals := 0
	for i, word := range strings.Fields(text) {
		if r, _ := utf8.DecodeRuneInString(word); i > 0 && unicode.IsUpper(r) {
			capitals++
		}
	}
	weight += 0.1 * float64(min(capitals, 4))
	lower := strings.ToLower(text)
	for _, d := range decisive {
		if strings.Contains(lower, d) {
			weight += 0.4
			break
		}
	}
	if strings.HasSuffix(text, "?") {
		weight *= 0.7
	}
	return weight
}

// expandFor names the terms that are frequent in what was left out.
func expandFor(left []sentence, room int) string {
	const prefix = "Expand for: "
	counts := map[string]int{}
	for _, s := range left {
		for term := range s.terms {
			counts[term]++
		}
	}
	terms := make([]string, 0, len(counts))
	for term := range counts {
		if utf8.RuneCountInString(term) > 3 {
			terms = append(terms, term)
		}
	}
	slices.SortFunc(terms, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	line := ""
	for _, term := range terms[:min(len(terms), 8)] {
		longer := prefix + term
		if line != "" {
			longer = line + ", " + term
		}
		if tokens.Estimate(longer) > room {
			break
		}
		line = longer
	}
	return line
}

// sentences divides text at the ends of sentences and of lines. A line "role:
// words" gives its sentences their speaker.
func sentences(text string) []sentence {
	var all []sentence
	speaker := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, role := range []string{"user", "assistant", "tool", "system"} {
			if rest, ok := strings.CutPrefix(line, role+": "); ok {
				speaker, line = role, rest
				break
			}
		}
		for _, s := range splitSentences(line) {
			made := newSentence(s)
			if made.text == "" {
				continue
			}
			made.speaker, made.index = speaker, len(all)
			made.cost = tokens.Estimate(made.shown()) + 1
			all = append(all, made)
		}
	}
	return all
}

func newSentence(text string) sentence {
	text = strings.TrimSpace(text)
	s := sentence{text: text, terms: map[string]float64{}, cost: tokens.Estimate(text) + 1}
	for _, term := range terms(text) {
		s.terms[term]++
	}
	return s
}

// splitSentences ends a sentence at . ! ? before white space, at the full stops
// of Chinese and Japanese, and where one grows beyond all measure.
func splitSentences(line string) []string {
	var all []string
	start, runes := 0, 0
	cut := func(end int) {
		if part := strings.TrimSpace(line[start:end]); part != "" {
			all = append(all, part)
		}
		start, runes = end, 0
	}
	for i, r := range line {
		runes++
		end := i + utf8.RuneLen(r)
		switch {
		case r == '。' || r == '！' || r == '？':
			cut(end)
		case (r == '.' || r == '!' || r == '?') && endsHere(line, i, end):
			cut(end)
		case runes >= maxSentenceRunes:
			cut(end)
		}
	}
	cut(len(line))
	return all
}

// endsHere tells the end of a sentence from an abbreviation or a numbered
// point.
func endsHere(line string, at, end int) bool {
	if end < len(line) && line[end] != ' ' && line[end] != '\t' {
		return false
	}
	word := line[strings.LastIndexAny(line[:at], " \t(")+1 : at]
	return line[at] != '.' || utf8.RuneCountInString(word) > 2
}

// stop holds words that say nothing of what a sentence is about.
var stop = map[string]bool{}

func init() {
	for _, word := range strings.Fields(`the and for are was were that this with from have has had you your our not but all can could would should will
		what when where which who how why there their they them its his her she him been being into about than then just also any some more most very did does
		please tell give show der die das und ist ein eine den dem des mit von für auf nicht ich wir sie was wann wie wo im am zu`) {
		stop[word] = true
	}
}

// terms are the words of text, folded and stripped of their commonest endings;
// in scripts without spaces, pairs of letters.
func terms(text string) []string {
	var all []string
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if strings.ContainsFunc(word, isUnspaced) {
			runes := []rune(word)
			for i := 0; i+1 < len(runes); i++ {
				all = append(all, string(runes[i:i+2]))
			}
			continue
		}
		if stop[word] || utf8.RuneCountInString(word) < 2 {
			continue
		}
		all = append(all, stem(word))
	}
	return all
}

func isUnspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

func stem(word string) string {
	for _, ending := range []string{"ings", "ing", "edly", "ies", "ed", "es", "s"} {
		if base, ok := strings.CutSuffix(word, ending); ok && utf8.RuneCountInString(base) >= 4 {
			return base
		}
	}
	return word
}

// offlineNotice opens every answer.
const offlineNotice = "I am the offline model: I look things up in this conversation's context and do not reason."

const maxPassages = 5

// Complete implements Model.
func (x *Extractive) Complete(ctx context.Context, r Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, err
	}
	context, question := passages(r)
	var b strings.Builder
	b.WriteString(offlineNotice)
	best := relevant(context, question)
	if len(best) == 0 {
		b.WriteString(" Nothing in it comes close to your question.")
	} else {
		b.WriteString(" These passages come closest to your question:\n")
	}
	for _, p := range best {
		fmt.Fprintf(&b, "\n- %s (%s)", p.text, p.from)
	}
	text, truncated := b.String(), false
	if limit := r.MaxOutputTokens; limit > 0 && tokens.Estimate(text) > limit {
		text, truncated = tokens.Cut(text, limit), true
	}
	if text == "" {
		return Response{}, ErrEmpty
	}
	input := tokens.Estimate(r.System)
	for _, m := range r.Messages {
		input += tokens.Estimate(m.Text)
	}
	return Response{Text: text, InputTokens: input, OutputTokens: tokens.Estimate(text), Truncated: truncated, Model: "offline"}, nil
}

// passage is a sentence and where it stands.
type passage struct {
	sentence
	from string
}

// Lines that structure a prompt and say nothing.
const (
	openMark    = "<<<EXTCONTENT_"
	closeMark   = "<<</EXTCONTENT_"
	labelStart  = "[External content from "
	refreshMark = "[Context refresh — "
	summaryMark = "[Summary "
	openingLine = "[The conversation began earlier.]"
)

// passages takes a prompt apart into what can be quoted and the question,
// which is the last paragraph of the user that stands in no frame.
func passages(r Request) (all []passage, question string) {
	lastUser := -1
	for i, m := range r.Messages {
		if m.Role == RoleUser {
			lastUser = i
		}
	}
	for i, m := range r.Messages {
		external := ""
		from := "earlier in this conversation, " + string(m.Role)
		text := m.Text
		if i == lastUser {
			text, question = splitQuestion(m.Text)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, openMark), line == openingLine:
				continue
			case strings.HasPrefix(line, closeMark):
				external = ""
				continue
			case strings.HasPrefix(line, labelStart):
				external, _, _ = strings.Cut(strings.TrimPrefix(line, labelStart), " ")
				continue
			case strings.HasPrefix(line, refreshMark), strings.HasPrefix(line, "Expand for:"), strings.HasPrefix(line, "[An earlier context refresh"):
				continue
			case strings.HasPrefix(line, summaryMark):
				from = "a summary of earlier messages"
				continue
			case line == "":
				if external == "" {
					from = "earlier in this conversation, " + string(m.Role)
				}
				continue
			}
			place := from
			if external != "" {
				place = external
			}
			for _, s := range splitSentences(line) {
				made := newSentence(strings.TrimLeft(s, "-*• "))
				if len(made.terms) > 0 {
					made.index = len(all)
					all = append(all, passage{made, place})
				}
			}
		}
	}
	return all, question
}

// splitQuestion takes what follows the last frame as the question.
func splitQuestion(text string) (context, question string) {
	if i := strings.LastIndex(text, closeMark); i >= 0 {
		if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
			context, text = text[:i+end], text[i+end:]
		} else {
			return text, ""
		}
	}
	// Summaries and earlier messages of the user are merged in front.
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		return context + text[:i], strings.TrimSpace(text[i:])
	}
	return context, strings.TrimSpace(text)
}

// relevant returns the passages closest to the question, the best first, by
// BM25 over the prompt.
func relevant(all []passage, question string) []passage {
	asked := map[string]bool{}
	for _, term := range terms(question) {
		asked[term] = true
	}
	if len(asked) == 0 {
		return nil
	}
	frequency := map[string]int{}
	length := 0.0
	for _, p := range all {
		length += float64(len(p.terms))
		for term := range p.terms {
			frequency[term]++
		}
	}
	average := length / math.Max(float64(len(all)), 1)
	var scored []passage
	for _, p := range all {
		for term := range p.terms {
			if asked[term] {
				const k, b = 1.2, 0.75
				n := float64(frequency[term])
				idf := math.Log(1 + (float64(len(all))-n+0.5)/(n+0.5))
				tf := p.terms[term]
				p.rank += idf * tf * (k + 1) / (tf + k*(1-b+b*float64(len(p.terms))/average))
			}
		}
		if p.rank > 0 {
			scored = append(scored, p)
		}
	}
	// Of two equally close passages the later one is likelier to hold.
	slices.SortFunc(scored, func(a, b passage) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.index, a.index)) })
	var best []passage
	said := map[string]bool{}
	for _, p := range scored {
		if len(best) == maxPassages {
			break
		}
		if !said[p.text] {
			said[p.text] = true
			best = append(best, p)
		}
	}
	return best
}

var _ Model = (*Extractive)(nil)
