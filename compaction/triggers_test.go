package compaction_test

import (
	"context"
	"errors"
	"fmt"
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

// held is a summarizer that tells when it is asked, and then waits to be told or
// given up.
type held struct{ asked, release chan struct{} }

func newHeld() held { return held{make(chan struct{}, 64), make(chan struct{})} }

func (h held) Summarize(ctx context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	h.asked <- struct{}{}
	select {
	case <-h.release:
		return compaction.NewOffline().Summarize(ctx, r)
	case <-ctx.Done():
		return compaction.SummaryResult{}, ctx.Err()
	}
}

func (w *world) pending() []memory.PendingRun {
	w.t.Helper()
	runs, err := w.store.PendingRuns(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return runs
}

func (w *world) refreshes(user memory.UserID, session memory.SessionID) (n int) {
	w.t.Helper()
	for _, m := range w.messages(user, session) {
		if m.IsRefresh() {
			n++
		}
	}
	return n
}

// record counts the rows of the session's record by outcome.
func (w *world) record(user memory.UserID, session memory.SessionID) map[memory.Outcome]int {
	w.t.Helper()
	runs, err := w.store.Compactions(w.t.Context(), user, session, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	outcomes := map[memory.Outcome]int{}
	for _, r := range runs {
		outcomes[r.Outcome]++
	}
	return outcomes
}

func (w *world) resume(engine *compaction.Engine) {
	w.t.Helper()
	engine.Start(compaction.Background{})
	if err := engine.Idle(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// What closing ends is resumed, from where it stopped, once, and recorded once.
func TestACadenceRunIsResumed(t *testing.T) {
	config := compaction.Config{Interval: 5, ContextTokenCap: 1000}
	for name, stuckSource := range map[string]bool{"while a source is asked": true, "while it summarises": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			asked := make(chan struct{}, 1)
			var first compaction.Source = says("calendar", "an event")
			if stuckSource {
				first = hangs("calendar", asked)
			}
			summarizer := newHeld()
			engine := compaction.New(w.store, summarizer, config, func(memory.UserID) []compaction.Source { return []compaction.Source{first} }, nil)
			w.exchanges(5)
			turn := w.turn(w.anna, w.session)
			ended := make(chan error, 1)
			go func() {
				_, err := engine.Cadence(t.Context(), turn)
				ended <- err
			}()
			select {
			case <-asked:
			case <-summarizer.asked:
			}
			if runs := w.pending(); len(runs) != 1 || runs[0].Session != w.session || runs[0].Exchanges != 5 || runs[0].Trigger != memory.TriggerCadence || !runs[0].At.Equal(turn.At) {
				t.Errorf("begun are %+v", runs)
			}
			if err := engine.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a run that was ended: %v", err)
			}
			if runs := w.pending(); len(runs) != 1 || len(w.record(w.anna, w.session)) != 0 || engine.Counts() != (compaction.Counts{}) {
				t.Errorf("after closing, begun are %+v, record %v, counts %+v", runs, w.record(w.anna, w.session), engine.Counts())
			}

			hand := says("calendar", "an event")
			next := w.engine(config, hand)
			w.resume(next)
			w.resume(next)
			if got := len(hand.questions()); got != map[bool]int{true: 1, false: 0}[stuckSource] {
				t.Errorf("the hand was asked %d more times", got)
			}
			if n := w.refreshes(w.anna, w.session); n != 1 {
				t.Errorf("%d refreshes", n)
			}
			status, _, err := next.Status(t.Context(), w.anna, w.session)
			if err != nil || len(status.Layers) != 1 || status.Debt.Messages != 0 {
				t.Errorf("status %+v, %v", status, err)
			}
			if got := w.record(w.anna, w.session); got[memory.OutcomeDone] != 1 || len(got) != 1 || len(w.pending()) != 0 {
				t.Errorf("record %v, begun %+v", got, w.pending())
			}
			if got := next.CountsByTrigger(); got[memory.TriggerCadence] != (compaction.Counts{Fired: 1}) || len(got) != 1 || next.Counts() != (compaction.Counts{Fired: 1}) {
				t.Errorf("counts %+v", got)
			}
			w.checkCoverage()
			w.resume(w.engine(config, hand))
			if got := w.record(w.anna, w.session); got[memory.OutcomeDone] != 1 {
				t.Errorf("the run was resumed again: %v", got)
			}
		})
	}
}

// noInjection is a store that takes no refresh.
type noInjection struct{ memory.Store }

var errNoInjection = errors.New("the disk is full")

func (noInjection) Inject(context.Context, memory.UserID, memory.SessionID, memory.Injection) (memory.Message, error) {
	return memory.Message{}, errNoInjection
}

// A run that failed for good, and one that was skipped, is over: nothing is left
// to resume, whether it was resumed itself or not.
func TestARunThatFailsIsOver(t *testing.T) {
	config := compaction.Config{Interval: 5, ContextTokenCap: 1000}
	w := newWorld(t)
	w.exchanges(5)
	turn := w.turn(w.anna, w.session)
	engine := compaction.New(noInjection{w.store}, compaction.NewOffline(), config, func(memory.UserID) []compaction.Source { return []compaction.Source{says("calendar", "an event")} }, nil)
	defer engine.Close(context.Background())
	if _, err := engine.Cadence(t.Context(), turn); !errors.Is(err, errNoInjection) {
		t.Fatalf("%v", err)
	}
	if runs := w.pending(); len(runs) != 0 || engine.CountsByTrigger()[memory.TriggerCadence] != (compaction.Counts{Failed: 1}) {
		t.Errorf("begun are %+v, counts %+v", runs, engine.CountsByTrigger())
	}
	w.exchanges(5)
	ticks := w.newSession(w.bert)
	for _, run := range []memory.PendingRun{
		{User: w.anna, Agent: w.agent, Session: w.session, Trigger: memory.TriggerCadence, Exchanges: 5, At: w.at},
		{User: w.bert, Agent: w.agent, Session: ticks, Trigger: memory.TriggerCadence, Exchanges: 5, At: w.at},
	} {
		if err := w.store.PutPendingRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	w.resume(engine)
	if runs := w.pending(); len(runs) != 0 || engine.CountsByTrigger()[memory.TriggerCadence] != (compaction.Counts{Failed: 2, Inactive: 1}) {
		t.Errorf("begun are %+v, counts %+v", runs, engine.CountsByTrigger())
	}
}

// Of a session that has gone nothing is resumed, and with cadence off nothing at
// all; what stands in the way of one run does not of the others.
func TestResumeOfWhatHasGone(t *testing.T) {
	off := compaction.New(untouchable{}, nil, compaction.Config{Gap: time.Second}, nil, nil)
	off.Start(compaction.Background{})
	w := newWorld(t)
	w.exchanges(5)
	gone := w.newSession(w.bert)
	for _, run := range []memory.PendingRun{
		{User: w.bert, Agent: w.agent, Session: gone, Trigger: memory.TriggerCadence, Exchanges: 5, At: w.at},
		{User: w.anna, Agent: w.agent, Session: w.session, Trigger: memory.TriggerCadence, Exchanges: 5, At: w.at},
	} {
		if err := w.store.PutPendingRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.store.DeleteSession(t.Context(), w.bert, gone); err != nil {
		t.Fatal(err)
	}
	hand := says("calendar", "an event")
	engine := w.engine(compaction.Config{Interval: 5, ContextTokenCap: 1000}, hand)
	w.resume(engine)
	if asked := hand.questions(); len(asked) != 1 || asked[0].User != w.anna || len(w.pending()) != 0 {
		t.Errorf("asked %+v, begun %+v", asked, w.pending())
	}
}

// A run that waits to be resumed, while the session's next one is due, is that
// one: the sources are asked once.
func TestANewRunTakesThePlaceOfAnOlder(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	asked := make(chan struct{}, 8)
	holding := &source{name: "calendar", answer: func(ctx context.Context, q compaction.Question) (string, error) {
		asked <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return "an event", ctx.Err()
	}}
	hand := says("calendar", "an event")
	engine := w.engineFor(compaction.Config{Interval: 5, ContextTokenCap: 1000, Workers: 2}, func(u memory.UserID) []compaction.Source {
		if u == w.anna {
			return []compaction.Source{hand}
		}
		return []compaction.Source{holding}
	})
	w.exchanges(5)
	// Two others hold the places of what is resumed.
	for i := range 2 {
		user := memory.NewID[memory.UserID]()
		if err := w.store.PutUser(t.Context(), memory.User{ID: user, Name: fmt.Sprint("other", i), CreatedAt: monday}); err != nil {
			t.Fatal(err)
		}
		session := w.talk(user, 8)
		if err := w.store.PutPendingRun(t.Context(), memory.PendingRun{User: user, Agent: w.agent, Session: session, Trigger: memory.TriggerCadence, Exchanges: 5, At: monday}); err != nil {
			t.Fatal(err)
		}
	}
	turn := w.turn(w.anna, w.session)
	if err := w.store.PutPendingRun(t.Context(), memory.PendingRun{User: w.anna, Agent: w.agent, Session: w.session, Trigger: memory.TriggerCadence, Exchanges: 5, At: turn.At}); err != nil {
		t.Fatal(err)
	}
	engine.Start(compaction.Background{})
	<-asked
	<-asked
	w.exchanges(5)
	if report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeDone {
		t.Errorf("%+v, %v", report, err)
	}
	close(release)
	if err := engine.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(hand.questions()) != 1 || len(w.pending()) != 0 || engine.Counts() != (compaction.Counts{Fired: 3}) {
		t.Errorf("asked %d times, begun %+v, counts %+v", len(hand.questions()), w.pending(), engine.Counts())
	}
}

// talk makes a session in which a user has said n things, and been answered.
func (w *world) talk(user memory.UserID, n int) memory.SessionID {
	w.t.Helper()
	session := w.newSession(user)
	var drafts []memory.Draft
	for i := range n {
		text := strings.Repeat(fmt.Sprintf("%s says for the time number %d that hall %d is closed. ", user, i, i), 8)
		drafts = append(drafts,
			memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text(text)}, At: w.at},
			memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.Text(text)}, At: w.at})
	}
	if _, err := w.store.Append(w.t.Context(), user, session, drafts...); err != nil {
		w.t.Fatal(err)
	}
	return session
}

