package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/memorytest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var kills = flag.Int("kills", 5, "how often to kill a writing process")

var at = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// childDir, if set, makes this process the child of a test: it opens the store
// there and does what childTask says.
const (
	childDir  = "GLOVEBOX_TEST_DIR"
	childTask = "GLOVEBOX_TEST_TASK"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir, os.Getenv(childTask)))
	}
	os.Exit(m.Run())
}

func child(dir, task string) int {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	if task == "open" {
		return 0
	}
	user, agent, err := people(ctx, store)
	if err != nil {
		fmt.Println("people:", err)
		return 1
	}
	session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		fmt.Println("session:", err)
		return 1
	}
	fmt.Println("session", session.ID)
	for i := 0; ; i++ {
		m, err := store.Append(ctx, user, session.ID, said(fmt.Sprintf("message %d", i)))
		if err != nil {
			fmt.Println("append:", err)
			return 1
		}
		// The parent may kill this process at any instant; what it has read
		// by then is acknowledged.
		fmt.Println("stored", m[0].ID)
	}
}

func people(ctx context.Context, store memory.Store) (memory.UserID, memory.AgentID, error) {
	user, err := store.DefaultUser(ctx)
	if err != nil {
		return memory.UserID{}, memory.AgentID{}, err
	}
	agent, err := store.PutAgent(ctx, "assistant", "", at)
	return user.ID, agent.ID, err
}

func said(text string) memory.Draft {
	return memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text(text)}, At: at}
}

func database(dir string) string { return filepath.Join(dir, "data", "glovebox.db") }

func open(t testing.TB, dir string) memory.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func TestStore(t *testing.T) {
	memorytest.TestStore(t, func(t *testing.T, dir string) memory.Store { return open(t, dir) })
}

func rerun(t *testing.T, dir, task string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self)
	command.Env = append(os.Environ(), childDir+"="+dir, childTask+"="+task)
	return command
}

// S5, the part of appends: what was acknowledged survives kill -9.
func TestAcknowledgedMessagesSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string][]string{}
	for round := range *kills {
		command := rerun(t, dir, "write")
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		// Instants differ by how many lines are read before the kill.
		lines := bufio.NewScanner(stdout)
		session, wanted := "", 1+round*37%200
		for lines.Scan() {
			word, id, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "session":
				session = id
			case "stored":
				acknowledged[session] = append(acknowledged[session], id)
			default:
				t.Fatalf("child: %s", lines.Text())
			}
			if len(acknowledged[session]) == wanted {
				if err := command.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = command.Wait()
	}
	store := open(t, dir)
	user, _, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for text, ids := range acknowledged {
		session, err := memory.ParseID[memory.SessionID](text)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := store.Messages(t.Context(), user, session, memory.MessageQuery{})
		if err != nil {
			t.Fatal(err)
		}
		frontier, err := store.Frontier(t.Context(), user, session)
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) < len(ids) || len(frontier.Items) != len(messages) {
			t.Fatalf("%d acknowledged, %d stored, %d in the frontier", len(ids), len(messages), len(frontier.Items))
		}
		for i, id := range ids {
			if messages[i].ID.String() != id {
				t.Errorf("message %d is %s, acknowledged was %s", i, messages[i].ID, id)
			}
		}
	}
	if len(acknowledged) != *kills {
		t.Errorf("%d of %d children got to write", len(acknowledged), *kills)
	}
}

func TestAnotherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	output, err := rerun(t, dir, "open").CombinedOutput()
	if err == nil || !strings.Contains(string(output), memory.ErrInUse.Error()) || !strings.Contains(string(output), database(dir)) {
		t.Errorf("a second writer: %v, %s", err, output)
	}
	reader, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	if sessions, err := reader.Sessions(t.Context(), user, memory.SessionQuery{}); err != nil || len(sessions) != 1 {
		t.Errorf("a reader beside the writer sees %v, %v", sessions, err)
	}
	if _, err := reader.PutAgent(t.Context(), "x", "", at); !errors.Is(err, memory.ErrReadOnly) {
		t.Errorf("a reader writes: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if output, err := rerun(t, dir, "open").CombinedOutput(); err != nil {
		t.Errorf("after Close: %v, %s", err, output)
	}
}

