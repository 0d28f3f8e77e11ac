package meter_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// The tables of demand.wat are filled on demand if they hold more than the limit
// and nothing else is done with them than calls.
func TestWhichTablesAreFilledOnDemand(t *testing.T) {
	const sparse, small = 0, 1
	for _, test := range []struct {
		eager  uint32
		demand []uint32
	}{{0, []uint32{sparse, small}}, {1, []uint32{sparse, small}}, {2, []uint32{sparse}}, {7, []uint32{sparse}}, {8, nil}, {math.MaxUint32, nil}} {
		l := limits
		l.EagerElements = test.eager
		if got := onDemand(t, testModule(t, "demand"), decode(t, rewrite(t, testModule(t, "demand"), l))); !slices.Equal(got, test.demand) {
			t.Errorf("with a limit of %d the tables %v are filled on demand, want %v", test.eager, got, test.demand)
		}
	}
}

// onDemand returns the tables whose segments rewriting has made declarative. It
// fails the test if anything but calls and their size is wanted of one.
func onDemand(t testing.TB, original, rewritten *wasm.Module) (tables []uint32) {
	t.Helper()
	for n, s := range original.Elements {
		after := rewritten.Elements[n]
		if s.Mode == after.Mode {
			continue
		}
		if s.Mode != wasm.Active || after.Mode != wasm.Declarative || len(after.Functions) != len(s.Functions) || len(after.Items) != len(s.Items) {
			t.Fatalf("segment %d of mode %d has become one of mode %d", n, s.Mode, after.Mode)
		}
		if !slices.Contains(tables, s.Table) {
			tables = append(tables, s.Table)
		}
	}
	refuse := func(table uint32, use string) {
		if slices.Contains(tables, table) {
			t.Fatalf("table %d is filled on demand in spite of %s", table, use)
		}
	}
	for n, s := range rewritten.Elements {
		if s.Mode == wasm.Active {
			refuse(s.Table, fmt.Sprintf("segment %d", n))
		}
	}
	for _, e := range original.Exports {
		if e.Kind == wasm.KindTable {
			refuse(e.Index, "an export")
		}
	}
	for _, b := range original.Bodies {
		s := wasm.NewScanner(b.Expression)
		for s.More() {
			i, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			switch i.Op {
			case wasm.OpTableGet, wasm.OpTableSet, wasm.OpTableFill, wasm.OpTableGrow:
				refuse(i.Index, "an instruction")
			case wasm.OpTableCopy:
				refuse(i.Index, "a copy to it")
				refuse(i.Index2, "a copy from it")
			case wasm.OpTableInit:
				refuse(i.Index2, "a segment copied to it")
			}
		}
	}
	slices.Sort(tables)
	return tables
}

// More than what one module may have is put there by the engine: code for it
// takes time to compile. So is what many calls of one body look at.
func TestDemandIsBounded(t *testing.T) {
	for _, test := range []struct {
		name                    string
		elements, calls, bodies int
		demand                  bool
	}{
		{"at the bounds", 1 << 14, 64, 128, true},
		{"too many elements", 1<<14 + 1, 1, 1, false},
		{"too many calls in one body", 10, 65, 1, false},
		{"too many calls", 10, 64, 129, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := callers(test.elements, test.calls, test.bodies)
			if got := onDemand(t, decode(t, data), decode(t, rewrite(t, decode(t, data), limits))); len(got) > 0 != test.demand {
				t.Errorf("filled on demand: %v", got)
			}
		})
	}
}

// callers is a module with one table of so many elements, and bodies of nothing
// but calls through it.
func callers(elements, calls, count int) []byte {
	const function = 0
	b := builder{}
	b.section(wasm.SectionType, []byte{1, 0x60, 0, 0})
	b.section(wasm.SectionFunction, append(wasm.AppendU32(nil, uint32(count)), make([]byte, count)...))
	b.section(wasm.SectionTable, wasm.AppendU32([]byte{1, byte(wasm.FuncRef), 0}, uint32(elements)))
	b.section(wasm.SectionElement, append(wasm.AppendU32([]byte{1, 0, byte(wasm.OpI32Const), 0, byte(wasm.OpEnd)}, uint32(elements)),
		slices.Repeat([]byte{function}, elements)...))
	body := append(slices.Repeat([]byte{byte(wasm.OpI32Const), 0, byte(wasm.OpCallIndirect), 0, 0}, calls), byte(wasm.OpEnd))
	b.section(wasm.SectionCode, bodies(slices.Repeat([][]byte{body}, count)...))
	return b.module()
}

