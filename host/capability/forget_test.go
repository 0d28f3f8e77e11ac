package capability_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/capability"
)

// S7: a scrub that began before somebody was forgotten does not take the mark of
// that for its own: no answer says that nothing is left while something is.
func TestForgettingManyAtOnceLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	const users = 60
	canary := func(n int) string { return fmt.Sprintf("canary%03dcanary", n) }
	for range 60 {
		for n := range users {
			if err := ledger.RecordRun(t.Context(), capability.Run{Hand: "mail", Subject: ledger.Subject("mail", fmt.Sprint(n)),
				Text: strings.Repeat(canary(n), 20), Outcome: "ok", At: time.Date(2026, 3, 23, 8, 0, 0, 0, time.UTC)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Runs are written at most a second late.
	for {
		if runs, err := ledger.Runs(t.Context(), "mail", 60*users); err != nil {
			t.Fatal(err)
		} else if len(runs) == 60*users {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	var forgetting sync.WaitGroup
	for n := range users {
		forgetting.Go(func() {
			time.Sleep(time.Duration(n) * 3 * time.Millisecond)
			_, done, err := ledger.ForgetUser(t.Context(), fmt.Sprint(n))
			if err != nil {
				t.Error(err)
			}
			if !done {
				return
			}
			for _, name := range []string{path, path + "-wal"} {
				content, err := os.ReadFile(name)
				if err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
				if left := bytes.Count(content, []byte(canary(n))); left > 0 {
					t.Errorf("%s has %d copies of what was forgotten of user %d", filepath.Base(name), left, n)
				}
			}
		})
	}
	forgetting.Wait()
}
