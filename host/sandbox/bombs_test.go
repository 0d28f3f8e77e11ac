package sandbox_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

var bombs = flag.Duration("bombs", 5*time.Second, "how long TestSearchForSlowCompiles searches; 10m is the whole of it")

// The bounds of compiling without a compiler process, of which a search is to
// find no exception.
const (
	maxCompile      = time.Second
	maxCompileBytes = 512 << 20
	// slowMachine is what the time is multiplied with in tests.
	slowMachine = 2
)

// Decode bombs: a few bytes that claim to hold 2^32−1 of something are refused
// at once, before anything is allocated for it. In hosts that give them to the
// engine they end the process.
func TestDecodeBombs(t *testing.T) {
	const many = "\xff\xff\xff\xff\x0f"
	section := func(id byte, content string) string { return string([]byte{id, byte(len(content))}) + content }
	one := section(1, "\x01\x60\x00\x00") + section(3, "\x01\x00")
	engine := newEngine(t, sandbox.Config{})
	for name, bomb := range map[string]string{
		"types": section(1, many), "parameters": section(1, "\x01\x60"+many), "results": section(1, "\x01\x60\x00"+many),
		"recursive types": section(1, "\x01\x4e"+many), "fields": section(1, "\x01\x5f"+many),
		"imports": section(2, many), "name of an import": section(2, "\x01"+many), "second name of an import": section(2, "\x01\x00"+many),
		"functions": section(3, many), "tables": section(4, many), "memories": section(5, many),
		"elements of a table": section(4, "\x01\x70\x00"+many), "pages of a memory": section(5, "\x01\x00"+many),
		"globals": section(6, many), "vector of a select": one + section(10, "\x01\x08\x00\x1c"+many+"\x0b"),
		"exports": section(7, many), "name of an export": section(7, "\x01"+many), "start": section(8, many),
		"elements": section(9, many), "functions of a segment": section(9, "\x01\x00\x41\x00\x0b"+many), "expressions of a segment": section(9, "\x01\x04\x41\x00\x0b"+many),
		"bodies": section(10, many), "size of a body": one + section(10, "\x01"+many),
		"locals": one + section(10, "\x01\x0a\x01"+many+"\x7f\x0b"), "runs of locals": one + section(10, "\x01\x07"+many+"\x0b"),
		"many runs of locals": one + section(10, "\x01\x2a\x06"+strings.Repeat(many+"\x7f", 6)+"\x0b"), "labels": one + section(10, "\x01\x0a\x00\x41\x00\x0e"+many+"\x0b"),
		"data": section(11, many), "bytes of data": section(11, "\x01\x00\x41\x00\x0b"+many), "data count": section(12, many),
		"a custom section": section(0, many), "a section": "\x01" + many, "names": section(0, "\x04name\x01\x06"+many),
		"names of locals":    section(0, "\x04name\x02\x07\x01\x00"+many),
		"an unknown section": section(13, many), "a tag section": section(13, "\x01\x00\x00"), "no end of a number": "\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
	} {
		t.Run(name, func(t *testing.T) {
			module := []byte("\x00asm\x01\x00\x00\x00" + bomb)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, err := engine.Load(t.Context(), module, sandbox.Options{Name: "bomb"})
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, abi.KindBadModule) {
				t.Errorf("got %v", err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 256<<10 || took > 200*time.Millisecond {
				t.Errorf("%d bytes were allocated for %d, in %v", grown, len(module), took)
			}
		})
	}
}

// builder writes a module section by section.
type builder struct{ module []byte }

func newBuilder() *builder { return &builder{[]byte("\x00asm\x01\x00\x00\x00")} }

func (b *builder) section(id byte, content []byte) *builder {
	b.module = append(wasm.AppendU32(append(b.module, id), uint32(len(content))), content...)
	return b
}

// vector writes a section of n entries.
func (b *builder) vector(id byte, n int, entries []byte) *builder {
	return b.section(id, append(wasm.AppendU32(nil, uint32(n)), entries...))
}

// Types of the modules that hand builds. What more is needed comes after them.
const (
	typeEntry    = 0 // () -> i32
	typeFunction = 1 // (i32) -> i32
	typesBefore  = 2
)

// parts are what a bomb consists of beside its entry, which only returns 0 and
// is function 0.
type parts struct {
	types     [][]byte
	imports   int
	functions int    // of type typeFunction, with the same body
	of        uint32 // their type, if not typeFunction
	locals    []byte // runs of locals, each a count and a type
	body      []byte // without its end; nil means an i32 is returned
	globals   int    // i64, mutable
	exports   int    // of function 0
	elements  int    // entries of one passive segment
	filled    int    // entries of the table, and of one active segment
	segments  int    // passive element segments of no entries
	data      int    // active segments of no bytes
	customs   int    // custom sections
	names     []byte // a name section
}

func (p parts) module() []byte {
	b := newBuilder()
	types := []byte{0x60, 0, 1, 0x7f, 0x60, 1, 0x7f, 1, 0x7f}
	for _, t := range p.types {
		types = append(types, t...)
	}
	b.vector(1, typesBefore+len(p.types), types)
	if p.imports > 0 {
		b.vector(2, p.imports, bytes.Repeat([]byte("\x08glovebox\x0aquery_size\x00\x00"), p.imports))
	}
	of := cmp.Or(p.of, typeFunction)
	b.vector(3, 1+p.functions, append([]byte{typeEntry}, bytes.Repeat(wasm.AppendU32(nil, of), p.functions)...))
	b.vector(4, 1, wasm.AppendU32([]byte{0x70, 0}, uint32(max(1, p.filled))))
	b.vector(5, 1, []byte{0, 1})
	if p.globals > 0 {
		b.vector(6, p.globals, bytes.Repeat([]byte{0x7e, 1, 0x42, 0, 0x0b}, p.globals))
	}
	exports := append(wasm.AppendName(nil, abi.ExportQuery), 0)
	exports = wasm.AppendU32(exports, uint32(p.imports))
	for i := range p.exports {
		exports = append(wasm.AppendName(exports, strconv.FormatInt(int64(i), 36)), 0)
		exports = wasm.AppendU32(exports, uint32(p.imports))
	}
	b.vector(7, 1+p.exports, exports)
	if p.elements > 0 {
		b.section(9, append(append([]byte{1, 1, 0}, wasm.AppendU32(nil, uint32(p.elements))...), make([]byte, p.elements)...))
	}
	if p.filled > 0 {
		b.section(9, append(append([]byte{1, 0, 0x41, 0, 0x0b}, wasm.AppendU32(nil, uint32(p.filled))...), make([]byte, p.filled)...))
	}
	if p.segments > 0 {
		b.vector(9, p.segments, bytes.Repeat([]byte{1, 0, 0}, p.segments))
	}
	body := p.locals
	if body == nil {
		body = []byte{0}
	}
	body = slices.Clone(body)
	if p.body == nil {
		body = append(body, 0x41, 0)
	}
	body = append(append(body, p.body...), 0x0b)
	body = append(wasm.AppendU32(nil, uint32(len(body))), body...)
	b.vector(10, 1+p.functions, append([]byte{4, 0, 0x41, 0, 0x0b}, bytes.Repeat(body, p.functions)...))
	if p.data > 0 {
		b.vector(11, p.data, bytes.Repeat([]byte{0, 0x41, 0, 0x0b, 0}, p.data))
	}
	b.module = append(b.module, bytes.Repeat([]byte{0, 1, 0}, p.customs)...)
	if p.names != nil {
		b.section(0, append(wasm.AppendName(nil, "name"), p.names...))
	}
	return b.module
}

// Code of the bombs. op concatenates bytes, times repeats them.
func op(code ...byte) []byte           { return code }
func times(n int, code ...byte) []byte { return bytes.Repeat(code, n) }
func join(code ...[]byte) []byte       { return bytes.Join(code, nil) }
func u32(n int) []byte                 { return wasm.AppendU32(nil, uint32(n)) }
func locals(n int, t wasm.ValueType) []byte {
	return append(append([]byte{1}, u32(n)...), byte(t))
}

// function is the type with that many i32 parameters and results.
func function(params, results int) []byte {
	t := append([]byte{0x60}, u32(params)...)
	t = append(t, times(params, 0x7f)...)
	return append(append(t, u32(results)...), times(results, 0x7f)...)
}

// Opcodes.
const (
	opBlock, opLoop, opIf, opElse, opEnd = 0x02, 0x03, 0x04, 0x05, 0x0b
	opBr, opBrIf, opBrTable              = 0x0c, 0x0d, 0x0e
	opCall, opCallIndirect, opDrop       = 0x10, 0x11, 0x1a
	opSelect, opGet, opSet, opTee        = 0x1b, 0x20, 0x21, 0x22
	opGlobalGet, opGlobalSet             = 0x23, 0x24
	opI32, opI64, opF64                  = 0x41, 0x42, 0x44
	opAdd, opEmpty                       = 0x6a, 0x40
	tI32                                 = 0x7f
)

// compileBombs are bodies that are dear to compile, by their size n. The engine
// is quadratic in some of them.
var compileBombs = map[string]func(n int) parts{
	// 12 ns × n²: 4,000 blocks 0.2 s, 16,000 5 s.
	"blocks": func(n int) parts {
		return parts{functions: 1, body: join(times(n, opBlock, opEmpty, opGet, 0, opBrIf, 0, opEnd), op(opGet, 0))}
	},
	"diamonds": func(n int) parts {
		return parts{functions: 1, locals: locals(1, wasm.I32), body: join(times(n, opGet, 0, opIf, opEmpty, opGet, 0, opSet, 1, opElse, opI32, 1, opSet, 1, opEnd), op(opGet, 1))}
	},
	"nesting": func(n int) parts {
		depth := min(n, 990)
		code := op()
		for range max(n/depth, 1) {
			code = join(code, times(depth, opBlock, opEmpty), times(depth, opGet, 0, opBrIf, 0, opEnd))
		}
		return parts{functions: 1, body: join(code, op(opGet, 0))}
	},
	"nested loops": func(n int) parts {
		depth := min(n, 990)
		code := op()
		for range max(n/depth, 1) {
			code = join(code, times(depth, opLoop, opEmpty), times(depth, opGet, 0, opBrIf, 0, opEnd))
		}
		return parts{functions: 1, locals: locals(64, wasm.I64), body: join(code, op(opGet, 0))}
	},
	"branches to one label": func(n int) parts {
		return parts{functions: 1, body: join(op(opBlock, opEmpty), times(n, opGet, 0, opBrIf, 0), op(opEnd, opGet, 0))}
	},
	// Each branch carries a hundred values.
	"branches with values": func(n int) parts {
		const values = 100
		return parts{functions: 1, types: [][]byte{function(0, values)}, body: join(op(opBlock, typesBefore), times(values, opGet, 0), times(n, opGet, 0, opBrIf, 0), op(opEnd), times(values-1, opAdd))}
	},
	"a branch table": func(n int) parts {
		depth := min(n, 900)
		table := op(opGet, 0, opBrTable)
		table = append(table, u32(n)...)
		for i := range n + 1 {
			table = append(table, u32(i%depth)...)
		}
		return parts{functions: 1, body: join(times(depth, opBlock, opEmpty), table, times(depth, opEnd), op(opGet, 0))}
	},
	"a branch table with values": func(n int) parts {
		const values = 1000
		table := join(op(opGet, 0, opBrTable), u32(n), times(n+1, 0))
		return parts{functions: 1, types: [][]byte{function(0, values)}, body: join(op(opBlock, typesBefore), times(values, opGet, 0), table, op(opEnd), times(values-1, opAdd))}
	},
	"blocks with values": func(n int) parts {
		const values = 1000
		return parts{functions: 1, types: [][]byte{function(values, values)}, body: join(times(values, opGet, 0), times(n, opBlock, typesBefore, opEnd), times(values-1, opAdd))}
	},
	"loops with values": func(n int) parts {
		const values = 200
		return parts{functions: 1, types: [][]byte{function(values, values)}, body: join(times(values, opGet, 0), times(n, opLoop, typesBefore, opGet, 0, opBrIf, 0, opEnd), times(values-1, opAdd))}
	},
	"conditions with values": func(n int) parts {
		const values = 200
		return parts{functions: 1, types: [][]byte{function(values, values)}, body: join(times(values, opGet, 0), times(n, opGet, 0, opIf, typesBefore, opElse, opEnd), times(values-1, opAdd))}
	},
	"nested blocks with values": func(n int) parts {
		const values = 1000
		depth := min(n, 990)
		return parts{functions: max(n/990, 1), types: [][]byte{function(values, values)}, body: join(times(values, opGet, 0), times(depth, opBlock, typesBefore), times(depth, opEnd), times(values-1, opAdd))}
	},
	// 1–3 µs for each local and loop.
	"locals and loops": func(n int) parts {
		const count = 1000
		var touch []byte
		for i := range count {
			touch = join(touch, op(opGet), u32(i+1), op(opI64, 1, 0x7c, opSet), u32(i+1))
		}
		return parts{functions: 1, locals: locals(count, wasm.I64), body: join(touch, times(n, opLoop, opEmpty, opGet, 0, opBrIf, 0, opEnd), touch, op(opGet, 0))}
	},
	"locals and blocks": func(n int) parts {
		const count = 500
		var touch []byte
		for i := range count {
			touch = join(touch, op(opGet), u32(i+1), op(opI64, 1, 0x7c, opSet), u32(i+1))
		}
		return parts{functions: 1, locals: locals(count, wasm.I64), body: join(touch, times(n, opGet, 0, opIf, opEmpty, opGet, 1, opSet, 2, opEnd), touch, op(opGet, 0))}
	},
	"locals alone": func(n int) parts {
		return parts{functions: 1, locals: locals(n, wasm.V128), body: op(opGet, 0)}
	},
	"vector locals": func(n int) parts {
		return parts{functions: 10, locals: locals(n, wasm.V128), body: join(op(opLoop, opEmpty), op(opGet, 0, opBrIf, 0, opEnd), op(opGet, 0))}
	},
	// Everything is alive at once.
	"operands": func(n int) parts {
		return parts{functions: 1, body: join(times(n, opGet, 0, 0x28, 2, 0), times(n-1, opAdd))}
	},
	"operands across calls": func(n int) parts {
		return parts{functions: 1, body: join(times(n, opGet, 0, opCall, 1), times(n-1, opAdd))}
	},
	"a chain": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0), times(n, opGet, 0, opAdd))}
	},
	"constants": func(n int) parts {
		return parts{functions: 1, body: join(times(n, opF64, 1, 2, 3, 4, 5, 6, 7, 8, opDrop), op(opGet, 0))}
	},
	"vector constants": func(n int) parts {
		return parts{functions: 1, body: join(times(n, 0xfd, 0x0c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, opDrop), op(opGet, 0))}
	},
	"shuffles": func(n int) parts {
		v := op(0xfd, 0x0c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
		return parts{functions: 1, body: join(v, times(n, join(v, op(0xfd, 0x0d, 0, 31, 2, 29, 4, 27, 6, 25, 8, 23, 10, 21, 12, 19, 14, 17))...), op(opDrop, opGet, 0))}
	},
	"divisions": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0), times(n, opGet, 0, 0x6d))}
	},
	"conversions": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0), times(n, 0xb7, 0xaa))}
	},
	"loads": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0), times(n, 0x28, 2, 0))}
	},
	"stores": func(n int) parts {
		return parts{functions: 1, body: join(times(n, opGet, 0, opGet, 0, 0x36, 2, 0), op(opGet, 0))}
	},
	"selects": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0), times(n, opGet, 0, opGet, 0, opSelect))}
	},
	"fills": func(n int) parts {
		return parts{functions: 1, body: join(times(n, opGet, 0, opGet, 0, opGet, 0, 0xfc, 11, 0), op(opGet, 0))}
	},
	"globals": func(n int) parts {
		return parts{functions: 1, globals: 1000, body: join(times(n, opGlobalGet, 100, opGlobalSet, 99), op(opGet, 0))}
	},
	"calls with values": func(n int) parts {
		const values = 100
		body := join(times(values, opGet, 0), times(n, opCall, 1), times(values-1, opDrop))
		return parts{functions: 1, of: typesBefore, types: [][]byte{function(values, values)}, body: join(body, times(values-1, opGet, 0))}
	},
	"indirect calls": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0), times(n, opGet, 0, opCallIndirect, typeFunction, 0))}
	},
	// Tables that are filled on demand, and what that adds at most.
	"elements": func(n int) parts {
		return parts{functions: 1, filled: min(n, 1<<14), body: op(opGet, 0, opGet, 0, opCallIndirect, typeFunction, 0)}
	},
	"functions of indirect calls": func(n int) parts {
		return parts{functions: n, filled: 1 << 14, body: join(op(opGet, 0), times(64, opGet, 0, opCallIndirect, typeFunction, 0))}
	},
	"code that is never reached": func(n int) parts {
		return parts{functions: 1, body: join(op(opGet, 0, 0x0f), times(n, opBlock, opEmpty, opEnd), op(opGet, 0))}
	},
	"functions": func(n int) parts { return parts{functions: n} },
	"functions of blocks": func(n int) parts {
		return parts{functions: n, body: join(times(200, opBlock, opEmpty, opGet, 0, opBrIf, 0, opEnd), op(opGet, 0))}
	},
	"functions with values": func(n int) parts {
		const values = 1000
		return parts{functions: n, of: typesBefore, types: [][]byte{function(values, values)}, body: times(values, opGet, 0)}
	},
}

