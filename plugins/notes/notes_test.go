package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/plugins/internal/golden"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

// march23 is a query for 23 March 2026 in UTC.
func march23() hand.Query {
	day := time.Date(2026, time.March, 23, 0, 0, 0, 0, time.UTC)
	return hand.Query{From: day, To: day.AddDate(0, 0, 1), Now: day.AddDate(0, 0, 1), Location: time.UTC, MaxOutputTokens: 2_000, Config: map[string]any{}}
}

func ask(t testing.TB, fsys fs.FS, q hand.Query) string {
	t.Helper()
	reply, err := answer(files.WithRoot(t.Context(), rootName, fsys), q)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// changed is a file that was written at ten on 23 March 2026.
func changed(content string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(content), ModTime: time.Date(2026, time.March, 23, 10, 0, 0, 0, time.UTC)}
}

// TestReplies compares whole replies. An archive holds a query, the granted
// folder with the time of each file, and the reply.
func TestReplies(t *testing.T) {
	golden.Replies(t, func(t *testing.T, files []txtar.File) string {
		fsys, q := archived(t, files)
		return ask(t, fsys, q)
	})
}

func archived(t testing.TB, files []txtar.File) (fstest.MapFS, hand.Query) {
	t.Helper()
	fsys, q := make(fstest.MapFS), march23()
	for _, f := range files {
		below, isNote := strings.CutPrefix(f.Name, "notes/")
		switch {
		case isNote:
			below, stamp, _ := strings.Cut(below, " @")
			written, err := time.Parse(time.RFC3339, stamp)
			if err != nil {
				t.Fatal(err)
			}
			fsys[below] = &fstest.MapFile{Data: f.Data, ModTime: written}
		case f.Name == "query":
			for line := range strings.Lines(string(f.Data)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				var err error
				switch key {
				case "from":
					q.From, err = time.Parse(time.RFC3339, value)
				case "to":
					q.To, err = time.Parse(time.RFC3339, value)
				case "now":
					q.Now, err = time.Parse(time.RFC3339, value)
				case "timezone":
					q.Location, err = time.LoadLocation(value)
				case "ignore":
					q.Config["ignore"] = strings.Fields(value)
				default:
					t.Fatalf("unknown key %q", key)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		case f.Name == "reply":
		default:
			t.Fatalf("unknown file %q", f.Name)
		}
	}
	return fsys, q
}

func TestNothingToRead(t *testing.T) {
	if _, err := answer(t.Context(), march23()); !errors.Is(err, errNotGranted) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without a granted folder: %v", err)
	}
	for name, fsys := range map[string]fstest.MapFS{
		"empty": {}, "none": {"a.png": changed("x"), ".hidden.md": changed("x"), ".git/x.md": changed("x")},
	} {
		if _, err := answer(files.WithRoot(t.Context(), rootName, fsys), march23()); !errors.Is(err, errNoNotes) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cancelled, cancel := context.WithCancel(files.WithRoot(t.Context(), rootName, fstest.MapFS{"a.md": changed("x")}))
	cancel()
	if _, err := answer(cancelled, march23()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	q := march23()
	q.From, q.To = q.From.AddDate(0, 0, -7), q.To.AddDate(0, 0, -7)
	if reply := ask(t, fstest.MapFS{"a.md": {Data: []byte("# A"), ModTime: q.From.AddDate(0, 0, -1)}}, q); reply != "" {
		t.Errorf("nothing changed: %q", reply)
	}
}

func TestConfiguration(t *testing.T) {
	fsys := make(fstest.MapFS)
	for i := range 5 {
		fsys[fmt.Sprintf("%d.md", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "# No. %d", i), ModTime: march23().From.Add(time.Duration(i) * time.Hour)}
	}
	q := march23()
	q.Config = map[string]any{"max_notes": int64(2)}
	reply := ask(t, fsys, q)
	if !strings.Contains(reply, ": 5 notes changed.\n\n- Mon 23 Mar 04:00 changed: No. 4 (4.md)\n- Mon 23 Mar 03:00 changed: No. 3 (3.md)\n… and 3 more") {
		t.Errorf("reply:\n%s", reply)
	}
	for _, config := range []map[string]any{{"max_notes": int64(0)}, {"max_notes": int64(1_001)}, {"ignore": []string{"[a"}}, {"ignore": []string{""}}, {"ignore": make([]string, 101)}} {
		q.Config = config
		_, err := answer(files.WithRoot(t.Context(), rootName, fsys), q)
		if !errors.Is(err, errConfig) {
			t.Errorf("%v: %v", config, err)
		}
	}
}

// TestCharsets: what editors of Windows write is read, what is no text is named.
func TestCharsets(t *testing.T) {
	utf16 := "\xff\xfe#\x00 \x00\xdc\x00b\x00e\x00r\x00\n\x00"
	for name, test := range map[string]struct{ content, want string }{
		"UTF-8 with BOM":     {"\ufeff---\r\ntitle: Über\r\n---\r\n", ": Über (a.md)"},
		"CRLF":               {"# Über\r\n\r\n- [ ] eins\r\n", ": Über (a.md)\n  open: eins"},
		"CR":                 {"# Über\r\r- [ ] eins\r", ": Über (a.md)\n  open: eins"},
		"windows-1252":       {"# \xdcber \x80", ": Über € (a.md)"},
		"UTF-16LE":           {utf16, ": Über (a.md)"},
		"UTF-16BE":           {"\xfe\xff\x00#\x00 \x00\xdc\x00b\x00e\x00r", ": Über (a.md)"},
		"binary":             {"# x\x00\x01", "Could not read: a.md (not a text: it has NUL bytes)"},
		"cut inside a rune":  {"# Über\n\n" + strings.Repeat("ü", maxNoteBytes), ": Über (a.md)"},
		"a heading of bytes": {"# \x81\x8d", "(a.md)"},
	} {
		t.Run(name, func(t *testing.T) {
			reply := ask(t, fstest.MapFS{"a.md": changed(test.content)}, march23())
			if !strings.Contains(reply, test.want) || !utf8.ValidString(reply) {
				t.Errorf("want %q, reply:\n%q", test.want, reply)
			}
		})
	}
}

// TestRepeaters says on which day of a window of one day a repeated item is.
func TestRepeaters(t *testing.T) {
	for stamp, want := range map[string]string{
		"<2026-03-16 Mon +1w>":             "Mon 23 Mar",
		"<2026-03-17 Tue +1w>":             "",
		"<1999-01-04 Mon 09:30 +1w>":       "Mon 23 Mar 09:30",
		"<1970-01-01 +1d>":                 "Mon 23 Mar",
		"<2026-03-22 23:30 ++2h>":          "Mon 23 Mar 01:30",
		"<2024-03-23 .+1y>":                "Mon 23 Mar",
		"<2024-03-24 .+1y>":                "",
		"<1971-01-23 +1m>":                 "Mon 23 Mar",
		"<2025-01-23 +2m/4m>":              "Mon 23 Mar",
		"<2025-02-23 +2m>":                 "",
		"<2026-03-24 +1w>":                 "",
		"<2026-03-21>--<2026-03-23>":       "Sat 21 Mar",
		"<2026-03-14>--<2026-03-16 +1w>":   "",
		"<2026-03-14 +1w>--<2026-03-16>":   "Sat 21 Mar",
		"<2026-03-22 23:00-23:59>":         "",
		"<2026-03-22 23:00>--<2026-03-23>": "Sun 22 Mar 23:00",
		"<2026-03-23 Mon 24:00>":           "",
		"<2026-03-23 Mon 00:00>":           "Mon 23 Mar 00:00",
		"<2026-03-23 Mon +0d>":             "Mon 23 Mar",
		"<2026-03-22 Mon +0d>":             "",
		"<2026-03-23Mon>":                  "",
		"<2026-13-23 Mon>":                 "",
	} {
		reply := ask(t, fstest.MapFS{"a.org": {Data: []byte("* TODO x\nSCHEDULED: " + stamp + "\n")}}, march23())
		if line := "\n- " + want + " scheduled: TODO x (a.org)"; want != "" && !strings.Contains(reply, line) || want == "" && reply != "" {
			t.Errorf("%s: want %q, reply:\n%s", stamp, want, reply)
		}
	}
}

// A repeated item keeps its time of the day over the change of the clock.
func TestRepeatersKeepLocalTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	q := march23()
	q.Location = berlin
	q.From = time.Date(2026, time.March, 30, 0, 0, 0, 0, berlin) // summer time began the day before
	q.To = q.From.AddDate(0, 0, 1)
	reply := ask(t, fstest.MapFS{"a.org": {Data: []byte("* Stand-up\n<2026-01-05 Mon 00:15 +1w>\n")}}, q)
	if !strings.Contains(reply, "\n- Mon 30 Mar 00:15 on the day: Stand-up") {
		t.Errorf("reply:\n%s", reply)
	}
}

// countingFS counts what is opened, and fails reads if told to.
type countingFS struct {
	fstest.MapFS
	opened  map[string]int
	failure error
}

func (c countingFS) Open(name string) (fs.File, error) {
	c.opened[name]++
	if file, ok := c.MapFS[name]; ok && c.failure != nil && !file.Mode.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: c.failure}
	}
	return c.MapFS.Open(name)
}

