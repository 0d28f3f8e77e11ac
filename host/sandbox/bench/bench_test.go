package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// The measurements start this test again as a process of their own.
func TestMain(m *testing.M) {
	if os.Getenv(taskVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every table has a row for the smallest guest, with a figure for each host,
// when as little as possible is measured.
func TestTables(t *testing.T) {
	rows := map[string]int{"images": 1, "fresh": 1, "concurrent": 5, "parallel": 11, "cold": 1, "memory": 1, "loaded": 4 + 3*2}
	for _, s := range sections {
		want, ok := rows[s.name]
		if !ok {
			continue // they take seconds
		}
		t.Run(s.name, func(t *testing.T) {
			var out strings.Builder
			o := options{only: s.name, guests: "c", budget: time.Millisecond, repeats: 1, hands: 3, patience: time.Minute}
			if err := measure(t.Context(), &out, o); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), errMissing.Error()) || strings.Contains(out.String(), errNoSmaps.Error()) {
				t.Skip(out.String())
			}
			columns, got := 0, 0
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "|---") {
					columns = strings.Count(line, "|")
				}
				if !strings.HasPrefix(line, "| c |") {
					continue
				}
				got++
				if n := strings.Count(line, "|"); n != columns {
					t.Errorf("a row of %d columns under a head of %d: %s", n-1, columns-1, line)
				}
				if s.name != "images" && strings.Contains(strings.Replace(line, "| – |", "|", 1), "–") {
					t.Errorf("a figure is not there: %s", line)
				}
			}
			if got != want {
				t.Errorf("%d rows, want %d:\n%s", got, want, out.String())
			}
		})
	}
}

// What is said to differ does: for a box that shares what is equal, nothing else
// would be measured.
func TestVariantsDiffer(t *testing.T) {
	module := buildGuest(t, buildC, "hands/c/glovebox.c")
	for _, v := range variants {
		var modules [2]*wasm.Module
		for i := range modules {
			varied, err := vary(module, v, i)
			if err != nil {
				t.Fatal(err)
			}
			if modules[i], err = wasm.Decode(varied); err != nil {
				t.Fatal(err)
			}
			if err := modules[i].Validate(); err != nil {
				t.Error(err)
			}
		}
		same, sameCode := bytes.Equal(modules[0].Encode(), modules[1].Encode()), bytes.Equal(modules[0].Bare(), modules[1].Bare())
		if same != (v == "name") || sameCode != (v == "name" || v == "manifest") {
			t.Errorf("%s: modules equal %v, their code equal %v", v, same, sameCode)
		}
	}
}

