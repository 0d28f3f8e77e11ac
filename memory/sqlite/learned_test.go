package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// S7, M11: what is remembered and not to be remembered any more is nowhere in the
// files, and what others are remembered by is.
func TestForgottenIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(ctx context.Context, store memory.Store, user memory.UserID, agent memory.AgentID) error{
		"DeleteTopic": func(ctx context.Context, store memory.Store, user memory.UserID, agent memory.AgentID) error {
			for _, of := range []memory.AgentID{{}, agent} {
				if _, err := store.DeleteTopic(ctx, user, of, "boat"); err != nil {
					return err
				}
			}
			return nil
		},
		"WipeMemory": func(ctx context.Context, store memory.Store, user memory.UserID, _ memory.AgentID) error {
			_, err := store.WipeMemory(ctx, user)
			return err
		},
		"WipeUser": func(ctx context.Context, store memory.Store, user memory.UserID, _ memory.AgentID) error {
			_, err := store.WipeUser(ctx, user)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, dir := t.Context(), t.TempDir()
			store := open(t, dir)
			user, agent, err := people(ctx, store)
			if err != nil {
				t.Fatal(err)
			}
			other := memory.NewID[memory.UserID]()
			if err := store.PutUser(ctx, memory.User{ID: other, Name: "other", CreatedAt: at}); err != nil {
				t.Fatal(err)
			}
			canaries := map[memory.UserID][]string{}
			next := 0
			sign := func(u memory.UserID) string {
				next++
				canaries[u] = append(canaries[u], canary(next))
				return "is " + canary(next) + strings.Repeat(" so", next%40)
			}
			for _, u := range []memory.UserID{user, other} {
				s, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: u, CreatedAt: at})
				if err != nil {
					t.Fatal(err)
				}
				var old []memory.TopicID
				for range 40 {
					m, err := store.Append(ctx, u, s.ID, said("something"))
					if err != nil {
						t.Fatal(err)
					}
					sources := []memory.MessageID{m[0].ID}
					x, err := store.CommitExtraction(ctx, u, memory.NewExtraction{Session: s.ID, Seen: []memory.SeqRange{{First: m[0].Seq, Last: m[0].Seq}}, At: at,
						Learnings: memory.Learnings{Facts: []memory.Learned{{Text: sign(u), Sources: sources}}, Decisions: []memory.Learned{{Text: sign(u), Sources: sources}}}})
					if err != nil {
						t.Fatal(err)
					}
					_, r, err := store.Topics(ctx, u, memory.TopicQuery{})
					if err != nil {
						t.Fatal(err)
					}
					topics, err := store.CommitDream(ctx, u, r, memory.Dream{Agent: agent, Extractions: []memory.ExtractionID{x.ID}, At: at, Topics: []memory.NewTopic{
						{Name: "boat", Content: sign(u), Sources: sources, Supersedes: old}, {Name: "boat", Content: sign(u), Sources: sources, OfAgent: true}}})
					if err != nil {
						t.Fatal(err)
					}
					old = []memory.TopicID{topics[0].ID}
				}
			}
			if n := len(residues(t, database(dir), canaries[user])); n == 0 {
				t.Fatal("the words cannot be found while they are there")
			}
			if err := forget(ctx, store, user, agent); err != nil {
				t.Fatal(err)
			}
			if pending, err := store.(*sqlite.Store).ScrubPending(ctx); err != nil || !pending {
				t.Errorf("it is not recorded that the files are to be scrubbed: %v, %v", pending, err)
			}
			if done, err := store.Scrub(ctx); err != nil || !done {
				t.Fatalf("scrub: %v, %v", done, err)
			}
			if found := residues(t, database(dir), canaries[user]); len(found) > 0 {
				t.Errorf("%d traces: %.500s", len(found), found)
			}
			if n := len(residues(t, database(dir), canaries[other])); n < len(canaries[other]) {
				t.Errorf("%d of %d words of another user are left", n, len(canaries[other]))
			}
			if found, err := store.(*sqlite.Store).Check(ctx); err != nil || len(found) > 0 {
				t.Errorf("the doctor finds %+v, %v", found, err)
			}
		})
	}
}

func init() { childTasks["learn"] = learnUntilKilled }

// learnUntilKilled says something, extracts from it and dreams, over and over. Each
// dream merges the extraction and looks at the answer, and makes two topics.
func learnUntilKilled(dir string) int {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	user, agent, err := people(ctx, store)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	sessions, err := store.Sessions(ctx, user, memory.SessionQuery{})
	if err != nil || len(sessions) == 0 {
		fmt.Println("sessions:", err)
		return 1
	}
	session := sessions[0].ID
	for n := 0; ; n++ {
		answer := said("answer")
		answer.Role, answer.Source = memory.RoleAssistant, memory.SourceAssistant
		m, err := store.Append(ctx, user, session, said("question"), answer)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		sources := []memory.MessageID{m[0].ID}
		x, err := store.CommitExtraction(ctx, user, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: m[0].Seq, Last: m[0].Seq}}, At: at,
			Learnings: memory.Learnings{Facts: []memory.Learned{{Text: fmt.Sprint(n), Sources: sources}}}})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("extracted", x.ID)
		known, r, err := store.Topics(ctx, user, memory.TopicQuery{At: at})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		d := memory.Dream{Agent: agent, Extractions: []memory.ExtractionID{x.ID}, Session: session, Seen: []memory.SeqRange{{First: m[1].Seq, Last: m[1].Seq}}, At: at}
		for i := range 2 {
			d.Topics = append(d.Topics, memory.NewTopic{Name: fmt.Sprint("topic ", i), Content: x.ID.String(), Sources: sources})
			for _, old := range known {
				if old.Name == d.Topics[i].Name {
					d.Topics[i].Supersedes = append(d.Topics[i].Supersedes, old.ID)
				}
			}
		}
		if _, err = store.CommitDream(ctx, user, r, d); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("merged", x.ID)
	}
}

