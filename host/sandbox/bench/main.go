// Command bench measures the sandbox beside its peers and prints tables for
// docs/benchmarks.md. Run it in its own directory, on a machine that does
// nothing else, where it takes about fifteen minutes:
//
//	go run .
//	go run . -only memory -guests c,go
//	go run . -only deadline -rounds 50
//	go test .                               # the least of what does not take seconds
//	go test -bench . -count 10 > new.txt    # for benchstat
//
// It builds the guests: in C, Rust, AssemblyScript and Go, as far as the
// toolchains are installed. One query at a time, first answers, and what instances
// and loaded hands hold in memory, are measured in processes that it starts, of
// one host and one guest; different hands in parallel in one of a guest, and all
// else in this one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command's flags.
type options struct {
	only       string
	guests     string
	budget     time.Duration
	goroutines int
	rounds     int
	repeats    int
	hands      int
	patience   time.Duration
	profile    string
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure only one of: images, fresh, concurrent, parallel, cold, memory, loaded, metering, deadline, tables")
	flag.StringVar(&o.guests, "guests", "", "languages of the trivial hand, separated by commas; empty means all")
	flag.DurationVar(&o.budget, "time", 4*time.Second, "time for one guest, or one row, of a table of times")
	flag.IntVar(&o.goroutines, "goroutines", 2, "hands that spin to their deadline at once")
	flag.IntVar(&o.rounds, "rounds", 200, "how often the hands spin to their deadline, tables")
	flag.IntVar(&o.repeats, "repeats", 3, "how often a cache begins empty")
	flag.IntVar(&o.hands, "hands", 1000, "hands that are loaded at once")
	flag.DurationVar(&o.patience, "patience", 8*time.Second, "time to compile the hands that are loaded at once; what is not compiled by then is left out")
	flag.StringVar(&o.profile, "profile", "", "beginning of the paths for profiles of the heap with the hands loaded")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(taskVariable) != "" {
		if err := doTask(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := measure(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

var sections = []struct {
	name  string
	print func(ctx context.Context, w io.Writer, o options) error
	// resident says that it finds out what processes hold in memory.
	resident bool
}{
	{"images", printImages, false},
	{"fresh", printFresh, false},
	{"concurrent", printConcurrent, false},
	{"parallel", printParallel, false},
	{"cold", printCold, false},
	{"memory", printMemory, true},
	{"loaded", printLoaded, true},
	{"metering", printMetering, false},
	{"deadline", printDeadline, false},
	{"tables", printTables, false},
}

func measure(ctx context.Context, w io.Writer, o options) error {
	if _, err := os.Stat("hands"); err != nil {
		return errors.New("no directory hands here: run it in host/sandbox/bench")
	}
	printVersions(w)
	found := false
	for _, s := range sections {
		if o.only != "" && o.only != s.name {
			continue
		}
		found = true
		if _, err := os.Stat(smaps); s.resident && err != nil {
			fmt.Fprintf(w, "\n%s is left out: %v\n", s.name, errNoSmaps)
			continue
		}
		if err := s.print(ctx, w, o); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if !found {
		return fmt.Errorf("nothing is called %q here", o.only)
	}
	return nil
}

func printVersions(w io.Writer) {
	fmt.Fprintf(w, "%s, %s/%s, %d processors", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	info, ok := debug.ReadBuildInfo()
	if !ok {
		fmt.Fprintln(w)
		return
	}
	for _, path := range []string{"github.com/tetratelabs/wazero", "github.com/extism/go-sdk", "github.com/wapc/wapc-go"} {
		i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == path })
		if i >= 0 {
			fmt.Fprintf(w, ", %s %s", strings.TrimPrefix(path, "github.com/"), info.Deps[i].Version)
		}
	}
	fmt.Fprintln(w)
}

func printMetering(ctx context.Context, w io.Writer, _ options) error {
	fmt.Fprintf(w, "\n## Slowdown against the bare engine\n\n| kernel |")
	rule := "|---|"
	columns := map[string][]kernelCost{}
	var remarks []string
	for _, s := range kernelSources {
		module, err := built(ctx, s.build, s.source)
		if errors.Is(err, errMissing) {
			remarks = append(remarks, fmt.Sprintf("%s is left out: %v", s.language, err))
			continue
		}
		if err != nil {
			return err
		}
		if columns[s.language], err = kernelCosts(ctx, module, kernels, schemes); err != nil {
			return fmt.Errorf("%s: %w", s.language, err)
		}
		for _, scheme := range schemes[1:] {
			fmt.Fprintf(w, " %s, %s |", s.language, scheme.name)
			rule += "---|"
		}
	}
	fmt.Fprintf(w, "\n%s\n", rule)
	row := func(name string, cell func(costs []kernelCost, scheme int) float64) {
		fmt.Fprintf(w, "| %s |", name)
		for _, s := range kernelSources {
			for scheme := 1; scheme < len(schemes) && columns[s.language] != nil; scheme++ {
				fmt.Fprintf(w, " %.2f |", cell(columns[s.language], scheme))
			}
		}
		fmt.Fprintln(w)
	}
	for i, kernel := range kernels {
		row(kernel, func(costs []kernelCost, scheme int) float64 { return costs[i].ratios[scheme] })
	}
	row("**geometric mean**", func(costs []kernelCost, scheme int) float64 {
		mean, _ := summarise(costs, scheme)
		return mean
	})
	row("**worst**", func(costs []kernelCost, scheme int) float64 {
		_, worst := summarise(costs, scheme)
		return worst
	})
	if len(remarks) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(remarks, "\n"))
	}
	return nil
}

func printDeadline(ctx context.Context, w io.Writer, o options) error {
	fmt.Fprintf(w, "\n## %d hands that spin, deadline %v, %d times: median / p99 / max in ms\n\n", o.goroutines, spinTime, o.rounds)
	fmt.Fprintln(w, "| hand | end after the deadline | stall of a 1 ms ticker beside them |\n|---|---|---|")
	for _, spinner := range spinners {
		after, stalls, err := overshoots(ctx, spinner, o.goroutines, o.rounds)
		if errors.Is(err, errMissing) {
			fmt.Fprintf(w, "\nleft out: %v\n", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", spinner, err)
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", spinner, milliseconds(after), milliseconds(stalls))
	}
	return nil
}

func milliseconds(values []time.Duration) string {
	ms := func(q float64) float64 { return float64(quantile(values, q)) / float64(time.Millisecond) }
	return fmt.Sprintf("%.2f / %.2f / %.2f", ms(0.5), ms(0.99), ms(1))
}

func microseconds(d time.Duration) string {
	us := float64(d) / float64(time.Microsecond)
	if us < 100 {
		return fmt.Sprintf("%.1f", us)
	}
	return thousands(us)
}

// thousands writes a number without a fraction, with a comma before every three
// digits.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", math.Abs(v))
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	if v <= -0.5 {
		return "-" + digits
	}
	return digits
}