// sectionBombs are modules whose weight is not in their code. n is about how
// many entries they have.
var sectionBombs = map[string]func(n int) parts{
	"types": func(n int) parts {
		p := parts{types: make([][]byte, n)}
		for i := range p.types {
			p.types[i] = op(0x60, 0, 0)
		}
		return p
	},
	"types that differ": func(n int) parts {
		p := parts{types: make([][]byte, n)}
		for i := range p.types {
			t := op(0x60, 8)
			for bit := range 8 {
				t = append(t, 0x7c+byte(i>>(2*bit)&3))
			}
			p.types[i] = append(t, 0)
		}
		return p
	},
	"imports":          func(n int) parts { return parts{imports: n} },
	"functions":        func(n int) parts { return parts{functions: n} },
	"globals":          func(n int) parts { return parts{globals: n} },
	"exports":          func(n int) parts { return parts{exports: n} },
	"elements":         func(n int) parts { return parts{elements: n} },
	"element segments": func(n int) parts { return parts{segments: n} },
	"data segments":    func(n int) parts { return parts{data: n} },
	"custom sections":  func(n int) parts { return parts{customs: n} },
	"names of functions": func(n int) parts {
		return parts{names: join(op(1), u32(5+2*n), u32(n), op(0, 0), times(max(n-1, 0), 0, 0))}
	},
	"parameters of types": func(n int) parts { return parts{types: [][]byte{function(n, 0)}} },
}

