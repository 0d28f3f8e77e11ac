package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/memorytest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var kills = flag.Int("kills", 10, "how often to kill a writing process")

var at = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// childDir, if set, makes this process the child of a test: it opens the store
// there and does what childTask says.
const (
	childDir  = "GLOVEBOX_TEST_DIR"
	childTask = "GLOVEBOX_TEST_TASK"
)

// childTasks are what a child can do beside opening and writing.
var childTasks = map[string]func(dir string) int{}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir, os.Getenv(childTask)))
	}
	os.Exit(m.Run())
}

func child(dir, task string) int {
	fmt.Println("opening", dir)
	if other := childTasks[task]; other != nil {
		return other(dir)
	}
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
	for i := 1; ; i++ {
		m, err := store.Append(ctx, user, session.ID, said(fmt.Sprintf("message %d", i)))
		if err != nil {
			fmt.Println("append:", err)
			return 1
		}
		// The parent may kill this process at any instant; what it has read
		// by then is acknowledged.
		fmt.Println("stored", m[0].ID)
		if i%10 == 0 {
			if err := compact(ctx, store, user, session.ID); err != nil {
				fmt.Println("compact:", err)
				return 1
			}
		}
	}
}

// compact makes a summary of all messages that the frontier still shows.
func compact(ctx context.Context, store memory.Store, user memory.UserID, session memory.SessionID) error {
	frontier, err := store.Frontier(ctx, user, session)
	if err != nil {
		return err
	}
	leaf := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: "what was said", Level: memory.LevelNormal, Model: "test"}, At: at}
	for _, item := range frontier.Items {
		if item.Message != nil {
			leaf.Messages = append(leaf.Messages, item.Message.ID)
		}
	}
	_, err = store.CommitSummary(ctx, user, frontier.Revision, leaf)
	return err
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

// The same, of a store that keeps what it can of what it read.
func TestStoreThatKeepsTails(t *testing.T) {
	memorytest.TestStore(t, func(t *testing.T, dir string) memory.Store {
		store := open(t, dir)
		store.(*sqlite.Store).KeepTails()
		return store
	})
}

// A database that did not exist has one random default user of its own.
func TestDefaultUserIsRandom(t *testing.T) {
	seen := map[memory.UserID]bool{}
	for range 3 {
		user, err := open(t, t.TempDir()).DefaultUser(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[user.ID] || user.ID.String()[14] != '4' || !user.CreatedAt.Equal(at) {
			t.Errorf("got %+v", user)
		}
		seen[user.ID] = true
	}
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

// S5, for opening, appending and compacting: what was acknowledged survives
// kill -9, and nothing is half there.
func TestAcknowledgedMessagesSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string][]string{}
	wrote := 0
	for round := range *kills {
		// One in five dies while it makes a database, another's.
		where, wanted := dir, 1+round*37%200
		if round%5 == 4 {
			where, wanted = t.TempDir(), 0
		}
		command := rerun(t, where, "write")
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		session := ""
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			word, id, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "opening":
			case "session":
				session = id
			case "stored":
				acknowledged[session] = append(acknowledged[session], id)
			default:
				t.Fatalf("child: %s", lines.Text())
			}
			// Instants differ by how many lines are read before the kill.
			if len(acknowledged[session]) >= wanted {
				_ = command.Process.Kill()
			}
		}
		_ = command.Wait()
		if where == dir {
			wrote++
			continue
		}
		user, err := open(t, where).DefaultUser(t.Context())
		if err != nil || !user.IsDefault {
			t.Errorf("after a kill while opening: %+v, %v", user, err)
		}
		delete(acknowledged, session)
	}
	// Whoever reads does not have to wait until a writer has mended the file.
	reader, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	survived(t, reader, acknowledged)
	store := open(t, dir)
	survived(t, store, acknowledged)
	if len(acknowledged) != wrote {
		t.Errorf("%d of %d children got to write", len(acknowledged), wrote)
	}
	if err := errors.Join(reader.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	for _, pragma := range []string{"integrity_check", "foreign_key_check"} {
		if found := query(t, database(dir), "PRAGMA "+pragma); found != "ok" && found != "" {
			t.Errorf("%s: %s", pragma, found)
		}
	}
}

