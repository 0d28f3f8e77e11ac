package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
)

// Ports are what a guest can reach beyond its box. A nil port answers every
// call with not_granted, so the zero Ports reach nothing.
type Ports struct {
	Files Files
	HTTP  HTTP
	KV    KV
	LLM   LLM
	// Fixed replaces the guest's clock and random numbers; nil means the
	// machine's. With it, equal queries of equal modules use equal fuel.
	Fixed *Fixed
}

// Fixed is a world without chance: a clock that begins at Now, moves on by a
// microsecond each time it is read and by what the guest sleeps, without
// waiting; and random numbers that Seed decides. It begins with the query: what a
// guest drew before, while the image was taken that its query begins from, was drawn
// in a world that is fixed for all images. Only of what an image does not hold, and of
// a module that is loaded with Options.FromStart, does it decide all.
type Fixed struct {
	Now  time.Time
	Seed uint64
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

// HTTP makes requests to granted hosts. It is called like Files.
type HTTP interface {
	// Fetch makes one exchange, redirects included. The body has at most the
	// hand's HTTPBytes, else Truncated is set. It returns how many requests
	// were sent, also beside an error, at most budget.
	Fetch(ctx context.Context, r abi.HTTPFetchRequest, budget abi.HTTPBudget) (head abi.HTTPFetchResult, body []byte, sent int, err error)
}

// KV keeps values of one hand for one subject. It is called like Files. Keys
// are 1 to 512 bytes of UTF-8.
type KV interface {
	// Get fails with abi.KindNotFound for an absent key.
	Get(ctx context.Context, r abi.KVGetRequest) ([]byte, error)
	// Set fails with abi.KindQuotaExceeded when the subject's values would
	// be more than they may.
	Set(ctx context.Context, r abi.KVSetRequest) error
	Delete(ctx context.Context, r abi.KVDeleteRequest) error
	// List's request has a Limit between 1 and 1,000.
	List(ctx context.Context, r abi.KVListRequest) (abi.KVListResult, error)
}

// LLM asks the host's model. It is called like Files.
type LLM interface {
	// Complete answers one prompt in at most MaxOutputTokens, which is at
	// least 1.
	Complete(ctx context.Context, r abi.LLMCompleteRequest) (abi.LLMCompleteResult, error)
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
		return c.copyOut(memory, args, c.query)
	}},
	{abi.ModuleCore, "result_read", 2, true, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		return c.copyOut(memory, args, c.result)
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
			text = text[:min(len(text), abi.MaxFailureBytes)]
			c.charge(len(text))
			c.failure = bytes.Clone(text)
		}
		return 0
	}},
	{abi.ModuleCore, "log", 3, false, func(_ context.Context, c *call, memory api.Memory, args []uint64) int32 {
		if text, ok := view(memory, args[1], args[2]); ok {
			text = text[:min(len(text), c.module.limits.LogBytes)]
			c.use(int64(len(text)/bytesPerUnit) + unitsLine*int64(bytes.Count(text, []byte("\n"))+1))
			c.log.add(abi.Level(int32(args[0])), string(text))
		}
		return 0
	}},
	{abi.ModuleFiles, "list", 2, true, capability((*call).filesList)},
	{abi.ModuleFiles, "read", 2, true, capability((*call).filesRead)},
	{abi.ModuleHTTP, "fetch", 2, true, capability((*call).httpFetch)},
	{abi.ModuleKV, "get", 2, true, capability((*call).kvGet)},
	{abi.ModuleKV, "set", 2, true, capability((*call).kvSet)},
	{abi.ModuleKV, "delete", 2, true, capability((*call).kvDelete)},
	{abi.ModuleKV, "list", 2, true, capability((*call).kvList)},
	{abi.ModuleLLM, "complete", 2, true, capability((*call).llmComplete)},
}