// outcome is what became of a bomb in a process of its own.
type outcome struct {
	Kind     abi.Kind // "" if the module was loaded and answered
	Text     string
	Load     time.Duration
	Query    time.Duration
	Resident int64 // bytes at most; 0 where it cannot be read
}

func (o outcome) String() string {
	kind := cmp.Or(string(o.Kind), "loaded")
	return fmt.Sprintf("%s, load %v, query %v, %d MiB %s", kind, o.Load.Round(time.Millisecond), o.Query.Round(time.Millisecond), o.Resident>>20, o.Text)
}

const childEnv = "GLOVEBOX_BOMB_CHILD"

// TestBombInChild is the process that explode starts: it loads the module on
// its standard input, as a program without a compiler process does.
func TestBombInChild(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in processes that other tests start")
	}
	module, err := io.ReadAll(os.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	began := time.Now()
	hand, err := engine.Load(t.Context(), module, sandbox.Options{Name: "bomb", Limits: abi.Limits{Timeout: time.Second}})
	o.Load = time.Since(began)
	if err == nil {
		began = time.Now()
		_, err = hand.Query(t.Context(), abi.Query{}, sandbox.Ports{})
		o.Query = time.Since(began)
	}
	if err != nil {
		o.Kind, o.Text = abi.KindOf(err), err.Error()
	}
	status, _ := os.ReadFile("/proc/self/status")
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		o.Resident = kib << 10
	}
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		t.Fatal(err)
	}
}

