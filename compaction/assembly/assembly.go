// Package assembly builds one prompt out of what is stored and what the caller
// holds, within a budget, and reports on every piece that went in or did not.
// It is pure: no clock, no files, no model. The same input gives the same bytes.
package assembly

import (
	"slices"
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
	Text string      `json:"text"`
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
	cost  int
	// tail marks what goes in whatever it costs.
	tail bool
	// call ties a tool's result to the message before it.
	call bool
}

// Assemble builds the prompt. It takes time linear in the items.
//
// The last messages and all live input go in first, then whatever else fits,
// the newest first; a piece that does not fit is passed over, not the end of
// the walk. A tool's results go in with their call or not at all.
func Assemble(in Input) (Prompt, Report) {
	pieces := stored(in)
	pieces = append(pieces, live(in.Live)...)

	system := piece{entry: Entry{Kind: KindSystem, Tokens: tokens.Estimate(in.System), Included: true, Reason: ReasonSystem}}
	used := system.entry.Tokens
	for i := range pieces {
		if p := &pieces[i]; p.tail && p.text != "" {
			p.entry.Included = true
			used += p.cost
		}
	}
	for _, unit := range slices.Backward(units(pieces)) {
		fillUnit(pieces[unit.from:unit.to], in.Budget, &used)
	}

	report := Report{Budget: in.Budget, Tokens: used, OverBudget: used > in.Budget, Entries: []Entry{system.entry}}
	prompt := Prompt{System: in.System, Tokens: used}
	for _, p := range pieces {
		report.Entries = append(report.Entries, p.entry)
	}
	prompt.Messages = merge(pieces)
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
		p.call = m.Role == memory.RoleTool
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
	// A result that is protected protects its call.
	for i := len(pieces) - 1; i > 0; i-- {
		if pieces[i].tail && pieces[i].call {
			pieces[i-1].tail = true
		}
	}
	for i := range pieces {
		if pieces[i].tail {
			pieces[i].entry.Reason = ReasonFreshTail
		}
	}
	return pieces
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
		pieces = append(pieces, p)
	}
	return pieces
}

func newPiece(entry Entry, role memory.Role, text string) piece {
	p := piece{entry: entry, role: promptRole(role), text: text, cost: entry.Tokens + perMessage}
	if strings.TrimSpace(text) == "" {
		p.text, p.cost = "", 0
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

// unit is a half-open range of pieces that go in together.
type unit struct{ from, to int }

func units(pieces []piece) []unit {
	var all []unit
	for i := range pieces {
		if pieces[i].call && len(all) > 0 {
			all[len(all)-1].to = i + 1
			continue
		}
		all = append(all, unit{i, i + 1})
	}
	return all
}

func fillUnit(pieces []piece, budget int, used *int) {
	cost := 0
	for _, p := range pieces {
		if !p.entry.Included {
			cost += p.cost
		}
	}
	if cost == 0 {
		return
	}
	fits := *used+cost <= budget
	for i := range pieces {
		p := &pieces[i]
		switch {
		case p.entry.Included || p.text == "":
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

// merge joins neighbours of one role, for providers refuse them apart, and
// sees to it that the first message is the user's.
func merge(pieces []piece) []Message {
	var messages []Message
	var texts []string
	role := memory.Role("")
	flush := func() {
		if len(texts) > 0 {
			messages = append(messages, Message{role, strings.Join(texts, "\n\n")})
		}
		texts = texts[:0]
	}
	for _, p := range pieces {
		if !p.entry.Included {
			continue
		}
		if role == "" && p.role == memory.RoleAssistant {
			messages = append(messages, Message{memory.RoleUser, opening})
		}
		if p.role != role {
			flush()
			role = p.role
		}
		texts = append(texts, p.text)
	}
	flush()
	return messages
}
