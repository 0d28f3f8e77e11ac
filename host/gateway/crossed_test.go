package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	claude "github.com/anthropics/anthropic-sdk-go"
	claudeoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic/anthropictest"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// turn is what the model's server does with one request: it says something and calls
// tools, or answers a status.
type turn struct {
	text   string
	calls  []llm.ToolCall
	status int
}

// upstream is a model's server of one protocol or the other.
type upstream struct {
	config host.ModelConfig

	mu   sync.Mutex
	got  []string // guarded by mu
	into http.Handler
}

// start serves the model's protocol.
func (u *upstream) start(t *testing.T, provider, path, key string, into http.Handler) *upstream {
	u.into = into
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	t.Setenv("GATEWAY_TEST_KEY", key)
	u.config = host.ModelConfig{Provider: provider, Name: "scripted", BaseURL: server.URL + path, APIKey: "env:GATEWAY_TEST_KEY"}
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	u.mu.Lock()
	u.got = append(u.got, string(body))
	u.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	u.into.ServeHTTP(w, r)
}

// sent are the bodies that it got.
func (u *upstream) sent() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.got)
}

var upstreams = map[string]func(*testing.T, ...turn) *upstream{
	"openai": func(t *testing.T, turns ...turn) *upstream {
		var answers []openaitest.Answer
		for _, is := range turns {
			var calls []openaitest.ToolCall
			for _, c := range is.calls {
				calls = append(calls, openaitest.Call(c.ID, c.Name, string(c.Input)))
			}
			switch {
			case is.status == http.StatusTooManyRequests:
				answers = append(answers, openaitest.RateLimited("60"))
			case is.status != 0:
				answers = append(answers, openaitest.Fault(is.status, "", "", "SECRET WORDS"))
			case len(calls) > 0:
				answers = append(answers, openaitest.Calls(is.text, calls...))
			default:
				answers = append(answers, openaitest.Text(is.text))
			}
		}
		return new(upstream).start(t, "openai", "/v1", openaitest.Key, openaitest.NewScript(t, answers...))
	},
	"anthropic": func(t *testing.T, turns ...turn) *upstream {
		var answers []anthropictest.Answer
		for _, is := range turns {
			said := []anthropictest.Saying{}
			if is.text != "" {
				said = append(said, anthropictest.Words(is.text))
			}
			for _, c := range is.calls {
				said = append(said, anthropictest.Call(c.ID, c.Name, string(c.Input)))
			}
			switch {
			case is.status == http.StatusTooManyRequests:
				answers = append(answers, anthropictest.RateLimited("60"))
			case is.status != 0:
				answers = append(answers, anthropictest.Fault(is.status, "some_error", "SECRET WORDS"))
			case len(is.calls) > 0:
				answers = append(answers, anthropictest.Calls(said...))
			default:
				answers = append(answers, anthropictest.Finished("end_turn", said...))
			}
		}
		return new(upstream).start(t, "anthropic", "", anthropictest.Key, anthropictest.NewScript(t, answers...))
	},
}

// askingModel serves a gateway whose host asks that model.
func askingModel(t *testing.T, model host.ModelConfig) *system {
	t.Helper()
	no := false
	model.Tools = &no
	config := host.Config{Model: model, Agents: []host.AgentConfig{{Name: "jeeves", SystemPrompt: "You are Jeeves."}}}
	return inFrontOf(t, config, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// claude is Anthropic's client, which sends its token in x-api-key.
func (s *system) claude(token string) claude.Client {
	return claude.NewClient(claudeoption.WithBaseURL(s.url), claudeoption.WithAPIKey(token), claudeoption.WithMaxRetries(0))
}

func (s *system) openai(token string) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey(token), option.WithMaxRetries(0))
}

