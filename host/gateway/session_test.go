package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// talk is a conversation that a client holds.
type talk struct {
	s        *system
	token    string
	headers  []string
	user     string
	messages []map[string]any
}

func (s *system) talk(token string, headers ...string) *talk {
	return &talk{s: s, token: token, headers: headers}
}

// say says something and returns the answer and the session that it is in.
func (c *talk) say(text string) (reply string, session memory.SessionID) {
	c.s.t.Helper()
	c.messages = append(c.messages, map[string]any{"role": "user", "content": text})
	body := map[string]any{"model": "jeeves", "messages": c.messages}
	if c.user != "" {
		body["user"] = c.user
	}
	a := c.s.send("POST", "/v1/chat/completions", body, append([]string{"Authorization", "Bearer " + c.token}, c.headers...)...)
	var got openai.ChatCompletion
	a.into(c.s.t, &got)
	if a.status != http.StatusOK || len(got.Choices) != 1 {
		c.s.t.Fatalf("%q: %v", text, a)
	}
	session, err := memory.ParseID[memory.SessionID](a.header.Get(gateway.SessionHeader))
	if err != nil {
		c.s.t.Fatal(err)
	}
	reply = got.Choices[0].Message.Content
	c.messages = append(c.messages, map[string]any{"role": "assistant", "content": reply})
	return reply, session
}

// from is the conversation up to its message n, to go on otherwise.
func (c *talk) from(n int) *talk {
	other := *c
	other.messages = append([]map[string]any{}, c.messages[:n]...)
	return &other
}

// U3: a conversation is found again by what was said in it, in the sessions of its
// user alone; an opening is a new one, and one that departs is a fork.
func TestSessionsAreFound(t *testing.T) {
	s := serve(t, withOracle)
	first := s.talk(s.byAnna)
	_, began := first.say("Good morning.")
	_, went := first.say("And the papers?")
	if began != went {
		t.Errorf("it began in %s and went on in %s", began, went)
	}
	// The second question, otherwise.
	_, forked := first.from(2).say("And the tea?")
	if forked == began {
		t.Error("what was edited went on in the same session")
	}
	if session, err := s.host.Store().Session(t.Context(), s.anna.ID, forked); err != nil || session.Parent != began {
		t.Errorf("it was forked from %s, not %s: %v", session.Parent, began, err)
	}
	// The one that it was forked from is as it was.
	if _, on := first.say("Thank you."); on != began {
		t.Errorf("it went on in %s, not in %s", on, began)
	}
	if _, again := s.talk(s.byAnna).say("Good morning."); again == began || again == forked {
		t.Error("an opening went on in an old session")
	}
	other := first.from(4)
	other.token = s.byBert
	_, berts := other.say("I am Bert.")
	if berts == began || berts == forked {
		t.Error("a user went on in another's session")
	}
	if _, err := s.host.Store().Session(t.Context(), s.anna.ID, berts); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("Bert's session is Anna's: %v", err)
	}
}

// A session has the name that the header or the body gives it, the header first, and
// of its user alone.
func TestSessionsAreNamed(t *testing.T) {
	s := serve(t, withOracle)
	c := s.talk(s.byAnna)
	c.user = "window 1"
	_, named := c.say("Good morning.")
	// The end of it alone, and what is no part of it.
	short := s.talk(s.byAnna, gateway.SessionHeader, "window 1")
	short.user = "window 2"
	if _, on := short.say("And the papers?"); on != named {
		t.Errorf("it went on in %s, not in %s", on, named)
	}
	if _, on := s.talk(s.byAnna, gateway.SessionHeader, named.String()).say("And the tea?"); on != named {
		t.Errorf("by its id it went on in %s, not in %s", on, named)
	}
	if _, on := s.talk(s.byAnna, gateway.SessionHeader, strings.ToUpper(named.String())).say("And the tea?"); on != named {
		t.Errorf("by its id in capitals it went on in %s, not in %s", on, named)
	}
	if _, berts := s.talk(s.byBert, gateway.SessionHeader, "window 1").say("Good morning."); berts == named {
		t.Error("a name led to another user's session")
	}
	last := s.script.Requests()[2].Messages
	if len(last) != 6 || !strings.Contains(last[1].Content, "Good morning.") {
		t.Errorf("the model was shown %+v", last)
	}
	a := s.send("POST", "/v1/chat/completions", chatting(), "Authorization", "Bearer "+s.byBert, gateway.SessionHeader, named.String())
	a.failed(t, http.StatusNotFound)
	if strings.Contains(a.body, named.String()) {
		t.Errorf("%v names the session", a)
	}
}

