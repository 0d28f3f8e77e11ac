package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// leak changes a table, its index and a tree of keys at random, and deletes the
// rows that have the word in the end.
func leak(t *testing.T, db *sql.DB, word string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	execute := func(statement string, arguments ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, arguments...); err != nil {
			t.Fatal(err)
		}
	}
	execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, key BLOB, text TEXT); CREATE INDEX rows_key ON rows (key, text); CREATE TABLE keyed (key BLOB PRIMARY KEY, text TEXT) WITHOUT ROWID; BEGIN")
	for range 5000 {
		kind := word
		if random.IntN(2) == 0 {
			kind = "another"
		}
		// Some are so long that they take pages of their own.
		text := strings.Repeat(kind, 1+int(random.ExpFloat64()*random.ExpFloat64()*20))
		id, key := random.IntN(3000), fmt.Sprintf("%x", random.Uint64())
		if random.IntN(4) == 0 {
			execute("DELETE FROM rows WHERE id BETWEEN ? AND ?", id, id+3)
			execute("DELETE FROM keyed WHERE key BETWEEN ? AND ?", key, key+"f")
			continue
		}
		execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", id, key, text)
		execute("INSERT OR REPLACE INTO keyed VALUES (?, ?)", key, text)
	}
	execute("COMMIT")
	execute("DELETE FROM rows WHERE text LIKE ?", word+"%")
	execute("DELETE FROM keyed WHERE text LIKE ?", word+"%")
}

// S7: SQLite's own secure_delete leaves copies behind, Scrub does not.
func TestScrubClearsWhatSecureDeleteLeaves(t *testing.T) {
	const word = "canary"
	path := filepath.Join(t.TempDir(), "glovebox.db")
	store, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	leak(t, store.write, word)
	contents := func() (all string) {
		if err := store.write.QueryRowContext(t.Context(), `SELECT (SELECT group_concat(id || key || text) FROM (SELECT * FROM rows ORDER BY id)) ||
			(SELECT group_concat(key || text) FROM (SELECT * FROM keyed ORDER BY key)) || (SELECT group_concat(key || text) FROM (SELECT key, text FROM rows ORDER BY key, text))`).Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	copies := func() int {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(data, []byte(word))
	}
	before := contents()
	if _, err := store.write.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if copies() == 0 {
		t.Fatal("nothing was left behind: this proves nothing")
	}
	if done, err := store.Scrub(t.Context()); err != nil || !done {
		t.Fatalf("scrub: %v, %v", done, err)
	}
	if n := copies(); n > 0 {
		t.Errorf("%d copies of deleted text", n)
	}
	if contents() != before {
		t.Error("rows have changed")
	}
	verdict := ""
	if err := store.write.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Error(verdict, err)
	}
	// The trees can still grow where they were cleared.
	if _, err := store.write.ExecContext(t.Context(), "DELETE FROM rows; DELETE FROM keyed; DROP TABLE rows; DROP TABLE keyed"); err != nil {
		t.Error(err)
	}
}

// A Scrub that began before something was deleted does not take the mark of that
// for its own.
func TestScrubLeavesTheMarksOfOthers(t *testing.T) {
	synctest.Test(t, scrubLeavesTheMarksOfOthers)
}

func scrubLeavesTheMarksOfOthers(t *testing.T) {
	store, err := Open(t.Context(), filepath.Join(t.TempDir(), "glovebox.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	mark := func() {
		t.Helper()
		if err := store.writing(t.Context(), "mark", func(ctx context.Context, tx *sql.Tx) error {
			return remove(ctx, tx, []deletion{{"UPDATE users SET name = name", nil}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	mark()
	leave := store.reads.enter()
	done := make(chan error)
	go func() {
		_, err := store.Scrub(t.Context())
		done <- err
	}()
	// It waits for a reader when it has ended the epoch.
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("it did not wait for a reader: %v", err)
	default:
	}
	mark()
	leave()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if pending, err := store.ScrubPending(t.Context()); err != nil || !pending {
		t.Errorf("what was deleted in between is to be scrubbed: %v, %v", pending, err)
	}
	if _, err := store.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pending, err := store.ScrubPending(t.Context()); err != nil || pending {
		t.Errorf("after the second: %v, %v", pending, err)
	}
}
