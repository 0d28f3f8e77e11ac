package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

const hostileDir = "../../testdata/hostile"

// end is how a module of the corpus ends.
type end struct {
	refused bool     // when it is loaded, not when it is queried
	kind    abi.Kind // "" if the query is answered
	// check looks at the result beyond the kind.
	check func(t *testing.T, r sandbox.Result, err error)
}

var (
	answers  = end{}
	timeout  = end{kind: abi.KindTimeout}
	overflow = end{kind: abi.KindStackOverflow}
	traps    = end{kind: abi.KindTrap}
	bad      = end{refused: true, kind: abi.KindBadModule}
	tooLarge = end{refused: true, kind: abi.KindOutOfMemory}
	// nameless modules are refused, and what they call things is not shown.
	nameless = end{refused: true, kind: abi.KindBadModule, check: func(t *testing.T, _ sandbox.Result, err error) {
		if text := err.Error(); strings.ContainsAny(text, "\x1b\a\u202e|") || strings.Contains(text, "ignore") {
			t.Errorf("%q", text)
		}
	}}
	// exits are not taken for the deadlines whose codes they use.
	exits = end{kind: abi.KindExit, check: notTimeout}
)

func notTimeout(t *testing.T, _ sandbox.Result, err error) {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%v passes for a deadline", err)
	}
}

// hostile says how each module of the corpus ends; its source says what it
// tries.
var hostile = map[string]end{
	// H1: entries
	"entry-type": bad, "entry-none": bad, "entry-global": bad, "entry-near": bad, "entry-initialize-type": bad,
	"entry-v2":   {refused: true, kind: abi.KindABIMismatch},
	"entry-both": {check: replies("command")}, "entry-versions": answers, "entry-thrice": answers, "entry-import": {kind: abi.KindHandFailed},

	// H2: time
	"call-tree": timeout, "call-tree-fill": timeout, "call-tree-indirect": timeout, "loop": timeout, "loop-empty": timeout, "loop-switch": timeout,
	"loop-parameters": timeout, "loop-start": timeout, "loop-initialize": timeout, "loop-inits": timeout, "loop-table-copies": timeout,
	"loop-table-inits": timeout, "loop-references": timeout, "loop-grow-zero": timeout, "loop-clock": timeout, "loop-yield": timeout,
	"loop-indirect": timeout, "locals-zeroed": timeout, "fills": timeout, "copies": timeout, "table-fills": answers,
	// time in the host's own functions
	"random": timeout, "sleep": timeout, "loop-sleep": timeout, "poll-many": timeout, "read-iovecs": timeout,
	"write-iovecs": timeout, "write-empty": timeout, "path-long": timeout, "path-links": timeout, "log-newlines": timeout, "requests": timeout,
	// the call stack
	"recursion": overflow, "recursion-mutual": overflow, "recursion-indirect": overflow, "recursion-frames": overflow, "recursion-operands": overflow,
	"recursion-vectors": overflow, "recursion-parameters": overflow, "recursion-initialize": overflow,

	// H3: memory and tables
	"memory-grow": {kind: abi.KindOutOfMemory}, "memory-minimum": tooLarge, "memory-grow-wraps": answers, "bulk-overlap": answers,
	"memory-grow-one": {check: func(t *testing.T, r sandbox.Result, _ error) {
		if r.MemoryBytes != abi.DefaultLimits().MemoryBytes {
			t.Errorf("the memory stopped at %d bytes", r.MemoryBytes)
		}
	}},
	"tables": tooLarge, "table-minimum": tooLarge, "tables-17": bad, "table-grow": answers, "table-grow-wraps": answers, "table-grow-each": answers,

	// H4: what comes out
	"log-flood": {check: logged(100_000)}, "write-flood": {check: logged(100_000)},
	"reply-flood": {check: func(t *testing.T, r sandbox.Result, _ error) {
		if !r.Cut || r.ReplyBytes != 64<<20 {
			t.Errorf("cut %v, %d bytes", r.Cut, r.ReplyBytes)
		}
	}},
	"reply-invalid": {check: func(t *testing.T, r sandbox.Result, _ error) {
		if text := boundary.Neutral(r.Reply); !strings.HasPrefix(text, "a\ufffd") || !strings.HasSuffix(text, "\ufffdb") {
			t.Errorf("%q", text)
		}
	}},
	"reply-empty": {check: replies("")},
	"fail-flood": {kind: abi.KindHandFailed, check: func(t *testing.T, r sandbox.Result, _ error) {
		if r.Said.Tokens() == 0 || r.Said.Tokens() > 1000 {
			t.Errorf("said %d tokens", r.Said.Tokens())
		}
	}},

	// H5: pointers and calls
	"pointers": {kind: abi.KindHandFailed, check: status(abi.KindBadPointer)}, "pointers-without-memory": {kind: abi.KindHandFailed, check: status(abi.KindBadPointer)},
	"call-storm": {kind: abi.KindHandFailed, check: status(abi.KindTooManyCalls)},
	"poll-wraps": traps, "write-wraps": answers, "poll-stdin": {check: atOnce}, "poll-stdin-command": {check: atOnce},

	// H6: imports, exports, features
	"import-ungranted": {refused: true, kind: abi.KindNotGranted}, "import-ungranted-all": {refused: true, kind: abi.KindNotGranted},
	"import-function": bad, "import-core": bad, "import-memory": bad, "import-table": bad, "import-global": bad, "import-meter": bad, "import-type": bad,
	"import-wasi": bad, "import-wasi-unstable": bad, "import-twice": answers, "import-name": nameless,
	"export-fuel": bad, "export-start": bad, "export-anything": bad, "export-twice": bad, "export-names": nameless, "export-entry-global": answers, "export-memory": answers,
	"memory-shared": bad, "memory-two": bad, "memory-64": bad, "tail-call": bad, "tail-call-indirect": bad, "exception": bad, "threads": bad, "relaxed": bad,
	"extended-constant": bad,
	// H6: what only rewriting would make valid, and what is never valid
	"index-global": bad, "index-global-set": bad, "index-global-initial": bad, "index-local": bad, "index-local-last": bad, "index-label": bad, "index-label-table": bad,
	"index-function": bad, "index-function-taken": bad, "index-type": bad, "index-type-indirect": bad, "index-table": bad, "index-data": bad,
	"index-element": bad, "index-element-function": bad, "index-memory": bad, "index-start": bad, "index-export-function": bad, "index-export-global": bad,
	"start-index": bad, "start-type": bad, "data-without-memory": bad, "element-beyond": answers, "element-without-table": bad, "type-confusion": bad, "stack-underflow": bad,
	"global-immutable": bad, "reference-undeclared": bad,

	// how a guest may end
	"exit": exits, "exit-zero": exits, "exit-deadline": exits, "exit-cancelled": exits, "exit-initialize": exits, "exit-start": exits,
	"exit-command-zero": {check: replies("")}, "exit-command-deadline": {kind: abi.KindHandFailed, check: notTimeout},
	"trap": traps, "trap-start": traps, "trap-memory": traps, "trap-fill": traps, "trap-division": traps, "trap-data": traps, "trap-overflow": traps,
	"trap-conversion": traps, "trap-table": traps, "trap-null": traps, "trap-signature": traps, "trap-table-fill": traps,
	"trap-copy": traps, "trap-dropped": traps,
}

