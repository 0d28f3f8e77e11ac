package anthropictest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
)

// InputTokens and OutputTokens are what every answer says that it cost.
const (
	InputTokens  = 11
	OutputTokens = 7
)

// Saying is part of an answer.
type Saying func(sent Request) Block

// Words are text, in these pieces if they are streamed; of one alone, in some of
// a few letters.
func Words(pieces ...string) Saying {
	if len(pieces) == 1 {
		pieces = cut(pieces[0])
	}
	return func(Request) Block { return Block{Type: "text", Text: strings.Join(pieces, ""), pieces: pieces} }
}

// Pause runs do when what was said before has been sent, or before the first byte
// if it is not streamed. The context is done when the client has gone.
func Pause(do func(ctx context.Context)) Saying {
	return func(Request) Block { return Block{pause: do} }
}

// Break closes the connection when what was said before has been sent.
func Break() Saying {
	return Pause(func(context.Context) { panic(http.ErrAbortHandler) })
}

// Call is a call of the tool name. Input is JSON, if the model is in order.
func Call(id, name, input string) Saying {
	return func(Request) Block { return Block{Type: "tool_use", ID: id, Name: name, Input: json.RawMessage(input)} }
}

// Thought is a thought with its signature. From then on the script takes it only
// behind what it was thought about.
func Thought(thinking string) Saying {
	return func(sent Request) Block {
		sent.bind(sign(thinking))
		return Block{Type: "thinking", Thinking: thinking, Signature: sign(thinking)}
	}
}

// Redacted is a thought that is not shown.
func Redacted(thinking string) Saying {
	return func(sent Request) Block {
		sent.bind(redact(thinking))
		return Block{Type: "redacted_thinking", Data: redact(thinking)}
	}
}

// JSON is the part as a server writes it.
func (b Block) JSON() string {
	v := map[string]any{"type": b.Type}
	switch b.Type {
	case "text":
		v["text"] = b.Text
	case "tool_use":
		v["id"], v["name"], v["input"] = b.ID, b.Name, b.Input
	case "thinking":
		v["thinking"], v["signature"] = b.Thinking, b.Signature
	case "redacted_thinking":
		v["data"] = b.Data
	}
	return encode(v)
}

// encode writes JSON with <, > and & as they are.
func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("anthropictest: " + err.Error())
	}
	return strings.TrimSpace(b.String())
}

// Usage is what an answer says that it cost: Input is neither Written nor Read, and
// Thoughts are among the OutputTokens.
type Usage struct{ Input, Written, Read, Thoughts int }

func (u Usage) fields(output int) map[string]any {
	all := map[string]any{"input_tokens": u.Input, "cache_creation_input_tokens": u.Written, "cache_read_input_tokens": u.Read, "output_tokens": output}
	if u.Thoughts != 0 {
		all["output_tokens_details"] = map[string]any{"thinking_tokens": u.Thoughts}
	}
	return all
}

// Text answers text, whole.
func Text(text string) Answer { return Finished("end_turn", Words(text)) }

// Cut answers text that the output limit cut off.
func Cut(text string) Answer { return Finished("max_tokens", Words(text)) }

// Cached answers text, and of what it cost.
func Cached(text string, usage Usage) Answer { return finished(usage, "end_turn", "", Words(text)) }

// Stopped answers what was said before the stop sequence that ended it.
func Stopped(sequence string, said ...Saying) Answer {
	return finished(Usage{Input: InputTokens}, "stop_sequence", sequence, said...)
}

// Paced says pieces, each when next gives a value; all that are left once it is
// closed. What is not streamed is sent when all have been given.
func Paced(next <-chan struct{}, pieces ...string) Answer {
	return Finished("end_turn", Slowly(next, pieces...))
}

// Slowly are Words in pieces, each of which waits for a value of next.
func Slowly(next <-chan struct{}, pieces ...string) Saying {
	return func(Request) Block {
		return Block{Type: "text", Text: strings.Join(pieces, ""), pieces: pieces, before: func(ctx context.Context) {
			select {
			case <-next:
			case <-ctx.Done():
			}
		}}
	}
}

// Calls answers with thoughts, text and tool calls.
func Calls(said ...Saying) Answer { return Finished("tool_use", said...) }

// Finished answers anything with a stop_reason, in events if it is asked to
// stream.
func Finished(reason string, said ...Saying) Answer {
	return finished(Usage{Input: InputTokens}, reason, "", said...)
}

// finished answers with a stop_reason and, if it is not "", a stop_sequence.
func finished(usage Usage, reason, sequence string, said ...Saying) Answer {
	end := map[string]any{"stop_reason": reason, "stop_sequence": nil}
	if sequence != "" {
		end["stop_sequence"] = sequence
	}
	return func(w http.ResponseWriter, r *http.Request, sent Request) {
		if sent.Stream {
			stream(w, r, events(sent, usage, end, said...)...)
			return
		}
		content := []json.RawMessage{}
		for _, s := range said {
			b := s(sent)
			if b.pause != nil {
				b.pause(r.Context())
				continue
			}
			for range b.pieces {
				if b.before != nil {
					b.before(r.Context())
				}
			}
			content = append(content, json.RawMessage(b.JSON()))
		}
		w.Header().Set("Content-Type", "application/json")
		whole := map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": sent.Model, "content": content, "usage": usage.fields(OutputTokens)}
		maps.Copy(whole, end)
		io.WriteString(w, encode(whole))
	}
}

// step is an event, a JSON object, or a pause.
type step struct {
	event string
	pause func(ctx context.Context)
}

