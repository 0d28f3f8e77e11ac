package sandbox_test

import (
	"errors"
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

// soaked are the hostile modules of the soak: some of each way to end.
var soaked = []string{
	"trap", "trap-start", "exit", "exit-deadline", "recursion", "recursion-vectors", "memory-grow", "memory-grow-one", "table-grow-each",
	"reply-flood", "log-flood", "fail-flood", "call-storm", "requests", "call-tree", "loop", "loop-references", "loop-initialize", "fills", "sleep",
}

// H13: many queries of honest and hostile hands, eight at a time, while other
// modules are loaded and refused. The honest hands are answered throughout, each
// hostile one ends in its own way, and neither memory nor goroutines grow.
func TestSoak(t *testing.T) {
	queries, timeout := *soak, 20*time.Second
	if raced() {
		queries, timeout = min(queries, 120), 5*time.Minute
	}
	engine := newEngine(t, sandbox.Config{})
	goHand := load(t, engine, build.Reactor, abi.Limits{Concurrent: 8})
	small, err := engine.Load(t.Context(), []byte(byHand), sandbox.Options{Name: "by-hand", Limits: abi.Limits{Concurrent: 8}})
	if err != nil {
		t.Fatal(err)
	}
	type guest struct {
		name   string
		module *sandbox.Module
		// answer is what it says; kind how it ends otherwise.
		answer string
		kind   abi.Kind
	}
	var guests []guest
	for _, name := range soaked {
		limits := abi.Limits{Timeout: timeout, Concurrent: 8, MemoryBytes: 64 << 20}
		if hostile[name].kind == abi.KindTimeout {
			limits.Timeout = 100 * time.Millisecond
		}
		module, err := engine.Load(t.Context(), readHostile(t, name), sandbox.Options{Name: "hostile", Limits: limits, Granted: abi.Capabilities(), Trusted: true})
		if err != nil {
			t.Fatal(name, err)
		}
		guests = append(guests, guest{name: name, module: module, kind: hostile[name].kind},
			guest{name: "by-hand", module: small, answer: "hi"}, guest{name: "go", module: goHand, answer: "hello"})
	}
	refused := readHostile(t, "index-global")
	loaded := readHostile(t, "bulk-overlap")
	goroutines := runtime.NumGoroutine()

	// Only the second half's peaks are held against the first half's, and the
	// first tenth fills pools and heaps.
	type peaks struct{ resident, goroutines int64 }
	var mu sync.Mutex
	var halves [2]peaks
	var next atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= queries {
					return
				}
				g := guests[n%len(guests)]
				result, err := g.module.Query(t.Context(), abi.Query{Prompt: "say hello"}, sandbox.Ports{})
				if abi.KindOf(err) != g.kind || g.answer != "" && boundary.Neutral(result.Reply) != g.answer {
					t.Errorf("query %d, %s: %q, %v", n, g.name, boundary.Neutral(result.Reply), err)
				}
				if n%10 == 0 {
					if _, err := engine.Load(t.Context(), refused, sandbox.Options{Name: "refused"}); !errors.Is(err, abi.KindBadModule) {
						t.Errorf("query %d: %v", n, err)
					}
					if module, err := engine.Load(t.Context(), loaded, sandbox.Options{Name: "passing"}); err != nil {
						t.Errorf("query %d: %v", n, err)
					} else if err := module.Close(); err != nil {
						t.Errorf("query %d: %v", n, err)
					}
				}
				if n > queries/10 {
					resident, _ := residentBytes()
					mu.Lock()
					half := &halves[min(2*n/queries, 1)]
					half.resident = max(half.resident, resident)
					half.goroutines = max(half.goroutines, int64(runtime.NumGoroutine()))
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	first, second := halves[0], halves[1]
	t.Logf("%d queries; at most %d MiB resident and %d goroutines in the first half, %d MiB and %d in the second",
		queries, first.resident>>20, first.goroutines, second.resident>>20, second.goroutines)
	// A short run has few peaks, of which two memories more or less decide; had each
	// query kept its own, there were a dozen more.
	slack := first.resident / 20
	if queries < 5000 {
		slack = 128 << 20
	}
	if second.resident > first.resident+slack && !raced() { // the detector keeps what it has seen
		t.Errorf("memory grows: %d MiB, then %d MiB", first.resident>>20, second.resident>>20)
	}
	if second.goroutines > first.goroutines+first.goroutines/20+8 {
		t.Errorf("goroutines grow: %d, then %d", first.goroutines, second.goroutines)
	}
	settle(t, goroutines)
}
