package openai

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// chunk is a whole answer, or one event of a stream.
type chunk struct {
	// Object is "error" where a server sends the fields of an error bare.
	Object  string
	Error   json.RawMessage
	Choices list[choice]
	Usage   *struct {
		PromptTokens        int64 `json:"prompt_tokens"`
		CompletionTokens    int64 `json:"completion_tokens"`
		PromptTokensDetails struct {
			CachedTokens     int64 `json:"cached_tokens"`
			CacheWriteTokens int64 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionTokensDetails struct {
			ReasoningTokens int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
}

// choice is the one that was asked for: of a stream Delta is set, of a whole
// answer Message.
type choice struct {
	Index          int
	Delta, Message *part
	FinishReason   string `json:"finish_reason"`
	// StopReason is what vLLM says of where the answer was to end: the text, or the
	// number of a token.
	StopReason any `json:"stop_reason"`
}

// part is what the model says. What it thinks, which servers put in fields of
// their own, is not read.
type part struct {
	Content   words
	Refusal   words
	ToolCalls list[callPart] `json:"tool_calls"`
}

// callPart is a call or, in a stream, a part of one.
type callPart struct {
	Index    *int
	ID       string
	Function struct {
		Name      string
		Arguments arguments
	}
}

// list is the beginning of a JSON array, which may be of millions of nulls.
// Members of another form are zero, and anything but an array is empty.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(b []byte) error {
	*l = nil
	if b[0] != '[' {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(b))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() && len(*l) < llm.MaxToolCalls {
		var member T
		if err := decoder.Decode(&member); err != nil && !isMismatch(err) {
			return err
		}
		*l = append(*l, member)
	}
	return nil
}

// isMismatch reports whether JSON was read but for what is of another type, and
// is zero.
func isMismatch(err error) bool {
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// words is a JSON string, byte by byte: a server that cuts its stream within a
// character sends two halves, and package json would put U+FFFD for each. Anything
// but a string is no words.
type words string

func (w *words) UnmarshalJSON(b []byte) error {
	*w = ""
	if b[0] != '"' {
		return nil
	}
	if utf8.Valid(b) {
		return json.Unmarshal(b, (*string)(w))
	}
	var all []byte
	for rest := b[1 : len(b)-1]; len(rest) > 0; {
		valid, broken := 0, 0
		for valid < len(rest) {
			r, size := utf8.DecodeRune(rest[valid:])
			if r == utf8.RuneError && size == 1 {
				broken = 1
				break
			}
			valid += size
		}
		if run := rest[:valid]; bytes.IndexByte(run, '\\') < 0 {
			all = append(all, run...)
		} else {
			var s string
			if err := json.Unmarshal(append(append([]byte{'"'}, run...), '"'), &s); err != nil {
				return err
			}
			all = append(all, s...)
		}
		all = append(all, rest[valid:valid+broken]...)
		rest = rest[valid+broken:]
	}
	*w = words(all)
	return nil
}

// arguments are JSON in a string, or as some servers have it, not in one.
type arguments string

func (a *arguments) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		*a = arguments(b)
		return nil
	}
	return (*words)(a).UnmarshalJSON(b)
}

// answer is what came so far.
type answer struct {
	speech speech
	calls  []*call
	latest *call // to which something came last
	// answered says that there was a choice, declined that the model refuses, and
	// reason why the answer is at an end; "" while it is not. stop may be what ended
	// it.
	answered, declined bool
	reason, stop       string
	usage              remote.Usage
}

// read reads an answer to its end. What it is shows in its first byte: not every
// server streams when it is asked to, some stream when they are not, and the
// Content-Type is not always right. progress is called after each event.
//
// Errors are a *remote.Failure that the server reports, remote.ErrCut, remote.ErrProtocol and those of
// body and progress. After an error a.reason tells whether the answer had come to
// its end.
func (a *answer) read(body io.Reader, progress func() error) error {
	// The connection has a buffer of its own; this one is there for as long as the
	// model thinks.
	r := bufio.NewReaderSize(body, 512)
	for {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return remote.ErrCut
		} else if err != nil {
			return err
		}
		if strings.IndexByte(" \t\r\n\xef\xbb\xbf", b) >= 0 {
			continue
		}
		if err := r.UnreadByte(); err != nil {
			return err
		}
		if b != '{' {
			return a.readEvents(r, progress)
		}
		whole, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return a.add(whole, true)
	}
}

