package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// once answers one text the first time and another one after that.
func once(first, then string) func(context.Context, llm.Request) (llm.Response, error) {
	var n atomic.Int64
	return func(context.Context, llm.Request) (llm.Response, error) {
		if n.Add(1) == 1 {
			return llm.Response{Text: first, Model: "test"}, nil
		}
		return llm.Response{Text: then, Model: "test"}, nil
	}
}

// M9 at the host: a session that has rested for the gap is dreamt of once, at the
// next look; a gap of 0 turns that off.
func TestTheLifecycleLoop(t *testing.T) {
	for _, gap := range []int{300, 0} {
		t.Run(fmt.Sprint("gap ", gap), func(t *testing.T) {
			ticks := make(chan time.Time)
			at := &clock{at: monday}
			model := &mind{dreams: once(topicOf("pump", "Anna's pump is blue.", "m1"), `{"topics":[]}`)}
			h := structured(t, host.Config{LLM: model, Now: at.now, Ticks: ticks, Sessions: host.SessionsConfig{GapSecs: &gap}})
			send(t, h, host.Message{Text: "My pump is blue."})
			look := func() {
				if gap == 0 {
					return // nobody receives
				}
				ticks <- at.now()
				ticks <- at.now() // the look before it is over
			}
			look()
			if n := len(model.requests("dream")); n != 0 {
				t.Errorf("%d dreams before the session has rested", n)
			}
			at.advance(301 * time.Second)
			look()
			at.advance(time.Hour)
			look()
			want, remembered := 1, []string{"Anna's pump is blue."}
			if gap == 0 {
				want, remembered = 0, nil
			}
			if n, got := len(model.requests("dream")), contents(t, h, at.now()); n != want || !slices.Equal(got, remembered) || h.Counts().Memory.Dreams != want {
				t.Errorf("%d dreams, remembered %q, %+v", n, got, h.Counts().Memory)
			}
			if gap == 0 {
				select {
				case ticks <- at.now():
					t.Error("somebody looks")
				default:
				}
			}
		})
	}
}

// A dream that hangs ends with the host, and the session is due again after a
// restart.
func TestCloseEndsDreams(t *testing.T) {
	data, ticks, at := t.TempDir(), make(chan time.Time), &clock{at: monday}
	entered := make(chan struct{}, 8)
	model := &mind{dreams: hanging(entered)}
	config := host.Config{Data: data, LLM: model, Now: at.now, Ticks: ticks}
	h := structured(t, config)
	send(t, h, host.Message{Text: "My pump is blue."})
	at.advance(time.Hour)
	ticks <- at.now()
	<-entered
	began := time.Now()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closing took %s", took)
	}
	if _, err := h.Dream(t.Context(), memory.UserID{}, ""); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a dream of a host that is closed: %v", err)
	}
	if _, err := h.WipeMemory(t.Context(), memory.NewID[memory.UserID](), memory.AgentID{}); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a wipe of a host that is closed: %v", err)
	}
	model.dreams = saying(topicOf("pump", "Anna's pump is blue.", "m1"))
	h = structured(t, config)
	ticks <- at.now()
	ticks <- at.now()
	if got := contents(t, h, at.now()); !slices.Equal(got, []string{"Anna's pump is blue."}) {
		t.Errorf("after the restart %q is remembered", got)
	}
}

