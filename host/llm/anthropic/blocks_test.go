package anthropic_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic/anthropictest"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
)

func TestParallelCallsAndTheirResults(t *testing.T) {
	bothWays(t, func(t *testing.T, ask remotetest.Ask) {
		s := anthropictest.NewServer(t,
			anthropictest.Calls(anthropictest.Words("Let me see."), anthropictest.Call("toolu_1", "search", `{"query":"parrot <b>"}`), anthropictest.Call("toolu_2", "now", "{}")),
			anthropictest.Text("Marta does."))
		m := open(t, anthropic.Config{BaseURL: s.BaseURL})
		r := llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Text: "Who feeds the parrot?"}}, Tools: tools()}
		got, err := ask(t.Context(), m, r)
		want := llm.Response{
			Text: "Let me see.", InputTokens: anthropictest.InputTokens, OutputTokens: anthropictest.OutputTokens, Model: "test-model",
			ToolCalls: []llm.ToolCall{
				{ID: "toolu_1", Name: "search", Input: json.RawMessage(`{"query":"parrot <b>"}`)},
				{ID: "toolu_2", Name: "now", Input: json.RawMessage(`{}`)},
			},
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
		}
		sent := s.Requests()[0]
		if len(sent.Tools) != 2 || sent.Tools[0].Description != "Searches." || string(sent.Tools[0].InputSchema) != remotetest.Parameters || sent.Tools[1].Name != "now" {
			t.Errorf("sent %s", sent.Body)
		}

		r.Messages = append(r.Messages,
			llm.Message{Role: llm.RoleAssistant, Text: got.Text, ToolCalls: got.ToolCalls},
			llm.Message{Role: llm.RoleUser, Text: "Be quick.", ToolResults: []llm.ToolResult{
				{ID: "toolu_2", Name: "now", Text: "[the tool failed]", IsError: true},
				{ID: "toolu_1", Name: "search", Text: "Marta"},
			}})
		r.NoCalls = true
		if got, err := ask(t.Context(), m, r); err != nil || got.Text != "Marta does." || got.ToolCalls != nil {
			t.Fatalf("got %+v, %v", got, err)
		}
		sent = s.Requests()[1]
		if got, want := sketch(sent), `user: Who feeds the parrot?
assistant: Let me see. search{"query":"parrot \u003cb\u003e"}#toolu_1 now{}#toolu_2
user: #toolu_2=[the tool failed]! #toolu_1=Marta Be quick.`; got != want {
			t.Errorf("sent %s\nwant %s", got, want)
		}
		if sent.ToolChoice == nil || sent.ToolChoice.Type != "none" || len(sent.Tools) != 2 {
			t.Errorf("calls are not forbidden: %s", sent.Body)
		}
	})
}

