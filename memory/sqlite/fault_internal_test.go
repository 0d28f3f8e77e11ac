package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
)

// S5: a kill cannot show whether a commit waits for the disk, since what the
// kernel holds survives it. The connections are therefore asked: the one writer
// syncs the WAL with every commit (2 is FULL), also after a transaction of its
// own was refused, and no reader can write.
func TestConnectionsAreDurable(t *testing.T) {
	for _, backup := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "glovebox.db")
		if backup {
			// As a backup tool leaves it.
			store, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			mode := ""
			if err := db.QueryRowContext(t.Context(), "PRAGMA journal_mode = DELETE").Scan(&mode); err != nil || mode != "delete" {
				t.Fatal(mode, err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		store, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := store.Append(t.Context(), memory.UserID{1}, memory.SessionID{1}); !errors.Is(err, memory.ErrNotFound) {
			t.Fatal(err)
		}
		for _, test := range []struct {
			db           *sql.DB
			pragma, want string
		}{
			{store.write, "journal_mode", "wal"},
			{store.write, "synchronous", "2"},
			{store.write, "foreign_keys", "1"},
			{store.write, "secure_delete", "1"},
			{store.read, "query_only", "1"},
			{store.read, "journal_mode", "wal"},
		} {
			got := ""
			if err := test.db.QueryRowContext(t.Context(), "PRAGMA "+test.pragma).Scan(&got); err != nil || got != test.want {
				t.Errorf("%s is %q, want %q: %v", test.pragma, got, test.want, err)
			}
		}
		if n := store.write.Stats().MaxOpenConnections; n != 1 {
			t.Errorf("%d connections write", n)
		}
	}
}