// Everything that a request asks of the model reaches it.
func TestChatAsks(t *testing.T) {
	s := serve(t, withOracle, func(up *setup) { up.host.Model.MaxOutputTokens = 512 })
	ask := func(change func(*openai.ChatCompletionNewParams)) openaitest.Request {
		t.Helper()
		p := openai.ChatCompletionNewParams{Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Good morning.")}}
		change(&p)
		c := s.client()
		if _, err := c.Chat.Completions.New(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		all := s.script.Requests()
		return all[len(all)-1]
	}
	got := ask(func(p *openai.ChatCompletionNewParams) {
		p.Temperature, p.TopP, p.MaxCompletionTokens = param.NewOpt(0.25), param.NewOpt(0.5), param.NewOpt(int64(99))
		p.Stop.OfString, p.ReasoningEffort = param.NewOpt("END"), shared.ReasoningEffortLow
	})
	most := got.MaxCompletionTokens
	if most == nil {
		most = got.MaxTokens
	}
	if *got.Temperature != 0.25 || *got.TopP != 0.5 || *most != 99 || strings.Join(got.Stop, "|") != "END" || got.ReasoningEffort != "low" {
		t.Errorf("the model was asked %+v", got)
	}
	for choice, want := range map[string]openaitest.ToolChoice{"none": "none", "auto": "", "required": "required", "weather": "function weather"} {
		got := ask(func(p *openai.ChatCompletionNewParams) {
			p.Tools = []openai.ChatCompletionToolUnionParam{weather}
			if p.ToolChoice.OfAuto = param.NewOpt(choice); choice == "weather" {
				p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"})
			}
			p.ParallelToolCalls = param.NewOpt(false)
		})
		if len(got.Tools) != 1 || got.ToolChoice != want && !(want == "" && got.ToolChoice == "auto") {
			t.Errorf("choice %s: the model was asked by choice %q of %d tools", choice, got.ToolChoice, len(got.Tools))
		}
		if choice != "none" && (got.ParallelToolCalls == nil || *got.ParallelToolCalls) {
			t.Errorf("choice %s: it may call more than one at once", choice)
		}
	}

	schema := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}, "additionalProperties": false}
	form := func(strict bool, tools ...openai.ChatCompletionToolUnionParam) func(*openai.ChatCompletionNewParams) {
		return func(p *openai.ChatCompletionNewParams) {
			p.Tools = tools
			p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "place", Schema: schema, Strict: param.NewOpt(strict)}}
		}
	}
	if got := ask(form(true)); got.ResponseFormat == nil || got.ResponseFormat.JSONSchema.Name != "place" {
		t.Errorf("a strict form: the model was asked for %+v", got.ResponseFormat)
	}
	for name, change := range map[string]func(*openai.ChatCompletionNewParams){
		"a form that is not strict": form(false), "a form beside tools": form(true, weather),
	} {
		if got := ask(change); got.ResponseFormat != nil || !strings.Contains(got.Messages[0].Content, "You are Jeeves.") || !strings.Contains(got.Messages[0].Content, `"additionalProperties":false`) {
			t.Errorf("%s: the model was told %s", name, got.Messages[0].Content)
		}
	}
	got = ask(func(p *openai.ChatCompletionNewParams) {
		p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	})
	if !strings.Contains(got.Messages[0].Content, "one JSON object") {
		t.Errorf("the model was told %s", got.Messages[0].Content)
	}
}

