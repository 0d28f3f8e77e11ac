package llm

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
)

// Extractive is the offline model: no network, no vocabulary, the same answer
// to the same prompt. It makes nothing up, because it only selects: summaries
// are the sentences that the others support most, answers the passages of the
// prompt that come closest to the question. It says so in every answer. It sees no
// pictures, calls no tools and takes no notice of how it is asked, MaxOutputTokens
// aside. It is safe for concurrent use.
type Extractive struct{}

var _ Streamer = (*Extractive)(nil)

// NewExtractive returns the offline model.
func NewExtractive() *Extractive { return &Extractive{} }

const (
	// maxRanked bounds the sentences that are compared with one another, and
	// so makes the whole linear.
	maxRanked  = 160
	rankRounds = 20
	// minWeighty is the cost below which a sentence gains nothing by being
	// shorter.
	minWeighty = 16
	damping    = 0.85
	// settled is a change of the ranks that makes no further round worthwhile.
	settled = 1e-3
	// maxExpandTerms bounds the last line of a summary, as maxExpandTokens
	// does.
	maxExpandTerms  = 8
	maxExpandTokens = 40
	// gapMark stands where sentences between two of one line were left out.
	gapMark = " … "
)

// Summarize returns sentences of text in their order. Text is a transcript, a
// line "role: words" where a message begins, or framed external text, of which
// the frames are taken off and the sources kept as speakers; the caller frames
// the result again.
//
// Sentences are chosen by graph ranking (LexRank: Erkan and Radev, "LexRank:
// Graph-based Lexical Centrality as Salience in Text Summarization", JAIR 22,
// 2004) with a preference for names, numbers, paths and decisions, and against
// what is said already. The last line, "Expand for: …", names what was left
// out. The result costs at most maxTokens and never more than text; a plain
// text that fits is returned as it is. The time is linear in the length of text,
// about 20 ms for 100 KB.
func (x *Extractive) Summarize(text string, maxTokens int) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd"))
	size := tokens.Estimate(text)
	limit, fits := min(size, maxTokens), size <= maxTokens
	if limit <= 0 {
		return ""
	}
	if fits && !strings.Contains(text, openMark) && !strings.Contains(text, closeMark) &&
		!strings.Contains(text, labelStart) && !strings.Contains(text, expandStart) {
		return text
	}
	all, terms := sentences(text)
	if len(all) == 0 {
		return ""
	}
	room := limit
	if !fits {
		room -= min(maxExpandTokens, limit/5)
	}
	choose(all, terms, room)
	summary := transcript(all)
	if summary == "" {
		// Not one sentence fits: the beginning of the best of them.
		best := slices.MaxFunc(all, func(a, b *sentence) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(b.index, a.index)) })
		return strings.TrimSpace(tokens.Cut(best.prefix()+best.text, limit))
	}
	if more := expandFor(all, terms, limit-tokens.Estimate(summary)-1); more != "" {
		summary += "\n" + more
	}
	return tokens.Cut(summary, limit)
}

// sentence is one sentence of a transcript.
type sentence struct {
	speaker string // "" where the text names none
	text    string
	index   int // in the text
	line    int // its line, counting those that are kept
	message int // its message or frame
	terms   []int32
	norm    float64 // of the vector of its terms' weights
	cost    int     // alone in a summary, at most
	score   int64   // what it is worth, fixed-point so that equal is equal on every machine
	chosen  bool
}

func (s *sentence) prefix() string {
	if s.speaker == "" {
		return ""
	}
	return s.speaker + ": "
}