// survived proves that each session has the messages, and that its frontier
// stands for all it has.
func survived(t *testing.T, store memory.Store, acknowledged map[string][]string) {
	t.Helper()
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for text, ids := range acknowledged {
		id, err := memory.ParseID[memory.SessionID](text)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := store.Messages(t.Context(), user.ID, id, memory.MessageQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) < len(ids) {
			t.Fatalf("%d acknowledged, %d stored", len(ids), len(messages))
		}
		for i, id := range ids {
			if messages[i].ID.String() != id {
				t.Errorf("message %d is %s, acknowledged was %s", i, messages[i].ID, id)
			}
		}
		frontier, err := store.Frontier(t.Context(), user.ID, id)
		if err != nil {
			t.Fatal(err)
		}
		var covered []memory.Message
		for _, item := range frontier.Items {
			if item.Message != nil {
				covered = append(covered, *item.Message)
				continue
			}
			expanded, err := store.Expand(t.Context(), user.ID, item.Summary.ID, memory.MessageQuery{})
			if err != nil {
				t.Fatal(err)
			}
			covered = append(covered, expanded...)
		}
		session, err := store.Session(t.Context(), user.ID, id)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(covered, messages) || session.Messages != len(messages) {
			t.Errorf("of %d messages the frontier covers %d, the session counts %d", len(messages), len(covered), session.Messages)
		}
	}
}

func TestAnotherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	if _, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{}); !errors.Is(err, memory.ErrInUse) {
		t.Errorf("a second writer in this process: %v", err)
	}
	link := filepath.Join(dir, "another-name.db")
	if err := os.Symlink(database(dir), link); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), link, sqlite.Options{}); !errors.Is(err, memory.ErrInUse) {
		t.Errorf("a second writer by another name: %v", err)
	}
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
func execute(t testing.TB, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// query returns the first column of the first row, if there is one.
func query(t *testing.T, path, statement string) (found string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), statement).Scan(&found); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return found
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
	cut := func(size int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
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
		}, memory.ErrForeign, "not a regular file"},
		{"cut in its head", ours(cut(10)), nil, "damaged"},
		{"cut in its header", ours(cut(99)), nil, "damaged"},
		{"cut in its first page", ours(cut(4095)), nil, "damaged"},
		{"cut after its first page", ours(cut(4096)), nil, "damaged"},
		{"cut in its second page", ours(cut(5000)), nil, "damaged"},
		{"a version of nobody", func(t *testing.T, path string) { execute(t, path, "PRAGMA user_version = 1") }, memory.ErrForeign, "another program"},
		{"a database with its beginning overwritten", ours(func(t *testing.T, path string) {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.WriteAt(make([]byte, 4096), 0); err != nil {
				t.Fatal(err)
			}
		}), memory.ErrForeign, "not an SQLite file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "glovebox.db")
			test.prepare(t, path)
			before, _ := os.ReadFile(path)
			for _, options := range []sqlite.Options{{}, {ReadOnly: true}} {
				store, err := sqlite.Open(t.Context(), path, options)
				if err == nil {
					store.Close()
					t.Fatalf("it was opened with %+v", options)
				}
				if test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path) {
					t.Errorf("with %+v: %v", options, err)
				}
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
	t.Run("absent, for reading", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "glovebox.db")
		_, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true})
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
		if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) > 0 {
			t.Errorf("it left %v", entries)
		}
	})
	t.Run("a name to be escaped", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "50% of #1 & what? é", "a=b&mode=memory.db")
		store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if info, err := os.Stat(path); err != nil || info.Size() == 0 && !exists(path+"-wal") {
			t.Errorf("the database is elsewhere: %v", err)
		}
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes on this system")
	}
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	// As a copy or a restored backup may have it.
	if err := os.Chmod(database(dir), 0o644); err != nil {
		t.Fatal(err)
	}
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

// benchmarkSession returns a store with a session of n messages, of which the
// frontier shows the last ones and one summary; all of them if n is no more.
func benchmarkSession(b *testing.B, n, shown int) (memory.Store, memory.UserID, memory.SessionID) {
	b.Helper()
	ctx := b.Context()
	store := open(b, b.TempDir())
	user, agent, err := people(ctx, store)
	if err != nil {
		b.Fatal(err)
	}
	session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		b.Fatal(err)
	}
	leaf := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: strings.Repeat("What was said. ", 50), Level: memory.LevelNormal, Model: "test"}, At: at}
	for stored := 0; stored < n; {
		drafts := make([]memory.Draft, min(1000, n-stored))
		for i := range drafts {
			drafts[i] = said(sentences)
		}
		messages, err := store.Append(ctx, user, session.ID, drafts...)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range messages {
			if stored++; stored <= n-shown {
				leaf.Messages = append(leaf.Messages, m.ID)
			}
		}
	}
	if len(leaf.Messages) > 0 {
		frontier, err := store.Frontier(ctx, user, session.ID)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := store.CommitSummary(ctx, user, frontier.Revision, leaf); err != nil {
			b.Fatal(err)
		}
	}
	return store, user, session.ID
}

var sentences = strings.Repeat("The pump in hall three runs at forty percent. ", 20)

