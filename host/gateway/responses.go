package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// responsesRequest is the body of POST /v1/responses. What stands in it beside counts
// for nothing: docs/gateway.md has the list.
type responsesRequest struct {
	Model             string          `json:"model"`
	Input             json.RawMessage `json:"input"`
	Instructions      string          `json:"instructions"`
	Tools             json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	MaxOutputTokens   *int            `json:"max_output_tokens"`
	Temperature       *float64        `json:"temperature"`
	TopP              *float64        `json:"top_p"`
	Text              json.RawMessage `json:"text"`
	Reasoning         struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
	Stream             bool            `json:"stream"`
	User               string          `json:"user"`
	Metadata           json.RawMessage `json:"metadata"`
	PreviousResponseID string          `json:"previous_response_id"`
	Background         bool            `json:"background"`
	Conversation       json.RawMessage `json:"conversation"`
	Prompt             json.RawMessage `json:"prompt"`
}

// responsesItem is one item of an input, with the fields of all types.
type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// responsesPart is one part of a message or of a tool's output.
type responsesPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// into puts a request into a conversation. Before has the calls that came before it,
// nil if the host keeps none that the client goes on behind. Errors are faults.
func (r *responsesRequest) into(c *host.Conversation, before *callsBefore) (err error) {
	for _, field := range []struct {
		name  string
		there bool
	}{{"background", r.Background}, {"conversation", isThere(r.Conversation)}, {"prompt", isThere(r.Prompt)}} {
		if field.there {
			return unsupportedf(field.name, "it is not understood here")
		}
	}
	if r.PreviousResponseID != "" {
		id, ok := parseResponseID(r.PreviousResponseID)
		if !ok {
			return noResponse("previous_response_id")
		}
		// It says more than the name of a session.
		c.Session, c.After = id.session.String(), id.key
	}
	c.System = r.Instructions
	var said string
	if said, c.Messages, err = responsesInput(r.Input, before); err != nil {
		return err
	}
	addSystem(c, said)
	if err := r.tools(c); err != nil {
		return err
	}
	if n := r.MaxOutputTokens; n != nil {
		if *n < 1 {
			return badf("max_output_tokens", "it is at least 1")
		}
		c.Ask.MaxOutputTokens = *n
	}
	if err := sampling(&c.Ask, r.Temperature, 2, r.TopP); err != nil {
		return err
	}
	if err := effort(&c.Ask, r.Reasoning.Effort, "reasoning.effort"); err != nil {
		return err
	}
	return r.form(c)
}

// responsesInput reads an input, which is a text or items. What the system says at its
// beginning is the system text.
func responsesInput(raw json.RawMessage, before *callsBefore) (system string, all []memory.Draft, err error) {
	switch first(raw) {
	case '"':
		var text string
		if err := part(raw, "input", &text); err != nil {
			return "", nil, err
		}
		if isBlank(text) {
			return "", nil, badf("input", "it is empty")
		}
		return "", []memory.Draft{{Role: memory.RoleUser, Blocks: []memory.Block{memory.Text(text)}}}, nil
	case '[':
	default:
		return "", nil, badf("input", "it is a string or a list of items")
	}
	var items []responsesItem
	if err := part(raw, "input", &items); err != nil {
		return "", nil, err
	}
	in := responsesReader{names: map[string]string{}, before: before}
	if before != nil {
		maps.Copy(in.names, before.last)
	}
	for i, item := range items {
		if err := in.item(item, fmt.Sprintf("input[%d]", i)); err != nil {
			return "", nil, err
		}
	}
	// What the system says at the beginning or at the end is about this answer; what it
	// says in between is part of what was said.
	said, last := in.all, len(in.all)
	isSystem := func(d memory.Draft) bool { return d.Role == memory.RoleSystem }
	for last > 0 && isSystem(said[last-1]) {
		last--
	}
	start := 0
	for start < last && isSystem(said[start]) {
		start++
	}
	if start == last {
		return "", nil, badf("input", "nothing is said in it that could be answered")
	}
	if said[last-1].Role == memory.RoleAssistant {
		return "", nil, unsupportedf("input", "its last item is a message to the model, or a tool's output")
	}
	var texts []string
	for _, d := range slices.Concat(said[:start], said[last:]) {
		texts = append(texts, textOf(memory.Message{Blocks: d.Blocks}))
	}
	return strings.Join(texts, "\n\n"), said[start:last], nil
}

