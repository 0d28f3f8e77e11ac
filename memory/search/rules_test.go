package search_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/search"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var (
	_ search.Words = (*sqlite.Store)(nil)

	june = time.Date(2025, time.June, 10, 9, 0, 0, 0, time.UTC)
)

// archive is a real store with one user and one agent.
type archive struct {
	*sqlite.Store
	user  memory.UserID
	agent memory.AgentID
}

func open(t testing.TB) archive {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "glovebox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := store.PutAgent(t.Context(), "agent", "", june)
	if err != nil {
		t.Fatal(err)
	}
	return archive{store, user.ID, agent.ID}
}

// say adds a session whose messages come a minute apart. One that begins with
// "A: " is the assistant's and loses that label; all others are the user's.
func (a archive) say(t testing.TB, at time.Time, texts ...string) memory.SessionID {
	t.Helper()
	session, err := a.CreateSession(t.Context(), memory.Session{Agent: a.agent, User: a.user, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	var drafts []memory.Draft
	for i, text := range texts {
		role := memory.RoleUser
		if rest, ok := strings.CutPrefix(text, "A: "); ok {
			role, text = memory.RoleAssistant, rest
		}
		drafts = append(drafts, memory.Draft{
			Role: role, Source: memory.Source(role), Blocks: []memory.Block{memory.Text(text)}, At: at.Add(time.Duration(i) * time.Minute),
		})
	}
	if _, err := a.Append(t.Context(), a.user, session.ID, drafts...); err != nil {
		t.Fatal(err)
	}
	return session.ID
}

func (a archive) ask(t testing.TB, q search.Question) []search.Hit {
	t.Helper()
	hits, err := search.Messages(t.Context(), a, a.user, q)
	if err != nil {
		t.Fatal(err)
	}
	return hits
}

func text(h search.Hit) string { return memory.Plain(h.Message.Blocks) }

func texts(hits []search.Hit) []string {
	all := make([]string, len(hits))
	for i, h := range hits {
		all[i] = text(h)
	}
	return all
}

// filler keeps what two sessions say from standing beside each other, and the
// words in question from being in half of all messages.
func filler(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("remark %d about nothing at all", i))
	}
	return all
}

// In each case both texts have the question's words alike. Sessions of one
// message keep the rules apart; the one that has to come first is stored last,
// and then first, so that a tie fails.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name, question string
		first, second  string
		// firstAt and secondAt are june if zero.
		firstAt, secondAt time.Time
	}{
		{name: "the one who is named speaks", question: "What does Ann collect?",
			first: "Ann: collecting old stamps", second: "Bob: collecting old stamps"},
		{name: "what I said", question: "Where did I park?",
			first: "parked behind the mill", second: "A: parked behind the mill"},
		{name: "what you said", question: "Where did you park?",
			first: "A: parked behind the mill", second: "parked behind the mill"},
		{name: "a statement before a question", question: "Where is the kiln?",
			first: "the kiln stands there.", second: "the kiln stands there?"},
		{name: "a question with a note behind it", question: "Where is the kiln?",
			first: "the kiln stands there [shared a photo]", second: "the kiln stands there? [shared a photo]"},
		{name: "the month", question: "Which regatta was in March?",
			first: "a regatta", second: "a regatta", firstAt: june.AddDate(0, -3, 0)},
		{name: "the year", question: "Which regatta was it that 2024 brought?",
			first: "a regatta", second: "a regatta", firstAt: june.AddDate(-1, 0, 0)},
		{name: "yesterday", question: "Which regatta was it yesterday?",
			first: "a regatta", second: "a regatta", firstAt: june.AddDate(0, 0, 19)},
		{name: "weeks ago", question: "Which regatta was it two weeks ago?",
			first: "a regatta", second: "a regatta", firstAt: june.AddDate(0, 0, 6)},
		{name: "last month", question: "Which regatta was it last month?",
			first: "a regatta", second: "a regatta", firstAt: june.AddDate(0, -1, 0), secondAt: june.AddDate(0, -6, 0)},
		{name: "a moment", question: "When was the regatta?",
			first: "regatta on a tuesday", second: "regatta on a lake"},
		{name: "a number", question: "How many boats sailed?",
			first: "we saw 40 boats", second: "we saw red boats"},
	} {
		for _, firstIsNewer := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", c.name, firstIsNewer), func(t *testing.T) {
				a := open(t)
				a.say(t, june, filler(30)...)
				at := func(t time.Time) time.Time {
					if t.IsZero() {
						return june
					}
					return t
				}
				if firstIsNewer {
					a.say(t, at(c.secondAt), c.second)
					a.say(t, at(c.firstAt), c.first)
				} else {
					a.say(t, at(c.firstAt), c.first)
					a.say(t, at(c.secondAt), c.second)
				}
				hits := a.ask(t, search.Question{Text: c.question, Now: june.AddDate(0, 0, 20)})
				if len(hits) != 2 || hits[0].Score <= hits[1].Score {
					t.Fatalf("%q\nfinds %q", c.question, texts(hits))
				}
				wanted, _ := strings.CutPrefix(c.first, "A: ")
				if text(hits[0]) != wanted || c.first == c.second && !hits[0].Message.At.Equal(at(c.firstAt)) {
					t.Fatalf("%q\nprefers %q of %s", c.question, text(hits[0]), hits[0].Message.At)
				}
			})
		}
	}
}

