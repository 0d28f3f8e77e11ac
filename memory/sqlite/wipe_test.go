package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// canary is a word that stands nowhere else. In a session its JSON differs from
// its plain form.
func canary(n int) string {
	// In no order, so that indexes of them grow everywhere.
	sum := sha256.Sum256(fmt.Append(nil, n))
	return fmt.Sprintf("%xzq%d", sum[:6], n)
}

// residues returns which of the canaries are in a file of the database.
func residues(t testing.TB, path string, canaries []string) (found []string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		data, err := os.ReadFile(path + suffix)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		// Half of a word is a trace too, and so is a stem.
		for _, c := range canaries {
			for _, form := range []string{c, c[:len(c)-2], strings.ToUpper(c)} {
				if at := bytes.Index(data, []byte(form)); at >= 0 {
					found = append(found, fmt.Sprintf("%q in %q at page %d + %d", form, filepath.Base(path)+suffix, at/4096+1, at%4096))
				}
			}
		}
	}
	return found
}

// dump returns all rows of all tables that do not belong to a user, but for what a
// wipe is to change.
func dump(t testing.TB, path string, without memory.UserID) map[string][]string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := map[string][]string{}
	for table, mine := range map[string]string{
		"users": "id = ?1", "agents": "?1 IS NULL", "sessions": "user_id = ?1", "wipes": "user_id = ?1",
		"messages": "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)", "summaries": "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)",
		"frontier": "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)", "files": "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)",
		"compaction_runs":     "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)",
		"summary_sources":     "summary_id IN (SELECT v.id FROM summaries v JOIN sessions s ON s.id = v.session_id WHERE s.user_id = ?1)",
		"session_extractions": "user_id = ?1", "topics": "user_id = ?1",
		"session_learned": "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)", "pending_runs": "session_id IN (SELECT id FROM sessions WHERE user_id = ?1)",
		"topic_sources": "topic_id IN (SELECT id FROM topics WHERE user_id = ?1)",
		"kv":            "scope = '" + without.String() + "' OR key = 'scrub_pending'",
	} {
		rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table+" WHERE NOT ("+mine+") ORDER BY 1, 2", without[:])
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		all[table] = []string{}
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			line := ""
			for _, v := range values {
				line += fmt.Sprintf("%v|", *v.(*any))
			}
			all[table] = append(all[table], line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// inhabited fills a store with what users say, in turns, so that their rows lie
// side by side; returns the canaries of each user.
func inhabited(t testing.TB, store memory.Store, path string, users, rounds int) ([]memory.UserID, [][]string) {
	t.Helper()
	ctx := t.Context()
	agent, err := store.PutAgent(ctx, "assistant", "", at)
	if err != nil {
		t.Fatal(err)
	}
	var ids []memory.UserID
	var sessions [][]memory.SessionID
	canaries := make([][]string, users)
	next := 0
	sign := func(u int) string {
		next++
		c := canary(next)
		canaries[u] = append(canaries[u], c)
		return c
	}
	for u := range users {
		id := memory.NewID[memory.UserID]()
		if u == 0 {
			d, err := store.DefaultUser(ctx)
			if err != nil {
				t.Fatal(err)
			}
			id = d.ID
		}
		if err := store.PutUser(ctx, memory.User{ID: id, Name: sign(u), CreatedAt: at}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		sessions = append(sessions, nil)
	}
	for round := range rounds {
		for u, user := range ids {
			if round%7 == 0 {
				var parent memory.SessionID
				if round%2 == 1 {
					parent = sessions[u][0]
				}
				s, err := store.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user, Parent: parent, Title: "about " + sign(u), CreatedAt: at})
				if err != nil {
					t.Fatal(err)
				}
				sessions[u] = append(sessions[u], s.ID)
			}
			session := sessions[u][len(sessions[u])-1]
			size := 1 << (round * 5 % 14) // up to 8 KiB: some take pages of their own
			_, err := store.Append(ctx, user, session,
				memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("\"" + sign(u) + "\"\n" + strings.Repeat(sign(u)+" ", 1+size/20))}, EventKey: sign(u), At: at},
				memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.Text(sign(u))}, At: at.Add(time.Duration(round) * time.Second)})
			if err != nil {
				t.Fatal(err)
			}
			if round%11 == 8 {
				v, err := store.Session(ctx, user, session)
				if err != nil {
					t.Fatal(err)
				}
				if v, err = store.Fork(ctx, user, session, int64(v.Messages)-1, at); err != nil {
					t.Fatal(err)
				}
				if err := store.NameSession(ctx, user, v.ID, sign(u)); err != nil {
					t.Fatal(err)
				}
			}
			if round%5 == 4 {
				f, err := store.Frontier(ctx, user, session)
				if err != nil {
					t.Fatal(err)
				}
				n := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: "of " + sign(u), Level: memory.LevelFallback, Model: "test"}, At: at}
				for _, i := range f.Items {
					if i.Message != nil {
						n.Messages = append(n.Messages, i.Message.ID)
					}
				}
				if _, err := store.CommitSummary(ctx, user, f.Revision, n); err != nil {
					t.Fatal(err)
				}
				if f, err = store.Frontier(ctx, user, session); err != nil {
					t.Fatal(err)
				}
				longer := memory.SummaryText{Text: strings.Repeat(sign(u)+" ", 1+size/30), Level: memory.LevelNormal, Model: "test"}
				if _, err := store.RepairSummary(ctx, user, f.Revision, n.ID, longer); err != nil {
					t.Fatal(err)
				}
				if err := store.RecordCompaction(ctx, user, memory.CompactionRun{Session: session, Agent: agent.ID, Trigger: "manual", Outcome: "failed", Reason: sign(u), StartedAt: at}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for u, user := range ids {
		session := sessions[u][0]
		messages, err := store.Messages(ctx, user, session, memory.MessageQuery{Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		sources := []memory.MessageID{messages[0].ID}
		x, err := store.CommitExtraction(ctx, user, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: 1, Last: 2}}, At: at,
			Learnings: memory.Learnings{Facts: []memory.Learned{{Text: sign(u), Sources: sources}}, OpenItems: []memory.Learned{{Text: sign(u), Sources: sources}}}})
		if err != nil {
			t.Fatal(err)
		}
		var old []memory.TopicID
		for range 2 {
			_, r, err := store.Topics(ctx, user, memory.TopicQuery{})
			if err != nil {
				t.Fatal(err)
			}
			d := memory.Dream{Agent: agent.ID, At: at, Topics: []memory.NewTopic{{Name: sign(u), Content: sign(u), Sources: sources, Supersedes: old}}}
			if old == nil {
				d.Topics = append(d.Topics, memory.NewTopic{OfAgent: true, Name: sign(u), Content: sign(u), Sources: sources})
				d.Extractions = []memory.ExtractionID{x.ID}
			}
			topics, err := store.CommitDream(ctx, user, r, d)
			if err != nil {
				t.Fatal(err)
			}
			old = []memory.TopicID{topics[0].ID}
		}
		if err := store.PutPendingRun(ctx, memory.PendingRun{User: user, Agent: agent.ID, Session: session, Trigger: memory.TriggerCadence, At: at}); err != nil {
			t.Fatal(err)
		}
	}
	// What no method writes yet.
	writing := sideDoor(t, path)
	for u, user := range ids {
		block := strings.Repeat(sign(u), 3000)
		other := memory.NewID[memory.FileID]()
		for _, row := range []struct {
			statement string
			arguments []any
		}{
			{"INSERT INTO files VALUES (NULL, ?, ?, ?, '', 1, 1, ?, ?, 'direct', 0, ?)", []any{other[:], sessions[u][0][:], sign(u), fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(block))), sign(u), block}},
			{"INSERT INTO kv VALUES (?, ?, ?)", []any{user.String(), sign(u), []byte(sign(u))}},
		} {
			if _, err := writing.ExecContext(ctx, row.statement, row.arguments...); err != nil {
				t.Fatalf("%s: %v", row.statement, err)
			}
		}
	}
	return ids, canaries
}

