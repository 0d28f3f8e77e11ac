package capability_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/capability"
)

func openLedger(t *testing.T, path string) *capability.Ledger {
	t.Helper()
	clock := time.Date(2026, 3, 23, 8, 0, 0, 0, time.UTC)
	ledger, err := capability.OpenLedger(t.Context(), path, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	return ledger
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// H9
func TestFilesStaysInside(t *testing.T) {
	top := t.TempDir()
	granted := filepath.Join(top, "granted")
	write(t, filepath.Join(top, "secret.txt"), "secret")
	write(t, filepath.Join(granted, "a.txt"), "inside")
	write(t, filepath.Join(granted, "sub", "b.txt"), "deeper")
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(granted, name)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	link("sub/b.txt", "inside-link")
	link("../secret.txt", "relative-escape")
	link(filepath.Join(top, "secret.txt"), "absolute-escape")
	link("sub/../../secret.txt", "winding-escape")
	refused := []string{"..", "../secret.txt", "sub/../../secret.txt", "/etc/passwd", "a.txt/", "./a.txt", "a\x00.txt", `..\secret.txt`,
		"relative-escape", "absolute-escape", "winding-escape", "sub"}
	if runtime.GOOS != "windows" {
		if err := syscall.Mkfifo(filepath.Join(granted, "pipe"), 0o644); err != nil {
			t.Fatal(err)
		}
		refused = append(refused, "pipe")
	}

	ledger := openLedger(t, filepath.Join(top, "data", "hands.db"))
	files := capability.NewFiles(ledger, capability.Caller{Hand: "reader", Subject: "s"}, map[string]string{"docs": granted})
	defer files.Close()
	read := func(root, path string) (string, error) {
		data, err := files.Read(t.Context(), abi.FilesReadRequest{Root: root, Path: path, Length: 100})
		return string(data), err
	}
	for path, want := range map[string]string{"a.txt": "inside", "sub/b.txt": "deeper", "inside-link": "deeper"} {
		if got, err := read("docs", path); err != nil || got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range refused {
		if got, err := read("docs", path); !errors.Is(err, abi.KindDenied) || got != "" {
			t.Errorf("%q: %q, %v; want denied", path, got, err)
		}
	}
	if _, err := read("other", "a.txt"); !errors.Is(err, abi.KindNotGranted) {
		t.Errorf("a root that was not granted: %v", err)
	}
	if _, err := read("docs", "absent"); !errors.Is(err, abi.KindNotFound) {
		t.Errorf("an absent file: %v", err)
	}

	// Every refusal is in the audit at once.
	decisions, err := ledger.Decisions(t.Context(), "reader", 1000)
	if err != nil {
		t.Fatal(err)
	}
	denied := 0
	for _, d := range decisions {
		if !d.Allowed {
			denied++
			if d.Reason == "" || d.Subject != "s" || !strings.HasPrefix(d.Target, `"`) {
				t.Errorf("refusal recorded as %+v", d)
			}
		}
	}
	if denied != len(refused)+1 {
		t.Errorf("%d refusals recorded, %d made", denied, len(refused)+1)
	}
}

func TestFilesListPages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", "ä", "c", "B"} {
		write(t, filepath.Join(dir, name), name)
	}
	write(t, filepath.Join(dir, "d", "x"), "")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "e")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	files := capability.NewFiles(ledger, capability.Caller{Hand: "reader"}, map[string]string{"docs": dir})
	defer files.Close()
	var got []string
	for after, more := "", true; more; {
		page, err := files.List(t.Context(), abi.FilesListRequest{Root: "docs", After: after, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if page.Self.Type != "dir" || len(page.Entries) > 2 {
			t.Fatalf("page %+v", page)
		}
		for _, e := range page.Entries {
			got = append(got, e.Name+"/"+e.Type)
			after = e.Name
			if e.Type == "other" && e.Size != 0 {
				t.Errorf("the size of what lies outside is told: %+v", e)
			}
		}
		more = page.More
	}
	want := "B/file a/file b/file c/file d/dir e/other ä/file"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	self, err := files.List(t.Context(), abi.FilesListRequest{Root: "docs", Path: "d/x", Limit: 1})
	if err != nil || self.Self.Type != "file" || len(self.Entries) != 0 {
		t.Errorf("a file: %+v, %v", self, err)
	}
}

func TestFilesReadPieces(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "0123456789")
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	files := capability.NewFiles(ledger, capability.Caller{}, map[string]string{"docs": dir})
	defer files.Close()
	for _, test := range []struct {
		offset int64
		length int
		want   string
	}{{0, 4, "0123"}, {8, 4, "89"}, {10, 4, ""}, {1 << 40, 4, ""}, {3, 0, ""}} {
		got, err := files.Read(t.Context(), abi.FilesReadRequest{Root: "docs", Path: "f", Offset: test.offset, Length: test.length})
		if err != nil || string(got) != test.want {
			t.Errorf("%d+%d: %q, %v", test.offset, test.length, got, err)
		}
	}
}

func TestLedgerKeepsRunsAndSubjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	subject := ledger.Subject("calendar", "user-1")
	if subject == ledger.Subject("mail", "user-1") || subject == ledger.Subject("calendar", "user-2") || len(subject) != 32 {
		t.Errorf("subject %q is not of one hand and one user", subject)
	}
	for range 3 {
		if err := ledger.RecordRun(t.Context(), capability.Run{Hand: "calendar", Outcome: abi.KindTrap, Took: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ledger.RecordRun(t.Context(), capability.Run{}); err == nil {
		t.Error("a closed ledger takes runs")
	}
	again := openLedger(t, path)
	runs, err := again.Runs(t.Context(), "calendar", 10)
	if err != nil || len(runs) != 3 || runs[0].Outcome != abi.KindTrap || runs[0].At.Hour() != 8 {
		t.Errorf("%+v, %v", runs, err)
	}
	if again.Subject("calendar", "user-1") != subject {
		t.Error("the subject changed with a restart")
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestLedgerRefusesForeignFiles(t *testing.T) {
	text := filepath.Join(t.TempDir(), "hands.db")
	write(t, text, strings.Repeat("this is no database\n", 100))
	if _, err := capability.OpenLedger(context.Background(), text, nil); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("a text file: %v", err)
	}
	if data, err := fs.ReadFile(os.DirFS(filepath.Dir(text)), "hands.db"); err != nil || !strings.HasPrefix(string(data), "this is no") {
		t.Error("the text file was changed")
	}
}

// Paging through names that no JSON can hold comes to an end, and what can be
// read is among them.
func TestListingNamesThatAreNotUTF8(t *testing.T) {
	granted := t.TempDir()
	for i := range 30 {
		name := fmt.Sprintf("\xff%02d.txt", i)
		if i%10 == 0 {
			name = fmt.Sprintf("b%02d.txt", i)
		}
		if err := os.WriteFile(filepath.Join(granted, name), []byte("x"), 0o644); err != nil {
			t.Skip("this file system has no such names:", err)
		}
	}
	write(t, filepath.Join(granted, "\xfe\xff.txt"), "x")
	write(t, filepath.Join(granted, "\xff\xfe.txt"), "x")
	files := capability.NewFiles(openLedger(t, filepath.Join(t.TempDir(), "hands.db")), capability.Caller{Hand: "h", Subject: "s"}, map[string]string{"docs": granted})
	defer files.Close()
	var names []string
	read := 0
	for after, pages := "", 0; ; pages++ {
		page, err := files.List(t.Context(), abi.FilesListRequest{Root: "docs", Path: ".", After: after, Limit: 2})
		if err != nil || pages > 40 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, e := range page.Entries {
			names = append(names, e.Name)
			after = e.Name
			if e.Type == "file" {
				read++
			}
		}
		if !page.More {
			break
		}
	}
	if !slices.IsSorted(names) || len(names) != 31 || read != 3 {
		t.Errorf("%d names, %d of them files: %q", len(names), read, names)
	}
}

// The first use of a file is recorded, wherever the hand begins to read.
func TestEveryFirstUseIsRecorded(t *testing.T) {
	granted := t.TempDir()
	write(t, filepath.Join(granted, "secret.txt"), "the secret")
	write(t, filepath.Join(granted, "sub", "a"), "x")
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	files := capability.NewFiles(ledger, capability.Caller{Hand: "h", Subject: "s"}, map[string]string{"docs": granted})
	defer files.Close()
	for range 2 {
		if data, err := files.Read(t.Context(), abi.FilesReadRequest{Root: "docs", Path: "secret.txt", Offset: 4, Length: 10}); err != nil || string(data) != "secret" {
			t.Errorf("%q, %v", data, err)
		}
		if page, err := files.List(t.Context(), abi.FilesListRequest{Root: "docs", Path: "sub", After: "\x01", Limit: 10}); err != nil || len(page.Entries) != 1 {
			t.Errorf("%+v, %v", page, err)
		}
	}
	if _, err := files.Read(t.Context(), abi.FilesReadRequest{Root: "docs", Path: "secret.txt/x", Length: 1}); !errors.Is(err, abi.KindNotFound) {
		t.Errorf("through a file: %v", err)
	}
	// A refusal is durable when it is given, and what came before it too.
	_, _ = files.Read(t.Context(), abi.FilesReadRequest{Root: "docs", Path: "..", Length: 1})
	decisions, err := ledger.Decisions(t.Context(), "h", 10)
	if err != nil || len(decisions) != 4 {
		t.Errorf("%d rows: %+v, %v", len(decisions), decisions, err)
	}
}
