package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var monday = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// world is one agent and two users on a real store.
type world struct {
	t       testing.TB
	store   memory.Store
	agent   memory.AgentID
	anna    memory.UserID
	bert    memory.UserID
	session memory.SessionID
	at      time.Time
}

func newWorld(t testing.TB) *world {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "glovebox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w := &world{t: t, store: store, at: monday}
	agent, err := store.PutAgent(t.Context(), "assistant", "", monday)
	if err != nil {
		t.Fatal(err)
	}
	anna, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.agent, w.anna, w.bert = agent.ID, anna.ID, memory.NewID[memory.UserID]()
	if err := store.PutUser(t.Context(), memory.User{ID: w.bert, Name: "bert", CreatedAt: monday}); err != nil {
		t.Fatal(err)
	}
	w.session = w.newSession(w.anna)
	return w
}

func (w *world) newSession(user memory.UserID) memory.SessionID {
	w.t.Helper()
	s, err := w.store.CreateSession(w.t.Context(), memory.Session{Agent: w.agent, User: user, CreatedAt: w.at})
	if err != nil {
		w.t.Fatal(err)
	}
	return s.ID
}

// exchanges lets the user and the assistant talk n times, a minute each.
func (w *world) exchanges(n int) {
	w.t.Helper()
	for range n {
		w.say(memory.RoleUser, memory.SourceUser)
		w.say(memory.RoleAssistant, memory.SourceAssistant)
	}
}

func (w *world) say(role memory.Role, source memory.Source) {
	w.t.Helper()
	w.at = w.at.Add(30 * time.Second)
	text := fmt.Sprintf("%s at %s says that the pump in hall %d runs at %d percent. ", role, w.at.Format(time.RFC3339), w.at.Minute(), w.at.Second())
	if _, err := w.store.Append(w.t.Context(), w.anna, w.session, memory.Draft{
		Role: role, Source: source, Blocks: []memory.Block{memory.Text(strings.Repeat(text, 8))}, At: w.at,
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) turn(user memory.UserID, session memory.SessionID) compaction.Turn {
	w.t.Helper()
	s, err := w.store.Session(w.t.Context(), user, session)
	if err != nil && !errors.Is(err, memory.ErrNotFound) {
		w.t.Fatal(err)
	}
	return compaction.Turn{User: user, Agent: w.agent, Session: session, At: w.at, Source: memory.SourceUser, Exchanges: s.Exchanges}
}

func (w *world) engine(config compaction.Config, sources ...compaction.Source) *compaction.Engine {
	return w.engineFor(config, func(memory.UserID) []compaction.Source { return sources })
}

func (w *world) engineFor(config compaction.Config, sources func(memory.UserID) []compaction.Source) *compaction.Engine {
	w.t.Helper()
	e := compaction.New(w.store, compaction.NewOffline(), config, sources, nil)
	w.t.Cleanup(func() { e.Close(context.Background()) })
	return e
}

func (w *world) messages(user memory.UserID, session memory.SessionID) []memory.Message {
	w.t.Helper()
	messages, err := w.store.Messages(w.t.Context(), user, session, memory.MessageQuery{})
	if err != nil {
		w.t.Fatal(err)
	}
	return messages
}

// source answers with a function; its questions are kept.
type source struct {
	name   string
	answer func(ctx context.Context, q compaction.Question) (string, error)

	mu    sync.Mutex
	asked []compaction.Question
}

func says(name, text string) *source {
	return &source{name: name, answer: func(context.Context, compaction.Question) (string, error) { return text, nil }}
}

func (s *source) Name() string { return "hand://" + s.name }

func (s *source) Ask(ctx context.Context, q compaction.Question) (boundary.Content, error) {
	s.mu.Lock()
	s.asked = append(s.asked, q)
	s.mu.Unlock()
	text, err := s.answer(ctx, q)
	if err != nil {
		return boundary.Content{}, err
	}
	from, err := boundary.HandSource(s.name)
	if err != nil {
		return boundary.Content{}, err
	}
	content, _ := boundary.Wrap(from, text, q.MaxTokens)
	return content, nil
}

func (s *source) questions() []compaction.Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]compaction.Question(nil), s.asked...)
}

// untouchable fails the test when anything of the store is used.
type untouchable struct{ memory.Store }