// atOnce expects a query that did not wait for anything.
func atOnce(t *testing.T, r sandbox.Result, _ error) {
	if r.Took > 2*time.Second {
		t.Errorf("it took %v", r.Took)
	}
}

func replies(want string) func(*testing.T, sandbox.Result, error) {
	return func(t *testing.T, r sandbox.Result, _ error) {
		if text := boundary.Neutral(r.Reply); text != want {
			t.Errorf("replied %q, want %q", text, want)
		}
	}
}

// logged expects this many lines, most of them dropped.
func logged(lines int) func(*testing.T, sandbox.Result, error) {
	return func(t *testing.T, r sandbox.Result, _ error) {
		kept := strings.Count(boundary.Neutral(r.Log), "\n") + 1
		if kept > abi.DefaultLimits().LogLines || kept+r.LogDropped != lines {
			t.Errorf("%d lines, %d dropped", kept, r.LogDropped)
		}
	}
}

// generated are modules that no assembler writes; all are refused.
var generated = map[string][]byte{
	// Types of later versions.
	"a type of structures":       newBuilder().vector(1, 1, []byte{0x5f, 0}).module,
	"a type of arrays":           newBuilder().vector(1, 1, []byte{0x5e, 0x7f, 0}).module,
	"a group of types":           newBuilder().vector(1, 1, []byte{0x4e, 1, 0x60, 0, 0}).module,
	"a subtype":                  newBuilder().vector(1, 1, []byte{0x50, 0, 0x60, 0, 0}).module,
	"a reference to a type":      newBuilder().vector(1, 1, []byte{0x60, 1, 0x63, 0, 0}).module,
	"a reference to anything":    newBuilder().vector(1, 1, []byte{0x60, 1, 0x6e, 0}).module,
	"a reference to exceptions":  newBuilder().vector(1, 1, []byte{0x60, 1, 0x69, 0}).module,
	"an imported tag":            newBuilder().vector(1, 1, []byte{0x60, 0, 0}).vector(2, 1, []byte{1, 'a', 1, 'b', 4, 0, 0}).module,
	"a memory with small pages":  newBuilder().vector(5, 1, []byte{8, 1, 0}).module,
	"a shared memory of 64 bits": newBuilder().vector(5, 1, []byte{7, 1, 1}).module,
	"a table of 64 bits":         newBuilder().vector(4, 1, []byte{0x70, 4, 1}).module,
	"a table with a first value": newBuilder().vector(4, 1, []byte{0x40, 0, 0x70, 0, 1, 0xd0, 0x70, 0x0b}).module,
	// Instructions of later versions.
	"a call of a reference":  entering(0xd0, 0x70, 0x14, 0, 0x0b),
	"a structure":            entering(0xfb, 0x01, 0, 0x1a, 0x41, 0, 0x0b),
	"a table of handlers":    entering(0x1f, 0x40, 0, 0x0b, 0x41, 0, 0x0b),
	"an atomic load":         entering(0x41, 0, 0xfe, 0x10, 2, 0, 0x0b),
	"an unknown prefix":      entering(0xff, 0, 0x0b),
	"an unknown instruction": entering(0x27, 0x0b),
	"an unknown long one":    entering(0xfc, 0xff, 0xff, 0x03, 0x0b),
	// What would be valid after rewriting.
	"a type of a block that only metering adds": entering(0x02, 1, 0x0b, 0x41, 0, 0x0b),
	"memory 1":                          entering(0x3f, 1, 0x0b),
	"a call of what only metering adds": entering(0x10, 1, 0x0b),
	// Structure.
	"an end too early":            entering(0x0b, 0x41, 0, 0x0b),
	"no end":                      entering(0x41, 0),
	"an else without an if":       entering(0x41, 0, 0x05, 0x0b),
	"two elses":                   entering(0x41, 0, 0x04, 0x40, 0x05, 0x05, 0x0b, 0x41, 0, 0x0b),
	"a number of six bytes":       entering(0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0x0b),
	"a number with unused bits":   entering(0x41, 0xff, 0xff, 0xff, 0xff, 0x4f, 0x0b),
	"functions without bodies":    newBuilder().vector(1, 1, []byte{0x60, 0, 0}).vector(3, 1, []byte{0}).module,
	"bodies without functions":    newBuilder().vector(10, 1, []byte{2, 0, 0x0b}).module,
	"a data count of nothing":     newBuilder().section(12, []byte{1}).module,
	"a section twice":             newBuilder().vector(1, 0, nil).vector(1, 0, nil).module,
	"sections out of order":       newBuilder().vector(3, 0, nil).vector(1, 0, nil).module,
	"bytes after a section's end": newBuilder().section(1, []byte{0, 0}).module,
	"a section of no bytes":       newBuilder().section(1, nil).module,
	"a name that is not UTF-8":    newBuilder().section(0, []byte{1, 0xff}).module,
	"an export that is not UTF-8": newBuilder().vector(5, 1, []byte{0, 1}).vector(7, 1, []byte{2, 0xc3, 0x28, 2, 0}).module,
	"an export of no kind":        newBuilder().vector(7, 1, []byte{1, 'a', 9, 0}).module,
}

