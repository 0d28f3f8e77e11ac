package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

func TestResponsesDecode(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"a string":                {`"input":"Hi","instructions":"Be kind."`, "system: Be kind.\nuser: Hi\n"},
		"messages without a type": {`"input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Who?"}]`, "user: Hi\nassistant: Hello.\nuser: Who?\n"},
		"system texts": {
			`"instructions":"Be kind.","input":[{"role":"developer","content":"Be brief."},{"role":"system","content":[{"type":"input_text","text":"Be quick."}]},{"role":"user","content":"Hi"},{"role":"developer","content":"Mind."},{"role":"user","content":"Who?"},{"role":"developer","content":"Last."}]`,
			"system: Be kind.\n\nBe brief.\n\nBe quick.\n\nLast.\nuser: Hi\nsystem: Mind.\nuser: Who?\n",
		},
		"parts": {
			`"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Look"},{"type":"input_image","image_url":"data:image/png;base64,UE5H","detail":"low"},{"type":"input_image","image_url":"https://example.com/a.png"}]}]`,
			"user: Look image image/pngPNG image https://example.com/a.png\n",
		},
		"what an answer had": {
			`"input":[{"type":"message","role":"user","content":"Find."},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},
			{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},
			{"type":"function_call","id":"fc_1","call_id":"a","name":"find","arguments":"{\"q\":1}","status":"completed"},{"type":"function_call","call_id":"b","name":"find","arguments":""},
			{"type":"function_call_output","call_id":"b","output":"none"},{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"one"},{"type":"input_image","image_url":"data:image/gif;base64,R0lG"}]}]`,
			"user: Find.\nassistant: I look.\nassistant: call a find {\"q\":1}\nassistant: call b find {}\n" +
				"tool: result b find false none\ntool: result a find false one image image/gifGIF\n",
		},
		"a refusal": {`"input":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]},{"role":"user","content":"Why?"}]`, "user: Hi\nassistant: No.\nuser: Why?\n"},
		"no notice": {`"input":"Hi","store":false,"metadata":{"a":"b"},"truncation":"auto","include":["reasoning.encrypted_content"],"service_tier":"auto","stream_options":{"include_obfuscation":false},"safety_identifier":"x","prompt_cache_key":"y","conversation":null,"prompt":null,"background":false,"tools":null,"tool_choice":null,"text":null,"reasoning":null,"instructions":null,"previous_response_id":null,"user":null`, "user: Hi\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := gateway.ParseResponses([]byte(`{"model":"m",` + test.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := told(c); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}

func TestResponsesAsk(t *testing.T) {
	const find = `"tools":[{"type":"function","name":"find","description":"Finds.","parameters":{"type":"object"},"strict":true}]`
	for name, test := range map[string]struct {
		body string
		want func(c *host.Conversation) bool
	}{
		"tools": {find, func(c *host.Conversation) bool {
			return len(c.Tools) == 1 && c.Tools[0].Name == "find" && c.Tools[0].Description == "Finds." && string(c.Tools[0].Parameters) == `{"type":"object"}` && c.Ask.Choice == llm.ToolChoice{} && !c.Ask.NoCalls
		}},
		"no parameters": {`"tools":[{"type":"function","name":"find","parameters":null}]`, func(c *host.Conversation) bool { return c.Tools[0].Parameters == nil }},
		"one at a time": {find + `,"parallel_tool_calls":false,"tool_choice":"auto"`, func(c *host.Conversation) bool { return c.Ask.Choice == llm.ToolChoice{One: true} }},
		"required":      {find + `,"tool_choice":"required"`, func(c *host.Conversation) bool { return c.Ask.Choice == llm.ToolChoice{Required: true} }},
		"by name": {find + `,"tool_choice":{"type":"function","name":"find"}`, func(c *host.Conversation) bool {
			return c.Ask.Choice == llm.ToolChoice{Required: true, Name: "find"}
		}},
		"none":                {find + `,"tool_choice":"none"`, func(c *host.Conversation) bool { return c.Ask.NoCalls }},
		"as little as may be": {`"top_p":0`, func(c *host.Conversation) bool { return *c.Ask.TopP > 0 && *c.Ask.TopP < 0.001 }},
		"sampling": {`"temperature":1.5,"top_p":0.25,"max_output_tokens":7,"reasoning":{"effort":"high","summary":"auto"}`, func(c *host.Conversation) bool {
			return *c.Ask.Temperature == 1.5 && *c.Ask.TopP == 0.25 && c.Ask.MaxOutputTokens == 7 && c.Ask.Effort == "high"
		}},
		"a schema": {`"text":{"format":{"type":"json_schema","name":"who","schema":{"type":"object"},"strict":true},"verbosity":"low"}`, func(c *host.Conversation) bool {
			return c.Ask.Schema.Name == "who" && string(c.Ask.Schema.JSON) == `{"type":"object"}`
		}},
		"a schema in words": {find + `,"text":{"format":{"type":"json_schema","name":"who","schema":{"type":"object"},"strict":true}}`, func(c *host.Conversation) bool {
			return c.Ask.Schema == nil && strings.Contains(c.System, `{"type":"object"}`)
		}},
		"an object in words": {`"text":{"format":{"type":"json_object"}}`, func(c *host.Conversation) bool { return strings.Contains(c.System, "JSON object") }},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := gateway.ParseResponses([]byte(`{"model":"m","input":"Hi",` + test.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if !test.want(c) {
				t.Errorf("got %+v, ask %+v", c.Tools, c.Ask)
			}
		})
	}
}

func TestResponsesBadInput(t *testing.T) {
	const hi = `"input":"Hi",`
	item := func(s string) string { return `"input":[` + s + `]` }
	content := func(s string) string { return item(`{"role":"user","content":[` + s + `]}`) }
	for name, test := range map[string]struct{ body, param string }{
		"no input":                {`"user":"u"`, "input"},
		"input is a number":       {`"input":1`, "input"},
		"input is empty":          {`"input":""`, "input"},
		"no items":                {item(``), "input"},
		"an item is a string":     {item(`"Hi"`), "input[0]"},
		"no role":                 {item(`{"content":"Hi"}`), "input[0].role"},
		"unknown role":            {item(`{"role":"tool","content":"Hi"}`), "input[0].role"},
		"no content":              {item(`{"role":"user"}`), "input[0].content"},
		"content is an object":    {item(`{"role":"user","content":{}}`), "input[0].content"},
		"empty content":           {content(``), "input[0].content"},
		"a part is a string":      {content(`"Hi"`), "input[0].content[0]"},
		"text is a number":        {content(`{"type":"input_text","text":1}`), "input[0].content[0].text"},
		"a file":                  {content(`{"type":"input_file","file_id":"f"}`), "input[0].content[0].type"},
		"audio":                   {content(`{"type":"input_audio"}`), "input[0].content[0].type"},
		"image in a file":         {content(`{"type":"input_image","file_id":"f"}`), "input[0].content[0].file_id"},
		"image of nothing":        {content(`{"type":"input_image"}`), "input[0].content[0].image_url"},
		"image on this machine":   {content(`{"type":"input_image","image_url":"file:///etc/passwd"}`), "input[0].content[0].image_url"},
		"image that is a page":    {content(`{"type":"input_image","image_url":"data:text/html;base64,UE5H"}`), "input[0].content[0].image_url"},
		"image that is no base64": {content(`{"type":"input_image","image_url":"data:image/png;base64,%%"}`), "input[0].content[0].image_url"},
		"image without base64":    {content(`{"type":"input_image","image_url":"data:image/png,abc"}`), "input[0].content[0].image_url"},
		"image by the system":     {item(`{"role":"system","content":[{"type":"input_image","image_url":"https://example.com/a.png"}]}`), "input[0].content[0].type"},
		"system alone":            {item(`{"role":"system","content":"Hi"}`), "input"},
		"a thought alone":         {item(`{"type":"reasoning"}`), "input"},
		"an answer begun":         {item(`{"role":"user","content":"Hi"},{"role":"assistant","content":"I"}`), "input"},
		"a reference":             {item(`{"type":"item_reference","id":"msg_1"}`), "input[0].type"},
		"a search":                {item(`{"type":"web_search_call","id":"x"}`), "input[0].type"},
		"call without an id":      {item(`{"type":"function_call","name":"b","arguments":"{}"}`), "input[0].call_id"},
		"call without a name":     {item(`{"type":"function_call","call_id":"a","arguments":"{}"}`), "input[0].name"},
		"call with a list":        {item(`{"type":"function_call","call_id":"a","name":"b","arguments":"[]"}`), "input[0].arguments"},
		"call with an object":     {item(`{"type":"function_call","call_id":"a","name":"b","arguments":{}}`), "input[0].arguments"},
		"call with broken JSON":   {item(`{"type":"function_call","call_id":"a","name":"b","arguments":"{"}`), "input[0].arguments"},
		"two calls of one id":     {item(`{"type":"function_call","call_id":"a","name":"b"},{"type":"function_call","call_id":"a","name":"b"}`), "input[1].call_id"},
		"output without an id":    {item(`{"type":"function_call_output","output":"x"}`), "input[0].call_id"},
		"output of nothing":       {item(`{"type":"function_call_output","call_id":"a"}`), "input[0].output"},
		"output of a number":      {item(`{"type":"function_call_output","call_id":"a","output":1}`), "input[0].output"},
		"a server's tool":         {hi + `"tools":[{"type":"web_search"}]`, "tools[0].type"},
		"a tool without name":     {hi + `"tools":[{"type":"function"}]`, "tools[0].name"},
		"parameters are a list":   {hi + `"tools":[{"type":"function","name":"a","parameters":[]}]`, "tools[0].parameters"},
		"long parameters":         {hi + `"tools":[{"type":"function","name":"a","parameters":{"description":"` + strings.Repeat("x", 256<<10) + `"}}]`, "tools[0].parameters"},
		"two tools of one name":   {hi + `"tools":[{"type":"function","name":"a"},{"type":"function","name":"a"}]`, "tools[1].name"},
		"parameters of a list":    {hi + `"tools":[{"type":"function","name":"a","parameters":{"type":"array"}}]`, "tools[0].parameters.type"},
		"1,000 tools":             {hi + `"tools":[` + strings.Repeat(`{"type":"function","name":"a"},`, 999) + `{"type":"function","name":"a"}]`, "tools"},
		"tools are a string":      {hi + `"tools":"a"`, "tools"},
		"unknown choice":          {hi + `"tool_choice":"x"`, "tool_choice"},
		"choice of a search":      {hi + `"tool_choice":{"type":"web_search"}`, "tool_choice.type"},
		"choice of none there is": {hi + `"tool_choice":{"type":"function","name":"x"}`, "tool_choice.name"},
		"choice without tools":    {hi + `"tool_choice":"required"`, "tool_choice"},
		"no output":               {hi + `"max_output_tokens":0`, "max_output_tokens"},
		"huge output":             {hi + `"max_output_tokens":1e99`, "max_output_tokens"},
		"too hot":                 {hi + `"temperature":2.5`, "temperature"},
		"hostile effort":          {hi + `"reasoning":{"effort":"<b>"}`, "reasoning.effort"},
		"unknown format":          {hi + `"text":{"format":{"type":"xml"}}`, "text.format.type"},
		"schema without name":     {hi + `"text":{"format":{"type":"json_schema","schema":{}}}`, "text.format.name"},
		"schema of a number":      {hi + `"text":{"format":{"type":"json_schema","name":"a","schema":1}}`, "text.format.schema"},
		"text is a string":        {hi + `"text":"x"`, "text"},
		"a long type":             {item(`{"type":"` + strings.Repeat("x", 1<<20) + `"}`), "input[0].type"},
		"a long role":             {item(`{"role":"` + strings.Repeat("x", 1<<20) + `","content":"Hi"}`), "input[0].role"},
		"a long number":           {hi + `"max_output_tokens":` + strings.Repeat("9", 1<<20), "max_output_tokens"},
		"a long choice":           {hi + `"tool_choice":"` + strings.Repeat("x", 1<<20) + `"`, "tool_choice"},
		"background":              {hi + `"background":true`, "background"},
		"a conversation":          {hi + `"conversation":"conv_1"`, "conversation"},
		"a prompt":                {hi + `"prompt":{"id":"pmpt_1"}`, "prompt"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gateway.ParseResponses([]byte(`{"model":"m",` + test.body + `}`))
			f, ok := gateway.FaultOf(err)
			if !ok || f.Status != http.StatusBadRequest || f.Param != test.param || f.Message == "" || len(f.Message) > 500 {
				t.Errorf("got %.2000s, want a fault of %s", err, test.param)
			}
		})
	}
}

func TestResponseIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		session, key := memory.NewID[memory.SessionID](), rapid.StringMatching("[a-z0-9]{16,64}").Draw(t, "key")
		id := gateway.ResponseID(session, key)
		if of, with, ok := gateway.ParseResponseID(id); !ok || of != session || with != key {
			t.Fatalf("%s is read as %v of %s, %s", id, ok, of, with)
		}
	})
	session := strings.ReplaceAll(memory.NewID[memory.SessionID]().String(), "-", "")
	for _, s := range []string{
		"", "resp_", "resp_1", "resp_" + session, "resp_" + session + "short", "resp_" + session + strings.Repeat("x", 65),
		"resp_" + strings.Repeat("0", 32) + "abcdefghijklmnop", "resp_" + session + "ABCDEFGHIJKLMNOP", "resp_" + session + "abcdefgh'jklmnop", "msg_" + session + "abcdefghijklmnop",
	} {
		if of, with, ok := gateway.ParseResponseID(s); ok {
			t.Errorf("%s is read as one of %s, %s", s, of, with)
		}
	}
}

