package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// told writes a conversation down, a message a line.
func told(c *host.Conversation) string {
	var b strings.Builder
	if c.System != "" {
		fmt.Fprintf(&b, "system: %s\n", c.System)
	}
	for _, d := range c.Messages {
		fmt.Fprintf(&b, "%s:", d.Role)
		for _, block := range d.Blocks {
			switch block.Type {
			case memory.BlockText:
				fmt.Fprintf(&b, " %s", block.Text)
			case memory.BlockToolCall:
				fmt.Fprintf(&b, " call %s %s %s", block.ID, block.Name, block.Input)
			case memory.BlockToolResult:
				fmt.Fprintf(&b, " result %s %s %v %s", block.ID, block.Name, block.IsError, memory.Plain([]memory.Block{memory.External(block.External)}))
			case memory.BlockImage:
				encoded, _ := block.MarshalJSON()
				kind, data, at, _ := memory.ParseImage(encoded)
				fmt.Fprintf(&b, " image %s%s%s", kind, data, at)
			default:
				fmt.Fprintf(&b, " ? %s", block.Type)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestMessagesDecode(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"strings": {
			`"system":"Be kind.","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Who?"}]`,
			"system: Be kind.\nuser: Hi\nassistant: Hello.\nuser: Who?\n",
		},
		"blocks": {
			`"system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be brief."}],
			"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"text","text":" "},{"type":"text","text":"you","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]`,
			"system: Be kind.\n\nBe brief.\nuser: Hi you\n",
		},
		"images": {
			`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"UE5H"}},{"type":"text","text":"and"},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]`,
			"user: image image/pngPNG and image https://example.com/a.png\n",
		},
		"tools, results before words": {
			`"messages":[{"role":"user","content":"Find."},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"find","input":{"q":1}},{"type":"tool_use","id":"b","name":"find","input":{}}]},
			{"role":"user","content":[{"type":"text","text":"Hurry."},{"type":"tool_result","tool_use_id":"b","content":"none","is_error":true},{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"R0lG"}},{"type":"text","text":"two"}]}]}]`,
			"user: Find.\nassistant: I look. call a find {\"q\":1} call b find {}\n" +
				"tool: result b find true none\ntool: result a find false one\ntwo image image/gifGIF\nuser: Hurry.\n",
		},
		"a result without content, of a call that is not there": {
			`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"z"}]}]`,
			"tool: result z  false \n",
		},
		"thoughts alone are nothing": {
			`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]},{"role":"user","content":"So?"}]`,
			"user: Hi\nuser: So?\n",
		},
		"system in between": {
			`"messages":[{"role":"user","content":"Hi"},{"role":"system","content":"Now brief."},{"role":"user","content":"So?"}]`,
			"user: Hi\nsystem: Now brief.\nuser: So?\n",
		},
		"no notice": {
			`"messages":[{"role":"user","content":"Hi"}],"metadata":{"user_id":"u"},"thinking":{"type":"enabled","budget_tokens":1024},"top_k":5,"service_tier":"auto","betas":["x"]`,
			"user: Hi\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := gateway.ParseMessages([]byte(`{"model":"m","max_tokens":9,` + test.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := told(c); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
			if c.Session != "" || c.Ask.MaxOutputTokens != 9 {
				t.Errorf("got the session %q, the limit %d", c.Session, c.Ask.MaxOutputTokens)
			}
		})
	}
}

func TestMessagesAsk(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want func(c *host.Conversation) bool
	}{
		"tools": {`"tools":[{"name":"find","description":"Finds.","input_schema":{"type":"object"}},{"type":"custom","name":"put","input_schema":{}}]`,
			func(c *host.Conversation) bool {
				return len(c.Tools) == 2 && c.Tools[0].Name == "find" && c.Tools[0].Description == "Finds." && string(c.Tools[0].Parameters) == `{"type":"object"}` && c.Ask.Choice == llm.ToolChoice{}
			}},
		"auto, one": {`"tools":[{"name":"find","input_schema":{}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`,
			func(c *host.Conversation) bool { return c.Ask.Choice == llm.ToolChoice{One: true} }},
		"any": {`"tools":[{"name":"find","input_schema":{}}],"tool_choice":{"type":"any"}`,
			func(c *host.Conversation) bool { return c.Ask.Choice == llm.ToolChoice{Required: true} }},
		"tool": {`"tools":[{"name":"find","input_schema":{}}],"tool_choice":{"type":"tool","name":"find"}`,
			func(c *host.Conversation) bool {
				return c.Ask.Choice == llm.ToolChoice{Required: true, Name: "find"}
			}},
		"none": {`"tools":[{"name":"find","input_schema":{}}],"tool_choice":{"type":"none"}`,
			func(c *host.Conversation) bool { return c.Ask.NoCalls && len(c.Tools) == 1 }},
		"sampling": {`"temperature":0.5,"top_p":0.25,"stop_sequences":["END"],"output_config":{"effort":"high"}`,
			func(c *host.Conversation) bool {
				return *c.Ask.Temperature == 0.5 && *c.Ask.TopP == 0.25 && len(c.Ask.Stop) == 1 && c.Ask.Stop[0] == "END" && c.Ask.Effort == "high"
			}},
		"a schema": {`"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
			func(c *host.Conversation) bool { return string(c.Ask.Schema.JSON) == `{"type":"object"}` }},
		"a schema beside tools is asked for in words": {`"tools":[{"name":"find","input_schema":{}}],"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
			func(c *host.Conversation) bool {
				return c.Ask.Schema == nil && strings.Contains(c.System, `{"type":"object"}`)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := gateway.ParseMessages([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],` + test.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if !test.want(c) {
				t.Errorf("got %+v, ask %+v", c.Tools, c.Ask)
			}
		})
	}
}

func TestMessagesBadInput(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"Hi"}]`
	block := func(b string) string {
		return `"max_tokens":9,"messages":[{"role":"user","content":[` + b + `]}]`
	}
	said := func(b string) string {
		return `"max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[` + b + `]},{"role":"user","content":"Hi"}]`
	}
	for name, test := range map[string]struct{ body, param string }{
		"no limit":                  {hi, "max_tokens"},
		"limit of nothing":          {hi + `,"max_tokens":0`, "max_tokens"},
		"negative limit":            {hi + `,"max_tokens":-1`, "max_tokens"},
		"huge limit":                {hi + `,"max_tokens":1e99`, "max_tokens"},
		"limit of the wrong type":   {hi + `,"max_tokens":"9"`, "max_tokens"},
		"no messages":               {`"max_tokens":9`, "messages"},
		"empty messages":            {`"max_tokens":9,"messages":[]`, "messages"},
		"messages are no list":      {`"max_tokens":9,"messages":{}`, "messages"},
		"a message is a number":     {`"max_tokens":9,"messages":[1]`, "messages[0]"},
		"no content":                {`"max_tokens":9,"messages":[{"role":"user"}]`, "messages[0].content"},
		"content is a number":       {`"max_tokens":9,"messages":[{"role":"user","content":1}]`, "messages[0].content"},
		"content is an object":      {`"max_tokens":9,"messages":[{"role":"user","content":{}}]`, "messages[0].content"},
		"empty content":             {`"max_tokens":9,"messages":[{"role":"user","content":""}]`, "messages[0].content"},
		"empty blocks":              {block(``), "messages[0].content"},
		"blank text":                {block(`{"type":"text","text":" \n"}`), "messages[0].content"},
		"a block is a string":       {block(`"Hi"`), "messages[0].content[0]"},
		"text is a number":          {block(`{"type":"text","text":1}`), "messages[0].content[0].text"},
		"no type":                   {block(`{"text":"Hi"}`), "messages[0].content[0].type"},
		"a document":                {block(`{"type":"document","source":{"type":"text","data":"x"}}`), "messages[0].content[0].type"},
		"a search result":           {block(`{"type":"search_result","content":[]}`), "messages[0].content[0].type"},
		"a call by the user":        {block(`{"type":"tool_use","id":"a","name":"b","input":{}}`), "messages[0].content[0].type"},
		"unknown role":              {`"max_tokens":9,"messages":[{"role":"tool","content":"Hi"}]`, "messages[0].role"},
		"an answer begun":           {`"max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"I"}]`, "messages"},
		"image of another type":     {block(`{"type":"image","source":{"type":"base64","media_type":"image/svg+xml","data":"UE5H"}}`), "messages[0].content[0].source"},
		"image that is no base64":   {block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%%"}}`), "messages[0].content[0].source.data"},
		"empty image":               {block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}`), "messages[0].content[0].source"},
		"image in a file":           {block(`{"type":"image","source":{"type":"file","file_id":"f"}}`), "messages[0].content[0].source.type"},
		"image by ftp":              {block(`{"type":"image","source":{"type":"url","url":"ftp://example.com/a.png"}}`), "messages[0].content[0].source.url"},
		"image on this machine":     {block(`{"type":"image","source":{"type":"url","url":"file:///etc/passwd"}}`), "messages[0].content[0].source.url"},
		"result without an id":      {block(`{"type":"tool_result","content":"x"}`), "messages[0].content[0].tool_use_id"},
		"result with a hostile id":  {block(`{"type":"tool_result","tool_use_id":"<a>","content":"x"}`), "messages[0].content[0].tool_use_id"},
		"result of a document":      {block(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"document"}]}`), "messages[0].content[0].content[0].type"},
		"result of a number":        {block(`{"type":"tool_result","tool_use_id":"a","content":1}`), "messages[0].content[0].content"},
		"call without an id":        {said(`{"type":"tool_use","name":"b","input":{}}`), "messages[1].content[0].id"},
		"call without a name":       {said(`{"type":"tool_use","id":"a","input":{}}`), "messages[1].content[0].name"},
		"call with a long name":     {said(`{"type":"tool_use","id":"a","name":"` + strings.Repeat("x", 65) + `","input":{}}`), "messages[1].content[0].name"},
		"call with a list":          {said(`{"type":"tool_use","id":"a","name":"b","input":[]}`), "messages[1].content[0].input"},
		"call without input":        {said(`{"type":"tool_use","id":"a","name":"b"}`), "messages[1].content[0].input"},
		"two calls of one id":       {said(`{"type":"tool_use","id":"a","name":"b","input":{}},{"type":"tool_use","id":"a","name":"b","input":{}}`), "messages[1].content[1].id"},
		"a server's call":           {said(`{"type":"server_tool_use","id":"a","name":"web_search","input":{}}`), "messages[1].content[0].type"},
		"the assistant says naught": {said(``), "messages[1].content"},
		"system is a number":        {`"max_tokens":9,"system":1,` + hi, "system"},
		"system is an image":        {`"max_tokens":9,"system":[{"type":"image"}],` + hi, "system[0].type"},
		"a server's tool":           {`"max_tokens":9,"tools":[{"type":"web_search_20250305","name":"web_search"}],` + hi, "tools[0].type"},
		"a tool without schema":     {`"max_tokens":9,"tools":[{"name":"a"}],` + hi, "tools[0].input_schema"},
		"a tool that takes a list":  {`"max_tokens":9,"tools":[{"name":"a","input_schema":{"type":"array"}}],` + hi, "tools[0].input_schema.type"},
		"a tool without name":       {`"max_tokens":9,"tools":[{"input_schema":{}}],` + hi, "tools[0].name"},
		"a tool of a hostile name":  {`"max_tokens":9,"tools":[{"name":"a b","input_schema":{}}],` + hi, "tools[0].name"},
		"long parameters":           {`"max_tokens":9,"tools":[{"name":"a","input_schema":{"description":"` + strings.Repeat("x", 256<<10) + `"}}],` + hi, "tools[0].input_schema"},
		"two tools of one name":     {`"max_tokens":9,"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}],` + hi, "tools[1].name"},
		"tools are a string":        {`"max_tokens":9,"tools":"a",` + hi, "tools"},
		"choice without tools":      {`"max_tokens":9,"tool_choice":{"type":"any"},` + hi, "tool_choice"},
		"choice of none there is":   {`"max_tokens":9,"tools":[{"name":"a","input_schema":{}}],"tool_choice":{"type":"tool","name":"b"},` + hi, "tool_choice.name"},
		"unknown choice":            {`"max_tokens":9,"tool_choice":{"type":"x"},` + hi, "tool_choice.type"},
		"too hot":                   {`"max_tokens":9,"temperature":1.5,` + hi, "temperature"},
		"negative temperature":      {`"max_tokens":9,"temperature":-1,` + hi, "temperature"},
		"top_p of 2":                {`"max_tokens":9,"top_p":2,` + hi, "top_p"},
		"five stops":                {`"max_tokens":9,"stop_sequences":["a","b","c","d","e"],` + hi, "stop_sequences"},
		"an empty stop":             {`"max_tokens":9,"stop_sequences":[""],` + hi, "stop_sequences"},
		"hostile effort":            {`"max_tokens":9,"output_config":{"effort":"<b>"},` + hi, "output_config.effort"},
		"a schema that is none":     {`"max_tokens":9,"output_config":{"format":{"type":"json_schema","schema":1}},` + hi, "output_config.format"},
		"servers":                   {`"max_tokens":9,"mcp_servers":[{"type":"url","url":"https://example.com"}],` + hi, "mcp_servers"},
		"a container":               {`"max_tokens":9,"container":"c",` + hi, "container"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gateway.ParseMessages([]byte(`{"model":"m",` + test.body + `}`))
			f, ok := gateway.FaultOf(err)
			if !ok || f.Status != http.StatusBadRequest || f.Param != test.param || f.Message == "" || len(f.Message) > 500 {
				t.Errorf("got %.2000s, want a fault of %s", err, test.param)
			}
		})
	}
}

// Anthropic's places have their numbers between dots, and no words of Go beside them.
func TestMessagesSayWhere(t *testing.T) {
	server := gatewayOf(t, func(context.Context, *host.Conversation) (*host.Relayed, error) { return nil, errors.New("asked") })
	for body, want := range map[string]string{
		`{"model":"jeeves","max_tokens":"9","messages":[]}`:                                                                        "max_tokens: it has to be a whole number, not a text",
		`{"model":"jeeves","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}`:                      "messages.0.content.0.text: it has to be a text, not a number",
		`{"model":"jeeves","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document"}]}]}`:                           "messages.0.content.0.type: ",
		`{"model":"jeeves","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"a b","input_schema":{}}]}`: "tools.0.name: ",
		`{"model":"jeeves","max_tokens":9`: "the body: it ends too early",
	} {
		answer, err := http.Post(server.URL+"/v1/messages", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		told, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(told), want) || strings.Contains(string(told), "Go ") {
			t.Errorf("%s: %d %s, want %s", body, answer.StatusCode, told, want)
		}
	}
}

// A client that lets the server hold the conversation is told to send it whole: what
// it sends alone would be taken for an opening.
func TestMessagesThread(t *testing.T) {
	const hi = `{"model":"jeeves","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"thread":`
	if _, err := gateway.ParseMessages([]byte(hi + `{"type":"create"}}`)); err != nil {
		t.Error(err)
	}
	_, err := gateway.ParseMessages([]byte(hi + `{"type":"continue","previous_message_id":"msg_1"}}`))
	if f, ok := gateway.FaultOf(err); !ok || f.Status != http.StatusNotFound || f.Code != "thread_not_found" {
		t.Errorf("got %v", err)
	}
}

func anthropicClient(server *httptest.Server) sdk.Client {
	return sdk.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("k"), option.WithMaxRetries(0))
}

func ask(text string) sdk.MessageNewParams {
	return sdk.MessageNewParams{Model: "jeeves", MaxTokens: 9, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock(text))}}
}

