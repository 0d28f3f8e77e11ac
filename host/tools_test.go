package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// testTool is a tool that does what a test says, or else repeats its input.
type testTool struct {
	name string
	call func(ctx context.Context, input string, maxTokens int) (boundary.Content, error)

	mu   sync.Mutex
	seen []toolUse
}

type toolUse struct {
	user    memory.UserID
	session memory.SessionID
	input   string
	room    int
}

func (t *testTool) Definition() llm.Tool {
	return llm.Tool{Name: t.name, Description: "Does " + t.name + ".", Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
}

func (t *testTool) Call(ctx context.Context, user memory.UserID, session memory.SessionID, input json.RawMessage, maxTokens int) (boundary.Content, error) {
	t.mu.Lock()
	t.seen = append(t.seen, toolUse{user, session, string(input), maxTokens})
	t.mu.Unlock()
	if t.call != nil {
		return t.call(ctx, string(input), maxTokens)
	}
	return framed(t.name + " of " + string(input)), nil
}

func (t *testTool) uses() []toolUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.seen)
}

func framed(text string) boundary.Content {
	source, err := boundary.ToolSource("test")
	if err != nil {
		panic(err)
	}
	content, _ := boundary.Wrap(source, text, boundary.Unlimited)
	return content
}

// asking is a host whose model is a server, with tools that may take a minute.
func asking(t *testing.T, config host.Config, server *openaitest.Server, tools ...host.Tool) *host.Host {
	t.Helper()
	t.Setenv("TEST_MODEL_KEY", openaitest.Key)
	config.Model.Provider, config.Model.BaseURL, config.Model.Name, config.Model.APIKey = "openai", server.BaseURL, "m", "env:TEST_MODEL_KEY"
	h := open(t, config)
	h.Offer(time.Minute, tools...)
	return h
}

