package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// tallying is a model that answers at once and counts.
type tallying struct{ calls atomic.Int64 }

func (m *tallying) Complete(context.Context, llm.Request) (llm.Response, error) {
	m.calls.Add(1)
	return llm.Response{Text: "It does.", Model: "test"}, nil
}

// idleStore fails the test when anything of compaction is read or written.
type idleStore struct {
	memory.Store
	t *testing.T
}

func (s idleStore) LastActivity(context.Context, memory.UserID, memory.AgentID) (time.Time, error) {
	s.t.Error("the last activity was looked up")
	return time.Time{}, errors.ErrUnsupported
}

func (s idleStore) Frontier(context.Context, memory.UserID, memory.SessionID) (memory.Frontier, error) {
	s.t.Error("a whole frontier was read")
	return memory.Frontier{}, errors.ErrUnsupported
}

func (s idleStore) Inject(context.Context, memory.UserID, memory.SessionID, memory.Injection) (memory.Message, error) {
	s.t.Error("a refresh was stored")
	return memory.Message{}, errors.ErrUnsupported
}

func (s idleStore) CommitSummary(context.Context, memory.UserID, memory.Revision, memory.NewSummary) (memory.Summary, error) {
	s.t.Error("a summary was stored")
	return memory.Summary{}, errors.ErrUnsupported
}

func (s idleStore) RecordCompaction(context.Context, memory.UserID, memory.CompactionRun) error {
	s.t.Error("a run was recorded")
	return errors.ErrUnsupported
}

func (s idleStore) NextPendingRun(context.Context, memory.UserID) (memory.PendingRun, error) {
	s.t.Error("it was looked for what is due")
	return memory.PendingRun{}, errors.ErrUnsupported
}

func (s idleStore) PutPendingRun(context.Context, memory.PendingRun) error {
	s.t.Error("a run was begun")
	return errors.ErrUnsupported
}

// C1, invariant 13: without [compaction] nothing is asked, locked, read or stored
// but the turn itself, whatever time passes.
func TestWithoutCompactionNothingIsDone(t *testing.T) {
	path, digest := mirrorHand(t)
	now := &clock{at: monday}
	answers := &tallying{}
	h := open(t, host.Config{Now: now.now, LLM: answers, Hands: map[string]host.HandConfig{"calendar": {Module: path, Digest: digest}}})
	if err := h.Interpose(t.Context(), func(s memory.Store) memory.Store { return idleStore{s, t} }); err != nil {
		t.Fatal(err)
	}
	var session memory.SessionID
	for range 12 {
		session = send(t, h, host.Message{Session: session, Text: strings.Repeat("Is it Monday? ", 100)}).Session
		now.advance(25 * time.Hour)
	}
	runs, err := h.Ledger().Runs(t.Context(), "", 10)
	if err != nil || len(runs) != 0 || answers.calls.Load() != 12 || len(h.Counts().Triggers) != 0 {
		t.Errorf("%d queries, %d calls of the model, counts %+v, %v", len(runs), answers.calls.Load(), h.Counts(), err)
	}
}

// killed copies a data directory as it is now, with a host that has it open: what
// a kill -9 leaves.
func killed(t testing.TB, data string) string {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(data)); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return left
}

// C2, C3: a restart forgets neither how many exchanges there were nor when the
// user was there last, be it by a kill.
func TestARestartForgetsNothing(t *testing.T) {
	path, digest := mirrorHand(t)
	now := &clock{at: monday}
	var runs kept
	config := host.Config{
		Data: t.TempDir(), Now: now.now, LLM: &tallying{}, Summarizer: compaction.NewOffline(),
		Hands: map[string]host.HandConfig{"calendar": {Module: path, Digest: digest}},
		Compaction: host.CompactionConfig{ContinuousInterval: 5, KeepRecent: 2, GapSecs: 900,
			ContextSources: []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}},
		OnCompaction: runs.take,
	}
	h := open(t, config)
	said := strings.Repeat("It runs at forty percent. ", 30)
	var session memory.SessionID
	for range 3 {
		session = send(t, h, host.Message{Session: session, Text: said}).Session
		now.advance(time.Minute)
	}
	last := now.now().Add(-time.Minute)
	config.Data = killed(t, config.Data)
	now.advance(899 * time.Second)
	h = open(t, config)
	answer := send(t, h, host.Message{Session: session, Text: said})
	refresh := answer.Gap.Refresh
	if answer.Gap.Outcome != memory.OutcomeDone || !refresh.From.Equal(last) || !refresh.To.Equal(now.now()) {
		t.Fatalf("%+v: want the window %s to %s", answer.Gap, last, now.now())
	}
	// The refreshed context is in the very prompt of that answer.
	if _, block, found := strings.Cut(promptText(answer), memory.RefreshHeadingPrefix); !found {
		t.Error("no refresh in the prompt")
	} else if q := readMirrored(t, block); !q.From.Equal(last) || !q.To.Equal(now.now()) || q.Prompt != "What is on?" {
		t.Errorf("asked %+v", q)
	}
	if got := runs.all(); len(got) != 0 {
		t.Errorf("cadence ran after 4 exchanges: %+v", got)
	}
	now.advance(time.Minute)
	config.Data = killed(t, config.Data)
	h = open(t, config)
	now.advance(time.Minute)
	// A new session of the same pair does not make the user new.
	if answer := send(t, h, host.Message{Text: said}); answer.Gap.Reason != compaction.ReasonNotDue {
		t.Errorf("%+v", answer.Gap)
	}
	send(t, h, host.Message{Session: session, Text: said})
	if got := runs.all(); len(got) != 1 || got[0].Trigger != memory.TriggerCadence || got[0].Outcome != memory.OutcomeDone {
		t.Errorf("after 5 exchanges: %+v", got)
	}
	if got := h.Counts().Triggers; got[memory.TriggerCadence] != (host.TriggerCounts{Fired: 1}) {
		t.Errorf("counts %+v", got)
	}
}