// C1
func TestNoConfigurationNoWork(t *testing.T) {
	hand := says("calendar", "event")
	// A nil store panics when it is touched at all.
	engine := compaction.New(untouchable{}, nil, compaction.Config{}, func(memory.UserID) []compaction.Source { return []compaction.Source{hand} }, nil)
	turn := compaction.Turn{At: monday, Source: memory.SourceUser}
	gap, err := engine.Gap(t.Context(), turn)
	if err != nil || gap.Reason != compaction.ReasonNotDue {
		t.Errorf("gap: %+v, %v", gap, err)
	}
	cadence, err := engine.Cadence(t.Context(), turn)
	if err != nil || cadence.Reason != compaction.ReasonNotDue {
		t.Errorf("cadence: %+v, %v", cadence, err)
	}
	if len(hand.questions()) != 0 || engine.Counts() != (compaction.Counts{}) {
		t.Error("something was done")
	}
}

// C2
func TestCadenceFiresEveryInterval(t *testing.T) {
	w := newWorld(t)
	engine := w.engine(compaction.Config{Interval: 5, KeepRecent: 6, ContextTokenCap: 2000}, says("calendar", "event"))
	for exchange := 1; exchange <= 15; exchange++ {
		w.exchanges(1)
		report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
		if err != nil {
			t.Fatal(err)
		}
		if fired := report.Outcome == memory.OutcomeDone; fired != (exchange%5 == 0) {
			t.Errorf("exchange %d: %+v", exchange, report)
		} else if fired && (!report.Sweep.Changed() || report.Refresh.Message == nil || report.Sweep.TokensAfter >= report.Sweep.TokensBefore) {
			t.Errorf("exchange %d changed nothing: %+v", exchange, report)
		}
	}
	if counts := engine.Counts(); counts.Fired != 3 {
		t.Errorf("counts %+v", counts)
	}
	w.checkCoverage()
}

// checkCoverage holds the frontier against all messages: each is covered once,
// in order, and a summary gives its messages back.
func (w *world) checkCoverage() {
	w.t.Helper()
	frontier, err := w.store.Frontier(w.t.Context(), w.anna, w.session)
	if err != nil {
		w.t.Fatal(err)
	}
	var covered []memory.MessageID
	for _, item := range frontier.Items {
		if item.Message != nil {
			covered = append(covered, item.Message.ID)
			continue
		}
		sources, err := w.store.Expand(w.t.Context(), w.anna, item.Summary.ID, memory.MessageQuery{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range sources {
			covered = append(covered, m.ID)
		}
	}
	all := w.messages(w.anna, w.session)
	if len(covered) != len(all) {
		w.t.Fatalf("the frontier covers %d of %d messages", len(covered), len(all))
	}
	for i, m := range all {
		if covered[i] != m.ID {
			w.t.Fatalf("message %d is not where it was said", i+1)
		}
	}
}

// C2: not while all is within keep_recent.
func TestCadenceWaitsForSomethingOld(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "event")
	engine := w.engine(compaction.Config{Interval: 1, KeepRecent: 6, ContextTokenCap: 2000}, hand)
	for range 3 {
		w.exchanges(1)
		report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
		if err != nil || report.Reason != compaction.ReasonNothing {
			t.Errorf("%+v, %v", report, err)
		}
	}
	if len(hand.questions()) != 0 || len(w.messages(w.anna, w.session)) != 6 {
		t.Error("a hand was asked")
	}
	w.exchanges(1)
	if report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeDone {
		t.Errorf("with two messages outside: %+v, %v", report, err)
	}
}

// C3, C4
func TestGapRefreshesBeforeTheAnswer(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "Design review moved to Thursday 15:00, room 4.")
	engine := w.engine(compaction.Config{Gap: 900 * time.Second, ContextTokenCap: 2000}, hand)
	w.exchanges(1)
	last := w.at
	w.at = last.Add(900 * time.Second)
	if report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Reason != compaction.ReasonNotDue {
		t.Errorf("after 900 s: %+v, %v", report, err)
	}
	w.at = last.Add(901 * time.Second)
	report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
	if err != nil || report.Outcome != memory.OutcomeDone || len(report.Refresh.Blocks) != 1 {
		t.Fatalf("after 901 s: %+v, %v", report, err)
	}
	q := hand.questions()[0]
	if !q.From.Equal(last) || !q.To.Equal(w.at) || q.User != w.anna || q.MaxTokens != 2000 {
		t.Errorf("asked %+v, want the window %v to %v", q, last, w.at)
	}
	messages := w.messages(w.anna, w.session)
	refresh := messages[len(messages)-1]
	text := memory.Shown(refresh.Blocks)
	if refresh.Source != memory.SourceContextInjection || refresh.Role != memory.RoleUser || refresh.Trust != memory.TrustExternal {
		t.Errorf("refresh is %+v", refresh)
	}
	if !strings.HasPrefix(text, "[Context refresh — "+w.at.Format(time.RFC3339)+"]\n<<<EXTCONTENT_") || !strings.Contains(text, "room 4") {
		t.Errorf("refresh reads %q", text)
	}
}

