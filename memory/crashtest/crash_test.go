package crashtest_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var (
	kills = flag.Int("kills", 0, "how many processes to kill; 0 is 20, with -short 5")
	seed  = flag.Uint64("seed", 1, "what the processes to be killed do, and when they die")
	keep  = flag.String("keep", "", "an empty directory in which the stores are left; none if empty")
)

func TestMain(m *testing.M) {
	crashtest.Child(engine)
	os.Exit(m.Run())
}

func database(dir string) string { return filepath.Join(dir, "data", "glovebox.db") }

// engine is the store on SQLite.
var engine = crashtest.Engine{
	Open: func(ctx context.Context, dir string) (memory.Store, error) {
		store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
		if err != nil {
			return nil, err
		}
		return store, nil
	},
	Check: check,
	Files: func(dir string) ([]string, error) { return filepath.Glob(database(dir) + "*") },
}

// check asks the doctor.
func check(ctx context.Context, _ string, store memory.Store) (found []string, err error) {
	findings, err := store.(*sqlite.Store).Check(ctx)
	for _, f := range findings {
		if f.Where == "wipes" || strings.Contains(f.What, "deleted text may still be") {
			continue // of a child that died in a wipe: the next host ends it
		}
		found = append(found, f.Where+": "+f.What)
	}
	return found, err
}

