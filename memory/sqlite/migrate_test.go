package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// migrationScripts are those of the package, in order.
func migrationScripts(t *testing.T) (scripts []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("migrations", "*.sql"))
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		script, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, string(script))
	}
	return scripts
}

// Rows of schema 1: what a first version had after a conversation. Ids end in what
// they are: a user, an agent, a session, messages, a summary.
const (
	oldUser    = "00000000-0000-4000-8000-0000000000aa"
	oldSession = "00000000-0000-7000-8000-0000000000cc"
	oldSummary = "00000000-0000-7000-8000-0000000000dd"
)

func hexOf(id string) string { return "x'" + strings.ReplaceAll(id, "-", "") + "'" }

func oldRows(t *testing.T) string {
	t.Helper()
	source, err := boundary.HandSource("calendar")
	if err != nil {
		t.Fatal(err)
	}
	external, _ := boundary.Wrap(source, "Dentist at 12:00", boundary.Unlimited)
	encoded, err := external.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	message := func(n int, role, source, content, trust, event string) string {
		return fmt.Sprintf("INSERT INTO messages VALUES (x'000000000000700080000000%08x', %s, %d, '%s', '%s', '%s', 'plain words', %d, '%s', %s, %d);\n",
			0xee00+n, hexOf(oldSession), n, role, source, strings.ReplaceAll(content, "'", "''"), 10*n, trust, event, 1_700_000_000_000_000+n)
	}
	return "INSERT INTO kv VALUES ('shared', 'default_user_uuid', " + hexOf(oldUser) + "), ('shared', 'default_user_bootstrap_done', x'01');\n" +
		"INSERT INTO users VALUES (" + hexOf(oldUser) + ", 'alice', 1, 1600000000000000);\n" +
		"INSERT INTO agents VALUES (x'000000000000700080000000000000bb', 'assistant', 'a manifest', 1600000000000001);\n" +
		"INSERT INTO sessions (id, agent_id, user_id, title, created_at, last_active_at, active, user_messages, awaiting, exchanges, messages, revision) VALUES (" +
		hexOf(oldSession) + ", x'000000000000700080000000000000bb', " + hexOf(oldUser) + ", 'A title', 1600000000000002, 1700000000000004, 1, 2, 0, 2, 5, 1);\n" +
		// Out of order, as transcripts can be.
		message(2, "assistant", "assistant", `[{"type":"text","text":"Good morning"}]`, "derived", "NULL") +
		message(1, "user", "user", `[{"type":"text","text":"It's \"me\" \u0000 ü"}]`, "direct", "'event-1'") +
		message(3, "user", "user", `[{"type":"text","text":"What is on today?"}]`, "direct", "'event-3'") +
		message(4, "assistant", "assistant", `[{"type":"text","text":"A dentist"}]`, "derived", "NULL") +
		message(5, "user", "context_injection", `[{"type":"text","text":"[Context refresh — x]"},{"type":"external","content":`+string(encoded)+`}]`, "external", "NULL") +
		"INSERT INTO summaries VALUES (1, " + hexOf(oldSummary) + ", " + hexOf(oldSession) + ", 0, 'They greeted', '" + strings.ReplaceAll(string(encoded), "'", "''") + "', 12, 1700000000000001, 1700000000000002, 2, 'normal', 'test', 1700000000000009);\n" +
		"INSERT INTO summary_sources VALUES (" + hexOf(oldSummary) + ", 1, x'0000000000007000800000000000ee01', NULL), (" + hexOf(oldSummary) + ", 2, x'0000000000007000800000000000ee02', NULL);\n" +
		"INSERT INTO frontier VALUES (" + hexOf(oldSession) + ", 1, NULL, " + hexOf(oldSummary) + ");\n" +
		"INSERT INTO frontier SELECT session_id, seq, id, NULL FROM messages WHERE seq > 2;\n" +
		"INSERT INTO compaction_runs VALUES (7, " + hexOf(oldSession) + ", x'000000000000700080000000000000bb', 'cadence', 'done', 'why', 5, 4, 100, 50, 1, 2, 3, 4, 1700000000000009, 5);\n"
}

