package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic/anthropictest"
	"github.com/gloveboxhq/glovebox/memory"
)

// thinking is a host whose model is a server that speaks the Messages protocol and
// holds every request against its rules.
func thinking(t *testing.T, config host.Config, server *anthropictest.Server, tools ...host.Tool) *host.Host {
	t.Helper()
	t.Setenv("ANTHROPIC_API_KEY", anthropictest.Key)
	t.Setenv("ANTHROPIC_BASE_URL", server.BaseURL)
	config.Model.Provider, config.Model.Name = "anthropic", "m"
	h := open(t, config)
	h.Offer(time.Minute, tools...)
	return h
}

// thoughtsIn returns the thoughts in a request as they came, a message each.
func thoughtsIn(r anthropictest.Request) (all []string) {
	for i, m := range r.Messages {
		for _, b := range m.Content {
			if b.Type == "thinking" || b.Type == "redacted_thinking" {
				all = append(all, fmt.Sprint(i, " ", b.Raw))
			}
		}
	}
	return all
}

// A whole turn with tools and thoughts: what the model thought goes back with
// every byte as long as the turn goes on, whether somebody listens or not, and is
// not in the next one.
func TestThoughtsOfATurn(t *testing.T) {
	for name, listen := range map[string]func(host.Event){"complete": nil, "stream": func(host.Event) {}} {
		t.Run(name, func(t *testing.T) {
			server := anthropictest.NewServer(t,
				anthropictest.Calls(anthropictest.Thought("Is 1 < 2 & \u2028?"), anthropictest.Redacted("hush"), anthropictest.Words("Let me see."),
					anthropictest.Call("toolu_1", "left", `{"n":1}`), anthropictest.Call("toolu_2", "right", `{"n":2}`)),
				anthropictest.Calls(anthropictest.Thought("So it is."), anthropictest.Call("toolu_3", "right", `{}`)),
				anthropictest.Finished("end_turn", anthropictest.Thought("Done."), anthropictest.Words("It is done.")),
				anthropictest.Text("You are welcome."))
			h := thinking(t, host.Config{}, server, &testTool{name: "left"}, &testTool{name: "right", call: func(context.Context, string, int) (boundary.Content, error) {
				return boundary.Content{}, errors.New("broken")
			}})
			answer := send(t, h, host.Message{Text: "Please.", OnEvent: listen})
			send(t, h, host.Message{Session: answer.Session, Text: "Thank you.", OnEvent: listen})
			if answer.Message.Blocks[0].Text != "It is done." || len(answer.Message.Blocks) != 1 {
				t.Errorf("answered %+v", answer.Message)
			}
			requests := server.Requests()
			first, second := thoughtsIn(requests[1]), thoughtsIn(requests[2])
			if len(thoughtsIn(requests[0])) != 0 || len(first) != 2 || len(second) != 3 || !slices.Equal(first, second[:2]) || len(thoughtsIn(requests[3])) != 0 {
				t.Errorf("thoughts %q\nthen %q\nand %q in the next turn", first, second, thoughtsIn(requests[3]))
			}
			if !strings.Contains(first[0], `"thinking":"Is 1 < 2 & `) || !strings.HasPrefix(first[0], "1 ") || !strings.HasPrefix(second[2], "3 ") {
				t.Errorf("thoughts %q", second)
			}
			for _, b := range requests[1].Messages[2].Content {
				if failed := b.ToolUseID == "toolu_2"; b.IsError != failed {
					t.Errorf("the result %s", b.Raw)
				}
			}
			for i, r := range requests {
				if r.Stream != (listen != nil) {
					t.Errorf("request %d is streamed: %v", i, r.Stream)
				}
				if got := r.Breakpoints(); got[0] != "system 0" || i > 0 && len(got) < 2 {
					t.Errorf("request %d has the breakpoints %q", i, got)
				}
			}
		})
	}
}

