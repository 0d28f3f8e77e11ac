package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// An engine that is closed while modules are loaded, asked and closed takes nothing from
// under them, and leaves nothing on the disk.
func TestCloseWhileModulesComeAndGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for round := range 20 {
		engine, err := sandbox.New(sandbox.Config{CodeBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		begun := make(chan struct{}, 8)
		for worker := range 8 {
			group.Go(func() {
				for n := 0; ; n++ {
					module, err := engine.Load(t.Context(), typed(round<<16|worker<<8|n), sandbox.Options{Name: "guest"})
					if n == 0 {
						begun <- struct{}{}
					}
					if err == nil {
						_, err = module.Query(t.Context(), abi.Query{}, sandbox.Ports{})
						if closed := module.Close(); closed != nil {
							t.Error(closed)
						}
					}
					if errors.Is(err, abi.KindHostClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		<-begun
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// No query begins once a Close has returned, also if it was not the one that closes.
func TestNoQueryBeginsAfterClose(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	dir := filepath.Join(t.TempDir(), "cache")
	for range 50 {
		engine := newEngine(t, sandbox.Config{CacheDir: dir})
		hands := make([]*sandbox.Module, 128)
		for n := range hands {
			hands[n] = loadSaying(t, engine, "aa")
		}
		closed := func(close func() error, hands ...*sandbox.Module) {
			if err := close(); err != nil {
				t.Error(err)
			}
			for _, hand := range hands {
				if _, err := hand.Query(t.Context(), abi.Query{}, sandbox.Ports{}); !errors.Is(err, abi.KindHostClosed) {
					t.Errorf("a query after Close: %v", err)
				}
			}
		}
		begin := make(chan struct{})
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				<-begin
				closed(engine.Close, hands...)
			})
			group.Go(func() {
				<-begin
				for _, hand := range hands {
					closed(hand.Close, hand)
				}
			})
		}
		close(begin)
		group.Wait()
	}
}

// typed is the module of the specification with a function type that few others have.
func typed(n int) []byte {
	params := ""
	for ; n > 0; n /= 4 {
		params += string("\x7f\x7e\x7d\x7c"[n%4])
	}
	kind := fmt.Sprintf("\x60%c%s\x00", len(params), params)
	const section = 8 // that of the types is the first
	size, count := int(byHand[section+1]), byHand[section+2]
	return []byte(byHand[:section+1] + string([]byte{byte(size + len(kind)), count + 1}) + byHand[section+3:section+2+size] + kind + byHand[section+2+size:])
}

// A load that another process compiles for ends when the engine is closed.
func TestCloseEndsLoads(t *testing.T) {
	compiling := make(endless)
	engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir(), Compiler: compiling})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "by-hand"})
		done <- err
	}()
	<-compiling
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, abi.KindHostClosed) {
		t.Error(err)
	}
}

// endless is a compiler that tells when it has begun, and never comes to an end itself.
type endless chan struct{}

func (c endless) Compile(ctx context.Context, _ string, _ []byte) error {
	close(c)
	<-ctx.Done()
	return ctx.Err()
}

// Engines of one cache, in as many processes, come and go without being in each other's way.
func TestEnginesOfOneCacheComeAndGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 100 {
				engine, err := sandbox.New(sandbox.Config{CacheDir: dir})
				if err == nil {
					err = engine.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
