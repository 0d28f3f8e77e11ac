package assembly

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/memory"
)

// Prompt is what the model is sent. It keeps the rules of Check.
type Prompt struct {
	System string `json:"system"`
	Tools  []Tool `json:"tools,omitempty"`
	// CacheSystem asks the provider to keep its work on tools and system text;
	// it is a breakpoint too.
	CacheSystem bool      `json:"cache_system,omitempty"`
	Messages    []Message `json:"messages"`
	// Tokens is what it costs, by the estimate.
	Tokens int `json:"tokens"`
}

// HasThoughts reports whether thoughts of the model go back to it.
func (p Prompt) HasThoughts() bool {
	for i := range p.Messages {
		if p.Messages[i].has(PartThinking) {
			return true
		}
	}
	return false
}

// Tool describes a tool that the model may call.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Parameters is a JSON Schema, in the form that CanonicalTools gives it.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// Message is one message of a prompt. Neighbours have different roles: user and
// assistant, in turns, the first and the last being the user's.
type Message struct {
	Role memory.Role `json:"role"`
	// Parts are, of the assistant: thinking, text, calls; of the user: results,
	// text.
	Parts []Part `json:"parts"`
	// Breakpoint asks the provider to keep its work on everything up to the end
	// of this message, so that the next prompt with the same beginning is
	// cheaper.
	Breakpoint bool `json:"breakpoint,omitempty"`
}

// PartType says what a part of a message is.
type PartType string

// The types of parts.
const (
	PartText     PartType = "text"
	PartThinking PartType = "thinking"
	PartCall     PartType = "tool_call"
	PartResult   PartType = "tool_result"
	// PartOther is a block of a type that this version does not know.
	PartOther PartType = "other"
)

// Part is one piece of a message, made from one entry of the report.
type Part struct {
	Type PartType `json:"type"`
	// Text is not blank but for calls and thinking. Of a result it holds the
	// tool's words in their frame and says whether the call failed; of another
	// type it is what stands for the part where a provider cannot take it.
	Text string `json:"text,omitempty"`
	// ID and Name are those of a call, also in its result. Name is the provider
	// that made a thinking part.
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	// Raw is the JSON object that a tool is called with, and the whole of a
	// thinking part or of one of another type, as it came.
	Raw     json.RawMessage `json:"raw,omitempty"`
	IsError bool            `json:"is_error,omitempty"`
	// Tokens is what the part costs, its share of the message included.
	Tokens int `json:"tokens"`
	// Entry is the index in Report.Entries of what the part was made from.
	Entry int `json:"entry"`
}

// Text returns the words of a message: one paragraph an entry, one line a part,
// without thoughts, calls and results.
func (m Message) Text() string {
	only, n := "", 0
	for _, p := range m.Parts {
		if p.isWords() {
			only, n = p.Text, n+1
		}
	}
	if n <= 1 {
		return only
	}
	var b strings.Builder
	last := -1
	for _, p := range m.Parts {
		if !p.isWords() {
			continue
		}
		switch {
		case b.Len() == 0:
		case p.Entry == last:
			b.WriteString("\n")
		default:
			b.WriteString("\n\n")
		}
		b.WriteString(p.Text)
		last = p.Entry
	}
	return b.String()
}

func (p Part) isWords() bool { return p.Type == PartText || p.Type == PartOther }

// String returns the message as a person reads it: calls and results as they
// stand in a text.
func (m Message) String() string {
	var parts []string
	for _, p := range m.Parts {
		switch p.Type {
		case PartResult:
			parts = append(parts, "[result of tool call "+strconv.Quote(p.Name)+"]\n"+p.Text)
		case PartCall:
			parts = append(parts, "[tool call "+strconv.Quote(p.Name)+" "+string(p.Raw)+"]")
		case PartThinking:
			parts = append(parts, "[thoughts]")
		default:
			parts = append(parts, p.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}