// entering is a module whose entry has this code.
func entering(code ...byte) []byte {
	b := newBuilder().vector(1, 1, []byte{0x60, 0, 1, 0x7f}).vector(3, 1, []byte{0}).vector(5, 1, []byte{0, 1})
	b.vector(7, 1, append(wasm.AppendName(nil, abi.ExportQuery), 0, 0))
	return b.vector(10, 1, append([]byte{byte(len(code) + 1), 0}, code...)).module
}

// H6: modules by hand, beside the one of which they are variations.
func TestGeneratedModulesAreRefused(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	withstand(t, engine, entering(0x41, 0, 0x0b), answers)
	for _, name := range slices.Sorted(maps.Keys(generated)) {
		t.Run(name, func(t *testing.T) {
			withstand(t, engine, generated[name], bad)
			// They are refused for what they are, not for want of an entry.
			if _, err := wasm.Decode(generated[name]); err == nil && !bytes.Contains(generated[name], []byte(abi.ExportQuery)) {
				t.Error("it can be decoded")
			}
		})
	}
}

// H2: 20,000 times 10 MB are filled, copied or initialised in a straight line.
func TestTwentyThousandBulkOperations(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	most := op(opI32, 0x80, 0x80, 0x80, 0x05) // 10 MiB
	for name, operation := range map[string][]byte{
		"fills":  join(op(opI32, 0, opI32, 0), most, op(0xfc, 11, 0)),
		"copies": join(op(opI32, 8, opI32, 0), most, op(0xfc, 10, 0, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			n := min(20_000, (256<<10-8)/len(operation))
			body := join(op(0), bytes.Repeat(operation, n), op(opI32, 0, opEnd))
			b := newBuilder().vector(1, 1, []byte{0x60, 0, 1, 0x7f}).vector(3, 1, []byte{0}).vector(5, 1, []byte{0, 0xa1, 0x01})
			b.vector(7, 1, append(wasm.AppendName(nil, abi.ExportQuery), 0, 0))
			withstand(t, engine, b.vector(10, 1, join(u32(len(body)), body)).module, timeout)
		})
	}
}

