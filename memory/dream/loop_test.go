package dream_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// M9
func TestTickDreamsOfWhatHasRested(t *testing.T) {
	for _, test := range []struct {
		name string
		talk func(*house)
		rest time.Duration
		want int
	}{
		{"a user, and rest", func(h *house) { h.talk(h.user, "I live in Lisbon.") }, 5*time.Minute + time.Second, 1},
		{"a user without an answer", func(h *house) { h.append(h.talk(h.user), memory.RoleUser, memory.SourceUser, "Hello?") }, time.Hour, 1},
		{"no rest", func(h *house) { h.talk(h.user, "I live in Lisbon.") }, 5*time.Minute - time.Second, 0},
		{"nothing said", func(h *house) { h.talk(h.user) }, time.Hour, 0},
		{"the assistant alone", func(h *house) {
			h.append(h.talk(h.user), memory.RoleAssistant, memory.SourceAssistant, "Hello.")
		}, time.Hour, 0},
		{"ticks", func(h *house) {
			at := h.talk(h.user)
			h.append(at, memory.RoleUser, memory.SourceScheduledTick, "Time to sum up.")
			h.append(at, memory.RoleUser, memory.SourceAutonomousTick, "Time to act.")
			h.append(at, memory.RoleAssistant, memory.SourceAssistant, "Done.")
		}, time.Hour, 0},
		{"other sessions", func(h *house) {
			at := h.talk(h.user)
			h.append(at, memory.RoleUser, memory.SourceInterSession, "From next door.")
			h.append(at, memory.RoleUser, memory.SourceTaskCompletion, "The task is done.")
			h.append(at, memory.RoleUser, memory.SourceRetry, "Again.")
		}, time.Hour, 0},
		{"injections", func(h *house) {
			source, err := boundary.HandSource("calendar")
			h.check(err)
			text, _ := boundary.Wrap(source, "The user lives in Lisbon.", boundary.Unlimited)
			_, err = h.store.Inject(h.t.Context(), h.user, h.talk(h.user).Session, memory.Injection{At: h.now(), Blocks: []boundary.Content{text}})
			h.check(err)
		}, time.Hour, 0},
		{"another agent, which has no such memory", func(h *house) {
			clerk, err := h.store.PutAgent(h.t.Context(), "clerk", "", noon)
			h.check(err)
			s, err := h.store.CreateSession(h.t.Context(), memory.Session{Agent: clerk.ID, User: h.user, CreatedAt: h.now()})
			h.check(err)
			h.goOn(dream.Place{User: h.user, Agent: clerk.ID, Session: s.ID}, "I live in Lisbon.")
		}, time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHouse(t)
			test.talk(h)
			h.wait(test.rest)
			model := attentive()
			d := h.dreamer(model)
			for range 3 {
				h.check(d.Tick(t.Context()))
				h.wait(30 * time.Second)
				if test.want == 0 {
					break
				}
			}
			if got := len(model.requests()); got != test.want || d.Counts().Dreams != test.want {
				t.Errorf("the model was asked %d times, want %d; counts are %+v", got, test.want, d.Counts())
			}
		})
	}
}

