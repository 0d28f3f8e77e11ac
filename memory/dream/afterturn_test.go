package dream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// eager is a Dreamer for which an extraction is due as soon as anything is new.
func (w *world) eager(model llm.Model) *dream.Dreamer {
	return dream.New(w.store, dream.Config{Model: model, ExtractionTokens: 1, ExtractionToolCalls: -1, Now: func() time.Time { return noon }})
}

// afterTurn fails the test if it fails.
func (w *world) afterTurn(d *dream.Dreamer, at dream.Place) {
	w.t.Helper()
	if err := d.AfterTurn(w.t.Context(), at); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantFacts(want ...[]string) {
	w.t.Helper()
	if got := w.facts(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("learned %q, want %q", got, want)
	}
}

// calls is a turn of n tool calls, without its answer.
func calls(t testing.TB, n int) (drafts []memory.Draft) {
	for i := range n {
		id := fmt.Sprintf("call%d", i)
		drafts = append(drafts,
			memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.ToolCall(id, "look", []byte("{}"))}, At: noon},
			memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult(id, "look", outside(t, "seen"), false)}, At: noon})
	}
	return drafts
}

func TestAfterTurnWaitsUntilItIsDue(t *testing.T) {
	w := newWorld(t)
	long := user(strings.Repeat("word ", 400))   // 500 tokens
	whole := user(strings.Repeat("word ", 3300)) // 4,125 tokens
	for name, c := range map[string]struct {
		config dream.Config
		turn   []memory.Draft
		want   int
	}{
		"little":                     {dream.Config{}, []memory.Draft{long}, 0},
		"the default tokens":         {dream.Config{}, []memory.Draft{whole}, 1},
		"tokens as configured":       {dream.Config{ExtractionTokens: 400}, []memory.Draft{long}, 1},
		"fewer than configured":      {dream.Config{ExtractionTokens: 600}, []memory.Draft{long}, 0},
		"never for tokens":           {dream.Config{ExtractionTokens: -1}, []memory.Draft{whole}, 0},
		"fewer calls":                {dream.Config{ExtractionTokens: -1}, append([]memory.Draft{user("Go.")}, calls(t, 19)...), 0},
		"the default calls":          {dream.Config{ExtractionTokens: -1}, append([]memory.Draft{user("Go.")}, calls(t, 20)...), 1},
		"calls as configured":        {dream.Config{ExtractionTokens: -1, ExtractionToolCalls: 2}, append([]memory.Draft{user("Go.")}, calls(t, 2)...), 1},
		"never for calls":            {dream.Config{ExtractionTokens: -1, ExtractionToolCalls: -1}, append([]memory.Draft{user("Go.")}, calls(t, 40)...), 0},
		"nobody said anything":       {dream.Config{ExtractionTokens: 1}, []memory.Draft{{Role: memory.RoleUser, Source: memory.SourceScheduledTick, Blocks: whole.Blocks, At: noon}}, 0},
		"a transcript without names": {dream.Config{ExtractionTokens: 1}, []memory.Draft{{Role: memory.RoleUser, Blocks: whole.Blocks, At: noon}}, 0},
	} {
		model := diligent()
		c.config.Model = model
		d := dream.New(w.store, c.config)
		at := w.place()
		w.say(at, append(c.turn, answer("Well."))...)
		w.afterTurn(d, at)
		w.afterTurn(d, at)
		if n := len(model.requests()); n != c.want {
			t.Errorf("%s: asked %d times, want %d", name, n, c.want)
		}
		if d.Counts().ExtractionsFailed != 0 {
			t.Errorf("%s: %+v", name, d.Counts())
		}
	}
}

// M1 as far as it is seen here: without a model nothing is read or written.
func TestAfterTurnWithoutAModel(t *testing.T) {
	d := dream.New(nil, dream.Config{})
	if err := d.AfterTurn(t.Context(), dream.Place{}); err != nil {
		t.Error(err)
	}
	if d.Mini(t.Context(), dream.Place{}, messages(user("I have a dog."))) {
		t.Error("topics changed")
	}
}

func TestAfterTurnLeavesTheTurnThatGoesOn(t *testing.T) {
	w := newWorld(t)
	d := w.eager(diligent())
	at := w.place()
	w.say(at, user("one"))
	w.afterTurn(d, at)
	w.wantFacts()
	w.say(at, answer("yes"), user("two"))
	w.say(at, calls(t, 3)...)
	w.afterTurn(d, at)
	w.wantFacts([]string{"one"})
	w.say(at, answer("done"))
	w.afterTurn(d, at)
	w.wantFacts([]string{"one"}, []string{"two"})
}

