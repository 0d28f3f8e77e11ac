package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func init() {
	childTasks["race to open"] = raceToOpen
	childTasks["read"] = readUntilTold
}

// conversationOf makes a session with n messages in batches of ten, and a summary
// after each batch but the last.
func conversationOf(t testing.TB, store memory.Store, n int) (memory.UserID, memory.SessionID, []memory.Message) {
	t.Helper()
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	var all []memory.Message
	for len(all) < n {
		if len(all) > 0 {
			if err := compact(t.Context(), store, user, session.ID); err != nil {
				t.Fatal(err)
			}
		}
		var drafts []memory.Draft
		for i := range min(10, n-len(all)) {
			drafts = append(drafts, said(fmt.Sprintf("message %d %s", len(all)+i+1, strings.Repeat("of many words ", 50))))
		}
		messages, err := store.Append(t.Context(), user, session.ID, drafts...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, messages...)
	}
	return user, session.ID, all
}

// abandoned returns a directory with the files as a process leaves them that
// dies: some of what it wrote is in the WAL alone.
func abandoned(t *testing.T, n int) (dir string, user memory.UserID, session memory.SessionID, all []memory.Message) {
	t.Helper()
	from := t.TempDir()
	store := open(t, from)
	user, session, all = conversationOf(t, store, n)
	dir = t.TempDir()
	copyDatabase(t, from, dir)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, user, session, all
}

