// Package meter rewrites a validated module so that it counts what it executes,
// asks the host now and then whether it may go on, and cannot outgrow its
// limits. Semantics are otherwise untouched.
//
// Each function keeps the fuel that is left in a local, charges it once for
// each basic block, and calls the host's tick when it is used up: at its entry
// and at loop heads, one of which every cycle passes. The local is written back
// to a global around calls and at the function's end. The scheme, and its cost
// beside others, is that of the measurements in docs/benchmarks.md.
//
// # Tables on demand
//
// The engine makes a reference of its own for each element of a table whenever
// a module is instantiated. A program in Go has thousands, of which a query
// calls a hundred. So a table that holds more than Limits.EagerElements, that only
// the module knows and that its code does nothing to but call through it and ask
// for its size, begins with nulls: its active segments become declarative, which
// leaves their indices and what they declare as they were. Before each call
// through it the code looks at the element,
//
//	local.tee i  table.get T  ref.is_null  if  local.get i  call fill  end  local.get i
//
// and fill, two branch tables deep, puts there what the segments would have, the
// later over the earlier ones. A null that they left is a null still, at which
// the call traps as it would have, as it does at an index outside, where
// table.get already traps, in the same way, and at another type. Fuel and stack are
// what they would be: what is added charges nothing, after the fuel is written
// back; it can run once for each element.
//
// Left as they are: tables that are exported, imported, or used by any other
// instruction, those with an element that is a global's value, and all tables if
// a segment's place is no constant or lies outside of its table, since the
// engine then stops putting elements. So are tables that would be much to
// compile.
package meter

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// Version changes with what Rewrite returns: rewritten modules are kept beside
// the code that was compiled from them.
const Version = 7

// Names of what rewriting adds. A module that exports a name with Prefix is
// refused.
const (
	Prefix = "glovebox_meter_"
	// Module and Tick name the one import, of type (i64) -> i64: it is called
	// with the fuel left, which is negative, and returns the fuel for the next
	// slice, or does not return. Overflow instead of fuel says that the stack
	// is used up.
	Module = "glovebox_meter"
	Tick   = "tick"
	// Fuel is an exported global, i64: the fuel left of the slice.
	Fuel = Prefix + "fuel"
	// Stack is an exported global, i64: the bytes left of the stack. A trap
	// leaves it as it is.
	Stack = Prefix + "stack"
	// Start is the exported start function, if the module has one: it is to be
	// called first.
	Start = Prefix + "start"
	// Global and a number name the mutable globals of the original that hold
	// numbers, if Limits.Globals asks for them; they count from zero.
	Global = Prefix + "global_"
)

// Overflow is what tick is called with when the call stack is used up.
const Overflow = math.MinInt64

// Limits are what a module is clamped to.
type Limits struct {
	// TableElements bounds all tables together; zero leaves them as they are.
	// The memory is bounded by whoever allocates it.
	TableElements uint32
	// EagerElements is how many elements a table that is never written to may
	// hold and yet be filled when the module is instantiated. What holds more is
	// filled on demand.
	EagerElements uint32
	// StackBytes bounds the estimate of the frames on the call stack.
	StackBytes int32
	// Slice is the fuel that a guest begins with.
	Slice int64
	// Globals has the mutable globals of the original exported.
	Globals bool
}

// What is charged beyond one unit an instruction.
const (
	costCall      = 4
	costHostCall  = 500
	costGrow      = 1000
	costReference = 100
	costTable     = 2
	bytesPerUnit  = 5 // as a shift
	smallFunction = 64
	piece         = 256 << 10
	frameBytes    = 64
	bytesPerLocal = 8
)

// Rewrite returns the bytes of the metered module. The module must be valid,
// import functions only and be within the caps of admission. It is changed: use
// it no more.
func Rewrite(m *wasm.Module, limits Limits) ([]byte, error) {
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, Prefix) {
			return nil, fmt.Errorf("an export has a name that begins with %s, which is the host's", Prefix)
		}
	}
	w := &rewriter{m: m, limits: limits, imports: uint32(m.Imported(wasm.KindFunction)), blockTypes: map[string]uint32{}, helpers: map[helperKey]uint32{}, demands: map[uint32]*demand{}}
	if err := w.rewrite(); err != nil {
		return nil, err
	}
	return m.Encode(), nil
}

// rewriter holds what is added while functions are rewritten.
type rewriter struct {
	m       *wasm.Module
	limits  Limits
	imports uint32 // functions that the original imports; also tick's index

	types      []wasm.FunctionType
	blockTypes map[string]uint32
	helpers    map[helperKey]uint32
	added      []addedFunction
	// fuel and stack are the indices of the globals.
	fuel, stack uint32
	// tableMax are the maxima of the tables that the module defines.
	tableMax       []uint32
	importedTables uint32
	// grown are the tables that the code grows; calls count the calls through
	// each; eager are those that cannot be filled on demand; demands those that
	// are.
	grown, eager map[uint32]bool
	calls        map[uint32]int
	demands      map[uint32]*demand
	body         bodyRewriter
}