// M9, M1: turned off, nothing is even read.
func TestTickTurnedOff(t *testing.T) {
	h := newHouse(t)
	h.talk(h.user, "I live in Lisbon.")
	h.wait(time.Hour)
	for name, change := range map[string]func(*dream.Config){
		"no gap":    func(c *dream.Config) { c.Gap = 0 },
		"no model":  func(c *dream.Config) { c.Model = nil },
		"no agent":  func(c *dream.Config) { c.Agents = func() []memory.AgentID { return nil } },
		"no agents": func(c *dream.Config) { c.Agents = nil },
	} {
		// A store of nothing, of which every method panics.
		config := dream.Config{Model: attentive(), Gap: time.Minute, Now: h.now, Agents: func() []memory.AgentID { return []memory.AgentID{h.agent} }}
		change(&config)
		if err := dream.New(nil, config).Tick(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// M9: a dream that outlasts the gap is not begun twice, and holds nobody else.
func TestTickWhileADreamGoesOn(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	h.wait(time.Hour)
	model := newWaiting()
	d := h.dreamer(model)
	ticked := make(chan error)
	go func() { ticked <- d.Tick(t.Context()) }()
	<-model.asked
	h.goOn(at, "I have a dog.")
	h.wait(time.Hour)
	h.check(d.Tick(t.Context()))
	if c := d.Counts(); c != (dream.Counts{}) {
		t.Errorf("counts are %+v", c)
	}
	model.answers <- rows(row{Topic: "home", Content: "Lives in Lisbon.", From: []string{"m1"}})
	// What was said meanwhile is for the next one.
	if r := <-model.asked; strings.Count(promptText(r), `"by":"user"`) != 1 || !strings.Contains(promptText(r), "I have a dog.") {
		t.Errorf("the prompt is %s", promptText(r))
	}
	h.remembers(h.user, "home: Lives in Lisbon.")
	model.answers <- `{"topics":[]}`
	h.check(<-ticked)
}

// A session whose dreams fail is left alone for 1, 2, 4 … 60 minutes, and holds up
// no other.
func TestTickBacksOff(t *testing.T) {
	h := newHouse(t)
	h.talk(h.user, "I live in Lisbon.")
	var fails atomic.Bool
	fails.Store(true)
	var asked []time.Duration
	h.wait(time.Hour)
	begun := h.now()
	well := attentive()
	model := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if strings.Contains(promptText(r), "Porto") || !fails.Load() {
			return well.answer(ctx, r)
		}
		asked = append(asked, h.now().Sub(begun))
		return llm.Response{}, llm.ErrUnavailable
	}}
	d := h.dreamer(model)
	for range 2 * 60 * 4 {
		h.check(d.Tick(t.Context()))
		h.wait(30 * time.Second)
	}
	want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183}
	for i := range want {
		want[i] *= time.Minute
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked after %v, want %v", asked, want)
	}
	other := h.person("other")
	h.talk(other, "I live in Porto.")
	h.wait(6 * time.Minute)
	h.check(d.Tick(t.Context()))
	h.remembers(other, "said: I live in Porto.")
	h.remembers(h.user)
	fails.Store(false)
	h.wait(time.Hour)
	h.check(d.Tick(t.Context()))
	h.remembers(h.user, "said: I live in Lisbon.")
}

// Sessions that rest after a failure do not keep out those that are due behind
// them.
func TestTickPassesThoseThatRest(t *testing.T) {
	h := newHouse(t)
	for i := range 70 {
		h.talk(h.person(fmt.Sprintf("broken-%d", i)), "broken")
	}
	h.wait(time.Minute)
	last := h.person("last")
	h.talk(last, "I live in Lisbon.")
	h.wait(time.Hour)
	well := attentive()
	d := h.dreamer(&scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if strings.Contains(promptText(r), "broken") {
			return llm.Response{Text: "no"}, nil
		}
		return well.answer(ctx, r)
	}})
	for range 2 {
		h.check(d.Tick(t.Context()))
	}
	h.remembers(last, "said: I live in Lisbon.")
}

// Close ends what goes on and waits for it; after that nothing begins.
func TestCloseEndsDreams(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	h.wait(time.Hour)
	model := newWaiting()
	d := h.dreamer(model)
	ticked := make(chan error, 1)
	go func() { ticked <- d.Tick(t.Context()) }()
	<-model.asked
	h.check(d.Close(t.Context()))
	if err := <-ticked; !errors.Is(err, context.Canceled) {
		t.Errorf("the tick ended with %v", err)
	}
	h.check(d.Close(t.Context()))
	if _, err := d.Dream(t.Context(), at); !errors.Is(err, dream.ErrClosed) {
		t.Errorf("a dream after that: %v", err)
	}
	if err := d.Tick(t.Context()); !errors.Is(err, dream.ErrClosed) {
		t.Errorf("a tick after that: %v", err)
	}
	h.remembers(h.user)
	if unseen, err := h.store.Unseen(t.Context(), h.user, at.Session); err != nil || unseen.UserMessages != 1 {
		t.Errorf("unseen is %+v, %v", unseen, err)
	}
}