// copyDatabase copies the file and its WAL, which nobody writes to meanwhile.
func copyDatabase(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(database(to)), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-journal"} {
		content, err := os.ReadFile(database(from) + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(database(to)+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Sizes of a WAL's parts in bytes, from SQLite's description of its format.
const (
	walHeader   = 32
	frameHeader = 24
)

// commits returns the offsets in a WAL at which its transactions end.
func commits(t *testing.T, wal []byte) (ends []int) {
	t.Helper()
	if len(wal) < walHeader {
		t.Fatal("there is no WAL: this test looks at the wrong thing")
	}
	page := int(binary.BigEndian.Uint32(wal[8:]))
	salt := string(wal[16:24])
	for at := walHeader; at+frameHeader+page <= len(wal); at += frameHeader + page {
		if string(wal[at+8:at+16]) != salt {
			break
		}
		if size := binary.BigEndian.Uint32(wal[at+4:]); size > 0 {
			ends = append(ends, at+frameHeader+page)
		}
	}
	return ends
}

// S5, as far as power that fails can be had without failing it: what follows
// the last commit in the WAL was not synced and may be torn in any way. All that
// was acknowledged is there.
func TestTornTailOfTheWAL(t *testing.T) {
	original, user, session, all := abandoned(t, 50)
	wal, err := os.ReadFile(database(original) + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	ends := commits(t, wal)
	last := ends[len(ends)-1]
	frame := frameHeader + int(binary.BigEndian.Uint32(wal[8:]))
	random := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 3*frame)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	stale := append([]byte(nil), wal[last-frame:last]...)
	for name, tail := range map[string][]byte{
		"nothing":                     nil,
		"part of a frame's head":      stale[:10],
		"half a frame":                stale[:frame/2],
		"a frame that was there":      stale,
		"zeros":                       make([]byte, 2*frame),
		"noise":                       noise,
		"a head and then noise":       append(append([]byte(nil), stale[:frameHeader]...), noise[:frame-frameHeader]...),
		"a frame without its commit":  append(append([]byte(nil), stale[:4]...), append(make([]byte, 4), stale[8:]...)...),
		"many pages of another's WAL": append(append([]byte(nil), wal[:walHeader]...), noise...),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyDatabase(t, original, dir)
			if err := os.WriteFile(database(dir)+"-wal", append(append([]byte(nil), wal[:last]...), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			store := open(t, dir)
			messages, err := store.Messages(t.Context(), user, session, memory.MessageQuery{})
			if err != nil || !reflect.DeepEqual(messages, all) {
				t.Errorf("%d messages of %d, %v", len(messages), len(all), err)
			}
			if err := crashtest.CheckSession(t.Context(), store, user, session); err != nil {
				t.Error(err)
			}
		})
	}
}

// C12: wherever the WAL is cut or overwritten, what is left is a state that the
// store was in: whole transactions from the first one on.
func TestCutWAL(t *testing.T) {
	original, user, session, all := abandoned(t, 50)
	wal, err := os.ReadFile(database(original) + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	ends := commits(t, wal)
	random := rand.New(rand.NewPCG(2, 2))
	for range 24 {
		dir := t.TempDir()
		copyDatabase(t, original, dir)
		changed := append([]byte(nil), wal...)
		// Before the first commit there is no store yet.
		at := ends[0] + random.IntN(len(wal)-ends[0])
		how := "cut"
		if random.IntN(2) == 0 {
			changed = changed[:at]
		} else {
			how, changed[at] = "flipped", changed[at]^0x40
		}
		if err := os.WriteFile(database(dir)+"-wal", changed, 0o600); err != nil {
			t.Fatal(err)
		}
		store, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{})
		if err != nil {
			t.Fatalf("%s at %d: %v", how, at, err)
		}
		messages, err := store.Messages(t.Context(), user, session, memory.MessageQuery{})
		if err == nil {
			if len(messages)%10 != 0 || !reflect.DeepEqual(append([]memory.Message{}, messages...), append([]memory.Message{}, all[:len(messages)]...)) {
				t.Errorf("%s at %d: %d messages, or others", how, at, len(messages))
			}
			err = crashtest.CheckSession(t.Context(), store, user, session)
		} else if errors.Is(err, memory.ErrNotFound) {
			err = nil
		}
		if err := errors.Join(err, store.Close()); err != nil {
			t.Errorf("%s at %d: %v", how, at, err)
		}
	}
}

// damage says how a damaged file comes to light: Open or a reading method says
// so, with advice; SQLite's own check, which the doctor runs, finds it; what the
// pages say breaks the rules of package memory; or all is as it was. It returns
// an error for anything else.
func damage(t *testing.T, dir string, user memory.UserID, session memory.SessionID, all []memory.Message) (outcome string, err error) {
	t.Helper()
	explained := func(err error) (string, error) {
		if !strings.Contains(err.Error(), "put a backup in its place") && !errors.Is(err, memory.ErrForeign) {
			return "", fmt.Errorf("an error without advice: %w", err)
		}
		return "refused", nil
	}
	store, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{})
	if err != nil {
		return explained(err)
	}
	defer store.Close()
	messages, err := store.Messages(t.Context(), user, session, memory.MessageQuery{})
	if err == nil {
		_, err = store.Frontier(t.Context(), user, session)
	}
	var broken error
	if err == nil {
		broken = crashtest.CheckSession(t.Context(), store, user, session)
	}
	if err == nil && broken == nil && reflect.DeepEqual(messages, all) {
		return "unharmed", nil
	}
	if found := integrity(t.Context(), database(dir)); found != "ok" {
		return "found by the check", nil
	}
	if err != nil {
		return explained(err)
	}
	if broken != nil {
		// Each page is a good one; that what they say does not fit together is
		// for the doctor's other questions.
		return "rules are broken", nil
	}
	return "", fmt.Errorf("%d messages of %d, or others, and nobody notices", len(messages), len(all))
}

// integrity returns the first line of SQLite's own check.
func integrity(ctx context.Context, path string) (found string) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return err.Error()
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&found); err != nil {
		return err.Error()
	}
	return found
}

