// Package openaitest is a server that speaks the Chat Completions protocol, for
// tests: it checks what it is sent, keeps it, and answers by a script, faults
// included.
package openaitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
)

// Key is the API key that a Script expects as a bearer token.
const Key = "sk-test-0123456789abcdef"

// Message is one message of a request or an answer.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// ToolCalls are the assistant's; ToolCallID says which of them a message of
	// role "tool" answers.
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
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

// Request is what the server was sent. What is absent is zero or nil.
type Request struct {
	Model               string    `json:"model"`
	Messages            []Message `json:"messages"`
	Tools               []Tool    `json:"tools"`
	ToolChoice          string    `json:"tool_choice"`
	MaxTokens           *int      `json:"max_tokens"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	Temperature         *float64  `json:"temperature"`
	Stream              bool      `json:"stream"`
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
	if err := sent.checkFormat(); err != nil {
		return sent, err
	}
	if err := checkTools(sent.Tools); err != nil {
		return sent, err
	}
	return sent, check(sent.Messages)
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
		if strings.TrimSpace(m.Content) == "" && (m.Content != "" || len(m.ToolCalls) == 0) {
			return fmt.Errorf("message %d is empty", i)
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

// InputTokens and OutputTokens are what every answer says that it cost.
const (
	InputTokens  = 11
	OutputTokens = 7
)

// Text answers text, whole.
func Text(text string) Answer { return Finished(text, "stop") }

// Cut answers text that the output limit cut off.
func Cut(text string) Answer { return Finished(text, "length") }

// Finished answers text with a finish_reason.
func Finished(text, reason string) Answer {
	return finished(Message{Role: "assistant", Content: text}, reason, nil)
}

// Cached answers text, and that so many of InputTokens were kept from an earlier
// request.
func Cached(text string, tokens int) Answer {
	return finished(Message{Role: "assistant", Content: text}, "stop", &tokens)
}

// Calls answers with tool calls, and with text before them if it is not "".
func Calls(text string, calls ...ToolCall) Answer {
	return finished(Message{Role: "assistant", Content: text, ToolCalls: calls}, "tool_calls", nil)
}

// finished answers whole or, to a request for a stream, in pieces.
func finished(m Message, reason string, cached *int) Answer {
	return func(w http.ResponseWriter, r *http.Request, sent Request) {
		if sent.Stream {
			steps := []Step{Piece(m.Content), Deltas(m.ToolCalls...), Finish(reason)}
			if sent.StreamOptions != nil && sent.StreamOptions.IncludeUsage {
				steps = append(steps, Usage(cached))
			}
			Stream(append(steps, Done())...)(w, r, sent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": sent.Model,
			"choices": []any{map[string]any{"index": 0, "finish_reason": reason, "message": m}},
			"usage":   cost(cached),
		})
	}
}

func cost(cached *int) map[string]any {
	usage := map[string]any{"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens}
	if cached != nil {
		usage["prompt_tokens_details"] = map[string]any{"cached_tokens": *cached}
	}
	return usage
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
