package sqlite

import (
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
)

// What was read before a change, or while it goes on, is not kept after it.
func TestTailsOfAnotherEraAreNotKept(t *testing.T) {
	session, user := memory.NewID[memory.SessionID](), memory.NewID[memory.UserID]()
	read := tail{user: user, revision: 3, messages: 2, items: []memory.Item{{Message: &memory.Message{Seq: 1}}, {Message: &memory.Message{Seq: 2}}}}
	k := &tails{least: 1}
	has := func(want bool) {
		t.Helper()
		if _, ok := k.get(session, user, 3, 2); ok != want {
			t.Errorf("it is kept: %v, want %v", ok, want)
		}
	}
	k.put(session, read, k.now())
	has(true)
	before := k.now()
	changed := k.change()
	has(false)
	k.put(session, read, before)
	has(false)
	during := k.now()
	k.put(session, read, during)
	has(false)
	changed()
	k.put(session, read, before)
	k.put(session, read, during)
	has(false)
	k.put(session, read, k.now())
	has(true)
	for name, ok := range map[string]bool{
		"another user": second(k.get(session, memory.NewID[memory.UserID](), 3, 2)), "another revision": second(k.get(session, user, 4, 2)),
		"fewer messages": second(k.get(session, user, 3, 1)), "another session": second(k.get(memory.NewID[memory.SessionID](), user, 3, 2)),
	} {
		if ok {
			t.Errorf("%s is given it", name)
		}
	}
	if !second(k.get(session, user, 3, 9)) {
		t.Error("what came behind it hides it")
	}
}

func second(_ tail, ok bool) bool { return ok }
