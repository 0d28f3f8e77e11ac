// Package openaitest is a server that speaks the Chat Completions protocol, for
// tests: it checks what it is sent, keeps it, and answers by a script, faults
// included.
package openaitest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
)

// Key is the API key that a Script expects as a bearer token.
const Key = "sk-test-0123456789abcdef"

// Message is one message of a request or an answer.
type Message struct {
	Role string `json:"role"`
	// Content is the text, of all Parts together.
	Content string `json:"content"`
	// ToolCalls are the assistant's; ToolCallID says which of them a message of
	// role "tool" answers.
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	// Refusal is an answer's.
	Refusal string `json:"refusal,omitempty"`
	// Parts are the content of a request's message if it is not a text alone.
	Parts []Part `json:"-"`
}

// Part is a text or, of the user, a picture.
type Part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text"`
	ImageURL *ImageURL `json:"image_url"`
}

// ImageURL says where a picture is; a data: URL is the picture itself.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail"`
}

// UnmarshalJSON reads a message whose content is a text, or parts. A field that a
// message does not have is an error.
func (m *Message) UnmarshalJSON(data []byte) error {
	type plain Message
	sent := struct {
		*plain
		Content json.RawMessage `json:"content"`
	}{plain: (*plain)(m)}
	if err := strictly(data, &sent); err != nil {
		return err
	}
	if len(sent.Content) == 0 || sent.Content[0] != '[' {
		return json.Unmarshal([]byte(cmp.Or(string(sent.Content), "null")), &m.Content)
	}
	if err := strictly(sent.Content, &m.Parts); err != nil {
		return err
	}
	for _, p := range m.Parts {
		m.Content += p.Text
	}
	return nil
}

// strictly is json.Unmarshal, but that an unknown field is an error.
func strictly(data []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v)
}

// Images returns the pictures of a message as a driver is given them: At is where
// each stands in Content.
func (m Message) Images() []llm.Image {
	var all []llm.Image
	at := 0
	for _, p := range m.Parts {
		at += len(p.Text)
		if p.ImageURL == nil {
			continue
		}
		image := llm.Image{At: at, URL: p.ImageURL.URL}
		if kind, data, ok := dataURL(p.ImageURL.URL); ok {
			image.MediaType, image.Data, image.URL = kind, data, ""
		}
		all = append(all, image)
	}
	return all
}

// dataURL takes a data: URL apart.
func dataURL(url string) (kind string, data []byte, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	kind, encoded, based := strings.Cut(rest, ";base64,")
	data, err := base64.StdEncoding.DecodeString(encoded)
	return kind, data, ok && based && err == nil
}

// ToolCall is one call of a function.
type ToolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is what a call names, or what may be called.
type Function struct {
	Name string `json:"name"`
	// Arguments of a call: JSON, if the model is in order.
	Arguments string `json:"arguments,omitempty"`
	// Description and Parameters are those of a Tool.
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters,omitempty"`
}

// Call is a call of the function name.
func Call(id, name, arguments string) ToolCall {
	return ToolCall{ID: id, Type: "function", Function: Function{Name: name, Arguments: arguments}}
}

// Tool is one function that the model may call.
type Tool struct {
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// ToolChoice is "none", "auto" or "required", or "function " and the name of the one
// that is to be called.
type ToolChoice string

// UnmarshalJSON reads a word, or an object that names a function.
func (c *ToolChoice) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, (*string)(c))
	}
	var named Tool
	if err := strictly(data, &named); err != nil {
		return err
	}
	*c = ToolChoice(named.Type + " " + named.Function.Name)
	return nil
}

