// Package openai asks any server that speaks the Chat Completions protocol,
// through the official SDK: OpenAI's own, or a compatible one such as
// llama.cpp, vLLM or Ollama.
package openai

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Config names a model. Printed or logged, it shows no key.
type Config struct {
	// BaseURL of the server, with its version path, such as
	// http://127.0.0.1:8080/v1; "" means OpenAI's own. It has no query and no
	// password.
	BaseURL string
	// APIKey is sent as a bearer token, if it is not "". It stands in no error
	// and no log.
	APIKey string
	// Name of the model.
	Name string
	// Timeout bounds one attempt, from the connection to the last byte; zero
	// means 2 minutes. Of a stream it bounds the time to the first byte and each
	// silence after it, and ten times as much the whole, without the time that the
	// caller takes. A model that did not answer in time is not asked again.
	Timeout time.Duration
	// MaxRetries is how often a request that failed in passing (429, 5xx, no or
	// a broken connection) is sent again; zero means 3, negative means never,
	// more than 10 means 10. Before each, the server's Retry-After is waited for
	// or else half a second, twice as long each time; a server that wants more
	// than 20 seconds is not waited for.
	MaxRetries int
	// HTTPClient sends the requests; nil means one that takes no proxy from the
	// environment. Whatever it says of redirects, none is followed: a prompt
	// goes nowhere but to BaseURL.
	HTTPClient *http.Client
}

// String names the model and the host of the server.
func (c Config) String() string {
	host := "no host"
	if u, err := url.Parse(c.base()); err == nil {
		host = u.Host
	}
	return c.Name + " at " + host
}

// GoString is String: it shows no key either.
func (c Config) GoString() string { return c.String() }

// LogValue is String, for handlers that would log every field.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) base() string {
	if c.BaseURL == "" {
		return defaultBaseURL
	}
	return c.BaseURL
}

const (
	defaultBaseURL    = "https://api.openai.com/v1"
	defaultTimeout    = 2 * time.Minute
	defaultMaxRetries = 3
	mostRetries       = 10
	firstDelay        = 500 * time.Millisecond
	maxDelay          = 20 * time.Second
	maxResponseBytes  = 16 << 20
	maxErrorBytes     = 64 << 10

	// streamTimeouts is how many times Timeout a stream may take in all.
	streamTimeouts = 10
	// afterTheEnd is how long the rest of a stream, which is only what it cost,
	// is waited for, and forTheConnection the end of the response.
	afterTheEnd      = 5 * time.Second
	forTheConnection = 100 * time.Millisecond
)

// Model is an llm.Streamer. It is safe for concurrent use.
type Model struct {
	chat    openai.ChatCompletionService
	name    string
	host    string
	key     string
	timeout time.Duration
	retries int
	// dialect is what the server was found to understand. Requests that find
	// out at the same time find the same.
	dialect atomic.Pointer[dialect]
}

var _ llm.Streamer = (*Model)(nil)

// dialect is where servers and models of one protocol differ.
type dialect struct {
	// completionTokens: the limit is called max_completion_tokens. OpenAI has
	// replaced max_tokens, and its newer models refuse it; compatible servers
	// know that name, and not all of them the other.
	completionTokens bool
	// ownTemperature: the model knows only its own.
	ownTemperature bool
	// noToolChoice: the server cannot be told to call no tools.
	noToolChoice bool
	// schema is how far the server can be held to the form of an answer.
	schema schemaSupport
	// noStreamUsage: the server does not know that a stream may end with what it
	// cost. noStream: it does not stream; OpenAI does not, of some models, to
	// organisations that it has not verified.
	noStreamUsage, noStream bool
}

// schemaSupport is how a server is asked for JSON, the strictest way first.
type schemaSupport int

const (
	schemaHeld    schemaSupport = iota // to the very schema
	schemaAnyJSON                      // to JSON; the schema is in words
	schemaInWords                      // to nothing
)

// New returns a model. It reads no environment and opens no connection.
func New(c Config) (*Model, error) {
	if c.Name == "" {
		return nil, errors.New("openai: the name of the model is missing")
	}
	u, err := url.Parse(c.base())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The URL may hold a password, and so stands in no error.
		return nil, errors.New("openai: the base URL is not http:// or https:// with a host, and without password, query and fragment")
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }) {
		return nil, errors.New("openai: the key holds a space, a control character or a letter outside ASCII")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("openai: a timeout of %s", c.Timeout)
	}
	m := &Model{name: c.Name, host: u.Host, key: c.APIKey, timeout: c.Timeout, retries: min(c.MaxRetries, mostRetries)}
	if c.Timeout == 0 {
		m.timeout = defaultTimeout
	}
	switch {
	case c.MaxRetries == 0:
		m.retries = defaultMaxRetries
	case c.MaxRetries < 0:
		m.retries = 0
	}
	client := http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
	}}
	if c.HTTPClient != nil {
		client = *c.HTTPClient
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	name := u.Hostname()
	m.dialect.Store(&dialect{completionTokens: name == "api.openai.com" || strings.HasSuffix(name, ".openai.azure.com")})
	// The service alone: openai.NewClient would take keys, headers and
	// addresses from the environment.
	m.chat = openai.NewChatCompletionService(
		option.WithBaseURL(c.base()),
		option.WithAPIKey(c.APIKey),
		option.WithHTTPClient(&client),
		option.WithMiddleware(boundResponse),
		// Complete repeats requests itself: the SDK (v3.95) counts the wait for
		// the next attempt as part of the last one's time, waits although ctx
		// will be done before, and repeats what an empty account will refuse.
		option.WithMaxRetries(0),
	)
	return m, nil
}

