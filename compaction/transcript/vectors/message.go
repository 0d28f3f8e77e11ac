package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// message is one message of a case, as it came and as a row.
type message struct {
	id string
	// volatile is what the file says of a live message; nil if nothing.
	volatile *bool
	fields   messageFields
	// text says that the content is a string. blocks are those of the parts.
	text   bool
	blocks []json.RawMessage
	row    transcript.Row
}

// messageFields are what a message says, in the order in which it is written.
type messageFields struct {
	Role        memory.Role     `json:"role"`
	ToolCallID  *string         `json:"tool_call_id,omitempty"`
	ToolName    *string         `json:"tool_name,omitempty"`
	IsError     *bool           `json:"is_error,omitempty"`
	Placeholder *bool           `json:"placeholder,omitempty"`
	StopReason  *string         `json:"stop_reason,omitempty"`
	Content     json.RawMessage `json:"content,omitempty"`
}

// outputMessage is one message of an answer.
type outputMessage struct {
	ID string `json:"id,omitempty"`
	// Message is set if it is not the one of this ID as it was.
	Message *messageFields `json:"message,omitempty"`
	// Synthetic marks a result that was made up.
	Synthetic bool `json:"synthetic,omitempty"`

	// origin is that of the row.
	origin int
}

// parseMessages reads a list of messages. Their ids stand once in ids, with where
// they stand.
func parseMessages(field string, list []json.RawMessage, ids map[string]string, costs bool) ([]message, error) {
	messages := make([]message, 0, len(list))
	for i, raw := range list {
		place := fmt.Sprintf("%s[%d]", field, i)
		m, err := parseMessage(raw)
		if err == nil && m.id == "" {
			err = errors.New("it has no id")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		if other, taken := ids[m.id]; taken {
			return nil, fmt.Errorf("%s and %s have the same id %.60q", other, place, m.id)
		}
		ids[m.id] = place
		if costs {
			var cost struct {
				Cost *int `json:"cost"`
			}
			err := json.Unmarshal(raw, &cost)
			if err == nil && cost.Cost == nil {
				err = errors.New("it has no cost")
			}
			if err == nil {
				err = checkCost(*cost.Cost)
			}
			if err != nil {
				return nil, fmt.Errorf("%s %.60q: %w", place, m.id, err)
			}
			m.row.Cost = *cost.Cost
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func parseMessage(raw json.RawMessage) (message, error) {
	var in struct {
		ID       string `json:"id"`
		Volatile *bool  `json:"volatile"`
		messageFields
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return message{}, err
	}
	m := message{id: in.ID, volatile: in.Volatile, fields: in.messageFields}
	switch in.Role {
	case memory.RoleUser, memory.RoleAssistant, memory.RoleTool, memory.RoleSystem:
	default:
		return m, fmt.Errorf("its role %.40q is not one of user, assistant, tool, system", in.Role)
	}
	m.row = transcript.Row{Role: in.Role, IsError: deref(in.IsError), Placeholder: deref(in.Placeholder),
		Broken: in.Role == memory.RoleAssistant && (deref(in.StopReason) == "error" || deref(in.StopReason) == "aborted")}
	if in.Role == memory.RoleTool {
		m.row.CallID, m.row.ToolName = deref(in.ToolCallID), deref(in.ToolName)
	}
	return m, m.parseContent()
}

func (m *message) parseContent() error {
	content := bytes.TrimSpace(m.fields.Content)
	if isNull(content) {
		return errors.New("it has no content: give a string or a list of blocks")
	}
	if content[0] == '"' {
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return err
		}
		m.text = true
		m.row.Parts = []transcript.Part{{Type: transcript.PartText, Text: text}}
		return nil
	}
	if err := json.Unmarshal(content, &m.blocks); err != nil {
		return errors.New("its content is neither a string nor a list of blocks")
	}
	m.row.Parts = make([]transcript.Part, 0, len(m.blocks))
	for i, raw := range m.blocks {
		part, err := m.part(raw)
		if err != nil {
			return fmt.Errorf("block %d: %w", i+1, err)
		}
		m.row.Parts = append(m.row.Parts, part)
	}
	return nil
}

// part reads a block. What is in the fields of a part is not in Raw, so that two
// parts are equal if they say the same.
func (m *message) part(raw json.RawMessage) (transcript.Part, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return transcript.Part{}, err
	}
	var b struct {
		Text       string          `json:"text"`
		ID         string          `json:"id"`
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Style      string          `json:"style"`
		ToolCallID string          `json:"tool_call_id"`
	}
	switch kind.Type {
	case "text", "reasoning", "tool_call", "tool_result":
		if err := json.Unmarshal(raw, &b); err != nil {
			return transcript.Part{}, fmt.Errorf("%s: %w", kind.Type, err)
		}
	case "":
		return transcript.Part{}, errors.New("it has no type")
	}
	switch kind.Type {
	case "text":
		return transcript.Part{Type: transcript.PartText, Text: b.Text}, nil
	case "reasoning":
		return transcript.Part{Type: transcript.PartThinking, Text: b.Text}, nil
	case "tool_call":
		arguments, err := canonical(b.Arguments)
		return transcript.Part{Type: transcript.PartCall, ID: b.ID, Name: b.Name, Raw: arguments, Function: b.Style == "function"}, err
	case "tool_result":
		// The message is what says which call it answers; where it does not, the
		// block in it does.
		if m.row.Role == memory.RoleTool && m.row.CallID == "" {
			m.row.CallID = b.ToolCallID
		}
		return transcript.Part{Type: transcript.PartText, Text: b.Text}, nil
	}
	whole, err := canonical(raw)
	return transcript.Part{Type: transcript.PartOther, Text: "[" + kind.Type + "]", Raw: whole}, err
}

// canonical writes a JSON value without blanks and with its keys in order.
func canonical(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	return encode(v)
}

// words are the texts of the message, one a line.
func (m *message) words() string {
	var texts []string
	for _, p := range m.row.Parts {
		if p.Type == transcript.PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// isVolatile is what the file says, else what the marks do.
func (m *message) isVolatile() bool {
	if m.volatile != nil {
		return *m.volatile
	}
	return memory.MarkedSource(m.row.Role, m.words()) != memory.SourceUnknown
}

// output writes rows that are made of the input's.
func (in *input) output(rows []transcript.Row) ([]outputMessage, error) {
	list := make([]outputMessage, 0, len(rows))
	for _, row := range rows {
		if row.Origin < 0 || row.Origin >= len(in.rows)+len(in.live) {
			return nil, fmt.Errorf("a row of the answer is made of message %d, which there is not", row.Origin)
		}
		m := in.at(row.Origin)
		o := outputMessage{origin: row.Origin}
		switch {
		case row.Role == memory.RoleTool && m.row.Role != memory.RoleTool:
			o.Synthetic = true
			o.Message = &messageFields{Role: row.Role, ToolCallID: &row.CallID, ToolName: &row.ToolName, IsError: &row.IsError}
		case row.Role == m.row.Role && transcript.Equal(row, m.row):
			o.ID = m.id
		default:
			fields, err := m.rewritten(row)
			if err != nil {
				return nil, fmt.Errorf("message %q: %w", m.id, err)
			}
			o.ID, o.Message = m.id, fields
		}
		list = append(list, o)
	}
	return list, nil
}

// rewritten writes what is left of the message in row, in its own blocks.
func (m *message) rewritten(row transcript.Row) (*messageFields, error) {
	fields := m.fields
	fields.Role = row.Role
	if m.text && len(row.Parts) == 1 && reflect.DeepEqual(row.Parts, m.row.Parts) {
		return &fields, nil
	}
	// What is left stands in the order in which it came, but for a call that
	// went behind the thoughts.
	left := make([]json.RawMessage, 0, len(row.Parts))
	next := 0
	for _, p := range row.Parts {
		is := func(q transcript.Part) bool { return reflect.DeepEqual(p, q) }
		at := slices.IndexFunc(m.row.Parts[next:], is)
		if at >= 0 {
			at += next
		} else {
			at = slices.IndexFunc(m.row.Parts, is)
		}
		if at < 0 || m.text {
			return nil, errors.New("the answer has a part that it had not")
		}
		left, next = append(left, m.blocks[at]), at+1
	}
	var err error
	fields.Content, err = encode(left)
	return &fields, err
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
