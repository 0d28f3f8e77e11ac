package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// stepped is a hand in the text format whose state is one global and its memory: what it
// has before the entry is in steps. A step adds to the global, of which it takes 16 bits, and
// writes to the memory.
const stepped = `
  (memory (export "memory") 3)
  (global $steps (mut i64) (i64.const 0))
  (func $step (param $n i64)
    (global.set $steps (i64.add (global.get $steps) (local.get $n)))
    (i64.store (i32.add (i32.const 30000) (i32.wrap_i64 (i64.rem_u (local.get $n) (i64.const 997)))) (local.get $n))
    (i64.store (i32.const 196600) (i64.add (i64.load (i32.const 196600)) (local.get $n))))
  (func $dirty (param $word i64) (global.set $steps (local.get $word)))
  (func $kept (param $word i64) (result i32) (i64.eq (global.get $steps) (local.get $word)))
  (func $state (result i64) (global.get $steps))
`

const initialises = `(func (export "_initialize") (call $step (i64.const 16)))`

// A step that cannot be in an image, and each way to fail half-way, leaves nothing behind:
// queries begin where they would without it.
func TestIsolationFromStepsThatFail(t *testing.T) {
	// warms is what the body of glovebox_warm_v1 does after it has made its own step.
	warms := func(body string) string {
		return initialises + `(func (export "glovebox_warm_v1") (call $step (i64.const 256)) (drop (memory.grow (i32.const 1))) (call $fill (i32.const 8192) (call $bytes) (i64.const 0x5ca1ab1e00000000)) ` + body + `)`
	}
	// early is true while the image is taken, and in no query: the clock tells.
	const early = `(func $early (result i32)
		(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 8000)))
		(i64.lt_u (i64.load (i32.const 8000)) (i64.const 1500000000000000000)))`
	for _, test := range []struct {
		name, text string
		stage      sandbox.Stage
		reason     string // is a part of it
		// state is what queries read; with images and without, if that is another.
		state, without uint64
	}{
		{"nothing", "", sandbox.StageInitialised, "", 0, 0},
		{"start section", `(func $begin (call $step (i64.const 1))) (start $begin)` + initialises, sandbox.StageInitialised, "", 17, 17},
		{"warm", initialises + `(func (export "glovebox_warm_v1") (call $step (i64.const 256)))`, sandbox.StageWarmed, "", 272, 16},
		{"warm takes memory", initialises + `(func (export "glovebox_warm_v1") (call $step (i64.const 256)) (call $grow (i32.const 65536) (i64.const 9)))`, sandbox.StageWarmed, "", 272, 16},
		{"warm of another type", initialises + `(func (export "glovebox_warm_v1") (result i32) (call $step (i64.const 256)) (i32.const 0))`, sandbox.StageInitialised, "", 16, 16},
		{"warm that is a global", initialises + `(export "glovebox_warm_v1" (global $steps))`, sandbox.StageInitialised, "", 16, 16},
		{"warm traps", warms(`unreachable`), sandbox.StageInitialised, "unreachable", 16, 16},
		{"warm asks for the query", warms(`(drop (call $query_read (i32.const 8000) (i32.const 8)))`), sandbox.StageInitialised, "glovebox.query_read", 16, 16},
		{"warm replies", warms(`(drop (call $reply (i32.const 8192) (i32.const 64)))`), sandbox.StageInitialised, "glovebox.reply", 16, 16},
		{"warm asks for a capability", warms(`(drop (call $files_read (i32.const 1024) (i32.const 58)))`), sandbox.StageInitialised, "glovebox_files.read", 16, 16},
		{"warm exits", warms(`(call $proc_exit (i32.const 0))`), sandbox.StageInitialised, "", 16, 16},
		{"warm never ends", warms(`(call $spin (i64.const 9))`), sandbox.StageInitialised, "fuel", 16, 16},
		{"warm recurses", warms(`(drop (call $recurse (i64.const 9)))`), sandbox.StageInitialised, "stack", 16, 16},
		{"warm reads beyond memory", warms(`(drop (i64.load (i32.const -8)))`), sandbox.StageInitialised, "out of bounds", 16, 16},
		{"initialize asks for the query", `(func (export "_initialize") (call $step (i64.const 16)) (drop (call $query_read (i32.const 8000) (i32.const 8))))` +
			`(func (export "glovebox_warm_v1") (call $step (i64.const 256)))`, sandbox.StageData, "glovebox.query_read", 16, 16},
		{"initialize traps early", early + `(func (export "_initialize") (call $step (i64.const 16)) (drop (memory.grow (i32.const 1))) (if (call $early) (then unreachable)))`,
			sandbox.StageData, "unreachable", 16, 16},
		{"initialize traps after the start section", early + `(func $begin (call $step (i64.const 1))) (start $begin)` +
			`(func (export "_initialize") (call $step (i64.const 16)) (if (call $early) (then unreachable)))`, sandbox.StageData, "unreachable", 17, 17},
		{"start section exits early", early + `(func $begin (call $step (i64.const 1)) (if (call $early) (then (call $proc_exit (i32.const 0))))) (start $begin)` + initialises,
			sandbox.StageData, "", 17, 17},
	} {
		t.Run(test.name, func(t *testing.T) {
			prelude, err := os.ReadFile(filepath.Join(isolationDir, "wat", "prelude.wat"))
			if err != nil {
				t.Fatal(err)
			}
			text := "(module" + string(prelude) + stepped + test.text + ")"
			s := specimen{name: "stepped", build: func(ctx context.Context) ([]byte, error) { return assemble(ctx, text) }}
			s.needed(t)
			var plain caged
			for n := range ways {
				way := ways[len(ways)-1-n]
				stage, state := test.stage, test.state
				if way.images == sandbox.ImagesOff {
					stage, state = sandbox.StagePlain, test.without
				}
				// Of a cache, and of the image that the first has left there.
				config := sandbox.Config{Images: way.images, CacheDir: t.TempDir()}
				for range 2 {
					c := caged{specimen: s, module: cage(t, newEngine(t, config), s, 1<<20, 20_000_000)}
					image := c.module.Image()
					if image.Stage != stage || stage != sandbox.StagePlain && (!strings.Contains(image.Reason, test.reason) || (image.Reason == "") != (stage == sandbox.StageWarmed || stage == sandbox.StageInitialised && !strings.HasPrefix(test.name, "warm "))) {
						if !strings.HasPrefix(test.name, "warm of") && !strings.HasPrefix(test.name, "warm that") || image.Stage != stage {
							t.Errorf("%s: %+v, want %s because of %q", way.name, image, stage, test.reason)
						}
					}
					for range 3 {
						r, _, err := c.read(t.Context())
						if err != nil || r.state != state || r.nonzero > 0 || r.marks > 0 {
							t.Fatalf("%s: %v, want the state %x, %v", way.name, r, state, err)
						}
						if c.first == (reading{}) {
							c.first = r
						}
						if err := c.clean(r, false); err != nil {
							t.Errorf("%s: %v", way.name, err)
						}
						if err := c.dirty(t.Context(), 1, "grow", []abi.Kind{""}, false); err != nil {
							t.Errorf("%s: %v", way.name, err)
						}
					}
					if plain.first == (reading{}) {
						plain = c
					}
					if stage != sandbox.StageWarmed && c.first != plain.first {
						t.Errorf("%s reads %v; without an image it reads %v", way.name, c.first, plain.first)
					}
				}
			}
		})
	}
}

