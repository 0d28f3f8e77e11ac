package assembly

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/memory"
)

// Recovery is how far a prompt is cut down because it was refused as too long.
// Each stage goes further than the one before; nothing of it touches the store.
//
// What a stage keeps goes in as far as there is room, the newest first. Whatever
// the room, only the last input goes in and, while its answer calls tools, the
// last round of that: a message that is too big must not keep those after it
// from being answered.
type Recovery int

// The stages.
const (
	// RecoverNothing is an ordinary prompt.
	RecoverNothing Recovery = iota
	// RecoverKeepTen keeps the summaries and the last 10 stored messages; more,
	// where a tool's call and result would part.
	RecoverKeepTen
	// RecoverKeepFour keeps the last 4, no summary, and a note that says so.
	RecoverKeepFour
	// RecoverShorten shortens the results of tools too, but those of the last
	// round while its turn goes on.
	RecoverShorten
)

// String names the stage in words.
func (r Recovery) String() string {
	switch r {
	case RecoverNothing:
		return "nothing left out"
	case RecoverKeepTen:
		return "summaries and last 10 messages"
	case RecoverKeepFour:
		return "last 4 messages"
	case RecoverShorten:
		return "last 4 messages, tool results shortened"
	}
	return fmt.Sprintf("stage %d", int(r))
}

// ReasonRecovery is that of what a stage of Recovery leaves out.
const ReasonRecovery = "left out to make the prompt shorter"

// RecoveryNote stands first in a prompt that RecoverKeepFour or a later stage
// left something out of, so that the model does not take the conversation for
// new.
const RecoveryNote = "[Earlier messages are left out here because the conversation is too long. They are stored: ask memory_search or memory_expand.]"

// shortResult is what RecoverShorten leaves of a tool's result: tokens of the
// tool's words, not counting the frame nor what an encoding adds.
const shortResult = 128

// leavesOut tells for each item whether the stage leaves it out, whatever room
// there is: what stands before the last messages, but neither the other half of
// a tool's call or result among those, nor the last input, nor the last one of a
// person. It takes linear time.
func (r Recovery) leavesOut(items []memory.Item) []bool {
	out := make([]bool, len(items))
	keep := 4
	switch {
	case r <= RecoverNothing:
		return out
	case r == RecoverKeepTen:
		keep = 10
	}
	units := unitsOf(items)
	stays := make([]bool, len(items)) // by unit
	input, users := false, false
	for i := len(items) - 1; i >= 0; i-- {
		m := items[i].Message
		if m == nil {
			continue
		}
		last := isInput(m) && (!input || !users && m.IsUsers())
		input = input || last
		users = users || last && m.IsUsers()
		if keep > 0 || last {
			stays[units.find(i)] = true
		}
		keep--
	}
	for i, item := range items {
		switch {
		case item.Message != nil:
			out[i] = !stays[units.find(i)]
		case item.Summary != nil:
			out[i] = r > RecoverKeepTen
		}
	}
	return out
}

// roundUnderWay returns the index of the assistant's last message with calls;
// len(items) if there is none, or if its turn is over because an answer or an
// input came after it.
func roundUnderWay(items []memory.Item) int {
	for i := len(items) - 1; i >= 0; i-- {
		switch m := items[i].Message; {
		case m == nil:
		case m.Role == memory.RoleAssistant && holdsCall(m.Blocks):
			return i
		case m.IsAnswer(), isInput(m):
			return len(items)
		}
	}
	return len(items)
}

// isInput reports whether the assistant is to answer m, whoever says it.
func isInput(m *memory.Message) bool {
	return (m.Role == memory.RoleUser || m.Role == memory.RoleSystem) && !m.IsRefresh() && slices.ContainsFunc(m.Blocks, isWords)
}

func isWords(b memory.Block) bool {
	switch b.Type {
	case memory.BlockToolResult, memory.BlockThinking:
		return false
	case memory.BlockText:
		return !isBlank(b.Text)
	case memory.BlockExternal:
		return !b.External.IsEmpty()
	}
	return true
}

// itemUnits tells which items stay or go together: a tool's result and its call,
// whatever stands between them and whichever comes first. Each item leads to
// another of its unit, or to itself.
type itemUnits []int