type addedFunction struct {
	typeIndex uint32
	body      []byte
}

// helperKey names a helper: an opcode with its immediates, or for OpCall the
// wrapper of an imported function.
type helperKey struct {
	op   wasm.Opcode
	a, b uint32
}

// shift is the new index of a function: tick stands between the imports and
// the rest.
func (w *rewriter) shift(function uint32) uint32 {
	if function >= w.imports {
		return function + 1
	}
	return function
}

// reference is the function that stands for another where its address is
// taken: an imported one is wrapped, so that calls through tables are charged.
func (w *rewriter) reference(function uint32) uint32 {
	if function >= w.imports {
		return function + 1
	}
	return w.helper(helperKey{op: wasm.OpCall, a: function})
}

func (w *rewriter) rewrite() error {
	m := w.m
	w.fuel = uint32(m.Imported(wasm.KindGlobal) + len(m.Globals))
	w.importedTables = uint32(m.Imported(wasm.KindTable))
	w.stack = w.fuel + 1
	if err := w.lookAtTables(); err != nil {
		return err
	}
	w.clampTables()
	if err := w.findDemands(); err != nil {
		return err
	}
	code, err := w.code()
	if err != nil {
		return err
	}
	elements, err := w.elements()
	if err != nil {
		return err
	}
	globals, err := w.globals()
	if err != nil {
		return err
	}
	exports := w.exports()

	tick := w.typeIndex(wasm.FunctionType{Params: []wasm.ValueType{wasm.I64}, Results: []wasm.ValueType{wasm.I64}})
	imports := wasm.AppendU32(nil, uint32(len(m.Imports)+1))
	imports = append(imports, entries(section(m, wasm.SectionImport))...)
	imports = wasm.AppendName(wasm.AppendName(imports, Module), Tick)
	imports = wasm.AppendU32(append(imports, byte(wasm.KindFunction)), tick)

	types := wasm.AppendU32(nil, uint32(len(m.Types)+len(w.types)))
	types = append(types, entries(section(m, wasm.SectionType))...)
	for _, t := range w.types {
		types = appendType(types, t)
	}
	functions := wasm.AppendU32(nil, uint32(len(m.Functions)+len(w.added)))
	functions = append(functions, entries(section(m, wasm.SectionFunction))...)
	bodies := wasm.AppendU32(nil, uint32(len(m.Functions)+len(w.added)))
	bodies = append(bodies, code...)
	for _, f := range w.added {
		functions = wasm.AppendU32(functions, f.typeIndex)
		bodies = append(wasm.AppendU32(bodies, uint32(len(f.body))), f.body...)
	}

	for _, s := range []struct {
		id      wasm.SectionID
		content []byte
	}{
		{wasm.SectionType, types}, {wasm.SectionImport, imports}, {wasm.SectionFunction, functions}, {wasm.SectionTable, w.tables()},
		{wasm.SectionGlobal, globals}, {wasm.SectionExport, exports}, {wasm.SectionElement, elements}, {wasm.SectionCode, bodies},
	} {
		if s.content != nil {
			m.Replace(s.id, s.content)
		}
	}
	m.Remove(wasm.SectionStart)
	m.Remove(wasm.SectionCustom)
	return nil
}

func section(m *wasm.Module, id wasm.SectionID) []byte {
	for _, s := range m.Sections {
		if s.ID == id {
			return s.Data
		}
	}
	return nil
}

// entries is a section without its count.
func entries(content []byte) []byte {
	for i, b := range content {
		if b < 0x80 {
			return content[i+1:]
		}
	}
	return nil
}

func appendType(b []byte, t wasm.FunctionType) []byte {
	b = append(b, 0x60)
	for _, types := range [][]wasm.ValueType{t.Params, t.Results} {
		b = wasm.AppendU32(b, uint32(len(types)))
		for _, v := range types {
			b = append(b, byte(v))
		}
	}
	return b
}

// typeIndex adds a type.
func (w *rewriter) typeIndex(t wasm.FunctionType) uint32 {
	key := string(appendType(nil, t))
	if index, ok := w.blockTypes[key]; ok {
		return index
	}
	index := uint32(len(w.m.Types) + len(w.types))
	w.types = append(w.types, t)
	w.blockTypes[key] = index
	return index
}

// clampTables gives every table a maximum: its own size if no code grows it,
// else what is left of the limit, divided among those that grow.
func (w *rewriter) clampTables() {
	sum := uint64(0)
	for _, t := range w.m.Tables {
		sum += uint64(t.Min)
	}
	share := uint32(0)
	if sum < uint64(w.limits.TableElements) && len(w.grown) > 0 {
		share = (w.limits.TableElements - uint32(sum)) / uint32(len(w.grown))
	}
	for n, t := range w.m.Tables {
		most := t.Min
		if w.grown[w.importedTables+uint32(n)] {
			most += share
		}
		if t.Max != nil {
			most = min(most, *t.Max)
		}
		w.tableMax = append(w.tableMax, most)
	}
}

