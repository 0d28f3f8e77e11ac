package assembly_test

import (
	"encoding/json"
	"fmt"
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

// A message of a hostile server may hold any number of calls.
func TestManyCallsInOneMessageTakeLinearTime(t *testing.T) {
	took := func(n int) time.Duration {
		d := &dice{}
		calls := make([]memory.Block, n)
		for i := range calls {
			calls[i] = memory.ToolCall(fmt.Sprint("call_", i), "grep", json.RawMessage(`{}`))
		}
		in := assembly.Input{Items: []memory.Item{item(d, memory.RoleUser, memory.Text("look")), item(d, memory.RoleAssistant, calls...)}, Budget: 1 << 30}
		var times []time.Duration
		for range 3 {
			begin := time.Now()
			if _, _, err := assembly.Assemble(in); err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Since(begin))
		}
		return slices.Min(times)
	}
	if few, many := took(2000), took(32_000); many > 64*few {
		t.Errorf("2,000 calls take %v, 32,000 take %v", few, many)
	}
}

func TestDemandOfAnEmptyItem(t *testing.T) {
	if got, want := assembly.Demand(make([]memory.Item, 3)), 3*assembly.Demand(make([]memory.Item, 1)); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
