package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

func TestParallelCallsAndTheirResults(t *testing.T) {
	s := openaitest.NewServer(t,
		openaitest.Calls("Let me see.", openaitest.Call("call_1", "search", `{"query":"parrot"}`), openaitest.Call("call_2", "now", "")),
		openaitest.Text("Marta does."))
	m := open(t, openai.Config{BaseURL: s.BaseURL})
	r := llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Text: "Who feeds the parrot?"}}, Tools: tools()}
	got, err := m.Complete(t.Context(), r)
	want := llm.Response{
		Text: "Let me see.", InputTokens: openaitest.InputTokens, OutputTokens: openaitest.OutputTokens, Model: "test-model",
		ToolCalls: []llm.ToolCall{
			{ID: "call_1", Name: "search", Input: json.RawMessage(`{"query":"parrot"}`)},
			{ID: "call_2", Name: "now", Input: json.RawMessage(`{}`)},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
	}
	var parameters map[string]any
	if err := json.Unmarshal([]byte(remotetest.Parameters), &parameters); err != nil {
		t.Fatal(err)
	}
	sent := s.Requests()[0]
	if want := []openaitest.Tool{
		{Type: "function", Function: openaitest.Function{Name: "search", Description: "Searches.", Parameters: parameters}},
		{Type: "function", Function: openaitest.Function{Name: "now"}},
	}; !reflect.DeepEqual(sent.Tools, want) {
		t.Errorf("sent %+v", sent.Tools)
	}

	r.Messages = append(r.Messages,
		llm.Message{Role: llm.RoleAssistant, Text: got.Text, ToolCalls: got.ToolCalls},
		llm.Message{Role: llm.RoleUser, Text: "Be quick.", ToolResults: []llm.ToolResult{
			{ID: "call_2", Name: "now", Text: "[the tool failed]", IsError: true},
			{ID: "call_1", Name: "search", Text: "Marta"},
		}})
	if got, err := m.Complete(t.Context(), r); err != nil || got.Text != "Marta does." || got.ToolCalls != nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got, want := s.Requests()[1].Messages, []openaitest.Message{
		{Role: "user", Content: "Who feeds the parrot?"},
		{Role: "assistant", Content: "Let me see.", ToolCalls: []openaitest.ToolCall{
			openaitest.Call("call_1", "search", `{"query":"parrot"}`), openaitest.Call("call_2", "now", "{}"),
		}},
		{Role: "tool", ToolCallID: "call_2", Content: "[the tool failed]"},
		{Role: "tool", ToolCallID: "call_1", Content: "Marta"},
		{Role: "user", Content: "Be quick."},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v\nwant %+v", got, want)
	}
}