// explode loads a module in a process of its own, which is ended when it does
// not end itself.
func explode(t *testing.T, module []byte) outcome {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	child := exec.CommandContext(ctx, program, "-test.run=^TestBombInChild$")
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stdin = bytes.NewReader(module)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	output, err := child.Output()
	var o outcome
	if line, _, _ := bytes.Cut(output, []byte("\n")); json.Unmarshal(line, &o) != nil {
		return outcome{Kind: "died", Load: patience, Text: fmt.Sprintf("%v: %.200s", err, stderr.String())}
	}
	return o
}

// raced reports whether the race detector slows everything down.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// contained reports whether a bomb was refused in time, or loaded and asked
// within the bounds.
func (o outcome) contained() bool {
	return o.Kind != "died" && max(o.Load, o.Query) <= slowMachine*maxCompile && o.Resident <= maxCompileBytes
}

// Compile bombs: bodies of 8 to 250 KB that took the engine from seconds to
// for ever are refused, or they compile within the bounds.
func TestCompileBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes tens of seconds")
	}
	if raced() {
		t.Skip("the race detector multiplies time and memory")
	}
	for _, name := range sorted(compileBombs) {
		t.Run(name, func(t *testing.T) {
			small(t, compileBombs[name])
			for n := 1000; n <= 64_000; n *= 2 {
				module := compileBombs[name](n).module()
				o := explode(t, module)
				t.Logf("%d (%d KiB): %v", n, len(module)>>10, o)
				if !o.contained() || o.Kind != "" && o.Kind != abi.KindBadModule {
					t.Errorf("%d: %v", n, o)
				}
				if o.Kind != "" {
					return
				}
			}
		})
	}
}

