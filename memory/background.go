package memory

import "context"

type backgroundKey struct{}

// Background returns ctx for work that nobody waits for: a store that has one
// writer at a time lets others go before it.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// Foreground takes Background back, for a part that somebody may wait for.
func Foreground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, false)
}

// InBackground reports whether ctx is that of work that nobody waits for.
func InBackground(ctx context.Context) bool {
	background, _ := ctx.Value(backgroundKey{}).(bool)
	return background
}
