package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// chatRequest is the body of POST /v1/chat/completions. What stands in it beside
// counts for nothing: docs/gateway.md has the list.
type chatRequest struct {
	Model         string          `json:"model"`
	Messages      []chatMessage   `json:"messages"`
	Tools         []chatTool      `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	Parallel      *bool           `json:"parallel_tool_calls"`
	MaxTokens     *int            `json:"max_tokens"`
	MaxCompletion *int            `json:"max_completion_tokens"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	Stop          json.RawMessage `json:"stop"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Format *chatFormat `json:"response_format"`
	Effort string      `json:"reasoning_effort"`
	User   string      `json:"user"`

	// What would change the answer into one that is not given here is refused.
	N            *int                       `json:"n"`
	Logprobs     bool                       `json:"logprobs"`
	TopLogprobs  int                        `json:"top_logprobs"`
	LogitBias    map[string]json.RawMessage `json:"logit_bias"`
	Modalities   []string                   `json:"modalities"`
	Audio        json.RawMessage            `json:"audio"`
	WebSearch    json.RawMessage            `json:"web_search_options"`
	Functions    json.RawMessage            `json:"functions"`
	FunctionCall json.RawMessage            `json:"function_call"`
}

// chatMessage is one message, with the fields of all roles.
type chatMessage struct {
	Role         string          `json:"role"`
	Content      json.RawMessage `json:"content"`
	Refusal      string          `json:"refusal"`
	ToolCalls    []chatCall      `json:"tool_calls"`
	ToolCallID   string          `json:"tool_call_id"`
	FunctionCall json.RawMessage `json:"function_call"`
	Audio        json.RawMessage `json:"audio"`
}

// chatPart is one part of a content, with the fields of all types.
type chatPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// chatCall is a call of a function; Index is there in a stream alone.
type chatCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

// chatFunction is what is called. Arguments are JSON in a string.
type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type chatFormat struct {
	Type   string `json:"type"`
	Schema *struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	} `json:"json_schema"`
}

// maxTools is how many tools a request may describe: OpenAI takes no more.
const maxTools = 128

// fill puts what a request says into c. Errors are faults.
func (r *chatRequest) fill(c *host.Conversation) error {
	if err := r.refused(); err != nil {
		return err
	}
	if err := r.messages(c); err != nil {
		return err
	}
	if err := r.tools(c); err != nil {
		return err
	}
	if err := r.limit(&c.Ask); err != nil {
		return err
	}
	// What OpenAI's clients may write is 0 to 2, and 0 of top_p means as little as may be.
	if r.TopP != nil && *r.TopP == 0 {
		r.TopP = new(1e-6)
	}
	if err := sampling(&c.Ask, r.Temperature, 2, r.TopP); err != nil {
		return err
	}
	texts, err := stopTexts(r.Stop)
	if err != nil {
		return err
	}
	if err := stops(&c.Ask, texts, "stop"); err != nil {
		return err
	}
	if err := effort(&c.Ask, r.Effort, "reasoning_effort"); err != nil {
		return err
	}
	return r.format(c)
}

// refused says what of a request cannot be had.
func (r *chatRequest) refused() error {
	const instead = "it is of an older form: describe tools, and choose among them by tool_choice"
	switch {
	case r.N != nil && *r.N != 1:
		return unsupportedf("n", "one answer is given to a request")
	case r.Logprobs || r.TopLogprobs != 0:
		return unsupportedf("logprobs", "how likely words were is not told")
	case len(r.LogitBias) > 0:
		return unsupportedf("logit_bias", "it is not passed on")
	case slices.ContainsFunc(r.Modalities, func(m string) bool { return m != "text" }):
		return unsupportedf("modalities", "answers are text")
	case isThere(r.Audio):
		return unsupportedf("audio", "answers are text")
	case isThere(r.WebSearch):
		return unsupportedf("web_search_options", "nothing is searched for a request")
	case isThere(r.Functions):
		return unsupportedf("functions", instead)
	case isThere(r.FunctionCall):
		return unsupportedf("function_call", instead)
	}
	return nil
}

// messages reads the conversation. System texts that it begins or ends with are what
// the model is told for this answer; those between are part of what was said.
func (r *chatRequest) messages(c *host.Conversation) error {
	isSystem := func(m chatMessage) bool { return m.Role == "system" || m.Role == "developer" }
	first := slices.IndexFunc(r.Messages, func(m chatMessage) bool { return !isSystem(m) })
	if first < 0 {
		return badf("messages", "at least one message of a user is required")
	}
	last := len(r.Messages)
	for isSystem(r.Messages[last-1]) {
		last--
	}
	names := map[string]string{} // of the tools, by the ids of their calls
	var system []string
	for i, m := range r.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		d, err := m.draft(at, names)
		switch {
		case err != nil:
			return err
		case len(d.Blocks) == 0:
		case i < first || i >= last:
			system = append(system, textOf(memory.Message{Blocks: d.Blocks}))
		default:
			c.Messages = append(c.Messages, d)
		}
	}
	if r.Messages[last-1].Role == "assistant" {
		return unsupportedf(fmt.Sprintf("messages[%d]", last-1), "the last message is a user's or a tool's: no answer is begun by the client")
	}
	c.System = strings.Join(system, "\n\n")
	return nil
}

// draft reads one message, without blocks if it says nothing and that is no mistake.
func (m chatMessage) draft(at string, names map[string]string) (memory.Draft, error) {
	var d memory.Draft
	switch m.Role {
	case "system", "developer":
		d.Role = memory.RoleSystem
	case "user":
		d.Role = memory.RoleUser
	case "assistant":
		return m.assistant(at, names)
	case "tool":
		return m.result(at, names)
	case "function":
		return d, unsupportedf(at+".role", "it is of an older form: send the result as role tool, with tool_call_id")
	default:
		return d, badf(at+".role", "it is system, developer, user, assistant or tool, not %s", shortQuote(m.Role))
	}
	parts, err := m.parts(at)
	if err != nil {
		return d, err
	}
	for i, p := range parts {
		within := fmt.Sprintf("%s.content[%d]", at, i)
		switch {
		case p.Type == "text" && strings.TrimSpace(p.Text) == "":
		case p.Type == "text":
			d.Blocks = append(d.Blocks, memory.Text(p.Text))
		case p.Type == "image_url" && d.Role == memory.RoleUser:
			picture, err := imageIn(p.ImageURL.URL, within+".image_url.url")
			if err != nil {
				return d, err
			}
			d.Blocks = append(d.Blocks, picture)
		default:
			return d, unsupportedf(within+".type", "a part of type %s cannot stand in a message of a %s", shortQuote(p.Type), m.Role)
		}
	}
	if len(d.Blocks) == 0 && d.Role == memory.RoleUser {
		return d, badf(at+".content", "the message is empty")
	}
	return d, nil
}

// parts reads a content, of which a string is one part.
func (m chatMessage) parts(at string) (parts []chatPart, err error) {
	at += ".content"
	switch first(m.Content) {
	case 0, 'n':
		return nil, nil
	case '"':
		var text string
		err = part(m.Content, at, &text)
		return []chatPart{{Type: "text", Text: text}}, err
	case '[':
		err = part(m.Content, at, &parts)
		return parts, err
	}
	return nil, badf(at, "it is a string, or an array of parts")
}

// assistant reads an answer: its words are one text, as they are in the answers that
// are given here.
func (m chatMessage) assistant(at string, names map[string]string) (memory.Draft, error) {
	d := memory.Draft{Role: memory.RoleAssistant}
	switch {
	case isThere(m.FunctionCall):
		return d, unsupportedf(at+".function_call", "it is of an older form: send tool_calls")
	case isThere(m.Audio):
		return d, unsupportedf(at+".audio", "audio is not kept")
	}
	parts, err := m.parts(at)
	if err != nil {
		return d, err
	}
	var said strings.Builder
	for i, p := range parts {
		switch p.Type {
		case "text":
			said.WriteString(p.Text)
		case "refusal":
			said.WriteString(p.Refusal)
		default:
			return d, unsupportedf(fmt.Sprintf("%s.content[%d].type", at, i), "a part of type %s cannot stand in a message of the assistant", shortQuote(p.Type))
		}
	}
	said.WriteString(m.Refusal)
	if strings.TrimSpace(said.String()) != "" {
		d.Blocks = append(d.Blocks, memory.Text(said.String()))
	}
	for i, call := range m.ToolCalls {
		within := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if call.Type != "function" && call.Type != "" {
			return d, unsupportedf(within+".type", "only functions are called")
		}
		if _, twice := names[call.ID]; twice {
			return d, badf(within+".id", "an earlier call has the same")
		}
		arguments := json.RawMessage(call.Function.Arguments)
		if first(arguments) == 0 {
			arguments = json.RawMessage("{}")
		}
		block, err := toolCall(call.ID, call.Function.Name, arguments, within+".id", within+".function.name", within+".function.arguments")
		if err != nil {
			return d, err
		}
		names[call.ID] = call.Function.Name
		d.Blocks = append(d.Blocks, block)
	}
	return d, nil
}

// result reads what a tool returned.
func (m chatMessage) result(at string, names map[string]string) (memory.Draft, error) {
	d := memory.Draft{Role: memory.RoleTool}
	if !llm.ValidToolCallID(m.ToolCallID) {
		return d, badf(at+".tool_call_id", "it is the id of a call: 1 to 64 letters, digits, '_', '-', '.' or ':'")
	}
	parts, err := m.parts(at)
	if err != nil {
		return d, err
	}
	var said strings.Builder
	for i, p := range parts {
		if p.Type != "text" {
			return d, unsupportedf(fmt.Sprintf("%s.content[%d].type", at, i), "a part of type %s cannot stand in a message of a tool", shortQuote(p.Type))
		}
		said.WriteString(p.Text)
	}
	d.Blocks = []memory.Block{toolResult(m.ToolCallID, names[m.ToolCallID], said.String(), false)}
	return d, nil
}

// tools reads what may be called, and whether it is to be.
func (r *chatRequest) tools(c *host.Conversation) error {
	if len(r.Tools) > maxTools {
		return badf("tools", "there are %d; at most %d are possible", len(r.Tools), maxTools)
	}
	names := map[string]bool{}
	for i, t := range r.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if t.Type != "function" {
			return unsupportedf(at+".type", "only functions are called, not %s", shortQuote(t.Type))
		}
		parameters := t.Function.Parameters
		if !isThere(parameters) {
			parameters = nil
		} else if first(parameters) != '{' {
			return badf(at+".function.parameters", "it is not a JSON object")
		}
		tool, err := clientTool(names, t.Function.Name, t.Function.Description, parameters, at+".function.name", at+".function.parameters")
		if err != nil {
			return err
		}
		c.Tools = append(c.Tools, tool)
	}
	c.Ask.Choice.One = r.Parallel != nil && !*r.Parallel
	return r.choice(c, names)
}

func (r *chatRequest) choice(c *host.Conversation, names map[string]bool) error {
	const at = "tool_choice"
	choice := struct {
		Type     string       `json:"type"`
		Function chatFunction `json:"function"`
	}{Type: "auto"}
	switch first(r.ToolChoice) {
	case 0, 'n':
		return nil
	case '"':
		if err := part(r.ToolChoice, at, &choice.Type); err != nil {
			return err
		}
		if choice.Type == "function" {
			choice.Type = `"function"` // it needs a name
		}
	default:
		if err := part(r.ToolChoice, at, &choice); err != nil {
			return err
		}
	}
	switch choice.Type {
	case "auto":
		return nil
	case "none":
		c.Ask.NoCalls = true
		return nil
	case "required":
		c.Ask.Choice.Required = true
	case "function":
		c.Ask.Choice.Required, c.Ask.Choice.Name = true, choice.Function.Name
		if !names[choice.Function.Name] {
			return badf(at, "there is no tool %s", shortQuote(choice.Function.Name))
		}
	default:
		return unsupportedf(at, "it is none, auto, required, or names a function")
	}
	if len(r.Tools) == 0 {
		return badf(at, "there are no tools")
	}
	return nil
}

// limit reads how long the answer may be.
func (r *chatRequest) limit(ask *llm.Request) error {
	most, at := r.MaxCompletion, "max_completion_tokens"
	if most == nil {
		most, at = r.MaxTokens, "max_tokens" // its older name
	}
	if most == nil {
		return nil
	}
	if *most < 1 {
		return badf(at, "it is at least 1")
	}
	ask.MaxOutputTokens = *most
	return nil
}

func stopTexts(raw json.RawMessage) (texts []string, err error) {
	switch first(raw) {
	case 0, 'n':
		return nil, nil
	case '"':
		texts = make([]string, 1)
		err = part(raw, "stop", &texts[0])
	case '[':
		err = part(raw, "stop", &texts)
	default:
		err = badf("stop", "it is a string, or an array of strings")
	}
	return texts, err
}

// format reads the form that the answer is to have. One that providers cannot be
// held to, or not beside tools, is asked for in words.
func (r *chatRequest) format(c *host.Conversation) error {
	const at = "response_format"
	if r.Format == nil {
		return nil
	}
	ask := ""
	switch r.Format.Type {
	case "text":
		return nil
	case "json_object":
		ask = "Answer with one JSON object and nothing else."
	case "json_schema":
		schema := r.Format.Schema
		switch {
		case schema == nil:
			return badf(at+".json_schema", "it is required")
		case !llm.ValidToolName(schema.Name):
			return badf(at+".json_schema.name", "it is 1 to 64 letters, digits, '_' or '-'")
		case first(schema.Schema) != '{':
			return badf(at+".json_schema.schema", "it is not a JSON object")
		case schema.Strict && len(c.Tools) == 0:
			c.Ask.Schema = &llm.Schema{Name: schema.Name, JSON: schema.Schema}
			return nil
		}
		ask = "Answer with one JSON value and nothing else. Its form is this JSON Schema:\n" + string(schema.Schema)
	default:
		return unsupportedf(at+".type", "it is text, json_object or json_schema")
	}
	if c.System != "" {
		ask = c.System + "\n\n" + ask
	}
	c.System = ask
	return nil
}

// chatCompletions answers POST /v1/chat/completions.
func (s *server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var asked chatRequest
	done, err := s.read(w, r, &asked)
	defer done()
	if err != nil {
		return err
	}
	c, err := s.conversation(r, asked.Model, asked.User, "user")
	if err != nil {
		return err
	}
	if err := asked.fill(c); err != nil {
		return err
	}
	t := &chatTeller{model: asked.Model, created: s.now().Unix(), usage: asked.StreamOptions.IncludeUsage}
	if asked.Stream {
		t.id = newID(chatID)
		return s.stream(w, r, c, t)
	}
	return s.answer(w, r, c, t.whole)
}

// chatID begins the id of an answer.
const chatID = "chatcmpl-"

// chatCompletion is an answer, or a chunk of one.
type chatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index   int         `json:"index"`
	Message *chatAnswer `json:"message,omitempty"`
	Delta   *chatDelta  `json:"delta,omitempty"`
	// LogProbs is null: they are not told.
	LogProbs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type chatAnswer struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
	// Annotations are those of searches, of which there are none.
	Annotations []struct{} `json:"annotations"`
}

// chatDelta is what a chunk adds to an answer.
type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`

	PromptDetails struct {
		Cached int `json:"cached_tokens"`
		Audio  int `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
		Audio     int `json:"audio_tokens"`
		Accepted  int `json:"accepted_prediction_tokens"`
		Rejected  int `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

func chatUsageOf(r llm.Response) *chatUsage {
	u := &chatUsage{Prompt: r.InputTokens, Completion: r.OutputTokens, Total: r.InputTokens + r.OutputTokens}
	u.PromptDetails.Cached, u.CompletionDetails.Reasoning = r.CachedTokens, r.ThoughtTokens
	return u
}

// finishReason says why an answer ended.
func finishReason(done *host.Relayed) *string {
	switch {
	case len(done.Calls) > 0:
		return new("tool_calls")
	case done.Response.Filtered:
		return new("content_filter")
	case done.Response.Truncated:
		return new("length")
	}
	return new("stop")
}

// chatTeller answers one request. It is a teller.
type chatTeller struct {
	// id is that of a stream, which begins before there is a message.
	id      string
	model   string
	created int64
	// usage says that a stream ends with what it cost.
	usage bool
	// begun says that the first chunk, which has the role, was written.
	begun bool
}

// whole is the answer to a request that is not streamed.
func (t *chatTeller) whole(done *host.Relayed) any {
	message := &chatAnswer{Role: "assistant", Annotations: []struct{}{}}
	if text := textOf(done.Message); text != "" || len(done.Calls) == 0 {
		message.Content = &text
	}
	for _, c := range done.Calls {
		message.ToolCalls = append(message.ToolCalls, chatCall{ID: c.ID, Type: "function", Function: chatFunction{c.Name, string(c.Input)}})
	}
	id := chatID + done.Message.ID.String()
	if done.Message.ID.IsZero() {
		id = newID(chatID) // there was nothing to store
	}
	return chatCompletion{
		ID: id, Object: "chat.completion", Created: t.created, Model: t.model,
		Choices: []chatChoice{{Message: message, FinishReason: finishReason(done)}}, Usage: chatUsageOf(done.Response),
	}
}

func (t *chatTeller) chunk(out *events, choices []chatChoice, usage *chatUsage) {
	out.send("", chatCompletion{ID: t.id, Object: "chat.completion.chunk", Created: t.created, Model: t.model, Choices: choices, Usage: usage})
}

// delta writes a chunk that adds to the answer, and before it the one that begins it.
func (t *chatTeller) delta(out *events, d chatDelta, finish *string) {
	if !t.begun {
		t.begun = true
		t.delta(out, chatDelta{Role: "assistant", Content: new("")}, nil)
	}
	t.chunk(out, []chatChoice{{Delta: &d, FinishReason: finish}}, nil)
}

func (t *chatTeller) text(out *events, piece string) { t.delta(out, chatDelta{Content: &piece}, nil) }

func (t *chatTeller) end(out *events, done *host.Relayed) {
	for i, c := range done.Calls {
		// As OpenAI does it: first who is called, then with what.
		t.delta(out, chatDelta{ToolCalls: []chatCall{{Index: &i, ID: c.ID, Type: "function", Function: chatFunction{Name: c.Name}}}}, nil)
		t.delta(out, chatDelta{ToolCalls: []chatCall{{Index: &i, Function: chatFunction{Arguments: string(c.Input)}}}}, nil)
	}
	t.delta(out, chatDelta{}, finishReason(done))
	if t.usage {
		t.chunk(out, []chatChoice{}, chatUsageOf(done.Response))
	}
	out.line("", "[DONE]")
}

func (t *chatTeller) fail(out *events, f *fault) { out.send("", openAI{}.fault(f, requestID(out.to))) }

func (t *chatTeller) alive(out *events) { out.comment() }
