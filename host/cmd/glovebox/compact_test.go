package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// A command that changes what is stored says who is in its way; one that reads
// does not mind.
func TestCompactBesideAWriter(t *testing.T) {
	home := t.TempDir()
	glovebox := commandOn(home)
	if code, _, errs := glovebox("chat"); code != 0 {
		t.Fatal(errs)
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(home, "glovebox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if code, _, errs := glovebox("session", "compact", "last"); code != exitFailed || !strings.Contains(errs, "in use by another process") || !strings.Contains(errs, "hint: stop the other glovebox") {
		t.Errorf("compact ended with %d: %s", code, errs)
	}
	if code, out, errs := glovebox("session", "status", "last"); code != 0 || !strings.Contains(out, "no debt") {
		t.Errorf("status ended with %d: %s%s", code, out, errs)
	}
}
