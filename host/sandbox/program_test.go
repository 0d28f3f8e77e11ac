package sandbox_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// saying is the module of the specification with two letters of its own, and the
// memory of a larger one, so that its image is mapped.
func saying(letters string) []byte {
	larger := strings.Replace(byHand, "\x05\x03\x01\x00\x01", "\x05\x03\x01\x00\x04", 1)
	return []byte(strings.Replace(larger, "hi", letters, 1))
}

func loadSaying(t *testing.T, engine *sandbox.Engine, letters string) *sandbox.Module {
	t.Helper()
	module, err := engine.Load(t.Context(), saying(letters), sandbox.Options{Name: "says-" + letters})
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// entriesOf lists what a cache holds of modules.
func entriesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9a-f]", 64)))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// Code over the bound is dropped, the least lately used first, and loaded again from
// the cache when its hand is asked.
func TestIdleCodeIsDropped(t *testing.T) {
	for _, images := range []sandbox.Images{sandbox.ImagesMapped, sandbox.ImagesCopied, sandbox.ImagesOff} {
		dir := filepath.Join(t.TempDir(), "cache")
		engine := newEngine(t, sandbox.Config{CacheDir: dir, CodeBytes: 1, Images: images})
		first := loadSaying(t, engine, "aa")
		begins := first.Image()
		dropped := entriesOf(t, dir)
		second := loadSaying(t, engine, "bb")
		for range 3 {
			for _, module := range []*sandbox.Module{first, second, second} {
				want := strings.TrimPrefix(module.Name(), "says-")
				if got, _, err := ask(t, module, "x", sandbox.Ports{}); err != nil || got != want {
					t.Errorf("%s says %q, %v", module.Name(), got, err)
				}
			}
		}
		if first.Image() != begins {
			t.Errorf("it began from %+v, and now from %+v", begins, first.Image())
		}
		// That it was dropped shows when it cannot be loaded again.
		if len(dropped) != 1 || os.RemoveAll(dropped[0]) != nil {
			t.Fatal(dropped)
		}
		if _, err := first.Query(t.Context(), abi.Query{}, sandbox.Ports{}); !errors.Is(err, abi.KindUnavailable) || !strings.Contains(err.Error(), "load the hand anew") {
			t.Errorf("without its entry: %v", err)
		}
		if again := loadSaying(t, engine, "aa"); again.Image() != begins {
			t.Errorf("loaded anew it begins from %+v", again.Image())
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A module whose dropped code is no longer in the cache, or not whole there, is there again
// once its hand is loaded anew, also beside the one that was loaded before.
func TestLostCodeIsLoadedAnew(t *testing.T) {
	remove := func(path string) error { return os.RemoveAll(filepath.Dir(path)) }
	truncate := func(path string) error { return os.Truncate(path, 100) }
	for _, c := range []struct {
		name, file string
		lose       func(path string) error
		asked      bool
	}{{"removed", "seal", remove, false}, {"removed and asked", "seal", remove, true}, {"no code", "module.wasm", truncate, true}, {"no image", "image", truncate, true}} {
		dir := filepath.Join(t.TempDir(), "cache")
		engine := newEngine(t, sandbox.Config{CacheDir: dir, CodeBytes: 1})
		first := loadSaying(t, engine, "aa")
		if first.Lost() {
			t.Errorf("%s: it is lost before", c.name)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*", "*", c.file))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if err := c.lose(files[0]); err != nil {
			t.Fatal(err)
		}
		if c.asked {
			if _, _, err := ask(t, first, "x", sandbox.Ports{}); !errors.Is(err, abi.KindUnavailable) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if !first.Lost() {
			t.Errorf("%s: it is not lost", c.name)
		}
		second := loadSaying(t, engine, "aa")
		for _, module := range []*sandbox.Module{second, first, second} {
			if got, _, err := ask(t, module, "x", sandbox.Ports{}); err != nil || got != "aa" || module.Lost() {
				t.Errorf("%s: loaded anew it says %q, %v", c.name, got, err)
			}
		}
		for _, module := range []*sandbox.Module{first, second} {
			if err := module.Close(); err != nil {
				t.Error(err)
			}
		}
		if left := engine.CodeLoaded(); left != 0 {
			t.Errorf("%s: %d bytes of code are left of hands that are closed", c.name, left)
		}
	}
}

// Code that could not be loaded again is not dropped.
func TestCodeWithoutItsEntryStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	engine := newEngine(t, sandbox.Config{CacheDir: dir, CodeBytes: 1})
	first, entry := loadNew(t, engine, dir, "aa")
	for _, lost := range []bool{false, true} {
		if got, _, err := ask(t, first, "x", sandbox.Ports{}); err != nil || got != "aa" {
			t.Fatalf("it says %q, %v", got, err)
		}
		if lost {
			if err := os.RemoveAll(entry); err != nil {
				t.Fatal(err)
			}
		}
		loadSaying(t, engine, "bb")
		if first.Dropped() == lost {
			t.Errorf("its entry is gone: %v; it is dropped: %v", lost, first.Dropped())
		}
	}
	if got, _, err := ask(t, first, "x", sandbox.Ports{}); err != nil || got != "aa" {
		t.Errorf("without its entry it says %q, %v", got, err)
	}
}

// loadNew loads a module that a cache does not have, and tells its entry.
func loadNew(t *testing.T, engine *sandbox.Engine, dir, letters string) (module *sandbox.Module, entry string) {
	t.Helper()
	before := entriesOf(t, dir)
	module = loadSaying(t, engine, letters)
	added := slices.DeleteFunc(entriesOf(t, dir), func(entry string) bool { return slices.Contains(before, entry) })
	if len(added) != 1 {
		t.Fatalf("it adds the entries %q", added)
	}
	return module, added[0]
}

// codeOf is what the code of a module in a cache counts as.
func codeOf(t *testing.T, letters string) int64 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	module, entry := loadNew(t, newEngine(t, sandbox.Config{CacheDir: dir}), dir, letters)
	bytes := module.Image().Bytes
	if err := filepath.WalkDir(entry, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "seal" || d.Name() == "image" || d.Name() == "lock" {
			return err
		}
		info, err := d.Info()
		bytes += info.Size()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// Of code that nobody has asked for yet, or for ten minutes, a sixth of the bound stays:
// what was used last. Code that was asked for since then stays whatever it takes.
func TestIdleCodeIsDroppedInTime(t *testing.T) {
	code := codeOf(t, "aa")
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "cache")
		engine := newEngine(t, sandbox.Config{CacheDir: dir, CodeBytes: 6 * (2*code + code/2)})
		all := []string{"aa", "bb", "cc", "dd"}
		modules := map[string]*sandbox.Module{}
		for _, letters := range all {
			modules[letters] = loadSaying(t, engine, letters)
			time.Sleep(time.Second)
		}
		dropped := func(when, want string) {
			t.Helper()
			synctest.Wait()
			var are []string
			for _, letters := range all {
				if modules[letters].Dropped() {
					are = append(are, letters)
				}
			}
			if got := strings.Join(are, " "); got != want {
				t.Errorf("%s: %q are dropped, want %q", when, got, want)
			}
		}
		asked := func(letters string) {
			t.Helper()
			if got, _, err := ask(t, modules[letters], "x", sandbox.Ports{}); err != nil || got != letters {
				t.Errorf("%q says %q, %v", letters, got, err)
			}
		}
		dropped("never asked", "aa bb")
		for _, letters := range []string{"bb", "aa", "dd", "cc"} {
			asked(letters)
			time.Sleep(time.Second)
		}
		dropped("all asked", "")
		time.Sleep(8 * time.Minute)
		dropped("after eight minutes", "")
		asked("bb")
		time.Sleep(time.Minute)
		dropped("after nine minutes", "")
		time.Sleep(2 * time.Minute)
		dropped("after eleven minutes", "aa")
		asked("dd")
		time.Sleep(8 * time.Minute)
		dropped("one within its ten minutes", "aa")
		time.Sleep(3 * time.Minute)
		dropped("all are idle", "aa cc")
		time.Sleep(24 * time.Hour)
		dropped("a day later", "aa cc")
		for _, letters := range all {
			asked(letters)
		}
		dropped("asked again", "")
		closing := time.Now()
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(closing); took != 0 {
			t.Errorf("to close takes %v", took)
		}
	})
}

// What a query is in is not idle; its ten minutes begin when the query is over.
func TestRunningCodeIsNotDropped(t *testing.T) {
	built, err := guests()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "cache")
		engine := newEngine(t, sandbox.Config{CacheDir: dir, CodeBytes: 32 << 20})
		module, err := engine.Load(t.Context(), built[build.Reactor], sandbox.Options{Name: "guest", Granted: abi.Capabilities(), Trusted: true, Limits: abi.Limits{Timeout: 5 * time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if !module.Dropped() {
			t.Error("it takes more than idle code may, and was never asked")
		}
		started, release := make(chan struct{}), make(chan struct{})
		done := make(chan error)
		go func() {
			_, err := module.Query(t.Context(), abi.Query{Prompt: "read docs a"}, sandbox.Ports{Files: waitingFiles{started: started, release: release}})
			done <- err
		}()
		<-started
		time.Sleep(4 * time.Minute)
		if module.Dropped() {
			t.Error("it is dropped under a query")
		}
		close(release)
		if err := <-done; !errors.Is(err, abi.KindHandFailed) {
			t.Errorf("without the file: %v", err)
		}
		time.Sleep(9 * time.Minute)
		if module.Dropped() {
			t.Error("it is dropped nine minutes after the query")
		}
		time.Sleep(2 * time.Minute)
		if !module.Dropped() {
			t.Error("it is not dropped eleven minutes after the query")
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A query that only waits for a place keeps no code in memory: a crowd of them would keep
// the code of all their hands.
func TestWaitingQueryKeepsNoCode(t *testing.T) {
	built, err := guests()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache"), CodeBytes: 1, InFlight: 1, MaxWait: time.Minute})
		var hands [2]*sandbox.Module
		for n := range hands {
			limits := abi.Limits{Timeout: time.Minute, MemoryBytes: 64<<20 + int64(n)<<20}
			var err error
			if hands[n], err = engine.Load(t.Context(), built[build.Reactor], sandbox.Options{Name: "guest", Granted: abi.Capabilities(), Trusted: true, Limits: limits}); err != nil {
				t.Fatal(err)
			}
		}
		// Each waits for its file where it is answered, and in turn for the only place.
		type asked struct {
			started, release chan struct{}
			done             chan error
		}
		ask := func(hand *sandbox.Module) asked {
			a := asked{make(chan struct{}), make(chan struct{}), make(chan error, 1)}
			go func() {
				_, err := hand.Query(t.Context(), abi.Query{Prompt: "read docs a"}, sandbox.Ports{Files: waitingFiles{started: a.started, release: a.release}})
				a.done <- err
			}()
			synctest.Wait()
			return a
		}
		first, other, again := ask(hands[0]), ask(hands[1]), ask(hands[0])
		if hands[0].Dropped() || !hands[1].Dropped() {
			t.Fatal("not the first is in memory, and it alone")
		}
		close(first.release)
		<-other.started
		if !hands[0].Dropped() {
			t.Error("a query that waits for a place has its code kept")
		}
		close(other.release)
		<-again.started
		close(again.release)
		for _, a := range []asked{first, other, again} {
			if err := <-a.done; !errors.Is(err, abi.KindHandFailed) {
				t.Errorf("without the file: %v", err)
			}
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Queries that come at the very moment at which their code is dropped.
func TestIdleCodeIsDroppedAsItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache"), CodeBytes: 1})
		var group sync.WaitGroup
		for i := range 6 {
			letters := strings.Repeat(string(rune('a'+i%3)), 2)
			module := loadSaying(t, engine, letters)
			group.Go(func() {
				for range 60 {
					time.Sleep(time.Minute)
					result, err := module.Query(t.Context(), abi.Query{}, sandbox.Ports{})
					if err != nil || boundary.Neutral(result.Reply) != letters {
						t.Errorf("%q, %v", boundary.Neutral(result.Reply), err)
					}
				}
			})
		}
		group.Wait()
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A query that is over while another loads its code again is told so at once.
func TestQueryEndsWhileItsCodeIsLoadedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache"), CodeBytes: 1})
		module := loadSaying(t, engine, "aa")
		release := module.HoldLoadingAgain()
		for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			done := make(chan error)
			go func() {
				_, err := module.Query(ctx, abi.Query{}, sandbox.Ports{})
				done <- err
			}()
			if want == context.Canceled {
				synctest.Wait()
				cancel()
			}
			if err := <-done; !errors.Is(err, want) || !errors.Is(err, abi.KindTimeout) {
				t.Errorf("%v, want %v", err, want)
			}
			cancel()
		}
		release()
		if got, _, err := ask(t, module, "x", sandbox.Ports{}); err != nil || got != "aa" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// What is within the bound stays.
func TestCodeWithinTheBoundStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	engine := newEngine(t, sandbox.Config{CacheDir: dir})
	first, _ := loadSaying(t, engine, "aa"), loadSaying(t, engine, "bb")
	for _, entry := range entriesOf(t, dir) {
		if err := os.RemoveAll(entry); err != nil {
			t.Fatal(err)
		}
	}
	if got, _, err := ask(t, first, "x", sandbox.Ports{}); err != nil || got != "aa" {
		t.Errorf("%q, %v", got, err)
	}
}

// Queries of many hands, all over the bound, while others are loaded and closed: so often
// that some begin at the moment at which their code was to be dropped.
func TestCodeIsDroppedWhileOthersAsk(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	engine := newEngine(t, sandbox.Config{CacheDir: t.TempDir(), CodeBytes: 1})
	var group sync.WaitGroup
	for i := range 8 {
		letters := strings.Repeat(string(rune('a'+i%3)), 2)
		group.Go(func() {
			for range 2000 {
				module, err := engine.Load(t.Context(), saying(letters), sandbox.Options{Name: "guest"})
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 {
					result, err := module.Query(t.Context(), abi.Query{}, sandbox.Ports{})
					if err != nil || boundary.Neutral(result.Reply) != letters {
						t.Errorf("%q, %v", boundary.Neutral(result.Reply), err)
					}
				}
				if err := module.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if left := engine.CodeLoaded(); left != 0 {
		t.Errorf("%d bytes of code are left of hands that are closed", left)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

// Modules that are the same code to the engine, and no more than that, are loaded at
// once: none is asked before the engine is done with what they share.
func TestSameCodeIsLoadedAtOnce(t *testing.T) {
	for _, images := range []sandbox.Images{sandbox.ImagesMapped, sandbox.ImagesOff} {
		engine := newEngine(t, sandbox.Config{CacheDir: t.TempDir(), Images: images})
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				limits := abi.Limits{MemoryBytes: int64(i+1) << 20}
				for range 150 {
					module, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "guest", Limits: limits})
					if err != nil {
						t.Error(err)
						return
					}
					result, err := module.Query(t.Context(), abi.Query{}, sandbox.Ports{})
					if err != nil || boundary.Neutral(result.Reply) != "hi" {
						t.Errorf("%q, %v", boundary.Neutral(result.Reply), err)
					}
					if err := module.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
	}
}

// A cache that is removed under an engine is made anew: what is loaded stays, and more can
// be loaded.
func TestCacheIsRemovedUnderAnEngine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	engine := newEngine(t, sandbox.Config{CacheDir: dir})
	first := loadSaying(t, engine, "aa")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, module := range []*sandbox.Module{first, loadSaying(t, engine, "bb"), loadSaying(t, engine, "aa")} {
		want := strings.TrimPrefix(module.Name(), "says-")
		if got, _, err := ask(t, module, "x", sandbox.Ports{}); err != nil || got != want {
			t.Errorf("%s says %q, %v", module.Name(), got, err)
		}
	}
}
