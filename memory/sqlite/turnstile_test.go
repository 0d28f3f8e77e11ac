package sqlite

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/gloveboxhq/glovebox/memory"
)

// Who waits for an answer goes before the background, in the order of coming; but
// not for ever.
func TestTurnstile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate turnstile
		var order []string
		come := func(ctx context.Context, name string) {
			go func() {
				if gate.enter(ctx) != nil {
					return
				}
				order = append(order, name)
				gate.leave()
			}()
			synctest.Wait()
		}
		background := memory.Background(t.Context())
		if err := gate.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		come(background, "b1")
		come(background, "b2")
		gone, cancel := context.WithCancel(t.Context())
		come(gone, "gone")
		want := []string{}
		for i := range maxPassed + 2 {
			name := "f" + strconv.Itoa(i)
			come(t.Context(), name)
			want = append(want, name)
			if i == maxPassed-1 {
				want = append(want, "b1")
			}
		}
		want = append(want, "b2")
		cancel()
		synctest.Wait()
		gate.leave()
		synctest.Wait()
		if !slices.Equal(order, want) {
			t.Errorf("they went in the order %v, want %v", order, want)
		}
		if err := gate.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := gate.enter(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is let in: %v", err)
		}
		gate.leave()
		if gate.taken || len(gate.front)+len(gate.back) > 0 {
			t.Error("the turnstile is not open again")
		}
	})
}