// A process that is killed while a model summarises leaves the run to the next
// one, which finishes it before anybody says anything. Nobody who talks waits for
// the first: C2.
func TestAKilledCadenceRunIsFinished(t *testing.T) {
	path, digest := mirrorHand(t)
	now := &clock{at: monday}
	summarizer := stuck{make(chan struct{}, 1)}
	var runs kept
	config := host.Config{
		Data: t.TempDir(), Now: now.now, LLM: &tallying{}, Summarizer: summarizer,
		Hands: map[string]host.HandConfig{"calendar": {Module: path, Digest: digest}},
		Compaction: host.CompactionConfig{ContinuousInterval: 5, KeepRecent: 2,
			ContextSources: []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}},
		OnCompaction: runs.take,
	}
	h := open(t, config)
	var answer host.Answer
	var err error
	for i := range 5 {
		answer, err = h.Send(t.Context(), host.Message{Session: answer.Session, Text: fmt.Sprint("number ", i, strings.Repeat(" is about the pump in hall three.", 30))})
		if err != nil {
			t.Fatal(err)
		}
		now.advance(time.Minute)
	}
	<-summarizer.asked
	for range 3 {
		if _, err := h.Send(t.Context(), host.Message{Session: answer.Session, Text: "still there?"}); err != nil {
			t.Fatal(err)
		}
	}
	config.Data, config.Summarizer = killed(t, config.Data), compaction.NewOffline()
	now.advance(time.Hour)
	h = open(t, config)
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	user := userNamed(t, h, "")
	frontier, err := h.Store().Frontier(t.Context(), user, answer.Session)
	if err != nil || frontier.Items[0].Summary == nil {
		t.Errorf("nothing was summarised: %+v, %v", frontier.Items, err)
	}
	lines, _ := transcriptOf(t, h, answer.Session)
	if n := strings.Count(strings.Join(lines, "\n"), "/"+string(memory.SourceContextInjection)); n != 1 {
		t.Errorf("%d refreshes", n)
	}
	record, err := h.Store().Compactions(t.Context(), user, answer.Session, 0)
	if err != nil || len(record) != 1 || record[0].Outcome != memory.OutcomeDone || record[0].Trigger != memory.TriggerCadence {
		t.Errorf("record %+v, %v", record, err)
	}
	if pending, err := h.Store().PendingRuns(t.Context()); err != nil || len(pending) != 0 {
		t.Errorf("not over: %+v, %v", pending, err)
	}
	if got := runs.all(); len(got) != 1 || got[0].Outcome != memory.OutcomeDone {
		t.Errorf("told of %+v", got)
	}
	// And once alone.
	config.Data = killed(t, config.Data)
	h = open(t, config)
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.Counts().Triggers; len(got) != 0 {
		t.Errorf("the run was resumed again: %+v", got)
	}
}

// held is a model that answers when it is let.
type held struct{ asked, answer chan struct{} }

func (m held) Complete(context.Context, llm.Request) (llm.Response, error) {
	m.asked <- struct{}{}
	<-m.answer
	return llm.Response{Text: "It does.", Model: "test"}, nil
}