// What is more than one prompt holds is extracted in parts until too little is left,
// and nothing of it twice; after a restart it goes on where it stopped.
func TestAfterTurnGoesOnUntilNothingIsDue(t *testing.T) {
	w := newWorld(t)
	model := diligent()
	at := w.place()
	var want []string
	for i := range 30 {
		text := fmt.Sprintf("%d: ", i) + strings.TrimSpace(strings.Repeat("word ", 200))
		want = append(want, text)
		w.say(at, user(text), answer(strings.Repeat("well ", 600)))
	}
	// Those that have no words of the user are looked at all the same.
	for range 5 {
		w.say(at, calls(t, 60)...)
		w.say(at, answer("done"))
	}
	w.say(at, user("under way"))
	for range 3 {
		w.afterTurn(w.eager(model), at)
		w.restart()
	}
	if got := slices.Concat(w.facts()...); !slices.Equal(got, want) {
		t.Errorf("learned %d things, want %d", len(got), len(want))
	}
	if n := len(model.requests()); n < 4 || n > 6 {
		t.Errorf("asked %d times", n)
	}
	u, err := w.store.Unseen(t.Context(), at.User, at.Session)
	if err != nil || u.Messages != 1 {
		t.Errorf("%+v, %v: one message is under way", u, err)
	}
}

// A turn that never ends, as of somebody who imports a monologue, is not extracted,
// and its end is found however far it is.
func TestAfterTurnFindsTheEndOfALongTurn(t *testing.T) {
	w := newWorld(t)
	d := w.eager(diligent())
	at := w.place()
	var drafts []memory.Draft
	for i := range 1500 {
		drafts = append(drafts, user(fmt.Sprint(i)))
	}
	w.say(at, drafts...)
	w.afterTurn(d, at)
	w.wantFacts()
	w.say(at, answer("I see."))
	w.afterTurn(d, at)
	// No answer has more than 64 facts; what was looked at is what matters.
	u, err := w.store.Unseen(t.Context(), at.User, at.Session)
	if err != nil || u.Messages != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

// After a failure nothing is stored, and nobody is asked again before as much has
// come in once more.
func TestAfterTurnBacksOff(t *testing.T) {
	w := newWorld(t)
	down := errors.New("down")
	failing := true
	model := diligent()
	whole := model.answer
	model.answer = func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if failing {
			return llm.Response{}, down
		}
		return whole(ctx, r)
	}
	d := dream.New(w.store, dream.Config{Model: model, ExtractionTokens: 100, ExtractionToolCalls: -1})
	at, other := w.place(), w.place()
	hundred := strings.Repeat("word ", 80)
	w.say(at, user("one "+hundred), answer("yes"))
	w.say(other, user("other "+hundred), answer("yes"))
	if err := d.AfterTurn(t.Context(), at); !errors.Is(err, down) {
		t.Fatalf("the error is %v", err)
	}
	failing = false
	w.afterTurn(d, at)
	if n := len(model.requests()); n != 1 {
		t.Fatalf("asked %d times at once", n)
	}
	w.afterTurn(d, other)
	if n := len(model.requests()); n != 2 {
		t.Fatal("another session waits too")
	}
	w.say(at, user("two "+hundred[:200]), answer("yes"))
	w.afterTurn(d, at)
	if n := len(model.requests()); n != 2 {
		t.Fatal("asked again too soon")
	}
	w.say(at, user("three "+hundred[:200]), answer("yes"))
	w.afterTurn(d, at)
	if n := len(model.requests()); n != 3 {
		t.Fatal("not asked again")
	}
	if facts := w.facts(); len(facts) != 2 || len(facts[1]) != 3 {
		t.Errorf("learned %q", facts)
	}
	if c := d.Counts(); c.Extractions != 2 || c.ExtractionsFailed != 1 {
		t.Errorf("%+v", c)
	}
	// It was forgotten that it failed.
	w.say(at, user("four "+hundred), answer("yes"))
	w.afterTurn(d, at)
	if n := len(model.requests()); n != 4 {
		t.Error("still waits after a success")
	}
}

// Who is cancelled has not failed: the next turn tries again.
func TestAfterTurnIsCancelled(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	model := diligent()
	whole := model.answer
	model.answer = func(c context.Context, r llm.Request) (llm.Response, error) {
		cancel(memory.ErrWiped)
		<-c.Done()
		return llm.Response{}, c.Err()
	}
	d := w.eager(model)
	at := w.place()
	w.say(at, user("one"), answer("yes"))
	if err := d.AfterTurn(ctx, at); !errors.Is(err, memory.ErrWiped) {
		t.Errorf("the error is %v", err)
	}
	model.answer = whole
	w.afterTurn(d, at)
	w.wantFacts([]string{"one"})
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.AfterTurn(t.Context(), at); !errors.Is(err, dream.ErrClosed) {
		t.Errorf("after Close the error is %v", err)
	}
}

