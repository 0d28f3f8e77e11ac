package sqlite

import (
	"context"
	"slices"
	"sync"

	"github.com/gloveboxhq/glovebox/memory"
)

// turnstile lets through one at a time: those whom somebody waits for before those
// in the background, and of each kind the one that came first. The zero value is
// open.
type turnstile struct {
	mu sync.Mutex
	// All below is guarded by mu.
	taken       bool
	front, back []waiting
	// passed is how many went through before one who waits in the background.
	passed int
}

// maxPassed is how many may go before one who waits in the background: a host that
// is never at rest has summaries all the same.
const maxPassed = 64

// waiting is one who waits.
type waiting struct {
	turn chan struct{} // receives when it is the waiting one's turn
	// settled is closed when it need not be any more; nil if it must.
	settled <-chan struct{}
}

func (w waiting) isSettled() bool {
	select {
	case <-w.settled:
		return true
	default:
		return false
	}
}

// enter waits for the caller's turn, at most until ctx is done. Who has entered
// leaves.
func (t *turnstile) enter(ctx context.Context) error {
	_, err := t.enterUnless(ctx, nil)
	return err
}

// enterUnless is enter, but for who need not enter any more once settled is closed:
// entered is false then.
func (t *turnstile) enterUnless(ctx context.Context, settled <-chan struct{}) (entered bool, err error) {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return true, nil
	}
	w := waiting{turn: make(chan struct{}, 1), settled: settled}
	queue := &t.front
	if memory.InBackground(ctx) {
		queue = &t.back
	}
	*queue = append(*queue, w)
	t.mu.Unlock()
	select {
	case <-w.turn:
		return true, nil
	case <-settled:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	*queue = slices.DeleteFunc(*queue, func(other waiting) bool { return other.turn == w.turn })
	t.mu.Unlock()
	select {
	case <-w.turn:
		// It was the caller's turn just then.
		t.leave()
	default:
	}
	return false, err
}

// leave lets the next one through.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range []*[]waiting{&t.front, &t.back} {
		for len(*queue) > 0 && (*queue)[0].isSettled() {
			*queue = (*queue)[1:]
		}
	}
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
	next.turn <- struct{}{}
}
