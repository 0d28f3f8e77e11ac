package plugins_test

import (
	"fmt"
	"os"
	"os/exec"
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

// gitIn runs git in dir as somebody at a time, with nothing of the machine's
// configuration.
func gitIn(t testing.TB, dir string, at time.Time, input string, args ...string) {
	t.Helper()
	command := exec.Command("git", args...)
	command.Dir, command.Stdin = dir, strings.NewReader(input)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			command.Env = append(command.Env, v)
		}
	}
	date := fmt.Sprintf("%d +0100", at.Unix())
	command.Env = append(command.Env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_AUTHOR_DATE="+date,
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org", "GIT_COMMITTER_DATE="+date)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

func TestGitInTheBox(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: apt-get install git")
	}
	hand := loadBundled(t, "git", "repository")
	dir, at := t.TempDir(), time.Date(2026, time.March, 23, 10, 0, 0, 0, time.UTC)
	gitIn(t, dir, at, "", "init", "--quiet", "--initial-branch=main", "site")
	site := filepath.Join(dir, "site")
	write(t, filepath.Join(site, "pump.txt"), strings.Repeat("a line of the plan\n", 100), at)
	gitIn(t, site, at, "", "add", "--all")
	gitIn(t, site, at, "", "commit", "--quiet", "-m", "Plan the pump")
	write(t, filepath.Join(site, "pump.txt"), strings.Repeat("a line of the plan\n", 101), at)
	gitIn(t, site, at.Add(time.Hour), "", "commit", "--quiet", "--all", "-m", "Plan more")
	gitIn(t, site, at, "", "gc", "--quiet", "--aggressive")
	gitIn(t, site, at.Add(2*time.Hour), "", "tag", "-a", "-m", "v1", "v1")
	gitIn(t, site, at, "", "worktree", "add", "--quiet", "-b", "topic", "../topic")
	gitIn(t, filepath.Join(dir, "topic"), at.Add(3*time.Hour), "", "commit", "--quiet", "--allow-empty", "-m", "Begin")
	for path, head := range map[string]string{"site": "main", "topic": "topic"} {
		result, err := hand.ask(t, dir, map[string]any{"path": path, "max_commits": 10, "branches": []string{}, "author": ""})
		got := boundary.Neutral(result.Reply)
		for _, want := range []string{
			"Commits from Mon 23 Mar 2026 01:00 to Tue 24 Mar 2026 01:00 (Europe/Berlin): 3 on 2 branches, of which " + head + " is checked out.",
			" Ada: Begin [topic]\n  no file changed\n", "- Mon 23 Mar 12:00 ", " Ada: Plan more [main, tag v1]\n  1 file: pump.txt\n", " Ada: Plan the pump\n  1 file: pump.txt (added)",
		} {
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("%s: %v, reply lacks %q:\n%s%s", path, err, want, got, boundary.Neutral(result.Said))
			}
		}
	}
	result, err := hand.ask(t, filepath.Join(dir, "topic"), nil)
	if err == nil || !strings.Contains(boundary.Neutral(result.Said), "outside the granted folder: grant a folder that holds both") {
		t.Errorf("a work tree alone: %v, said %q", err, boundary.Neutral(result.Said))
	}
}

// BenchmarkGit asks about a repository of 10,000 commits and 2,000 files, packed
// as git packs, in which 100 commits are of the day; and about a day long ago.
func BenchmarkGit(b *testing.B) {
	if _, err := exec.LookPath("git"); err != nil {
		b.Skip("git is not installed: apt-get install git")
	}
	hand := loadBundled(b, "git", "repository")
	for _, recent := range []bool{true, false} {
		dir := b.TempDir()
		gitIn(b, dir, time.Now(), "", "init", "--quiet", "--initial-branch=main")
		var stream strings.Builder
		for i := range 10_000 {
			// Of the day are the last hundred commits, or the first.
			at := time.Date(2026, time.March, 23, 12, 0, i-10_000, 0, time.UTC).Add(-time.Duration(max(0, 9_900-i)) * time.Hour)
			if !recent {
				at = time.Date(2026, time.March, 23, 12, 0, i, 0, time.UTC).Add(time.Duration(max(0, i-100)) * time.Hour)
			}
			content := strings.Repeat(fmt.Sprintf("line of file %d\n", i%2_000), 50) + fmt.Sprint(i)
			message := fmt.Sprintf("Change no. %d\n\nSome words about why.\n", i)
			fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0100\ndata %d\n%s\nM 100644 inline area%d/topic%d/file%d.txt\ndata %d\n%s\n",
				at.Unix(), len(message), message, i%10, i%100, i%2_000, len(content), content)
		}
		gitIn(b, dir, time.Now(), stream.String(), "fast-import", "--quiet")
		gitIn(b, dir, time.Now(), "", "gc", "--quiet")
		b.Run(fmt.Sprintf("recent=%t", recent), func(b *testing.B) { benchmarkAsk(b, hand, dir) })
	}
	// A folder of 20,000 files, one of which each of 200 commits of the day changes.
	dir := b.TempDir()
	gitIn(b, dir, time.Now(), "", "init", "--quiet", "--initial-branch=main")
	var stream strings.Builder
	for i := range 200 {
		at := time.Date(2026, time.March, 23, 9, 0, i, 0, time.UTC).Unix()
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0100\ndata 6\nChange\n", at)
		for j := range 20_000 {
			if i == 0 || j == i*97%20_000 {
				fmt.Fprintf(&stream, "M 100644 inline file-%05d.txt\ndata 8\n%08d\n", j, i*j)
			}
		}
	}
	gitIn(b, dir, time.Now(), stream.String(), "fast-import", "--quiet")
	gitIn(b, dir, time.Now(), "", "gc", "--quiet")
	b.Run("folder=20000", func(b *testing.B) { benchmarkAsk(b, hand, dir) })
}