// Request is what the server was sent. What is absent is zero or nil.
type Request struct {
	Model               string     `json:"model"`
	Messages            []Message  `json:"messages"`
	Tools               []Tool     `json:"tools"`
	ToolChoice          ToolChoice `json:"tool_choice"`
	ParallelToolCalls   *bool      `json:"parallel_tool_calls"`
	MaxTokens           *int       `json:"max_tokens"`
	MaxCompletionTokens *int       `json:"max_completion_tokens"`
	Temperature         *float64   `json:"temperature"`
	TopP                *float64   `json:"top_p"`
	Stop                []string   `json:"stop"`
	ReasoningEffort     string     `json:"reasoning_effort"`
	Stream              bool       `json:"stream"`
	// StreamOptions only with Stream.
	StreamOptions  *StreamOptions  `json:"stream_options"`
	ResponseFormat *ResponseFormat `json:"response_format"`
	// Header is the request's, and From the client's address, which is that of its
	// connection.
	Header http.Header `json:"-"`
	From   string      `json:"-"`
}

// StreamOptions says whether a stream ends with what it cost.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// ResponseFormat is of type "json_schema", with a JSONSchema, or "json_object".
type ResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema"`
}

// JSONSchema is the form of an answer.
type JSONSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict bool            `json:"strict"`
}

// Answer is one step of a script. It runs on the server's goroutine; the HTTP
// request's context is done when the client has gone.
type Answer = remotetest.Answer[Request]

// Script is the server without a network: an http.Handler and an http.RoundTripper,
// safe for concurrent use. Otherwise sets what it answers when it has ended;
// Requests and Times say what came, and when.
type Script = remotetest.Script[Request]

// NewScript returns a script that gives one answer after the other. A request
// outside the protocol, and one too many, fail t.
func NewScript(t testing.TB, answers ...Answer) *Script {
	return remotetest.NewScript(t, read, answers...)
}

// Server is a Script on a loopback port. Its BaseURL ends in /v1.
type Server = remotetest.Server[Request]

// NewServer starts a server that answers by a script, and stops it when t ends.
func NewServer(t testing.TB, answers ...Answer) *Server {
	return remotetest.NewServer(t, NewScript(t, answers...), "/v1")
}

// maxRequestBytes is more than any test sends.
const maxRequestBytes = 64 << 20

