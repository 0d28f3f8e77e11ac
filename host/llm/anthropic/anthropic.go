// Package anthropic asks any server that speaks the Messages protocol: Anthropic's
// own, or a compatible one.
//
// It writes requests and reads answers itself: the official SDK, which did the first,
// adds 7 MB to a program and 18 to one that has templates, whose reflection keeps
// every method of every type (anthropic-sdk-go v1.84).
package anthropic

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// Provider is what a Response names as the maker of its Thinking, and what a
// Message must name for its Thinking to be sent.
const Provider = "anthropic"

// Config names a model: its BaseURL, APIKey, Name, Timeout, MaxRetries and
// HTTPClient. Printed or logged, it shows no key.
//
// BaseURL "" means https://api.anthropic.com. The version path, /v1, may be there
// or not: operators know it from other protocols. APIKey is sent as x-api-key.
type Config = remote.Config

const (
	defaultBaseURL = "https://api.anthropic.com"
	// protocolVersion is the only one that there is besides the first:
	// https://docs.anthropic.com/en/api/versioning
	protocolVersion = "2023-06-01"
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
	// ownTemperature and ownTopP: the model knows only its own, as Claude does from
	// Opus 4.7 on. notBoth: it takes one of them at a time, as from Opus 4.1 on.
	ownTemperature, ownTopP, notBoth bool
	// noToolChoice: the server cannot be told to call no tools. freeChoice: nor that
	// one must be called, or which one. manyCalls: nor that it is to be one alone.
	noToolChoice, freeChoice, manyCalls bool
	// noStop: the server cannot be told where to end; the driver sees to it.
	noStop bool
	// ownEffort: the model cannot be told how much effort to make.
	ownEffort bool
	// blind: the model cannot see pictures.
	blind bool
	// noSchema: the model cannot be held to a schema, as Claude before 4.5, and is
	// told of it in words.
	noSchema bool
	// noThoughts: the server does not take back the thoughts of this request,
	// because they are another's or of before something else. It is not kept.
	noThoughts bool
}

// New returns a model. It reads no environment and opens no connection.
func New(c Config) (*Model, error) {
	c.BaseURL = strings.TrimSuffix(strings.TrimSuffix(cmp.Or(c.BaseURL, defaultBaseURL), "/"), "/v1")
	endpoint, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	m := &Model{endpoint: endpoint}
	m.dialect.Store(&dialect{})
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

// Stream implements llm.Streamer. Errors are those of Complete. White space at
// the beginning is given out with the first word, for there may be none.
func (m *Model) Stream(ctx context.Context, r llm.Request, each func(text string)) (llm.Response, error) {
	response, err := m.ask(ctx, &r, each)
	return *response, err
}

// ask sends a request until there is an answer or no hope. It streams if each is
// not nil.
func (m *Model) ask(ctx context.Context, r *llm.Request, each func(text string)) (*llm.Response, error) {
	d := new(*m.dialect.Load())
	return m.endpoint.Ask(ctx, each, func(each func(string)) (*llm.Response, *remote.Failure) {
		_, unsent := d.stops(*r)
		stops := remote.StopBefore(unsent, each)
		return stops.End(m.attempt(ctx, r, d, stops.Listener()))
	}, func(words string) bool {
		// Each lesson is learned once.
		learns := d.learn(*r, words)
		if learned := *d; learns {
			learned.noThoughts = false
			m.dialect.Store(&learned)
		}
		return learns
	})
}

// learn takes from the words of a refusal what the server does not understand,
// and reports whether there was something to learn. The protocol names what is
// wrong in prose alone.
func (d *dialect) learn(r llm.Request, refused string) bool {
	says := func(words string) bool { return strings.Contains(refused, words) }
	chooses := len(r.Tools) > 0 && !r.NoCalls
	switch {
	case refused == remote.Images:
		if d.blind || !remote.HasImages(r) {
			return false
		}
		d.blind = true
	case isEffort(r.Effort) && !d.ownEffort && says("effort"):
		d.ownEffort = true
	case r.Schema != nil && !d.noSchema && (says("output_config") || says("output_format") || says("schema") || says("structured output")):
		d.noSchema = true
	case r.Temperature != nil && r.TopP != nil && !d.ownTemperature && !d.ownTopP && !d.notBoth && says("temperature") && says("top_p"):
		d.notBoth = true
	case r.Temperature != nil && !d.ownTemperature && says("temperature"):
		// The prompt matters more than it.
		d.ownTemperature = true
	case r.TopP != nil && !d.ownTopP && says("top_p"):
		d.ownTopP = true
	case len(r.Stop) > 0 && !d.noStop && says("stop_sequences"):
		d.noStop = true
	case chooses && r.Choice.One && !d.manyCalls && says("disable_parallel_tool_use"):
		d.manyCalls = true
	case chooses && r.Choice.Required && !d.freeChoice && says("tool_choice"):
		d.freeChoice = true
	case chooses && r.Choice.One && !d.manyCalls && says("tool_choice"):
		d.manyCalls = true
	case r.NoCalls && !d.noToolChoice && says("tool_choice"):
		d.noToolChoice = true
	case !d.noThoughts && (says("thinking") || says("signature")) && slices.ContainsFunc(r.Messages, func(m llm.Message) bool { return m.Provider == Provider && len(m.Thinking) > 0 }):
		d.noThoughts = true
	default:
		return false
	}
	return true
}

// isEffort reports whether the protocol knows a word for how much effort to make.
func isEffort(word string) bool {
	return slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, word)
}

