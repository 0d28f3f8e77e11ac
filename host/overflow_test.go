package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// tooLong is how a server refuses a prompt.
func tooLong(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
	openaitest.Fault(400, "context_length_exceeded", "messages", "This model's maximum context length is 8192 tokens.")(w, r, sent)
}

// longSession is a session of 20 messages "m00" to "m19" and, behind them, two
// rounds of tools whose turn broke off; what is older than the last 14 is
// summarised.
func longSession(t *testing.T, h *host.Host) memory.SessionID {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	session := newSession(t, h)
	drafts := make([]memory.Draft, 0, 24)
	for i := range 10 {
		drafts = append(drafts,
			memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: monday, Blocks: []memory.Block{memory.Text(fmt.Sprintf("m%02d. %s", 2*i, strings.Repeat("How does the pump do? ", 20)))}},
			memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, At: monday, Blocks: []memory.Block{memory.Text(fmt.Sprintf("m%02d. %s", 2*i+1, strings.Repeat("It does well. ", 20)))}})
	}
	for _, id := range []string{"old", "new"} {
		drafts = append(drafts,
			memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, At: monday, Blocks: []memory.Block{memory.ToolCall(id, "search", json.RawMessage(`{}`))}},
			memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, At: monday, Blocks: []memory.Block{memory.ToolResult(id, "search", framed(strings.Repeat("pump ", 1000)+"end of "+id), false)}})
	}
	if _, err := h.Store().Append(t.Context(), user.ID, session, drafts...); err != nil {
		t.Fatal(err)
	}
	if report, err := h.Compact(t.Context(), user.ID, session); err != nil || !report.Sweep.Changed() {
		t.Fatalf("%+v, %v", report, err)
	}
	return session
}

// stored is all that the store has of a session.
func stored(t *testing.T, h *host.Host, session memory.SessionID) (messages []memory.Message, frontier memory.Frontier) {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	if messages, err = h.Store().Messages(t.Context(), user.ID, session, memory.MessageQuery{}); err != nil {
		t.Fatal(err)
	}
	if frontier, err = h.Store().Frontier(t.Context(), user.ID, session); err != nil {
		t.Fatal(err)
	}
	return messages, frontier
}

func marshalled(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sketch tells what of longSession a request holds.
func sketch(sent openaitest.Request) string {
	var parts []string
	var text strings.Builder
	for _, m := range sent.Messages[1:] {
		text.WriteString(m.Content + "\n")
	}
	if strings.Contains(text.String(), "[Summary ") {
		parts = append(parts, "summary")
	}
	if strings.HasPrefix(sent.Messages[1].Content, assembly.RecoveryNote) {
		parts = append(parts, "note")
	}
	for i := range 20 {
		if strings.Contains(text.String(), fmt.Sprintf("\nm%02d. ", i)) || strings.HasPrefix(text.String(), fmt.Sprintf("m%02d. ", i)) {
			parts = append(parts, fmt.Sprint(i))
		}
	}
	for _, id := range []string{"old", "new"} {
		if result, ok := resultsIn(sent)[id]; ok {
			if strings.Contains(result, "end of "+id) {
				parts = append(parts, id)
			} else {
				parts = append(parts, id+" shortened")
			}
		}
	}
	if strings.Contains(text.String(), "And now?") {
		parts = append(parts, "input")
	}
	return strings.Join(parts, " ")
}

// overflowing is a host whose prompts hold longSession and more.
func overflowing(t *testing.T, server *openaitest.Server, tools ...host.Tool) *host.Host {
	t.Helper()
	return asking(t, host.Config{Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 14}}, server, tools...)
}

// The prompts of longSession with the input "And now?", stage by stage.
var sketches = []string{
	"summary 10 11 12 13 14 15 16 17 18 19 old new input",
	// The last ten are five messages, two rounds and the input.
	"summary 15 16 17 18 19 old new input",
	// The result of the old round is one of the last four, and its call belongs to
	// it. Nothing that a person said is among them but the input.
	"note old new input",
	// The turn of both rounds is over.
	"note old shortened new shortened input",
}

