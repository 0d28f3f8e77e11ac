package dream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// house is a store with one agent, in which a clock stands still until it is set.
type house struct {
	t     testing.TB
	path  string
	store *sqlite.Store
	user  memory.UserID
	agent memory.AgentID
	clock atomic.Int64 // in microseconds since noon
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{t: t, path: filepath.Join(t.TempDir(), "glovebox.db")}
	h.open()
	t.Cleanup(func() { h.store.Close() })
	user, err := h.store.DefaultUser(t.Context())
	h.check(err)
	h.user = user.ID
	agent, err := h.store.PutAgent(t.Context(), "helper", "", noon)
	h.check(err)
	h.agent = agent.ID
	return h
}

func (h *house) open() {
	h.t.Helper()
	store, err := sqlite.Open(h.t.Context(), h.path, sqlite.Options{Now: h.now})
	h.check(err)
	h.store = store
}

func (h *house) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) now() time.Time { return noon.Add(time.Duration(h.clock.Load()) * time.Microsecond) }

func (h *house) wait(d time.Duration) { h.clock.Add(d.Microseconds()) }

// person returns a new user.
func (h *house) person(name string) memory.UserID {
	h.t.Helper()
	id := memory.NewID[memory.UserID]()
	h.check(h.store.PutUser(h.t.Context(), memory.User{ID: id, Name: name, CreatedAt: h.now()}))
	return id
}

// talk begins a session in which the user says the lines, each of which is answered.
func (h *house) talk(user memory.UserID, lines ...string) dream.Place {
	h.t.Helper()
	s, err := h.store.CreateSession(h.t.Context(), memory.Session{Agent: h.agent, User: user, CreatedAt: h.now()})
	h.check(err)
	at := dream.Place{User: user, Agent: h.agent, Session: s.ID}
	h.goOn(at, lines...)
	return at
}

func (h *house) goOn(at dream.Place, lines ...string) {
	h.t.Helper()
	var drafts []memory.Draft
	for _, line := range lines {
		drafts = append(drafts, h.draft(memory.RoleUser, memory.SourceUser, line), h.draft(memory.RoleAssistant, memory.SourceAssistant, "Very well."))
	}
	_, err := h.store.Append(h.t.Context(), at.User, at.Session, drafts...)
	h.check(err)
}

func (h *house) draft(role memory.Role, source memory.Source, text string) memory.Draft {
	return memory.Draft{Role: role, Source: source, Blocks: []memory.Block{memory.Text(text)}, At: h.now()}
}

func (h *house) append(at dream.Place, role memory.Role, source memory.Source, text string) {
	h.t.Helper()
	_, err := h.store.Append(h.t.Context(), at.User, at.Session, h.draft(role, source, text))
	h.check(err)
}

// dreamer returns a Dreamer with a gap of five minutes.
func (h *house) dreamer(model llm.Model, change ...func(*dream.Config)) *dream.Dreamer {
	config := dream.Config{Model: model, Gap: 5 * time.Minute, Now: h.now, Agents: func() []memory.AgentID { return []memory.AgentID{h.agent} }}
	for _, c := range change {
		c(&config)
	}
	d := dream.New(h.store, config)
	h.t.Cleanup(func() { d.Close(context.Background()) })
	return d
}

// valid returns what is remembered of the user now, as "name: content".
func (h *house) valid(user memory.UserID) (list []string) {
	h.t.Helper()
	for _, agent := range []memory.AgentID{{}, h.agent} {
		topics, _, err := h.store.Topics(h.t.Context(), user, memory.TopicQuery{Agent: agent, At: h.now()})
		h.check(err)
		for _, t := range topics {
			list = append(list, t.Name+": "+t.Content)
		}
	}
	return list
}

func (h *house) remembers(user memory.UserID, want ...string) {
	h.t.Helper()
	if got := h.valid(user); !slices.Equal(got, want) {
		h.t.Errorf("remembered is %q, want %q", got, want)
	}
}

// row is an entry of a dream's answer.
type row struct {
	Topic      string   `json:"topic"`
	Content    string   `json:"content"`
	Supersedes []string `json:"supersedes"`
	From       []string `json:"from"`
	Expires    any      `json:"expires_at"`
	Scope      string   `json:"scope"`
}