// transcriptOf lists what a session holds: role, and text or ids.
func transcriptOf(t *testing.T, h *host.Host, session memory.SessionID) (lines []string, stored memory.Session) {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	messages, err := h.Store().Messages(t.Context(), user.ID, session, memory.MessageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		line := string(m.Role) + "/" + string(m.Source)
		for _, b := range m.Blocks {
			switch b.Type {
			case memory.BlockToolCall:
				line += " call " + b.ID
			case memory.BlockToolResult:
				line += " result " + b.ID
				if b.IsError {
					line += " failed"
				}
			default:
				line += " " + b.Text
			}
		}
		lines = append(lines, line)
	}
	if stored, err = h.Store().Session(t.Context(), user.ID, session); err != nil {
		t.Fatal(err)
	}
	return lines, stored
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the session holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// resultsIn returns the texts of the tools' results in a request, by id.
func resultsIn(r openaitest.Request) map[string]string {
	all := map[string]string{}
	for _, m := range r.Messages {
		if m.Role == "tool" {
			all[m.ToolCallID] = m.Content
		}
	}
	return all
}

func TestParallelToolCalls(t *testing.T) {
	server := openaitest.NewServer(t,
		openaitest.Calls("Let me see.", openaitest.Call("a", "left", `{"n":1}`), openaitest.Call("b", "right", `{"n":2}`)),
		openaitest.Calls("", openaitest.Call("c", "right", "")),
		openaitest.Text("It is done."), openaitest.Text("You are welcome."))
	// Each waits for the other: one after the other, they would never end.
	meet := make(chan struct{})
	left := &testTool{name: "left", call: func(ctx context.Context, input string, _ int) (boundary.Content, error) {
		close(meet)
		return framed("left of " + input), nil
	}}
	right := &testTool{name: "right", call: func(ctx context.Context, input string, _ int) (boundary.Content, error) {
		select {
		case <-meet:
			return framed("right of " + input), nil
		case <-ctx.Done():
			return boundary.Content{}, ctx.Err()
		}
	}}
	h := asking(t, host.Config{}, server, left, right)
	answer := send(t, h, host.Message{Text: "Please."})
	if answer.Message.Blocks[0].Text != "It is done." || answer.Message.Trust != memory.TrustDerived {
		t.Errorf("answered %+v", answer.Message)
	}
	if answer.InputTokens != 3*openaitest.InputTokens || answer.OutputTokens != 3*openaitest.OutputTokens {
		t.Errorf("%d and %d tokens for three requests", answer.InputTokens, answer.OutputTokens)
	}
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	if got := left.uses(); len(got) != 1 || got[0].user != user.ID || got[0].session != answer.Session || got[0].input != `{"n":1}` || got[0].room <= 0 {
		t.Errorf("called with %+v", got)
	}
	requests := server.Requests()
	if got := resultsIn(requests[2]); len(got) != 3 || !strings.Contains(got["a"], `left of {"n":1}`) || !strings.Contains(got["b"], `right of {"n":2}`) || !strings.Contains(got["c"], "right of {}") {
		t.Errorf("the model was told %q", got)
	}
	for id, text := range resultsIn(requests[2]) {
		if !strings.HasPrefix(text, "<<<EXTCONTENT_") || strings.Count(text, "EXTCONTENT_") != 2 {
			t.Errorf("the result of %s has no frame: %q", id, text)
		}
	}
	if len(requests[0].Tools) != 2 || requests[0].Tools[1].Function.Name != "right" {
		t.Errorf("offered %+v", requests[0].Tools)
	}
	lines, session := transcriptOf(t, h, answer.Session)
	wantLines(t, lines, "user/user Please.",
		"assistant/assistant Let me see. call a call b", "tool/tool result a", "tool/tool result b",
		"assistant/assistant call c", "tool/tool result c", "assistant/assistant It is done.")
	if session.Exchanges != 1 {
		t.Errorf("%d exchanges", session.Exchanges)
	}
	// Invariant 8: the next prompt begins with this one.
	send(t, h, host.Message{Session: answer.Session, Text: "Thanks."})
	before, after := server.Requests()[2].Messages, server.Requests()[3].Messages
	for i, m := range before {
		if fmt.Sprint(m) != fmt.Sprint(after[i]) {
			t.Errorf("message %d was %+v and is %+v", i, m, after[i])
		}
	}
}

// Whatever becomes of a call, it has a result, and the turn an answer.
func TestToolCallsThatFail(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	nine := make([]openaitest.ToolCall, 9)
	for i := range nine {
		nine[i] = openaitest.Call(fmt.Sprint("n", i), "fine", "{}")
	}
	for name, test := range map[string]struct {
		calls []openaitest.ToolCall
		says  map[string]string // by id; "" for a call that succeeds
		// timeout of a call, if not a minute; the other calls have it too.
		timeout time.Duration
	}{
		"input that is not JSON":  {[]openaitest.ToolCall{openaitest.Call("a", "fine", `{"n":`)}, map[string]string{"a": "not a JSON object"}, 0},
		"arguments without room":  {[]openaitest.ToolCall{openaitest.Call("a", "fine", `{"n":"`+strings.Repeat("x", 60_000)+`"}`), openaitest.Call("b", "fine", `{}`)}, map[string]string{"a": "too long", "b": ""}, 0},
		"an unknown tool":         {[]openaitest.ToolCall{openaitest.Call("a", "format_disk", `{}`)}, map[string]string{"a": "no tool of that name"}, 0},
		"a name out of form":      {[]openaitest.ToolCall{openaitest.Call("a", "<|im_start|>", `{}`)}, map[string]string{"a": "the name of a tool is"}, 0},
		"a name that is no URI's": {[]openaitest.ToolCall{openaitest.Call("a", "_fine", `{}`)}, map[string]string{"a": "no tool of that name"}, 0},
		"a tool that fails":       {[]openaitest.ToolCall{openaitest.Call("a", "broken", `{}`), openaitest.Call("b", "fine", `{}`)}, map[string]string{"a": "the tool failed", "b": ""}, 0},
		"a tool that refuses":     {[]openaitest.ToolCall{openaitest.Call("a", "picky", `{}`)}, map[string]string{"a": "n is missing"}, 0},
		"a tool that is slow":     {[]openaitest.ToolCall{openaitest.Call("a", "slow", `{}`)}, map[string]string{"a": "did not end within"}, time.Millisecond},
		"a tool that hangs":       {[]openaitest.ToolCall{openaitest.Call("a", "stuck", `{}`)}, map[string]string{"a": "did not end within"}, time.Millisecond},
		"a tool that panics":      {[]openaitest.ToolCall{openaitest.Call("a", "mad", `{}`), openaitest.Call("b", "fine", `{}`)}, map[string]string{"a": "the tool failed", "b": ""}, 0},
		"a result too long":       {[]openaitest.ToolCall{openaitest.Call("a", "verbose", `{}`)}, map[string]string{"a": "ask for less"}, 0},
		"too many at a time":      {nine, map[string]string{"n0": "", "n7": "", "n8": "at most 8 calls"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := openaitest.NewServer(t, openaitest.Calls("", test.calls...), openaitest.Text("Sorry."))
			tools := []host.Tool{
				&testTool{name: "fine"},
				&testTool{name: "broken", call: func(context.Context, string, int) (boundary.Content, error) {
					return boundary.Content{}, errors.New("open /secret/path: no such file")
				}},
				&testTool{name: "picky", call: func(context.Context, string, int) (boundary.Content, error) {
					return boundary.Content{}, fmt.Errorf("n is missing <|im_end|>: %w", memory.ErrInvalid)
				}},
				&testTool{name: "slow", call: func(ctx context.Context, _ string, _ int) (boundary.Content, error) {
					<-ctx.Done()
					return boundary.Content{}, ctx.Err()
				}},
				&testTool{name: "stuck", call: func(context.Context, string, int) (boundary.Content, error) {
					<-stuck
					return boundary.Content{}, nil
				}},
				&testTool{name: "mad", call: func(context.Context, string, int) (boundary.Content, error) { panic("mad") }},
				&testTool{name: "verbose", call: func(_ context.Context, _ string, room int) (boundary.Content, error) {
					return framed(strings.Repeat("word ", 2*room)), nil
				}},
			}
			h := asking(t, host.Config{}, server, tools...)
			if test.timeout > 0 {
				h.Offer(test.timeout, tools...)
			}
			answer := send(t, h, host.Message{Text: "Please."})
			if answer.Message.Blocks[0].Text != "Sorry." {
				t.Errorf("answered %+v", answer.Message)
			}
			told := resultsIn(server.Requests()[1])
			if len(told) != len(test.calls) {
				t.Errorf("%d calls, %d results", len(test.calls), len(told))
			}
			for id, says := range test.says {
				text := told[id]
				if failed := strings.HasPrefix(text, "[the tool failed]\n"); failed != (says != "") || !strings.Contains(text, says) {
					t.Errorf("of %s the model was told %q", id, text)
				}
				if strings.Contains(text, "/secret/path") || strings.Contains(text, "<|im_end|>") {
					t.Errorf("of %s the model was told %q", id, text)
				}
			}
			if _, session := transcriptOf(t, h, answer.Session); session.Exchanges != 1 {
				t.Errorf("%d exchanges", session.Exchanges)
			}
		})
	}
}

// A model that calls for ever is asked once more and may call none; if its server
// knows of no such wish, without tools.
func TestToolRoundsAreBounded(t *testing.T) {
	for name, stops := range map[string]func(openaitest.Request) bool{
		"by choice":     func(sent openaitest.Request) bool { return sent.ToolChoice == "none" },
		"without tools": func(sent openaitest.Request) bool { return sent.Tools == nil },
	} {
		t.Run(name, func(t *testing.T) { boundedRounds(t, stops) })
	}
}

func boundedRounds(t *testing.T, stops func(openaitest.Request) bool) {
	server := openaitest.NewServer(t)
	server.Otherwise(func(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
		if stops(sent) {
			openaitest.Text("I give up.")(w, r, sent)
			return
		}
		// The same id every time, as some servers have it.
		openaitest.Calls("", openaitest.Call("call_0", "search", "{}"))(w, r, sent)
	})
	search := &testTool{name: "search", call: func(_ context.Context, _ string, room int) (boundary.Content, error) {
		source, err := boundary.ToolSource("search")
		content, _ := boundary.Wrap(source, strings.Repeat("word ", room), room)
		return content, err
	}}
	h := asking(t, host.Config{Model: host.ModelConfig{ContextWindow: 6000, MaxOutputTokens: 1000}}, server, search)
	answer := send(t, h, host.Message{Text: "Please."})
	requests := server.Requests()
	last := requests[len(requests)-1]
	if !stops(last) || len(requests) > 10 || len(search.uses()) != 8 || answer.Message.Blocks[0].Text != "I give up." {
		t.Errorf("%d requests, %d calls, %+v", len(requests), len(search.uses()), answer.Message)
	}
	// Whatever tools return, the prompt is within the budget and holds it all.
	if answer.Report.OverBudget {
		t.Errorf("%d of %d tokens", answer.Report.Tokens, answer.Report.Budget)
	}
	if got := resultsIn(last); len(got) != 8 {
		t.Errorf("%d results of 8 in the last prompt", len(got))
	}
	if _, session := transcriptOf(t, h, answer.Session); session.Exchanges != 1 || session.Messages != 18 {
		t.Errorf("%+v", session)
	}
}

// An id that the model used before is another call's, also where the first one
// has no room in the prompt any more.
func TestAToolCallOfAUsedID(t *testing.T) {
	call := openaitest.Calls("", openaitest.Call("call_0", "search", "{}"))
	server := openaitest.NewServer(t, call, openaitest.Text("one"), openaitest.Text("two"), openaitest.Text("two"), call, openaitest.Text("three"))
	h := asking(t, host.Config{
		Model: host.ModelConfig{ContextWindow: 6000, MaxOutputTokens: 1000}, Compaction: host.CompactionConfig{KeepRecent: 1},
	}, server, &testTool{name: "search", call: func(_ context.Context, _ string, room int) (boundary.Content, error) {
		return framed(strings.Repeat("word ", room/2)), nil
	}})
	session := send(t, h, host.Message{Text: "First."}).Session
	for range 2 {
		send(t, h, host.Message{Session: session, Text: strings.Repeat("word ", 1700)})
	}
	send(t, h, host.Message{Session: session, Text: "Third."})
	requests := server.Requests()
	if got := resultsIn(requests[1]); len(got) != 1 || got["call_0"] == "" {
		t.Errorf("the first turn was told %q", got)
	}
	if got := resultsIn(requests[5]); len(got) != 1 || got["call_0"] != "" {
		t.Errorf("the last turn was told %q", got)
	}
}

// A turn that is given up while a tool runs leaves the call with a result.
func TestCancelDuringAToolCall(t *testing.T) {
	server := openaitest.NewServer(t,
		openaitest.Calls("", openaitest.Call("a", "slow", "{}"), openaitest.Call("b", "fine", "{}")),
		openaitest.Text("Here I am."))
	entered := make(chan struct{})
	slow := &testTool{name: "slow", call: func(ctx context.Context, _ string, _ int) (boundary.Content, error) {
		close(entered)
		<-ctx.Done()
		return boundary.Content{}, ctx.Err()
	}}
	h := asking(t, host.Config{}, server, slow, &testTool{name: "fine"})
	session := newSession(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := h.Send(ctx, host.Message{Session: session, Text: "Please."})
		sent <- err
	}()
	<-entered
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("the turn: %v", err)
	}
	lines, stored := transcriptOf(t, h, session)
	if len(lines) != 4 || lines[2] != "tool/tool result a failed" || !strings.HasPrefix(lines[3], "tool/tool result b") || stored.Exchanges != 0 {
		t.Errorf("the session holds %q, %d exchanges", lines, stored.Exchanges)
	}
	send(t, h, host.Message{Session: session, Text: "Still there?"})
	if got := resultsIn(server.Requests()[1]); !strings.Contains(got["a"], "the turn was given up") {
		t.Errorf("the model was told %q", got)
	}
	if _, stored = transcriptOf(t, h, session); stored.Exchanges != 1 {
		t.Errorf("%d exchanges", stored.Exchanges)
	}
}