// A dream by hand takes all sessions of the user with the agent, rested or not, and
// nobody else's.
func TestDreamByHand(t *testing.T) {
	at := &clock{at: monday}
	var n atomic.Int64
	model := &mind{dreams: func(context.Context, llm.Request) (llm.Response, error) {
		i := n.Add(1)
		return llm.Response{Text: topicOf(fmt.Sprint("topic ", i), fmt.Sprint("Said in session ", i), "m1"), Model: "test"}, nil
	}}
	h := structured(t, host.Config{LLM: model, Now: at.now, Users: []host.UserConfig{{Name: "anna"}, {Name: "bert"}}, Agents: []host.AgentConfig{{Name: "plain"}}})
	bert, err := h.User("bert")
	if err != nil {
		t.Fatal(err)
	}
	anna, err := h.User("anna")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		send(t, h, host.Message{Text: fmt.Sprint("My pump is blue, ", i)})
		send(t, h, host.Message{User: bert.ID, Text: "Mine is crimson."})
		send(t, h, host.Message{Agent: "plain", Text: "It is a xq7secret."})
		at.advance(time.Second)
	}
	report, err := h.Dream(t.Context(), memory.UserID{}, "")
	if err != nil || report.User != anna.ID || report.Agent != h.Agents()[0].ID || len(report.Topics) != 3 || report.Messages != 6 || !report.Session.IsZero() {
		t.Errorf("%+v, %v", report, err)
	}
	for _, r := range model.requests("dream") {
		if text := wordsOf(r); strings.Contains(text, "crimson") || strings.Contains(text, "xq7secret") || !strings.Contains(text, "My pump is blue") {
			t.Errorf("the dream was of\n%s", text)
		}
	}
	again, err := h.Dream(t.Context(), anna.ID, "jeeves")
	if err != nil || again.Topics == nil || len(again.Topics) != 0 || len(model.requests("dream")) != 3 {
		t.Errorf("again %+v, %v", again, err)
	}
	for _, test := range []struct {
		user  memory.UserID
		agent string
		is    error
	}{
		{anna.ID, "plain", memory.ErrInvalid},
		{anna.ID, "nobody", memory.ErrNotFound},
		{memory.NewID[memory.UserID](), "jeeves", memory.ErrNotFound},
	} {
		if _, err := h.Dream(t.Context(), test.user, test.agent); !errors.Is(err, test.is) {
			t.Errorf("with agent %q: %v", test.agent, err)
		}
	}
	offline := structured(t, host.Config{})
	send(t, offline, host.Message{Text: "My pump is blue."})
	if _, err := offline.Dream(t.Context(), memory.UserID{}, ""); !errors.Is(err, dream.ErrNoModel) {
		t.Errorf("offline: %v", err)
	}
}