// both asks whole and streamed, and has the same checked of both answers.
func both(t *testing.T, client sdk.Client, p sdk.MessageNewParams, check func(t *testing.T, m *sdk.Message)) {
	t.Run("whole", func(t *testing.T) {
		m, err := client.Messages.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		check(t, m)
	})
	t.Run("streamed", func(t *testing.T) {
		stream := client.Messages.NewStreaming(t.Context(), p)
		defer stream.Close()
		var m sdk.Message
		for stream.Next() {
			if err := m.Accumulate(stream.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		check(t, &m)
	})
}

// U3
func TestMessagesU3Answers(t *testing.T) {
	call := llm.ToolCall{ID: "call_1", Name: "find", Input: json.RawMessage(`{"q":"parrot"}`)}
	other := llm.ToolCall{ID: "call_2", Name: "find", Input: json.RawMessage(`{}`)}
	usage := llm.Response{InputTokens: 100, CachedTokens: 60, WrittenTokens: 30, OutputTokens: 7}
	with := func(change func(*llm.Response)) llm.Response {
		r := usage
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		response llm.Response
		pieces   []string
		stop     sdk.StopReason
		sequence string
	}{
		"text":            {usage, []string{"Marta ", "does."}, sdk.StopReasonEndTurn, ""},
		"cut off":         {with(func(r *llm.Response) { r.Truncated = true }), []string{"Mar"}, sdk.StopReasonMaxTokens, ""},
		"stopped":         {with(func(r *llm.Response) { r.Stopped = "END" }), []string{"Mar"}, sdk.StopReasonStopSequence, "END"},
		"filtered":        {with(func(r *llm.Response) { r.Filtered = true }), []string{"Mar"}, sdk.StopReasonRefusal, ""},
		"a call":          {with(func(r *llm.Response) { r.ToolCalls = []llm.ToolCall{call} }), nil, sdk.StopReasonToolUse, ""},
		"text, two calls": {with(func(r *llm.Response) { r.ToolCalls = []llm.ToolCall{call, other} }), []string{"I ", "look."}, sdk.StopReasonToolUse, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := anthropicClient(gatewayOf(t, says(test.response, test.pieces...)))
			both(t, client, ask("Who feeds the parrot?"), func(t *testing.T, m *sdk.Message) {
				if !strings.HasPrefix(m.ID, "msg_") || m.Model != "jeeves" || m.Role != "assistant" || m.Type != "message" {
					t.Errorf("got %s", m.RawJSON())
				}
				if m.StopReason != test.stop || m.StopSequence != test.sequence {
					t.Errorf("it stopped by %s %q, want %s %q", m.StopReason, m.StopSequence, test.stop, test.sequence)
				}
				if u := m.Usage; u.InputTokens != 10 || u.CacheReadInputTokens != 60 || u.CacheCreationInputTokens != 30 || u.OutputTokens != 7 {
					t.Errorf("it cost %s", u.RawJSON())
				}
				content := m.Content
				if text := strings.Join(test.pieces, ""); text != "" {
					if content[0].Type != "text" || content[0].Text != text {
						t.Errorf("got %+v, want %q", content[0], text)
					}
					content = content[1:]
				}
				if len(content) != len(test.response.ToolCalls) {
					t.Fatalf("got %d calls", len(content))
				}
				for i, want := range test.response.ToolCalls {
					if got := content[i]; got.Type != "tool_use" || got.ID != want.ID || got.Name != want.Name || string(got.Input) != string(want.Input) {
						t.Errorf("got %+v, want %+v", got, want)
					}
				}
			})
		})
	}
}

// U3
func TestMessagesU3Errors(t *testing.T) {
	upstream := func(status int, kind error) error {
		return fmt.Errorf("ask: %w: %w", kind, &llm.StatusError{Status: status})
	}
	for name, test := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"rate limited": {upstream(429, llm.ErrRateLimited), 429, "rate_limit_error"},
		"overloaded":   {upstream(529, llm.ErrUnavailable), 529, "overloaded_error"},
		"down":         {upstream(500, llm.ErrUnavailable), 500, "api_error"},
		"too long":     {llm.ErrContextTooLong, 400, "invalid_request_error"},
		"invalid":      {memory.ErrInvalid, 400, "invalid_request_error"},
		"not there":    {memory.ErrNotFound, 404, "not_found_error"},
		"forbidden":    {upstream(403, llm.ErrAuth), 403, "permission_error"},
		"unknown":      {errors.New("boom"), 500, "api_error"},
	} {
		t.Run(name, func(t *testing.T) {
			client := anthropicClient(gatewayOf(t, func(context.Context, *host.Conversation) (*host.Relayed, error) { return &host.Relayed{}, test.err }))
			check := func(t *testing.T, err error) {
				t.Helper()
				got, ok := errors.AsType[*sdk.Error](err)
				if !ok || got.StatusCode != test.status || string(got.Type()) != test.kind {
					t.Fatalf("got %v, want %d %s", err, test.status, test.kind)
				}
				if strings.Contains(got.Error(), "boom") {
					t.Error("it tells what only the log may")
				}
			}
			_, err := client.Messages.New(t.Context(), ask("Hi"))
			check(t, err)
			stream := client.Messages.NewStreaming(t.Context(), ask("Hi"))
			defer stream.Close()
			for stream.Next() {
				t.Errorf("got %s", stream.Current().RawJSON())
			}
			check(t, stream.Err())
		})
	}
}

