// Package assembly builds one prompt out of what is stored and what the caller
// holds, within a budget, and reports on every piece that went in or did not.
// It is pure: no clock, no files, no model. The same input gives the same bytes.
package assembly

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

// Input is what one prompt is made of.
type Input struct {
	// System is the system text; it is the same every turn.
	System string
	// Items is the session's frontier.
	Items []memory.Item
	// Live are messages that the caller holds. Those that are persisted are
	// in Items already and are not added again; the others follow them, in
	// order.
	Live []Live
	// Budget is what system and messages may cost together, in tokens.
	Budget int
	// FreshTail is how many of the last messages go in whatever they cost;
	// zero means 6.
	FreshTail int
}

// Live is one message in the caller's hands.
type Live struct {
	Role      memory.Role
	Source    memory.Source
	Blocks    []memory.Block
	Persisted bool
}

// Message is one message of a prompt. Neighbours have different roles; the
// first is the user's.
type Message struct {
	Role memory.Role `json:"role"`
	// Text is empty only beside calls or results. It comes after the results
	// and before the calls.
	Text string `json:"text"`
	// ToolCalls are the assistant's. The next message answers each by one of
	// its ToolResults, in any order, and has no others; see pairTools.
	ToolCalls   []ToolCall   `json:"tool_calls,omitempty"`
	ToolResults []ToolResult `json:"tool_results,omitempty"`
}

// ToolCall is the assistant's wish to have a tool run.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Input is a JSON object.
	Input json.RawMessage `json:"input"`
}

// ToolResult is what a call came to. Text is never empty: it holds the tool's
// words in their frame and says whether the call failed.
type ToolResult struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Text    string `json:"text"`
	IsError bool   `json:"is_error,omitempty"`
}

// String returns the message as a person reads it: calls and results as they
// stand in a text.
func (m Message) String() string {
	var parts []string
	for _, r := range m.ToolResults {
		parts = append(parts, "[result of tool call "+strconv.Quote(r.Name)+"]\n"+r.Text)
	}
	if m.Text != "" {
		parts = append(parts, m.Text)
	}
	for _, c := range m.ToolCalls {
		parts = append(parts, "[tool call "+strconv.Quote(c.Name)+" "+string(c.Input)+"]")
	}
	return strings.Join(parts, "\n\n")
}

// Prompt is what the model is sent.
type Prompt struct {
	System   string
	Messages []Message
	// Tokens is what it costs, by the estimate.
	Tokens int
}

// Kind says what a piece of a prompt is.
type Kind string

// The kinds.
const (
	KindSystem  Kind = "system"
	KindSummary Kind = "summary"
	KindRefresh Kind = "refresh"
	KindMessage Kind = "message"
	KindLive    Kind = "live"
)

// Entry explains one piece.
type Entry struct {
	Kind Kind `json:"kind"`
	// ID is that of the message or summary; "" for system and live input.
	ID       string        `json:"id,omitempty"`
	Role     memory.Role   `json:"role,omitempty"`
	Source   memory.Source `json:"source,omitempty"`
	At       time.Time     `json:"at,omitzero"`
	Tokens   int           `json:"tokens"`
	Included bool          `json:"included"`
	// Reason says why a piece is in or out.
	Reason string `json:"reason"`
	// External lists the sources of the external blocks in it.
	External []string `json:"external,omitempty"`
}

// Report answers why the model did or did not see something.
type Report struct {
	Budget int `json:"budget"`
	Tokens int `json:"tokens"`
	// OverBudget says that what must go in costs more than the budget.
	OverBudget bool    `json:"over_budget"`
	Entries    []Entry `json:"entries"`
}

// HasExternal reports whether any external text went in.
func (r Report) HasExternal() bool {
	return slices.ContainsFunc(r.Entries, func(e Entry) bool { return e.Included && len(e.External) > 0 })
}

// Reasons of entries.
const (
	ReasonSystem    = "always"
	ReasonFreshTail = "one of the last messages"
	ReasonFits      = "fits the budget"
	ReasonLive      = "not stored yet"
	ReasonNoRoom    = "no room in the budget"
	ReasonEmpty     = "nothing to show"
)

const defaultFreshTail = 6

// perMessage is what a message costs beside its text.
const perMessage = 4

