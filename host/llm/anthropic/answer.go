package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// fold puts an answer together, of one message or of the events of a stream. The
// SDK (v1.84) has both too, but in a value of some kilobytes for each block, and
// by adding to one string again and again: a server could have 16 MiB cost
// gigabytes and minutes.
type fold struct {
	each   func(text string) // nil unless streaming
	blocks []*block
	stop   string
	usage  usage
	// given is how much of the text each got; held is white space that it did not
	// get yet.
	given bool
	held  strings.Builder
	ended bool
}

// maxBlocks is how many parts an answer may have. Models have some tens.
const maxBlocks = 4096

// block is one part of an answer.
type block struct {
	Type  string          `json:"type"`
	Text  string          `json:"text"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
	// raw is the part as it came. What was streamed into it follows apart.
	raw                         json.RawMessage
	text, thinking, signed, arg strings.Builder
}

// usage is what the request cost. Numbers are of any kind that JSON has: count
// reads them.
type usage struct {
	InputTokens              float64 `json:"input_tokens"`
	CacheCreationInputTokens float64 `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     float64 `json:"cache_read_input_tokens"`
	OutputTokens             float64 `json:"output_tokens"`
}

// message is a whole answer, or the beginning of a streamed one.
type message struct {
	Type       string            `json:"type"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      usage             `json:"usage"`
}

var errProtocol = errors.New("not of the protocol")

// whole takes an answer that came at once.
func (f *fold) whole(data []byte) error {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m.Type != "message" {
		return errProtocol
	}
	f.stop, f.usage = m.StopReason, m.Usage
	for _, raw := range m.Content {
		if err := f.begin(raw); err != nil {
			return err
		}
	}
	return nil
}

// begin takes a block, whole or the beginning of one.
func (f *fold) begin(raw json.RawMessage) error {
	if len(f.blocks) == maxBlocks {
		return errProtocol
	}
	b := &block{raw: raw}
	f.blocks = append(f.blocks, b)
	return json.Unmarshal(raw, b)
}

// event is one event of a stream.
type event struct {
	Type         string          `json:"type"`
	Index        int             `json:"index"`
	Message      message         `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	// Usage of a message_delta is of the whole message; what is absent is as it
	// was.
	Usage json.RawMessage `json:"usage"`
	Error struct {
		Type string `json:"type"`
	} `json:"error"`
}

// add takes one event. Types that it does not know are passed over: the protocol
// may grow.
func (f *fold) add(e event) error {
	switch e.Type {
	case "message_start":
		f.usage = e.Message.Usage
	case "content_block_start":
		if e.Index != len(f.blocks) {
			return errProtocol
		}
		if err := f.begin(e.ContentBlock); err != nil {
			return err
		}
		if b := f.blocks[e.Index]; b.Type == "text" {
			f.say(b.Text)
		}
	case "content_block_delta":
		if e.Index < 0 || e.Index >= len(f.blocks) {
			return errProtocol
		}
		b := f.blocks[e.Index]
		if b.Type == "text" && e.Index < len(f.blocks)-1 {
			return errProtocol // its place in the text has been given out
		}
		b.text.WriteString(e.Delta.Text)
		b.thinking.WriteString(e.Delta.Thinking)
		b.signed.WriteString(e.Delta.Signature)
		b.arg.WriteString(e.Delta.PartialJSON)
		if b.Type == "text" {
			f.say(e.Delta.Text)
		}
	case "message_delta":
		f.stop = e.Delta.StopReason
		if e.Usage != nil {
			return json.Unmarshal(e.Usage, &f.usage)
		}
	case "message_stop":
		f.ended = true
	}
	return nil
}

// say gives out a piece of the text.
func (f *fold) say(text string) {
	if text == "" || f.each == nil {
		return
	}
	if !f.given {
		f.held.WriteString(text)
		if isBlank(text) {
			return
		}
		f.given, text = true, f.held.String()
		f.held.Reset()
	}
	f.each(text)
}

// said is what an answer came to.
type said struct {
	text     string
	thinking []json.RawMessage
	calls    []llm.ToolCall
}

// said returns what the blocks say, unless that cannot be.
func (f *fold) said() (said, bool) {
	var s said
	var text strings.Builder
	// A thought behind words cannot go back to its place, for a Message has its
	// thoughts first. Part of the thoughts is none.
	spoken, parted := false, false
	for i, b := range f.blocks {
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
			text.WriteString(b.text.String())
			spoken = true
		case "tool_use":
			c := llm.ToolCall{ID: b.ID, Name: b.Name, Input: b.Input}
			if b.arg.Len() > 0 {
				c.Input = json.RawMessage(b.arg.String())
			}
			if f.stop == "max_tokens" && i == len(f.blocks)-1 {
				// What is there may be valid and not all.
				c.Input, c.Fault = nil, "the arguments were cut off"
			}
			s.calls = append(s.calls, c)
			spoken = true
		case "thinking", "redacted_thinking":
			raw, ok := b.thought()
			if !ok {
				return said{}, false
			}
			parted = parted || spoken || !utf8.Valid(raw)
			s.thinking = append(s.thinking, raw)
		}
	}
	if parted {
		s.thinking = nil
	}
	if t := text.String(); !isBlank(t) {
		s.text = t
	}
	return s, true
}

