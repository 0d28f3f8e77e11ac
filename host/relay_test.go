package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// scripted is a model that answers as a test says; without a script it repeats the
// last words of the user.
type scripted struct {
	answer func(ctx context.Context, r llm.Request) (llm.Response, error)

	mu    sync.Mutex
	asked []llm.Request
}

func (m *scripted) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	m.mu.Lock()
	m.asked = append(m.asked, r)
	answer := m.answer
	m.mu.Unlock()
	if answer != nil {
		return answer(ctx, r)
	}
	return llm.Response{Text: "re: " + lastWords(r), InputTokens: 10, OutputTokens: 2, CachedTokens: 4, Model: "test"}, nil
}

func (m *scripted) requests() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// script lets the model give those answers, one after the other.
func (m *scripted) script(answers ...llm.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := 0
	m.answer = func(context.Context, llm.Request) (llm.Response, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if next == len(answers) {
			return llm.Response{}, fmt.Errorf("asked once more: %w", llm.ErrUnavailable)
		}
		next++
		return answers[next-1], nil
	}
}

func lastWords(r llm.Request) string {
	text := r.Messages[len(r.Messages)-1].Text
	return text[strings.LastIndex(text, "\n")+1:]
}

func calling(text string, calls ...llm.ToolCall) llm.Response {
	return llm.Response{Text: text, ToolCalls: calls, InputTokens: 10, OutputTokens: 2, Model: "test"}
}

// Messages as a client has them.
func fromUser(text string) memory.Draft { return said(memory.RoleUser, memory.Text(text)) }

func fromModel(text string, calls ...llm.ToolCall) memory.Draft {
	d := memory.Draft{Role: memory.RoleAssistant}
	if text != "" {
		d.Blocks = append(d.Blocks, memory.Text(text))
	}
	for _, c := range calls {
		d.Blocks = append(d.Blocks, memory.ToolCall(c.ID, c.Name, c.Input))
	}
	return d
}

func fromTool(id, text string) memory.Draft {
	return said(memory.RoleTool, memory.ToolResult(id, "", framed(text), false))
}

func said(role memory.Role, blocks ...memory.Block) memory.Draft {
	return memory.Draft{Role: role, Blocks: blocks}
}

// client is a program that holds its conversation and sends all of it.
type client struct {
	t    *testing.T
	h    *host.Host
	conv host.Conversation
	// session is where it was last.
	session memory.SessionID
}

// say adds messages, sends everything, and adds the answer.
func (c *client) say(messages ...memory.Draft) *host.Relayed {
	c.t.Helper()
	c.conv.Messages = slices.Concat(c.conv.Messages, messages)
	out, err := c.h.Relay(c.t.Context(), &c.conv)
	if err != nil {
		c.t.Fatal(err)
	}
	c.session = out.Session
	c.conv.Messages = append(c.conv.Messages, seen(out))
	return out
}

// seen is an answer as a client writes it down.
func seen(out *host.Relayed) memory.Draft {
	return memory.Draft{Role: memory.RoleAssistant, Blocks: out.Message.Blocks}
}

// upTo leaves the client with its first messages.
func (c *client) upTo(n int) { c.conv.Messages = c.conv.Messages[:n:n] }

func (c *client) holds(want ...string) {
	c.t.Helper()
	lines, _ := transcriptOf(c.t, c.h, c.session)
	wantLines(c.t, lines, want...)
}