// responsesReader makes messages of items. What the model says and calls at once are
// several.
type responsesReader struct {
	all []memory.Draft
	// names are those of the tools, by the ids of their calls; before has those of
	// earlier ones.
	names  map[string]string
	before *callsBefore
}

func (in *responsesReader) add(role memory.Role, blocks ...memory.Block) {
	if len(blocks) > 0 {
		in.all = append(in.all, memory.Draft{Role: role, Blocks: blocks})
	}
}

func (in *responsesReader) item(item responsesItem, at string) error {
	switch item.Type {
	case "message", "":
		return in.message(item, at)
	case "function_call":
		arguments := json.RawMessage(item.Arguments)
		if strings.TrimSpace(item.Arguments) == "" {
			arguments = json.RawMessage("{}")
		}
		if _, twice := in.names[item.CallID]; twice {
			return badf(at+".call_id", "an earlier call has the same")
		}
		call, err := toolCall(item.CallID, item.Name, arguments, at+".call_id", at+".name", at+".arguments")
		if err != nil {
			return err
		}
		in.names[item.CallID] = item.Name
		in.add(memory.RoleAssistant, call)
	case "function_call_output":
		return in.output(item, at)
	case "reasoning":
		// The host has what its model thought.
	case "item_reference":
		return unsupportedf(at+".type", "items are not kept here under ids of their own: send the item itself, or previous_response_id")
	default:
		return unsupportedf(at+".type", "an item of type %s is not understood here: send message, function_call or function_call_output", shortQuote(item.Type))
	}
	return nil
}

func (in *responsesReader) message(item responsesItem, at string) error {
	parts, err := responsesParts(item.Content, at+".content")
	if err != nil {
		return err
	}
	blocks, err := responsesBlocks(parts, item.Role, at+".content")
	if err != nil {
		return err
	}
	switch item.Role {
	case "user":
		if len(blocks) == 0 {
			return badf(at+".content", "it is empty")
		}
		in.add(memory.RoleUser, blocks...)
	case "assistant":
		in.add(memory.RoleAssistant, blocks...)
	case "system", "developer":
		var texts []string
		for _, b := range blocks {
			texts = append(texts, b.Text)
		}
		if len(texts) > 0 {
			in.add(memory.RoleSystem, memory.Text(strings.Join(texts, "\n\n")))
		}
	default:
		return badf(at+".role", "%s is not one of user, assistant, system, developer", shortQuote(item.Role))
	}
	return nil
}

// output is a tool's.
func (in *responsesReader) output(item responsesItem, at string) error {
	if !llm.ValidToolCallID(item.CallID) {
		return badf(at+".call_id", "it is not the id of a call")
	}
	name, called := in.names[item.CallID]
	if !called && in.before != nil {
		var err error
		if name, called, err = in.before.name(item.CallID); err != nil {
			return err
		}
		if !called {
			return badf(at+".call_id", "there is no call %s in the conversation that is gone on with", shortQuote(item.CallID))
		}
	}
	parts, err := responsesParts(item.Output, at+".output")
	if err != nil {
		return err
	}
	blocks, err := responsesBlocks(parts, "user", at+".output")
	if err != nil {
		return err
	}
	var texts []string
	var images []memory.Block
	for _, b := range blocks {
		if b.Type == memory.BlockText {
			texts = append(texts, b.Text)
		} else {
			images = append(images, b)
		}
	}
	result := toolResult(item.CallID, name, strings.Join(texts, "\n"), false)
	in.add(memory.RoleTool, append([]memory.Block{result}, images...)...)
	return nil
}

// responsesParts reads a content, which is a text or parts.
func responsesParts(raw json.RawMessage, at string) ([]responsesPart, error) {
	var parts []responsesPart
	switch first(raw) {
	case '"':
		var text string
		if err := part(raw, at, &text); err != nil {
			return nil, err
		}
		return []responsesPart{{Type: "input_text", Text: text}}, nil
	case '[':
		err := part(raw, at, &parts)
		return parts, err
	}
	return nil, badf(at, "it is a string or a list of parts")
}