// thought returns a thought as it came, with what was streamed into it.
func (b *block) thought() (json.RawMessage, bool) {
	if b.thinking.Len() == 0 && b.signed.Len() == 0 {
		return bytes.Clone(b.raw), true
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(b.raw, &fields) != nil {
		return nil, false
	}
	for name, streamed := range map[string]*strings.Builder{"thinking": &b.thinking, "signature": &b.signed} {
		var begun string
		if v, ok := fields[name]; ok && json.Unmarshal(v, &begun) != nil {
			return nil, false
		}
		if fields[name] = plainJSON(begun + streamed.String()); fields[name] == nil {
			return nil, false
		}
	}
	raw := plainJSON(fields)
	return raw, raw != nil
}

// plainJSON writes JSON as servers do, with <, > and & as they are.
func plainJSON(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// readStream reads the events of an answer to the last.
func (m *Model) readStream(ctx context.Context, raw *http.Response, f *fold, watch *time.Timer) *failure {
	spoken := func(failed *failure) *failure {
		// Who heard the beginning cannot hear another.
		failed.passing = failed.passing && !f.given
		return failed
	}
	decoder := ssestream.NewDecoder(raw)
	defer decoder.Close()
	for !f.ended {
		watch.Reset(m.timeout)
		more := decoder.Next()
		watch.Stop()
		if !more {
			break
		}
		var e event
		if err := json.Unmarshal(decoder.Event().Data, &e); err != nil {
			if len(bytes.TrimSpace(decoder.Event().Data)) == 0 {
				continue // some keep the connection alive that way
			}
			return spoken(offProtocol())
		}
		if e.Type == "error" {
			return spoken(streamFault(e.Error.Type))
		}
		if f.add(e) != nil {
			return spoken(offProtocol())
		}
	}
	switch err := decoder.Err(); {
	case f.ended:
		return nil
	case err != nil:
		return spoken(m.broken(ctx, err))
	case ctx.Err() != nil:
		return spoken(m.broken(ctx, ctx.Err()))
	}
	return spoken(brokenOff())
}

// streamFault explains an error that came in place of an event: the status was
// 200 by then.
func streamFault(kind string) *failure {
	f := &failure{kind: llm.ErrUnavailable, what: "an error in the stream", passing: true}
	if isIdentifier(kind) {
		f.what += ", " + kind
	}
	switch kind {
	case "rate_limit_error":
		f.kind = llm.ErrRateLimited
	case "authentication_error", "permission_error", "billing_error":
		f.kind, f.passing = llm.ErrAuth, false
	case "invalid_request_error", "not_found_error":
		f.kind, f.passing = llm.ErrRefused, false
	case "request_too_large":
		f.kind, f.passing = llm.ErrContextTooLong, false
	}
	return f
}

// refusal explains a status. Of the server's own words, which are external, only
// a type that is a plain identifier gets into the error; the message is only
// searched.
func refusal(response *http.Response) *failure {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	var said struct {
		Error json.RawMessage `json:"error"`
	}
	var detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	// Proxies put what they like where Anthropic puts an object; what does not fit
	// says nothing.
	_ = json.Unmarshal(body, &said)
	if json.Unmarshal(said.Error, &detail) != nil {
		_ = json.Unmarshal(said.Error, &detail.Message)
	}
	words := strings.ToLower(detail.Message)
	status := response.StatusCode
	f := &failure{kind: llm.ErrRefused, what: "status " + strconv.Itoa(status)}
	if isIdentifier(detail.Type) {
		f.what += " " + detail.Type
	}
	f.after, f.waits = retryAfter(response.Header)
	switch {
	case status < 400:
		f.what += ", a redirect, which is not followed"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired, detail.Type == "billing_error",
		status == http.StatusBadRequest && (strings.Contains(words, "credit balance") || strings.Contains(words, "usage limits")):
		// An account with nothing left is told so with 400.
		f.kind = llm.ErrAuth
	case status == http.StatusTooManyRequests:
		f.kind, f.passing = llm.ErrRateLimited, true
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest && isTooLong(words):
		f.kind = llm.ErrContextTooLong
	case status == http.StatusNotImplemented:
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		f.kind, f.passing = llm.ErrUnavailable, true
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		f.refused = words
	}
	return f
}

func isIdentifier(code string) bool {
	return code != "" && len(code) <= 48 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// isTooLong knows Anthropic's sentences and those of servers that speak its
// protocol.
func isTooLong(message string) bool {
	for _, words := range []string{"prompt is too long", "input is too long", "exceed context limit", "context length", "context window", "context size"} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// retryAfter reads how long the server wants to be left alone: seconds or a
// date, or milliseconds.
func retryAfter(h http.Header) (time.Duration, bool) {
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.ParseFloat(h.Get(header.name), 64); err == nil && n >= 0 {
			// Whatever is beyond the longest wait is all the same.
			return time.Duration(min(n, float64(time.Hour/header.unit)) * float64(header.unit)), true
		}
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return min(max(time.Until(at), 0), time.Hour), true
	}
	return 0, false
}