// Section bombs: up to 32 MiB of the smallest entries of one section. What the
// decoder makes of an entry is many times its size.
func TestSectionBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes tens of seconds")
	}
	if raced() {
		t.Skip("the race detector multiplies time and memory")
	}
	for _, name := range sorted(sectionBombs) {
		t.Run(name, func(t *testing.T) {
			small(t, sectionBombs[name])
			for _, n := range []int{20_000, 200_000, largest(sectionBombs[name])} {
				module := sectionBombs[name](n).module()
				o := explode(t, module)
				t.Logf("%d (%d KiB): %v", n, len(module)>>10, o)
				if !o.contained() {
					t.Errorf("%d: %v", n, o)
				}
			}
		})
	}
}

// largest returns about how many entries make a bomb as large as a module may
// be.
func largest(bomb func(int) parts) int {
	const probe = 200_000
	n := int(float64(probe) * sandbox.MaxModuleBytes / float64(len(bomb(probe).module())))
	for len(bomb(n).module()) > sandbox.MaxModuleBytes {
		n -= n / 20
	}
	return n
}

// Each cap on a module holds where it says: what is just within is admitted,
// and one more is refused.
func TestCaps(t *testing.T) {
	one := func(body []byte, l []byte) parts {
		return parts{functions: 1, locals: l, body: join(body, op(opGet, 0))}
	}
	for name, c := range map[string]struct {
		most  int
		parts func(n int) parts
	}{
		"functions":  {100_000, func(n int) parts { return parts{functions: n - 1} }},
		"body bytes": {256 << 10, func(n int) parts { return one(times(n-4, 0x01), nil) }},
		"blocks":     {16_000, func(n int) parts { return one(times(n, opBlock, opEmpty, opEnd), nil) }},
		"branches": {16_000, func(n int) parts {
			return one(join(op(opBlock, opEmpty), times(n-1, opGet, 0, opBrIf, 0), op(opEnd)), nil)
		}},
		"nesting": {1000, func(n int) parts { return one(join(times(n, opBlock, opEmpty), times(n, opEnd)), nil) }},
		"locals":  {50_000, func(n int) parts { return one(nil, locals(n, wasm.I64)) }},
		"locals and loops": {1000, func(n int) parts {
			return one(times(n, opLoop, opEmpty, opEnd), locals(999, wasm.I64))
		}},
		"labels": {64_000, func(n int) parts {
			return one(join(op(opBlock, opEmpty, opGet, 0, opBrTable), u32(n-1), times(n, 0), op(opEnd)), nil)
		}},
		"parameters": {1000, func(n int) parts { return parts{types: [][]byte{function(n, 0)}} }},
		"results":    {1000, func(n int) parts { return parts{types: [][]byte{function(0, n)}} }},
		"types":      {10_000, func(n int) parts { return parts{types: slices.Repeat([][]byte{function(1, 0)}, n-typesBefore)} }},
		"parameters of all types": {100_000, func(n int) parts {
			return parts{types: append(slices.Repeat([][]byte{function(1000, 0)}, n/1000-1), function(1000-3, n%1000))}
		}},
		"imports": {1000, func(n int) parts { return parts{imports: n} }},
		"globals": {100_000, func(n int) parts { return parts{globals: n} }},
	} {
		t.Run(name, func(t *testing.T) {
			outline, err := sandbox.Inspect(c.parts(c.most).module())
			if err := cmp.Or(err, outline.Refusal); err != nil {
				t.Errorf("%d: %v", c.most, err)
			}
			outline, err = sandbox.Inspect(c.parts(c.most + 1).module())
			if err := cmp.Or(err, outline.Refusal); !errors.Is(err, abi.KindBadModule) || !strings.Contains(err.Error(), strconv.Itoa(c.most)) && name != "locals and loops" {
				t.Errorf("%d: %v", c.most+1, err)
			}
		})
	}
	padded := join(parts{}.module(), op(0), u32(sandbox.MaxModuleBytes), make([]byte, sandbox.MaxModuleBytes))
	if _, err := sandbox.Inspect(padded); !errors.Is(err, abi.KindBadModule) || !strings.Contains(err.Error(), strconv.Itoa(sandbox.MaxModuleBytes)) {
		t.Errorf("a module of %d bytes: %v", len(padded), err)
	}
}