func unitsOf(items []memory.Item) itemUnits {
	u := make(itemUnits, len(items))
	for i := range u {
		u[i] = i
	}
	for _, p := range memory.Pairs(items) {
		if p.Call >= 0 && items[p.Call].Message != nil {
			u[u.find(p.Result)] = u.find(p.Call)
		}
	}
	return u
}

// find returns the item that stands for the unit of item i.
func (u itemUnits) find(i int) int {
	for u[i] != i {
		u[i] = u[u[i]] // halves the way of the next who asks
		i = u[i]
	}
	return i
}

// OverflowDrained returns the indices of the items, messages and summaries, that
// the stage in.Recovery leaves out and the one before it does not: what is lost
// to the model when an overflow comes that far. What has no room in the budget
// is another matter, and not in it. It takes linear time.
func OverflowDrained(in Input) []int {
	before := (in.Recovery - 1).leavesOut(in.Items)
	var drained []int
	for i, out := range in.Recovery.leavesOut(in.Items) {
		if out && !before[i] {
			drained = append(drained, i)
		}
	}
	return drained
}

// OverflowDrainCount returns how many messages are in OverflowDrained.
func OverflowDrainCount(in Input) int {
	n := 0
	for _, i := range OverflowDrained(in) {
		if in.Items[i].Message != nil {
			n++
		}
	}
	return n
}

// TooLargeError says that a prompt is too long though all that may go has been
// left out.
type TooLargeError struct {
	// Budget is what the prompt may cost and Tokens what it does. Tokens is
	// within Budget where the model's server counts otherwise.
	Budget, Tokens int
	// Largest are the pieces that cost most of it, the largest first; at most 3.
	Largest []Entry
}

const maxLargest = 3

// TooLarge returns the *TooLargeError of a prompt that cannot be made shorter.
func (r Report) TooLarge() error {
	var largest []Entry
	for _, e := range r.Entries {
		if e.Included && e.Tokens > 0 {
			largest = append(largest, e)
		}
	}
	slices.SortStableFunc(largest, func(a, b Entry) int { return cmp.Compare(b.Tokens, a.Tokens) })
	return &TooLargeError{Budget: r.Budget, Tokens: r.Tokens, Largest: slices.Clip(largest[:min(len(largest), maxLargest)])}
}

// Error says what is too big and what to do. It quotes nothing of the
// conversation.
func (e *TooLargeError) Error() string {
	var b strings.Builder
	if e.Tokens > e.Budget {
		fmt.Fprintf(&b, "the prompt costs %d tokens at the least, and %d are to be had", e.Tokens, e.Budget)
	} else {
		fmt.Fprintf(&b, "the model's server takes no prompt of %d tokens, though %d should be to be had", e.Tokens, e.Budget)
	}
	if len(e.Largest) > 0 {
		b.WriteString("; most of it is ")
		for i, piece := range e.Largest {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(piece.name())
		}
	}
	b.WriteString(": ")
	b.WriteString(e.remedy())
	return b.String()
}

// remedy says what can be done about it.
func (e *TooLargeError) remedy() string {
	shorter := "send a shorter message"
	if len(e.Largest) > 0 {
		switch e.Largest[0].Kind {
		case KindSystem:
			shorter = "give the agent a shorter system prompt"
		case KindTools:
			shorter = "offer fewer tools"
		}
	}
	if e.Tokens > e.Budget {
		return shorter + ", or set a larger context_window or a lower max_output_tokens for the model"
	}
	return shorter + ", or set context_window to what the server really takes"
}

// name says which piece it is.
func (e Entry) name() string {
	var b strings.Builder
	switch e.Kind {
	case KindSystem:
		b.WriteString("the system text")
	case KindTools:
		b.WriteString("the tools")
	case KindBeside:
		b.WriteString("what goes beside the last input")
	default:
		b.WriteString("a " + string(e.Kind))
		if e.Kind == KindLive {
			b.WriteString(" message")
		}
		if e.Role != "" {
			b.WriteString(" of role " + string(e.Role))
		}
	}
	if !e.At.IsZero() {
		b.WriteString(" of " + e.At.UTC().Format(time.RFC3339))
	}
	if e.ID != uuid.Nil {
		b.WriteString(" (" + e.ID.String() + ")")
	}
	fmt.Fprintf(&b, " with %d tokens", e.Tokens)
	return b.String()
}
