package capability_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/capability"
)

// openDatabase opens a file as another program would.
func openDatabase(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statements string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statements, args...); err != nil {
		t.Fatal(err)
	}
}

// version1 is the schema as the first version wrote it, with a row in each
// table.
const version1 = `
PRAGMA journal_mode = WAL;
CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE runs (
	id INTEGER PRIMARY KEY, at INTEGER NOT NULL, hand TEXT NOT NULL, digest TEXT NOT NULL, subject TEXT NOT NULL,
	outcome TEXT NOT NULL, text TEXT NOT NULL, took INTEGER NOT NULL, memory INTEGER NOT NULL,
	reply_tokens INTEGER NOT NULL, calls INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_hand ON runs (hand, id);
CREATE TABLE audit (
	id INTEGER PRIMARY KEY, at INTEGER NOT NULL, hand TEXT NOT NULL, subject TEXT NOT NULL, action TEXT NOT NULL,
	target TEXT NOT NULL, allowed INTEGER NOT NULL, reason TEXT NOT NULL
) STRICT;
CREATE INDEX audit_hand ON audit (hand, id);
PRAGMA application_id = 0x47425848;
PRAGMA user_version = 1;
INSERT INTO settings VALUES ('subject_key', zeroblob(32));
INSERT INTO runs VALUES (5, 1774252800000000, 'mail', 'sha256:aa', 'sub', 'timeout', 'too late', 3, 4, 5, 6);
INSERT INTO audit VALUES (9, 1774252800000000, 'mail', 'sub', 'files.read', '"docs:x"', 0, 'no');
`

func TestLedgerMigratesFromVersion1(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	db := openDatabase(t, path)
	execute(t, db, version1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	ledger := openLedger(t, path)
	// The subject of ("mail", "user") under a key of zeros.
	if got := ledger.Subject("mail", "user"); got != "eab910d05ace16c6fb55349c6878d2d0" {
		t.Errorf("the key of subjects changed: %s", got)
	}
	at := time.Date(2026, 3, 23, 8, 0, 0, 0, time.UTC)
	runs, err := ledger.Runs(t.Context(), "", 10)
	want := capability.Run{ID: 5, At: at, Hand: "mail", Digest: "sha256:aa", Subject: "sub", Outcome: abi.KindTimeout, Text: "too late",
		Took: 3, MemoryBytes: 4, ReplyTokens: 5, Calls: 6}
	if err != nil || len(runs) != 1 || fmt.Sprintf("%+v", runs[0]) != fmt.Sprintf("%+v", want) {
		t.Errorf("runs %+v, %v", runs, err)
	}
	decisions, err := ledger.Decisions(t.Context(), "", 10)
	if err != nil || len(decisions) != 1 || decisions[0] != (capability.Decision{ID: 9, At: at, Hand: "mail", Subject: "sub",
		Action: capability.ActionFilesRead, Target: `"docs:x"`, Reason: "no"}) {
		t.Errorf("decisions %+v, %v", decisions, err)
	}
	kv := capability.NewKV(ledger, capability.Caller{Hand: "mail", Subject: "sub"}, abi.Limits{})
	if err := kv.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	again := openLedger(t, path)
	kv = capability.NewKV(again, capability.Caller{Hand: "mail", Subject: "sub"}, abi.Limits{})
	if got, err := kv.Get(t.Context(), abi.KVGetRequest{Key: "k"}); err != nil || string(got) != "v" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLedgerLeavesForeignDatabasesAsTheyAre(t *testing.T) {
	for name, statements := range map[string]string{
		"another program": "CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')",
		"only its mark":   "PRAGMA application_id = 7",
		"newer":           version1 + "PRAGMA user_version = 99; PRAGMA journal_mode = DELETE",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hands.db")
			db := openDatabase(t, path)
			execute(t, db, statements)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := capability.OpenLedger(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("opened: %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed, %v", err)
			}
		})
	}
}

