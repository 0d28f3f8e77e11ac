package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/wapc/wapc-go"
	wapcwazero "github.com/wapc/wapc-go/engines/wazero"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// hosts run hands. The first is what the others are held against.
var hosts = []host{
	{"glovebox", "glovebox", loadGlovebox},
	{"wazero", "glovebox", loadWazero},
	{"extism", "extism", loadExtism},
	{"extism-reuse", "extism", loadExtismReuse},
	{"wapc", "wapc", loadWapc},
}

type host struct {
	name string
	// contract names the sources of hands for this host.
	contract string
	load     func(ctx context.Context, module []byte) (loaded, error)
}

// loaded is a hand that a host has compiled.
type loaded struct {
	// worker returns what one goroutine at a time asks the hand with. It is
	// safe for concurrent use itself.
	worker func(ctx context.Context) (ask, error)
	close  func() error
}

// ask puts one query to the hand and checks that there is a reply.
type ask func(ctx context.Context) error

// replyText is what every trivial hand replies.
const replyText = "Nothing happened."

// query is what every hand is asked; queryJSON is its encoding, which Glovebox
// makes anew for each query and the others get as it is.
var (
	query = abi.Query{
		Prompt:          "What happened on this day?",
		From:            time.Date(2026, 3, 23, 0, 0, 0, 0, time.UTC),
		To:              time.Date(2026, 3, 24, 0, 0, 0, 0, time.UTC),
		Now:             time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC),
		Timezone:        "UTC",
		MaxOutputTokens: 500,
	}
	queryJSON = func() []byte {
		encoded, err := json.Marshal(query)
		if err != nil {
			panic(err)
		}
		return encoded
	}()
)

func checkReply(reply []byte) error {
	if string(reply) != replyText {
		return fmt.Errorf("replied %q", reply)
	}
	return nil
}

// loadGlovebox loads a hand as it is shipped: default limits, the compiled
// module in a cache on disk, a fresh instance for each query.
func loadGlovebox(ctx context.Context, module []byte) (loaded, error) {
	engine, err := sandbox.New(sandbox.Config{})
	if err != nil {
		return loaded{}, err
	}
	hand, err := engine.Load(ctx, module, handOptions(abi.Limits{}))
	if err != nil {
		return loaded{}, errors.Join(err, engine.Close())
	}
	// The text is looked at once: rendering it is no part of a query.
	result, err := hand.Query(ctx, query, sandbox.Ports{})
	if err == nil && !strings.Contains(result.Reply.Render(), replyText) {
		err = fmt.Errorf("replied %s", result.Reply.Render())
	}
	if err != nil {
		return loaded{}, errors.Join(err, engine.Close())
	}
	worker := func(context.Context) (ask, error) {
		return func(ctx context.Context) error {
			result, err := hand.Query(ctx, query, sandbox.Ports{})
			if err == nil && result.Reply.IsEmpty() {
				err = errors.New("no reply")
			}
			return err
		}, nil
	}
	return loaded{worker, engine.Close}, nil
}

func handOptions(limits abi.Limits) sandbox.Options {
	return sandbox.Options{Name: "bench", Limits: limits, Trusted: true}
}

// loadWazero runs the hands of Glovebox on the bare engine with its defaults: a
// compiled module, a new instance for each query, no limit of any kind.
func loadWazero(ctx context.Context, module []byte) (loaded, error) {
	runtime := wazero.NewRuntime(ctx)
	fail := func(err error) (loaded, error) {
		return loaded{}, errors.Join(err, runtime.Close(ctx))
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return fail(err)
	}
	type replyKey struct{}
	i32 := []api.ValueType{api.ValueTypeI32}
	pair := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}
	ignore := func(context.Context, api.Module, []uint64) {}
	if _, err := runtime.NewHostModuleBuilder(abi.ModuleCore).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		stack[0] = uint64(len(queryJSON))
	}), nil, i32).Export("query_size").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, guest api.Module, stack []uint64) {
		to, ok := guest.Memory().Read(uint32(stack[0]), uint32(stack[1]))
		if !ok {
			panic("query_read out of range")
		}
		stack[0] = uint64(copy(to, queryJSON))
	}), pair, i32).Export("query_read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, guest api.Module, stack []uint64) {
		text, ok := guest.Memory().Read(uint32(stack[0]), uint32(stack[1]))
		if !ok {
			panic("reply out of range")
		}
		reply := ctx.Value(replyKey{}).(*[]byte)
		*reply = append(*reply, text...)
		stack[0] = 0
	}), pair, i32).Export("reply").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(ignore), pair, i32).Export("result_read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(ignore), pair, nil).Export("fail").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(ignore), append(i32, pair...), nil).Export("log").
		Instantiate(ctx); err != nil {
		return fail(err)
	}
	compiled, err := runtime.CompileModule(ctx, module)
	if err != nil {
		return fail(err)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.ExportInitialize)
	worker := func(context.Context) (ask, error) {
		return func(ctx context.Context) error {
			var reply []byte
			ctx = context.WithValue(ctx, replyKey{}, &reply)
			instance, err := runtime.InstantiateModule(ctx, compiled, config)
			if err != nil {
				return err
			}
			defer instance.Close(ctx)
			results, err := instance.ExportedFunction(abi.ExportQuery).Call(ctx)
			if err != nil {
				return err
			}
			if results[0] != 0 {
				return fmt.Errorf("status %d", results[0])
			}
			return checkReply(reply)
		}, nil
	}
	return loaded{worker, func() error { return runtime.Close(context.Background()) }}, nil
}

