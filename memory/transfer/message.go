package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// messageFields are those of a transcript's message that are read.
var messageFields = map[string]bool{
	"role": true, "content": true, "name": true, "tool_calls": true, "tool_call_id": true, "function_call": true, "reasoning_content": true, "refusal": true,
	"created_at": true, "create_time": true, "timestamp": true, "time": true,
}

// maxCalls is how many tool calls are remembered to name their results.
const maxCalls = 1024

// speech turns the messages of one conversation into drafts.
type speech struct {
	now  func() time.Time
	last time.Time
	// external says that something from outside was said, or by another session.
	external bool
	// calls are the names of the last tool calls by id, order the ids.
	calls map[string]string
	order []string
}

// draft returns the draft of one message. A text is of whoever has the role, but
// what a tool says is external, what an assistant says after it is derived, and
// what bears the marks of another session, a task or a retry is of that source.
func (s *speech) draft(fields map[string]json.RawMessage) (memory.Draft, error) {
	var d memory.Draft
	role, err := text(fields, "role")
	if err != nil {
		return d, err
	}
	name, err := text(fields, "name")
	if err != nil {
		return d, err
	}
	if d.At, err = s.at(fields); err != nil {
		return d, err
	}
	switch role {
	case "user":
		d.Role, d.Source = memory.RoleUser, memory.SourceUser
	case "assistant":
		d.Role, d.Source = memory.RoleAssistant, memory.SourceAssistant
		if s.external {
			d.Trust = memory.TrustDerived
		}
	case "system", "developer":
		d.Role = memory.RoleSystem
	case "tool", "function":
		d.Role, d.Source = memory.RoleTool, memory.SourceTool
		return d, s.result(&d, fields, name)
	default:
		return d, fmt.Errorf("role %.100q is not one of user, assistant, system, developer, tool, function: %w", role, memory.ErrInvalid)
	}
	if reasoning, err := text(fields, "reasoning_content"); err != nil {
		return d, err
	} else if reasoning != "" {
		d.Blocks = append(d.Blocks, memory.Block{Type: memory.BlockThinking, Text: reasoning})
	}
	parts, err := partsOf(fields["content"])
	if err != nil {
		return d, err
	}
	for i, p := range parts {
		b, err := s.block(p, name)
		if err != nil {
			return d, fmt.Errorf("part %d: %w", i+1, err)
		}
		d.Blocks = append(d.Blocks, b)
	}
	if refusal, err := text(fields, "refusal"); err != nil {
		return d, err
	} else if refusal != "" {
		d.Blocks = append(d.Blocks, memory.Text(refusal))
	}
	if err := s.called(&d, fields); err != nil {
		return d, err
	}
	if len(d.Blocks) == 0 {
		d.Blocks = []memory.Block{memory.Text("")}
	}
	for _, b := range d.Blocks {
		s.external = s.external || !b.External.IsEmpty()
	}
	// A transcript has nothing but marks to tell an announcement by.
	if marked := memory.MarkedSource(d.Role, textOf(d.Blocks)); marked != memory.SourceUnknown {
		d.Source = marked
	}
	s.external = s.external || d.Sealed() != memory.TrustDirect
	return d, nil
}

// textOf returns the texts of a message, one a line.
func textOf(blocks []memory.Block) string {
	if len(blocks) == 1 && blocks[0].Type == memory.BlockText {
		return blocks[0].Text
	}
	var texts []string
	for _, b := range blocks {
		if b.Type == memory.BlockText {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// text returns a field that is a string, null or absent.
func text(fields map[string]json.RawMessage, key string) (string, error) {
	raw := fields[key]
	if raw == nil {
		return "", nil
	}
	var value *string
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", fmt.Errorf("%s: %w", key, invalid(err))
	}
	if value == nil {
		return "", nil
	}
	return *value, nil
}

// at returns when the message was said.
func (s *speech) at(fields map[string]json.RawMessage) (time.Time, error) {
	for _, key := range []string{"created_at", "create_time", "timestamp", "time"} {
		raw := fields[key]
		if raw == nil || string(raw) == "null" {
			continue
		}
		at, err := parseTime(raw)
		if err != nil {
			return at, fmt.Errorf("%s: %w", key, invalid(err))
		}
		s.last = at
		return at, nil
	}
	// A store keeps microseconds.
	at := s.now()
	if earliest := s.last.Add(time.Microsecond); at.Before(earliest) {
		at = earliest
	}
	s.last = at
	return at, nil
}

// parseTime reads RFC 3339, or seconds or milliseconds since 1970.
func parseTime(raw json.RawMessage) (time.Time, error) {
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return time.Time{}, err
		}
		return time.Parse(time.RFC3339, text)
	}
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err != nil {
		return time.Time{}, err
	}
	const millisecondsFrom = 1e11 // in seconds the year 5138, in milliseconds 1973
	if math.Abs(seconds) >= millisecondsFrom {
		seconds /= 1000
	}
	if math.Abs(seconds) >= millisecondsFrom {
		return time.Time{}, fmt.Errorf("%s is no time", raw)
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e6)*1e3).UTC(), nil
}