// A model's panic costs one extraction.
func TestAfterTurnSurvivesTheModel(t *testing.T) {
	w := newWorld(t)
	at := w.place()
	w.say(at, user("one"), answer("yes"))
	d := w.eager(&scripted{answer: func(context.Context, llm.Request) (llm.Response, error) { panic("no") }})
	if d.AfterTurn(t.Context(), at) == nil {
		t.Error("no error")
	}
	if d.Mini(t.Context(), at, w.all(at)) {
		t.Error("topics changed")
	}
	if c := d.Counts(); c.ExtractionsFailed != 2 || c.MiniDreamsFailed != 1 {
		t.Errorf("%+v", c)
	}
	w.wantFacts()
}

func (w *world) all(at dream.Place) []memory.Message {
	w.t.Helper()
	all, err := w.store.Messages(w.t.Context(), at.User, at.Session, memory.MessageQuery{})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// meddling is a store in which somebody else has looked at the messages first.
type meddling struct {
	*sqlite.Store
	first func()
}

func (m *meddling) CommitExtraction(ctx context.Context, user memory.UserID, x memory.NewExtraction) (memory.Extraction, error) {
	if first := m.first; first != nil {
		m.first = nil
		first()
	}
	return m.Store.CommitExtraction(ctx, user, x)
}

func TestAfterTurnYieldsToSomebodyElse(t *testing.T) {
	w := newWorld(t)
	at := w.place()
	w.say(at, user("one"), answer("yes"))
	store := &meddling{Store: w.store}
	store.first = func() { w.afterTurn(w.eager(diligent()), at) }
	d := dream.New(store, dream.Config{Model: diligent(), ExtractionTokens: 1})
	w.afterTurn(d, at)
	w.wantFacts([]string{"one"})
	if c := d.Counts(); c.Extractions != 0 || c.ExtractionsFailed != 0 {
		t.Errorf("%+v", c)
	}
}

// M8. Exactly those that leave are extracted, those of them that are new, whole,
// although the prompt has them cut, and none beside or between them.
func TestMiniLearnsWhatLeaves(t *testing.T) {
	w := newWorld(t)
	model := diligent()
	at := w.place()
	var all []memory.Message
	for i := range 10 {
		all = append(all, w.say(at, user(fmt.Sprint("number ", i)), answer("yes"))...)
	}
	w.afterTurn(dream.New(w.store, dream.Config{Model: model, ExtractionTokens: -1, ExtractionToolCalls: -1}), at)
	if _, err := w.store.CommitExtraction(t.Context(), at.User, memory.NewExtraction{Session: at.Session, Seen: []memory.SeqRange{{First: 5, Last: 6}}, At: noon}); err != nil {
		t.Fatal(err)
	}
	// Numbers 1 to 4 leave, of which 2 was looked at, and number 7.
	leaving := append(slices.Clone(all[2:10]), all[14:16]...)
	leaving[0].Blocks = []memory.Block{memory.Text("cut")}
	w.eager(model).Mini(t.Context(), at, leaving)
	w.wantFacts([]string{}, []string{"number 1", "number 3", "number 4", "number 7"})
	unseen, err := w.store.UnseenMessages(t.Context(), at.User, at.Session, memory.MessageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var left []int64
	for _, m := range unseen {
		left = append(left, m.Seq)
	}
	if want := []int64{1, 2, 11, 12, 13, 14, 17, 18, 19, 20}; !slices.Equal(left, want) {
		t.Errorf("not looked at: %v, want %v", left, want)
	}
	// What is left is not what was learned.
	w.afterTurn(w.eager(model), at)
	if facts := w.facts(); len(facts) != 3 || !slices.Equal(facts[2], []string{"number 0", "number 5", "number 6", "number 8", "number 9"}) {
		t.Errorf("learned %q", facts)
	}
}

// Topics change when the dream that follows says so.
func TestMiniTellsWhetherTopicsChanged(t *testing.T) {
	w := newWorld(t)
	at := w.place()
	run := w.say(at, user("I have a dog."), answer("Nice."))
	model := diligent()
	whole := model.answer
	model.answer = func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if isExtraction(r) {
			return whole(ctx, r)
		}
		return llm.Response{Text: `{"topics":[{"topic":"pets","content":"Has a dog","supersedes":[],"from":["x1"],"expires_at":null,"scope":"user"}]}`}, nil
	}
	d := w.eager(model)
	if !d.Mini(t.Context(), at, run) {
		t.Error("nothing changed")
	}
	if d.Mini(t.Context(), at, run) {
		t.Error("changed by what was merged before")
	}
	if c := d.Counts(); c.Extractions != 1 || c.MiniDreams != 2 || c.MiniDreamsFailed != 0 {
		t.Errorf("%+v", c)
	}
	if n := len(model.requests()); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// M7, M8. Whatever fails, the turn goes on, soon, and what was extracted stays for
// the next dream.
func TestMiniNeverFails(t *testing.T) {
	w := newWorld(t)
	slow := func(ctx context.Context, _ llm.Request) (llm.Response, error) {
		<-ctx.Done()
		return llm.Response{}, ctx.Err()
	}
	slowDream := func() {}
	cancelled := func(ctx context.Context, r llm.Request) (llm.Response, error) {
		slowDream()
		return slow(ctx, r)
	}
	garbage := func(context.Context, llm.Request) (llm.Response, error) { return llm.Response{Text: "so be it"}, nil }
	for name, c := range map[string]struct {
		extraction, dream func(context.Context, llm.Request) (llm.Response, error)
		want              int
	}{
		"slow extraction":       {slow, garbage, 0},
		"slow dream":            {diligent().answer, cancelled, 1},
		"unreadable extraction": {garbage, garbage, 0},
		"unreadable dream":      {diligent().answer, garbage, 1},
	} {
		at := w.place()
		run := w.say(at, user("one"), answer("yes"))
		model := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
			if isExtraction(r) {
				return c.extraction(ctx, r)
			}
			return c.dream(ctx, r)
		}}
		// Time alone ends an extraction that is slow; before a slow dream there is one
		// that must not be late.
		config := dream.Config{Model: model, MiniTimeout: time.Minute}
		if name == "slow extraction" {
			config.MiniTimeout = 50 * time.Millisecond
		}
		d := dream.New(w.store, config)
		ctx, cancel := context.WithCancel(t.Context())
		slowDream = cancel
		begun := time.Now()
		if d.Mini(ctx, at, run) {
			t.Errorf("%s: topics changed", name)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if n := len(w.facts(at)); n != c.want {
			t.Errorf("%s: %d extractions, want %d", name, n, c.want)
		}
		cancel()
		if counts := d.Counts(); counts.MiniDreamsFailed != 1 || counts.MiniDreams != 0 {
			t.Errorf("%s: %+v", name, counts)
		}
	}
	// Neither a session that is not there nor a list from another one matters.
	d := w.eager(diligent())
	at := w.place()
	run := w.say(at, user("one"), answer("yes"))
	before := len(w.facts())
	for _, place := range []dream.Place{{User: w.user, Agent: w.agent, Session: memory.NewID[memory.SessionID]()}, w.place(), {User: memory.NewID[memory.UserID](), Agent: w.agent, Session: at.Session}} {
		if d.Mini(t.Context(), place, run) || len(w.facts()) != before {
			t.Errorf("learned in %+v what was said in %s", place, at.Session)
		}
	}
	if d.Mini(t.Context(), at, nil) {
		t.Error("topics changed by nothing")
	}
}

// Whoever is told of it is left again, and who may not enter is not asked about.
func TestLearningEntersTheUser(t *testing.T) {
	w := newWorld(t)
	inside, away := 0, false
	d := dream.New(w.store, dream.Config{Model: diligent(), ExtractionTokens: 1, Enter: func(ctx context.Context, user memory.UserID) (context.Context, func(), error) {
		if away || user != w.user {
			return nil, nil, memory.ErrWiped
		}
		inside++
		return ctx, func() { inside-- }, nil
	}})
	at := w.place()
	run := w.say(at, user("one"), answer("yes"))
	away = true
	if err := d.AfterTurn(t.Context(), at); !errors.Is(err, memory.ErrWiped) {
		t.Errorf("the error is %v", err)
	}
	d.Mini(t.Context(), at, run)
	w.wantFacts()
	away = false
	w.afterTurn(d, at)
	d.Mini(t.Context(), at, run)
	w.wantFacts([]string{"one"})
	if inside != 0 {
		t.Errorf("%d were not left", inside)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Exactly once: whatever fails, whoever looks first, and however often the process
// starts anew, each thing that was said up to the last answer is learned once.
func TestEverythingIsLearnedOnce(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		at := w.place()
		failing := false
		model := diligent()
		whole := model.answer
		model.answer = func(ctx context.Context, asked llm.Request) (llm.Response, error) {
			if failing {
				return llm.Response{Text: `{"facts":[{"text":"half`}, nil
			}
			return whole(ctx, asked)
		}
		config := dream.Config{Model: model, ExtractionTokens: rapid.IntRange(1, 40).Draw(r, "due"), ExtractionToolCalls: -1}
		d := dream.New(w.store, config)
		var said []string
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			switch rapid.IntRange(0, 6).Draw(r, "step") {
			case 0, 1:
				text := fmt.Sprint("thing ", len(said))
				said = append(said, text)
				w.say(at, user(text))
			case 2:
				w.say(at, answer("well"))
			case 3:
				failing = rapid.Bool().Draw(r, "failing")
			case 4:
				d = dream.New(w.store, config)
			case 5:
				if err := d.AfterTurn(t.Context(), at); err != nil && !failing {
					r.Fatal(err)
				}
			case 6:
				all := w.all(at)
				first := rapid.IntRange(0, len(all)).Draw(r, "first")
				d.Mini(t.Context(), at, all[first:rapid.IntRange(first, len(all)).Draw(r, "end")])
			}
		}
		failing = false
		w.say(at, answer("bye"))
		w.afterTurn(w.eager(model), at)
		got := slices.Concat(w.facts(at)...)
		slices.Sort(got)
		slices.Sort(said)
		if !slices.Equal(got, said) {
			r.Fatalf("learned %q, want %q", got, said)
		}
	})
}

