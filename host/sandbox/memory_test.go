package sandbox_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// holding is a hand that holds 40 pages of memory while it waits for the host.
const holding = `(module (import "glovebox_files" "read" (func $read (param i32 i32) (result i32)))
  (memory (export "memory") 40) (data (i32.const 0) "{\22path\22:\22pause\22,\22offset\22:0,\22length\22:1}")
  (func (export "glovebox_query_v1") (result i32) (drop (call $read (i32.const 0) (i32.const 38))) (i32.const 0)))`

// shortMemory is that of all hands together where holding leaves 8 pages of it.
const shortMemory = 48 << 16

// assembled is a module in the text format; the test is skipped where there is no assembler.
func assembled(t *testing.T, text string) []byte {
	t.Helper()
	module, err := assemble(t.Context(), text)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return module
}

// whileHeld does what it is given while a query of holding waits in the engine.
func whileHeld(t *testing.T, engine *sandbox.Engine, held []byte, do func()) {
	t.Helper()
	holds, err := engine.Load(t.Context(), held, sandbox.Options{Name: "holds", Granted: []abi.Capability{abi.CapabilityFiles}})
	if err != nil {
		t.Fatal(err)
	}
	done := false
	if _, err := holds.Query(t.Context(), abi.Query{}, sandbox.Ports{Files: door{"pause": func() { do(); done = true }}}); err != nil || !done {
		t.Fatalf("it holds memory: %v, %v", done, err)
	}
}

