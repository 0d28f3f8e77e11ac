package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// guests builds the test hand once for all tests, in both profiles.
var guests = sync.OnceValues(func() (map[build.Profile][]byte, error) {
	built := map[build.Profile][]byte{}
	for _, profile := range []build.Profile{build.Reactor, build.Command} {
		module, err := build.Hand(context.Background(), filepath.Join("testdata", "guest"), profile)
		if err != nil {
			return nil, err
		}
		built[profile] = module
	}
	return built, nil
})

// cacheDir is shared by all tests of the run, so that the guest is compiled
// once.
var cacheDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "glovebox-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cacheDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func newEngine(t testing.TB, config sandbox.Config) *sandbox.Engine {
	t.Helper()
	if config.CacheDir == "" {
		config.CacheDir = cacheDir
	}
	engine, err := sandbox.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return engine
}

func load(t testing.TB, engine *sandbox.Engine, profile build.Profile, limits abi.Limits) *sandbox.Module {
	t.Helper()
	built, err := guests()
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), built[profile], sandbox.Options{Name: "guest", Limits: limits, Granted: abi.Capabilities(), Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func ask(t *testing.T, module *sandbox.Module, prompt string, ports sandbox.Ports) (string, sandbox.Result, error) {
	t.Helper()
	result, err := module.Query(t.Context(), abi.Query{Prompt: prompt, MaxOutputTokens: 100_000}, ports)
	return boundary.Neutral(result.Reply), result, err
}

func TestAnswerInBothProfiles(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	at := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	for _, profile := range []build.Profile{build.Reactor, build.Command} {
		t.Run(string(profile), func(t *testing.T) {
			module := load(t, engine, profile, abi.Limits{})
			if string(module.Profile()) != string(profile) {
				t.Errorf("profile %s", module.Profile())
			}
			result, err := module.Query(t.Context(), abi.Query{
				Prompt: "query", From: at.Add(-time.Hour), To: at, Now: at, Timezone: "Europe/Berlin", MaxOutputTokens: 256,
				Config: map[string]any{"k": "v", "n": 3}, Subject: "abc",
			}, sandbox.Ports{})
			if err != nil {
				t.Fatal(err)
			}
			want := "2026-03-23T08:00:00Z|2026-03-23T09:00:00Z|2026-03-23T09:00:00Z|Europe/Berlin|256|map[k:v n:3]|abc"
			if got := boundary.Neutral(result.Reply); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if result.Reply.Source().String() != "hand://guest" || result.Took <= 0 || result.MemoryBytes == 0 {
				t.Errorf("result %+v", result)
			}
		})
	}
}

// One-shot: what a query leaves behind is gone.
func TestEachQueryHasAFreshInstance(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{})
	for range 3 {
		if got, _, err := ask(t, module, "keep something", sandbox.Ports{}); err != nil || got != "nothing" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// H2, H4 and the typed errors that the engine's own means can hold.
func TestEveryEndHasItsKind(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	module := load(t, engine, build.Reactor, abi.Limits{Timeout: 700 * time.Millisecond, MemoryBytes: 32 << 20})
	patient := load(t, engine, build.Reactor, abi.Limits{MemoryBytes: 32 << 20})
	command := load(t, engine, build.Command, abi.Limits{Timeout: 700 * time.Millisecond})
	for _, test := range []struct {
		module *sandbox.Module
		prompt string
		kind   abi.Kind
		text   string
	}{
		{module, "loop", abi.KindTimeout, `hand "guest": query timed out after 700ms`},
		{module, "sleep", abi.KindTimeout, "timed out"},
		{module, "random", abi.KindTimeout, "timed out"},
		{patient, "grow", abi.KindOutOfMemory, "the limit is 32 MiB"},
		{module, "exit", abi.KindExit, "exited with code 7"},
		{module, "panic oh no", abi.KindTrap, "trapped: unreachable"},
		{module, "fail no calendar today", abi.KindHandFailed, "in its own words"},
		{command, "fail no calendar today", abi.KindHandFailed, "in its own words"},
		{command, "exit", abi.KindHandFailed, "in its own words"},
		{command, "loop", abi.KindTimeout, "timed out"},
	} {
		t.Run(string(test.module.Profile())+" "+test.prompt, func(t *testing.T) {
			began := time.Now()
			_, result, err := ask(t, test.module, test.prompt, sandbox.Ports{})
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v (%s), want %s and %q", err, abi.KindOf(err), test.kind, test.text)
			}
			if test.kind == abi.KindTimeout && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not a deadline", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			if strings.Contains(test.prompt, "calendar") {
				if strings.Contains(err.Error(), "calendar") || !strings.Contains(boundary.Neutral(result.Said), "no calendar today") {
					t.Errorf("the hand's words: error %q, said %q", err, boundary.Neutral(result.Said))
				}
			}
			if got, _, err := ask(t, test.module, "say fine", sandbox.Ports{}); err != nil || got != "fine" {
				t.Errorf("the next query: %q, %v", got, err)
			}
		})
	}
}

