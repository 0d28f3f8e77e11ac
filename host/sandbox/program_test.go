package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
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

// Queries of many hands, all over the bound, while others are loaded and closed.
func TestCodeIsDroppedWhileOthersAsk(t *testing.T) {
	engine := newEngine(t, sandbox.Config{CodeBytes: 1})
	var group sync.WaitGroup
	for i := range 6 {
		letters := strings.Repeat(string(rune('a'+i%3)), 2)
		group.Go(func() {
			for range 20 {
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
