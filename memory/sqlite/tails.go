package sqlite

import (
	"slices"
	"sync"

	"github.com/gloveboxhq/glovebox/memory"
)

// tails keeps the ends of frontiers that were read, so that the next turn of a session
// reads what has come since and nothing else: to read and decode what the model is
// shown is most of what a turn needs a processor for. It is safe for concurrent use;
// the zero value keeps nothing.
type tails struct {
	// least is how many items a tail has that is kept: to read fewer is as fast, and
	// short conversations are many. Zero means that none is kept.
	least int

	mu sync.Mutex
	// All below is guarded by mu.
	of    map[memory.SessionID]tail
	bytes int // about what they hold
	// changing is how many writes go on that may change what was read, era counts
	// their beginnings and ends: what was read in another era is not kept.
	changing, era int
}

// tail is the end of a frontier, as it was when the frontier had that revision and the
// session that many messages. It belongs to tails; nobody changes it.
type tail struct {
	user     memory.UserID
	revision int64
	messages int64
	items    []memory.Item
}

// leastTail is tails.least of a store for writing. A read-only one is not told when
// another process changes what was read.
const leastTail = 32

// maxTails bounds what all tails hold together, in bytes.
const maxTails = 32 << 20

// size is about how many bytes a tail holds.
func (t tail) size() int {
	size := 0
	for i := range t.items {
		size += 1024 + 4*t.items[i].Tokens()
	}
	return size
}

// now returns the era, before something is read.
func (k *tails) now() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.era
}

// get returns what is kept of a session, if that still holds in a snapshot which was
// taken before: the rest of the frontier there is what came behind it.
func (k *tails) get(session memory.SessionID, user memory.UserID, revision, messages int64) (tail, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.of[session]
	return t, ok && t.user == user && t.revision == revision && t.messages <= messages
}

// put keeps what was read since an era, if nothing can have changed it.
func (k *tails) put(session memory.SessionID, t tail, era int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.era != era || k.changing > 0 {
		return
	}
	k.drop(session)
	if !k.keeps(t.items) {
		return
	}
	size := t.size()
	for other := range k.of {
		if k.bytes+size <= maxTails {
			break
		}
		k.drop(other)
	}
	if k.bytes+size > maxTails {
		return
	}
	if k.of == nil {
		k.of = map[memory.SessionID]tail{}
	}
	k.of[session] = t
	k.bytes += size
}

func (k *tails) keeps(items []memory.Item) bool { return k.least > 0 && len(items) >= k.least }

// drop forgets a session. The caller holds mu.
func (k *tails) drop(session memory.SessionID) {
	if t, ok := k.of[session]; ok {
		k.bytes -= t.size()
		delete(k.of, session)
	}
}

// change forgets everything, and keeps nothing that is read until changed is called:
// for a write that may change what is shown of a session otherwise than by messages at
// the end, without another revision.
func (k *tails) change() (changed func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.era++
	k.changing++
	k.of, k.bytes = nil, 0
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.era++
		k.changing--
	}
}

// tailStart returns where the tail with so many tokens begins among the last items of
// a frontier, and from where on it was looked for, as FrontierTail does. It reports
// false if items before these would have to be looked at; whole says that there are
// none.
func tailStart(items []memory.Item, tokens int, whole bool) (start, from int, ok bool) {
	from = len(items)
	for from > 0 && tokens > 0 {
		from--
		tokens -= items[from].Tokens()
	}
	if tokens > 0 && !whole {
		return 0, 0, false
	}
	reach := 0
	start, open := memory.TailStart(items[from:], reach)
	for open && reach < memory.MaxTailReach {
		step := min(tailStep, from)
		if step < tailStep && !whole {
			return 0, 0, false
		}
		if step == 0 {
			break
		}
		from, reach = from-step, reach+step
		start, open = memory.TailStart(items[from:], reach)
	}
	return from + start, from, true
}

// own returns items that the caller may do with as it likes, blocks excepted.
func own(items []memory.Item) []memory.Item {
	all := slices.Clone(items)
	messages := make([]memory.Message, 0, len(items))
	for i, item := range items {
		switch {
		case item.Message != nil:
			messages = append(messages, *item.Message)
			all[i].Message = &messages[len(messages)-1]
		case item.Summary != nil:
			summary := *item.Summary
			all[i].Summary = &summary
		}
	}
	return all
}

// trimmed is what is kept of items whose tail was looked for from a place on: with as
// much before it as it has itself, so that not every turn makes the list anew.
func trimmed(items []memory.Item, from int) []memory.Item {
	before, behind := 0, 0
	for i, item := range items {
		if i < from {
			before += item.Tokens()
		} else {
			behind += item.Tokens()
		}
	}
	if before > behind {
		return slices.Clone(items[from:])
	}
	return items
}