func sessionsOf(t *testing.T, h *host.Host) []memory.Session {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	all, err := h.Store().Sessions(t.Context(), user.ID, memory.SessionQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func relaying(t *testing.T, config host.Config) (*client, *scripted) {
	m := &scripted{}
	if config.LLM == nil {
		config.LLM = m
	}
	return &client{t: t, h: open(t, config)}, m
}

func TestRelayGoesOnInTheSameSession(t *testing.T) {
	c, model := relaying(t, host.Config{})
	var placed []host.Placed
	c.conv.OnPlaced = func(p host.Placed) { placed = append(placed, p) }
	c.conv.System = "Be brief."
	first := c.say(fromUser("one"))
	if !first.New || first.Added != 1 || !first.Parent.IsZero() || first.Message.Blocks[0].Text != "re: one" {
		t.Errorf("the opening: %+v", first.Placed)
	}
	second := c.say(fromUser("two"))
	if second.Session != first.Session || second.New || second.Added != 1 {
		t.Errorf("the second turn is placed in %+v, the first in %s", second.Placed, first.Session)
	}
	if want := []host.Placed{first.Placed, second.Placed}; !slices.Equal(placed, want) {
		t.Errorf("told of %+v, want %+v", placed, want)
	}
	c.holds("user/user one", "assistant/assistant re: one", "user/user two", "assistant/assistant re: two")
	if second.Response.InputTokens != 10 || second.Response.CachedTokens != 4 {
		t.Errorf("counted %+v", second.Response)
	}
	if _, s := transcriptOf(t, c.h, c.session); s.Exchanges != 2 || s.UserMessages != 2 {
		t.Errorf("%d exchanges, %d messages of the user", s.Exchanges, s.UserMessages)
	}
	asked := model.requests()
	last := asked[len(asked)-1]
	if !strings.HasPrefix(last.System, "Be brief.\n\n") || strings.Contains(last.System, "helpful assistant") || len(last.Tools) != 0 {
		t.Errorf("asked with the system text %q and tools %v", last.System, last.Tools)
	}
	// Another opening with the same words is another conversation.
	c.conv.Messages = nil
	if other := c.say(fromUser("one")); other.Session == first.Session || !other.New || !other.Parent.IsZero() {
		t.Errorf("an opening alone is placed in %+v", other.Placed)
	}
}

func TestRelayForksWhereTheConversationDeparts(t *testing.T) {
	c, _ := relaying(t, host.Config{})
	first := c.say(fromUser("one"))
	c.say(fromUser("two"))
	c.say(fromUser("three"))
	lines, _ := transcriptOf(t, c.h, first.Session)

	// Edited: the second question is another.
	c.upTo(2)
	edited := c.say(fromUser("2"))
	if !edited.New || edited.Parent != first.Session || edited.Added != 1 {
		t.Errorf("an edit is placed in %+v", edited.Placed)
	}
	c.holds("user/user one", "assistant/assistant re: one", "user/user 2", "assistant/assistant re: 2")
	if on := c.say(fromUser("3")); on.Session != edited.Session || on.New {
		t.Errorf("behind the edit it goes on in %+v", on.Placed)
	}

	// Regenerated: the same question once more.
	c.conv.Messages = []memory.Draft{fromUser("one"), fromModel("re: one"), fromUser("two")}
	again := c.say()
	if !again.New || again.Parent != first.Session || again.Added != 0 {
		t.Errorf("a question that is asked again is placed in %+v", again.Placed)
	}
	c.holds("user/user one", "assistant/assistant re: one", "user/user two", "assistant/assistant re: two")

	// The answer was edited by the client.
	c.conv.Messages = []memory.Draft{fromUser("one"), fromModel("re: one"), fromUser("two"), fromModel("I said nothing"), fromUser("why?")}
	put := c.say()
	if !put.New || put.Added != 2 {
		t.Errorf("an edited answer is placed in %+v", put.Placed)
	}
	user, _ := c.h.User("")
	messages, err := c.h.Store().Messages(t.Context(), user.ID, put.Session, memory.MessageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		want := memory.TrustDirect
		if m.Seq >= 4 && m.Role == memory.RoleAssistant {
			want = memory.TrustDerived
		}
		if m.Trust != want {
			t.Errorf("message %d of %s is %s, want %s", m.Seq, m.Role, m.Trust, want)
		}
	}
	if now, _ := transcriptOf(t, c.h, first.Session); !slices.Equal(now, lines) {
		t.Errorf("the session that was departed from holds %q, not %q any more", now, lines)
	}
}

func TestRelayAnswersWhatWasNeverAnswered(t *testing.T) {
	c, model := relaying(t, host.Config{})
	first := c.say(fromUser("one"))
	model.answer = func(context.Context, llm.Request) (llm.Response, error) {
		return llm.Response{}, fmt.Errorf("test: %w: %w", llm.ErrRateLimited, &llm.StatusError{Status: 429, Code: "slow_down", RetryAfter: time.Second})
	}
	c.conv.Messages = append(c.conv.Messages, fromUser("two"))
	for range 2 {
		out, err := c.h.Relay(t.Context(), &c.conv)
		status, ok := errors.AsType[*llm.StatusError](err)
		if !ok || status.Status != 429 || status.RetryAfter != time.Second || !errors.Is(err, llm.ErrRateLimited) || out.Session != first.Session {
			t.Fatalf("%+v, %v", out.Placed, err)
		}
	}
	model.answer = nil
	if again := c.say(); again.Session != first.Session || again.New || again.Added != 0 {
		t.Errorf("asked again it is placed in %+v", again.Placed)
	}
	c.holds("user/user one", "assistant/assistant re: one", "user/user two", "assistant/assistant re: two")
	// The question that was not answered may be followed by another.
	model.answer = func(context.Context, llm.Request) (llm.Response, error) { return llm.Response{}, llm.ErrUnavailable }
	c.conv.Messages = append(c.conv.Messages, fromUser("three"))
	if _, err := c.h.Relay(t.Context(), &c.conv); !errors.Is(err, llm.ErrUnavailable) {
		t.Fatal(err)
	}
	model.answer = nil
	if on := c.say(fromUser("four")); on.Session != first.Session || on.Added != 1 {
		t.Errorf("with more to say it is placed in %+v", on.Placed)
	}
}

func TestRelayOfANamedSession(t *testing.T) {
	c, _ := relaying(t, host.Config{})
	c.conv.Session = "kitchen"
	first := c.say(fromUser("one"))
	if !first.New {
		t.Errorf("an unknown name is placed in %+v", first.Placed)
	}
	// A message alone is the next one, and again the next, be it the same.
	for range 2 {
		c.conv.Messages = nil
		if next := c.say(fromUser("two")); next.Session != first.Session || next.Added != 1 {
			t.Errorf("a message alone is placed in %+v", next.Placed)
		}
	}
	c.say(fromUser("three"))
	c.holds("user/user one", "assistant/assistant re: one", "user/user two", "assistant/assistant re: two",
		"user/user two", "assistant/assistant re: two", "user/user three", "assistant/assistant re: three")
	// The end alone, and the whole of it.
	c.conv.Messages = []memory.Draft{fromModel("re: two"), fromUser("three"), fromModel("re: three")}
	if next := c.say(fromUser("four")); next.Session != first.Session || next.Added != 1 {
		t.Errorf("the end alone is placed in %+v", next.Placed)
	}
	c.conv.Messages = []memory.Draft{fromUser("one"), fromModel("re: one"), fromUser("two"), fromModel("re: two"), fromUser("two"), fromModel("re: two"),
		fromUser("three"), fromModel("re: three"), fromUser("four"), fromModel("re: four")}
	if next := c.say(fromUser("five")); next.Session != first.Session || next.Added != 1 {
		t.Errorf("the whole is placed in %+v", next.Placed)
	}
	// It departs within the end that the client has.
	c.conv.Messages = []memory.Draft{fromUser("three"), fromModel("re: three"), fromUser("4")}
	fork := c.say()
	if !fork.New || fork.Parent != first.Session || fork.Added != 1 {
		t.Errorf("an edit of the end is placed in %+v", fork.Placed)
	}
	c.holds("user/user one", "assistant/assistant re: one", "user/user two", "assistant/assistant re: two",
		"user/user two", "assistant/assistant re: two", "user/user three", "assistant/assistant re: three", "user/user 4", "assistant/assistant re: 4")
	// The name went with it.
	c.conv.Messages = nil
	if next := c.say(fromUser("5")); next.Session != fork.Session {
		t.Errorf("the name is that of %s, not of the fork %s", next.Session, fork.Session)
	}
	// And comes back with the conversation.
	c.conv.Messages = []memory.Draft{fromUser("four"), fromModel("re: four"), fromUser("five"), fromModel("re: five")}
	c.conv.Messages = slices.Concat([]memory.Draft{fromUser("one"), fromModel("re: one"), fromUser("two"), fromModel("re: two"), fromUser("two"), fromModel("re: two"),
		fromUser("three"), fromModel("re: three")}, c.conv.Messages)
	if back := c.say(fromUser("six")); back.Session != first.Session || back.New || back.Added != 1 {
		t.Errorf("the other branch is placed in %+v", back.Placed)
	}
	if all := sessionsOf(t, c.h); len(all) != 2 || all[0].Name != "kitchen" || all[1].Name != "" {
		t.Errorf("sessions %+v", all)
	}
	// One that has nothing to do with it takes the name along.
	c.conv.Messages = []memory.Draft{fromUser("summary so far"), fromModel("fine"), fromUser("seven")}
	if other := c.say(); !other.New || other.Parent != first.Session || other.Added != 3 {
		t.Errorf("a conversation of its own is placed in %+v", other.Placed)
	}
	c.holds("user/user summary so far", "assistant/assistant fine", "user/user seven", "assistant/assistant re: seven")
	if next := c.say(fromUser("eight")); next.New || next.Added != 1 {
		t.Errorf("then it goes on in %+v", next.Placed)
	}
}

func TestRelayOfASessionByItsID(t *testing.T) {
	c, _ := relaying(t, host.Config{Users: []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}}})
	answer := send(t, c.h, host.Message{Text: "one"})
	text := answer.Message.Blocks[0].Text
	c.conv.Session = answer.Session.String()
	// What was said without a client is known by its words.
	c.conv.Messages = []memory.Draft{fromUser("one"), fromModel(text)}
	if next := c.say(fromUser("two")); next.Session != answer.Session || next.Added != 1 || next.New {
		t.Errorf("placed in %+v", next.Placed)
	}
	if next := c.say(fromUser("three")); next.Session != answer.Session || next.Added != 1 {
		t.Errorf("placed in %+v", next.Placed)
	}
	bert, err := c.h.User("bert")
	if err != nil {
		t.Fatal(err)
	}
	for what, conversation := range map[string]host.Conversation{
		"another's session":  {User: bert.ID, Session: answer.Session.String(), Messages: []memory.Draft{fromUser("hi")}},
		"no session":         {Session: memory.NewID[memory.SessionID]().String(), Messages: []memory.Draft{fromUser("hi")}},
		"an unknown agent":   {Agent: "nobody", Messages: []memory.Draft{fromUser("hi")}},
		"an unknown answer":  {Session: answer.Session.String(), After: "no such", Messages: []memory.Draft{fromUser("hi")}},
		"a user who is none": {User: memory.NewID[memory.UserID](), Messages: []memory.Draft{fromUser("hi")}},
	} {
		if _, err := c.h.Relay(t.Context(), &conversation); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What is said in between by Send the client has not seen.
	send(t, c.h, host.Message{Text: "from the desk", Session: answer.Session})
	if fork := c.say(fromUser("four")); !fork.New || fork.Parent != answer.Session || fork.Added != 1 {
		t.Errorf("placed in %+v", fork.Placed)
	}
}

func TestRelayBehindAnAnswer(t *testing.T) {
	c, _ := relaying(t, host.Config{})
	c.conv.AnswerKey = "resp_1"
	first := c.say(fromUser("one"))
	c.conv = host.Conversation{Session: first.Session.String(), After: "resp_1", AnswerKey: "resp_2"}
	if next := c.say(fromUser("two")); next.Session != first.Session || next.Added != 1 {
		t.Errorf("placed in %+v", next.Placed)
	}
	// Behind an answer that has one behind it already.
	c.conv.Messages, c.conv.AnswerKey = nil, "resp_3"
	fork := c.say(fromUser("2"))
	if !fork.New || fork.Parent != first.Session || fork.Added != 1 {
		t.Errorf("placed in %+v", fork.Placed)
	}
	c.holds("user/user one", "assistant/assistant re: one", "user/user 2", "assistant/assistant re: 2")
	c.conv = host.Conversation{Session: fork.Session.String(), After: "resp_3", AnswerKey: "resp_4"}
	if next := c.say(fromUser("3")); next.Session != fork.Session || next.Added != 1 {
		t.Errorf("placed in %+v", next.Placed)
	}
}

func TestRelayRefuses(t *testing.T) {
	c, model := relaying(t, host.Config{})
	call := toolCall("a", "f", `{}`)
	for what, conversation := range map[string]host.Conversation{
		"nothing":                   {},
		"a blank message":           {Messages: []memory.Draft{fromUser(" \n")}},
		"an answer at the end":      {Messages: []memory.Draft{fromUser("one"), fromModel("two")}},
		"a system text alone":       {Messages: []memory.Draft{said(memory.RoleSystem, memory.Text("be"))}},
		"a role":                    {Messages: []memory.Draft{said("developer", memory.Text("be"))}},
		"a result without an id":    {Messages: []memory.Draft{fromTool("", "x")}},
		"a user's call":             {Messages: []memory.Draft{said(memory.RoleUser, memory.ToolCall("a", "f", call.Input))}},
		"an assistant's result":     {Messages: []memory.Draft{said(memory.RoleAssistant, memory.ToolResult("a", "f", framed("x"), false)), fromUser("x")}},
		"a tool's message of none":  {Messages: []memory.Draft{said(memory.RoleTool, memory.Text("x"))}},
		"a tool's name":             {Messages: []memory.Draft{fromUser("x")}, Tools: []llm.Tool{{Name: "two words"}}},
		"two tools of a name":       {Messages: []memory.Draft{fromUser("x")}, Tools: []llm.Tool{{Name: "f"}, {Name: "f"}}},
		"parameters":                {Messages: []memory.Draft{fromUser("x")}, Tools: []llm.Tool{{Name: "f", Parameters: []byte("[")}}},
		"a long name":               {Messages: []memory.Draft{fromUser("x")}, Session: strings.Repeat("x", memory.MaxSessionName+1)},
		"a name with a line":        {Messages: []memory.Draft{fromUser("x")}, Session: "a\nb"},
		"an answer without session": {Messages: []memory.Draft{fromUser("x")}, After: "a"},
	} {
		if _, err := c.h.Relay(t.Context(), &conversation); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if asked := model.requests(); len(asked) > 0 {
		t.Errorf("the model was asked %d times", len(asked))
	}
	if all := sessionsOf(t, c.h); len(all) != 0 {
		t.Errorf("%d sessions were made", len(all))
	}
	if err := c.h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.h.Relay(t.Context(), &host.Conversation{Messages: []memory.Draft{fromUser("x")}}); !errors.Is(err, host.ErrClosed) {
		t.Errorf("of a closed host: %v", err)
	}
}

// deletingStore deletes a session just when it was found.
type deletingStore struct {
	memory.Store
	at func(places []memory.Place) (gone memory.SessionID)
}

func (s *deletingStore) Places(ctx context.Context, user memory.UserID, agent memory.AgentID, digest memory.Digest, limit int) ([]memory.Place, error) {
	places, err := s.Store.Places(ctx, user, agent, digest, limit)
	if err != nil || len(places) == 0 {
		return places, err
	}
	if gone := s.at(places); !gone.IsZero() {
		err = s.Store.DeleteSession(ctx, user, gone)
	}
	return places, err
}

// A session that somebody deletes while a conversation is looked for is as one that
// never was: the turn goes on in another, or in a new one.
func TestRelayPassesOverWhatIsDeleted(t *testing.T) {
	c, _ := relaying(t, host.Config{})
	store := &deletingStore{}
	var offered []memory.Place
	gone := -1
	store.at = func(places []memory.Place) (id memory.SessionID) {
		offered = places
		if gone >= 0 && gone < len(places) {
			id, gone = places[gone].Session, -1
		}
		return id
	}
	if err := c.h.Interpose(t.Context(), func(s memory.Store) memory.Store { store.Store = s; return store }); err != nil {
		t.Fatal(err)
	}
	opening := c.say(fromUser("one"))
	again := client{t: t, h: c.h}
	if twin := again.say(fromUser("one")); twin.Session == opening.Session {
		t.Fatal("an opening went on in another session")
	}
	gone = 0
	second := c.say(fromUser("two"))
	if len(offered) != 2 || second.New || second.Session != offered[1].Session {
		t.Errorf("of %+v, the first one gone, it went on in %+v", offered, second.Placed)
	}
	gone = 0
	third := c.say(fromUser("three"))
	if len(offered) != 1 || !third.New || third.Added != 5 {
		t.Errorf("of %+v, which is gone, it went on in %+v", offered, third.Placed)
	}
}
