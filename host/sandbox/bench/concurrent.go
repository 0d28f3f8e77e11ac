package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
)

// inFlight are how many queries are asked at once.
var inFlight = []int{1, 2, 8, 64}

// loadWindow is short, so that each host has many and one in which the machine
// did something else does not tell.
const loadWindow = 50 * time.Millisecond

// hostHeap is about what the Go heap of a host has with the bundled hands loaded, in
// bytes. How often garbage is collected depends on it: of 14 KB that a query of the
// trivial hand takes, the engine takes 12 for the guest's stack and its registers, and
// a process that holds nothing else collects every 200 queries.
const hostHeap = 16 << 20

// loadFigures are what came of several windows.
type loadFigures struct {
	rates []float64 // queries per second of each window
	took  []time.Duration
}

// underLoad lets the contenders run in rotation for a window each, with so many
// goroutines. The first window of each is not counted.
func underLoad(ctx context.Context, list []contender, goroutines int, budget time.Duration) ([]loadFigures, error) {
	figures := make([]loadFigures, len(list))
	asks := make([][]ask, len(list))
	for i, c := range list {
		for range goroutines {
			ask, err := c.worker(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.host, err)
			}
			asks[i] = append(asks[i], ask)
		}
	}
	end := time.Now().Add(budget)
	for round := 0; round < 2 || time.Now().Before(end); round++ {
		for i, c := range list {
			rate, took, err := askForAWindow(ctx, asks[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.host, err)
			}
			if round > 0 {
				figures[i].rates = append(figures[i].rates, rate)
				figures[i].took = append(figures[i].took, took...)
			}
		}
	}
	return figures, nil
}

