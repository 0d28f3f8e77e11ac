package assembly_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

// benchSizes are numbers of items; those of the reference implementation's
// measurements among them.
var benchSizes = []int{100, 200, 400, 800, 1600, 3200}

// chat is n messages of words; with tools, of calls and their results in turns.
func chat(n int, tools bool) []memory.Item {
	d := &dice{}
	items := make([]memory.Item, n)
	for i := range items {
		m := &memory.Message{ID: memory.MessageID(d.id()), Seq: int64(i + 1), At: epoch}
		id := fmt.Sprint("call_", i/2)
		switch {
		case tools && i%2 == 0:
			m.Role, m.Source = memory.RoleAssistant, memory.SourceAssistant
			m.Blocks = []memory.Block{memory.ToolCall(id, "grep", json.RawMessage(`{"for":"pumps","in":"hall 4"}`))}
		case tools:
			m.Role, m.Source = memory.RoleTool, memory.SourceTool
			m.Blocks = []memory.Block{memory.ToolResult(id, "grep", framed(strings.Repeat("a pump in hall 4, ", 8)), false)}
		default:
			m.Role = []memory.Role{memory.RoleUser, memory.RoleAssistant}[i%2]
			m.Source = memory.Source(m.Role)
			m.Blocks = []memory.Block{memory.Text(fmt.Sprint("message ", i, " of a long chat", strings.Repeat(" about the pumps in hall 4", 8)))}
		}
		m.Tokens = memory.Count(m.Blocks)
		items[i] = memory.Item{Message: m}
	}
	return items
}

// announcements are n messages that are not stored.
func announcements(n int) []assembly.Live {
	all := make([]assembly.Live, n)
	for i := range all {
		text := memory.Text(fmt.Sprint("task ", i, " is done", strings.Repeat(" and the pumps run", 4)))
		all[i] = assembly.Live{Role: memory.RoleUser, Source: memory.SourceTaskCompletion, Blocks: []memory.Block{text}, Turn: "turn"}
	}
	return all
}

func benchInput(n, live int, tools bool, budget func(demand int) int) assembly.Input {
	in := assembly.Input{System: "Be kind.", Items: chat(n, tools), Live: announcements(live), Turn: "turn", Provider: assembly.Anthropic}
	in.Budget = budget(assembly.Demand(in.Items))
	return in
}

func fits(demand int) int { return 2*demand + 10_000 }
func half(demand int) int { return demand / 2 }

func runAssemble(b *testing.B, in assembly.Input) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := assembly.Assemble(in); err != nil {
			b.Fatal(err)
		}
	}
}

// One prompt of a session, with all that goes in: at most 1 ms.
func BenchmarkAssemble(b *testing.B) {
	for _, tools := range []bool{false, true} {
		name := "frontier=200/live=8"
		if tools {
			name += "/tools"
		}
		b.Run(name, func(b *testing.B) { runAssemble(b, benchInput(200, 8, tools, fits)) })
	}
}

// A6: half of the cost has to go. Time is to grow with the items:
// time(3,200)/time(100) is to be at most 45.
func BenchmarkAssembleEvict(b *testing.B) {
	for _, tools := range []bool{false, true} {
		name := "rows"
		if tools {
			name = "tools"
		}
		for _, n := range benchSizes {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) { runAssemble(b, benchInput(n, 8, tools, half)) })
		}
	}
}

// A6: what is allocated is the output, in a few slices of the right size, and
// nothing for each item.
func TestAllocationsDoNotGrowWithTheItems(t *testing.T) {
	for name, test := range map[string]struct {
		budget func(int) int
		most   float64 // allocations more at 3,200 items than at 100
	}{"all fits": {fits, 10}, "half is left out": {half, 10}} {
		count := func(n int) float64 {
			in := benchInput(n, 8, false, test.budget)
			return testing.AllocsPerRun(20, func() { _, _, _ = assembly.Assemble(in) })
		}
		small, large := count(100), count(3200)
		t.Logf("%s: %v allocations at 100 items, %v at 3,200", name, small, large)
		if large-small > test.most {
			t.Errorf("%s: %v allocations at 100 items, %v at 3,200", name, small, large)
		}
	}
}
