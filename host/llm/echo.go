package llm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/gloveboxhq/glovebox/abi/tokens"
)

// Echo is a Streamer for tests that is useless on purpose: it says how long a
// request is and gives its digest, so that equal requests have equal answers,
// different ones different answers, and nothing of a prompt is in any. Of how it is
// asked, MaxOutputTokens alone counts: it calls no tool and stops nowhere.
type Echo struct{}

var _ Streamer = Echo{}

// Complete implements Model. Its only error is that of ctx.
func (Echo) Complete(ctx context.Context, r Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, fmt.Errorf("echo: %w", err)
	}
	digest := sha256.New()
	// Lengths before texts: two messages are not one that joins them.
	fmt.Fprintf(digest, "%d %s\n", len(r.System), r.System)
	for _, m := range r.Messages {
		fmt.Fprintf(digest, "%s %d %s\n", m.Role, len(m.Text), m.Text)
		for _, i := range m.Images {
			fmt.Fprintf(digest, "image %d %q %d %s %q\n", i.At, i.MediaType, len(i.Data), i.Data, i.URL)
		}
		for _, c := range m.ToolCalls {
			fmt.Fprintf(digest, "call %q %q %d %s\n", c.ID, c.Name, len(c.Input), c.Input)
		}
		for _, v := range m.ToolResults {
			fmt.Fprintf(digest, "result %q %q %t %d %s\n", v.ID, v.Name, v.IsError, len(v.Text), v.Text)
		}
	}
	input := r.Tokens()
	text := fmt.Sprintf("echo of %d messages, %d tokens, %x", len(r.Messages), input, digest.Sum(nil)[:8])
	return bounded(Response{Text: text, InputTokens: input, Model: "echo"}, r.MaxOutputTokens), nil
}

// Stream implements Streamer: it gives out words.
func (e Echo) Stream(ctx context.Context, r Request, each func(text string)) (Response, error) {
	answer, err := e.Complete(ctx, r)
	if err != nil {
		return Response{}, err
	}
	if err := giveOut(ctx, strings.SplitAfter(answer.Text, " "), each); err != nil {
		return Response{}, fmt.Errorf("echo: %w", err)
	}
	return answer, nil
}

// giveOut calls each with one piece after the other until ctx is done.
func giveOut(ctx context.Context, pieces []string, each func(text string)) error {
	for _, piece := range pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		if piece != "" {
			each(piece)
		}
	}
	return nil
}

// bounded cuts an answer to limit, if there is one, and counts it. An answer
// that begins with a Latin letter is never cut to nothing.
func bounded(r Response, limit int) Response {
	if limit > 0 && tokens.Estimate(r.Text) > limit {
		r.Text, r.Truncated = tokens.Cut(r.Text, limit), true
	}
	r.OutputTokens = tokens.Estimate(r.Text)
	return r
}