// What filling on demand adds to a compilation at most.
func BenchmarkCompileTables(b *testing.B) {
	for _, bounds := range []struct {
		name                    string
		elements, calls, bodies int
	}{
		{"elements", 1 << 14, 1, 1},
		{"calls", 17, 64, 128},
		{"both", 1 << 14, 64, 128},
	} {
		data := callers(bounds.elements, bounds.calls, bounds.bodies)
		for _, filled := range []struct {
			name  string
			eager uint32
		}{{"at-once", math.MaxUint32}, {"on-demand", 0}} {
			b.Run(bounds.name+"/filled="+filled.name, func(b *testing.B) {
				l := limits
				l.EagerElements = filled.eager
				rewritten := rewrite(b, decode(b, data), l)
				runtime := wazero.NewRuntimeWithConfig(b.Context(), wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2).WithDebugInfoEnabled(false))
				defer runtime.Close(context.Background())
				for b.Loop() {
					compiled, err := runtime.CompileModule(b.Context(), rewritten)
					if err != nil {
						b.Fatal(err)
					}
					compiled.Close(b.Context())
				}
			})
		}
	}
}

// What a hand can see of its tables is the same whenever they are filled:
// results, traps, fuel and stack.
func TestTablesOnDemandAreLikeTheOriginal(t *testing.T) {
	data := testModule(t, "demand").Encode()
	var calls []tableCall
	for _, index := range []uint64{0, 4, 5, 6, 7, 8, 9, 10, 68, 69, 70, 71, 72, 132, 133, 297, 298, 299, 300, 1 << 31, math.MaxUint32} {
		for range 2 {
			for _, name := range []string{"sparse", "nested"} {
				calls = append(calls, tableCall{name, []uint64{20, index}})
			}
		}
	}
	for index := range uint64(3) {
		for _, name := range []string{"small", "seen_at", "read"} {
			calls = append(calls, tableCall{name, []uint64{1, index}})
		}
	}
	calls = append(calls, tableCall{"dead", nil}, tableCall{"sizes", nil}, tableCall{"sparse", []uint64{1, 5}})
	seen := map[string]int{}
	if tables := compare(t, data, calls, seen); tables == 0 {
		t.Error("no table is filled on demand")
	}
	for _, trap := range []string{"wasm error: invalid table access", "wasm error: indirect call type mismatch", ""} {
		if seen[trap] == 0 {
			t.Errorf("no call ended with %q: %v", trap, seen)
		}
	}
}

// The same for modules of all shapes: several tables, segments that overlap, lie
// outside or are no constants, and everything else that is done to tables.
func TestGeneratedTablesAreLikeTheOriginal(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	seen := map[string]int{}
	demands, none := 0, 0
	for range 250 {
		var s script = make([]byte, 300)
		random.Read(s)
		data := s.module()
		if n := compare(t, data, s.calls(decode(t, data)), seen); n > 0 {
			demands += n
		} else {
			none++
		}
	}
	t.Logf("%d tables filled on demand, %d modules without; %v", demands, none, seen)
	if demands < 50 || none < 50 {
		t.Errorf("%d tables are filled on demand, %d modules have none", demands, none)
	}
	for _, trap := range []string{"wasm error: invalid table access", "wasm error: indirect call type mismatch", ""} {
		if seen[trap] < 100 {
			t.Errorf("%d calls ended with %q", seen[trap], trap)
		}
	}
}

func FuzzTables(f *testing.F) {
	f.Add([]byte{})
	random := rand.NewChaCha8([32]byte{2})
	for range 8 {
		seed := make([]byte, 200)
		random.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		s := script(choices[:min(len(choices), 1000)])
		data := s.module()
		compare(t, data, s.calls(decode(t, data)), map[string]int{})
	})
}

type tableCall struct {
	export string
	args   []uint64
}

// compare makes the same calls in a module as it is, rewritten, and rewritten
// with all tables filled on demand that can be, whose number it returns. It
// counts how the calls ended.
func compare(t testing.TB, data []byte, calls []tableCall, seen map[string]int) (demands int) {
	t.Helper()
	eager, demand := meter.Limits{StackBytes: 1 << 20, Slice: 1 << 40}, meter.Limits{StackBytes: 1 << 20, Slice: 1 << 40}
	eager.EagerElements = math.MaxUint32
	filled := rewrite(t, decode(t, data), demand)
	before := rewrite(t, decode(t, data), eager)
	if tables := onDemand(t, decode(t, data), decode(t, before)); len(tables) > 0 {
		t.Fatalf("%v are filled on demand whatever they hold", tables)
	}
	demands = len(onDemand(t, decode(t, data), decode(t, filled)))
	one, two, three := start(t, data, 0), start(t, before, eager.Slice), start(t, filled, demand.Slice)
	defer func() {
		for _, i := range []*metered{one, two, three} {
			i.runtime.Close(context.Background())
		}
	}()
	for _, c := range calls {
		want, trap := one.end(t, c)
		seen[trap]++
		for n, i := range []*metered{two, three} {
			if got, ended := i.end(t, c); fmt.Sprint(got) != fmt.Sprint(want) || ended != trap {
				t.Fatalf("%s %v: %v, %q with tables filled %s; %v, %q in the original\n%x", c.export, c.args, got, ended, [2]string{"at once", "on demand"}[n], want, trap, data)
			}
		}
		for _, global := range []string{meter.Fuel, meter.Stack} {
			if a, b := two.ExportedGlobal(global).Get(), three.ExportedGlobal(global).Get(); a != b {
				t.Fatalf("%s %v: %s is %d with tables filled at once, %d on demand\n%x", c.export, c.args, global, a, b, data)
			}
		}
	}
	return demands
}

