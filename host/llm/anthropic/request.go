package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

const (
	// defaultMaxTokens is the limit of an answer where the request names none, for
	// the protocol wants one. Every model may say that much.
	defaultMaxTokens = 4096
	// maxBreakpoints is how many cache_control a request may have.
	maxBreakpoints = 4
	// maxTemperature is the protocol's; other providers have 2.
	maxTemperature = 1
	// noParameters is the schema of a tool that takes none: the protocol wants one.
	noParameters = `{"type":"object","properties":{}}`
)

// request is the body of a request but for its messages, as the reference of the API
// has it: https://docs.anthropic.com/en/api/messages
type request struct {
	Model         string          `json:"model"`
	MaxTokens     int             `json:"max_tokens"`
	Temperature   *float64        `json:"temperature,omitempty"`
	TopP          *float64        `json:"top_p,omitempty"`
	StopSequences []string        `json:"stop_sequences,omitempty"`
	OutputConfig  *outputConfig   `json:"output_config,omitempty"`
	System        []*contentBlock `json:"system,omitempty"`
	Tools         []*tool         `json:"tools,omitempty"`
	ToolChoice    *toolChoice     `json:"tool_choice,omitempty"`
	Stream        bool            `json:"stream,omitempty"`
}

type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitempty"`
}

type outputFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name,omitempty"`
	DisableParallelToolUse bool   `json:"disable_parallel_tool_use,omitempty"`
}

// contentBlock is a part of the system text or of a message; Type says which fields it has.
type contentBlock struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	Source       *imageSource    `json:"source,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	Content      []*contentBlock `json:"content,omitempty"`
	IsError      bool            `json:"is_error,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type cacheControl struct {
	Type string `json:"type"`
}

func kept() *cacheControl { return &cacheControl{Type: "ephemeral"} }

// body writes a request. The error is that of a tool or a schema that is not a
// JSON object.
func (m *Model) body(r llm.Request, d dialect, stream bool) ([]byte, *remote.Failure) {
	p := request{Model: m.endpoint.Name(), MaxTokens: r.MaxOutputTokens, Stream: stream}
	if p.MaxTokens <= 0 {
		p.MaxTokens = defaultMaxTokens
	}
	if r.Temperature != nil && !d.ownTemperature {
		p.Temperature = new(min(*r.Temperature, maxTemperature))
	}
	if r.TopP != nil && !d.ownTopP && !(d.notBoth && r.Temperature != nil) {
		p.TopP = r.TopP
	}
	p.StopSequences, _ = d.stops(r)
	var output outputConfig
	if isEffort(r.Effort) && !d.ownEffort {
		output.Effort = r.Effort
	}
	system := r.System
	if r.Schema != nil {
		switch {
		case !isObject(r.Schema.JSON):
			return nil, &remote.Failure{Kind: llm.ErrRefused, What: "the schema " + strconv.Quote(r.Schema.Name) + " is not a JSON object"}
		case d.noSchema:
			system = remote.InWords(system, r.Schema)
		default:
			// As it is: a model writes properties in the order in which a schema
			// has them, which a map forgets.
			output.Format = &outputFormat{Type: "json_schema", Schema: r.Schema.JSON}
		}
	}
	if output != (outputConfig{}) {
		p.OutputConfig = &output
	}
	if !isBlank(system) {
		p.System = []*contentBlock{{Type: "text", Text: system}}
	}
	for _, t := range r.Tools {
		schema := t.Parameters
		if schema == nil {
			schema = json.RawMessage(noParameters)
		} else if !isObject(schema) {
			return nil, &remote.Failure{Kind: llm.ErrRefused, What: "the parameters of the tool " + strconv.Quote(t.Name) + " are not a JSON object"}
		}
		p.Tools = append(p.Tools, &tool{Name: t.Name, Description: t.Description, InputSchema: schema})
	}
	if len(p.Tools) > 0 {
		p.ToolChoice = choice(r, d)
	}
	left := maxBreakpoints
	if r.CacheSystem {
		// The tools stand before the system text and are kept with it.
		switch {
		case len(p.System) > 0:
			p.System[0].CacheControl = kept()
			left--
		case len(p.Tools) > 0:
			p.Tools[len(p.Tools)-1].CacheControl = kept()
			left--
		}
	}
	head, err := json.Marshal(p)
	if err != nil {
		return nil, unwritable()
	}
	// The messages are put in as they are, because encoding/json would write the
	// thoughts among them anew.
	written, err := messages(r.Messages, d, left)
	if err != nil {
		return nil, unwritable()
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("}")))
	b.WriteString(`,"messages":[`)
	b.Write(bytes.Join(written, []byte(",")))
	b.WriteString("]}")
	return b.Bytes(), nil
}

