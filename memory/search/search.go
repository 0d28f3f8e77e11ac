// Package search finds the messages that answer a question in plain words. It
// needs no model: a store brings candidates by their words (memory.Store's
// SearchWords), and what people do when they talk ranks them. An answer stands
// near the words it answers, comes from the person it is about, is rarely a
// question itself, and belongs to a conversation that is about the same thing.
//
// docs/search.md says what each rule is worth, and what else was tried.
package search

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/internal/index"
)

// Words is the part of a memory.Store that is searched.
type Words interface {
	SearchWords(ctx context.Context, user memory.UserID, q memory.WordQuery) (memory.WordHits, error)
}

// Question is what is sought.
type Question struct {
	Text string
	// Now is what "yesterday" in the question refers to; zero means that such
	// words say nothing.
	Now time.Time
	// Session and Agent, if not zero, keep what belongs to them; From and To
	// bound the time: From ≤ t < To, a zero bound is none.
	Session  memory.SessionID
	Agent    memory.AgentID
	From, To time.Time
	// Limit bounds the hits: 0 means 50, MaxHits is the most.
	Limit int
}

// MaxHits is the most that Messages returns.
const MaxHits = candidates

// Hit is a message with its score; scores of two questions do not compare.
type Hit struct {
	Message memory.Message
	Score   float64
	// Beside says that the message has none of the words: it stands beside one
	// that does.
	Beside bool
}

// candidates is how many messages are ranked anew. All that follows is
// proportional to it.
const candidates = 200

// Messages returns the messages that are most likely to answer the question, the
// best first; none for a question without a word. It asks the store once.
func Messages(ctx context.Context, words Words, user memory.UserID, q Question) ([]Hit, error) {
	var tokenizer index.Tokenizer
	asked := read(q, &tokenizer)
	if len(asked.words) == 0 {
		return nil, nil
	}
	query := memory.WordQuery{Session: q.Session, Agent: q.Agent, From: q.From, To: q.To, Limit: candidates}
	for _, w := range asked.words {
		query.Words = append(query.Words, memory.WeightedWord{Text: w, Weight: 1})
	}
	found, err := words.SearchWords(ctx, user, query)
	if err != nil {
		return nil, fmt.Errorf("search for an answer: %w", err)
	}
	if len(found.Frequency) != len(query.Words) {
		return nil, fmt.Errorf("search for an answer: the store tells the frequency of %d words, not of %d", len(found.Frequency), len(query.Words))
	}
	hits := asked.rank(found, &tokenizer)
	limit := q.Limit
	if limit <= 0 {
		limit = 50
	}
	return hits[:min(limit, len(hits))], nil
}

// Within returns the first hits that together cost at most max tokens, as their
// text is read; one that does not fit is passed over for those that do.
func Within(hits []Hit, max int) []Hit {
	var kept []Hit
	for _, h := range hits {
		if cost := tokens.Estimate(memory.Plain(h.Message.Blocks)); cost <= max {
			max -= cost
			kept = append(kept, h)
		}
	}
	return kept
}

// BM25 in the form that Anserini takes as its standard, k1 = 0.9 and b = 0.4:
// messages are short, so that their length says little about them (Yang, Fang,
// Lin: Anserini, 2018).
const (
	k1 = 0.9
	b  = 0.4
)

// near is how much a word counts for a message if it is the message at this
// distance that holds it. What stands before counts more: an answer follows its
// question.
var near = [...]struct {
	away   int64
	weight float64
}{{-2, 0.5}, {-1, 0.7}, {1, 0.4}, {2, 0.4}, {3, 0.2}}

// How much the other rules count, as parts of a message's score but for
// sessionWeight, which adds to it.
const (
	speakerWeight  = 0.4  // said by the one person that the question names
	questionWeight = 0.15 // taken off a message that asks
	lengthWeight   = 0.3  // of a message of e⁴ words or more
	periodWeight   = 0.5  // said in the time that the question names
	momentWeight   = 0.2  // names a time, if the question asks for one
	numberWeight   = 0.2  // holds a number, if the question asks for one
	sessionWeight  = 0.3  // of the best score of each word in the whole session
)

// candidate is a hit on its way to a score.
type candidate struct {
	memory.Message
	speaker string
	terms   []string
	asks    bool
	// own is the score of each of the question's words in the message itself.
	own   []float64
	score float64
}

func (a question) rank(found memory.WordHits, tokenizer *index.Tokenizer) []Hit {
	list := make([]candidate, len(found.Hits))
	length := 0
	for i, h := range found.Hits {
		speaker, text := speakerOf(h.Message)
		list[i] = candidate{Message: h.Message, speaker: speaker, terms: tokenizer.Terms(text), asks: asks(text)}
		length += len(list[i].terms)
	}
	if len(list) == 0 {
		return nil
	}
	average := max(float64(length)/float64(len(list)), 1)
	words := a.withoutSpeakers(list)
	for i := range list {
		list[i].own = words.score(list[i].terms, average, found)
	}
	words.add(list)
	hits := make([]Hit, len(list))
	for i, c := range list {
		beside := !slices.ContainsFunc(c.own, func(v float64) bool { return v > 0 })
		hits[i] = Hit{c.Message, c.score * words.likelihood(c), beside}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits
}

// score returns what each word is worth in a message of these terms.
func (a question) score(terms []string, average float64, found memory.WordHits) []float64 {
	count := map[string]int{}
	for _, t := range terms {
		count[t]++
	}
	own := make([]float64, len(a.words))
	for i, t := range a.terms {
		tf := math.Inf(1)
		for _, part := range t {
			tf = min(tf, float64(count[part]))
		}
		if tf == 0 || math.IsInf(tf, 1) {
			continue
		}
		n, df := float64(found.Messages), float64(found.Frequency[a.at[i]])
		own[i] = math.Log1p((n-df+0.5)/(df+0.5)) * tf * (k1 + 1) / (tf + k1*(1-b+b*float64(len(terms))/average))
	}
	return own
}

// add sums for each candidate, word by word, the best of what the message itself
// holds and what stands near it; and a part of the best that its whole session
// has.
func (a question) add(list []candidate) {
	type place struct {
		session memory.SessionID
		seq     int64
	}
	at := make(map[place]*candidate, len(list))
	best := map[memory.SessionID][]float64{}
	for i := range list {
		c := &list[i]
		at[place{c.Session, c.Seq}] = c
		if best[c.Session] == nil {
			best[c.Session] = make([]float64, len(a.words))
		}
		for w, v := range c.own {
			best[c.Session][w] = max(best[c.Session][w], v)
		}
	}
	for i := range list {
		c := &list[i]
		for w, v := range c.own {
			for _, n := range near {
				if other := at[place{c.Session, c.Seq + n.away}]; other != nil {
					v = max(v, n.weight*other.own[w])
				}
			}
			c.score += v
		}
		if a.speaker != "" && c.speaker == a.speaker {
			c.score *= 1 + speakerWeight
		}
		for _, v := range best[c.Session] {
			c.score += sessionWeight * v
		}
	}
}

// likelihood is by how much a message is more of an answer than others with the
// same words.
func (a question) likelihood(c candidate) float64 {
	l := 1 + lengthWeight*min(math.Log1p(float64(len(c.terms)))/4, 1)
	if c.asks {
		l *= 1 - questionWeight
	}
	if a.wantsMoment && namesMoment(c.terms) {
		l *= 1 + momentWeight
	}
	if a.wantsNumber && namesNumber(c.terms) {
		l *= 1 + numberWeight
	}
	if a.period.holds(c.At) {
		l *= 1 + periodWeight
	}
	return l
}
