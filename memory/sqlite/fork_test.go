package sqlite_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// held is a session of n messages as the gateway leaves it, each with its digest:
// all but the last 200 under leaves of 20, those under summaries of 8 leaves.
func held(t testing.TB, store memory.Store, n int) (memory.UserID, memory.AgentID, memory.SessionID) {
	t.Helper()
	ctx := t.Context()
	user, agent, err := people(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(s memory.NewSummary) memory.SummaryID {
		frontier, err := store.Frontier(ctx, user, session.ID)
		if err != nil {
			t.Fatal(err)
		}
		s.ID, s.At, s.SummaryText = memory.NewID[memory.SummaryID](), at, memory.SummaryText{Text: strings.Repeat("What was said. ", 20), Level: memory.LevelNormal, Model: "test"}
		if _, err := store.CommitSummary(ctx, user, frontier.Revision, s); err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	var leaves []memory.SummaryID
	for stored := 0; stored < n; {
		drafts := make([]memory.Draft, min(20, n-stored))
		for i := range drafts {
			drafts[i] = said(sentences)
			if i%2 == 1 {
				drafts[i].Role, drafts[i].Source = memory.RoleAssistant, memory.SourceAssistant
			}
			drafts[i].Transcript = numbered(stored + i + 1)
		}
		messages, err := store.Append(ctx, user, session.ID, drafts...)
		if err != nil {
			t.Fatal(err)
		}
		if stored += len(messages); stored > n-200 {
			continue
		}
		var leaf memory.NewSummary
		for _, m := range messages {
			leaf.Messages = append(leaf.Messages, m.ID)
		}
		if leaves = append(leaves, commit(leaf)); len(leaves) == 8 {
			commit(memory.NewSummary{Summaries: leaves})
			leaves = nil
		}
	}
	return user, agent, session.ID
}

// numbered is the digest of what is known up to message n.
func numbered(n int) (d memory.Digest) {
	binary.BigEndian.PutUint64(d[8:], uint64(n)*0x9e3779b97f4a7c15)
	return d
}

// The doctor finds nothing wrong with forks, wherever they end, nor when their
// parent has gone.
func TestForksAreSound(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	user, _, session := held(t, store, 560)
	for _, last := range []int64{0, 1, 19, 20, 21, 159, 160, 161, 175, 320, 360, 361, 559, 560} {
		fork, err := store.Fork(t.Context(), user, session, last, at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Fork(t.Context(), user, fork.ID, last/2, at.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if found := examined(t, database(dir)); len(found) > 0 {
		t.Errorf("the doctor finds %+v", found)
	}
	if err := store.DeleteSession(t.Context(), user, session); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found := examined(t, database(dir)); len(found) > 0 {
		t.Errorf("without the parent the doctor finds %+v", found)
	}
}

// What is damaged is not copied: it says so, and there is no half of a fork.
func TestADamagedSessionIsNotForked(t *testing.T) {
	for name, damage := range map[string]string{
		"a message": "DELETE FROM messages WHERE seq = 3",
		"a file":    `UPDATE messages SET content = '[{"type":"file","text":"x","file":"00112233-4455-6677-8899-aabbccddeeff"}]' WHERE seq = 3; INSERT INTO files SELECT NULL, x'01020304050607080910111213141516', id, '', '', 1, 1, '', '', 'direct', 0, '' FROM sessions`,
	} {
		path, session, _ := conversation(t)
		execute(t, path, damage)
		store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		user, _, err := people(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Fork(t.Context(), user, session, 5, at); err == nil || !strings.Contains(err.Error(), "missing") {
			t.Errorf("%s: %v", name, err)
		}
		if sessions, err := store.Sessions(t.Context(), user, memory.SessionQuery{}); err != nil || len(sessions) != 1 {
			t.Errorf("%s: %d sessions, %v", name, len(sessions), err)
		}
	}
}

// BenchmarkFork is a fork of a long session near its end. Meanwhile somebody
// appends to another one: wait is the longest that this took.
func BenchmarkFork(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store := open(b, b.TempDir())
			user, agent, session := held(b, store, n)
			other, err := store.CreateSession(b.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan []time.Duration)
			go func() {
				var took []time.Duration
				defer func() { ended <- took }()
				for ctx.Err() == nil {
					began := time.Now()
					if _, err := store.Append(ctx, user, other.ID, said("short")); err != nil {
						if !errors.Is(err, context.Canceled) {
							b.Error(err)
						}
						return
					}
					took = append(took, time.Since(began))
				}
			}()
			for b.Loop() {
				if _, err := store.Fork(b.Context(), user, session, int64(n)-5, at); err != nil {
					b.Fatal(err)
				}
			}
			stop()
			b.ReportMetric(float64(slices.Max(append(<-ended, 0)).Nanoseconds()), "wait-max-ns")
		})
	}
}

// BenchmarkPlaces looks for the last digest of a session that was forked often.
func BenchmarkPlaces(b *testing.B) {
	store := open(b, b.TempDir())
	user, agent, session := held(b, store, 400)
	for range 100 {
		if _, err := store.Fork(b.Context(), user, session, 398, at); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range []int{2, 398, 400, 401} {
		b.Run(fmt.Sprint("message ", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := store.Places(b.Context(), user, agent, numbered(n), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
