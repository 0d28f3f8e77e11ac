package assembly

import (
	"slices"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// The order of the parts in a message. A refresh stands before what is to be
// answered, also if it came in meanwhile.
const (
	orderFirst  = iota // thinking; results
	orderMiddle        // text of the assistant; summaries, refreshes
	orderLast          // calls; all other words
	orders
)

// compose merges neighbours of one role, for providers refuse them apart, puts
// their parts in order, and adds the notes and what is beside the last input.
func (a *assembler) compose() Prompt {
	p := Prompt{System: a.in.System, Tools: a.in.Tools}
	n, messages := 4, 3
	for i := range a.prompt {
		n += len(a.prompt[i].Parts)
		if i == 0 || isUsers(&a.prompt[i]) != isUsers(&a.prompt[i-1]) {
			messages++
		}
	}
	c := composer{assembler: a, parts: make([]Part, 0, n), messages: make([]Message, 0, messages)}
	if a.in.Recovery >= RecoverKeepFour && c.leftOut() {
		c.note(RecoveryNote, ReasonRecovery)
	} else if len(a.prompt) > 0 && !isUsers(&a.prompt[0]) {
		c.note(openingNote, ReasonOpening)
	}
	for begin := 0; begin < len(a.prompt); {
		end := begin + 1
		for end < len(a.prompt) && isUsers(&a.prompt[end]) == isUsers(&a.prompt[begin]) {
			end++
		}
		c.message(a.prompt[begin:end])
		begin = end
	}
	c.close()
	c.dropThoughts()
	p.Messages = c.messages
	placeBreakpoints(&p, c.inputs(), c.summariesEnd-1)
	return p
}

func isUsers(r *transcript.Row) bool { return r.Role != memory.RoleAssistant }

type composer struct {
	*assembler
	parts    []Part // of all messages
	messages []Message
	// inputAt is the message with the last input; summariesEnd is the number of
	// messages up to the last that holds a summary.
	inputAt, summariesEnd int
	// thinks says that the thoughts of the message in hand go in; calls are those
	// of the message before it that no result in it has answered yet.
	thinks bool
	calls  []Part
	// answerable says that the last message ends with something to answer.
	answerable bool
	besideDone bool
}

// open begins a message, or goes on with the last one if it has the role.
func (c *composer) open(role memory.Role) *Message {
	if n := len(c.messages); n > 0 && c.messages[n-1].Role == role {
		return &c.messages[n-1]
	}
	c.messages = append(c.messages, Message{Role: role})
	return &c.messages[len(c.messages)-1]
}

// add puts a part behind those of a message, which is the last one.
func (c *composer) add(m *Message, p Part) {
	c.parts = append(c.parts, p)
	first := len(c.parts) - 1 - len(m.Parts)
	m.Parts = c.parts[first:len(c.parts):len(c.parts)]
}

func (c *composer) note(text, reason string) {
	cost := c.count(text) + perMessage
	c.entries = append(c.entries, Entry{Kind: KindNote, Role: memory.RoleUser, Tokens: cost, Included: true, Reason: reason})
	c.add(c.open(memory.RoleUser), Part{Type: PartText, Text: text, Tokens: cost, Entry: len(c.entries) - 1})
}

func (c *composer) message(rows []transcript.Row) {
	role := memory.RoleUser
	if !isUsers(&rows[0]) {
		role = memory.RoleAssistant
	}
	m := c.open(role)
	c.answerable, c.thinks = false, c.keepsThoughts(rows)
	c.calls = c.calledBefore()
	for order := range orders {
		for i := range rows {
			r := &rows[i]
			if order == orderLast && r.Origin == c.lastInput && c.beside != "" && !c.besideDone {
				c.addBeside(m)
			}
			for k := range r.Parts {
				if c.order(r, &r.Parts[k]) != order {
					continue
				}
				if part, ok := c.part(r, k); ok {
					c.add(m, part)
					c.answerable = role == memory.RoleUser && order != orderMiddle
				}
			}
		}
	}
	at := len(c.messages) - 1
	if role != memory.RoleUser {
		return
	}
	for i := range rows {
		if c.entries[rows[i].Origin].Kind == KindSummary {
			c.summariesEnd = at + 1
		}
		if rows[i].Origin == c.lastInput {
			c.inputAt = at
		}
	}
}

// inputs returns the messages that begin a turn. A user's words beside results
// may be told in the middle of one; they are the input if the last one is.
func (c *composer) inputs() []int {
	opens := (*Message).saysOnly
	if c.messages[c.inputAt].has(PartResult) {
		opens = (*Message).says
	}
	var inputs []int
	for i := range c.messages {
		if opens(&c.messages[i]) {
			inputs = append(inputs, i)
		}
	}
	return inputs
}

// keepsThoughts reports whether the thoughts of an assistant's message go back to
// the model, should its turn go on. They must be as the model had them, in their
// place before what followed: not those that stood between other parts, and none
// after something before them was cut away.
func (c *composer) keepsThoughts(rows []transcript.Row) bool {
	if len(rows) != 1 || !c.in.hasThoughts() {
		return false
	}
	parts := rows[0].Parts
	for i := 1; i < len(parts); i++ {
		if parts[i].Type == transcript.PartThinking && parts[i-1].Type != transcript.PartThinking {
			return false
		}
	}
	return true
}

// dropThoughts takes the thoughts of earlier turns out: they are done.
func (c *composer) dropThoughts() {
	turn := lastBefore(c.messages, len(c.messages), (*Message).saysOnly)
	for i := range max(turn, 0) {
		if m := &c.messages[i]; m.has(PartThinking) {
			m.Parts = slices.DeleteFunc(m.Parts, func(p Part) bool { return p.Type == PartThinking })
		}
	}
}

// calledBefore returns the calls in the message before the last one.
func (c *composer) calledBefore() []Part {
	if len(c.messages) < 2 {
		return nil
	}
	parts := c.messages[len(c.messages)-2].Parts
	first := len(parts)
	for first > 0 && parts[first-1].Type == PartCall {
		first--
	}
	return parts[first:]
}

// calledName returns the name in the call that a result answers, which is what
// providers want to read in it. The results of a turn are in the order of its
// calls.
func (c *composer) calledName(r *transcript.Row) string {
	if len(c.calls) == 0 {
		return r.ToolName
	}
	call := &c.calls[0]
	c.calls = c.calls[1:]
	if call.ID != r.CallID {
		return r.ToolName
	}
	return call.Name
}

func (c *composer) order(r *transcript.Row, p *transcript.Part) int {
	e := &c.entries[r.Origin]
	isRefresh := e.Kind == KindRefresh || e.Kind == KindLive && e.Source == memory.SourceContextInjection
	switch {
	case r.Role == memory.RoleTool, p.Type == transcript.PartThinking:
		return orderFirst
	case p.Type == transcript.PartCall:
		return orderLast
	case r.Role == memory.RoleAssistant, e.Kind == KindSummary, isRefresh:
		return orderMiddle
	}
	return orderLast
}

// part returns part k of a row as it is in a prompt.
func (c *composer) part(r *transcript.Row, k int) (Part, bool) {
	p := &r.Parts[k]
	out := Part{Text: p.Text, Entry: r.Origin}
	switch {
	case r.Role == memory.RoleTool:
		out.Type, out.ID, out.Name, out.IsError = PartResult, r.CallID, c.calledName(r), r.IsError
	case p.Type == transcript.PartCall:
		out.Type, out.ID, out.Name, out.Raw = PartCall, p.ID, p.Name, p.Raw
	case p.Type == transcript.PartThinking:
		if !c.thinks || r.Origin < c.thinking {
			return Part{}, false
		}
		out.Type, out.Name, out.Raw = PartThinking, p.Name, p.Raw
	case p.Type == transcript.PartOther:
		out.Type, out.Raw = PartOther, p.Raw
	default:
		out.Type = PartText
	}
	out.Tokens = c.share(r, k)
	return out, true
}

// share is what part k costs of its row.
func (c *composer) share(r *transcript.Row, k int) int {
	if len(r.Parts) == 1 {
		return r.Cost
	}
	cost := c.wordsOf(&r.Parts[k])
	if r.Parts[k].Type == transcript.PartCall {
		cost += perCall
	}
	if k == 0 {
		return cost + perMessage
	}
	return cost + perPart
}

func (c *composer) addBeside(m *Message) {
	c.besideDone = true
	for i := range c.entries {
		if c.entries[i].Kind == KindBeside {
			c.add(m, Part{Type: PartText, Text: c.beside, Tokens: c.entries[i].Tokens, Entry: i})
		}
	}
}

// close sees to it that there is something to answer at the end.
func (c *composer) close() {
	if c.beside != "" && !c.besideDone {
		c.addBeside(c.open(memory.RoleUser))
		c.answerable = false
	}
	if !c.answerable {
		c.note(closingNote, ReasonClosing)
		c.inputAt = len(c.messages) - 1
	}
}

// leftOut reports whether recovery left anything out.
func (c *composer) leftOut() bool {
	for i := range c.entries {
		if c.entries[i].Reason == ReasonRecovery {
			return true
		}
	}
	return false
}

func (a *assembler) report(p *Prompt) Report {
	r := Report{Budget: a.in.Budget, Recovery: a.in.Recovery, Rules: ruleNames(a.in.Provider), Entries: a.entries}
	for i := range a.entries {
		e := &a.entries[i]
		switch {
		case e.Kind == KindSystem:
			r.Totals.System = e.Tokens
		case e.Kind == KindTools:
			r.Totals.Tools = e.Tokens
		case e.Reason == ReasonRecovery && e.Kind != KindNote:
			r.Drained++
		}
	}
	for i := range p.Messages {
		for k := range p.Messages[i].Parts {
			part := &p.Messages[i].Parts[k]
			*a.total(&r.Totals, part.Entry) += part.Tokens
		}
	}
	t := r.Totals
	r.Tokens = t.System + t.Tools + t.Summaries + t.Messages + t.Tail + t.Live + t.Beside + t.Notes
	p.Tokens = r.Tokens
	r.OverBudget = r.Tokens > r.Budget
	r.Pressure = pressureOf(a.demand, r.Budget)
	r.Trace = traceOf(*p, t.System, t.Tools)
	r.PrefixReuse = a.in.Previous.reuse(r.Trace)
	return r
}

func ruleNames(provider Provider) []string {
	rules := Rules(provider)
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.Name
	}
	return names
}

// total is the one that an entry's parts count towards.
func (a *assembler) total(t *Totals, entry int) *int {
	switch e := &a.entries[entry]; {
	case e.Kind == KindSummary:
		return &t.Summaries
	case e.Kind == KindLive:
		return &t.Live
	case e.Kind == KindBeside:
		return &t.Beside
	case e.Kind == KindNote:
		return &t.Notes
	case e.Reason == ReasonFreshTail:
		return &t.Tail
	}
	return &t.Messages
}
