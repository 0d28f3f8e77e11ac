package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	{"glovebox", "glovebox", openGlovebox(sandbox.ImagesMapped)},
	{"glovebox-copied", "glovebox", openGlovebox(sandbox.ImagesCopied)},
	{"glovebox-plain", "glovebox", openGlovebox(sandbox.ImagesOff)},
	{"wazero", "glovebox", openWazero},
	{"extism", "extism", openExtism},
	{"extism-reuse", "extism", openExtismReuse},
	{"wapc", "wapc", openWapc},
}

type host struct {
	name string
	// contract names the sources of hands for this host.
	contract string
	open     func(ctx context.Context, s setup) (box, error)
}

// hostNamed returns one of hosts.
func hostNamed(name string) (host, error) {
	for _, h := range hosts {
		if h.name == name {
			return h, nil
		}
	}
	return host{}, errors.New("no host is called " + name)
}

// hostsNamed returns some of hosts, in their order.
func hostsNamed(names ...string) []host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h host) bool { return !slices.Contains(names, h.name) })
}

// setup says how a host is opened. The zero value is how it is shipped.
type setup struct {
	// cache is a directory that keeps compiled modules between processes. If
	// it is "", Glovebox makes one of its own and the peers have none.
	cache string
	// codeBytes bounds what Glovebox keeps of code; zero means its default.
	codeBytes int64
	// atOnce is how many queries of one hand may be in flight; zero means the
	// default. Only Glovebox bounds them.
	atOnce int
	// wait is where a hand waits that is asked to.
	wait *waitingRoom
}

// box is an open host.
type box struct {
	// load compiles a hand; name is of no use to hosts that know none.
	load func(ctx context.Context, name string, module []byte) (loaded, error)
	// close frees the hands, too.
	close func() error
}

// loaded is a hand that a host has compiled.
type loaded struct {
	// worker returns what one goroutine at a time asks the hand with. It is
	// safe for concurrent use itself.
	worker func(ctx context.Context) (ask, error)
}

// ask puts one query to the hand and checks that there is a reply.
type ask func(ctx context.Context, q question) error

// replyText is what every trivial hand replies.
const replyText = "Nothing happened."

// question is a query and its encoding, which Glovebox makes anew for each
// query and the others get as it is.
type question struct {
	query   abi.Query
	encoded []byte
}

var (
	// plain is what the trivial hand answers at once.
	plain = questionOf("What happened on this day?")
	// waiting makes the trivial hand call the host before it replies: it looks
	// at the first letter of the prompt.
	waiting = questionOf("!What happened on this day?")
)

func questionOf(prompt string) question {
	q := abi.Query{
		Prompt:          prompt,
		From:            time.Date(2026, 3, 23, 0, 0, 0, 0, time.UTC),
		To:              time.Date(2026, 3, 24, 0, 0, 0, 0, time.UTC),
		Now:             time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC),
		Timezone:        "UTC",
		MaxOutputTokens: 500,
	}
	encoded, err := json.Marshal(q)
	if err != nil {
		panic(err)
	}
	return question{q, encoded}
}

// waitingRoom holds instances that stand inside their query until opened is
// closed. Each sends to arrived first.
type waitingRoom struct{ arrived, opened chan struct{} }

// wait is called by the host for a hand. A nil room holds nobody.
func (r *waitingRoom) wait() {
	if r != nil {
		r.arrived <- struct{}{}
		<-r.opened
	}
}

func checkReply(reply []byte) error {
	if string(reply) != replyText {
		return fmt.Errorf("replied %q", reply)
	}
	return nil
}

// waitingKV is where a hand in Glovebox waits: whatever it asks for is absent.
type waitingKV struct{ room *waitingRoom }

func (k waitingKV) Get(context.Context, abi.KVGetRequest) ([]byte, error) {
	k.room.wait()
	return nil, &abi.Error{Kind: abi.KindNotFound}
}

func (waitingKV) Set(context.Context, abi.KVSetRequest) error       { return errors.ErrUnsupported }
func (waitingKV) Delete(context.Context, abi.KVDeleteRequest) error { return errors.ErrUnsupported }
func (waitingKV) List(context.Context, abi.KVListRequest) (abi.KVListResult, error) {
	return abi.KVListResult{}, errors.ErrUnsupported
}

// openGlovebox loads hands as they are shipped, but for the images: default
// limits, the compiled module in a cache on disk, a fresh instance for each
// query.
func openGlovebox(images sandbox.Images) func(context.Context, setup) (box, error) {
	return func(_ context.Context, s setup) (box, error) { return gloveboxBox(images, s) }
}