// partsOf returns the parts of a content, which is a string, a list of strings and
// objects, or null.
func partsOf(raw json.RawMessage) ([]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	switch raw[0] {
	case '"', '{':
		return []json.RawMessage{raw}, nil
	case '[':
		var parts []json.RawMessage
		err := json.Unmarshal(raw, &parts)
		return parts, err
	}
	return nil, fmt.Errorf("content is neither a text nor a list of parts: %w", memory.ErrInvalid)
}

// part is what is read of one part of a content.
type part struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Refusal   *string         `json:"refusal"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// block returns the block of one part: text and calls as such, everything else as
// it came.
func (s *speech) block(raw json.RawMessage, name string) (memory.Block, error) {
	if words, ok := plain(raw); ok {
		return named(words, name)
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return memory.Block{}, err
	}
	switch kind.Type {
	case "tool_use", "tool_result":
		var p part
		if err := json.Unmarshal(raw, &p); err != nil {
			return memory.Block{}, err
		}
		// Of the store's own form if it names no call so.
		if kind.Type == "tool_result" && p.ToolUseID == "" {
			break
		}
		if kind.Type == "tool_use" {
			s.remember(p.ID, p.Name)
			return memory.ToolCall(p.ID, p.Name, arguments(p.Input)), nil
		}
		words, _, err := wordsOf(p.Content)
		if err != nil {
			return memory.Block{}, err
		}
		return s.toolResult(p.ToolUseID, s.calls[p.ToolUseID], words, p.IsError), nil
	}
	var b memory.Block
	err := b.UnmarshalJSON(raw)
	return b, err
}

// plain returns the words of a part that has nothing else.
func plain(raw json.RawMessage) (string, bool) {
	if raw[0] == '"' {
		var words string
		return words, json.Unmarshal(raw, &words) == nil
	}
	var p part
	if raw[0] != '{' || json.Unmarshal(raw, &p) != nil {
		return "", false
	}
	switch p.Type {
	case "text", "input_text", "output_text":
		if p.Text != nil {
			return *p.Text, true
		}
	case "refusal":
		if p.Refusal != nil {
			return *p.Refusal, true
		}
	}
	return "", false
}

// named is a text that keeps the name of who said it.
func named(words, name string) (b memory.Block, err error) {
	if name == "" {
		return memory.Text(words), nil
	}
	encoded, err := json.Marshal(struct {
		Type memory.BlockType `json:"type"`
		Text string           `json:"text"`
		Name string           `json:"name"`
	}{memory.BlockText, words, name})
	if err == nil {
		err = b.UnmarshalJSON(encoded)
	}
	return b, err
}

// called adds the assistant's calls.
func (s *speech) called(d *memory.Draft, fields map[string]json.RawMessage) error {
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	var calls []json.RawMessage
	if raw := fields["tool_calls"]; raw != nil {
		if err := json.Unmarshal(raw, &calls); err != nil {
			return fmt.Errorf("tool_calls: %w", invalid(err))
		}
	}
	for _, raw := range calls {
		var c struct {
			Type     string    `json:"type"`
			ID       string    `json:"id"`
			Function *function `json:"function"`
			// Custom is a call of a tool that takes a text.
			Custom *struct {
				Name  string          `json:"name"`
				Input json.RawMessage `json:"input"`
			} `json:"custom"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("tool_calls: %w", invalid(err))
		}
		switch {
		case c.Function == nil && c.Custom != nil:
			c.Function = &function{c.Custom.Name, c.Custom.Input}
		case c.Function == nil && c.Type != "" && c.Type != "function":
			// Of a kind that is not known here: it is kept as it is.
			b, err := s.block(raw, "")
			if err != nil {
				return fmt.Errorf("tool_calls: %w", invalid(err))
			}
			d.Blocks = append(d.Blocks, b)
			continue
		case c.Function == nil:
			c.Function = &function{}
		}
		s.remember(c.ID, c.Function.Name)
		d.Blocks = append(d.Blocks, memory.ToolCall(c.ID, c.Function.Name, arguments(c.Function.Arguments)))
	}
	if raw := fields["function_call"]; raw != nil && string(raw) != "null" {
		var f function
		if err := json.Unmarshal(raw, &f); err != nil {
			return fmt.Errorf("function_call: %w", invalid(err))
		}
		d.Blocks = append(d.Blocks, memory.ToolCall("", f.Name, arguments(f.Arguments)))
	}
	return nil
}

