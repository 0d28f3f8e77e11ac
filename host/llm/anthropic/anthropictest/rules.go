package anthropictest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Block is one part of a message, or of the system text. Its Type says which of
// the fields it has.
type Block struct {
	Type         string        `json:"type"`
	CacheControl *CacheControl `json:"cache_control,omitempty"`
	// Text of text.
	Text string `json:"text,omitempty"`
	// ID, Name and Input of tool_use.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// ToolUseID, IsError and Content of tool_result; Content is of text.
	ToolUseID string  `json:"tool_use_id,omitempty"`
	IsError   bool    `json:"is_error,omitempty"`
	Content   []Block `json:"content,omitempty"`
	// Source of image.
	Source *Source `json:"source,omitempty"`
	// Thinking and Signature of thinking, Data of redacted_thinking.
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`

	// Raw is the part as it came.
	Raw string `json:"-"`

	// pieces are how an answer streams Text, and before is called before each. A block
	// with a pause is none: it says nothing and takes time.
	pieces []string
	before func(ctx context.Context)
	pause  func(ctx context.Context)
}

// Source is where a picture comes from: of Type base64 MediaType and Data, of url URL.
type Source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// image returns the picture as a driver is given it, standing at a place in the text.
func (s Source) image(at int) (llm.Image, error) {
	image := llm.Image{At: at, MediaType: s.MediaType, URL: s.URL}
	var err error
	switch {
	case s.Type == "base64" && s.URL == "":
		image.Data, err = base64.StdEncoding.DecodeString(s.Data)
	case s.Type == "url" && s.MediaType == "" && s.Data == "":
	default:
		err = fmt.Errorf("a source of type %q", s.Type)
	}
	if err == nil && !llm.ValidImage(image) {
		err = fmt.Errorf("neither data of type %q nor the address %q", s.MediaType, s.URL)
	}
	return image, err
}

// Images returns the pictures of a message as a driver is given them: At is where each
// stands in the text of all its blocks together.
func (m Message) Images() []llm.Image {
	var all []llm.Image
	at := 0
	for _, b := range m.Content {
		at += len(b.Text)
		if b.Source == nil {
			continue
		}
		image, _ := b.Source.image(at) // it was checked
		all = append(all, image)
	}
	return all
}

// fields are what a block of a type may have beside its type, the required ones
// first, up to the empty one.
var fields = map[string][]string{
	"text":              {"text", "", "cache_control"},
	"image":             {"source", "", "cache_control"},
	"tool_use":          {"id", "name", "input", "", "cache_control"},
	"tool_result":       {"tool_use_id", "content", "", "is_error", "cache_control"},
	"thinking":          {"thinking", "signature"},
	"redacted_thinking": {"data"},
}

// UnmarshalJSON refuses fields that a block of its type does not have.
func (b *Block) UnmarshalJSON(data []byte) error {
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	type plain Block
	if err := json.Unmarshal(data, (*plain)(b)); err != nil {
		return err
	}
	b.Raw = string(data)
	allowed, ok := fields[b.Type]
	if !ok {
		return fmt.Errorf("a block of type %q", b.Type)
	}
	for name := range sent {
		if name != "type" && !slices.Contains(allowed, name) {
			return fmt.Errorf("a block of type %q with %q", b.Type, name)
		}
	}
	for _, name := range allowed {
		if name == "" {
			break
		}
		if _, ok := sent[name]; !ok {
			return fmt.Errorf("a block of type %q without %q", b.Type, name)
		}
	}
	return nil
}

// plain is a block without its breakpoint, as the cache and the model see it.
func (b Block) plain() string {
	b.CacheControl = nil
	data, err := json.Marshal(b)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (b Block) isThought() bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

// sign is the signature of a thought. A real one is made with a key; this one
// shows as well that a letter was changed.
func sign(thinking string) string {
	sum := sha256.Sum256([]byte("thinking " + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// redact is the data of a thought that is not shown.
func redact(thinking string) string {
	return "redacted:" + base64.StdEncoding.EncodeToString([]byte(thinking))
}

// maxRequestBytes is more than any test sends.
const maxRequestBytes = 64 << 20

// read takes a request apart and returns what is wrong with it.
func read(r *http.Request) (Request, error) {
	sent := Request{Header: r.Header.Clone()}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" || r.URL.RawQuery != "" {
		return sent, fmt.Errorf("%s %s", r.Method, r.URL.RequestURI())
	}
	for name, want := range map[string]string{"X-Api-Key": Key, "Anthropic-Version": Version, "Content-Type": "application/json", "Authorization": "", "Anthropic-Beta": ""} {
		if got := r.Header.Values(name); strings.Join(got, ", ") != want {
			return sent, fmt.Errorf("%s is %q", name, got)
		}
	}
	var err error
	if sent.Body, err = io.ReadAll(io.LimitReader(r.Body, maxRequestBytes)); err != nil {
		return sent, err
	}
	// A field that Request does not list is a mistake, or Request is too short.
	decoder := json.NewDecoder(bytes.NewReader(sent.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&sent); err != nil {
		return sent, fmt.Errorf("body: %w", err)
	}
	return sent, sent.check()
}

// check holds a request against the rules of the protocol and of the models.
func (r Request) check() error {
	switch {
	case r.Model == "":
		return fmt.Errorf("no model")
	case r.MaxTokens == nil || *r.MaxTokens < 1:
		return fmt.Errorf("no max_tokens")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 1):
		return fmt.Errorf("a temperature of %v", *r.Temperature)
	case r.TopP != nil && (*r.TopP < 0 || *r.TopP > 1):
		return fmt.Errorf("a top_p of %v", *r.TopP)
	case slices.ContainsFunc(r.StopSequences, isBlank):
		return fmt.Errorf("the stop sequences %q", r.StopSequences)
	}
	if c := r.ToolChoice; c != nil {
		named := slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Name == c.Name })
		if len(r.Tools) == 0 || !slices.Contains([]string{"auto", "any", "none", "tool"}, c.Type) || (c.Type == "tool") != named || !named && c.Name != "" || c.Type == "none" && c.DisableParallelToolUse {
			return fmt.Errorf("tool_choice %+v with %d tools", *c, len(r.Tools))
		}
	}
	if c := r.OutputConfig; c != nil && !slices.Contains([]string{"", "low", "medium", "high", "xhigh", "max"}, c.Effort) {
		return fmt.Errorf("an effort of %q", c.Effort)
	}
	if c := r.OutputConfig; c != nil && c.Format.Type != "" {
		if err := checkSchema(c.Format.Schema); err != nil || c.Format.Type != "json_schema" {
			return fmt.Errorf("output_config.format of type %q: %w", c.Format.Type, err)
		}
	}
	for _, check := range []func() error{r.checkSystem, r.checkTools, r.checkTurns, r.checkPairs, r.checkThoughts, r.checkBreakpoints} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkSchema refuses what a model cannot be held to: objects that are open.
func checkSchema(data json.RawMessage) error {
	var schema struct {
		Type                 string                     `json:"type"`
		AdditionalProperties *bool                      `json:"additionalProperties"`
		Properties           map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		return err
	}
	if schema.Type != "object" || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
		return fmt.Errorf("a schema that is no closed object")
	}
	return nil
}

func (r Request) checkSystem() error {
	for i, b := range r.System {
		if b.Type != "text" || isBlank(b.Text) {
			return fmt.Errorf("system block %d is of type %q and text %q", i, b.Type, b.Text)
		}
	}
	return nil
}

func (r Request) checkTools() error {
	seen := map[string]bool{}
	for i, t := range r.Tools {
		if !isName(t.Name) || seen[t.Name] {
			return fmt.Errorf("tool %d has the name %q", i, t.Name)
		}
		seen[t.Name] = true
		var schema struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object" {
			return fmt.Errorf("the input_schema of tool %q is not one of an object", t.Name)
		}
	}
	return nil
}

// checkTurns: the user and the assistant in turns, the user first and last, and
// nothing empty.
func (r Request) checkTurns() error {
	if len(r.Messages)%2 == 0 {
		return fmt.Errorf("%d messages: the last is not the user's", len(r.Messages))
	}
	for i, m := range r.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of role %q, not of %q", i, m.Role, want)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		for j, b := range m.Content {
			if of := map[string]string{"image": "user", "tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant", "tool_result": "user"}[b.Type]; of != "" && of != m.Role {
				return fmt.Errorf("message %d of role %q has a block of type %q", i, m.Role, b.Type)
			}
			if b.Type == "text" && isBlank(b.Text) {
				return fmt.Errorf("block %d of message %d is blank", j, i)
			}
			if b.Type == "image" {
				if b.Source == nil {
					return fmt.Errorf("the picture in block %d of message %d comes from nowhere", j, i)
				}
				if _, err := b.Source.image(0); err != nil {
					return fmt.Errorf("the picture in block %d of message %d: %w", j, i, err)
				}
			}
			if b.Type == "tool_result" && (len(b.Content) == 0 || slices.ContainsFunc(b.Content, func(c Block) bool { return c.Type != "text" || isBlank(c.Text) || c.CacheControl != nil })) {
				return fmt.Errorf("the result in block %d of message %d is empty or no text", j, i)
			}
		}
	}
	return nil
}

// checkPairs: the results of a message's calls, one for each, begin the next
// message, and stand nowhere else. Behind a call stand calls alone.
func (r Request) checkPairs() error {
	waiting, seen := map[string]bool{}, map[string]bool{}
	for i, m := range r.Messages {
		results, calls := true, false
		for j, b := range m.Content {
			if b.Type == "tool_result" {
				if !results || !waiting[b.ToolUseID] {
					return fmt.Errorf("block %d of message %d answers %q, which is no call of the message before, or stands behind something else", j, i, b.ToolUseID)
				}
				delete(waiting, b.ToolUseID)
				continue
			}
			results = false
			if len(waiting) > 0 {
				return fmt.Errorf("message %d leaves %d calls without a result", i, len(waiting))
			}
			if b.Type != "tool_use" {
				if calls {
					return fmt.Errorf("block %d of message %d stands behind a call", j, i)
				}
				continue
			}
			if !isID(b.ID) || seen[b.ID] || !isName(b.Name) || !isObject(b.Input) {
				return fmt.Errorf("message %d makes the call %s", i, b.Raw)
			}
			calls, seen[b.ID] = true, true
		}
		if len(waiting) > 0 {
			return fmt.Errorf("message %d leaves %d calls without a result", i, len(waiting))
		}
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				waiting[b.ID] = true
			}
		}
	}
	return nil
}

// checkThoughts: they begin a message, are of the last turn, and are as they came.
func (r Request) checkThoughts() error {
	turn := 0
	for i, m := range r.Messages {
		if m.Role == "user" && m.Content[0].Type != "tool_result" {
			turn = i
		}
	}
	for i, m := range r.Messages {
		other := false
		for _, b := range m.Content {
			switch {
			case !b.isThought():
				other = true
				continue
			case other:
				return fmt.Errorf("a thought in message %d stands behind something else", i)
			case i < turn:
				// They are allowed, and cost: assembly leaves them out.
				return fmt.Errorf("the thought in message %d is of an earlier turn", i)
			}
			if b.Type == "thinking" && b.Signature != sign(b.Thinking) || b.Type == "redacted_thinking" && !strings.HasPrefix(b.Data, "redacted:") {
				return fmt.Errorf("the thought in message %d was changed: %s", i, b.Raw)
			}
		}
	}
	return nil
}

// maxBreakpoints is how many cache_control a request may have.
const maxBreakpoints = 4

func (r Request) checkBreakpoints() error {
	n := 0
	for place, c := range r.controls() {
		if c.Type != "ephemeral" {
			return fmt.Errorf("cache_control of type %q at %s", c.Type, place)
		}
		n++
	}
	if n > maxBreakpoints {
		return fmt.Errorf("%d breakpoints", n)
	}
	return nil
}

// Breakpoints says where cache_control stands, such as "tool 1", "system 0" and
// "message 2 block 0", in the order of the prompt.
func (r Request) Breakpoints() []string {
	var all []string
	for place := range r.controls() {
		all = append(all, place)
	}
	return all
}

func (r Request) controls() iter.Seq2[string, *CacheControl] {
	return func(yield func(string, *CacheControl) bool) {
		for i, t := range r.Tools {
			if t.CacheControl != nil && !yield(fmt.Sprintf("tool %d", i), t.CacheControl) {
				return
			}
		}
		for i, b := range r.System {
			if b.CacheControl != nil && !yield(fmt.Sprintf("system %d", i), b.CacheControl) {
				return
			}
		}
		for i, m := range r.Messages {
			for j, b := range m.Content {
				if b.CacheControl != nil && !yield(fmt.Sprintf("message %d block %d", i, j), b.CacheControl) {
					return
				}
			}
		}
	}
}

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

const (
	letters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	maxNames = 128
)

func isName(name string) bool { return isID(name) && len(name) <= maxNames }

func isID(id string) bool { return id != "" && strings.Trim(id, letters) == "" }

func isObject(data json.RawMessage) bool {
	var object map[string]any
	return json.Unmarshal(data, &object) == nil && object != nil
}