func (w *rewriter) tables() []byte {
	if len(w.m.Tables) == 0 || w.limits.TableElements == 0 {
		return nil
	}
	out := wasm.AppendU32(nil, uint32(len(w.m.Tables)))
	for n, t := range w.m.Tables {
		out = wasm.AppendU32(append(out, byte(t.Element), 1), t.Min)
		out = wasm.AppendU32(out, w.tableMax[n])
	}
	return out
}

func (w *rewriter) globals() ([]byte, error) {
	out := wasm.AppendU32(nil, uint32(len(w.m.Globals)+2))
	for _, g := range w.m.Globals {
		out = append(out, byte(g.Type), mutability(g.Mutable))
		var err error
		if out, err = w.constant(out, g.Init); err != nil {
			return nil, err
		}
	}
	out = wasm.AppendS64(append(out, byte(wasm.I64), 1, byte(wasm.OpI64Const)), w.limits.Slice)
	out = append(out, byte(wasm.OpEnd))
	out = wasm.AppendS64(append(out, byte(wasm.I64), 1, byte(wasm.OpI64Const)), int64(w.limits.StackBytes))
	return append(out, byte(wasm.OpEnd)), nil
}

func mutability(mutable bool) byte {
	if mutable {
		return 1
	}
	return 0
}

// constant appends a constant expression with its functions' new indices.
func (w *rewriter) constant(out []byte, e wasm.Expression) ([]byte, error) {
	s := wasm.NewScanner(e)
	for s.More() {
		i, err := s.Next()
		if err != nil {
			return nil, err
		}
		if i.Op == wasm.OpRefFunc {
			out = wasm.AppendU32(append(out, byte(wasm.OpRefFunc)), w.reference(i.Index))
		} else {
			out = append(out, e.Code[i.Start:i.End]...)
		}
	}
	return out, nil
}

func (w *rewriter) exports() []byte {
	var mutable []uint32
	if w.limits.Globals {
		mutable = mutableNumbers(w.m)
	}
	n := uint32(len(w.m.Exports) + 2 + len(mutable))
	if w.m.Start != nil {
		n++
	}
	out := wasm.AppendU32(nil, n)
	entry := func(name string, kind wasm.Kind, index uint32) {
		out = wasm.AppendU32(append(wasm.AppendName(out, name), byte(kind)), index)
	}
	for _, e := range w.m.Exports {
		if e.Kind == wasm.KindFunction {
			e.Index = w.shift(e.Index)
		}
		entry(e.Name, e.Kind, e.Index)
	}
	entry(Fuel, wasm.KindGlobal, w.fuel)
	entry(Stack, wasm.KindGlobal, w.stack)
	for i, global := range mutable {
		entry(Global+strconv.Itoa(i), wasm.KindGlobal, global)
	}
	if w.m.Start != nil {
		entry(Start, wasm.KindFunction, w.reference(*w.m.Start))
	}
	return out
}

// mutableNumbers are the indices of the mutable globals that are neither vectors
// nor references.
func mutableNumbers(m *wasm.Module) (indices []uint32) {
	for i, g := range m.Globals {
		if g.Mutable && g.Type != wasm.V128 && !g.Type.IsReference() {
			indices = append(indices, uint32(m.Imported(wasm.KindGlobal)+i))
		}
	}
	return indices
}

func (w *rewriter) elements() ([]byte, error) {
	if len(w.m.Elements) == 0 {
		return nil, nil
	}
	out := wasm.AppendU32(nil, uint32(len(w.m.Elements)))
	for _, s := range w.m.Elements {
		flag := uint32(0)
		if s.Items != nil {
			flag = 4
		}
		if w.demands[s.Table] != nil && s.Mode == wasm.Active {
			// Its index and its functions remain declared.
			s.Mode = wasm.Declarative
		}
		switch s.Mode {
		case wasm.Active:
			flag |= 2
		case wasm.Passive:
			flag |= 1
		case wasm.Declarative:
			flag |= 3
		}
		out = wasm.AppendU32(out, flag)
		if s.Mode == wasm.Active {
			var err error
			if out, err = w.constant(wasm.AppendU32(out, s.Table), s.Place); err != nil {
				return nil, err
			}
		}
		if s.Items == nil {
			out = wasm.AppendU32(append(out, 0), uint32(len(s.Functions)))
			for _, f := range s.Functions {
				out = wasm.AppendU32(out, w.reference(f))
			}
			continue
		}
		out = wasm.AppendU32(append(out, byte(s.Type)), uint32(len(s.Items)))
		for _, item := range s.Items {
			var err error
			if out, err = w.constant(out, item); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// code rewrites all bodies.
func (w *rewriter) code() ([]byte, error) {
	size := 0
	for _, b := range w.m.Bodies {
		size += b.Size
	}
	out := make([]byte, 0, size+size/2)
	for n, b := range w.m.Bodies {
		body, err := w.body.rewrite(w, b, w.m.Types[w.m.Functions[n]])
		if err != nil {
			return nil, err
		}
		out = append(wasm.AppendU32(out, uint32(len(body))), body...)
	}
	return out, nil
}
