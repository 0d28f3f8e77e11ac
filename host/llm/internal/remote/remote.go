// Package remote is what every driver does with a model's server, whatever the
// protocol: who is asked and with which key, how often, how long an answer may
// take and how large it may be, and what a failure means to package llm. What a
// request looks like and how an answer is put together is the driver's.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Config names a model. Printed or logged, it shows no key.
type Config struct {
	// BaseURL of the server; "" means the one that the driver names. It is
	// http:// or https:// and has no query, no fragment and no password.
	BaseURL string
	// APIKey is sent as the protocol has it, if it is not "". It stands in no error
	// and no log.
	APIKey string
	// Name of the model.
	Name string
	// Timeout bounds one attempt of Complete, from the connection to the last byte;
	// zero means 2 minutes. Of Stream it bounds the time to the first byte and each
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

const (
	defaultTimeout    = 2 * time.Minute
	defaultMaxRetries = 3
	mostRetries       = 10
	firstDelay        = 500 * time.Millisecond
	maxDelay          = 20 * time.Second
	// maxIdle is how many connections are kept for the next request: as many as
	// people who may talk at the same time, or some of them wait for a handshake.
	maxIdle = 64
)

// String names the model and the host of the server, if BaseURL does.
func (c Config) String() string {
	host := "no host"
	if u, err := url.Parse(c.BaseURL); c.BaseURL == "" {
		host = "the default host"
	} else if err == nil {
		host = u.Host
	}
	return c.Name + " at " + host
}

// GoString is String: it shows no key either.
func (c Config) GoString() string { return c.String() }

// LogValue is String, for handlers that would log every field.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Endpoint is a model on a server. It is safe for concurrent use.
type Endpoint struct {
	name, key string
	url       url.URL
	client    *http.Client
	timeout   time.Duration
	retries   int
}

// Open checks a Config whose BaseURL is not "" and returns what it names. It
// reads no environment and opens no connection. Errors hold no secret.
func (c Config) Open() (*Endpoint, error) {
	if c.Name == "" {
		return nil, errors.New("the name of the model is missing")
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The URL may hold a password, and so stands in no error.
		return nil, errors.New("the base URL is not http:// or https:// with a host, and without password, query and fragment")
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }) {
		return nil, errors.New("the key holds a space, a control character or a letter outside ASCII")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("a timeout of %s", c.Timeout)
	}
	e := &Endpoint{name: c.Name, key: c.APIKey, url: *u, timeout: c.Timeout, retries: min(c.MaxRetries, mostRetries)}
	if c.Timeout == 0 {
		e.timeout = defaultTimeout
	}
	switch {
	case c.MaxRetries == 0:
		e.retries = defaultMaxRetries
	case c.MaxRetries < 0:
		e.retries = 0
	}
	client := http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
		// Pieces are small, and what is larger than a buffer passes it by.
		ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10,
	}}
	if c.HTTPClient != nil {
		client = *c.HTTPClient
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Transport = bounded{client.Transport}
	e.client = &client
	return e, nil
}

// String names the model and the host of the server.
func (e *Endpoint) String() string { return e.name + " at " + e.url.Host }

// Name is the model's.
func (e *Endpoint) Name() string { return e.name }

// Hostname is the server's, without the port.
func (e *Endpoint) Hostname() string { return e.url.Hostname() }

// Key returns the key of the server, "" if it wants none. It goes into the header of
// a request and nowhere else.
func (e *Endpoint) Key() string { return e.key }

// Post sends JSON to the path below the base URL. Whatever the status of the
// response, its body is the caller's to close.
func (e *Endpoint) Post(ctx context.Context, path string, header http.Header, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "Glovebox")
	return e.client.Do(request)
}

// Ask makes attempts until there is an answer or no hope. Errors wrap ctx's or one
// of package llm's and name the endpoint; the response beside one is not nil. It goes
// by pointer from function to function, for a stack holds all of their frames for as
// long as the server is waited for.
//
// attempt gives out what it hears by its argument, which is nil if each is. After
// the first piece nothing is asked again, for who heard the beginning cannot hear
// another. learn is told what a Failure says was Refused, unless that is "", and
// reports whether it has changed what attempt sends; it does so a bounded number
// of times.
func (e *Endpoint) Ask(
	ctx context.Context, each func(text string),
	attempt func(each func(text string)) (*llm.Response, *Failure), learn func(refused string) bool,
) (*llm.Response, error) {
	begun, out := false, each
	if each != nil {
		out = func(text string) {
			begun = true
			each(text)
		}
	}
	for n := 0; ; {
		response, failed := attempt(out)
		switch {
		case failed == nil:
			return response, nil
		case ctx.Err() != nil:
			return new(llm.Response), e.wrap(ctx.Err())
		case !begun && failed.Refused != "" && learn(failed.Refused):
			continue
		}
		delay := failed.delay(n)
		deadline, ends := ctx.Deadline()
		if begun || !failed.Passing || n >= e.retries || delay > maxDelay || ends && time.Until(deadline) < delay {
			return cmp.Or(response, new(llm.Response)), e.wrap(failed)
		}
		n++
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return new(llm.Response), e.wrap(ctx.Err())
		case <-timer.C:
		}
	}
}

func (e *Endpoint) wrap(err error) error { return fmt.Errorf("ask %s: %w", e, err) }

// Calls returns the calls of an answer to r, of what a server sent: none if nothing
// was offered, and one if there may be no more.
func Calls(r llm.Request, sent []llm.ToolCall) []llm.ToolCall {
	switch {
	case len(r.Tools) == 0:
		return nil
	case r.Choice.One && len(sent) > 1:
		sent = sent[:1]
	}
	return llm.ParseToolCalls(sent)
}

// Usage is what a server says that an answer cost, in tokens, as far as that can
// be: any number.
type Usage struct {
	// Input has Cached and Written in it, Output has Thoughts.
	Input, Cached, Written, Output, Thoughts float64
}

// Of fills in the counts of an answer to r that has its Text and ToolCalls, and
// estimates what the server does not say.
func (u Usage) Of(r llm.Request, answer *llm.Response) {
	answer.InputTokens, answer.OutputTokens = count(u.Input), count(u.Output)
	if answer.InputTokens == 0 {
		answer.InputTokens = r.Tokens()
	}
	answer.CachedTokens = min(count(u.Cached), answer.InputTokens)
	answer.WrittenTokens = min(count(u.Written), answer.InputTokens-answer.CachedTokens)
	if answer.OutputTokens == 0 && (answer.Text != "" || len(answer.ToolCalls) > 0) {
		said := llm.Message{Text: answer.Text, ToolCalls: answer.ToolCalls, Thinking: answer.Thinking}
		answer.OutputTokens = llm.Request{Messages: []llm.Message{said}}.Tokens()
	}
	answer.ThoughtTokens = min(count(u.Thoughts), answer.OutputTokens)
}

// count takes a server's count if it can be one.
func count(n float64) int {
	if !(n >= 0 && n <= 1<<30) {
		return 0
	}
	return int(n)
}

// InWords is a system text that asks for the form of the answer, for servers that
// cannot be held to it. Those that promise JSON insist that the prompt asks for it
// by that word.
func InWords(system string, s *llm.Schema) string {
	return strings.TrimLeft(system+"\n\nAnswer with one JSON value of this JSON Schema and nothing else:\n"+string(s.JSON), "\n")
}