// Close does not wait longer than it may.
func TestCloseGivesUp(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	begun, release := make(chan struct{}), make(chan struct{})
	d := h.dreamer(attentive(), func(c *dream.Config) {
		c.Enter = func(ctx context.Context, _ memory.UserID) (context.Context, func(), error) {
			close(begun)
			<-release
			return ctx, func() {}, nil
		}
	})
	ended := make(chan struct{})
	go func() { d.Dream(context.Background(), at); close(ended) }()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	close(release)
	<-ended
	h.check(d.Close(t.Context()))
}

// 200 pairs through two workers: never more at once, each learns its own, and all
// of them do.
func TestTickIsBoundedAndApart(t *testing.T) {
	h := newHouse(t)
	const pairs = 200
	users := make([]memory.UserID, pairs)
	for i := range users {
		users[i] = h.person(fmt.Sprintf("user-%d", i))
		h.talk(users[i], fmt.Sprintf("My number is <%d>.", i))
		h.wait(time.Millisecond)
	}
	h.wait(time.Hour)
	var mu sync.Mutex
	now, most := 0, 0
	both := make(chan struct{})
	well := attentive()
	model := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		mu.Lock()
		if now++; now == 2 && most < 2 {
			close(both)
		}
		most = max(most, now)
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			now--
		}()
		// The first waits for a second, which has to come.
		select {
		case <-both:
		case <-ctx.Done():
		}
		return well.answer(ctx, r)
	}}
	d := h.dreamer(model, func(c *dream.Config) { c.Workers = 2 })
	for range 4 {
		h.check(d.Tick(t.Context()))
	}
	if most != 2 {
		t.Errorf("%d dreams went on at once, want 2", most)
	}
	if n := len(model.requests()); n != pairs || d.Counts().Dreams != pairs {
		t.Errorf("the model was asked %d times, want %d; counts are %+v", n, pairs, d.Counts())
	}
	for _, r := range model.requests() {
		if strings.Count(promptText(r), "My number is <") != 1 {
			t.Errorf("a prompt is not of one user: %s", promptText(r))
		}
	}
	for i, user := range users {
		h.remembers(user, fmt.Sprintf("said: My number is <%d>.", i))
	}
}

// Users have turns, each with what has rested longest.
func TestTickGoesRoundTheUsers(t *testing.T) {
	h := newHouse(t)
	a, b := h.person("a"), h.person("b")
	for i, user := range []memory.UserID{a, a, a, b, b} {
		h.talk(user, fmt.Sprintf("Number %d.", i))
		h.wait(time.Minute)
	}
	h.wait(time.Hour)
	model := attentive()
	h.check(h.dreamer(model, func(c *dream.Config) { c.Workers = 1 }).Tick(t.Context()))
	var order []string
	for _, r := range model.requests() {
		for _, l := range linesOf(r) {
			if l.By == "user" {
				order = append(order, l.Text)
			}
		}
	}
	if want := []string{"Number 0.", "Number 3.", "Number 1.", "Number 4.", "Number 2."}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}

// The topics of a user are the same with every agent: two dreams at once would be in
// each other's way, and what the second one paid for be lost.
func TestTickOfOneUserWithTwoAgents(t *testing.T) {
	h := newHouse(t)
	h.talk(h.user, "I live in Lisbon.")
	first := h.agent
	second, err := h.store.PutAgent(t.Context(), "other", "", noon)
	h.check(err)
	h.agent = second.ID
	h.talk(h.user, "I have a dog.")
	model := attentive()
	says := model.answer
	var asked atomic.Int32
	model.answer = func(ctx context.Context, r llm.Request) (llm.Response, error) {
		defer asked.Add(-1)
		asked.Add(1)
		// Room for the other one to read the same topics, and to ask.
		for range 50_000 {
			if runtime.Gosched(); asked.Load() > 1 {
				t.Error("two are asked at once for one user")
				break
			}
		}
		return says(ctx, r)
	}
	d := h.dreamer(model, func(c *dream.Config) {
		c.Agents = func() []memory.AgentID { return []memory.AgentID{first, second.ID} }
	})
	h.wait(time.Hour)
	h.check(d.Tick(t.Context()))
	if want := (dream.Counts{Dreams: 2}); d.Counts() != want || len(model.requests()) != 2 {
		t.Errorf("counts are %+v, want %+v; the model was asked %d times", d.Counts(), want, len(model.requests()))
	}
	h.remembers(h.user, "said: I live in Lisbon.", "said: I have a dog.")
}