// Invariant 9: what is learned after turns holds no answer back, however long the
// model takes for it, and holds few models at a time.
func TestLearningHoldsNoAnswerBack(t *testing.T) {
	entered := make(chan struct{}, 1024)
	var going, most atomic.Int64
	hang := hanging(entered)
	model := &mind{extracts: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		n := going.Add(1)
		defer going.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		return hang(ctx, r)
	}}
	users := make([]host.UserConfig, 12)
	for i := range users {
		users[i].Name = fmt.Sprint("user", i)
	}
	h := structured(t, host.Config{LLM: model, Users: users, Memory: host.MemoryConfig{ExtractionTokens: 1}})
	for range 3 {
		for _, u := range users {
			user, err := h.User(u.Name)
			if err != nil {
				t.Fatal(err)
			}
			sessions, err := h.Store().Sessions(t.Context(), user.ID, memory.SessionQuery{})
			if err != nil {
				t.Fatal(err)
			}
			m := host.Message{User: user.ID, Text: "My pump is blue."}
			if len(sessions) > 0 {
				m.Session = sessions[0].ID
			}
			if _, err := h.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	// All who may ask the model do, and wait for it.
	for range 4 {
		<-entered
	}
	began := time.Now()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second || most.Load() != 4 || len(entered) != 0 {
		t.Errorf("closing took %s, %d models at a time, %d asked again", took, most.Load(), len(entered))
	}
}

// While a session is learned from nobody else does it; what comes in meanwhile, of
// however many turns, is looked at once more behind it.
func TestOneLearnerASession(t *testing.T) {
	h := structured(t, host.Config{LLM: &mind{}})
	entered, through := make(chan memory.SessionID), make(chan struct{})
	h.Learn(&forgetful{after: func(at dream.Place) error {
		entered <- at.Session
		<-through
		return errors.New("no luck")
	}})
	say := func(session memory.SessionID) memory.SessionID {
		t.Helper()
		answer, err := h.Send(t.Context(), host.Message{Session: session, Text: "My pump is blue."})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Session
	}
	first := say(memory.SessionID{})
	if got := <-entered; got != first {
		t.Errorf("first came %s", got)
	}
	for range 3 {
		say(first)
	}
	second := say(memory.SessionID{}) // another session does not wait
	if got := <-entered; got != second {
		t.Errorf("then came %s", got)
	}
	through <- struct{}{}
	through <- struct{}{}
	if got := <-entered; got != first {
		t.Errorf("at last came %s", got)
	}
	through <- struct{}{}
	if err := h.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	// The session has no learner any more, though the last one failed.
	say(first)
	<-entered
	through <- struct{}{}
}

// What is new is noted after the turn that brings enough of it, and no turn's words
// are noted twice.
func TestLearningAfterTurns(t *testing.T) {
	model := &mind{}
	var noted atomic.Int64
	model.extracts = func(_ context.Context, r llm.Request) (llm.Response, error) {
		return llm.Response{Text: factOf(fmt.Sprint("Fact ", noted.Add(1)), "m1"), Model: "test"}, nil
	}
	h := structured(t, host.Config{LLM: model, Memory: host.MemoryConfig{ExtractionTokens: 100}})
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	var session memory.SessionID
	for i := range 10 {
		session = send(t, h, host.Message{Session: session, Text: fmt.Sprintf("u%d. %s", i, strings.Repeat("My pump is blue. ", 10))}).Session
	}
	requests := model.requests("extraction")
	for i := range 10 {
		n := 0
		for _, r := range requests {
			n += strings.Count(wordsOf(r), fmt.Sprintf("u%d. ", i))
		}
		if n > 1 || n == 0 && i < 6 {
			t.Errorf("u%d. was noted %d times", i, n)
		}
	}
	extractions, err := h.Store().Extractions(t.Context(), user.ID, memory.ExtractionQuery{})
	if err != nil || len(extractions) != len(requests) || len(extractions) < 2 || h.Counts().Memory.Extractions != len(extractions) {
		t.Errorf("%d extractions of %d requests, %+v, %v", len(extractions), len(requests), h.Counts().Memory, err)
	}
}

// Invariant 11: what is shown of the topics is never learned from again: no
// extraction and no conversation in a dream has it, though the assistant repeats it
// in every answer.
func TestWhatIsRecalledIsNeverLearned(t *testing.T) {
	const canary = "xq7aurelia"
	model := &mind{}
	h := structured(t, host.Config{LLM: model, Memory: host.MemoryConfig{ExtractionTokens: 1, ExtractionToolCalls: 1}})
	h.Offer(time.Minute, &testTool{name: "search"})
	put(t, h, memory.AgentID{}, "pump", "The pump is called "+canary+".")
	calls := 0
	model.answers = func(_ context.Context, r llm.Request) (llm.Response, error) {
		if calls++; calls%3 == 1 {
			return llm.Response{Text: "It is " + canary + ": ", ToolCalls: []llm.ToolCall{toolCall(fmt.Sprint("c", calls), "search", "{}")}, Model: "test"}, nil
		}
		return llm.Response{Text: "Your pump " + canary + " is well.", Model: "test"}, nil
	}
	var session memory.SessionID
	for i := range 5 {
		answer := send(t, h, host.Message{Session: session, Text: fmt.Sprint("How is my pump? ", i)})
		session = answer.Session
		if !strings.Contains(promptText(answer), canary) {
			t.Fatalf("the prompt does not show it:\n%s", promptText(answer))
		}
	}
	// The rest of what was said, without an extraction before it.
	if err := h.Dreaming(t.Context(), func(c *dream.Config) { c.ExtractionTokens, c.ExtractionToolCalls = -1, -1 }); err != nil {
		t.Fatal(err)
	}
	send(t, h, host.Message{Session: session, Text: "Good night."})
	if _, err := h.Dream(t.Context(), memory.UserID{}, ""); err != nil {
		t.Fatal(err)
	}
	extractions, dreams := model.requests("extraction"), model.requests("dream")
	if len(extractions) != 5 || len(dreams) == 0 {
		t.Errorf("%d extractions, %d dreams", len(extractions), len(dreams))
	}
	for _, r := range extractions {
		if text := wordsOf(r); strings.Contains(text, canary) || strings.Contains(text, dream.Heading) {
			t.Errorf("an extraction reads\n%s", text)
		}
	}
	for _, r := range dreams {
		// The topics that hold are shown to a dream, so that it can retire them; what
		// can be learned from comes after them.
		_, latest, _ := strings.Cut(wordsOf(r), "The latest of the conversation:")
		if text := wordsOf(r); strings.Contains(latest, canary) || strings.Contains(text, dream.Heading) || strings.Count(text, canary) != 1 {
			t.Errorf("a dream reads\n%s", text)
		}
	}
}

// A wipe of what is remembered ends the dream that goes on and harms no turn; what
// the one would have stored does not come, and what the other says is learned no
// more. A wipe of the user ends both.
func TestAWipeDuringADream(t *testing.T) {
	const canary = "xq7aurelia"
	for name, test := range map[string]struct {
		scope string
		wipe  func(h *host.Host, user memory.UserID) (host.WipeReport, error)
		turn  error
	}{
		"of the memory": {"user", func(h *host.Host, user memory.UserID) (host.WipeReport, error) {
			return h.WipeMemory(context.Background(), user, memory.AgentID{})
		}, nil},
		"of the memory with an agent": {"agent", func(h *host.Host, user memory.UserID) (host.WipeReport, error) {
			return h.WipeMemory(context.Background(), user, h.Agents()[0].ID)
		}, nil},
		"of the user": {"user", func(h *host.Host, user memory.UserID) (host.WipeReport, error) {
			return h.WipeUser(context.Background(), user)
		}, memory.ErrWiped},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			entered, answering, through := make(chan struct{}, 8), make(chan struct{}), make(chan struct{})
			scoped := strings.Replace(topicOf("pump", "It is "+canary+"-2", "x1"), `"scope":"user"`, `"scope":"`+test.scope+`"`, 1)
			model := &mind{extracts: saying(factOf("It is "+canary+"-1", "m1")), dreams: saying(scoped)}
			h := structured(t, host.Config{Data: data, LLM: model, Memory: host.MemoryConfig{ExtractionTokens: 1}})
			user, err := h.User("")
			if err != nil {
				t.Fatal(err)
			}
			session := send(t, h, host.Message{Text: "I have a pump."}).Session
			if report, err := h.Dream(t.Context(), user.ID, ""); err != nil || len(report.Topics) != 1 || report.Extractions != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			model.dreams = hanging(entered)
			model.answers = func(ctx context.Context, _ llm.Request) (llm.Response, error) {
				close(answering)
				select {
				case <-through:
					return llm.Response{Text: "ok", Model: "test"}, nil
				case <-ctx.Done():
					return llm.Response{}, ctx.Err()
				}
			}
			turn, dreamt := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := h.Send(context.Background(), host.Message{Session: session, Text: "I have two."})
				turn <- err
			}()
			<-answering
			go func() {
				_, err := h.Dream(context.Background(), user.ID, "")
				dreamt <- err
			}()
			<-entered
			report, err := test.wipe(h, user.ID)
			if err != nil || report.Topics+report.AgentTopics != 1 || report.Extractions != 1 || report.ResiduePending {
				t.Errorf("wiped %+v, %v", report, err)
			}
			if err := <-dreamt; !errors.Is(err, memory.ErrWiped) {
				t.Errorf("the dream: %v", err)
			}
			close(through)
			if err := <-turn; !errors.Is(err, test.turn) {
				t.Errorf("the turn: %v", err)
			}
			if err := h.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, h, monday.AddDate(10, 0, 0)); got != nil || len(model.requests("extraction")) != 1 {
				t.Errorf("remembered %q, %d extractions", got, len(model.requests("extraction")))
			}
			if found := traces(t, data, canary); len(found) > 0 {
				t.Errorf("it is still in %v", found)
			}
			// What is said from now on is learned.
			model.answers, model.extracts, model.dreams = nil, saying(nothingLearned), saying(topicOf("valve", "Anna has a valve.", "m1"))
			m := host.Message{Session: session, Text: "I have a valve."}
			if test.turn != nil {
				m.Session = memory.SessionID{}
			}
			send(t, h, m)
			if err := h.Dreaming(t.Context(), func(c *dream.Config) { c.ExtractionTokens = -1 }); err != nil {
				t.Fatal(err)
			}
			send(t, h, host.Message{Text: "I said it."})
			if _, err := h.Dream(t.Context(), user.ID, ""); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, h, time.Now().Add(time.Hour)); !slices.Equal(got, []string{"Anna has a valve."}) {
				t.Errorf("remembered %q", got)
			}
		})
	}
}