// sentences takes a text apart. What has no terms, such as a rule or a closing
// brace, is nothing to choose.
func sentences(text string) ([]*sentence, *vocabulary) {
	terms := &vocabulary{number: map[string]int32{}}
	var all []*sentence
	frames := newFrames(text)
	speaker, spoken, message, lineNumber := "", "", 0, 0
	for line := range strings.Lines(text) {
		source, keep := frames.next(line)
		if !keep {
			continue
		}
		line = strings.TrimSpace(line)
		from := source
		if source == "" {
			// Who speaks is said by the host outside of frames, and by nobody
			// in them.
			role, rest := cutSpeaker(line)
			if role != "" {
				speaker, line = role, rest
				message++
			}
			from = speaker
			if isBookkeeping(line) {
				continue
			}
		}
		if from != spoken {
			spoken = from
			message++
		}
		lineNumber++
		for _, part := range splitSentences(line) {
			s := &sentence{speaker: from, text: part, index: len(all), line: lineNumber, message: message, terms: terms.add(part)}
			if len(s.terms) == 0 {
				continue
			}
			s.cost = tokens.Estimate(s.prefix()) + tokens.Estimate(part) + 1
			all = append(all, s)
		}
	}
	terms.weigh(len(all))
	for _, s := range all {
		for _, t := range s.terms {
			s.norm += float64(terms.weight[t] * terms.weight[t])
		}
		s.norm = math.Sqrt(s.norm)
	}
	return all, terms
}

// choose marks sentences that cost at most room together.
//
// A long text goes through heats: each part of it is ranked by itself and sends
// on its better half, until what is left is little more than there is room for.
// So every part of a text is heard, and the work of all heats together is a
// small multiple of the first one's.
func choose(all []*sentence, terms *vocabulary, room int) {
	ranking := ranking{terms: terms}
	candidates := all
	for {
		cost := 0
		for _, s := range candidates {
			cost += s.cost
		}
		var next []*sentence
		for part := range slices.Chunk(candidates, maxRanked) {
			ranking.rank(part)
			next = append(next, betterHalf(part)...)
		}
		if len(candidates) <= maxRanked || cost <= 2*room {
			break
		}
		candidates = next
	}
	list := shortlist{terms: terms, said: make([]bool, len(terms.written))}
	for _, s := range candidates {
		list.picks = append(list.picks, pick{sentence: s, gain: s.score})
	}
	// Neighbours share a line and a speaker, so that a summary costs less than
	// its sentences one by one; what that saves is given out once more.
	list.take(room)
	list.take(room - tokens.Estimate(transcript(all)))
}

// betterHalf returns the best sentences of a part, about half of its cost and
// never more than three quarters of their number, in order.
func betterHalf(part []*sentence) []*sentence {
	best := slices.Clone(part)
	slices.SortStableFunc(best, func(a, b *sentence) int { return cmp.Compare(b.score, a.score) })
	left := 0
	for _, s := range part {
		left += s.cost
	}
	left /= 2
	n := 0
	for n < (3*len(best)+3)/4 && left > 0 {
		left -= best[n].cost
		n++
	}
	best = best[:n]
	slices.SortFunc(best, func(a, b *sentence) int { return cmp.Compare(a.index, b.index) })
	return best
}

// ranking scores sentences; it keeps its buffers from part to part.
type ranking struct {
	terms                 *vocabulary
	likeness              []float64 // of each sentence to each other one
	degree, weight, share []float64
}

// rank scores up to maxRanked sentences by the weight that they lend one
// another, by what they are made of and by what they cost.
func (r *ranking) rank(part []*sentence) {
	n := len(part)
	r.likeness = slices.Grow(r.likeness[:0], n*n)[:n*n]
	r.degree = slices.Grow(r.degree[:0], n)[:n]
	r.weight = slices.Grow(r.weight[:0], n)[:n]
	r.share = slices.Grow(r.share[:0], n)[:n]
	clear(r.degree)
	for i, a := range part {
		r.likeness[i*n+i] = 0
		for j := i + 1; j < n; j++ {
			w := r.cosine(a, part[j])
			r.likeness[i*n+j], r.likeness[j*n+i] = w, w
			r.degree[i] += w
			r.degree[j] += w
		}
		r.weight[i] = 1
	}
	for range rankRounds {
		moved := 0.0
		for i := range part {
			r.share[i] = 0
			if r.degree[i] > 0 {
				r.share[i] = r.weight[i] / r.degree[i]
			}
		}
		for i := range part {
			heard := 0.0
			if r.degree[i] > 0 {
				for j, w := range r.likeness[i*n : (i+1)*n] {
					heard += float64(w * r.share[j]) // rounded: never fused, the same on every machine
				}
			}
			next := 1 - damping + float64(damping*heard)
			moved = max(moved, math.Abs(next-r.weight[i]))
			r.weight[i] = next
		}
		if moved < settled {
			break
		}
	}
	for i, s := range part {
		s.score = int64(1e6 * r.weight[i] * substance(s) / math.Sqrt(float64(max(s.cost, minWeighty))))
	}
}

