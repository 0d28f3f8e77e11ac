package assembly_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// talk is a conversation that goes on, and the prompts that it made.
type talk struct {
	t     *rapid.T
	items []memory.Item
	live  []assembly.Live
	at    time.Time
	turn  int
	calls int
	trace assembly.Trace
}

func (k *talk) put(role memory.Role, source memory.Source, blocks ...memory.Block) {
	k.at = k.at.Add(time.Second)
	k.items = append(k.items, memory.Item{Message: &memory.Message{
		ID: memory.NewID[memory.MessageID](), Seq: int64(len(k.items) + 1), Role: role, Source: source, Blocks: blocks, Tokens: memory.Count(blocks), At: k.at,
	}})
}

func (k *talk) words(what string) memory.Block {
	return memory.Text(what + " " + rapid.StringMatching(`[a-z]{1,8}( [a-z]{1,8}){0,6}`).Draw(k.t, what))
}

func (k *talk) outside(source boundary.Source, err error) boundary.Content {
	if err != nil {
		k.t.Fatal(err)
	}
	c, _ := boundary.Wrap(source, rapid.StringMatching(`[a-z ]{0,30}`).Draw(k.t, "from outside")+".", boundary.Unlimited)
	return c
}

// prompt assembles with what is another in every turn, and much room.
func (k *talk) prompt() assembly.Prompt {
	p, report, err := assembly.Assemble(assembly.Input{
		System: "Be brief.", Tools: []assembly.Tool{{Name: "grep", Parameters: json.RawMessage(`{"type":"object"}`)}},
		Items: k.items, Live: k.live, Turn: fmt.Sprint(k.turn), Beside: []memory.Block{memory.Text(fmt.Sprintf("[Now: turn %d]", k.turn))},
		Budget: 1_000_000, Previous: k.trace,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.trace = report.Trace
	stays := 0
	for _, b := range sent(p) {
		stays += b.tokens
	}
	if report.PrefixReuse.Of < stays {
		k.t.Fatalf("the report is of %d tokens, the messages cost %d", report.PrefixReuse.Of, stays)
	}
	if !strings.Contains(p.Messages[input(k.t, p, report)].Text(), fmt.Sprintf("[Now: turn %d]", k.turn)) {
		k.t.Fatalf("what changes with the turn is not beside the last input")
	}
	return p
}

// piece is a part as a provider is sent it.
type piece struct {
	words  string
	tokens int
}

// sent returns the messages as a provider reads them, one after the other.
func sent(p assembly.Prompt) (all []piece) {
	for i, m := range p.Messages {
		for _, part := range m.Parts {
			tokens := part.Tokens
			part.Entry, part.Tokens = 0, 0
			words, err := json.Marshal(part)
			if err != nil {
				panic(err)
			}
			all = append(all, piece{fmt.Sprintf("%d %s %s", i, m.Role, words), tokens})
		}
	}
	return all
}

// input returns the index of the message with the last input of the user.
func input(t *rapid.T, p assembly.Prompt, r assembly.Report) int {
	for i := len(p.Messages) - 1; i >= 0; i-- {
		for _, part := range p.Messages[i].Parts {
			if e := r.Entries[part.Entry]; e.Kind == assembly.KindMessage && e.Source == memory.SourceUser {
				return i
			}
		}
	}
	t.Fatal("the last input is not in the prompt")
	return 0
}

// stays is the prompt up to the message with the last input.
func (k *talk) stays(p assembly.Prompt) assembly.Prompt {
	for i, m := range p.Messages {
		if strings.Contains(m.Text(), fmt.Sprintf("[Now: turn %d]", k.turn)) {
			p.Messages = p.Messages[:i]
			break
		}
	}
	return p
}

// begins fails if now does not begin with before, byte for byte.
func begins(t *rapid.T, now, before assembly.Prompt) {
	if now.System != before.System || fmt.Sprint(now.Tools) != fmt.Sprint(before.Tools) {
		t.Fatalf("system text or tools are others")
	}
	a, b := sent(now), sent(before)
	for i := range b {
		if i == len(a) || a[i] != b[i] {
			t.Fatalf("part %d was\n%v, now the prompt is\n%v", i, b[i], a)
		}
	}
}

// A4, invariant 8: between two compactions a prompt up to the message with the
// last input is the beginning of the next prompt, and a round of calls appends to
// the one before.
func TestThePrefixStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &talk{t: t, at: time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)}
		for range rapid.IntRange(0, 3).Draw(t, "summaries") {
			k.summary()
		}
		var before *assembly.Prompt
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			k.turn++
			k.live = nil
			if rapid.IntRange(0, 3).Draw(t, "refresh") == 0 {
				k.put(memory.RoleUser, memory.SourceContextInjection, memory.Text("[Context refresh]"), memory.External(k.outside(boundary.HandSource("calendar"))))
			}
			for range rapid.IntRange(1, 2).Draw(t, "inputs") {
				k.put(memory.RoleUser, memory.SourceUser, k.words("asked"))
			}
			if rapid.IntRange(0, 3).Draw(t, "live") == 0 {
				k.live = append(k.live, assembly.Live{Role: memory.RoleUser, Source: memory.SourceTaskCompletion, Blocks: []memory.Block{k.words("told")}, Turn: fmt.Sprint(k.turn)})
			}
			now := k.prompt()
			if before != nil {
				begins(t, now, *before)
			}
			for range rapid.IntRange(0, 3).Draw(t, "rounds") {
				k.round()
				next := k.prompt()
				// What is not stored stays where it was put.
				if len(k.live) == 0 {
					begins(t, next, now)
				}
				begins(t, next, k.stays(now))
				now = next
			}
			stays := k.stays(now)
			before = &stays
			if rapid.IntRange(0, 9).Draw(t, "answered") > 0 {
				k.put(memory.RoleAssistant, memory.SourceAssistant, k.words("answered"))
			}
		}
	})
}