// A prompt that the server refuses is cut down, stage by stage, and nothing of
// that is stored.
func TestARefusedPromptIsCutDown(t *testing.T) {
	for refusals := range 5 {
		t.Run(fmt.Sprint(refusals, " refusals"), func(t *testing.T) {
			answers := slices.Repeat([]openaitest.Answer{tooLong}, min(refusals, 4))
			if refusals < 4 {
				answers = append(answers, openaitest.Text("It still does."))
			}
			server := openaitest.NewServer(t, answers...)
			h := overflowing(t, server)
			session := longSession(t, h)
			messages, frontier := stored(t, h, session)
			answer, err := h.Send(t.Context(), host.Message{Session: session, Text: "And now?"})
			for i, sent := range server.Requests() {
				if got := sketch(sent); i >= len(sketches) || got != sketches[i] {
					t.Errorf("request %d holds %q, want %q", i, got, sketches[min(i, len(sketches)-1)])
				}
			}
			if n := len(server.Requests()); n != len(answers) {
				t.Errorf("%d requests, want %d", n, len(answers))
			}
			added := 2
			if refusals == 4 {
				added = 1
				tooLargeIn(t, err, "status 400", "takes no prompt of", "a message of role tool", "send a shorter message, or set context_window")
			} else if err != nil || answer.Message.Blocks[0].Text != "It still does." {
				t.Errorf("answered %+v, %v", answer.Message, err)
			}
			if want := assembly.Recovery(min(refusals, 3)); answer.Report.Recovery != want || (answer.Report.Drained > 0) != (want > 0) || answer.Report.OverBudget {
				t.Errorf("recovery: %v, %d left out; want %v", answer.Report.Recovery, answer.Report.Drained, want)
			}
			// Exactly one answer costs: what is refused is not paid for.
			if refusals < 4 && answer.InputTokens != openaitest.InputTokens {
				t.Errorf("%d tokens", answer.InputTokens)
			}
			messages2, frontier2 := stored(t, h, session)
			if len(messages2) != len(messages)+added || marshalled(t, messages2[:len(messages)]) != marshalled(t, messages) ||
				marshalled(t, frontier2.Items[:len(frontier.Items)]) != marshalled(t, frontier.Items) {
				t.Errorf("%d messages became %d, and not just by the turn", len(messages), len(messages2))
			}
		})
	}
}