// A hand for whose memory there is no room when its image is to be taken is refused for the
// time being, and one that had no room in a step begins before it. Loaded again when there is
// room, they begin from whole images, in the same engine and in others.
func TestLoadWhileMemoryIsShort(t *testing.T) {
	held := assembled(t, holding)
	for _, test := range []struct {
		name, memory, initialises string
		reason                    string // "" if it is refused
	}{
		// All that there is for all hands: nothing of the first try may be held still.
		{"to begin with", "48", "", ""},
		{"in a step that goes on", "4", "(drop (memory.grow (i32.const 44)))", "_initialize ran out of memory: others had what was left of the 3 MiB for all hands together"},
		{"in a step that traps", "4", "(if (i32.lt_s (memory.grow (i32.const 44)) (i32.const 0)) (then unreachable))", "_initialize ran out of memory: others had what was left of the 3 MiB for all hands together"},
	} {
		module := assembled(t, `(module (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
			(memory (export "memory") `+test.memory+`) (data (i32.const 0) "cold")
			(func (export "_initialize") `+test.initialises+` (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))))
			(func (export "glovebox_query_v1") (result i32) (call $reply (i32.const 0) (i32.const 4))))`)
		for _, way := range ways[:2] {
			t.Run(test.name+", "+way.name, func(t *testing.T) {
				config := sandbox.Config{Images: way.images, MemoryBytes: shortMemory, CacheDir: t.TempDir()}
				engine := newEngine(t, config)
				load := func(engine *sandbox.Engine) (*sandbox.Module, error) {
					return engine.Load(t.Context(), module, sandbox.Options{Name: "late"})
				}
				whileHeld(t, engine, held, func() {
					loaded, err := load(engine)
					if test.reason == "" {
						refusal, ok := errors.AsType[*abi.Error](err)
						if !ok || refusal.Hand != "late" || refusal.Kind != abi.KindUnavailable || !strings.Contains(refusal.Text, "load it again when there are fewer") {
							t.Errorf("without room: %v", err)
						}
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if begins := loaded.Image(); begins.Stage != sandbox.StageData || begins.Reason != test.reason {
						t.Errorf("without room it begins from %+v", begins)
					}
					if err := loaded.Close(); err != nil {
						t.Error(err)
					}
				})
				for _, engine := range []*sandbox.Engine{engine, newEngine(t, config)} {
					loaded, err := load(engine)
					if err != nil {
						t.Fatal("with room: ", err)
					}
					if begins := loaded.Image(); begins.Stage != sandbox.StageInitialised || begins.Reason != "" {
						t.Errorf("with room it begins from %+v", begins)
					}
					for range 2 {
						if got, _, err := ask(t, loaded, "", sandbox.Ports{}); err != nil || got != "dold" {
							t.Errorf("with room it answers %q, %v", got, err)
						}
					}
				}
			})
		}
	}
}

// A query without memory says whose limit it met, and what it is: its own, or that of all.
func TestOutOfMemoryNamesTheLimit(t *testing.T) {
	held := assembled(t, holding)
	const (
		own    = `hand "wants": ran out of memory: the limit is 2 MiB`
		shared = `hand "wants": ran out of memory: others had what was left of the 3 MiB for all hands together`
	)
	for name, test := range map[string]struct {
		memory, grows int
		with, without string // room; "" is an answer
	}{
		"to begin with":       {20, 0, "", shared},
		"in the query":        {1, 19, "", shared},
		"beyond its own":      {1, 32, own, own},
		"within what is left": {1, 7, "", ""},
	} {
		module := assembled(t, fmt.Sprintf(`(module (memory (export "memory") %d) (func (export "glovebox_query_v1") (result i32)
			(if (i32.lt_s (memory.grow (i32.const %d)) (i32.const 0)) (then unreachable)) (i32.const 0)))`, test.memory, test.grows))
		for _, way := range ways {
			t.Run(name+", "+way.name, func(t *testing.T) {
				engine := newEngine(t, sandbox.Config{Images: way.images, MemoryBytes: shortMemory})
				wants, err := engine.Load(t.Context(), module, sandbox.Options{Name: "wants", Limits: abi.Limits{MemoryBytes: 2 << 20}})
				if err != nil {
					t.Fatal(err)
				}
				asks := func(want string) {
					t.Helper()
					_, err := wants.Query(t.Context(), abi.Query{}, sandbox.Ports{})
					if want == "" && err != nil || want != "" && (!errors.Is(err, abi.KindOutOfMemory) || err.Error() != want) {
						t.Errorf("it ends with %v, want %q", err, want)
					}
				}
				asks(test.with)
				whileHeld(t, engine, held, func() { asks(test.without) })
				asks(test.with)
			})
		}
	}
}

// A memory that is used again is what it was at first, whether it is small enough to be
// cleared or not, and whether its pages were written to side by side or here and there: each
// query finds the image and zeros, in what it begins with and in what it grows by.
func TestMemoriesAreUsedAgainAsTheyBegan(t *testing.T) {
	// Its status is the sum of the words that it finds, each times its address and one more:
	// 5 at the end of its first page and 7 at the beginning of its last.
	const text = `(module (memory (export "memory") %[1]d) (data (i32.const %[2]d) "\07")
		(func (export "_initialize") (i32.store (i32.const 65532) (i32.const 5)))
		(func (export "glovebox_query_v1") (result i32) (local $at i32) (local $sum i32)
			(if (i32.lt_s (memory.grow (i32.const %[3]d)) (i32.const 0)) (then unreachable))
			(loop $read
				(local.set $sum (i32.add (local.get $sum) (i32.mul (i32.load (local.get $at)) (i32.add (local.get $at) (i32.const 1)))))
				(br_if $read (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 4))) (i32.shl (memory.size) (i32.const 16)))))
			(local.set $at (i32.const 0))
			(loop $write
				(i32.store (local.get $at) (i32.const 0x1001))
				(i32.store (i32.add (local.get $at) (i32.const 4092)) (i32.const 0x21002001))
				(br_if $write (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const %[4]d))) (i32.shl (memory.size) (i32.const 16)))))
			(local.get $sum)))`
	for _, pages := range []struct{ begins, grows int }{{1, 0}, {1, 1}, {2, 0}, {1, 2}, {3, 0}, {3, 5}, {40, 0}, {3, 80}} {
		for _, apart := range []int{4 << 10, 8 << 10} {
			want := fmt.Sprintf(" status %d", 5*65533+7*((pages.begins-1)<<16+1))
			module := assembled(t, fmt.Sprintf(text, pages.begins, (pages.begins-1)<<16, pages.grows, apart))
			for _, way := range ways {
				loaded, err := newEngine(t, sandbox.Config{Images: way.images}).Load(t.Context(), module, sandbox.Options{Name: "sums"})
				if err != nil {
					t.Fatal(err)
				}
				for n := range 3 {
					if _, err := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{}); !errors.Is(err, abi.KindHandFailed) || !strings.HasSuffix(err.Error(), want) {
						t.Errorf("%s, %+v pages, written to each %d KiB, query %d: %v", way.name, pages, apart>>10, n, err)
					}
				}
			}
		}
	}
}