func TestRunsKeepWhatAQueryCost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("https://h%d.example/", i))
	}
	runs := []capability.Run{
		{Hand: "a", Digest: "sha256:00", Subject: "s", Outcome: abi.KindOutOfFuel, Text: "t", Took: time.Second, Fuel: 1 << 40, MemoryBytes: 1 << 20,
			ReplyBytes: 77, ReplyTokens: 20, Calls: 4, HTTPTargets: []string{
				"https://API.example/secret?token=1", "https://api.example:443", "http://user:password@api.example", "http://[::1]:8080/x",
				"not a url", "", "https://", "\x00"}},
		{Hand: "b", HTTPTargets: many},
		{Hand: "c"},
	}
	for _, run := range runs {
		if err := ledger.RecordRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if runs[0].HTTPTargets[0] != "https://API.example/secret?token=1" {
		t.Error("the caller's slice was changed")
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openLedger(t, path).Runs(t.Context(), "", 10)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := runs[0]
	want.At, want.ID = got[2].At, got[2].ID
	want.HTTPTargets = []string{"https://api.example:443", "http://api.example:80", "http://[::1]:8080"}
	if fmt.Sprintf("%+v", got[2]) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got[2], want)
	}
	if n := len(got[1].HTTPTargets); n != 20 || got[1].HTTPTargets[19] != "https://h19.example:443" {
		t.Errorf("%d targets: %v", n, got[1].HTTPTargets)
	}
	if len(got[0].HTTPTargets) != 0 {
		t.Errorf("targets of none: %v", got[0].HTTPTargets)
	}
}

func TestHealthTellsOfTheLastRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	if all, err := ledger.Health(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("of none: %v, %v", all, err)
	}
	record := func(hand string, outcome abi.Kind, text string, times int) {
		t.Helper()
		for range times {
			if err := ledger.RecordRun(t.Context(), capability.Run{Hand: hand, Outcome: outcome, Text: text}); err != nil {
				t.Fatal(err)
			}
		}
	}
	record("old-trouble", abi.KindTrap, "trapped", 50)
	record("new-trouble", "", "", 150)
	record("old-trouble", "", "", 60)
	record("new-trouble", abi.KindTimeout, "late", 3)
	record("once", "", "", 1)
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openLedger(t, path).Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 23, 8, 0, 0, 0, time.UTC)
	for hand, want := range map[string]capability.Health{
		"old-trouble": {LastRun: at, Runs: 100, Failed: 40},
		"new-trouble": {LastRun: at, LastOutcome: abi.KindTimeout, LastText: "late", Runs: 100, Failed: 3},
		"once":        {LastRun: at, Runs: 1},
	} {
		if got[hand] != want {
			t.Errorf("%s: %+v, want %+v", hand, got[hand], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d hands", len(got))
	}
}

// A hand that makes calls in a loop buries neither another's record nor what it
// was refused itself.
func TestOneHandDoesNotDriveOutTheRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	quiet := capability.NewKV(ledger, capability.Caller{Hand: "quiet"}, abi.Limits{})
	loud := capability.NewKV(ledger, capability.Caller{Hand: "loud"}, abi.Limits{KVValueBytes: 1})
	if _, err := quiet.List(t.Context(), abi.KVListRequest{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if err := loud.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: []byte("too large")}); abi.KindOf(err) != abi.KindTooLarge {
		t.Fatal(err)
	}
	for range 24_000 {
		if _, err := loud.Get(t.Context(), abi.KVGetRequest{Key: "k"}); abi.KindOf(err) != abi.KindNotFound {
			t.Fatal(err)
		}
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	decisions, err := openLedger(t, path).Decisions(t.Context(), "", 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, d := range decisions {
		count[fmt.Sprint(d.Hand, d.Allowed)]++
	}
	if n := count["loudtrue"]; n < 20_000 || n > 23_500 {
		t.Errorf("%d permissions are kept", n)
	}
	if count["loudfalse"] != 1 || count["quiettrue"] != 1 {
		t.Errorf("kept: %v", count)
	}
}

func TestForgottenIsGoneFromTheFiles(t *testing.T) {
	dir := t.TempDir()
	ledger := openLedger(t, filepath.Join(dir, "hands.db"))
	canary := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "canary-%d ", i), 200) }
	alice := capability.NewKV(ledger, capability.Caller{Hand: "diary", Subject: "alice"}, abi.Limits{})
	others := []*capability.KV{
		capability.NewKV(ledger, capability.Caller{Hand: "diary", Subject: "bob"}, abi.Limits{}),
		capability.NewKV(ledger, capability.Caller{Hand: "mail", Subject: "alice"}, abi.Limits{}),
	}
	for _, kv := range others {
		if err := kv.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: []byte("others")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if err := alice.Set(t.Context(), abi.KVSetRequest{Key: fmt.Sprintf("canary-key-%d", i), Value: canary(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.RecordRun(t.Context(), capability.Run{Hand: "diary", Subject: "alice", Text: "canary-run"}); err != nil {
		t.Fatal(err)
	}
	holds := func() int {
		t.Helper()
		found := 0
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			found += bytes.Count(data, []byte("canary"))
		}
		return found
	}
	if holds() == 0 {
		t.Fatal("nothing is on disk to be forgotten")
	}
	got, err := ledger.ForgetSubject(t.Context(), "diary", "alice")
	if err != nil || got != (capability.Forgotten{Values: 100, Runs: 1, Decisions: 100}) {
		t.Errorf("forgotten: %+v, %v", got, err)
	}
	if n := holds(); n != 0 {
		t.Errorf("%d canaries are left", n)
	}
	if got, err := ledger.ForgetSubject(t.Context(), "diary", "alice"); err != nil || got != (capability.Forgotten{}) {
		t.Errorf("again: %+v, %v", got, err)
	}
	if page, err := alice.List(t.Context(), abi.KVListRequest{Limit: 10}); err != nil || len(page.Keys) != 0 {
		t.Errorf("%v, %v", page, err)
	}
	for _, kv := range others {
		if got, err := kv.Get(t.Context(), abi.KVGetRequest{Key: "k"}); err != nil || string(got) != "others" {
			t.Errorf("another's value: %q, %v", got, err)
		}
	}
	// The whole quota is there again.
	small := capability.NewKV(ledger, capability.Caller{Hand: "diary", Subject: "alice"}, abi.Limits{KVTotalBytes: 5})
	if err := small.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: []byte("1234")}); err != nil {
		t.Error(err)
	}
}

func TestLedgerClosesBesideItsUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	acknowledged := make(chan int)
	started := make(chan struct{})
	go func() {
		kv := capability.NewKV(ledger, capability.Caller{Hand: "h"}, abi.Limits{})
		n := 0
		for kv.Set(t.Context(), abi.KVSetRequest{Key: fmt.Sprint(n), Value: []byte("v")}) == nil {
			if n++; n == 3 {
				close(started)
			}
		}
		acknowledged <- n
	}()
	<-started
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	n := <-acknowledged
	kv := capability.NewKV(openLedger(t, path), capability.Caller{Hand: "h"}, abi.Limits{})
	for i := range n {
		if _, err := kv.Get(t.Context(), abi.KVGetRequest{Key: fmt.Sprint(i)}); err != nil {
			t.Errorf("acknowledged %d of %d: %v", i, n, err)
		}
	}
}