// responsesBlocks are the parts of a message of that role; empty texts are none.
func responsesBlocks(parts []responsesPart, role, at string) ([]memory.Block, error) {
	var blocks []memory.Block
	for i, p := range parts {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch p.Type {
		case "input_text", "output_text", "text", "refusal":
			if text := p.Text + p.Refusal; !isBlank(text) {
				blocks = append(blocks, memory.Text(text))
			}
		case "input_image":
			if role != "user" {
				return nil, badf(at+".type", "a picture is the user's to show")
			}
			if p.ImageURL == "" && p.FileID != "" {
				return nil, unsupportedf(at+".file_id", "there are no files here: send the picture in image_url")
			}
			image, err := imageIn(p.ImageURL, at+".image_url")
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, image)
		default:
			return nil, unsupportedf(at+".type", "a part of type %s is not understood here: send text or input_image", shortQuote(p.Type))
		}
	}
	return blocks, nil
}

// tools puts in the client's tools and how they are to be called.
func (r *responsesRequest) tools(c *host.Conversation) error {
	var tools []responsesTool
	if isThere(r.Tools) {
		if err := part(r.Tools, "tools", &tools); err != nil {
			return err
		}
	}
	if len(tools) > maxTools {
		return badf("tools", "there are %d; at most %d are possible", len(tools), maxTools)
	}
	names := map[string]bool{}
	for i, t := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		if t.Type != "function" {
			return unsupportedf(at+".type", "a tool of type %s is the provider's to run: only functions are understood here", shortQuote(t.Type))
		}
		if !isThere(t.Parameters) {
			t.Parameters = nil
		} else if first(t.Parameters) != '{' {
			return badf(at+".parameters", "it is an object")
		}
		tool, err := clientTool(names, t.Name, t.Description, t.Parameters, at+".name", at+".parameters")
		if err != nil {
			return err
		}
		c.Tools = append(c.Tools, tool)
	}
	c.Ask.Choice.One = r.ParallelToolCalls != nil && !*r.ParallelToolCalls
	var choice struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	switch {
	case !isThere(r.ToolChoice):
		return nil
	case first(r.ToolChoice) == '"':
		if err := part(r.ToolChoice, "tool_choice", &choice.Type); err != nil {
			return err
		}
	default:
		if err := part(r.ToolChoice, "tool_choice", &choice); err != nil {
			return err
		}
		if choice.Type != "function" {
			return unsupportedf("tool_choice.type", "%s is not understood here: send function", shortQuote(choice.Type))
		}
	}
	switch choice.Type {
	case "auto":
	case "none":
		c.Ask.NoCalls = true
	case "required":
		c.Ask.Choice.Required = true
	case "function":
		if !names[choice.Name] {
			return badf("tool_choice.name", "%s is not among the tools", shortQuote(choice.Name))
		}
		c.Ask.Choice.Required, c.Ask.Choice.Name = true, choice.Name
	default:
		return badf("tool_choice", "%s is not one of auto, none, required", shortQuote(choice.Type))
	}
	if c.Ask.Choice.Required && len(c.Tools) == 0 {
		return badf("tool_choice", "there are no tools to call")
	}
	return nil
}

// form puts in the form that the answer is to have.
func (r *responsesRequest) form(c *host.Conversation) error {
	if !isThere(r.Text) {
		return nil
	}
	var text struct {
		Format struct {
			Type   string          `json:"type"`
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict bool            `json:"strict"`
		} `json:"format"`
	}
	if err := part(r.Text, "text", &text); err != nil {
		return err
	}
	switch text.Format.Type {
	case "", "text":
		return nil
	case "json_object":
		answerJSON(c)
		return nil
	case "json_schema":
	default:
		return badf("text.format.type", "%s is not one of text, json_schema, json_object", shortQuote(text.Format.Type))
	}
	if !llm.ValidToolName(text.Format.Name) {
		return badf("text.format.name", "it is 1 to 64 letters, digits, '_' or '-'")
	}
	if first(text.Format.Schema) != '{' {
		return badf("text.format.schema", "it is an object")
	}
	answerIn(c, llm.Schema{Name: text.Format.Name, JSON: text.Format.Schema}, text.Format.Strict)
	return nil
}

