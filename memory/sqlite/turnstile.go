package sqlite

import (
	"context"
	"sync"

	"github.com/gloveboxhq/glovebox/memory"
)

// turnstile lets through one at a time: those whom somebody waits for before those
// in the background, and of each kind the one that came first. The zero value is
// open.
type turnstile struct {
	mu sync.Mutex
	// All below is guarded by mu. Those who wait receive when it is their turn.
	taken       bool
	front, back []chan struct{}
	// passed is how many went through before one who waits in the background.
	passed int
}

// maxPassed is how many may go before one who waits in the background: a host that
// is never at rest has summaries all the same.
const maxPassed = 64

// enter waits for the caller's turn, at most until ctx is done. Who has entered
// leaves.
func (t *turnstile) enter(ctx context.Context) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	queue := &t.front
	if memory.InBackground(ctx) {
		queue = &t.back
	}
	*queue = append(*queue, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	for i, other := range *queue {
		if other == turn {
			*queue = append((*queue)[:i], (*queue)[i+1:]...)
			t.mu.Unlock()
			return ctx.Err()
		}
	}
	t.mu.Unlock()
	// It was the caller's turn just then.
	t.leave()
	return ctx.Err()
}

// leave lets the next one through.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := &t.front
	switch {
	case len(t.back) == 0:
		t.passed = 0
	case len(t.front) == 0 || t.passed == maxPassed:
		queue, t.passed = &t.back, 0
	default:
		t.passed++
	}
	if len(*queue) == 0 {
		t.taken = false
		return
	}
	next := (*queue)[0]
	*queue = (*queue)[1:]
	next <- struct{}{}
}