// U3
func TestMessagesU3BrokenOff(t *testing.T) {
	client := anthropicClient(gatewayOf(t, func(ctx context.Context, c *host.Conversation) (*host.Relayed, error) {
		c.OnPlaced(host.Placed{Session: memory.NewID[memory.SessionID]()})
		c.OnEvent(host.Event{Text: "Mar"})
		return &host.Relayed{}, fmt.Errorf("ask: %w", &llm.StatusError{Status: 529})
	}))
	stream := client.Messages.NewStreaming(t.Context(), ask("Hi"))
	defer stream.Close()
	for stream.Next() {
		if stream.Current().Type == "message_stop" {
			t.Error("it ended as if it were whole")
		}
	}
	if err := stream.Err(); err == nil {
		t.Error("nothing says that there is no answer")
	}
}

// U3
func TestMessagesU3CountTokens(t *testing.T) {
	client := anthropicClient(gatewayOf(t, nil))
	count := func(text string) int64 {
		t.Helper()
		n, err := client.Messages.CountTokens(t.Context(), sdk.MessageCountTokensParams{
			Model: "jeeves", Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock(text))},
			Tools: []sdk.MessageCountTokensToolUnionParam{sdk.MessageCountTokensToolParamOfTool(sdk.ToolInputSchemaParam{Properties: map[string]any{"q": map[string]string{"type": "string"}}}, "find")},
		})
		if err != nil {
			t.Fatal(err)
		}
		return n.InputTokens
	}
	if short, long := count("Hi"), count(strings.Repeat("Who feeds the parrot? ", 100)); short < 2 || long < short+400 || long > short+900 {
		t.Errorf("it counts %d and %d", short, long)
	}
}

