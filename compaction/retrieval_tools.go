package compaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// The names of the memory tools.
const (
	ToolSearch   = "memory_search"
	ToolDescribe = "memory_describe"
	ToolExpand   = "memory_expand"
)

// Tool is one thing that a model may call. It is safe for concurrent use.
type Tool struct {
	// Name is made of a-z and _.
	Name string
	// Description tells the model what the tool is for.
	Description string
	// Parameters is the JSON Schema of the input, an object.
	Parameters json.RawMessage
	// Call runs the tool for a user, in a session; the zero session is none.
	// The input is the model's and is checked here. The result is never empty:
	// it is external, with the tool as its source, so that it is neither
	// learned nor taken for something that was said now. With an error, which
	// is for the host's log, the result tells the model what went wrong and
	// what to do; the error matches memory.ErrInvalid or memory.ErrNotFound if
	// the input was at fault. The result is of at most maxTokens, cut where that
	// is said in it, unless the input itself asks for more.
	Call func(ctx context.Context, user memory.UserID, session memory.SessionID, input json.RawMessage, maxTokens int) (boundary.Content, error)
}

// Bounds of what a model may ask for, and of what it gets.
const (
	maxToolInput       = 16 << 10
	defaultToolHits    = 8
	maxToolHits        = 20
	maxToolTokens      = 4096
	defaultToolExpand  = 2000
	maxToolExpand      = 8000
	neutralisingGrowth = 2
)

// Tools returns the memory tools over r.
func Tools(r *Retrieval) []Tool {
	return []Tool{
		newTool(ToolSearch, "Search what was said in all conversations with this user, also what is no longer shown. "+
			"Gives excerpts with ids, the best first. Use it before saying that you do not know or remember.",
			searchParameters, r.searchTool),
		newTool(ToolDescribe, "Say what a summary, message or file is, by its id: time, size, beginning, and what a summary was made from.",
			describeParameters, r.describeTool),
		newTool(ToolExpand, "Give the words of a summary's sources, of a message or of a file, by its id, verbatim. "+
			"Long ones come in parts: go on with the cursor of the part before.",
			expandParameters, r.expandTool),
	}
}

const searchParameters = `{
  "type": "object",
  "properties": {
    "words": {"type": "string", "maxLength": 1000, "description": "Words to look for: names and rare words find most. Give words or expression."},
    "expression": {"type": "string", "maxLength": 1000, "description": "A regular expression (RE2); (?i) ignores case."},
    "in": {"type": "array", "items": {"type": "string", "enum": ["message", "summary", "file"]}, "description": "Where to look; messages and summaries if absent."},
    "order": {"type": "string", "enum": ["relevance", "recency", "hybrid"], "description": "What comes first; an expression knows recency alone."},
    "from": {"type": "string", "description": "Not before: 2026-03-23 or 2026-03-23T09:00:00Z."},
    "to": {"type": "string", "description": "Before this date or time."},
    "session": {"type": "string", "enum": ["all", "this"], "description": "All conversations, or this one alone; all if absent."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many places; 8 if absent."}
  },
  "additionalProperties": false
}`

const describeParameters = `{
  "type": "object",
  "properties": {
    "id": {"type": "string", "description": "The id of a summary, message or file."}
  },
  "required": ["id"],
  "additionalProperties": false
}`

const expandParameters = `{
  "type": "object",
  "properties": {
    "id": {"type": "string", "description": "The id of a summary, message or file."},
    "messages": {"type": "boolean", "description": "Of a summary of summaries, give all messages below in place of the summaries."},
    "tokens": {"type": "integer", "minimum": 256, "maximum": 8000, "description": "How much to give at once; 2000 if absent."},
    "cursor": {"type": "string", "description": "The cursor of the part before, to go on."}
  },
  "required": ["id"],
  "additionalProperties": false
}`

func newTool[Input any](name, description, parameters string, run func(_ context.Context, _ memory.UserID, _ memory.SessionID, _ Input, room int) (text string, limit int, err error)) Tool {
	return Tool{Name: name, Description: description, Parameters: json.RawMessage(parameters),
		Call: func(ctx context.Context, user memory.UserID, session memory.SessionID, raw json.RawMessage, maxTokens int) (boundary.Content, error) {
			source, err := boundary.ToolSource(name)
			if err != nil {
				return boundary.Content{}, err
			}
			room := min(maxToolTokens, maxTokens)
			text, limit := "", room
			var input Input
			if err = llm.DecodeInput(raw, maxToolInput, &input); err != nil {
				err = invalidf("%w", err)
			} else {
				text, limit, err = run(ctx, user, session, input, room)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				text, limit = failure(ctx, err), room
			}
			content, _ := boundary.Wrap(source, text, limit)
			return content, err
		}}
}

