package gateway

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/gloveboxhq/glovebox/abi/strictjson"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// What requests have in common, whatever their API. Errors are faults, which name the
// place that they are told.

// part decodes a part of a body, which stands at that place.
func part(raw json.RawMessage, at string, v any) error {
	err := json.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	wrong := strictjson.Explain(raw, v, err)
	if wrong.Path != "" && wrong.Path[0] != '[' {
		at += "."
	}
	return badf(at+wrong.Path, "%s", wrong.Problem)
}

// isThere reports whether a field was sent, and is not null.
func isThere(raw json.RawMessage) bool { return first(raw) != 0 && first(raw) != 'n' }

// first is the first byte of a JSON value, which says what it is; 0 of none.
func first(raw json.RawMessage) byte {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); len(raw) > 0 {
		return raw[0]
	}
	return 0
}

// toolCall is a call that the client says the model made. The places are those of its
// id, its name and its input.
func toolCall(id, name string, input json.RawMessage, atID, atName, atInput string) (memory.Block, error) {
	switch {
	case !llm.ValidToolCallID(id):
		return memory.Block{}, badf(atID, "the id of a call is 1 to 64 letters, digits, '_', '-', '.' or ':'")
	case !llm.ValidToolName(name):
		return memory.Block{}, badf(atName, "the name of a tool is 1 to 64 letters, digits, '_' or '-'")
	case len(input) > llm.MaxToolInput:
		return memory.Block{}, badf(atInput, "it is longer than %d bytes", llm.MaxToolInput)
	case first(input) != '{' || !json.Valid(input):
		return memory.Block{}, badf(atInput, "it is not a JSON object")
	case llm.ToolInputTooDeep(input):
		return memory.Block{}, badf(atInput, "it nests deeper than %d", llm.MaxToolDepth)
	}
	return memory.ToolCall(id, name, input), nil
}

// toolResult is what a client says that its tool returned; name is "" if the call is
// not in the request.
func toolResult(id, name, text string, isError bool) memory.Block {
	source, err := boundary.ToolSource(name)
	if err != nil {
		source = boundary.Source{} // a name may begin with what a source may not
	}
	content, _ := boundary.Wrap(source, text, boundary.Unlimited)
	return memory.ToolResult(id, name, content, isError)
}

// clientTool is a tool that the client runs, of a name that none in names has yet.
// The places are those of its name and its parameters.
func clientTool(names map[string]bool, name, description string, parameters json.RawMessage, atName, atParameters string) (llm.Tool, error) {
	switch {
	case len(parameters) > assembly.MaxParameters:
		return llm.Tool{}, badf(atParameters, "it is longer than %d KiB", assembly.MaxParameters>>10)
	case !llm.ValidToolName(name):
		return llm.Tool{}, badf(atName, "the name of a tool is 1 to 64 letters, digits, '_' or '-'")
	case names[name]:
		return llm.Tool{}, badf(atName, "there are two tools %s", shortQuote(name))
	}
	// Schemas that leave the type out pass: some servers take them. Keywords are known
	// by their letters, unlike the fields of a struct, which are found in capitals too.
	var schema map[string]json.RawMessage
	if len(parameters) > 0 {
		if err := part(parameters, atParameters, &schema); err != nil {
			return llm.Tool{}, err
		}
	}
	if kind := schema["type"]; isThere(kind) {
		var word string
		if err := json.Unmarshal(kind, &word); err != nil || word != "object" {
			return llm.Tool{}, badf(atParameters+".type", "it is \"object\": a tool is called with one")
		}
	}
	names[name] = true
	return llm.Tool{Name: name, Description: description, Parameters: parameters}, nil
}

// imageOf is a picture of that type.
func imageOf(mediaType string, data []byte, at string) (memory.Block, error) {
	if len(data) == 0 {
		return memory.Block{}, badf(at, "the picture is empty")
	}
	if !llm.ValidImage(llm.Image{MediaType: mediaType, Data: data}) {
		return memory.Block{}, unsupportedf(at, "a picture is of type image/png, image/jpeg, image/gif or image/webp")
	}
	return memory.Image(mediaType, data, ""), nil
}

