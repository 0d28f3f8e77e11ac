package transcript

import (
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// PlaceholderText is what a placeholder says.
const PlaceholderText = "[no result of this tool call is known]"

// Repair pairs every tool call with exactly one result, which stands directly
// behind the turn of the call, in the order of the calls:
//
//   - In a turn that broke off, calls with an id are taken out, and so is, in any
//     turn, a call whose id an earlier one has. A turn that is left with nothing
//     but thoughts and blank text is taken out whole.
//   - A turn of thoughts and calls, one of them of the style function, has its
//     thoughts before the calls.
//   - A call's result is the first row behind the turn with its id that is no
//     placeholder; failing that the last such row before the turn; failing that
//     the first placeholder behind it, or a new one, which costs
//     placeholderCost.
//   - All other results are taken out; Leftover names them.
//
// Calls without an id and all other rows stay as they are. Repairing twice is
// repairing once. If nothing is wrong, rows itself is returned.
func Repair(rows []Row, placeholderCost int) []Row {
	if !holdsTools(rows) {
		return rows
	}
	p := pair(rows)
	if p.intact(rows) {
		return rows
	}
	out := make([]Row, 0, len(rows)+len(p.calls))
	for i := range rows {
		r := rows[i]
		if r.Role == memory.RoleTool {
			continue
		}
		parts, changed := p.mended(i, &rows[i])
		if changed {
			r.Parts = parts
		}
		if !changed || !blank(parts) {
			out = append(out, r)
		}
		for k := p.first[i]; k < p.first[i+1]; k++ {
			if result := p.calls[k].result(); result >= 0 {
				out = append(out, rows[result])
			} else {
				out = append(out, placeholder(&rows[i], p.calls[k].part, placeholderCost))
			}
		}
	}
	return out
}

// Leftover returns the indices of the results that Repair takes out, ascending.
func Leftover(rows []Row) []int {
	var left []int
	p := pair(rows)
	used := make([]bool, len(rows))
	for _, c := range p.calls {
		if result := c.result(); result >= 0 {
			used[result] = true
		}
	}
	for i := range rows {
		if rows[i].Role == memory.RoleTool && !used[i] {
			left = append(left, i)
		}
	}
	return left
}

func holdsTools(rows []Row) bool {
	for i := range rows {
		switch rows[i].Role {
		case memory.RoleTool:
			return true
		case memory.RoleAssistant:
			for j := range rows[i].Parts {
				if rows[i].Parts[j].Type == PartCall {
					return true
				}
			}
		}
	}
	return false
}

// pairing tells which calls of which rows stay and what answers them.
type pairing struct {
	// calls are those that stay and have an id, in order; those of row i are
	// calls[first[i]:first[i+1]].
	calls []call
	first []int
}

type call struct {
	part int // index in its row's parts
	// The rows that may answer it; -1 if there is none.
	behind, before, placeholder int
}

func (c call) result() int {
	switch {
	case c.behind >= 0:
		return c.behind
	case c.before >= 0:
		return c.before
	}
	return c.placeholder
}

func pair(rows []Row) pairing {
	n := 0
	for i := range rows {
		if rows[i].Role == memory.RoleAssistant {
			for j := range rows[i].Parts {
				if rows[i].Parts[j].Type == PartCall {
					n++
				}
			}
		}
	}
	p := pairing{calls: make([]call, 0, n), first: make([]int, len(rows)+1)}
	type place struct{ row, call int }
	claimed := make(map[string]place, n)
	for i := range rows {
		p.first[i] = len(p.calls)
		if rows[i].Role != memory.RoleAssistant || rows[i].Broken {
			continue
		}
		for j := range rows[i].Parts {
			c := &rows[i].Parts[j]
			if c.Type != PartCall || c.ID == "" {
				continue
			}
			if _, taken := claimed[c.ID]; !taken {
				claimed[c.ID] = place{i, len(p.calls)}
				p.calls = append(p.calls, call{part: j, behind: -1, before: -1, placeholder: -1})
			}
		}
	}
	p.first[len(rows)] = len(p.calls)
	for i := range rows {
		r := &rows[i]
		if r.Role != memory.RoleTool || r.CallID == "" {
			continue
		}
		at, ok := claimed[r.CallID]
		if !ok {
			continue
		}
		switch c := &p.calls[at.call]; {
		case r.Placeholder:
			if i > at.row && c.placeholder < 0 {
				c.placeholder = i
			}
		case i < at.row:
			c.before = i
		case c.behind < 0:
			c.behind = i
		}
	}
	return p
}

// intact reports whether the rows are as Repair would leave them.
func (p *pairing) intact(rows []Row) bool {
	for i := 0; i < len(rows); {
		if rows[i].Role == memory.RoleTool {
			return false // those that belong to a call are skipped below
		}
		if p.isMended(i, &rows[i]) {
			return false
		}
		next := i + 1
		for _, c := range p.calls[p.first[i]:p.first[i+1]] {
			if c.result() != next {
				return false
			}
			next++
		}
		i = next
	}
	return true
}

// isMended reports whether row i gets other parts.
func (p *pairing) isMended(i int, r *Row) bool {
	if r.Role != memory.RoleAssistant {
		return false
	}
	calls := 0
	for j := range r.Parts {
		if r.Parts[j].Type == PartCall && r.Parts[j].ID != "" {
			calls++
		}
	}
	return calls > p.first[i+1]-p.first[i] || thinksLate(r.Parts)
}

// mended returns the parts of row i without the calls that do not stay, the
// thoughts in their place.
func (p *pairing) mended(i int, r *Row) (parts []Part, changed bool) {
	if !p.isMended(i, r) {
		return r.Parts, false
	}
	stays := p.calls[p.first[i]:p.first[i+1]]
	for j := range r.Parts {
		c := r.Parts[j]
		if c.Type == PartCall && c.ID != "" {
			if len(stays) == 0 || stays[0].part != j {
				continue
			}
			stays = stays[1:]
		}
		parts = append(parts, c)
	}
	if thinksLate(parts) {
		slices.SortStableFunc(parts, func(a, b Part) int { return thoughtsFirst(a) - thoughtsFirst(b) })
	}
	return parts, true
}

func thoughtsFirst(p Part) int {
	if p.Type == PartThinking {
		return 0
	}
	return 1
}

// thinksLate reports whether a turn of nothing but thoughts and calls, exactly
// one of the style function, has a thought behind a call.
func thinksLate(parts []Part) bool {
	functions, called, late := 0, false, false
	for i := range parts {
		switch parts[i].Type {
		case PartCall:
			called = true
			if parts[i].Function {
				functions++
			}
		case PartThinking:
			late = late || called
		default:
			return false
		}
	}
	return late && functions == 1
}

func placeholder(turn *Row, part, cost int) Row {
	c := turn.Parts[part]
	name := c.Name
	if name == "" {
		name = UnknownTool
	}
	return Row{
		Role: memory.RoleTool, Parts: []Part{{Type: PartText, Text: PlaceholderText}},
		CallID: c.ID, ToolName: name, IsError: true, Placeholder: true, Cost: cost, Origin: turn.Origin,
	}
}