// ReadFile hides that of MapFS, which does not call Open.
func (c countingFS) ReadFile(name string) ([]byte, error) {
	return fs.ReadFile(struct{ fs.FS }{c}, name)
}

// TestUnopened: only notes of the window and Org files are opened.
func TestUnopened(t *testing.T) {
	old := &fstest.MapFile{Data: []byte("x"), ModTime: march23().From.AddDate(0, -1, 0)}
	later := &fstest.MapFile{Data: []byte("x"), ModTime: march23().To}
	fsys := countingFS{fstest.MapFS{
		"a.md": changed("# A"), "b.md": old, "c.txt": old, "d.org": old, "e.md": later, "2026-03-23 x.md": old,
		"20260323.md": old, "2026-03-233.md": old, "2026-03-24.md": old, "2026-3-23.md": old, "x 2026-03-23.md": old,
	}, map[string]int{}, nil}
	reply := ask(t, fsys, march23())
	for _, name := range []string{"a.md", "d.org", "2026-03-23 x.md", "20260323.md"} {
		if fsys.opened[name] != 1 {
			t.Errorf("%s opened %d times", name, fsys.opened[name])
		}
	}
	if len(fsys.opened) != 5 { // the four, and the folder
		t.Errorf("opened %v", fsys.opened)
	}
	if !strings.Contains(reply, "1 note changed, 2 notes of days in it. 1 note was written after it, perhaps also in it.") {
		t.Errorf("reply:\n%s", reply)
	}
}