// An image is at most 32 MiB: a hand that writes more before its queries has each of them
// begin before that.
func TestImagesAreBounded(t *testing.T) {
	for pages, want := range map[int]sandbox.ImageInfo{
		512: {Stage: sandbox.StageInitialised, Bytes: 32 << 20},
		513: {Stage: sandbox.StageData, Reason: "its memory holds more than 32 MiB before the first query"},
	} {
		module := assembled(t, fmt.Sprintf(`(module (memory (export "memory") %[1]d)
			(func (export "_initialize") (memory.fill (i32.const 0) (i32.const 1) (i32.shl (i32.const %[1]d) (i32.const 16))))
			(func (export "glovebox_query_v1") (result i32) (i32.load8_u (i32.const 70000))))`, pages))
		for _, way := range ways[:2] {
			loaded, err := newEngine(t, sandbox.Config{Images: way.images}).Load(t.Context(), module, sandbox.Options{Name: "large"})
			if err != nil {
				t.Fatal(err)
			}
			if begins := loaded.Image(); begins != want {
				t.Errorf("%s: with %d pages it begins from %+v, want %+v", way.name, pages, begins, want)
			}
			if _, err := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{}); !errors.Is(err, abi.KindHandFailed) || !strings.HasSuffix(err.Error(), " status 1") {
				t.Errorf("%s: with %d pages: %v", way.name, pages, err)
			}
		}
	}
}

// Each thing that an image cannot carry keeps a module from one by itself; which one it is
// stands in what is seen without running the module, and in what is loaded.
func TestWhatAnImageCannotCarry(t *testing.T) {
	const table = `(table 4 funcref) (elem (i32.const 0) func $nothing)`
	for reason, text := range map[string]string{
		"":                     table + ` (elem declare func $nothing) (global (mut i64) (i64.const 1)) (global funcref (ref.null func))`,
		"has table.set":        table + `(func (table.set 0 (i32.const 0) (ref.null func)))`,
		"has table.grow":       table + `(func (drop (table.grow 0 (ref.null func) (i32.const 1))))`,
		"has table.fill":       table + `(func (table.fill 0 (i32.const 0) (ref.null func) (i32.const 1)))`,
		"has table.copy":       table + `(func (table.copy (i32.const 0) (i32.const 1) (i32.const 1)))`,
		"has table.init":       table + `(func (table.init 0 (i32.const 0) (i32.const 0) (i32.const 0)))`,
		"has elem.drop":        table + `(func (elem.drop 0))`,
		"has memory.init":      `(data (i32.const 0) "x") (func (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 0)))`,
		"has data.drop":        `(data (i32.const 0) "x") (func (data.drop 0))`,
		"data segment 0 is":    `(data "x")`,
		"data segment 0 lies":  `(data (i32.const 65535) "xx")`,
		"element segment 0":    `(table 1 funcref) (elem func $nothing)`,
		"global 0 is mutable":  `(global (mut v128) (v128.const i32x4 0 0 0 0))`,
		"of type funcref":      `(global (mut funcref) (ref.null func))`,
		"of type externref":    `(global (mut externref) (ref.null extern))`,
		"function 1, code sec": table + `(func (elem.drop 0))`,
	} {
		module := assembled(t, `(module (memory (export "memory") 1) (func $nothing) `+text+` (func (export "glovebox_query_v1") (result i32) (i32.const 0)))`)
		seen, err := sandbox.Inspect(module)
		if err != nil || seen.Refusal != nil {
			t.Fatal(reason, err, seen.Refusal)
		}
		if !strings.Contains(seen.NoImage, reason) || (seen.NoImage == "") != (reason == "") {
			t.Errorf("what is seen of %s is %q", text, seen.NoImage)
		}
		loaded, err := newEngine(t, sandbox.Config{}).Load(t.Context(), module, sandbox.Options{Name: "kept"})
		if err != nil {
			t.Fatal(reason, err)
		}
		if begins := loaded.Image(); begins.Reason != seen.NoImage || (begins.Stage == sandbox.StagePlain) != (reason != "") {
			t.Errorf("%s begins from %+v", text, begins)
		}
	}
}
