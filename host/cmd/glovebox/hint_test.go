package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// A command that only reads cannot bring a database of an older version to this
// one; it says which does.
func TestADatabaseOfAnOlderVersion(t *testing.T) {
	home := t.TempDir()
	glovebox := commandOn(home)
	if code, _, errs := glovebox("chat"); code != 0 {
		t.Fatal(errs)
	}
	db, err := sql.Open("sqlite", filepath.Join(home, "glovebox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{ // schema 7 taken back
		"DROP INDEX sessions_due_user", "DROP TABLE pending_runs",
		`CREATE TABLE pending_runs (
			session_id BLOB NOT NULL REFERENCES sessions (id), trigger TEXT NOT NULL, exchanges INTEGER NOT NULL, begun_at INTEGER NOT NULL,
			PRIMARY KEY (session_id, trigger)
		) STRICT, WITHOUT ROWID`, "PRAGMA user_version = 6",
	} {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	code, _, errs := glovebox("session", "list")
	if code != exitFailed || !strings.Contains(errs, "it has schema 6, this version needs") || !strings.Contains(errs, "hint: glovebox doctor --repair") || strings.Contains(errs, "make the directory writable") {
		t.Errorf("list ended with %d: %s", code, errs)
	}
	if code, out, errs := glovebox("doctor", "--repair"); code != 0 {
		t.Fatalf("doctor --repair ended with %d: %s%s", code, out, errs)
	}
	if code, _, errs := glovebox("session", "list"); code != 0 {
		t.Errorf("list ended with %d: %s", code, errs)
	}
}