// A user who said something in this session just now was not away, whatever the others
// tell: nothing is read. Anything else that a session tells is no answer.
func TestGapReadsNothingWhileTheSessionGoesOn(t *testing.T) {
	w := newWorld(t)
	config := compaction.Config{Gap: 900 * time.Second, ContextTokenCap: 2000}
	w.exchanges(1)
	last := w.at
	w.at = last.Add(900 * time.Second)
	turn := w.turn(w.anna, w.session)
	turn.LastActive = last
	if report, err := compaction.New(untouchable{}, nil, config, nil, nil).Gap(t.Context(), turn); err != nil || report.Reason != compaction.ReasonNotDue {
		t.Errorf("%+v, %v", report, err)
	}
	for name, active := range map[string]time.Time{"nothing": {}, "too long ago": last.Add(-time.Second), "the future": turn.At.Add(time.Hour)} {
		hand := says("calendar", "event")
		turn := w.turn(w.anna, w.session)
		turn.At, turn.LastActive = last.Add(901*time.Second), active
		if report, err := w.engine(config, hand).Gap(t.Context(), turn); err != nil || report.Outcome != memory.OutcomeDone || len(hand.questions()) != 1 {
			t.Errorf("the session tells %s: %+v, %v", name, report, err)
		}
	}
}

func TestGapWindowIsBounded(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "event")
	engine := w.engine(compaction.Config{Gap: time.Minute, GapMaxLookback: time.Hour, ContextTokenCap: 2000}, hand)
	w.exchanges(1)
	w.at = w.at.Add(30 * 24 * time.Hour)
	if _, err := engine.Gap(t.Context(), w.turn(w.anna, w.session)); err != nil {
		t.Fatal(err)
	}
	if q := hand.questions()[0]; q.To.Sub(q.From) != time.Hour {
		t.Errorf("asked about %v", q.To.Sub(q.From))
	}
}

// C5, C9
func TestBudgetsPerSource(t *testing.T) {
	for _, test := range []struct{ sources, limit, each int }{{4, 2000, 500}, {10, 2000, 256}, {1, 2000, 2000}, {1, 100, 256}, {3, 0, 0}} {
		t.Run(fmt.Sprintf("%d sources, cap %d", test.sources, test.limit), func(t *testing.T) {
			w := newWorld(t)
			var sources []compaction.Source
			var hands []*source
			for i := range test.sources {
				// Multi-byte text that is longer than any budget.
				hand := says(fmt.Sprintf("hand-%d", i), strings.Repeat("täglich 日本語 😀 ", 4000))
				hands, sources = append(hands, hand), append(sources, hand)
			}
			engine := w.engine(compaction.Config{Gap: time.Minute, ContextTokenCap: test.limit}, sources...)
			w.exchanges(1)
			w.at = w.at.Add(time.Hour)
			report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
			if err != nil {
				t.Fatal(err)
			}
			if test.limit == 0 {
				if len(hands[0].questions()) != 0 || report.Refresh.Message != nil {
					t.Error("a source was asked though the cap is 0")
				}
				return
			}
			for _, hand := range hands {
				if got := hand.questions()[0].MaxTokens; got != test.each {
					t.Errorf("%s was given %d tokens, want %d", hand.name, got, test.each)
				}
			}
			if total := report.Refresh.Tokens(); total > max(test.limit, 256*test.sources) || len(report.Refresh.Blocks) != test.sources {
				t.Errorf("%d tokens in %d blocks", total, len(report.Refresh.Blocks))
			}
			text := memory.Shown(report.Refresh.Message.Blocks)
			if got := strings.Count(text, "\n<<<EXTCONTENT_"); got != test.sources || strings.Count(text, "\n<<</EXTCONTENT_") != test.sources {
				t.Errorf("%d opening markers for %d blocks", got, test.sources)
			}
		})
	}
}