func TestCallerEndsAQuery(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{})
	cancelled, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(50*time.Millisecond, cancel)
	defer timer.Stop()
	_, err := module.Query(cancelled, abi.Query{Prompt: "loop"}, sandbox.Ports{})
	if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, abi.KindTimeout) {
		t.Errorf("cancelled: %v", err)
	}
	late, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := module.Query(late, abi.Query{Prompt: "sleep"}, sandbox.Ports{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the caller's deadline: %v", err)
	}
	// The guest sees on the clock that the time is up; its caller's timer may come later.
	untold := untold{t.Context(), time.Now().Add(50 * time.Millisecond)}
	if _, err := module.Query(untold, abi.Query{Prompt: "loop"}, sandbox.Ports{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "caller's deadline") {
		t.Errorf("past a deadline of which no timer has told: %v", err)
	}
}

// untold has a deadline, and does not tell when it has passed.
type untold struct {
	context.Context
	deadline time.Time
}

func (u untold) Deadline() (time.Time, bool) { return u.deadline, true }

// H4
func TestReplyIsCutOnARuneAndMarked(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{OutputBytes: 1001})
	got, result, err := ask(t, module, "bytes 1000000", sandbox.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	if !result.Cut || !strings.HasSuffix(got, "\n[… cut: 999000 more bytes]") || strings.Count(got, "ä") != 500 || !utf8.ValidString(got) {
		t.Errorf("cut %v, %d bytes: …%q", result.Cut, len(got), got[max(0, len(got)-60):])
	}
	if got, _, err := ask(t, module, "invalid", sandbox.Ports{}); err != nil || !strings.HasPrefix(got, "a\ufffd") || !strings.HasSuffix(got, "\ufffdb") {
		t.Errorf("invalid UTF-8: %q, %v", got, err)
	}
	if _, result, err := ask(t, module, "say", sandbox.Ports{}); err != nil || !result.Reply.IsEmpty() {
		t.Errorf("an empty reply: %+v, %v", result, err)
	}
}

// H12, the part of the text.
func TestReplyIsCutToItsTokens(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{})
	result, err := module.Query(t.Context(), abi.Query{Prompt: "bytes 20000", MaxOutputTokens: 256}, sandbox.Ports{})
	if err != nil || !result.Cut || result.Reply.Tokens() > 256 || result.Reply.Tokens() < 200 {
		t.Errorf("%d tokens, cut %v, %v", result.Reply.Tokens(), result.Cut, err)
	}
}

// H4
func TestLogIsCappedAndCounted(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{LogLines: 10, LogBytes: 4 << 10})
	_, result, err := ask(t, module, "log 1000", sandbox.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	log := boundary.Neutral(result.Log)
	if strings.Count(log, "warn: line ") != 10 || result.LogDropped != 990 {
		t.Errorf("%d dropped, log:\n%s", result.LogDropped, log)
	}
	_, result, err = ask(t, module, "print", sandbox.Ports{})
	if err != nil || boundary.Neutral(result.Log) != "info: to stdout\nwarn: to stderr" {
		t.Errorf("printed: %q, %v", boundary.Neutral(result.Log), err)
	}
}

