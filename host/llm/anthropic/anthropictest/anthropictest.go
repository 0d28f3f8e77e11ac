// Package anthropictest is a server that speaks the Messages protocol, for tests:
// it holds what it is sent against the protocol's rules, keeps it, and answers by
// a script, faults included.
package anthropictest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
)

// Key is the API key that a Script expects in x-api-key.
const Key = "sk-ant-test-0123456789abcdef"

// Version is the anthropic-version that a Script expects.
const Version = "2023-06-01"

// Request is what the server was sent. What is absent is zero or nil.
type Request struct {
	Model       string      `json:"model"`
	MaxTokens   *int        `json:"max_tokens"`
	System      []Block     `json:"system"`
	Messages    []Message   `json:"messages"`
	Tools       []Tool      `json:"tools"`
	ToolChoice  *ToolChoice `json:"tool_choice"`
	Temperature *float64    `json:"temperature"`
	TopP        *float64    `json:"top_p"`
	// StopSequences are texts before which the answer is to end.
	StopSequences []string      `json:"stop_sequences"`
	OutputConfig  *OutputConfig `json:"output_config"`
	Stream        bool          `json:"stream"`
	// Body is all of it as it came, Header the request's.
	Body   []byte      `json:"-"`
	Header http.Header `json:"-"`

	// bind ties a thought of the answer to this request.
	bind func(signature string)
}

// Message is one message of a request.
type Message struct {
	Role    string  `json:"role"`
	Content []Block `json:"content"`
}

// Tool is one that the model may call.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *CacheControl   `json:"cache_control"`
}

// ToolChoice says which tools the model may call: of Type auto any, of any at least
// one, of tool the one with the Name, of none none.
type ToolChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name"`
	DisableParallelToolUse bool   `json:"disable_parallel_tool_use"`
}

// OutputConfig holds the form of an answer, if its Format has a Type, and how much
// effort the model is to make.
type OutputConfig struct {
	Effort string `json:"effort"`
	Format struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
}

// CacheControl is a breakpoint.
type CacheControl struct {
	Type string `json:"type"`
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
	bound := bindings{before: map[string]string{}}
	return remotetest.NewScript(t, bound.read, answers...)
}

// Server is a Script on a loopback port. Its BaseURL has no version path.
type Server = remotetest.Server[Request]

// NewServer starts a server that answers by a script, and stops it when t ends.
func NewServer(t testing.TB, answers ...Answer) *Server {
	return remotetest.NewServer(t, NewScript(t, answers...), "")
}

// bindings are the thoughts that were answered, by signature, each with what stood
// before it.
type bindings struct {
	mu     sync.Mutex
	before map[string]string
}

// read takes a request apart and returns what is wrong with it.
func (b *bindings) read(r *http.Request) (Request, error) {
	sent, err := read(r)
	if err != nil {
		return sent, err
	}
	sent.bind = func(signature string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.before[signature] = sent.before(len(sent.Messages))
	}
	return sent, b.check(sent)
}

// check refuses a thought of this script behind anything else than what it was
// thought about: newer models do.
func (b *bindings) check(sent Request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range sent.Messages {
		for _, part := range m.Content {
			if before, ok := b.before[part.Signature+part.Data]; ok && before != sent.before(i) {
				return fmt.Errorf("message %d: what stands before the thought %q has changed", i, part.Thinking+part.Data)
			}
		}
	}
	return nil
}

// before is what stands before message n, breakpoints aside.
func (r Request) before(n int) string {
	var b strings.Builder
	for _, block := range r.System {
		b.WriteString(block.plain())
	}
	for _, t := range r.Tools {
		fmt.Fprintf(&b, "\n%s %s %s", t.Name, t.Description, t.InputSchema)
	}
	for _, m := range r.Messages[:n] {
		b.WriteString("\n" + m.Role)
		for _, block := range m.Content {
			b.WriteString(" " + block.plain())
		}
	}
	return b.String()
}
