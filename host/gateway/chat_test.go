package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// oracle is a model that does what it is told: its answer depends on the last
// message alone.
func oracle(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
	last := sent.Messages[len(sent.Messages)-1]
	says := func(words string) bool { return strings.Contains(last.Content, words) }
	answer := openaitest.Text("You said: " + said(last.Content))
	switch {
	case last.Role == "tool":
		results := 0
		for _, m := range slices.Backward(sent.Messages) {
			if m.Role != "tool" {
				break
			}
			results++
		}
		answer = openaitest.Text(fmt.Sprintf("It rains, say %d tools.", results))
	case says("weather") && len(sent.Tools) > 0 && sent.ToolChoice != "none":
		answer = openaitest.Calls("Let me look.", openaitest.Call("call_oslo", "weather", `{"city":"Oslo"}`), openaitest.Call("call_rome", "weather", `{"city":"Rome"}`))
	case says("slow down"):
		answer = openaitest.RateLimited("30")
	case says("wrong key"):
		answer = openaitest.Fault(401, "invalid_api_key", "", "SECRET WORDS")
	case says("too long"):
		answer = openaitest.Fault(400, "context_length_exceeded", "messages", "SECRET WORDS")
	case says("bad request"):
		answer = openaitest.Fault(400, "invalid_value", "messages", "SECRET WORDS")
	case says("overloaded"):
		answer = openaitest.Status(503, `{"error":{"message":"SECRET WORDS"}}`, "Retry-After", "30")
	case says("break off"):
		answer = openaitest.Stream(openaitest.Piece("It began "), openaitest.Break())
	case says("filter"):
		answer = openaitest.Finished("I would say", "content_filter")
	case says("at length"):
		answer = openaitest.Cut("It goes on and")
	}
	answer(w, r, sent)
}

// said is the last line of what a model was told.
func said(content string) string {
	content = strings.TrimSpace(content)
	return content[strings.LastIndexByte(content, '\n')+1:]
}

func withOracle(up *setup) { up.script.Otherwise(oracle) }

// client is the official client, which asks once.
func (s *system) client(options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(s.url + "/v1"), option.WithAPIKey(s.byAnna), option.WithMaxRetries(0)}, options...)...)
}

// weather is a tool of a client's.
var weather = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name: "weather", Description: param.NewOpt("Tells the weather."),
	Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
})

// bothWays runs a test with an answer whole, and with one that is put together from a
// stream.
func bothWays(t *testing.T, run func(t *testing.T, ask asker)) {
	t.Run("whole", func(t *testing.T) {
		run(t, func(ctx context.Context, c openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
			return c.Chat.Completions.New(ctx, p)
		})
	})
	t.Run("stream", func(t *testing.T) {
		run(t, func(ctx context.Context, c openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
			p.StreamOptions.IncludeUsage = param.NewOpt(true)
			stream := c.Chat.Completions.NewStreaming(ctx, p)
			defer stream.Close()
			var all openai.ChatCompletionAccumulator
			for stream.Next() {
				if chunk := stream.Current(); !all.AddChunk(chunk) {
					return nil, fmt.Errorf("a chunk of another answer: %s", chunk.RawJSON())
				}
			}
			return &all.ChatCompletion, stream.Err()
		})
	})
}

type asker = func(context.Context, openai.Client, openai.ChatCompletionNewParams) (*openai.ChatCompletion, error)

// U3: a conversation with OpenAI's client is answered by the agent that the model
// names, and goes on in one session.
func TestChat(t *testing.T) {
	bothWays(t, func(t *testing.T, ask asker) {
		s := serve(t, withOracle)
		var headers http.Header
		c := s.client(option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			response, err := next(r)
			if err == nil {
				headers = response.Header
			}
			return response, err
		}))
		p := openai.ChatCompletionNewParams{Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{
			openai.DeveloperMessage("Speak as a butler."), openai.UserMessage("Good morning."),
		}}
		first, err := ask(t.Context(), c, p)
		if err != nil {
			t.Fatal(err)
		}
		choice := first.Choices[0]
		if choice.Message.Content != "You said: Good morning." || choice.FinishReason != "stop" || choice.Message.Role != "assistant" || len(choice.Message.ToolCalls) != 0 {
			t.Errorf("answer %+v", choice)
		}
		if first.Model != "jeeves" || !strings.HasPrefix(first.ID, "chatcmpl-") || first.Created < monday.Unix() || first.Created > monday.Unix()+3600 {
			t.Errorf("answer %s of %s, created %d", first.ID, first.Model, first.Created)
		}
		if u := first.Usage; u.PromptTokens != openaitest.InputTokens || u.CompletionTokens != openaitest.OutputTokens || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
			t.Errorf("usage %+v", u)
		}
		session := headers.Get(gateway.SessionHeader)
		if session == "" {
			t.Error("the answer does not say in which session it is")
		}
		p.Messages = append(p.Messages, choice.Message.ToParam(), openai.UserMessage("And the papers?"))
		second, err := ask(t.Context(), c, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := second.Choices[0].Message.Content; got != "You said: And the papers?" || second.ID == first.ID {
			t.Errorf("answer %q, %s", got, second.ID)
		}
		if got := headers.Get(gateway.SessionHeader); got != session {
			t.Errorf("the conversation went on in session %s, and began in %s", got, session)
		}
		requests := s.script.Requests()
		if len(requests) != 2 {
			t.Fatalf("%d requests", len(requests))
		}
		if system := requests[1].Messages[0]; system.Role != "system" || !strings.Contains(system.Content, "You are Jeeves.") || !strings.Contains(system.Content, "Speak as a butler.") {
			t.Errorf("the model was told %+v", system)
		}
	})
}