// piece is one stored or live message or summary on its way into the prompt.
type piece struct {
	entry Entry
	role  memory.Role
	text  string
	empty bool // nothing to show
	cost  int
	// tail marks what goes in whatever it costs.
	tail bool
	// calls and results are the ids of the tool calls and of the tools'
	// results in it; result marks one without ids, which belongs to what is
	// before it.
	calls, results []string
	result         bool
	// blocks is what a message with calls or results is made of.
	blocks []memory.Block
	// toolCalls and toolResults are no part of text; caller is the piece that
	// toolResults answer.
	toolCalls   []ToolCall
	toolResults []ToolResult
	caller      int
}

// Assemble builds the prompt. It takes time linear in the items.
//
// The last messages, the last user input and all live input go in first, then
// whatever else fits, the newest first; a piece that does not fit is passed over,
// not the end of the walk. A tool's results go in with their call or not at all.
func Assemble(in Input) (Prompt, Report) {
	pieces := stored(in)
	pieces = append(pieces, live(in.Live)...)
	pairTools(pieces)
	unitOf := units(pieces)
	protect(pieces, unitOf)

	system := piece{entry: Entry{Kind: KindSystem, Tokens: tokens.Estimate(in.System), Included: true, Reason: ReasonSystem}}
	// The opening may be needed: whether it is, depends on what goes in.
	used := system.entry.Tokens + openingCost
	for i := range pieces {
		if p := &pieces[i]; p.tail && !p.empty {
			p.entry.Included = true
			used += p.cost
		}
	}
	members := make([][]int, len(pieces))
	for i, u := range unitOf {
		members[u] = append(members[u], i)
	}
	for u := len(members) - 1; u >= 0; u-- {
		fillUnit(pieces, members[u], in.Budget, &used)
	}
	messages, opened := merge(pieces)
	if !opened {
		used -= openingCost
	}

	report := Report{Budget: in.Budget, Tokens: used, OverBudget: used > in.Budget, Entries: []Entry{system.entry}}
	prompt := Prompt{System: in.System, Messages: messages, Tokens: used}
	for _, p := range pieces {
		report.Entries = append(report.Entries, p.entry)
	}
	return prompt, report
}

func stored(in Input) []piece {
	pieces := make([]piece, 0, len(in.Items)+len(in.Live))
	for _, item := range in.Items {
		if s := item.Summary; s != nil {
			entry := Entry{Kind: KindSummary, ID: s.ID.String(), Role: memory.RoleUser, At: s.Latest, Tokens: s.Tokens}
			if !s.External.IsEmpty() {
				entry.External = []string{s.External.Source().String()}
			}
			pieces = append(pieces, newPiece(entry, memory.RoleUser, s.Shown()))
			continue
		}
		m := item.Message
		entry := Entry{Kind: KindMessage, ID: m.ID.String(), Role: m.Role, Source: m.Source, At: m.At, Tokens: m.Tokens, External: sources(m.Blocks)}
		if m.IsRefresh() {
			entry.Kind = KindRefresh
		}
		p := newPiece(entry, m.Role, memory.Shown(m.Blocks))
		p.tie(m.Role, m.Blocks)
		pieces = append(pieces, p)
	}
	keep := in.FreshTail
	if keep == 0 {
		keep = defaultFreshTail
	}
	for i := len(pieces) - 1; i >= 0 && keep > 0; i-- {
		if pieces[i].entry.Kind == KindMessage {
			keep--
		}
		// The newest refresh stands among the last messages or it does not
		// matter; a summary is never protected.
		pieces[i].tail = pieces[i].entry.Kind != KindSummary
	}
	return pieces
}

// tie notes which tool calls and results a message holds.
func (p *piece) tie(role memory.Role, blocks []memory.Block) {
	for _, b := range blocks {
		switch b.Type {
		case memory.BlockToolCall:
			p.calls = append(p.calls, b.ID)
		case memory.BlockToolResult:
			p.results = append(p.results, b.ID)
		}
	}
	p.result = role == memory.RoleTool && len(p.results) == 0
	if len(p.calls) > 0 || len(p.results) > 0 {
		p.blocks = blocks
	}
}