// oldDatabase is a database of an older schema with rows that were there from the
// first on.
func oldDatabase(t *testing.T, version int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "glovebox.db")
	for i, script := range migrationScripts(t)[:version] {
		if i == 0 {
			script += oldRows(t)
		}
		execute(t, path, fmt.Sprintf("PRAGMA foreign_keys = OFF; BEGIN; %s; PRAGMA user_version = %d; PRAGMA application_id = %d; COMMIT", script, i+1, 0x47425853))
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wholeFile is the schema and every row.
func wholeFile(t *testing.T, path string) (lines []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	read := func(query string) (found [][]any) {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			found = append(found, values)
		}
		return found
	}
	for _, object := range read("SELECT name, type, sql FROM sqlite_schema ORDER BY name") {
		lines = append(lines, fmt.Sprint(object...))
		if object[1] == "table" {
			for _, row := range read("SELECT * FROM " + object[0].(string) + " ORDER BY 1") {
				lines = append(lines, fmt.Sprintf("%s: %v", object[0], row))
			}
		}
	}
	return append(lines, fmt.Sprint(read("PRAGMA user_version")))
}

// S6: rows of every older schema are intact after the migration, a second opening
// changes nothing.
func TestMigrations(t *testing.T) {
	for version := 1; version <= len(migrationScripts(t)); version++ {
		t.Run(fmt.Sprintf("from=%d", version), func(t *testing.T) {
			path := oldDatabase(t, version)
			store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			user, err := store.DefaultUser(t.Context())
			if err != nil || user.Name != "alice" || user.ID.String() != oldUser {
				t.Fatalf("%+v, %v", user, err)
			}
			session, err := memory.ParseID[memory.SessionID](oldSession)
			if err != nil {
				t.Fatal(err)
			}
			v, err := store.Session(t.Context(), user.ID, session)
			if err != nil || v.Title != "A title" || v.Messages != 5 || v.Exchanges != 2 || v.UserMessages != 2 || v.LastActive.UnixMicro() != 1_700_000_000_000_004 {
				t.Errorf("%+v, %v", v, err)
			}
			messages, err := store.Messages(t.Context(), user.ID, session, memory.MessageQuery{})
			if err != nil {
				t.Fatal(err)
			}
			var shown []string
			for i, m := range messages {
				shown = append(shown, fmt.Sprintf("%d %s %s %s %q %d %d %s", m.Seq, m.Role, m.Source, m.Trust, m.EventKey, m.Tokens, m.At.UnixMicro()-1_700_000_000_000_000, m.Blocks[0].Text))
				if want := fmt.Sprintf("00000000-0000-7000-8000-00000000ee%02x", i+1); m.ID.String() != want {
					t.Errorf("message %d has id %s, want %s", i+1, m.ID, want)
				}
			}
			if want := []string{
				"1 user user direct \"event-1\" 10 1 It's \"me\" \x00 ü", "2 assistant assistant derived \"\" 20 2 Good morning", "3 user user direct \"event-3\" 30 3 What is on today?",
				"4 assistant assistant derived \"\" 40 4 A dentist", "5 user context_injection external \"\" 50 5 [Context refresh — x]",
			}; !reflect.DeepEqual(shown, want) {
				t.Errorf("messages %q", shown)
			}
			if len(messages[4].Blocks) != 2 || !strings.Contains(memory.Shown(messages[4].Blocks), "Dentist at 12:00") {
				t.Errorf("external text: %+v", messages[4].Blocks)
			}
			summaries, err := store.Summaries(t.Context(), user.ID, session)
			if err != nil || len(summaries) != 1 || summaries[0].Text != "They greeted" || summaries[0].Trust != memory.TrustExternal || summaries[0].External.IsEmpty() {
				t.Errorf("summaries %+v, %v", summaries, err)
			}
			if expanded, err := store.Expand(t.Context(), user.ID, summaries[0].ID, memory.MessageQuery{}); err != nil || !reflect.DeepEqual(expanded, messages[:2]) {
				t.Errorf("expanded %+v, %v", expanded, err)
			}
			if runs, err := store.Compactions(t.Context(), user.ID, session, 0); err != nil || len(runs) != 1 || runs[0].Reason != "why" {
				t.Errorf("compactions %+v, %v", runs, err)
			}
			if again, err := store.Append(t.Context(), user.ID, session, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("x")}, EventKey: "event-3", At: at}); err != nil || again[0].Seq != 3 {
				t.Errorf("an event that was there: %+v, %v", again, err)
			}
			if found, err := store.Check(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("the doctor finds %+v, %v", found, err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if broken := query(t, path, "PRAGMA foreign_key_check"); broken != "" {
				t.Errorf("references of %s do not hold", broken)
			}
			before := wholeFile(t, path)
			if store, err = sqlite.Open(t.Context(), path, sqlite.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(wholeFile(t, path), before) {
				t.Error("opening it again changes it")
			}
		})
	}
}

// S6: a step that fails near its end leaves the older schema whole, and the next
// opening takes it.
func TestAFailedMigrationLeavesTheOlderSchema(t *testing.T) {
	scripts := migrationScripts(t)
	for version := 1; version < len(scripts); version++ {
		t.Run(fmt.Sprintf("from=%d", version), func(t *testing.T) {
			path := oldDatabase(t, version)
			// What is made last is there already, or else the last rows cannot be changed.
			inTheWay, away := "CREATE TRIGGER in_the_way BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'in the way'); END", "DROP TRIGGER in_the_way"
			if made := regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?(?:TABLE|INDEX) (\w+)`).FindAllStringSubmatch(scripts[version], -1); len(made) > 0 {
				last := made[len(made)-1][1]
				inTheWay, away = "CREATE TABLE "+last+" (in_the_way)", "DROP TABLE "+last
			}
			execute(t, path, inTheWay)
			before := wholeFile(t, path)
			if store, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil {
				store.Close()
				t.Fatal("opened")
			} else if want := fmt.Sprintf("migrate to schema %d", version+1); !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			if !reflect.DeepEqual(wholeFile(t, path), before) {
				t.Error("something has changed")
			}
			execute(t, path, away)
			store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if found, err := store.Check(t.Context()); err != nil || len(found) > 0 {
				t.Errorf("the doctor finds %+v, %v", found, err)
			}
		})
	}
}

// A session of which all was said before it was made was active for an older
// version, and is not for this one, which would else find it miscounted.
func TestMigrationOfActivity(t *testing.T) {
	path := oldDatabase(t, 5)
	const younger = "x'000000000000700080000000000000cd'"
	execute(t, path, "INSERT INTO sessions (id, agent_id, user_id, title, created_at, last_active_at, active, messages) SELECT "+younger+", agent_id, user_id, '', 1800000000000000, 1800000000000000, 1, 1 FROM sessions; "+
		"INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, created_at) VALUES ("+younger+", "+younger+", 1, 'assistant', 'assistant', '[{\"type\":\"text\",\"text\":\"x\"}]', 1, 'direct', 1700000000000000); "+
		"INSERT INTO frontier (session_id, ordinal, message_id) VALUES ("+younger+", 1, "+younger+"); UPDATE sessions SET shown_items = 1, shown_tokens = 1 WHERE id = "+younger)
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := store.LastActivity(t.Context(), user, agent); err != nil || last.UnixMicro() != 1_700_000_000_000_004 {
		t.Errorf("last activity %v, %v", last, err)
	}
	if found, err := store.Check(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("the doctor finds %+v, %v", found, err)
	}
}

// S6: a run of compaction that an earlier version left is due still.
func TestMigrationOfPendingRuns(t *testing.T) {
	path := oldDatabase(t, 6)
	execute(t, path, "INSERT INTO pending_runs (session_id, trigger, exchanges, begun_at) VALUES ("+hexOf(oldSession)+", 'cadence', 5, 1700000000000006)")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	session, err := memory.ParseID[memory.SessionID](oldSession)
	if err != nil {
		t.Fatal(err)
	}
	want := memory.PendingRun{User: user, Agent: agent, Session: session, Trigger: memory.TriggerCadence, Exchanges: 5, At: time.UnixMicro(1_700_000_000_000_006).UTC()}
	if run, err := store.NextPendingRun(t.Context(), memory.UserID{}); err != nil || run != want {
		t.Errorf("%+v, %v, want %+v", run, err, want)
	}
	if err := store.EndPendingRun(t.Context(), user, session, memory.TriggerCadence, want.At); err != nil {
		t.Fatal(err)
	}
	if runs, err := store.PendingRuns(t.Context()); err != nil || len(runs) > 0 {
		t.Errorf("pending %+v, %v", runs, err)
	}
	if found, err := store.Check(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("the doctor finds %+v, %v", found, err)
	}
}

// What an older version kept of the memory, which only an import could have
// written, is there in the form of today; what was said is still to be learned from.
func TestMigrationOfMemory(t *testing.T) {
	path := oldDatabase(t, 4)
	const agent, x = "x'000000000000700080000000000000bb'", "x'000000000000700080000000000000e"
	topic := func(n int, name, content, heir string) string {
		return fmt.Sprintf("(x'000000000000700080000000000000f%d', %s, '%s', '%s', x'0102', 1700000000000099, %s, 1700000000000001, 1700000000000002)", n, hexOf(oldUser), name, content, heir)
	}
	execute(t, path, "INSERT INTO user_topics VALUES "+topic(1, "The  Boat", "new", "NULL")+", "+topic(2, "", "old\nline", "x'000000000000700080000000000000f1'")+"; "+
		"INSERT INTO user_agent_topics (id, user_id, agent_id, topic, content, valid_from, updated_at) VALUES (x'000000000000700080000000000000f3', "+hexOf(oldUser)+", "+agent+", 'audit', 'brief', 1, 2); "+
		"INSERT INTO topic_sources VALUES (x'000000000000700080000000000000f1', x'0000000000007000800000000000ee01'); "+
		"INSERT INTO session_extractions VALUES ("+x+"1', "+hexOf(oldUser)+", "+agent+", "+hexOf(oldSession)+", 'says \"hi\"\n and more', '', ' []', '[\"x\"]', '', 1700000000000003)")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agents, err := store.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line := func(topics []memory.Topic, _ memory.TopicRevision, err error) (lines string) {
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range topics {
			lines += fmt.Sprintf("%s: %s, %d sources, heir %t, expires %t; ", v.Name, v.Content, len(v.Sources), !v.SupersededBy.IsZero(), !v.ExpiresAt.IsZero())
		}
		return lines
	}
	if got, want := line(store.Topics(t.Context(), user.ID, memory.TopicQuery{})), "the boat: new, 1 sources, heir false, expires true; unnamed: old line, 0 sources, heir true, expires true; "; got != want {
		t.Errorf("topics %s\nwant   %s", got, want)
	}
	if got, want := line(store.Topics(t.Context(), user.ID, memory.TopicQuery{Agent: agents[0].ID})), "audit-topic: brief, 0 sources, heir false, expires false; "; got != want {
		t.Errorf("topics %s, want %s", got, want)
	}
	extractions, err := store.Extractions(t.Context(), user.ID, memory.ExtractionQuery{Pending: true})
	if err != nil || len(extractions) != 1 {
		t.Fatalf("%+v, %v", extractions, err)
	}
	learned := extractions[0].Learnings
	if _, err := learned.Kept(); err != nil || learned.Len() != 2 || learned.Facts[0].Text != `says "hi"  and more` || learned.Tasks[0].Text != `["x"]` {
		t.Errorf("learned %+v, %v", learned, err)
	}
	unseen, err := store.Unseen(t.Context(), user.ID, extractions[0].Session)
	if err != nil || unseen.Messages != 5 || unseen.UserMessages != 2 {
		t.Errorf("unseen %+v, %v", unseen, err)
	}
	if runs, err := store.PendingRuns(t.Context()); err != nil || len(runs) > 0 {
		t.Errorf("pending %+v, %v", runs, err)
	}
	idle, err := store.IdleSessions(t.Context(), []memory.AgentID{agents[0].ID}, at, 0)
	if err != nil || len(idle) != 1 {
		t.Errorf("idle %+v, %v", idle, err)
	}
	if found, err := store.Check(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("the doctor finds %+v, %v", found, err)
	}
}

// S2
func TestRowsOfNobodyGoToTheDefaultUser(t *testing.T) {
	const nobody = "x'00000000000000000000000000000000'"
	path, session, _ := conversation(t)
	execute(t, path, "UPDATE sessions SET user_id = "+nobody+"; DELETE FROM kv WHERE key = 'default_user_bootstrap_done'; "+
		"INSERT INTO topics (id, user_id, name, content, valid_from, updated_at) VALUES (x'00112233445566778899aabbccddeeff', "+nobody+", 'topic', 'content', 0, 0)"+
		"; INSERT INTO pending_runs SELECT id, 'cadence', "+nobody+", 5, 0, 0, 1, 1 FROM sessions")
	// The topics come after the sessions.
	execute(t, path, "CREATE TRIGGER in_the_way BEFORE UPDATE ON topics BEGIN SELECT RAISE(ABORT, 'in the way'); END")
	before := wholeFile(t, path)
	for range 2 {
		if store, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil {
			store.Close()
			t.Fatal("opened")
		} else if !strings.Contains(err.Error(), "in the way") {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(wholeFile(t, path), before) {
			t.Fatal("a failure midway has changed something")
		}
	}
	execute(t, path, "DROP TRIGGER in_the_way")
	adopted := func(want string) {
		t.Helper()
		store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		user, err := store.DefaultUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Session(t.Context(), user.ID, session); err != nil {
			t.Error(err)
		}
		if run, err := store.NextPendingRun(t.Context(), memory.UserID{}); err != nil || run.User != user.ID || run.Session != session {
			t.Errorf("pending %+v, %v", run, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if n := query(t, path, "SELECT count(*) FROM sessions WHERE user_id = "+nobody); n != want {
			t.Errorf("%s sessions are nobody's", n)
		}
		if n := query(t, path, "SELECT count(*) FROM topics WHERE user_id = "+nobody); n != "0" {
			t.Errorf("%s topics are nobody's", n)
		}
	}
	adopted("0")
	once := wholeFile(t, path)
	adopted("0")
	if !reflect.DeepEqual(wholeFile(t, path), once) {
		t.Error("the second time changes something")
	}
	// A run of another than the session's user has no turn.
	execute(t, path, "INSERT INTO users (id, name, is_default, created_at) VALUES (x'ffffffffffffffffffffffffffffffff', 'another', 0, 1); INSERT INTO pending_runs SELECT id, 'threshold', x'ffffffffffffffffffffffffffffffff', 5, 0, 0, 1, 1 FROM sessions")
	adopted("0")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if runs, err := store.PendingRuns(t.Context()); err != nil || len(runs) != 1 || runs[0].Trigger != memory.TriggerCadence {
		t.Errorf("pending %+v, %v", runs, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	// It happens once: what comes later is somebody's mistake, for doctor to tell.
	execute(t, path, "INSERT INTO sessions (id, agent_id, user_id, title, created_at, last_active_at) SELECT x'ff112233445566778899aabbccddeeff', agent_id, "+nobody+", '', 0, 0 FROM sessions LIMIT 1")
	adopted("1")
	if found := examined(t, path); len(found) != 1 || !strings.Contains(found[0].What, "users") {
		t.Errorf("the doctor finds %+v", found)
	}
}