// cosine compares two sentences as vectors of their terms' weights.
func (r *ranking) cosine(a, b *sentence) float64 {
	sum := 0.0
	for i, j := 0, 0; i < len(a.terms) && j < len(b.terms); {
		switch c := cmp.Compare(a.terms[i], b.terms[j]); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			w := r.terms.weight[a.terms[i]]
			sum += float64(w * w)
			i++
			j++
		}
	}
	if sum == 0 {
		return 0
	}
	return sum / (a.norm * b.norm)
}

// decisive begin the words of what people decide, promise or need.
var decisive = []string{
	"decid", "agree", "must ", "deadline", " will ", "never", "always", "remember", "because", "approv", "cancel", "moved to", "instead",
	"beschl", "entsch", "muss ", "zusage", "frist", "stattdessen", "決定", "決め", "决定",
}

// substance prefers what a reader cannot guess, that is numbers, names, paths
// and decisions, and the user's own words; it puts last what only leads to
// something else, that is questions, headings, rows without their table and
// greetings.
func substance(s *sentence) float64 {
	weight := 1.0
	if strings.ContainsFunc(s.text, unicode.IsDigit) {
		weight += 0.4
	}
	if strings.ContainsAny(s.text, "/\\@`€$%") {
		weight += 0.2
	}
	capitals, first := 0, true
	for word := range strings.FieldsSeq(s.text) {
		if r, _ := utf8.DecodeRuneInString(word); !first && unicode.IsUpper(r) {
			capitals++
		}
		first = false
	}
	weight += 0.1 * float64(min(capitals, 4))
	lower := strings.ToLower(s.text)
	decides := 0
	for _, d := range decisive {
		if strings.Contains(lower, d) {
			decides++
		}
	}
	weight += 0.4 * float64(min(decides, 2))
	if s.speaker == "user" {
		weight *= 1.2
	}
	if len(s.terms) < 3 {
		weight *= 0.6
	}
	switch end := strings.TrimRight(s.text, "*_ "); {
	case isQuestion(end):
		weight *= 0.7
	case strings.HasSuffix(end, ":"), strings.HasSuffix(end, "："), strings.HasPrefix(end, "#"):
		weight *= 0.4
	case strings.HasPrefix(end, "|"):
		weight *= 0.6
	}
	return weight
}

func isQuestion(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, `"')]*_”’»」 `))
	return r == '?' || r == '？' || r == '؟'
}

// pick is a sentence that may be chosen. Its gain may be out of date, and then
// too high: what others say first makes a sentence worth less, never more.
type pick struct {
	*sentence
	gain   int64
	weighs int // how often its gain was brought up to date
}

// maxWeighs bounds how often one gain is brought up to date.
const maxWeighs = 8

// shortlist is a heap of picks, the most worth first.
type shortlist struct {
	picks []pick
	terms *vocabulary
	said  []bool // by term
}

func (l *shortlist) Len() int      { return len(l.picks) }
func (l *shortlist) Swap(i, j int) { l.picks[i], l.picks[j] = l.picks[j], l.picks[i] }
func (l *shortlist) Push(p any)    { l.picks = append(l.picks, p.(pick)) }

func (l *shortlist) Less(i, j int) bool {
	a, b := l.picks[i], l.picks[j]
	return a.gain > b.gain || a.gain == b.gain && a.index < b.index
}

func (l *shortlist) Pop() any {
	last := len(l.picks) - 1
	p := l.picks[last]
	l.picks = l.picks[:last]
	return p
}