// A mini-dream, for which a user waits, does not wait until all that is new was
// looked at in the background.
func TestMiniGoesBeforeTheRestOfAnAfterTurn(t *testing.T) {
	w := newWorld(t)
	at := w.place()
	var all []memory.Message
	for i := range 4 {
		all = append(all, w.say(at, user(fmt.Sprint(i, " ")+strings.TrimSpace(strings.Repeat("word ", 6000))), answer("yes"))...)
	}
	model := diligent()
	whole := model.answer
	asked, goOn := make(chan string, 16), make(chan struct{})
	model.answer = func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if !isExtraction(r) {
			return whole(ctx, r)
		}
		asked <- linesOf(r)[0].Text[:1]
		<-goOn
		return whole(ctx, r)
	}
	d := w.eager(model)
	var done sync.WaitGroup
	done.Go(func() { w.afterTurn(d, at) })
	if first := <-asked; first != "0" {
		t.Fatalf("asked about %s first", first)
	}
	waits := make(chan struct{})
	done.Go(func() {
		close(waits)
		d.Mini(t.Context(), at, all[6:])
	})
	<-waits
	for !d.IsWanted(at.Session) {
		runtime.Gosched()
	}
	close(goOn)
	done.Wait()
	close(asked)
	if second, more := <-asked, len(asked); second != "3" || more != 0 {
		t.Errorf("asked about %s next, and %d more", second, more)
	}
}

