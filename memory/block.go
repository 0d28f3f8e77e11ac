package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/jsonsize"
	"github.com/gloveboxhq/glovebox/host/boundary"
)

// BlockType says what a block holds.
type BlockType string

// The types that this version knows. Others are kept as they came.
const (
	BlockText       BlockType = "text"
	BlockThinking   BlockType = "thinking"
	BlockToolCall   BlockType = "tool_call"
	BlockToolResult BlockType = "tool_result"
	BlockImage      BlockType = "image"
	BlockFile       BlockType = "file"
	BlockExternal   BlockType = "external"
)

// Block is one piece of a message. Make one with the functions below or by
// decoding; do not change it afterwards: a decoded block encodes to the very
// bytes that it came from.
type Block struct {
	Type BlockType
	// Text is the words of text and thinking.
	Text string
	// ID and Name are those of a tool call, also in its result. The Name of
	// thinking is the provider that made it; "" means that nobody can take it
	// back.
	ID, Name string
	// Input is the JSON object that a tool is called with. Of thinking it is the
	// JSON value that the provider made, signature and all, with every byte as
	// it came; nil if there is only Text.
	Input json.RawMessage
	// External is the text of external and tool_result.
	External boundary.Content
	// IsError marks the result of a call that failed.
	IsError bool
	// File, if not zero, is where the whole block is: Text or External is its
	// outline.
	File FileID

	// original is what it was decoded from, or is written as; "" if that is to be
	// made of the fields.
	original string
	// refused is why it cannot be encoded.
	refused error
}

// Text returns a block of plain words.
func Text(text string) Block { return Block{Type: BlockText, Text: text} }

// External returns a block of text from outside.
func External(c boundary.Content) Block { return Block{Type: BlockExternal, External: c} }

// Thinking returns what a model thought before it answered: text, which may be
// empty, for a person, and raw, a JSON value, for the provider that made it and
// that refuses it unless it comes back as it was. No other provider is shown it.
func Thinking(provider, text string, raw json.RawMessage) Block {
	return Block{Type: BlockThinking, Text: text, Name: provider, Input: bytes.Trim(raw, jsonSpace)}
}

// ToolCall returns the assistant's request to run a tool. Input is a JSON
// object.
func ToolCall(id, name string, input json.RawMessage) Block {
	return Block{Type: BlockToolCall, ID: id, Name: name, Input: input}
}

// ToolResult returns what the call id came to. A tool's words are external.
func ToolResult(id, name string, result boundary.Content, isError bool) Block {
	return Block{Type: BlockToolResult, ID: id, Name: name, External: result, IsError: isError}
}

// jsonSpace is what may stand around a JSON value.
const jsonSpace = " \t\r\n"

type blockJSON struct {
	Type    BlockType         `json:"type"`
	Text    *string           `json:"text,omitempty"`
	ID      string            `json:"id,omitempty"`
	Name    string            `json:"name,omitempty"`
	Input   json.RawMessage   `json:"input,omitempty"`
	Content *boundary.Content `json:"content,omitempty"`
	IsError bool              `json:"is_error,omitempty"`
	File    json.RawMessage   `json:"file,omitempty"`
}

// MaxInputDepth bounds how deep Block.Input nests: what a decoder of JSON that gives
// up at some depth would refuse, with all that it stands in, is never stored.
const MaxInputDepth = 1000

// MarshalJSON writes an object with "type" and the fields of that type.
func (b Block) MarshalJSON() ([]byte, error) {
	if b.original != "" {
		return []byte(b.original), nil
	}
	if b.refused != nil {
		return nil, b.refused
	}
	out := blockJSON{Type: b.Type, ID: b.ID, Name: b.Name, Input: b.Input, IsError: b.IsError}
	if !b.File.IsZero() {
		out.File = json.RawMessage(`"` + b.File.String() + `"`)
	}
	if jsonsize.Of(b.Input).Depth > MaxInputDepth {
		return nil, fmt.Errorf("input nests deeper than %d: %w", MaxInputDepth, ErrInvalid)
	}
	var verbatim json.RawMessage
	switch b.Type {
	case BlockThinking:
		if len(b.Input) > 0 && !json.Valid(b.Input) {
			return nil, fmt.Errorf("thinking of %q: input is not a JSON value: %w", b.Name, ErrInvalid)
		}
		out.Text, out.Input, verbatim = &b.Text, nil, b.Input
	case BlockText, BlockFile:
		if b.Type == BlockFile && b.File.IsZero() {
			return nil, fmt.Errorf("block of type %q without a file's id: %w", b.Type, ErrInvalid)
		}
		out.Text = &b.Text
	case BlockExternal, BlockToolResult:
		out.Content = &b.External
	case BlockToolCall:
		if input := bytes.TrimLeft(b.Input, jsonSpace); !json.Valid(input) || input[0] != '{' {
			return nil, fmt.Errorf("tool call %q: input is not a JSON object: %w", b.Name, ErrInvalid)
		}
	default:
		return nil, fmt.Errorf("block of type %q can only be decoded, not made: %w", b.Type, ErrInvalid)
	}
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		return nil, err
	}
	encoded := bytes.TrimRight(buf.Bytes(), "\n")
	if len(verbatim) > 0 {
		// The encoder would take white space out of it.
		encoded = append(encoded[:len(encoded)-1], `,"input":`...)
		encoded = append(append(encoded, verbatim...), '}')
	}
	return encoded, nil
}

