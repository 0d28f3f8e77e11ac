package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// tableHands are what is instantiated to see what tables cost: the sample hand
// in Go, one without encoding/json, and the largest table of another language.
var tableHands = []struct {
	name, source string
	build        func(ctx context.Context, source, output string) error
}{
	{"Go, the sample hand", "../../../examples/hand-go", buildGo},
	{"Go without encoding/json", "hands/go/glovebox", buildGo},
	{"Rust std", "hands/rust-std/glovebox.rs", languages[2].build},
}

// filling is a way to fill the tables of a module.
type filling struct {
	name string
	// eager is the limit above which a table is filled on demand.
	eager uint32
	// none says that the module has no elements at all.
	none bool
}

var fillings = []filling{
	{name: "at once", eager: math.MaxUint32},
	{name: "on demand"},
	{name: "never", eager: math.MaxUint32, none: true},
}

func (f filling) rewrite(module []byte) ([]byte, error) {
	m, err := wasm.Decode(module)
	if err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if f.none {
		m.Elements = nil
		m.Remove(wasm.SectionElement)
	}
	limits := abi.DefaultLimits()
	return meter.Rewrite(m, meter.Limits{
		TableElements: uint32(limits.TableElements), EagerElements: f.eager, StackBytes: int32(limits.StackBytes), Slice: slice,
	})
}

// withoutData leaves out what a module puts into its memory: instances from an
// image do not copy it either.
func withoutData(module []byte) ([]byte, error) {
	m, err := wasm.Decode(module)
	if err != nil {
		return nil, err
	}
	m.Remove(wasm.SectionData)
	m.Remove(wasm.SectionDataCount)
	return m.Encode(), nil
}

// tableModule is a module under one filling.
type tableModule struct {
	runtime     wazero.Runtime
	compiled    wazero.CompiledModule
	compilation time.Duration
	code        int64 // bytes of the engine's file
}

// compileTables compiles a module, in a cache that is empty.
func compileTables(ctx context.Context, module []byte, f filling) (t tableModule, err error) {
	if module, err = f.rewrite(module); err != nil {
		return t, err
	}
	dir, err := os.MkdirTemp("", "glovebox-bench-")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(dir)
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return t, err
	}
	t.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).WithDebugInfoEnabled(false).WithCompilationCache(cache))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, t.runtime); err != nil {
		return t, err
	}
	m, err := wasm.Decode(module)
	if err != nil {
		return t, err
	}
	builders := map[string]wazero.HostModuleBuilder{}
	for _, i := range m.Imports {
		if i.Module == abi.ModuleWASI {
			continue
		}
		if builders[i.Module] == nil {
			builders[i.Module] = t.runtime.NewHostModuleBuilder(i.Module)
		}
		call := api.GoFunc(func(context.Context, []uint64) {})
		if i.Module == meter.Module {
			call = tick
		}
		of := m.Types[i.Function]
		builders[i.Module].NewFunctionBuilder().WithGoFunction(call, engineTypes(of.Params), engineTypes(of.Results)).Export(i.Name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return t, err
		}
	}
	began := time.Now()
	t.compiled, err = t.runtime.CompileModule(ctx, module)
	t.compilation = time.Since(began)
	return t, errors.Join(err, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		t.code += info.Size()
		return err
	}))
}

func (t tableModule) close() error { return t.runtime.Close(context.Background()) }

func engineTypes(types []wasm.ValueType) (all []api.ValueType) {
	for _, t := range types {
		all = append(all, api.ValueType(t))
	}
	return all
}

// sameMemory gives every instance the same memory: none of them runs.
type sameMemory struct{ bytes []byte }