// sessions are the sessions of a user, with how many messages each has.
func (s *system) sessions(user memory.User) (all []int) {
	s.t.Helper()
	sessions, err := s.host.Store().Sessions(s.t.Context(), user.ID, memory.SessionQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, one := range sessions {
		all = append(all, one.Messages)
	}
	return all
}

// The picture that is shown, as it is sent.
var picture = base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n not much of a picture"))

// script is the conversation of the tests with clients: a picture, two calls at
// once, what came of them, a question more, and a server that is busy.
var script = []turn{
	{text: "I look.", calls: []llm.ToolCall{
		{ID: "call_1", Name: "weather", Input: json.RawMessage(`{"city":"Oslo"}`)}, {ID: "call_2", Name: "weather", Input: json.RawMessage(`{"city":"Rome"}`)},
	}},
	{text: "Rain in both."}, {text: "You are welcome."}, {status: http.StatusTooManyRequests},
}

// checkSent looks at what the model's server was sent in the course of script.
func checkSent(t *testing.T, s *system, model *upstream) {
	t.Helper()
	sent := model.sent()
	if len(sent) != len(script) {
		t.Fatalf("the model was asked %d times", len(sent))
	}
	for i, body := range sent {
		want := []string{picture, "Where does it rain?", "Tells the weather.", "You are Jeeves.", "Speak as a butler."}
		if i > 0 {
			want = append(want, "I look.", "call_1", "call_2", "Oslo: 9 degrees.", "Rome: 19 degrees.", "tool://weather")
		}
		if i > 1 {
			want = append(want, "Rain in both.", "Thank you.")
		}
		for _, text := range want {
			if strings.Count(body, text) == 0 {
				t.Errorf("request %d has no %q: %.2000s", i, text, body)
			}
		}
	}
	// What was said, one row each: the question, the calls, their two results, the
	// answer, the thanks, the answer, and what was not answered.
	if got := s.sessions(s.anna); len(got) != 1 || got[0] != 8 {
		t.Errorf("there are sessions of %v messages", got)
	}
}

// U3: a conversation with Anthropic's client, with pictures, tools and errors, on the
// servers of both providers, is one session.
func TestU3MessagesThroughHost(t *testing.T) {
	asks := map[string]func(context.Context, claude.Client, claude.MessageNewParams) (*claude.Message, error){
		"whole": func(ctx context.Context, c claude.Client, p claude.MessageNewParams) (*claude.Message, error) {
			return c.Messages.New(ctx, p)
		},
		"stream": func(ctx context.Context, c claude.Client, p claude.MessageNewParams) (*claude.Message, error) {
			stream := c.Messages.NewStreaming(ctx, p)
			defer stream.Close()
			var m claude.Message
			for stream.Next() {
				if err := m.Accumulate(stream.Current()); err != nil {
					return nil, err
				}
			}
			return &m, stream.Err()
		},
	}
	for name, open := range upstreams {
		for way, ask := range asks {
			t.Run(name+"/"+way, func(t *testing.T) {
				model := open(t, script...)
				s := askingModel(t, model.config)
				c := s.claude(s.byAnna)
				p := claude.MessageNewParams{
					Model: "jeeves", MaxTokens: 500, System: []claude.TextBlockParam{{Text: "Speak as a butler.", CacheControl: claude.NewCacheControlEphemeralParam()}},
					Messages: []claude.MessageParam{claude.NewUserMessage(claude.NewImageBlockBase64("image/png", picture), claude.NewTextBlock("Where does it rain?"))},
					Tools: []claude.ToolUnionParam{{OfTool: &claude.ToolParam{
						Name: "weather", Description: claude.String("Tells the weather."),
						InputSchema: claude.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]string{"type": "string"}}},
					}}},
				}
				m, err := ask(t.Context(), c, p)
				if err != nil {
					t.Fatal(err)
				}
				if m.StopReason != "tool_use" || len(m.Content) != 3 || m.Content[0].Text != "I look." {
					t.Fatalf("got %s", m.RawJSON())
				}
				if m.Usage.InputTokens != 11 || m.Usage.OutputTokens != 7 {
					t.Errorf("it cost %s", m.Usage.RawJSON())
				}
				p.Messages = append(p.Messages, m.ToParam())
				var results []claude.ContentBlockParamUnion
				for i, degrees := range []int{9, 19} {
					call := m.Content[i+1]
					var input struct{ City string }
					if err := json.Unmarshal(call.Input, &input); err != nil || call.Name != "weather" {
						t.Fatalf("the call is %s: %v", call.RawJSON(), err)
					}
					results = append(results, claude.NewToolResultBlock(call.ID, fmt.Sprintf("%s: %d degrees.", input.City, degrees), false))
				}
				p.Messages = append(p.Messages, claude.NewUserMessage(results...))
				if m, err = ask(t.Context(), c, p); err != nil || m.StopReason != "end_turn" || m.Content[0].Text != "Rain in both." {
					t.Fatalf("got %+v, %v", m, err)
				}
				p.Messages = append(p.Messages, m.ToParam(), claude.NewUserMessage(claude.NewTextBlock("Thank you.")))
				if m, err = ask(t.Context(), c, p); err != nil || m.Content[0].Text != "You are welcome." {
					t.Fatalf("got %+v, %v", m, err)
				}
				p.Messages = append(p.Messages, m.ToParam(), claude.NewUserMessage(claude.NewTextBlock("Still there?")))
				_, err = ask(t.Context(), c, p)
				refused, ok := errors.AsType[*claude.Error](err)
				if !ok || refused.StatusCode != http.StatusTooManyRequests || refused.Type() != "rate_limit_error" || refused.Response.Header.Get("Retry-After") != "60" || strings.Contains(err.Error(), "SECRET") {
					t.Errorf("got %v", err)
				}
				var body struct {
					RequestID string `json:"request_id"`
				}
				if ok && (json.Unmarshal([]byte(refused.RawJSON()), &body) != nil || body.RequestID == "" || body.RequestID != refused.RequestID) {
					t.Errorf("the request is %q in the head of %s", refused.RequestID, refused.RawJSON())
				}
				checkSent(t, s, model)
			})
		}
	}
}