// What a hand prints before its queries is said in each of them, or in none because it is in
// no query's log; and it is never said twice.
func TestIsolationOfWhatIsSaidBefore(t *testing.T) {
	const text = `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "\10\00\00\00\06\00\00\00early\n")
  (func (export "_initialize") (i32.store (i32.const 32) (i32.add (i32.load (i32.const 32)) (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 24)))))
  (func (export "glovebox_query_v1") (result i32) (call $reply (i32.const 16) (i32.const 5))))`
	module, err := assemble(t.Context(), text)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		loaded, err := newEngine(t, sandbox.Config{Images: way.images}).Load(t.Context(), module, sandbox.Options{Name: "early"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got, result, err := ask(t, loaded, "", sandbox.Ports{})
			if log := boundary.Neutral(result.Log); err != nil || got != "early" || log != "info: early" {
				t.Errorf("%s (%+v): it answers %q and logs %q, %v", way.name, loaded.Image(), got, log, err)
			}
		}
	}
}

// A clock that only moves on moves on from where it was when the image was taken, whether a
// hand looked at it often before or has slept for longer than the machine is awake.
func TestIsolationClockMovesOn(t *testing.T) {
	const text = `
  (memory (export "memory") 1)
  (func $now (result i64) (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 8000))) (i64.load (i32.const 8000)))
  (global $began (mut i64) (i64.const 0))
  (func $dirty (param $word i64))
  (func $kept (param $word i64) (result i32) (i32.const 1))
  (func $state (result i64) (i64.extend_i32_u (i64.lt_s (call $now) (global.get $began))))
  (func (export "_initialize") (local $i i32) (local.set $i (i32.const 100000))
    (i32.store (i32.const 2064) (i32.const 1))
    (i64.store (i32.const 2072) (i64.const 3600000000000))
    (loop $again %s
      (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (global.set $began (call $now)))
`
	for name, step := range map[string]string{
		"looked":    `(drop (call $now))`,
		"has slept": `(drop (call $poll_oneoff (i32.const 2048) (i32.const 2304) (i32.const 1) (i32.const 2496)))`,
	} {
		t.Run(name, func(t *testing.T) {
			prelude, err := os.ReadFile(filepath.Join(isolationDir, "wat", "prelude.wat"))
			if err != nil {
				t.Fatal(err)
			}
			s := specimen{name: "clock", build: func(ctx context.Context) ([]byte, error) {
				return assemble(ctx, "(module"+string(prelude)+fmt.Sprintf(text, step)+")")
			}}
			s.needed(t)
			for _, way := range ways[:2] { // without an image, it would be asleep for years
				c := caged{specimen: s, module: cage(t, newEngine(t, sandbox.Config{Images: way.images}), s, 1<<20, 0)}
				if image := c.module.Image(); image.Stage != sandbox.StageInitialised {
					t.Logf("%s: %+v", way.name, image)
					continue
				}
				if r, _, err := readIn(t.Context(), c.module, sandbox.Ports{}); err != nil || r.state != 0 {
					t.Errorf("%s: the clock went back, %v", way.name, err)
				}
				if r, _, err := c.read(t.Context()); err != nil || r.state != 0 {
					t.Errorf("%s: in a world without chance the clock went back, %v", way.name, err)
				}
			}
		})
	}
}