func (m *sameMemory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

func (m *sameMemory) Reallocate(size uint64) []byte {
	if uint64(len(m.bytes)) < size {
		m.bytes = make([]byte, size)
	}
	return m.bytes[:size]
}

func (m *sameMemory) Free() {}

// instance is what one instance costs.
type instance struct {
	took          time.Duration
	heap, objects uint64 // allocated
	resident      int64  // while it lives
}

const (
	instances     = 400
	liveInstances = 400
)

// instancesOf makes instances of the modules in turns.
func instancesOf(ctx context.Context, modules []tableModule) ([]instance, error) {
	ctx = experimental.WithMemoryAllocator(ctx, &sameMemory{})
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(zeros{})
	took := make([][]time.Duration, len(modules))
	out := make([]instance, len(modules))
	for round := range instances {
		for i, m := range modules {
			var before, after runtime.MemStats
			count := round == instances/2
			if count {
				runtime.ReadMemStats(&before)
			}
			began := time.Now()
			made, err := m.runtime.InstantiateModule(ctx, m.compiled, config)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], time.Since(began))
			if err := made.Close(ctx); err != nil {
				return nil, err
			}
			if count {
				runtime.ReadMemStats(&after)
				out[i].heap, out[i].objects = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
			}
		}
	}
	for i, m := range modules {
		out[i].took = quantile(took[i], 0.5)
		debug.FreeOSMemory()
		before, err := residentBytes()
		if err != nil {
			return nil, err
		}
		var live []api.Module
		for range liveInstances {
			made, err := m.runtime.InstantiateModule(ctx, m.compiled, config)
			if err != nil {
				return nil, err
			}
			live = append(live, made)
		}
		debug.FreeOSMemory()
		after, err := residentBytes()
		if err != nil {
			return nil, err
		}
		out[i].resident = (after - before) / liveInstances
		for _, made := range live {
			if err := made.Close(ctx); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// residentBytes is the resident memory of this process, in bytes; zero where the
// system does not tell.
func residentBytes() (int64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var size, pages int64
	_, err = fmt.Sscan(string(data), &size, &pages)
	return pages * int64(os.Getpagesize()), err
}

func printTables(ctx context.Context, w io.Writer, _ options) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // tick wants a deadline
	defer cancel()
	fmt.Fprintf(w, "\n## Tables, filled at once and on demand\n\n| hand | elements | filled | an instance | allocated | live | compiled | code |\n|---|---|---|---|---|---|---|---|\n")
	for _, hand := range tableHands {
		module, err := built(ctx, hand.build, hand.source)
		if errors.Is(err, errMissing) {
			fmt.Fprintf(w, "| %s | | %v | | | | | |\n", hand.name, err)
			continue
		}
		if err != nil {
			return err
		}
		if module, err = withoutData(module); err != nil {
			return err
		}
		if err := printTablesOf(ctx, w, hand.name, module); err != nil {
			return fmt.Errorf("%s: %w", hand.name, err)
		}
	}
	if err := printKernelsOnDemand(ctx, w); err != nil {
		return err
	}
	return printCalls(ctx, w)
}

// compilations is how often a module is compiled, in turns.
const compilations = 5

func printTablesOf(ctx context.Context, w io.Writer, name string, module []byte) (err error) {
	m, err := wasm.Decode(module)
	if err != nil {
		return err
	}
	elements := 0
	for _, s := range m.Elements {
		elements += len(s.Functions) + len(s.Items)
	}
	modules := make([]tableModule, len(fillings))
	defer func() {
		for _, t := range modules {
			if t.runtime != nil {
				err = errors.Join(err, t.close())
			}
		}
	}()
	took := make([][]time.Duration, len(fillings))
	for range compilations {
		for i, f := range fillings {
			if modules[i].runtime != nil {
				if err := modules[i].close(); err != nil {
					return err
				}
			}
			if modules[i], err = compileTables(ctx, module, f); err != nil {
				return err
			}
			took[i] = append(took[i], modules[i].compilation)
		}
	}
	costs, err := instancesOf(ctx, modules)
	if err != nil {
		return err
	}
	for i, c := range costs {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %.0f KB, %d pieces | %.0f KB | %.0f ms | %.0f KB |\n", name, elements, fillings[i].name, microseconds(c.took),
			float64(c.heap)/1e3, c.objects, float64(c.resident)/1e3, float64(quantile(took[i], 0.5))/1e6, float64(modules[i].code)/1e3)
	}
	return nil
}

// tableKernels are what is run with tables filled at once and on demand: the
// kernels of the metering, few of which call through a table, and some that do
// little else.
var tableKernels = []struct {
	source  string
	kernels []string
}{
	{"kernels/go", kernels},
	{"kernels/indirect", []string{"interface", "closure", "json", "format"}},
}