func rows(list ...row) string {
	text, err := json.Marshal(map[string]any{"topics": list})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// attentive makes a topic of each thing that the user says, and of each that was
// noted; asked for an extraction, it notes all that the user says.
func attentive() *scripted {
	notes := diligent()
	return &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if isExtraction(r) {
			return notes.answer(ctx, r)
		}
		var list []row
		for _, l := range linesOf(r) {
			if l.By == "user" || l.ID[0] == 'x' {
				list = append(list, row{Topic: "said", Content: l.Text, From: []string{l.ID}})
			}
		}
		return llm.Response{Text: rows(list...)}, nil
	}}
}

// waiting is a model that says when it is asked, and answers when it may.
type waiting struct {
	asked   chan llm.Request
	answers chan string
}

func newWaiting() *waiting {
	return &waiting{asked: make(chan llm.Request), answers: make(chan string)}
}

func (w *waiting) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	select {
	case w.asked <- r:
	case <-ctx.Done():
		return llm.Response{}, ctx.Err()
	}
	select {
	case text := <-w.answers:
		return llm.Response{Text: text}, nil
	case <-ctx.Done():
		return llm.Response{}, ctx.Err()
	}
}

func TestDreamMergesWhatWasSaid(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.", "I have a dog.")
	model := attentive()
	d := h.dreamer(model)
	report, err := d.Dream(t.Context(), at)
	h.check(err)
	h.remembers(h.user, "said: I live in Lisbon.", "said: I have a dog.")
	if report.Messages != 4 || len(report.Topics) != 2 || report.Dropped != 0 || report.Retired != 0 {
		t.Errorf("report is %+v", report)
	}
	messages, err := h.store.Messages(t.Context(), h.user, at.Session, memory.MessageQuery{})
	h.check(err)
	if want := []memory.MessageID{messages[0].ID}; !slices.Equal(report.Topics[0].Sources, want) {
		t.Errorf("sources are %v, want %v", report.Topics[0].Sources, want)
	}
	// Nothing is new: nobody is asked.
	report, err = d.Dream(t.Context(), at)
	if err != nil || len(report.Topics) > 0 || len(model.requests()) != 1 {
		t.Errorf("the second dream: %+v, %v; the model was asked %d times", report, err, len(model.requests()))
	}
	if want := (dream.Counts{Dreams: 1, Nothing: 1}); d.Counts() != want {
		t.Errorf("counts are %+v, want %+v", d.Counts(), want)
	}
}

// The prompt tells what is remembered, the day, and who may be cited.
func TestDreamPrompt(t *testing.T) {
	h := newHouse(t)
	_, err := h.store.PutTopic(t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "home", Content: "Lives in Faro.", ExpiresAt: noon.Add(48 * time.Hour)}, noon)
	h.check(err)
	_, err = h.store.PutTopic(t.Context(), h.user, h.agent, memory.TopicRevision{}, memory.NewTopic{Name: "style", Content: "Wants short answers."}, noon)
	h.check(err)
	_, err = h.store.PutTopic(t.Context(), h.person("other"), memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "secret", Content: "Of somebody else."}, noon)
	h.check(err)
	model := saying(`{"topics":[]}`)
	_, err = h.dreamer(model).Dream(t.Context(), h.talk(h.user, "Say \"hi\"\n{\"id\":\"t9\"}"))
	h.check(err)
	prompt := promptText(model.requests()[0])
	for _, want := range []string{
		"It is Wednesday, 2026-03-04T12:00Z.",
		`{"id":"t1","topic":"home","content":"Lives in Faro.","since":"2026-03-04T12:00:00Z","expires_at":"2026-03-06T12:00:00Z","scope":"user","by_hand":true}`,
		`{"id":"t2","topic":"style","content":"Wants short answers.","since":"2026-03-04T12:00:00Z","scope":"agent","by_hand":true}`,
		`"text":"Say \"hi\"\n{\"id\":\"t9\"}"}`,
	} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt does not have %s:\n%s", want, prompt)
		}
	}
	if strings.Contains(prompt, "somebody else") {
		t.Error("the prompt has another user's topic")
	}
	var schema map[string]any
	if r := model.requests()[0]; r.Schema == nil || json.Unmarshal(r.Schema.JSON, &schema) != nil || schema["type"] != "object" {
		t.Errorf("the schema is %+v", r.Schema)
	}
}

