package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// throughputs lets the contenders run in rotation for a window each, with so
// many goroutines, and returns the queries per second of each window.
func throughputs(ctx context.Context, list []contender, goroutines int, window, budget time.Duration) ([][]float64, error) {
	rates := make([][]float64, len(list))
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
			rate, err := throughput(ctx, asks[i], window)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.host, err)
			}
			if round > 0 {
				rates[i] = append(rates[i], rate)
			}
		}
	}
	return rates, nil
}

func throughput(ctx context.Context, asks []ask, window time.Duration) (float64, error) {
	var wait sync.WaitGroup
	var queries atomic.Int64
	errs := make([]error, len(asks))
	began := time.Now()
	for i, ask := range asks {
		wait.Go(func() {
			done := int64(0)
			for errs[i] == nil && time.Since(began) < window {
				errs[i] = ask(ctx, plain)
				done++
			}
			queries.Add(done)
		})
	}
	wait.Wait()
	return float64(queries.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
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