// Instances that live at once are counted while they do: each has at least the
// pages that it has written to, and the host gives them back.
func TestLiveInstancesAreMeasured(t *testing.T) {
	if _, err := os.Stat(smaps); err != nil {
		t.Skip(errNoSmaps)
	}
	path := filepath.Join(t.TempDir(), "hand.wasm")
	if err := os.WriteFile(path, buildGuest(t, buildC, "hands/c/glovebox.c"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, h := range hostsNamed("glovebox", "glovebox-copied", "glovebox-plain", "wazero") {
		var m liveMemory
		if err := elsewhere(t.Context(), task{Kind: "memory", Host: h.name, Module: path, Cache: filepath.Join(t.TempDir(), "cache")}, &m); err != nil {
			t.Fatal(err)
		}
		for i := range liveSteps {
			if r := m.each(i); r.PrivateDirty < 4<<10 || r.Rss < r.Pss || r.Pss < r.PrivateDirty/2 {
				t.Errorf("%s: each of %d instances holds %+v", h.name, liveSteps[i], r)
			}
		}
	}
}

// What one more hand holds is reckoned from all measurements: one that is off by some
// MiB, as they are, says little.
func TestOneMoreHand(t *testing.T) {
	var m manyLoaded
	for hands := 32; hands <= 128; hands += 8 {
		n := int64(hands)
		m.Held = append(m.Held, held{hands, resident{Rss: 160<<20 + n*40<<10, Heap: 33<<20 + n*2600, Code: 120 << 20}})
	}
	if got, want := m.each(), (resident{Rss: 40 << 10, Heap: 2600}); got != want {
		t.Errorf("one more hand holds %+v, want %+v", got, want)
	}
	m.Held[len(m.Held)-1].Rss += 6 << 20
	if got := m.each().Rss; got < 40<<10 || got > 40<<10+6<<20/200 {
		t.Errorf("with 6 MiB more at the end one more hand holds %d bytes", got)
	}
	m.Held = m.Held[:1]
	if got := m.each(); got != (resident{}) {
		t.Errorf("of one measurement, one more hand holds %+v", got)
	}
}

// A row that was measured while the processors were far from each other is measured again,
// some times; the nearest counts.
func TestNearest(t *testing.T) {
	for name, test := range map[string]struct {
		hops  []time.Duration
		want  time.Duration
		tries int
	}{
		"near at once": {[]time.Duration{50, 10}, 50, 1},
		"near later":   {[]time.Duration{200, 190, 60, 10}, 60, 3},
		"never near":   {[]time.Duration{200, 210, 180, 190, 220, 50}, 180, 5},
	} {
		tries := 0
		f, err := nearest(func() (parallelFigures, error) {
			tries++
			return parallelFigures{Hop: test.hops[tries-1]}, nil
		})
		if err != nil || f.Hop != test.want || tries != test.tries {
			t.Errorf("%s: %d ns after %d tries, %v", name, f.Hop, tries, err)
		}
	}
}

// buildGuest skips what there is no toolchain for.
func buildGuest(tb testing.TB, build func(ctx context.Context, source, output string) error, source string) []byte {
	tb.Helper()
	module, err := built(tb.Context(), build, source)
	if errors.Is(err, errMissing) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return module
}

// Every trivial hand answers in every host, or the measurements would compare
// different work.
func TestHandsAnswerEverywhere(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			list, reasons, err := contenders(t.Context(), l, hosts, setup{})
			if errors.Is(err, errMissing) {
				t.Skip(err)
			}
			if err := errors.Join(append(reasons, err, closeAll(list))...); err != nil {
				t.Error(err)
			}
			if len(list) != len(hosts) {
				t.Errorf("%d of %d hosts", len(list), len(hosts))
			}
		})
	}
}

// Who lacks a toolchain is told what to install, and the rest is measured.
func TestMissingToolchainNamesItsPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	builtHands.Clear()
	for _, l := range languages {
		if l.suffix == "" {
			continue // Go is there: it runs this test
		}
		_, _, err := contenders(t.Context(), l, hosts, setup{})
		if !errors.Is(err, errMissing) || !strings.Contains(err.Error(), "install ") {
			t.Errorf("%s without a toolchain: %v", l.name, err)
		}
	}
}

