package compaction

import (
	"context"
	"errors"
	"time"
)

// limit is a context that ends after so much time, of which pauses are no part. It
// belongs to one goroutine, but for the methods of context.Context.
type limit struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	left   time.Duration
	began  time.Time
}

// newLimit returns a limit, whose owner calls end.
func newLimit(ctx context.Context, left time.Duration) *limit {
	ctx, cancel := context.WithCancelCause(ctx)
	return &limit{
		Context: ctx, cancel: cancel, left: left, began: time.Now(),
		timer: time.AfterFunc(left, func() { cancel(context.DeadlineExceeded) }),
	}
}

// Err implements context.Context.
func (l *limit) Err() error {
	if err := l.Context.Err(); err == nil || !errors.Is(context.Cause(l.Context), context.DeadlineExceeded) {
		return err
	}
	return context.DeadlineExceeded
}

// pause stops the time until the returned function is called.
func (l *limit) pause() (resume func()) {
	if !l.timer.Stop() {
		return func() {} // it is over
	}
	l.left -= time.Since(l.began)
	return func() {
		l.began = time.Now()
		l.timer.Reset(max(l.left, 0))
	}
}

func (l *limit) end() {
	l.timer.Stop()
	l.cancel(nil)
}