func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`,
		`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x"}],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"UE5H"}}]}]}],"tools":[{"name":"b","input_schema":{}}],"tool_choice":{"type":"tool","name":"b"}}`,
		`{"messages":[[[]]]}`, `{"messages":null,"system":null}`, "{\"model\":\"\\ud800\x00\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := gateway.ParseMessages(body)
		checkConversation(t, body, c, err)
	})
}

// checkConversation holds what was read of any bytes to what a host expects.
func checkConversation(t *testing.T, body []byte, c *host.Conversation, err error) {
	if err != nil {
		if f, ok := gateway.FaultOf(err); !ok || f.Status != http.StatusBadRequest && f.Status != http.StatusNotFound || f.Message == "" {
			t.Fatalf("%s: got %+v", body, err)
		}
		return
	}
	size := 0
	for _, d := range c.Messages {
		if len(d.Blocks) == 0 {
			t.Fatalf("%s: a message without blocks", body)
		}
		if _, _, err := memory.Encode(d.Blocks); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for _, b := range d.Blocks {
			size += len(b.Text) + len(b.Input)
		}
	}
	if len(c.Messages) == 0 || c.Messages[len(c.Messages)-1].Role == memory.RoleAssistant {
		t.Fatalf("%s: nothing is to be answered", body)
	}
	// A byte that is not UTF-8 becomes three.
	if size > 3*len(body)+100 {
		t.Fatalf("%d bytes became %d", len(body), size)
	}
}

