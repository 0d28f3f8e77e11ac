package compaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

func (w *world) put(role memory.Role, source memory.Source, blocks ...memory.Block) {
	w.t.Helper()
	w.at = w.at.Add(30 * time.Second)
	if _, err := w.store.Append(w.t.Context(), w.anna, w.session, memory.Draft{Role: role, Source: source, Blocks: blocks, At: w.at}); err != nil {
		w.t.Fatal(err)
	}
}

func wrapped(t testing.TB, text string) boundary.Content {
	t.Helper()
	source, err := boundary.HandSource("calendar")
	if err != nil {
		t.Fatal(err)
	}
	content, _ := boundary.Wrap(source, text, boundary.Unlimited)
	return content
}

// hangs is a source that never answers; asked tells that it was asked.
func hangs(name string, asked chan<- struct{}) *source {
	return &source{name: name, answer: func(ctx context.Context, _ compaction.Question) (string, error) {
		if asked != nil {
			asked <- struct{}{}
		}
		<-ctx.Done()
		return "", ctx.Err()
	}}
}

// C2: only a turn that completes an exchange counts; a tick at a multiple of the
// interval asks nobody again.
func TestTicksDoNotFireCadence(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "an event")
	engine := w.engine(compaction.Config{Interval: 5, ContextTokenCap: 1000}, hand)
	w.exchanges(5)
	if report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeDone {
		t.Fatalf("%+v, %v", report, err)
	}
	for range 3 {
		w.say(memory.RoleUser, memory.SourceScheduledTick)
		w.say(memory.RoleAssistant, memory.SourceAssistant)
		turn := w.turn(w.anna, w.session)
		turn.Source, turn.Exchanges = memory.SourceScheduledTick, 0
		if report, err := engine.Cadence(t.Context(), turn); err != nil || report.Reason != compaction.ReasonNotDue {
			t.Errorf("%+v, %v", report, err)
		}
	}
	if len(hand.questions()) != 1 {
		t.Errorf("the hand was asked %d times", len(hand.questions()))
	}
}

// C13: a run that is too small to save anything is passed over, not the end of
// all compaction.
func TestASmallOldestRunIsPassedOver(t *testing.T) {
	t.Run("before a huge message", func(t *testing.T) {
		w := newWorld(t)
		engine := w.engine(compaction.Config{Interval: 1})
		w.put(memory.RoleUser, memory.SourceUser, memory.Text("hi"))
		w.put(memory.RoleAssistant, memory.SourceAssistant, memory.Text(strings.Repeat("The log says a value that differs.\n", 6000)))
		w.exchanges(10)
		report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
		if err != nil || !report.Sweep.Changed() || report.Sweep.TokensAfter > 5000 {
			t.Errorf("%+v, %v", report, err)
		}
	})
	t.Run("before a refresh that stays", func(t *testing.T) {
		w := newWorld(t)
		engine := w.engine(compaction.Config{Interval: 5})
		w.put(memory.RoleUser, memory.SourceUser, memory.Text("Hi."))
		w.put(memory.RoleAssistant, memory.SourceAssistant, memory.Text("Hello! How can I help?"))
		if _, err := w.store.Inject(t.Context(), w.anna, w.session, memory.Injection{At: w.at, Blocks: []boundary.Content{wrapped(t, "an event")}}); err != nil {
			t.Fatal(err)
		}
		w.exchanges(9)
		report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
		if err != nil || !report.Sweep.Changed() || report.Sweep.Stopped == "" {
			t.Errorf("%+v, %v", report, err)
		}
		runs, err := w.store.Compactions(t.Context(), w.anna, w.session, 0)
		if err != nil || len(runs) != 1 || runs[0].Reason != report.Sweep.Stopped {
			t.Errorf("the record %+v does not say why the sweep ended, %v", runs, err)
		}
	})
}

