package host_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// model answers at once, or as a test says, and keeps what it was asked last.
type model struct {
	answer func(context.Context) (llm.Response, error)

	mu   sync.Mutex
	last llm.Request
}

func (m *model) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	m.mu.Lock()
	m.last = r
	m.mu.Unlock()
	if m.answer != nil {
		return m.answer(ctx)
	}
	return llm.Response{Text: "ok", Model: "test"}, nil
}

// Invariant 10: no edit of [[users]] gives one user's conversations to another.
func TestUsersStayWhoTheyAre(t *testing.T) {
	for _, test := range []struct {
		name   string
		first  []host.UserConfig
		second []host.UserConfig
		says   string // "" if the second is fine
		is     string // who anna's conversations belong to then
	}{
		{"another becomes the default", []host.UserConfig{{Name: "anna"}, {Name: "bert"}}, []host.UserConfig{{Name: "anna"}, {Name: "carl", IsDefault: true}}, `is_default = true beside "anna"`, ""},
		{"a new one stands first", []host.UserConfig{{Name: "anna"}}, []host.UserConfig{{Name: "bert"}, {Name: "anna"}}, `is_default = true beside "anna"`, ""},
		{"two are swapped", []host.UserConfig{{Name: "anna"}, {Name: "bert"}}, []host.UserConfig{{Name: "bert"}, {Name: "anna"}}, `is_default = true beside "anna"`, ""},
		{"a known one becomes the default", []host.UserConfig{{Name: "anna"}, {Name: "bert"}}, []host.UserConfig{{Name: "bert"}}, "cannot become the default user", ""},
		{"the order changes, the flag stays", []host.UserConfig{{Name: "anna"}, {Name: "bert"}}, []host.UserConfig{{Name: "bert"}, {Name: "anna", IsDefault: true}}, "", "anna"},
		{"all are taken out", []host.UserConfig{{Name: "anna"}}, nil, "", "default"},
		{"the only one is renamed", []host.UserConfig{{Name: "anna"}}, []host.UserConfig{{Name: "annabel"}}, "", "annabel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := t.TempDir()
			h := open(t, host.Config{Data: data, LLM: &model{}, Users: test.first})
			session := send(t, h, host.Message{Text: "my secret diary"}).Session
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h, err := host.New(t.Context(), host.Config{Data: data, Cache: cacheDir, LLM: &model{}, Users: test.second})
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "users[") {
					t.Errorf("got %v", err)
				}
				// The old configuration still works.
				h := open(t, host.Config{Data: data, LLM: &model{}, Users: test.first})
				send(t, h, host.Message{Session: session, Text: "still mine"})
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			user, err := h.User(test.is)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Store().Session(t.Context(), user.ID, session); err != nil {
				t.Errorf("%s does not have the session: %v", test.is, err)
			}
			send(t, h, host.Message{Session: session, Text: "still mine"})
		})
	}
	for name, users := range map[string][]host.UserConfig{
		"default for another": {{Name: "anna"}, {Name: "default"}},
		"one id twice":        {{Name: "anna", ID: "0195bd0e-8f4a-7c21-9d4a-1b2c3d4e5f60"}, {Name: "bert", ID: "0195bd0e-8f4a-7c21-9d4a-1b2c3d4e5f60"}},
	} {
		config := host.Config{Users: users}
		if err := config.Check(); err == nil || !strings.Contains(err.Error(), "users[1]") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One user's address in a list is not another's.
func TestValuesOfSeveralUsers(t *testing.T) {
	users := []host.UserConfig{{Name: "anna"}, {Name: "bert"}}
	both := []string{"anna", "bert"}
	for name, test := range map[string]struct {
		hand host.HandConfig
		says string
	}{
		"a list":              {host.HandConfig{Users: both, Config: map[string]any{"me": []any{"anna@example.org"}}}, "hands.mail.config.me"},
		"a path that cleans":  {host.HandConfig{Users: both, Grant: host.GrantConfig{Files: map[string]string{"mail": "/srv/{user}/../all"}}}, "hands.mail.grant.files.mail"},
		"a list of each":      {host.HandConfig{Users: both, Config: map[string]any{"me": []any{"{user}@example.org"}}}, ""},
		"one person, twice":   {host.HandConfig{Users: []string{"anna", "default"}, Grant: host.GrantConfig{Files: map[string]string{"mail": "/srv/mail"}}}, ""},
		"shared by intention": {host.HandConfig{Users: both, Shared: true, Config: map[string]any{"me": []any{"all@example.org"}}}, ""},
	} {
		config := host.Config{Users: users, Hands: map[string]host.HandConfig{"mail": test.hand}}
		if err := config.Check(); (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMessagesThatAreNotSent(t *testing.T) {
	m := &model{}
	h := open(t, host.Config{LLM: m, Agents: []host.AgentConfig{{Name: "alpha", SystemPrompt: "You are Alpha."}, {Name: "beta", SystemPrompt: "You are Beta."}}})
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	for name, message := range map[string]host.Message{
		"blank":              {Text: " \n\t"},
		"an unknown source":  {Text: "x", Source: "rumour"},
		"an answer":          {Text: "x", Source: memory.SourceAssistant},
		"an injection":       {Text: "x", Source: memory.SourceContextInjection},
		"an unknown session": {Text: "x", Session: memory.NewID[memory.SessionID]()},
	} {
		if _, err := h.Send(t.Context(), message); !errors.Is(err, memory.ErrInvalid) && !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sessions, err := h.Store().Sessions(t.Context(), user.ID, memory.SessionQuery{})
	if err != nil || len(sessions) != 0 {
		t.Errorf("%d sessions were left behind, %v", len(sessions), err)
	}

	// A session answers as the agent that it is with.
	session := send(t, h, host.Message{Agent: "beta", Text: "hello"}).Session
	send(t, h, host.Message{Session: session, Text: "again"})
	if !strings.HasPrefix(m.last.System, "You are Beta.") {
		t.Errorf("the second turn was asked as %.20q", m.last.System)
	}
	if _, err := h.Send(t.Context(), host.Message{Session: session, Agent: "alpha", Text: "again"}); !errors.Is(err, memory.ErrInvalid) {
		t.Errorf("as another agent: %v", err)
	}

	m.answer = func(context.Context) (llm.Response, error) { return llm.Response{Text: "  "}, nil }
	if _, err := h.Send(t.Context(), host.Message{Session: session, Text: "x"}); !errors.Is(err, llm.ErrEmpty) {
		t.Errorf("a blank answer: %v", err)
	}
}

// C2: every multiple of the interval fires; one that the turns overtake takes the
// place of the one before, and none is left behind.
func TestCadenceFiresForEveryMultiple(t *testing.T) {
	var mu sync.Mutex
	fired := 0
	h := open(t, host.Config{LLM: &model{}, Compaction: host.CompactionConfig{ContinuousInterval: 5, KeepRecent: 1}, OnCompaction: func(compaction.Report) {
		mu.Lock()
		defer mu.Unlock()
		fired++
	}})
	var session memory.SessionID
	for i := range 100 {
		answer, err := h.Send(t.Context(), host.Message{Session: session, Text: fmt.Sprint("message ", i)})
		if err != nil {
			t.Fatal(err)
		}
		session = answer.Session
		if i >= 50 {
			continue // as fast as it goes
		}
		if err := h.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if mu.Lock(); fired != (i+1)/5 {
			t.Errorf("fired %d times in %d exchanges", fired, i+1)
		}
		mu.Unlock()
	}
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pending, err := h.Store().PendingRuns(t.Context()); err != nil || len(pending) > 0 || fired <= 10 || fired > 20 {
		t.Errorf("fired %d times in 100 exchanges, pending %+v, %v", fired, pending, err)
	}
}

func TestIdleBesideTurns(t *testing.T) {
	h := open(t, host.Config{LLM: &model{}, Compaction: host.CompactionConfig{ContinuousInterval: 1}})
	var senders, waiters sync.WaitGroup
	done := make(chan struct{})
	for range 8 {
		waiters.Go(func() {
			for {
				if err := h.Idle(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 3 {
		senders.Go(func() {
			var session memory.SessionID
			for range 30 {
				answer, err := h.Send(t.Context(), host.Message{Session: session, Text: "x"})
				if err != nil {
					t.Error(err)
					return
				}
				session = answer.Session
			}
		})
	}
	senders.Wait()
	close(done)
	waiters.Wait()
}

// Close waits for a turn that goes on, and lets none begin.
func TestCloseWaitsForTheTurn(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	h := open(t, host.Config{LLM: &model{answer: func(context.Context) (llm.Response, error) {
		close(asked)
		<-release
		return llm.Response{Text: "the answer"}, nil
	}}})
	sent := make(chan error, 1)
	go func() {
		_, err := h.Send(t.Context(), host.Message{Text: "x"})
		sent <- err
	}()
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	for {
		if _, err := h.Send(t.Context(), host.Message{Text: " "}); errors.Is(err, host.ErrClosed) {
			break
		}
	}
	close(release)
	if err := <-sent; err != nil {
		t.Errorf("the turn: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
}

// H11: a query leaves the session database as it is, to the byte.
func TestAQueryLeavesTheSessionsAlone(t *testing.T) {
	calendars := t.TempDir()
	calendarDir(t, calendars, "Dentist")
	data := t.TempDir()
	h := open(t, host.Config{Data: data, LLM: &model{}, Hands: map[string]host.HandConfig{"calendar": {Grant: host.GrantConfig{Files: map[string]string{"calendars": calendars}}}}})
	send(t, h, host.Message{Text: "hello"})
	state := func() (all string) {
		for _, name := range []string{"glovebox.db", "glovebox.db-wal"} {
			content, err := os.ReadFile(filepath.Join(data, name))
			if err != nil {
				t.Fatal(err)
			}
			all += string(content)
		}
		return all
	}
	before := state()
	result, err := h.Query(t.Context(), host.HandQuery{Hand: "calendar", Prompt: "What is on?", From: monday, To: monday.AddDate(0, 0, 1)})
	if err != nil || result.Fuel == 0 || !strings.Contains(result.Reply.Render(), "Dentist") {
		t.Errorf("%q, %v", result.Reply.Render(), err)
	}
	if state() != before {
		t.Error("the session database has changed")
	}
	if _, err := h.Query(t.Context(), host.HandQuery{Hand: "nobody", Prompt: "x"}); !errors.Is(err, abi.KindUnknownHand) || !strings.Contains(err.Error(), "calendar") {
		t.Errorf("an unknown hand: %v", err)
	}
}

// A window that no model has is given to mean that there is no limit: the prompt
// has all of the conversation then, and not its last message alone.
func TestAWindowWithoutEnd(t *testing.T) {
	for _, window := range []int{math.MaxInt, math.MaxInt/2 + 2048} {
		m := &model{}
		config := host.Config{Data: t.TempDir(), LLM: m, Model: host.ModelConfig{ContextWindow: window}}
		h := open(t, config)
		session := send(t, h, host.Message{Text: "the lamp is green"}).Session
		answer := send(t, h, host.Message{Session: session, Text: "which colour has it"})
		if text := promptText(answer); !strings.Contains(text, "the lamp is green") {
			t.Errorf("window %d: the model was shown %q", window, text)
		}
		if text := fmt.Sprint(m.last.Messages); !strings.Contains(text, "the lamp is green") {
			t.Errorf("window %d: the model was sent %s", window, text)
		}
		user, err := h.Store().DefaultUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, report, err := host.ContextOf(t.Context(), config, h.Store(), user.ID, session, math.MaxInt)
		if err != nil || report.OverBudget {
			t.Fatalf("window %d: %+v, %v", window, report, err)
		}
		for _, e := range report.Entries {
			if !e.Included {
				t.Errorf("window %d: left out: %+v", window, e)
			}
		}
	}
}