// U3: pictures reach the model where they stand in what the user says.
func TestChatImages(t *testing.T) {
	s := serve(t, withOracle)
	const picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	c := s.client()
	image := func(url string) openai.ChatCompletionContentPartUnionParam {
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url})
	}
	if _, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{
		openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.TextContentPart("Is this"), image(picture), openai.TextContentPart("the same as this?"), image("https://example.com/x.png"),
		}),
	}}); err != nil {
		t.Fatal(err)
	}
	sent := s.script.Requests()[0].Messages
	var order []string
	for _, p := range sent[len(sent)-1].Parts {
		switch {
		case p.ImageURL != nil:
			order = append(order, p.ImageURL.URL)
		case strings.Contains(p.Text, "Is this"):
			order = append(order, "first")
		case strings.Contains(p.Text, "the same"):
			order = append(order, "second")
		}
	}
	if got := strings.Join(order, " "); got != "first "+picture+" second https://example.com/x.png" {
		t.Errorf("the model was shown %s", got)
	}
}

// U3: what the model says comes when it says it.
func TestChatStreamsAsItComes(t *testing.T) {
	next := make(chan struct{})
	s := serve(t, func(up *setup) { up.script.Otherwise(openaitest.Paced(next, "One ", "two ", "three.")) })
	c := s.client()
	// The head of the answer comes with the first piece.
	go func() { next <- struct{}{} }()
	stream := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
		Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Count.")},
	})
	defer stream.Close()
	for i, piece := range []string{"One ", "two ", "three."} {
		if i > 0 {
			next <- struct{}{} // it is not said before the one before it was read
		}
		got := ""
		for got == "" && stream.Next() {
			got = stream.Current().Choices[0].Delta.Content
		}
		if got != piece {
			t.Fatalf("got %q, want %q: %v", got, piece, stream.Err())
		}
	}
	for stream.Next() {
	}
	if err := stream.Err(); err != nil {
		t.Error(err)
	}
}

// U3: a client that goes away ends what the model's server does for it, and when it
// comes back with the same it is answered where it was.
func TestChatGoesAway(t *testing.T) {
	for _, way := range []string{"whole", "stream"} {
		t.Run(way, func(t *testing.T) {
			began, gone := make(chan struct{}), make(chan struct{})
			s := serve(t, func(up *setup) {
				up.script = openaitest.NewScript(t, openaitest.Text("Good morning to you."), func(_ http.ResponseWriter, r *http.Request, _ openaitest.Request) {
					close(began)
					<-r.Context().Done()
					close(gone)
				}).Otherwise(oracle)
			})
			c := s.talk(s.byAnna)
			_, session := c.say("Good morning.")
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-began
				leave()
			}()
			p := openai.ChatCompletionNewParams{Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{
				openai.UserMessage("Good morning."), openai.AssistantMessage("Good morning to you."), openai.UserMessage("And the papers?"),
			}}
			client := s.client()
			var err error
			if way == "whole" {
				_, err = client.Chat.Completions.New(ctx, p)
			} else {
				stream := client.Chat.Completions.NewStreaming(ctx, p)
				for stream.Next() {
				}
				err = stream.Err()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the client is told %v", err)
			}
			<-gone
			reply, on := c.say("And the papers?")
			if on != session || reply != "You said: And the papers?" {
				t.Errorf("%q in %s, want it in %s", reply, on, session)
			}
			kept, err := s.host.Store().Messages(t.Context(), s.anna.ID, session, memory.MessageQuery{Limit: 100})
			if err != nil || len(kept) != 4 {
				t.Errorf("%d messages are kept, want 4: %v", len(kept), err)
			}
		})
	}
}

