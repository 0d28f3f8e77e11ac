package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/llmtest"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// The driver keeps the contract of every model, also where a server streams to who
// did not ask for it.
func TestTheDriverKeepsTheContract(t *testing.T) {
	for name, speak := range map[string]func(llmtest.Turn, openaitest.Request) openaitest.Answer{
		"as asked": func(turn llmtest.Turn, sent openaitest.Request) openaitest.Answer {
			if sent.Stream {
				return streamed(turn)
			}
			return whole(turn)
		},
		"always streams": func(turn llmtest.Turn, _ openaitest.Request) openaitest.Answer { return streamed(turn) },
	} {
		t.Run(name, func(t *testing.T) {
			llmtest.TestDriver(t, func(t *testing.T, turns ...llmtest.Turn) llm.Model {
				var answers []openaitest.Answer
				for _, turn := range turns {
					answers = append(answers, func(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
						speak(turn, sent)(w, r, sent)
					})
				}
				return open(t, openai.Config{BaseURL: openaitest.NewServer(t, answers...).BaseURL, MaxRetries: never})
			})
		})
	}
}

func reason(turn llmtest.Turn) string {
	switch {
	case turn.Truncated:
		return "length"
	case turn.Declined:
		return "content_filter"
	case len(turn.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func wireCalls(calls []llm.ToolCall) (wire []openaitest.ToolCall) {
	for _, c := range calls {
		wire = append(wire, openaitest.Call(c.ID, c.Name, string(c.Input)))
	}
	return wire
}

func whole(turn llmtest.Turn) openaitest.Answer {
	text := strings.Join(turn.Text, "")
	answer := openaitest.Reply{Text: text, Calls: wireCalls(turn.Calls), Reason: reason(turn)}.Answer()
	switch {
	case turn.Status != 0:
		answer = status(turn)
	case turn.BrokenOff:
		answer = openaitest.BrokenOff()
	}
	return func(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
		if turn.Then != nil {
			turn.Then(r.Context())
		}
		answer(w, r, sent)
	}
}

func status(turn llmtest.Turn) openaitest.Answer {
	if turn.RetryAfter == 0 {
		return openaitest.Status(turn.Status, "{}")
	}
	return openaitest.Status(turn.Status, "{}", "Retry-After", fmt.Sprint(int(turn.RetryAfter.Seconds())))
}

func streamed(turn llmtest.Turn) openaitest.Answer {
	if turn.Status != 0 {
		return status(turn)
	}
	var steps []openaitest.Step
	for _, piece := range turn.Text {
		if turn.Next != nil {
			steps = append(steps, openaitest.Pause(func(gone context.Context) {
				select {
				case <-turn.Next:
				case <-gone.Done():
				}
			}))
		}
		steps = append(steps, openaitest.Piece(piece))
	}
	if turn.Then != nil {
		steps = append(steps, openaitest.Pause(turn.Then))
	}
	if turn.BrokenOff {
		return openaitest.Stream(append(steps, openaitest.Break())...)
	}
	return openaitest.Stream(append(steps, openaitest.Deltas(wireCalls(turn.Calls)...),
		openaitest.Finish(reason(turn)), openaitest.Usage(nil), openaitest.Done())...)
}
