package sandbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

type callKey struct{}

// limited is the context of a query: its caller's with the query's deadline. It has a
// timer only when somebody waits for its end: a guest that waits for nothing looks at
// the clock in its ticks. It is safe for concurrent use; end frees it.
type limited struct {
	context.Context // the caller's
	call            *call
	deadline        time.Time

	mu sync.Mutex // held to set waited
	// waited is the same with a timer, once somebody waited, or ended is.
	waited atomic.Pointer[waited]
}

type waited struct {
	context.Context
	cancel context.CancelFunc
}

// ended is over.
var ended = func() *waited {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return &waited{ctx, cancel}
}()

// begin begins the query's time.
func (l *limited) begin(ctx context.Context, c *call, timeout time.Duration) {
	l.Context, l.call, l.deadline = ctx, c, time.Now().Add(timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(l.deadline) {
		l.deadline = earlier
	}
}

func (l *limited) wait() *waited {
	if w := l.waited.Load(); w != nil {
		return w
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waited.Load()
	if w == nil {
		w = new(waited)
		w.Context, w.cancel = context.WithDeadline(l.Context, l.deadline)
		l.waited.Store(w)
	}
	return w
}

// Deadline implements context.Context.
func (l *limited) Deadline() (time.Time, bool) { return l.deadline, true }

// Done implements context.Context.
func (l *limited) Done() <-chan struct{} { return l.wait().Done() }

// Err implements context.Context.
func (l *limited) Err() error {
	if w := l.waited.Load(); w != nil {
		return w.Err()
	}
	if err := l.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(l.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context: of callKey it is the call. Contexts that are
// derived find the one with the timer by it, and need no goroutine to hear of its end.
func (l *limited) Value(key any) any {
	if key == (callKey{}) {
		return l.call
	}
	if w := l.waited.Load(); w != nil && w != ended {
		return w.Value(key)
	}
	return l.Context.Value(key)
}

func (l *limited) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waited.Load(); w != nil {
		w.cancel()
	} else {
		l.waited.Store(ended)
	}
}