// everywhere calls with each text that comes of a JSON text when one value in it, at
// any depth, is replaced by each of some odd ones, or left out.
func everywhere(t *testing.T, text string, with func(body []byte)) {
	t.Helper()
	var root any
	if err := json.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	written := func() {
		body, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		with(body)
	}
	odd := []any{nil, true, -1, 1e99, "", " ", "x", "\x00\ufffd", "auto", []any{}, []any{nil}, []any{"x"}, map[string]any{}, map[string]any{"type": "text"}, map[string]any{"type": 1}}
	var visit func(v any, set func(any))
	visit = func(v any, set func(any)) {
		for _, other := range odd {
			set(other)
			written()
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				visit(member, func(to any) { v[key] = to })
				delete(v, key)
				written()
				v[key] = member
			}
		case []any:
			for i, element := range v {
				visit(element, func(to any) { v[i] = to })
			}
		}
	}
	visit(root, func(to any) { root = to })
}

// Whatever stands wherever, there is a conversation or a reason why there is none.
func TestMessagesOddEverywhere(t *testing.T) {
	everywhere(t, `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x"}],"temperature":0.5,"top_p":0.5,"stop_sequences":["x"],"stream":true,"thread":{"type":"create"},
		"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"UE5H"}},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]},
		{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"a","name":"b","input":{"c":[1]}}]},{"role":"system","content":"x"},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"UE5H"}}]}]}],
		"tools":[{"name":"b","description":"x","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"b","disable_parallel_tool_use":true},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}}}`,
		func(body []byte) {
			c, err := gateway.ParseMessages(body)
			checkConversation(t, body, c, err)
		})
}

func TestResponsesOddEverywhere(t *testing.T) {
	everywhere(t, `{"model":"m","instructions":"x","temperature":0.5,"top_p":0.5,"max_output_tokens":9,"stream":true,"user":"x","metadata":{"a":"b"},"background":false,"conversation":null,"prompt":null,"parallel_tool_calls":false,
		"input":[{"role":"developer","content":"x"},{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"},{"type":"input_image","image_url":"data:image/png;base64,UE5H","detail":"auto"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]},{"type":"refusal","refusal":"x"}]},{"type":"reasoning","id":"r","summary":[]},
		{"type":"function_call","call_id":"a","name":"b","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"x"}]}],
		"tools":[{"type":"function","name":"b","description":"x","parameters":{"type":"object"},"strict":true}],"tool_choice":{"type":"function","name":"b"},"text":{"format":{"type":"json_schema","name":"x","schema":{},"strict":true}},"reasoning":{"effort":"low"}}`,
		func(body []byte) {
			c, err := gateway.ParseResponses(body)
			checkConversation(t, body, c, err)
		})
}
