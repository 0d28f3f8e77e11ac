package memory

import "slices"

// FrontierRest is what stands before the tail of a frontier, in numbers.
type FrontierRest struct {
	Items  int
	Tokens int
}

// MaxTailReach is how many items before a tail are looked at for the calls of
// results that stand in it.
const MaxTailReach = 256

// TailStart returns the latest place, not after from, at which a tail of items may
// begin: no result of a tool in items[start:] has its call in items[:start], and
// none of the old kind, which names no call, is cut off from what it follows. A
// result belongs to the nearest call before it that has its id. Open reports that
// a result is left whose call is not among the items: it may stand before them.
// It is for stores; the time is linear.
func TailStart(items []Item, from int) (start int, open bool) {
	start = len(items)
	// wanted are the ids of results in items[start:] whose calls are not there,
	// between those of results in items[i:start].
	wanted, between := map[string]bool{}, map[string]bool{}
	for i := len(items) - 1; i >= 0; i-- {
		follows := start < len(items) && items[start].followsOnly()
		if i < from && len(wanted) == 0 && !follows {
			break
		}
		taken := i >= from || follows && i == start-1
		if m := items[i].Message; m != nil {
			for _, b := range slices.Backward(m.Blocks) {
				switch {
				case b.Type == BlockToolResult:
					between[b.ID] = true
				case b.Type == BlockToolCall:
					taken = taken || wanted[b.ID]
					delete(wanted, b.ID)
					delete(between, b.ID)
				}
			}
		}
		if taken {
			start = i
			for id := range between {
				wanted[id] = true
			}
			clear(between)
		}
	}
	return start, len(wanted) > 0 || start == 0 && len(items) > 0 && items[0].followsOnly()
}

// followsOnly reports whether the item is the result of a tool that does not say
// of which call.
func (i Item) followsOnly() bool {
	return i.Message != nil && i.Message.Role == RoleTool &&
		!slices.ContainsFunc(i.Message.Blocks, func(b Block) bool { return b.Type == BlockToolResult })
}