// C7, C8, C16 with 24 agents and users at once, each hit by both triggers from all
// sides: never two runs of one of them, no waiting for another's, no question for
// who only ticked, every call counted under its trigger, and each refresh with its
// own user.
func TestTriggersUnderConcurrency(t *testing.T) {
	w := newWorld(t)
	const users, callers = 12, 4
	agents := []memory.AgentID{w.agent}
	other, err := w.store.PutAgent(t.Context(), "other", "", monday)
	if err != nil {
		t.Fatal(err)
	}
	agents = append(agents, other.ID)
	type place struct {
		turn  compaction.Turn
		ticks bool
	}
	var places []place
	for i := range users {
		user := memory.NewID[memory.UserID]()
		if err := w.store.PutUser(t.Context(), memory.User{ID: user, Name: fmt.Sprint("user", i), CreatedAt: monday}); err != nil {
			t.Fatal(err)
		}
		for _, agent := range agents {
			w.agent = agent
			ticks := i%4 == 3
			session := w.newSession(user)
			source := memory.SourceUser
			if ticks {
				source = memory.SourceScheduledTick
			}
			for range 5 {
				if _, err := w.store.Append(t.Context(), user, session,
					memory.Draft{Role: memory.RoleUser, Source: source, Blocks: []memory.Block{memory.Text(strings.Repeat("It runs. ", 40))}, At: monday},
					memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.Text(strings.Repeat("Good. ", 40))}, At: monday}); err != nil {
					t.Fatal(err)
				}
			}
			places = append(places, place{compaction.Turn{User: user, Agent: agent, Session: session, At: monday.Add(time.Hour), Source: memory.SourceUser, Exchanges: 5}, ticks})
		}
	}
	// Runs of one user with two agents may overlap, of one pair may not.
	running := map[memory.UserID]*atomic.Int32{}
	for _, p := range places {
		running[p.turn.User] = new(atomic.Int32)
	}
	var most, asked atomic.Int32
	engine := w.engineFor(compaction.Config{Interval: 5, Gap: time.Minute, KeepRecent: 2, ContextTokenCap: 1000}, func(u memory.UserID) []compaction.Source {
		return []compaction.Source{&source{name: "calendar", answer: func(ctx context.Context, q compaction.Question) (string, error) {
			asked.Add(1)
			n := running[u].Add(1)
			defer running[u].Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			return "the event of " + q.User.String(), nil
		}}}
	})
	var group sync.WaitGroup
	var gap, cadence, notDue atomic.Int32
	begin := make(chan struct{})
	for _, p := range places {
		for range callers {
			group.Go(func() {
				<-begin
				report, err := engine.Gap(t.Context(), p.turn)
				if err != nil {
					t.Errorf("gap: %v", err)
				}
				if p.ticks && report.Outcome == memory.OutcomeDone {
					t.Errorf("a session of ticks: %+v", report)
				}
				if gap.Add(1); report.Reason == compaction.ReasonNotDue {
					notDue.Add(1)
				}
			})
			group.Go(func() {
				<-begin
				if report, err := engine.Cadence(t.Context(), p.turn); err != nil || p.ticks && report.Outcome == memory.OutcomeDone {
					t.Errorf("cadence: %+v, %v", report, err)
				}
				cadence.Add(1)
			})
		}
	}
	close(begin)
	group.Wait()
	if err := engine.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := most.Load(); got > int32(len(agents)) {
		t.Errorf("%d runs of one user at once, with %d agents", got, len(agents))
	}
	counts := engine.CountsByTrigger()
	for trigger, calls := range map[memory.Trigger]int32{memory.TriggerGap: gap.Load() - notDue.Load(), memory.TriggerCadence: cadence.Load()} {
		c := counts[trigger]
		if sum := c.Fired + c.Busy + c.Inactive + c.Nothing + c.Failed; sum != int(calls) || c.Failed != 0 {
			t.Errorf("%s: %d calls, counted %+v", trigger, calls, c)
		}
	}
	fired, refreshes := counts[memory.TriggerGap].Fired+counts[memory.TriggerCadence].Fired, 0
	for _, p := range places {
		for _, m := range w.messages(p.turn.User, p.turn.Session) {
			if !m.IsRefresh() {
				continue
			}
			refreshes++
			if text := memory.Shown(m.Blocks); strings.Count(text, "the event of ") != 1 || !strings.Contains(text, "the event of "+p.turn.User.String()) {
				t.Errorf("the refresh of %s reads %q", p.turn.User, text)
			}
		}
	}
	if fired == 0 || int(asked.Load()) != fired || refreshes != fired {
		t.Errorf("%d runs fired, %d questions, %d refreshes", fired, asked.Load(), refreshes)
	}
	if runs := w.pending(); len(runs) != 0 {
		t.Errorf("not over: %+v", runs)
	}
}

