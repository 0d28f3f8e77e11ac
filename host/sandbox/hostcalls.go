package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/abi"
)

// Ports are what a guest can reach beyond its box. A nil port answers every
// call with not_granted, so the zero Ports reach nothing.
type Ports struct {
	Files Files
}

// Files reads granted directories. Its errors reach the guest as the code of
// their abi.Kind, or as unavailable if they have none. It is called from one
// goroutine at a time within a query, and by many queries at once.
type Files interface {
	// List describes a path. The request's Limit is between 1 and 1,000.
	List(ctx context.Context, r abi.FilesListRequest) (abi.FilesListResult, error)
	// Read returns at most Length bytes, which is at least 0 and within the
	// hand's limit; Offset is not negative.
	Read(ctx context.Context, r abi.FilesReadRequest) ([]byte, error)
}

// hostFunction is one import of the contract. Its parameters and its result, if
// it has one, are i32.
type hostFunction struct {
	module, name string
	params       int
	returns      bool
	run          func(ctx context.Context, c *call, memory api.Memory, args []uint64) int32
}

// hostFunctions is every function of package abi.
var hostFunctions = []hostFunction{
	{abi.ModuleCore, "query_size", 0, true, func(_ context.Context, c *call, _ api.Memory, _ []uint64) int32 {
		return int32(len(c.query))
	}},
	{abi.ModuleCore, "query_read", 2, true, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		return copyOut(memory, args, c.query)
	}},
	{abi.ModuleCore, "result_read", 2, true, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		return copyOut(memory, args, c.result)
	}},
	{abi.ModuleCore, "reply", 2, true, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		text, ok := view(memory, args[0], args[1])
		if !ok {
			return abi.KindBadPointer.Code()
		}
		return c.addReply(text)
	}},
	{abi.ModuleCore, "fail", 2, false, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		c.failed = true
		if text, ok := view(memory, args[0], args[1]); ok {
			c.failure = bytes.Clone(text[:min(len(text), 16<<10)])
		}
		return 0
	}},
	{abi.ModuleCore, "log", 3, false, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		if text, ok := view(memory, args[1], args[2]); ok {
			c.log.add(abi.Level(int32(args[0])), string(text[:min(len(text), c.module.limits.LogBytes)]))
		}
		return 0
	}},
	{abi.ModuleFiles, "list", 2, true, capability((*call).filesList)},
	{abi.ModuleFiles, "read", 2, true, capability((*call).filesRead)},
	// What stands behind these comes with the ports that carry them.
	{abi.ModuleHTTP, "fetch", 2, true, refuse},
	{abi.ModuleKV, "get", 2, true, refuse},
	{abi.ModuleKV, "set", 2, true, refuse},
	{abi.ModuleKV, "delete", 2, true, refuse},
	{abi.ModuleKV, "list", 2, true, refuse},
	{abi.ModuleLLM, "complete", 2, true, refuse},
}

func instantiateHostModules(ctx context.Context, runtime wazero.Runtime) error {
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range hostFunctions {
		b := builders[f.module]
		if b == nil {
			b = runtime.NewHostModuleBuilder(f.module)
		}
		params := make([]api.ValueType, f.params)
		for i := range params {
			params[i] = api.ValueTypeI32
		}
		var results []api.ValueType
		if f.returns {
			results = []api.ValueType{api.ValueTypeI32}
		}
		builders[f.module] = b.NewFunctionBuilder().WithGoModuleFunction(f.guarded(), params, results).Export(f.name)
	}
	for name, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("host module %s: %w", name, err)
		}
	}
	return nil
}

// guarded lets no panic of the host's own code reach the engine.
func (f hostFunction) guarded() api.GoModuleFunc {
	return func(ctx context.Context, guest api.Module, stack []uint64) {
		c, ok := ctx.Value(callKey{}).(*call)
		if !ok {
			return
		}
		var status int32
		defer func() {
			if r := recover(); r != nil {
				c.fault = fmt.Errorf("panic in %s.%s: %v", f.module, f.name, r)
				status = abi.KindUnavailable.Code()
			}
			if f.returns {
				stack[0] = api.EncodeI32(status)
			}
		}()
		status = f.run(ctx, c, guest.Memory(), stack)
	}
}