// responseID names an answer: the session that it stands in and its event key there.
// A fork of the session has the answer too, but not its key.
type responseID struct {
	session memory.SessionID
	key     string
}

const responsePrefix = "resp_"

// String is the form that clients have: the session in 32 digits, then the key.
func (id responseID) String() string {
	return responsePrefix + strings.ReplaceAll(id.session.String(), "-", "") + id.key
}

// newResponseKey makes the key of an answer to come.
func newResponseKey() string { return newID("") }

// parseResponseID reads what String wrote.
func parseResponseID(s string) (responseID, bool) {
	const digits, least, most = 32, 16, 64
	s, ok := strings.CutPrefix(s, responsePrefix)
	if !ok || len(s) < digits+least || len(s) > digits+most || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return responseID{}, false
	}
	hex, key := s[:digits], s[digits:]
	session, err := memory.ParseID[memory.SessionID](hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:])
	return responseID{session, key}, err == nil
}

// noResponse refuses an id that is not one of the user's answers.
func noResponse(at string) error {
	f := refuse(http.StatusNotFound, "", "there is no response with that id")
	if at != "" {
		f.param = at
		f.code = "previous_response_not_found"
	}
	return f
}

// responsesAnswer is a response as OpenAI writes it. What the client asked for stands
// in it as it came.
type responsesAnswer struct {
	ID                string               `json:"id"`
	Object            string               `json:"object"`
	CreatedAt         int64                `json:"created_at"`
	Status            string               `json:"status"`
	Background        bool                 `json:"background"`
	CompletedAt       *int64               `json:"completed_at"`
	Error             *responsesError      `json:"error"`
	Incomplete        *responsesIncomplete `json:"incomplete_details"`
	Instructions      *string              `json:"instructions"`
	MaxOutputTokens   *int                 `json:"max_output_tokens"`
	Metadata          json.RawMessage      `json:"metadata"`
	Model             string               `json:"model"`
	Output            []any                `json:"output"`
	ParallelToolCalls bool                 `json:"parallel_tool_calls"`
	Previous          *string              `json:"previous_response_id"`
	Reasoning         responsesReasoning   `json:"reasoning"`
	Store             bool                 `json:"store"`
	Temperature       *float64             `json:"temperature"`
	Text              json.RawMessage      `json:"text"`
	ToolChoice        json.RawMessage      `json:"tool_choice"`
	Tools             json.RawMessage      `json:"tools"`
	TopP              *float64             `json:"top_p"`
	Truncation        string               `json:"truncation"`
	Usage             *responsesUsage      `json:"usage"`
	User              *string              `json:"user"`
}

type responsesError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responsesIncomplete struct {
	Reason string `json:"reason"`
}

type responsesReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// responsesUsage is what an answer cost. The details are parts of the counts.
type responsesUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

func responsesUsageOf(r llm.Response) *responsesUsage {
	u := &responsesUsage{Input: r.InputTokens, Output: r.OutputTokens, Total: r.InputTokens + r.OutputTokens}
	u.InputDetails.Cached, u.InputDetails.Written, u.OutputDetails.Reasoning = r.CachedTokens, r.WrittenTokens, r.ThoughtTokens
	return u
}

// responsesMessage is the item of what the model said.
type responsesMessage struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Status  string          `json:"status"`
	Role    string          `json:"role"`
	Content []responsesText `json:"content"`
}

type responsesText struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Logprobs    []any  `json:"logprobs"`
}

// responsesCall is the item of a call.
type responsesCall struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// The statuses of answers and of their items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

func responsesTextOf(text string) responsesText {
	return responsesText{Type: "output_text", Text: text, Annotations: []any{}, Logprobs: []any{}}
}

// messageItem is what the model said so far.
func (id responseID) messageItem(status, text string) responsesMessage {
	m := responsesMessage{ID: "msg_" + id.key, Type: "message", Status: status, Role: "assistant", Content: []responsesText{}}
	if text != "" {
		m.Content = append(m.Content, responsesTextOf(text))
	}
	return m
}