func gloveboxBox(images sandbox.Images, s setup) (box, error) {
	engine, err := sandbox.New(sandbox.Config{CacheDir: s.cache, Images: images, CodeBytes: s.codeBytes})
	if err != nil {
		return box{}, err
	}
	ports := sandbox.Ports{KV: waitingKV{s.wait}}
	load := func(ctx context.Context, name string, module []byte) (loaded, error) {
		hand, err := engine.Load(ctx, module, handOptions(name, abi.Limits{Concurrent: s.atOnce}))
		if err != nil {
			return loaded{}, err
		}
		worker := func(context.Context) (ask, error) {
			// The text is looked at once: rendering it is no part of a query.
			looked := false
			return func(ctx context.Context, q question) error {
				result, err := hand.Query(ctx, q.query, ports)
				if err != nil {
					return err
				}
				if !looked && !strings.Contains(result.Reply.Render(), replyText) || result.Reply.IsEmpty() {
					return fmt.Errorf("replied %s", result.Reply.Render())
				}
				looked = true
				return nil
			}, nil
		}
		return loaded{worker}, nil
	}
	return box{load, engine.Close}, nil
}

func handOptions(name string, limits abi.Limits) sandbox.Options {
	return sandbox.Options{Name: name, Limits: limits, Trusted: true, Granted: []abi.Capability{abi.CapabilityKV}}
}

// wazeroConfig is the peers' own configuration of the engine, with a cache on
// disk if there is to be one.
func wazeroConfig(s setup) (config wazero.RuntimeConfig, closeCache func() error, err error) {
	config = wazero.NewRuntimeConfig()
	if s.cache == "" {
		return config, func() error { return nil }, nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(s.cache)
	if err != nil {
		return nil, nil, err
	}
	return config.WithCompilationCache(cache), func() error { return cache.Close(context.Background()) }, nil
}

// openWazero runs the hands of Glovebox on the bare engine with its defaults: a
// compiled module, a new instance for each query, no limit of any kind.
func openWazero(ctx context.Context, s setup) (box, error) {
	config, closeCache, err := wazeroConfig(s)
	if err != nil {
		return box{}, err
	}
	runtime := wazero.NewRuntimeWithConfig(ctx, config)
	closeAll := func() error { return errors.Join(runtime.Close(context.Background()), closeCache()) }
	fail := func(err error) (box, error) { return box{}, errors.Join(err, closeAll()) }
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return fail(err)
	}
	type callKey struct{}
	type call struct{ query, reply []byte }
	i32 := []api.ValueType{api.ValueTypeI32}
	pair := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}
	ignore := func(context.Context, api.Module, []uint64) {}
	if _, err := runtime.NewHostModuleBuilder(abi.ModuleKV).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		s.wait.wait()
		stack[0] = api.EncodeI32(abi.KindNotFound.Code())
	}), pair, i32).Export("get").
		Instantiate(ctx); err != nil {
		return fail(err)
	}
	if _, err := runtime.NewHostModuleBuilder(abi.ModuleCore).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
		stack[0] = uint64(len(ctx.Value(callKey{}).(*call).query))
	}), nil, i32).Export("query_size").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, guest api.Module, stack []uint64) {
		to, ok := guest.Memory().Read(uint32(stack[0]), uint32(stack[1]))
		if !ok {
			panic("query_read out of range")
		}
		stack[0] = uint64(copy(to, ctx.Value(callKey{}).(*call).query))
	}), pair, i32).Export("query_read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, guest api.Module, stack []uint64) {
		text, ok := guest.Memory().Read(uint32(stack[0]), uint32(stack[1]))
		if !ok {
			panic("reply out of range")
		}
		c := ctx.Value(callKey{}).(*call)
		c.reply = append(c.reply, text...)
		stack[0] = 0
	}), pair, i32).Export("reply").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(ignore), pair, i32).Export("result_read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(ignore), pair, nil).Export("fail").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(ignore), append(i32, pair...), nil).Export("log").
		Instantiate(ctx); err != nil {
		return fail(err)
	}
	instanceConfig := wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.ExportInitialize)
	load := func(ctx context.Context, _ string, module []byte) (loaded, error) {
		compiled, err := runtime.CompileModule(ctx, module)
		if err != nil {
			return loaded{}, err
		}
		worker := func(context.Context) (ask, error) {
			return func(ctx context.Context, q question) error {
				c := call{query: q.encoded}
				ctx = context.WithValue(ctx, callKey{}, &c)
				instance, err := runtime.InstantiateModule(ctx, compiled, instanceConfig)
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
				return checkReply(c.reply)
			}, nil
		}
		return loaded{worker}, nil
	}
	return box{load, closeAll}, nil
}

