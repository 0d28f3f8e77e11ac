package assembly

import (
	"slices"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

var placeholderCost = tokens.Estimate(transcript.PlaceholderText) + perCall + perMessage

// choose leaves out of the stored rows what the budget has no room for.
func (a *assembler) choose() {
	unit := transcript.Units(a.rows)
	keeps := a.protect(unit)

	// What the rows cost when each call has its result.
	costs := make([]int, len(a.rows))
	unitOf := make([]int, len(a.entries)) // the rows of an entry are of one unit
	for i := range a.rows {
		unitOf[a.rows[i].Origin] = unit[i]
	}
	stored := 0
	for _, r := range transcript.Repair(a.rows, placeholderCost) {
		costs[unitOf[r.Origin]] += r.Cost
		stored += r.Cost
	}

	for i := range a.entries {
		if k := a.entries[i].Kind; k == KindSystem || k == KindTools || k == KindBeside {
			a.fixed += a.entries[i].Tokens
		}
	}
	a.demand = a.fixed + stored + a.older
	for i := range a.live {
		if a.live[i].Volatile {
			a.demand += a.live[i].Cost
		}
	}

	out := make([]bool, len(a.rows)) // of units
	budget := max(a.in.Budget, 0)    // less is nothing too, and might not be subtracted
	excess := a.fixed + a.reserve + stored - budget
	leave := func(u int) {
		out[u] = true
		excess -= costs[u]
	}
	// One large piece is no reason to leave out everything that is older.
	for u := 0; u < len(a.rows) && excess > 0; u++ {
		if unit[u] == u && !keeps[u] && costs[u] > budget/2 {
			leave(u)
		}
	}
	// What leaves in large steps changes the beginning seldom. The steps are of
	// places in the whole frontier, by the counts of the store, so that they are
	// the same however much of it is here.
	step, upTo := max(budget/4, 1), 0
	if a.older > 0 && excess+a.older > 0 {
		upTo = (a.older + step - 1) / step * step
	}
	places := a.places()
	for u := range a.rows {
		if unit[u] != u || keeps[u] || out[u] {
			continue
		}
		if place := places[a.rows[u].Origin-a.firstItem]; place >= upTo {
			if excess <= 0 {
				break
			}
			upTo = (place/step + 1) * step
		}
		leave(u)
	}
	a.leave(unit, keeps, out)
}

// places returns how many tokens of the frontier stand before each item, counted
// as Older is.
func (a *assembler) places() []int {
	places := make([]int, len(a.in.Items))
	place := a.older
	for i := range a.in.Items {
		places[i] = place
		place += a.in.Items[i].Tokens() + perMessage
	}
	return places
}

// leave takes the rows of the units out and says why the others are in.
func (a *assembler) leave(unit []int, keeps, out []bool) {
	a.tail = make([]bool, 0, len(a.rows))
	kept := a.rows[:0:0]
	if slices.Contains(out, true) {
		kept = make([]transcript.Row, 0, len(a.rows))
	}
	for i := range a.rows {
		u, e := unit[i], &a.entries[a.rows[i].Origin]
		switch {
		case out[u]:
			e.Reason = ReasonNoRoom
			continue
		case keeps[u]:
			e.Reason = ReasonFreshTail
		default:
			e.Reason = ReasonFits
		}
		a.tail = append(a.tail, keeps[u])
		if cap(kept) > 0 {
			kept = append(kept, a.rows[i])
		}
	}
	if len(a.tail) < len(a.rows) {
		a.rows = kept
	}
}

// protect tells which units go in whatever they cost: the last messages, the last
// input of the user, and the other half of what live messages bring. What was
// refused as too long has no last messages but the input and the round of tools
// that goes on.
func (a *assembler) protect(unit []int) []bool {
	keeps := make([]bool, len(a.rows))
	tail := a.in.FreshTail
	if tail <= 0 {
		tail = defaultFreshTail
	}
	if a.in.Recovery > RecoverNothing {
		tail = 0
	}
	input, answered := false, false
	for i := len(a.rows) - 1; i >= 0; i-- {
		r := &a.rows[i]
		e := &a.entries[r.Origin]
		if e.Kind == KindSummary {
			continue
		}
		running := !answered && a.lastInput < 0
		switch {
		case r.Role == memory.RoleAssistant && !slices.ContainsFunc(r.Parts, isCall):
			if !answered {
				a.lastAnswer = r.Origin
			}
			answered = true
		case !a.isInput(r):
		case running:
			a.lastInput = r.Origin
			keeps[unit[i]] = true
			fallthrough
		default:
			if !input && (e.Source == memory.SourceUser || e.Source == memory.SourceUnknown && e.Role == memory.RoleUser) {
				input = true
				keeps[unit[i]] = true
			}
		}
		if tail > 0 || a.in.Recovery > RecoverNothing && running && r.Origin >= a.lastRound {
			keeps[unit[i]] = true
		}
		if e.Kind == KindMessage && !r.Continues {
			tail--
		}
	}
	a.findMissed()
	for entry, row := range a.same {
		keeps[unit[row]] = true
		a.same[entry] = a.rows[row].Origin
	}
	brought := map[string]bool{}
	for i := range a.live {
		l := &a.live[i]
		if !l.Volatile {
			continue
		}
		if a.isInput(&l.Row) && (a.lastInput < 0 || a.lastInput >= a.firstLive) {
			a.lastInput = l.Origin
		}
		if l.Role == memory.RoleTool {
			brought[l.CallID] = true
		}
		for _, p := range l.Parts {
			if isCall(p) {
				brought[p.ID] = true
			}
		}
	}
	if len(brought) > 0 {
		for i := range a.rows {
			r := &a.rows[i]
			if r.Role == memory.RoleTool && brought[r.CallID] || slices.ContainsFunc(r.Parts, func(p transcript.Part) bool { return isCall(p) && brought[p.ID] }) {
				keeps[unit[i]] = true
			}
		}
	}
	return keeps
}

func isCall(p transcript.Part) bool { return p.Type == transcript.PartCall }

// isInput reports whether a row is something to answer: not a summary, not a
// refresh, not a tool's words.
func (a *assembler) isInput(r *transcript.Row) bool {
	e := &a.entries[r.Origin]
	isResult := r.ToolName != "" // one that became words
	return (r.Role == memory.RoleUser || r.Role == memory.RoleSystem) && e.Role != memory.RoleTool && !isResult &&
		(e.Kind == KindMessage || e.Kind == KindLive && e.Source != memory.SourceContextInjection)
}

// findMissed takes the user's last live message for one that is not stored if,
// without it, nothing would be left to answer: a caller may be wrong about what is
// stored, and an input must not be lost for it.
func (a *assembler) findMissed() {
	if a.lastInput >= 0 || slices.ContainsFunc(a.live, func(l transcript.Live) bool { return l.Volatile && a.isInput(&l.Row) }) {
		return
	}
	for i := len(a.live) - 1; i >= 0 && a.live[i].Role != memory.RoleAssistant; i-- {
		l := &a.live[i]
		hasResults := l.Continues
		if m := &a.in.Live[l.Origin-a.firstLive]; a.isInput(&l.Row) && !hasResults && m.Persisted && m.Turn == a.in.Turn {
			l.Volatile, a.missed = true, l.Origin
			return
		}
	}
}

// joinSteadily evicts for live messages in a turn that calls tools. Each round
// makes it longer and moves its last messages; were just enough evicted each time,
// it would be something else each time, and the prompt's beginning another one. So
// the turn counts in steps, and what was there when it began is what is chosen
// from. It reports false if the turn has no rounds yet, or if that is not enough.
func (a *assembler) joinSteadily(in transcript.JoinInput) (transcript.Joined, bool) {
	begin := a.lastAnswer
	if a.lastInput < a.firstLive {
		begin = max(begin, a.lastInput)
	}
	first := len(a.rows) // of the rounds
	for first > 0 && a.rows[first-1].Origin > begin {
		first--
	}
	if first == len(a.rows) {
		return transcript.Joined{}, false
	}
	rounds := 0
	for i := first; i < len(a.rows); i++ {
		rounds += a.rows[i].Cost
		in.Protected = append(in.Protected, i)
	}
	tail := a.in.FreshTail
	if tail <= 0 {
		tail = defaultFreshTail
	}
	for i := first - 1; i >= 0 && tail > 0; i-- {
		if e := &a.entries[a.rows[i].Origin]; e.Kind == KindMessage && !a.rows[i].Continues {
			tail--
		}
		in.Protected = append(in.Protected, i)
	}
	budget, step := in.Budget, max(a.in.Budget/8, 1)
	in.Budget -= (rounds+step-1)/step*step - rounds
	joined := transcript.Join(in)
	return joined, joined.Cost <= budget
}

// join adds the live messages and pairs calls and results.
func (a *assembler) join() {
	in := transcript.JoinInput{
		Rows: a.rows, Live: a.live, Budget: max(a.in.Budget, 0) - a.fixed - a.reserve, PlaceholderCost: placeholderCost,
	}
	protected := make([]int, 0, 2*len(a.rows))
	for i := range a.rows {
		if a.tail[i] {
			protected = append(protected, i)
		}
		in.RowsCost += a.rows[i].Cost
		if a.in.Turn != "" && a.missed == 0 && a.rows[i].Origin <= a.lastAnswer {
			in.CoverFrom = i + 1
		}
	}
	in.Protected = protected
	joined := transcript.Join(in)
	if len(joined.Evicted) > 0 {
		if steady, ok := a.joinSteadily(in); ok {
			joined = steady
		}
	}
	for _, i := range joined.Evicted {
		a.entries[a.rows[i].Origin].Reason = ReasonEvicted
	}
	for i := range a.live {
		l := &a.live[i]
		e := &a.entries[l.Origin]
		same, isSame := a.same[l.Origin]
		switch row := joined.CoveredBy[i]; {
		case isSame:
			e.Reason, e.CoveredBy = ReasonCovered, same
		case row >= 0 && l.Volatile:
			e.Reason, e.CoveredBy = ReasonCovered, a.rows[row].Origin
			if a.lastInput == l.Origin {
				a.lastInput = a.rows[row].Origin
			}
		case row >= 0 && e.Reason == ReasonElsewhere:
			e.Reason, e.CoveredBy = ReasonPersisted, a.rows[row].Origin
		case l.Volatile && l.Origin == a.missed:
			e.Reason = ReasonMissed
		case l.Volatile:
			e.Reason = ReasonLive
		}
	}
	a.prompt = transcript.Repair(joined.Rows, placeholderCost)
	for i := range a.prompt {
		a.entries[a.prompt[i].Origin].Included = true
	}
	for i := range a.live {
		// Of a message with several results some may be covered.
		if e := &a.entries[a.live[i].Origin]; e.Included && e.CoveredBy > 0 {
			e.CoveredBy, e.Reason = 0, ReasonLive
		}
	}
}