// older writes a database of the first schema: the default user's sessions and
// those of nobody, with messages, event keys, a summary, and a row of the
// record.
func older(t *testing.T) func(dir string) error {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("..", "sqlite", "migrations", "0001_first.sql"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "older.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	execute := func(statement string, arguments ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	execute("PRAGMA journal_mode = WAL")
	execute("BEGIN")
	execute(string(script))
	micros := monday.UnixMicro()
	user, agent := memory.NewID[memory.UserID](), memory.NewID[memory.AgentID]()
	execute("INSERT INTO kv VALUES ('shared', 'default_user_uuid', ?)", user[:])
	execute("INSERT INTO users VALUES (?, 'default', 1, ?)", user[:], micros)
	execute("INSERT INTO agents VALUES (?, 'assistant', '', ?)", agent[:], micros)
	nobody := memory.UserID{}
	const messages, summarised = 300, 200
	for number := range 6 {
		owner, session, summary := user[:], memory.NewID[memory.SessionID](), memory.NewID[memory.SummaryID]()
		if number%2 == 1 {
			owner = nobody[:]
		}
		execute("INSERT INTO sessions (id, agent_id, user_id, title, created_at, last_active_at, active, user_messages, awaiting, messages) VALUES (?, ?, ?, '', ?, ?, 1, ?, 1, ?)",
			session[:], agent[:], owner, micros, micros+messages-1, messages, messages)
		for i := range messages {
			id, key := memory.NewID[memory.MessageID](), sql.NullString{}
			if i%3 == 0 {
				key = sql.NullString{String: fmt.Sprintf("event %d", i), Valid: true}
			}
			text := fmt.Sprintf("Number %d of session %s. ", i, session) + strings.Repeat("the pump runs ", i%50)
			execute("INSERT INTO messages VALUES (?, ?, ?, 'user', 'user', ?, ?, ?, 'direct', ?, ?)",
				id[:], session[:], i+1, `[{"type":"text","text":"`+text+`"}]`, text, len(text)/4, key, micros+int64(i))
			if i == 0 {
				execute("INSERT INTO summaries (id, session_id, depth, text, tokens, earliest_at, latest_at, descendants, level, model, created_at) VALUES (?, ?, 0, 'of old', 2, ?, ?, ?, 'normal', 'test', ?)",
					summary[:], session[:], micros, micros+summarised-1, summarised, micros)
				execute("INSERT INTO frontier (session_id, ordinal, summary_id) VALUES (?, 1, ?)", session[:], summary[:])
			}
			if i < summarised {
				execute("INSERT INTO summary_sources (summary_id, ordinal, message_id) VALUES (?, ?, ?)", summary[:], i+1, id[:])
			} else {
				execute("INSERT INTO frontier (session_id, ordinal, message_id) VALUES (?, ?, ?)", session[:], i+1, id[:])
			}
		}
	}
	execute(fmt.Sprintf("PRAGMA user_version = 1; PRAGMA application_id = %d", 0x47425853))
	execute("COMMIT")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(dir string) error {
		if err := os.MkdirAll(filepath.Dir(database(dir)), 0o700); err != nil {
			return err
		}
		return os.WriteFile(database(dir), content, 0o600)
	}
}

// S5, C12, S9: what was acknowledged survives kill -9 at any instant, nothing
// is half there, and nothing that was never sent is there.
func TestKill(t *testing.T) {
	n := *kills
	if n == 0 {
		if n = 20; testing.Short() {
			n = 5
		}
	}
	dir := *keep
	if dir == "" {
		dir = t.TempDir()
	}
	counts, err := crashtest.Run(t.Context(), engine, crashtest.Options{Dir: dir, Seed: *seed, Kills: n, Older: older(t)})
	t.Logf("seed %d: %+v", *seed, counts)
	if err != nil {
		t.Fatal(err)
	}
	if counts.Kills != n || counts.Messages == 0 || counts.Summaries == 0 {
		t.Errorf("%+v: this run proves nothing", counts)
	}
}

// A harness that cannot fail proves nothing: whatever is taken from the file, or
// put into it, behind the store's back is noticed.
func TestRunNotices(t *testing.T) {
	for _, test := range []struct {
		name, statement, says string
	}{
		{"a message that is lost with every trace", `CREATE TEMP TABLE lost AS SELECT m.id, m.session_id, m.tokens FROM messages m JOIN frontier f ON f.message_id = m.id JOIN sessions s ON s.id = m.session_id
			WHERE m.seq = s.messages AND m.source = 'scheduled_tick' LIMIT 1;
			DELETE FROM frontier WHERE message_id IN (SELECT id FROM lost);
			DELETE FROM messages WHERE id IN (SELECT id FROM lost);
			UPDATE sessions SET messages = messages - 1, shown_items = shown_items - 1, shown_tokens = shown_tokens - (SELECT tokens FROM lost)
			WHERE id IN (SELECT session_id FROM lost)`, "is not there as it was"},
		{"a message with other words", "UPDATE messages SET content = replace(content, 'canary', 'cabbage') WHERE number = (SELECT min(number) FROM messages WHERE trust = 'direct')", "is not there as it was"},
		{"a message that nobody sent", `INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, created_at)
			SELECT randomblob(16), session_id, seq + 1, 'user', 'autonomous_tick', '[{"type":"text","text":"hm"}]', 1, 'direct', created_at FROM messages m
			WHERE seq = (SELECT messages FROM sessions s WHERE s.id = m.session_id) LIMIT 1;
			INSERT INTO frontier (session_id, ordinal, message_id) SELECT session_id, seq, id FROM messages WHERE source = 'autonomous_tick';
			UPDATE sessions SET messages = messages + 1 WHERE id = (SELECT session_id FROM messages WHERE source = 'autonomous_tick')`, "was never sent"},
		{"a message that is shown no more", "DELETE FROM frontier WHERE message_id = (SELECT message_id FROM frontier WHERE message_id IS NOT NULL LIMIT 1)", "the frontier stands for"},
		{"a summary with other words", "UPDATE summaries SET text = 'hm' WHERE number = (SELECT max(number) FROM summaries WHERE level <> 'fallback')", "is not as it was acknowledged"},
		{"a source that is lost", "DELETE FROM summary_sources WHERE (summary_id, ordinal) = (SELECT summary_id, max(ordinal) FROM summary_sources GROUP BY summary_id HAVING count(*) > 2 LIMIT 1)", "the frontier stands for"},
		{"a session that is another user's", `UPDATE sessions SET user_id = (SELECT u.id FROM users u WHERE u.id <> sessions.user_id LIMIT 1) WHERE id = (SELECT session_id FROM messages LIMIT 1)`, "is gone"},
		{"a user who is nobody's", "INSERT INTO users (id, name, is_default, created_at) VALUES (randomblob(16), 'x', 0, 0)", "was never made"},
	} {
		t.Run(test.name, func(t *testing.T) {
			broken := engine
			broken.Open = func(ctx context.Context, dir string) (memory.Store, error) {
				db, err := sql.Open("sqlite", "file:"+database(dir))
				if err != nil {
					return nil, err
				}
				db.SetMaxOpenConns(1)
				_, err = db.ExecContext(ctx, test.statement)
				if err := errors.Join(err, db.Close()); err != nil {
					return nil, err
				}
				return engine.Open(ctx, dir)
			}
			// What is damaged may be what the killed child had not yet been told of,
			// and nobody can miss that: hence more seeds than one.
			var noticed error
			for seed := range uint64(8) {
				_, err := crashtest.Run(t.Context(), broken, crashtest.Options{Dir: t.TempDir(), Seed: seed, Kills: 2})
				if err != nil && strings.Contains(err.Error(), test.says) {
					return
				}
				noticed = errors.Join(noticed, err)
			}
			t.Errorf("nobody notices; what was noticed instead: %v", noticed)
		})
	}
}
