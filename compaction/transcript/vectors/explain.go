package vectors

import (
	"fmt"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// Explanation tells what became of each message of a case.
type Explanation struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Prompt are the messages in order, each whole, and what they cost.
	Prompt []ShownMessage `json:"prompt"`
	Cost   int            `json:"cost"`
	// Budget and OverBudget are of cases of append.
	Budget     int  `json:"budget,omitempty"`
	OverBudget bool `json:"over_budget,omitempty"`
	// Entries explains the rows, then the live messages, then what was made up.
	Entries []Entry `json:"entries"`
}

// ShownMessage is one message of an explained prompt.
type ShownMessage struct {
	// ID is "" for a result that was made up.
	ID string `json:"id,omitempty"`
	messageFields
}

// Entry explains one message.
type Entry struct {
	ID   string      `json:"id,omitempty"`
	What What        `json:"what"`
	Role memory.Role `json:"role"`
	Cost int         `json:"cost"`
	// Included says that the message, or what is left of it, is in the prompt.
	Included bool `json:"included"`
	// Reason says why it is or is not, in the host's own words but for ids.
	Reason string `json:"reason"`
	// CoveredBy is the id of the row that says the same in this one's place.
	CoveredBy string `json:"covered_by,omitempty"`
}

// What says where a message comes from.
type What string

// Where from.
const (
	WhatRow    What = "row"
	WhatLive   What = "live"
	WhatMadeUp What = "made up"
)

// Explain answers a case of append or repair and tells why each message is or is
// not in the answer. A budget that is not nil takes the place of the case's.
// Errors wrap ErrInvalid for a case of another kind.
func (c *Case) Explain(budget *int) (Explanation, error) {
	e := Explanation{Name: c.Name, Kind: c.Kind}
	in := c.input
	if budget != nil {
		if c.Kind != Append {
			return e, invalidf("case %.60q is of kind %s, which knows no budget", c.Name, c.Kind)
		}
		in.budget = *budget
	}
	x := explainer{in: &in, calls: in.firstCalls()}
	switch c.Kind {
	case Append:
		x.joined = in.join()
		x.rows = x.joined.Rows
		e.Cost, e.Budget, e.OverBudget = x.joined.Cost, in.budget, x.joined.OverBudget
	case Repair:
		x.rows = transcript.Repair(in.transcript(), in.placeholderCost)
		for _, row := range x.rows {
			e.Cost += row.Cost
		}
	default:
		return e, invalidf("case %.60q is of kind %s: only append and repair make prompts, run the file with --vectors", c.Name, c.Kind)
	}
	output, err := in.output(x.rows)
	if err != nil {
		return e, err
	}
	for _, o := range output {
		m := ShownMessage{ID: o.ID}
		if o.Message != nil {
			m.messageFields = *o.Message
		} else {
			m.messageFields = in.at(o.origin).fields
		}
		e.Prompt = append(e.Prompt, m)
	}
	e.Entries = x.entries(output)
	return e, nil
}

type explainer struct {
	in     *input
	joined transcript.Joined
	rows   []transcript.Row
	// calls are those of firstCalls.
	calls map[string]int
}

func (x *explainer) entries(output []outputMessage) []Entry {
	in := x.in
	place := make(map[int]int, len(output)) // in output, by origin
	answered := map[string]bool{}           // calls with a result in output
	var madeUp []Entry
	for i, o := range output {
		if x.rows[i].Role == memory.RoleTool {
			answered[x.rows[i].CallID] = true
		}
		if o.Synthetic {
			madeUp = append(madeUp, Entry{What: WhatMadeUp, Role: memory.RoleTool, Cost: x.rows[i].Cost, Included: true,
				Reason: fmt.Sprintf("there is no result of the call %.60q of %s", x.rows[i].CallID, in.at(o.origin).id)})
			continue
		}
		place[o.origin] = i
	}
	evicted, protected, covers, added := map[int]bool{}, map[int]bool{}, map[int]int{}, map[int]bool{}
	for _, i := range x.joined.Evicted {
		evicted[i] = true
	}
	for _, i := range in.protected {
		protected[i] = true
	}
	for i, row := range x.joined.CoveredBy {
		if row >= 0 && in.live[i].isVolatile() {
			covers[row] = i
		}
	}
	for _, i := range x.joined.Appended {
		added[i] = true
	}

	var entries []Entry
	for i, m := range in.rows {
		e := Entry{ID: m.id, What: WhatRow, Role: m.row.Role, Cost: m.row.Cost}
		at, shown := place[i]
		e.Included = shown
		live, is := covers[i]
		switch {
		case evicted[i]:
			e.Reason = "evicted: the prompt costs more than the budget"
		case !shown:
			e.Reason = x.dropped(m, answered)
		case output[at].Message != nil:
			e.Reason = rewritten(m, x.rows[at])
		case is:
			e.Reason = "stands for " + in.live[live].id
		case protected[i]:
			e.Reason = "protected"
		case m.row.Role == memory.RoleTool && !x.follows(at, i):
			e.Reason = "moved behind the turn of its call"
		case in.live == nil:
			e.Reason = "as it was"
		default:
			e.Reason = "fits the budget"
			if x.joined.OverBudget {
				e.Reason = "must stay although the budget is exceeded"
			}
		}
		entries = append(entries, e)
	}
	for i, m := range in.live {
		e := Entry{ID: m.id, What: WhatLive, Role: m.row.Role, Cost: m.row.Cost}
		switch at, shown := place[len(in.rows)+i]; {
		case added[i] && shown:
			e.Included, e.Reason = true, "not stored: added at the end"
			for _, o := range output[at+1:] {
				if o.origin < len(in.rows) {
					e.Reason = "not stored: added before " + in.at(o.origin).id
					break
				}
			}
		case !m.isVolatile():
			e.Reason = "not volatile: it is stored, or a summary tells of it"
		case i < len(x.joined.CoveredBy) && x.joined.CoveredBy[i] >= 0:
			e.CoveredBy = in.rows[x.joined.CoveredBy[i]].id
			e.Reason = "covered by " + e.CoveredBy + ", which says the same"
		default:
			e.Reason = "left out"
		}
		entries = append(entries, e)
	}
	return append(entries, madeUp...)
}

// follows reports whether what stands before a row in the answer stood before it
// in the input, too.
func (x *explainer) follows(at, origin int) bool {
	return at == 0 || x.rows[at-1].Origin == origin-1
}

// dropped says why repair takes a row out.
func (x *explainer) dropped(m message, answered map[string]bool) string {
	if m.row.Role != memory.RoleTool {
		return "taken out: without its calls nothing is left of it but thoughts"
	}
	if m.row.CallID == "" {
		return "taken out: it does not say which call it answers"
	}
	if _, called := x.calls[m.row.CallID]; !called {
		return "taken out: no call has its id, or its turn broke off"
	}
	if answered[m.row.CallID] {
		return "taken out: another result answers its call"
	}
	return "taken out: its call is not in the prompt"
}

// rewritten says what repair changed in a turn.
func rewritten(m message, is transcript.Row) string {
	switch {
	case m.row.Broken:
		return "rewritten: its turn broke off, the calls in it were never run"
	case len(is.Parts) < len(m.row.Parts):
		return "rewritten: a call whose id an earlier one has is taken out"
	}
	return "rewritten: its thoughts stand before its call"
}
