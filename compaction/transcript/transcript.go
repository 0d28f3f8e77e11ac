// Package transcript mends the order of a conversation before a model is shown
// it: every tool call gets exactly one result, directly behind it, and what the
// caller holds and nobody stored finds its place among what is stored.
//
// It is pure, allocates nothing per row beyond what it returns, and takes linear
// time but for one sort. The rules are those of the vectors that
// compaction/transcript/vectors runs.
package transcript

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gloveboxhq/glovebox/memory"
)

// PartType says what a part of a row is.
type PartType string

// The types of parts.
const (
	PartText     PartType = "text"
	PartThinking PartType = "thinking"
	PartCall     PartType = "tool_call"
	// PartOther is of a type that this version does not know. It is kept and
	// handed on.
	PartOther PartType = "other"
)

// Part is one piece of a row.
type Part struct {
	Type PartType
	// Text is the words of text and thinking, and what stands for a part of
	// another type.
	Text string
	// ID and Name are those of a tool call. Name is the provider that made a
	// thinking part.
	ID, Name string
	// Raw is the JSON object that a tool is called with, and the whole of a
	// thinking part or of one of another type, as it came.
	Raw json.RawMessage
	// Function marks a call in the style of APIs that have one call a turn and
	// want the thinking before it.
	Function bool
}

// Row is one message of a transcript, or the result of one tool call. It is not
// changed by this package: what is rewritten gets Parts of its own.
type Row struct {
	// Role is RoleTool for results.
	Role memory.Role
	// Parts is what is said. A result has its words in text parts.
	Parts []Part
	// CallID is the call that a result answers; "" if it does not say. ToolName
	// may be "" or "unknown", which are one name.
	CallID, ToolName string
	// IsError says that the call came to nothing.
	IsError bool
	// Broken marks a turn of the assistant that broke off: its calls were
	// never run.
	Broken bool
	// Placeholder marks a result that Repair made up.
	Placeholder bool
	// Continues says that the row is of the same message as the one before it, so
	// that the two go in together or not at all.
	Continues bool
	// Cost is what the row costs in a prompt, in tokens.
	Cost int
	// Origin is the caller's. Of a placeholder it is that of the call's row.
	Origin int
}

// UnknownTool stands for the name of a tool that nobody told.
const UnknownTool = "unknown"

// Equal reports whether two rows say the same: role and parts are equal to the
// byte, and so are the call and the tool that they name. A system row counts as
// the user's. Nothing is folded: a text that contains or quotes another does not
// equal it.
func Equal(a, b Row) bool {
	if told(a.Role) != told(b.Role) || len(a.Parts) != len(b.Parts) {
		return false
	}
	if a.CallID != b.CallID || toolName(a) != toolName(b) {
		return false
	}
	for i := range a.Parts {
		p, q := &a.Parts[i], &b.Parts[i]
		if p.Type != q.Type || p.Text != q.Text || p.ID != q.ID || p.Name != q.Name || p.Function != q.Function || !bytes.Equal(p.Raw, q.Raw) {
			return false
		}
	}
	return true
}

// told is the role that a volatile row is told to the model in.
func told(r memory.Role) memory.Role {
	if r == memory.RoleSystem {
		return memory.RoleUser
	}
	return r
}

func toolName(r Row) string {
	if r.ToolName == UnknownTool {
		return ""
	}
	return r.ToolName
}

// blank reports whether nothing is left to show but thoughts.
func blank(parts []Part) bool {
	for _, p := range parts {
		if p.Type != PartThinking && (p.Type != PartText || strings.TrimSpace(p.Text) != "") {
			return false
		}
	}
	return true
}