func openAIClient(server *httptest.Server) openai.Client {
	return openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
}

func input(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "jeeves", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)}}
}

// eachWay asks whole and streamed, and has the same checked of both answers; what is
// streamed is put together from the deltas and compared with the whole too.
func eachWay(t *testing.T, client openai.Client, p responses.ResponseNewParams, check func(t *testing.T, r *responses.Response)) {
	t.Run("whole", func(t *testing.T) {
		r, err := client.Responses.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		check(t, r)
	})
	t.Run("streamed", func(t *testing.T) {
		stream := client.Responses.NewStreaming(t.Context(), p)
		defer stream.Close()
		var kinds []string
		var text, arguments strings.Builder
		var last responses.ResponseStreamEventUnion
		for stream.Next() {
			e := stream.Current()
			if int(e.SequenceNumber) != len(kinds) {
				t.Errorf("event %d has number %d", len(kinds), e.SequenceNumber)
			}
			kinds = append(kinds, e.Type)
			switch e.Type {
			case "response.output_text.delta":
				text.WriteString(e.Delta)
			case "response.function_call_arguments.delta":
				arguments.WriteString(e.Delta)
			}
			last = e
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if len(kinds) < 3 || kinds[0] != "response.created" || kinds[1] != "response.in_progress" || last.Type != "response."+string(last.Response.Status) {
			t.Fatalf("the events are %v", kinds)
		}
		var calls string
		for _, item := range last.Response.Output {
			calls += item.Arguments.OfString
		}
		if text.String() != last.Response.OutputText() || arguments.String() != calls {
			t.Errorf("streamed %q and %q of %s", text.String(), arguments.String(), last.Response.RawJSON())
		}
		for opened, closed := range map[string]string{
			"response.output_item.added": "response.output_item.done", "response.content_part.added": "response.content_part.done",
			"response.function_call_arguments.delta": "response.function_call_arguments.done",
		} {
			if n, m := count(kinds, opened), count(kinds, closed); n != m {
				t.Errorf("%d %s, %d %s", n, opened, m, closed)
			}
		}
		check(t, &last.Response)
	})
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// U3
func TestResponsesU3Answers(t *testing.T) {
	call := llm.ToolCall{ID: "call_1", Name: "find", Input: json.RawMessage(`{"q":"parrot"}`)}
	other := llm.ToolCall{ID: "call_2", Name: "find", Input: json.RawMessage(`{}`)}
	with := func(change func(*llm.Response)) llm.Response {
		r := llm.Response{InputTokens: 100, CachedTokens: 60, WrittenTokens: 30, OutputTokens: 7, ThoughtTokens: 3}
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		response llm.Response
		pieces   []string
		status   responses.ResponseStatus
		reason   string
	}{
		"text":            {with(func(*llm.Response) {}), []string{"Marta ", "does."}, "completed", ""},
		"cut off":         {with(func(r *llm.Response) { r.Truncated = true }), []string{"Mar"}, "incomplete", "max_output_tokens"},
		"filtered":        {with(func(r *llm.Response) { r.Filtered = true }), []string{"Mar"}, "incomplete", "content_filter"},
		"a call":          {with(func(r *llm.Response) { r.ToolCalls = []llm.ToolCall{call} }), nil, "completed", ""},
		"text, two calls": {with(func(r *llm.Response) { r.ToolCalls = []llm.ToolCall{call, other} }), []string{"I ", "look."}, "completed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := openAIClient(gatewayOf(t, says(test.response, test.pieces...)))
			p := input("Who feeds the parrot?")
			p.Instructions, p.Metadata = param.NewOpt("Be kind."), map[string]string{"a": "b"}
			eachWay(t, client, p, func(t *testing.T, r *responses.Response) {
				if _, _, ok := gateway.ParseResponseID(r.ID); !ok || r.Model != "jeeves" || r.Object != "response" || r.Instructions.OfString != "Be kind." || r.Metadata["a"] != "b" || r.CreatedAt == 0 {
					t.Errorf("got %s", r.RawJSON())
				}
				if r.Status != test.status || r.IncompleteDetails.Reason != test.reason {
					t.Errorf("it is %s %q, want %s %q", r.Status, r.IncompleteDetails.Reason, test.status, test.reason)
				}
				if u := r.Usage; u.InputTokens != 100 || u.InputTokensDetails.CachedTokens != 60 || u.OutputTokens != 7 || u.OutputTokensDetails.ReasoningTokens != 3 || u.TotalTokens != 107 {
					t.Errorf("it cost %s", u.RawJSON())
				}
				if want := strings.Join(test.pieces, ""); r.OutputText() != want {
					t.Errorf("it says %q, want %q", r.OutputText(), want)
				}
				var calls []responses.ResponseFunctionToolCall
				for _, item := range r.Output {
					if item.Type == "function_call" {
						calls = append(calls, item.AsFunctionCall())
					}
				}
				if len(calls) != len(test.response.ToolCalls) {
					t.Fatalf("got %d calls", len(calls))
				}
				for i, want := range test.response.ToolCalls {
					if got := calls[i]; got.CallID != want.ID || got.Name != want.Name || got.Arguments != string(want.Input) || got.Status != "completed" {
						t.Errorf("got %+v, want %+v", got, want)
					}
				}
			})
		})
	}
}

// U3
func TestResponsesU3Errors(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"rate limited": {fmt.Errorf("%w: %w", llm.ErrRateLimited, &llm.StatusError{Status: 429}), 429, "rate_limit_exceeded"},
		"too long":     {llm.ErrContextTooLong, 400, "context_length_exceeded"},
		"not there":    {memory.ErrNotFound, 404, ""},
		"unknown":      {errors.New("boom"), 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := openAIClient(gatewayOf(t, func(context.Context, *host.Conversation) (*host.Relayed, error) { return &host.Relayed{}, test.err }))
			check := func(t *testing.T, err error) {
				t.Helper()
				got, ok := errors.AsType[*openai.Error](err)
				if !ok || got.StatusCode != test.status || got.Code != test.code || strings.Contains(got.Message, "boom") {
					t.Fatalf("got %v, want %d %s", err, test.status, test.code)
				}
			}
			_, err := client.Responses.New(t.Context(), input("Hi"))
			check(t, err)
			stream := client.Responses.NewStreaming(t.Context(), input("Hi"))
			defer stream.Close()
			for stream.Next() {
				t.Errorf("got %s", stream.Current().RawJSON())
			}
			check(t, stream.Err())
		})
	}
	t.Run("in the middle", func(t *testing.T) {
		client := openAIClient(gatewayOf(t, func(_ context.Context, c *host.Conversation) (*host.Relayed, error) {
			c.OnPlaced(host.Placed{Session: memory.NewID[memory.SessionID]()})
			c.OnEvent(host.Event{Text: "Mar"})
			return &host.Relayed{}, fmt.Errorf("%w: %w", llm.ErrRateLimited, &llm.StatusError{Status: 429})
		}))
		stream := client.Responses.NewStreaming(t.Context(), input("Hi"))
		defer stream.Close()
		var last responses.ResponseStreamEventUnion
		for stream.Next() {
			last = stream.Current()
		}
		if last.Type != "response.failed" || last.Response.Status != "failed" || last.Response.Error.Code != "rate_limit_exceeded" || last.Response.Error.Message == "" {
			t.Errorf("it ends with %s, %v", last.RawJSON(), stream.Err())
		}
	})
}