// arguments returns what a tool is called with as an object: models write it as a
// string, and not always as one that holds an object.
func arguments(raw json.RawMessage) json.RawMessage {
	object := func(raw []byte) bool {
		raw = bytes.TrimLeft(raw, " \t\r\n")
		return len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
	}
	if object(raw) {
		return raw
	}
	var written string
	if json.Unmarshal(raw, &written) == nil && object([]byte(written)) {
		return json.RawMessage(written)
	}
	if len(raw) == 0 || string(raw) == "null" || strings.TrimSpace(written) == "" && raw[0] == '"' {
		return json.RawMessage("{}")
	}
	wrapped, err := json.Marshal(map[string]json.RawMessage{"arguments": raw})
	if err != nil {
		return json.RawMessage("{}")
	}
	return wrapped
}

func (s *speech) remember(id, name string) {
	if id == "" || len(id) > 256 || len(name) > 256 {
		return
	}
	if s.calls == nil {
		s.calls = map[string]string{}
	}
	if _, known := s.calls[id]; !known {
		if s.order = append(s.order, id); len(s.order) > maxCalls {
			delete(s.calls, s.order[0])
			s.order = append(s.order[:0], s.order[1:]...)
		}
	}
	s.calls[id] = name
}

// result makes d what a tool said.
func (s *speech) result(d *memory.Draft, fields map[string]json.RawMessage, name string) error {
	id, err := text(fields, "tool_call_id")
	if err != nil {
		return err
	}
	if name == "" {
		name = s.calls[id]
	}
	words, rest, err := wordsOf(fields["content"])
	if err != nil {
		return err
	}
	d.Blocks = append([]memory.Block{s.toolResult(id, name, words, false)}, rest...)
	return nil
}

func (s *speech) toolResult(id, name, words string, failed bool) memory.Block {
	s.external = true
	source, err := boundary.ToolSource(name)
	if err != nil {
		// A name that cannot be in the host's own words.
		if source, err = boundary.ToolSource("unnamed"); err != nil {
			source = boundary.Source{}
		}
	}
	content, _ := boundary.Wrap(source, words, boundary.Unlimited)
	return memory.ToolResult(id, name, content, failed)
}

// wordsOf returns the texts of a tool's content, one a line, and what is no text.
// That is shown to nobody, unless it has the form of external text.
func wordsOf(raw json.RawMessage) (string, []memory.Block, error) {
	parts, err := partsOf(raw)
	if err != nil {
		return "", nil, err
	}
	var words []string
	var rest []memory.Block
	for i, p := range parts {
		if text, ok := plain(p); ok {
			words = append(words, text)
			continue
		}
		var b memory.Block
		if err := b.UnmarshalJSON(p); err != nil {
			return "", nil, fmt.Errorf("part %d: %w", i+1, err)
		}
		switch b.Type {
		case memory.BlockText, memory.BlockThinking, memory.BlockToolCall, memory.BlockFile:
			// As words that are not a tool's own they would be taken for another's.
			words = append(words, string(p))
		default:
			rest = append(rest, b)
		}
	}
	return strings.Join(words, "\n"), rest, nil
}