// String names the model and the host of the server.
func (m *Model) String() string { return m.name + " at " + m.host }

// GoString is String.
func (m *Model) GoString() string { return m.String() }

// boundResponse keeps a server from filling the memory.
func boundResponse(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	response, err := next(r)
	if err == nil && response.Body != nil {
		limit := int64(maxResponseBytes)
		if response.StatusCode >= 300 {
			limit = maxErrorBytes
		}
		response.Body = http.MaxBytesReader(nil, response.Body, limit)
	}
	return response, err
}

// Complete implements llm.Model. Errors wrap ctx's, or llm.ErrRateLimited,
// llm.ErrUnavailable, llm.ErrAuth, llm.ErrContextTooLong, llm.ErrRefused or
// llm.ErrEmpty, and nothing of the SDK's, whose errors hold the request and so
// the key.
func (m *Model) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	return m.ask(ctx, r, nil)
}

// Stream implements llm.Streamer, with the errors of Complete. A server that does
// not stream, or not to this account, has its answer given out at once.
func (m *Model) Stream(ctx context.Context, r llm.Request, each func(text string)) (llm.Response, error) {
	return m.ask(ctx, r, each)
}

func (m *Model) ask(ctx context.Context, r llm.Request, each func(string)) (llm.Response, error) {
	d := *m.dialect.Load()
	for attempt := 0; ; {
		response, failed := m.attempt(ctx, r, d, each)
		switch {
		case failed == nil:
			return response, nil
		case ctx.Err() != nil:
			return llm.Response{}, m.wrap(ctx.Err())
		case d.learn(failed.param, r, each != nil):
			// Each lesson is learned once, so this ends.
			learned := d
			m.dialect.Store(&learned)
			continue
		}
		delay := failed.delay(attempt)
		deadline, ends := ctx.Deadline()
		if !failed.passing || attempt >= m.retries || delay > maxDelay || ends && time.Until(deadline) < delay {
			return response, m.wrap(failed)
		}
		attempt++
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return llm.Response{}, m.wrap(ctx.Err())
		case <-timer.C:
		}
	}
}

func (m *Model) wrap(err error) error { return fmt.Errorf("ask %s: %w", m, err) }

// learn takes from a refused parameter what the server does not understand, and
// reports whether there was something to learn: a parameter that r does not have
// was not refused.
func (d *dialect) learn(param string, r llm.Request, streams bool) bool {
	switch {
	case param == "max_tokens" && !d.completionTokens:
		d.completionTokens = true
	case param == "temperature" && !d.ownTemperature:
		// Models that reason know only their own temperature; the prompt
		// matters more than it.
		d.ownTemperature = true
	case param == "tool_choice" && !d.noToolChoice:
		d.noToolChoice = true
	case param == "response_format" && r.Schema != nil && d.schema < schemaInWords:
		d.schema++
	case param == "stream_options" && streams && !d.noStream && !d.noStreamUsage:
		d.noStreamUsage = true
	case param == "stream" && streams && !d.noStream:
		d.noStream = true
	default:
		return false
	}
	return true
}

// attempt asks once. With each, which may be nil, the server is asked to stream.
// A failure after the first piece is not passing, and teaches nothing.
func (m *Model) attempt(ctx context.Context, r llm.Request, d dialect, each func(string)) (llm.Response, *failure) {
	streams := each != nil && !d.noStream
	params, wrong := m.params(r, d, streams)
	if wrong != nil {
		return llm.Response{}, wrong
	}
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var raw *http.Response
	options := []option.RequestOption{option.WithResponseBodyInto(&raw)}
	wait := &patience{cancel: cancel, silence: m.timeout, whole: m.timeout}
	if streams {
		options = append(options, option.WithJSONSet("stream", true))
		wait.whole = streamTimeouts * min(m.timeout, math.MaxInt64/streamTimeouts)
	}
	var err error
	var failed *failure
	wait.during(func() {
		_, err = m.chat.New(ctx, params, options...)
		if raw != nil && raw.StatusCode >= 300 {
			failed = refusal(raw)
		}
	})
	if raw != nil {
		defer raw.Body.Close()
	}
	switch {
	case failed != nil:
		return llm.Response{}, failed
	case err != nil:
		return llm.Response{}, m.broken(ctx, err)
	}
	wait.body = raw.Body
	a := answer{speech: speech{each: each}}
	err = a.read(wait, func() error {
		if a.reason != "" {
			wait.silence = afterTheEnd
		}
		return ctx.Err()
	})
	_, told := errors.AsType[*failure](err)
	switch {
	case err != nil && (a.reason == "" || told || caller.Err() != nil):
		failed = m.broken(ctx, err)
	case err == nil:
		// What is read to its end leaves the connection to the next request.
		wait.silence = forTheConnection
		_, _ = io.CopyN(io.Discard, wait, maxErrorBytes)
	}
	response := llm.Response{}
	if failed == nil {
		response, failed = a.end(r)
	}
	if failed != nil && each != nil && a.speech.begun() {
		failed.passing, failed.param = false, ""
	}
	if failed == nil || errors.Is(failed, llm.ErrEmpty) {
		response.Model = m.name
	}
	return response, failed
}