// take chooses what is worth most until room is used up, and keeps what did not
// fit.
func (l *shortlist) take(room int) {
	heap.Init(l)
	var passed []pick
	for len(l.picks) > 0 && room > 0 {
		if top := &l.picks[0]; top.weighs < maxWeighs {
			if gain := l.gain(top.sentence); gain < top.gain {
				top.gain = gain
				top.weighs++
				heap.Fix(l, 0)
				continue
			}
		}
		p := heap.Pop(l).(pick)
		switch {
		case p.gain <= 0:
			// All of it is said.
		case p.cost > room:
			passed = append(passed, p)
		default:
			room -= p.cost
			p.chosen = true
			for _, t := range p.terms {
				l.said[t] = true
			}
		}
	}
	l.picks = append(l.picks, passed...)
}

// gain is a sentence's score as far as it says something new.
func (l *shortlist) gain(s *sentence) int64 {
	all, fresh := 0.0, 0.0
	for _, t := range s.terms {
		w := l.terms.weight[t]
		all += w
		if !l.said[t] {
			fresh += w
		}
	}
	if fresh == 0 {
		return 0
	}
	return int64(float64(s.score) * (0.25 + 0.75*fresh/all))
}

// transcript writes the chosen sentences in order: those of one line on one
// line, a speaker where one begins, a mark where something between is left out.
func transcript(all []*sentence) string {
	var b strings.Builder
	var previous *sentence
	for _, s := range all {
		if !s.chosen {
			continue
		}
		switch {
		case previous != nil && previous.line == s.line && previous.index+1 != s.index:
			b.WriteString(gapMark)
		case previous != nil && previous.line == s.line:
			if r, _ := utf8.DecodeLastRuneInString(previous.text); r < 0x3000 {
				b.WriteByte(' ')
			}
		default:
			if previous != nil {
				b.WriteByte('\n')
			}
			if previous == nil || previous.message != s.message {
				b.WriteString(s.prefix())
			}
		}
		b.WriteString(s.text)
		previous = s
	}
	return b.String()
}

// expandFor names terms that are frequent in what was left out and not in what
// was chosen, names before words.
func expandFor(all []*sentence, terms *vocabulary, room int) string {
	said := make([]bool, len(terms.written))
	for _, s := range all {
		if s.chosen {
			for _, t := range s.terms {
				said[t] = true
			}
		}
	}
	var missing []int32
	worth := make([]int32, len(terms.written))
	for t, written := range terms.written {
		first, _ := utf8.DecodeRuneInString(written)
		letters := utf8.RuneCountInString(written)
		if said[t] || letters < 4 && !isUnspaced(first) || unicode.IsDigit(first) {
			continue
		}
		worth[t] = terms.count[t]
		if terms.name[t] {
			worth[t] *= 3
		}
		missing = append(missing, int32(t))
	}
	slices.SortFunc(missing, func(a, b int32) int {
		return cmp.Or(cmp.Compare(worth[b], worth[a]), cmp.Compare(terms.written[a], terms.written[b]))
	})
	line, separator := expandStart, " "
	for _, t := range missing[:min(len(missing), maxExpandTerms)] {
		longer := line + separator + terms.written[t]
		if tokens.Estimate(longer) > room {
			break
		}
		line, separator = longer, ", "
	}
	if line == expandStart {
		return ""
	}
	return line
}

// offlineNotice opens every answer.
const offlineNotice = "I am the offline model: I look things up in this conversation's context and do not reason."

const (
	nothingFound = "Nothing in it comes close to the question."
	maxPassages  = 5
	// minCoverage is the least share of the question, by the weight of its
	// terms, that a passage has to meet; minCoverageOfSome is enough where it
	// meets more than one.
	minCoverage       = 0.2
	minCoverageOfSome = 0.1
	// maxNeeded is how many terms make a whole question: nobody is to hear less
	// for having asked at length.
	maxNeeded = 5
	// maxAsked bounds the terms of a question; what follows them is not looked
	// for.
	maxAsked = 64
	// farBehind is the share of the best passage's score that another has to
	// pass; farBehindAlone is enough where it meets terms that no better one
	// does.
	farBehind      = 0.35
	farBehindAlone = 0.12
	// maxPasted is how many words may follow a question and still belong to it;
	// more are something pasted, to look the answer up in.
	maxPasted = 40
)