// A thought is bound to what stood before it. When older messages have to go in
// the middle of a turn, so do the thoughts: the server refuses a request that
// keeps them.
func TestThoughtsBehindAChangedPrefix(t *testing.T) {
	long := strings.Repeat("and so on ", 130)
	tool := &testTool{name: "look", call: func(context.Context, string, int) (boundary.Content, error) { return framed(long + long), nil }}
	const turns = 10
	call := func(n int) anthropictest.Answer {
		return anthropictest.Calls(anthropictest.Thought(fmt.Sprint("Look ", n)), anthropictest.Call(fmt.Sprint("toolu_", n), "look", `{}`))
	}
	for name, test := range map[string]struct {
		window  int
		answers []anthropictest.Answer
	}{
		// What the tool says does not fit beside the oldest messages.
		"no room": {5000, []anthropictest.Answer{call(1), call(2), anthropictest.Text("Done.")}},
		"too long for the server": {100_000, []anthropictest.Answer{
			call(1), anthropictest.Fault(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), call(2), anthropictest.Text("Done."),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := anthropictest.NewServer(t, append(slices.Repeat([]anthropictest.Answer{anthropictest.Text("Fine.")}, turns), test.answers...)...)
			var config host.Config
			config.Model.ContextWindow, config.Model.MaxOutputTokens = test.window, 1000
			h := thinking(t, config, server, tool)
			var answer host.Answer
			for range turns {
				answer = send(t, h, host.Message{Session: answer.Session, Text: long})
			}
			if answer = send(t, h, host.Message{Session: answer.Session, Text: "Look."}); answer.Message.Blocks[0].Text != "Done." {
				t.Errorf("answered %+v", answer.Message)
			}
			requests := server.Requests()[turns:]
			changed := false
			for i, r := range requests[1:] {
				changed = changed || len(r.Messages) < len(requests[i].Messages)
				if got := thoughtsIn(r); changed && len(got) != 0 {
					t.Errorf("round %d of %d messages has the thoughts %q", i+1, len(r.Messages), got)
				}
			}
			if !changed {
				t.Error("nothing had to go")
			}
		})
	}
}

// The thoughts of a turn that was interrupted among its tools stand in the next
// prompt as long as nothing before them has changed. A summary, or another process
// that does not know what stood there, lets them go: else the session's every next
// prompt is refused.
func TestThoughtsOfAnInterruptedTurn(t *testing.T) {
	long := strings.Repeat("and so on ", 130)
	const turns = 6
	for name, test := range map[string]struct {
		between func(t *testing.T, h *host.Host, session memory.SessionID)
		kept    int
	}{
		"nothing between": {func(*testing.T, *host.Host, memory.SessionID) {}, 1},
		"a summary between": {func(t *testing.T, h *host.Host, session memory.SessionID) {
			report, err := h.Compact(t.Context(), userNamed(t, h, ""), session)
			if err != nil || !report.Sweep.Changed() {
				t.Fatalf("%+v, %v", report, err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			answers := append(slices.Repeat([]anthropictest.Answer{anthropictest.Text("Fine.")}, turns),
				anthropictest.Calls(anthropictest.Thought("Look."), anthropictest.Call("toolu_1", "look", `{}`)),
				anthropictest.Fault(401, "authentication_error", "no"), anthropictest.Text("Done."))
			server := anthropictest.NewServer(t, answers...)
			config := host.Config{Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 4}}
			h := thinking(t, config, server, &testTool{name: "look"})
			var answer host.Answer
			for range turns {
				answer = send(t, h, host.Message{Session: answer.Session, Text: long})
			}
			if _, err := h.Send(t.Context(), host.Message{Session: answer.Session, Text: "Look."}); !errors.Is(err, llm.ErrAuth) {
				t.Fatal(err)
			}
			test.between(t, h, answer.Session)
			send(t, h, host.Message{Session: answer.Session, Text: "And?"})
			requests := server.Requests()
			if got := thoughtsIn(requests[len(requests)-1]); len(got) != test.kept {
				t.Errorf("thoughts %q", got)
			}
		})
	}
}

// The driver's name for itself is that of the rules by which its prompts are made:
// else no thought would ever go back.
func TestTheProviderOfThoughts(t *testing.T) {
	if assembly.Provider(anthropic.Provider) != assembly.Anthropic {
		t.Errorf("the driver is %q, the rules are of %q", anthropic.Provider, assembly.Anthropic)
	}
}

// Where the server is and where the key, if the configuration does not say.
func TestAnthropicIsConfigured(t *testing.T) {
	server := anthropictest.NewServer(t, anthropictest.Text("Here I am."), anthropictest.Text("Here I am."))
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("TEST_MODEL_KEY", anthropictest.Key)
	var config host.Config
	config.Model = host.ModelConfig{Provider: "anthropic", Name: "m"}
	config.Data = t.TempDir()
	if _, err := host.New(t.Context(), config); err == nil || !strings.Contains(err.Error(), "model.api_key: the environment has no ANTHROPIC_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
	config.Model.APIKey, config.Model.BaseURL = "env:TEST_MODEL_KEY", server.BaseURL+"/v1"
	if got := send(t, open(t, config), host.Message{Text: "Hello?"}); got.Message.Blocks[0].Text != "Here I am." || got.InputTokens != anthropictest.InputTokens {
		t.Errorf("answered %+v", got.Message)
	}
	if sent := server.Requests()[0]; sent.Model != "m" || *sent.MaxTokens != 1024 || len(sent.System) != 1 {
		t.Errorf("sent %s", sent.Body)
	}
	// It is no offline model: it is offered the memory's tools.
	if sent := server.Requests()[0]; len(sent.Tools) == 0 || sent.Tools[0].Name != "memory_describe" {
		t.Errorf("offered %+v", sent.Tools)
	}
}