// patience reads what a server sends, and cancels the request when nothing comes
// for longer than silence, or not all of it within whole. What is done with it
// meanwhile does not count.
type patience struct {
	body           io.Reader
	cancel         context.CancelCauseFunc
	silence, whole time.Duration
	spent          time.Duration
}

// lateError says that a server took too long.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string { return "no answer within " + e.limit.String() }

func (p *patience) Read(b []byte) (n int, err error) {
	p.during(func() { n, err = p.body.Read(b) })
	return n, err
}

func (p *patience) during(f func()) {
	began, limit, late := time.Now(), p.silence, &lateError{p.silence}
	if left := p.whole - p.spent; left < limit {
		limit, late = left, &lateError{p.whole}
	}
	timer := time.AfterFunc(limit, func() { p.cancel(late) })
	f()
	timer.Stop()
	p.spent += time.Since(began)
}

// params writes a request. The error is that of a schema, or of a tool's
// parameters, that are not a JSON object.
func (m *Model) params(r llm.Request, d dialect, streams bool) (openai.ChatCompletionNewParams, *failure) {
	p := openai.ChatCompletionNewParams{Model: m.name}
	if streams && !d.noStreamUsage {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	system := r.System
	if s := r.Schema; s != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(s.JSON, &object); err != nil || object == nil || !llm.ValidToolName(s.Name) {
			return p, &failure{kind: llm.ErrRefused, what: "the schema " + strconv.Quote(s.Name) + " has no name of 1 to 64 letters, digits, '_' or '-', or is not a JSON object"}
		}
		switch d.schema {
		case schemaHeld:
			p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
				// As it was written: models answer in the order of its properties.
				JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: s.Name, Schema: s.JSON, Strict: openai.Bool(true)},
			}
		case schemaAnyJSON:
			p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
		}
		if d.schema > schemaHeld {
			// Servers that promise JSON insist that the prompt asks for it by
			// that word.
			system = strings.TrimLeft(system+"\n\nAnswer with one JSON value of this JSON Schema and nothing else:\n"+string(s.JSON), "\n")
		}
	}
	for _, t := range r.Tools {
		function := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			function.Description = openai.String(t.Description)
		}
		if t.Parameters != nil {
			if err := json.Unmarshal(t.Parameters, &function.Parameters); err != nil || function.Parameters == nil {
				return p, &failure{kind: llm.ErrRefused, what: "the parameters of the tool " + strconv.Quote(t.Name) + " are not a JSON object"}
			}
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(function))
	}
	if r.NoCalls && d.noToolChoice {
		p.Tools = nil
	}
	if r.NoCalls && len(p.Tools) > 0 {
		p.ToolChoice.OfAuto = openai.String("none")
	}
	if system != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(system))
	}
	for _, message := range r.Messages {
		p.Messages = append(p.Messages, messages(message)...)
	}
	switch limit := int64(r.MaxOutputTokens); {
	case limit <= 0:
	case d.completionTokens:
		p.MaxCompletionTokens = openai.Int(limit)
	default:
		p.MaxTokens = openai.Int(limit)
	}
	if r.Temperature != nil && !d.ownTemperature {
		p.Temperature = openai.Float(*r.Temperature)
	}
	return p, nil
}

// messages writes one message; in this protocol every tool's result is one of
// its own, and thoughts have no place. Whether a call failed is said by the result's text alone.
func messages(m llm.Message) []openai.ChatCompletionMessageParamUnion {
	var all []openai.ChatCompletionMessageParamUnion
	if m.Role == llm.RoleAssistant {
		var said openai.ChatCompletionAssistantMessageParam
		if m.Text != "" {
			said.Content.OfString = openai.String(m.Text)
		}
		for _, c := range m.ToolCalls {
			said.ToolCalls = append(said.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
					ID:       wireID(c.ID),
					Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: string(c.Input)},
				},
			})
		}
		return append(all, openai.ChatCompletionMessageParamUnion{OfAssistant: &said})
	}
	for _, v := range m.ToolResults {
		all = append(all, openai.ToolMessage(v.Text, wireID(v.ID)))
	}
	if m.Text != "" {
		all = append(all, openai.UserMessage(m.Text))
	}
	return all
}

// maxID is the most bytes of a call's id that OpenAI takes; llm allows for more,
// since others make longer ones.
const maxID = 40

// wireID returns the id by which the server knows a call: the same every time.
func wireID(id string) string {
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}