func TestHostileCalls(t *testing.T) {
	body := func(calls string) openaitest.Answer {
		return openaitest.Body(`{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":` + calls + `}}]}`)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"id":"a","type":"function","function":{"name":"search","arguments":"{}"}},`, 500), ",")
	for _, test := range []struct {
		name   string
		answer openaitest.Answer
		calls  int
		faults int
		err    error
	}{
		{"not JSON", openaitest.Calls("", openaitest.Call("a", "search", "{broken")), 1, 1, nil},
		{"too many", body("[" + many + "]"), llm.MaxToolCalls, 0, nil},
		{"no function", body(`[{"id":"a","type":"custom","custom":{"name":"x","input":"y"}}]`), 1, 1, nil},
		{"nulls", body(`[null,{"id":null,"function":null}]`), 2, 2, nil},
		{"no list", body(`{"a":1}`), 0, 0, llm.ErrEmpty},
		{"an empty list", body(`[]`), 0, 0, llm.ErrEmpty},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openaitest.NewServer(t, test.answer)
			r := prompt()
			r.Tools = tools()
			got, err := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never}).Complete(t.Context(), r)
			if !errors.Is(err, test.err) || len(got.ToolCalls) != test.calls {
				t.Fatalf("%d calls, %v", len(got.ToolCalls), err)
			}
			faults := 0
			for _, c := range got.ToolCalls {
				if c.Fault != "" {
					faults++
				}
			}
			if faults != test.faults {
				t.Errorf("%d faults: %.300s", faults, fmt.Sprint(got.ToolCalls))
			}
			if err == nil && got.OutputTokens == 0 {
				t.Error("calls cost nothing")
			}
		})
	}
}

// Another provider's ids may be longer than OpenAI takes. They are shortened the
// same way each time, or the prefix would move.
func TestLongIDs(t *testing.T) {
	s := openaitest.NewServer(t, openaitest.Text("yes"), openaitest.Text("yes"))
	m := open(t, openai.Config{BaseURL: s.BaseURL})
	long, longer, longest := strings.Repeat("a", 40), strings.Repeat("a", 41), strings.Repeat("a", 64)
	r := llm.Request{Tools: tools(), Messages: []llm.Message{{Role: llm.RoleUser, Text: "Well?"}, {Role: llm.RoleAssistant}, {Role: llm.RoleUser}}}
	for _, id := range []string{long, longer, longest} {
		r.Messages[1].ToolCalls = append(r.Messages[1].ToolCalls, llm.ToolCall{ID: id, Name: "now", Input: json.RawMessage("{}")})
		r.Messages[2].ToolResults = append(r.Messages[2].ToolResults, llm.ToolResult{ID: id, Name: "now", Text: "noon"})
	}
	for range 2 {
		if _, err := m.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	sent := s.Requests()
	if got := sent[0].Messages[1].ToolCalls[0].ID; got != long {
		t.Errorf("an id of 40 became %q", got)
	}
	if !reflect.DeepEqual(sent[0].Messages, sent[1].Messages) {
		t.Errorf("sent %+v\nthen %+v", sent[0].Messages, sent[1].Messages)
	}
}

// A call that was cut off before its arguments is none without arguments.
func TestACallThatIsCutOff(t *testing.T) {
	for arguments, whole := range map[string]bool{``: false, `{`: false, `{\"q\":\"a`: false, `{}`: true, `{\"q\":\"a\"}`: true} {
		said := `{"tool_calls":[{"index":0,"id":"a","function":{"name":"search","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"search","arguments":"` + arguments + `"}}]}`
		for _, body := range []string{
			`{"choices":[{"index":0,"message":` + said + `,"finish_reason":"length"}]}`,
			"data: {\"choices\":[{\"index\":0,\"delta\":" + said + ",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
		} {
			_, m := offline(t, openai.Config{}, openaitest.Status(http.StatusOK, body))
			r := prompt()
			r.Tools = []llm.Tool{{Name: "search"}}
			got, err := m.Complete(t.Context(), r)
			if err != nil || len(got.ToolCalls) != 2 || got.ToolCalls[0].Fault != "" || (got.ToolCalls[1].Fault == "") != whole {
				t.Errorf("%s: got %+v, %v", arguments, got, err)
			}
		}
	}
}

// The fake refuses what the providers refuse.
func TestTheServerRefusesPartedPairs(t *testing.T) {
	for name, messages := range map[string]string{
		"no result":           `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL]},{"role":"user","content":"b"}`,
		"none at the end":     `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL]}`,
		"no call":             `{"role":"user","content":"a"},{"role":"tool","tool_call_id":"1","content":"x"}`,
		"another id":          `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL]},{"role":"tool","tool_call_id":"2","content":"x"}`,
		"two results":         `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL]},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"tool","tool_call_id":"1","content":"x"}`,
		"an empty result":     `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL]},{"role":"tool","tool_call_id":"1","content":" "}`,
		"one id twice":        `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL,CALL]},{"role":"tool","tool_call_id":"1","content":"x"}`,
		"the user's calls":    `{"role":"user","content":"a","tool_calls":[CALL]},{"role":"tool","tool_call_id":"1","content":"x"}`,
		"blank beside a call": `{"role":"user","content":"a"},{"role":"assistant","content":" ","tool_calls":[CALL]},{"role":"tool","tool_call_id":"1","content":"x"}`,
		"a late result":       `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[CALL]},{"role":"assistant","content":"b"},{"role":"tool","tool_call_id":"1","content":"x"}`,
		"a second system":     `{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"}`,
		"the assistant first": `{"role":"assistant","content":"a"},{"role":"user","content":"b"}`,
		"the assistant last":  `{"role":"user","content":"a"},{"role":"assistant","content":"b"}`,
		"a long id":           `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"LONG","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"LONG","content":"x"}`,
		"no role":             `{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"","content":"c"}`,
	} {
		t.Run(name, func(t *testing.T) {
			recorder := &remotetest.Recorder{TB: t}
			script := openaitest.NewScript(recorder, openaitest.Text("fine"))
			body := `{"model":"m","messages":[` + strings.ReplaceAll(messages, "CALL", `{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}`) + `]}`
			body = strings.ReplaceAll(body, "LONG", strings.Repeat("x", 41))
			request := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
			request.Header.Set("Authorization", "Bearer "+openaitest.Key)
			request.Header.Set("Content-Type", "application/json")
			response := httptest.NewRecorder()
			script.ServeHTTP(response, request)
			if response.Code != http.StatusBadRequest || len(recorder.Errors) != 1 || !strings.Contains(recorder.Errors[0], "outside the protocol") {
				t.Errorf("status %d, %q", response.Code, recorder.Errors)
			}
		})
	}
}

// The fake refuses what OpenAI refuses of how a model is asked, and pictures that are
// none; and takes the rest.
func TestTheServerRefuses(t *testing.T) {
	const (
		tool    = `,"tools":[{"type":"function","function":{"name":"f"}}]`
		picture = `{"role":"user","content":[{"type":"text","text":"Look."},{"type":"image_url","image_url":{"url":"data:image/png;base64,eA=="}}]}`
	)
	post := func(fields, message string) (int, []string) {
		recorder := &remotetest.Recorder{TB: t}
		script := openaitest.NewScript(recorder, openaitest.Text("fine"))
		body := `{"model":"m","messages":[` + message + `]` + fields + `}`
		request := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		request.Header.Set("Authorization", "Bearer "+openaitest.Key)
		request.Header.Set("Content-Type", "application/json")
		response := httptest.NewRecorder()
		script.ServeHTTP(response, request)
		return response.Code, recorder.Errors
	}
	parts := func(of string) string { return `{"role":"user","content":[` + of + `]}` }
	for name, sent := range map[string][2]string{
		"parts":          {"", picture},
		"an address":     {"", parts(`{"type":"image_url","image_url":{"url":"https://example.com/a","detail":"low"}}`)},
		"none":           {tool + `,"tool_choice":"none"`, picture},
		"a tool by name": {tool + `,"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false`, picture},
		"all else":       {`,"top_p":1,"temperature":2,"stop":["a","b","c","d"],"reasoning_effort":"minimal"`, picture},
	} {
		if code, wrong := post(sent[0], sent[1]); code != http.StatusOK || wrong != nil {
			t.Errorf("%s: status %d, %q", name, code, wrong)
		}
	}
	for name, sent := range map[string][2]string{
		"a choice without tools":   {`,"tool_choice":"required"`, picture},
		"in parallel, no tools":    {`,"parallel_tool_calls":false`, picture},
		"a choice of no tool":      {tool + `,"tool_choice":{"type":"function","function":{"name":"g"}}`, picture},
		"a choice of a word":       {tool + `,"tool_choice":"any"`, picture},
		"a hot temperature":        {`,"temperature":2.1`, picture},
		"a top_p below nothing":    {`,"top_p":-0.1`, picture},
		"five stops":               {`,"stop":["a","b","c","d","e"]`, picture},
		"an empty stop":            {`,"stop":[""]`, picture},
		"an effort of another":     {`,"reasoning_effort":"enormous"`, picture},
		"an unknown field":         {`,"thinking":{}`, picture},
		"an unknown field of one":  {"", `{"role":"user","content":"a","cache_control":{}}`},
		"no part":                  {"", parts("")},
		"an empty part":            {"", parts(`{"type":"text","text":" "}`)},
		"a part of another":        {"", parts(`{"type":"image","source":{}}`)},
		"an image of another kind": {"", parts(`{"type":"image_url","image_url":{"url":"data:text/html;base64,eA=="}}`)},
		"no base64":                {"", parts(`{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}`)},
		"a file":                   {"", parts(`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`)},
		"nothing to see":           {"", parts(`{"type":"image_url"}`)},
		"the system's picture":     {"", `{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://example.com/a"}}]},` + picture},
	} {
		if code, wrong := post(sent[0], sent[1]); code != http.StatusBadRequest || len(wrong) != 1 || !strings.Contains(wrong[0], "outside the protocol") {
			t.Errorf("%s: status %d, %q", name, code, wrong)
		}
	}
}