// A source that does not keep to its budget loses its whole block.
func TestABlockOverTheCapIsDroppedWhole(t *testing.T) {
	w := newWorld(t)
	greedy := greedySource{}
	engine := w.engine(compaction.Config{Gap: time.Minute, ContextTokenCap: 300}, greedy, says("mail", "short"))
	w.exchanges(1)
	w.at = w.at.Add(time.Hour)
	report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
	if err != nil || len(report.Refresh.Blocks) != 1 || len(report.Refresh.Skipped) != 1 || report.Refresh.Skipped[0].Source != "hand://greedy" {
		t.Errorf("%+v, %v", report.Refresh, err)
	}
}

type greedySource struct{}

func (greedySource) Name() string { return "hand://greedy" }

func (greedySource) Ask(context.Context, compaction.Question) (boundary.Content, error) {
	from, err := boundary.HandSource("greedy")
	content, _ := boundary.Wrap(from, strings.Repeat("more ", 10_000), boundary.Unlimited)
	return content, err
}

// C6: one fails, one panics, one has nothing; the others are in, in order.
func TestASourceThatFailsCostsItsOwnBlock(t *testing.T) {
	w := newWorld(t)
	failing := &source{name: "failing", answer: func(context.Context, compaction.Question) (string, error) {
		return "", errors.New("no calendar today")
	}}
	panicking := &source{name: "panicking", answer: func(context.Context, compaction.Question) (string, error) { panic("a fault") }}
	engine := w.engine(compaction.Config{Gap: time.Minute, ContextTokenCap: 4000},
		says("mail", "two mails"), failing, says("empty", "  \n "), panicking, says("calendar", "one event"))
	w.exchanges(1)
	w.at = w.at.Add(time.Hour)
	report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
	if err != nil || report.Outcome != memory.OutcomeDone {
		t.Fatalf("%+v, %v", report, err)
	}
	var in, out []string
	for _, b := range report.Refresh.Blocks {
		in = append(in, b.Source)
	}
	for _, s := range report.Refresh.Skipped {
		out = append(out, s.Source+" "+s.Reason)
	}
	if strings.Join(in, " ") != "hand://mail hand://calendar" {
		t.Errorf("in are %v", in)
	}
	if len(out) != 3 || !strings.Contains(out[0], "no calendar today") || !strings.Contains(out[1], "nothing to say") || !strings.Contains(out[2], "panic") {
		t.Errorf("out are %q", out)
	}
}

// No block, no message.
func TestNoBlockNoMessage(t *testing.T) {
	w := newWorld(t)
	engine := w.engine(compaction.Config{Gap: time.Minute, ContextTokenCap: 4000}, says("empty", ""))
	w.exchanges(1)
	w.at = w.at.Add(time.Hour)
	report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
	if err != nil || report.Refresh.Message != nil || len(w.messages(w.anna, w.session)) != 2 {
		t.Errorf("%+v, %v", report, err)
	}
}

// C6: wall time is the slowest, and never more than the deadline.
func TestGapWaitsForTheSlowestButNotBeyondItsDeadline(t *testing.T) {
	slow := func(name string, d time.Duration) *source {
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
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{last: monday}
		config := compaction.Config{Gap: time.Minute, ContextTokenCap: 4000, SourceTimeout: 5 * time.Second, GapDeadline: 3 * time.Second}
		turn := compaction.Turn{User: memory.NewID[memory.UserID](), At: monday.Add(time.Hour), Source: memory.SourceUser}
		run := func(sources ...compaction.Source) (compaction.Report, time.Duration) {
			t.Helper()
			engine := compaction.New(store, compaction.NewOffline(), config, func(memory.UserID) []compaction.Source { return sources }, nil)
			defer engine.Close(context.Background())
			began := time.Now()
			report, err := engine.Gap(t.Context(), turn)
			if err != nil {
				t.Fatal(err)
			}
			return report, time.Since(began)
		}
		if report, took := run(slow("a", time.Second), slow("b", 2*time.Second), slow("c", time.Second)); took != 2*time.Second || len(report.Refresh.Blocks) != 3 {
			t.Errorf("took %v: %+v", took, report.Refresh)
		}
		report, took := run(slow("a", time.Second), slow("late", 4*time.Second))
		if took != 3*time.Second || len(report.Refresh.Blocks) != 1 || len(report.Refresh.Skipped) != 1 || report.Refresh.Skipped[0].Reason != "too late" {
			t.Errorf("took %v: %+v", took, report.Refresh)
		}
	})
}