// Two wipes at once leave one of them with something to count; who is not known has
// nothing.
func TestTwoWipesOfTheMemory(t *testing.T) {
	h := structured(t, host.Config{LLM: &mind{}})
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	put(t, h, memory.AgentID{}, "pump", "The pump is blue.")
	reports := make(chan host.WipeReport, 2)
	for range 2 {
		go func() {
			report, err := h.WipeMemory(context.Background(), user.ID, memory.AgentID{})
			if err != nil {
				t.Error(err)
			}
			reports <- report
		}()
	}
	if sum := (<-reports).Topics + (<-reports).Topics; sum != 1 {
		t.Errorf("%d topics were wiped", sum)
	}
	if report, err := h.WipeMemory(t.Context(), memory.NewID[memory.UserID](), memory.AgentID{}); err != nil || report.Topics != 0 {
		t.Errorf("of a stranger: %+v, %v", report, err)
	}
	if _, err := h.WipeMemory(t.Context(), memory.UserID{}, memory.AgentID{}); !errors.Is(err, memory.ErrInvalid) {
		t.Errorf("of nobody: %v", err)
	}
}

// At the socket: a server that answers, extracts and dreams by the protocol, whose
// answer is shown what was learned two turns before.
func TestStructuredMemoryAtTheSocket(t *testing.T) {
	server := openaitest.NewServer(t,
		openaitest.Text("Nice."), // to the first message
		openaitest.Text("```json\n"+factOf("Anna's pump is blue.", "m1")+"\n```"),
		openaitest.Text(topicOf("pump", "Anna's pump is blue.", "x1")),
		openaitest.Text("It is blue."), openaitest.Text(nothingLearned))
	h := asking(t, host.Config{
		Agents: []host.AgentConfig{{Name: "jeeves", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}},
		Memory: host.MemoryConfig{ExtractionTokens: 1},
	}, server)
	session := send(t, h, host.Message{Text: "My pump is blue."}).Session
	if report, err := h.Dream(t.Context(), memory.UserID{}, ""); err != nil || len(report.Topics) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	send(t, h, host.Message{Session: session, Text: "Which colour is it?"})
	requests := server.Requests()
	if len(requests) != 5 {
		t.Fatalf("%d requests", len(requests))
	}
	asked := requests[3].Messages
	if last := asked[len(asked)-1].Content; !strings.Contains(last, dream.Heading) || !strings.Contains(last, "Anna's pump is blue.") {
		t.Errorf("asked %q", last)
	}
	if read := requests[4].Messages; strings.Contains(fmt.Sprint(read), "Anna's") {
		t.Errorf("the next extraction reads %v", read)
	}
}

