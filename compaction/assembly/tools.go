package assembly

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

// pairTools takes tool calls and their results out of the texts where a provider
// would accept them, and leaves everything else as text, so that nothing that
// was said is lost and no prompt is refused.
//
// Providers want the results of all calls of one message directly after it, one
// for each. What may stand between them here is only what is told to the
// assistant, such as a context refresh, for merge puts that into the same
// message, behind the results. So the group of a message with calls ends where
// the assistant speaks again, and it is taken as a whole or not at all: if each
// call has exactly one result in it and nothing in it is a result of another
// call. An id that a group before it has makes it text as well. It takes linear
// time.
func pairTools(pieces []piece) {
	var g group
	taken := map[string]bool{}
	for i := range pieces {
		p := &pieces[i]
		switch {
		case p.empty:
		case p.role == memory.RoleAssistant:
			g.close(pieces, taken)
			g = openGroup(i, p, taken)
		case len(p.results) > 0:
			g.answer(i, p)
		}
	}
	g.close(pieces, taken)
}

// group is a message with tool calls and what answers it.
type group struct {
	caller  int
	waiting map[string]bool // the ids of calls without a result yet; nil: no group
	answers []int
}

func openGroup(i int, p *piece, taken map[string]bool) group {
	if len(p.calls) == 0 {
		return group{}
	}
	g := group{caller: i, waiting: map[string]bool{}}
	for _, b := range p.blocks {
		switch {
		case b.Type == memory.BlockToolResult:
			return group{} // nobody answers himself
		case b.Type != memory.BlockToolCall:
		case !isCallable(b) || g.waiting[b.ID] || taken[b.ID]:
			return group{}
		default:
			g.waiting[b.ID] = true
		}
	}
	return g
}

func (g *group) answer(i int, p *piece) {
	for _, id := range p.results {
		if !g.waiting[id] {
			*g = group{}
			return
		}
		delete(g.waiting, id)
	}
	if len(p.calls) > 0 {
		*g = group{}
		return
	}
	g.answers = append(g.answers, i)
}

// close ends the group and, if it is whole, takes it out of the texts.
func (g *group) close(pieces []piece, taken map[string]bool) {
	if g.waiting == nil || len(g.waiting) > 0 {
		return
	}
	for _, id := range pieces[g.caller].calls {
		taken[id] = true
	}
	pieces[g.caller].split()
	for _, i := range g.answers {
		pieces[i].split()
		pieces[i].caller = g.caller
	}
}

// isCallable reports whether providers take a call as it is.
func isCallable(b memory.Block) bool {
	input := bytes.TrimLeft(b.Input, " \t\r\n")
	return isName(b.ID, "_-.:") && isName(b.Name, "_-") && len(input) > 0 && input[0] == '{' && json.Valid(input)
}

func isName(s, extra string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte(extra, c) < 0:
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// split takes the calls and results of a piece out of its text and counts it
// anew.
func (p *piece) split() {
	var rest []memory.Block
	cost := 0
	for _, b := range p.blocks {
		switch b.Type {
		case memory.BlockToolCall:
			p.toolCalls = append(p.toolCalls, Part{Type: PartCall, ID: b.ID, Name: b.Name, Raw: b.Input})
			cost += tokens.Estimate(b.ID) + tokens.Estimate(b.Name) + tokens.Estimate(string(b.Input)) + perMessage
		case memory.BlockToolResult:
			r := Part{Type: PartResult, ID: b.ID, Name: b.Name, Text: resultText(b), IsError: b.IsError}
			p.toolResults = append(p.toolResults, r)
			cost += tokens.Estimate(r.ID) + tokens.Estimate(r.Text) + perMessage
		default:
			rest = append(rest, b)
		}
	}
	p.text = memory.Shown(rest)
	p.entry.Tokens = tokens.Estimate(p.text) + cost
	p.cost = p.entry.Tokens + perMessage
}

func resultText(b memory.Block) string {
	text := b.External.Render()
	switch {
	case b.IsError && text == "":
		return "[the tool failed]"
	case b.IsError:
		return "[the tool failed]\n" + text
	case text == "":
		return "[the tool returned nothing]"
	}
	return text
}
