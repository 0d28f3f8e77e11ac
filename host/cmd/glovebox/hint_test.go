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
	// Schema 5 taken back.
	topics := "(id BLOB PRIMARY KEY, user_id BLOB, agent_id BLOB, topic TEXT, content TEXT, embedding BLOB, expires_at INTEGER, superseded_by BLOB, valid_from INTEGER, updated_at INTEGER)"
	for _, s := range []string{
		"DROP TABLE session_learned", "DROP TABLE pending_runs", "DROP TABLE topics",
		"DROP INDEX sessions_due", "ALTER TABLE sessions DROP COLUMN due_since", "ALTER TABLE users DROP COLUMN memory_revision",
		"DROP INDEX session_extractions_pending", "ALTER TABLE session_extractions DROP COLUMN merged_at",
		"CREATE TABLE user_topics " + topics, "CREATE TABLE user_agent_topics " + topics, "PRAGMA user_version = 4",
	} {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	code, _, errs := glovebox("session", "list")
	if code != exitFailed || !strings.Contains(errs, "it has schema 4, this version needs") || !strings.Contains(errs, "hint: glovebox doctor --repair") || strings.Contains(errs, "make the directory writable") {
		t.Errorf("list ended with %d: %s", code, errs)
	}
	if code, out, errs := glovebox("doctor", "--repair"); code != 0 {
		t.Fatalf("doctor --repair ended with %d: %s%s", code, out, errs)
	}
	if code, _, errs := glovebox("session", "list"); code != 0 {
		t.Errorf("list ended with %d: %s", code, errs)
	}
}