// Invariant 5: what was learned, and that it was, is stored in one piece; a dream
// leaves all that it changed or nothing.
func TestAKilledDream(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	acknowledged := map[string]string{}
	for round := range *kills {
		command := rerun(t, dir, "learn")
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(output)
		for n := 2 + random.IntN(10); lines.Scan(); {
			what, id, ok := strings.Cut(lines.Text(), " ")
			if what == "opening" {
				continue
			}
			if !ok || what != "extracted" && what != "merged" {
				t.Fatalf("the child says %q", lines.Text())
			}
			acknowledged[id] = what
			if n--; n == 0 {
				_ = command.Process.Kill()
			}
		}
		_ = command.Wait()
		store := open(t, dir)
		extractions, err := store.Extractions(t.Context(), user, memory.ExtractionQuery{})
		if err != nil {
			t.Fatal(err)
		}
		topics, _, err := store.Topics(t.Context(), user, memory.TopicQuery{})
		if err != nil {
			t.Fatal(err)
		}
		learned, merged := map[string]bool{}, map[string]int{}
		for _, topic := range topics {
			merged[topic.Content]++
		}
		count := 0
		for _, x := range extractions {
			learned[x.ID.String()] = true
			want := 0
			if !x.MergedAt.IsZero() {
				want, count = 2, count+1
			}
			if merged[x.ID.String()] != want {
				t.Errorf("round %d: extraction %s, merged at %v, has %d topics", round, x.ID, x.MergedAt, merged[x.ID.String()])
			}
		}
		for id, what := range acknowledged {
			if !learned[id] || what == "merged" && merged[id] != 2 {
				t.Errorf("round %d: %s was %s, and is not there", round, id, what)
			}
		}
		s, err := store.Session(t.Context(), user, session.ID)
		if err != nil {
			t.Fatal(err)
		}
		unseen, err := store.Unseen(t.Context(), user, session.ID)
		if err != nil || s.Messages-unseen.Messages != len(extractions)+count || s.UserMessages-unseen.UserMessages != len(extractions) {
			t.Errorf("round %d: of %+v unseen are %+v, after %d extractions and %d dreams, %v", round, s, unseen, len(extractions), count, err)
		}
		if found, err := store.(*sqlite.Store).Check(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("round %d: the doctor finds %+v, %v", round, found, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acknowledged) < *kills {
		t.Errorf("only %d extractions were acknowledged", len(acknowledged))
	}
}

// BenchmarkLearned reads what is unseen of short and of long sessions, and looks
// for idle ones among few and many: the costs are those of what is found.
func BenchmarkLearned(b *testing.B) {
	for _, each := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("messages=%d", each), func(b *testing.B) {
			ctx, dir := b.Context(), b.TempDir()
			store := open(b, dir)
			user, agent, err := people(ctx, store)
			if err != nil {
				b.Fatal(err)
			}
			s, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
			if err != nil {
				b.Fatal(err)
			}
			drafts := make([]memory.Draft, 500)
			for stored := 0; stored < each; stored += len(drafts) {
				for i := range drafts {
					drafts[i] = said("some words that somebody says")
				}
				if _, err := store.Append(ctx, user, s.ID, drafts...); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := store.CommitExtraction(ctx, user, memory.NewExtraction{Session: s.ID, Seen: []memory.SeqRange{{First: 1, Last: int64(each - 20)}}, At: at}); err != nil {
				b.Fatal(err)
			}
			// As many other sessions as there are messages, all of them looked at.
			execute(b, database(dir), fmt.Sprintf(`INSERT INTO sessions (id, agent_id, user_id, title, created_at, last_active_at, user_messages, messages)
				WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT randomblob(16), s.agent_id, s.user_id, '', i, i, 1, 0 FROM n, sessions s WHERE s.messages > 0`, each))
			b.Run("Unseen", func(b *testing.B) {
				for b.Loop() {
					if u, err := store.Unseen(ctx, user, s.ID); err != nil || u.Messages != 20 {
						b.Fatal(u, err)
					}
				}
			})
			b.Run("UnseenMessages", func(b *testing.B) {
				for b.Loop() {
					if m, err := store.UnseenMessages(ctx, user, s.ID, memory.MessageQuery{}); err != nil || len(m) != 20 {
						b.Fatal(len(m), err)
					}
				}
			})
			b.Run("IdleSessions", func(b *testing.B) {
				for b.Loop() {
					if idle, err := store.IdleSessions(ctx, []memory.AgentID{agent}, at.Add(time.Hour), 8); err != nil || len(idle) != 1 {
						b.Fatal(idle, err)
					}
				}
			})
		})
	}
}