// stops are the texts before which an answer is to end: those that the server is told
// of, and those that it does not take, which the driver sees to.
func (d dialect) stops(r llm.Request) (sent, unsent []string) {
	for _, text := range r.Stop {
		if d.noStop || isBlank(text) {
			unsent = append(unsent, text)
		} else {
			sent = append(sent, text)
		}
	}
	return sent, unsent
}

// attempt asks once.
func (m *Model) attempt(ctx context.Context, r *llm.Request, d *dialect, each func(text string)) (*llm.Response, *remote.Failure) {
	x, raw, failed := m.send(ctx, r, d, each != nil)
	if failed != nil {
		return nil, failed
	}
	defer x.Close()
	f := new(fold)
	// Some servers stream whatever they are asked, some never.
	if kind, _, _ := mime.ParseMediaType(raw.Header.Get("Content-Type")); kind == "text/event-stream" {
		f.each = each
		if err := f.readStream(x, raw); err != nil {
			return nil, x.Broken(err)
		}
		return m.response(*r, f)
	}
	data, err := io.ReadAll(x)
	if err == nil && f.whole(data) != nil {
		err = remote.ErrProtocol
	}
	if err != nil {
		return nil, x.Broken(err)
	}
	response, failed := m.response(*r, f)
	if failed == nil && each != nil && response.Text != "" {
		each(response.Text)
	}
	return response, failed
}

// send sends a request; the answer is yet to be read. What is large in a request is
// gone from the stack while it is waited for.
func (m *Model) send(ctx context.Context, r *llm.Request, d *dialect, streams bool) (*remote.Exchange, *http.Response, *remote.Failure) {
	if wrong := remote.Check(*r); wrong != nil {
		return nil, nil, wrong
	}
	body, wrong := m.body(*r, *d, streams)
	if wrong != nil {
		return nil, nil, wrong
	}
	return m.endpoint.Send(ctx, streams, func(ctx context.Context) (*http.Response, error) {
		header := http.Header{}
		header.Set("Anthropic-Version", protocolVersion)
		if key := m.endpoint.Key(); key != "" {
			header.Set("X-Api-Key", key)
		}
		return m.endpoint.Post(ctx, "v1/messages", header, body)
	}, complain)
}

// response judges what was said.
func (m *Model) response(r llm.Request, f *fold) (*llm.Response, *remote.Failure) {
	said, ok := f.said()
	if !ok {
		return new(llm.Response), &remote.Failure{Kind: llm.ErrUnavailable, What: remote.ErrProtocol.Error()}
	}
	response := &llm.Response{Text: said.text, Filtered: f.stop == "refusal", Model: m.endpoint.Name()}
	if !response.Filtered {
		// Thoughts go back with the calls that they led to.
		response.Thinking, response.ToolCalls = said.thinking, remote.Calls(r, said.calls)
	}
	if len(response.Thinking) > 0 {
		response.Provider = Provider
	}
	if f.stop == "stop_sequence" && slices.Contains(r.Stop, f.sequence) {
		response.Stopped = f.sequence
	}
	u := f.usage
	remote.Usage{
		Input: u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens, Cached: u.CacheReadInputTokens, Written: u.CacheCreationInputTokens,
		Output: u.OutputTokens, Thoughts: u.OutputTokensDetails.ThinkingTokens,
	}.Of(r, response)
	switch f.stop {
	case "refusal":
		if response.Text == "" {
			return response, &remote.Failure{Kind: llm.ErrRefused, What: "the model declines"}
		}
	case "model_context_window_exceeded":
		return new(llm.Response), &remote.Failure{Kind: llm.ErrContextTooLong, What: "the window is full"}
	case "max_tokens", "pause_turn":
		// Only the server's own tools, of which none is offered, pause a turn;
		// what came is not all either way.
		response.Truncated = true
	}
	if response.Text == "" && len(response.ToolCalls) == 0 {
		return response, &remote.Failure{Kind: llm.ErrEmpty, What: "no content"}
	}
	return response, nil
}
