package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// FuzzAdmission: whatever the bytes are, admission ends with an error of the
// contract or with a module that is valid, and Describe tells the same of it as Inspect.
func FuzzAdmission(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(hostileDir, "*.wasm"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		module, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(module) < 4<<10 {
			f.Add(module)
		}
	}
	f.Add([]byte(byHand))
	f.Fuzz(func(t *testing.T, module []byte) {
		outline, err := sandbox.Inspect(module)
		described, errDescribed := sandbox.Describe(module)
		if (err == nil) != (errDescribed == nil) {
			t.Fatalf("Inspect: %v, Describe: %v", err, errDescribed)
		}
		same := outline
		same.Profile, same.TableMax, same.NoImage, same.Warms, same.Refusal = "", nil, "", false, nil
		if !reflect.DeepEqual(described, same) {
			t.Fatalf("Describe: %+v, Inspect: %+v", described, outline)
		}
		if err != nil {
			if !errors.Is(err, abi.KindBadModule) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if outline.Refusal != nil {
			if abi.KindOf(outline.Refusal) == "" {
				t.Fatalf("a refusal without a kind: %v", outline.Refusal)
			}
			return
		}
		m, err := wasm.Decode(module)
		if err != nil {
			t.Fatalf("admitted, and malformed: %v", err)
		}
		if err := m.Validate(); err != nil {
			t.Fatalf("admitted, and invalid: %v", err)
		}
	})
}

// hostCalls are all functions of the contract, and some of WASI's that take
// addresses, with the number of their parameters.
var hostCalls = []struct {
	module, name string
	params       int
	returns      bool
}{
	{abi.ModuleCore, "query_size", 0, true}, {abi.ModuleCore, "query_read", 2, true}, {abi.ModuleCore, "result_read", 2, true},
	{abi.ModuleCore, "reply", 2, true}, {abi.ModuleCore, "fail", 2, false}, {abi.ModuleCore, "log", 3, false},
	{abi.ModuleHTTP, "fetch", 2, true}, {abi.ModuleFiles, "list", 2, true}, {abi.ModuleFiles, "read", 2, true},
	{abi.ModuleKV, "get", 2, true}, {abi.ModuleKV, "set", 2, true}, {abi.ModuleKV, "delete", 2, true}, {abi.ModuleKV, "list", 2, true},
	{abi.ModuleLLM, "complete", 2, true},
	{abi.ModuleWASI, "random_get", 2, true}, {abi.ModuleWASI, "fd_write", 4, true}, {abi.ModuleWASI, "fd_read", 4, true}, {abi.ModuleWASI, "args_get", 2, true},
	{abi.ModuleWASI, "environ_get", 2, true}, {abi.ModuleWASI, "poll_oneoff", 4, true}, {abi.ModuleWASI, "fd_prestat_dir_name", 3, true},
	{abi.ModuleWASI, "fd_close", 1, true},
}

// caller is a module that calls a host function with these arguments, twice,
// with content in its memory if it has one.
func caller(which int, args [4]uint32, memory bool, content []byte) []byte {
	f := hostCalls[which]
	m := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, content []byte) {
		m = append(wasm.AppendU32(append(m, id), uint32(len(content))), content...)
	}
	types := []byte{2, 0x60, byte(f.params)}
	for range f.params {
		types = append(types, 0x7f)
	}
	if types = append(types, 0); f.returns {
		types[len(types)-1] = 1
		types = append(types, 0x7f)
	}
	section(1, append(types, 0x60, 0, 1, 0x7f))
	section(2, append(wasm.AppendName(wasm.AppendName([]byte{1}, f.module), f.name), 0, 0))
	section(3, []byte{1, 1})
	exports := []byte{1}
	if memory {
		section(5, []byte{1, 0, 1})
		exports = append(wasm.AppendName([]byte{2}, abi.ExportMemory), 2, 0)
	}
	section(7, append(wasm.AppendName(exports, abi.ExportQuery), 0, 1))
	body := []byte{0}
	for range 2 {
		for _, a := range args[:f.params] {
			body = wasm.AppendS64(append(body, 0x41), int64(int32(a)))
		}
		if body = append(body, 0x10, 0); f.returns {
			body = append(body, 0x1a)
		}
	}
	body = append(body, 0x41, 0, 0x0b)
	section(10, append(wasm.AppendU32([]byte{1}, uint32(len(body))), body...))
	if memory {
		content = content[:min(len(content), 60<<10)]
		section(11, append(wasm.AppendU32([]byte{1, 0, 0x41, 0, 0x0b}, uint32(len(content))), content...))
	}
	return m
}

