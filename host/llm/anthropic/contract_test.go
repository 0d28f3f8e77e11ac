package anthropic_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic/anthropictest"
	"github.com/gloveboxhq/glovebox/host/llm/llmtest"
)

// The driver keeps the contract of every model, also where a server streams to who
// did not ask for it.
func TestTheDriverKeepsTheContract(t *testing.T) {
	for name, always := range map[string]bool{"as asked": false, "always streams": true} {
		t.Run(name, func(t *testing.T) {
			llmtest.TestDriver(t, func(t *testing.T, turns ...llmtest.Turn) llm.Model {
				var answers []anthropictest.Answer
				for _, turn := range turns {
					answers = append(answers, func(w http.ResponseWriter, r *http.Request, sent anthropictest.Request) {
						sent.Stream = sent.Stream || always
						play(turn, sent)(w, r, sent)
					})
				}
				return open(t, anthropic.Config{BaseURL: anthropictest.NewServer(t, answers...).BaseURL, MaxRetries: never})
			})
		})
	}
}

// play is a turn in this protocol.
func play(turn llmtest.Turn, sent anthropictest.Request) anthropictest.Answer {
	switch {
	case turn.Status != 0 && turn.RetryAfter != 0:
		return anthropictest.Status(turn.Status, "{}", "Retry-After", fmt.Sprint(int(turn.RetryAfter.Seconds())))
	case turn.Status != 0:
		return anthropictest.Status(turn.Status, "{}")
	}
	reason := "end_turn"
	switch {
	case turn.Truncated:
		reason = "max_tokens"
	case turn.Declined:
		reason = "refusal"
	case len(turn.Calls) > 0:
		reason = "tool_use"
	}
	var said []anthropictest.Saying
	switch {
	case turn.Next != nil:
		said = append(said, anthropictest.Slowly(turn.Next, turn.Text...))
	case len(turn.Text) > 0:
		said = append(said, anthropictest.Words(turn.Text...))
	}
	if turn.Then != nil {
		said = append(said, anthropictest.Pause(turn.Then))
	}
	if turn.BrokenOff && !sent.Stream {
		return anthropictest.BrokenOff()
	}
	if turn.BrokenOff {
		said = append(said, anthropictest.Break())
	}
	for _, c := range turn.Calls {
		said = append(said, anthropictest.Call(c.ID, c.Name, string(c.Input)))
	}
	return anthropictest.Finished(reason, said...)
}
