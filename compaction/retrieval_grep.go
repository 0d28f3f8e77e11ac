package compaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/search"
)

// Order says which hits come first.
type Order string

// The orders.
const (
	// OrderRelevance puts the best first. It is the default for words.
	OrderRelevance Order = "relevance"
	// OrderRecency puts the latest first. It is the default for expressions,
	// and the only order that they have.
	OrderRecency Order = "recency"
	// OrderHybrid lets both count alike.
	OrderHybrid Order = "hybrid"
)

// Bounds of a GrepQuery.
const (
	DefaultHits = 50
	MaxHits     = 200
	// MaxQueryBytes bounds words and expressions.
	MaxQueryBytes = 1000
	// maxInstructions bounds a compiled expression: the time to match is at
	// most its size times the length of the text.
	maxInstructions = 500
	// excerptTokens is the default, maxExcerptTokens the most of one hit.
	excerptTokens    = 120
	maxExcerptTokens = 2000
)

// GrepQuery says what to find. Exactly one of Words and Expression is set.
type GrepQuery struct {
	// Words are looked up in the store's index, stemmed; a hit has at least one
	// of them. In files, a word is found by its beginning.
	Words string
	// Expression is a regular expression of RE2's syntax, case-sensitive
	// unless it says (?i); ^ and $ are the ends of a line.
	Expression string
	// In keeps hits of these kinds; none means messages and summaries. The
	// outline of a file stands in a message.
	In []memory.TextKind
	// Order is OrderRelevance, or OrderRecency for an expression, if empty.
	Order Order
	// Session and Agent, if not zero, keep what belongs to them.
	Session memory.SessionID
	Agent   memory.AgentID
	// From and To bound the time: From ≤ t < To. A zero bound is none. A
	// summary's time is that of the last message it stands for.
	From, To time.Time
	// Limit bounds the hits: 0 means DefaultHits, MaxHits is the most.
	Limit int
	// ExcerptTokens bounds the excerpt of one hit; 0 means 120, 2,000 is the
	// most.
	ExcerptTokens int

	// unless leaves out messages.
	unless func(memory.Message) bool
}

// Hit is one place that was found.
type Hit struct {
	Kind    memory.TextKind  `json:"kind"`
	ID      string           `json:"id"`
	Session memory.SessionID `json:"session_id"`
	// Seq, Role and Source are those of a message.
	Seq    int64         `json:"seq,omitempty"`
	Role   memory.Role   `json:"role,omitempty"`
	Source memory.Source `json:"source,omitempty"`
	// Name is that of a file.
	Name  string       `json:"name,omitempty"`
	Trust memory.Trust `json:"trust"`
	// At is when it was said. A summary stands for messages from At to Until.
	At    time.Time `json:"at"`
	Until time.Time `json:"until,omitzero"`
	// Tokens is what the whole would cost.
	Tokens int `json:"tokens"`
	// Score is higher for a better hit and compares hits of one kind of one
	// search; zero for an expression.
	Score float64 `json:"score,omitempty"`
	// Beside says that the words stand in a message beside this one.
	Beside bool `json:"beside,omitempty"`
	// Excerpt is the part around what was found; external text is in blocks
	// of its own.
	Excerpt []memory.Block `json:"excerpt"`
}