// BenchmarkAppend is one durable message, and in turn with it, so that the
// machine's moods meet both, the same rows by prepared statements in one
// transaction: rows/append is how much of their rate is reached.
func BenchmarkAppend(b *testing.B) {
	store, user, session := benchmarkSession(b, 0, 0)
	rows := bareRows(b)
	draft := said(sentences)
	var appends, bares []time.Duration
	for b.Loop() {
		draft.At = draft.At.Add(time.Millisecond)
		began := time.Now()
		if _, err := store.Append(b.Context(), user, session, draft); err != nil {
			b.Fatal(err)
		}
		appends = append(appends, time.Since(began))
		began = time.Now()
		if err := rows(); err != nil {
			b.Fatal(err)
		}
		bares = append(bares, time.Since(began))
	}
	slices.Sort(appends)
	slices.Sort(bares)
	middle := func(d []time.Duration) float64 { return float64(d[len(d)/2].Nanoseconds()) }
	b.ReportMetric(middle(appends), "append-p50-ns")
	b.ReportMetric(float64(appends[len(appends)*99/100].Nanoseconds()), "append-p99-ns")
	b.ReportMetric(middle(bares), "rows-p50-ns")
	b.ReportMetric(middle(bares)/middle(appends), "rows/append")
}

// bareRows returns what writes all the rows of an append by prepared statements,
// in one transaction.
func bareRows(b *testing.B) func() error {
	b.Helper()
	ctx := context.Background() // not watched: the fastest
	db := bareDatabase(b)
	insert := bareStatement(b, db, "INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	place := bareStatement(b, db, "INSERT INTO frontier VALUES (?, ?, ?)")
	count := bareStatement(b, db, "UPDATE sessions SET messages = ? WHERE id = ?")
	session := memory.NewID[memory.SessionID]()
	if _, err := db.ExecContext(ctx, "INSERT INTO sessions VALUES (?, 0)", session[:]); err != nil {
		b.Fatal(err)
	}
	n := 0
	return func() error {
		n++
		id := memory.NewID[memory.MessageID]()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err1 := tx.StmtContext(ctx, insert).ExecContext(ctx, bareMessage(id, session, n)...)
		_, err2 := tx.StmtContext(ctx, place).ExecContext(ctx, session[:], n, id[:])
		_, err3 := tx.StmtContext(ctx, count).ExecContext(ctx, n, session[:])
		return errors.Join(err1, err2, err3, tx.Commit())
	}
}

func bareDatabase(b *testing.B) *sql.DB {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(), `CREATE TABLE messages (number INTEGER PRIMARY KEY, id BLOB UNIQUE, session_id BLOB, seq INTEGER, role TEXT, source TEXT, content TEXT,
		tokens INTEGER, trust TEXT, event_key TEXT, created_at INTEGER) STRICT; CREATE UNIQUE INDEX s ON messages (session_id, seq);
		CREATE TABLE frontier (session_id BLOB, ordinal INTEGER, message_id BLOB, PRIMARY KEY (session_id, ordinal)) STRICT, WITHOUT ROWID;
		CREATE TABLE sessions (id BLOB PRIMARY KEY, messages INTEGER) STRICT`); err != nil {
		b.Fatal(err)
	}
	return db
}

func bareStatement(b *testing.B, db *sql.DB, text string) *sql.Stmt {
	b.Helper()
	statement, err := db.PrepareContext(b.Context(), text)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { statement.Close() })
	return statement
}

func bareMessage(id memory.MessageID, session memory.SessionID, n int) []any {
	return []any{id[:], session[:], n, "user", "user", `[{"type":"text","text":"` + sentences + `"}]`, 230, "direct", nil, at.UnixMicro()}
}

// BenchmarkFrontier reads 40 items, whatever the session's length.
func BenchmarkFrontier(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			store, user, session := benchmarkSession(b, n, 39)
			for b.Loop() {
				frontier, err := store.Frontier(b.Context(), user, session)
				if err != nil {
					b.Fatal(err)
				}
				if len(frontier.Items) != 40 {
					b.Fatalf("%d items", len(frontier.Items))
				}
			}
		})
	}
}

// BenchmarkFrontierTail reads as much as a prompt of 8,000 tokens has room for of
// sessions that were never compacted: the 35 last messages.
func BenchmarkFrontierTail(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			store, user, session := benchmarkSession(b, n, n)
			b.ReportAllocs()
			for b.Loop() {
				tail, older, err := store.FrontierTail(b.Context(), user, session, 8000)
				if err != nil {
					b.Fatal(err)
				}
				if len(tail.Items)+older.Items != n || older.Items == 0 {
					b.Fatalf("%d items and %d before", len(tail.Items), older.Items)
				}
			}
			tail, _, err := store.FrontierTail(b.Context(), user, session, 8000)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(tail.Items)), "items")
		})
	}
}