// A model that answers nothing, garbage, ten megabytes, or never, changes nothing;
// what it was asked about is asked about again.
func TestDreamKeepsAllWhenTheModelFails(t *testing.T) {
	h := newHouse(t)
	_, err := h.store.PutTopic(t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "home", Content: "Lives in Faro."}, noon)
	h.check(err)
	at := h.talk(h.user, "I live in Lisbon.")
	says := func(text string) func(context.Context, llm.Request) (llm.Response, error) {
		return func(context.Context, llm.Request) (llm.Response, error) { return llm.Response{Text: text}, nil }
	}
	for _, test := range []struct {
		name   string
		answer func(context.Context, llm.Request) (llm.Response, error)
		want   error
	}{
		{"nothing", func(context.Context, llm.Request) (llm.Response, error) { return llm.Response{}, llm.ErrEmpty }, llm.ErrEmpty},
		{"an empty text", says(""), dream.ErrUnreadable},
		{"prose", says("I would rather not."), dream.ErrUnreadable},
		{"no list", says(`{"topics":{"home":"Lisbon"}}`), dream.ErrUnreadable},
		{"null", says(`{"topics":null}`), dream.ErrUnreadable},
		{"broken off", says(`{"topics":[{"topic":"home","content":"Lives in Lisbon.","from":["m1"],"supersedes":["t1"]}`), dream.ErrUnreadable},
		{"ten megabytes", says(`{"topics":[{"topic":"home","content":"Lisbon","from":["m1"],"supersedes":["t1"]},{"topic":"` + strings.Repeat("x", 10<<20) + `"}]}`), dream.ErrUnreadable},
		{"an error", func(context.Context, llm.Request) (llm.Response, error) { return llm.Response{}, llm.ErrUnavailable }, llm.ErrUnavailable},
		{"a panic", func(context.Context, llm.Request) (llm.Response, error) { panic("model") }, nil},
	} {
		model := &scripted{answer: test.answer}
		d := h.dreamer(model)
		_, err := d.Dream(t.Context(), at)
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: the error is %v, want %v", test.name, err, test.want)
		}
		if c := d.Counts(); c.DreamsFailed != 1 || c.Dreams != 0 {
			t.Errorf("%s: counts are %+v", test.name, c)
		}
		h.remembers(h.user, "home: Lives in Faro.")
		if unseen, err := h.store.Unseen(t.Context(), h.user, at.Session); err != nil || unseen.Messages != 2 {
			t.Errorf("%s: unseen is %+v, %v", test.name, unseen, err)
		}
	}
	// One that never answers is ended with its context.
	ctx, cancel := context.WithCancel(t.Context())
	model := newWaiting()
	failed := make(chan error)
	go func() { _, err := h.dreamer(model).Dream(ctx, at); failed <- err }()
	<-model.asked
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("never: the error is %v", err)
	}
	_, err = h.dreamer(attentive()).Dream(t.Context(), at)
	h.check(err)
	h.remembers(h.user, "home: Lives in Faro.", "said: I live in Lisbon.")
}

// One that does not even end with its context is not waited for beyond Timeout.
func TestDreamEndsWithoutTheModel(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	messages, err := h.store.UnseenMessages(t.Context(), h.user, at.Session, memory.MessageQuery{})
	h.check(err)
	session, err := h.store.Session(t.Context(), h.user, at.Session)
	h.check(err)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		never := &scripted{answer: func(context.Context, llm.Request) (llm.Response, error) { <-release; return llm.Response{}, nil }}
		d := dream.New(still{session: session, messages: messages}, dream.Config{Model: never, Timeout: 30 * time.Second})
		begun := time.Now()
		if _, err := d.Dream(t.Context(), at); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(begun); took > 32*time.Second {
			t.Errorf("it took %v", took)
		}
		close(release)
	})
}

