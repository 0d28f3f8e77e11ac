// Package openai asks any server that speaks the Chat Completions protocol,
// through the official SDK: OpenAI's own, or a compatible one such as
// llama.cpp, vLLM or Ollama.
package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Config names a model.
type Config struct {
	// BaseURL of the server, with its version path, such as
	// http://127.0.0.1:8080/v1; "" means OpenAI's own.
	BaseURL string
	// APIKey is sent as a bearer token. It stands in no error and no log.
	APIKey string
	// Name of the model.
	Name string
	// Timeout bounds one attempt; zero means 2 minutes.
	Timeout time.Duration
	// MaxRetries is how often a request that failed in passing (429, 5xx, no
	// connection) is sent again; zero means 3, negative means never.
	MaxRetries int
	// HTTPClient sends the requests; nil means one of its own, which takes no
	// proxy from the environment.
	HTTPClient *http.Client
}

const (
	defaultBaseURL    = "https://api.openai.com/v1"
	defaultTimeout    = 2 * time.Minute
	defaultMaxRetries = 3
	maxRetryDelay     = 20 * time.Second
	maxResponseBytes  = 16 << 20
)

// Model is an llm.Model. It is safe for concurrent use.
type Model struct {
	chat  openai.ChatCompletionService
	name  string
	host  string
	key   string
	plain bool // the server is not OpenAI's own
}

var _ llm.Model = (*Model)(nil)

// New returns a model. It reads no environment and opens no connection.
func New(c Config) (*Model, error) {
	if c.Name == "" {
		return nil, errors.New("openai: the name of the model is missing")
	}
	base := c.BaseURL
	if base == "" {
		base = defaultBaseURL
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return nil, errors.New("openai: the base URL is not http:// or https:// with a host and without a password")
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	switch {
	case c.MaxRetries == 0:
		c.MaxRetries = defaultMaxRetries
	case c.MaxRetries < 0:
		c.MaxRetries = 0
	}
	client := c.HTTPClient
	if client == nil {
		client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second}}
	}
	// The service alone: openai.NewClient would take keys, headers and
	// addresses from the environment.
	chat := openai.NewChatCompletionService(
		option.WithBaseURL(base),
		option.WithAPIKey(c.APIKey),
		option.WithHTTPClient(client),
		option.WithRequestTimeout(c.Timeout),
		option.WithMaxRetries(c.MaxRetries),
		option.WithMaxRetryDelay(maxRetryDelay),
		option.WithMiddleware(boundResponse),
	)
	return &Model{chat: chat, name: c.Name, host: u.Host, key: c.APIKey, plain: u.Host != "api.openai.com"}, nil
}

// boundResponse keeps a server from filling the memory.
func boundResponse(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	response, err := next(r)
	if err == nil && response.Body != nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxResponseBytes), response.Body}
	}
	return response, err
}

// Complete implements llm.Model. Errors wrap llm.ErrRateLimited,
// llm.ErrUnavailable, llm.ErrAuth, llm.ErrContextTooLong, llm.ErrRefused and
// llm.ErrEmpty.
func (m *Model) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	completion, err := m.chat.New(ctx, m.params(r))
	if refusesTemperature(err) && r.Temperature != nil {
		// Models that reason know only their own temperature; the prompt
		// matters more than it.
		r.Temperature = nil
		completion, err = m.chat.New(ctx, m.params(r))
	}
	if err != nil {
		return llm.Response{}, m.translate(ctx, err)
	}
	if len(completion.Choices) == 0 || strings.TrimSpace(completion.Choices[0].Message.Content) == "" {
		return llm.Response{}, fmt.Errorf("ask %s at %s: %w", m.name, m.host, llm.ErrEmpty)
	}
	choice := completion.Choices[0]
	return llm.Response{
		Text:        choice.Message.Content,
		InputTokens: int(completion.Usage.PromptTokens), OutputTokens: int(completion.Usage.CompletionTokens),
		Truncated: choice.FinishReason == "length",
		Model:     m.name,
	}, nil
}

func (m *Model) params(r llm.Request) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: m.name}
	if r.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(r.System))
	}
	for _, message := range r.Messages {
		if message.Role == llm.RoleAssistant {
			p.Messages = append(p.Messages, openai.AssistantMessage(message.Text))
		} else {
			p.Messages = append(p.Messages, openai.UserMessage(message.Text))
		}
	}
	if r.MaxOutputTokens > 0 {
		// OpenAI has replaced max_tokens, and its newer models refuse it;
		// compatible servers know that name, and not all the other.
		if m.plain {
			p.MaxTokens = openai.Int(int64(r.MaxOutputTokens))
		} else {
			p.MaxCompletionTokens = openai.Int(int64(r.MaxOutputTokens))
		}
	}
	if r.Temperature != nil {
		p.Temperature = openai.Float(*r.Temperature)
	}
	return p
}

func refusesTemperature(err error) bool {
	failure, ok := errors.AsType[*openai.Error](err)
	return ok && failure.StatusCode == http.StatusBadRequest && failure.Param == "temperature"
}

// translate keeps the server's own words, which are external, out of the
// error; a status and a code are enough to act on.
func (m *Model) translate(ctx context.Context, err error) error {
	operation := fmt.Sprintf("ask %s at %s", m.name, m.host)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", operation, ctx.Err())
	}
	failure, ok := errors.AsType[*openai.Error](err)
	if !ok {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s: no answer in time: %w", operation, llm.ErrUnavailable)
		}
		return fmt.Errorf("%s: %s: %w", operation, m.redacted(err.Error()), llm.ErrUnavailable)
	}
	status := failure.StatusCode
	kind := llm.ErrRefused
	switch {
	case status == http.StatusTooManyRequests:
		kind = llm.ErrRateLimited
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind = llm.ErrAuth
	case failure.Code == "context_length_exceeded" || status == http.StatusRequestEntityTooLarge:
		kind = llm.ErrContextTooLong
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict:
		kind = llm.ErrUnavailable
	}
	return fmt.Errorf("%s: status %d: %w", operation, status, kind)
}

func (m *Model) redacted(text string) string {
	if m.key == "" {
		return text
	}
	return strings.ReplaceAll(text, m.key, "[key]")
}
