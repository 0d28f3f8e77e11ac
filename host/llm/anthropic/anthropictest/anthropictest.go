// Package anthropictest is a server that speaks the Messages protocol, for tests:
// it holds what it is sent against the protocol's rules, keeps it, and answers by
// a script, faults included.
package anthropictest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Key is the API key that a Script expects in x-api-key.
const Key = "sk-ant-test-0123456789abcdef"

// Version is the anthropic-version that a Script expects.
const Version = "2023-06-01"

// Request is what the server was sent. What is absent is zero or nil.
type Request struct {
	Model        string        `json:"model"`
	MaxTokens    *int          `json:"max_tokens"`
	System       []Block       `json:"system"`
	Messages     []Message     `json:"messages"`
	Tools        []Tool        `json:"tools"`
	ToolChoice   *ToolChoice   `json:"tool_choice"`
	Temperature  *float64      `json:"temperature"`
	OutputConfig *OutputConfig `json:"output_config"`
	Stream       bool          `json:"stream"`
	// Body is all of it as it came, Header the request's, At when it came.
	Body   []byte      `json:"-"`
	Header http.Header `json:"-"`
	At     time.Time   `json:"-"`

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

// ToolChoice says which tools the model may call.
type ToolChoice struct {
	Type string `json:"type"`
}

// OutputConfig holds the form of an answer.
type OutputConfig struct {
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
type Answer func(w http.ResponseWriter, r *http.Request, sent Request)

// Script is the server without a network: it is an http.Handler, and an
// http.RoundTripper for a client that is to reach it without one, as under
// testing/synctest. It is safe for concurrent use.
type Script struct {
	t testing.TB

	mu        sync.Mutex
	answers   []Answer
	otherwise Answer
	requests  []Request
	// bound are the thoughts that were answered, by signature, each with what
	// stood before it.
	bound map[string]string
}

// NewScript returns a script that gives one answer after the other. A request
// outside the protocol, and one too many, fail t.
func NewScript(t testing.TB, answers ...Answer) *Script {
	return &Script{t: t, answers: answers, bound: map[string]string{}}
}

// Otherwise sets the answer to the requests that come when the script has
// ended, and returns s.
func (s *Script) Otherwise(a Answer) *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherwise = a
	return s
}

// Requests returns what came so far, in the order in which it came.
func (s *Script) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// ServeHTTP checks, keeps and answers one request.
func (s *Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sent, err := read(r)
	if err == nil {
		err = s.checkBound(sent)
	}
	if err != nil {
		s.t.Errorf("anthropictest: a request outside the protocol: %v", err)
		http.Error(w, "outside the protocol", http.StatusBadRequest)
		return
	}
	sent.bind = func(signature string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bound[signature] = sent.before(len(sent.Messages))
	}
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, sent)
	answer := s.otherwise
	if n < len(s.answers) {
		answer = s.answers[n]
	}
	s.mu.Unlock()
	if answer == nil {
		s.t.Errorf("anthropictest: request %d of a script of %d answers", n+1, len(s.answers))
		http.Error(w, "the script has ended", http.StatusBadRequest)
		return
	}
	answer(w, r, sent)
}

// checkBound refuses a thought of this script behind anything else than what it
// was thought about: newer models do.
func (s *Script) checkBound(sent Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range sent.Messages {
		for _, b := range m.Content {
			if before, ok := s.bound[b.Signature+b.Data]; ok && before != sent.before(i) {
				return fmt.Errorf("message %d: what stands before the thought %q has changed", i, b.Thinking+b.Data)
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

// RoundTrip serves one request without a network. An Answer that panics with
// http.ErrAbortHandler is a connection that breaks.
func (s *Script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, writer := io.Pipe()
	w := &pipeWriter{header: http.Header{}, pipe: writer, begun: make(chan *http.Response, 1), body: body}
	ctx := r.Context()
	broken := make(chan struct{})
	go func() {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				writer.CloseWithError(io.ErrUnexpectedEOF)
				close(broken)
			} else if p != nil {
				panic(p)
			}
		}()
		s.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		writer.Close()
	}()
	stop := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			writer.CloseWithError(ctx.Err())
		case <-stop:
		}
	}()
	w.closed = sync.OnceFunc(func() { close(stop) })
	select {
	case response := <-w.begun:
		return response, nil
	case <-broken:
		select {
		case response := <-w.begun:
			return response, nil
		default:
			w.closed()
			return nil, io.ErrUnexpectedEOF
		}
	case <-ctx.Done():
		w.closed()
		return nil, ctx.Err()
	}
}

// pipeWriter is a response whose body goes through a pipe.
type pipeWriter struct {
	header http.Header
	pipe   *io.PipeWriter
	body   *io.PipeReader
	begun  chan *http.Response
	once   sync.Once
	closed func()
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.begun <- &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header.Clone(), Body: w, ContentLength: -1}
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(p)
}

func (w *pipeWriter) Flush() {}

func (w *pipeWriter) Read(p []byte) (int, error) { return w.body.Read(p) }

func (w *pipeWriter) Close() error {
	w.closed()
	return w.body.Close()
}

// Server is a Script on a loopback port.
type Server struct {
	*Script
	// BaseURL has no version path.
	BaseURL string
}

// NewServer starts a server that answers by a script, and stops it when t ends.
func NewServer(t testing.TB, answers ...Answer) *Server {
	t.Helper()
	script := NewScript(t, answers...)
	server := httptest.NewServer(script)
	t.Cleanup(server.Close)
	return &Server{Script: script, BaseURL: server.URL}
}