// failure is what the model is told.
func failure(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, memory.ErrInvalid):
		return "The call was refused: " + err.Error() + ". Correct the input and call again."
	case errors.Is(err, memory.ErrNotFound):
		return "There is no such thing: " + err.Error() + ". Ids are in summaries and in what memory_search finds."
	case ctx.Err() != nil:
		return "The memory did not answer in time. Ask for less, or answer without it."
	}
	// The details are the machine's, and nothing to a model.
	return "The memory cannot be read at the moment. Answer without it, and say so."
}

type searchInput struct {
	Words      string            `json:"words"`
	Expression string            `json:"expression"`
	In         []memory.TextKind `json:"in"`
	Order      Order             `json:"order"`
	From       string            `json:"from"`
	To         string            `json:"to"`
	Session    string            `json:"session"`
	Limit      *int              `json:"limit"`
}

func (r *Retrieval) searchTool(ctx context.Context, user memory.UserID, session memory.SessionID, in searchInput, room int) (string, int, error) {
	q := GrepQuery{Words: in.Words, Expression: in.Expression, In: in.In, Order: in.Order, Limit: defaultToolHits}
	var err error
	if q.From, err = ParseTime(in.From); err != nil {
		return "", 0, err
	}
	if q.To, err = ParseTime(in.To); err != nil {
		return "", 0, err
	}
	if in.Limit != nil {
		if q.Limit = *in.Limit; q.Limit < 1 || q.Limit > maxToolHits {
			return "", 0, invalidf("a limit is from 1 to %d", maxToolHits)
		}
	}
	switch in.Session {
	case "", "all":
	case "this":
		if q.Session = session; session.IsZero() {
			return "", 0, invalidf("there is no conversation here: leave session away")
		}
	default:
		return "", 0, invalidf("session %q is not one of all, this", in.Session)
	}
	if q.unless, err = r.thisTurn(ctx, user, session); err != nil {
		return "", 0, err
	}
	found, err := r.Grep(ctx, user, q)
	return found.text(labelled), room, err
}

// thisTurn tells what the model has before it anyway: the question that it
// answers, which would be the best hit of all, and what came after.
func (r *Retrieval) thisTurn(ctx context.Context, user memory.UserID, session memory.SessionID) (func(memory.Message) bool, error) {
	if session.IsZero() {
		return nil, nil
	}
	frontier, err := r.archive.Frontier(ctx, user, session)
	if err != nil {
		return nil, err
	}
	for i := len(frontier.Items) - 1; i >= 0; i-- {
		m := frontier.Items[i].Message
		if m == nil {
			break
		}
		if m.Role == memory.RoleUser && !m.IsRefresh() {
			return func(found memory.Message) bool { return found.Session == session && found.Seq >= m.Seq }, nil
		}
	}
	return nil, nil
}

type describeInput struct {
	ID string `json:"id"`
}

func (r *Retrieval) describeTool(ctx context.Context, user memory.UserID, _ memory.SessionID, in describeInput, room int) (string, int, error) {
	d, err := r.Describe(ctx, user, in.ID)
	return d.text(labelled), room, err
}

type expandInput struct {
	ID       string `json:"id"`
	Messages bool   `json:"messages"`
	Tokens   *int   `json:"tokens"`
	Cursor   string `json:"cursor"`
}

func (r *Retrieval) expandTool(ctx context.Context, user memory.UserID, _ memory.SessionID, in expandInput, room int) (string, int, error) {
	q := ExpandQuery{ID: in.ID, Messages: in.Messages, Tokens: min(max(room, MinExpandTokens), defaultToolExpand), Cursor: in.Cursor, forModel: true}
	if in.Tokens != nil {
		if q.Tokens = *in.Tokens; q.Tokens < MinExpandTokens || q.Tokens > maxToolExpand {
			return "", 0, invalidf("the number of tokens is from %d to %d", MinExpandTokens, maxToolExpand)
		}
	}
	e, err := r.Expand(ctx, user, q)
	// What neutralising puts in place of a marker may be longer.
	return e.text(labelled), neutralisingGrowth * q.Tokens, err
}

// labelled is blocks for a text that is framed as a whole: what is external in
// it says where it is from.
func labelled(blocks []memory.Block) string {
	var parts []string
	for _, b := range blocks {
		text := memory.Plain([]memory.Block{b})
		if text == "" {
			continue
		}
		if !b.External.IsEmpty() {
			text = "(External text from " + sourceName(b.External.Source()) + ":)\n" + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n")
}

// sourceName is a source in words: its URI would be taken for a forged label.
func sourceName(s boundary.Source) string {
	scheme, name, ok := strings.Cut(s.String(), "://")
	if !ok {
		return "outside"
	}
	return "the " + scheme + " " + name
}

// ParseTime reads a time as people and models write it: RFC 3339, or a date,
// which begins at midnight UTC. "" is the zero time. Errors: memory.ErrInvalid.
func ParseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, invalidf("time %q is not like 2026-03-23 or 2026-03-23T09:00:00Z", text)
}