// A page that is lost or overwritten, wherever it is, and a file that ends too
// early, are never taken for what was stored, and never bring the process down.
func TestDamagedPages(t *testing.T) {
	original := t.TempDir()
	store := open(t, original)
	user, session, all := conversationOf(t, store, 30)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(database(original))
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	pages := len(content) / page
	random := rand.New(rand.NewPCG(3, 3))
	noise := func(b []byte) {
		for i := range b {
			b[i] = byte(random.Uint32())
		}
	}
	outcomes := map[string]int{}
	for number := range pages {
		for _, test := range []struct {
			name   string
			change func([]byte) []byte
		}{
			{"noise", func(c []byte) []byte { noise(c[number*page:][:page]); return c }},
			{"zeros", func(c []byte) []byte { clear(c[number*page:][:page]); return c }},
			{"another's", func(c []byte) []byte { copy(c[number*page:][:page], c[random.IntN(pages)*page:]); return c }},
			{"its head", func(c []byte) []byte { noise(c[number*page:][:12]); return c }},
			{"cut before", func(c []byte) []byte { return c[:number*page] }},
		} {
			changed := test.change(append([]byte(nil), content...))
			if len(changed) == 0 {
				// An empty file is that of a new store.
				continue
			}
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Dir(database(dir)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(database(dir), changed, 0o600); err != nil {
				t.Fatal(err)
			}
			outcome, err := damage(t, dir, user, session, all)
			if err != nil {
				t.Errorf("page %d of %d, %s: %v", number+1, pages, test.name, err)
			}
			outcomes[outcome]++
		}
	}
	t.Logf("%d pages: %v", pages, outcomes)
	if outcomes["refused"] == 0 || outcomes["found by the check"] == 0 {
		t.Errorf("%v: this test looks at the wrong thing", outcomes)
	}
}

// A writer that dies in the journal mode of a new file, or of one that a backup
// tool has made, leaves a rollback journal. The next one undoes what was half
// done; another program's file is refused and left as it is.
func TestRollbackJournalIsUndone(t *testing.T) {
	// halfWritten leaves dir as a process does that dies in a large
	// transaction.
	halfWritten := func(t *testing.T, dir, statement string) {
		t.Helper()
		live := t.TempDir()
		copyDatabase(t, dir, live)
		db, err := sql.Open("sqlite", "file:"+database(live)+"?_pragma=journal_mode(DELETE)&_pragma=cache_size(1)&_pragma=cache_spill(1)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		for _, s := range []string{"BEGIN IMMEDIATE", statement} {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		copyDatabase(t, live, dir)
		if journal, err := os.ReadFile(database(dir) + "-journal"); err != nil || len(journal) < 512 || journal[0] == 0 {
			t.Fatalf("no journal of %d bytes: %v: this test looks at the wrong thing", len(journal), err)
		}
	}
	t.Run("ours", func(t *testing.T) {
		dir := t.TempDir()
		store := open(t, dir)
		user, session, all := conversationOf(t, store, 60)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		halfWritten(t, dir, "UPDATE messages SET content = 'torn', tokens = 7")
		if _, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{ReadOnly: true}); !errors.Is(err, memory.ErrReadOnly) || !strings.Contains(err.Error(), "open it for writing once") {
			t.Errorf("for reading: %v", err)
		}
		store = open(t, dir)
		if messages, err := store.Messages(t.Context(), user, session, memory.MessageQuery{}); err != nil || !reflect.DeepEqual(messages, all) {
			t.Errorf("%d messages of %d, %v", len(messages), len(all), err)
		}
	})
	t.Run("another program's", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(database(dir)), 0o700); err != nil {
			t.Fatal(err)
		}
		execute(t, database(dir), "CREATE TABLE theirs (x); INSERT INTO theirs SELECT randomblob(3000) FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n)")
		halfWritten(t, dir, "UPDATE theirs SET x = randomblob(3000)")
		before := snapshot(t, dir)
		if _, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "with the program that it belongs to") {
			t.Errorf("got %v", err)
		}
		if after := snapshot(t, dir); !reflect.DeepEqual(after, before) {
			t.Error("the refused file was changed")
		}
	})
}

// snapshot is the content of the database's files, by name.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for _, suffix := range []string{"", "-journal"} {
		content, err := os.ReadFile(database(dir) + suffix)
		if err != nil {
			t.Fatal(err)
		}
		contents[suffix] = string(content)
	}
	return contents
}

// raceToOpen opens when it is told to, says how that went, and holds the store
// until it is told to end.
func raceToOpen(dir string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	store, err := sqlite.Open(context.Background(), database(dir), sqlite.Options{})
	fmt.Println(err == nil, errors.Is(err, memory.ErrInUse), err)
	in.Scan()
	if err == nil {
		err = store.Close()
	}
	if err != nil && !errors.Is(err, memory.ErrInUse) {
		return 1
	}
	return 0
}

