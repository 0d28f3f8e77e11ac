package compaction

import (
	"context"
	"errors"
	"sync"
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

// begin counts work that is part of work that goes on, also after Close.
func (g *Group) begin() (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active++
	return g.end
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
