// Package budget bounds what a hand reads in one query. The host has bounds of its own;
// one that is below them lets the reply say what was left out, and no read fails for
// want of quota.
package budget

import (
	"context"
	"errors"

	"github.com/gloveboxhq/glovebox/abi"
)

// ErrSpent ends reading: the budget, or what the host allows, is used up.
var ErrSpent = errors.New("read limit reached")

// Budget is what is left for one query. One goroutine uses it.
type Budget struct {
	ctx          context.Context
	calls, bytes int
}

// New returns a budget of so many calls of the host and so many bytes.
func New(ctx context.Context, calls, bytes int) *Budget {
	return &Budget{ctx: ctx, calls: calls, bytes: bytes}
}

// Spend takes calls and bytes off. The error is that of the context, which may be over,
// or ErrSpent.
func (b *Budget) Spend(calls, bytes int) error {
	b.Read(bytes)
	b.calls -= calls
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if b.calls < 0 || b.bytes < 0 {
		return ErrSpent
	}
	return nil
}

// Read takes bytes off that were read already; the next Spend says whether there were
// as many.
func (b *Budget) Read(bytes int) { b.bytes -= bytes }

// Ends returns the error with which reading must end because of err: that of the
// context, or ErrSpent, also where it was the host that allowed no more. It returns nil
// for one that costs only what was to be read.
func (b *Budget) Ends(err error) error {
	switch {
	case err == nil:
		return nil
	case b.ctx.Err() != nil:
		return b.ctx.Err()
	case errors.Is(err, ErrSpent), errors.Is(err, abi.KindTooManyCalls), errors.Is(err, abi.KindQuotaExceeded), errors.Is(err, abi.KindTimeout):
		return ErrSpent
	}
	return nil
}
