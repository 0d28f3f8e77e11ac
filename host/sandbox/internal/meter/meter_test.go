package meter_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

func shapes(t testing.TB) *wasm.Module {
	t.Helper()
	data, err := os.ReadFile("testdata/shapes.wasm")
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	return m
}

var limits = meter.Limits{TableElements: 50, StackBytes: 1 << 20, Slice: 1 << 40}

// metered is an instance of a rewritten module.
type metered struct {
	api.Module
	ticks int
}

func instantiate(t testing.TB, m *wasm.Module, l meter.Limits) *metered {
	t.Helper()
	rewritten, err := meter.Rewrite(m, l)
	if err != nil {
		t.Fatal(err)
	}
	i := &metered{}
	runtime := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { runtime.Close(context.Background()) })
	for _, err := range []error{
		host(t, runtime, meter.Module, meter.Tick, func(left int64) int64 {
			if i.ticks++; left == meter.Overflow {
				panic(errors.New("overflow"))
			}
			return left + l.Slice
		}),
		host(t, runtime, "env", "call", func(v int32) int32 { return v * 2 }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if i.Module, err = runtime.Instantiate(t.Context(), rewritten); err != nil {
		t.Fatal(err)
	}
	return i
}

func host(t testing.TB, r wazero.Runtime, module, name string, f any) error {
	_, err := r.NewHostModuleBuilder(module).NewFunctionBuilder().WithFunc(f).Export(name).Instantiate(t.Context())
	return err
}

func (i *metered) call(t testing.TB, name string, args ...uint64) ([]uint64, int64) {
	t.Helper()
	before := i.ExportedGlobal(meter.Fuel).Get()
	results, err := i.ExportedFunction(name).Call(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return results, int64(before - i.ExportedGlobal(meter.Fuel).Get())
}

// What the cache keeps bears meter.Version: when this digest changes, raise the
// version and record the new digest.
func TestVersionNamesWhatRewritingReturns(t *testing.T) {
	rewritten, err := meter.Rewrite(shapes(t), limits)
	if err != nil {
		t.Fatal(err)
	}
	const version, digest = 4, "767addab6a4366357072899ef68a175b931ca8fc594e3dc7924c4ebab5ffbe3b"
	if got := fmt.Sprintf("%x", sha256.Sum256(rewritten)); got != digest || meter.Version != version {
		t.Errorf("version %d returns %s; recorded are version %d and %s", meter.Version, got, version, digest)
	}
}

func TestRewrittenModuleIsValidAndTheSame(t *testing.T) {
	rewritten, err := meter.Rewrite(shapes(t), limits)
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Decode(rewritten)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if m.Start != nil {
		t.Error("the start section is still there")
	}
	if most := []uint32{*m.Tables[0].Max, *m.Tables[1].Max}; most[0] != 46 || most[1] != 4 {
		t.Errorf("table maxima %v; the one that grows gets what the other leaves of 50", most)
	}
}

// The units are part of what operators tune limits by: one an instruction, more
// where one does more.
func TestUnits(t *testing.T) {
	i := instantiate(t, shapes(t), limits)
	for _, test := range []struct {
		name    string
		args    []uint64
		results []uint64
		fuel    int64
	}{
		{meter.Start, nil, nil, 2},
		{"leaf", []uint64{4}, []uint64{5}, 3},
		{"calls", []uint64{0}, []uint64{0}, 4},
		{"calls", []uint64{1}, []uint64{2}, 27},
		{"calls", []uint64{3}, []uint64{33}, 9},
		{"loop", []uint64{0}, []uint64{0}, 4},
		{"loop", []uint64{10}, []uint64{55}, 4 + 10*12},
		{"loop", []uint64{20}, []uint64{210}, 4 + 20*12},
		{"host", []uint64{21}, []uint64{42}, 501},
		{"indirect", []uint64{5, 0}, []uint64{6}, 13},
		{"indirect", []uint64{5, 1}, []uint64{10}, 510},
		{"switch", []uint64{0}, []uint64{10}, 3},
		{"switch", []uint64{2}, []uint64{30}, 4},
		{"pair", nil, []uint64{1, 2}, 4},
		{"bulk", []uint64{0, 0, 0}, nil, 16},
		{"bulk", []uint64{0, 0, 64}, nil, 20},
		{"init", nil, nil, 137},
		{"grow", []uint64{3}, []uint64{2}, 10},
		{"grow", []uint64{1 << 30}, []uint64{1<<32 - 1}, 7},
		{"more", []uint64{1}, []uint64{1}, 1001},
	} {
		results, fuel := i.call(t, test.name, test.args...)
		if fmt.Sprint(results) != fmt.Sprint(test.results) || fuel != test.fuel {
			t.Errorf("%s %v: %v for %d units, want %v for %d", test.name, test.args, results, fuel, test.results, test.fuel)
		}
	}
	if i.ticks != 0 {
		t.Errorf("%d ticks within one slice", i.ticks)
	}
}

func TestTicksComeWithEverySlice(t *testing.T) {
	l := limits
	l.Slice = 1000
	i := instantiate(t, shapes(t), l)
	if _, err := i.ExportedFunction("loop").Call(t.Context(), 10_000); err != nil {
		t.Fatal(err)
	}
	if i.ticks < 119 || i.ticks > 121 {
		t.Errorf("%d ticks for 120,000 units in slices of 1,000", i.ticks)
	}
	// One call that is worth many slices.
	i = instantiate(t, shapes(t), l)
	if _, err := i.ExportedFunction("more").Call(t.Context(), 63); err != nil {
		t.Fatal(err)
	}
	i.ticks = 0
	if _, err := i.ExportedFunction("bulk").Call(t.Context(), 0, 1, 4<<20-1); err != nil {
		t.Fatal(err)
	}
	if i.ticks < 30 {
		t.Errorf("%d ticks for 8 MiB, which are 32 pieces", i.ticks)
	}
}

func TestDeepCallsOverflow(t *testing.T) {
	i := instantiate(t, shapes(t), limits)
	_, err := i.ExportedFunction("calls").Call(t.Context(), 1<<20)
	if err == nil || i.ticks != 1 {
		t.Errorf("%d ticks, %v", i.ticks, err)
	}
	if left := int64(i.ExportedGlobal(meter.Stack).Get()); left >= 0 {
		t.Errorf("%d bytes of stack are left", left)
	}
}

// What rewriting adds to an index space must not be what the original meant: an
// index that was out of range before is refused by validation, which comes
// first.
func TestNoOriginalIndexReachesWhatIsAdded(t *testing.T) {
	// Each body ends with unreachable, so that only the index decides.
	body := func(code ...byte) []byte { return append(append([]byte{0}, code...), 0x00, 0x0b) }
	for _, test := range []struct {
		space string
		body  []byte
	}{
		{"global", body(0x23, 2, 0x1a)},
		{"global, the stack", body(0x23, 3, 0x1a)},
		{"global, set", body(0x42, 0, 0x24, 2)},
		{"local", body(0x20, 0, 0x1a)},
		{"label", body(0x0c, 1)},
		{"function, moved by tick", body(0x10, 13)},
		{"function, a helper", body(0x10, 14)},
		{"function, taken", body(0xd2, 13, 0x1a)},
		{"type of a call", body(0x41, 0, 0x11, 20, 0)},
		{"type of a block", body(0x02, 20, 0x0b)},
		{"table", body(0x41, 0, 0x25, 2, 0x1a)},
		{"data segment", body(0xfc, 9, 2)},
		{"element segment", body(0xfc, 13, 2)},
	} {
		t.Run(test.space, func(t *testing.T) {
			m := shapes(t)
			code := wasm.AppendU32(nil, uint32(len(m.Bodies)))
			code = append(wasm.AppendU32(code, uint32(len(test.body))), test.body...)
			for range m.Bodies[1:] {
				code = append(code, 3, 0, 0x00, 0x0b)
			}
			m.Replace(wasm.SectionCode, code)
			again, err := wasm.Decode(m.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Validate(); !errors.Is(err, wasm.ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, name := range []string{meter.Fuel, meter.Stack, meter.Start, meter.Prefix + "anything"} {
		m := shapes(t)
		exports := wasm.AppendU32(nil, 1)
		m.Exports = []wasm.Export{{Name: name, Kind: wasm.KindFunction, Index: 1}}
		m.Replace(wasm.SectionExport, append(wasm.AppendName(exports, name), 0, 1))
		if _, err := meter.Rewrite(m, limits); err == nil {
			t.Errorf("an export called %s is not refused", name)
		}
	}
}

// FuzzRewrite holds what every valid module must keep: what is rewritten is
// valid too.
func FuzzRewrite(f *testing.F) {
	data, err := os.ReadFile("testdata/shapes.wasm")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wasm.Decode(data)
		if err != nil || m.Validate() != nil {
			return
		}
		rewritten, err := meter.Rewrite(m, limits)
		if err != nil {
			return
		}
		again, err := wasm.Decode(rewritten)
		if err != nil {
			t.Fatalf("rewritten module: %v", err)
		}
		if err := again.Validate(); err != nil {
			t.Fatalf("rewritten module: %v", err)
		}
	})
}
