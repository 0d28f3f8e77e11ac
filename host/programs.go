package host

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// programTools are the tools that a user's own programs may call. A program is led
// by a model as a turn is, and reads what hands and conversations say: so it meets
// the same tools, with the same rules, and finds no field either in which a
// conversation could be carried to a hand that can send it on. Only that they cost a
// prompt much does not keep them from it.
func (h *Host) programTools(ctx context.Context, user memory.User) []tool {
	set, release := h.handsFor(ctx)
	defer release()
	if t, ok := set.asked[user.Name]; ok {
		return append(slices.Clip(h.programs), t)
	}
	return h.programs
}

// ProgramTools describes the tools that a user's own programs may call by
// CallTool: memory_search, memory_describe and memory_expand, and hand_query if the
// user has hands of which anything may be asked; a Reload may change that one. The
// error wraps memory.ErrNotFound if there is no such user.
func (h *Host) ProgramTools(ctx context.Context, user memory.UserID) ([]llm.Tool, error) {
	u, err := h.userOrDefault(user)
	if err != nil {
		return nil, err
	}
	var all []llm.Tool
	for _, t := range h.programTools(ctx, u) {
		definition := t.Definition()
		definition.Parameters = forPrograms(definition.Name, definition.Parameters)
		all = append(all, definition)
	}
	return all, nil
}

// programExpand is how much of a place a program may ask for at once: what a result
// has room for, beside its frame.
const programExpand = 4000

// forPrograms leaves out of a tool's parameters what CallTool always refuses: a
// program calls from no session, and has no more room than one result has.
func forPrograms(name string, parameters json.RawMessage) json.RawMessage {
	var schema map[string]any
	if json.Unmarshal(parameters, &schema) != nil {
		return parameters
	}
	properties, _ := schema["properties"].(map[string]any)
	switch name {
	case compaction.ToolSearch:
		delete(properties, "session")
	case compaction.ToolExpand:
		if size, ok := properties["tokens"].(map[string]any); ok {
			size["maximum"] = programExpand
		}
	default:
		return parameters
	}
	amended, err := json.Marshal(schema)
	if err != nil {
		return parameters
	}
	return amended
}

// ToolResult is what a call came to.
type ToolResult struct {
	// Content is external, that of a failure too: why may hold words from outside.
	Content boundary.Content
	IsError bool
}

// CallTool runs one of ProgramTools for a user, across all of the user's sessions
// and in none. It takes at most 10 s, and the result is of at most 4,096 tokens. A
// call that is refused, fails or takes too long has a result that says so, in the
// words that a model would be told; so has one of a user there is not.
func (h *Host) CallTool(ctx context.Context, user memory.UserID, call llm.ToolCall) ToolResult {
	// What is called is asked of the hands that it was found among.
	ctx, unpin := h.pinHands(ctx)
	defer unpin()
	var tools []tool
	if u, err := h.userOrDefault(user); err == nil {
		tools, user = h.programTools(ctx, u), u.ID
	}
	var none memory.SessionID
	b := h.runToolOf(ctx, tools, user, none, call, maxResultTokens)
	return ToolResult{Content: b.External, IsError: b.IsError}
}

// HandsOf returns the hands of a user, by name. The error wraps memory.ErrNotFound
// if there is no such user.
func (h *Host) HandsOf(user memory.UserID) ([]HandInfo, error) {
	u, err := h.userOrDefault(user)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(h.Hands(), func(i HandInfo) bool { return !slices.Contains(i.Users, u.Name) }), nil
}

// WindowHours are the steps to which hand_query widens the hours that a window
// reaches back and ahead, in ascending order; standard is what it takes where nothing
// is said.
func WindowHours() (steps []int, standard int) { return slices.Clone(windowSteps), defaultWindowHours }
