// Package anthropic asks any server that speaks the Messages protocol, through
// the official SDK: Anthropic's own, or a compatible one.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Provider is what a Response names as the maker of its Thinking, and what a
// Message must name for its Thinking to be sent.
const Provider = "anthropic"

// Config names a model. Printed or logged, it shows no key.
type Config struct {
	// BaseURL of the server, such as https://api.anthropic.com; "" means that one.
	// The version path, /v1, may be there or not. It has no query and no password.
	BaseURL string
	// APIKey is sent as x-api-key, if it is not "". It stands in no error and no
	// log.
	APIKey string
	// Name of the model.
	Name string
	// Timeout bounds one attempt of Complete, from the connection to the last
	// byte, and each wait of Stream for the next event, the first one included;
	// all of a stream has ten times as long. Zero means 2 minutes. A model that
	// did not answer in time is not asked again.
	Timeout time.Duration
	// MaxRetries is how often a request that failed in passing (429, 529, other
	// 5xx, no or a broken connection) is sent again; zero means 3, negative means
	// never, more than 10 means 10. Before each, the server's Retry-After is
	// waited for or else half a second, twice as long each time; a server that
	// wants more than 20 seconds is not waited for.
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

// base is the address before /v1/messages. Operators know one with /v1 from other
// protocols.
func (c Config) base() string {
	if c.BaseURL == "" {
		return defaultBaseURL
	}
	return strings.TrimSuffix(strings.TrimSuffix(c.BaseURL, "/"), "/v1")
}

const (
	defaultBaseURL    = "https://api.anthropic.com"
	defaultTimeout    = 2 * time.Minute
	streamTimeouts    = 10 // of them is all that a stream may take
	defaultMaxRetries = 3
	mostRetries       = 10
	firstDelay        = 500 * time.Millisecond
	maxDelay          = 20 * time.Second
	maxResponseBytes  = 16 << 20
	maxErrorBytes     = 64 << 10
)

// Model is an llm.Streamer. It is safe for concurrent use.
type Model struct {
	client  sdk.Client
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
	// ownTemperature: the model knows only its own, as Claude does from Opus 4.7
	// on.
	ownTemperature bool
	// noToolChoice: the server cannot be told to call no tools.
	noToolChoice bool
	// noSchema: the model cannot be held to a schema, as Claude before 4.5, and is
	// told of it in words.
	noSchema bool
	// noThoughts: the server does not take back the thoughts of this request,
	// because they are another's or of before something else. It is not kept.
	noThoughts bool
}

// New returns a model. It reads no environment and opens no connection.
func New(c Config) (*Model, error) {
	if c.Name == "" {
		return nil, errors.New("anthropic: the name of the model is missing")
	}
	u, err := url.Parse(c.base())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The URL may hold a password, and so stands in no error.
		return nil, errors.New("anthropic: the base URL is not http:// or https:// with a host, and without password, query and fragment")
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }) {
		return nil, errors.New("anthropic: the key holds a space, a control character or a letter outside ASCII")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("anthropic: a timeout of %s", c.Timeout)
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
	m.dialect.Store(&dialect{})
	options := []option.RequestOption{
		// Else the SDK (v1.84) takes keys, headers and addresses from the
		// environment and from files in the user's home, and hands what is said to
		// whatever tracer the program has.
		option.WithoutEnvironmentDefaults(),
		option.WithoutOpenTelemetry(),
		option.WithBaseURL(c.base()),
		option.WithHTTPClient(&client),
		option.WithMiddleware(boundResponse),
		// ask repeats requests itself: the SDK's wait for the next attempt does
		// not heed that ctx will be done before.
		option.WithMaxRetries(0),
	}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	}
	m.client = sdk.NewClient(options...)
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

// Stream implements llm.Streamer. Errors are those of Complete. White space at
// the beginning is given out with the first word, for there may be none.
func (m *Model) Stream(ctx context.Context, r llm.Request, each func(text string)) (llm.Response, error) {
	return m.ask(ctx, r, each)
}

