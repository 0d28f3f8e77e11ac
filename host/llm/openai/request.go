package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// completion is the body of a request, as the reference of the API has it:
// https://platform.openai.com/docs/api-reference/chat/create
type completion struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	MaxTokens           int             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	TopP                *float64        `json:"top_p,omitempty"`
	Stop                []string        `json:"stop,omitempty"`
	ReasoningEffort     string          `json:"reasoning_effort,omitempty"`
	ResponseFormat      *responseFormat `json:"response_format,omitempty"`
	Tools               []tool          `json:"tools,omitempty"`
	ToolChoice          any             `json:"tool_choice,omitempty"` // a word, or a toolChoice
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitempty"`
	Stream              bool            `json:"stream,omitempty"`
	StreamOptions       *streamOptions  `json:"stream_options,omitempty"`
}

type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema,omitempty"`
}

type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict bool            `json:"strict"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type toolChoice struct {
	Type     string       `json:"type"`
	Function functionName `json:"function"`
}

type functionName struct {
	Name string `json:"name"`
}

type message struct {
	Role       string     `json:"role"`
	Content    any        `json:"content,omitempty"` // a text, or contentParts
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type contentPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// body writes a request that was checked. The error is that of a schema, or of a
// tool's parameters, that are not a JSON object.
func (m *Model) body(r llm.Request, d dialect, streams bool) ([]byte, *remote.Failure) {
	c := completion{Model: m.endpoint.Name(), Stream: streams, Messages: []message{}}
	if streams && !d.noStreamUsage {
		c.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	system := r.System
	if s := r.Schema; s != nil {
		if !isObject(s.JSON) || !llm.ValidToolName(s.Name) {
			return nil, &remote.Failure{Kind: llm.ErrRefused, What: "the schema " + strconv.Quote(s.Name) + " has no name of 1 to 64 letters, digits, '_' or '-', or is not a JSON object"}
		}
		switch d.schema {
		case schemaHeld:
			// As it was written: models answer in the order of its properties.
			c.ResponseFormat = &responseFormat{Type: "json_schema", JSONSchema: &jsonSchema{Name: s.Name, Schema: s.JSON, Strict: true}}
		case schemaAnyJSON:
			c.ResponseFormat = &responseFormat{Type: "json_object"}
		}
		if d.schema > schemaHeld {
			system = remote.InWords(system, s)
		}
	}
	for _, t := range r.Tools {
		if t.Parameters != nil && !isObject(t.Parameters) {
			return nil, &remote.Failure{Kind: llm.ErrRefused, What: "the parameters of the tool " + strconv.Quote(t.Name) + " are not a JSON object"}
		}
		c.Tools = append(c.Tools, tool{Type: "function", Function: function{Name: t.Name, Description: t.Description, Parameters: t.Parameters}})
	}
	if r.NoCalls && d.noToolChoice {
		c.Tools = nil
	}
	if len(c.Tools) > 0 {
		switch choice := r.Choice; {
		case r.NoCalls:
			c.ToolChoice = "none"
		case !choice.Required || d.freeChoice:
		case choice.Name == "":
			c.ToolChoice = "required"
		default:
			c.ToolChoice = toolChoice{Type: "function", Function: functionName{choice.Name}}
		}
		if r.Choice.One && !r.NoCalls && !d.manyCalls {
			c.ParallelToolCalls = new(false)
		}
	}
	if system != "" {
		c.Messages = append(c.Messages, message{Role: "system", Content: system})
	}
	for _, m := range r.Messages {
		c.Messages = append(c.Messages, messages(m, d.blind)...)
	}
	switch limit := r.MaxOutputTokens; {
	case limit <= 0:
	case d.completionTokens:
		c.MaxCompletionTokens = limit
	default:
		c.MaxTokens = limit
	}
	if !d.ownTemperature {
		c.Temperature = r.Temperature
	}
	if !d.ownTopP {
		c.TopP = r.TopP
	}
	if !d.noStop {
		c.Stop = r.Stop
	}
	if !d.ownEffort && !d.otherEffort {
		c.ReasoningEffort = r.Effort
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, &remote.Failure{Kind: llm.ErrRefused, What: "the request cannot be written as JSON"}
	}
	return body, nil
}

// messages writes one message; in this protocol every tool's result is one of
// its own, and thoughts have no place. Whether a call failed is said by the result's
// text alone. Blind leaves pictures out.
func messages(m llm.Message, blind bool) []message {
	if m.Role == llm.RoleAssistant {
		said := message{Role: "assistant"}
		if m.Text != "" {
			said.Content = m.Text
		}
		for _, c := range m.ToolCalls {
			said.ToolCalls = append(said.ToolCalls, toolCall{ID: wireID(c.ID), Type: "function", Function: functionCall{Name: c.Name, Arguments: string(c.Input)}})
		}
		return []message{said}
	}
	var all []message
	for _, v := range m.ToolResults {
		all = append(all, message{Role: "tool", Content: v.Text, ToolCallID: wireID(v.ID)})
	}
	var parts []contentPart
	for words, image := range remote.Parts(m, blind) {
		switch {
		case image == nil:
			parts = append(parts, contentPart{Type: "text", Text: words})
		case image.URL != "":
			parts = append(parts, contentPart{Type: "image_url", ImageURL: &imageURL{image.URL}})
		default:
			data := "data:" + image.MediaType + ";base64," + base64.StdEncoding.EncodeToString(image.Data)
			parts = append(parts, contentPart{Type: "image_url", ImageURL: &imageURL{data}})
		}
	}
	switch {
	case len(parts) == 1 && parts[0].ImageURL == nil:
		// Not every server knows of parts.
		all = append(all, message{Role: "user", Content: parts[0].Text})
	case len(parts) > 0:
		all = append(all, message{Role: "user", Content: parts})
	}
	return all
}

func isObject(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// maxID is the most bytes of a call's id that OpenAI takes; llm allows for more,
// since others make longer ones.
const maxID = 40

// wireID returns the id by which the server knows a call: the same every time.
func wireID(id string) string {
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}
