package memory_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/memory"
)

// nearestCalls returns for each item the calls, by item, that its results belong
// to; whether one has none; and whether the item follows another without a name.
func nearestCalls(items []memory.Item) (of [][]int, orphan, follows []bool) {
	calls := map[string]int{}
	for i, item := range items {
		of, orphan, follows = append(of, nil), append(orphan, false), append(follows, false)
		if item.Message == nil {
			continue
		}
		follows[i] = item.Message.Role == memory.RoleTool
		for _, b := range item.Message.Blocks {
			switch b.Type {
			case memory.BlockToolCall:
				calls[b.ID] = i
			case memory.BlockToolResult:
				follows[i] = false
				if call, ok := calls[b.ID]; ok {
					of[i] = append(of[i], call)
				} else {
					orphan[i] = true
				}
			}
		}
	}
	return of, orphan, follows
}

// The start is the latest place that fulfils what it promises.
func TestTailStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) memory.Item {
			if rapid.IntRange(0, 5).Draw(t, "summary") == 0 {
				return memory.Item{Summary: &memory.Summary{}}
			}
			m := memory.Message{Role: rapid.SampledFrom([]memory.Role{memory.RoleUser, memory.RoleAssistant, memory.RoleTool}).Draw(t, "role")}
			for range rapid.IntRange(0, 3).Draw(t, "blocks") {
				m.Blocks = append(m.Blocks, memory.Block{
					Type: rapid.SampledFrom([]memory.BlockType{memory.BlockText, memory.BlockToolCall, memory.BlockToolResult}).Draw(t, "type"),
					ID:   rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "id"),
				})
			}
			return memory.Item{Message: &m}
		}), 0, 12).Draw(t, "items")
		from := rapid.IntRange(0, len(items)).Draw(t, "from")
		of, orphan, follows := nearestCalls(items)
		want, open := from, false
		for i := len(items) - 1; i >= want; i-- {
			for _, call := range of[i] {
				want = min(want, call)
			}
			open = open || orphan[i]
			if i == want && follows[i] {
				open = open || i == 0
				want = max(0, i-1)
			}
		}
		if start, left := memory.TailStart(items, from); start != want || left != open {
			t.Fatalf("from %d: starts at %d, open %t; want %d, %t", from, start, left, want, open)
		}
	})
}
