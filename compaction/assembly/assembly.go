// Package assembly builds one prompt out of what is stored and what the caller
// holds, within a budget, by the rules of the model's provider, and reports on
// every piece that went in or did not. It is pure: no clock, no files, no model.
// The same input gives the same bytes.
package assembly

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Input is what one prompt is made of. Assemble changes nothing of it.
type Input struct {
	// System is the system text; it is the same every turn.
	System string
	// Tools are those that the model may call, as CanonicalTools gives them.
	Tools []Tool
	// Items is the session's frontier, or its end; Older is what stands before
	// that and is not shown.
	Items []memory.Item
	Older memory.FrontierRest
	// Live are messages that the caller holds, in the order of the conversation.
	Live []Live
	// Turn names the turn that the prompt is for; see Live.Turn. If it is not "",
	// only what is stored since the last answer covers a live message: the same
	// words of an earlier turn were said then.
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
	// NoThoughts leaves out the model's thoughts in the turn that goes on. A
	// provider may refuse them when what stood before them is no longer the same.
	NoThoughts bool
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
	// KindOlder is the part of the frontier before the items.
	KindOlder  Kind = "older"
	KindLive   Kind = "live"
	KindBeside Kind = "beside"
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
	// Items is how many pieces it stands for, if it is more than one.
	Items int `json:"items,omitempty"`
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
	ReasonAlways    = "always"
	ReasonFreshTail = "one of the last messages"
	ReasonFits      = "fits the budget"
	ReasonLive      = "not stored yet"
	ReasonBeside    = "goes beside the last input"
	ReasonNoRoom    = "no room in the budget"
	ReasonEvicted   = "made room for what is not stored yet"
	ReasonEmpty     = "nothing to show"
	ReasonCovered   = "a message in the prompt says the same in its place"
	ReasonPersisted = "stored: it is shown from there"
	ReasonElsewhere = "said to be stored, and not in this prompt"
	ReasonMissed    = "said to be stored, but nothing here is to be answered"
	ReasonPastTurn  = "belongs to another turn"
	ReasonOpening   = "a prompt begins with the user"
	ReasonClosing   = "a prompt ends with something to answer"
)

// The notes that the rules of the providers may need. They are the same every
// turn.
const (
	openingNote = "[The conversation began earlier.]"
	closingNote = "[Please go on.]"
)

// maxNotes is at least what both cost.
const maxNotes = 32

const defaultFreshTail = 6

// The overheads of the estimate: what a message costs beside its text, a call or
// a result beside its words, which is its id and form, and what parts a part of a
// message from the one before it.
const (
	perMessage = 4
	perCall    = 12
	perPart    = 1
)

// Demand is what items cost in a prompt that leaves none out, by the counts of
// the store: that of Assemble.
func Demand(items []memory.Item) int {
	sum := 0
	for i := range items {
		sum += items[i].Tokens() + perMessage + perCall*pairsIn(items[i].Message)
	}
	return sum
}

// pairsIn counts calls and results.
func pairsIn(m *memory.Message) int {
	n := 0
	if m != nil {
		for i := range m.Blocks {
			if t := m.Blocks[i].Type; t == memory.BlockToolCall || t == memory.BlockToolResult {
				n++
			}
		}
	}
	return n
}

// Assemble builds the prompt, which keeps the rules of Check, and explains it.
//
// The system text, the tools, the last messages, the last input of the user and
// what is beside it go in whatever they cost. Of the rest of the frontier the
// oldest is left out until the budget holds; first what is larger than half of
// it. That happens in steps of a quarter of the budget, so that the prompt's
// beginning stays the same over many turns. Then live messages that are not
// stored are added, and stored ones evicted for them, as transcript.Join does.
// A tool's call and result go in together or not at all.
//
// Nothing that was said is lost to a provider's rules: a call without a result
// gets one that says so, a result without a call becomes text, ids that are taken
// or out of form are replaced, and the same for the same items.
//
// An empty frontier, or one without anything to answer, ends with a note. The
// order of Items is taken as it is. The error is a *RuleError: a fault of this
// package.
//
// It takes time linear in the items, but for sorting what may be evicted.
func Assemble(in Input) (Prompt, Report, error) {
	prompt, report := build(in, 0)
	if notes := report.Totals.Notes; report.OverBudget && notes > 0 {
		// Which notes are needed depends on what goes in.
		prompt, report = build(in, notes+maxNotes)
	}
	if broken := Check(prompt, in.Provider); len(broken) > 0 {
		return prompt, report, &RuleError{Provider: in.Provider, Violations: broken}
	}
	return prompt, report, nil
}

func build(in Input, reserve int) (Prompt, Report) {
	a := assembler{in: in, reserve: reserve}
	a.collect()
	a.choose()
	a.join()
	prompt := a.compose()
	return prompt, a.report(&prompt)
}
