package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// liveSteps are how many instances of a hand live at the moments at which
// memory is measured.
var liveSteps = []int{16, 32}

// liveMemory is what a process holds in which instances of one hand stand
// inside their query.
type liveMemory struct {
	// Before is with none, after one query; After is at each of liveSteps.
	Before resident
	After  []resident
}

// each is what an instance holds, of the first liveSteps[step].
func (m liveMemory) each(step int) resident {
	return m.After[step].minus(m.Before).over(liveSteps[step])
}

func init() { tasks["memory"] = holdInstances }

func holdInstances(ctx context.Context, t task) (any, error) {
	h, module, err := t.read()
	if err != nil {
		return nil, err
	}
	most := liveSteps[len(liveSteps)-1]
	room := &waitingRoom{arrived: make(chan struct{}), opened: make(chan struct{})}
	c, err := h.enter(ctx, setup{cache: t.Cache, atOnce: most, wait: room}, module)
	if err != nil {
		return nil, err
	}
	m, err := holdAll(ctx, c, room)
	return m, errors.Join(err, c.close())
}

func holdAll(ctx context.Context, c contender, room *waitingRoom) (m liveMemory, err error) {
	if m.Before, err = measureResident(); err != nil {
		return m, err
	}
	answered := make(chan error)
	live := 0
	defer func() {
		close(room.opened)
		for range live {
			err = errors.Join(err, <-answered)
		}
	}()
	for _, step := range liveSteps {
		for ; live < step; live++ {
			ask, err := c.worker(ctx)
			if err != nil {
				return m, err
			}
			go func() { answered <- ask(ctx, waiting) }()
			select {
			case <-room.arrived:
			case err := <-answered:
				return m, errors.Join(errors.New("a hand that is to wait has answered"), err)
			}
		}
		after, err := measureResident()
		if err != nil {
			return m, err
		}
		m.After = append(m.After, after)
	}
	return m, nil
}

// printMemory prints a row for each guest and a column for each host.
func printMemory(ctx context.Context, w io.Writer, o options) error {
	most := liveSteps[len(liveSteps)-1]
	list := hostsNamed("glovebox", "glovebox-copied", "glovebox-plain", "wazero", "extism", "wapc")
	head, rule := columns(list)
	fmt.Fprintf(w, "\n### A live instance of %d, KiB: RSS / PSS / private dirty\n\n| guest |%s\n|---|%s\n", most, head, rule)
	return o.eachGuest(ctx, w, func(l language) ([]error, error) {
		row := "| " + l.name + " |"
		for _, h := range list {
			var m liveMemory
			if err := inFolder(ctx, l, h, func(t task) error {
				t.Kind = "memory"
				return elsewhere(ctx, t, &m)
			}); err != nil {
				return nil, err
			}
			r := m.each(len(liveSteps) - 1)
			row += fmt.Sprintf(" %s / %s / %s |", kib(r.Rss), kib(r.Pss), kib(r.PrivateDirty))
		}
		_, err := fmt.Fprintln(w, row)
		return nil, err
	})
}

func kib(bytes int64) string { return thousands(float64(bytes) / 1024) }