// An answer has none of the question's words: it stands after one that has.
func TestAnswerStandsBesideItsQuestion(t *testing.T) {
	a := open(t)
	a.say(t, june, slices.Concat(filler(8), []string{"Ann: What did you call the puppy?", "Bob: Biscuit!"}, filler(8))...)
	hits := a.ask(t, search.Question{Text: "What is the name of Bob's puppy, what did he call it?"})
	found := slices.IndexFunc(hits, func(h search.Hit) bool { return text(h) == "Bob: Biscuit!" })
	if found < 0 || found > 1 || !hits[found].Beside {
		t.Fatalf("the answer is number %d of %q", found, texts(hits))
	}
	asked := slices.IndexFunc(hits, func(h search.Hit) bool { return strings.HasPrefix(text(h), "Ann: ") })
	if asked < 0 || hits[asked].Beside {
		t.Fatalf("the message that has the words is number %d of %q, beside %v", asked, texts(hits), hits[max(asked, 0)].Beside)
	}
	// What comes after counts more than what comes before, which counts more
	// than what has no part in it.
	before := slices.IndexFunc(hits, func(h search.Hit) bool { return text(h) == "remark 7 about nothing at all" })
	if before <= found {
		t.Errorf("the message before the question is number %d, its answer %d", before, found)
	}
}

// Two messages stand equally near the word: the one that says more comes first.
func TestLongerSaysMore(t *testing.T) {
	a := open(t)
	a.say(t, june, "clay and glaze and wood need many hours of patient watching", "yes", "the kiln")
	hits := a.ask(t, search.Question{Text: "kiln"})
	if len(hits) != 3 || text(hits[2]) != "yes" || hits[1].Score <= hits[2].Score {
		t.Errorf("%q", texts(hits))
	}
}

// A message in a session that is about all of the question outranks the same
// message elsewhere.
func TestSessionCounts(t *testing.T) {
	for _, rightIsNewer := range []bool{true, false} {
		a := open(t)
		right := slices.Concat([]string{"the harbour at dawn"}, filler(6), []string{"a lantern"})
		wrong := slices.Concat([]string{"the village at dawn"}, filler(6), []string{"a lantern"})
		var want memory.SessionID
		if rightIsNewer {
			a.say(t, june, wrong...)
			want = a.say(t, june, right...)
		} else {
			want = a.say(t, june, right...)
			a.say(t, june, wrong...)
		}
		hits := a.ask(t, search.Question{Text: "lantern harbour"})
		i := slices.IndexFunc(hits, func(h search.Hit) bool { return text(h) == "a lantern" })
		if i < 0 || hits[i].Message.Session != want {
			t.Errorf("newer %v: the lantern of the other session comes first: %q", rightIsNewer, texts(hits))
		}
	}
}