// A turn that ends while the host closes makes a cadence run due that nobody may
// begin any more: it is the next process's.
func TestACadenceRunThatIsDueAtTheEndIsFinished(t *testing.T) {
	now := &clock{at: monday}
	var runs kept
	config := host.Config{
		Data: t.TempDir(), Now: now.now, LLM: &tallying{}, Summarizer: compaction.NewOffline(),
		Compaction: host.CompactionConfig{ContinuousInterval: 5, KeepRecent: 2}, OnCompaction: runs.take,
	}
	said := strings.Repeat("It runs at forty percent. ", 30)
	h := open(t, config)
	var session memory.SessionID
	for range 4 {
		session = send(t, h, host.Message{Session: session, Text: said}).Session
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	model := held{make(chan struct{}), make(chan struct{})}
	config.LLM = model
	h = open(t, config)
	sent, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := h.Send(context.Background(), host.Message{Session: session, Text: said})
		sent <- err
	}()
	<-model.asked
	go func() { closed <- h.Close() }()
	// Until nothing more begins in the background, either.
	for {
		if _, err := h.Dream(t.Context(), memory.UserID{}, ""); errors.Is(err, host.ErrClosed) {
			break
		}
		runtime.Gosched()
	}
	close(model.answer)
	if err := errors.Join(<-sent, <-closed); err != nil {
		t.Fatal(err)
	}
	config.LLM = &tallying{}
	h = open(t, config)
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := runs.all(); len(got) != 1 || got[0].Trigger != memory.TriggerCadence || got[0].Outcome != memory.OutcomeDone {
		t.Errorf("told of %+v", got)
	}
	if pending, err := h.Store().PendingRuns(t.Context()); err != nil || len(pending) != 0 {
		t.Errorf("not over: %+v, %v", pending, err)
	}
}

// A message that is sent again for its answer is nobody coming back: no hand is
// asked, and no refresh added that nobody reads.
func TestAnAnswerThatThereIsNeedsNoRefresh(t *testing.T) {
	path, digest := mirrorHand(t)
	now := &clock{at: monday}
	h := open(t, host.Config{
		Now: now.now, LLM: &tallying{}, Summarizer: compaction.NewOffline(),
		Hands:      map[string]host.HandConfig{"calendar": {Module: path, Digest: digest}},
		Compaction: host.CompactionConfig{GapSecs: 60, ContextSources: []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}},
	})
	session := send(t, h, host.Message{Text: "Hello."}).Session
	first := send(t, h, host.Message{Session: session, Text: "Is it on?", EventKey: "k"})
	for range 3 {
		now.advance(time.Hour)
		if again := send(t, h, host.Message{Session: session, Text: "Is it on?", EventKey: "k"}); again.Message.ID != first.Message.ID {
			t.Errorf("another answer: %+v", again.Message)
		}
	}
	lines, _ := transcriptOf(t, h, session)
	if len(lines) != 4 {
		t.Errorf("the session holds %q", lines)
	}
	if got := h.Counts().Triggers; len(got) != 0 {
		t.Errorf("counts %+v", got)
	}
	if answer := send(t, h, host.Message{Session: session, Text: "And now?", EventKey: "l"}); len(answer.Gap.Refresh.Blocks) != 1 {
		t.Errorf("back in earnest: %+v", answer.Gap)
	}
}

// C8 by way of turns: a session of ticks alone asks no hand, neither by cadence nor
// when somebody else's tick comes after a gap.
func TestTicksAskNoHand(t *testing.T) {
	path, digest := mirrorHand(t)
	now := &clock{at: monday}
	h := open(t, host.Config{
		Now: now.now, LLM: &tallying{}, Summarizer: compaction.NewOffline(),
		Hands: map[string]host.HandConfig{"calendar": {Module: path, Digest: digest}},
		Compaction: host.CompactionConfig{ContinuousInterval: 1, KeepRecent: 1, GapSecs: 60,
			ContextSources: []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}},
	})
	var session memory.SessionID
	for i := range 12 {
		source := []memory.Source{memory.SourceScheduledTick, memory.SourceAutonomousTick}[i%2]
		session = send(t, h, host.Message{Session: session, Source: source, Text: strings.Repeat("Look after the pump. ", 50)}).Session
		now.advance(time.Hour)
	}
	runs, err := h.Ledger().Runs(t.Context(), "", 10)
	if err != nil || len(runs) != 0 {
		t.Errorf("%d queries, counts %+v, %v", len(runs), h.Counts(), err)
	}
	// The same hand is asked once the user says something and comes back.
	send(t, h, host.Message{Session: session, Text: "Hello."})
	now.advance(time.Hour)
	if answer := send(t, h, host.Message{Session: session, Text: "Hello again."}); len(answer.Gap.Refresh.Blocks) != 1 {
		t.Errorf("%+v", answer.Gap)
	}
}