// imageAt is a picture that the provider is to fetch.
func imageAt(address, at string) (memory.Block, error) {
	if !llm.ValidImage(llm.Image{URL: address}) {
		return memory.Block{}, badf(at, "it is no http or https URL of a few KiB")
	}
	return memory.Image("", nil, address), nil
}

// imageIn is a picture in a data URL, or at another.
func imageIn(address, at string) (memory.Block, error) {
	rest, ok := strings.CutPrefix(address, "data:")
	if !ok {
		return imageAt(address, at)
	}
	mediaType, encoded, ok := strings.Cut(rest, ";base64,")
	if !ok {
		return memory.Block{}, badf(at, "a data URL begins with data:image/…;base64,")
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return memory.Block{}, badf(at, "it is not base64")
	}
	return imageOf(mediaType, data, at)
}

// sampling puts in how free the model is in its choice of words.
func sampling(ask *llm.Request, temperature *float64, hottest float64, topP *float64) error {
	if t := temperature; t != nil && !(*t >= 0 && *t <= hottest) {
		return badf("temperature", "it is from 0 to %g", hottest)
	}
	if p := topP; p != nil && !(*p >= 0 && *p <= 1) {
		return badf("top_p", "it is from 0 to 1")
	}
	if topP != nil && *topP == 0 {
		topP = new(1e-6) // as little as may be
	}
	ask.Temperature, ask.TopP = temperature, topP
	return nil
}

// maxStops is how many texts may end an answer: all providers know that many.
const maxStops = 4

func stops(ask *llm.Request, texts []string, at string) error {
	if len(texts) > maxStops {
		return unsupportedf(at, "at most %d are possible here", maxStops)
	}
	for _, text := range texts {
		if text == "" {
			return badf(at, "one of them is empty")
		}
	}
	ask.Stop = texts
	return nil
}

// effort puts in a word, of which the provider knows what it means.
func effort(ask *llm.Request, word, at string) error {
	if len(word) > 16 || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") != "" {
		return badf(at, "it is a word such as low, medium or high")
	}
	ask.Effort = word
	return nil
}

// answerIn has the answer be JSON of that form. What providers cannot be held to, or
// not beside tools, is asked for in words.
func answerIn(c *host.Conversation, form llm.Schema, strict bool) {
	if strict && len(c.Tools) == 0 {
		c.Ask.Schema = &form
		return
	}
	addSystem(c, "Answer with one JSON value and nothing else. Its form is this JSON Schema:\n"+string(form.JSON))
}

// answerJSON has the answer be a JSON object of any form.
func answerJSON(c *host.Conversation) {
	addSystem(c, "Answer with one JSON object and nothing else.")
}

// addSystem adds a text at the end of the system text.
func addSystem(c *host.Conversation, text string) {
	if c.System != "" && text != "" {
		text = "\n\n" + text
	}
	c.System += text
}

// isBlank reports whether a text says nothing: providers refuse such.
func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// tokensOf estimates what a conversation costs as it is. What the host would show the
// model of it, and beside it, nobody knows before it has to.
func tokensOf(c *host.Conversation) int {
	r := llm.Request{System: c.System, Tools: c.Tools}
	for _, d := range c.Messages {
		m := llm.Message{Role: llm.RoleUser}
		if d.Role == memory.RoleAssistant {
			m.Role = llm.RoleAssistant
		}
		for _, b := range d.Blocks {
			switch b.Type {
			case memory.BlockText:
				m.Text += b.Text
			case memory.BlockToolCall:
				m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: b.ID, Name: b.Name, Input: b.Input})
			case memory.BlockToolResult:
				m.ToolResults = append(m.ToolResults, llm.ToolResult{ID: b.ID, Name: b.Name, Text: b.External.Render()})
			case memory.BlockImage:
				m.Images = append(m.Images, llm.Image{At: len(m.Text)})
			}
		}
		r.Messages = append(r.Messages, m)
	}
	return r.Tokens()
}

// newID makes an id that nobody can foresee, of the form that an API's ids have.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
