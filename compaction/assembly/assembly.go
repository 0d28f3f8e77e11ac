// Package assembly builds one prompt out of what is stored and what the caller
// holds, within a budget, and reports on every piece that went in or did not.
// It is pure: no clock, no files, no model. The same input gives the same bytes.
package assembly

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Input is what one prompt is made of. Assemble changes nothing of it.
type Input struct {
	// System is the system text; it is the same every turn.
	System string
	// Tools are those that the model may call, as CanonicalTools gives them.
	Tools []Tool
	// Items is the session's frontier.
	Items []memory.Item
	// Live are messages that the caller holds, in the order of the conversation.
	Live []Live
	// Turn names the turn that the prompt is for; see Live.Turn.
	Turn string
	// Beside is what goes beside the last input of the user and is another in
	// every turn: the date, what is remembered of the user. It is never stored.
	Beside []memory.Block
	// Budget is what the whole prompt may cost, in tokens: the model's window
	// without what is reserved for the answer.
	Budget int
	// FreshTail is how many of the last messages go in whatever they cost;
	// zero means 6.
	FreshTail int
	// Provider is whose rules the prompt has to keep; "" means all rules.
	Provider Provider
	// Mode is how external text is framed.
	Mode boundary.Mode
	// Count counts the tokens of a text exactly; nil means that the counts of
	// the store are taken.
	Count func(text string) int
	// Recovery cuts the prompt down.
	Recovery Recovery
	// Previous is the trace of the session's prompt before this one, for
	// Report.PrefixReuse.
	Previous Trace
}

// Live is one message in the caller's hands.
type Live struct {
	Role   memory.Role
	Source memory.Source
	Blocks []memory.Block
	// Persisted says that the message is stored, so that it is in Items or in a
	// summary among them. One that is not has to reach the model: it is added
	// unless a message in the prompt says the very same in its place.
	Persisted bool
	// Turn names the turn that the message belongs to. One of another turn than
	// Input.Turn is not added, persisted or not: it has had its turn.
	Turn string
}

// Kind says what a piece of a prompt is.
type Kind string

// The kinds.
const (
	KindSystem  Kind = "system"
	KindTools   Kind = "tools"
	KindSummary Kind = "summary"
	KindRefresh Kind = "refresh"
	KindMessage Kind = "message"
	KindLive    Kind = "live"
	KindBeside  Kind = "beside"
	// KindNote is a text of the host's that a rule of the providers needs.
	KindNote Kind = "note"
)

// Entry explains one piece.
type Entry struct {
	Kind Kind `json:"kind"`
	// ID is that of the message or summary.
	ID     uuid.UUID     `json:"id,omitzero"`
	Role   memory.Role   `json:"role,omitempty"`
	Source memory.Source `json:"source,omitempty"`
	At     time.Time     `json:"at,omitzero"`
	Tokens int           `json:"tokens"`
	// Included says that the model sees the piece.
	Included bool `json:"included"`
	// Reason says why a piece is in or out.
	Reason string `json:"reason"`
	// CoveredBy is the index of the entry that says the same in this one's
	// place; zero if none does.
	CoveredBy int `json:"covered_by,omitempty"`
	// External lists the sources of the external blocks in it.
	External []string `json:"external,omitempty"`
}

// Report answers why the model did or did not see something.
type Report struct {
	Budget int    `json:"budget"`
	Tokens int    `json:"tokens"`
	Totals Totals `json:"totals"`
	// OverBudget says that what must go in costs more than the budget.
	OverBudget bool     `json:"over_budget"`
	Pressure   Pressure `json:"pressure"`
	// PrefixReuse compares the prompt with Input.Previous.
	PrefixReuse Reuse `json:"prefix_reuse"`
	// Recovery is the stage that was asked for, and Drained how many stored
	// messages and summaries it left out.
	Recovery Recovery `json:"recovery,omitempty"`
	Drained  int      `json:"drained,omitempty"`
	// Rules are the names of the rules that the prompt was held against.
	Rules []string `json:"rules"`
	// Entries explains every piece: the system text, the tools, each item of the
	// frontier, each live message, and what was added.
	Entries []Entry `json:"entries"`

	// Trace is for the session's next prompt.
	Trace Trace `json:"-"`
}

// Totals is what the parts of a prompt cost, in tokens. They add up to
// Report.Tokens.
type Totals struct {
	System    int `json:"system"`
	Tools     int `json:"tools"`
	Summaries int `json:"summaries"`
	Messages  int `json:"messages"`
	// Tail is the last messages, which Messages does not count.
	Tail   int `json:"tail"`
	Live   int `json:"live"`
	Beside int `json:"beside"`
	Notes  int `json:"notes"`
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
	toolCalls   []Part
	toolResults []Part
	caller      int
}

// Assemble builds the prompt. It takes time linear in the items.
//
// The last messages, the last user input and all live input go in first, then
// whatever else fits, the newest first; a piece that does not fit is passed over,
// not the end of the walk. A tool's results go in with their call or not at all.
func Assemble(in Input) (Prompt, Report, error) {
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
	return prompt, report, nil
}

func stored(in Input) []piece {
	pieces := make([]piece, 0, len(in.Items)+len(in.Live))
	for _, item := range in.Items {
		if s := item.Summary; s != nil {
			entry := Entry{Kind: KindSummary, ID: uuid.UUID(s.ID), Role: memory.RoleUser, At: s.Latest, Tokens: s.Tokens}
			if !s.External.IsEmpty() {
				entry.External = []string{s.External.Source().String()}
			}
			pieces = append(pieces, newPiece(entry, memory.RoleUser, s.Shown()))
			continue
		}
		m := item.Message
		entry := Entry{Kind: KindMessage, ID: uuid.UUID(m.ID), Role: m.Role, Source: m.Source, At: m.At, Tokens: m.Tokens, External: sources(m.Blocks)}
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
	var calls []Part
	flush := func() {
		if message.Role != "" {
			message.Parts = append(message.Parts, calls...)
			messages = append(messages, message)
		}
		calls = nil
	}
	for i, p := range pieces {
		if !p.entry.Included {
			continue
		}
		if message.Role == "" && p.role == memory.RoleAssistant {
			messages, opened = append(messages, Message{Role: memory.RoleUser, Parts: []Part{{Type: PartText, Text: opening}}}), true
		}
		if p.role != message.Role {
			flush()
			message = Message{Role: p.role}
		}
		for _, r := range p.toolResults {
			r.Entry = i + 1
			message.Parts = slices.Insert(message.Parts, results(message), r)
		}
		if p.text != "" {
			message.Parts = append(message.Parts, Part{Type: PartText, Text: p.text, Entry: i + 1})
		}
		for _, c := range p.toolCalls {
			c.Entry = i + 1
			calls = append(calls, c)
		}
	}
	flush()
	return messages, opened
}

func results(m Message) int {
	n := 0
	for n < len(m.Parts) && m.Parts[n].Type == PartResult {
		n++
	}
	return n
}