// readEvents reads a stream of server-sent events up to [DONE] or its end.
func (a *answer) readEvents(r *bufio.Reader, progress func() error) error {
	var line, data []byte
	isError, spoken := false, false
	for {
		var err error
		line, err = readLine(r, line)
		ends := errors.Is(err, io.EOF)
		if err != nil && !ends {
			return err
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			spoken = true
			data = append(append(data, value...), '\n')
		case "event":
			spoken = true
			isError = string(value) == "error"
		case "", "id", "retry":
			// A comment keeps the connection open, and the silence from counting.
			spoken = spoken || len(line) > 0
		}
		if ends || len(line) == 0 {
			event := bytes.TrimSpace(data)
			switch {
			case bytes.Equal(event, []byte("[DONE]")):
				a.reason = cmp.Or(a.reason, "done")
				return nil
			case len(event) == 0:
			case isError:
				return complain(event).failure()
			case ends && !json.Valid(event):
			default:
				if err := a.add(event, false); err != nil {
					return err
				}
			}
			data, isError = data[:0], false
			if err := progress(); err != nil {
				return err
			}
		}
		switch {
		case !ends:
		case a.reason != "":
			return nil
		case spoken:
			return remote.ErrCut
		default:
			return remote.ErrProtocol
		}
	}
}

// readLine reads a line, without its end, into buffer.
func readLine(r *bufio.Reader, buffer []byte) (line []byte, err error) {
	line = buffer[:0]
	for more := true; more && err == nil; {
		var part []byte
		part, more, err = r.ReadLine()
		line = append(line, part...)
	}
	return line, err
}

// add adds one event of a stream, or the whole of an answer; data is not empty.
func (a *answer) add(data []byte, whole bool) error {
	var c chunk
	if err := json.Unmarshal(data, &c); data[0] != '{' || err != nil && !isMismatch(err) {
		return remote.ErrProtocol
	}
	if c.Object == "error" || len(c.Error) > 0 && string(c.Error) != "null" {
		return complain(data).failure()
	}
	if u := c.Usage; u != nil {
		a.usage = remote.Usage{
			Input: float64(u.PromptTokens), Cached: float64(u.PromptTokensDetails.CachedTokens), Written: float64(u.PromptTokensDetails.CacheWriteTokens),
			Output: float64(u.CompletionTokens), Thoughts: float64(u.CompletionTokensDetails.ReasoningTokens),
		}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		said := choice.Delta
		if said == nil && !a.answered {
			said = choice.Message
		}
		a.answered = true
		if said != nil {
			a.declined = a.declined || said.Refusal != ""
			a.speech.say(string(said.Content))
			for _, c := range said.ToolCalls {
				a.call(c, whole)
			}
		}
		if choice.FinishReason != "" {
			a.reason = choice.FinishReason
		}
		if stop, ok := choice.StopReason.(string); ok {
			a.stop = stop
		}
	}
	return nil
}

// end returns the answer to a request when all of it has come.
func (a *answer) end(r llm.Request) (*llm.Response, *remote.Failure) {
	a.speech.end()
	response := &llm.Response{Text: a.speech.text.String(), Truncated: a.reason == "length", Filtered: a.declined || a.reason == "content_filter"}
	if !response.Filtered {
		response.ToolCalls = remote.Calls(r, a.toolCalls())
	}
	if slices.Contains(r.Stop, a.stop) {
		response.Stopped = a.stop
	}
	// Prefixes are kept without being asked for, so a breakpoint says nothing
	// here.
	a.usage.Of(r, response)
	switch {
	case a.reason == "error", a.reason == "insufficient_system_resource":
		// OpenRouter and DeepSeek say so of an answer that they did not finish.
		return new(llm.Response), &remote.Failure{Kind: llm.ErrUnavailable, What: remote.ErrCut.Error(), Passing: true}
	case response.Text != "" || len(response.ToolCalls) > 0:
	case response.Filtered:
		// A refusal is no answer: it must not become a summary.
		return response, &remote.Failure{Kind: llm.ErrRefused, What: "the model declines"}
	case !a.answered:
		return response, &remote.Failure{Kind: llm.ErrEmpty, What: "no choices"}
	default:
		return response, &remote.Failure{Kind: llm.ErrEmpty, What: "no content"}
	}
	return response, nil
}