// sideDoor is a connection beside the store's.
func sideDoor(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=secure_delete(ON)&_pragma=foreign_keys(ON)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// S7
func TestWipedIsWiped(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	users, canaries := inhabited(t, store, database(dir), 3, 60)
	// Rows that are deleted have SQLite move others, and leave copies of them.
	for _, user := range users {
		sessions, err := store.Sessions(t.Context(), user, memory.SessionQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range sessions {
			files, err := store.Files(t.Context(), user, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			if i%3 == 1 && len(files) == 0 {
				if err := store.DeleteSession(t.Context(), user, s.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i, user := range users {
		before := dump(t, database(dir), user)
		counts, err := store.WipeUser(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		if counts.Messages == 0 || counts.Summaries == 0 || counts.Sessions == 0 || counts.Files != 1 || counts.Topics != 2 || counts.AgentTopics != 1 ||
			counts.Extractions != 1 || counts.Compactions == 0 || counts.Users != min(i, 1) {
			t.Errorf("counts %+v", counts)
		}
		if done, err := store.Scrub(t.Context()); err != nil || !done {
			t.Fatalf("scrub: %v, %v", done, err)
		}
		if found := residues(t, database(dir), canaries[i]); len(found) > 0 {
			t.Errorf("user %d: %d traces of %d words: %.500s", i, len(found), len(canaries[i]), found)
		}
		encode := func(v any) string { b, _ := json.MarshalIndent(v, "", " "); return string(b) }
		if after := dump(t, database(dir), user); encode(after) != encode(before) {
			t.Error("another user's rows have changed")
		}
		if again, err := store.WipeUser(t.Context(), user); err != nil || again != (memory.WipeCounts{}) {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
	store.Close()
	if found := query(t, database(dir), "PRAGMA integrity_check"); found != "ok" {
		t.Error(found)
	}
	if found := query(t, database(dir), "PRAGMA foreign_key_check"); found != "" {
		t.Error(found)
	}
}

// Reads of this store are waited for, and do not wait themselves; those of another
// process are not.
func TestScrubAndReaders(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir).(*sqlite.Store)
	users, canaries := inhabited(t, store, database(dir), 2, 20)
	foreign := sideDoor(t, database(dir))
	reading, err := foreign.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Rollback()
	n := 0
	if err := reading.QueryRowContext(t.Context(), "SELECT count(*) FROM messages").Scan(&n); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	if _, err := store.WipeUser(t.Context(), users[1]); err != nil {
		t.Fatal(err)
	}
	if done, err := store.Scrub(t.Context()); err != nil || done {
		t.Errorf("scrubbed beside a reader: %v, %v", done, err)
	}
	if pending, err := store.ScrubPending(t.Context()); err != nil || !pending {
		t.Errorf("pending: %v, %v", pending, err)
	}
	// What another process reads stays what it was.
	again := 0
	if err := reading.QueryRowContext(t.Context(), "SELECT count(*) FROM messages").Scan(&again); err != nil || again != n {
		t.Error(again, err)
	}
	if err := reading.Rollback(); err != nil {
		t.Fatal(err)
	}
	// Readers and writers of this store go on meanwhile.
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				sessions, err := store.Sessions(t.Context(), users[0], memory.SessionQuery{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := store.Append(t.Context(), users[0], sessions[0].ID, said("meanwhile")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done, err := store.Scrub(t.Context())
	stop()
	group.Wait()
	if err != nil || !done {
		t.Errorf("scrub: %v, %v", done, err)
	}
	if pending, err := store.ScrubPending(t.Context()); err != nil || pending {
		t.Errorf("pending: %v, %v", pending, err)
	}
	if found := residues(t, database(dir), canaries[1]); len(found) > 0 {
		t.Errorf("%d traces: %.500s", len(found), found)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := store.Scrub(ended); !errors.Is(err, context.Canceled) || done {
		t.Errorf("with a context that has ended: %v, %v", done, err)
	}
}

func init() { childTasks["wipe"] = wipeUntilKilled }

// wipeUntilKilled wipes the user whose name begins with "victim" as a host does.
func wipeUntilKilled(dir string) int {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	wipes, err := store.Wipes(ctx)
	for _, w := range wipes {
		if _, err = store.WipeUser(ctx, w.User); err != nil {
			break
		}
		fmt.Println("wiped")
		if _, err = store.Scrub(ctx); err != nil {
			break
		}
		fmt.Println("scrubbed")
	}
	fmt.Println("end:", err)
	return 0
}

// S7: a wipe that was killed anywhere is ended by doing it again.
func TestAKilledWipe(t *testing.T) {
	template := t.TempDir()
	store := open(t, template)
	users, canaries := inhabited(t, store, database(template), 3, 30)
	victim := users[1]
	if err := errors.Join(store.BeginWipe(t.Context(), victim, at), store.Close()); err != nil {
		t.Fatal(err)
	}
	before := dump(t, database(template), victim)
	random := mathrand.New(mathrand.NewPCG(3, 4))
	for round := range *kills {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Chmod(database(dir)+suffix, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		command := rerun(t, dir, "wipe")
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		// After a word of the child, or somewhere between two of them.
		lines := bufio.NewScanner(output)
		for range round%3 + 1 {
			lines.Scan()
		}
		select {
		case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
		case <-t.Context().Done():
		}
		_ = command.Process.Kill()
		_ = command.Wait()
		if found := examined(t, database(dir)); len(found) == 0 || len(found) > 2 {
			t.Errorf("round %d: the doctor finds %+v", round, found)
		}
		store := open(t, dir)
		if _, err := store.WipeUser(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		if done, err := store.Scrub(t.Context()); err != nil || !done {
			t.Errorf("scrub: %v, %v", done, err)
		}
		if err := store.EndWipe(t.Context(), victim); err != nil {
			t.Error(err)
		}
		if found := residues(t, database(dir), canaries[1]); len(found) > 0 {
			t.Errorf("round %d: %d traces: %.500s", round, len(found), found)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if after := dump(t, database(dir), victim); !reflect.DeepEqual(after, before) {
			t.Error("another user's rows have changed")
		}
		if found := examined(t, database(dir)); len(found) > 0 {
			t.Errorf("round %d: the doctor finds %+v", round, found)
		}
	}
}

// BenchmarkWipe wipes one of 100 users whose messages lie side by side, and scrubs.
func BenchmarkWipe(b *testing.B) {
	const users = 100
	for _, each := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("messages=%d", each), func(b *testing.B) {
			dir := b.TempDir()
			store := open(b, dir)
			agent, err := store.PutAgent(b.Context(), "assistant", "", at)
			if err != nil {
				b.Fatal(err)
			}
			ids := make([]memory.UserID, users)
			sessions := make([]memory.SessionID, users)
			for u := range ids {
				ids[u] = memory.NewID[memory.UserID]()
				if err := store.PutUser(b.Context(), memory.User{ID: ids[u], Name: fmt.Sprintf("user%d", u), CreatedAt: at}); err != nil {
					b.Fatal(err)
				}
				s, err := store.CreateSession(b.Context(), memory.Session{Agent: agent.ID, User: ids[u], CreatedAt: at})
				if err != nil {
					b.Fatal(err)
				}
				sessions[u] = s.ID
			}
			if err := store.Close(); err != nil {
				b.Fatal(err)
			}
			// As Append writes them, without waiting for the disk a million times.
			side := sideDoor(b, database(dir))
			tx, err := side.BeginTx(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			messages, err := tx.PrepareContext(b.Context(), "INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, created_at) VALUES (?, ?, ?, 'user', 'user', ?, 250, 'direct', 0)")
			if err != nil {
				b.Fatal(err)
			}
			frontier, err := tx.PrepareContext(b.Context(), "INSERT INTO frontier (session_id, ordinal, message_id) VALUES (?, ?, ?)")
			if err != nil {
				b.Fatal(err)
			}
			content := `[{"type":"text","text":"` + strings.Repeat("some words ", 90) + `"}]`
			for n := range each {
				for _, session := range sessions {
					id := memory.NewID[memory.MessageID]()
					if _, err := messages.ExecContext(b.Context(), id[:], session[:], n+1, content); err != nil {
						b.Fatal(err)
					}
					if _, err := frontier.ExecContext(b.Context(), session[:], n+1, id[:]); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := errors.Join(tx.Commit(), side.Close()); err != nil {
				b.Fatal(err)
			}
			store = open(b, dir)
			var wiping, scrubbing time.Duration
			next := 0
			for b.Loop() {
				began := time.Now()
				counts, err := store.WipeUser(b.Context(), ids[next])
				if err != nil || counts.Messages != each {
					b.Fatalf("%+v, %v", counts, err)
				}
				wiping += time.Since(began)
				began = time.Now()
				if done, err := store.Scrub(b.Context()); err != nil || !done {
					b.Fatal(done, err)
				}
				scrubbing += time.Since(began)
				next++
			}
			b.ReportMetric(wiping.Seconds()/float64(b.N), "wipe-s/op")
			b.ReportMetric(scrubbing.Seconds()/float64(b.N), "scrub-s/op")
		})
	}
}