// U3
func TestResponsesU3Sessions(t *testing.T) {
	var asked *host.Conversation
	answer := says(llm.Response{}, "Marta.")
	client := openAIClient(gatewayOf(t, func(ctx context.Context, c *host.Conversation) (*host.Relayed, error) {
		asked = c
		return answer(ctx, c)
	}))
	first, err := client.Responses.New(t.Context(), input("Who?"))
	if err != nil {
		t.Fatal(err)
	}
	if asked.Session != "" || asked.After != "" || asked.AnswerKey == "" {
		t.Errorf("asked %+v", asked)
	}
	if _, key, ok := gateway.ParseResponseID(first.ID); !ok || key != asked.AnswerKey {
		t.Errorf("the answer %s has the key %s", first.ID, asked.AnswerKey)
	}
	p := input("When?")
	p.User = param.NewOpt("somebody")
	if _, err := client.Responses.New(t.Context(), p); err != nil || asked.Session != "somebody" || asked.After != "" {
		t.Errorf("asked %+v, %v", asked, err)
	}
	p.PreviousResponseID = param.NewOpt("resp_of_another_server")
	_, err = client.Responses.New(t.Context(), p)
	if got, ok := errors.AsType[*openai.Error](err); !ok || got.StatusCode != http.StatusNotFound || got.Code != "previous_response_not_found" {
		t.Errorf("got %v", err)
	}
}

