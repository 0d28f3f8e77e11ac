package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// spinners are hands that never answer, in hands/spin. In a sandbox without
// metering "tree" freezes the whole process.
var spinners = []string{"loop", "tree"}

// spinTime is the deadline of a hand that spins.
const spinTime = 100 * time.Millisecond

// overshoots runs as many queries at once as spin, so often, and returns how
// long after its deadline each of them ended. Beside them runs a goroutine with
// a ticker of a millisecond; stalls are how much later than that it got each
// tick.
func overshoots(ctx context.Context, spinner string, atOnce, rounds int) (after, stalls []time.Duration, err error) {
	module, err := built(ctx, buildC, filepath.Join("hands", "spin", spinner+".c"))
	if err != nil {
		return nil, nil, err
	}
	engine, err := sandbox.New(sandbox.Config{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	limits := abi.Limits{Timeout: spinTime, Fuel: abi.MaxLimits().Fuel, Concurrent: atOnce}
	hand, err := engine.Load(ctx, module, handOptions("bench", limits))
	if err != nil {
		return nil, nil, err
	}

	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { stalls = watchTicker(stop) })

	late := make([][]time.Duration, atOnce)
	errs := make([]error, atOnce)
	var wait sync.WaitGroup
	for i := range atOnce {
		wait.Go(func() {
			for range rounds {
				began := time.Now()
				_, err := hand.Query(ctx, plain.query, sandbox.Ports{})
				late[i] = append(late[i], time.Since(began)-spinTime)
				if !errors.Is(err, context.DeadlineExceeded) {
					errs[i] = fmt.Errorf("a hand that spins ended otherwise than at its deadline: %w", err)
					return
				}
			}
		})
	}
	wait.Wait()
	close(stop)
	watch.Wait()
	for _, l := range late {
		after = append(after, l...)
	}
	return after, stalls, errors.Join(errs...)
}

func watchTicker(stop <-chan struct{}) (stalls []time.Duration) {
	const period = time.Millisecond
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return stalls
		case <-ticker.C:
			now := time.Now()
			stalls = append(stalls, max(0, now.Sub(last)-period))
			last = now
		}
	}
}
