package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A hands.db that is none is something the doctor finds, and says what to do about.
func TestDoctorFindsAForeignLedger(t *testing.T) {
	home := t.TempDir()
	glovebox := commandOn(home)
	if code, _, errs := glovebox("chat"); code != 0 {
		t.Fatal(errs)
	}
	for _, ending := range []string{"-wal", "-shm"} {
		os.Remove(filepath.Join(home, "hands.db"+ending))
	}
	if err := os.WriteFile(filepath.Join(home, "hands.db"), bytes.Repeat([]byte("garbage "), 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := glovebox("doctor"); code != exitFailed || errs != "" || !strings.Contains(out, "hands.db") || !strings.Contains(out, "put a backup in its place") {
		t.Errorf("doctor ended with %d: %s%s", code, out, errs)
	}
}

// A title that was imported does not steer a terminal.
func TestOneLine(t *testing.T) {
	if got, want := oneLine("a\x1b[2J\u009b31m\u202e\x7fb"), "a [2J 31m  b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