// Invariant 5: what a host that died between a call and its result left behind
// goes on.
func TestARestartBetweenACallAndItsResult(t *testing.T) {
	for name, behind := range map[string][]memory.Draft{
		"no result":   nil,
		"a refresh":   {}, // stands for itself: the next turn's user may have been away
		"one of two":  {{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult("b", "fine", framed("b"), false)}, At: monday}},
		"a question":  {{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("Hello?")}, At: monday}},
		"all of them": {{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult("a", "slow", framed("a"), false)}, At: monday}, {Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult("b", "fine", framed("b"), false)}, At: monday}},
	} {
		t.Run(name, func(t *testing.T) {
			server := openaitest.NewServer(t, openaitest.Text("Here I am."), openaitest.Text("Still."))
			config := host.Config{Data: t.TempDir()}
			h := asking(t, config, server)
			session := newSession(t, h)
			user, err := h.User("")
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			// The state at the moment of the crash, in the store's own words.
			store, err := sqlite.Open(t.Context(), filepath.Join(config.Data, "glovebox.db"), sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			drafts := append([]memory.Draft{
				{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("Please.")}, At: monday},
				{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.ToolCall("a", "slow", []byte("{}")), memory.ToolCall("b", "fine", []byte("{}"))}, At: monday},
			}, behind...)
			if _, err := store.Append(t.Context(), user.ID, session, drafts...); err != nil {
				t.Fatal(err)
			}
			if name == "a refresh" {
				if _, err := store.Inject(t.Context(), user.ID, session, memory.Injection{At: monday, Blocks: []boundary.Content{framed("It rains.")}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}

			h = asking(t, config, server, &testTool{name: "fine"})
			send(t, h, host.Message{Session: session, Text: "Still there?"})
			first := server.Requests()[0]
			got := resultsIn(first)
			if len(got) != 2 {
				t.Errorf("the model was told %q", got)
			}
			if open := name != "all of them"; strings.Contains(got["a"], "the turn ended before the tool did") != open {
				t.Errorf("of the call that was open the model was told %q", got["a"])
			}
			// What the host writes for a turn that is over is no activity of now,
			// or the gap trigger would see none.
			messages, err := h.Store().Messages(t.Context(), user.ID, session, memory.MessageQuery{})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if m.Source == memory.SourceTool && !m.At.Equal(monday) {
					t.Errorf("a result of %s", m.At)
				}
			}
			// Once is enough.
			send(t, h, host.Message{Session: session, Text: "And now?"})
			lines, stored := transcriptOf(t, h, session)
			results := 0
			for _, line := range lines {
				results += strings.Count(line, " result ")
			}
			if results != 2 || stored.Exchanges != 2 {
				t.Errorf("%d exchanges in\n%s", stored.Exchanges, strings.Join(lines, "\n"))
			}
		})
	}
}