// still is a store of one session that can only be read: a real one waits for
// files, which no bubble of goroutines can do.
type still struct {
	dream.Store
	session  memory.Session
	messages []memory.Message
}

func (s still) Session(context.Context, memory.UserID, memory.SessionID) (memory.Session, error) {
	return s.session, nil
}

func (s still) Unseen(context.Context, memory.UserID, memory.SessionID) (memory.Unseen, error) {
	return memory.Unseen{Messages: len(s.messages), UserMessages: 1}, nil
}

func (s still) UnseenMessages(context.Context, memory.UserID, memory.SessionID, memory.MessageQuery) ([]memory.Message, error) {
	return s.messages, nil
}

func (s still) Topics(context.Context, memory.UserID, memory.TopicQuery) ([]memory.Topic, memory.TopicRevision, error) {
	return nil, memory.TopicRevision{}, nil
}

func (s still) Extractions(context.Context, memory.UserID, memory.ExtractionQuery) ([]memory.Extraction, error) {
	return nil, nil
}

// M9: a second dream of the same agent and user is skipped, another user's is not.
func TestDreamIsSkippedWhileOneGoesOn(t *testing.T) {
	h := newHouse(t)
	model := newWaiting()
	d := h.dreamer(model)
	first := h.talk(h.user, "I live in Lisbon.")
	second := h.talk(h.user, "I have a dog.")
	done := make(chan error)
	go func() { _, err := d.Dream(t.Context(), first); done <- err }()
	<-model.asked
	for _, at := range []dream.Place{first, second} {
		if _, err := d.Dream(t.Context(), at); !errors.Is(err, dream.ErrBusy) {
			t.Errorf("the error is %v, want ErrBusy", err)
		}
	}
	if c := d.Counts(); c.Busy != 2 {
		t.Errorf("counts are %+v", c)
	}
	other := h.talk(h.person("other"), "I live in Porto.")
	go func() { _, err := d.Dream(t.Context(), other); done <- err }()
	<-model.asked
	model.answers <- `{"topics":[]}`
	model.answers <- `{"topics":[]}`
	h.check(errors.Join(<-done, <-done))
	if c := d.Counts(); c.Dreams != 2 || c.DreamsFailed != 0 {
		t.Errorf("counts are %+v", c)
	}
}

// M11, and what is deleted, edited or wiped while a dream goes on: the dream fails,
// and nothing comes back.
func TestDreamIsOverruledByItsUser(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*house) error
		// after is what is remembered when the next dream has said all it may.
		after []string
	}{
		{"deleted", func(h *house) error {
			_, err := h.store.DeleteTopic(h.t.Context(), h.user, memory.AgentID{}, "said")
			return err
		}, []string{"said: I have a dog."}},
		{"edited", func(h *house) error {
			_, err := h.store.PutTopic(h.t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "said", Content: "Lives elsewhere."}, h.now())
			return err
		}, []string{"said: Lives elsewhere.", "said: I have a dog."}},
		{"memory wiped", func(h *house) error {
			_, err := h.store.WipeMemory(h.t.Context(), h.user)
			return err
		}, nil},
		{"memory with the agent wiped", func(h *house) error {
			_, err := h.store.WipeAgentMemory(h.t.Context(), h.user, h.agent)
			return err
		}, []string{"said: I live in Lisbon."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHouse(t)
			at := h.talk(h.user, "I live in Lisbon.")
			_, err := h.dreamer(attentive()).Dream(t.Context(), at)
			h.check(err)
			h.wait(time.Hour)
			h.goOn(at, "I have a dog.")
			model := newWaiting()
			d := h.dreamer(model)
			failed := make(chan error)
			go func() { _, err := d.Dream(t.Context(), at); failed <- err }()
			<-model.asked
			h.check(test.change(h))
			before := h.valid(h.user)
			model.answers <- rows(row{Topic: "said", Content: "Lives in Lisbon with a dog.", From: []string{"m1"}, Supersedes: []string{"t1"}})
			if err := <-failed; !errors.Is(err, memory.ErrConflict) && !errors.Is(err, memory.ErrNotFound) {
				t.Errorf("the error is %v", err)
			}
			h.remembers(h.user, before...)
			h.wait(time.Hour)
			again := attentive()
			_, err = h.dreamer(again).Dream(t.Context(), at)
			h.check(err)
			h.remembers(h.user, test.after...)
			for _, r := range again.requests() {
				if test.name != "memory with the agent wiped" && strings.Contains(promptText(r), "Lisbon") {
					t.Errorf("what has gone is in a prompt: %s", promptText(r))
				}
			}
		})
	}
}

