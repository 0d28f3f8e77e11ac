package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// messagesRequest is the body of POST /v1/messages. What stands in it beside counts
// for nothing: docs/gateway.md has the list.
type messagesRequest struct {
	Model       string            `json:"model"`
	MaxTokens   *int              `json:"max_tokens"`
	System      json.RawMessage   `json:"system"`
	Messages    []messagesMessage `json:"messages"`
	Tools       []messagesTool    `json:"tools"`
	ToolChoice  *messagesChoice   `json:"tool_choice"`
	Temperature *float64          `json:"temperature"`
	TopP        *float64          `json:"top_p"`
	Stop        []string          `json:"stop_sequences"`
	Stream      bool              `json:"stream"`
	Output      struct {
		Effort string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
	// Thread is a conversation that the server holds: of a beta.
	Thread struct {
		Type string `json:"type"`
	} `json:"thread"`
	Servers   json.RawMessage `json:"mcp_servers"`
	Container json.RawMessage `json:"container"`
}

type messagesMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// messagesBlock is one block of a content, with the fields of all types. Content is
// that of a tool's result.
type messagesBlock struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	} `json:"source"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

type messagesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

type messagesChoice struct {
	Type string `json:"type"`
	Name string `json:"name"`
	One  bool   `json:"disable_parallel_tool_use"`
}

// into puts a request into a conversation; limited says that it has to have a limit.
// Errors are faults.
func (r *messagesRequest) into(c *host.Conversation, limited bool) (err error) {
	switch {
	case r.Thread.Type == "continue":
		// What it goes on with would be without its system text and its tools, which are
		// not kept. Clients then send the whole conversation, and all is well.
		f := refuse(http.StatusNotFound, "thread_not_found", "this server holds no threads: send the whole conversation")
		f.param = "thread"
		return f
	case isThere(r.Servers):
		return unsupportedf("mcp_servers", "this server connects to no others for a request")
	case isThere(r.Container):
		return unsupportedf("container", "this server has none")
	case r.MaxTokens == nil && limited:
		return badf("max_tokens", "it is required")
	case r.MaxTokens != nil && *r.MaxTokens < 1:
		return badf("max_tokens", "it is at least 1")
	case r.MaxTokens != nil:
		c.Ask.MaxOutputTokens = *r.MaxTokens
	}
	if c.System, err = messagesText(r.System, "system"); err != nil {
		return err
	}
	if c.Messages, err = r.drafts(); err != nil {
		return err
	}
	if err := r.tools(c); err != nil {
		return err
	}
	if err := sampling(&c.Ask, r.Temperature, 1, r.TopP); err != nil {
		return err
	}
	if err := stops(&c.Ask, r.Stop, "stop_sequences"); err != nil {
		return err
	}
	if err := effort(&c.Ask, r.Output.Effort, "output_config.effort"); err != nil {
		return err
	}
	return r.form(c)
}

// drafts are the messages of the conversation, each tool's result one of its own.
func (r *messagesRequest) drafts() ([]memory.Draft, error) {
	if len(r.Messages) == 0 {
		return nil, badf("messages", "at least one is required")
	}
	names := map[string]string{} // of the tools, by the ids of their calls
	var all []memory.Draft
	for i, m := range r.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		blocks, err := messagesBlocks(m.Content, at+".content")
		if err != nil {
			return nil, err
		}
		switch m.Role {
		case "user":
			drafts, err := messagesOfUser(blocks, names, at+".content")
			if err != nil {
				return nil, err
			}
			all = append(all, drafts...)
		case "assistant":
			said, err := messagesOfAssistant(blocks, names, at+".content")
			if err != nil {
				return nil, err
			}
			// Thoughts alone are nothing that was said.
			if len(said) > 0 {
				all = append(all, memory.Draft{Role: memory.RoleAssistant, Blocks: said})
			}
		case "system":
			text, err := messagesText(m.Content, at+".content")
			if err != nil {
				return nil, err
			}
			if text == "" {
				return nil, badf(at+".content", "it is empty")
			}
			all = append(all, memory.Draft{Role: memory.RoleSystem, Blocks: []memory.Block{memory.Text(text)}})
		default:
			return nil, badf(at+".role", "%s is not one of user, assistant, system", shortQuote(m.Role))
		}
	}
	if last := r.Messages[len(r.Messages)-1].Role; last == "assistant" {
		return nil, unsupportedf("messages", "the last one is the user's: answers are not begun for the model here")
	}
	return all, nil
}

// messagesOfUser are the results in a user's message, wherever they stand in it, and
// then what the user says.
func messagesOfUser(blocks []messagesBlock, names map[string]string, at string) ([]memory.Draft, error) {
	var drafts []memory.Draft
	var said []memory.Block
	for i, b := range blocks {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch b.Type {
		case "text":
			if !isBlank(b.Text) {
				said = append(said, memory.Text(b.Text))
			}
		case "image":
			image, err := messagesImage(b, at)
			if err != nil {
				return nil, err
			}
			said = append(said, image)
		case "tool_result":
			if !llm.ValidToolCallID(b.ToolUseID) {
				return nil, badf(at+".tool_use_id", "it is not the id of a call")
			}
			text, images, err := messagesResult(b.Content, at+".content")
			if err != nil {
				return nil, err
			}
			result := toolResult(b.ToolUseID, names[b.ToolUseID], text, b.IsError)
			drafts = append(drafts, memory.Draft{Role: memory.RoleTool, Blocks: append([]memory.Block{result}, images...)})
		default:
			return nil, messagesUnknown(b.Type, at)
		}
	}
	if len(said) > 0 {
		drafts = append(drafts, memory.Draft{Role: memory.RoleUser, Blocks: said})
	}
	if len(drafts) == 0 {
		return nil, badf(at, "it is empty")
	}
	return drafts, nil
}

// messagesOfAssistant is what an assistant said and called, without what it thought:
// the host has that, and a provider takes no other's.
func messagesOfAssistant(blocks []messagesBlock, names map[string]string, at string) ([]memory.Block, error) {
	var said []memory.Block
	thought := false
	for i, b := range blocks {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch b.Type {
		case "text":
			if !isBlank(b.Text) {
				said = append(said, memory.Text(b.Text))
			}
		case "tool_use":
			if _, twice := names[b.ID]; twice {
				return nil, badf(at+".id", "an earlier call has the same")
			}
			call, err := toolCall(b.ID, b.Name, b.Input, at+".id", at+".name", at+".input")
			if err != nil {
				return nil, err
			}
			names[b.ID] = b.Name
			said = append(said, call)
		case "thinking", "redacted_thinking":
			thought = true
		default:
			return nil, messagesUnknown(b.Type, at)
		}
	}
	if len(said) == 0 && !thought {
		return nil, badf(at, "it is empty")
	}
	return said, nil
}

// messagesUnknown refuses a type of block that there is no form for in a session.
func messagesUnknown(kind, at string) error {
	return unsupportedf(at+".type", "a block of type %s is not understood here: send text, image, tool_use or tool_result", shortQuote(kind))
}

// messagesBlocks reads a content, which is a text or blocks.
func messagesBlocks(raw json.RawMessage, at string) ([]messagesBlock, error) {
	var blocks []messagesBlock
	switch first(raw) {
	case '"':
		var text string
		if err := part(raw, at, &text); err != nil {
			return nil, err
		}
		return []messagesBlock{{Type: "text", Text: text}}, nil
	case '[':
		if err := part(raw, at, &blocks); err != nil {
			return nil, err
		}
		return blocks, nil
	}
	return nil, badf(at, "it is a string or a list of blocks")
}

// messagesText reads a content of text alone; "" if it is absent.
func messagesText(raw json.RawMessage, at string) (string, error) {
	if !isThere(raw) {
		return "", nil
	}
	blocks, err := messagesBlocks(raw, at)
	if err != nil {
		return "", err
	}
	var texts []string
	for i, b := range blocks {
		if b.Type != "text" {
			return "", badf(fmt.Sprintf("%s[%d].type", at, i), "%s is not text", shortQuote(b.Type))
		}
		if !isBlank(b.Text) {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

// messagesResult reads what a tool returned; nothing if it is absent.
func messagesResult(raw json.RawMessage, at string) (text string, images []memory.Block, err error) {
	if !isThere(raw) {
		return "", nil, nil
	}
	blocks, err := messagesBlocks(raw, at)
	if err != nil {
		return "", nil, err
	}
	var texts []string
	for i, b := range blocks {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "image":
			image, err := messagesImage(b, at)
			if err != nil {
				return "", nil, err
			}
			images = append(images, image)
		default:
			return "", nil, badf(at+".type", "a result is text and images here, not %s", shortQuote(b.Type))
		}
	}
	return strings.Join(texts, "\n"), images, nil
}

func messagesImage(b messagesBlock, at string) (memory.Block, error) {
	at += ".source"
	switch b.Source.Type {
	case "base64":
		data, err := base64.StdEncoding.DecodeString(b.Source.Data)
		if err != nil {
			return memory.Block{}, badf(at+".data", "it is not base64")
		}
		return imageOf(b.Source.MediaType, data, at)
	case "url":
		return imageAt(b.Source.URL, at+".url")
	}
	return memory.Block{}, unsupportedf(at+".type", "%s is not understood here: send base64 or url", shortQuote(b.Source.Type))
}

// tools puts in the client's tools and how they are to be called.
func (r *messagesRequest) tools(c *host.Conversation) error {
	names := map[string]bool{}
	for i, t := range r.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if t.Type != "" && t.Type != "custom" {
			return unsupportedf(at+".type", "a tool of type %s is the provider's to run: only the client's own are understood here", shortQuote(t.Type))
		}
		if first(t.Schema) != '{' {
			return badf(at+".input_schema", "it is an object")
		}
		tool, err := clientTool(names, t.Name, t.Description, t.Schema, at+".name", at+".input_schema")
		if err != nil {
			return err
		}
		c.Tools = append(c.Tools, tool)
	}
	if r.ToolChoice == nil {
		return nil
	}
	c.Ask.Choice.One = r.ToolChoice.One
	switch r.ToolChoice.Type {
	case "auto":
	case "any":
		c.Ask.Choice.Required = true
	case "tool":
		if !names[r.ToolChoice.Name] {
			return badf("tool_choice.name", "%s is not among the tools", shortQuote(r.ToolChoice.Name))
		}
		c.Ask.Choice.Required, c.Ask.Choice.Name = true, r.ToolChoice.Name
	case "none":
		c.Ask.NoCalls = true
	default:
		return badf("tool_choice.type", "%s is not one of auto, any, tool, none", shortQuote(r.ToolChoice.Type))
	}
	if c.Ask.Choice.Required && len(c.Tools) == 0 {
		return badf("tool_choice", "there are no tools to call")
	}
	return nil
}

// form puts in the form that the answer is to have.
func (r *messagesRequest) form(c *host.Conversation) error {
	f := r.Output.Format
	if f == nil {
		return nil
	}
	if f.Type != "json_schema" || first(f.Schema) != '{' {
		return badf("output_config.format", "it is of type json_schema, with an object as its schema")
	}
	answerIn(c, llm.Schema{Name: "answer", JSON: f.Schema}, true)
	return nil
}

// messagesAnswer is a message as Anthropic writes it.
type messagesAnswer struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"`
	Role         string        `json:"role"`
	Model        string        `json:"model"`
	Content      []any         `json:"content"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	Usage        messagesUsage `json:"usage"`
}

type messagesSaid struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type messagesCall struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// messagesUsage is what an answer cost: each token of the prompt is in one of the
// first three.
type messagesUsage struct {
	Input   int `json:"input_tokens"`
	Written int `json:"cache_creation_input_tokens"`
	Read    int `json:"cache_read_input_tokens"`
	Output  int `json:"output_tokens"`
}

func messagesUsageOf(r llm.Response) messagesUsage {
	return messagesUsage{Input: max(r.InputTokens-r.CachedTokens-r.WrittenTokens, 0), Written: r.WrittenTokens, Read: r.CachedTokens, Output: r.OutputTokens}
}

// messagesStop says why an answer ended. Calls go before everything else: they are
// stored, and wait for their results.
func messagesStop(r *host.Relayed) (reason string, sequence *string) {
	switch {
	case len(r.Calls) > 0:
		return "tool_use", nil
	case r.Response.Filtered:
		return "refusal", nil
	case r.Response.Truncated:
		return "max_tokens", nil
	case r.Response.Stopped != "":
		return "stop_sequence", &r.Response.Stopped
	}
	return "end_turn", nil
}

// messagesBegun is an answer that nothing was said of yet.
func messagesBegun(id, model string) messagesAnswer {
	return messagesAnswer{ID: id, Type: "message", Role: "assistant", Model: model, Content: []any{}}
}

// messagesEnded is a whole answer.
func messagesEnded(id, model string, r *host.Relayed) messagesAnswer {
	a := messagesBegun(id, model)
	if text := textOf(r.Message); text != "" {
		a.Content = append(a.Content, messagesSaid{"text", text})
	}
	for _, c := range r.Calls {
		a.Content = append(a.Content, messagesCall{"tool_use", c.ID, c.Name, c.Input})
	}
	reason, sequence := messagesStop(r)
	a.StopReason, a.StopSequence, a.Usage = &reason, sequence, messagesUsageOf(r.Response)
	return a
}

// messagesStream is a teller of Anthropic's events.
type messagesStream struct {
	id, model string
	begun     bool
	// blocks is how many content blocks were begun; saying says that the last of them
	// is text and open.
	blocks int
	saying bool
}

func (s *messagesStream) begin(out *events) {
	if s.begun {
		return
	}
	s.begun = true
	// Nobody knows yet what the prompt costs: message_delta says it.
	out.send("message_start", map[string]any{"type": "message_start", "message": messagesBegun(s.id, s.model)})
}

func (s *messagesStream) text(out *events, piece string) {
	s.begin(out)
	if !s.saying {
		s.saying = true
		s.open(out, messagesSaid{Type: "text"})
	}
	s.delta(out, map[string]any{"type": "text_delta", "text": piece})
}

func (s *messagesStream) end(out *events, done *host.Relayed) {
	s.begin(out)
	if s.saying {
		s.close(out)
	}
	for _, c := range done.Calls {
		s.open(out, messagesCall{"tool_use", c.ID, c.Name, json.RawMessage("{}")})
		s.delta(out, map[string]any{"type": "input_json_delta", "partial_json": string(c.Input)})
		s.close(out)
	}
	reason, sequence := messagesStop(done)
	out.send("message_delta", map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence}, "usage": messagesUsageOf(done.Response),
	})
	out.send("message_stop", map[string]any{"type": "message_stop"})
}

func (s *messagesStream) fail(out *events, f *fault) {
	out.send("error", anthropic{}.fault(f, requestID(out.to)))
}

func (s *messagesStream) alive(out *events) {
	s.begin(out)
	out.send("ping", map[string]any{"type": "ping"})
}

func (s *messagesStream) open(out *events, block any) {
	out.send("content_block_start", map[string]any{"type": "content_block_start", "index": s.blocks, "content_block": block})
	s.blocks++
}

func (s *messagesStream) delta(out *events, delta any) {
	out.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": s.blocks - 1, "delta": delta})
}

func (s *messagesStream) close(out *events) {
	out.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": s.blocks - 1})
}

// messages answers POST /v1/messages.
func (s *server) messages(w http.ResponseWriter, r *http.Request) error {
	// Where this API's clients look for it.
	if request := requestID(w); request != "" {
		w.Header().Set("Request-Id", request)
	}
	var sent messagesRequest
	done, err := s.read(w, r, &sent)
	defer done()
	if err != nil {
		return err
	}
	c, err := s.conversation(r, sent.Model, "", "")
	if err != nil {
		return err
	}
	if err := sent.into(c, true); err != nil {
		return err
	}
	id, model := newID("msg_"), sent.Model
	if sent.Stream {
		return s.stream(w, r, c, &messagesStream{id: id, model: model})
	}
	return s.answer(w, r, c, func(done *host.Relayed) any { return messagesEnded(id, model, done) })
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *server) countTokens(w http.ResponseWriter, r *http.Request) error {
	var sent messagesRequest
	done, err := s.read(w, r, &sent)
	defer done()
	if err != nil {
		return err
	}
	c, err := s.conversation(r, sent.Model, "", "")
	if err != nil {
		return err
	}
	if err := sent.into(c, false); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": tokensOf(c)})
	return nil
}