// status expects a hand that fails with a code as its status.
func status(kind abi.Kind) func(*testing.T, sandbox.Result, error) {
	return func(t *testing.T, _ sandbox.Result, err error) {
		if want := "failed with status " + strconv.Itoa(int(kind.Code())); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func readHostile(t testing.TB, name string) []byte {
	t.Helper()
	module, err := os.ReadFile(filepath.Join(hostileDir, name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// watch looks at the process until it is asked: for how long other goroutines
// did not run at most, and what memory was resident at most (0 where that
// cannot be read).
func watch() (end func() (stalled time.Duration, resident int64)) {
	type seen struct {
		stalled  time.Duration
		resident int64
	}
	stop, result := make(chan struct{}), make(chan seen)
	go func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		var s seen
		for last, n := time.Now(), 0; ; n++ {
			select {
			case <-ticker.C:
			case <-stop:
				result <- s
				return
			}
			s.stalled = max(s.stalled, time.Since(last))
			if n%8 == 0 {
				resident, _ := residentBytes()
				s.resident = max(s.resident, resident)
			}
			last = time.Now()
		}
	}()
	return func() (time.Duration, int64) {
		close(stop)
		s := <-result
		return s.stalled, s.resident
	}
}

// residentBytes is the process's resident memory; not ok where it cannot be
// read.
func residentBytes() (int64, bool) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(data))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}

const (
	// deadline is the wall time given to what would never end.
	deadline = 200 * time.Millisecond
	// maxStall is ten times what the design allows, for a shared machine.
	maxStall = 10 * 20 * time.Millisecond
	// engineSlack is for what compiling and the race detector need beside the
	// guest.
	engineSlack = 96 << 20
)

// H1–H6: each module of the corpus, against the configuration as it is shipped
// but for the time: it ends in its own way, in time, without stalling others,
// within its memory, and the next query of an honest hand is answered.
func TestHostileModules(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	honest, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "honest"})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(hostileDir, "*.wasm"))
	if err != nil || len(files) != len(hostile) {
		t.Errorf("%d modules, %d expectations, %v", len(files), len(hostile), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".wasm")
		want, ok := hostile[name]
		if !ok {
			t.Errorf("%s: nothing is expected of it", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			withstand(t, engine, readHostile(t, name), want)
			if result, err := honest.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil || boundary.Neutral(result.Reply) != "hi" {
				t.Errorf("the honest hand: %v", err)
			}
		})
	}
}