// small makes sure that a bomb is refused for its size only: a small one is
// admitted.
func small(t *testing.T, bomb func(int) parts) {
	t.Helper()
	outline, err := sandbox.Inspect(bomb(8).module())
	if err := cmp.Or(err, outline.Refusal); err != nil {
		t.Fatalf("a small one is refused: %v", err)
	}
}

func sorted[V any](of map[string]V) []string {
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestSearchForSlowCompiles generates modules, each as large as it is still
// admitted, and reports which took longest. It is seeded: the same duration on
// the same machine looks at about the same modules.
func TestSearchForSlowCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes tens of seconds")
	}
	if raced() {
		t.Skip("the race detector multiplies time and memory")
	}
	names := sorted(compileBombs)
	random := rand.New(rand.NewPCG(1, 2))
	type found struct {
		what string
		outcome
	}
	var slowest, largest found
	looked := 0
	for end := time.Now().Add(*bombs); looked == 0 || time.Now().Before(end); {
		// Two kinds of bomb in one module, at sizes that are halved until they
		// are admitted.
		first, second := names[random.IntN(len(names))], names[random.IntN(len(names))]
		n, m := 1<<(8+random.IntN(9)), 1<<(4+random.IntN(10))
		for ; n > 8; n /= 2 {
			module := mixed(compileBombs[first](n), compileBombs[second](min(m, n)))
			o := explode(t, module)
			looked++
			f := found{fmt.Sprintf("%s %d + %s %d (%d KiB)", first, n, second, min(m, n), len(module)>>10), o}
			if !o.contained() {
				t.Errorf("%s: %v", f.what, o)
			}
			if o.Kind != "" {
				continue
			}
			if o.Load > slowest.Load {
				slowest = f
			}
			if o.Resident > largest.Resident {
				largest = f
			}
			break
		}
	}
	t.Logf("%d modules; the slowest: %s: %v; the largest: %s: %v", looked, slowest.what, slowest.outcome, largest.what, largest.outcome)
}

// mixed puts the bodies of two bombs into one function, one after the other, if
// both are made for the same type and need no types of their own; else it is the
// first.
func mixed(a, b parts) []byte {
	if a.of != 0 || b.of != 0 || a.types != nil && b.types != nil || a.body == nil || b.body == nil || a.locals != nil && b.locals != nil {
		return a.module()
	}
	if a.types == nil {
		a.types = b.types
	}
	if a.locals == nil {
		a.locals = b.locals
	}
	a.globals = max(a.globals, b.globals)
	a.body = join(a.body, op(opDrop), b.body)
	return a.module()
}
