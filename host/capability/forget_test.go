package capability_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gloveboxhq/glovebox/host/capability"
)

// S7: a scrub that began before somebody was forgotten does not take the mark of
// that for its own: no answer says that nothing is left while something is.
func TestForgettingManyAtOnceLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	recording, err := capability.OpenLedger(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	const users = 32
	canary := func(n int) string { return fmt.Sprintf("canary%03dcanary", n) }
	for range 40 {
		for n := range users {
			if err := recording.RecordRun(t.Context(), capability.Run{Hand: "mail", Subject: recording.Subject("mail", fmt.Sprint(n)),
				Text: strings.Repeat(canary(n), 20), Outcome: "ok", At: time.Date(2026, 3, 23, 8, 0, 0, 0, time.UTC)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Runs are in the file when it is closed, at the latest.
	if err := recording.Close(); err != nil {
		t.Fatal(err)
	}
	ledger := openLedger(t, path)
	// Whoever is done makes room for the next: somebody's rows are deleted while
	// somebody else's are being scrubbed, all the time.
	var forgetting errgroup.Group
	forgetting.SetLimit(8)
	for n := range users {
		forgetting.Go(func() error {
			_, done, err := ledger.ForgetUser(t.Context(), fmt.Sprint(n))
			if err != nil || !done {
				return err
			}
			for _, name := range []string{path, path + "-wal"} {
				content, err := os.ReadFile(name)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				if left := bytes.Count(content, []byte(canary(n))); left > 0 {
					t.Errorf("%s has %d copies of what was forgotten of user %d", filepath.Base(name), left, n)
				}
			}
			return nil
		})
	}
	if err := forgetting.Wait(); err != nil {
		t.Error(err)
	}
}
