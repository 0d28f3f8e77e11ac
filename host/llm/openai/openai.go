// Package openai asks any server that speaks the Chat Completions protocol:
// OpenAI's own, or a compatible one such as llama.cpp, vLLM or Ollama.
//
// It writes requests and reads answers itself. The official SDK adds 20 MB to a
// program for doing the first, and its types for the second cost hundreds of
// bytes for each null in a list, cannot tell the end of a stream from a stream
// that is cut, and take "error":null for an error (openai-go v3.95).
package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// Config names a model: its BaseURL, APIKey, Name, Timeout, MaxRetries and
// HTTPClient. Printed or logged, it shows no key.
//
// BaseURL has the version path, such as http://127.0.0.1:8080/v1; "" means OpenAI's
// own, https://api.openai.com/v1. APIKey is sent as a bearer token.
type Config = remote.Config

const (
	defaultBaseURL = "https://api.openai.com/v1"
	// afterTheEnd is how long the rest of a stream, which is only what it cost,
	// is waited for.
	afterTheEnd = 5 * time.Second
)

// Model is an llm.Streamer. It is safe for concurrent use.
type Model struct {
	endpoint *remote.Endpoint
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
	// ownTemperature and ownTopP: the model knows only its own.
	ownTemperature, ownTopP bool
	// noToolChoice: the server cannot be told to call no tools. freeChoice: nor that
	// one must be called, or which one. manyCalls: nor that it is to be one alone.
	noToolChoice, freeChoice, manyCalls bool
	// noStop: the server cannot be told where to end; the driver sees to it.
	noStop bool
	// ownEffort: the model cannot be told how much to think. otherEffort: it does not
	// know the word of this request. That is not kept, since others may do.
	ownEffort, otherEffort bool
	// blind: the model cannot see pictures.
	blind bool
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
	c.BaseURL = cmp.Or(c.BaseURL, defaultBaseURL)
	endpoint, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	m := &Model{endpoint: endpoint}
	name := endpoint.Hostname()
	m.dialect.Store(&dialect{completionTokens: name == "api.openai.com" || strings.HasSuffix(name, ".openai.azure.com")})
	return m, nil
}

// String names the model and the host of the server.
func (m *Model) String() string { return m.endpoint.String() }

// GoString is String.
func (m *Model) GoString() string { return m.String() }

// Complete implements llm.Model. Errors wrap ctx's, or llm.ErrRateLimited,
// llm.ErrUnavailable, llm.ErrAuth, llm.ErrContextTooLong, llm.ErrRefused or
// llm.ErrEmpty, and hold nothing of the request or the key.
func (m *Model) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	response, err := m.ask(ctx, &r, nil)
	return *response, err
}

// Stream implements llm.Streamer, with the errors of Complete. A server that does
// not stream, or not to this account, has its answer given out at once.
func (m *Model) Stream(ctx context.Context, r llm.Request, each func(text string)) (llm.Response, error) {
	response, err := m.ask(ctx, &r, each)
	return *response, err
}

func (m *Model) ask(ctx context.Context, r *llm.Request, each func(string)) (*llm.Response, error) {
	d := new(*m.dialect.Load())
	return m.endpoint.Ask(ctx, each, func(each func(string)) (*llm.Response, *remote.Failure) {
		var unsent []string
		if d.noStop {
			unsent = r.Stop
		}
		stops := remote.StopBefore(unsent, each)
		return stops.End(m.attempt(ctx, r, d, stops.Listener()))
	}, func(param string) bool {
		// Each lesson is learned once.
		learns := d.learn(param, r, each != nil)
		if learned := *d; learns {
			learned.otherEffort = false
			m.dialect.Store(&learned)
		}
		return learns
	})
}

// learn takes from a refused parameter what the server does not understand, and
// reports whether there was something to learn: a parameter that r does not have
// was not refused.
func (d *dialect) learn(param string, r *llm.Request, streams bool) bool {
	switch {
	case param == "max_tokens" && !d.completionTokens:
		d.completionTokens = true
	case param == "temperature" && !d.ownTemperature:
		// Models that reason know only their own temperature; the prompt
		// matters more than it.
		d.ownTemperature = true
	case param == "top_p" && r.TopP != nil && !d.ownTopP:
		d.ownTopP = true
	case param == "tool_choice" && r.NoCalls && !d.noToolChoice:
		d.noToolChoice = true
	case param == "tool_choice" && r.Choice.Required && !r.NoCalls && !d.freeChoice:
		d.freeChoice = true
	case param == "parallel_tool_calls" && r.Choice.One && !d.manyCalls:
		d.manyCalls = true
	case param == "stop" && len(r.Stop) > 0 && !d.noStop:
		d.noStop = true
	case param == "reasoning_effort" && r.Effort != "" && !d.ownEffort && !d.otherEffort:
		// Who knows of efforts at all knows the first three.
		d.ownEffort = r.Effort == "low" || r.Effort == "medium" || r.Effort == "high"
		d.otherEffort = !d.ownEffort
	case param == remote.Images && remote.HasImages(*r) && !d.blind:
		d.blind = true
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
func (m *Model) attempt(ctx context.Context, r *llm.Request, d *dialect, each func(string)) (*llm.Response, *remote.Failure) {
	x, failed := m.send(ctx, r, d, each != nil && !d.noStream)
	if failed != nil {
		return nil, failed
	}
	defer x.Close()
	a := &answer{speech: speech{each: each}}
	err := a.read(lively{x}, func() error {
		if a.reason != "" {
			x.Patience(afterTheEnd)
		}
		return x.Err()
	})
	return m.ended(ctx, r, a, x, err)
}

// send sends a request; the answer is yet to be read. What is large in a request is
// gone from the stack while it is waited for.
func (m *Model) send(ctx context.Context, r *llm.Request, d *dialect, streams bool) (*remote.Exchange, *remote.Failure) {
	wrong := remote.Check(*r)
	if wrong != nil {
		return nil, wrong
	}
	body, wrong := m.body(*r, *d, streams)
	if wrong != nil {
		return nil, wrong
	}
	x, _, failed := m.endpoint.Send(ctx, streams, func(ctx context.Context) (*http.Response, error) {
		header := http.Header{}
		if key := m.endpoint.Key(); key != "" {
			header.Set("Authorization", "Bearer "+key)
		}
		return m.endpoint.Post(ctx, "chat/completions", header, body)
	}, func(_ int, body []byte) remote.Complaint { return complain(body).read() })
	return x, failed
}

// ended is what came of an answer that was read to its end, or to that error.
func (m *Model) ended(ctx context.Context, r *llm.Request, a *answer, x *remote.Exchange, err error) (*llm.Response, *remote.Failure) {
	_, told := errors.AsType[*remote.Failure](err)
	switch {
	case err != nil && (a.reason == "" || told || ctx.Err() != nil):
		return nil, x.Broken(err)
	case err == nil:
		x.Drain()
	}
	response, failed := a.end(*r)
	if failed == nil || errors.Is(failed, llm.ErrEmpty) || response.Filtered {
		response.Model = m.endpoint.Name()
	}
	return response, failed
}

// lively takes each byte for a sign of life: an answer may come whole, and
// comments keep a stream open.
type lively struct{ *remote.Exchange }

func (l lively) Read(b []byte) (int, error) {
	l.Alive()
	return l.Exchange.Read(b)
}
