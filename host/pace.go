package host

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// pace bounds what the model is asked by work that nobody waits for: summaries,
// extractions and dreams behind the turns, of all users together. Who waits has its
// call in the order in which they came. Turns, and what a turn waits for, do not come
// by here. It is safe for concurrent use.
type pace struct {
	places chan struct{}
	// rate has room for one: a call begins no sooner after the one before than a
	// minute divided by what is allowed, and a microsecond for what is rounded, so that
	// no minute has more.
	rate           *rate.Limiter
	waiting, going atomic.Int64
}

func newPace(c ModelConfig) *pace {
	return &pace{
		places: make(chan struct{}, c.backgroundCalls()),
		rate:   rate.NewLimiter(rate.Every(time.Minute/time.Duration(c.backgroundCallsPerMinute())+time.Microsecond), 1),
	}
}

// admit waits for the caller's turn, at most until ctx is done: the error is ctx's.
// Release is called once, when the call has ended.
func (p *pace) admit(ctx context.Context) (release func(), err error) {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a call of the model: %w", ctx.Err())
	}
	if err := p.rate.Wait(ctx); err != nil {
		<-p.places
		// It also gives up where the deadline would come first.
		return nil, fmt.Errorf("wait for a call of the model: %w", cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	p.going.Add(1)
	return func() {
		p.going.Add(-1)
		<-p.places
	}, nil
}
