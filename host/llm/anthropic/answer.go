package anthropic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// fold puts an answer together, of one message or of the events of a stream. The
// SDK (v1.84) has both too, but in a value of some kilobytes for each block, and
// by adding to one string again and again: a server could have 16 MiB cost
// gigabytes and minutes.
type fold struct {
	each   func(text string) // nil unless streaming
	blocks []*block
	// stop says why the answer ended, sequence before which text if it is for that.
	stop, sequence string
	usage          usage
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

// usage is what the request cost. Numbers are of any kind that JSON has.
type usage struct {
	InputTokens              float64 `json:"input_tokens"`
	CacheCreationInputTokens float64 `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     float64 `json:"cache_read_input_tokens"`
	OutputTokens             float64 `json:"output_tokens"`
	OutputTokensDetails      struct {
		ThinkingTokens float64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// message is a whole answer, or the beginning of a streamed one.
type message struct {
	Type         string            `json:"type"`
	Content      []json.RawMessage `json:"content"`
	StopReason   string            `json:"stop_reason"`
	StopSequence string            `json:"stop_sequence"`
	Usage        usage             `json:"usage"`
}

// whole takes an answer that came at once.
func (f *fold) whole(data []byte) error {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m.Type != "message" {
		return remote.ErrProtocol
	}
	f.stop, f.sequence, f.usage = m.StopReason, m.StopSequence, m.Usage
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
		return remote.ErrProtocol
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
		Type         string `json:"type"`
		Text         string `json:"text"`
		Thinking     string `json:"thinking"`
		Signature    string `json:"signature"`
		PartialJSON  string `json:"partial_json"`
		StopReason   string `json:"stop_reason"`
		StopSequence string `json:"stop_sequence"`
	} `json:"delta"`
	// Usage of a message_delta is of the whole message; what is absent is as it
	// was.
	Usage json.RawMessage `json:"usage"`
}

// add takes one event. Types that it does not know are passed over: the protocol
// may grow.
func (f *fold) add(e event) error {
	switch e.Type {
	case "message_start":
		f.usage = e.Message.Usage
	case "content_block_start":
		if e.Index != len(f.blocks) {
			return remote.ErrProtocol
		}
		if err := f.begin(e.ContentBlock); err != nil {
			return err
		}
		if b := f.blocks[e.Index]; b.Type == "text" {
			f.say(b.Text)
		}
	case "content_block_delta":
		if e.Index < 0 || e.Index >= len(f.blocks) {
			return remote.ErrProtocol
		}
		b := f.blocks[e.Index]
		if b.Type == "text" && e.Index < len(f.blocks)-1 {
			return remote.ErrProtocol // its place in the text has been given out
		}
		b.text.WriteString(e.Delta.Text)
		b.thinking.WriteString(e.Delta.Thinking)
		b.signed.WriteString(e.Delta.Signature)
		b.arg.WriteString(e.Delta.PartialJSON)
		if b.Type == "text" {
			f.say(e.Delta.Text)
		}
	case "message_delta":
		// Some servers send another one, with what it cost alone.
		if e.Delta.StopReason != "" {
			f.stop, f.sequence = e.Delta.StopReason, e.Delta.StopSequence
		}
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

// readStream reads the events of an answer to the last. Errors are for
// remote.Exchange.Broken.
func (f *fold) readStream(x *remote.Exchange, raw *http.Response) error {
	// Comments keep a connection alive, too, and the decoder says nothing of them.
	raw.Body = &commented{ReadCloser: raw.Body, begins: true, heard: x.Alive}
	decoder := ssestream.NewDecoder(raw)
	for !f.ended {
		x.Alive()
		if !decoder.Next() {
			break
		}
		var e event
		if err := json.Unmarshal(decoder.Event().Data, &e); err != nil {
			if len(bytes.TrimSpace(decoder.Event().Data)) == 0 {
				continue // some keep the connection alive that way
			}
			return remote.ErrProtocol
		}
		if e.Type == "error" {
			return streamFault(decoder.Event().Data)
		}
		if f.add(e) != nil {
			return remote.ErrProtocol
		}
	}
	switch err := decoder.Err(); {
	case f.ended:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return remote.ErrProtocol
	case err != nil:
		return err
	}
	return remote.ErrCut
}

// commented is the body of a stream; heard is told when a comment has come.
type commented struct {
	io.ReadCloser
	begins bool // a line begins next
	heard  func()
}

func (c *commented) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	comment := false
	for _, v := range b[:n] {
		comment = comment || c.begins && v == ':'
		c.begins = v == '\n' || v == '\r'
	}
	if comment {
		c.heard()
	}
	return n, err
}

// streamFault explains an error that came in place of an event: the status was 200 by
// then, so the type says which one it would have been.
func streamFault(event []byte) *remote.Failure {
	c := complain(http.StatusBadRequest, event)
	status, ok := statuses[c.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	return c.Explain(status, "an error in the stream")
}

// statuses are those that the types of errors come with.
var statuses = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"conflict_error":        http.StatusConflict,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      529,
}

// complain reads what is wrong from the body of a status.
func complain(status int, body []byte) remote.Complaint {
	var said struct {
		Error json.RawMessage `json:"error"`
	}
	var detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Details struct {
			Code string `json:"error_code"`
		} `json:"details"`
	}
	// Proxies put what they like where Anthropic puts an object; what does not fit
	// says nothing.
	_ = json.Unmarshal(body, &said)
	if json.Unmarshal(said.Error, &detail) != nil {
		_ = json.Unmarshal(said.Error, &detail.Message)
	}
	words := strings.ToLower(detail.Message)
	return remote.Complaint{
		Code: detail.Type,
		// An account with nothing left is told so with 400, or with 429 for the rest of
		// the month.
		NoCredit: detail.Type == "billing_error" || detail.Details.Code == "enforced_spend_limit_reached" ||
			status == http.StatusBadRequest && (strings.Contains(words, "credit balance") || strings.Contains(words, "usage limits")),
		TooLong: remote.SaysTooLong(words),
		Blind:   remote.SaysBlind(words),
		Refused: words,
	}
}
