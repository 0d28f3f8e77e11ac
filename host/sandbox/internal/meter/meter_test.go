package meter_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

func shapes(t testing.TB) *wasm.Module { return testModule(t, "shapes") }

// testModule returns a module of testdata.
func testModule(t testing.TB, name string) *wasm.Module {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, data)
}

func decode(t testing.TB, data []byte) *wasm.Module {
	t.Helper()
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

func rewrite(t testing.TB, m *wasm.Module, l meter.Limits) []byte {
	t.Helper()
	rewritten, err := meter.Rewrite(m, l)
	if err != nil {
		t.Fatal(err)
	}
	return rewritten
}

// metered is an instance of a rewritten module.
type metered struct {
	api.Module
	runtime wazero.Runtime
	ticks   int
}

func instantiate(t testing.TB, m *wasm.Module, l meter.Limits) *metered {
	t.Helper()
	i := start(t, rewrite(t, m, l), l.Slice)
	t.Cleanup(func() { i.runtime.Close(context.Background()) })
	return i
}

// start instantiates a module, rewritten or not, with the slices that tick
// grants. Its runtime is the caller's to close.
func start(t testing.TB, data []byte, slice int64) *metered {
	t.Helper()
	i := &metered{runtime: wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2))}
	for _, err := range []error{
		host(t, i.runtime, meter.Module, meter.Tick, func(left int64) int64 {
			if i.ticks++; left == meter.Overflow {
				panic(errors.New("overflow"))
			}
			return left + slice
		}),
		host(t, i.runtime, "env", "call", func(v int32) int32 { return v * 2 }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := i.runtime.InstantiateWithConfig(t.Context(), globals(), wazero.NewModuleConfig().WithName("globals"))
	if err != nil {
		t.Fatal(err)
	}
	if i.Module, err = i.runtime.Instantiate(t.Context(), data); err != nil {
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

// What the cache keeps bears meter.Version: when one of these digests changes,
// raise the version and record the new ones.
func TestVersionNamesWhatRewritingReturns(t *testing.T) {
	const version = 7
	for name, digest := range map[string]string{
		"shapes": "767addab6a4366357072899ef68a175b931ca8fc594e3dc7924c4ebab5ffbe3b",
		"demand": "f332c018d67af2e2c447fdfd316a2661214f0ca6a3614cb53929a16e7dbee643",
	} {
		rewritten := rewrite(t, testModule(t, name), limits)
		if got := fmt.Sprintf("%x", sha256.Sum256(rewritten)); got != digest || meter.Version != version {
			t.Errorf("version %d returns %s for %s; recorded are version %d and %s", meter.Version, got, name, version, digest)
		}
	}
}

func TestRewrittenModuleIsValidAndTheSame(t *testing.T) {
	m := decode(t, rewrite(t, shapes(t), limits))
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
	for _, name := range []string{"shapes", "demand"} {
		m, after := testModule(t, name), decode(t, rewrite(t, testModule(t, name), limits))
		functions := func(m *wasm.Module) int { return m.Imported(wasm.KindFunction) + len(m.Functions) }
		params := len(m.Types[m.Functions[0]].Params)
		for _, space := range []struct {
			name string
			// from is the first index that rewriting adds, to the one after the
			// last.
			from, to int
			// uses are instructions before and after the index.
			uses [][2][]byte
		}{
			{"global", len(m.Globals), len(after.Globals), [][2][]byte{{{0x23}, {0x1a}}, {{0x42, 0, 0x24}, nil}}},
			{"local", params, params + 3, [][2][]byte{{{0x20}, {0x1a}}, {{0x41, 0, 0x21}, nil}, {{0x41, 0, 0x22}, {0x1a}}}},
			{"label", 1, 2, [][2][]byte{{{0x0c}, nil}, {{0x41, 0, 0x0d}, nil}}},
			{"function", functions(m), functions(after), [][2][]byte{{{0x10}, nil}, {{0xd2}, {0x1a}}}},
			{"type", len(m.Types), len(after.Types), [][2][]byte{{{0x41, 0, 0x11}, {0}}, {{0x02}, {0x0b}}}},
			{"table", len(m.Tables), len(m.Tables) + 1, [][2][]byte{{{0x41, 0, 0x25}, {0x1a}}, {{0x41, 0, 0x11, 0}, nil}}},
			{"data segment", len(m.Data), len(m.Data) + 1, [][2][]byte{{{0xfc, 9}, nil}}},
			{"element segment", len(m.Elements), len(m.Elements) + 1, [][2][]byte{{{0xfc, 13}, nil}}},
		} {
			for index := space.from; index < space.to; index++ {
				for n, use := range space.uses {
					// The body ends with unreachable, so that only the index decides.
					code := append(wasm.AppendU32(slices.Clone(use[0]), uint32(index)), use[1]...)
					if err := withBody(t, name, append(code, 0x00, 0x0b)).Validate(); err == nil {
						t.Errorf("%s: %s %d, use %d is not refused", name, space.name, index, n)
					}
				}
			}
		}
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

// withBody is a module of testdata with another body of its first function.
func withBody(t testing.TB, name string, expression []byte) *wasm.Module {
	t.Helper()
	m := testModule(t, name)
	all := slices.Repeat([][]byte{{0x00, 0x0b}}, len(m.Bodies))
	all[0] = expression
	m.Replace(wasm.SectionCode, bodies(all...))
	again, err := wasm.Decode(m.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// FuzzRewrite holds what every valid module must keep: what is rewritten is
// valid too.
func FuzzRewrite(f *testing.F) {
	for _, name := range []string{"shapes", "demand"} {
		f.Add(testModule(f, name).Encode())
	}
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
