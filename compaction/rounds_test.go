package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
)

// asked is a summarizer that is not local.
type asked func(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error)

func (a asked) Summarize(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	return a(ctx, r)
}

// extracts answers as the offline summarizer does.
func extracts(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	return compaction.NewOffline().Summarize(context.WithoutCancel(ctx), r)
}

// gate admits calls when it is open, and tells of each that comes.
type gate struct{ came, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 64), make(chan struct{})} }

func (g gate) admit(ctx context.Context) (func(), error) {
	g.came <- struct{}{}
	select {
	case <-g.open:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *world) dueNow(trigger memory.Trigger, window compaction.Window) {
	w.t.Helper()
	run := memory.PendingRun{User: w.anna, Agent: w.agent, Session: w.session, Trigger: trigger, Exchanges: 5, Budget: window.Budget, System: window.System, At: w.at}
	if err := w.store.PutPendingRun(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

// What somebody waits for does not wait until what nobody waits for is admitted: that
// gives way, of whichever trigger, and is done later.
func TestWhoIsWaitedForPassesTheGate(t *testing.T) {
	window := compaction.Window{Budget: 1000}
	for name, test := range map[string]struct {
		pending memory.Trigger
		run     func(w *world, e *compaction.Engine) (compaction.Report, error)
	}{
		"a gap run, cadence": {memory.TriggerCadence, func(w *world, e *compaction.Engine) (compaction.Report, error) {
			turn := w.turn(w.anna, w.session)
			turn.At = turn.At.Add(time.Hour)
			return e.Gap(w.t.Context(), turn)
		}},
		"a gap run, threshold": {memory.TriggerThreshold, func(w *world, e *compaction.Engine) (compaction.Report, error) {
			turn := w.turn(w.anna, w.session)
			turn.At = turn.At.Add(time.Hour)
			return e.Gap(w.t.Context(), turn)
		}},
		"room for a prompt": {memory.TriggerThreshold, func(w *world, e *compaction.Engine) (compaction.Report, error) {
			return e.Relieve(w.t.Context(), w.turn(w.anna, w.session), window)
		}},
		"by hand": {memory.TriggerCadence, func(w *world, e *compaction.Engine) (compaction.Report, error) {
			return e.Compact(w.t.Context(), w.turn(w.anna, w.session))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exchanges(12)
			w.dueNow(test.pending, window)
			g := newGate()
			// The deadline is longer than the test: nothing here waits for it.
			config := compaction.Config{Interval: 5, Gap: time.Minute, GapDeadline: time.Hour, KeepRecent: 2, Threshold: 0.5, Admit: g.admit}
			engine := compaction.New(w.store, asked(extracts), config, nil, nil)
			defer engine.Close(context.Background())
			engine.Start(compaction.Background{})
			<-g.came
			report, err := test.run(w, engine)
			if err != nil || report.Outcome != memory.OutcomeDone || report.Pending || !report.Sweep.Changed() {
				t.Errorf("%+v, %v", report, err)
			}
			close(g.open)
			if err := engine.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if runs := w.pending(); len(runs) != 0 {
				t.Errorf("pending %+v", runs)
			}
			if c := engine.Counts(); c.Failed != 0 {
				t.Errorf("counts %+v", engine.CountsByTrigger())
			}
			w.checkCoverage()
		})
	}
}

// A gap run that nobody waits for any more is background as any other.
func TestALateGapRunIsAdmitted(t *testing.T) {
	w := newWorld(t)
	w.exchanges(12)
	g := newGate()
	calls := make(chan struct{})
	first := true
	summarizer := asked(func(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
		if first {
			first = false
			calls <- struct{}{}
			<-calls
			return compaction.SummaryResult{Truncated: true}, nil
		}
		return extracts(ctx, r)
	})
	engine := compaction.New(w.store, summarizer, compaction.Config{Gap: time.Minute, GapDeadline: time.Hour, KeepRecent: 2, Admit: g.admit}, nil, nil)
	defer engine.Close(context.Background())
	turn := w.turn(w.anna, w.session)
	turn.At = turn.At.Add(time.Hour)
	ctx, leave := context.WithCancel(t.Context())
	over := make(chan compaction.Report)
	go func() {
		report, _ := engine.Gap(ctx, turn)
		over <- report
	}()
	<-calls
	select {
	case <-g.came:
		t.Error("the first call was waited for, and had to wait to be admitted")
	default:
	}
	leave()
	if report := <-over; !report.Pending {
		t.Errorf("%+v", report)
	}
	calls <- struct{}{}
	<-g.came
	close(g.open)
	if err := engine.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, _, err := engine.Status(t.Context(), w.anna, w.session); err != nil || len(status.Layers) != 1 {
		t.Errorf("%+v, %v", status, err)
	}
}

// A summary that comes as the engine closes was paid for: it is stored, and not asked
// for again.
func TestASummaryThatComesAtTheEndIsStored(t *testing.T) {
	w := newWorld(t)
	w.exchanges(12)
	w.dueNow(memory.TriggerCadence, compaction.Window{})
	config := compaction.Config{Interval: 5, KeepRecent: 2}
	calls := make(chan struct{}, 8)
	engine := compaction.New(w.store, asked(func(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
		calls <- struct{}{}
		<-ctx.Done()
		return extracts(ctx, r)
	}), config, nil, nil)
	engine.Start(compaction.Background{})
	<-calls
	if err := engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, _, err := engine.Status(t.Context(), w.anna, w.session)
	if err != nil || len(status.Layers) != 1 || len(calls) != 0 {
		t.Errorf("%+v, %d more calls, %v", status, len(calls), err)
	}
	next := compaction.New(w.store, asked(func(context.Context, compaction.SummaryRequest) (compaction.SummaryResult, error) {
		t.Error("it is asked for again")
		return compaction.SummaryResult{}, errors.ErrUnsupported
	}), config, nil, nil)
	defer next.Close(context.Background())
	w.resume(next)
	if runs := w.pending(); len(runs) != 0 {
		t.Errorf("pending %+v", runs)
	}
	w.checkCoverage()
}

// Runs begin by turns of the users, one of each at a time, however many workers there
// are and whoever has most; and one that becomes due while it goes on is due again.
func TestRunsTakeTurns(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			w := newWorld(t)
			var users []memory.UserID
			due := map[memory.UserID]int{}
			for i, sessions := range []int{9, 1, 3, 3, 2} {
				user := memory.NewID[memory.UserID]()
				if err := w.store.PutUser(t.Context(), memory.User{ID: user, Name: fmt.Sprint("turn", i), CreatedAt: monday}); err != nil {
					t.Fatal(err)
				}
				users = append(users, user)
				for n := range sessions {
					run := memory.PendingRun{User: user, Agent: w.agent, Session: w.talk(user, 8), Trigger: memory.TriggerCadence, Exchanges: 5, At: monday.Add(-time.Duration(n) * time.Minute)}
					if err := w.store.PutPendingRun(t.Context(), run); err != nil {
						t.Fatal(err)
					}
					due[user]++
				}
			}
			var order []compaction.Turn
			begun := make(chan compaction.Turn)
			release := make(chan struct{})
			engine := compaction.New(w.store, asked(func(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
				<-release
				return extracts(ctx, r)
			}), compaction.Config{Interval: 5, KeepRecent: 2, Workers: workers}, nil, nil)
			defer engine.Close(context.Background())
			going, most := map[memory.UserID]bool{}, 0
			ended := make(chan compaction.Turn)
			engine.Start(compaction.Background{Begin: func(ctx context.Context, turn compaction.Turn, _ memory.Trigger) (context.Context, func(compaction.Report, error)) {
				begun <- turn
				return ctx, func(compaction.Report, error) { ended <- turn }
			}})
			for had := map[memory.UserID]int{}; len(order) < 18; {
				select {
				case turn := <-begun:
					if order = append(order, turn); going[turn.User] {
						t.Errorf("a user has two runs at once")
					}
					going[turn.User] = true
					most = max(most, len(going))
					had[turn.User]++
					// Whoever is further behind has a run going on that was not told of
					// yet.
					behind := 0
					for _, other := range users {
						if had[other] < due[other] && had[turn.User] > had[other]+1 {
							behind++
						}
					}
					if behind >= workers {
						t.Errorf("%d users are behind one who has %d turns: %v of %v", behind, had[turn.User], had, due)
					}
				case turn := <-ended:
					delete(going, turn.User)
				case release <- struct{}{}:
				}
			}
			close(release)
			for len(going) > 0 {
				delete(going, (<-ended).User)
			}
			if err := engine.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if most > workers || len(w.pending()) != 0 {
				t.Errorf("%d at once, %d pending", most, len(w.pending()))
			}
		})
	}
}

// A store that cannot say that a run is over is not asked again and again: the run is
// left until something else becomes due.
func TestARunWhoseEndIsNotStored(t *testing.T) {
	w := newWorld(t)
	w.exchanges(12)
	w.dueNow(memory.TriggerCadence, compaction.Window{})
	faulty := crashtest.Faulty(w.store, crashtest.Plan{Method: "EndPendingRun", Write: 1, Times: 1 << 30, Fault: crashtest.Lost})
	hand := says("calendar", "an event")
	engine := compaction.New(faulty, compaction.NewOffline(), compaction.Config{Interval: 5, KeepRecent: 2, ContextTokenCap: 1000}, func(memory.UserID) []compaction.Source { return []compaction.Source{hand} }, nil)
	defer engine.Close(context.Background())
	w.resume(engine)
	if n := faulty.Writes(); n == 0 || n > 2 {
		t.Errorf("tried %d times", n)
	}
	faulty.Heal()
	engine.Wake()
	if err := engine.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.pending()) != 0 || len(hand.questions()) != 1 || w.refreshes(w.anna, w.session) != 1 {
		t.Errorf("pending %+v, asked %d times", w.pending(), len(hand.questions()))
	}
}