// fakeStore is for tests under a synthetic clock, which a database driver
// cannot join: it answers what a gap run asks.
type fakeStore struct {
	memory.Store
	last time.Time
}

func (s *fakeStore) LastActivity(context.Context, memory.UserID, memory.AgentID) (time.Time, error) {
	return s.last, nil
}

func (s *fakeStore) Session(context.Context, memory.UserID, memory.SessionID) (memory.Session, error) {
	return memory.Session{UserMessages: 1, Messages: 2}, nil
}

func (s *fakeStore) Frontier(context.Context, memory.UserID, memory.SessionID) (memory.Frontier, error) {
	return memory.Frontier{}, nil
}

func (s *fakeStore) Inject(_ context.Context, _ memory.UserID, _ memory.SessionID, i memory.Injection) (memory.Message, error) {
	d := i.Draft()
	return memory.Message{Role: d.Role, Source: d.Source, Blocks: d.Blocks, At: d.At}, nil
}

func (s *fakeStore) RecordCompaction(context.Context, memory.UserID, memory.CompactionRun) error {
	return nil
}

// C7
func TestConcurrentTriggerIsSkippedAndAnotherUsersRuns(t *testing.T) {
	w := newWorld(t)
	asked, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	waiting := &source{name: "calendar", answer: func(context.Context, compaction.Question) (string, error) {
		if once.CompareAndSwap(false, true) {
			close(asked)
			<-release
		}
		return "event", nil
	}}
	engine := w.engine(compaction.Config{Gap: time.Minute, Interval: 1, KeepRecent: 1, ContextTokenCap: 2000}, waiting)
	w.exchanges(1)
	bertSession := w.newSession(w.bert)
	for _, role := range []memory.Role{memory.RoleUser, memory.RoleAssistant} {
		if _, err := w.store.Append(t.Context(), w.bert, bertSession, memory.Draft{Role: role, Source: memory.Source(role), Blocks: []memory.Block{memory.Text("hello")}, At: w.at}); err != nil {
			t.Fatal(err)
		}
	}
	w.at = w.at.Add(time.Hour)
	done := make(chan error, 1)
	go func() {
		_, err := engine.Gap(context.Background(), w.turn(w.anna, w.session))
		done <- err
	}()
	<-asked
	for name, trigger := range map[string]func(context.Context, compaction.Turn) (compaction.Report, error){"gap": engine.Gap, "cadence": engine.Cadence} {
		if report, err := trigger(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Reason != compaction.ReasonBusy {
			t.Errorf("%s of the same user: %+v, %v", name, report, err)
		}
	}
	if report, err := engine.Gap(t.Context(), w.turn(w.bert, bertSession)); err != nil || report.Outcome != memory.OutcomeDone {
		t.Errorf("another user: %+v, %v", report, err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if counts := engine.Counts(); counts.Busy != 2 || counts.Fired != 2 {
		t.Errorf("counts %+v", counts)
	}
}

// C8
func TestTicksAndInjectionsAskNobody(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "event")
	engine := w.engine(compaction.Config{Gap: time.Minute, Interval: 1, KeepRecent: 1, ContextTokenCap: 2000}, hand)
	for range 5 {
		w.say(memory.RoleUser, memory.SourceAutonomousTick)
		w.say(memory.RoleAssistant, memory.SourceAssistant)
	}
	from, err := boundary.HandSource("calendar")
	if err != nil {
		t.Fatal(err)
	}
	content, _ := boundary.Wrap(from, "event", boundary.Unlimited)
	if _, err := w.store.Inject(t.Context(), w.anna, w.session, memory.Injection{At: w.at, Blocks: []boundary.Content{content}}); err != nil {
		t.Fatal(err)
	}
	w.at = w.at.Add(time.Hour)
	if report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeSkipped {
		t.Errorf("gap: %+v, %v", report, err)
	}
	if report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeSkipped {
		t.Errorf("cadence: %+v, %v", report, err)
	}
	tick := w.turn(w.anna, w.session)
	tick.Source = memory.SourceScheduledTick
	w.exchanges(1)
	tick.At = w.at.Add(time.Hour)
	if report, err := engine.Gap(t.Context(), tick); err != nil || report.Reason != compaction.ReasonNotDue {
		t.Errorf("a tick is nobody coming back: %+v, %v", report, err)
	}
	if len(hand.questions()) != 0 {
		t.Errorf("asked %d times", len(hand.questions()))
	}
}

// C10, the part of the fallback; C13.
func TestModelDownFallsBackAndSaysSo(t *testing.T) {
	w := newWorld(t)
	engine := compaction.New(w.store, brokenSummarizer{}, compaction.Config{Interval: 5, KeepRecent: 6}, nil, nil)
	defer engine.Close(context.Background())
	w.exchanges(5)
	report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
	if err != nil || len(report.Sweep.Summaries) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if s := report.Sweep.Summaries[0]; s.Level != memory.LevelFallback || !strings.Contains(s.Text, "truncated") || s.Descendants != 4 {
		t.Errorf("summary %+v", s)
	}
	w.checkCoverage()
}

type brokenSummarizer struct{}

func (brokenSummarizer) Summarize(context.Context, compaction.SummaryRequest) (compaction.SummaryResult, error) {
	return compaction.SummaryResult{}, errors.New("the model is down")
}

// C11, the part of the size.
func TestASummaryLargerThanItsSourceIsRefused(t *testing.T) {
	w := newWorld(t)
	engine := compaction.New(w.store, longWinded{}, compaction.Config{Interval: 5, KeepRecent: 6}, nil, nil)
	defer engine.Close(context.Background())
	w.exchanges(5)
	report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
	if err != nil || !report.Sweep.Changed() || report.Sweep.TokensAfter >= report.Sweep.TokensBefore || report.Sweep.Summaries[0].Level != memory.LevelFallback {
		t.Errorf("%+v, %v", report, err)
	}
}

type longWinded struct{}

func (longWinded) Summarize(_ context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	return compaction.SummaryResult{Text: r.Transcript + r.Transcript}, nil
}

// C14
func TestToolCallsAreNotPartedFromTheirResults(t *testing.T) {
	for keep := 1; keep <= 8; keep++ {
		w := newWorld(t)
		source, err := boundary.ToolSource("search")
		if err != nil {
			t.Fatal(err)
		}
		result, _ := boundary.Wrap(source, strings.Repeat("found something ", 50), boundary.Unlimited)
		w.exchanges(2)
		w.say(memory.RoleUser, memory.SourceUser)
		for _, d := range []memory.Draft{
			{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.ToolCall("a", "search", []byte(`{}`)), memory.ToolCall("b", "search", []byte(`{}`))}},
			{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult("a", "search", result, false)}},
			{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult("b", "search", result, false)}},
		} {
			d.At = w.at
			if _, err := w.store.Append(t.Context(), w.anna, w.session, d); err != nil {
				t.Fatal(err)
			}
		}
		w.say(memory.RoleAssistant, memory.SourceAssistant)
		w.exchanges(1)
		engine := w.engine(compaction.Config{Interval: 1, KeepRecent: keep})
		if _, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session)); err != nil {
			t.Fatal(err)
		}
		frontier, err := w.store.Frontier(t.Context(), w.anna, w.session)
		if err != nil {
			t.Fatal(err)
		}
		halves := 0
		for _, item := range frontier.Items {
			if m := item.Message; m != nil && (m.Role == memory.RoleTool || m.Blocks[0].Type == memory.BlockToolCall) {
				halves++
			}
		}
		if halves != 0 && halves != 3 {
			t.Errorf("keep %d: %d of the 3 messages of a tool turn are left", keep, halves)
		}
		w.checkCoverage()
	}
}

