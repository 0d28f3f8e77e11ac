package plugins_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/plugins"
)

// engine is the box that all tests share, so that a module is compiled once.
var engine = sync.OnceValues(func() (*sandbox.Engine, error) { return sandbox.New(sandbox.Config{}) })

// bundledHand is an embedded module in the box, as the host runs it.
type bundledHand struct {
	module *sandbox.Module
	root   string
	ledger *capability.Ledger
}

func loadBundled(t testing.TB, name, root string) bundledHand {
	t.Helper()
	module, err := plugins.Module(name)
	if err != nil {
		t.Fatal(err)
	}
	box, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := box.Load(t.Context(), module, sandbox.Options{Name: name, Granted: []abi.Capability{abi.CapabilityFiles}, Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := capability.OpenLedger(t.Context(), filepath.Join(t.TempDir(), "hands.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	return bundledHand{loaded, root, ledger}
}

// ask asks about the day of 23 March 2026 in UTC, with dir granted.
func (h bundledHand) ask(t testing.TB, dir string, config map[string]any) (sandbox.Result, error) {
	t.Helper()
	files := capability.NewFiles(h.ledger, capability.Caller{Hand: "bundled"}, map[string]string{h.root: dir})
	defer files.Close()
	day := time.Date(2026, time.March, 23, 0, 0, 0, 0, time.UTC)
	return h.module.Query(t.Context(), abi.Query{
		Prompt: "What is new?", From: day, To: day.AddDate(0, 0, 1), Now: day.AddDate(0, 0, 1), Timezone: "Europe/Berlin", MaxOutputTokens: 1_000, Config: config,
	}, sandbox.Ports{Files: files})
}

func write(t testing.TB, name, content string, written time.Time) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, written, written); err != nil {
		t.Fatal(err)
	}
}

func TestNotesInTheBox(t *testing.T) {
	hand := loadBundled(t, "notes", "notes")
	dir := t.TempDir()
	changed := time.Date(2026, time.March, 23, 10, 0, 0, 0, time.UTC)
	write(t, filepath.Join(dir, "garden", "Plan.md"), "# Garden\n\n- [ ] dig\n", changed)
	write(t, filepath.Join(dir, "old.md"), "# Old\n", changed.AddDate(0, -1, 0))
	write(t, filepath.Join(dir, "agenda.org"), "* TODO Seeds\nDEADLINE: <2026-03-23 Mon>\n", changed.AddDate(0, -1, 0))
	write(t, filepath.Join(dir, "archive", "x.md"), "# Archived\n", changed)
	if err := os.Symlink(filepath.Join(dir, "garden"), filepath.Join(dir, "garden", "loop")); err == nil {
		t.Log("with a folder that leads into itself")
	}
	result, err := hand.ask(t, dir, map[string]any{"ignore": []string{"archive", "loop"}, "max_notes": 5})
	if err != nil {
		t.Fatal(err)
	}
	want := "Notes from Mon 23 Mar 2026 01:00 to Tue 24 Mar 2026 01:00 (Europe/Berlin): 1 note changed, 1 dated item of Org files.\n\n" +
		"- Mon 23 Mar deadline: TODO Seeds (agenda.org)\n" +
		"- Mon 23 Mar 11:00 changed: Garden (garden/Plan.md)\n  open: dig"
	if got := boundary.Neutral(result.Reply); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for name, test := range map[string]struct {
		config map[string]any
		want   string
	}{
		"configuration": {map[string]any{"max_notes": 0}, "max_notes is 0: write a number from 1 to 1000"},
		"no notes":      {map[string]any{"ignore": []string{"*"}}, "should hold .md, .markdown, .org or .txt files"},
	} {
		result, err := hand.ask(t, dir, test.config)
		if err == nil || !strings.Contains(boundary.Neutral(result.Said), test.want) {
			t.Errorf("%s: %v, said %q", name, err, boundary.Neutral(result.Said))
		}
	}
}

// BenchmarkNotes asks about 10,000 notes in 100 folders, of which 100 changed.
func BenchmarkNotes(b *testing.B) {
	hand := loadBundled(b, "notes", "notes")
	dir := b.TempDir()
	words := strings.Repeat("Some words of a note.\n", 100)
	for i := range 10_000 {
		written := time.Date(2026, time.March, 22-i%20, 0, 0, 0, 0, time.UTC)
		if i%100 == 0 {
			written = time.Date(2026, time.March, 23, 0, 0, i, 0, time.UTC)
		}
		write(b, filepath.Join(dir, fmt.Sprint("area", i%10), fmt.Sprint("topic", i%100), fmt.Sprintf("note-%d.md", i)),
			fmt.Sprintf("# Note %d\n\n%s\n## Next\n\n- [ ] task %d\n- [x] done\n", i, words, i), written)
	}
	benchmarkAsk(b, hand, dir)
}

func benchmarkAsk(b *testing.B, hand bundledHand, dir string) {
	b.Helper()
	var fuel, memory int64
	var calls int
	for b.Loop() {
		result, err := hand.ask(b, dir, nil)
		if err != nil || result.Reply.IsEmpty() {
			b.Fatalf("%v, said %q", err, boundary.Neutral(result.Said))
		}
		fuel, memory, calls = result.Fuel, result.MemoryBytes, result.Calls
	}
	b.ReportMetric(float64(fuel)/1e6, "Mfuel")
	b.ReportMetric(float64(memory)/(1<<20), "MiB")
	b.ReportMetric(float64(calls), "calls")
}