// What the disk does not take fails alone, and leaves no half of itself.
func TestAValueThatCannotBeWrittenFailsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	db := openDatabase(t, path)
	// As a full disk does, it takes the whole transaction back.
	execute(t, db, "CREATE TRIGGER full BEFORE INSERT ON kv WHEN NEW.key = CAST('bad' AS BLOB) BEGIN SELECT RAISE(ROLLBACK, 'full'); END")
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			kv := capability.NewKV(ledger, capability.Caller{Hand: "h", Subject: fmt.Sprint(worker)}, abi.Limits{KVTotalBytes: 13})
			for i := range 10 {
				if err := kv.Set(t.Context(), abi.KVSetRequest{Key: "bad", Value: nil}); !errors.Is(err, abi.KindUnavailable) {
					t.Errorf("what cannot be written: %v", err)
				}
				if err := kv.Set(t.Context(), abi.KVSetRequest{Key: "good", Value: fmt.Appendf(nil, "%06d", i)}); err != nil {
					t.Errorf("another value: %v", err)
				}
				if err := kv.Set(t.Context(), abi.KVSetRequest{Key: "over", Value: nil}); !errors.Is(err, abi.KindQuotaExceeded) {
					t.Errorf("over the quota: %v", err)
				}
				if got, err := kv.Get(t.Context(), abi.KVGetRequest{Key: "good"}); err != nil || string(got) != fmt.Sprintf("%06d", i) {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	group.Wait()
	if err := ledger.Close(); err != nil {
		t.Errorf("the ledger failed with the values: %v", err)
	}
}

// A call that cannot be recorded is refused, and so are all that follow.
func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hands.db")
	ledger := openLedger(t, path)
	kv := capability.NewKV(ledger, capability.Caller{Hand: "h"}, abi.Limits{KVTotalBytes: 10})
	setValue(t, kv, "k", "v")
	execute(t, openDatabase(t, path), "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ROLLBACK, 'full'); END")
	if err := kv.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: []byte("w")}); !errors.Is(err, abi.KindUnavailable) {
		t.Errorf("a set whose record fails: %v", err)
	}
	if _, err := kv.Get(t.Context(), abi.KVGetRequest{Key: "k"}); !errors.Is(err, abi.KindUnavailable) {
		t.Errorf("a get afterwards: %v", err)
	}
	if err := ledger.Close(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the failure is not told at the end: %v", err)
	}
}

func TestPagesOfTheLedger(t *testing.T) {
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	const n = 25
	for i := range n {
		for _, hand := range []string{"mail", "calendar"} {
			if err := ledger.RecordRun(t.Context(), capability.Run{Hand: hand, Text: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
			// Nothing is granted: each look is a refusal.
			files := capability.NewFiles(ledger, capability.Caller{Hand: hand, Subject: "s"}, nil)
			if _, err := files.List(t.Context(), abi.FilesListRequest{Root: fmt.Sprint(i)}); err == nil {
				t.Fatal("a hand without a grant listed files")
			}
		}
	}
	if err := ledger.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, hand := range []string{"mail", "calendar"} {
		var texts, targets []string
		for before := int64(0); ; {
			runs, err := ledger.RunsBefore(t.Context(), hand, before, 7)
			if err != nil {
				t.Fatal(err)
			}
			if len(runs) == 0 {
				break
			}
			for _, r := range runs {
				if r.Hand != hand || before != 0 && r.ID >= before {
					t.Errorf("run %d of %s among those before %d of %s", r.ID, r.Hand, before, hand)
				}
				texts = append(texts, r.Text)
				before = r.ID
			}
		}
		for before := int64(0); ; {
			refusals, err := ledger.RefusalsBefore(t.Context(), hand, before, 7)
			if err != nil {
				t.Fatal(err)
			}
			if len(refusals) == 0 {
				break
			}
			for _, d := range refusals {
				if d.Hand != hand || d.Allowed || d.Reason == "" {
					t.Errorf("not a refusal of %s: %+v", hand, d)
				}
				targets = append(targets, d.Target)
				before = d.ID
			}
		}
		if len(texts) != n || texts[0] != fmt.Sprint(n-1) || texts[n-1] != "0" {
			t.Errorf("runs of %s: %v", hand, texts)
		}
		if len(targets) != n {
			t.Errorf("refusals of %s: %v", hand, targets)
		}
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Flush(t.Context()); err == nil {
		t.Error("a closed ledger flushes")
	}
}