func TestWASIReachesNothing(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	for profile, arguments := range map[build.Profile]string{build.Reactor: "stdin: 0", build.Command: "stdin: 0"} {
		got, _, err := ask(t, load(t, engine, profile, abi.Limits{}), "reach", sandbox.Ports{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"file: true", "dir: true", "create: true", "environment: 0", "dial: true", arguments} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", profile, want, got)
			}
		}
	}
}

func TestFilesPort(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "hello", "sub/b.txt": strings.Repeat("b", 2<<20)} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ledger, err := capability.OpenLedger(t.Context(), filepath.Join(t.TempDir(), "hands.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	files := capability.NewFiles(ledger, capability.Caller{Hand: "guest"}, map[string]string{"docs": dir})
	defer files.Close()
	granted := sandbox.Ports{Files: files}
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{Calls: 20, FileTotalBytes: 1 << 20})
	for _, test := range []struct {
		prompt string
		ports  sandbox.Ports
		want   string
	}{
		{"read docs a.txt", granted, "hello"},
		{"walk docs", granted, ".true a.txtfalse subtrue sub/b.txtfalse"},
		{"calls docs", granted, "20 calls, then: stat .: too many calls"},
		{"readall sub/b.txt", granted, "1048576 bytes, then: read sub/b.txt: quota exceeded"},
	} {
		if got, _, err := ask(t, module, test.prompt, test.ports); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", test.prompt, got, err, test.want)
		}
	}
	// A read is never cut at the quota, for a short one is the end of the file; and a
	// file that fits to the byte is read to its end.
	for total, want := range map[int64]string{
		1<<20 + 10: "1048576 bytes, then: read sub/b.txt: quota exceeded",
		2<<20 - 1:  "1572864 bytes, then: read sub/b.txt: quota exceeded",
		2 << 20:    "2097152 bytes, then: <nil>",
	} {
		module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{FileTotalBytes: total})
		if got, _, err := ask(t, module, "readall sub/b.txt", granted); err != nil || got != want {
			t.Errorf("of %d bytes: %q, %v; want %q", total, got, err, want)
		}
	}
	for prompt, ports := range map[string]sandbox.Ports{
		"read docs a.txt":        {},
		"read docs ../a.txt":     granted,
		"read docs absent":       granted,
		"read elsewhere a.txt":   granted,
		"read docs /etc/passwd":  granted,
		"read docs sub/../a.txt": granted,
	} {
		if _, _, err := ask(t, module, prompt, ports); !errors.Is(err, abi.KindHandFailed) {
			t.Errorf("%s: %v", prompt, err)
		}
	}
}