// A module without a memory, and one whose memory begins with nothing, have globals all the same.
func TestIsolationWithoutMemory(t *testing.T) {
	for name, memory := range map[string]string{"no memory": "", "an empty memory": `(memory (export "memory") 0) (func (export "_initialize") (drop (memory.grow (i32.const 0))))`,
		"a memory that is taken": `(memory (export "memory") 0) (func (export "_initialize") (drop (memory.grow (i32.const 2))) (i32.store (i32.const 131068) (i32.const 5)))
			(func $first (result i32) (i32.load (i32.const 131068)))`} {
		t.Run(name, func(t *testing.T) {
			first := "(i32.const 5)"
			if strings.Contains(memory, "$first") {
				first = "(call $first) (i32.store (i32.const 131068) (i32.const 77))"
			}
			// It fails with what it counts as its status: 5 + 1.
			module, err := assemble(t.Context(), `(module `+memory+` (global $n (mut i32) (i32.const 0))
				(func (export "glovebox_query_v1") (result i32) (global.set $n (i32.add (global.get $n) (i32.const 1))) `+first+` (i32.add (global.get $n))))`)
			if errors.Is(err, exec.ErrNotFound) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			for _, way := range ways {
				loaded, err := newEngine(t, sandbox.Config{Images: way.images}).Load(t.Context(), module, sandbox.Options{Name: "counts"})
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if _, err := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{}); !errors.Is(err, abi.KindHandFailed) || !strings.HasSuffix(err.Error(), "status 6") {
						t.Errorf("%s (%+v): %v", way.name, loaded.Image(), err)
					}
				}
			}
		})
	}
}