// Of processes that make the same new database at the same time, one gets it,
// and the others are told that it is in use.
func TestProcessesRaceToOpen(t *testing.T) {
	const racers, rounds = 3, 4
	for range rounds {
		dir := t.TempDir()
		var told []io.WriteCloser
		var lines []*bufio.Scanner
		var wait []func() error
		for range racers {
			command := rerun(t, dir, "race to open")
			in, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			told, lines, wait = append(told, in), append(lines, bufio.NewScanner(out)), append(wait, command.Wait)
		}
		for _, l := range lines {
			l.Scan() // "opening"
		}
		for _, in := range told {
			fmt.Fprintln(in)
		}
		var opened, inUse int
		for _, l := range lines {
			l.Scan()
			switch text := l.Text(); {
			case strings.HasPrefix(text, "true false"):
				opened++
			case strings.HasPrefix(text, "false true"):
				inUse++
			default:
				t.Errorf("a process says %s", text)
			}
		}
		for _, in := range told {
			in.Close()
		}
		for _, w := range wait {
			if err := w(); err != nil {
				t.Error(err)
			}
		}
		if opened != 1 || inUse != racers-1 {
			t.Errorf("%d opened it, %d were told that it is in use", opened, inUse)
		}
		open(t, dir)
	}
}

// readUntilTold reads from a store that another process writes to, until its
// input ends.
func readUntilTold(dir string) int {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, database(dir), sqlite.Options{ReadOnly: true})
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	defer store.Close()
	fmt.Println("reading")
	var told atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		told.Store(true)
	}()
	rounds := 0
	for last := false; !last; rounds++ {
		last = told.Load()
		user, err := store.DefaultUser(ctx)
		if err != nil {
			fmt.Println("read:", err)
			return 1
		}
		sessions, err := store.Sessions(ctx, user.ID, memory.SessionQuery{})
		for _, s := range sessions {
			if err == nil {
				err = shownWhole(ctx, store, s)
			}
		}
		if err != nil {
			fmt.Println("read:", err)
			return 1
		}
	}
	fmt.Println("rounds", rounds)
	return 0
}

// shownWhole reads what the model is shown of a session while others
// write to it: a frontier is of one moment, so it never stands for fewer
// messages than were there before.
func shownWhole(ctx context.Context, store memory.Store, s memory.Session) error {
	frontier, err := store.Frontier(ctx, s.User, s.ID)
	if err != nil {
		return err
	}
	covered := 0
	for _, item := range frontier.Items {
		if covered++; item.Summary != nil {
			covered += item.Summary.Descendants - 1
		} else if item.Message.Seq != int64(covered) {
			return fmt.Errorf("message %d of session %s stands in place %d", item.Message.Seq, s.ID, covered)
		}
	}
	if covered < s.Messages {
		return fmt.Errorf("session %s had %d messages, its frontier stands for %d", s.ID, s.Messages, covered)
	}
	return nil
}

// Eight sessions are written and compacted while eight readers and another
// process read them: nobody is ever told that the database is busy.
func TestNobodyIsTurnedAway(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	user, agent, err := people(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	other := rerun(t, dir, "read")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "reading" {
		if !strings.HasPrefix(lines.Text(), "opening") {
			t.Fatalf("the reading process: %s", lines.Text())
		}
	}

	const writers, appends = 8, 10
	done := make(chan struct{})
	var writing, reading sync.WaitGroup
	sessions := make([]memory.SessionID, writers)
	for i := range writers {
		session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = session.ID
	}
	for _, id := range sessions {
		writing.Go(func() {
			for i := range appends {
				if _, err := store.Append(t.Context(), user, id, said(fmt.Sprintf("message %d", i)), said("and another")); err != nil {
					t.Error(err)
					return
				}
				if i%5 == 4 {
					if err := compact(t.Context(), store, user, id); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		reading.Go(func() {
			for {
				s, err := store.Session(t.Context(), user, id)
				if err == nil {
					err = shownWhole(t.Context(), store, s)
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	in.Close()
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "rounds") {
			t.Errorf("the reading process: %s", lines.Text())
		}
	}
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
	for _, id := range sessions {
		if messages, err := store.Messages(t.Context(), user, id, memory.MessageQuery{}); err != nil || len(messages) != 2*appends {
			t.Errorf("%d messages of %d, %v", len(messages), 2*appends, err)
		}
		if err := crashtest.CheckSession(t.Context(), store, user, id); err != nil {
			t.Error(err)
		}
	}
}