// events are those of an answer, whose last delta is end.
func events(sent Request, usage Usage, end map[string]any, said ...Saying) []step {
	var all []step
	add := func(event string) { all = append(all, step{event: event}) }
	add(encode(map[string]any{"type": "message_start", "message": map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": sent.Model, "content": []any{}, "stop_reason": nil, "usage": usage.fields(1),
	}}))
	add(`{"type":"ping"}`)
	i := 0
	for _, s := range said {
		b := s(sent)
		if b.pause != nil {
			all = append(all, step{pause: b.pause})
			continue
		}
		begun := b
		var deltas []map[string]any
		delta := func(kind, field string, pieces []string) {
			for _, piece := range pieces {
				deltas = append(deltas, map[string]any{"type": kind, field: piece})
			}
		}
		switch b.Type {
		case "text":
			begun.Text = ""
			delta("text_delta", "text", b.pieces)
		case "thinking":
			begun.Thinking, begun.Signature = "", ""
			delta("thinking_delta", "thinking", cut(b.Thinking))
			delta("signature_delta", "signature", []string{b.Signature})
		case "tool_use":
			begun.Input = json.RawMessage("{}")
			delta("input_json_delta", "partial_json", append([]string{""}, cut(string(b.Input))...))
		}
		add(fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, begun.JSON()))
		for _, d := range deltas {
			if b.before != nil {
				all = append(all, step{pause: b.before})
			}
			add(encode(map[string]any{"type": "content_block_delta", "index": i, "delta": d}))
		}
		add(fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
		i++
	}
	spent := usage.fields(OutputTokens)
	for _, begun := range []string{"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"} {
		delete(spent, begun) // message_start said so
	}
	add(encode(map[string]any{"type": "message_delta", "delta": end, "usage": spent}))
	add(`{"type":"message_stop"}`)
	return all
}

// cut cuts a text as models do, at most 5 characters at a time; of no text there
// is one piece.
func cut(text string) []string {
	var all []string
	runes := []rune(text)
	for len(runes) > 5 {
		all = append(all, string(runes[:5]))
		runes = runes[5:]
	}
	return append(all, string(runes))
}

// stream sends events and flushes each.
func stream(w http.ResponseWriter, r *http.Request, steps ...step) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, s := range steps {
		if s.pause != nil {
			_ = http.NewResponseController(w).Flush()
			s.pause(r.Context())
			continue
		}
		var kind struct{ Type string }
		_ = json.Unmarshal([]byte(s.event), &kind) // all have one
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind.Type, s.event)
		_ = http.NewResponseController(w).Flush()
	}
}

// Events sends these bytes as a stream.
func Events(raw string) Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, raw)
	}
}

// Started begins to stream text, without end: then goes on with the connection.
func Started(text string, then Answer) Answer {
	return func(w http.ResponseWriter, r *http.Request, sent Request) {
		whole := events(sent, Usage{Input: InputTokens}, nil, Words(text))
		stream(w, r, whole[:len(whole)-3]...)
		then(w, r, sent)
	}
}

// Error sends an error of a type as an event.
func Error(kind, message string) Answer {
	return func(w http.ResponseWriter, r *http.Request, _ Request) {
		stream(w, r, step{event: encode(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}})})
	}
}

// Body answers status 200 with a body, whatever it is.
func Body(body string) Answer { return Status(http.StatusOK, body) }

// Status answers a status with a body. Headers follow as names and values.
func Status(code int, body string, headers ...string) Answer {
	return remotetest.Status[Request](code, body, headers...)
}

// Fault answers an error as Anthropic writes it.
func Fault(status int, kind, message string) Answer {
	return Status(status, encode(map[string]any{
		"type": "error", "error": map[string]any{"type": kind, "message": message}, "request_id": "req_1",
	}))
}

// RateLimited answers 429 and after how long to come back, in the form of the
// Retry-After header.
func RateLimited(retryAfter string) Answer {
	return Status(http.StatusTooManyRequests, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, "Retry-After", retryAfter)
}

// Overloaded answers 529, and after how long to come back if that is not "".
func Overloaded(retryAfter string) Answer {
	body := `{"type":"error","error":{"type":"overloaded_error","message":"too busy"}}`
	if retryAfter == "" {
		return Status(529, body)
	}
	return Status(529, body, "Retry-After", retryAfter)
}

// BrokenOff begins an answer, whole, and closes the connection in the middle of it.
func BrokenOff() Answer {
	return remotetest.BrokenOff[Request](`{"type":"message","content":[{"type":"te`)
}

// Disconnected closes the connection without a word more.
func Disconnected() Answer { return remotetest.Disconnected[Request]() }

// Ended ends the answer as if it were whole.
func Ended() Answer { return func(http.ResponseWriter, *http.Request, Request) {} }

// Stalled closes entered, if it is not nil, when the request is there, and sends
// the first byte of then only after release is closed, or nothing if the client
// goes first; a nil release is never closed.
func Stalled(entered chan<- struct{}, release <-chan struct{}, then Answer) Answer {
	return remotetest.Stalled(entered, release, then)
}

// Endless streams text, or sends one, that never ends.
func Endless() Answer {
	more := strings.Repeat("a", 1<<16)
	return func(w http.ResponseWriter, r *http.Request, sent Request) {
		if !sent.Stream {
			remotetest.Endless[Request](`{"type":"message","content":[{"type":"text","text":"`, more)(w, r, sent)
			return
		}
		stream(w, r, events(sent, Usage{}, nil, Words("a"))[:3]...)
		delta := `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + more + `"}}`
		remotetest.Endless[Request]("", "event: content_block_delta\ndata: "+delta+"\n\n")(w, r, sent)
	}
}