// end calls an export and returns its results or the first line of its error.
func (i *metered) end(t testing.TB, c tableCall) ([]uint64, string) {
	results, err := i.ExportedFunction(c.export).Call(t.Context(), c.args...)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, line
	}
	return results, ""
}

// builder holds the sections of a module.
type builder [wasm.SectionDataCount][]byte

func (b *builder) section(id wasm.SectionID, content []byte) { b[id] = content }

func (b *builder) module() []byte {
	data := []byte("\x00asm\x01\x00\x00\x00")
	for id, content := range b {
		if content != nil {
			data = append(wasm.AppendU32(append(data, byte(id)), uint32(len(content))), content...)
		}
	}
	return data
}

// globals is a module that exports what segments can refer to: a number and a
// function.
func globals() []byte {
	b := builder{}
	b.section(wasm.SectionType, []byte{1, 0x60, 0, 1, byte(wasm.I32)})
	b.section(wasm.SectionFunction, []byte{1, 0})
	b.section(wasm.SectionGlobal, []byte{2, byte(wasm.I32), 0, 0x41, 1, 0x0b, byte(wasm.FuncRef), 0, 0xd2, 0, 0x0b})
	exports := append(wasm.AppendName([]byte{2}, "place"), 3, 0)
	b.section(wasm.SectionExport, append(wasm.AppendName(exports, "function"), 3, 1))
	b.section(wasm.SectionCode, bodies([]byte{0x41, 9, 0x0b}))
	return b.module()
}

// bodies are a code section of bodies without locals.
func bodies(expressions ...[]byte) []byte {
	code := wasm.AppendU32(nil, uint32(len(expressions)))
	for _, e := range expressions {
		code = append(wasm.AppendU32(code, uint32(len(e)+1)), 0)
		code = append(code, e...)
	}
	return code
}

// script is what a generated module is made of: choices, one after the other.
type script []byte

// pick returns a number below n.
func (s *script) pick(n int) int {
	if len(*s) == 0 || n == 0 {
		return 0
	}
	choice := (*s)[0]
	*s = (*s)[1:]
	return int(choice) % n
}

func (s *script) once(in int) bool { return s.pick(in) == in-1 }