// A user who is wiped during a dream ends it, and nothing comes back.
func TestUserIsWipedDuringADream(t *testing.T) {
	h := newHouse(t)
	user := h.person("ana")
	at := h.talk(user, "I live in Lisbon.")
	entered, wiped := context.WithCancelCause(t.Context())
	left := make(chan struct{})
	model := newWaiting()
	d := h.dreamer(model, func(c *dream.Config) {
		c.Enter = func(ctx context.Context, u memory.UserID) (context.Context, func(), error) {
			if u != user {
				t.Errorf("entered is %s, want %s", u, user)
			}
			if context.Cause(entered) != nil {
				return ctx, nil, memory.ErrWiped
			}
			ctx, cancel := context.WithCancelCause(ctx)
			context.AfterFunc(entered, func() { cancel(context.Cause(entered)) })
			return ctx, func() { close(left) }, nil
		}
	})
	h.wait(time.Hour)
	ticked := make(chan error)
	go func() { ticked <- d.Tick(t.Context()) }()
	<-model.asked
	h.check(h.store.BeginWipe(t.Context(), user, h.now()))
	wiped(memory.ErrWiped)
	<-left
	_, err := h.store.WipeUser(t.Context(), user)
	h.check(err)
	h.check(<-ticked)
	if _, err := d.Dream(t.Context(), at); !errors.Is(err, memory.ErrWiped) {
		t.Errorf("the error is %v, want ErrWiped", err)
	}
	h.remembers(user)
	if list, err := h.store.Extractions(t.Context(), user, memory.ExtractionQuery{}); err != nil || len(list) > 0 {
		t.Errorf("extractions are %v, %v", list, err)
	}
	h.check(h.store.EndWipe(t.Context(), user))
	h.check(d.Tick(t.Context()))
}

// Two that delete the same topic at once: one does, the other finds nothing, and
// the next dream brings nothing back.
func TestTwoDeletesAtOnce(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	model := attentive()
	d := h.dreamer(model)
	_, err := d.Dream(t.Context(), at)
	h.check(err)
	var group sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		group.Go(func() { _, results[i] = h.store.DeleteTopic(t.Context(), h.user, memory.AgentID{}, "said") })
	}
	group.Wait()
	deleted := 0
	for _, err := range results {
		switch {
		case err == nil:
			deleted++
		case !errors.Is(err, memory.ErrNotFound):
			t.Error(err)
		}
	}
	if deleted != 1 {
		t.Errorf("%d deleted it, want 1", deleted)
	}
	h.wait(time.Hour)
	_, err = d.Dream(t.Context(), at)
	h.check(err)
	h.remembers(h.user)
	if n := len(model.requests()); n != 1 {
		t.Errorf("the model was asked %d times, want 1", n)
	}
}

// A process that ends between an extraction and a dream, or between the answer and
// the commit, neither repeats nor skips anything.
func TestDreamAfterARestart(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	all := func(c *dream.Config) { c.ExtractionTokens = 1 }
	h.check(h.dreamer(attentive(), all).AfterTurn(t.Context(), at))
	h.check(h.store.Close())
	h.open()
	h.goOn(at, "I have a dog.")
	h.wait(time.Hour)

	// The commit fails as it does when the process dies.
	broken := dream.New(failing{h.store}, dream.Config{Model: attentive(), Now: h.now})
	if _, err := broken.Dream(t.Context(), at); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	h.check(h.store.Close())
	h.open()
	h.remembers(h.user)
	model := attentive()
	report, err := h.dreamer(model).Dream(t.Context(), at)
	h.check(err)
	if report.Extractions != 1 || report.Messages != 2 {
		t.Errorf("report is %+v", report)
	}
	h.remembers(h.user, "said: I live in Lisbon.", "said: I have a dog.")
	h.check(h.store.Close())
	h.open()
	_, err = h.dreamer(model).Dream(t.Context(), at)
	h.check(err)
	h.remembers(h.user, "said: I live in Lisbon.", "said: I have a dog.")
	if n := len(model.requests()); n != 1 {
		t.Errorf("the model was asked %d times, want 1", n)
	}
}

