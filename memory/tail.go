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

// Pair is a tool's result with what it belongs to, by their places among items.
// Call is the nearest call before it that has its id; for a result of the old kind,
// which names no call, whatever it follows. It is -1 if that is not among the
// items, and greater than Result if the first call with the id comes later.
type Pair struct{ Call, Result int }

// Pairs returns what belongs together, in the order of whichever of the two comes
// later. A result that comes before its call is in two pairs: alone when it comes,
// and with the call. The time is linear.
func Pairs(items []Item) []Pair {
	var pairs []Pair
	calls, early := map[string]int{}, map[string]int{}
	for i, item := range items {
		if item.Message == nil {
			continue
		}
		follows := item.Message.Role == RoleTool
		for _, b := range item.Message.Blocks {
			switch b.Type {
			case BlockToolCall:
				calls[b.ID] = i
				if result, ok := early[b.ID]; ok {
					pairs = append(pairs, Pair{i, result})
					delete(early, b.ID)
				}
			case BlockToolResult:
				follows = false
				call, ok := calls[b.ID]
				if !ok {
					call, early[b.ID] = -1, i
				}
				pairs = append(pairs, Pair{call, i})
			}
		}
		if follows {
			pairs = append(pairs, Pair{i - 1, i})
		}
	}
	return pairs
}

// TailStart returns the latest place, not after from, at which a tail of items may
// begin: no result in items[start:] belongs to what is in items[:start]. Open
// reports that one is left whose call is not among the items: it may stand before
// them. It is for stores; the time is linear.
func TailStart(items []Item, from int) (start int, open bool) {
	start = from
	for _, p := range slices.Backward(Pairs(items)) {
		switch {
		case p.Result < start:
		case p.Call < 0:
			open = true
		default:
			start = min(start, p.Call)
		}
	}
	return start, open
}