// after is a source that takes its time.
func after(name string, d time.Duration) *source {
	return &source{name: name, answer: func(ctx context.Context, _ compaction.Question) (string, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return name + " has news", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}}
}

// C3, C6: with four sources of five seconds each, a gap run takes five seconds;
// with one that is later than the deadline, the deadline.
func TestFourSourcesOfFiveSeconds(t *testing.T) {
	for name, test := range map[string]struct {
		fourth   time.Duration
		deadline time.Duration
		took     time.Duration
		blocks   int
	}{
		"all in time":     {5 * time.Second, 30 * time.Second, 5 * time.Second, 4},
		"one is slower":   {7 * time.Second, 30 * time.Second, 7 * time.Second, 4},
		"one is too late": {time.Hour, 6 * time.Second, 6 * time.Second, 3},
		"all are late":    {5 * time.Second, 4 * time.Second, 4 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := compaction.Config{Gap: time.Minute, ContextTokenCap: 4000, GapDeadline: test.deadline}
				sources := []compaction.Source{after("a", 5*time.Second), after("b", 5*time.Second), after("c", 5*time.Second), after("d", test.fourth)}
				engine := compaction.New(&fakeStore{last: monday}, compaction.NewOffline(), config, func(memory.UserID) []compaction.Source { return sources }, nil)
				defer engine.Close(context.Background())
				began := time.Now()
				report, err := engine.Gap(t.Context(), compaction.Turn{User: memory.NewID[memory.UserID](), At: monday.Add(time.Hour), Source: memory.SourceUser})
				if took := time.Since(began); err != nil || took != test.took || len(report.Refresh.Blocks) != test.blocks || len(report.Refresh.Skipped) != 4-test.blocks {
					t.Errorf("took %v: %+v, %v", took, report.Refresh, err)
				}
			})
		})
	}
}

