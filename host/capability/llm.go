package capability

import (
	"context"
	"errors"
	"fmt"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/llm"
)

// ActionLLMComplete is the action of LLM. Its target is the size of what is
// sent, for the words themselves have no place in an audit.
const ActionLLMComplete Action = "llm.complete"

// LLM is the port to the host's model. It implements sandbox.LLM, which counts
// calls and tokens before it comes here, and is safe for concurrent use.
type LLM struct {
	door  door
	model llm.Model
}

// NewLLM returns the port. A nil model refuses every call.
func NewLLM(ledger *Ledger, caller Caller, model llm.Model) *LLM {
	return &LLM{door{ledger, caller}, model}
}

// Complete implements sandbox.LLM: one completion without tools, of the hand's
// own two texts and nothing of the host's. Neither the texts nor the answer are
// framed: the answer goes back into the box, and what leaves that is framed as a
// whole.
//
// Errors have a kind: timeout when ctx is done, too_large when the prompt is
// longer than the model's window, denied when its server rejects the prompt,
// disabled without a model, unavailable for the rest. A model that answers
// nothing gives an empty text, so that the tokens it spent on thinking count.
func (l *LLM) Complete(ctx context.Context, r abi.LLMCompleteRequest) (abi.LLMCompleteResult, error) {
	var no *refusal
	if l.model == nil {
		no = &refusal{abi.KindDisabled, "no model is configured for hands"}
	}
	size := fmt.Sprintf("%d tokens", tokens.Estimate(r.System)+tokens.Estimate(r.Prompt))
	if err := l.door.decide(ctx, ActionLLMComplete, size, no); err != nil {
		return abi.LLMCompleteResult{}, err
	}
	answer, err := l.model.Complete(ctx, llm.Request{
		System:          r.System,
		Messages:        []llm.Message{{Role: llm.RoleUser, Text: r.Prompt}},
		MaxOutputTokens: r.MaxOutputTokens,
	})
	if err != nil && !errors.Is(err, llm.ErrEmpty) {
		return abi.LLMCompleteResult{}, fmt.Errorf("%s: %w: %w", ActionLLMComplete, err, kindOfModelError(ctx, err))
	}
	return abi.LLMCompleteResult{Text: answer.Text, InputTokens: answer.InputTokens, OutputTokens: answer.OutputTokens}, nil
}

func kindOfModelError(ctx context.Context, err error) abi.Kind {
	switch {
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return abi.KindTimeout
	case errors.Is(err, llm.ErrContextTooLong):
		return abi.KindTooLarge
	case errors.Is(err, llm.ErrRefused):
		return abi.KindDenied
	}
	return abi.KindUnavailable
}