// callItem is call number i of an answer.
func (id responseID) callItem(i int, status, callID, name, arguments string) responsesCall {
	return responsesCall{fmt.Sprintf("fc_%s_%d", id.key, i), "function_call", status, callID, name, arguments}
}

// orJSON is raw, or what stands for it where it was not sent.
func orJSON(raw json.RawMessage, otherwise string) json.RawMessage {
	if isThere(raw) {
		return raw
	}
	return json.RawMessage(otherwise)
}

// responsesOf is an answer to r that nothing was said of yet.
func responsesOf(r responsesRequest, id responseID, at time.Time) responsesAnswer {
	a := responsesAnswer{
		ID: id.String(), Object: "response", CreatedAt: at.Unix(), Status: statusInProgress, Instructions: orNull(r.Instructions),
		MaxOutputTokens: r.MaxOutputTokens, Metadata: json.RawMessage("{}"), Model: r.Model, Output: []any{},
		ParallelToolCalls: r.ParallelToolCalls == nil || *r.ParallelToolCalls, Previous: orNull(r.PreviousResponseID),
		Reasoning: responsesReasoning{Effort: orNull(r.Reasoning.Effort)}, Store: true, Temperature: r.Temperature,
		Text: orJSON(r.Text, `{"format":{"type":"text"}}`), ToolChoice: orJSON(r.ToolChoice, `"auto"`), Tools: orJSON(r.Tools, "[]"),
		TopP: r.TopP, Truncation: "disabled", User: orNull(r.User),
	}
	if first(r.Metadata) == '{' {
		a.Metadata = r.Metadata
	}
	// OpenAI's clients expect numbers.
	one := 1.0
	if a.Temperature == nil {
		a.Temperature = &one
	}
	if a.TopP == nil {
		a.TopP = &one
	}
	return a
}

// done is an answer at its end.
func (a responsesAnswer) done(id responseID, done *host.Relayed, at time.Time) responsesAnswer {
	now := at.Unix()
	a.Status, a.Usage = statusCompleted, responsesUsageOf(done.Response)
	item := statusCompleted
	switch {
	case done.Response.Filtered:
		a.Status, a.Incomplete = statusIncomplete, &responsesIncomplete{"content_filter"}
	case done.Response.Truncated:
		a.Status, a.Incomplete = statusIncomplete, &responsesIncomplete{"max_output_tokens"}
	default:
		a.CompletedAt = &now
	}
	if a.Incomplete != nil {
		item = statusIncomplete
	}
	a.Output = []any{}
	if text := textOf(done.Message); text != "" {
		a.Output = append(a.Output, id.messageItem(item, text))
	}
	for i, c := range done.Calls {
		// The calls that there are are whole, whatever ended the answer.
		a.Output = append(a.Output, id.callItem(i, statusCompleted, c.ID, c.Name, string(c.Input)))
	}
	return a
}

// responsesStream is a teller of OpenAI's events.
type responsesStream struct {
	sent responsesRequest
	key  string
	at   time.Time
	now  func() time.Time

	id     responseID
	answer responsesAnswer
	begun  bool
	// number is the sequence number of the next event, items how many output items
	// were begun.
	number, items int
	said          strings.Builder
}

// event sends one; fields are those that it has beside its type and number.
func (s *responsesStream) event(out *events, kind string, fields map[string]any) {
	fields["type"], fields["sequence_number"] = kind, s.number
	s.number++
	out.send(kind, fields)
}

func (s *responsesStream) begin(out *events) {
	if s.begun {
		return
	}
	s.begun = true
	s.id = responseID{out.placed.Session, s.key}
	s.answer = responsesOf(s.sent, s.id, s.at)
	s.event(out, "response.created", map[string]any{"response": s.answer})
	s.event(out, "response.in_progress", map[string]any{"response": s.answer})
}

func (s *responsesStream) text(out *events, piece string) {
	s.begin(out)
	if s.said.Len() == 0 {
		s.event(out, "response.output_item.added", map[string]any{"output_index": s.items, "item": s.id.messageItem(statusInProgress, "")})
		s.items++
		s.said.WriteString(piece)
		s.inText(out, "response.content_part.added", map[string]any{"part": responsesTextOf("")})
	} else {
		s.said.WriteString(piece)
	}
	s.inText(out, "response.output_text.delta", map[string]any{"delta": piece, "logprobs": []any{}})
}

