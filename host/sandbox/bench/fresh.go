package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// contender is a hand in a host, ready to be asked.
type contender struct {
	host string
	loaded
	close func() error
}

// enter opens a host, loads a hand and has it answer once.
func (h host) enter(ctx context.Context, s setup, module []byte) (contender, error) {
	box, err := h.open(ctx, s)
	if err != nil {
		return contender{}, err
	}
	hand, err := box.load(ctx, "bench", module)
	if err == nil {
		err = once(ctx, hand)
	}
	if err != nil {
		return contender{}, errors.Join(err, box.close())
	}
	return contender{h.name, hand, box.close}, nil
}

// contenders builds one language's hand for every host and loads it. A host
// that cannot is left out, with the reason; if there is no toolchain, the error
// matches errMissing.
func contenders(ctx context.Context, l language, hosts []host, s setup) (list []contender, reasons []error, err error) {
	modules := map[string][]byte{}
	for _, h := range hosts {
		module, ok := modules[h.contract]
		if !ok {
			module, err = l.hand(ctx, h.contract)
			if errors.Is(err, errMissing) {
				return nil, nil, err
			}
			if err != nil {
				reasons = append(reasons, fmt.Errorf("%s in %s: %w", l.name, h.name, err))
				continue
			}
			modules[h.contract] = module
		}
		c, err := h.enter(ctx, s, module)
		if err != nil {
			reasons = append(reasons, fmt.Errorf("%s in %s: %w", l.name, h.name, err))
			continue
		}
		list = append(list, c)
	}
	return list, reasons, nil
}

// once asks a hand once.
func once(ctx context.Context, hand loaded) error {
	ask, err := hand.worker(ctx)
	if err != nil {
		return err
	}
	return ask(ctx, plain)
}

func closeAll(list []contender) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// freshRounds is how often it is each host's turn to be asked: what else happens on
// the machine so hits all of them alike. Before anything is counted the hand answers
// warmUpQueries, and for twice as long as is counted: the heap of a host that makes much
// garbage has grown by then.
const (
	freshRounds   = 3
	warmUpQueries = 30
)

func init() { tasks["fresh"] = askForAWhile }

// askForAWhile asks one hand again and again and returns how long each query took that
// began in the time, after the warm-up.
func askForAWhile(ctx context.Context, t task) (any, error) {
	h, module, err := t.read()
	if err != nil {
		return nil, err
	}
	heap := make([]byte, hostHeap)
	defer runtime.KeepAlive(heap)
	c, err := h.enter(ctx, setup{cache: t.Cache}, module)
	if err != nil {
		return nil, err
	}
	took, err := latencies(ctx, c, t.Time)
	return took, errors.Join(err, c.close())
}

func latencies(ctx context.Context, c contender, budget time.Duration) (took []time.Duration, err error) {
	ask, err := c.worker(ctx)
	if err != nil {
		return nil, err
	}
	once := func() (time.Duration, error) {
		began := time.Now()
		err := ask(ctx, plain)
		return time.Since(began), err
	}
	start := time.Now()
	for n := 0; n < warmUpQueries || time.Since(start) < 2*budget; n++ {
		if _, err := once(); err != nil {
			return nil, err
		}
	}
	start = time.Now()
	for len(took) == 0 || time.Since(start) < budget {
		d, err := once()
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// extismAims are how many times faster than a fresh instance in Extism a query
// is to be, by guest. The mean is what a host gets done by: what a query leaves to be
// collected is in the time of few queries, and in no median.
var extismAims = map[string]int{"c": 20, "go": 10, "go-json": 10, "go-json-warm": 10, "go-sdk": 10}

// printFresh prints a row for each guest and a column for each host. Each is asked in
// processes of its own, or the garbage of one would be collected in the time of another.
func printFresh(ctx context.Context, w io.Writer, o options) error {
	head, rule := columns(hosts)
	fmt.Fprintf(w, "\n### One query, in a process beside a heap of %d MiB: p50 / p99 / mean in µs (p50 × Glovebox's)\n\n| guest |%s extism / glovebox, p50 and mean |\n|---|%s---|\n", hostHeap>>20, head, rule)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		took := map[string][]time.Duration{}
		if err := inFolders(ctx, l, hosts, func(tasks []task) error {
			for range freshRounds {
				for _, t := range tasks {
					t.Kind, t.Time = "fresh", o.budget/time.Duration(freshRounds*len(tasks))
					var more []time.Duration
					if err := elsewhere(ctx, t, &more); err != nil {
						return err
					}
					took[t.Host] = append(took[t.Host], more...)
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
		medians, means := map[string]time.Duration{}, map[string]time.Duration{}
		row := "| " + l.name + " |"
		for _, h := range hosts {
			medians[h.name], means[h.name] = quantile(took[h.name], 0.5), mean(took[h.name])
			row += fmt.Sprintf(" %s / %s / %s%s |", microseconds(medians[h.name]), microseconds(quantile(took[h.name], 0.99)), microseconds(means[h.name]), against(medians, h.name))
		}
		row += fmt.Sprintf(" %.1f × and %.1f ×", times(medians, "extism"), times(means, "extism"))
		if aim := extismAims[l.name]; aim > 0 {
			row += fmt.Sprintf(" (aim: %d ×)", aim)
		}
		_, err := fmt.Fprintln(w, row+" |")
		return nil, err
	})
}

// times is how many times what Glovebox takes a host takes.
func times(took map[string]time.Duration, name string) float64 {
	return float64(took[name]) / float64(took[hosts[0].name])
}

// against shows a host's ratio to Glovebox.
func against(medians map[string]time.Duration, name string) string {
	if name == hosts[0].name {
		return ""
	}
	ratio := times(medians, name)
	if ratio < 1 {
		return fmt.Sprintf(" (%.2f ×)", ratio)
	}
	return fmt.Sprintf(" (%.1f ×)", ratio)
}

// eachGuest runs measure for the languages that were asked for, and prints after
// the table what was left out of it: hosts that could not, as measure returns
// them, and languages without a toolchain.
func (o options) eachGuest(ctx context.Context, w io.Writer, measure func(l language) (left []error, err error)) error {
	var remarks []string
	for _, l := range languages {
		if o.guests != "" && !slices.Contains(strings.Split(o.guests, ","), l.name) {
			continue
		}
		left, err := measure(l)
		switch {
		case errors.Is(err, errMissing):
			remarks = append(remarks, fmt.Sprintf("%s is left out: %v", l.name, err))
		case err != nil:
			return fmt.Errorf("%s: %w", l.name, err)
		}
		for _, reason := range left {
			remarks = append(remarks, "left out: "+reason.Error())
		}
	}
	if len(remarks) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(remarks, "\n"))
	}
	return nil
}

// columns returns the head of a table with a column for each host, and the rule
// below it.
func columns(list []host) (head, rule string) {
	for _, h := range list {
		head += " " + h.name + " |"
		rule += "---|"
	}
	return head, rule
}

// quantile returns the value below which the share q of the values lies. It
// sorts them.
func quantile[T time.Duration | float64](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func mean(values []time.Duration) time.Duration {
	var sum time.Duration
	for _, v := range values {
		sum += v
	}
	return sum / time.Duration(max(len(values), 1))
}