// A mini-dream, which a user waits for, does not wait until what nobody waits for is
// admitted: an extraction gives way, and a dream leaves the pair's topics for later.
func TestAMiniDreamPassesTheGate(t *testing.T) {
	for name, begin := range map[string]func(*dream.Dreamer, context.Context, dream.Place) error{
		"an extraction waits": (*dream.Dreamer).AfterTurn,
		"a dream waits":       func(d *dream.Dreamer, ctx context.Context, _ dream.Place) error { return d.Tick(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			at := h.talk(h.user, "I live in Lisbon.", "I have a dog.")
			h.wait(time.Hour)
			came, open := make(chan struct{}, 8), make(chan struct{})
			model := attentive()
			d := h.dreamer(model, func(c *dream.Config) {
				c.ExtractionTokens = 1
				c.MiniTimeout = time.Hour // longer than the test
				c.Admit = func(ctx context.Context) (func(), error) {
					came <- struct{}{}
					select {
					case <-open:
						return func() {}, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
			})
			ended := make(chan error, 1)
			go func() { ended <- begin(d, t.Context(), at) }()
			<-came
			leaving, err := h.store.Messages(t.Context(), h.user, at.Session, memory.MessageQuery{})
			h.check(err)
			d.Mini(t.Context(), at, leaving)
			if c := d.Counts(); c.MiniDreams != 1 || c.MiniDreamsFailed != 0 || c.Extractions != 1 {
				t.Errorf("counts are %+v", c)
			}
			close(open)
			h.check(<-ended)
			h.check(d.Tick(t.Context()))
			h.wait(time.Hour)
			h.check(d.Tick(t.Context()))
			h.remembers(h.user, "said: I live in Lisbon.", "said: I have a dog.")
			if c := d.Counts(); c.ExtractionsFailed != 0 {
				t.Errorf("counts are %+v", c)
			}
		})
	}
}

// What the model answered as the Dreamer closed was paid for: it is stored.
func TestAnAnswerAtTheEndIsStored(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	h.wait(time.Hour)
	well, asked := attentive(), make(chan struct{}, 8)
	late := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return well.answer(ctx, r)
	}}
	d := h.dreamer(late)
	ended := make(chan error, 1)
	go func() { ended <- d.Tick(t.Context()) }()
	<-asked
	h.check(d.Close(t.Context()))
	<-ended
	h.remembers(h.user, "said: I live in Lisbon.")

	h.goOn(at, "I have a dog.")
	d = h.dreamer(late, func(c *dream.Config) { c.ExtractionTokens = 1 })
	go func() { ended <- d.AfterTurn(t.Context(), at) }()
	<-asked
	h.check(d.Close(t.Context()))
	<-ended
	if unseen, err := h.store.Unseen(t.Context(), h.user, at.Session); err != nil || unseen.Messages != 0 {
		t.Errorf("unseen is %+v, %v", unseen, err)
	}
}

// A model that answers nobody is asked a few times in a tick, and again in the next.
func TestTickEndsWhenTheModelAnswersNobody(t *testing.T) {
	h := newHouse(t)
	for i := range 20 {
		h.talk(h.person(fmt.Sprintf("user-%d", i)), "I live in Lisbon.")
	}
	h.wait(time.Hour)
	var down atomic.Bool
	down.Store(true)
	well := attentive()
	model := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if down.Load() {
			return llm.Response{}, llm.ErrUnavailable
		}
		return well.answer(ctx, r)
	}}
	d := h.dreamer(model, func(c *dream.Config) { c.Workers = 1 })
	for ticks := range 2 {
		h.check(d.Tick(t.Context()))
		if n := len(model.requests()); n != 5*(ticks+1) {
			t.Errorf("asked %d times in %d ticks", n, ticks+1)
		}
	}
	down.Store(false)
	h.wait(time.Hour)
	h.check(d.Tick(t.Context()))
	if c := d.Counts(); c.Dreams != 20 || c.DreamsFailed != 10 {
		t.Errorf("counts are %+v", c)
	}
}
