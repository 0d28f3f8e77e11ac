package llm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/llm"
)

func TestModelGivenByATest(t *testing.T) {
	ctx := llm.WithModel(t.Context(), func(_ context.Context, r llm.Request) (llm.Response, error) {
		if r.Prompt == "refuse" {
			return llm.Response{Text: "not to be seen"}, abi.KindDenied
		}
		return llm.Response{Text: r.System + "|" + r.Prompt, OutputTokens: r.MaxOutputTokens}, nil
	})
	got, err := llm.Complete(ctx, llm.Request{System: "s", Prompt: "p", MaxOutputTokens: 7})
	if err != nil || got != (llm.Response{Text: "s|p", OutputTokens: 7}) {
		t.Errorf("%+v, %v", got, err)
	}
	for prompt, want := range map[string]error{"refuse": abi.KindDenied, " \n": abi.KindBadRequest} {
		if got, err := llm.Complete(ctx, llm.Request{Prompt: prompt}); !errors.Is(err, want) || got.Text != "" {
			t.Errorf("%q: %+v, %v", prompt, got, err)
		}
	}
	if _, err := llm.Complete(t.Context(), llm.Request{Prompt: "p"}); !errors.Is(err, abi.KindDisabled) {
		t.Errorf("outside a hand: %v", err)
	}
}