// Found is the result of a Grep.
type Found struct {
	Hits []Hit `json:"hits"`
	// Scanned is how many texts were read one after the other.
	Scanned int `json:"scanned,omitempty"`
	// Stopped says why texts of Since and before were not all looked at; "" if
	// they were. To go on, ask again with To a microsecond after Since.
	Stopped string    `json:"stopped,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Reasons for stopping a scan.
const (
	stoppedEnough = "there are enough hits"
	stoppedTexts  = "as many texts were read as one search may read"
	stoppedBytes  = "as many bytes were read as one search may read"
	stoppedTime   = "the time for one search was over"
)

// Grep finds places by words or by an expression. Results of the memory tools
// are not found: they repeat what is stored elsewhere. Errors: memory.ErrInvalid
// for a query out of bounds, with what is wrong.
func (r *Retrieval) Grep(ctx context.Context, user memory.UserID, q GrepQuery) (Found, error) {
	q, err := q.checked()
	if err != nil {
		return Found{}, fmt.Errorf("search: %w", err)
	}
	// What is read one after the other, for hits or for their excerpts, is read
	// until then.
	within, cancel := context.WithTimeout(ctx, r.limits.time())
	defer cancel()
	g := grep{Retrieval: r, user: user, GrepQuery: q}
	if q.Expression != "" {
		var expression *regexp.Regexp
		if expression, err = compile(q.Expression); err == nil {
			g.locate = inPieces(within, expressionLocator(expression))
			err = g.scanAll(ctx, within, q.In)
		}
	} else {
		g.locate = inPieces(within, newWordSet(q.Words).locate)
		err = g.byWords(ctx, within)
	}
	if err != nil {
		return Found{}, fmt.Errorf("search: %w", err)
	}
	return g.found, nil
}

// checked returns the query with its defaults.
func (q GrepQuery) checked() (GrepQuery, error) {
	switch {
	case (q.Words == "") == (q.Expression == ""):
		return q, invalidf("give words or an expression, one of them")
	case len(q.Words)+len(q.Expression) > MaxQueryBytes:
		return q, invalidf("a query is at most %d bytes", MaxQueryBytes)
	case !utf8.ValidString(q.Words + q.Expression):
		return q, invalidf("a query is UTF-8")
	case q.Limit < 0 || q.Limit > MaxHits:
		return q, invalidf("a limit is from 1 to %d", MaxHits)
	case q.ExcerptTokens < 0 || q.ExcerptTokens > maxExcerptTokens:
		return q, invalidf("an excerpt has at most %d tokens", maxExcerptTokens)
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To):
		return q, invalidf("nothing is from %s on and before %s", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))
	}
	for _, kind := range q.In {
		if kind != memory.TextMessage && kind != memory.TextSummary && kind != memory.TextFile {
			return q, invalidf("%q is not one of message, summary, file", kind)
		}
	}
	if len(q.In) == 0 {
		q.In = []memory.TextKind{memory.TextMessage, memory.TextSummary}
	}
	switch q.Order {
	case "":
		q.Order = OrderRelevance
		if q.Expression != "" {
			q.Order = OrderRecency
		}
	case OrderRelevance, OrderHybrid:
		if q.Expression != "" {
			return q, invalidf("what an expression finds has no relevance: its order is recency")
		}
	case OrderRecency:
	default:
		return q, invalidf("order %q is not one of relevance, recency, hybrid", q.Order)
	}
	q.Limit = orDefault(q.Limit, DefaultHits)
	q.ExcerptTokens = orDefault(q.ExcerptTokens, excerptTokens)
	return q, nil
}

// compile bounds what an expression may cost. Its matching takes time linear in
// the text; the size of the program is the factor.
func compile(expression string) (*regexp.Regexp, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, invalidf("the expression cannot be read: %s", err)
	}
	// One that repeats is large only when it is simplified.
	if cost(parsed) > maxInstructions {
		return nil, invalidf("the expression is too large: repeat less")
	}
	program, err := regexp.Compile("(?m)" + expression)
	if err != nil {
		return nil, invalidf("the expression cannot be read: %s", err)
	}
	if program.MatchString("") {
		return nil, invalidf("the expression matches everything, for it matches nothing: ask for something that is there")
	}
	return program, nil
}

// cost estimates the instructions of an expression without writing them out.
func cost(e *syntax.Regexp) int {
	sum := 0
	for _, sub := range e.Sub {
		sum += cost(sub)
	}
	switch e.Op {
	case syntax.OpLiteral:
		sum += len(e.Rune)
	case syntax.OpCharClass:
		sum += 1 + len(e.Rune)/16
	case syntax.OpRepeat:
		sum *= max(1, e.Min, e.Max)
	default:
		sum++
	}
	// What is over the bound need not be counted on.
	return min(sum, 1<<20)
}

// grep is one search.
type grep struct {
	*Retrieval
	GrepQuery
	user   memory.UserID
	locate locator
	found  Found
}

// locator finds a place in a text. It is not ok if there is none.
type locator func(text string) (start, end int, ok bool)

func expressionLocator(e *regexp.Regexp) locator {
	return func(text string) (int, int, bool) {
		at := e.FindStringIndex(text)
		if at == nil {
			return 0, 0, false
		}
		return at[0], at[1], true
	}
}

// candidate is a place that may become a hit. Its excerpt is made when it has.
type candidate struct {
	hit      Hit
	passages []passage
	weight   float64
	// order is what fused candidates are sorted by.
	order float64
}

// Weights of the kinds where several are asked for: what was said comes before
// what was made of it. Next to fuse's constant, a twentieth is about three
// places.
const (
	messageWeight = 1
	fileWeight    = 0.95
	summaryWeight = 0.90
)

func (g *grep) byWords(ctx, within context.Context) error {
	var lists [][]candidate
	for _, kind := range []memory.TextKind{memory.TextMessage, memory.TextFile, memory.TextSummary} {
		if !slices.Contains(g.In, kind) {
			continue
		}
		var list []candidate
		var err error
		switch kind {
		case memory.TextMessage:
			list, err = g.messages(ctx)
		case memory.TextSummary:
			list, err = g.summaries(ctx)
		case memory.TextFile:
			list, err = g.files(ctx, within)
		}
		if err != nil {
			return err
		}
		lists = append(lists, list)
	}
	g.take(fuse(lists, g.Order))
	return nil
}

func (g *grep) take(all []candidate) {
	g.found.Hits = []Hit{}
	for _, c := range all[:min(len(all), g.Limit)] {
		c.hit.Excerpt = excerptOf(c.passages, g.locate, g.ExcerptTokens)
		g.found.Hits = append(g.found.Hits, c.hit)
	}
}

// fuse puts lists, each the best first, into one. Scores of different kinds do
// not compare, ranks do: reciprocal rank fusion (Cormack, Clarke and Büttcher,
// SIGIR 2009), whose constant is 60.
func fuse(lists [][]candidate, order Order) []candidate {
	const constant = 60
	var all []candidate
	for _, list := range lists {
		for i := range list {
			list[i].order = list[i].weight / float64(constant+i+1)
		}
		if order == OrderHybrid {
			slices.SortStableFunc(list, latestFirst)
			for i := range list {
				list[i].order += list[i].weight / float64(constant+i+1)
			}
		}
		all = append(all, list...)
	}
	if order == OrderRecency {
		slices.SortStableFunc(all, latestFirst)
	} else {
		slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.order, a.order), latestFirst(a, b)) })
	}
	return all
}

// latestFirst takes the last message that a summary stands for as its time, as
// the store does.
func latestFirst(a, b candidate) int {
	last := func(h Hit) time.Time {
		if h.Until.IsZero() {
			return h.At
		}
		return h.Until
	}
	return cmp.Or(last(b.hit).Compare(last(a.hit)), cmp.Compare(b.hit.Seq, a.hit.Seq), strings.Compare(a.hit.ID, b.hit.ID))
}

// wordQuery is the question to the index.
func (g *grep) wordQuery() memory.WordQuery {
	q := memory.WordQuery{Session: g.Session, Agent: g.Agent, From: g.From, To: g.To}
	for _, w := range newWordSet(g.Words).words {
		q.Words = append(q.Words, memory.WeightedWord{Text: w, Weight: 1})
	}
	return q
}

// slack is how many candidates are asked for: some fall away, and the hybrid
// order takes some from farther down.
func (g *grep) slack() int {
	if g.Order == OrderRecency {
		return memory.MaxHits
	}
	return min(memory.MaxHits, 4*g.Limit+20)
}

// messages ranks messages: as answers to a question in plain words, unless the
// latest that have one of the words are wanted.
func (g *grep) messages(ctx context.Context) ([]candidate, error) {
	var list []candidate
	add := func(m memory.Message, score float64, beside bool) {
		if c, ok := g.message(m); ok {
			c.hit.Score, c.hit.Beside = score, beside
			list = append(list, c)
		}
	}
	if g.Order != OrderRecency {
		hits, err := search.Messages(ctx, g.archive, g.user, search.Question{
			Text: g.Words, Session: g.Session, Agent: g.Agent, From: g.From, To: g.To, Limit: g.slack(),
		})
		for _, h := range hits {
			add(h.Message, h.Score, h.Beside)
		}
		return list, err
	}
	words := func(ctx context.Context, user memory.UserID, q memory.WordQuery) ([]memory.WordHit, error) {
		found, err := g.archive.SearchWords(ctx, user, q)
		return found.Hits, err
	}
	hits, err := latest(ctx, g, words, func(h memory.WordHit) time.Time { return h.Message.At })
	for _, h := range hits {
		if h.Own > 0 {
			add(h.Message, h.Own, false)
		}
	}
	return list, err
}

func (g *grep) summaries(ctx context.Context) ([]candidate, error) {
	hits, err := latest(ctx, g, g.archive.SearchSummaries, func(h memory.SummaryHit) time.Time { return h.Summary.Latest })
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, h := range hits {
		c := summaryCandidate(h.Summary)
		c.hit.Score = h.Score
		list = append(list, c)
	}
	return list, nil
}

// latest asks the index. By recency, the hits are to be the latest of all, not
// the latest of the best: while the index has more than it gives, only what is
// as late as the last that is wanted is asked for again.
func latest[T any](ctx context.Context, g *grep, search func(context.Context, memory.UserID, memory.WordQuery) ([]T, error), at func(T) time.Time) ([]T, error) {
	const rounds = 8
	q := g.wordQuery()
	q.Limit = g.slack()
	if len(q.Words) == 0 {
		return nil, nil
	}
	for round := 0; ; round++ {
		hits, err := search(ctx, g.user, q)
		if err != nil || g.Order != OrderRecency || len(hits) < memory.MaxHits || round == rounds {
			return hits, err
		}
		slices.SortStableFunc(hits, func(a, b T) int { return at(b).Compare(at(a)) })
		// As many again, for those that fall away.
		from := at(hits[min(len(hits), 2*g.Limit)-1])
		if !from.After(q.From) {
			return hits, nil
		}
		q.From = from
	}
}

// message is not ok for one that is left out.
func (g *grep) message(m memory.Message) (candidate, bool) {
	if g.unless != nil && g.unless(m) {
		return candidate{}, false
	}
	had := hasRecall(m.Blocks)
	said := slices.DeleteFunc(slices.Clone(m.Blocks), isRecall)
	c := candidate{passages: passages(said, m.Trust), weight: messageWeight, hit: Hit{
		Kind: memory.TextMessage, ID: m.ID.String(), Session: m.Session, Seq: m.Seq, Role: m.Role, Source: m.Source,
		Trust: m.Trust, At: m.At, Tokens: m.Tokens,
	}}
	if len(c.passages) == 0 {
		return candidate{}, false
	}
	// What was found may have been in what a memory tool brought.
	if had && !slices.ContainsFunc(c.passages, func(p passage) bool { _, _, ok := g.locate(p.text); return ok }) {
		return candidate{}, false
	}
	return c, true
}

func summaryCandidate(s memory.Summary) candidate {
	return candidate{passages: passages(summaryBlocks(s), summaryTrust(s)), weight: summaryWeight, hit: Hit{
		Kind: memory.TextSummary, ID: s.ID.String(), Session: s.Session, Trust: s.Trust, At: s.Earliest, Until: s.Latest, Tokens: s.Tokens,
	}}
}

func fileCandidate(f memory.File, b memory.Block) candidate {
	return candidate{passages: passages([]memory.Block{b}, f.Trust), weight: fileWeight, hit: Hit{
		Kind: memory.TextFile, ID: f.ID.String(), Session: f.Session, Name: f.Name, Trust: f.Trust, At: f.CreatedAt, Tokens: f.Tokens,
	}}
}

// files ranks files by how many of the words are in them.
func (g *grep) files(ctx, within context.Context) ([]candidate, error) {
	words := newWordSet(g.Words)
	type scored struct {
		id    memory.FileID
		score float64
	}
	var best []scored
	err := g.scan(ctx, within, []memory.TextKind{memory.TextFile}, func(t memory.StoredText) (more bool) {
		if n := words.count(t.Text); n > 0 {
			best = append(best, scored{t.File, float64(n)})
		}
		// By recency, those that come first are those that are wanted.
		return g.Order != OrderRecency || len(best) < g.Limit
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(best, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	var list []candidate
	for _, s := range best[:min(len(best), g.Limit)] {
		f, b, err := g.archive.File(ctx, g.user, s.id)
		if errors.Is(err, memory.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		c := fileCandidate(f, b)
		c.hit.Score = s.score
		list = append(list, c)
	}
	return list, nil
}

// scanAll reads texts, the latest first, until there are enough hits. What is
// found is read again when the scan is over, for it may hold the store's reader.
func (g *grep) scanAll(ctx, within context.Context, kinds []memory.TextKind) error {
	var matched []memory.StoredText
	// Some fall away when they are read.
	most := g.Limit + 50
	if err := g.scan(ctx, within, kinds, func(t memory.StoredText) bool {
		if _, _, ok := g.locate(t.Text); ok {
			t.Text = ""
			matched = append(matched, t)
		}
		return len(matched) < most
	}); err != nil {
		return err
	}
	var list []candidate
	for _, t := range matched {
		c, ok, err := g.candidate(ctx, t)
		switch {
		case errors.Is(err, memory.ErrNotFound): // deleted meanwhile
		case err != nil:
			return err
		case ok && len(list) == g.Limit:
			g.found.Stopped = stoppedEnough
		case ok:
			list = append(list, c)
		}
		if g.found.Stopped == stoppedEnough && len(list) == g.Limit {
			g.found.Since = t.At
			break
		}
	}
	g.take(list)
	return nil
}

func (g *grep) candidate(ctx context.Context, t memory.StoredText) (candidate, bool, error) {
	switch {
	case !t.Summary.IsZero():
		s, _, err := g.archive.Summary(ctx, g.user, t.Summary)
		return summaryCandidate(s), true, err
	case !t.File.IsZero():
		f, b, err := g.archive.File(ctx, g.user, t.File)
		return fileCandidate(f, b), true, err
	}
	m, err := g.archive.Message(ctx, g.user, t.Message)
	if err != nil {
		return candidate{}, false, err
	}
	c, ok := g.message(m)
	return c, ok, nil
}

// scan reads texts within the limits until visit has enough. That within ends
// is no error, that ctx ends is.
func (g *grep) scan(ctx, within context.Context, kinds []memory.TextKind, visit func(memory.StoredText) (more bool)) error {
	var bytes int64
	q := memory.TextQuery{Kinds: kinds, Session: g.Session, Agent: g.Agent, From: g.From, To: g.To}
	stop := func(why string, at time.Time) bool {
		g.found.Stopped, g.found.Since = why, at
		return false
	}
	err := g.archive.Texts(within, g.user, q, func(t memory.StoredText) bool {
		switch {
		case within.Err() != nil:
			return stop(stoppedTime, t.At)
		case !slices.Contains(kinds, kindOf(t)):
			return true
		case g.found.Scanned >= g.limits.texts():
			return stop(stoppedTexts, t.At)
		case bytes >= g.limits.bytes():
			return stop(stoppedBytes, t.At)
		}
		g.found.Scanned++
		bytes += int64(len(t.Text))
		if !visit(t) {
			return stop(stoppedEnough, t.At)
		}
		// A long text may have taken the rest of the time, and not be read to
		// its end.
		if within.Err() != nil {
			return stop(stoppedTime, t.At)
		}
		return true
	})
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	if within.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		if g.found.Stopped == "" {
			g.found.Stopped = stoppedTime
		}
		return nil
	}
	return err
}

func kindOf(t memory.StoredText) memory.TextKind {
	switch {
	case !t.Summary.IsZero():
		return memory.TextSummary
	case !t.File.IsZero():
		return memory.TextFile
	}
	return memory.TextMessage
}

// inPieces looks through a long text in pieces until ctx ends: no single piece
// keeps the worst of expressions busy for long. A piece begins a little before
// the last one ended; a match that is longer than that can be missed.
func inPieces(ctx context.Context, locate locator) locator {
	const size, overlap = 8 << 10, 1 << 10
	return func(text string) (int, int, bool) {
		for from := 0; ctx.Err() == nil; {
			piece := text[from:]
			if len(piece) > size {
				end := size
				if i := strings.LastIndexByte(piece[:size], '\n'); i >= size/2 {
					end = i
				}
				for !utf8.RuneStart(piece[end]) {
					end--
				}
				piece = piece[:end]
			}
			if start, end, ok := locate(piece); ok {
				return from + start, from + end, true
			}
			if from+len(piece) == len(text) {
				break
			}
			// On a line's beginning, if there is one, for ^ to hold.
			next := from + len(piece) - overlap
			if i := strings.IndexByte(text[next:from+len(piece)], '\n'); i >= 0 {
				next += i + 1
			}
			for !utf8.RuneStart(text[next]) {
				next++
			}
			from = next
		}
		return 0, 0, false
	}
}

// wordSet is the words of a query, folded, each once.
type wordSet struct{ words []string }

func newWordSet(text string) wordSet {
	var s wordSet
	for word := range words(text) {
		w := strings.ToLower(text[word.start:word.end])
		if len(s.words) < memory.MaxWords && !slices.Contains(s.words, w) {
			s.words = append(s.words, w)
		}
	}
	return s
}

// wordSpan is text[start:end].
type wordSpan struct{ start, end int }

// words yields the words of a text: runs of letters, marks and digits.
func words(text string) func(yield func(wordSpan) bool) {
	return func(yield func(wordSpan) bool) {
		start := -1
		for i, c := range text {
			switch in := unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c); {
			case in && start < 0:
				start = i
			case !in && start >= 0:
				if !yield(wordSpan{start, i}) {
					return
				}
				start = -1
			}
		}
		if start >= 0 {
			yield(wordSpan{start, len(text)})
		}
	}
}

// match returns the number of the word in the set that a word of a text is a
// form of, or -1. Forms differ in their ends.
func (s wordSet) match(word string) int {
	for i, w := range s.words {
		beginning := w
		if n := len(w) - 2; n >= 4 {
			beginning = w[:n]
			for !utf8.ValidString(beginning) {
				n++
				beginning = w[:n]
			}
		}
		if len(word) >= len(beginning) && len(word) <= len(w)+4 && strings.EqualFold(word[:len(beginning)], beginning) && (len(w) >= 4 || len(word) <= len(w)+1) {
			return i
		}
	}
	return -1
}

// count returns how many words of the set are in a text.
func (s wordSet) count(text string) int {
	var seen [memory.MaxWords]bool
	n := 0
	for at := range words(text) {
		if i := s.match(text[at.start:at.end]); i >= 0 && !seen[i] {
			seen[i] = true
			if n++; n == len(s.words) {
				break
			}
		}
	}
	return n
}

// locate finds where most words of the set stand together.
func (s wordSet) locate(text string) (start, end int, ok bool) {
	const near, most = 300, 4096
	type place struct {
		wordSpan
		word int
	}
	var places []place
	for at := range words(text) {
		if i := s.match(text[at.start:at.end]); i >= 0 {
			if places = append(places, place{at, i}); len(places) == most {
				break
			}
		}
	}
	var count [memory.MaxWords]int
	different, first, best := 0, 0, 0
	for last, p := range places {
		if count[p.word]++; count[p.word] == 1 {
			different++
		}
		// What is counted lies within near bytes, and begins with a word that
		// does not come again.
		for first < last && (p.end-places[first].start > near || count[places[first].word] > 1) {
			if count[places[first].word]--; count[places[first].word] == 0 {
				different--
			}
			first++
		}
		if different > best {
			best, start, end = different, places[first].start, p.end
		}
	}
	return start, end, best > 0
}