func askForAWindow(ctx context.Context, asks []ask) (rate float64, took []time.Duration, err error) {
	var wait sync.WaitGroup
	each := make([][]time.Duration, len(asks))
	errs := make([]error, len(asks))
	began := time.Now()
	for i, ask := range asks {
		wait.Go(func() {
			for last := began; errs[i] == nil && last.Sub(began) < loadWindow; {
				errs[i] = ask(ctx, plain)
				now := time.Now()
				each[i] = append(each[i], now.Sub(last))
				last = now
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(began)
	took = slices.Concat(each...)
	return float64(len(took)) / elapsed.Seconds(), took, errors.Join(errs...)
}

// printConcurrent prints a row for each guest and host and a column for each
// number of queries in flight.
func printConcurrent(ctx context.Context, w io.Writer, o options) error {
	heap := make([]byte, hostHeap)
	defer runtime.KeepAlive(heap)
	list := hostsNamed("glovebox", "wazero", "extism", "extism-reuse", "wapc")
	fmt.Fprintf(w, "\n### In flight at once, beside a heap of %d MiB: queries per second (p50 / p99 in µs)\n\n| guest | host |", len(heap)>>20)
	rule := "|---|---|"
	for _, n := range inFlight {
		fmt.Fprintf(w, " %d |", n)
		rule += "---|"
	}
	fmt.Fprintf(w, "\n%s\n", rule)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		contenders, reasons, err := contenders(ctx, l, list, setup{atOnce: inFlight[len(inFlight)-1]})
		if err != nil {
			return nil, err
		}
		rows := make([]string, len(contenders))
		for _, n := range inFlight {
			figures, err := underLoad(ctx, contenders, n, o.budget/2)
			if err != nil {
				return nil, errors.Join(err, closeAll(contenders))
			}
			for i, f := range figures {
				rows[i] += fmt.Sprintf(" %s (%s / %s) |", thousands(quantile(f.rates, 0.5)), microseconds(quantile(f.took, 0.5)), microseconds(quantile(f.took, 0.99)))
			}
		}
		for i, c := range contenders {
			fmt.Fprintf(w, "| %s | %s |%s\n", l.name, c.host, rows[i])
		}
		return reasons, closeAll(contenders)
	})
}

// parallelHands is how many different hands are asked once each at one time.
const parallelHands = 64

// What each query takes, in bytes: engineHeap for the guest's stack and its registers,
// goroutineStack of its goroutine's stack, which begins with 2 or 4 KiB.
const (
	engineHeap     = 12 << 10
	goroutineStack = 6 << 10
)

// atOnce calls do with each of 0 to n-1 in one of the ways that there are, and returns
// when all are done.
type atOnce struct {
	name string
	call func(n int, do func(i int))
}

// asRefreshed is how a refresh asks its hands; to have a goroutine for each costs what it
// takes to begin and end them.
var (
	asRefreshed = atOnce{"", func(n int, do func(i int)) {
		var group compaction.Group
		<-group.Each(n, do)
	}}
	aGoroutineEach = atOnce{", a goroutine for each", func(n int, do func(i int)) {
		var wait sync.WaitGroup
		for i := range n {
			wait.Go(func() { do(i) })
		}
		wait.Wait()
	}}
)

// printParallel compares asking different hands in parallel with asking them one
// after the other. A loop that takes as long as a query in Glovebox shows what the
// machine and Go's scheduler have to give just then, and one that takes as much memory
// besides, what its allocator and the stacks of new goroutines have. Each guest has
// processes of its own, of which the middle one counts for each row: in one in which other
// hosts were asked before all take longer, and by a tenth they differ for as long as they live.
func printParallel(ctx context.Context, w io.Writer, o options) error {
	fmt.Fprintf(w, "\n### %d different hands asked once each, in parallel; the ideal is the time one after the other, divided by %d processors\n\n", min(parallelHands, o.hands), runtime.GOMAXPROCS(0))
	fmt.Fprintln(w, "| guest | host | differ in | one query, µs | one after the other, ms | in parallel, ms | × the ideal | a line passed on, ns |\n|---|---|---|---|---|---|---|---|")
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		if l.name != "c" && l.name != "go" {
			return nil, nil
		}
		if _, err := l.hand(ctx, hosts[0].contract); err != nil {
			return nil, err
		}
		processes := make([][]parallelRow, parallelProcesses)
		if err := inFolder(ctx, l, hosts[0], func(t task) error {
			t.Kind, t.Guest, t.Hands, t.Time = "parallel", l.name, min(parallelHands, o.hands), o.budget/parallelProcesses
			for i := range processes {
				if err := elsewhere(ctx, t, &processes[i]); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for i := range processes[0] {
			var same []parallelRow
			for _, rows := range processes {
				same = append(same, rows[i])
			}
			slices.SortFunc(same, func(a, b parallelRow) int { return cmp.Compare(a.ideals(), b.ideals()) })
			r := same[len(same)/2]
			if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.2f | %d |\n", l.name, r.Name, r.Variant, microseconds(r.One),
				twoDigits(r.Serial), twoDigits(r.Parallel), r.ideals(), r.Hop.Nanoseconds()); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

// parallelProcesses is how many processes there are of a guest.
const parallelProcesses = 3

type parallelRow struct {
	Name, Variant string
	Hands         int
	parallelFigures
}

// ideals is how many times the ideal it took in parallel.
func (r parallelRow) ideals() float64 {
	return float64(r.Parallel) * float64(min(runtime.GOMAXPROCS(0), r.Hands)) / float64(r.Serial)
}

func init() { tasks["parallel"] = parallelRows }

// parallelRows measures a guest's rows of the table that printParallel prints.
func parallelRows(ctx context.Context, t task) (any, error) {
	heap := make([]byte, hostHeap)
	defer runtime.KeepAlive(heap)
	l := languages[slices.IndexFunc(languages, func(l language) bool { return l.name == t.Guest })]
	rows := []struct {
		host, variant string
		way           atOnce
	}{
		{"glovebox", "name", asRefreshed}, {"glovebox", "code", asRefreshed},
		{"glovebox", "name", aGoroutineEach}, {"glovebox", "code", aGoroutineEach},
		{"wazero", "name", asRefreshed}, {"extism", "name", asRefreshed}, {"wapc", "name", asRefreshed},
	}
	var measured []parallelRow
	for _, r := range rows {
		h, err := hostNamed(r.host)
		if err != nil {
			return nil, err
		}
		f, err := askInParallel(ctx, l, h, r.variant, t.Hands, filepath.Join(t.Cache, h.name), r.way, t.Time)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
		measured = append(measured, parallelRow{r.host + r.way.name, r.variant, t.Hands, f})
	}
	memory := func() { takeStack(); takeHeap(engineHeap) }
	for _, control := range []struct {
		name string
		take func()
		way  atOnce
	}{
		{"a loop, no hand", func() {}, asRefreshed},
		{"the same, and a query's memory", memory, asRefreshed},
		{"a loop, no hand", func() {}, aGoroutineEach},
		{"the same, and a query's memory", memory, aGoroutineEach},
	} {
		f, err := whileNear(ctx, slices.Repeat([]ask{loopFor(measured[0].One, control.take)}, t.Hands), control.way, t.Time)
		if err != nil {
			return nil, err
		}
		measured = append(measured, parallelRow{control.name + control.way.name, "–", t.Hands, f})
	}
	return measured, nil
}

// A row is measured up to nearTries times, until the processors are no farther from each
// other than farHop: how far they are is not the host's doing, and changes by the minute
// where a hypervisor deals them out.
const (
	farHop    = 100 * time.Nanosecond
	nearTries = 5
)

// whileNear is inTurnAndAtOnce, while the processors were nearest of so many tries.
func whileNear(ctx context.Context, asks []ask, way atOnce, budget time.Duration) (parallelFigures, error) {
	return nearest(func() (parallelFigures, error) { return inTurnAndAtOnce(ctx, asks, way, budget) })
}

func nearest(measure func() (parallelFigures, error)) (best parallelFigures, err error) {
	for try := range nearTries {
		f, err := measure()
		if err != nil {
			return f, err
		}
		if try == 0 || f.Hop < best.Hop {
			best = f
		}
		if best.Hop <= farHop {
			break
		}
	}
	return best, nil
}

func twoDigits(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond))
}

// askInParallel loads hands into one host and measures them.
func askInParallel(ctx context.Context, l language, h host, variant string, hands int, cache string, way atOnce, budget time.Duration) (f parallelFigures, err error) {
	module, err := l.hand(ctx, h.contract)
	if err != nil {
		return f, err
	}
	box, err := h.open(ctx, setup{cache: cache})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, box.close()) }()
	asks := make([]ask, hands)
	for i := range asks {
		varied, err := vary(module, variant, i)
		if err != nil {
			return f, err
		}
		hand, err := box.load(ctx, fmt.Sprintf("bench-%d", i), varied)
		if err != nil {
			return f, err
		}
		if asks[i], err = hand.worker(ctx); err != nil {
			return f, err
		}
	}
	return whileNear(ctx, asks, way, budget)
}

// parallelFigures are the medians of one query, of a round of all of them one
// after the other, and of a round in parallel, and how far the processors were from
// each other, at the beginning or at the end.
type parallelFigures struct{ One, Serial, Parallel, Hop time.Duration }

// inTurnAndAtOnce calls each of asks once, one after the other and at once, in
// turns. The first round is not counted.
func inTurnAndAtOnce(ctx context.Context, asks []ask, way atOnce, budget time.Duration) (parallelFigures, error) {
	var ones, serials, parallels []time.Duration
	before := hop()
	end := time.Now().Add(budget)
	for round := 0; round < 2 || time.Now().Before(end); round++ {
		took := make([]time.Duration, len(asks))
		began := time.Now()
		for i, ask := range asks {
			asked := time.Now()
			if err := ask(ctx, plain); err != nil {
				return parallelFigures{}, err
			}
			took[i] = time.Since(asked)
		}
		inTurn := time.Since(began)

		errs := make([]error, len(asks))
		began = time.Now()
		way.call(len(asks), func(i int) { errs[i] = asks[i](ctx, plain) })
		together := time.Since(began)
		if err := errors.Join(errs...); err != nil {
			return parallelFigures{}, err
		}
		if round > 0 {
			ones, serials, parallels = append(ones, took...), append(serials, inTurn), append(parallels, together)
		}
	}
	return parallelFigures{quantile(ones, 0.5), quantile(serials, 0.5), quantile(parallels, 0.5), max(before, hop())}, nil
}

// hop is how long it takes until one processor sees what another has written, at best;
// 0 if there is one alone. Those of a virtual machine may be on one part of a chip now
// and on two parts then.
func hop() (least time.Duration) {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	for range 4 {
		var turn atomic.Int64
		var over atomic.Bool
		var wait sync.WaitGroup
		began := time.Now()
		for player := range int64(2) {
			wait.Go(func() {
				for !over.Load() {
					if now := turn.Load(); now%2 == player {
						turn.Store(now + 1)
					}
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		over.Store(true)
		wait.Wait()
		if took := time.Since(began) / time.Duration(max(turn.Load(), 1)); least == 0 || took < least {
			least = took
		}
	}
	return least
}

// loopFor returns what takes memory and computes, for about so long in all on a free
// processor.
func loopFor(d time.Duration, take func()) ask {
	const steps, pieces = 1 << 20, 64
	loop := fastest(func() { compute(steps) })
	taking := fastest(func() {
		for range pieces {
			take()
		}
	}) / pieces
	n := int(float64(steps) * float64(max(d-taking, 0)) / float64(loop))
	return func(context.Context, question) error {
		take()
		if compute(n) == 0 {
			return errors.New("a loop over odd numbers is zero")
		}
		return nil
	}
}

// fastest is the least time that f takes of nine.
func fastest(f func()) (least time.Duration) {
	for range 9 {
		began := time.Now()
		f()
		if took := time.Since(began); least == 0 || took < least {
			least = took
		}
	}
	return least
}

//go:noinline
func compute(n int) uint64 {
	v := uint64(1)
	for range n {
		v *= 0x9e3779b97f4a7c15 // odd, so never zero
	}
	return v
}

// takeHeap takes bytes from the heap, and lets go of them.
//
//go:noinline
func takeHeap(bytes int) { runtime.KeepAlive(make([]byte, bytes)) }

// takeStack takes goroutineStack.
//
//go:noinline
func takeStack() byte {
	var frame [goroutineStack]byte
	return lastOf(frame[:])
}

//go:noinline
func lastOf(b []byte) byte { return b[len(b)-1] }