// protect marks what goes in whatever it costs: the last messages are marked
// already; the last input of the user, and whatever belongs to a unit with
// something marked.
func protect(pieces []piece, unitOf []int) {
	for i := len(pieces) - 1; i >= 0; i-- {
		if s := pieces[i].entry.Source; pieces[i].role == memory.RoleUser && (s == memory.SourceUser || s == memory.SourceUnknown) && pieces[i].entry.Kind == KindMessage {
			pieces[i].tail = true
			break
		}
	}
	marked := make([]bool, len(pieces))
	for i, u := range unitOf {
		marked[u] = marked[u] || pieces[i].tail
	}
	for i, u := range unitOf {
		p := &pieces[i]
		if p.tail = marked[u]; p.tail && !p.empty && p.entry.Kind != KindLive {
			p.entry.Reason = ReasonFreshTail
		}
	}
}

func live(messages []Live) []piece {
	var pieces []piece
	for _, m := range messages {
		if m.Persisted {
			continue
		}
		text := memory.Shown(m.Blocks)
		entry := Entry{Kind: KindLive, Role: m.Role, Source: m.Source, Tokens: tokens.Estimate(text), Reason: ReasonLive, External: sources(m.Blocks)}
		p := newPiece(entry, m.Role, text)
		p.tail = true
		p.tie(m.Role, m.Blocks)
		pieces = append(pieces, p)
	}
	return pieces
}

func newPiece(entry Entry, role memory.Role, text string) piece {
	p := piece{entry: entry, role: promptRole(role), text: text, cost: entry.Tokens + perMessage}
	if strings.TrimSpace(text) == "" {
		p.text, p.empty, p.cost = "", true, 0
		p.entry.Reason = ReasonEmpty
	}
	return p
}

// promptRole reduces the roles to the two that a prompt's messages have:
// everything that the assistant did not say is told to it.
func promptRole(role memory.Role) memory.Role {
	if role == memory.RoleAssistant {
		return memory.RoleAssistant
	}
	return memory.RoleUser
}

func sources(blocks []memory.Block) []string {
	var all []string
	for _, b := range blocks {
		if !b.External.IsEmpty() {
			all = append(all, b.External.Source().String())
		}
	}
	return all
}

// units returns the unit of each piece, named by the first piece in it. A tool's
// result is of its call's unit, whatever stands between them.
func units(pieces []piece) []int {
	unitOf := make([]int, len(pieces))
	calls := map[string]int{}
	for i, p := range pieces {
		unitOf[i] = i
		if p.result && i > 0 {
			unitOf[i] = unitOf[i-1]
		}
		for _, id := range p.results {
			if call, ok := calls[id]; ok {
				unitOf[i] = call
			}
		}
		if len(p.toolResults) > 0 {
			unitOf[i] = unitOf[p.caller]
		}
		for _, id := range p.calls {
			calls[id] = unitOf[i]
		}
	}
	return unitOf
}

// fillUnit includes the members of a unit if all of them fit.
func fillUnit(pieces []piece, members []int, budget int, used *int) {
	cost := 0
	for _, i := range members {
		if !pieces[i].entry.Included {
			cost += pieces[i].cost
		}
	}
	if cost == 0 {
		return
	}
	fits := *used+cost <= budget
	for _, i := range members {
		p := &pieces[i]
		switch {
		case p.entry.Included || p.empty:
		case fits:
			p.entry.Included, p.entry.Reason = true, ReasonFits
		default:
			p.entry.Reason = ReasonNoRoom
		}
	}
	if fits {
		*used += cost
	}
}

// opening stands first where the first piece shown is the assistant's, which
// providers refuse. It is the same every turn.
const opening = "[The conversation began earlier.]"

var openingCost = tokens.Estimate(opening) + perMessage

// merge joins neighbours of one role, for providers refuse them apart, and
// sees to it that the first message is the user's, with the opening if it must.
func merge(pieces []piece) (messages []Message, opened bool) {
	var message Message
	var texts []string
	flush := func() {
		if message.Role != "" {
			message.Text = strings.Join(texts, "\n\n")
			messages = append(messages, message)
		}
		texts = texts[:0]
	}
	for _, p := range pieces {
		if !p.entry.Included {
			continue
		}
		if message.Role == "" && p.role == memory.RoleAssistant {
			messages, opened = append(messages, Message{Role: memory.RoleUser, Text: opening}), true
		}
		if p.role != message.Role {
			flush()
			message = Message{Role: p.role}
		}
		if p.text != "" {
			texts = append(texts, p.text)
		}
		message.ToolCalls = append(message.ToolCalls, p.toolCalls...)
		message.ToolResults = append(message.ToolResults, p.toolResults...)
	}
	flush()
	return messages, opened
}