// C16 at the engine: each user's sources are asked for that user alone.
func TestRefreshesAreOfTheirUser(t *testing.T) {
	w := newWorld(t)
	own := map[memory.UserID]*source{w.anna: says("calendar", "Anna's dentist"), w.bert: says("calendar", "Bert's interview")}
	engine := w.engineFor(compaction.Config{Gap: time.Minute, ContextTokenCap: 2000}, func(u memory.UserID) []compaction.Source {
		return []compaction.Source{own[u]}
	})
	w.exchanges(1)
	bertSession := w.newSession(w.bert)
	if _, err := w.store.Append(t.Context(), w.bert, bertSession, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("hello")}, At: w.at}); err != nil {
		t.Fatal(err)
	}
	w.at = w.at.Add(time.Hour)
	for user, session := range map[memory.UserID]memory.SessionID{w.anna: w.session, w.bert: bertSession} {
		report, err := engine.Gap(t.Context(), w.turn(user, session))
		if err != nil || report.Refresh.Message == nil {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	anna, bert := transcript(w.messages(w.anna, w.session)), transcript(w.messages(w.bert, bertSession))
	if !strings.Contains(anna, "dentist") || strings.Contains(anna, "interview") || !strings.Contains(bert, "interview") || strings.Contains(bert, "dentist") {
		t.Errorf("Anna sees %q\nBert sees %q", anna, bert)
	}
	if _, err := engine.Gap(t.Context(), w.turn(w.bert, w.session)); err == nil {
		t.Error("a turn of one user in another's session went through")
	}
}

func transcript(messages []memory.Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(memory.Shown(m.Blocks) + "\n")
	}
	return b.String()
}