// An engine whose memory is used up by others refuses to let a hand grow in the middle of
// what it does; that leaves nothing behind either.
func TestIsolationWhileMemoryIsShort(t *testing.T) {
	s := specimens[0]
	s.needed(t)
	for _, way := range ways {
		c, fuel := firstOf(t, sandbox.Config{Images: way.images}, s, s.memory[1])
		c.module = cage(t, newEngine(t, sandbox.Config{Images: way.images, MemoryBytes: 2*s.memory[1] + 1<<16}), s, s.memory[1], fuel)
		for n := range 20 {
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					if err := c.dirty(t.Context(), n, "grow", []abi.Kind{"", abi.KindOutOfMemory, abi.KindHandFailed}, false); err != nil {
						t.Errorf("%s: %v", way.name, err)
					}
				})
			}
			group.Wait()
			if err := c.readClean(t.Context(), false); err != nil {
				t.Fatalf("%s: %v", way.name, err)
			}
		}
	}
}

// A step that was refused memory because others had it is not carried, though it went on:
// queries for which there is room are as if there had been room before.
func TestIsolationFromStepsForWhichMemoryIsShort(t *testing.T) {
	var modules [2][]byte
	for n, text := range []string{
		`(module (import "glovebox_files" "read" (func $read (param i32 i32) (result i32)))
			(memory (export "memory") 8) (data (i32.const 0) "{\22path\22:\22pause\22,\22offset\22:0,\22length\22:1}")
			(func (export "glovebox_query_v1") (result i32) (drop (call $read (i32.const 0) (i32.const 38))) (i32.const 0)))`,
		// It fails with what it was answered as its status: the pages that it had.
		`(module (memory (export "memory") 3) (global $had (mut i32) (i32.const 0))
			(func (export "_initialize") (global.set $had (memory.grow (i32.const 6))))
			(func (export "glovebox_query_v1") (result i32) (global.get $had)))`,
	} {
		var err error
		if modules[n], err = assemble(t.Context(), text); errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range ways {
		config := sandbox.Config{Images: way.images, MemoryBytes: 12 << 16, CacheDir: t.TempDir()}
		engine := newEngine(t, config)
		holds, err := engine.Load(t.Context(), modules[0], sandbox.Options{Name: "holds", Granted: []abi.Capability{abi.CapabilityFiles}})
		if err != nil {
			t.Fatal(err)
		}
		asks := func(engine *sandbox.Engine) (asked func(), begins sandbox.ImageInfo) {
			module, err := engine.Load(t.Context(), modules[1], sandbox.Options{Name: "grows"})
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := module.Query(t.Context(), abi.Query{}, sandbox.Ports{}); !errors.Is(err, abi.KindHandFailed) || !strings.HasSuffix(err.Error(), "status 3") {
					t.Errorf("%s (%+v): %v", way.name, module.Image(), err)
				}
			}, module.Image()
		}
		var asked func()
		if _, err := holds.Query(t.Context(), abi.Query{}, sandbox.Ports{Files: door{"pause": func() { asked, _ = asks(engine) }}}); err != nil || asked == nil {
			t.Fatal(way.name, err)
		}
		asked()
		again, begins := asks(newEngine(t, config))
		if again(); way.images != sandbox.ImagesOff && begins.Stage != sandbox.StageInitialised {
			t.Errorf("%s: where there is room it begins from %+v", way.name, begins)
		}
	}
}

