package transcript_test

import (
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// The oracles say what Repair and Join are to answer. They are written from the
// rules of the vectors' README, one rule at a time, without a thought for how
// long they take.

// naiveRepair follows the rules of repair by their numbers. The one deviation is
// in 6: a result that stands before its call is taken rather than made up.
func naiveRepair(rows []transcript.Row, placeholderCost int) []transcript.Row {
	turns := make([]transcript.Row, len(rows))
	gone := make([]bool, len(rows))
	var claimed []string
	for i, row := range rows {
		turns[i] = row
		if row.Role != memory.RoleAssistant {
			continue // 1
		}
		var parts []transcript.Part
		for _, p := range row.Parts {
			if p.Type == transcript.PartCall && p.ID != "" {
				if row.Broken || slices.Contains(claimed, p.ID) { // 2, 3
					continue
				}
				claimed = append(claimed, p.ID)
			}
			parts = append(parts, p)
		}
		if len(parts) < len(row.Parts) && saysNothing(parts) { // 4
			gone[i] = true
		}
		turns[i].Parts = thoughtsFirst(parts) // 5
	}
	var repaired []transcript.Row
	for i, row := range turns {
		if gone[i] || row.Role == memory.RoleTool { // 7
			continue
		}
		repaired = append(repaired, row)
		if row.Role != memory.RoleAssistant {
			continue
		}
		for _, p := range row.Parts { // 6
			if p.Type == transcript.PartCall && p.ID != "" {
				repaired = append(repaired, naiveResult(rows, i, p, placeholderCost))
			}
		}
	}
	return repaired
}

func saysNothing(parts []transcript.Part) bool {
	for _, p := range parts {
		if p.Type == transcript.PartCall || p.Type == transcript.PartOther || p.Type == transcript.PartText && strings.TrimSpace(p.Text) != "" {
			return false
		}
	}
	return true
}

func thoughtsFirst(parts []transcript.Part) []transcript.Part {
	var thoughts, calls []transcript.Part
	functions := 0
	for _, p := range parts {
		switch {
		case p.Type == transcript.PartThinking:
			thoughts = append(thoughts, p)
		case p.Type == transcript.PartCall:
			if p.Function {
				functions++
			}
			calls = append(calls, p)
		default:
			return parts
		}
	}
	if functions != 1 {
		return parts
	}
	return append(thoughts, calls...)
}

func naiveResult(rows []transcript.Row, turn int, call transcript.Part, placeholderCost int) transcript.Row {
	isResult := func(i int, placeholder bool) bool {
		return rows[i].Role == memory.RoleTool && rows[i].CallID == call.ID && rows[i].Placeholder == placeholder
	}
	for i := turn + 1; i < len(rows); i++ {
		if isResult(i, false) {
			return rows[i]
		}
	}
	for i := turn - 1; i >= 0; i-- {
		if isResult(i, false) {
			return rows[i]
		}
	}
	for i := turn + 1; i < len(rows); i++ {
		if isResult(i, true) {
			return rows[i]
		}
	}
	name := call.Name
	if name == "" {
		name = transcript.UnknownTool
	}
	return transcript.Row{
		Role: memory.RoleTool, CallID: call.ID, ToolName: name, IsError: true, Placeholder: true,
		Cost: placeholderCost, Origin: rows[turn].Origin,
	}
}

func costOf(rows []transcript.Row) int {
	sum := 0
	for _, row := range rows {
		sum += row.Cost
	}
	return sum
}

// bruteJoin follows the steps of append by their numbers, as the reference
// implementation does: it matches live messages and rows in general, and builds the
// whole prompt anew for every candidate of every eviction.
//
// It deviates as Join does: with more equal rows than live messages the newest
// rows are those that cover and anchor, live messages that are stored come before
// volatile ones of the same words (1, 4), and what saves nothing is never evicted
// (8). It goes further for what the README leaves out: the other half of a volatile
// call or result stays, and so does what continues a row that stays.
func bruteJoin(in transcript.JoinInput) transcript.Joined {
	out := transcript.Joined{CoveredBy: slices.Repeat([]int{-1}, len(in.Live))}
	places := slices.Repeat([]int{-1}, len(in.Rows)) // of the live message that a row is paired with
	for first, l := range in.Live {                  // 1, 4
		equal := func(o transcript.Live) bool { return transcript.Equal(o.Row, l.Row) }
		if slices.ContainsFunc(in.Live[:first], equal) {
			continue
		}
		var stored, volatile, rows []int
		for i, o := range in.Live {
			switch {
			case !equal(o):
			case o.Volatile:
				volatile = append(volatile, i)
			default:
				stored = append(stored, i)
			}
		}
		for i, row := range in.Rows {
			if transcript.Equal(row, l.Row) {
				rows = append(rows, i)
			}
		}
		stored = stored[max(0, len(stored)-len(rows)):]
		volatile = volatile[:min(len(volatile), len(rows)-len(stored))]
		live := slices.Concat(stored, volatile)
		slices.Sort(live)
		rows = rows[len(rows)-len(live):]
		for i := range live {
			places[rows[i]] = live[i]
			out.CoveredBy[live[i]] = rows[i]
		}
	}
	for i, l := range in.Live {
		if l.Volatile && out.CoveredBy[i] < 0 {
			out.Appended = append(out.Appended, i)
			out.AppendedCost += l.Cost
		}
	}
	if len(out.Appended) == 0 { // 2
		out.Rows, out.Cost = in.Rows, in.RowsCost
		out.OverBudget = out.Cost > in.Budget
		return out
	}
	units := naiveUnits(in.Rows) // 3
	fixed := make([]bool, len(in.Rows))
	for i := range in.Rows { // 5
		if slices.Contains(in.Protected, i) || places[i] >= 0 {
			fixed[units[i]] = true
		}
	}
	for _, i := range out.Appended {
		for j, row := range in.Rows {
			if shareCall(in.Live[i].Row, row) {
				fixed[units[j]] = true
			}
		}
	}
	standing := slices.Repeat([]int{-1}, len(in.Rows)) // by unit
	for i, place := range places {
		if u := units[i]; place >= 0 && (standing[u] < 0 || place < standing[u]) {
			standing[u] = place
		}
	}
	gone := make([]bool, len(in.Rows)) // by unit
	rebuild := func() []transcript.Row {
		return naiveRepair(naiveOrder(in, units, gone, standing, out.Appended), in.PlaceholderCost) // 6, 7
	}
	out.Rows = rebuild()
	out.Cost = costOf(out.Rows)
	for again := true; again && out.Cost > in.Budget; { // 8
		again = false
		savings := make([]int, len(in.Rows)) // by unit
		for i, row := range in.Rows {
			for _, left := range out.Rows {
				if left.Origin == row.Origin {
					savings[units[i]] += left.Cost
				}
			}
		}
		for excess := out.Cost - in.Budget; excess > 0; {
			best, saved := -1, 0
			for u, saving := range savings {
				if units[u] != u || gone[u] || fixed[u] || saving <= 0 {
					continue
				}
				enough, bestEnough := saving >= excess, saved >= excess
				if best < 0 || enough && !bestEnough || enough && saving < saved || !enough && !bestEnough && saving > saved {
					best, saved = u, saving
				}
			}
			if best < 0 {
				break
			}
			gone[best], again = true, true
			excess -= saved
		}
		out.Rows = rebuild()
		out.Cost = costOf(out.Rows)
	}
	for i := range in.Rows {
		if gone[units[i]] {
			out.Evicted = append(out.Evicted, i)
		}
	}
	out.OverBudget = out.Cost > in.Budget
	return out
}

// naiveUnits names the unit of each row by its first row: a turn and the results
// that share the id of a call with it, and rows of one message, belong together,
// transitively.
func naiveUnits(rows []transcript.Row) []int {
	units := make([]int, len(rows))
	for i := range units {
		units[i] = i
	}
	for i := range rows {
		for j := range i {
			pair := shareCall(rows[i], rows[j]) && rows[i].Role != rows[j].Role
			if units[i] == units[j] || !pair && (j < i-1 || !rows[i].Continues) {
				continue
			}
			from, to := max(units[i], units[j]), min(units[i], units[j])
			for k := range units {
				if units[k] == from {
					units[k] = to
				}
			}
		}
	}
	return units
}

func shareCall(a, b transcript.Row) bool {
	for _, id := range callsOf(a) {
		if slices.Contains(callsOf(b), id) {
			return true
		}
	}
	return false
}

// callsOf are the ids of calls that a row has or answers.
func callsOf(row transcript.Row) []string {
	var ids []string
	if row.Role == memory.RoleTool && row.CallID != "" {
		ids = append(ids, row.CallID)
	}
	for _, p := range row.Parts {
		if row.Role == memory.RoleAssistant && p.Type == transcript.PartCall && p.ID != "" {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func naiveOrder(in transcript.JoinInput, units []int, gone []bool, standing, appended []int) []transcript.Row {
	var rows []transcript.Row
	emit := func(before int) {
		for len(appended) > 0 && appended[0] < before {
			row := in.Live[appended[0]].Row
			if row.Role == memory.RoleSystem {
				row.Role = memory.RoleUser
			}
			rows = append(rows, row)
			appended = appended[1:]
		}
	}
	for i, row := range in.Rows {
		if gone[units[i]] {
			continue
		}
		emit(standing[units[i]])
		rows = append(rows, row)
	}
	emit(len(in.Live))
	return rows
}

// matching is the size of a maximum matching between live messages and rows that
// equal them, found by augmenting paths: the general answer to how many have a row.
func matching(in transcript.JoinInput, volatileOnly bool) int {
	owner := slices.Repeat([]int{-1}, len(in.Rows))
	size := 0
	for i, l := range in.Live {
		if (l.Volatile || !volatileOnly) && augment(in, i, owner, make([]bool, len(in.Rows))) {
			size++
		}
	}
	return size
}

func augment(in transcript.JoinInput, live int, owner []int, seen []bool) bool {
	for j, row := range in.Rows {
		if seen[j] || !transcript.Equal(in.Live[live].Row, row) {
			continue
		}
		seen[j] = true
		if owner[j] < 0 || augment(in, owner[j], owner, seen) {
			owner[j] = live
			return true
		}
	}
	return false
}
