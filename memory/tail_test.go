package memory_test

import (
	"slices"
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

func TestPairs(t *testing.T) {
	call := func(id string) memory.Block { return memory.Block{Type: memory.BlockToolCall, ID: id} }
	result := func(id string) memory.Block { return memory.Block{Type: memory.BlockToolResult, ID: id} }
	of := func(role memory.Role, blocks ...memory.Block) memory.Item {
		return memory.Item{Message: &memory.Message{Role: role, Blocks: blocks}}
	}
	said := func(blocks ...memory.Block) memory.Item { return of(memory.RoleAssistant, blocks...) }
	told := func(blocks ...memory.Block) memory.Item { return of(memory.RoleTool, blocks...) }
	summary := memory.Item{Summary: &memory.Summary{}}
	for name, test := range map[string]struct {
		items []memory.Item
		want  []memory.Pair
	}{
		"none":                       {[]memory.Item{said(), said(call("a")), summary}, nil},
		"one":                        {[]memory.Item{said(call("a")), summary, told(result("a"))}, []memory.Pair{{0, 2}}},
		"two calls, results crossed": {[]memory.Item{said(call("a"), call("b")), told(result("b")), told(result("a"))}, []memory.Pair{{0, 1}, {0, 2}}},
		"the nearest call":           {[]memory.Item{said(call("a")), told(result("a")), said(call("a")), told(result("a")), told(result("a"))}, []memory.Pair{{0, 1}, {2, 3}, {2, 4}}},
		"in one message":             {[]memory.Item{said(call("a"), result("a"))}, []memory.Pair{{0, 0}}},
		"no call":                    {[]memory.Item{said(), told(result("a"))}, []memory.Pair{{-1, 1}}},
		"an early result":            {[]memory.Item{told(result("a")), said(call("a")), told(result("a")), said(call("a"))}, []memory.Pair{{-1, 0}, {1, 0}, {1, 2}}},
		"no name":                    {[]memory.Item{told(), told(), summary, told(memory.Block{Type: memory.BlockText})}, []memory.Pair{{-1, 0}, {0, 1}, {2, 3}}},
	} {
		if got := memory.Pairs(test.items); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