// tooLargeIn holds an error against what Send promises of it.
func tooLargeIn(t *testing.T, err error, says ...string) *assembly.TooLargeError {
	t.Helper()
	var large *assembly.TooLargeError
	if !errors.Is(err, llm.ErrContextTooLong) || !errors.As(err, &large) {
		t.Fatalf("the turn: %v", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	if len(err.Error()) > 1000 || strings.Contains(err.Error(), "pump") {
		t.Errorf("it quotes: %q", err)
	}
	return large
}

// A stage that finds nothing to leave out is not asked about.
func TestAShortPromptIsRefusedOnce(t *testing.T) {
	server := openaitest.NewServer(t, tooLong)
	h := asking(t, host.Config{}, server)
	_, err := h.Send(t.Context(), host.Message{Text: "How is the pump?"})
	tooLargeIn(t, err, "status 400", "the model's server takes no prompt of", "the system text with", "set context_window to what the server really takes")
}

// What was too long stays cut down while tools are called, and only then.
func TestTheStageLastsForTheTurn(t *testing.T) {
	server := openaitest.NewServer(t,
		tooLong, tooLong, openaitest.Calls("", openaitest.Call("a", "search", "{}")),
		tooLong, openaitest.Calls("", openaitest.Call("b", "search", "{}")),
		openaitest.Text("It does."), openaitest.Text("You are welcome."))
	h := overflowing(t, server, &testTool{name: "search"})
	session := longSession(t, h)
	answer := send(t, h, host.Message{Session: session, Text: "And now?"})
	want := append(slices.Clone(sketches[:3]),
		// What was the newest round is an older one now, and then none of the last
		// four messages.
		"note new input", "note new shortened input", "note input")
	for i, sent := range server.Requests() {
		if got := sketch(sent); got != want[i] {
			t.Errorf("request %d holds %q, want %q", i, got, want[i])
		}
	}
	if answer.Report.Recovery != assembly.RecoverShorten || answer.Message.Blocks[0].Text != "It does." {
		t.Errorf("recovery: %v, answered %+v", answer.Report.Recovery, answer.Message)
	}
	if results := resultsIn(server.Requests()[5]); len(results) != 2 || !strings.Contains(results["a"], "search of {}") || !strings.Contains(results["b"], "search of {}") {
		t.Errorf("the model was told %q", results)
	}
	// The next turn begins anew.
	next := send(t, h, host.Message{Session: session, Text: "Thanks."})
	if got := sketch(server.Requests()[6]); next.Report.Recovery != assembly.RecoverNothing || got != sketches[0] {
		t.Errorf("the next turn's prompt holds %q", got)
	}
}

// A message that no prompt can hold costs its own answer, and no other.
func TestAGiantMessage(t *testing.T) {
	for _, tokenizer := range []string{"", "o200k_base"} {
		t.Run("tokenizer "+tokenizer, func(t *testing.T) {
			server := openaitest.NewServer(t, openaitest.Text("Good."), openaitest.Text("Here I am."), openaitest.Text("Still."))
			h := asking(t, host.Config{Model: host.ModelConfig{ContextWindow: 8192, Tokenizer: tokenizer}}, server)
			session := send(t, h, host.Message{Text: "The pump is on."}).Session
			giant := host.Message{Session: session, Text: strings.Repeat("the pump runs on. ", 4000)}
			answer, err := h.Send(t.Context(), giant)
			large := tooLargeIn(t, err, "at the least, and 7168 are to be had", "a message of role user of ", "send a shorter message, or set a larger context_window")
			if large.Tokens < 10_000 || large.Largest[0].Kind != assembly.KindMessage || !answer.Report.OverBudget {
				t.Errorf("%+v", large)
			}
			if n := len(server.Requests()); n != 1 {
				t.Errorf("a prompt over the budget was sent: %d requests", n)
			}
			for _, text := range []string{"Are you there?", "Really?"} {
				answer = send(t, h, host.Message{Session: session, Text: text})
				if !strings.Contains(promptText(answer), text) || strings.Contains(promptText(answer), "runs on") || answer.Report.OverBudget {
					t.Errorf("%q got a prompt of %d tokens", text, answer.Report.Tokens)
				}
				if !slices.ContainsFunc(answer.Report.Entries, func(e assembly.Entry) bool {
					return e.ID == large.Largest[0].ID && !e.Included && e.Reason == assembly.ReasonNoRoom && e.Tokens > 10_000
				}) {
					t.Errorf("%q: what was left out is not in the report: %+v", text, answer.Report.Entries)
				}
			}
		})
	}
}

// What is too large to be a message at all is a file, and the prompt has its
// outline.
func TestAMessageOfTenMegabytes(t *testing.T) {
	server := openaitest.NewServer(t, openaitest.Text("That is long."), openaitest.Text("Here I am."))
	h := asking(t, host.Config{Model: host.ModelConfig{ContextWindow: 8192}}, server)
	answer := send(t, h, host.Message{Text: strings.Repeat("the pump runs on. ", 10<<20/18)})
	for _, text := range []string{"Text of 1048", "Are you there?"} {
		if !strings.Contains(promptText(answer), text) || answer.Report.Recovery != assembly.RecoverNothing || answer.Report.Tokens > 1000 {
			t.Errorf("%v: a prompt of %d tokens:\n%s", answer.Report.Recovery, answer.Report.Tokens, promptText(answer))
		}
		if text != "Are you there?" {
			answer = send(t, h, host.Message{Session: answer.Session, Text: "Are you there?"})
		}
	}
}

// What is over the budget by the host's own count is never sent, whatever it is
// that has no room: the error says it.
func TestOverBudgetIsNeverSent(t *testing.T) {
	verbose := &testTool{name: "search"}
	small := host.ModelConfig{ContextWindow: 2000, MaxOutputTokens: 1000}
	for name, test := range map[string]struct {
		config host.Config
		tools  []host.Tool
		text   string
		says   string
	}{
		"system prompt":     {host.Config{Model: small, Agents: []host.AgentConfig{{Name: "jeeves", SystemPrompt: strings.Repeat("You are Jeeves. ", 1000)}}}, nil, "hello", "give the agent a shorter system prompt"},
		"tools":             {host.Config{Model: small}, []host.Tool{largeTool{verbose, strings.Repeat("It does. ", 2000)}}, "hello", "offer fewer tools"},
		"the input":         {host.Config{Model: small}, nil, strings.Repeat("pump ", 2000), "send a shorter message"},
		"a tiny window":     {host.Config{Model: host.ModelConfig{ContextWindow: 64, MaxOutputTokens: 32}}, nil, "hello", "give the agent a shorter system prompt"},
		"a budget of one":   {host.Config{Model: host.ModelConfig{ContextWindow: 64, MaxOutputTokens: 63}}, nil, "hello", "and 1 are to be had"},
		"with a tokenizer":  {host.Config{Model: host.ModelConfig{ContextWindow: 2000, MaxOutputTokens: 1000, Tokenizer: "cl100k_base"}}, nil, strings.Repeat("pump ", 2000), "a message of role user"},
		"encoded":           {host.Config{Model: small, Boundary: host.BoundaryConfig{Mode: "encode"}}, nil, strings.Repeat("pump ", 2000), "a message of role user"},
		"made room in vain": {host.Config{Model: small, Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{Threshold: 0.75}}, nil, strings.Repeat("pump ", 2000), "a message of role user"},
	} {
		t.Run(name, func(t *testing.T) {
			server := openaitest.NewServer(t) // every request fails the test
			h := asking(t, test.config, server, test.tools...)
			var session memory.SessionID
			for range 2 {
				answer, err := h.Send(t.Context(), host.Message{Session: session, Text: test.text})
				session = answer.Session
				tooLargeIn(t, err, test.says, "context_window or a lower max_output_tokens")
				if answer.Report.Recovery != assembly.RecoverShorten {
					t.Errorf("given up at %v", answer.Report.Recovery)
				}
			}
			if messages, _ := stored(t, h, session); len(messages) != 2 {
				t.Errorf("%d messages are stored", len(messages))
			}
		})
	}
}

// largeTool has much to say of itself.
type largeTool struct {
	*testTool
	description string
}

func (t largeTool) Definition() llm.Tool {
	d := t.testTool.Definition()
	d.Description = t.description
	return d
}

// Recovery finds an answer where the host's count says that the last messages are
// too much, in every mode of the boundary and by any count.
func TestTheLastMessagesAreTooMuch(t *testing.T) {
	for _, tokenizer := range []string{"", "o200k_base"} {
		for _, mode := range []string{"delimit", "datamark", "encode"} {
			t.Run(mode+" "+tokenizer, func(t *testing.T) {
				server := openaitest.NewServer(t, openaitest.Text("Fine."))
				h := asking(t, host.Config{Model: host.ModelConfig{ContextWindow: 3000, MaxOutputTokens: 1000, Tokenizer: tokenizer}, Boundary: host.BoundaryConfig{Mode: mode}}, server)
				user, err := h.User("")
				if err != nil {
					t.Fatal(err)
				}
				session := newSession(t, h)
				var drafts []memory.Draft
				for i := range 3 {
					id := fmt.Sprint("c", i)
					drafts = append(drafts,
						memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, At: monday, Blocks: []memory.Block{memory.ToolCall(id, "search", json.RawMessage(`{}`))}},
						memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, At: monday, Blocks: []memory.Block{memory.ToolResult(id, "search", framed(strings.Repeat("pump ", 800)), false)}})
				}
				if _, err := h.Store().Append(t.Context(), user.ID, session, drafts...); err != nil {
					t.Fatal(err)
				}
				answer := send(t, h, host.Message{Session: session, Text: "And now?"})
				if answer.Report.Recovery != assembly.RecoverKeepTen || answer.Report.OverBudget || !strings.Contains(promptText(answer), "And now?") || len(server.Requests()) != 1 {
					t.Errorf("%v, %d of %d tokens, %d requests", answer.Report.Recovery, answer.Report.Tokens, answer.Report.Budget, len(server.Requests()))
				}
			})
		}
	}
}