// failing is a store that stores no dream.
type failing struct{ dream.Store }

var errBroken = errors.New("broken")

func (failing) CommitDream(context.Context, memory.UserID, memory.TopicRevision, memory.Dream) ([]memory.Topic, error) {
	return nil, errBroken
}

// What does not fit one prompt is extracted first, and every message is shown once.
func TestDreamOfALongTail(t *testing.T) {
	h := newHouse(t)
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf("This is line %d. %s", i, strings.Repeat("words and words ", 200)))
	}
	at := h.talk(h.user, lines...)
	model := attentive()
	d := h.dreamer(model)
	_, err := d.Dream(t.Context(), at)
	h.check(err)
	seen := map[string]int{}
	for _, r := range model.requests() {
		cost := 0
		for _, l := range linesOf(r) {
			if l.By == "user" {
				seen[l.Text]++
			}
			cost += (llm.Request{Messages: []llm.Message{{Text: l.Text}}}).Tokens()
		}
		if cost > 17_000 {
			t.Errorf("a prompt shows %d tokens", cost)
		}
	}
	for _, line := range lines {
		if seen[strings.TrimSpace(line)] != 1 {
			t.Errorf("%.20q was shown %d times, want once", line, seen[strings.TrimSpace(line)])
		}
	}
	if c := d.Counts(); c.Dreams != 1 || c.Extractions < 3 {
		t.Errorf("counts are %+v", c)
	}
	// What did not fit this dream is there for the next ones.
	for range 10 {
		h.wait(time.Hour)
		if _, err := d.Dream(t.Context(), dream.Place{User: h.user, Agent: h.agent}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(h.valid(h.user)); got != len(lines) {
		t.Errorf("%d things are remembered, want %d", got, len(lines))
	}
}

// What nobody can learn from is looked at once, and the model never.
func TestDreamOfNothingLearnable(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, " \u200b\n")
	d := h.dreamer(attentive())
	h.wait(time.Hour)
	for range 2 {
		h.check(d.Tick(t.Context()))
	}
	if want := (dream.Counts{Nothing: 1}); d.Counts() != want {
		t.Errorf("counts are %+v, want %+v", d.Counts(), want)
	}
	if unseen, err := h.store.Unseen(t.Context(), h.user, at.Session); err != nil || unseen.UserMessages != 0 {
		t.Errorf("unseen is %+v, %v", unseen, err)
	}
}

// An answer stores at most 32 topics, contents are cut, and names out of form
// dropped.
func TestDreamIsBounded(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "A lot.")
	list := []row{
		{Topic: "long", Content: strings.Repeat("é", 5000), From: []string{"m1"}},
		{Topic: strings.Repeat("n", 10_000), Content: "Under a long name.", From: []string{"m1"}},
		{Topic: "a/b 🦊\u202e", Content: "Slashes.", From: []string{"m1"}},
	}
	for i := range 1000 {
		list = append(list, row{Topic: "many", Content: fmt.Sprintf("Number %d.", i), From: []string{"m1"}})
	}
	report, err := h.dreamer(saying(rows(list...))).Dream(t.Context(), at)
	h.check(err)
	if len(report.Topics) != 32 || report.Dropped != len(list)-32 {
		t.Errorf("%d topics, %d dropped", len(report.Topics), report.Dropped)
	}
	got := h.valid(h.user)
	if want := "long: " + strings.Repeat("é", memory.MaxTopicContent/2); !slices.Contains(got, want) {
		t.Errorf("the long content is not cut to %d bytes", memory.MaxTopicContent)
	}
	if !slices.Contains(got, "a/b 🦊: Slashes.") {
		t.Errorf("remembered is %.100q", got)
	}
}

