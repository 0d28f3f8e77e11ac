package compaction

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// ErrClosed says that a Group takes no more work.
var ErrClosed = errors.New("closed")

// Group counts work that is going on. Unlike a sync.WaitGroup it may be waited
// for by many while more begins, and the waiting ends with a context. The zero
// value is ready; it is safe for concurrent use and must not be copied.
type Group struct {
	mu     sync.Mutex
	active int
	closed bool
	// idle is closed when active falls to zero; nil while nobody waits.
	idle chan struct{}
}

// Begin counts one more piece of work, whose end the caller reports once. After
// Close it returns ErrClosed.
func (g *Group) Begin() (end func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	g.active++
	return g.end, nil
}

// goes runs f in the background, as part of work that goes on, also after Close.
func (g *Group) goes(f func()) {
	g.mu.Lock()
	g.active++
	g.mu.Unlock()
	go func() {
		defer g.end()
		f()
	}()
}

// Each calls do with each of 0 to n-1 at once: one that waits holds up no other. It is
// work that is part of work that goes on, also after Close. all is closed when the last
// call is over, also by runtime.Goexit; do must not panic.
//
// To begin and to end a goroutine takes as long as a hand that answers from memory. So
// there is not one for each call, but one for each processor and one more, which begins
// when any of the others waits or has had its share of time, and then has another begun
// in its place.
func (g *Group) Each(n int, do func(i int)) (all <-chan struct{}) {
	done := make(chan struct{})
	if n <= 0 {
		close(done)
		return done
	}
	processors := runtime.GOMAXPROCS(0)
	var begun, left, next atomic.Int64
	one := func(i int) {
		// Deferred for a call that ends its goroutine, as a test that fails does.
		defer func() {
			if left.Add(-1) == 0 {
				close(done)
			}
		}()
		do(i)
	}
	var call func()
	call = func() {
		if int(begun.Add(1)) > processors && int(next.Load()) < n {
			g.goes(call)
		}
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			one(i)
		}
	}
	left.Store(int64(n))
	for range min(processors+1, n) {
		g.goes(call)
	}
	return done
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active--; g.active == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Wait returns when nothing is going on, or with ctx's error.
func (g *Group) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.active == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Active is how much is going on.
func (g *Group) Active() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active
}

// Close lets no more work begin. Use Wait to see the end of what goes on.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