// H1, H6 and what is wrong with files that call themselves modules.
func TestLoadRefuses(t *testing.T) {
	built, err := guests()
	if err != nil {
		t.Fatal(err)
	}
	whole := built[build.Reactor]
	engine := newEngine(t, sandbox.Config{})
	noEntry := "\x00asm\x01\x00\x00\x00"
	// One function of type () -> i32 under the name of another version.
	version2 := noEntry + "\x01\x05\x01\x60\x00\x01\x7f" + "\x03\x02\x01\x00" + "\x07\x15\x01\x11glovebox_query_v2\x00\x00" + "\x0a\x06\x01\x04\x00\x41\x00\x0b"
	// The entry as () -> ().
	wrongType := noEntry + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x07\x15\x01\x11glovebox_query_v1\x00\x00" + "\x0a\x04\x01\x02\x00\x0b"
	bigMemory := strings.Replace(version2, "_v2", "_v1", 1)
	bigMemory = bigMemory[:8+7+4] + "\x05\x04\x01\x00\x80\x20" + bigMemory[8+7+4:]
	for _, test := range []struct {
		name, module string
		granted      []abi.Capability
		kind         abi.Kind
		says         string
	}{
		{"empty file", "", nil, abi.KindBadModule, "empty"},
		{"text file", "#!/bin/sh\necho hello\n", nil, abi.KindBadModule, "not a WebAssembly module"},
		{"truncated", string(whole[:len(whole)/2]), nil, abi.KindBadModule, "truncated"},
		{"no entry", noEntry, nil, abi.KindBadModule, "glovebox_query_v1 nor _start"},
		{"other ABI", version2, nil, abi.KindABIMismatch, "needs ABI 2, this host speaks 1"},
		{"entry of the wrong type", wrongType, nil, abi.KindBadModule, "glovebox_query_v1"},
		{"more memory than allowed", bigMemory, nil, abi.KindOutOfMemory, "256 MiB"},
		{"not granted", string(whole), nil, abi.KindNotGranted, `glovebox_files, which needs the capability "files"`},
		{"import of nothing", importing("env", "abort"), abi.Capabilities(), abi.KindBadModule, "env.abort"},
		{"import of an unknown function", importing(abi.ModuleCore, "session"), abi.Capabilities(), abi.KindBadModule, "glovebox.session"},
		{"import whose name is an attack", importing("a\x1b[2J", "<|im_start|>"), abi.Capabilities(), abi.KindBadModule, "its name is not shown"},
		{"import of the wrong type", importing(abi.ModuleCore, "reply"), abi.Capabilities(), abi.KindBadModule, "not in ABI 1 with this type (glovebox.reply): there it takes [i32 i32] and returns [i32]"},
		{"import of an unknown function of WASI", importing(abi.ModuleWASI, "session"), nil, abi.KindBadModule, "wasi_snapshot_preview1.session"},
		{"import of WASI of the wrong type", importing(abi.ModuleWASI, "fd_close"), nil, abi.KindBadModule, "with this type (wasi_snapshot_preview1.fd_close)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := engine.Load(t.Context(), []byte(test.module), sandbox.Options{Name: "guest", Granted: test.granted})
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v (%s), want %s and %q", err, abi.KindOf(err), test.kind, test.says)
			}
			// Whoever only looks at it, with all granted, is told the same.
			if outline, bad := sandbox.Inspect([]byte(test.module)); bad == nil && fmt.Sprint(outline.Refusal) != strings.Replace(err.Error(), "hand \"guest\": ", "", 1) && test.kind != abi.KindNotGranted {
				t.Errorf("inspected: %v, loaded: %v", outline.Refusal, err)
			}
		})
	}
}

// importing returns a reactor that imports module.name as () -> i32.
func importing(module, name string) string {
	entry := string(rune(len(module))) + module + string(rune(len(name))) + name + "\x00\x00"
	return "\x00asm\x01\x00\x00\x00" + "\x01\x05\x01\x60\x00\x01\x7f" +
		"\x02" + string(rune(len(entry)+1)) + "\x01" + entry +
		"\x03\x02\x01\x00" + "\x07\x15\x01\x11glovebox_query_v1\x00\x01" + "\x0a\x06\x01\x04\x00\x41\x00\x0b"
}