// provideHostFunctions adds those of the contract and the tick of the metering.
func (e *Engine) provideHostFunctions(ctx context.Context) error {
	i64 := []api.ValueType{api.ValueTypeI64}
	builders := map[string]wazero.HostModuleBuilder{
		meter.Module: e.runtime.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithGoFunction(api.GoFunc(tick), i64, i64).Export(meter.Tick),
	}
	for _, f := range hostFunctions {
		b := builders[f.module]
		if b == nil {
			b = e.runtime.NewHostModuleBuilder(f.module)
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
		if err := e.provide(ctx, name, b); err != nil {
			return err
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
		if c.taking {
			panic(ending{fmt.Errorf("%w: %s.%s", errAsksHost, f.module, f.name)})
		}
		var status int32
		defer func() {
			if r := recover(); r != nil {
				if end, ok := r.(ending); ok {
					panic(end)
				}
				c.fault = fmt.Errorf("panic in %s.%s: %v", f.module, f.name, r)
				status = abi.KindUnavailable.Code()
			}
			if f.returns {
				stack[0] = api.EncodeI32(status)
			}
		}()
		// Of a module without a memory, the engine gives a nil pointer that is
		// no nil api.Memory.
		var memory api.Memory
		if c.memory.begun {
			memory = guest.Memory()
		}
		status = f.run(ctx, c, memory, stack)
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

func (c *call) copyOut(memory api.Memory, args []uint64, from []byte) int32 {
	to, ok := view(memory, args[0], args[1])
	if !ok {
		return abi.KindBadPointer.Code()
	}
	n := copy(to, from)
	c.charge(n)
	return int32(n)
}

func (c *call) addReply(text []byte) int32 {
	c.charge(len(text))
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
		c.charge(min(len(raw), abi.MaxRequestBytes))
		var request Request
		if kind := decodeRequest(raw, &request, c.module.limits); kind != "" {
			return kind.Code()
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

// decodeRequest reads a request and, where it can have one, a copy of the raw bytes
// that follow its line: the guest may change its memory while the host works.
func decodeRequest(raw []byte, request any, limits abi.Limits) abi.Kind {
	var body *[]byte
	var most int64
	switch r := request.(type) {
	case *abi.HTTPFetchRequest:
		body, most = &r.Body, limits.HTTPBytes
	case *abi.KVSetRequest:
		body, most = &r.Value, limits.KVValueBytes
	}
	if body != nil {
		var follows []byte
		raw, follows, _ = bytes.Cut(raw, []byte("\n"))
		if int64(len(follows)) > most {
			return abi.KindTooLarge
		}
		*body = bytes.Clone(follows)
	}
	if len(raw) > abi.MaxRequestBytes {
		return abi.KindTooLarge
	}
	if err := json.Unmarshal(raw, request); err != nil {
		return abi.KindBadRequest
	}
	return ""
}

// outside runs the host's part of a call, during which another guest may have
// this one's place.
func (c *call) outside(ctx context.Context, run func() ([]byte, error)) ([]byte, error) {
	c.leavePlace()
	defer c.takePlace(ctx)
	return run()
}

func (c *call) filesList(ctx context.Context, r abi.FilesListRequest) ([]byte, error) {
	if c.ports.Files == nil {
		return nil, abi.KindNotGranted
	}
	var err error
	if r.Limit, err = pageLimit(r.Limit); err != nil {
		return nil, err
	}
	page, err := c.ports.Files.List(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(page)
}

func pageLimit(asked int) (int, error) {
	switch {
	case asked < 0 || asked > abi.MaxPageEntries:
		return 0, abi.KindBadRequest
	case asked == 0:
		return abi.MaxPageEntries, nil
	}
	return asked, nil
}

func (c *call) filesRead(ctx context.Context, r abi.FilesReadRequest) ([]byte, error) {
	limits := c.module.limits
	switch {
	case c.ports.Files == nil:
		return nil, abi.KindNotGranted
	case r.Offset < 0 || r.Length < 0:
		return nil, abi.KindBadRequest
	case int64(r.Length) > limits.FileReadBytes:
		return nil, abi.KindTooLarge
	}
	// A read that comes back short is the end of a file to a guest: what may not be
	// read any more is refused, not cut. One byte more than may be read tells which.
	left := limits.FileTotalBytes - c.fileBytes
	r.Length = int(min(int64(r.Length), left+1))
	data, err := c.ports.Files.Read(ctx, r)
	if int64(len(data)) > left {
		c.fileBytes = limits.FileTotalBytes
		return nil, abi.KindQuotaExceeded
	}
	c.fileBytes += int64(len(data))
	return data, err
}

func (c *call) httpFetch(ctx context.Context, r abi.HTTPFetchRequest) ([]byte, error) {
	limits := c.module.limits
	switch {
	case c.ports.HTTP == nil:
		return nil, abi.KindNotGranted
	case r.TimeoutMillis < 0:
		return nil, abi.KindBadRequest
	case c.requests >= limits.HTTPRequests:
		return nil, abi.KindQuotaExceeded
	}
	timeout := limits.HTTPTimeout
	if asked := time.Duration(r.TimeoutMillis) * time.Millisecond; r.TimeoutMillis > 0 && r.TimeoutMillis < int(timeout/time.Millisecond) {
		timeout = asked
	}
	head, body, sent, err := c.ports.HTTP.Fetch(ctx, r, abi.HTTPBudget{Requests: limits.HTTPRequests - c.requests, BodyBytes: limits.HTTPBytes, Timeout: timeout})
	c.requests += max(sent, 1)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return append(append(result, '\n'), body...), nil
}

func (c *call) checkKV(key string) error {
	switch {
	case c.ports.KV == nil:
		return abi.KindNotGranted
	case key == "" || len(key) > abi.MaxKeyBytes || !utf8.ValidString(key):
		return abi.KindBadRequest
	}
	return nil
}

func (c *call) kvGet(ctx context.Context, r abi.KVGetRequest) ([]byte, error) {
	if err := c.checkKV(r.Key); err != nil {
		return nil, err
	}
	return c.ports.KV.Get(ctx, r)
}

func (c *call) kvSet(ctx context.Context, r abi.KVSetRequest) ([]byte, error) {
	if err := c.checkKV(r.Key); err != nil {
		return nil, err
	}
	return nil, c.ports.KV.Set(ctx, r)
}

func (c *call) kvDelete(ctx context.Context, r abi.KVDeleteRequest) ([]byte, error) {
	if err := c.checkKV(r.Key); err != nil {
		return nil, err
	}
	return nil, c.ports.KV.Delete(ctx, r)
}

func (c *call) kvList(ctx context.Context, r abi.KVListRequest) ([]byte, error) {
	if c.ports.KV == nil {
		return nil, abi.KindNotGranted
	}
	var err error
	if r.Limit, err = pageLimit(r.Limit); err != nil {
		return nil, err
	}
	page, err := c.ports.KV.List(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(page)
}

// llmComplete counts prompts before they are sent and answers when they are
// there, so that neither sum is ever over its limit.
func (c *call) llmComplete(ctx context.Context, r abi.LLMCompleteRequest) ([]byte, error) {
	limits := c.module.limits
	input := tokens.Estimate(r.System) + tokens.Estimate(r.Prompt)
	left := c.maxOutputTokens
	if most := c.module.modelTokens; most > 0 {
		left = min(left, most)
	}
	left -= c.llmOutput
	switch {
	case c.ports.LLM == nil:
		return nil, abi.KindNotGranted
	case r.MaxOutputTokens < 0 || strings.TrimSpace(r.Prompt) == "":
		return nil, abi.KindBadRequest
	case c.llmCalls >= limits.LLMCalls, input > limits.LLMInputTokens-c.llmInput, left <= 0:
		return nil, abi.KindQuotaExceeded
	}
	if r.MaxOutputTokens == 0 || r.MaxOutputTokens > left {
		r.MaxOutputTokens = left
	}
	c.llmCalls++
	c.llmInput += input
	result, err := c.ports.LLM.Complete(ctx, r)
	if err != nil {
		return nil, err
	}
	// A model that takes no notice of its limit is cut to it.
	result.Text = tokens.Cut(result.Text, r.MaxOutputTokens)
	c.llmOutput += max(tokens.Estimate(result.Text), min(result.OutputTokens, r.MaxOutputTokens), 0)
	return json.Marshal(result)
}
