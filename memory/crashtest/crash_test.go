package crashtest_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var (
	kills = flag.Int("kills", 0, "how many processes to kill; 0 is 24, with -short 8")
	seed  = flag.Uint64("seed", 1, "what the processes to be killed do, and when they die")
)

func TestMain(m *testing.M) {
	crashtest.Child(engine)
	os.Exit(m.Run())
}

func database(dir string) string { return filepath.Join(dir, "data", "glovebox.db") }

// engine is the store on SQLite.
var engine = crashtest.Engine{
	Open: func(ctx context.Context, dir string) (memory.Store, error) {
		store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
		if err != nil {
			return nil, err
		}
		return store, nil
	},
	Files: func(dir string) ([]string, error) { return filepath.Glob(database(dir) + "*") },
}

// S5, C12, S9: what was acknowledged survives kill -9 at any instant, nothing
// is half there, and nothing that was never sent is there.
func TestKill(t *testing.T) {
	n := *kills
	if n == 0 {
		if n = 24; testing.Short() {
			n = 8
		}
	}
	counts := crashtest.Kill(t, engine, crashtest.Options{Seed: *seed, Kills: n})
	t.Logf("%+v", counts)
	if counts.Kills != n || counts.Messages == 0 || counts.Summaries == 0 {
		t.Errorf("%+v: this run proves nothing", counts)
	}
}