// speech is what the model says. It is given out as it comes, but no part of a
// character and no white space before there is more: an answer of white space is
// none.
type speech struct {
	text  strings.Builder
	each  func(text string) // nil if nobody listens
	part  string            // of a character, at most 3 bytes
	blank strings.Builder   // before the first words
}

// begun reports whether something was given out.
func (s *speech) begun() bool { return s.text.Len() > 0 }

func (s *speech) say(piece string) {
	piece = s.part + piece
	cut := len(piece)
	for i := 1; i < utf8.UTFMax && i <= len(piece); i++ {
		if b := piece[len(piece)-i]; utf8.RuneStart(b) {
			if !utf8.FullRuneInString(piece[len(piece)-i:]) {
				cut = len(piece) - i
			}
			break
		}
	}
	s.part = piece[cut:]
	s.give(piece[:cut])
}

// end gives out what is left.
func (s *speech) end() {
	s.give(s.part)
	s.part = ""
}

func (s *speech) give(piece string) {
	if !utf8.ValidString(piece) {
		piece = string([]rune(piece)) // one U+FFFD for each byte, however it is cut
	}
	switch {
	case piece == "":
		return
	case s.begun():
	case strings.TrimSpace(piece) == "":
		s.blank.WriteString(piece)
		return
	default:
		piece = s.blank.String() + piece
		s.blank.Reset()
	}
	s.text.WriteString(piece)
	if s.each != nil {
		s.each(piece)
	}
}

// call is one call of a tool, as far as it has come.
type call struct {
	index    *int
	id, name string
	input    []byte
	// Of the object in input.
	depth            int
	inString, escape bool
	closed           bool
}

// call adds a call or a part of one.
func (a *answer) call(p callPart, whole bool) {
	c := a.callOf(p)
	if c == nil || whole || c.isOver(p) {
		c = &call{index: p.Index}
		if len(a.calls) < llm.MaxToolCalls {
			a.calls = append(a.calls, c)
		}
	}
	a.latest = c
	if c.id == "" {
		c.id = p.ID
	}
	if len(c.input) == 0 && p.Function.Name != c.name {
		// In pieces, though most send it at once, and some with each piece of the
		// input again.
		c.name += p.Function.Name
	}
	c.write(string(p.Function.Arguments))
}

// callOf returns the call that p is a part of, or nil if there is none yet: it
// goes by the index, or else by the id, or else it is the last one.
func (a *answer) callOf(p callPart) *call {
	if p.Index == nil && p.ID == "" {
		return a.latest
	}
	is := func(c *call) bool {
		if p.Index != nil {
			return c.index != nil && *c.index == *p.Index
		}
		return c.id == p.ID
	}
	if a.latest != nil && is(a.latest) {
		return a.latest
	}
	for i := len(a.calls) - 1; i >= 0; i-- {
		if is(a.calls[i]) {
			return a.calls[i]
		}
	}
	return nil
}

// isOver reports whether p begins another call, though it goes by the name of
// this one: servers that do not count send index 0 with each, some of them
// without an id. An id alone says nothing, for some make up one for each part.
func (c *call) isOver(p callPart) bool {
	if p.Function.Name == "" {
		return false
	}
	if p.ID != "" && c.id != "" && p.ID != c.id {
		return true
	}
	return c.closed && p.ID == "" && strings.TrimSpace(string(p.Function.Arguments)) != ""
}

// write adds to the input, up to one byte more than may be.
func (c *call) write(piece string) {
	piece = piece[:min(len(piece), llm.MaxToolInput+1-len(c.input))]
	c.input = append(c.input, piece...)
	for i := range len(piece) {
		switch b := piece[i]; {
		case c.escape:
			c.escape = false
		case c.inString:
			c.escape = b == '\\'
			c.inString = b != '"'
		case b == '"':
			c.inString = true
		case b == '{':
			c.depth++
		case b == '}':
			c.depth--
			c.closed = c.depth == 0
		}
	}
}

// toolCalls returns what the model asked for, as it came.
func (a *answer) toolCalls() []llm.ToolCall {
	var all []llm.ToolCall
	for _, c := range a.calls {
		call := llm.ToolCall{ID: c.id, Name: c.name, Input: c.input}
		if a.reason == "length" && c == a.latest && !c.closed {
			// Without any arguments yet it would be a call that needs none.
			call.Input, call.Fault = nil, "the arguments were cut off"
		}
		all = append(all, call)
	}
	return all
}
