package transcript_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

func said(role memory.Role, origin int, text string) transcript.Row {
	return transcript.Row{Role: role, Origin: origin, Cost: 20 + origin%7, Parts: []transcript.Part{{Type: transcript.PartText, Text: text}}}
}

// plainRows is a chat of n rows, no two of which say the same.
func plainRows(n int) []transcript.Row {
	rows := make([]transcript.Row, n)
	for i := range rows {
		role := memory.RoleUser
		if i%2 == 1 {
			role = memory.RoleAssistant
		}
		rows[i] = said(role, i, fmt.Sprint("message ", i, " of a long chat about the pumps in hall 4"))
	}
	return rows
}

// toolRows are n rows of calls and their results in turns.
func toolRows(n int) []transcript.Row {
	rows := make([]transcript.Row, n)
	for i := range rows {
		id := fmt.Sprint("call_", i/2)
		if i%2 == 0 {
			rows[i] = transcript.Row{Role: memory.RoleAssistant, Origin: i, Cost: 20 + i%7, Parts: []transcript.Part{
				{Type: transcript.PartCall, ID: id, Name: "grep", Raw: json.RawMessage(`{"for":"pumps"}`)},
			}}
			continue
		}
		rows[i] = said(memory.RoleTool, i, "a pump in hall 4")
		rows[i].CallID, rows[i].ToolName = id, "grep"
	}
	return rows
}

// toJoin is what Join is given with 8 announcements that are not stored and a
// budget for half of the rows.
func toJoin(rows []transcript.Row) transcript.JoinInput {
	in := transcript.JoinInput{Rows: rows, RowsCost: costOf(rows), Budget: costOf(rows) / 2, PlaceholderCost: 8}
	for i := range 8 {
		live := transcript.Live{Row: said(memory.RoleUser, len(rows)+i, fmt.Sprint("task ", i, " is done")), Volatile: true}
		in.Live = append(in.Live, live)
	}
	for i := len(rows) - 6; i < len(rows); i++ {
		in.Protected = append(in.Protected, i)
	}
	return in
}

var sizes = []int{100, 200, 400, 800, 1600, 3200}

// A6: half of the cost has to be evicted. Time is to grow with the rows.
func BenchmarkJoin(b *testing.B) {
	for _, kind := range []struct {
		name string
		rows func(int) []transcript.Row
	}{{"rows", plainRows}, {"tools", toolRows}} {
		for _, n := range sizes {
			in := toJoin(kind.rows(n))
			b.Run(fmt.Sprintf("%s/n=%d", kind.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if out := transcript.Join(in); len(out.Evicted) < n/3 || out.OverBudget {
						b.Fatalf("%d of %d rows evicted, over budget: %v", len(out.Evicted), n, out.OverBudget)
					}
				}
			})
		}
	}
}

// BenchmarkJoinBruteForce is the baseline: the same by the method of the
// reference implementation.
func BenchmarkJoinBruteForce(b *testing.B) {
	for _, kind := range []struct {
		name string
		rows func(int) []transcript.Row
	}{{"rows", plainRows}, {"tools", toolRows}} {
		for _, n := range []int{100, 200} {
			in := toJoin(kind.rows(n))
			b.Run(fmt.Sprintf("%s/n=%d", kind.name, n), func(b *testing.B) {
				for b.Loop() {
					bruteJoin(in)
				}
			})
		}
	}
}

func BenchmarkRepair(b *testing.B) {
	for _, n := range sizes {
		whole := toolRows(n)
		b.Run(fmt.Sprintf("whole/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				transcript.Repair(whole, 8)
			}
		})
		// Every result is behind the next call.
		late := toolRows(n)
		for i := 1; i+1 < n; i += 2 {
			late[i], late[i+1] = late[i+1], late[i]
		}
		b.Run(fmt.Sprintf("late/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				transcript.Repair(late, 8)
			}
		})
	}
}

// A6: nothing is allocated for a row that is only looked at, and a handful of
// slices and tables, whatever their size, for what is returned.
func TestAllocationsDoNotGrowWithTheRows(t *testing.T) {
	for name, run := range map[string]func(rows []transcript.Row) float64{
		"repair, nothing wrong": func(rows []transcript.Row) float64 {
			return testing.AllocsPerRun(20, func() { transcript.Repair(rows, 8) })
		},
		"join, nothing to add": func(rows []transcript.Row) float64 {
			in := toJoin(rows)
			for i := range in.Live {
				in.Live[i].Row = rows[i]
			}
			return testing.AllocsPerRun(20, func() { transcript.Join(in) })
		},
		"join, half to evict": func(rows []transcript.Row) float64 {
			in := toJoin(rows)
			return testing.AllocsPerRun(20, func() { transcript.Join(in) })
		},
	} {
		for kind, rows := range map[string]func(int) []transcript.Row{"rows": plainRows, "tools": toolRows} {
			small, large := run(rows(100)), run(rows(3200))
			t.Logf("%s, %s: %v allocations at 100, %v at 3,200", name, kind, small, large)
			if name == "repair, nothing wrong" && kind == "rows" && large != 0 {
				t.Errorf("%s, %s: %v allocations at 3,200 rows, want none", name, kind, large)
			}
			if large-small > 40 {
				t.Errorf("%s, %s: %v allocations at 100 rows, %v at 3,200", name, kind, small, large)
			}
		}
	}
}