// Kernels give one checksum in every language and under every scheme.
func TestKernelsAgree(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type key struct {
		kernel string
		n      int32
	}
	want := map[key]int32{}
	for _, s := range kernelSources {
		t.Run(s.language, func(t *testing.T) {
			module := buildGuest(t, s.build, s.source)
			for _, scheme := range schemes {
				instance, err := scheme.instantiate(ctx, module)
				if err != nil {
					t.Fatal(err)
				}
				for _, kernel := range kernels {
					for _, n := range []int32{1, 5} {
						got, _, err := instance.run(ctx, kernel, n)
						if err != nil {
							t.Fatal(err)
						}
						first, ok := want[key{kernel, n}]
						if !ok {
							want[key{kernel, n}] = got
						} else if got != first {
							t.Errorf("%s(%d) under %s is %d, and was %d", kernel, n, scheme.name, got, first)
						}
					}
				}
				if err := instance.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSummarise(t *testing.T) {
	mean, worst := summarise([]kernelCost{{"a", []float64{1, 1}}, {"b", []float64{1, 4}}}, 1)
	if mean < 1.999 || mean > 2.001 || worst != 4 {
		t.Errorf("mean %v, worst %v", mean, worst)
	}
}

func TestQuantile(t *testing.T) {
	values := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v of 1..5 is %v, want %v", q, got, want)
		}
	}
	if got := quantile([]time.Duration(nil), 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}

func TestMean(t *testing.T) {
	if got := mean([]time.Duration{1, 2, 6}); got != 3 {
		t.Errorf("the mean is %d", got)
	}
	if got := mean(nil); got != 0 {
		t.Errorf("the mean of nothing is %d", got)
	}
}

func TestThousands(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999.4: "999", 999.6: "1,000", 181_004: "181,004", 1_064_555: "1,064,555", -12_345: "-12,345", -0.4: "0"} {
		if got := thousands(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

func forEachHand(b *testing.B, run func(b *testing.B, hand loaded)) {
	for _, l := range languages {
		b.Run("guest="+l.name, func(b *testing.B) {
			list, reasons, err := contenders(b.Context(), l, hosts, setup{})
			if errors.Is(err, errMissing) {
				b.Skip(err)
			}
			if err := errors.Join(append(reasons, err)...); err != nil {
				b.Fatal(err)
			}
			for _, c := range list {
				b.Run("host="+c.host, func(b *testing.B) { run(b, c.loaded) })
			}
			if err := closeAll(list); err != nil {
				b.Error(err)
			}
		})
	}
}

// One query at a time. The hosts run one after the other in one process, with what else
// happens on the machine then; the command gives each a process of its own, in turns.
func BenchmarkFreshQuery(b *testing.B) {
	forEachHand(b, func(b *testing.B, hand loaded) {
		ask, err := hand.worker(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			if err := ask(b.Context(), plain); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		b.ReportMetric(float64(quantile(took, 0.5)), "p50-ns")
		b.ReportMetric(float64(quantile(took, 0.99)), "p99-ns")
	})
}

// As many queries at once as -cpu says.
func BenchmarkThroughput(b *testing.B) {
	forEachHand(b, func(b *testing.B, hand loaded) {
		b.RunParallel(func(pb *testing.PB) {
			ask, err := hand.worker(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			for pb.Next() {
				if err := ask(b.Context(), plain); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
	})
}

// Beside BenchmarkThroughput with -cpu 1, what it costs that a query is asked in a
// goroutine of its own, of which so many are begun at once.
func BenchmarkNewGoroutines(b *testing.B) {
	forEachHand(b, func(b *testing.B, hand loaded) {
		asks := make([]ask, parallelHands)
		for i := range asks {
			var err error
			if asks[i], err = hand.worker(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		for left := b.N; left > 0; left -= len(asks) {
			var wait sync.WaitGroup
			for _, ask := range asks[:min(left, len(asks))] {
				wait.Go(func() {
					if err := ask(b.Context(), plain); err != nil {
						b.Error(err)
					}
				})
			}
			wait.Wait()
		}
	})
}

func BenchmarkKernel(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, s := range kernelSources {
		b.Run("language="+s.language, func(b *testing.B) {
			module := buildGuest(b, s.build, s.source)
			for _, scheme := range schemes {
				instance, err := scheme.instantiate(ctx, module)
				if err != nil {
					b.Fatal(err)
				}
				for _, kernel := range kernels {
					b.Run(fmt.Sprintf("kernel=%s/metering=%s", kernel, scheme.name), func(b *testing.B) {
						for b.Loop() {
							if _, _, err := instance.run(ctx, kernel, 8); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
				if err := instance.close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// Each round lasts as long as the deadline: run it with -benchtime 20x.
func BenchmarkDeadline(b *testing.B) {
	for _, spinner := range spinners {
		b.Run("hand="+spinner, func(b *testing.B) {
			after, stalls, err := overshoots(b.Context(), spinner, 2, b.N)
			if errors.Is(err, errMissing) {
				b.Skip(err)
			}
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(quantile(after, 0.5)), "overshoot-p50-ns")
			b.ReportMetric(float64(quantile(after, 1)), "overshoot-max-ns")
			b.ReportMetric(float64(quantile(stalls, 0.99)), "stall-p99-ns")
		})
	}
}