// C6 by the machine's clock and on a real store: the slowest source and a little,
// and never more than the deadline and a little, held to ten times the figure of
// 50 ms.
func TestGapIsSlowestSourceOrDeadline(t *testing.T) {
	const slowest, deadline, leeway = 100 * time.Millisecond, 200 * time.Millisecond, 10 * 50 * time.Millisecond
	for name, test := range map[string]struct {
		config     compaction.Config
		fourth     compaction.Source
		summarizer compaction.Summarizer
		within     time.Duration
		pending    bool
	}{
		"all in time":             {compaction.Config{}, after("d", slowest), compaction.NewOffline(), slowest + leeway, false},
		"one does not answer":     {compaction.Config{GapDeadline: deadline}, hangs("d", nil), compaction.NewOffline(), deadline + leeway, false},
		"one ignores its context": {compaction.Config{GapDeadline: deadline}, deaf{make(chan struct{})}, compaction.NewOffline(), deadline + leeway, false},
		"the summarizer hangs":    {compaction.Config{GapDeadline: deadline}, after("d", slowest), newHeld(), deadline + leeway, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exchanges(8)
			w.at = w.at.Add(time.Hour)
			test.config.Gap, test.config.ContextTokenCap = time.Minute, 4000
			sources := []compaction.Source{after("a", slowest), after("b", slowest), after("c", slowest), test.fourth}
			engine := compaction.New(w.store, test.summarizer, test.config, func(memory.UserID) []compaction.Source { return sources }, nil)
			defer engine.Close(context.Background())
			began := time.Now()
			report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
			took := time.Since(began)
			if d, ok := test.fourth.(deaf); ok {
				close(d.release)
			}
			// Which of them made it is for the test under a synthetic clock: here a
			// busy machine may be late with any.
			if err != nil || took < slowest || took > test.within || test.pending && !report.Pending {
				t.Errorf("took %v: %+v, %v", took, report, err)
			}
		})
	}
}