// view returns the guest's bytes at (ptr, size), which it may change later; not
// ok if they do not lie in its memory. The engine adds in 64 bits.
func view(memory api.Memory, ptr, size uint64) ([]byte, bool) {
	if memory == nil {
		return nil, false
	}
	return memory.Read(uint32(ptr), uint32(size))
}

func copyOut(memory api.Memory, args []uint64, from []byte) int32 {
	to, ok := view(memory, args[0], args[1])
	if !ok {
		return abi.KindBadPointer.Code()
	}
	return int32(copy(to, from))
}

func (c *call) addReply(text []byte) int32 {
	c.replySize += len(text)
	kept := text[:min(len(text), c.module.limits.OutputBytes-len(c.reply))]
	c.reply = append(c.reply, kept...)
	if len(kept) < len(text) {
		return abi.KindTooLarge.Code()
	}
	return 0
}

// capability is the way of every call that reaches out of the box: counted,
// its request bounded and decoded, its result kept for result_read. The place
// among the running queries is given up meanwhile.
func capability[Request any](run func(*call, context.Context, Request) ([]byte, error)) func(context.Context, *call, api.Memory, []uint64) int32 {
	return func(ctx context.Context, c *call, memory api.Memory, args []uint64) int32 {
		c.result = nil
		if c.calls >= c.module.limits.Calls {
			return abi.KindTooManyCalls.Code()
		}
		c.calls++
		raw, ok := view(memory, args[0], args[1])
		if !ok {
			return abi.KindBadPointer.Code()
		}
		if len(raw) > abi.MaxRequestBytes {
			return abi.KindTooLarge.Code()
		}
		var request Request
		if err := json.Unmarshal(raw, &request); err != nil {
			return abi.KindBadRequest.Code()
		}
		result, err := c.outside(ctx, func() ([]byte, error) { return run(c, ctx, request) })
		if ctx.Err() != nil {
			return abi.KindTimeout.Code()
		}
		if err != nil {
			if code := abi.KindOf(err).Code(); code != 0 {
				return code
			}
			return abi.KindUnavailable.Code()
		}
		c.result = result
		return int32(len(result))
	}
}

// outside runs the host's part of a call, during which another guest may have
// this one's place.
func (c *call) outside(ctx context.Context, run func() ([]byte, error)) ([]byte, error) {
	c.leavePlace()
	defer c.takePlace(ctx)
	return run()
}

func refuse(_ context.Context, c *call, _ api.Memory, _ []uint64) int32 {
	c.result = nil
	return abi.KindNotGranted.Code()
}

func (c *call) filesList(ctx context.Context, r abi.FilesListRequest) ([]byte, error) {
	if c.ports.Files == nil {
		return nil, abi.KindNotGranted
	}
	if r.Limit < 0 || r.Limit > maxListLimit {
		return nil, abi.KindBadRequest
	}
	if r.Limit == 0 {
		r.Limit = maxListLimit
	}
	page, err := c.ports.Files.List(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(page)
}

const maxListLimit = 1000

func (c *call) filesRead(ctx context.Context, r abi.FilesReadRequest) ([]byte, error) {
	limits := c.module.limits
	switch {
	case c.ports.Files == nil:
		return nil, abi.KindNotGranted
	case r.Offset < 0 || r.Length < 0:
		return nil, abi.KindBadRequest
	case int64(r.Length) > limits.FileReadBytes:
		return nil, abi.KindTooLarge
	case c.fileBytes >= limits.FileTotalBytes:
		return nil, abi.KindQuotaExceeded
	}
	r.Length = int(min(int64(r.Length), limits.FileTotalBytes-c.fileBytes))
	data, err := c.ports.Files.Read(ctx, r)
	c.fileBytes += int64(len(data))
	return data, err
}
