// Package llm asks the host's language model. Importing it makes the module ask
// for the capability "llm"; the manifest must ask for it too.
//
// The host limits the calls of one query and the tokens of their prompts
// together, by default to 8 and 16,000. The answers of one query together have
// the MaxOutputTokens of its reply. Package abi/tokens estimates as the host
// does.
//
// The model has no tools. What it answers may repeat what a prompt holds that
// others wrote, instructions for a model included: it is no more to be trusted.
package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

// Request is one prompt.
type Request struct {
	// System says how to answer; it may be empty.
	System string
	// Prompt is what to answer. It must hold more than white space.
	Prompt string
	// MaxOutputTokens bounds the answer; zero, and more than is left of the
	// query's, mean what is left.
	MaxOutputTokens int
}

// Response is one answer.
type Response struct {
	// Text is cut to the request's bound. It is empty if the model spent all
	// on thinking.
	Text string
	// InputTokens and OutputTokens are the model's own counts, or the host's
	// estimates.
	InputTokens, OutputTokens int
}

func init() {
	guest.WarmJSON(
		abi.LLMCompleteRequest{System: "x", Prompt: "x", MaxOutputTokens: 1},
		abi.LLMCompleteResult{Text: "x", InputTokens: 1, OutputTokens: 1},
	)
}

// Model answers prompts.
type Model func(ctx context.Context, r Request) (Response, error)

type modelKey struct{}

// WithModel returns a context in which Complete calls m. It is how a native test
// gives a hand its model.
func WithModel(ctx context.Context, m Model) context.Context {
	return context.WithValue(ctx, modelKey{}, m)
}

// Complete returns the answer to one prompt. Errors match the kinds of package
// abi with errors.Is: bad_request for a prompt that is none, quota_exceeded when
// calls or tokens are used up, too_large for a prompt over the model's window,
// denied for one that the model's server rejects, timeout, unavailable,
// too_many_calls and not_granted; disabled where there is no model.
func Complete(ctx context.Context, r Request) (Response, error) {
	if strings.TrimSpace(r.Prompt) == "" || r.MaxOutputTokens < 0 {
		return Response{}, fmt.Errorf("llm complete: %w", abi.KindBadRequest)
	}
	model := Model(host)
	if m, ok := ctx.Value(modelKey{}).(Model); ok && m != nil {
		model = m
	}
	response, err := model(ctx, r)
	if err != nil {
		return Response{}, fmt.Errorf("llm complete: %w", err)
	}
	return response, nil
}

// host asks the host.
func host(_ context.Context, r Request) (Response, error) {
	request, err := json.Marshal(abi.LLMCompleteRequest{System: r.System, Prompt: r.Prompt, MaxOutputTokens: r.MaxOutputTokens})
	if err != nil {
		return Response{}, err
	}
	data, err := guest.Call(hostComplete, request)
	if err != nil {
		return Response{}, err
	}
	var result abi.LLMCompleteResult
	if err := json.Unmarshal(data, &result); err != nil {
		return Response{}, err
	}
	return Response(result), nil
}
