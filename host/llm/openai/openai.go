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
	"math/rand/v2"
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
	// means 2 minutes. A model that did not answer in time is not asked again.
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
)

// Model is an llm.Model. It is safe for concurrent use.
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

var _ llm.Model = (*Model)(nil)

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
}

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
	d := *m.dialect.Load()
	for attempt := 0; ; {
		response, failed := m.attempt(ctx, r, d)
		switch {
		case failed == nil:
			return response, nil
		case ctx.Err() != nil:
			return llm.Response{}, m.wrap(ctx.Err())
		case d.learn(failed.param):
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
// reports whether there was something to learn.
func (d *dialect) learn(param string) bool {
	switch {
	case param == "max_tokens" && !d.completionTokens:
		d.completionTokens = true
	case param == "temperature" && !d.ownTemperature:
		// Models that reason know only their own temperature; the prompt
		// matters more than it.
		d.ownTemperature = true
	case param == "tool_choice" && !d.noToolChoice:
		d.noToolChoice = true
	default:
		return false
	}
	return true
}

// failure is an attempt without an answer.
type failure struct {
	kind    error  // one of package llm's
	what    string // in the host's own words
	param   string // that the server refuses
	passing bool   // the same request may succeed soon
	after   time.Duration
	waits   bool // the server says after
}

func (f *failure) Error() string { return f.what + ": " + f.kind.Error() }
func (f *failure) Unwrap() error { return f.kind }

// delay before the next attempt: what the server says, or else twice as long
// each time. Chance spreads those who failed together: up to a tenth later than
// the server says, up to half earlier than the schedule.
func (f *failure) delay(attempt int) time.Duration {
	if f.waits {
		return f.after + rand.N(f.after/10+1)
	}
	full := min(firstDelay<<attempt, maxDelay)
	return full - rand.N(full/2)
}

// attempt asks once.
func (m *Model) attempt(ctx context.Context, r llm.Request, d dialect) (llm.Response, *failure) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	params, wrong := m.params(r, d)
	if wrong != nil {
		return llm.Response{}, wrong
	}
	var raw *http.Response
	completion, err := m.chat.New(ctx, params, option.WithResponseInto(&raw))
	switch {
	case raw != nil && raw.StatusCode >= 300:
		return llm.Response{}, refusal(raw)
	case err != nil:
		return llm.Response{}, m.broken(ctx, err)
	}
	response := llm.Response{
		InputTokens: count(completion.Usage.PromptTokens), OutputTokens: count(completion.Usage.CompletionTokens),
		Model: m.name,
	}
	if response.InputTokens == 0 {
		response.InputTokens = r.Tokens()
	}
	// Prefixes are kept without being asked for, so a breakpoint says nothing
	// here.
	response.CachedTokens = min(count(completion.Usage.PromptTokensDetails.CachedTokens), response.InputTokens)
	if len(completion.Choices) == 0 {
		return response, &failure{kind: llm.ErrEmpty, what: "no choices"}
	}
	choice := completion.Choices[0]
	response.Truncated = choice.FinishReason == "length"
	if len(r.Tools) > 0 {
		response.ToolCalls = calls(choice.Message.ToolCalls)
	}
	if strings.TrimSpace(choice.Message.Content) != "" {
		response.Text = choice.Message.Content
	}
	if response.Text == "" && len(response.ToolCalls) == 0 {
		if choice.Message.Refusal != "" || choice.FinishReason == "content_filter" {
			// A refusal is no answer: it must not become a summary.
			return llm.Response{}, &failure{kind: llm.ErrRefused, what: "the model declines"}
		}
		return response, &failure{kind: llm.ErrEmpty, what: "no content"}
	}
	if response.OutputTokens == 0 {
		said := llm.Message{Text: response.Text, ToolCalls: response.ToolCalls}
		response.OutputTokens = llm.Request{Messages: []llm.Message{said}}.Tokens()
	}
	return response, nil
}

// count takes a server's count if it can be one.
func count(n int64) int {
	if n < 0 || n > 1<<30 {
		return 0
	}
	return int(n)
}

// calls takes what the server says that the model asked for.
func calls(sent []openai.ChatCompletionMessageToolCallUnion) []llm.ToolCall {
	var all []llm.ToolCall
	for _, c := range sent[:min(len(sent), llm.MaxToolCalls)] {
		all = append(all, llm.ToolCall{ID: c.ID, Name: c.Function.Name, Input: json.RawMessage(c.Function.Arguments)})
	}
	return llm.ParseToolCalls(all)
}

// params writes a request. The error is that of a tool whose parameters are not
// a JSON object.
func (m *Model) params(r llm.Request, d dialect) (openai.ChatCompletionNewParams, *failure) {
	p := openai.ChatCompletionNewParams{Model: m.name}
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
	if r.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(r.System))
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

// broken explains an attempt without a status or without a body that can be
// read.
func (m *Model) broken(ctx context.Context, err error) *failure {
	if ctx.Err() != nil {
		// A model that took all of its time will take it again.
		return &failure{kind: llm.ErrUnavailable, what: "no answer within " + m.timeout.String()}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &failure{kind: llm.ErrUnavailable, what: "an answer of more than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes"}
	}
	if refused, ok := errors.AsType[*url.Error](err); ok {
		what := refused.Err.Error()
		if m.key != "" {
			what = strings.ReplaceAll(what, m.key, "[key]")
		}
		return &failure{kind: llm.ErrUnavailable, what: what, passing: true}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &failure{kind: llm.ErrUnavailable, what: "the answer breaks off", passing: true}
	}
	// What a decoder complains about quotes what it reads.
	return &failure{kind: llm.ErrUnavailable, what: "the answer is not of the protocol"}
}

// refusal explains a status. Of the server's own words, which are external, only
// a code that is a plain identifier gets into the error; the message is only
// searched.
func refusal(response *http.Response) *failure {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	var said struct {
		Error   json.RawMessage
		Message string
	}
	var detail struct {
		Message, Type, Param string
		Code                 any
	}
	// Servers put an object, a text or nothing where OpenAI puts an object;
	// what does not fit says nothing.
	_ = json.Unmarshal(body, &said)
	if json.Unmarshal(said.Error, &detail) != nil {
		_ = json.Unmarshal(said.Error, &detail.Message)
	}
	code, _ := detail.Code.(string)
	status := response.StatusCode
	f := &failure{kind: llm.ErrRefused, what: "status " + strconv.Itoa(status)}
	if isIdentifier(code) {
		f.what += " " + code
	}
	f.after, f.waits = retryAfter(response.Header)
	switch {
	case status < 400:
		f.what += ", a redirect, which is not followed"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired, code == "insufficient_quota":
		f.kind = llm.ErrAuth
	case status == http.StatusTooManyRequests:
		f.kind, f.passing = llm.ErrRateLimited, true
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest && isTooLong(code, detail.Type, detail.Message, said.Message):
		f.kind = llm.ErrContextTooLong
	case status == http.StatusNotImplemented:
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		f.kind, f.passing = llm.ErrUnavailable, true
	case status == http.StatusBadRequest:
		f.param = detail.Param
	}
	return f
}

func isIdentifier(code string) bool {
	return code != "" && len(code) <= 48 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// isTooLong knows OpenAI's code, llama.cpp's type and the sentences of vLLM,
// Ollama and others, who have neither.
func isTooLong(code, kind string, messages ...string) bool {
	if code == "context_length_exceeded" || kind == "exceed_context_size_error" {
		return true
	}
	for _, message := range messages {
		message = strings.ToLower(message)
		for _, words := range []string{"context length", "context window", "context size", "prompt is too long", "input is too long"} {
			if strings.Contains(message, words) {
				return true
			}
		}
	}
	return false
}

// retryAfter reads how long the server wants to be left alone: seconds or a
// date, or milliseconds as OpenAI writes them.
func retryAfter(h http.Header) (time.Duration, bool) {
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.ParseFloat(h.Get(header.name), 64); err == nil && n >= 0 {
			// Whatever is beyond the longest wait is all the same.
			return time.Duration(min(n, float64(time.Hour/header.unit)) * float64(header.unit)), true
		}
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return min(max(time.Until(at), 0), time.Hour), true
	}
	return 0, false
}