// withstand loads a module, asks it and holds its end against what is expected.
func withstand(t *testing.T, engine *sandbox.Engine, module []byte, want end) {
	t.Helper()
	limits := abi.Limits{Timeout: deadline}
	if want.kind != abi.KindTimeout {
		limits.Timeout = 20 * time.Second
	}
	runtime.GC()
	before, measured := residentBytes()
	hand, err := engine.Load(t.Context(), module, sandbox.Options{Name: "hostile", Limits: limits, Granted: []abi.Capability{abi.CapabilityKV}, Trusted: true})
	if want.refused {
		if !errors.Is(err, want.kind) || !strings.Contains(err.Error(), `hand "hostile": `) {
			t.Fatalf("got %v, want %s", err, want.kind)
		}
		if want.check != nil {
			want.check(t, sandbox.Result{}, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hand.Close() })
	// A machine that others use stands still by itself now and then; a module
	// that makes it does so each time.
	const attempts = 3
	for attempt := 1; ; attempt++ {
		goroutines := runtime.NumGoroutine()
		end := watch()
		began := time.Now()
		result, err := hand.Query(t.Context(), abi.Query{Prompt: "answer", MaxOutputTokens: 1 << 20}, sandbox.Ports{})
		took := time.Since(began)
		stalled, resident := end()
		if abi.KindOf(err) != want.kind {
			t.Fatalf("got %v, want %q", err, want.kind)
		}
		if want.check != nil {
			want.check(t, result, err)
		}
		settle(t, goroutines)
		if measured && resident-before > (64+32)<<20+engineSlack {
			t.Errorf("the process grew by %d MiB", (resident-before)>>20)
		}
		late := want.kind == abi.KindTimeout && (took < deadline || took > deadline+10*50*time.Millisecond)
		if !late && stalled <= maxStall {
			return
		}
		if attempt == attempts || took > 10*deadline {
			t.Fatalf("ended after %v; other goroutines stood still for %v", took, stalled)
		}
	}
}

// settle waits until no more goroutines run than before: one that has done its
// work may still be about to end.
func settle(t *testing.T, before int) {
	t.Helper()
	for late := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(late) {
			t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			return
		}
	}
}

// H2 for fuel: what never ends runs out of it, with its own kind.
func TestHostileModulesRunOutOfFuel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes tens of seconds")
	}
	engine := newEngine(t, sandbox.Config{})
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		if hostile[name].kind != abi.KindTimeout || slices.Contains(waiting, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			hand, err := engine.Load(t.Context(), readHostile(t, name), sandbox.Options{Name: "hostile", Limits: abi.Limits{Fuel: 20_000_000, Timeout: 10 * time.Second}, Granted: []abi.Capability{abi.CapabilityKV}, Trusted: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { hand.Close() })
			result, err := hand.Query(t.Context(), abi.Query{Prompt: "answer"}, sandbox.Ports{})
			if !errors.Is(err, abi.KindOutOfFuel) || result.Fuel < 20_000_000 {
				t.Errorf("%d units, %v", result.Fuel, err)
			}
		})
	}
}

// waiting modules use time, and no fuel to speak of: they wait, or run into
// another limit before.
var waiting = []string{"sleep", "loop-sleep", "requests"}

func TestHostileModulesAreBuiltFromTheirSources(t *testing.T) {
	if _, err := exec.LookPath("wat2wasm"); err != nil {
		t.Skip("wat2wasm is not installed: apt-get install wabt")
	}
	sources, err := filepath.Glob(filepath.Join(hostileDir, "*.wat"))
	if err != nil || len(sources) != len(hostile) {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, []byte(";; ")) || !bytes.Contains(text, []byte("\n;; Runs into: ")) || !bytes.Contains(text, []byte("\n;; Ends as: ")) {
			t.Errorf("%s does not say what it tries, what it runs into and how it ends", filepath.Base(source))
		}
		var flags []string
		if _, rest, ok := strings.Cut(string(text), ";; Built with: wat2wasm "); ok {
			line, _, _ := strings.Cut(rest, "\n")
			flags = strings.Fields(line)
		}
		built := filepath.Join(t.TempDir(), "built.wasm")
		if output, err := exec.CommandContext(t.Context(), "wat2wasm", append(flags, source, "-o", built)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", filepath.Base(source), err, output)
			continue
		}
		got, err := os.ReadFile(built)
		if err != nil {
			t.Fatal(err)
		}
		if name := strings.TrimSuffix(filepath.Base(source), ".wat"); !bytes.Equal(got, readHostile(t, name)) {
			t.Errorf("%s.wasm is not what its source builds: run testdata/hostile/build.sh", name)
		}
	}
}