// AfterTurn and Mini of several Dreamers' goroutines on one session: the model is
// asked about each message once, for one waits for the other.
func TestNobodyIsAskedTwiceAtOnce(t *testing.T) {
	w := newWorld(t)
	model := diligent()
	d := w.eager(model)
	at := w.place()
	var said []string
	var learning sync.WaitGroup
	for i := range 8 {
		text := fmt.Sprint("thing ", i)
		said = append(said, text)
		w.say(at, user(text), answer("yes"))
		all := w.all(at)
		for range 3 {
			learning.Go(func() {
				if err := d.AfterTurn(t.Context(), at); err != nil {
					t.Error(err)
				}
			})
			first := rand.IntN(len(all))
			learning.Go(func() { d.Mini(t.Context(), at, all[first:]) })
		}
	}
	learning.Wait()
	w.say(at, answer("bye"))
	w.afterTurn(d, at)
	got := slices.Concat(w.facts()...)
	slices.Sort(got)
	if !slices.Equal(got, said) {
		t.Errorf("learned %q, want %q", got, said)
	}
	asked := map[string]int{}
	for _, r := range model.requests() {
		for _, l := range linesOf(r) {
			if isExtraction(r) && l.By == "user" {
				asked[l.Text]++
			}
		}
	}
	for text, n := range asked {
		if n != 1 {
			t.Errorf("asked about %q %d times", text, n)
		}
	}
	if c := d.Counts(); c.ExtractionsFailed+c.MiniDreamsFailed > 0 {
		t.Errorf("%+v", c)
	}
}