// TestBounds: what is too deep, too large or too many is said, and the rest told.
func TestBounds(t *testing.T) {
	deep := fstest.MapFS{"a.md": changed("# Here"), strings.Repeat("d/", maxFolderDepth) + "b.md": changed("# Deep"), strings.Repeat("d/", maxFolderDepth+1) + "c.md": changed("# Too deep")}
	reply := ask(t, deep, march23())
	if !strings.Contains(reply, "# ") == strings.Contains(reply, ": Too deep") || !strings.Contains(reply, ": Here") || !strings.Contains(reply, ": Deep (") || !strings.Contains(reply, "more than 16 deep") {
		t.Errorf("deep:\n%s", reply)
	}

	huge := "# Huge\n\n- [ ] one\n" + strings.Repeat("x", maxNoteBytes) + "\n- [ ] beyond\n"
	reply = ask(t, fstest.MapFS{"a.md": changed(huge), "b.md": changed("# Small")}, march23())
	if !strings.Contains(reply, ": Huge (a.md)\n  open: one\n") || !strings.Contains(reply, ": Small") || !strings.Contains(reply, "Of a.md only the first 512 KiB were read.") {
		t.Errorf("huge:\n%.1000s", reply)
	}

	crowd, folders := fstest.MapFS{"a.md": changed("# Here")}, fstest.MapFS{"a.md": changed("# Here")}
	for i := range maxEntries + 10 {
		crowd[fmt.Sprintf("p%d.png", i)] = &fstest.MapFile{}
	}
	for i := range maxFolders + 10 {
		folders[fmt.Sprint("d", i)] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	}
	for want, fsys := range map[string]fs.FS{"More than 50000 files and folders": crowd, "More than 2500 folders": folders} {
		if reply := ask(t, fsys, march23()); !strings.Contains(reply, want) {
			t.Errorf("reply lacks %q:\n%s", want, reply)
		}
	}

	many := make(fstest.MapFS)
	for i := range 200 {
		many[fmt.Sprintf("%03d.md", i)] = changed(strings.Repeat("# x\n", maxNoteBytes/4))
	}
	q := march23()
	q.Config["max_notes"] = int64(1_000)
	fsys := countingFS{many, map[string]int{}, nil}
	if reply = ask(t, fsys, q); len(fsys.opened) > maxTotalBytes/maxNoteBytes+1 || !strings.Contains(reply, "Reading stopped at a limit") {
		t.Errorf("%d files of 512 KiB opened:\n%.500s", len(fsys.opened), reply)
	}

	fsys = countingFS{fstest.MapFS{"a.md": changed("x"), "b.md": changed("x")}, map[string]int{}, abi.KindQuotaExceeded}
	if reply = ask(t, fsys, march23()); !strings.Contains(reply, "Reading stopped at a limit") {
		t.Errorf("the host's quota: %s", reply)
	}
	fsys.failure = fs.ErrPermission
	if reply = ask(t, fsys, march23()); !strings.Contains(reply, "Could not read: a.md (permission denied); b.md (permission denied)") {
		t.Errorf("refused files: %s", reply)
	}
}