// printKernelsOnDemand compares kernels in Go with tables filled on demand with
// the same where they are filled at once. The last column is the latter once
// more, and says what the machine adds.
func printKernelsOnDemand(ctx context.Context, w io.Writer) error {
	all := []scheme{
		{name: fillings[0].name, rewrite: fillings[0].rewrite},
		{name: fillings[1].name, rewrite: fillings[1].rewrite},
		{name: fillings[0].name, rewrite: fillings[0].rewrite},
	}
	for _, s := range tableKernels {
		module, err := built(ctx, buildGo, s.source)
		if err != nil {
			return err
		}
		costs, err := kernelCosts(ctx, module, s.kernels, all)
		if err != nil {
			return fmt.Errorf("%s: %w", s.source, err)
		}
		fmt.Fprintf(w, "\n| %s | on demand | at once again |\n|---|---|---|\n", s.source)
		for _, c := range costs {
			fmt.Fprintf(w, "| %s | %.2f | %.2f |\n", c.kernel, c.ratios[1], c.ratios[2])
		}
		demand, _ := summarise(costs, 1)
		again, _ := summarise(costs, 2)
		fmt.Fprintf(w, "| **geometric mean** | %.3f | %.3f |\n", demand, again)
	}
	return nil
}

// manyElements is how many functions printCalls calls.
const manyElements = 4096

// caller is a module with one table of so many functions, which do nothing, and
// an export that calls those from one index up to another.
func caller(elements int) []byte {
	m := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id wasm.SectionID, content []byte) {
		m = append(wasm.AppendU32(append(m, byte(id)), uint32(len(content))), content...)
	}
	section(wasm.SectionType, []byte{2, 0x60, 1, byte(wasm.I32), 1, byte(wasm.I32), 0x60, 2, byte(wasm.I32), byte(wasm.I32), 0})
	section(wasm.SectionFunction, []byte{2, 0, 1})
	section(wasm.SectionTable, wasm.AppendU32([]byte{1, byte(wasm.FuncRef), 0}, uint32(elements)))
	section(wasm.SectionExport, append(wasm.AppendName([]byte{1}, "run"), 0, 1))
	section(wasm.SectionElement, append(wasm.AppendU32([]byte{1, 0, 0x41, 0, 0x0b}, uint32(elements)), make([]byte, elements)...))
	bodies := []byte{2, 4, 0, 0x20, 0, 0x0b} // the parameter itself
	loop := []byte{0, 0x03, 0x40,            // loop
		0x20, 0, 0x20, 0, 0x11, 0, 0, 0x1a, // call it with its index, drop
		0x20, 0, 0x41, 1, 0x6a, 0x22, 0, 0x20, 1, 0x49, 0x0d, 0, // again if the next is below the end
		0x0b, 0x0b}
	section(wasm.SectionCode, append(wasm.AppendU32(bodies, uint32(len(loop))), loop...))
	return m
}

// printCalls tells what the first and a later call through each element of a
// table take.
func printCalls(ctx context.Context, w io.Writer) (err error) {
	first, later := make([]time.Duration, 2), make([]time.Duration, 2)
	var modules []tableModule
	defer func() {
		for _, t := range modules {
			err = errors.Join(err, t.close())
		}
	}()
	for _, f := range fillings[:2] {
		t, err := compileTables(ctx, caller(manyElements), f)
		if t.runtime != nil {
			modules = append(modules, t)
		}
		if err != nil {
			return err
		}
	}
	for round := range kernelRounds {
		for i, t := range modules {
			made, err := t.runtime.InstantiateModule(ctx, t.compiled, wazero.NewModuleConfig().WithName(""))
			if err != nil {
				return err
			}
			for _, fastest := range []*time.Duration{&first[i], &later[i]} {
				began := time.Now()
				if _, err := made.ExportedFunction("run").Call(ctx, 0, manyElements); err != nil {
					return err
				}
				if took := time.Since(began); round == 0 || took < *fastest {
					*fastest = took
				}
			}
			if err := made.Close(ctx); err != nil {
				return err
			}
		}
	}
	each := func(d time.Duration) float64 { return float64(d) / manyElements }
	fmt.Fprintf(w, "\nA call through one of %d elements, the first and the second: %.1f and %.1f ns with the table filled at once, %.1f and %.1f ns on demand\n",
		manyElements, each(first[0]), each(later[0]), each(first[1]), each(later[1]))
	return nil
}
