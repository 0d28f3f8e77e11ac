package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// What is kept is counted over all sessions, and nobody waits for a store that
// rests.
func TestStats(t *testing.T) {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "glovebox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if stats, err := store.Stats(t.Context()); err != nil || stats != (sqlite.Stats{}) {
		t.Errorf("a fresh store: %+v, %v", stats, err)
	}
	at := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := store.PutAgent(t.Context(), "assistant", "", at)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: at})
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			draft := memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("hello")}, At: at}
			if _, err := store.Append(t.Context(), user.ID, session.ID, draft); err != nil {
				t.Fatal(err)
			}
		}
	}
	stats, err := store.Stats(t.Context())
	if err != nil || stats.Sessions != 3 || stats.Messages != 3 || stats.Unindexed < 0 || stats.Unindexed > 3 {
		t.Errorf("three sessions with 0, 1 and 2 messages: %+v, %v", stats, err)
	}
	if stats.Waiting != 0 || stats.WaitingBehind != 0 {
		t.Errorf("somebody waits: %+v", stats)
	}
}
