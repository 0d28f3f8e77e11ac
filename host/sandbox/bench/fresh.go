package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// latencies asks the contenders in rotation, a block of queries each, until
// the time is over, and returns how long each query took. What else happens on
// the machine so hits all of them alike. The first block of each is not
// counted.
func latencies(ctx context.Context, list []contender, block int, budget time.Duration) ([][]time.Duration, error) {
	asks := make([]ask, len(list))
	for i, c := range list {
		var err error
		if asks[i], err = c.worker(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", c.host, err)
		}
	}
	took := make([][]time.Duration, len(list))
	end := time.Now().Add(budget)
	for round := 0; round < 2 || time.Now().Before(end); round++ {
		for i, ask := range asks {
			for range block {
				began := time.Now()
				if err := ask(ctx, plain); err != nil {
					return nil, fmt.Errorf("%s: %w", list[i].host, err)
				}
				if round > 0 {
					took[i] = append(took[i], time.Since(began))
				}
			}
		}
	}
	return took, nil
}

// extismAims are how many times faster than a fresh instance in Extism a query
// is to be, by guest.
var extismAims = map[string]int{"c": 20, "go": 10, "go-json": 10, "go-json-warm": 10, "go-sdk": 10}

// printFresh prints a row for each guest and a column for each host.
func printFresh(ctx context.Context, w io.Writer, o options) error {
	head, rule := columns(hosts)
	fmt.Fprintf(w, "\n### One query, p50 / p99 in µs (× Glovebox's p50)\n\n| guest |%s extism / glovebox |\n|---|%s---|\n", head, rule)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		list, reasons, err := contenders(ctx, l, hosts, setup{})
		if err != nil {
			return nil, err
		}
		took, err := latencies(ctx, list, o.block, o.budget)
		if err = errors.Join(err, closeAll(list)); err != nil {
			return nil, err
		}
		medians := map[string]time.Duration{}
		for i, c := range list {
			medians[c.host] = quantile(took[i], 0.5)
		}
		row := "| " + l.name + " |"
		for _, h := range hosts {
			i := slices.IndexFunc(list, func(c contender) bool { return c.host == h.name })
			if i < 0 {
				row += " – |"
				continue
			}
			row += fmt.Sprintf(" %s / %s%s |", microseconds(medians[h.name]), microseconds(quantile(took[i], 0.99)), against(medians, h.name))
		}
		if ours, theirs := medians[hosts[0].name], medians["extism"]; ours > 0 && theirs > 0 {
			row += fmt.Sprintf(" %.1f ×", float64(theirs)/float64(ours))
		} else {
			row += " –"
		}
		if aim := extismAims[l.name]; aim > 0 {
			row += fmt.Sprintf(" (aim: %d ×)", aim)
		}
		_, err = fmt.Fprintln(w, row+" |")
		return reasons, err
	})
}

// against shows a host's ratio to Glovebox, if there are both.
func against(medians map[string]time.Duration, name string) string {
	first, one := medians[hosts[0].name], medians[name]
	if name == hosts[0].name || first == 0 || one == 0 {
		return ""
	}
	ratio := float64(one) / float64(first)
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