// U3: the same with OpenAI's client and its responses, whose client sends all of the
// conversation, or what is new of it behind the response before.
func TestU3ResponsesThroughHost(t *testing.T) {
	asks := map[string]func(context.Context, openai.Client, responses.ResponseNewParams) (*responses.Response, error){
		"whole": func(ctx context.Context, c openai.Client, p responses.ResponseNewParams) (*responses.Response, error) {
			return c.Responses.New(ctx, p)
		},
		"stream": func(ctx context.Context, c openai.Client, p responses.ResponseNewParams) (*responses.Response, error) {
			stream := c.Responses.NewStreaming(ctx, p)
			defer stream.Close()
			var last responses.ResponseStreamEventUnion
			for stream.Next() {
				last = stream.Current()
			}
			return &last.Response, stream.Err()
		},
	}
	for name, open := range upstreams {
		for way, ask := range asks {
			for _, previous := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/previous=%v", name, way, previous), func(t *testing.T) {
					model := open(t, script...)
					s := askingModel(t, model.config)
					c := s.openai(s.byAnna)
					p := responses.ResponseNewParams{
						Model: "jeeves", Instructions: param.NewOpt("Speak as a butler."),
						Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
							Name: "weather", Description: param.NewOpt("Tells the weather."), Strict: param.NewOpt(true),
							Parameters: map[string]any{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}},
						}}},
					}
					var all responses.ResponseInputParam
					// say sends items behind the response before.
					say := func(before *responses.Response, items ...responses.ResponseInputItemUnionParam) (*responses.Response, error) {
						if before != nil {
							for _, item := range before.Output {
								all = append(all, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item.RawJSON())))
							}
						}
						all = append(all, items...)
						p.Input.OfInputItemList = all
						if previous && before != nil {
							p.Input.OfInputItemList, p.PreviousResponseID = items, param.NewOpt(before.ID)
						}
						return ask(t.Context(), c, p)
					}
					r, err := say(nil, responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
						{OfInputImage: &responses.ResponseInputImageParam{ImageURL: param.NewOpt("data:image/png;base64," + picture), Detail: "auto"}},
						responses.ResponseInputContentParamOfInputText("Where does it rain?"),
					}, "user"))
					if err != nil {
						t.Fatal(err)
					}
					if r.Status != "completed" || len(r.Output) != 3 || r.OutputText() != "I look." || r.Usage.InputTokens != 11 || r.Usage.OutputTokens != 7 {
						t.Fatalf("got %s", r.RawJSON())
					}
					var results []responses.ResponseInputItemUnionParam
					for i, degrees := range []int{9, 19} {
						call := r.Output[i+1].AsFunctionCall()
						var input struct{ City string }
						if err := json.Unmarshal([]byte(call.Arguments), &input); err != nil || call.Name != "weather" {
							t.Fatalf("the call is %s: %v", call.RawJSON(), err)
						}
						results = append(results, responses.ResponseInputItemUnionParam{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
							CallID: param.NewOpt(call.CallID), Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: param.NewOpt(fmt.Sprintf("%s: %d degrees.", input.City, degrees))},
						}})
					}
					if r, err = say(r, results...); err != nil || r.OutputText() != "Rain in both." {
						t.Fatalf("got %+v, %v", r, err)
					}
					if r, err = say(r, responses.ResponseInputItemParamOfMessage("Thank you.", "user")); err != nil || r.OutputText() != "You are welcome." {
						t.Fatalf("got %+v, %v", r, err)
					}
					stored, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
					if err != nil || stored.ID != r.ID || stored.OutputText() != "You are welcome." || stored.Output[0].ID != r.Output[0].ID || stored.Model != "jeeves" {
						t.Errorf("stored is %+v, %v", stored, err)
					}
					bert := s.openai(s.byBert)
					_, err = bert.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
					if refused, ok := errors.AsType[*openai.Error](err); !ok || refused.StatusCode != http.StatusNotFound {
						t.Errorf("bert gets %v", err)
					}
					_, err = say(r, responses.ResponseInputItemParamOfMessage("Still there?", "user"))
					refused, ok := errors.AsType[*openai.Error](err)
					if !ok || refused.StatusCode != http.StatusTooManyRequests || refused.Response.Header.Get("Retry-After") != "60" || strings.Contains(err.Error(), "SECRET") {
						t.Errorf("got %v", err)
					}
					checkSent(t, s, model)
				})
			}
		}
	}
}