// ask sends a request until there is an answer or no hope. It streams if each is
// not nil.
func (m *Model) ask(ctx context.Context, r llm.Request, each func(text string)) (llm.Response, error) {
	d := *m.dialect.Load()
	for attempt := 0; ; {
		response, failed := m.attempt(ctx, r, d, each)
		switch {
		case failed == nil:
			return response, nil
		case ctx.Err() != nil:
			return llm.Response{}, m.wrap(ctx.Err())
		case d.learn(r, failed.refused):
			// Each lesson is learned once, so this ends.
			learned := d
			learned.noThoughts = false
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

// learn takes from the words of a refusal what the server does not understand,
// and reports whether there was something to learn. The protocol names what is
// wrong in prose alone.
func (d *dialect) learn(r llm.Request, refused string) bool {
	says := func(words string) bool { return strings.Contains(refused, words) }
	switch {
	case refused == "":
		return false
	case r.Schema != nil && !d.noSchema && (says("output_config") || says("output_format") || says("schema") || says("structured output")):
		d.noSchema = true
	case r.Temperature != nil && !d.ownTemperature && says("temperature"):
		// The prompt matters more than it.
		d.ownTemperature = true
	case r.NoCalls && !d.noToolChoice && says("tool_choice"):
		d.noToolChoice = true
	case !d.noThoughts && (says("thinking") || says("signature")) && slices.ContainsFunc(r.Messages, func(m llm.Message) bool { return m.Provider == Provider && len(m.Thinking) > 0 }):
		d.noThoughts = true
	default:
		return false
	}
	return true
}

// failure is an attempt without an answer.
type failure struct {
	kind    error  // one of package llm's
	what    string // in the host's own words
	refused string // the server's words for what is wrong with the request, in lower case; they go no further
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

// errSilent is the cause of an attempt's end when no event came in time.
var errSilent = errors.New("silent")

// attempt asks once.
func (m *Model) attempt(ctx context.Context, r llm.Request, d dialect, each func(text string)) (llm.Response, *failure) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeouts*m.timeout)
	defer cancel()
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	body, wrong := m.body(r, d, each != nil)
	if wrong != nil {
		return llm.Response{}, wrong
	}
	// watch runs while this waits for the server, and not while each does
	// something with what came. What is not streamed is one wait.
	watch := time.AfterFunc(m.timeout, func() { silent(errSilent) })
	defer watch.Stop()
	var raw *http.Response
	err := m.client.Post(ctx, "v1/messages", body, &raw)
	if raw != nil && raw.Body != nil {
		defer raw.Body.Close()
	}
	switch {
	case raw != nil && raw.StatusCode >= 300:
		return llm.Response{}, refusal(raw)
	case err != nil:
		return llm.Response{}, m.broken(ctx, err)
	}
	var f fold
	// Some servers stream whatever they are asked, some never.
	if kind, _, _ := mime.ParseMediaType(raw.Header.Get("Content-Type")); kind == "text/event-stream" {
		f.each = each
		if failed := m.readStream(ctx, raw, &f, watch); failed != nil {
			return llm.Response{}, failed
		}
		return m.response(r, &f)
	}
	data, err := io.ReadAll(raw.Body)
	if err != nil {
		return llm.Response{}, m.broken(ctx, err)
	}
	if err := f.whole(data); err != nil {
		return llm.Response{}, offProtocol()
	}
	watch.Stop()
	response, failed := m.response(r, &f)
	if failed == nil && each != nil && response.Text != "" {
		each(response.Text)
	}
	return response, failed
}

// response judges what was said.
func (m *Model) response(r llm.Request, f *fold) (llm.Response, *failure) {
	said, ok := f.said()
	if !ok {
		return llm.Response{}, offProtocol()
	}
	response := llm.Response{
		Text: said.text, Thinking: said.thinking, Model: m.name,
		InputTokens:  count(f.usage.InputTokens + f.usage.CacheCreationInputTokens + f.usage.CacheReadInputTokens),
		OutputTokens: count(f.usage.OutputTokens),
	}
	if len(said.thinking) > 0 {
		response.Provider = Provider
	}
	if response.InputTokens == 0 {
		response.InputTokens = r.Tokens()
	}
	response.CachedTokens = min(count(f.usage.CacheReadInputTokens), response.InputTokens)
	if len(r.Tools) > 0 {
		response.ToolCalls = llm.ParseToolCalls(said.calls)
	}
	switch f.stop {
	case "refusal":
		// A refusal is no answer, nor is what was said before it: it must not
		// become a summary.
		return llm.Response{}, &failure{kind: llm.ErrRefused, what: "the model declines"}
	case "model_context_window_exceeded":
		return llm.Response{}, &failure{kind: llm.ErrContextTooLong, what: "the window is full"}
	case "max_tokens", "pause_turn":
		// Only the server's own tools, of which none is offered, pause a turn;
		// what came is not all either way.
		response.Truncated = true
	}
	if response.Text == "" && len(response.ToolCalls) == 0 {
		return response, &failure{kind: llm.ErrEmpty, what: "no content"}
	}
	if response.OutputTokens == 0 {
		said := llm.Message{Text: response.Text, ToolCalls: response.ToolCalls, Thinking: response.Thinking}
		response.OutputTokens = llm.Request{Messages: []llm.Message{said}}.Tokens()
	}
	return response, nil
}

// count takes a server's count if it can be one.
func count(n float64) int {
	if !(n >= 0 && n <= 1<<30) {
		return 0
	}
	return int(n)
}

// broken explains an attempt without a status or without a body that can be
// read.
func (m *Model) broken(ctx context.Context, err error) *failure {
	if ctx.Err() != nil {
		// A model that took all of its time will take it again.
		what := "no answer within " + m.timeout.String()
		if !errors.Is(context.Cause(ctx), errSilent) {
			what = "the answer takes longer than " + (streamTimeouts * m.timeout).String()
		}
		return &failure{kind: llm.ErrUnavailable, what: what}
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
		return brokenOff()
	}
	// What a decoder complains about quotes what it reads.
	return offProtocol()
}

func brokenOff() *failure {
	return &failure{kind: llm.ErrUnavailable, what: "the answer breaks off", passing: true}
}

func offProtocol() *failure {
	return &failure{kind: llm.ErrUnavailable, what: "the answer is not of the protocol"}
}