// A round that the server finds too long fails its turn, and is no reason to fail
// those after it.
func TestARoundThatIsTooLong(t *testing.T) {
	server := openaitest.NewServer(t, openaitest.Calls("", openaitest.Call("a", "search", "{}")))
	server.Otherwise(func(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
		if strings.Contains(resultsIn(sent)["a"], "the end") {
			tooLong(w, r, sent)
			return
		}
		openaitest.Text("Fine.")(w, r, sent)
	})
	h := asking(t, host.Config{}, server, &testTool{name: "search", call: func(context.Context, string, int) (boundary.Content, error) {
		return framed(strings.Repeat("pump ", 1000) + "the end"), nil
	}})
	session := newSession(t, h)
	_, err := h.Send(t.Context(), host.Message{Session: session, Text: "How is it?"})
	tooLargeIn(t, err, "status 400", "most of it is a message of role tool")
	if n := len(server.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	answer := send(t, h, host.Message{Session: session, Text: "And now?"})
	if got := sketch(server.Requests()[len(server.Requests())-1]); answer.Report.Recovery != assembly.RecoverShorten || got != "input" {
		t.Errorf("%v: %q", answer.Report.Recovery, got)
	}
}

// A panic of the model's driver is the turn's failure and nobody else's.
func TestTheModelPanics(t *testing.T) {
	fake := &model{answer: func(context.Context) (llm.Response, error) { panic("swordfish") }}
	h := open(t, host.Config{LLM: fake})
	session := newSession(t, h)
	if _, err := h.Send(t.Context(), host.Message{Session: session, Text: "Hello?"}); !errors.Is(err, llm.ErrUnavailable) || strings.Contains(err.Error(), "swordfish") {
		t.Errorf("the turn: %v", err)
	}
	fake.answer = nil
	if answer := send(t, h, host.Message{Session: session, Text: "Again."}); !strings.Contains(promptText(answer), "Hello?\n\nAgain.") {
		t.Errorf("the next prompt is\n%s", promptText(answer))
	}
}

// Who gives up while a stage is asked about waits for nothing, and no further
// stage is tried.
func TestCancelDuringRecovery(t *testing.T) {
	entered := make(chan struct{})
	server := openaitest.NewServer(t, tooLong, openaitest.Stalled(entered, nil, nil), openaitest.Text("Here I am."))
	h := overflowing(t, server)
	session := longSession(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := h.Send(ctx, host.Message{Session: session, Text: "And now?"})
		sent <- err
	}()
	select {
	case <-entered:
	case err := <-sent:
		t.Fatalf("the turn ended before the second stage: %v", err)
	}
	cancel()
	var large *assembly.TooLargeError
	if err := <-sent; !errors.Is(err, context.Canceled) || errors.Is(err, llm.ErrContextTooLong) || errors.As(err, &large) {
		t.Errorf("the turn: %v", err)
	}
	answer := send(t, h, host.Message{Session: session, Text: "Hello?"})
	if n := len(server.Requests()); n != 3 || answer.Report.Recovery != assembly.RecoverNothing {
		t.Errorf("%d requests, then %v", n, answer.Report.Recovery)
	}
}

// Compaction has its chance before anything is left out, once.
func TestCompactionGoesBeforeRecovery(t *testing.T) {
	data := t.TempDir()
	long := strings.Repeat("how does the pump in hall three do? ", 30)
	for name, test := range map[string]struct {
		last string // what is said last
		want assembly.Recovery
	}{
		"and is enough":     {"and now?", assembly.RecoverNothing},
		"and is not enough": {strings.Repeat(long, 11), assembly.RecoverKeepTen},
	} {
		t.Run(name, func(t *testing.T) {
			var runs kept
			server := openaitest.NewServer(t)
			server.Otherwise(openaitest.Text("Fine."))
			config := host.Config{Data: data, Summarizer: compaction.NewOffline(), OnCompaction: runs.take, Model: host.ModelConfig{ContextWindow: 40_000}}
			h := asking(t, config, server)
			var session memory.SessionID
			for i := range 20 {
				session = send(t, h, host.Message{Session: session, Text: fmt.Sprintf("question %d: %s", i, long)}).Session
			}
			h.Close()
			config.Model = host.ModelConfig{ContextWindow: 4000, MaxOutputTokens: 500}
			config.Compaction.Threshold = 0.75
			h = asking(t, config, server)
			answer := send(t, h, host.Message{Session: session, Text: test.last})
			if answer.Report.Recovery != test.want || answer.Report.OverBudget || test.want == 0 && !strings.Contains(promptText(answer), "[Summary ") {
				t.Errorf("%v, %d of %d tokens:\n%s", answer.Report.Recovery, answer.Report.Tokens, answer.Report.Budget, promptText(answer))
			}
			if got := runs.all(); len(got) == 0 || !got[0].Sweep.Changed() {
				t.Errorf("compactions %+v", got)
			}
		})
	}
}