// Modules of the same code share what they begin from, and one goes while another is asked:
// nothing is taken from under it.
func TestIsolationWhileModulesComeAndGo(t *testing.T) {
	s := specimens[0]
	s.needed(t)
	for _, way := range ways {
		c, fuel := firstOf(t, sandbox.Config{Images: way.images}, s, s.memory[0])
		engine := newEngine(t, sandbox.Config{Images: way.images})
		var group sync.WaitGroup
		for worker := range 8 {
			group.Go(func() {
				for n := range 20 {
					c := c
					c.module = cage(t, engine, s, s.memory[0], fuel)
					if err := c.dirty(t.Context(), worker<<8|n, "wait", []abi.Kind{""}, false); err != nil {
						t.Errorf("%s: %v", way.name, err)
					}
					if err := c.readClean(t.Context(), false); err != nil {
						t.Errorf("%s: %v", way.name, err)
					}
					if err := c.module.Close(); err != nil {
						t.Errorf("%s: %v", way.name, err)
					}
				}
			})
		}
		group.Wait()
	}
}

// A module that is loaded when its engine is closed is refused, and the engine still answers.
func TestLoadAfterClose(t *testing.T) {
	engine, err := sandbox.New(sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "by-hand"})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "by-hand"})
		_, asked := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{})
		done <- errors.Join(err, asked)
	}()
	select {
	case err := <-done:
		if !errors.Is(err, abi.KindHostClosed) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for ever")
	}
}

// treeOf maps the files of a folder to their content.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// imagesInMemory are the files without a name that this process maps images from.
func imagesInMemory(t *testing.T) map[string][]byte {
	t.Helper()
	images := map[string][]byte{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join("/proc/self/fd", e.Name())
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "/memfd:glovebox-image") {
			if images[path], err = os.ReadFile(path); err != nil {
				t.Error(err)
			}
		}
	}
	return images
}

// An image is taken before any query: nothing of one is in it, nor of what is configured or
// secret, nor of the host's environment; and no query changes it.
func TestIsolationOfImagesFromQueries(t *testing.T) {
	const secret = "hunter2-8f14e45fceea167a"
	t.Setenv("GLOVEBOX_ISOLATION_SECRET", secret)
	dir := t.TempDir()
	for _, s := range specimens {
		if s.name == "go-command" {
			continue // compiles for a second, to begin with its data alone
		}
		t.Run(s.name, func(t *testing.T) {
			s.needed(t)
			engine := newEngine(t, sandbox.Config{CacheDir: dir})
			c := caged{specimen: s, module: cage(t, engine, s, s.memory[0], 0)}
			files, images := treeOf(t, dir), imagesInMemory(t)
			first, _, err := c.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// Small ones are copied.
			if s.stage != sandbox.StagePlain && runtime.GOOS == "linux" && first.pages > 2 && len(images) == 0 {
				t.Error("no image is mapped")
			}
			for n := range 10 {
				for _, mode := range []string{"answer", "half", "wait", "grow"} {
					word := fmt.Sprintf("%08x%08x", mark, n)
					q := asked("dirty "+word+" "+mode+" "+secret, secret)
					q.Config = map[string]any{"token": secret, "list": []string{secret}}
					if _, err := c.module.Query(t.Context(), q, sandbox.Ports{Files: door{}}); err != nil && !errors.Is(err, abi.KindTrap) {
						t.Error(mode, err)
					}
				}
			}
			word := []byte{0x1e, 0xab, 0xa1, 0x5c}
			for path, content := range treeOf(t, dir) {
				if files[path] != content {
					t.Errorf("%s was changed by queries", path)
				}
				if strings.Contains(content, secret) || strings.HasSuffix(path, "image") && bytes.Contains([]byte(content), word) {
					t.Errorf("%s holds what was asked", path)
				}
			}
			for path, content := range imagesInMemory(t) {
				if !bytes.Equal(images[path], content) || bytes.Contains(content, []byte(secret)) || bytes.Contains(content, word) {
					t.Errorf("an image in memory holds what was asked")
				}
				// Nobody can write to it, this process included.
				if file, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
					if _, err := file.WriteAt(word, 8192); err == nil {
						t.Error("an image in memory can be written to")
					}
					file.Close()
				}
			}
		})
	}
}