// TestSize: a reply keeps to the tokens asked for, however few, newest first,
// and counts what had no room.
func TestSize(t *testing.T) {
	fsys := fstest.MapFS{"plan.org": {Data: []byte(strings.Repeat("* TODO Call\nDEADLINE: <2026-03-23 Mon>\n", 60))}}
	for i := range 60 {
		fsys[fmt.Sprintf("m%02d.md", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "# No. %02d\n\n- [ ] do it\n\n%s\n", i, strings.Repeat("many words 日本語 ", 30)), ModTime: march23().From.Add(time.Duration(i) * time.Minute)}
	}
	shown := -1
	for _, limit := range []int{1, 10, 20, 40, 64, 100, 256, 1_000, 4_000, 20_000} {
		q := march23()
		q.MaxOutputTokens = limit
		reply := ask(t, fsys, q)
		if n := tokens.Estimate(reply); n > limit {
			t.Errorf("%d tokens, limit %d:\n%s", n, limit, reply)
		}
		listed := strings.Count(reply, "\n- ")
		if listed < shown {
			t.Errorf("limit %d lists %d, a lower one %d", limit, listed, shown)
		}
		shown = listed
		if listed > 0 && strings.Contains(reply, fmt.Sprintf("… and %d more", 120-listed)) != (listed < 120) {
			t.Errorf("limit %d lists %d:\n%s", limit, listed, reply)
		}
		if limit >= 1_000 && !strings.Contains(reply, "changed: No. 59 (m59.md)\n  open: do it\n  \"many words") {
			t.Errorf("limit %d: the newest note has no words:\n%s", limit, reply)
		}
	}
	if shown != 120 {
		t.Errorf("%d of 120 fit 20,000 tokens", shown)
	}
	q := march23()
	q.MaxOutputTokens = 0
	if n := tokens.Estimate(ask(t, fsys, q)); n > compose.DefaultTokens || n < compose.DefaultTokens/2 {
		t.Errorf("%d tokens by default", n)
	}
}

// FuzzNotes asks about one file of any content in each format. The reply is
// UTF-8 within the budget, of lines of the hand's own making, and the same again.
func FuzzNotes(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		f.Fatalf("no archives: %v", err)
	}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		fsys, _ := archived(f, archive.Files)
		for _, file := range fsys {
			f.Add(file.Data)
		}
	}
	f.Add([]byte("\xff\xfe#\x00 \x00\r\x00\n\x00\x00\xd8"))
	f.Fuzz(func(t *testing.T, data []byte) {
		q := march23()
		q.MaxOutputTokens = 500
		fsys := fstest.MapFS{"a.md": changed(string(data)), "b.org": changed(string(data)), "c.txt": changed(string(data)), "d.org": {Data: data}}
		reply := ask(t, fsys, q)
		if !utf8.ValidString(reply) || tokens.Estimate(reply) > q.MaxOutputTokens {
			t.Fatalf("%d tokens: %q", tokens.Estimate(reply), reply)
		}
		for line := range strings.Lines(reply) {
			line = strings.TrimSuffix(line, "\n")
			known := line == ""
			for _, begin := range []string{"Notes from ", "- ", "  sections: ", "  open: ", "  done: ", "  \"", "… and ", "Could not read: "} {
				known = known || strings.HasPrefix(line, begin)
			}
			if !known {
				t.Fatalf("line %q in %q", line, reply)
			}
		}
		if again := ask(t, fsys, q); again != reply {
			t.Fatalf("%q, then %q", reply, again)
		}
	})
}

func BenchmarkTenThousandNotes(b *testing.B) {
	fsys := tenThousand()
	b.ReportAllocs()
	for b.Loop() {
		ask(b, fsys, march23())
	}
}

// tenThousand is a folder of 10,000 notes, 100 of which changed.
func tenThousand() fstest.MapFS {
	fsys := make(fstest.MapFS)
	for i := range 10_000 {
		content := fmt.Sprintf("# Note %d\n\n%s\n\n## Next\n\n- [ ] task %d\n- [x] done\n", i, strings.Repeat("Some words of a note.\n", 100), i)
		written := march23().From.AddDate(0, 0, -1-i%300)
		if i%100 == 0 {
			written = march23().From.Add(time.Duration(i) * time.Second)
		}
		fsys[fmt.Sprintf("area%d/topic%d/note-%d.md", i%10, i%100, i)] = &fstest.MapFile{Data: []byte(content), ModTime: written}
	}
	return fsys
}
