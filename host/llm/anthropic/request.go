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

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

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

// body writes a request. The error is that of a tool or a schema that is not a
// JSON object.
func (m *Model) body(r llm.Request, d dialect, stream bool) ([]byte, *remote.Failure) {
	p := sdk.MessageNewParams{Model: m.endpoint.Name(), MaxTokens: int64(r.MaxOutputTokens)}
	if p.MaxTokens <= 0 {
		p.MaxTokens = defaultMaxTokens
	}
	if r.Temperature != nil && !d.ownTemperature {
		p.Temperature = sdk.Float(min(*r.Temperature, maxTemperature))
	}
	if r.TopP != nil && !d.ownTopP && !(d.notBoth && r.Temperature != nil) {
		p.TopP = sdk.Float(*r.TopP)
	}
	p.StopSequences, _ = d.stops(r)
	if isEffort(r.Effort) && !d.ownEffort {
		p.OutputConfig.Effort = sdk.OutputConfigEffort(r.Effort)
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
			p.OutputConfig.Format = param.Override[sdk.JSONOutputFormatParam](struct {
				Type   string          `json:"type"`
				Schema json.RawMessage `json:"schema"`
			}{"json_schema", r.Schema.JSON})
		}
	}
	if !isBlank(system) {
		p.System = []sdk.TextBlockParam{{Text: system}}
	}
	for _, t := range r.Tools {
		tool := sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](json.RawMessage(noParameters))}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		if t.Parameters != nil {
			if !isObject(t.Parameters) {
				return nil, &remote.Failure{Kind: llm.ErrRefused, What: "the parameters of the tool " + strconv.Quote(t.Name) + " are not a JSON object"}
			}
			tool.InputSchema = param.Override[sdk.ToolInputSchemaParam](t.Parameters)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	if len(p.Tools) > 0 {
		p.ToolChoice = choice(r, d)
	}
	left := maxBreakpoints
	if r.CacheSystem {
		// The tools stand before the system text and are kept with it.
		switch kept := sdk.NewCacheControlEphemeralParam(); {
		case len(p.System) > 0:
			p.System[0].CacheControl = kept
			left--
		case len(p.Tools) > 0:
			p.Tools[len(p.Tools)-1].OfTool.CacheControl = kept
			left--
		}
	}
	head, err := p.MarshalJSON()
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
	if stream {
		b.WriteString(`,"stream":true`)
	}
	b.WriteString(`,"messages":[`)
	b.Write(bytes.Join(written, []byte(",")))
	b.WriteString("]}")
	return b.Bytes(), nil
}

// choice says which tools may be called; nothing if that is for the model to decide.
func choice(r llm.Request, d dialect) (c sdk.ToolChoiceUnionParam) {
	var one param.Opt[bool]
	if r.Choice.One && !d.manyCalls {
		one = sdk.Bool(true)
	}
	switch required := r.Choice.Required && !d.freeChoice; {
	case r.NoCalls && d.noToolChoice:
	case r.NoCalls:
		c.OfNone = &sdk.ToolChoiceNoneParam{}
	case required && r.Choice.Name != "":
		c.OfTool = &sdk.ToolChoiceToolParam{Name: r.Choice.Name, DisableParallelToolUse: one}
	case required:
		c.OfAny = &sdk.ToolChoiceAnyParam{DisableParallelToolUse: one}
	case one.Valid():
		c.OfAuto = &sdk.ToolChoiceAutoParam{DisableParallelToolUse: one}
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
	var blocks []sdk.ContentBlockParamUnion
	for _, v := range m.ToolResults {
		blocks = append(blocks, sdk.NewToolResultBlock(wireID(v.ID), v.Text, v.IsError))
	}
	for words, image := range remote.Parts(m, d.blind) {
		switch {
		case image == nil:
			blocks = append(blocks, sdk.NewTextBlock(words))
		case image.URL != "":
			blocks = append(blocks, sdk.NewImageBlock(sdk.URLImageSourceParam{URL: image.URL}))
		default:
			blocks = append(blocks, sdk.NewImageBlockBase64(image.MediaType, base64.StdEncoding.EncodeToString(image.Data)))
		}
	}
	for _, c := range m.ToolCalls {
		blocks = append(blocks, sdk.NewToolUseBlock(wireID(c.ID), c.Input, c.Name))
	}
	if len(blocks) == 0 {
		return nil, nil
	}
	if breakpoint {
		*blocks[len(blocks)-1].GetCacheControl() = sdk.NewCacheControlEphemeralParam()
	}
	var written [][]byte
	if !d.noThoughts && m.Role == llm.RoleAssistant && m.Provider == Provider && areThoughts(m.Thinking) {
		for _, t := range m.Thinking {
			written = append(written, t)
		}
	}
	for _, b := range blocks {
		data, err := b.MarshalJSON()
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
