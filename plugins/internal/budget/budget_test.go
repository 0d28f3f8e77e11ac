package budget_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
)

func TestSpend(t *testing.T) {
	b := budget.New(t.Context(), 2, 10)
	for i, want := range []error{nil, nil, budget.ErrSpent} {
		if err := b.Spend(1, 5); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	b = budget.New(t.Context(), 9, 10)
	if b.Read(10); b.Spend(1, 0) != nil {
		t.Error("what was there is refused")
	}
	if b.Read(1); !errors.Is(b.Spend(1, 0), budget.ErrSpent) {
		t.Error("a byte too many is not noticed")
	}
}

func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := budget.New(ctx, 1, 1)
	for _, test := range []struct{ err, want error }{
		{nil, nil},
		{fs.ErrNotExist, nil},
		{fmt.Errorf("read: %w", abi.KindDenied), nil},
		{fmt.Errorf("read: %w", abi.KindTooManyCalls), budget.ErrSpent},
		{fmt.Errorf("read: %w", abi.KindQuotaExceeded), budget.ErrSpent},
		{fmt.Errorf("read: %w", abi.KindTimeout), budget.ErrSpent},
		{fmt.Errorf("read: %w", budget.ErrSpent), budget.ErrSpent},
	} {
		if got := b.Ends(test.err); got != test.want {
			t.Errorf("%v: got %v, want %v", test.err, got, test.want)
		}
	}
	cancel()
	if got := b.Ends(fs.ErrNotExist); !errors.Is(got, context.Canceled) || b.Ends(nil) != nil {
		t.Errorf("a context that is over: %v", got)
	}
	if err := b.Spend(0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("spent %v", err)
	}
}
