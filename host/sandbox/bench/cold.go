package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

func init() { tasks["cold"] = answerFirst }

// answerFirst opens a host, loads a hand and has it answer once, and returns how
// long that took.
func answerFirst(ctx context.Context, t task) (any, error) {
	h, module, err := t.read()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c, err := h.enter(ctx, setup{cache: t.Cache}, module)
	if err != nil {
		return nil, err
	}
	return time.Since(began), c.close()
}

// printCold prints a row for each guest and a column for each host.
func printCold(ctx context.Context, w io.Writer, o options) error {
	list := hostsNamed("glovebox", "glovebox-plain", "wazero", "extism", "wapc")
	head, rule := columns(list)
	fmt.Fprintf(w, "\n### The first answer in a new process, ms: nothing compiled yet / from the cache on disk (× Glovebox's)\n\n| guest |%s\n|---|%s\n", head, rule)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		empty, kept := make([][]time.Duration, len(list)), make([][]time.Duration, len(list))
		for range o.repeats {
			for i, h := range list {
				if err := inFolder(ctx, l, h, func(t task) error {
					t.Kind = "cold"
					for _, took := range []*[]time.Duration{&empty[i], &kept[i], &kept[i], &kept[i]} {
						var d time.Duration
						if err := elsewhere(ctx, t, &d); err != nil {
							return err
						}
						*took = append(*took, d)
					}
					return nil
				}); err != nil {
					return nil, err
				}
			}
		}
		row := "| " + l.name + " |"
		for i := range list {
			e, k := quantile(empty[i], 0.5), quantile(kept[i], 0.5)
			row += fmt.Sprintf(" %s / %s", shortMilliseconds(e), shortMilliseconds(k))
			if i > 0 {
				row += fmt.Sprintf(" (%.1f ×, %.1f ×)", float64(e)/float64(quantile(empty[0], 0.5)), float64(k)/float64(quantile(kept[0], 0.5)))
			}
			row += " |"
		}
		_, err := fmt.Fprintln(w, row)
		return nil, err
	})
}

func shortMilliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return thousands(ms)
}