// Complete implements Model: it answers the last message of the user with the
// passages of the prompt that come closest to it, each with its source, after a
// line that says what kind of answer this is. The system text is no place to
// look things up in. Its only error is that of ctx.
func (x *Extractive) Complete(ctx context.Context, r Request) (Response, error) {
	var p prompt
	last := -1
	for i, m := range r.Messages {
		if m.Role == RoleUser && m.Text != "" {
			last = i
		}
	}
	for i, m := range r.Messages {
		if err := ctx.Err(); err != nil {
			return Response{}, fmt.Errorf("offline model: %w", err)
		}
		if m.Role == RoleAssistant && strings.HasPrefix(m.Text, offlineNotice) {
			// It quotes what is in the prompt already.
			continue
		}
		// Another model may have begun the conversation, one that calls tools.
		for _, v := range m.ToolResults {
			if !v.IsError {
				p.read(Message{Role: m.Role, Text: v.Text}, false)
			}
		}
		p.read(m, i == last)
	}
	if err := ctx.Err(); err != nil {
		return Response{}, fmt.Errorf("offline model: %w", err)
	}
	answer := Response{Text: offlineNotice, InputTokens: r.Tokens(), Model: "offline"}
	found := p.closest()
	if len(found) == 0 {
		answer.Text += "\n\n" + nothingFound
	}
	for i, f := range found {
		line := "\n- " + f.text + " — " + f.from
		if i == 0 {
			line = "\n" + line
		}
		// A passage goes in with its source or not at all.
		if r.MaxOutputTokens > 0 && tokens.Estimate(answer.Text+line) > r.MaxOutputTokens {
			answer.Truncated = true
			break
		}
		answer.Text += line
	}
	return bounded(answer, r.MaxOutputTokens), nil
}

// Stream implements Streamer: it gives out lines, each passage with its source.
func (x *Extractive) Stream(ctx context.Context, r Request, each func(text string)) (Response, error) {
	answer, err := x.Complete(ctx, r)
	if err != nil {
		return Response{}, err
	}
	if err := giveOut(ctx, strings.SplitAfter(answer.Text, "\n"), each); err != nil {
		return Response{}, fmt.Errorf("offline model: %w", err)
	}
	return answer, nil
}

// passage is something that can be quoted, and where it is from.
type passage struct{ text, from string }

// prompt is a prompt taken apart.
type prompt struct {
	passages []passage
	question string
	// refreshed is the time of the newest context refresh; zero if there is
	// none.
	refreshed time.Time
}

// Sources that are not external.
const (
	fromSummary   = "summary"
	fromUser      = "earlier in this conversation (user)"
	fromAssistant = "earlier in this conversation (assistant)"
)

// read adds a message. The one that asks may hold more than the question, for
// neighbours of one role are merged: summaries, a refresh, what was asked before
// and got no answer.
func (p *prompt) read(m Message, asks bool) {
	speaker := fromUser
	if m.Role == RoleAssistant {
		speaker = fromAssistant
	}
	text := strings.ToValidUTF8(m.Text, "\ufffd")
	frames := newFrames(text)
	var spoken []string // the speaker's own paragraphs since the last of others
	var paragraph strings.Builder
	from := speaker
	flush := func() {
		if paragraph.Len() > 0 && from == speaker {
			spoken = append(spoken, paragraph.String())
		} else {
			p.quote(from, paragraph.String())
		}
		paragraph.Reset()
	}
	begin := func(next string) {
		flush()
		p.quote(speaker, spoken...)
		spoken, from = nil, next
	}
	lines := slices.Collect(strings.Lines(text))
	summaryEnd := 0
	for i, line := range lines {
		source, keep := frames.next(line)
		trimmed := strings.TrimSpace(line)
		switch {
		case !keep:
			begin(speaker)
		case source != "":
			if from != source {
				begin(source)
			}
			paragraph.WriteString(line)
		case trimmed == "":
			flush()
			if i >= summaryEnd {
				from = speaker
			}
		case strings.HasPrefix(trimmed, refreshStart):
			begin(speaker)
			stamp := strings.TrimSuffix(strings.TrimPrefix(trimmed, refreshStart), "]")
			if at, err := time.Parse(time.RFC3339, stamp); err == nil {
				p.refreshed = at
			}
		case strings.HasPrefix(trimmed, summaryStart):
			begin(fromSummary)
			summaryEnd = i + summaryLength(lines[i+1:])
		case !isBookkeeping(trimmed):
			paragraph.WriteString(line)
		}
	}
	flush()
	if asks {
		p.question, spoken = question(spoken)
	}
	p.quote(speaker, spoken...)
}