// A schema is an object's however its JSON is written, and by no other keyword.
func TestSchemasOfObjects(t *testing.T) {
	for _, schema := range []string{`{"type":"obj\u0065ct"}`, `{"type":"object","Type":"array"}`} {
		model := upstreams["openai"](t, turn{text: "Well?"})
		s := askingModel(t, model.config)
		body := fmt.Sprintf(`{"model":"jeeves","tools":[{"type":"function","name":"weather","parameters":%s}],"input":"Good morning."}`, schema)
		if a := s.send("POST", "/v1/responses", body, "Authorization", "Bearer "+s.byAnna); a.status != http.StatusOK {
			t.Errorf("%s: %v", schema, a)
		}
	}
}

// A result that comes later than behind the response with its call is still that
// tool's; one of no call is refused, and nothing of it kept.
func TestU3ResponsesLateResults(t *testing.T) {
	calls := []llm.ToolCall{{ID: "call_1", Name: "weather", Input: json.RawMessage(`{"city":"Oslo"}`)}, {ID: "call_2", Name: "tides", Input: json.RawMessage(`{}`)}}
	model := upstreams["openai"](t, turn{text: "I look.", calls: calls}, turn{text: "Rain."}, turn{text: "Well?"}, turn{text: "High."})
	s := askingModel(t, model.config)
	const tools = `"tools":[{"type":"function","name":"weather","parameters":{"type":"object"}},{"type":"function","name":"tides","parameters":{"type":"object"}}]`
	ask := func(previous, input string) answer {
		return s.send("POST", "/v1/responses", fmt.Sprintf(`{"model":"jeeves",%s,"previous_response_id":%s,"input":%s}`, tools, previous, input), "Authorization", "Bearer "+s.byAnna)
	}
	previous := "null"
	output := func(call, text string) string {
		return fmt.Sprintf(`[{"type":"function_call_output","call_id":%q,"output":%q}]`, call, text)
	}
	for _, input := range []string{`"How is Oslo?"`, output("call_1", "Rain."), `"And the tides?"`, output("call_2", "High.")} {
		a := ask(previous, input)
		var r struct{ ID string }
		if a.into(t, &r); a.status != http.StatusOK {
			t.Fatalf("%s: %v", input, a)
		}
		previous = strconv.Quote(r.ID)
	}
	if sent := model.sent()[3]; !strings.Contains(sent, "from tool://tides") {
		t.Errorf("the model is not told whose the result is: %s", sent)
	}
	before := fmt.Sprint(s.sessions(s.anna))
	for _, call := range []string{"call_3", "weather"} {
		message, _, param, _ := ask(previous, output(call, "High.")).failed(t, http.StatusBadRequest)
		if param != "input[0].call_id" || !strings.Contains(message, strconv.Quote(call)) {
			t.Errorf("%s: %q at %s", call, message, param)
		}
	}
	if after := fmt.Sprint(s.sessions(s.anna)); after != before || len(model.sent()) != 4 {
		t.Errorf("sessions of %s messages became %s, the model was asked %d times", before, after, len(model.sent()))
	}
}