func (k *talk) summary() {
	s := &memory.Summary{ID: memory.NewID[memory.SummaryID](), Text: k.words("summary").Text, Earliest: k.at, Latest: k.at, Descendants: 5}
	s.Tokens = memory.Count([]memory.Block{memory.Text(s.Shown())})
	k.items = append(k.items, memory.Item{Summary: s})
}

// round lets the assistant call tools; some say something first, and some calls
// get no answer.
func (k *talk) round() {
	var asked, got []memory.Block
	if rapid.IntRange(0, 3).Draw(k.t, "thinks") == 0 {
		var thought memory.Block
		if err := json.Unmarshal([]byte(fmt.Sprintf(`{"type":"thinking","text":"thought %d","signature":"s"}`, k.calls)), &thought); err != nil {
			k.t.Fatal(err)
		}
		asked = append(asked, thought)
	}
	if rapid.Bool().Draw(k.t, "says") {
		asked = append(asked, k.words("said"))
	}
	for range rapid.IntRange(1, 4).Draw(k.t, "calls") {
		k.calls++
		id := fmt.Sprint("call-", k.calls)
		asked = append(asked, memory.ToolCall(id, "grep", json.RawMessage(`{"q":1}`)))
		if rapid.IntRange(0, 9).Draw(k.t, "answers") > 0 {
			got = append(got, memory.ToolResult(id, "grep", k.outside(boundary.ToolSource("grep")), rapid.Bool().Draw(k.t, "failed")))
		}
	}
	k.put(memory.RoleAssistant, memory.SourceAssistant, asked...)
	if rapid.Bool().Draw(k.t, "apart") {
		for _, r := range got {
			k.put(memory.RoleTool, memory.SourceTool, r)
		}
	} else if len(got) > 0 {
		k.put(memory.RoleTool, memory.SourceTool, got...)
	}
}
