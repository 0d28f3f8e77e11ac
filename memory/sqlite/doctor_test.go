package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func examined(t testing.TB, path string) []sqlite.Finding {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	found, err := store.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// conversation is a store with a session of 40 messages and two levels of
// summaries, closed, and what its user had said.
func conversation(t *testing.T) (path string, session memory.SessionID, said40 []memory.Message) {
	t.Helper()
	dir := t.TempDir()
	store := open(t, dir)
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	condense := func(take int) {
		f, err := store.Frontier(t.Context(), user, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		n := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: "condensed", Level: memory.LevelNormal, Model: "test"}, At: at}
		for _, i := range f.Items[:take] {
			n.Summaries = append(n.Summaries, i.Summary.ID)
		}
		if _, err := store.CommitSummary(t.Context(), user, f.Revision, n); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		d := said(strings.Repeat("word ", i+1))
		if i%2 == 1 {
			d.Role, d.Source = memory.RoleAssistant, memory.SourceAssistant
		}
		if _, err := store.Append(t.Context(), user, s.ID, d); err != nil {
			t.Fatal(err)
		}
		if i%8 == 7 && i < 36 {
			if err := compact(t.Context(), store, user, s.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	condense(2)
	messages, err := store.Messages(t.Context(), user, s.ID, memory.MessageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return database(dir), s.ID, messages
}

// some is more findings than are counted.
const some = -1

func TestDoctor(t *testing.T) {
	const anyLeaf, anySummary = "(SELECT id FROM summaries WHERE depth = 0 ORDER BY number LIMIT 1)", "(SELECT id FROM summaries WHERE depth = 1)"
	const (
		one, two = "x'000000000000700080000000000000f1'", "x'000000000000700080000000000000f2'"
		topics   = "INSERT INTO topics (id, user_id, name, content, valid_from, updated_at, superseded_by) "
	)
	for _, test := range []struct {
		name, damage, finds string
		left                int // findings that Repair leaves
	}{
		{"nothing", "SELECT 1", "", 0},
		{"a message is nowhere", "DELETE FROM frontier WHERE ordinal = 40", "messages are not in the frontier", 0},
		{"the frontier is lost", "DELETE FROM frontier", "messages are not in the frontier", 0},
		{"a source is lost", "DELETE FROM summary_sources WHERE summary_id = " + anyLeaf + " AND ordinal = 3", "messages are not in the frontier", 0},
		{"all sources are lost", "DELETE FROM summary_sources", "are not in the frontier", 0},
		{"a message is shown twice", "INSERT INTO frontier SELECT session_id, 100, (SELECT id FROM messages WHERE seq = 2), NULL FROM frontier LIMIT 1", "messages are not in the frontier or one summary", 0},
		{"a summary is shown twice", "INSERT INTO frontier SELECT session_id, 100, NULL, " + anyLeaf + " FROM frontier LIMIT 1", "summaries are not in the frontier or another", 0},
		{"a summary is lost", "DELETE FROM summaries WHERE id = " + anySummary, "does not exist", 0},
		{"summaries are in a ring", "UPDATE summary_sources SET message_id = NULL, source_summary_id = " + anySummary + " WHERE summary_id = " + anyLeaf + " AND ordinal = 1", "not in the frontier", 0},
		{"a depth is wrong", "UPDATE summaries SET depth = 7 WHERE depth = 1", "do not have the depth", 0},
		{"a number of messages is wrong", "UPDATE summaries SET descendants = 7", "do not have the depth", 0},
		{"an item is out of place", "UPDATE frontier SET ordinal = 700 WHERE message_id IS NOT NULL AND ordinal = 40", "out of place", 0},
		{"the session counts wrong", "UPDATE sessions SET messages = 12, exchanges = 3, awaiting = 1", "what the session counts", 0},
		{"the session is found by nothing", "UPDATE sessions SET placed = 40", "what the session counts", 0},
		{"the session was not active", "UPDATE sessions SET active = 0", "what the session counts", 0},
		{"the frontier is counted wrong", "UPDATE sessions SET shown_items = shown_items + 1, shown_tokens = 7", "counts of what the frontier has", 0},
		{"a message is lost", "DELETE FROM frontier WHERE ordinal = 40; DELETE FROM messages WHERE seq = 40", "what the session counts", 0},
		{"a message in between is lost", "DELETE FROM messages WHERE seq = 3", "1 messages are missing in between", 1},
		{"a message cannot be read", "UPDATE messages SET content = '[{]' WHERE seq = 5", "cannot be read", 1},
		{"the session is lost", "DELETE FROM sessions", "refers to one in sessions", some},
		{"a record without a session", "PRAGMA foreign_keys = OFF; INSERT INTO compaction_runs VALUES (1, x'00', x'00', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)", "compaction_runs", 0},
		{"a source without a topic", "INSERT INTO topic_sources VALUES (x'00', x'01')", "sources belong to topics", 0},
		{"what was looked at is not there", "INSERT INTO session_learned SELECT id, 30, 41 FROM sessions", "runs of messages that were looked at", 0},
		{"what was looked at overlaps", "INSERT INTO session_learned SELECT id, 1, 5 FROM sessions; INSERT INTO session_learned SELECT id, 5, 9 FROM sessions", "1 runs of messages that were looked at", 0},
		{"what was looked at touches", "INSERT INTO session_learned SELECT id, 1, 5 FROM sessions; INSERT INTO session_learned SELECT id, 6, 9 FROM sessions", "1 runs of messages that were looked at", 0},
		{"there is more to learn", "UPDATE sessions SET due_since = NULL", "whether there is something to learn", 0},
		{"there is less to learn", "INSERT INTO session_learned SELECT id, 1, 40 FROM sessions", "whether there is something to learn", 0},
		{"there is something to learn later", "UPDATE sessions SET due_since = last_active_at + 1", "whether there is something to learn", 0},
		{"what was looked at of no session", "PRAGMA foreign_keys = OFF; INSERT INTO session_learned VALUES (x'00', 1, 2)", "session_learned", 0},
		{"a run of no session", "PRAGMA foreign_keys = OFF; INSERT INTO pending_runs VALUES (x'00', 'gap', x'00', 0, 0, 0, 0, 0)", "pending_runs", 0},
		{"a topic's name is out of form", topics + "SELECT " + one + ", id, 'The  Boat', 'x', 0, 0, NULL FROM users", "out of form", 0},
		{"a topic has no name", topics + "SELECT " + one + ", id, '', 'x', 0, 0, NULL FROM users", "out of form", 0},
		{"a topic says too much", topics + "SELECT " + one + ", id, 'x', hex(zeroblob(1500)), 0, 0, NULL FROM users", "out of form", 0},
		{"topics are in a ring", topics + "SELECT " + one + ", id, 'x', 'x', 0, 0, NULL FROM users; " + topics + "SELECT " + two + ", id, 'x', 'x', 0, 0, " + one + " FROM users; UPDATE topics SET superseded_by = " + two + " WHERE id = " + one, "2 topics were superseded by one another", 0},
		{"a topic superseded another user's", "INSERT INTO users VALUES (" + one + ", 'bob', 0, 0, 0); " + topics + "SELECT id, " + one + ", 'x', 'x', 0, 0, NULL FROM users WHERE is_default; " + topics + "SELECT " + two + ", id, 'x', 'x', 0, 0, id FROM users WHERE is_default", "superseded by none of the same user", 0},
		{"a topic's heir is lost", "PRAGMA foreign_keys = OFF; " + topics + "SELECT " + one + ", id, 'x', 'x', 0, 0, " + two + " FROM users", "superseded by none of the same user", 0},
		{"what was learned cannot be read", "INSERT INTO session_extractions SELECT " + one + ", user_id, agent_id, id, '{', '[]', '[]', '[]', '[]', 0, 0 FROM sessions", "what was learned cannot be read", 1},
		{"a parent that does not exist", "UPDATE sessions SET parent_session_id = x'000102'", "refers to one in sessions", 0},
		{"a wipe that was begun", "INSERT INTO wipes VALUES (x'00112233445566778899aabbccddeeff', 0)", "were begun and not ended", 1},
		{"what is to be scrubbed", "INSERT INTO kv VALUES ('shared', 'scrub_pending', x'01')", "may still be in the files", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			path, session, messages := conversation(t)
			execute(t, path, test.damage)
			found := examined(t, path)
			all := ""
			for _, f := range found {
				all += f.What + " " + f.Where + "\n"
				if f.Advice == "" || f.Where == "" {
					t.Errorf("a finding without advice or place: %+v", f)
				}
			}
			if (test.finds == "") != (len(found) == 0) || !strings.Contains(all, test.finds) {
				t.Errorf("found %+v", found)
			}
			store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			left, err := store.Repair(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(left) != test.left && (test.left != some || len(left) == 0) {
				t.Errorf("left are %+v", left)
			}
			if test.left != 0 || strings.Contains(test.damage, "DELETE FROM messages") {
				return
			}
			// Nothing that was said is lost, and the frontier shows it in order.
			user, err := store.DefaultUser(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := store.Messages(t.Context(), user.ID, session, memory.MessageQuery{}); err != nil || !reflect.DeepEqual(got, messages) {
				t.Errorf("messages after the repair: %d, %v", len(got), err)
			}
			ids := map[string][]string{session.String(): {}}
			for _, m := range messages {
				ids[session.String()] = append(ids[session.String()], m.ID.String())
			}
			if !strings.Contains(test.name, "source is lost") {
				survived(t, store, ids)
			}
		})
	}
}

func TestBackup(t *testing.T) {
	path, session, messages := conversation(t)
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	reader, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for name, from := range map[string]*sqlite.Store{"writer": store, "reader": reader} {
		to := filepath.Join(t.TempDir(), "copy of 'it'?.db")
		if err := from.Backup(t.Context(), to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := from.Backup(t.Context(), to); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: over a file: %v", name, err)
		}
		entries, err := os.ReadDir(filepath.Dir(to))
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: left behind: %v, %v", name, entries, err)
		}
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if found := examined(t, to); len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
		backup, err := sqlite.Open(t.Context(), to, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer backup.Close()
		user, err := backup.DefaultUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := backup.Messages(t.Context(), user.ID, session, memory.MessageQuery{}); err != nil || !reflect.DeepEqual(got, messages) {
			t.Errorf("%s: %d messages, %v", name, len(got), err)
		}
	}
	if err := store.Backup(t.Context(), filepath.Join(t.TempDir(), "no", "place.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into no directory: %v", err)
	}
}

// A summary that a repair removes is no longer found, and whoever has its number
// next is found by their own user alone.
func TestRepairedSummariesAreNotFound(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	summarise := func(s searched) {
		t.Helper()
		s.say(t, "one", "two", "three")
		f, err := s.Frontier(t.Context(), s.user, s.session)
		if err != nil {
			t.Fatal(err)
		}
		n := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), At: at, SummaryText: memory.SummaryText{Text: "zebra", Level: memory.LevelNormal},
			Messages: []memory.MessageID{f.Items[0].Message.ID, f.Items[1].Message.ID}}
		if _, err := s.CommitSummary(t.Context(), s.user, f.Revision, n); err != nil {
			t.Fatal(err)
		}
	}
	summarise(s)
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "data", "glovebox.db")
	if _, err := sideDoor(t, path).ExecContext(t.Context(), "DELETE FROM summary_sources"); err != nil {
		t.Fatal(err)
	}
	s.Store = open(t, dir).(*sqlite.Store)
	if left, err := s.Repair(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("repaired, there is %v, %v", left, err)
	}
	other := s
	other.user = memory.NewID[memory.UserID]()
	if err := s.PutUser(t.Context(), memory.User{ID: other.user, Name: "other", CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	other.session = s.create(t, other.user, s.agent)
	summarise(other)
	for user, want := range map[memory.UserID]int{s.user: 0, other.user: 1} {
		if hits, err := s.SearchSummaries(t.Context(), user, words("zebra")); err != nil || len(hits) != want {
			t.Errorf("%d hits, not %d: %v", len(hits), want, err)
		}
	}
}

// What a repair does to topics whose heir cannot be never brings one back, and what
// goes on meanwhile is told.
func TestRepairBringsNoTopicBack(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var old []memory.TopicID
	for _, content := range []string{"first", "second", "third"} {
		_, r, err := store.Topics(t.Context(), user, memory.TopicQuery{})
		if err != nil {
			t.Fatal(err)
		}
		topics, err := store.CommitDream(t.Context(), user, r, memory.Dream{Agent: agent, At: at, Topics: []memory.NewTopic{{Name: "x", Content: content, Supersedes: old}}})
		if err != nil {
			t.Fatal(err)
		}
		old = []memory.TopicID{topics[0].ID}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, database(dir), "PRAGMA foreign_keys = OFF; DELETE FROM topics WHERE content = 'second'; INSERT INTO topic_sources SELECT id, id FROM topics")
	store = open(t, dir)
	_, r, err := store.Topics(t.Context(), user, memory.TopicQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := store.(*sqlite.Store).Repair(t.Context()); err != nil || len(found) > 0 {
		t.Fatalf("after the repair: %+v, %v", found, err)
	}
	for _, after := range []time.Duration{0, time.Hour, 1000 * time.Hour} {
		topics, _, err := store.Topics(t.Context(), user, memory.TopicQuery{At: at.Add(after)})
		if err != nil || len(topics) != 1 || topics[0].Content != "third" {
			t.Errorf("after %v %+v is remembered, %v", after, topics, err)
		}
	}
	if all, _, err := store.Topics(t.Context(), user, memory.TopicQuery{}); err != nil || len(all) != 2 {
		t.Errorf("kept is %+v, %v", all, err)
	}
	if _, err := store.CommitDream(t.Context(), user, r, memory.Dream{Agent: agent, At: at}); !errors.Is(err, memory.ErrConflict) {
		t.Errorf("a dream from before the repair: %v", err)
	}
}