// UnmarshalJSON reads a block of any type. External text that is not neutral
// is refused (boundary.ErrNotNeutral).
func (b *Block) UnmarshalJSON(data []byte) error {
	var in blockJSON
	if err := json.Unmarshal(data, &in); err != nil {
		// The fields of a type that this version does not know may be of any
		// form.
		var kind struct {
			Type BlockType `json:"type"`
		}
		if json.Unmarshal(data, &kind) != nil {
			return err
		}
		if kind.Type.known() {
			return fmt.Errorf("%s block: %w", kind.Type, err)
		}
		in = blockJSON{Type: kind.Type}
	}
	if in.Type == "" {
		return fmt.Errorf("block without a type: %w", ErrInvalid)
	}
	decoded := Block{Type: in.Type, original: string(data)}
	if in.Type.known() {
		decoded.ID, decoded.Name, decoded.Input, decoded.IsError = in.ID, in.Name, in.Input, in.IsError
		if in.Text != nil {
			decoded.Text = *in.Text
		}
		if in.Content != nil {
			decoded.External = *in.Content
		}
		// Others use the name for what they like.
		var id string
		if json.Unmarshal(in.File, &id) == nil {
			decoded.File, _ = ParseID[FileID](id)
		}
	}
	*b = decoded
	return nil
}

// known reports whether this version reads the fields of such blocks.
func (t BlockType) known() bool {
	switch t {
	case BlockText, BlockThinking, BlockToolCall, BlockToolResult, BlockExternal, BlockFile:
		return true
	}
	return false
}

// Encode writes each block as it is to be stored, in its own bytes, which an
// encoder of a whole list would reformat; and returns them as they will be read.
// Bytes that are not UTF-8 become U+FFFD.
func Encode(blocks []Block) ([]string, []Block, error) {
	list := make([]string, len(blocks))
	read := make([]Block, len(blocks))
	for i, b := range blocks {
		encoded, err := b.MarshalJSON()
		switch {
		case err != nil:
		case b.Type == BlockText && b.original == "" && b.File.IsZero() && utf8.ValidString(b.Text):
			// It would be read as it is.
			read[i] = Block{Type: b.Type, Text: b.Text, original: string(encoded)}
		default:
			encoded = bytes.ToValidUTF8(encoded, []byte("\ufffd"))
			err = read[i].UnmarshalJSON(encoded)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("block %d: %w", i+1, err)
		}
		list[i] = string(encoded)
	}
	return list, read, nil
}

// Decode reads a list of blocks as it is stored.
func Decode(content string) ([]Block, error) {
	if text, ok := soleText(content); ok {
		return []Block{{Type: BlockText, Text: text, original: content[1 : len(content)-1]}}, nil
	}
	var blocks []Block
	err := json.Unmarshal([]byte(content), &blocks)
	return blocks, err
}

// soleText returns the words of a list that is one block of text, in the form that
// Encode writes. Most messages are, and to look for that is a tenth of what
// encoding/json takes; what is damaged, or of another form, is left to it.
func soleText(content string) (text string, ok bool) {
	const before, after = `[{"type":"text","text":"`, `"}]`
	if len(content) < len(before)+len(after) || content[:len(before)] != before || content[len(content)-len(after):] != after {
		return "", false
	}
	body := content[len(before) : len(content)-len(after)]
	escaped := false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '\\':
			escaped = true
			if i++; i == len(body) {
				return "", false
			}
		case c == '"' || c < ' ':
			return "", false
		}
	}
	if !utf8.ValidString(body) {
		return "", false
	}
	if escaped {
		quoted := content[len(before)-1 : len(content)-len(after)+1]
		return text, json.Unmarshal([]byte(quoted), &text) == nil
	}
	return body, true
}

// Shown returns blocks as the model sees them: external text in its frame,
// everything else as plain text, one block a paragraph. It is ShownIn
// boundary.ModeDelimit, by which the store counts.
func Shown(blocks []Block) string { return ShownIn(boundary.ModeDelimit, blocks) }

// ShownIn is Shown with external text framed in the mode of a prompt.
func ShownIn(mode boundary.Mode, blocks []Block) string { return join(blocks, mode.Render) }

// FileNote is a text with the line that tells where the whole of it is.
func FileNote(text string, id FileID) string {
	return text + "\n[This is an outline. The whole is file " + id.String() + ".]"
}

// Plain returns the words of blocks for an index or a person: like Shown, with
// external text neutral but without a frame. It never goes into a prompt.
func Plain(blocks []Block) string {
	return join(blocks, func(c boundary.Content) string { return boundary.Neutral(c) })
}

func join(blocks []Block, external func(boundary.Content) string) string {
	var parts []string
	for _, b := range blocks {
		part := ""
		switch b.Type {
		case BlockText:
			part = b.Text
		case BlockFile:
			if part = b.Text; b.File.IsZero() {
				part = "[a file that this version cannot show]"
			}
		case BlockThinking:
			// Thinking goes back only to the provider that made it.
		case BlockToolCall:
			part = "[tool call " + quote(b.Name) + " " + string(b.Input) + "]"
		case BlockToolResult:
			part = "[result of tool call " + quote(b.Name) + "]"
			if b.IsError {
				part = "[tool call " + quote(b.Name) + " failed]"
			}
			if text := external(b.External); text != "" {
				part += "\n" + text
			}
		case BlockExternal:
			part = external(b.External)
		case BlockImage:
			part = ShownImage
		default:
			part = "[a block that this version cannot show]"
		}
		if !b.File.IsZero() {
			part = FileNote(part, b.File)
		}
		if strings.TrimSpace(part) != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n")
}

func quote(s string) string { return strconv.Quote(s) }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func invalid(what string) error { return fmt.Errorf("%s: %w", what, ErrInvalid) }