// When there are too many topics for a prompt it shows the latest, and one that is
// not shown cannot be retired.
func TestDreamShowsTheLatestTopics(t *testing.T) {
	h := newHouse(t)
	for i := range 60 {
		_, err := h.store.PutTopic(t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: fmt.Sprintf("topic %02d", i), Content: strings.Repeat("word ", 150)}, h.now())
		h.check(err)
		h.wait(time.Minute)
	}
	at := h.talk(h.user, "Hello.")
	model := &scripted{answer: func(_ context.Context, r llm.Request) (llm.Response, error) {
		var all []string
		for i := range 60 {
			all = append(all, fmt.Sprintf("t%d", i+1))
		}
		return llm.Response{Text: rows(row{Topic: "new", Content: "All in one.", From: []string{"m1"}, Supersedes: all})}, nil
	}}
	report, err := h.dreamer(model).Dream(t.Context(), at)
	h.check(err)
	prompt := promptText(model.requests()[0])
	shown := strings.Count(prompt, `"topic":"topic `)
	if shown == 0 || shown >= 60 || !strings.Contains(prompt, `"topic 59"`) || !strings.Contains(prompt, fmt.Sprintf("(%d older ones are not shown)", 60-shown)) {
		t.Errorf("%d topics are shown", shown)
	}
	if report.Retired != shown || len(h.valid(h.user)) != 60-shown+1 {
		t.Errorf("%d retired, %d shown, %d valid", report.Retired, shown, len(h.valid(h.user)))
	}
}

// What a topic is rewritten from is where it comes from, but no reason to.
func TestDreamKeepsProvenance(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	_, err := h.dreamer(attentive()).Dream(t.Context(), at)
	h.check(err)
	h.wait(time.Hour)
	h.goOn(at, "In Alfama.")
	for _, test := range []struct {
		from []string
		want int
	}{{[]string{"t1"}, -1}, {[]string{"t1", "m2"}, -1}, {[]string{"m1", "t1"}, 2}} {
		report, err := h.dreamer(saying(rows(row{Topic: "said", Content: "Lives in Alfama in Lisbon.", From: test.from, Supersedes: []string{"t1"}}))).Dream(t.Context(), at)
		h.check(err)
		if test.want < 0 {
			if len(report.Topics) > 0 || report.Dropped != 1 {
				t.Errorf("from %v: report is %+v", test.from, report)
			}
			h.goOn(at, "In Alfama.")
			continue
		}
		if len(report.Topics) != 1 || len(report.Topics[0].Sources) != test.want {
			t.Errorf("from %v: report is %+v", test.from, report)
		}
	}
}

func TestDreamRefuses(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	if _, err := h.dreamer(nil).Dream(t.Context(), at); !errors.Is(err, dream.ErrNoModel) {
		t.Errorf("without a model: %v", err)
	}
	clerk, err := h.store.PutAgent(t.Context(), "clerk", "", noon)
	h.check(err)
	model := attentive()
	d := h.dreamer(model)
	other := h.person("other")
	for name, test := range map[string]struct {
		at   dream.Place
		want error
	}{
		"another agent":   {dream.Place{User: h.user, Agent: clerk.ID, Session: at.Session}, memory.ErrInvalid},
		"another user":    {dream.Place{User: other, Agent: h.agent, Session: at.Session}, memory.ErrNotFound},
		"no such session": {dream.Place{User: h.user, Agent: h.agent, Session: memory.NewID[memory.SessionID]()}, memory.ErrNotFound},
	} {
		if _, err := d.Dream(t.Context(), test.at); !errors.Is(err, test.want) {
			t.Errorf("%s: the error is %v, want %v", name, err, test.want)
		}
	}
	if n := len(model.requests()); n > 0 {
		t.Errorf("the model was asked %d times", n)
	}
	h.remembers(other)
}

