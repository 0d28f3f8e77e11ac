package assembly_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

func item(d *dice, role memory.Role, blocks ...memory.Block) memory.Item {
	return memory.Item{Message: &memory.Message{
		ID: memory.MessageID(d.id()), Role: role, Source: memory.Source(role), Blocks: blocks, Tokens: memory.Count(blocks), At: epoch,
	}}
}

// Invariant 8: where a prompt begins does not depend on how much of the frontier
// was read, for what is read begins elsewhere in every turn.
func TestTheBeginningDoesNotDependOnWhatWasRead(t *testing.T) {
	const budget = 2000
	d := &dice{}
	var items []memory.Item
	for i := range 200 {
		id := fmt.Sprint("call_", i)
		items = append(items,
			item(d, memory.RoleUser, memory.Text(fmt.Sprint("question ", i, strings.Repeat(" and", 5+i*7%20)))),
			item(d, memory.RoleAssistant, memory.ToolCall(id, "grep", json.RawMessage(`{"for":"pumps"}`))),
			item(d, memory.RoleTool, memory.ToolResult(id, "grep", framed(fmt.Sprint("pump ", i)), false)),
			item(d, memory.RoleAssistant, memory.Text(fmt.Sprint("answer ", i, strings.Repeat(" so", 10+i*3%30)))))
	}
	var want []assembly.Message
	for start := 0; start <= 400; start += 4 {
		in := assembly.Input{Items: items[start:], Budget: budget, Older: memory.FrontierRest{Items: start}}
		for _, before := range items[:start] {
			in.Older.Tokens += before.Tokens()
		}
		p, r, err := assembly.Assemble(in)
		if err != nil || r.OverBudget {
			t.Fatalf("from item %d: over budget %v, error %v", start, r.OverBudget, err)
		}
		if start == 0 {
			want = p.Messages
		} else if got, text := p.Messages[0].Text(), want[0].Text(); len(p.Messages) != len(want) || got != text {
			t.Fatalf("read from item %d, the prompt has %d messages from %.40q; read whole, %d from %.40q", start, len(p.Messages), got, len(want), text)
		}
	}
}

// A message of a hostile server may hold any number of calls: time that grows with
// their square would be minutes here.
func TestManyCallsInOneMessageTakeLinearTime(t *testing.T) {
	d := &dice{}
	calls := make([]memory.Block, 200_000)
	for i := range calls {
		calls[i] = memory.ToolCall(fmt.Sprint("call_", i), "grep", json.RawMessage(`{}`))
	}
	in := assembly.Input{Items: []memory.Item{item(d, memory.RoleUser, memory.Text("look")), item(d, memory.RoleAssistant, calls...)}, Budget: 1 << 30}
	begin := time.Now()
	if _, _, err := assembly.Assemble(in); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 40*time.Second {
		t.Errorf("%d calls take %v", len(calls), took)
	}
}

func TestDemandOfAnEmptyItem(t *testing.T) {
	if got, want := assembly.Demand(make([]memory.Item, 3)), 3*assembly.Demand(make([]memory.Item, 1)); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

// Thoughts of turns that are done do not go in, so that they must not take the
// room of what does; those of the turn in hand do.
func TestPastThoughtsTakeNoRoom(t *testing.T) {
	thought := memory.Thinking("anthropic", "", json.RawMessage(`{"type":"thinking","thinking":"`+strings.Repeat("so ", 4000)+`"}`))
	d := &dice{}
	var items []memory.Item
	for i := range 20 {
		id := fmt.Sprint("call_", i)
		items = append(items,
			item(d, memory.RoleUser, memory.Text(fmt.Sprint("question ", i))),
			item(d, memory.RoleAssistant, thought, memory.ToolCall(id, "grep", json.RawMessage(`{}`))),
			item(d, memory.RoleTool, memory.ToolResult(id, "grep", framed("a pump"), false)),
			item(d, memory.RoleAssistant, thought, memory.Text(fmt.Sprint("answer ", i))))
	}
	items = append(items, item(d, memory.RoleUser, memory.Text("one more")))
	most := 0
	for _, more := range [][]memory.Item{nil, {
		item(d, memory.RoleAssistant, thought, memory.ToolCall("call_last", "grep", json.RawMessage(`{}`))),
		item(d, memory.RoleTool, memory.ToolResult("call_last", "grep", framed("a pump"), false)),
	}} {
		in := assembly.Input{Items: append(slices.Clone(items), more...), Budget: 10_000, Provider: assembly.Anthropic}
		p, r, err := assembly.Assemble(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Entries {
			if e.Kind == assembly.KindMessage && !e.Included {
				t.Errorf("a message is left out: %s; the prompt costs %d of %d", e.Reason, r.Tokens, r.Budget)
			}
		}
		thoughts := 0
		for _, m := range p.Messages {
			for _, part := range m.Parts {
				if part.Type == assembly.PartThinking {
					thoughts++
				}
			}
		}
		if want := len(more) / 2; thoughts != want {
			t.Errorf("%d thoughts are in the prompt, want %d", thoughts, want)
		}
		if r.Tokens <= most {
			t.Errorf("the prompt costs %d, the one before %d", r.Tokens, most)
		}
		most = r.Tokens + 2500
	}
}

func TestABudgetOfLessThanNothingIsNothing(t *testing.T) {
	in := benchInput(100, 3, true, func(int) int { return 0 })
	want, _, err := assembly.Assemble(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, budget := range []int{-1, math.MinInt} {
		in.Budget = budget
		p, r, err := assembly.Assemble(in)
		if err != nil || !r.OverBudget || r.Budget != budget || p.Tokens != want.Tokens {
			t.Errorf("a budget of %d gives a prompt of %d, of 0 one of %d; over budget %v, error %v", budget, p.Tokens, want.Tokens, r.OverBudget, err)
		}
	}
}
