package assembly

// Facts about Anthropic's cache, which is the one that wants breakpoints
// (platform.claude.com/docs/en/build-with-claude/prompt-caching, read 2026-11):
// a request has at most four; an entry is written only at a breakpoint; for each
// breakpoint the cache looks for an entry at 20 positions, the breakpoint's own
// and the 19 blocks before it. On Anthropic's own API neighbouring calls, and
// neighbouring results, are one position; elsewhere nobody promises that, so each
// counts here.
const (
	maxBreakpoints = 4
	lookback       = 20
)

// placeBreakpoints says where a provider shall keep its work. Inputs are the
// indices of the messages with an input of the user's, ascending; summariesEnd
// is that of the message that ends the summaries, -1 if there are none.
//
// The message with the last input also holds what is another in every turn, so
// that what the next turn finds again ends before it. From there the cache looks
// back for what the prompt before left; if that is too far, for a turn with many
// calls stands between, it is told the place. Within a turn, each round of calls
// appends to the one before.
func placeBreakpoints(p *Prompt, inputs []int, summariesEnd int) {
	free := maxBreakpoints
	if p.CacheSystem = p.System != "" || len(p.Tools) > 0; p.CacheSystem {
		free--
	}
	for i := range p.Messages {
		p.Messages[i].Breakpoint = false
	}
	mark := func(i int) {
		if i >= 0 && free > 0 && !p.Messages[i].Breakpoint {
			p.Messages[i].Breakpoint = true
			free--
		}
	}
	last := len(p.Messages) - 1
	if len(inputs) == 0 {
		// Nothing in it is known to change.
		mark(breakable(p.Messages, last))
		mark(breakable(p.Messages, min(summariesEnd, last)))
		return
	}
	input := inputs[len(inputs)-1]
	stays := breakable(p.Messages, input-1)
	mark(stays)
	if last > input {
		// In a round of calls, the round before has read what stays, and has
		// written up to its own end.
		end := breakable(p.Messages, last)
		mark(end)
		if before := breakable(p.Messages, last-2); before > input && blocksBetween(p.Messages, before, end) >= lookback {
			mark(before)
		}
	} else if before := breakable(p.Messages, inputBefore(inputs)-1); before >= 0 && blocksBetween(p.Messages, before, stays) >= lookback {
		mark(before)
	}
	if summariesEnd < input {
		mark(breakable(p.Messages, summariesEnd))
	}
}

// inputBefore returns the message with an input before that with the last one,
// or -1: a user may say two things at once.
func inputBefore(inputs []int) int {
	for i := len(inputs) - 2; i >= 0; i-- {
		if inputs[i] < inputs[len(inputs)-1] {
			return inputs[i]
		}
	}
	return -1
}

// breakable returns the last message up to i that may have a breakpoint, or -1.
func breakable(messages []Message, i int) int {
	return lastBefore(messages, i+1, (*Message).holdsBreakpoint)
}

// blocksBetween returns how many blocks further the end of message to is than
// that of message from.
func blocksBetween(messages []Message, from, to int) int {
	n := 0
	for i := from + 1; i <= to; i++ {
		n += len(messages[i].Parts)
	}
	return n
}