// execute changes a closed database behind the store's back.
func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// S6, the part of refusals.
func TestOpenRefuses(t *testing.T) {
	write := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	ours := func(then func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			then(t, path)
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(*testing.T, string)
		want    error
		says    string
	}{
		{"newer", ours(func(t *testing.T, path string) { execute(t, path, "PRAGMA user_version = 99") }), memory.ErrNewer, "schema 99"},
		{"another program's", func(t *testing.T, path string) { execute(t, path, "CREATE TABLE t (x)") }, memory.ErrForeign, "another program"},
		{"another program's id", func(t *testing.T, path string) { execute(t, path, "PRAGMA application_id = 7") }, memory.ErrForeign, "another program"},
		{"text", write(strings.Repeat("not a database\n", 1000)), memory.ErrForeign, "not an SQLite file"},
		{"short text", write("x"), memory.ErrForeign, "not an SQLite file"},
		{"directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, memory.ErrForeign, "directory"},
		{"truncated", ours(func(t *testing.T, path string) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		}), nil, "damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "glovebox.db")
			test.prepare(t, path)
			before, _ := os.ReadFile(path)
			store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err == nil {
				store.Close()
				t.Fatal("it was opened")
			}
			if test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the refused file was changed")
			}
		})
	}
	t.Run("empty file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "glovebox.db")
		write("")(t, path)
		store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
	})
	t.Run("directory that cannot be", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		write("")(t, file)
		_, err := sqlite.Open(t.Context(), filepath.Join(file, "data", "glovebox.db"), sqlite.Options{})
		if !errors.Is(err, memory.ErrReadOnly) || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes on this system")
	}
	dir := t.TempDir()
	open(t, dir)
	for path, want := range map[string]os.FileMode{database(dir): 0o600, database(dir) + "-wal": 0o600, database(dir) + ".lock": 0o600, filepath.Dir(database(dir)): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// A block that somebody changed in the file is refused by name.
func TestTamperedExternalTextIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	m, err := store.Append(t.Context(), user, session.ID, said("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, database(dir), `UPDATE messages SET content = '[{"type":"external","content":{"id":"0123456789abcdef0123456789abcdef","source":"hand://x","text":"<|im_start|>system","digest":"sha256:0"}}]'`)
	store = open(t, dir)
	_, err = store.Messages(t.Context(), user, session.ID, memory.MessageQuery{})
	if err == nil || !strings.Contains(err.Error(), m[0].ID.String()) {
		t.Errorf("got %v", err)
	}
}

// The ratio of these two is what durable appending costs beside the bare row.
func BenchmarkAppend(b *testing.B) {
	store := open(b, b.TempDir())
	user, agent, err := people(b.Context(), store)
	if err != nil {
		b.Fatal(err)
	}
	session, err := store.CreateSession(b.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		b.Fatal(err)
	}
	draft := said(strings.Repeat("The pump in hall three runs at forty percent. ", 20))
	for b.Loop() {
		if _, err := store.Append(b.Context(), user, session.ID, draft); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBareInsert(b *testing.B) {
	path := filepath.Join(b.TempDir(), "bare.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(), `CREATE TABLE messages (id BLOB PRIMARY KEY, session_id BLOB, seq INTEGER, role TEXT, source TEXT, content TEXT, tokens INTEGER,
		trust TEXT, event_key TEXT, created_at INTEGER) STRICT; CREATE UNIQUE INDEX s ON messages (session_id, seq)`); err != nil {
		b.Fatal(err)
	}
	insert, err := db.PrepareContext(b.Context(), "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		b.Fatal(err)
	}
	session := memory.NewID[memory.SessionID]()
	content := `[{"type":"text","text":"` + strings.Repeat("The pump in hall three runs at forty percent. ", 20) + `"}]`
	for n := 0; b.Loop(); n++ {
		id := memory.NewID[memory.MessageID]()
		if _, err := insert.ExecContext(b.Context(), id[:], session[:], n, "user", "user", content, 230, "direct", nil, at.UnixMicro()); err != nil {
			b.Fatal(err)
		}
	}
}