// summaryLength returns how many of the lines after a summary's heading are
// sure to be the summary's, up to the line that ends most of them. One that has
// no such line ends at the first empty one, for what follows may be the user's.
func summaryLength(lines []string) int {
	length := 0
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, summaryStart) || strings.HasPrefix(line, refreshStart) || strings.HasPrefix(line, openMark) {
			break
		}
		if isSummaryEnd(line) {
			length = i + 1
		}
	}
	return length
}

// question finds the question among what the user said last, and returns the
// rest apart: the last paragraph that asks, with what is said after it, or else
// the last paragraph.
func question(spoken []string) (question string, rest []string) {
	if len(spoken) == 0 {
		return "", nil
	}
	asks := len(spoken) - 1
	for i, paragraph := range spoken {
		if slices.ContainsFunc(splitSentences(paragraph), isQuestion) {
			asks = i
		}
	}
	after := strings.Join(spoken[asks+1:], "\n")
	if len(strings.Fields(after)) > maxPasted {
		return spoken[asks], slices.Concat(spoken[:asks], spoken[asks+1:])
	}
	return spoken[asks] + "\n" + after, spoken[:asks]
}

// quote adds paragraphs to what can be quoted: an item of a list with the lines
// indented below it as one passage, other lines by their sentences.
func (p *prompt) quote(from string, paragraphs ...string) {
	item := ""
	add := func() {
		for _, s := range splitSentences(item) {
			p.passages = append(p.passages, passage{s, from})
		}
		item = ""
	}
	for _, paragraph := range paragraphs {
		for line := range strings.Lines(paragraph) {
			text := strings.TrimSpace(line)
			if from == fromSummary {
				_, text = cutSpeaker(text)
			}
			bare, listed := cutBullet(text)
			indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
			switch {
			case listed:
				add()
				item = bare
			case item != "" && indented && tokens.Estimate(item+text) < maxSentence/4:
				item += " " + text
				continue
			default:
				add()
				item = text
				add()
			}
		}
		add()
	}
}

func cutBullet(line string) (rest string, ok bool) {
	mark, rest, ok := strings.Cut(line, " ")
	if ok && (strings.Contains("-*•–·", mark) || strings.Trim(mark, "#") == "") {
		return strings.TrimSpace(rest), true
	}
	return line, false
}

// BM25 with its usual constants.
const (
	saturation = 1.2
	byLength   = 0.75
)

