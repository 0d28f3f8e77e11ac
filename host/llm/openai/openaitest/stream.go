package openaitest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"unicode/utf8"
)

// Step is a part of a stream. What it writes is sent at once.
type Step func(w io.Writer, r *http.Request)

// Stream answers in pieces, with status 200, whether or not it was asked to. A
// stream that is in order ends with Finish, perhaps Usage, and Done.
func Stream(steps ...Step) Answer {
	return func(w http.ResponseWriter, r *http.Request, _ Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		control := http.NewResponseController(w)
		for _, step := range append([]Step{Delta(map[string]any{"role": "assistant", "content": ""})}, steps...) {
			step(w, r)
			_ = control.Flush() // a client that has gone is no fault of the server
		}
	}
}

// Event is the event of any data.
func Event(data string) Step { return Raw("data: " + data + "\n\n") }

// Raw sends bytes as they are.
func Raw(bytes string) Step {
	return func(w io.Writer, _ *http.Request) { io.WriteString(w, bytes) }
}

// Delta sends a part of the answer.
func Delta(fields map[string]any) Step { return choose(fields, nil) }

// Piece sends text.
func Piece(text string) Step { return Delta(map[string]any{"content": text}) }

// Finish says how the answer ends.
func Finish(reason string) Step { return choose(map[string]any{}, reason) }

// Usage says what the answer cost, and how many of InputTokens were kept if cached
// is not nil. It follows Finish.
func Usage(cached *int) Step {
	if cached == nil {
		return Spent(nil)
	}
	return Spent(&Cost{Input: InputTokens, Cached: *cached, Output: OutputTokens})
}

// Spent says what the answer cost, as Reply has it. It follows Finish.
func Spent(cost *Cost) Step {
	return event(map[string]any{"choices": []any{}, "usage": cost.fields()})
}

// Done ends a stream.
func Done() Step { return Event("[DONE]") }

// Deltas sends calls as OpenAI does: each with its id and name first, then its
// arguments in two pieces.
func Deltas(calls ...ToolCall) Step {
	return func(w io.Writer, r *http.Request) {
		for i, c := range calls {
			part := func(fields map[string]any) {
				fields["index"] = i
				Delta(map[string]any{"tool_calls": []any{fields}})(w, r)
			}
			whole := c.Function.Arguments
			half := len(whole) / 2
			for half > 0 && !utf8.RuneStart(whole[half]) {
				half--
			}
			part(map[string]any{"id": c.ID, "type": c.Type, "function": map[string]any{"name": c.Function.Name, "arguments": ""}})
			part(map[string]any{"function": map[string]any{"arguments": whole[:half]}})
			part(map[string]any{"function": map[string]any{"arguments": whole[half:]}})
		}
	}
}

// Pause calls f on the server's goroutine, after all that comes before it was
// sent. ctx is done when the client has gone.
func Pause(f func(ctx context.Context)) Step {
	return func(_ io.Writer, r *http.Request) { f(r.Context()) }
}

// Break closes the connection.
func Break() Step {
	return func(io.Writer, *http.Request) { panic(http.ErrAbortHandler) }
}

func choose(delta map[string]any, reason any) Step {
	return event(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}}})
}

func event(fields map[string]any) Step {
	all := map[string]any{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
	for name, value := range fields {
		all[name] = value
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic("openaitest: " + err.Error()) // texts and numbers are always JSON
	}
	return Event(string(data))
}
