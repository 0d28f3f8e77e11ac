package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/kv"
)

func TestValuesGivenByATest(t *testing.T) {
	ctx := kv.WithStore(t.Context(), &kv.Memory{ValueBytes: 10, TotalBytes: 20})
	if _, err := kv.Get(ctx, "a"); !errors.Is(err, abi.KindNotFound) || !strings.Contains(err.Error(), `kv get "a"`) {
		t.Errorf("absent: %v", err)
	}
	for _, step := range []struct {
		key, value string
		want       error
	}{
		{"a", "12345678", nil},           // 9
		{"bb", "123456789", nil},         // 20
		{"c", "", abi.KindQuotaExceeded}, // 21
		{"a", "123456789", abi.KindQuotaExceeded},
		{"a", "", nil},        // 12
		{"c", "1234567", nil}, // 20
		{"c", "12345678901", abi.KindTooLarge},
	} {
		if err := kv.Set(ctx, step.key, []byte(step.value)); !errors.Is(err, step.want) {
			t.Errorf("set %s: %v, want %v", step.key, err, step.want)
		}
	}
	for range 2 {
		if err := kv.Delete(ctx, "bb"); err != nil {
			t.Error(err)
		}
	}
	if err := kv.Set(ctx, "d", []byte("12345678")); err != nil { // 18 after the deletion
		t.Error(err)
	}
	for key, want := range map[string]string{"a": "", "c": "1234567", "d": "12345678"} {
		if got, err := kv.Get(ctx, key); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	if _, err := kv.Get(t.Context(), "a"); !errors.Is(err, abi.KindDisabled) {
		t.Errorf("outside a hand: %v", err)
	}
}

// A caller who keeps its slices does not change what is kept, nor the reverse.
func TestMemoryKeepsCopies(t *testing.T) {
	ctx := kv.WithStore(t.Context(), &kv.Memory{})
	value := []byte("one")
	if err := kv.Set(ctx, "k", value); err != nil {
		t.Fatal(err)
	}
	value[0] = 'X'
	got, err := kv.Get(ctx, "k")
	if err != nil || string(got) != "one" {
		t.Fatalf("%q, %v", got, err)
	}
	got[0] = 'Y'
	if got, _ := kv.Get(ctx, "k"); string(got) != "one" {
		t.Errorf("%q", got)
	}
}

func TestBadKeysAreRefusedBeforeAnyStore(t *testing.T) {
	ctx := kv.WithStore(t.Context(), &kv.Memory{})
	for _, key := range []string{"", strings.Repeat("k", kv.MaxKeyBytes+1), "\xff", "a\xc3"} {
		_, get := kv.Get(ctx, key)
		for op, err := range map[string]error{"get": get, "set": kv.Set(ctx, key, nil), "delete": kv.Delete(ctx, key)} {
			if !errors.Is(err, abi.KindBadRequest) {
				t.Errorf("%s %q: %v", op, key, err)
			}
		}
	}
	for _, key := range []string{"\x00", "\n", strings.Repeat("k", kv.MaxKeyBytes), "\ufffd"} {
		if err := kv.Set(ctx, key, nil); err != nil {
			t.Errorf("set %q: %v", key, err)
		}
	}
	if _, err := kv.List(ctx, "\xff", "", 1); !errors.Is(err, abi.KindBadRequest) {
		t.Errorf("list: %v", err)
	}
	if _, err := kv.List(ctx, "", "", -1); !errors.Is(err, abi.KindBadRequest) {
		t.Errorf("list: %v", err)
	}
}

func TestKeysPageThroughAll(t *testing.T) {
	ctx := kv.WithStore(t.Context(), &kv.Memory{})
	var want []string
	for i := range 2*kv.MaxPageKeys + 1 {
		key := fmt.Sprintf("p/%05d", i)
		want = append(want, key)
		if err := kv.Set(ctx, key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{"p", "p0", "q/1", "o"} {
		if err := kv.Set(ctx, other, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for key, err := range kv.Keys(ctx, "p/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	for key := range kv.Keys(ctx, "") {
		if key != "o" {
			t.Errorf("the first is %q", key)
		}
		break
	}
	count := 0
	for key, err := range kv.Keys(kv.WithStore(t.Context(), failing{}), "") {
		if count++; key != "" || !errors.Is(err, abi.KindUnavailable) {
			t.Errorf("%q, %v", key, err)
		}
	}
	if count != 1 {
		t.Errorf("%d errors", count)
	}
}

type failing struct{ kv.Store }

func (failing) List(context.Context, string, string, int) (kv.Page, error) {
	return kv.Page{}, abi.KindUnavailable
}