// What was extracted from a session outlives it, and so does what a topic comes
// from.
func TestDreamOfADeletedSession(t *testing.T) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.")
	h.check(h.dreamer(attentive(), func(c *dream.Config) { c.ExtractionTokens = 1 }).AfterTurn(t.Context(), at))
	h.check(h.store.DeleteSession(t.Context(), h.user, at.Session))
	_, err := h.dreamer(attentive()).Dream(t.Context(), dream.Place{User: h.user, Agent: h.agent})
	h.check(err)
	h.remembers(h.user, "said: I live in Lisbon.")
	h.wait(time.Hour)
	next := h.talk(h.user, "In Alfama.")
	report, err := h.dreamer(saying(rows(row{Topic: "said", Content: "Lives in Alfama in Lisbon.", From: []string{"m1", "t1"}, Supersedes: []string{"t1"}}))).Dream(t.Context(), next)
	h.check(err)
	h.remembers(h.user, "said: Lives in Alfama in Lisbon.")
	if len(report.Topics) != 1 || len(report.Topics[0].Sources) != 2 {
		t.Errorf("report is %+v", report)
	}
}

// What is remembered is not stored again for the model's not having been shown it.
func TestDreamKnowsWhatItDoesNotShow(t *testing.T) {
	h := newHouse(t)
	for i := range 300 {
		_, err := h.store.PutTopic(t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: fmt.Sprint("topic ", i), Content: "Lives in Faro."}, h.now())
		h.check(err)
		h.wait(time.Second)
	}
	model := saying(rows(row{Topic: "topic 0", Content: "Lives in Faro", From: []string{"m1"}}))
	report, err := h.dreamer(model).Dream(t.Context(), h.talk(h.user, "I live in Faro."))
	h.check(err)
	if strings.Contains(promptText(model.requests()[0]), `"topic 0"`) {
		t.Fatal("the prompt shows all topics")
	}
	if len(report.Topics) != 0 || report.Dropped != 1 || len(h.valid(h.user)) != 300 {
		t.Errorf("report is %+v, %d topics are remembered", report, len(h.valid(h.user)))
	}
}

// M11: what was said twice is remembered once, and deleted as often as it was noted:
// it comes neither back from a note that waits nor stays in one that was merged.
func TestDeletedAsOftenAsItWasSaid(t *testing.T) {
	h := newHouse(t)
	d := h.dreamer(attentive(), func(c *dream.Config) { c.ExtractionTokens = 1 })
	at := h.talk(h.user, "I am a vegan.")
	for range 2 {
		h.check(d.AfterTurn(t.Context(), at))
		_, err := d.Dream(t.Context(), at)
		h.check(err)
		h.goOn(at, "I am  a Vegan")
	}
	h.goOn(at, "I have a dog.")
	h.check(d.AfterTurn(t.Context(), at))
	h.remembers(h.user, "said: I am a vegan.")
	_, err := h.store.DeleteTopic(t.Context(), h.user, memory.AgentID{}, "said")
	h.check(err)
	list, err := h.store.Extractions(t.Context(), h.user, memory.ExtractionQuery{})
	h.check(err)
	if len(list) != 3 {
		t.Errorf("%d extractions", len(list))
	}
	for _, x := range list {
		if slices.ContainsFunc(x.Facts, func(l memory.Learned) bool { return strings.Contains(strings.ToLower(l.Text), "vegan") }) {
			t.Errorf("an extraction still says %+v", x.Facts)
		}
	}
	_, err = d.Dream(t.Context(), at)
	h.check(err)
	h.remembers(h.user, "said: I have a dog.")
}

// The user's correction may be later than a note that waits: the prompt tells when
// each was made.
func TestDreamTellsWhenSomethingWasNoted(t *testing.T) {
	h := newHouse(t)
	model := attentive()
	d := h.dreamer(model, func(c *dream.Config) { c.ExtractionTokens = 1 })
	at := h.talk(h.user, "I live in Faro.")
	h.check(d.AfterTurn(t.Context(), at))
	h.wait(time.Hour)
	_, err := h.store.PutTopic(t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "home", Content: "Lives in Lisbon."}, h.now())
	h.check(err)
	_, err = d.Dream(t.Context(), at)
	h.check(err)
	prompt := promptText(model.requests()[1])
	for _, want := range []string{`"content":"Lives in Lisbon.","since":"2026-03-04T13:00:00Z","scope":"user","by_hand":true}`, `{"id":"x1","kind":"fact","at":"2026-03-04T12:00Z","text":"I live in Faro."}`} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt does not have %s:\n%s", want, prompt)
		}
	}
}