// read takes a request apart and returns what is wrong with it.
func read(r *http.Request) (Request, error) {
	sent := Request{Header: r.Header.Clone(), From: r.RemoteAddr}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" || r.URL.RawQuery != "" {
		return sent, fmt.Errorf("%s %s", r.Method, r.URL.RequestURI())
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+Key {
		return sent, fmt.Errorf("authorization %q", got)
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		return sent, fmt.Errorf("content type %q", got)
	}
	// A field that Request does not list is a mistake, or Request is too short.
	decoder := json.NewDecoder(io.LimitReader(r.Body, maxRequestBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&sent); err != nil {
		return sent, fmt.Errorf("body: %w", err)
	}
	if sent.Model == "" {
		return sent, fmt.Errorf("no model")
	}
	if sent.MaxTokens != nil && sent.MaxCompletionTokens != nil {
		return sent, fmt.Errorf("two names for one limit")
	}
	if sent.StreamOptions != nil && !sent.Stream {
		return sent, fmt.Errorf("options of a stream, and no stream")
	}
	for _, err := range []error{sent.checkFormat(), checkTools(sent.Tools), sent.checkAsked(), check(sent.Messages)} {
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// checkAsked holds how the model is asked against OpenAI's rules.
func (r Request) checkAsked() error {
	name, named := strings.CutPrefix(string(r.ToolChoice), "function ")
	switch c := r.ToolChoice; {
	case c == "" && r.ParallelToolCalls == nil:
	case len(r.Tools) == 0:
		return fmt.Errorf("tool_choice %q or parallel_tool_calls without tools", c)
	case named && !slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Function.Name == name }):
		return fmt.Errorf("tool_choice is %q, which is no tool", name)
	case !named && !slices.Contains([]ToolChoice{"", "none", "auto", "required"}, c):
		return fmt.Errorf("tool_choice %q", c)
	}
	if t := r.Temperature; t != nil && (*t < 0 || *t > 2) {
		return fmt.Errorf("a temperature of %v", *t)
	}
	if p := r.TopP; p != nil && (*p < 0 || *p > 1) {
		return fmt.Errorf("a top_p of %v", *p)
	}
	if len(r.Stop) > 4 || slices.Contains(r.Stop, "") {
		return fmt.Errorf("the stops %q", r.Stop)
	}
	if !slices.Contains([]string{"", "none", "minimal", "low", "medium", "high", "xhigh", "max"}, r.ReasoningEffort) {
		return fmt.Errorf("a reasoning_effort of %q", r.ReasoningEffort)
	}
	return nil
}

// checkParts holds the parts of a message against OpenAI's rules.
func checkParts(m Message) error {
	for i, p := range m.Parts {
		switch {
		case p.Type == "text" && strings.TrimSpace(p.Text) != "" && p.ImageURL == nil:
		case p.Type == "image_url" && p.Text == "" && p.ImageURL != nil && m.Role == "user":
			kind, data, ok := dataURL(p.ImageURL.URL)
			image := llm.Image{URL: p.ImageURL.URL}
			if ok {
				image = llm.Image{MediaType: kind, Data: data}
			}
			if !llm.ValidImage(image) {
				return fmt.Errorf("the picture in part %d is neither data nor an address", i)
			}
		default:
			return fmt.Errorf("part %d is of type %q and text %q", i, p.Type, p.Text)
		}
	}
	return nil
}

// checkFormat holds the form of an answer against OpenAI's rules.
func (r Request) checkFormat() error {
	switch f := r.ResponseFormat; {
	case f == nil:
	case f.Type == "json_schema" && f.JSONSchema != nil:
		if s := f.JSONSchema; !isName(s.Name) || !s.Strict || !isObject(string(s.Schema)) {
			return fmt.Errorf("the schema %q, strict %t: %s", s.Name, s.Strict, s.Schema)
		}
	case f.Type == "json_object" && f.JSONSchema == nil:
		if !slices.ContainsFunc(r.Messages, func(m Message) bool { return strings.Contains(m.Content, "JSON") }) {
			return fmt.Errorf("a JSON object of messages that do not contain the word JSON")
		}
	default:
		return fmt.Errorf("a response format of type %q", f.Type)
	}
	return nil
}

func checkTools(tools []Tool) error {
	seen := map[string]bool{}
	for i, t := range tools {
		if name := t.Function.Name; t.Type != "function" || !isName(name) || seen[name] {
			return fmt.Errorf("tool %d is of type %q and name %q", i, t.Type, name)
		}
		if p := t.Function.Parameters; p != nil && p["type"] != "object" {
			return fmt.Errorf("the parameters of tool %q are not a schema of an object", t.Function.Name)
		}
		seen[t.Function.Name] = true
	}
	return nil
}

func isName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// check holds messages against the rules that providers have in common: a
// system message at most first, then the user and the assistant in turns, the
// user first and last, and none of them empty. After an assistant's message with
// tool calls come the tools' results in the user's turn, exactly one for each
// call, before anything else of it; a result stands nowhere else.
func check(messages []Message) error {
	if len(messages) > 0 && messages[0].Role == "system" {
		if strings.TrimSpace(messages[0].Content) == "" {
			return fmt.Errorf("an empty system message")
		}
		messages = messages[1:]
	}
	turn := []string{"user"}
	waiting, seen := map[string]bool{}, map[string]bool{}
	for i, m := range messages {
		if m.Role == "tool" {
			if !waiting[m.ToolCallID] {
				return fmt.Errorf("message %d answers %q, which is no open call", i, m.ToolCallID)
			}
			delete(waiting, m.ToolCallID)
			turn = []string{"user", "assistant"}
		} else if len(waiting) > 0 {
			return fmt.Errorf("message %d follows %d calls without a result", i, len(waiting))
		} else if !slices.Contains(turn, m.Role) {
			return fmt.Errorf("message %d is of role %q, not of %q", i, m.Role, turn)
		}
		if strings.TrimSpace(m.Content) == "" && (m.Content != "" || len(m.ToolCalls) == 0) && len(m.Parts) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		if err := checkParts(m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m.Role != "assistant" && len(m.ToolCalls) > 0 || m.Role != "tool" && m.ToolCallID != "" {
			return fmt.Errorf("message %d of role %q has calls, or an id of one", i, m.Role)
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || len(c.ID) > maxID || seen[c.ID] || c.Type != "function" || !isName(c.Function.Name) || !isObject(c.Function.Arguments) {
				return fmt.Errorf("message %d makes the call %+v", i, c)
			}
			waiting[c.ID], seen[c.ID] = true, true
		}
		switch m.Role {
		case "user":
			turn = []string{"assistant"}
		case "assistant":
			turn = []string{"user"}
		}
	}
	if len(waiting) > 0 {
		return fmt.Errorf("%d calls without a result", len(waiting))
	}
	if len(messages) == 0 || messages[len(messages)-1].Role == "assistant" {
		return fmt.Errorf("%d messages: the last is not the user's", len(messages))
	}
	return nil
}

// maxID is the most bytes of a call's id that OpenAI takes.
const maxID = 40

func isObject(arguments string) bool {
	var object map[string]any
	return json.Unmarshal([]byte(arguments), &object) == nil && object != nil
}

// InputTokens and OutputTokens are what every answer says that it cost, unless it is
// told otherwise.
const (
	InputTokens  = 11
	OutputTokens = 7
)

// Reply is an answer in all that it may be. Its Answer is whole or, to a request for a
// stream, in pieces.
type Reply struct {
	// Text is what the model says, Refusal that it would rather not.
	Text, Refusal string
	// Calls come after Text, in parallel.
	Calls []ToolCall
	// Reason is the finish_reason; "" means the one that there is without a fault:
	// "tool_calls" with Calls, else "stop".
	Reason string
	// Cost is what it says that it cost; nil means InputTokens and OutputTokens, and
	// no details.
	Cost *Cost
}

// Cost is what an answer says that it cost. Input has Cached and Written in it, Output
// has Thoughts.
type Cost struct{ Input, Cached, Written, Output, Thoughts int }

// Text answers text, whole.
func Text(text string) Answer { return Reply{Text: text}.Answer() }

// Cut answers text that the output limit cut off.
func Cut(text string) Answer { return Finished(text, "length") }

// Finished answers text with a finish_reason.
func Finished(text, reason string) Answer { return Reply{Text: text, Reason: reason}.Answer() }

// Cached answers text, and that so many of InputTokens were kept from an earlier
// request.
func Cached(text string, tokens int) Answer {
	return Reply{Text: text, Cost: &Cost{Input: InputTokens, Cached: tokens, Output: OutputTokens}}.Answer()
}

// Calls answers with tool calls, and with text before them if it is not "".
func Calls(text string, calls ...ToolCall) Answer { return Reply{Text: text, Calls: calls}.Answer() }

// Answer answers a request.
func (a Reply) Answer() Answer {
	if a.Reason == "" {
		if a.Reason = "stop"; len(a.Calls) > 0 {
			a.Reason = "tool_calls"
		}
	}
	return func(w http.ResponseWriter, r *http.Request, sent Request) {
		if sent.Stream {
			steps := []Step{Piece(a.Text), Deltas(a.Calls...), Finish(a.Reason)}
			if a.Refusal != "" {
				steps[0] = Delta(map[string]any{"content": a.Text, "refusal": a.Refusal})
			}
			if sent.StreamOptions != nil && sent.StreamOptions.IncludeUsage {
				steps = append(steps, Spent(a.Cost))
			}
			Stream(append(steps, Done())...)(w, r, sent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": sent.Model,
			"choices": []any{map[string]any{
				"index": 0, "finish_reason": a.Reason,
				"message": Message{Role: "assistant", Content: a.Text, ToolCalls: a.Calls, Refusal: a.Refusal},
			}},
			"usage": a.Cost.fields(),
		})
	}
}

func (c *Cost) fields() map[string]any {
	if c == nil {
		return map[string]any{"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens}
	}
	return map[string]any{
		"prompt_tokens": c.Input, "completion_tokens": c.Output, "total_tokens": c.Input + c.Output,
		"prompt_tokens_details":     map[string]any{"cached_tokens": c.Cached, "cache_write_tokens": c.Written},
		"completion_tokens_details": map[string]any{"reasoning_tokens": c.Thoughts},
	}
}

// Paced streams pieces, each when next gives a value; all that are left once it is
// closed. A request that is not for a stream is answered when all have been given.
func Paced(next <-chan struct{}, pieces ...string) Answer {
	return func(w http.ResponseWriter, r *http.Request, sent Request) {
		wait := func(gone context.Context) {
			select {
			case <-next:
			case <-gone.Done():
			}
		}
		if !sent.Stream {
			for range pieces {
				wait(r.Context())
			}
			Text(strings.Join(pieces, ""))(w, r, sent)
			return
		}
		var steps []Step
		for _, piece := range pieces {
			steps = append(steps, Pause(wait), Piece(piece))
		}
		steps = append(steps, Finish("stop"))
		if sent.StreamOptions != nil && sent.StreamOptions.IncludeUsage {
			steps = append(steps, Spent(nil))
		}
		Stream(append(steps, Done())...)(w, r, sent)
	}
}

// Body answers status 200 with a body, whatever it is.
func Body(body string) Answer { return Status(http.StatusOK, body) }

// Status answers a status with a body. Headers follow as names and values.
func Status(code int, body string, headers ...string) Answer {
	return remotetest.Status[Request](code, body, headers...)
}

// Fault answers an error as OpenAI writes it: param is null if it is "".
func Fault(status int, code, param, message string) Answer {
	detail := map[string]any{"message": message, "type": "invalid_request_error", "code": code, "param": nil}
	if param != "" {
		detail["param"] = param
	}
	body, err := json.Marshal(map[string]any{"error": detail})
	if err != nil {
		panic("openaitest: " + err.Error()) // strings are always JSON
	}
	return Status(status, string(body))
}

// RateLimited answers 429 and after how long to come back, in the form of the
// Retry-After header.
func RateLimited(retryAfter string) Answer {
	return Status(http.StatusTooManyRequests, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, "Retry-After", retryAfter)
}

// Overloaded answers 503 as OpenAI does when it has too much to do, and after how
// long to come back, if that is not "".
func Overloaded(retryAfter string) Answer {
	body := `{"error":{"message":"too busy","type":"server_error","code":"server_overloaded"}}`
	if retryAfter == "" {
		return Status(http.StatusServiceUnavailable, body)
	}
	return Status(http.StatusServiceUnavailable, body, "Retry-After", retryAfter)
}

// BrokenOff begins an answer, whole, and closes the connection in the middle of it.
func BrokenOff() Answer {
	return remotetest.BrokenOff[Request](`{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assis`)
}

// Disconnected closes the connection without a word.
func Disconnected() Answer { return remotetest.Disconnected[Request]() }

// Stalled closes entered, if it is not nil, when the request is there, and sends
// the first byte of then only after release is closed, or nothing if the client
// goes first; a nil release is never closed.
func Stalled(entered chan<- struct{}, release <-chan struct{}, then Answer) Answer {
	return remotetest.Stalled(entered, release, then)
}

// Endless is a text, whole, that never ends.
func Endless() Answer {
	return remotetest.Endless[Request](`{"choices":[{"message":{"content":"`, strings.Repeat("a", 1<<16))
}