// extismBox compiles plugins, each of which has an engine of its own, and gives
// them the limits that Extism has: time and memory, those of Glovebox.
func extismBox(s setup, worker func(*extism.CompiledPlugin) func(context.Context) (ask, error)) (box, error) {
	config, closeCache, err := wazeroConfig(s)
	if err != nil {
		return box{}, err
	}
	hold := extism.NewHostFunctionWithStack("wait", func(context.Context, *extism.CurrentPlugin, []uint64) { s.wait.wait() }, nil, nil)
	limits := abi.DefaultLimits()
	var plugins []*extism.CompiledPlugin
	load := func(ctx context.Context, _ string, module []byte) (loaded, error) {
		compiled, err := extism.NewCompiledPlugin(ctx, extism.Manifest{
			Wasm:    []extism.Wasm{extism.WasmData{Data: module}},
			Memory:  &extism.ManifestMemory{MaxPages: uint32(limits.MemoryBytes >> 16)},
			Timeout: uint64(limits.Timeout.Milliseconds()),
		}, extism.PluginConfig{EnableWasi: true, RuntimeConfig: config}, []extism.HostFunction{hold})
		if err != nil {
			return loaded{}, err
		}
		plugins = append(plugins, compiled)
		return loaded{worker(compiled)}, nil
	}
	closeAll := func() error {
		var errs []error
		for _, p := range plugins {
			errs = append(errs, p.Close(context.Background()))
		}
		return errors.Join(append(errs, closeCache())...)
	}
	return box{load, closeAll}, nil
}

func askExtism(ctx context.Context, plugin *extism.Plugin, q question) error {
	status, reply, err := plugin.CallWithContext(ctx, "query", q.encoded)
	if err != nil {
		return err
	}
	if status != 0 {
		return fmt.Errorf("status %d", status)
	}
	return checkReply(reply)
}

// openExtism makes a new instance of a compiled plugin for each query.
func openExtism(_ context.Context, s setup) (box, error) {
	return extismBox(s, func(compiled *extism.CompiledPlugin) func(context.Context) (ask, error) {
		return func(context.Context) (ask, error) {
			return func(ctx context.Context, q question) error {
				plugin, err := compiled.Instance(ctx, extism.PluginInstanceConfig{})
				if err != nil {
					return err
				}
				return errors.Join(askExtism(ctx, plugin, q), plugin.Close(ctx))
			}, nil
		}
	})
}

// openExtismReuse asks one instance again and again: what a hand leaves behind
// is there for the next query.
func openExtismReuse(_ context.Context, s setup) (box, error) {
	return extismBox(s, func(compiled *extism.CompiledPlugin) func(context.Context) (ask, error) {
		return func(ctx context.Context) (ask, error) {
			plugin, err := compiled.Instance(ctx, extism.PluginInstanceConfig{})
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context, q question) error { return askExtism(ctx, plugin, q) }, nil
		}
	})
}

// openWapc makes a new instance for each query. waPC has no limits of time,
// memory or fuel, and an engine for each module. The runtime is its default
// one, but for the cache.
func openWapc(_ context.Context, s setup) (box, error) {
	engine := wapcwazero.Engine()
	closeCache := func() error { return nil }
	if s.cache != "" {
		config, closing, err := wazeroConfig(s)
		if err != nil {
			return box{}, err
		}
		closeCache = closing
		engine = wapcwazero.EngineWithRuntime(func(ctx context.Context) (wazero.Runtime, error) {
			runtime := wazero.NewRuntimeWithConfig(ctx, config)
			if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
				return nil, errors.Join(err, runtime.Close(ctx))
			}
			return runtime, nil
		})
	}
	hold := func(context.Context, string, string, string, []byte) ([]byte, error) {
		s.wait.wait()
		return nil, nil
	}
	var modules []wapc.Module
	load := func(ctx context.Context, _ string, module []byte) (loaded, error) {
		compiled, err := engine.New(ctx, hold, module, &wapc.ModuleConfig{})
		if err != nil {
			return loaded{}, err
		}
		modules = append(modules, compiled)
		worker := func(context.Context) (ask, error) {
			return func(ctx context.Context, q question) error {
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
				reply, err := instance.Invoke(ctx, "query", q.encoded)
				if err != nil {
					return err
				}
				return checkReply(reply)
			}, nil
		}
		return loaded{worker}, nil
	}
	closeAll := func() error {
		var errs []error
		for _, m := range modules {
			errs = append(errs, m.Close(context.Background()))
		}
		return errors.Join(append(errs, closeCache())...)
	}
	return box{load, closeAll}, nil
}