// A module can be loaded beside itself so that its queries run from its start, as they do
// without images: of the same code, and whichever comes first.
func TestModulesFromTheirStart(t *testing.T) {
	module, err := assemble(t.Context(), `(module
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "cold")
  (func (export "_initialize")
    (drop (call $random_get (i32.const 0) (i32.const 8)))
    (i64.store (i32.const 0) (i64.add (i64.const 0x6161616161616161) (i64.and (i64.load (i32.const 0)) (i64.const 0x0f0f0f0f0f0f0f0f)))))
  (func (export "glovebox_warm_v1") (i32.store (i32.const 8) (i32.const 0x6d726177)))
  (func (export "glovebox_query_v1") (result i32) (call $reply (i32.const 0) (i32.const 12))))`)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	load := func(engine *sandbox.Engine, fromStart bool) *sandbox.Module {
		t.Helper()
		loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: "drawn", FromStart: fromStart})
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	ask := func(loaded *sandbox.Module, seed uint64) (reply string, fuel int64) {
		t.Helper()
		r, err := loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{Fixed: &sandbox.Fixed{Now: time.Unix(1_800_000_000, 0), Seed: seed}})
		if err != nil {
			t.Fatal(err)
		}
		return boundary.Neutral(r.Reply), r.Fuel
	}
	plain := load(newEngine(t, sandbox.Config{Images: sandbox.ImagesOff}), false)
	for _, way := range ways[:2] {
		for _, first := range []bool{false, true} {
			// No code is kept that can be loaded again; the image that is kept is not that of one from its start.
			config := sandbox.Config{Images: way.images, CacheDir: t.TempDir(), CodeBytes: 1}
			engine := newEngine(t, config)
			loaded := map[bool]*sandbox.Module{first: load(engine, first)}
			loaded[!first] = load(engine, !first)
			if i, s := loaded[false].Image(), loaded[true].Image(); i.Stage != sandbox.StageWarmed || s.Stage != sandbox.StageData || s.Reason != "" {
				t.Errorf("%s: one begins from %+v, and from its start from %+v", way.name, i, s)
			}
			before, _ := ask(loaded[false], 1)
			if again, _ := ask(loaded[false], 2); again != before || !strings.HasSuffix(before, "warm") {
				t.Errorf("%s: from its image it answers %q and %q", way.name, before, again)
			}
			// What frees one leaves the other its code.
			if err := loaded[false].Close(); err != nil {
				t.Error(err)
			}
			drawn := map[string]bool{}
			for seed := range uint64(3) {
				reply, fuel := ask(loaded[true], seed)
				if without, took := ask(plain, seed); reply != without || fuel != took || !strings.HasSuffix(reply, "cold") {
					t.Errorf("%s: from its start it answers %q with %d units; without images %q with %d", way.name, reply, fuel, without, took)
				}
				drawn[reply] = true
			}
			if len(drawn) != 3 {
				t.Errorf("%s: with 3 seeds it answers %v", way.name, drawn)
			}
			if seals, err := filepath.Glob(filepath.Join(config.CacheDir, "*", "*", "seal")); err != nil || len(seals) != 1 {
				t.Errorf("%s: it is kept as %v, %v", way.name, seals, err)
			}
			if i := load(newEngine(t, config), false).Image(); i.Stage != sandbox.StageWarmed {
				t.Errorf("%s: what is kept is %+v", way.name, i)
			}
		}
	}
}