// C3: a user who comes back to a new session was active before, however many
// ticks have had sessions since.
func TestTickSessionsDoNotHideTheUser(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "an event")
	engine := w.engine(compaction.Config{Gap: 900 * time.Second, ContextTokenCap: 1000}, hand)
	w.exchanges(3)
	for range 30 {
		w.at = w.at.Add(30 * time.Minute)
		w.session = w.newSession(w.anna)
		w.say(memory.RoleUser, memory.SourceScheduledTick)
	}
	w.at = w.at.Add(30 * time.Minute)
	w.session = w.newSession(w.anna)
	if report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeDone || len(hand.questions()) != 1 {
		t.Errorf("%+v, %v, asked %d times", report, err, len(hand.questions()))
	}
}

// A caller who gives up while sources are asked leaves no refresh behind: the
// next attempt would add another.
func TestACallerWhoHasGoneGetsNoRefresh(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{}, 1)
	engine := w.engine(compaction.Config{Gap: 900 * time.Second, ContextTokenCap: 1000}, says("calendar", "an event"), hangs("mail", asked))
	w.exchanges(2)
	w.at = w.at.Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if report, err := engine.Gap(ctx, w.turn(w.anna, w.session)); !errors.Is(err, context.Canceled) || report.Refresh.Message != nil {
		t.Errorf("%+v, %v", report, err)
	}
	for _, m := range w.messages(w.anna, w.session) {
		if m.IsRefresh() {
			t.Error("a refresh was stored")
		}
	}
}

// C14: what stands between a tool's call and its result does not part them, nor
// does the role that the result's message has.
func TestToolPairsAreKeptTogether(t *testing.T) {
	for name, role := range map[string]memory.Role{"tool": memory.RoleTool, "user": memory.RoleUser} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			engine := w.engine(compaction.Config{Interval: 1, KeepRecent: 3})
			w.exchanges(6)
			w.put(memory.RoleUser, memory.SourceUser, memory.Text("look"))
			w.put(memory.RoleAssistant, memory.SourceAssistant, memory.ToolCall("c1", "grep", json.RawMessage(`{}`)))
			if _, err := w.store.Inject(t.Context(), w.anna, w.session, memory.Injection{At: w.at, Blocks: []boundary.Content{wrapped(t, "an event")}}); err != nil {
				t.Fatal(err)
			}
			w.put(role, memory.SourceTool, memory.ToolResult("c1", "grep", wrapped(t, "a result"), false))
			w.put(memory.RoleAssistant, memory.SourceAssistant, memory.Text("done"))
			w.put(memory.RoleUser, memory.SourceUser, memory.Text("ok"))
			turn := w.turn(w.anna, w.session)
			turn.Exchanges = 1
			if report, err := engine.Cadence(t.Context(), turn); err != nil || !report.Sweep.Changed() {
				t.Fatalf("%+v, %v", report, err)
			}
			frontier, err := w.store.Frontier(t.Context(), w.anna, w.session)
			if err != nil {
				t.Fatal(err)
			}
			found := map[memory.BlockType]bool{}
			for _, item := range frontier.Items {
				if item.Message != nil {
					for _, b := range item.Message.Blocks {
						found[b.Type] = true
					}
				}
			}
			if !found[memory.BlockToolCall] || !found[memory.BlockToolResult] {
				t.Errorf("in the frontier are %v", found)
			}
		})
	}
}

// panics is a summarizer with a bug.
type panics struct{}

func (panics) Summarize(context.Context, compaction.SummaryRequest) (compaction.SummaryResult, error) {
	panic("boom")
}

func TestASummarizerThatPanicsCostsItsSummary(t *testing.T) {
	w := newWorld(t)
	w.exchanges(10)
	engine := compaction.New(w.store, panics{}, compaction.Config{Interval: 10}, nil, nil)
	t.Cleanup(func() { engine.Close(context.Background()) })
	report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
	if err != nil || !report.Sweep.Changed() || report.Sweep.Summaries[0].Level != memory.LevelFallback {
		t.Errorf("%+v, %v", report, err)
	}
}