func TestResponsesMethods(t *testing.T) {
	server := gatewayOf(t, nil)
	client := openAIClient(server)
	err := client.Responses.Delete(t.Context(), "resp_1")
	if got, ok := errors.AsType[*openai.Error](err); !ok || got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("got %v", err)
	}
	_, err = client.Responses.Get(t.Context(), "resp_1", responses.ResponseGetParams{})
	if got, ok := errors.AsType[*openai.Error](err); !ok || got.StatusCode != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
}

func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","input":"Hi"}`,
		`{"model":"m","input":[{"role":"developer","content":"x"},{"role":"user","content":[{"type":"input_text","text":"Hi"},{"type":"input_image","image_url":"data:image/png;base64,UE5H"}]},{"type":"function_call","call_id":"a","name":"b","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"x"}],"tools":[{"type":"function","name":"b"}],"tool_choice":{"type":"function","name":"b"},"text":{"format":{"type":"json_object"}}}`,
		`{"input":[[[]]]}`, `{"input":null,"previous_response_id":"resp_"}`, "{\"model\":\"\\ud800\x00\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := gateway.ParseResponses(body)
		checkConversation(t, body, c, err)
		// What is echoed is JSON.
		if err == nil {
			if echoed, err := gateway.ResponseTo(body); err != nil || !json.Valid(echoed) || bytes.ContainsRune(echoed, 0) {
				t.Fatalf("%s: %v: %s", body, err, echoed)
			}
		}
	})
}