// choice says which tools may be called; nothing if that is for the model to decide.
func choice(r llm.Request, d dialect) *toolChoice {
	c := &toolChoice{DisableParallelToolUse: r.Choice.One && !d.manyCalls}
	switch required := r.Choice.Required && !d.freeChoice; {
	case r.NoCalls && d.noToolChoice:
		return nil
	case r.NoCalls:
		return &toolChoice{Type: "none"}
	case required && r.Choice.Name != "":
		c.Type, c.Name = "tool", r.Choice.Name
	case required:
		c.Type = "any"
	case c.DisableParallelToolUse:
		c.Type = "auto"
	default:
		return nil
	}
	return c
}

// unwritable is a request that is no JSON, such as one with a call whose Input is
// none.
func unwritable() *remote.Failure {
	return &remote.Failure{Kind: llm.ErrRefused, What: "the request cannot be written as JSON"}
}

// messages writes messages, with at most so many breakpoints: if there are more,
// those that come last, for they cover what those before do.
func messages(all []llm.Message, d dialect, breakpoints int) ([][]byte, error) {
	drop := -breakpoints
	for _, m := range all {
		if m.Breakpoint {
			drop++
		}
	}
	var written [][]byte
	for _, m := range all {
		keep := m.Breakpoint && drop <= 0
		if m.Breakpoint {
			drop--
		}
		parts, err := parts(m, d, keep)
		if err != nil {
			return nil, err
		}
		if len(parts) == 0 {
			continue // thoughts alone are no message
		}
		var b bytes.Buffer
		b.WriteString(`{"role":` + strconv.Quote(string(m.Role)) + `,"content":[`)
		b.Write(bytes.Join(parts, []byte(",")))
		b.WriteString("]}")
		written = append(written, b.Bytes())
	}
	return written, nil
}

// parts writes the content of a message: thoughts, text and calls, or results, text
// and pictures. A breakpoint stands on the last that is not a thought.
func parts(m llm.Message, d dialect, breakpoint bool) ([][]byte, error) {
	var blocks []*contentBlock
	for _, v := range m.ToolResults {
		result := &contentBlock{Type: "tool_result", ToolUseID: wireID(v.ID), IsError: v.IsError}
		if v.Text != "" {
			result.Content = []*contentBlock{{Type: "text", Text: v.Text}}
		}
		blocks = append(blocks, result)
	}
	for words, image := range remote.Parts(m, d.blind) {
		switch {
		case image == nil:
			blocks = append(blocks, &contentBlock{Type: "text", Text: words})
		case image.URL != "":
			blocks = append(blocks, &contentBlock{Type: "image", Source: &imageSource{Type: "url", URL: image.URL}})
		default:
			data := base64.StdEncoding.EncodeToString(image.Data)
			blocks = append(blocks, &contentBlock{Type: "image", Source: &imageSource{Type: "base64", MediaType: image.MediaType, Data: data}})
		}
	}
	for _, c := range m.ToolCalls {
		blocks = append(blocks, &contentBlock{Type: "tool_use", ID: wireID(c.ID), Name: c.Name, Input: c.Input})
	}
	if len(blocks) == 0 {
		return nil, nil
	}
	if breakpoint {
		blocks[len(blocks)-1].CacheControl = kept()
	}
	var written [][]byte
	if !d.noThoughts && m.Role == llm.RoleAssistant && m.Provider == Provider && areThoughts(m.Thinking) {
		for _, t := range m.Thinking {
			written = append(written, t)
		}
	}
	for _, b := range blocks {
		data, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		written = append(written, data)
	}
	return written, nil
}

// areThoughts reports whether all parts are what Response.Thinking holds. They may
// come from a file that somebody wrote: nothing but thoughts goes into a request
// unread.
func areThoughts(parts []json.RawMessage) bool {
	for _, p := range parts {
		var b struct {
			Type         string          `json:"type"`
			CacheControl json.RawMessage `json:"cache_control"`
		}
		if !utf8.Valid(p) || json.Unmarshal(p, &b) != nil || b.Type != "thinking" && b.Type != "redacted_thinking" || b.CacheControl != nil {
			return false
		}
	}
	return true
}

// isBlank reports whether a text is one that the protocol refuses.
func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

func isObject(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// wireID returns the id by which the server knows a call, in the characters that
// the protocol has: the same every time.
func wireID(id string) string {
	if id != "" && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "toolu_" + hex.EncodeToString(sum[:16])
}