// A refresh from the background waits until the session is between two turns.
func TestARefreshWaitsForTheTurn(t *testing.T) {
	w := newWorld(t)
	engine := w.engine(compaction.Config{Interval: 5, ContextTokenCap: 1000}, says("calendar", "an event"))
	w.exchanges(5)
	turn := w.turn(w.anna, w.session)
	between := false
	turn.Between = func(context.Context) (func(), error) {
		// The turn that goes on ends only now.
		w.say(memory.RoleUser, memory.SourceUser)
		w.say(memory.RoleAssistant, memory.SourceAssistant)
		between = true
		return func() {}, nil
	}
	report, err := engine.Cadence(t.Context(), turn)
	if err != nil || !between || report.Refresh.Message == nil {
		t.Fatalf("%+v, %v", report, err)
	}
	messages := w.messages(w.anna, w.session)
	if last := messages[len(messages)-1]; last.ID != report.Refresh.Message.ID {
		t.Errorf("the last message is %s, not the refresh", last.Source)
	}
}

// Close may be called beside triggers and by many; nothing begins after it.
func TestCloseBesideTriggers(t *testing.T) {
	w := newWorld(t)
	w.exchanges(6)
	turn := w.turn(w.anna, w.session)
	turn.At = w.at.Add(time.Hour)
	for range 20 {
		engine := w.engine(compaction.Config{Gap: time.Second, ContextTokenCap: 1000}, says("calendar", ""), says("mail", ""))
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 5 {
					if _, err := engine.Gap(t.Context(), turn); err != nil && !errors.Is(err, compaction.ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			})
			group.Go(func() {
				if err := engine.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if _, err := engine.Gap(t.Context(), turn); !errors.Is(err, compaction.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestGroup(t *testing.T) {
	var g compaction.Group
	if err := g.Wait(t.Context()); err != nil {
		t.Errorf("nothing goes on: %v", err)
	}
	end, err := g.Begin()
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is given up: %v", err)
	}
	g.Close()
	if _, err := g.Begin(); !errors.Is(err, compaction.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := g.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	end()
	group.Wait()
}

// However many there are of them, all may wait for each other: nobody's turn comes only
// when somebody else is done. Who waits for the group waits for each of them.
func TestEachLetsAllWait(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 64, 1000} {
		var here, counted sync.WaitGroup
		here.Add(n)
		counted.Add(n)
		callEach(t, n, func(g *compaction.Group, i int) {
			here.Done()
			here.Wait()
			if active := g.Active(); active < n {
				t.Errorf("%d of %d are counted", active, n)
			}
			counted.Done()
			counted.Wait()
		})
	}
}

// A call that ends its goroutine is over: nobody waits for it, nor for those that were to
// come after it there.
func TestEachEndsWithItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 64, 1000} {
			callEach(t, n, func(_ *compaction.Group, i int) {
				if i%3 != 1 {
					runtime.Goexit()
				}
			})
		}
	})
}

// callEach has a group of its own call do n times, and holds that each call was made once
// and none goes on.
func callEach(t *testing.T, n int, do func(g *compaction.Group, i int)) {
	t.Helper()
	var g compaction.Group
	called := make([]atomic.Int32, n)
	<-g.Each(n, func(i int) {
		called[i].Add(1)
		do(&g, i)
	})
	for i := range called {
		if times := called[i].Load(); times != 1 {
			t.Errorf("%d of %d was called %d times", i, n, times)
		}
	}
	if err := g.Wait(t.Context()); err != nil || g.Active() != 0 {
		t.Errorf("%d of %d go on: %v", g.Active(), n, err)
	}
}

// What does not wait begins few goroutines.
func TestEachBeginsFewGoroutines(t *testing.T) {
	const n = 10_000
	before, most := runtime.NumGoroutine(), atomic.Int64{}
	var g compaction.Group
	<-g.Each(n, func(int) {
		if now := int64(runtime.NumGoroutine()); now > most.Load() {
			most.Store(now)
		}
	})
	if begun := int(most.Load()) - before; begun > n/10 {
		t.Errorf("%d goroutines at once for %d calls that do not wait, on %d processors", begun, n, runtime.GOMAXPROCS(0))
	}
}
