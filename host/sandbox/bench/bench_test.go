package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

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

func TestThousands(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999.4: "999", 999.6: "1,000", 181_004: "181,004"} {
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

// One query at a time. The hosts run one after the other, with what else
// happens on the machine then; the command rotates them in one run.
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