// U3: tools of the client, called in parallel, make the round.
func TestChatTools(t *testing.T) {
	bothWays(t, func(t *testing.T, ask asker) {
		s := serve(t, withOracle)
		c := s.client()
		p := openai.ChatCompletionNewParams{
			Model: "scripted", Tools: []openai.ChatCompletionToolUnionParam{weather}, ParallelToolCalls: param.NewOpt(true),
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the weather in Oslo and in Rome?")},
		}
		first, err := ask(t.Context(), c, p)
		if err != nil {
			t.Fatal(err)
		}
		choice := first.Choices[0]
		calls := choice.Message.ToolCalls
		if choice.FinishReason != "tool_calls" || choice.Message.Content != "Let me look." || len(calls) != 2 {
			t.Fatalf("answer %s", choice.RawJSON())
		}
		p.Messages = append(p.Messages, choice.Message.ToParam())
		for i, city := range []string{"Oslo", "Rome"} {
			var arguments struct{ City string }
			if err := json.Unmarshal([]byte(calls[i].Function.Arguments), &arguments); err != nil || arguments.City != city || calls[i].Function.Name != "weather" || calls[i].Type != "function" {
				t.Errorf("call %+v, %v", calls[i], err)
			}
			p.Messages = append(p.Messages, openai.ToolMessage("Rain in "+city+".", calls[i].ID))
		}
		second, err := ask(t.Context(), c, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := second.Choices[0].Message.Content; got != "It rains, say 2 tools." {
			t.Errorf("answer %q", got)
		}
		requests := s.script.Requests()
		last := requests[len(requests)-1]
		for i, city := range []string{"Oslo", "Rome"} {
			m := last.Messages[len(last.Messages)-2+i]
			if m.Role != "tool" || !strings.Contains(m.Content, "Rain in "+city+".") {
				t.Errorf("the model was shown %+v as the result of %s", m, city)
			}
		}
	})
}

// Why an answer ended is told as it is.
func TestChatFinish(t *testing.T) {
	bothWays(t, func(t *testing.T, ask asker) {
		s := serve(t, withOracle)
		for says, want := range map[string]string{"Hello.": "stop", "Tell it at length.": "length", "Mind the filter.": "content_filter"} {
			got, err := ask(t.Context(), s.client(), openai.ChatCompletionNewParams{
				Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(says)},
			})
			if err != nil {
				t.Errorf("%s: %v", says, err)
			} else if got.Choices[0].FinishReason != want {
				t.Errorf("%s: it ended by %q, want %q", says, got.Choices[0].FinishReason, want)
			}
		}
	})
}

// U3: what the model's server refuses is the error that its client would see there.
func TestChatFaults(t *testing.T) {
	bothWays(t, func(t *testing.T, ask asker) {
		s := serve(t, withOracle)
		for says, want := range map[string]struct {
			status     int
			kind, code string
			after      string
		}{
			"Please slow down.":   {429, "rate_limit_error", "rate_limit_exceeded", "30"},
			"With a wrong key.":   {401, "invalid_request_error", "invalid_api_key", ""},
			"This is too long.":   {400, "invalid_request_error", "context_length_exceeded", ""},
			"Make a bad request.": {400, "invalid_request_error", "invalid_value", ""},
			"Are you overloaded?": {503, "server_error", "upstream_unavailable", "30"},
		} {
			_, err := ask(t.Context(), s.client(), openai.ChatCompletionNewParams{
				Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(says)},
			})
			failure, ok := errors.AsType[*openai.Error](err)
			if !ok {
				t.Errorf("%s: %v", says, err)
				continue
			}
			if failure.StatusCode != want.status || failure.Type != want.kind || failure.Code != want.code || failure.Response.Header.Get("Retry-After") != want.after {
				t.Errorf("%s: %v, type %q, code %q, after %q", says, err, failure.Type, failure.Code, failure.Response.Header.Get("Retry-After"))
			}
			if strings.Contains(failure.Message, "SECRET") || strings.Contains(failure.Message, "127.0.0.1") {
				t.Errorf("%s: %s tells what the model's server said, or where it is", says, failure.Message)
			}
			if want.status == 401 && !strings.Contains(failure.Message, "this server's configuration") {
				t.Errorf("%s: %s does not say whose key it is", says, failure.Message)
			}
			if want.code == "context_length_exceeded" && !strings.Contains(failure.Message, "the tools") {
				t.Errorf("%s: %s does not say what can be made shorter", says, failure.Message)
			}
		}
	})
}

// An answer that breaks off is an error in the stream, which the client sees.
func TestChatBreaksOff(t *testing.T) {
	s := serve(t, withOracle)
	c := s.client()
	stream := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
		Model: "jeeves", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Now break off.")},
	})
	defer stream.Close()
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Choices[0].Delta.Content)
	}
	if text.String() != "It began " || stream.Err() == nil || !strings.Contains(stream.Err().Error(), "unavailable") {
		t.Errorf("%q, then %v", &text, stream.Err())
	}
}