// BenchmarkGap has somebody come back to four sources that take five seconds each
// and to forty messages that are to be summarised. It reports how much longer than
// the slowest source that takes.
func BenchmarkGap(b *testing.B) {
	const slowest = 5 * time.Second
	var over, most time.Duration
	for b.Loop() {
		w := newWorld(b)
		w.exchanges(20)
		w.at = w.at.Add(time.Hour)
		engine := w.engine(compaction.Config{Gap: time.Minute, ContextTokenCap: 4000}, after("a", slowest), after("b", slowest), after("c", slowest), after("d", slowest))
		turn := w.turn(w.anna, w.session)
		began := time.Now()
		report, err := engine.Gap(b.Context(), turn)
		took := time.Since(began) - slowest
		if err != nil || len(report.Refresh.Blocks) != 4 || !report.Sweep.Changed() {
			b.Fatalf("%+v, %v", report, err)
		}
		over, most = over+took, max(most, took)
	}
	b.ReportMetric(over.Seconds()*1000/float64(b.N), "ms-over-the-slowest")
	b.ReportMetric(most.Seconds()*1000, "most-ms-over")
}

// deaf is a source that does not heed its context.
type deaf struct{ release chan struct{} }

func (deaf) Name() string { return "hand://deaf" }

func (d deaf) Ask(context.Context, compaction.Question) (boundary.Content, error) {
	<-d.release
	return boundary.Content{}, nil
}

// C2: a cadence run that takes for ever takes nothing from the triggers of others,
// nor from the store: what the same user says meanwhile is stored at once.
func TestACadenceRunHoldsNobody(t *testing.T) {
	w := newWorld(t)
	summarizer := newHeld()
	engine := compaction.New(w.store, summarizer, compaction.Config{Interval: 5, Gap: time.Minute, ContextTokenCap: 1000}, nil, nil)
	defer engine.Close(context.Background())
	w.exchanges(5)
	turn := w.turn(w.anna, w.session)
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Cadence(t.Context(), turn)
		ended <- err
	}()
	<-summarizer.asked
	w.exchanges(3)
	w.at = w.at.Add(time.Hour)
	// The user's own gap run does not wait for it, nor is it queued behind.
	if report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Reason != compaction.ReasonBusy {
		t.Errorf("%+v, %v", report, err)
	}
	close(summarizer.release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeDone {
		t.Errorf("afterwards: %+v, %v", report, err)
	}
	w.checkCoverage()
}