// echoes is a port of every kind that answers with what it is asked.
type echoes struct{}

func (echoes) List(_ context.Context, r abi.FilesListRequest) (abi.FilesListResult, error) {
	return abi.FilesListResult{Self: abi.FileEntry{Name: r.Path}}, nil
}
func (echoes) Read(_ context.Context, r abi.FilesReadRequest) ([]byte, error) {
	return make([]byte, r.Length), nil
}
func (echoes) Fetch(_ context.Context, r abi.HTTPFetchRequest, _ abi.HTTPBudget) (abi.HTTPFetchResult, []byte, int, error) {
	return abi.HTTPFetchResult{URL: r.URL}, r.Body, 1, nil
}
func (echoes) Complete(_ context.Context, r abi.LLMCompleteRequest) (abi.LLMCompleteResult, error) {
	return abi.LLMCompleteResult{Text: r.Prompt, OutputTokens: -1}, nil
}

// values is the kv port, whose List differs from that of files.
type values struct{}

func (values) Get(_ context.Context, r abi.KVGetRequest) ([]byte, error) { return []byte(r.Key), nil }
func (values) Set(context.Context, abi.KVSetRequest) error               { return nil }
func (values) Delete(context.Context, abi.KVDeleteRequest) error         { return abi.KindNotFound }
func (values) List(_ context.Context, r abi.KVListRequest) (abi.KVListResult, error) {
	return abi.KVListResult{Keys: []string{r.Prefix}}, nil
}

// FuzzHostCalls is H5: any arguments to any host call, in a module with and
// without a memory, end as an error code or, in WASI, as a number, never as a
// fault of the host.
func FuzzHostCalls(f *testing.F) {
	// Each module is new: what was compiled is soon of no use.
	engine := newEngine(f, sandbox.Config{CacheDir: f.TempDir(), CacheBytes: 64 << 10})
	for which := range hostCalls {
		f.Add(byte(which), uint32(0), uint32(11), uint32(8), uint32(16), true, []byte(`{"key":"a"}`))
		f.Add(byte(which), uint32(0xffffffff), uint32(0xffffffff), uint32(0), uint32(0), false, []byte("{\"key\":\"a\"}\nbody"))
	}
	f.Fuzz(func(t *testing.T, which byte, a, b, c, d uint32, memory bool, content []byte) {
		module := caller(int(which)%len(hostCalls), [4]uint32{a, b, c, d}, memory, content)
		loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: "caller", Limits: abi.Limits{Timeout: 200 * time.Millisecond}, Granted: abi.Capabilities()})
		if err != nil {
			t.Fatal(err)
		}
		defer loaded.Close()
		_, err = loaded.Query(t.Context(), abi.Query{Prompt: "x"}, sandbox.Ports{Files: echoes{}, HTTP: echoes{}, KV: values{}, LLM: echoes{}})
		switch kind := abi.KindOf(err); {
		case err == nil, kind == abi.KindHandFailed, kind == abi.KindTimeout, kind == abi.KindTrap:
		default:
			t.Fatalf("%s.%s: %v", hostCalls[int(which)%len(hostCalls)].module, hostCalls[int(which)%len(hostCalls)].name, err)
		}
	})
}