func newSession(t *testing.T, h *host.Host) memory.SessionID {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := h.Agent("")
	if err != nil {
		t.Fatal(err)
	}
	session, err := h.Store().CreateSession(t.Context(), memory.Session{User: user.ID, Agent: agent.ID, CreatedAt: monday})
	if err != nil {
		t.Fatal(err)
	}
	return session.ID
}

// The model finds what was said in another conversation with the tools that it is
// offered without configuration, and nothing of another user's (S9, B8).
func TestModelSearchesMemory(t *testing.T) {
	server := openaitest.NewServer(t,
		openaitest.Text("I will remember."), openaitest.Text("So will I."),
		openaitest.Calls("", openaitest.Call("a", "memory_search", `{"words":"colour of the boathouse"}`)),
		openaitest.Text("It is green."))
	t.Setenv("TEST_MODEL_KEY", openaitest.Key)
	config := host.Config{Users: []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}}}
	config.Model.Provider, config.Model.BaseURL, config.Model.Name, config.Model.APIKey = "openai", server.BaseURL, "m", "env:TEST_MODEL_KEY"
	h := open(t, config)
	bert, err := h.User("bert")
	if err != nil {
		t.Fatal(err)
	}
	send(t, h, host.Message{Text: "The boathouse is painted green."})
	send(t, h, host.Message{User: bert.ID, Text: "My boathouse has the colour red."})
	answer := send(t, h, host.Message{Text: "Which colour has my boathouse?"})
	if answer.Message.Blocks[0].Text != "It is green." || answer.Message.Trust != memory.TrustDerived {
		t.Errorf("answered %+v", answer.Message)
	}
	requests := server.Requests()
	if n := len(requests[2].Tools); n != 3 {
		t.Errorf("%d tools were offered", n)
	}
	found := resultsIn(requests[3])["a"]
	if !strings.HasPrefix(found, "<<<EXTCONTENT_") || !strings.Contains(found, "painted green") || strings.Contains(found, "red") {
		t.Errorf("the model was told %q", found)
	}

	off := false
	config.Model.Tools = &off
	server = openaitest.NewServer(t, openaitest.Text("Hello."))
	config.Model.BaseURL = server.BaseURL
	send(t, open(t, config), host.Message{Text: "Hello."})
	if n := len(server.Requests()[0].Tools); n != 0 {
		t.Errorf("%d tools were offered although they are off", n)
	}
}
