package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// kernels are exported under these names by kernels/c and kernels/go, as
// functions of type (i32) -> i32: how often to do the work, and a checksum.
var kernels = []string{
	"loop", "calls", "recursion", "stream", "nbody", "matrix",
	"hash", "sort", "parse", "sieve", "search", "crc32",
}

// kernelSources are the same kernels in each language.
var kernelSources = []struct {
	language string
	source   string
	build    func(ctx context.Context, source, output string) error
}{
	{"c", "kernels/c/kernels.c", buildC},
	{"go", "kernels/go", buildGo},
}

// slice is the fuel between two ticks: that of package sandbox, which does not
// export it.
const slice = 256 << 10

// metered returns a module as the sandbox has it compiled.
func metered(module []byte) ([]byte, error) {
	m, err := wasm.Decode(module)
	if err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	limits := abi.DefaultLimits()
	return meter.Rewrite(m, meter.Limits{
		TableElements: uint32(limits.TableElements),
		StackBytes:    int32(limits.StackBytes),
		EagerElements: meter.EagerElements,
		Slice:         slice,
	})
}

// tick does what the sandbox's does at the end of a slice.
func tick(ctx context.Context, stack []uint64) {
	if int64(stack[0]) == meter.Overflow {
		panic(errors.New("call stack used up"))
	}
	deadline, _ := ctx.Deadline()
	if !time.Now().Before(deadline) || ctx.Err() != nil {
		panic(errors.New("time is up"))
	}
	runtime.Gosched()
	stack[0] = slice
}

// scheme is a way to have a guest end at its deadline.
type scheme struct {
	name string
	// rewrite is nil if the module is compiled as it is.
	rewrite func([]byte) ([]byte, error)
	// interrupted says that the engine ends the guest by its own means.
	interrupted bool
}

var schemes = []scheme{
	{name: "none"},
	{name: "fuel", rewrite: metered},
	{name: "engine", interrupted: true},
}

// kernelInstance is a module of kernels under one scheme.
type kernelInstance struct {
	runtime wazero.Runtime
	module  api.Module
}

func (s scheme) instantiate(ctx context.Context, module []byte) (k kernelInstance, err error) {
	if s.rewrite != nil {
		if module, err = s.rewrite(module); err != nil {
			return k, fmt.Errorf("meter: %w", err)
		}
	}
	k.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).WithDebugInfoEnabled(false).WithCloseOnContextDone(s.interrupted))
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, k.runtime); err != nil {
		return k, err
	}
	i64 := []api.ValueType{api.ValueTypeI64}
	if _, err := k.runtime.NewHostModuleBuilder(meter.Module).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(tick), i64, i64).Export(meter.Tick).
		Instantiate(ctx); err != nil {
		return k, err
	}
	k.module, err = k.runtime.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.ExportInitialize))
	return k, err
}

func (k kernelInstance) close() error { return k.runtime.Close(context.Background()) }

// run runs a kernel n times and returns its checksum and how long it took.
func (k kernelInstance) run(ctx context.Context, kernel string, n int32) (int32, time.Duration, error) {
	function := k.module.ExportedFunction(kernel)
	if function == nil {
		return 0, 0, fmt.Errorf("kernel %s is not exported", kernel)
	}
	began := time.Now()
	results, err := function.Call(ctx, api.EncodeI32(n))
	took := time.Since(began)
	if err != nil {
		return 0, 0, fmt.Errorf("kernel %s: %w", kernel, err)
	}
	return api.DecodeI32(results[0]), took, nil
}

// repetitions returns how often a kernel does its work in the given time.
func (k kernelInstance) repetitions(ctx context.Context, kernel string, target time.Duration) (int32, error) {
	for n := int32(1); ; n *= 2 {
		_, took, err := k.run(ctx, kernel, n)
		if err != nil || took >= target || n > 1<<16 {
			return n, err
		}
	}
}

// kernelCost is how much longer a kernel takes under each scheme than under the
// first.
type kernelCost struct {
	kernel string
	ratios []float64
}

// The time that a kernel runs for in one round, and the rounds: fewer for the
// engine's own means, which are many times slower.
const (
	kernelTime        = 2 * time.Millisecond
	kernelRounds      = 41
	interruptedRounds = 9
)

// kernelCosts runs kernels of a module under every scheme in turns, the first
// being what the others are held against, and compares the fastest rounds: the
// work is the same in each, and whatever else the machine does can only add to
// it.
func kernelCosts(ctx context.Context, module []byte, kernels []string, schemes []scheme) (costs []kernelCost, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	var instances []kernelInstance
	defer func() {
		for _, k := range instances {
			err = errors.Join(err, k.close())
		}
	}()
	for _, s := range schemes {
		k, err := s.instantiate(ctx, module)
		if err != nil {
			return nil, fmt.Errorf("scheme %s: %w", s.name, err)
		}
		instances = append(instances, k)
	}
	for _, kernel := range kernels {
		n, err := instances[0].repetitions(ctx, kernel, kernelTime)
		if err != nil {
			return nil, err
		}
		want, _, err := instances[0].run(ctx, kernel, n)
		if err != nil {
			return nil, err
		}
		fastest := make([]time.Duration, len(schemes))
		for round := range kernelRounds {
			for i, k := range instances {
				if schemes[i].interrupted && round >= interruptedRounds {
					continue
				}
				sum, took, err := k.run(ctx, kernel, n)
				if err != nil {
					return nil, fmt.Errorf("scheme %s: %w", schemes[i].name, err)
				}
				if sum != want {
					return nil, fmt.Errorf("scheme %s: kernel %s gives %d instead of %d", schemes[i].name, kernel, sum, want)
				}
				if round == 0 || took < fastest[i] {
					fastest[i] = took
				}
			}
		}
		cost := kernelCost{kernel: kernel}
		for _, took := range fastest {
			cost.ratios = append(cost.ratios, float64(took)/float64(fastest[0]))
		}
		costs = append(costs, cost)
	}
	return costs, nil
}

// summarise returns the geometric mean and the worst of the ratios under one
// scheme.
func summarise(costs []kernelCost, scheme int) (mean, worst float64) {
	sum := 0.0
	for _, c := range costs {
		sum += math.Log(c.ratios[scheme])
		worst = max(worst, c.ratios[scheme])
	}
	return math.Exp(sum / float64(len(costs))), worst
}
