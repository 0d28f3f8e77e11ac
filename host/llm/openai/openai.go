// Package openai asks any server that speaks the Chat Completions protocol,
// through the official SDK: OpenAI's own, or a compatible one such as
// llama.cpp, vLLM or Ollama.
package openai

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

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
	chat     openai.ChatCompletionService
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
	// The service alone: openai.NewClient would take keys, headers and
	// addresses from the environment.
	m.chat = openai.NewChatCompletionService(
		option.WithBaseURL(c.BaseURL),
		option.WithAPIKey(c.APIKey),
		option.WithHTTPClient(endpoint.Client()),
		// The endpoint repeats requests: the SDK (v3.95) counts the wait for
		// the next attempt as part of the last one's time, waits although ctx
		// will be done before, and repeats what an empty account will refuse.
		option.WithMaxRetries(0),
	)
	return m, nil
}

// String names the model and the host of the server.
func (m *Model) String() string { return m.endpoint.String() }

// GoString is String.
func (m *Model) GoString() string { return m.String() }

// Complete implements llm.Model. Errors wrap ctx's, or llm.ErrRateLimited,
// llm.ErrUnavailable, llm.ErrAuth, llm.ErrContextTooLong, llm.ErrRefused or
// llm.ErrEmpty, and nothing of the SDK's, whose errors hold the request and so
// the key.
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
	params, wrong := m.params(*r, *d, streams)
	if wrong != nil {
		return nil, wrong
	}
	x, _, failed := m.endpoint.Send(ctx, streams, func(ctx context.Context) (raw *http.Response, err error) {
		options := []option.RequestOption{option.WithResponseBodyInto(&raw)}
		if streams {
			options = append(options, option.WithJSONSet("stream", true))
		}
		_, err = m.chat.New(ctx, params, options...)
		return raw, err
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

// params writes a request that was checked. The error is that of a schema, or of a
// tool's parameters, that are not a JSON object.
func (m *Model) params(r llm.Request, d dialect, streams bool) (openai.ChatCompletionNewParams, *remote.Failure) {
	p := openai.ChatCompletionNewParams{Model: m.endpoint.Name()}
	if streams && !d.noStreamUsage {
		p.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	system := r.System
	if s := r.Schema; s != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(s.JSON, &object); err != nil || object == nil || !llm.ValidToolName(s.Name) {
			return p, &remote.Failure{Kind: llm.ErrRefused, What: "the schema " + strconv.Quote(s.Name) + " has no name of 1 to 64 letters, digits, '_' or '-', or is not a JSON object"}
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
			system = remote.InWords(system, s)
		}
	}
	for _, t := range r.Tools {
		function := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			function.Description = openai.String(t.Description)
		}
		if t.Parameters != nil {
			if err := json.Unmarshal(t.Parameters, &function.Parameters); err != nil || function.Parameters == nil {
				return p, &remote.Failure{Kind: llm.ErrRefused, What: "the parameters of the tool " + strconv.Quote(t.Name) + " are not a JSON object"}
			}
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(function))
	}
	if r.NoCalls && d.noToolChoice {
		p.Tools = nil
	}
	if len(p.Tools) > 0 {
		switch c := r.Choice; {
		case r.NoCalls:
			p.ToolChoice.OfAuto = openai.String("none")
		case !c.Required || d.freeChoice:
		case c.Name == "":
			p.ToolChoice.OfAuto = openai.String("required")
		default:
			p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: c.Name})
		}
		if r.Choice.One && !r.NoCalls && !d.manyCalls {
			p.ParallelToolCalls = openai.Bool(false)
		}
	}
	if system != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(system))
	}
	for _, message := range r.Messages {
		p.Messages = append(p.Messages, messages(message, d.blind)...)
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
	if r.TopP != nil && !d.ownTopP {
		p.TopP = openai.Float(*r.TopP)
	}
	if !d.noStop {
		p.Stop.OfStringArray = r.Stop
	}
	if !d.ownEffort && !d.otherEffort {
		p.ReasoningEffort = shared.ReasoningEffort(r.Effort)
	}
	return p, nil
}

// messages writes one message; in this protocol every tool's result is one of
// its own, and thoughts have no place. Whether a call failed is said by the result's
// text alone. Blind leaves pictures out.
func messages(m llm.Message, blind bool) []openai.ChatCompletionMessageParamUnion {
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
	var parts []openai.ChatCompletionContentPartUnionParam
	for words, image := range remote.Parts(m, blind) {
		switch {
		case image == nil:
			parts = append(parts, openai.TextContentPart(words))
		case image.URL != "":
			parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: image.URL}))
		default:
			data := "data:" + image.MediaType + ";base64," + base64.StdEncoding.EncodeToString(image.Data)
			parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: data}))
		}
	}
	switch {
	case len(parts) == 1 && parts[0].OfText != nil:
		// Not every server knows of parts.
		all = append(all, openai.UserMessage(parts[0].OfText.Text))
	case len(parts) > 0:
		all = append(all, openai.UserMessage(parts))
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