// C17: only the newest refresh stays as it is; the one before becomes a line.
func TestOlderRefreshBecomesALine(t *testing.T) {
	w := newWorld(t)
	hand := says("calendar", "SECRET WORD aardvark")
	engine := w.engine(compaction.Config{Interval: 5, KeepRecent: 6, ContextTokenCap: 2000}, hand)
	for range 3 {
		w.exchanges(5)
		if report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session)); err != nil || report.Outcome != memory.OutcomeDone {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	frontier, err := w.store.Frontier(t.Context(), w.anna, w.session)
	if err != nil {
		t.Fatal(err)
	}
	verbatim, lines := 0, 0
	for _, item := range frontier.Items {
		if item.Message != nil && item.Message.IsRefresh() {
			verbatim++
		}
		if item.Summary != nil {
			lines += strings.Count(item.Summary.Shown(), "An earlier context refresh of ")
			if strings.Contains(item.Summary.Shown(), "aardvark") {
				t.Error("external text is in a summary of what was said")
			}
		}
	}
	if verbatim != 1 || lines != 2 {
		t.Errorf("%d refreshes verbatim, %d lines", verbatim, lines)
	}
	w.checkCoverage()
}

// B7: what a summary says of external text is external.
func TestSummaryOfExternalTextIsExternal(t *testing.T) {
	w := newWorld(t)
	source, err := boundary.ToolSource("search")
	if err != nil {
		t.Fatal(err)
	}
	result, _ := boundary.Wrap(source, strings.Repeat("The zebra is in hall nine and must be fed at noon. ", 30), boundary.Unlimited)
	w.say(memory.RoleUser, memory.SourceUser)
	if _, err := w.store.Append(t.Context(), w.anna, w.session,
		memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.ToolCall("a", "search", []byte(`{}`))}, At: w.at},
		memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult("a", "search", result, false)}, At: w.at}); err != nil {
		t.Fatal(err)
	}
	w.exchanges(4)
	engine := w.engine(compaction.Config{Interval: 1, KeepRecent: 2})
	w.exchanges(1)
	report, err := engine.Cadence(t.Context(), w.turn(w.anna, w.session))
	if err != nil || len(report.Sweep.Summaries) == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	s := report.Sweep.Summaries[0]
	if strings.Contains(s.Text, "zebra") || s.External.IsEmpty() || s.External.Source().String() != "summary://"+s.ID.String() {
		t.Errorf("summary %+v", s)
	}
	if tokens.Estimate(s.Shown()) != s.Tokens {
		t.Errorf("%d tokens stored, %d shown", s.Tokens, tokens.Estimate(s.Shown()))
	}
}

func TestCloseEndsWhatRunsInTheBackground(t *testing.T) {
	w := newWorld(t)
	asked := make(chan struct{})
	stuck := &source{name: "stuck", answer: func(ctx context.Context, _ compaction.Question) (string, error) {
		close(asked)
		<-ctx.Done()
		return "", ctx.Err()
	}}
	engine := w.engine(compaction.Config{Gap: time.Minute, ContextTokenCap: 2000, GapDeadline: 50 * time.Millisecond}, stuck)
	w.exchanges(1)
	w.at = w.at.Add(time.Hour)
	report, err := engine.Gap(t.Context(), w.turn(w.anna, w.session))
	if err != nil || len(report.Refresh.Skipped) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := engine.Close(ctx); err != nil {
		t.Error(err)
	}
}