// H5: pointers, in a module without a memory too.
func TestBadPointersAreAnErrorOfTheGuest(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	for name, memory := range map[string]string{"without memory": "", "with memory": "\x05\x03\x01\x00\x01"} {
		// The entry returns what query_read says of the address -1 and the
		// size -1; it must be bad_pointer.
		module := "\x00asm\x01\x00\x00\x00" + "\x01\x0b\x02\x60\x00\x01\x7f\x60\x02\x7f\x7f\x01\x7f" +
			"\x02\x17\x01\x08glovebox\x0aquery_read\x00\x01" + "\x03\x02\x01\x00" + memory +
			"\x07\x15\x01\x11glovebox_query_v1\x00\x01" + "\x0a\x0a\x01\x08\x00\x41\x7f\x41\x7f\x10\x00\x0b"
		loaded, err := engine.Load(t.Context(), []byte(module), sandbox.Options{Name: "pointer"})
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{})
		if !errors.Is(err, abi.KindHandFailed) || !strings.HasSuffix(err.Error(), fmt.Sprint("status ", abi.KindBadPointer.Code())) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	engine := newEngine(t, sandbox.Config{MaxWait: 100 * time.Millisecond})
	module := load(t, engine, build.Reactor, abi.Limits{Concurrent: 1})
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	done := make(chan error)
	port := waitingFiles{started: started, release: ctx.Done()}
	go func() {
		_, err := module.Query(context.WithoutCancel(ctx), abi.Query{Prompt: "read docs a"}, sandbox.Ports{Files: port})
		done <- err
	}()
	<-started
	if _, _, err := ask(t, module, "say hello", sandbox.Ports{}); !errors.Is(err, abi.KindBusy) {
		t.Errorf("while the only place is taken: %v", err)
	}
	// The engine's places are for guests that run, not for those that wait.
	other := load(t, engine, build.Command, abi.Limits{})
	if got, _, err := ask(t, other, "say hello", sandbox.Ports{}); err != nil || got != "hello" {
		t.Errorf("another hand: %q, %v", got, err)
	}
	cancel()
	<-done
	if got, _, err := ask(t, module, "say hello", sandbox.Ports{}); err != nil || got != "hello" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

// waitingFiles answers when release is closed.
type waitingFiles struct {
	started chan<- struct{}
	release <-chan struct{}
}

func (w waitingFiles) List(context.Context, abi.FilesListRequest) (abi.FilesListResult, error) {
	return abi.FilesListResult{}, abi.KindNotFound
}

func (w waitingFiles) Read(context.Context, abi.FilesReadRequest) ([]byte, error) {
	close(w.started)
	<-w.release
	return nil, abi.KindNotFound
}

type panickingFiles struct{ waitingFiles }

func (panickingFiles) Read(context.Context, abi.FilesReadRequest) ([]byte, error) {
	panic("a fault of the host")
}

func TestPanicInAPortIsAnError(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{})
	_, _, err := ask(t, module, "read docs a", sandbox.Ports{Files: panickingFiles{}})
	if !errors.Is(err, abi.KindUnavailable) || !strings.Contains(err.Error(), "glovebox_files.read") {
		t.Errorf("got %v", err)
	}
	if got, _, err := ask(t, module, "say fine", sandbox.Ports{}); err != nil || got != "fine" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

// H3, the part of all queries together.
func TestAllMemoriesTogetherAreBounded(t *testing.T) {
	load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{}) // has room to take its image
	module := load(t, newEngine(t, sandbox.Config{MemoryBytes: 1 << 20}), build.Reactor, abi.Limits{})
	if _, _, err := ask(t, module, "say hello", sandbox.Ports{}); !errors.Is(err, abi.KindOutOfMemory) {
		t.Errorf("got %v", err)
	}
}

