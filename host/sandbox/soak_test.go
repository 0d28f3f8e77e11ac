package sandbox_test

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

var soak = flag.Int("soak", 400, "queries of TestSoak; 10000 is the whole of it")

// H13: many queries of honest and hostile hands, eight at a time. The honest
// ones are answered throughout, and neither memory nor goroutines grow.
func TestSoak(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	limits := abi.Limits{Timeout: 100 * time.Millisecond, Concurrent: 8, MemoryBytes: 16 << 20}
	goHand := load(t, engine, build.Reactor, abi.Limits{Concurrent: 8})
	modules := []*sandbox.Module{goHand}
	honest := map[*sandbox.Module]string{goHand: "hello"}
	small, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "by-hand", Limits: abi.Limits{Concurrent: 8}})
	if err != nil {
		t.Fatal(err)
	}
	honest[small] = "hi"
	modules = append(modules, small, small, small)
	for _, name := range []string{"trap", "exit", "recursion", "memory-grow", "reply-flood", "log-flood", "call-storm", "call-tree", "loop", "fills"} {
		module, err := engine.Load(t.Context(), readHostile(t, name), sandbox.Options{Name: "hostile", Limits: limits, Granted: abi.Capabilities(), Trusted: true})
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, module)
	}
	goroutines := runtime.NumGoroutine()

	var next atomic.Int64
	var mu sync.Mutex
	var peaks [2]int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= *soak {
					return
				}
				module := modules[n%len(modules)]
				result, err := module.Query(t.Context(), abi.Query{Prompt: "say hello"}, sandbox.Ports{})
				if want, ok := honest[module]; ok && (err != nil || boundary.Neutral(result.Reply) != want) {
					t.Errorf("query %d: %q, %v", n, boundary.Neutral(result.Reply), err)
				}
				// The first tenth fills pools and heaps.
				if resident, ok := residentBytes(); ok && n > *soak/10 {
					mu.Lock()
					half := min(2*n / *soak, 1)
					peaks[half] = max(peaks[half], resident)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d queries; resident at most %d MiB in the first half, %d MiB in the second", *soak, peaks[0]>>20, peaks[1]>>20)
	if *soak >= 5000 && peaks[1] > peaks[0]+peaks[0]/20 {
		t.Errorf("memory grows: %d MiB, then %d MiB", peaks[0]>>20, peaks[1]>>20)
	}
	deadline := time.Now().Add(2 * time.Second)
	for runtime.NumGoroutine() > goroutines+2 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
		runtime.Gosched()
	}
}