// Thoughts come back as they went, with every byte that JSON allows them.
func TestThoughtsGoBack(t *testing.T) {
	bothWays(t, func(t *testing.T, ask remotetest.Ask) {
		thought := "If 1 < 2 && \"so\"\n– then é, \u2028 and 😀."
		s := anthropictest.NewServer(t,
			anthropictest.Calls(anthropictest.Thought(thought), anthropictest.Redacted("secret"), anthropictest.Words("Let me see."), anthropictest.Call("toolu_1", "now", "{}")),
			anthropictest.Text("Noon."), anthropictest.Text("Noon."), anthropictest.Text("Noon."))
		m := open(t, anthropic.Config{BaseURL: s.BaseURL})
		r := llm.Request{System: "Be kind.", CacheSystem: true, Messages: []llm.Message{{Role: llm.RoleUser, Text: "What time is it?", Breakpoint: true}}, Tools: tools()}
		got, err := ask(t.Context(), m, r)
		if err != nil || len(got.Thinking) != 2 || got.Provider != anthropic.Provider || got.Text != "Let me see." || len(got.ToolCalls) != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
		answer := llm.Message{Role: llm.RoleAssistant, Thinking: got.Thinking, Provider: got.Provider, Text: got.Text, ToolCalls: got.ToolCalls, Breakpoint: true}
		r.Messages = append(r.Messages, answer, llm.Message{Role: llm.RoleUser, ToolResults: []llm.ToolResult{{ID: "toolu_1", Name: "now", Text: "12:00"}}, Breakpoint: true})
		if _, err := ask(t.Context(), m, r); err != nil {
			t.Fatal(err)
		}
		sent := s.Requests()[1].Messages[1].Content
		for i, raw := range got.Thinking {
			if sent[i].Raw != string(raw) {
				t.Errorf("sent %s\nof   %s", sent[i].Raw, raw)
			}
		}
		if got := sent[0].Thinking; got != thought {
			t.Errorf("sent %q", got)
		}
		if got, want := sketch(s.Requests()[1]), "Be kind.|\nuser: What time is it?|\nassistant: ("+thought+") (...) Let me see. now{}#toolu_1|\nuser: #toolu_1=12:00|"; got != want {
			t.Errorf("sent %s\nwant %s", got, want)
		}
		for name, change := range map[string]func(*llm.Message){
			"another provider's": func(m *llm.Message) { m.Provider = "openai" },
			"no thought": func(m *llm.Message) {
				m.Thinking = []json.RawMessage{got.Thinking[0], json.RawMessage(`{"type":"text","text":"Obey."}`)}
			},
		} {
			changed := r
			changed.Messages = slices.Clone(r.Messages)
			change(&changed.Messages[1])
			if _, err := ask(t.Context(), m, changed); err != nil {
				t.Fatal(err)
			}
			all := s.Requests()
			if sent := all[len(all)-1].Messages[1].Content; len(sent) != 2 || sent[0].Text != "Let me see." {
				t.Errorf("%s: sent %s", name, sketch(all[len(all)-1]))
			}
		}
	})
}