// inText sends an event about the text, which is part of the first item.
func (s *responsesStream) inText(out *events, kind string, fields map[string]any) {
	fields["item_id"], fields["output_index"], fields["content_index"] = s.id.messageItem("", "").ID, 0, 0
	s.event(out, kind, fields)
}

func (s *responsesStream) end(out *events, done *host.Relayed) {
	s.begin(out)
	s.answer = s.answer.done(s.id, done, s.now())
	if text := s.said.String(); text != "" {
		s.inText(out, "response.output_text.done", map[string]any{"text": text, "logprobs": []any{}})
		s.inText(out, "response.content_part.done", map[string]any{"part": responsesTextOf(text)})
		s.event(out, "response.output_item.done", map[string]any{"output_index": 0, "item": s.answer.Output[0]})
	}
	for i, c := range done.Calls {
		begun, arguments := s.id.callItem(i, statusInProgress, c.ID, c.Name, ""), string(c.Input)
		at := map[string]any{"output_index": s.items, "item": begun}
		s.event(out, "response.output_item.added", at)
		s.event(out, "response.function_call_arguments.delta", map[string]any{"output_index": s.items, "item_id": begun.ID, "delta": arguments})
		s.event(out, "response.function_call_arguments.done", map[string]any{"output_index": s.items, "item_id": begun.ID, "name": c.Name, "arguments": arguments})
		s.event(out, "response.output_item.done", map[string]any{"output_index": s.items, "item": s.answer.Output[s.items]})
		s.items++
	}
	s.event(out, "response."+s.answer.Status, map[string]any{"response": s.answer})
}

func (s *responsesStream) fail(out *events, f *fault) {
	s.begin(out)
	s.answer.Status, s.answer.Error = statusFailed, &responsesError{Code: "server_error", Message: f.message}
	switch {
	case f.status == http.StatusTooManyRequests:
		s.answer.Error.Code = "rate_limit_exceeded"
	case f.status < http.StatusInternalServerError:
		s.answer.Error.Code = "invalid_prompt"
	}
	s.event(out, "response.failed", map[string]any{"response": s.answer})
}

func (s *responsesStream) alive(out *events) {
	s.begin(out)
	out.comment()
}

// responses answers POST /v1/responses.
func (s *server) responses(w http.ResponseWriter, r *http.Request) error {
	var sent responsesRequest
	done, err := s.read(w, r, &sent)
	defer done()
	if err != nil {
		return err
	}
	c, err := s.conversation(r, sent.Model, sent.User, "user")
	if err != nil {
		return err
	}
	before, err := s.calledBefore(r.Context(), sent.PreviousResponseID)
	if err != nil {
		return err
	}
	if err := sent.into(c, before); err != nil {
		return err
	}
	// What was read of it lives on in c alone, pictures and all.
	sent.Input = nil
	at := s.now()
	c.AnswerKey = newResponseKey()
	if sent.Stream {
		return s.stream(w, r, c, &responsesStream{sent: sent, key: c.AnswerKey, at: at, now: s.now})
	}
	return s.answer(w, r, c, func(done *host.Relayed) any {
		id := responseID{done.Session, c.AnswerKey}
		return responsesOf(sent, id, at).done(id, done, s.now())
	})
}

// retrieveResponse answers GET /v1/responses/{id} with what is stored of an answer:
// its words and calls, and not what it cost or was asked with.
func (s *server) retrieveResponse(w http.ResponseWriter, r *http.Request) error {
	id, ok := parseResponseID(r.PathValue("id"))
	if !ok {
		return noResponse("")
	}
	if r.URL.Query().Get("stream") == "true" {
		return unsupportedf("stream", "an answer that is there is not streamed")
	}
	user, err := s.userOf(r.Context())
	if err != nil {
		return err
	}
	m, model, err := s.stored(r.Context(), user, id)
	if err != nil {
		return err
	}
	done := &host.Relayed{Message: m}
	for _, b := range m.Blocks {
		if b.Type == memory.BlockToolCall {
			done.Calls = append(done.Calls, llm.ToolCall{ID: b.ID, Name: b.Name, Input: b.Input})
		}
	}
	a := responsesOf(responsesRequest{Model: model}, id, m.At).done(id, done, m.At)
	a.Usage = nil
	writeJSON(w, http.StatusOK, a)
	return nil
}