// closest returns the passages closest to the question, the best first. They
// are ranked by BM25 over the prompt, where the terms of a source count for what
// it says: who asks for the calendar means hand://calendar.
func (p *prompt) closest() []passage {
	asked := p.asked()
	if len(asked) == 0 || len(p.passages) == 0 {
		return nil
	}
	type match struct {
		index, size int
		counts      []float64 // by the number of the asked term
		score       float64
	}
	var matches []match
	frequency := make([]float64, len(asked))
	length := 0
	counts := make([]float64, len(asked))
	for i, q := range p.passages {
		size, hits := 0, 0
		clear(counts)
		count := func(term, _ string) {
			if n, ok := asked[term]; ok {
				counts[n]++
				hits++
			}
		}
		eachTerm(q.text, func(term, written string) {
			size++
			count(term, written)
		})
		if hits > 0 || strings.Contains(q.from, "://") {
			eachTerm(q.from, count)
		}
		length += size
		if hits == 0 || size == 0 {
			continue
		}
		for n, c := range counts {
			if c > 0 {
				frequency[n]++
			}
		}
		matches = append(matches, match{index: i, size: size, counts: slices.Clone(counts)})
	}
	total := float64(len(p.passages))
	average := float64(length) / total
	rarity := make([]float64, len(asked))
	for n, f := range frequency {
		rarity[n] = math.Log(1 + (total-f+0.5)/(f+0.5))
		if f == 0 {
			// A word that the prompt never uses may be there by another name.
			rarity[n] /= 2
		}
	}
	everything := 0.0
	heaviest := slices.Sorted(slices.Values(rarity))
	for _, w := range heaviest[max(0, len(heaviest)-maxNeeded):] {
		everything += w
	}
	for i := range matches {
		m := &matches[i]
		met, terms := 0.0, 0
		for n, tf := range m.counts {
			if tf > 0 {
				met += rarity[n]
				terms++
				m.score += rarity[n] * tf * (saturation + 1) / (tf + saturation*(1-byLength+byLength*float64(m.size)/average))
			}
		}
		coverage := met / everything
		if coverage < minCoverageOfSome || terms == 1 && coverage < minCoverage {
			m.score = 0
			continue
		}
		// What meets more of the question is closer than what repeats one word
		// of it; what was said later is likelier to hold; and a question is no
		// answer.
		m.score *= (0.5 + coverage) * (1 + 0.2*float64(m.index)/total)
		if isQuestion(p.passages[m.index].text) {
			m.score *= 0.6
		}
		m.score = math.Round(m.score * 1e6)
	}
	slices.SortFunc(matches, func(a, b match) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.index, a.index)) })
	var best []passage
	var said []map[string]bool
	answered := make([]bool, len(asked))
	for _, m := range matches {
		// A passage far behind the best one is only noise beside it, unless it
		// meets what no other has: one question may ask for two things.
		floor := farBehind
		for n, tf := range m.counts {
			if tf > 0 && !answered[n] {
				floor = farBehindAlone
			}
		}
		if len(best) == maxPassages || m.score <= matches[0].score*farBehindAlone {
			break
		}
		if m.score <= matches[0].score*floor {
			continue
		}
		q := p.passages[m.index]
		set := termSet(q.text)
		if slices.ContainsFunc(said, func(other map[string]bool) bool { return alike(set, other) }) {
			continue
		}
		best, said = append(best, q), append(said, set)
		for n, tf := range m.counts {
			answered[n] = answered[n] || tf > 0
		}
	}
	return best
}

// days are words for a day that is found by the time of the newest refresh.
var days = map[string]int{"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1, "gestern": -1, "heute": 0}

// asked numbers the terms of the question. Where the prompt says when it was
// brought up to date, "today" asks for that date; its day is UTC's, which near
// midnight is the user's neighbouring one.
func (p *prompt) asked() map[string]int {
	asked := map[string]int{}
	add := func(term, _ string) {
		if _, ok := asked[term]; !ok && len(asked) < maxAsked {
			asked[term] = len(asked)
		}
	}
	eachTerm(p.question, func(term, written string) {
		offset, relative := days[strings.ToLower(written)]
		if !relative || p.refreshed.IsZero() {
			add(term, written)
			return
		}
		eachTerm(p.refreshed.AddDate(0, 0, offset).Format("Monday 2 January"), add)
	})
	return asked
}

func termSet(text string) map[string]bool {
	set := map[string]bool{}
	eachTerm(text, func(term, _ string) { set[term] = true })
	return set
}

// alike reports whether four fifths of all terms of both are common.
func alike(a, b map[string]bool) bool {
	common := 0
	for term := range a {
		if b[term] {
			common++
		}
	}
	return 5*common >= 4*(len(a)+len(b)-common)
}