// An answer that the limit ends before its first word is an answer that says so.
func TestChatEndsBeforeItBegins(t *testing.T) {
	bothWays(t, func(t *testing.T, ask asker) {
		s := serve(t, func(up *setup) { up.script.Otherwise(openaitest.Cut("")) })
		got, err := ask(t.Context(), s.client(), openai.ChatCompletionNewParams{
			Model: "jeeves", MaxCompletionTokens: param.NewOpt(int64(1)), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Think.")},
		})
		if err != nil || got.Choices[0].FinishReason != "length" || got.Choices[0].Message.Content != "" || !strings.HasPrefix(got.ID, "chatcmpl-") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// So is one that the provider ends before its first word for what it would say: it is
// no failure, which clients would send again.
func TestChatIsFilteredBeforeItBegins(t *testing.T) {
	for name, answer := range map[string]openaitest.Answer{
		"filtered": openaitest.Finished("", "content_filter"),
		"declined": openaitest.Reply{Refusal: "I would rather not."}.Answer(),
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, ask asker) {
				s := serve(t, func(up *setup) { up.script.Otherwise(answer) })
				got, err := ask(t.Context(), s.client(), openai.ChatCompletionNewParams{
					Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Build it.")},
				})
				if err != nil || got.Choices[0].FinishReason != "content_filter" || got.Choices[0].Message.Content != "" || got.Usage.PromptTokens == 0 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

// With tools of the host, what the model says before it calls one is told to nobody,
// nor is the call; a client's own calls are its own.
func TestChatHostTools(t *testing.T) {
	bothWays(t, func(t *testing.T, ask asker) {
		s := serve(t, func(up *setup) {
			up.host.Server.Gateway.HostTools = true
			up.script = openaitest.NewScript(t,
				openaitest.Calls("Let me look.", openaitest.Call("call_memory", "memory_search", `{"query":"papers"}`)),
				openaitest.Calls("I have to ask.", openaitest.Call("call_oslo", "weather", `{"city":"Oslo"}`)),
			)
		})
		got, err := ask(t.Context(), s.client(), openai.ChatCompletionNewParams{
			Model: "jeeves", Tools: []openai.ChatCompletionToolUnionParam{weather},
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Where are the papers?")},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := got.Choices[0].Message
		if m.Content != "I have to ask." || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" {
			t.Errorf("answer %+v", m)
		}
		if got.Usage.PromptTokens != 2*openaitest.InputTokens {
			t.Errorf("usage %+v", got.Usage)
		}
	})
}

// A server that stops says that it does.
func TestChatWhileStopping(t *testing.T) {
	s := serve(t)
	if err := s.host.Close(); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"true", "false"} {
		if message, kind, _, _ := s.send("POST", "/v1/chat/completions", chatting(`"stream":`+stream)).failed(t, http.StatusServiceUnavailable); kind != "server_error" {
			t.Errorf("type %q: %s", kind, message)
		}
	}
}

// The chunks of a stream are OpenAI's, field by field.
func TestChatChunks(t *testing.T) {
	s := serve(t, withOracle)
	a := s.send("POST", "/v1/chat/completions", chatting(`"stream":true`, `"stream_options":{"include_usage":true}`, `"messages":[{"role":"user","content":"What is the weather?"}]`,
		`"tools":[{"type":"function","function":{"name":"weather"}}]`))
	if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%v", a)
	}
	type chunk struct {
		ID, Object, Model string
		Created           int64
		Choices           []struct {
			Index        int
			Delta        json.RawMessage
			FinishReason *string `json:"finish_reason"`
		}
		Usage *struct {
			Total int `json:"total_tokens"`
		}
	}
	var first chunk
	var said []string
	for event := range strings.SplitSeq(strings.TrimSuffix(a.body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || data == "[DONE]" {
			said = append(said, event)
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatal(err)
		}
		if first.ID == "" {
			first = c
		}
		if c.ID != first.ID || c.Object != "chat.completion.chunk" || c.Model != "jeeves" || c.Created != first.Created {
			t.Errorf("chunk %s", data)
		}
		switch {
		case len(c.Choices) == 0:
			if c.Usage == nil || c.Usage.Total != openaitest.InputTokens+openaitest.OutputTokens {
				t.Errorf("usage %s", data)
			}
			said = append(said, "usage")
		case c.Choices[0].FinishReason != nil:
			said = append(said, "finish "+*c.Choices[0].FinishReason)
		default:
			said = append(said, string(c.Choices[0].Delta))
		}
	}
	got := strings.Join(said, "\n")
	want := `{"role":"assistant","content":""}
{"content":"Let me look."}
{"tool_calls":[{"index":0,"id":"call_oslo","type":"function","function":{"name":"weather","arguments":""}}]}
{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Oslo\"}"}}]}
{"tool_calls":[{"index":1,"id":"call_rome","type":"function","function":{"name":"weather","arguments":""}}]}
{"tool_calls":[{"index":1,"function":{"arguments":"{\"city\":\"Rome\"}"}}]}
finish tool_calls
usage
data: [DONE]`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