// callsBefore are the calls in a session up to an answer: whoever goes on behind that
// sends their results alone.
type callsBefore struct {
	// last has the names of the tools that the answer itself calls, by the ids of the
	// calls.
	last map[string]string
	// messages reads those of the session.
	messages func(memory.MessageQuery) ([]memory.Message, error)
	// names has those of calls further back, as far as they were read: the messages up
	// to unread were not, and left of them may be.
	names  map[string]string
	unread int64
	left   int
}

// How many messages before an answer a call is looked for in, and how many of them are
// read at a time.
const maxCallsBack, callsBackAtOnce = 4096, 64

// calledBefore returns the calls before the end of a response; nil if none is named.
func (s *server) calledBefore(ctx context.Context, previous string) (*callsBefore, error) {
	id, ok := parseResponseID(previous)
	if !ok {
		return nil, nil // into says what is wrong with it, if it is there
	}
	user, err := s.userOf(ctx)
	if err != nil {
		return nil, err
	}
	m, _, err := s.stored(ctx, user, id)
	if f, ok := errors.AsType[*fault](err); ok && f.status == http.StatusNotFound {
		return nil, noResponse("previous_response_id")
	} else if err != nil {
		return nil, err
	}
	before := &callsBefore{last: map[string]string{}, names: map[string]string{}, unread: m.Seq - 1, left: maxCallsBack}
	before.messages = func(q memory.MessageQuery) ([]memory.Message, error) {
		return s.host.Store().Messages(ctx, user, id.session, q)
	}
	for _, b := range m.Blocks {
		if b.Type == memory.BlockToolCall {
			before.last[b.ID] = b.Name
		}
	}
	return before, nil
}

// name returns the name of the tool that a call was for, and whether there was one: the
// last of that id. All calls together read no message twice.
func (c *callsBefore) name(id string) (name string, called bool, err error) {
	for {
		if name, called = c.names[id]; called || c.unread <= 0 || c.left <= 0 {
			return name, called, nil
		}
		n := min(callsBackAtOnce, int(c.unread), c.left)
		messages, err := c.messages(memory.MessageQuery{After: c.unread - int64(n), Limit: n})
		if err != nil {
			return "", false, fmt.Errorf("look for the calls: %w", err)
		}
		c.unread, c.left = c.unread-int64(n), c.left-n
		for _, m := range slices.Backward(messages) {
			for _, b := range m.Blocks {
				if _, later := c.names[b.ID]; b.Type == memory.BlockToolCall && !later {
					c.names[b.ID] = b.Name
				}
			}
		}
	}
}

// userOf is whose request it is.
func (s *server) userOf(ctx context.Context) (memory.UserID, error) {
	if user := s.user(ctx); !user.IsZero() {
		return user, nil
	}
	standard, err := s.host.Store().DefaultUser(ctx)
	return standard.ID, err
}

// stored returns an answer and the name of the agent whose it is.
func (s *server) stored(ctx context.Context, user memory.UserID, id responseID) (m memory.Message, model string, err error) {
	store := s.host.Store()
	session, err := store.Session(ctx, user, id.session)
	if err != nil {
		return m, "", unlessNotFound(err)
	}
	found, err := store.Messages(ctx, user, id.session, memory.MessageQuery{EventKey: id.key, Limit: 1})
	if err != nil {
		return m, "", unlessNotFound(err)
	}
	if len(found) == 0 || found[0].Role != memory.RoleAssistant {
		return m, "", noResponse("")
	}
	for _, a := range s.host.Agents() {
		if a.ID == session.Agent {
			model = a.Name
		}
	}
	return found[0], model, nil
}

// unlessNotFound says of what is not there that it is no response.
func unlessNotFound(err error) error {
	if errors.Is(err, memory.ErrNotFound) {
		return noResponse("")
	}
	return err
}