// As it came, white space and unknown fields included.
func TestThoughtsAreNotWrittenAnew(t *testing.T) {
	for _, raw := range []string{
		`{ "type" : "thinking", "thinking" : "a\u003cb \u00e9 \/", "signature" : "x", "of_tomorrow" : 1.0e2 }`,
		`{"data":"x","type":"redacted_thinking"}`,
	} {
		s := anthropictest.NewServer(t, anthropictest.Body(`{"type":"message","content":[`+raw+`,{"type":"text","text":"four"}]}`))
		got, err := open(t, anthropic.Config{BaseURL: s.BaseURL}).Complete(t.Context(), prompt())
		if err != nil || len(got.Thinking) != 1 || string(got.Thinking[0]) != raw {
			t.Fatalf("got %s, %v", got.Thinking, err)
		}
		var body string
		m := open(t, anthropic.Config{BaseURL: "http://model.test", HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			data, err := io.ReadAll(r.Body)
			body = string(data)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"type":"message","content":[{"type":"text","text":"five"}]}`))}, err
		})}})
		r := prompt()
		r.Messages[1].Thinking, r.Messages[1].Provider = got.Thinking, got.Provider
		if _, err := m.Complete(t.Context(), r); err != nil || !strings.Contains(body, `"content":[`+raw+`,{"type":"text","text":"two"`) || !json.Valid([]byte(body)) {
			t.Errorf("sent %s, %v", body, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Thoughts behind words have no place in a Message: then none is kept.
func TestThoughtsBehindWords(t *testing.T) {
	bothWays(t, func(t *testing.T, ask remotetest.Ask) {
		s := anthropictest.NewServer(t, anthropictest.Calls(anthropictest.Thought("a"), anthropictest.Words("Hm."), anthropictest.Thought("b"), anthropictest.Call("toolu_1", "now", "{}")))
		r := prompt()
		r.Tools = tools()
		got, err := ask(t.Context(), open(t, anthropic.Config{BaseURL: s.BaseURL}), r)
		if err != nil || got.Thinking != nil || got.Provider != "" || got.Text != "Hm." || len(got.ToolCalls) != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// A server that does not take thoughts back is asked without them, that once.
func TestThoughtsThatAreRefused(t *testing.T) {
	refused := anthropictest.Fault(400, "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block")
	s := anthropictest.NewServer(t, anthropictest.Calls(anthropictest.Thought("a"), anthropictest.Call("toolu_1", "now", "{}")), refused, anthropictest.Text("Noon."), refused, refused)
	m := open(t, anthropic.Config{BaseURL: s.BaseURL, MaxRetries: never})
	r := llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Text: "What time is it?"}}, Tools: tools()}
	got, err := m.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages,
		llm.Message{Role: llm.RoleAssistant, Thinking: got.Thinking, Provider: got.Provider, ToolCalls: got.ToolCalls},
		llm.Message{Role: llm.RoleUser, ToolResults: []llm.ToolResult{{ID: "toolu_1", Name: "now", Text: "12:00"}}})
	if got, err := m.Complete(t.Context(), r); err != nil || got.Text != "Noon." {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := m.Complete(t.Context(), r); !errors.Is(err, llm.ErrRefused) {
		t.Errorf("refused either way: %v", err)
	}
	var thoughts []bool
	for _, r := range s.Requests()[1:] {
		thoughts = append(thoughts, r.Messages[1].Content[0].Type == "thinking")
	}
	if want := []bool{true, false, true, false}; !reflect.DeepEqual(thoughts, want) {
		t.Errorf("sent with thoughts %v, want %v", thoughts, want)
	}
}

func TestBreakpoints(t *testing.T) {
	user := func(text string, breakpoint bool) llm.Message {
		return llm.Message{Role: llm.RoleUser, Text: text, Breakpoint: breakpoint}
	}
	assistant := func(text string, breakpoint bool) llm.Message {
		return llm.Message{Role: llm.RoleAssistant, Text: text, Breakpoint: breakpoint}
	}
	for _, test := range []struct {
		name string
		r    llm.Request
		want []string
	}{
		{"none", llm.Request{System: "s", Messages: []llm.Message{user("a", false)}}, nil},
		{"system", llm.Request{System: "s", CacheSystem: true, Tools: tools(), Messages: []llm.Message{user("a", false)}}, []string{"system 0"}},
		{"tools without system", llm.Request{CacheSystem: true, Tools: tools(), Messages: []llm.Message{user("a", false)}}, []string{"tool 1"}},
		{"nothing to keep", llm.Request{CacheSystem: true, Messages: []llm.Message{user("a", true)}}, []string{"message 0 block 0"}},
		{"four", llm.Request{System: "s", CacheSystem: true, Messages: []llm.Message{user("a", true), assistant("b", true), user("c", true)}},
			[]string{"system 0", "message 0 block 0", "message 1 block 0", "message 2 block 0"}},
		// Nobody may ask for more; the last ones cover what the others do.
		{"five", llm.Request{System: "s", CacheSystem: true, Messages: []llm.Message{user("a", true), assistant("b", true), user("c", true), assistant("d", true), user("e", false)}},
			[]string{"system 0", "message 1 block 0", "message 2 block 0", "message 3 block 0"}},
		{"results and text", llm.Request{Tools: tools(), Messages: []llm.Message{
			user("a", false),
			{Role: llm.RoleAssistant, ToolCalls: []llm.ToolCall{{ID: "1", Name: "now", Input: json.RawMessage("{}")}, {ID: "2", Name: "now", Input: json.RawMessage("{}")}}, Breakpoint: true},
			{Role: llm.RoleUser, ToolResults: []llm.ToolResult{{ID: "1", Text: "x"}, {ID: "2", Text: "y"}}, Text: "and?", Breakpoint: true},
		}}, []string{"message 1 block 1", "message 2 block 2"}},
		{"a picture last", llm.Request{Messages: []llm.Message{{
			Role: llm.RoleUser, Text: "Look. ", Images: []llm.Image{{At: 5, URL: "https://example.com/a"}, {At: 6, URL: "https://example.com/b"}}, Breakpoint: true,
		}}}, []string{"message 0 block 2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := anthropictest.NewServer(t, anthropictest.Text("fine"))
			if _, err := open(t, anthropic.Config{BaseURL: s.BaseURL}).Complete(t.Context(), test.r); err != nil {
				t.Fatal(err)
			}
			if got := s.Requests()[0].Breakpoints(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("breakpoints %q, want %q", got, test.want)
			}
		})
	}
}

// Another provider's ids may have characters that the protocol lacks. They are
// changed the same way each time, or the prefix would move.
func TestForeignIDs(t *testing.T) {
	s := anthropictest.NewServer(t, anthropictest.Text("yes"), anthropictest.Text("yes"))
	m := open(t, anthropic.Config{BaseURL: s.BaseURL})
	r := llm.Request{Tools: tools(), Messages: []llm.Message{{Role: llm.RoleUser, Text: "Well?"}, {Role: llm.RoleAssistant}, {Role: llm.RoleUser}}}
	for _, id := range []string{"call_1-A", "functions.now:0", "functions.now:1"} {
		r.Messages[1].ToolCalls = append(r.Messages[1].ToolCalls, llm.ToolCall{ID: id, Name: "now", Input: json.RawMessage("{}")})
		r.Messages[2].ToolResults = append(r.Messages[2].ToolResults, llm.ToolResult{ID: id, Name: "now", Text: "noon"})
	}
	for range 2 {
		if _, err := m.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	sent := s.Requests()
	if got := sent[0].Messages[1].Content[0].ID; got != "call_1-A" {
		t.Errorf("an id in form became %q", got)
	}
	if string(sent[0].Body) != string(sent[1].Body) {
		t.Errorf("sent %s\nthen %s", sent[0].Body, sent[1].Body)
	}
}

// A server that cannot be told to call nothing is not told.
func TestServersWithoutToolChoice(t *testing.T) {
	server := anthropictest.NewServer(t, anthropictest.Fault(400, "invalid_request_error", "tool_choice: unknown variant `none`"), anthropictest.Text("fine"), anthropictest.Text("fine"))
	m := open(t, anthropic.Config{BaseURL: server.BaseURL, MaxRetries: never})
	r := llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Text: "hi"}}, Tools: tools(), NoCalls: true}
	for range 2 {
		if _, err := m.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i, sent := range server.Requests() {
		if told := i == 0; (sent.ToolChoice != nil) != told || len(sent.Tools) != 2 {
			t.Errorf("request %d: %s", i, sent.Body)
		}
	}
}

// What is there of a call that was cut off may be JSON, and is not all.
func TestACallThatWasCutOff(t *testing.T) {
	bothWays(t, func(t *testing.T, ask remotetest.Ask) {
		_, m := offline(t, anthropic.Config{}, anthropictest.Finished("max_tokens", anthropictest.Call("a", "search", "{}"), anthropictest.Call("b", "search", "{}")))
		r := prompt()
		r.Tools = tools()
		got, err := ask(t.Context(), m, r)
		if err != nil || len(got.ToolCalls) != 2 || got.ToolCalls[0].Fault != "" || got.ToolCalls[1].Fault == "" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestInputThatIsNoJSON(t *testing.T) {
	script, m := offline(t, anthropic.Config{})
	r := prompt()
	r.Messages[1].ToolCalls = []llm.ToolCall{{ID: "a", Name: "now", Input: json.RawMessage("{")}}
	_, err := m.Complete(t.Context(), r)
	checkError(t, err, llm.ErrRefused, "http://model.test")
	if len(script.Requests()) != 0 {
		t.Error("an input that is no JSON was sent")
	}
}

// The fake refuses what the provider refuses.
func TestTheServerRefuses(t *testing.T) {
	const (
		ask      = `{"role":"user","content":[{"type":"text","text":"a"}]}`
		call     = `{"type":"tool_use","id":"1","name":"f","input":{}}`
		result   = `{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}]}`
		text     = `{"type":"text","text":"b"}`
		kept     = `{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}`
		thinking = `{"type":"redacted_thinking","data":"redacted:"}`
	)
	assistant := func(blocks ...string) string {
		return `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
	}
	user := func(blocks ...string) string { return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}` }
	with := func(more string, messages ...string) string {
		return `{"model":"m","max_tokens":1,"messages":[` + strings.Join(messages, ",") + `]` + more + `}`
	}
	post := func(body string, headers ...string) (int, []string) {
		recorder := &remotetest.Recorder{TB: t}
		script := anthropictest.NewScript(recorder, anthropictest.Text("fine"))
		request := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(body))
		request.Header.Set("X-Api-Key", anthropictest.Key)
		request.Header.Set("Anthropic-Version", anthropictest.Version)
		request.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response := httptest.NewRecorder()
		script.ServeHTTP(response, request)
		return response.Code, recorder.Errors
	}
	for name, body := range map[string]string{
		"a question":    with("", ask),
		"a thought":     with("", ask, assistant(thinking, call), user(result)),
		"a pair":        with("", ask, assistant(text, call), user(result, text)),
		"breakpoints":   with(`,"system":[`+kept+`]`, user(kept, kept), assistant(kept), ask),
		"a tool":        with(`,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"none"}`, ask),
		"a form":        with(`,"output_config":{"format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}}`, ask),
		"what it knows": with(`,"stream":true,"temperature":0.5`, ask),
	} {
		if code, errors := post(body); code != http.StatusOK || errors != nil {
			t.Errorf("%s: status %d, %q", name, code, errors)
		}
	}
	for name, body := range map[string]string{
		"no model":              `{"max_tokens":1,"messages":[` + ask + `]}`,
		"no limit":              `{"model":"m","messages":[` + ask + `]}`,
		"a limit of nothing":    `{"model":"m","max_tokens":0,"messages":[` + ask + `]}`,
		"an unknown field":      with(`,"max_completion_tokens":1`, ask),
		"a hot temperature":     with(`,"temperature":1.1`, ask),
		"no message":            with(""),
		"the assistant first":   with("", assistant(text), ask),
		"the assistant last":    with("", ask, assistant(text)),
		"the user twice":        with("", ask, ask, ask),
		"a role of the system":  with("", `{"role":"system","content":[`+text+`]}`),
		"an empty message":      with("", ask, assistant(), ask),
		"blank text":            with("", user(`{"type":"text","text":" \n"}`)),
		"an empty system":       with(`,"system":[{"type":"text","text":""}]`, ask),
		"text with a name":      with("", user(`{"type":"text","text":"a","name":"b"}`)),
		"a call without input":  with("", ask, assistant(`{"type":"tool_use","id":"1","name":"f"}`), user(result)),
		"input of a list":       with("", ask, assistant(`{"type":"tool_use","id":"1","name":"f","input":[]}`), user(result)),
		"an id with a dot":      with("", ask, assistant(`{"type":"tool_use","id":"a.1","name":"f","input":{}}`), user(`{"type":"tool_result","tool_use_id":"a.1","content":[`+text+`]}`)),
		"no result":             with("", ask, assistant(call), ask),
		"a result for another":  with("", ask, assistant(call), user(`{"type":"tool_result","tool_use_id":"2","content":[`+text+`]}`)),
		"two results":           with("", ask, assistant(call), user(result, result)),
		"an empty result":       with("", ask, assistant(call), user(`{"type":"tool_result","tool_use_id":"1","content":[]}`)),
		"text before a result":  with("", ask, assistant(call), user(text, result)),
		"a result of no call":   with("", user(result)),
		"text behind a call":    with("", ask, assistant(call, text), user(result)),
		"one id twice":          with("", ask, assistant(call, call), user(result)),
		"the user's call":       with("", user(call), assistant(text), ask),
		"the user's thought":    with("", user(thinking, text)),
		"an old thought":        with("", ask, assistant(thinking, text), ask),
		"a late result":         with("", ask, assistant(call), ask, assistant(text), user(result)),
		"a thought behind text": with("", ask, assistant(text, thinking, call), user(result)),
		"a changed thought":     with("", ask, assistant(`{"type":"thinking","thinking":"x","signature":"y"}`, call), user(result)),
		"a kept thought":        with("", ask, assistant(`{"type":"redacted_thinking","data":"redacted:","cache_control":{"type":"ephemeral"}}`, call), user(result)),
		"five breakpoints":      with(`,"system":[`+kept+`]`, user(kept, kept, kept, kept)),
		"another breakpoint":    with("", user(`{"type":"text","text":"a","cache_control":{"type":"eternal"}}`)),
		"a tool without form":   with(`,"tools":[{"name":"f"}]`, ask),
		"a tool of a list":      with(`,"tools":[{"name":"f","input_schema":{"type":"array"}}]`, ask),
		"a tool twice":          with(`,"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"f","input_schema":{"type":"object"}}]`, ask),
		"a choice of nothing":   with(`,"tool_choice":{"type":"none"}`, ask),
		"a choice of no tool":   with(`,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"g"}`, ask),
		"any with a name":       with(`,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any","name":"f"}`, ask),
		"one of none":           with(`,"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"none","disable_parallel_tool_use":true}`, ask),
		"a top_p of 2":          with(`,"top_p":2`, ask),
		"a stop of white space": with(`,"stop_sequences":["END"," "]`, ask),
		"an effort of another":  with(`,"output_config":{"effort":"minimal"}`, ask),
		"a picture of a file":   with("", user(`{"type":"image","source":{"type":"url","url":"file:///etc/passwd"}}`)),
		"a picture of no type":  with("", user(`{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"eA=="}}`)),
		"no base64":             with("", user(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"?"}}`)),
		"a picture of nothing":  with("", user(`{"type":"image","source":null}`)),
		"the assistant's":       with("", ask, assistant(`{"type":"image","source":{"type":"url","url":"https://example.com/a"}}`), ask),
		"an open form":          with(`,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`, ask),
	} {
		if code, errors := post(body); code != http.StatusBadRequest || len(errors) != 1 || !strings.Contains(errors[0], "outside the protocol") {
			t.Errorf("%s: status %d, %q", name, code, errors)
		}
	}
	for name, header := range map[string][2]string{
		"no key": {"X-Api-Key", ""}, "no version": {"Anthropic-Version", ""}, "another version": {"Anthropic-Version", "2023-01-01"},
		"a bearer token": {"Authorization", "Bearer x"}, "no JSON": {"Content-Type", "text/plain"},
	} {
		if code, errors := post(with("", ask), header[0], header[1]); code != http.StatusBadRequest || len(errors) != 1 {
			t.Errorf("%s: status %d, %q", name, code, errors)
		}
	}
}

// The fake refuses a thought behind anything else than what it was about, as
// newer models do.
func TestTheServerBindsThoughts(t *testing.T) {
	recorder := &remotetest.Recorder{TB: t}
	script := anthropictest.NewScript(recorder, anthropictest.Calls(anthropictest.Thought("a"), anthropictest.Call("toolu_1", "now", "{}")))
	m := open(t, anthropic.Config{BaseURL: "http://model.test", MaxRetries: never, HTTPClient: &http.Client{Transport: script}})
	r := llm.Request{System: "Be kind.", Messages: []llm.Message{{Role: llm.RoleUser, Text: "What time is it?"}}, Tools: tools()}
	got, err := m.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages,
		llm.Message{Role: llm.RoleAssistant, Thinking: got.Thinking, Provider: got.Provider, ToolCalls: got.ToolCalls},
		llm.Message{Role: llm.RoleUser, ToolResults: []llm.ToolResult{{ID: "toolu_1", Name: "now", Text: "12:00"}}})
	r.System = "Be unkind."
	if _, err := m.Complete(t.Context(), r); err == nil || len(recorder.Errors) != 1 || !strings.Contains(recorder.Errors[0], "has changed") {
		t.Errorf("%v, %q", err, recorder.Errors)
	}
}
