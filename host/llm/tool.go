package llm

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gloveboxhq/glovebox/abi/jsonsize"
	"github.com/gloveboxhq/glovebox/abi/strictjson"
	"github.com/gloveboxhq/glovebox/abi/tokens"
)

// Tool describes something that a model may ask its caller to do.
type Tool struct {
	// Name is 1 to 64 of A-Z, a-z, 0-9, '_' and '-'.
	Name string
	// Description tells the model when and how to call it.
	Description string
	// Parameters is a JSON Schema of type object; nil means that the tool takes
	// none.
	Parameters json.RawMessage
}

// ToolCall is a model's wish to have a tool run.
type ToolCall struct {
	// ID ties the result to the call. It is 1 to 64 of A-Z, a-z, 0-9, '_', '-',
	// '.' and ':'.
	ID string
	// Name has the form of a Tool's, but may be that of none.
	Name string
	// Input is a JSON object. It need not fit the tool's Parameters.
	Input json.RawMessage
	// Fault says, in the host's words, why the call cannot be run: the model
	// sent no JSON object, or a name out of form. The call is answered all the
	// same, with an error. "" means that nothing is wrong with its form.
	Fault string
}

// ToolResult is what a call came to.
type ToolResult struct {
	// ID and Name are those of the call.
	ID, Name string
	// Text is not empty; external text in it stands in its frame.
	Text string
	// IsError says that the call failed. Not every protocol can tell, so Text
	// says so too.
	IsError bool
}

// The bounds of what a model may send.
const (
	// MaxToolCalls is how many calls of one Response are kept.
	MaxToolCalls = 128
	// MaxToolInput bounds the bytes of one call's Input: a whole file may be in it.
	MaxToolInput = 512 << 10
	// MaxToolDepth bounds how deep it nests: decoders give up at some depth, of it and
	// of what it stands in.
	MaxToolDepth = 56

	maxToolName = 64
	maxToolID   = 64
)

// What ToolCall.Fault may say, and the name of a call that has none.
const (
	faultName    = "the name of a tool is 1 to 64 letters, digits, '_' or '-'"
	faultInput   = "the arguments are not a JSON object"
	faultTooLong = "the arguments are longer than 512 KiB"
	faultTooDeep = "the arguments nest deeper than 56"

	nameless = "unknown"
)

// ParseToolCalls is for drivers: it turns what a server sent, which may be
// anything, into calls that keep the rules of ToolCall. At most MaxToolCalls are
// kept. An ID that is out of form or that an earlier call has is replaced; what
// cannot be called has a Fault. No arguments at all mean {}. Calls that keep the
// rules stay as they are.
func ParseToolCalls(sent []ToolCall) []ToolCall {
	var calls []ToolCall
	seen := map[string]bool{}
	for _, c := range sent[:min(len(sent), MaxToolCalls)] {
		if !ValidToolCallID(c.ID) || seen[c.ID] {
			c.ID = NewToolCallID()
		}
		seen[c.ID] = true
		input, fault := parseInput(c.Input)
		if c.Input = input; fault != "" {
			c.Fault = fault
		}
		if !ValidToolName(c.Name) {
			c.Name, c.Fault = nameless, faultName
		}
		calls = append(calls, c)
	}
	return calls
}

func parseInput(sent json.RawMessage) (input json.RawMessage, fault string) {
	empty := json.RawMessage("{}")
	if len(sent) > MaxToolInput {
		return empty, faultTooLong
	}
	input = bytes.TrimSpace(bytes.ToValidUTF8(sent, []byte("\ufffd")))
	switch {
	case len(input) > MaxToolInput:
		return empty, faultTooLong // a byte may have become three
	case len(input) == 0:
		return empty, ""
	case input[0] != '{' || !json.Valid(input):
		return empty, faultInput
	case ToolInputTooDeep(input):
		return empty, faultTooDeep
	}
	return input, ""
}

// ToolInputTooDeep reports whether the input of a call nests deeper than MaxToolDepth.
func ToolInputTooDeep(input []byte) bool { return jsonsize.Of(input).Depth > MaxToolDepth }

// DecodeInput reads the input of a call into v, a pointer to a struct, for a tool that
// takes at most maxBytes of it: strictly, as strictjson.Object does, and not deeper
// than MaxToolDepth. The error is for the model, which may be told of it word by word.
func DecodeInput(input json.RawMessage, maxBytes int, v any) error {
	if err := strictjson.Object(input, v, strictjson.Limits{Bytes: maxBytes, Depth: MaxToolDepth}); err != nil {
		return fmt.Errorf("the input does not fit the parameters: %w", err)
	}
	return nil
}

// ValidToolName reports whether name has the form of a tool's.
func ValidToolName(name string) bool { return made(name, maxToolName, "_-") }

// ValidToolCallID reports whether id has the form of a call's.
func ValidToolCallID(id string) bool { return made(id, maxToolID, "_-.:") }

// NewToolCallID returns an ID that no other call has.
func NewToolCallID() string { return "call_" + rand.Text() }

// made reports whether s is 1 to limit letters, digits and extra ones.
func made(s string, limit int, extra string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte(extra, c) < 0:
			return false
		}
	}
	return s != "" && len(s) <= limit
}

// What a message costs, and what a tool, a call or a result costs, beside their
// texts. Package assembly counts a prompt with the same numbers.
const (
	perMessage = 4
	perCall    = 4
)

// ImageTokens is what a picture is counted for, whatever its size: about as many as
// the largest of one that a provider does not scale down.
const ImageTokens = 1600

// Tokens estimates what a tool's description costs in every request.
func (t Tool) Tokens() int {
	return tokens.Estimate(t.Name) + tokens.Estimate(t.Description) + tokens.Estimate(string(t.Parameters)) + perCall
}

// Tokens estimates what a request costs, its tools, calls, results, pictures and
// thoughts included.
func (r Request) Tokens() int {
	sum := tokens.Estimate(r.System)
	for _, t := range r.Tools {
		sum += t.Tokens()
	}
	for _, m := range r.Messages {
		sum += tokens.Estimate(m.Text) + perMessage + ImageTokens*len(m.Images)
		for _, t := range m.Thinking {
			sum += tokens.Estimate(string(t))
		}
		for _, c := range m.ToolCalls {
			sum += tokens.Estimate(c.ID) + tokens.Estimate(c.Name) + tokens.Estimate(string(c.Input)) + perCall
		}
		for _, v := range m.ToolResults {
			sum += tokens.Estimate(v.ID) + tokens.Estimate(v.Text) + perCall
		}
	}
	return sum
}
