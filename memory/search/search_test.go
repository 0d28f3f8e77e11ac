package search_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/search"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var monday = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// talk is a store with sessions, each a day after the one before; a line is
// "role: text".
func talk(t *testing.T, sessions ...[]string) (*sqlite.Store, memory.UserID) {
	t.Helper()
	ctx := t.Context()
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "glovebox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	user, err := store.DefaultUser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := store.PutAgent(ctx, "assistant", "", monday)
	if err != nil {
		t.Fatal(err)
	}
	for day, lines := range sessions {
		at := monday.AddDate(0, 0, day)
		session, err := store.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: at})
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range lines {
			role, text, _ := strings.Cut(line, ": ")
			draft := memory.Draft{Role: memory.Role(role), Source: memory.Source(role), Blocks: []memory.Block{memory.Text(text)}, At: at.Add(time.Duration(i) * time.Minute)}
			if _, err := store.Append(ctx, user.ID, session.ID, draft); err != nil {
				t.Fatal(err)
			}
		}
	}
	return store, user.ID
}

func ask(t *testing.T, store *sqlite.Store, user memory.UserID, q search.Question) (texts []string) {
	t.Helper()
	hits, err := search.Messages(t.Context(), store, user, q)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range hits {
		texts = append(texts, memory.Plain(h.Message.Blocks))
		if i > 0 && h.Score > hits[i-1].Score {
			t.Errorf("hit %d scores more than the one before", i)
		}
	}
	return texts
}

func TestFirstHit(t *testing.T) {
	filler := []string{"user: Good morning.", "assistant: Good morning, what is it today?", "user: The weather.", "assistant: Rain all day."}
	for _, test := range []struct {
		name     string
		sessions [][]string
		question search.Question
		want     string
	}{
		{"who is named", [][]string{filler, {"user: Anna: I went to the pottery class.", "user: Bert: I went to the pottery class."}},
			search.Question{Text: "Where did Bert go for pottery?"}, "Bert: I went to the pottery class."},
		{"who is named, the other", [][]string{filler, {"user: Anna: I went to the pottery class.", "user: Bert: I went to the pottery class."}},
			search.Question{Text: "Where did Anna go for pottery?"}, "Anna: I went to the pottery class."},
		{"I", [][]string{filler, {"user: My ferry leaves at dawn.", "assistant: Your ferry leaves at dawn."}},
			search.Question{Text: "When does my ferry leave?"}, "My ferry leaves at dawn."},
		{"you", [][]string{filler, {"user: My ferry leaves at dawn.", "assistant: Your ferry leaves at dawn."}},
			search.Question{Text: "What did you say about a ferry?"}, "Your ferry leaves at dawn."},
		{"a day", [][]string{{"user: I met Carla at the harbour."}, {"user: I met Carla at the station."}, {"user: I met Carla at the museum."}},
			search.Question{Text: "Where did I meet Carla yesterday?", Now: monday.AddDate(0, 0, 2)}, "I met Carla at the station."},
		{"a number", [][]string{{"user: The hens in the yard are noisy today again."}, {"user: The hens in the yard are eleven or so."}},
			search.Question{Text: "How many hens are in the yard?"}, "The hens in the yard are eleven or so."},
		{"function words alone", [][]string{{"user: To be or not to be."}, {"user: Something else."}},
			search.Question{Text: "to be or not to be"}, "To be or not to be."},
	} {
		store, user := talk(t, test.sessions...)
		if got := ask(t, store, user, test.question); len(got) == 0 || got[0] != test.want {
			t.Errorf("%s: found %q, want %q first", test.name, got, test.want)
		}
	}
}

// An answer need not have a word of its question: it stands behind it.
func TestAnswerBesideItsQuestion(t *testing.T) {
	store, user := talk(t, []string{"user: Which tree did the gardener plant?", "assistant: A quince, behind the shed, in the last days of autumn.", "user: Good."},
		[]string{"user: The gardener was here.", "user: A tree fell."})
	hits, err := search.Messages(t.Context(), store, user, search.Question{Text: "Which tree did the gardener plant?"})
	if err != nil || len(hits) < 2 || hits[1].Message.Seq != 2 || !hits[1].Beside || hits[0].Beside {
		t.Errorf("found %+v, %v", hits, err)
	}
}

func TestBounds(t *testing.T) {
	var lines []string
	for n := range 300 {
		lines = append(lines, fmt.Sprintf("user: The pump number %d.", n))
	}
	store, user := talk(t, lines)
	for limit, want := range map[int]int{0: 50, 3: 3, search.MaxHits: search.MaxHits, 1000: search.MaxHits} {
		if got := ask(t, store, user, search.Question{Text: "pump", Limit: limit}); len(got) != want {
			t.Errorf("limit %d gives %d hits, want %d", limit, len(got), want)
		}
	}
	for _, text := range []string{"", " \n", "?!", "absent"} {
		if got := ask(t, store, user, search.Question{Text: text}); len(got) > 0 {
			t.Errorf("%q finds %q", text, got)
		}
	}
	long := strings.Repeat("pump pressure valve hall ", 100_000)
	if got := ask(t, store, user, search.Question{Text: long, Limit: 1}); len(got) != 1 {
		t.Errorf("a very long question finds %d", len(got))
	}
	if got := ask(t, store, memory.NewID[memory.UserID](), search.Question{Text: "pump"}); len(got) > 0 {
		t.Errorf("a stranger finds %q", got)
	}
}

func TestWithin(t *testing.T) {
	store, user := talk(t, []string{"user: The pump of hall three is loud.", "user: The pump " + strings.Repeat("hums and ", 200) + "stops.", "user: A pump."})
	hits, err := search.Messages(t.Context(), store, user, search.Question{Text: "pump"})
	if err != nil || len(hits) != 3 {
		t.Fatal(hits, err)
	}
	if kept := search.Within(hits, 30); len(kept) != 2 {
		t.Errorf("%d of the hits are kept in 30 tokens", len(kept))
	}
	if kept := search.Within(hits, 0); len(kept) != 0 {
		t.Errorf("%d of the hits are kept in none", len(kept))
	}
	if kept := search.Within(hits, 10_000); len(kept) != 3 {
		t.Errorf("%d of the hits are kept in 10,000 tokens", len(kept))
	}
}