// U3: what goes on behind an answer twice forks; nobody goes on behind another
// user's, or behind one that there never was.
func TestU3ResponsesFork(t *testing.T) {
	model := upstreams["openai"](t, turn{text: "One."}, turn{text: "Two."}, turn{text: "Three."})
	s := askingModel(t, model.config)
	c := s.openai(s.byAnna)
	ask := func(c openai.Client, text, previous string) (*responses.Response, error) {
		p := responses.ResponseNewParams{Model: "jeeves", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)}}
		if previous != "" {
			p.PreviousResponseID = param.NewOpt(previous)
		}
		return c.Responses.New(t.Context(), p)
	}
	first, err := ask(c, "First.", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Second.", "Second, but otherwise."} {
		if _, err := ask(c, text, first.ID); err != nil {
			t.Fatal(err)
		}
	}
	sent := model.sent()
	if last := sent[len(sent)-1]; !strings.Contains(last, "One.") || strings.Contains(last, "Two.") {
		t.Errorf("the fork sees %s", last)
	}
	if got := fmt.Sprint(s.sessions(s.anna)); got != "[4 4]" {
		t.Errorf("there are sessions of %s messages", got)
	}
	other := first.ID[:len(first.ID)-1] + "x"
	if other == first.ID {
		other = first.ID[:len(first.ID)-1] + "y"
	}
	for name, ask := range map[string]func() (*responses.Response, error){
		"another user's": func() (*responses.Response, error) { return ask(s.openai(s.byBert), "Mine?", first.ID) },
		"none":           func() (*responses.Response, error) { return ask(c, "Mine?", other) },
		"no id":          func() (*responses.Response, error) { return ask(c, "Mine?", "resp_'; DROP TABLE messages; --") },
	} {
		_, err := ask()
		if refused, ok := errors.AsType[*openai.Error](err); !ok || refused.StatusCode != http.StatusNotFound || refused.Code != "previous_response_not_found" || refused.Param != "previous_response_id" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := s.sessions(s.bert); len(got) != 0 {
		t.Errorf("bert has sessions of %v messages", got)
	}
}

// checkTold compares what a script told, each as JSON.
func checkTold(t *testing.T, told map[string]json.RawMessage, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := string(told[name]); got != want[name] {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want[name])
		}
	}
	if len(told) != len(want) {
		t.Errorf("it tells %d things, want %d", len(told), len(want))
	}
}

// U3: Anthropic's JavaScript client talks, streams, calls tools in parallel, shows a
// picture, and knows the errors by their classes.
func TestMessagesByJavaScript(t *testing.T) {
	s := serve(t, withOracle)
	var told map[string]json.RawMessage
	s.run("messages.mjs", &told)
	want := map[string]string{
		"run tools": `"It rains, say 2 tools."`,
		"count":     `true`,
		"no model":  `{"error":"NotFoundError","status":404,"type":"not_found_error"}`,
		"left":      `"message_start"`,
	}
	for _, way := range []string{"whole", "stream"} {
		want[way+": talk"] = fmt.Sprintf(`{"text":"You said: Good morning.","stop":"end_turn","input_tokens":%d,"output_tokens":%d,"model":"jeeves"}`, openaitest.InputTokens, openaitest.OutputTokens)
		want[way+": tools"] = `{"stop":"tool_use","calls":["weather Oslo","weather Rome"],"text":"It rains, say 2 tools."}`
		want[way+": image"] = `"end_turn"`
		want[way+": Please slow down."] = `{"error":"RateLimitError","status":429,"type":"rate_limit_error"}`
		want[way+": This is too long."] = `{"error":"BadRequestError","status":400,"type":"invalid_request_error"}`
		want[way+": Are you overloaded?"] = `{"error":"ServiceUnavailableError","status":503,"type":"api_error"}`
	}
	checkTold(t, told, want)
}