// compileExtism gives Extism the limits that it has: time and memory, those of
// Glovebox.
func compileExtism(ctx context.Context, module []byte) (*extism.CompiledPlugin, error) {
	limits := abi.DefaultLimits()
	return extism.NewCompiledPlugin(ctx, extism.Manifest{
		Wasm:    []extism.Wasm{extism.WasmData{Data: module}},
		Memory:  &extism.ManifestMemory{MaxPages: uint32(limits.MemoryBytes >> 16)},
		Timeout: uint64(limits.Timeout.Milliseconds()),
	}, extism.PluginConfig{EnableWasi: true}, nil)
}

func askExtism(ctx context.Context, plugin *extism.Plugin) error {
	status, reply, err := plugin.CallWithContext(ctx, "query", queryJSON)
	if err != nil {
		return err
	}
	if status != 0 {
		return fmt.Errorf("status %d", status)
	}
	return checkReply(reply)
}

// loadExtism makes a new instance of a compiled plugin for each query.
func loadExtism(ctx context.Context, module []byte) (loaded, error) {
	compiled, err := compileExtism(ctx, module)
	if err != nil {
		return loaded{}, err
	}
	worker := func(context.Context) (ask, error) {
		return func(ctx context.Context) error {
			plugin, err := compiled.Instance(ctx, extism.PluginInstanceConfig{})
			if err != nil {
				return err
			}
			return errors.Join(askExtism(ctx, plugin), plugin.Close(ctx))
		}, nil
	}
	return loaded{worker, func() error { return compiled.Close(context.Background()) }}, nil
}

// loadExtismReuse asks one instance again and again: what a hand leaves behind
// is there for the next query.
func loadExtismReuse(ctx context.Context, module []byte) (loaded, error) {
	compiled, err := compileExtism(ctx, module)
	if err != nil {
		return loaded{}, err
	}
	worker := func(ctx context.Context) (ask, error) {
		plugin, err := compiled.Instance(ctx, extism.PluginInstanceConfig{})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return askExtism(ctx, plugin) }, nil
	}
	return loaded{worker, func() error { return compiled.Close(context.Background()) }}, nil
}

// loadWapc makes a new instance for each query. waPC has no limits of time,
// memory or fuel.
func loadWapc(ctx context.Context, module []byte) (loaded, error) {
	compiled, err := wapcwazero.Engine().New(ctx, wapc.NoOpHostCallHandler, module, &wapc.ModuleConfig{})
	if err != nil {
		return loaded{}, err
	}
	worker := func(context.Context) (ask, error) {
		return func(ctx context.Context) error {
			instance, err := compiled.Instantiate(ctx)
			if err != nil {
				return err
			}
			defer instance.Close(ctx)
			// waPC does not know reactors: a Go guest is not begun.
			if begin := instance.(*wapcwazero.Instance).UnwrapModule().ExportedFunction(abi.ExportInitialize); begin != nil {
				if _, err := begin.Call(ctx); err != nil {
					return err
				}
			}
			reply, err := instance.Invoke(ctx, "query", queryJSON)
			if err != nil {
				return err
			}
			return checkReply(reply)
		}, nil
	}
	return loaded{worker, func() error { return compiled.Close(context.Background()) }}, nil
}