// A stream says that it lives while the model is silent, once it is known where the
// conversation is kept, and in a form that clients pass over.
func TestStreamsLive(t *testing.T) {
	for path, test := range map[string]struct{ body, alive, begun, ended string }{
		"/v1/messages":  {`{"model":"jeeves","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`, "event: ping", "event: message_start", "event: message_stop"},
		"/v1/responses": {`{"model":"jeeves","stream":true,"input":"Hi"}`, ":", "event: response.created", "event: response.completed"},
	} {
		t.Run(path, func(t *testing.T) {
			heard := make(chan struct{})
			answer := says(llm.Response{}, "Marta.")
			server := httptest.NewServer(behind(t, gateway.Bounds{Alive: time.Millisecond}, func(ctx context.Context, c *host.Conversation) (*host.Relayed, error) {
				c.OnPlaced(host.Placed{Session: memory.NewID[memory.SessionID]()})
				select {
				case <-heard:
				case <-ctx.Done():
					return &host.Relayed{}, ctx.Err()
				}
				return answer(ctx, c)
			}))
			t.Cleanup(server.Close)
			response, err := http.Post(server.URL+path, "application/json", strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.Header.Get(gateway.SessionHeader) == "" {
				t.Error("nobody knows where it is kept")
			}
			var lines []string
			for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
				if lines = append(lines, scanner.Text()); scanner.Text() == test.alive && count(lines, test.alive) == 1 {
					close(heard)
				}
			}
			if count(lines, test.begun) != 1 || count(lines, test.ended) != 1 || count(lines, test.alive) == 0 || lines[0] != test.begun {
				t.Errorf("got %s", strings.Join(lines, "\n"))
			}
		})
	}
}