// U3: the same with OpenAI's JavaScript client and its responses.
func TestResponsesByJavaScript(t *testing.T) {
	s := serve(t, withOracle)
	var told map[string]json.RawMessage
	s.run("responses.mjs", &told)
	want := map[string]string{
		"no response": `{"error":"NotFoundError","status":404,"code":"previous_response_not_found","param":"previous_response_id"}`,
		"left":        `"response.created"`,
	}
	for _, way := range []string{"whole", "stream"} {
		want[way+": talk"] = fmt.Sprintf(`{"text":"You said: Good morning.","status":"completed","total":%d,"model":"jeeves"}`, openaitest.InputTokens+openaitest.OutputTokens)
		want[way+": previous"] = `{"text":"You said: Good night.","stored":"You said: Good night.","previous":true}`
		want[way+": tools"] = `{"status":"completed","calls":["weather {\"city\":\"Oslo\"}","weather {\"city\":\"Rome\"}"],"whole":"It rains, say 2 tools.","behind":"It rains, say 2 tools."}`
		want[way+": image"] = `"completed"`
		want[way+": Please slow down."] = `{"error":"RateLimitError","status":429,"code":"rate_limit_exceeded"}`
		want[way+": This is too long."] = `{"error":"BadRequestError","status":400,"code":"context_length_exceeded"}`
		want[way+": Are you overloaded?"] = `{"error":"InternalServerError","status":503,"code":"upstream_unavailable"}`
	}
	checkTold(t, told, want)
}

// post sends a body as anna and returns the answer and its session.
func (s *system) post(path, body string) (answer, session string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", s.byAnna)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s %s %v", path, response.Status, got, err)
	}
	return string(got), response.Header.Get(gateway.SessionHeader)
}

// U3: a conversation is known again whichever API it comes by: each turn of this one
// is sent whole, by another API than the one before.
func TestU3OneConversationByThreeAPIs(t *testing.T) {
	calls := script[0].calls
	for name, open := range upstreams {
		t.Run(name, func(t *testing.T) {
			model := open(t, turn{text: "I look.", calls: calls}, turn{text: "Rain in both."}, turn{text: "You are welcome."}, turn{text: "Good night."})
			s := askingModel(t, model.config)
			const weather = `"description":"Tells the weather."`
			first, session := s.post("/v1/messages", `{"model":"jeeves","max_tokens":50,"tools":[{"name":"weather",`+weather+`,"input_schema":{"type":"object"}}],
				"messages":[{"role":"user","content":"Where does it rain?"}]}`)
			if !strings.Contains(first, `"call_1"`) {
				t.Fatal(first)
			}
			second, again := s.post("/v1/responses", `{"model":"jeeves","tools":[{"type":"function","name":"weather",`+weather+`,"parameters":{"type":"object"}}],"input":[
				{"role":"user","content":[{"type":"input_text","text":"Where does it rain?"}]},{"role":"assistant","content":[{"type":"output_text","text":"I look."}]},
				{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{ \"city\": \"Oslo\" }"},{"type":"function_call","call_id":"call_2","name":"weather","arguments":"{\"city\":\"Rome\"}"},
				{"type":"function_call_output","call_id":"call_1","output":"Rain."},{"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"Rain."}]}]}`)
			if again != session || !strings.Contains(second, "Rain in both.") {
				t.Fatalf("in session %s, not %s: %s", again, session, second)
			}
			third, again := s.post("/v1/chat/completions", `{"model":"jeeves","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Where does it rain?"},
				{"role":"assistant","content":"I look.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}},{"id":"call_2","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]},
				{"role":"tool","tool_call_id":"call_1","content":"Rain."},{"role":"tool","tool_call_id":"call_2","content":"Rain."},{"role":"assistant","content":"Rain in both."},{"role":"user","content":"Thank you."}]}`)
			if again != session || !strings.Contains(third, "You are welcome.") {
				t.Fatalf("in session %s, not %s: %s", again, session, third)
			}
			fourth, again := s.post("/v1/messages", `{"model":"jeeves","max_tokens":50,"messages":[{"role":"user","content":"Where does it rain?"},
				{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Oslo"}},{"type":"tool_use","id":"call_2","name":"weather","input":{"city":"Rome"}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"Rain."},{"type":"tool_result","tool_use_id":"call_2","content":"Rain."}]},
				{"role":"assistant","content":"Rain in both."},{"role":"user","content":"Thank you."},{"role":"assistant","content":"You are welcome."},{"role":"user","content":"Good night."}]}`)
			if again != session || !strings.Contains(fourth, "Good night.") {
				t.Fatalf("in session %s, not %s: %s", again, session, fourth)
			}
			if got := fmt.Sprint(s.sessions(s.anna)); got != "[9]" {
				t.Errorf("there are sessions of %s messages", got)
			}
		})
	}
}
