package compaction

import (
	"cmp"
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// The shape of passes.
const (
	// maxRunTokens bounds what one leaf stands for, and one condensed summary, if
	// the summarizer can read as much.
	maxRunTokens = 20_000
	// minRunTokens is the least that a run has before it is ended for its size.
	minRunTokens = 1000
	// minWorth is the least that a run costs for a summary, of which the
	// heading alone costs some 60 tokens, to be smaller.
	minWorth = 2 * minSummaryTokens
	// minLeaves and minCondensed are how many summaries of depth 0, or of a
	// greater one, stand in a row before they are condensed; minPressed is
	// how many under pressure.
	minLeaves, minCondensed, minPressed = 8, 4, 2
	// maxPairSpan is how far behind its call a tool's result is still held
	// together with it: a transcript whose results come back after thousands
	// of messages must not keep all of them from being summarised.
	maxPairSpan = 256
)

// work is one run of neighbours in a frontier which one summary shall stand
// for: messages, or summaries of one depth.
type work struct {
	messages  []memory.Message
	summaries []memory.Summary
	// previous is the summary that stands before it, if one does.
	previous *memory.Summary
	tokens   int
}

// depth is that of the summary to be made.
func (w work) depth() int {
	if len(w.summaries) == 0 {
		return 0
	}
	return w.summaries[0].Depth + 1
}

// descendants is how many messages it stands for.
func (w work) descendants() int {
	n := len(w.messages)
	for _, s := range w.summaries {
		n += s.Descendants
	}
	return n
}

// cuts tells for every index whether the items before it may be parted from
// those from it on: not between a tool's call and its result, whatever stands
// between them. A result without a call holds nothing.
func cuts(items []memory.Item) []bool {
	// opened[i] is how many pairs hold the cut before i and not the one before.
	opened := make([]int, len(items)+1)
	for _, p := range memory.Pairs(items) {
		if p.Call >= 0 && p.Call < p.Result && p.Result-p.Call <= maxPairSpan {
			opened[p.Call+1]++
			opened[p.Result+1]--
		}
	}
	free := make([]bool, len(items)+1)
	held := 0
	for i := range free {
		held += opened[i]
		free[i] = held == 0
	}
	return free
}

// freshTail returns the index from which on the items stay as they are: the last
// messages, refreshes not counted, until keep of them or a summary is reached,
// or keepTokens would be passed by more than the first atLeast. Zero keepTokens
// bounds nothing.
func freshTail(items []memory.Item, free []bool, keep, keepTokens, atLeast int) int {
	start, kept, cost := len(items), 0, 0
	for start > 0 && kept < keep {
		m := items[start-1].Message
		if m == nil {
			break
		}
		if cost += m.Tokens; keepTokens > 0 && cost > keepTokens && kept >= atLeast {
			break
		}
		if !m.IsRefresh() {
			kept++
		}
		start--
	}
	for start > 0 && !free[start] {
		start--
	}
	return start
}

// newestRefresh returns the index of the last context refresh, or -1.
func newestRefresh(items []memory.Item) int {
	for i := len(items) - 1; i >= 0; i-- {
		if m := items[i].Message; m != nil && m.IsRefresh() {
			return i
		}
	}
	return -1
}

// leaves returns the runs of messages before end, oldest first, each of about most
// tokens. The newest
// refresh stays as it is: it parts two runs, and is never in one.
func leaves(items []memory.Item, free []bool, end, most int) []work {
	pinned := newestRefresh(items)
	var runs []work
	for first := 0; first < end; {
		stop := first
		for stop < end && items[stop].Message != nil && stop != pinned {
			stop++
		}
		for start := first; start < stop; {
			w, next := leaf(items, free, start, stop, most)
			if len(w.messages) > 0 {
				runs = append(runs, w)
			}
			start = next
		}
		first = stop + 1
	}
	return runs
}

// leaf returns the first run of the messages from start to before stop, and
// where the next one begins. It is empty if nothing from start on can be
// parted from what is before it.
func leaf(items []memory.Item, free []bool, start, stop, most int) (w work, next int) {
	if !free[start] {
		return work{}, start + 1
	}
	end, cost := start, 0
	for i := start; i < stop; i++ {
		cost += items[i].Message.Tokens
		// A run that is small goes on: alone, it could not be made smaller.
		if w.tokens >= minRunTokens && cost > most {
			break
		}
		if free[i+1] {
			end, w.tokens = i+1, cost
		}
	}
	for _, item := range items[start:end] {
		w.messages = append(w.messages, *item.Message)
	}
	if start > 0 {
		w.previous = items[start-1].Summary
	}
	return w, max(end, start+1)
}

// condensable returns the runs of summaries that may be condensed, the
// shallowest first and of those the oldest; pressed means as few as two. A run
// that has a summary which was cut down waits until that is repaired, unless cut
// is true, so that nothing of it is missed. It waits until it is twice as long as
// others are: some texts no model summarises, and a frontier must not grow for
// ever.
func condensable(items []memory.Item, pressed, cut bool, most int) []work {
	var found []work
	for i := 0; i < len(items); {
		if items[i].Summary == nil {
			i++
			continue
		}
		w, depth := work{}, items[i].Summary.Depth
		if i > 0 {
			w.previous = items[i-1].Summary
		}
		sound, full := true, false
		for ; i < len(items) && items[i].Summary != nil && items[i].Summary.Depth == depth; i++ {
			s := *items[i].Summary
			if full = len(w.summaries) >= minPressed && w.tokens+s.Tokens > most; full {
				break
			}
			w.summaries = append(w.summaries, s)
			w.tokens += s.Tokens
			sound = sound && s.Level != memory.LevelFallback
		}
		enough := full || len(w.summaries) >= least(depth) || pressed && len(w.summaries) >= minPressed
		if enough && (sound || cut || len(w.summaries) >= 2*least(depth)) {
			found = append(found, w)
		}
	}
	slices.SortStableFunc(found, func(a, b work) int { return cmp.Compare(a.depth(), b.depth()) })
	return found
}

// least is how many summaries of a depth stand in a row before they are
// condensed.
func least(depth int) int {
	if depth == 0 {
		return minLeaves
	}
	return minCondensed
}
