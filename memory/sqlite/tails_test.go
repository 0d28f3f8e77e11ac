package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// What is kept of a frontier is the store's: a reader may change what it was given,
// nobody else reads it, and it goes with the session.
func TestTailsAreKept(t *testing.T) {
	ctx := t.Context()
	store := open(t, t.TempDir()).(*sqlite.Store)
	user, session, all := conversationOf(t, store, 9)
	kept := func(want int) {
		t.Helper()
		if sessions, bytes := store.KeptTails(); sessions != want || (bytes > 0) != (want > 0) {
			t.Fatalf("%d tails of %d bytes are kept, want %d", sessions, bytes, want)
		}
	}
	read := func() []memory.Item {
		t.Helper()
		tail, _, err := store.FrontierTail(ctx, user, session, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return tail.Items
	}
	read()
	kept(0) // it is short
	for len(all) < 40 {
		more, err := store.Append(ctx, user, session, said(fmt.Sprint("message ", len(all))))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	for range 2 {
		items := read()
		kept(1)
		if len(items) != len(all) {
			t.Fatalf("%d items of %d", len(items), len(all))
		}
		for i := range items {
			if m := items[i].Message; m.ID != all[i].ID || memory.Plain(m.Blocks) != memory.Plain(all[i].Blocks) || m.Tokens != all[i].Tokens {
				t.Fatalf("item %d is %+v, want %+v", i, m, all[i])
			}
			*items[i].Message = memory.Message{Blocks: []memory.Block{memory.Text("mine")}}
			items[i] = memory.Item{}
		}
	}
	if _, _, err := store.FrontierTail(ctx, memory.NewID[memory.UserID](), session, 1<<20); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("a stranger reads it: %v", err)
	}
	// What is not of the session leaves it; a summary has another revision.
	if err := store.PutPendingRun(ctx, memory.PendingRun{User: user, Agent: agentOf(t, store, user, session), Session: session, Trigger: memory.TriggerCadence, At: at}); err != nil {
		t.Fatal(err)
	}
	kept(1)
	if err := compact(ctx, store, user, session); err != nil {
		t.Fatal(err)
	}
	if items := read(); items[0].Summary == nil {
		t.Errorf("the summary is not shown: %+v", items[0].Message)
	}
	if err := store.DeleteSession(ctx, user, session); err != nil {
		t.Fatal(err)
	}
	kept(0)
}

func agentOf(t *testing.T, store memory.Store, user memory.UserID, id memory.SessionID) memory.AgentID {
	t.Helper()
	session, err := store.Session(t.Context(), user, id)
	if err != nil {
		t.Fatal(err)
	}
	return session.Agent
}

// However many sessions there are, and however long, what is kept is bounded.
func TestTailsAreBounded(t *testing.T) {
	store := open(t, t.TempDir()).(*sqlite.Store)
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for range 12 {
		session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
		if err != nil {
			t.Fatal(err)
		}
		drafts := make([]memory.Draft, 100)
		for i := range drafts {
			drafts[i] = said(strings.Repeat("words ", 8_000))
		}
		if _, err := store.Append(t.Context(), user, session.ID, drafts...); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.FrontierTail(t.Context(), user, session.ID, 1<<30); err != nil {
			t.Fatal(err)
		}
		sessions, bytes := store.KeptTails()
		if bytes > 32<<20 || sessions == 0 {
			t.Fatalf("%d tails of %d bytes are kept", sessions, bytes)
		}
		most = max(most, sessions)
	}
	if most == 12 || most < 2 {
		t.Errorf("at most %d of 12 were kept", most)
	}
}