// M6: what another session or a task reports may be what a hand said there. That
// the assistant repeats it, and the user says yes, does not bring it before who
// learns.
func TestWhatAnotherSessionReportsIsNeverLearned(t *testing.T) {
	const canary = "xq7aurelia"
	for _, source := range []memory.Source{memory.SourceInterSession, memory.SourceTaskCompletion} {
		t.Run(string(source), func(t *testing.T) {
			model := &mind{answers: saying("The mail says that you live in " + canary + ", right?")}
			h := structured(t, host.Config{LLM: model, Memory: host.MemoryConfig{ExtractionTokens: 100_000, ExtractionToolCalls: 1000}})
			first := send(t, h, host.Message{Source: source, Text: "The mail says: the user lives in " + canary})
			send(t, h, host.Message{Session: first.Session, Text: "yes"})
			if _, err := h.Dream(t.Context(), memory.UserID{}, ""); err != nil {
				t.Fatal(err)
			}
			dreams := model.requests("dream")
			if len(dreams) != 1 || !strings.Contains(wordsOf(dreams[0]), `"text":"yes"`) {
				t.Fatalf("%d dreams", len(dreams))
			}
			if text := wordsOf(dreams[0]); strings.Contains(text, canary) {
				t.Errorf("a dream reads\n%s", text)
			}
		})
	}
}

// Sessions are extracted from by turns of their users, a few at a time: who has had
// many turns at once keeps nobody else waiting, and all of them are looked at.
func TestLearnersTakeTurns(t *testing.T) {
	asked, release := make(chan string), make(chan struct{})
	model := &mind{extracts: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		select {
		case asked <- r.Messages[len(r.Messages)-1].Text:
		case <-ctx.Done():
			return llm.Response{}, ctx.Err()
		}
		select {
		case <-release:
			return llm.Response{Text: nothingLearned, Model: "test"}, nil
		case <-ctx.Done():
			return llm.Response{}, ctx.Err()
		}
	}}
	h := structured(t, host.Config{
		LLM: model, Memory: host.MemoryConfig{ExtractionTokens: 1}, Model: host.ModelConfig{BackgroundCallsPerMinute: 1_000_000},
		Users: []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}},
	})
	say := func(user string, n int) {
		if _, err := h.Send(t.Context(), host.Message{User: userNamed(t, h, user), Text: fmt.Sprintf("%s has pump %d.", user, n)}); err != nil {
			t.Fatal(err)
		}
	}
	const sessions, atOnce = 12, 4
	for n := range sessions {
		say("anna", n)
	}
	order := []string{<-asked, <-asked, <-asked, <-asked}
	select {
	case text := <-asked:
		t.Errorf("more than %d extractions at once: %s", atOnce, text)
	default:
	}
	say("bert", 0)
	for range sessions + 1 - atOnce {
		release <- struct{}{}
		order = append(order, <-asked)
	}
	close(release)
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	// One of anna's was in her place already when bert came.
	turn := slices.IndexFunc(order, func(text string) bool { return strings.Contains(text, "bert has pump 0.") })
	if turn < atOnce || turn > atOnce+1 || len(order) != sessions+1 || h.Counts().Memory.Extractions != sessions+1 {
		t.Errorf("bert is number %d of %d, counts %+v", turn, len(order), h.Counts().Memory)
	}
}