// H13 in a short form: hands that end badly leave nothing behind.
func TestManyQueriesLeaveNothingBehind(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	module := load(t, engine, build.Reactor, abi.Limits{Concurrent: 8})
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 12 {
				prompt := "say hello"
				if (worker+i)%4 == 0 {
					prompt = "panic"
				}
				result, err := module.Query(t.Context(), abi.Query{Prompt: prompt}, sandbox.Ports{})
				if prompt == "panic" && !errors.Is(err, abi.KindTrap) || prompt != "panic" && (err != nil || boundary.Neutral(result.Reply) != "hello") {
					t.Errorf("%s: %v", prompt, err)
				}
			}
		})
	}
	before := runtime.NumGoroutine()
	group.Wait()
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines while it ran, %d afterwards", before, after)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := module.Query(t.Context(), abi.Query{Prompt: "say hello"}, sandbox.Ports{}); !errors.Is(err, abi.KindHostClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCacheIsBoundedAndShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var group sync.WaitGroup
	// Two engines stand for two processes: they share nothing but the files.
	for i := range 2 {
		group.Go(func() {
			engine := newEngine(t, sandbox.Config{CacheDir: dir, CacheBytes: 1})
			for n := range 2 {
				says := string([]byte{byte('a' + i), byte('a' + n)})
				loaded, err := engine.Load(t.Context(), []byte(strings.Replace(byHand, "hi", says, 1)), sandbox.Options{Name: "guest"})
				if err != nil {
					t.Error(err)
					return
				}
				if result, err := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil || boundary.Neutral(result.Reply) != says {
					t.Error(err)
				}
				if err := loaded.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	entries := entriesOf(t, dir)
	if len(entries) == 0 || len(entries) > 2 {
		t.Errorf("%d entries for a bound of one byte and two loaders", len(entries))
	}
	if runtime.GOOS != "windows" {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := sandbox.New(sandbox.Config{CacheDir: dir}); err == nil || !strings.Contains(err.Error(), "chmod 700") {
			t.Errorf("a cache that others can write: %v", err)
		}
	}
}

// What is loaded stays in the cache, though it is over the bound, as long as it is loaded:
// its code could not be dropped without.
func TestCacheKeepsWhatIsLoaded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	engine := newEngine(t, sandbox.Config{CacheDir: dir, CacheBytes: 1, CodeBytes: 1})
	modules := map[string]*sandbox.Module{}
	for _, letters := range []string{"aa", "bb", "cc"} {
		modules[letters] = loadSaying(t, engine, letters)
	}
	if entries := entriesOf(t, dir); len(entries) != len(modules) {
		t.Errorf("%d entries of %d loaded modules", len(entries), len(modules))
	}
	for letters, module := range modules {
		if !module.Dropped() {
			t.Errorf("%s is not dropped", letters)
		}
		if got, _, err := ask(t, module, "x", sandbox.Ports{}); err != nil || got != letters {
			t.Errorf("%q says %q, %v", letters, got, err)
		}
		if err := module.Close(); err != nil {
			t.Fatal(err)
		}
	}
	loadSaying(t, engine, "dd")
	if entries := entriesOf(t, dir); len(entries) != 1 {
		t.Errorf("%d entries, of which one is loaded", len(entries))
	}
}

// byHand is the module of section 7 of abi/ABI.md, as wat2wasm writes it.
const byHand = "\x00asm\x01\x00\x00\x00\x01\x0b\x02\x60\x02\x7f\x7f\x01\x7f\x60\x00\x01\x7f\x02\x12\x01\x08glovebox\x05reply\x00\x00\x03\x02\x01\x01\x05\x03\x01\x00\x01" +
	"\x07\x1e\x02\x06memory\x02\x00\x11glovebox_query_v1\x00\x01\x0a\x0d\x01\x0b\x00\x41\x00\x41\x02\x10\x00\x1a\x41\x00\x0b\x0b\x08\x01\x00\x41\x00\x0b\x02hi"

func TestTheModuleOfTheSpecification(t *testing.T) {
	module, err := newEngine(t, sandbox.Config{}).Load(t.Context(), []byte(byHand), sandbox.Options{Name: "by-hand"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := ask(t, module, "anything", sandbox.Ports{}); err != nil || got != "hi" {
		t.Errorf("%q, %v", got, err)
	}
}

func BenchmarkQuery(b *testing.B) {
	engine := newEngine(b, sandbox.Config{})
	small, err := engine.Load(b.Context(), []byte(byHand), sandbox.Options{Name: "by-hand"})
	if err != nil {
		b.Fatal(err)
	}
	for name, module := range map[string]*sandbox.Module{"guest=by-hand": small, "guest=go": load(b, engine, build.Reactor, abi.Limits{})} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := module.Query(b.Context(), abi.Query{Prompt: "say hello"}, sandbox.Ports{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A runtime writes a line in many pieces; it is one line of the log, in both
// profiles, and what has no end is not lost.
func TestStreamsAreLoggedByLines(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	for _, profile := range []build.Profile{build.Reactor, build.Command} {
		_, result, err := ask(t, load(t, engine, profile, abi.Limits{}), "pieces", sandbox.Ports{})
		if log := boundary.Neutral(result.Log); err != nil || log != "warn: one two three\nwarn: no end" {
			t.Errorf("%s: %q, %v", profile, log, err)
		}
	}
}