func TestQuestionWithoutContent(t *testing.T) {
	a := open(t)
	a.say(t, june, "who are you", "a stone")
	for _, question := range []string{"", " ", "???", "\x00\xff", "…—"} {
		if hits := a.ask(t, search.Question{Text: question}); len(hits) != 0 {
			t.Errorf("%q finds %q", question, texts(hits))
		}
	}
	// Nothing but function words: they are all there is to go by.
	if hits := a.ask(t, search.Question{Text: "Who are you?"}); len(hits) == 0 || text(hits[0]) != "who are you" {
		t.Errorf("function words alone find %q", texts(hits))
	}
	// A name alone is a question about who has it.
	a.say(t, june, "Ann: hello", "Bob: Ann is here")
	if hits := a.ask(t, search.Question{Text: "Ann?"}); len(hits) == 0 {
		t.Error("a name alone finds nothing")
	}
}

func TestFilters(t *testing.T) {
	a := open(t)
	old := a.say(t, june, "the kiln is warm")
	a.say(t, june.AddDate(0, 1, 0), "the kiln is cold")
	mine := a.agent
	other, err := a.PutAgent(t.Context(), "other", "", june)
	if err != nil {
		t.Fatal(err)
	}
	a.agent = other.ID
	a.say(t, june.AddDate(0, 2, 0), "the kiln is sold")
	for name, c := range map[string]struct {
		question search.Question
		want     []string
	}{
		"session": {search.Question{Session: old}, []string{"the kiln is warm"}},
		"agent":   {search.Question{Agent: other.ID}, []string{"the kiln is sold"}},
		"from":    {search.Question{From: june.AddDate(0, 1, 0)}, []string{"the kiln is cold", "the kiln is sold"}},
		"to":      {search.Question{To: june.AddDate(0, 1, 0)}, []string{"the kiln is warm"}},
		"both":    {search.Question{Agent: mine, From: june.AddDate(0, 0, 1)}, []string{"the kiln is cold"}},
		"none":    {search.Question{}, []string{"the kiln is cold", "the kiln is sold", "the kiln is warm"}},
	} {
		c.question.Text = "How is the kiln?"
		got := texts(a.ask(t, c.question))
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	stranger := memory.User{ID: memory.NewID[memory.UserID](), Name: "stranger", CreatedAt: june}
	if err := a.PutUser(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	a.user = stranger.ID
	if hits := a.ask(t, search.Question{Text: "How is the kiln?"}); len(hits) != 0 {
		t.Errorf("another user is told %q", texts(hits))
	}
}

func TestLimit(t *testing.T) {
	a := open(t)
	var all []string
	for i := range search.MaxHits + 20 {
		all = append(all, fmt.Sprintf("the kiln on day %d", i))
	}
	a.say(t, june, all...)
	for limit, want := range map[int]int{-1: 50, 0: 50, 1: 1, 7: 7, search.MaxHits: search.MaxHits, search.MaxHits + 10: search.MaxHits} {
		if hits := a.ask(t, search.Question{Text: "kiln", Limit: limit}); len(hits) != want {
			t.Errorf("limit %d: %d hits, want %d", limit, len(hits), want)
		}
	}
}

// recorder answers with what it was given, and keeps what it was asked.
type recorder struct {
	asked []memory.WordQuery
	hits  memory.WordHits
	err   error
}

func (r *recorder) SearchWords(ctx context.Context, _ memory.UserID, q memory.WordQuery) (memory.WordHits, error) {
	r.asked = append(r.asked, q)
	if err := ctx.Err(); err != nil {
		return memory.WordHits{}, err
	}
	return r.hits, r.err
}

// One question costs one bounded query, however long it is.
func TestCostOfAQuestion(t *testing.T) {
	var long strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&long, "word%d ", i)
	}
	for name, question := range map[string]string{"short": "Where is the kiln?", "long": long.String(), "one word": strings.Repeat("é", 100_000)} {
		r := &recorder{err: memory.ErrNotFound}
		if _, err := search.Messages(t.Context(), r, memory.UserID{}, search.Question{Text: question}); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.asked) != 1 {
			t.Fatalf("%s: %d queries", name, len(r.asked))
		}
		q, size := r.asked[0], 0
		for _, w := range q.Words {
			size += len(w.Text)
			if w.Weight <= 0 {
				t.Errorf("%s: weight %v of %q", name, w.Weight, w.Text)
			}
		}
		if len(q.Words) == 0 || len(q.Words) > memory.MaxWords || size > 4096 || q.Limit != search.MaxHits {
			t.Errorf("%s: %d words of %d bytes, limit %d", name, len(q.Words), size, q.Limit)
		}
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := search.Messages(ctx, open(t), memory.UserID{}, search.Question{Text: "kiln"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A store that does not say how frequent each word is cannot be ranked by.
func TestStoreBreaksItsContract(t *testing.T) {
	r := &recorder{hits: memory.WordHits{Messages: 1, Hits: []memory.WordHit{{Message: memory.Message{Blocks: []memory.Block{memory.Text("a kiln")}}}}}}
	if hits, err := search.Messages(t.Context(), r, memory.UserID{}, search.Question{Text: "kiln"}); err == nil {
		t.Errorf("got %d hits and no error", len(hits))
	}
}

func TestMessagesOfAnything(t *testing.T) {
	a := open(t)
	a.say(t, june, "Ann: Where did you go in May?", "Bob: to the kiln, 3 days ago [shared a photo]", "you?", "A: I am a kiln", "Ann: : ", "?", "]")
	a.say(t, june.AddDate(0, -1, 0), "the kiln and Ann", "last week 40 of them")
	rapid.Check(t, func(rt *rapid.T) {
		q := search.Question{
			Text: rapid.OneOf(rapid.String(), rapid.Custom(func(rt *rapid.T) string {
				return strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
					"Ann", "Bob", "kiln", "when", "how many", "in May", "999 years ago", "last week", "yesterday", "2025", "I", "you", "?", "a", "]", "İ", "ß",
				})).Draw(rt, "words"), " ")
			})).Draw(rt, "text"),
			Limit: rapid.IntRange(-2, 250).Draw(rt, "limit"),
			Now:   rapid.SampledFrom([]time.Time{{}, june, time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}).Draw(rt, "now"),
		}
		hits, err := search.Messages(t.Context(), a, a.user, q)
		if err != nil {
			rt.Fatal(err)
		}
		again, err := search.Messages(t.Context(), a, a.user, q)
		if err != nil || !slices.Equal(texts(again), texts(hits)) {
			rt.Fatalf("a second time: %q, %v; want %q", texts(again), err, texts(hits))
		}
		seen := map[memory.MessageID]bool{}
		for i, h := range hits {
			if seen[h.Message.ID] || h.Score < 0 || h.Score != h.Score || i > 0 && h.Score > hits[i-1].Score {
				rt.Fatalf("hit %d of %q", i, texts(hits))
			}
			seen[h.Message.ID] = true
		}
		room := rapid.IntRange(-5, 60).Draw(rt, "room")
		kept, cost, next := search.Within(hits, room), 0, 0
		for _, h := range kept {
			cost += tokens.Estimate(text(h))
			for next < len(hits) && hits[next].Message.ID != h.Message.ID {
				next++
			}
			if next++; next > len(hits) {
				rt.Fatalf("%q are not of %q in its order", texts(kept), texts(hits))
			}
		}
		if cost > max(room, 0) {
			rt.Fatalf("%d tokens in %d", cost, room)
		}
		// What was left out has no room beside what was kept.
		for _, h := range hits {
			if !slices.ContainsFunc(kept, func(k search.Hit) bool { return k.Message.ID == h.Message.ID }) && tokens.Estimate(text(h)) <= room-cost {
				rt.Fatalf("%q has room beside %q", text(h), texts(kept))
			}
		}
	})
}