// module returns a valid module with tables, segments and what is done to them.
// Its exports take the index of an element.
func (s *script) module() []byte {
	const (
		unary, none, bare = 0, 1, 3 // types
		functions         = 5       // an imported one first
	)
	b := builder{}
	i32, end := byte(wasm.I32), byte(wasm.OpEnd)
	b.section(wasm.SectionType, []byte{4, 0x60, 1, i32, 1, i32, 0x60, 0, 1, i32, 0x60, 0, 0, 0x60, 1, i32, 0})
	imports := append(wasm.AppendName(wasm.AppendName([]byte{3}, "env"), "call"), 0, unary)
	imports = append(wasm.AppendName(wasm.AppendName(imports, "globals"), "place"), 3, i32, 0)
	b.section(wasm.SectionImport, append(wasm.AppendName(wasm.AppendName(imports, "globals"), "function"), 3, byte(wasm.FuncRef), 0))
	code := [][]byte{{0x20, 0, 0x41, 1, 0x6a, end}, {0x20, 0, 0x41, 2, 0x6a, end}, {0x41, 3, end}, {end}}
	types := []byte{unary, unary, none, bare}
	exports := wasm.AppendName(nil, "declared")
	exports, count := append(exports, 0, 1), uint32(1)
	function := func(name string, expression ...byte) {
		exports, count = append(wasm.AppendName(exports, name), 0, byte(len(code)+1)), count+1
		code, types = append(code, expression), append(types, unary)
	}

	tables := 1 + s.pick(3)
	sizes, references := make([]int, tables), make([]byte, tables)
	section := []byte{byte(tables)}
	for n := range tables {
		references[n] = byte(wasm.FuncRef)
		if s.once(8) {
			references[n] = byte(wasm.ExternRef)
		}
		if sizes[n] = s.pick(70); s.once(3) {
			sizes[n] += s.pick(256)
		}
		section = wasm.AppendU32(append(section, references[n], 0), uint32(sizes[n]))
		if s.once(12) {
			exports, count = append(wasm.AppendName(exports, fmt.Sprint("table", n)), 1, byte(n)), count+1
		}
	}
	b.section(wasm.SectionTable, section)

	segments := s.pick(8)
	section = []byte{byte(segments)}
	var kinds []byte // of the segments' elements
	for range segments {
		table := s.pick(tables)
		kinds = append(kinds, references[table])
		mode := [10]wasm.SegmentMode{wasm.Passive, wasm.Declarative}[s.pick(10)]
		size := s.pick(1 + sizes[table])
		place := []byte{0x41}
		switch at := s.pick(1 + sizes[table] - size); {
		case s.once(40):
			place = []byte{0x23, 0}
		case s.once(40):
			place = wasm.AppendS64(place, int64(at+sizes[table]))
		default:
			place = wasm.AppendS64(place, int64(at))
		}
		flag := map[wasm.SegmentMode]byte{wasm.Active: 2, wasm.Passive: 1, wasm.Declarative: 3}[mode]
		items := references[table] == byte(wasm.ExternRef) || s.once(3)
		if items {
			flag |= 4
		}
		section = append(section, flag)
		if mode == wasm.Active {
			section = append(append(append(section, byte(table)), place...), end)
		}
		if items {
			section = append(section, references[table])
		} else {
			section = append(section, 0)
		}
		section = wasm.AppendU32(section, uint32(size))
		for range size {
			switch {
			case !items:
				section = append(section, byte(s.pick(functions)))
			case references[table] == byte(wasm.ExternRef) || s.once(3):
				section = append(section, 0xd0, references[table], end)
			case s.once(20):
				section = append(section, 0x23, 1, end)
			default:
				section = append(section, 0xd2, byte(s.pick(functions)), end)
			}
		}
	}

	for n := range tables {
		table := byte(n)
		if references[n] != byte(wasm.FuncRef) {
			continue
		}
		function(fmt.Sprint("unary", n), 0x41, 10, 0x20, 0, 0x11, unary, table, end)
		function(fmt.Sprint("none", n), 0x20, 0, 0x11, none, table, end)
		function(fmt.Sprint("bare", n), 0x41, 10, 0x20, 0, 0x11, bare, table, 0x41, 1, end)
		for _, use := range []struct {
			name       string
			expression []byte
		}{
			{"set", []byte{0x20, 0, 0xd2, 1, 0x26, table, 0x41, 0, end}},
			{"get", []byte{0x20, 0, 0x25, table, 0xd1, end}},
			{"fill", []byte{0x20, 0, 0xd0, byte(wasm.FuncRef), 0x41, 1, 0xfc, 17, table, 0x41, 0, end}},
			{"grow", []byte{0xd2, 1, 0x41, 1, 0xfc, 15, table, end}},
			{"copy", []byte{0x20, 0, 0x41, 0, 0x41, 1, 0xfc, 14, table, byte(s.pick(n + 1)), 0x41, 0, end}},
			{"init", []byte{0x20, 0, 0x41, 0, 0x41, 1, 0xfc, 12, byte(s.pick(segments)), table, 0x41, 0, end}},
		} {
			of := func(kind byte) bool { return kind == byte(wasm.FuncRef) }
			switch {
			case !s.once(12):
			case use.name == "copy" && !of(references[use.expression[9]]), use.name == "init" && (segments == 0 || !of(kinds[use.expression[8]])):
			default:
				function(fmt.Sprint(use.name, n), use.expression...)
			}
		}
		function(fmt.Sprint("size", n), 0xfc, 16, table, end)
	}
	if segments > 0 {
		function("drop", 0xfc, 13, byte(s.pick(segments)), 0x41, 0, end)
	}
	b.section(wasm.SectionFunction, append([]byte{byte(len(types))}, types...))
	b.section(wasm.SectionExport, append(wasm.AppendU32(nil, count), exports...))
	b.section(wasm.SectionElement, section)
	b.section(wasm.SectionCode, bodies(code...))
	return b.module()
}

// calls returns calls of the module's exports, with indices near those of its
// tables.
func (s *script) calls(m *wasm.Module) (calls []tableCall) {
	var names []string
	for _, e := range m.Exports {
		if e.Kind == wasm.KindFunction {
			names = append(names, e.Name)
		}
	}
	for range 100 {
		index := uint64(s.pick(256))
		switch s.pick(8) {
		case 0:
			index += 70
		case 1:
			index = math.MaxUint32
		case 2, 3:
			index %= 16
		case 4, 5, 6:
			index %= 64
		}
		calls = append(calls, tableCall{names[s.pick(len(names))], []uint64{index}})
	}
	return calls
}
