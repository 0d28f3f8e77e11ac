package meter

import (
	"slices"

	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// EagerElements is what the sandbox sets Limits.EagerElements to. An element
// that the engine puts into a table costs 50 ns and 70 bytes for each instance,
// one that is put there when it is called first 70 ns; most are never called.
// Programs in C and AssemblyScript have a few, those in Rust dozens, those in Go
// 1,300 at least.
const EagerElements = 16

const (
	// leafShift is how many elements one function puts into a table, as a
	// shift: no body is long, however many there are.
	leafShift = 6
	// maxTable bounds the size of a table that is filled on demand.
	maxTable = 1 << 16
	// What is added for all tables of a module takes at most 0.1 s to compile
	// (BenchmarkCompileTables): maxElements bounds their elements, each of which
	// is 60 bytes of code and takes 2.5 µs, and maxCalls the calls through them,
	// which take 5 µs more each. A program in Go with net/http, html/template and
	// encoding/xml has 9,053 and 2,873.
	maxElements = 1 << 14
	maxCalls    = 1 << 13
	// maxBodyCalls is how many of the calls one body may have: each gets two
	// basic blocks more, in which the engine's compiler is quadratic. Go's have
	// 24 at most.
	maxBodyCalls = 64
)

// demand is a table that is filled on demand.
type demand struct {
	// functions are what the segments put there, from the element first on:
	// indices of the original, plus one. Zero is null.
	functions []uint32
	first     uint32
}

// demandOf returns the table that i calls through if it is filled on demand.
func (w *rewriter) demandOf(i *wasm.Instruction) *demand {
	if i.Op != wasm.OpCallIndirect {
		return nil
	}
	return w.demands[i.Index2]
}

// lookAtTables finds the tables that the code grows and how many calls through
// each it has, and the tables that must hold from the start what they hold: they
// are read or written, from outside maybe, or there are too many calls through
// them in one body.
func (w *rewriter) lookAtTables() error {
	w.grown, w.eager, w.calls = map[uint32]bool{}, map[uint32]bool{}, map[uint32]int{}
	for _, e := range w.m.Exports {
		if e.Kind == wasm.KindTable {
			w.eager[e.Index] = true
		}
	}
	inBody := map[uint32]int{}
	for _, b := range w.m.Bodies {
		clear(inBody)
		s := wasm.NewScanner(b.Expression)
		for s.More() {
			i, err := s.Next()
			if err != nil {
				return err
			}
			switch i.Op {
			case wasm.OpTableGrow:
				w.grown[i.Index], w.eager[i.Index] = true, true
			case wasm.OpTableGet, wasm.OpTableSet, wasm.OpTableFill:
				w.eager[i.Index] = true
			case wasm.OpTableCopy:
				w.eager[i.Index], w.eager[i.Index2] = true, true
			case wasm.OpTableInit:
				w.eager[i.Index2] = true
			case wasm.OpCallIndirect:
				w.calls[i.Index2]++
				if inBody[i.Index2]++; inBody[i.Index2] > maxBodyCalls {
					w.eager[i.Index2] = true
				}
			}
		}
	}
	return nil
}

// findDemands finds the tables that are filled on demand: those that never hold
// anything but what active segments put there, if that is more than the limit.
// There are none if the place of a segment is not a constant within a table
// that the module defines: instantiation may then stop half-way.
func (w *rewriter) findDemands() error {
	contents := make([][]uint32, len(w.m.Tables))
	for _, s := range w.m.Elements {
		if s.Mode != wasm.Active {
			continue
		}
		place, constant := s.Place.ConstantI32()
		if !constant || s.Table < w.importedTables {
			return nil
		}
		n := s.Table - w.importedTables
		t := w.m.Tables[n]
		begin := uint64(uint32(place))
		end := begin + uint64(max(len(s.Functions), len(s.Items)))
		if end > uint64(t.Min) {
			return nil
		}
		if t.Element != wasm.FuncRef || t.Min > maxTable || w.eager[s.Table] {
			continue
		}
		if contents[n] == nil {
			contents[n] = make([]uint32, t.Min)
		}
		content := contents[n][begin:end]
		for i, f := range s.Functions {
			content[i] = f + 1
		}
		for i, item := range s.Items {
			function, constant, err := constantFunction(item)
			if err != nil {
				return err
			}
			w.eager[s.Table] = w.eager[s.Table] || !constant
			content[i] = function
		}
	}
	elements, calls := maxElements, maxCalls
	for n, content := range contents {
		table := w.importedTables + uint32(n)
		first := slices.IndexFunc(content, func(f uint32) bool { return f != 0 })
		if first < 0 || w.eager[table] {
			continue
		}
		held, last := uint32(0), first
		for i, f := range content {
			if f != 0 {
				held, last = held+1, i
			}
		}
		content = content[first : last+1]
		if held > w.limits.EagerElements && len(content) <= elements && w.calls[table] <= calls {
			elements, calls = elements-len(content), calls-w.calls[table]
			w.demands[table] = &demand{functions: content, first: uint32(first)}
		}
	}
	return nil
}

// constantFunction returns the function that a constant expression refers to,
// as its index plus one, and zero for null; false if it is a global's value.
func constantFunction(e wasm.Expression) (function uint32, constant bool, err error) {
	i, err := wasm.NewScanner(e).Next()
	if err != nil {
		return 0, false, err
	}
	switch i.Op {
	case wasm.OpRefNull:
		return 0, true, nil
	case wasm.OpRefFunc:
		return i.Index + 1, true, nil
	}
	return 0, false, nil
}

// lookUp appends what comes before an indirect call through a table that is
// filled on demand: it leaves the index on the stack, and at the index what the
// segments put there.
func (b *bodyRewriter) lookUp(out []byte, table uint32) []byte {
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalTee)), b.index)
	out = wasm.AppendU32(append(out, byte(wasm.OpTableGet)), table)
	out = append(out, byte(wasm.OpRefIsNull), byte(wasm.OpIf), emptyBlock)
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), b.index)
	out = wasm.AppendU32(append(out, byte(wasm.OpCall)), b.w.helper(helperKey{op: wasm.OpTableSet, a: table}))
	out = append(out, byte(wasm.OpEnd))
	return wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), b.index)
}

// fill puts into the table the element whose index is the parameter. What the
// segments left null stays null. It charges nothing: it runs once for each
// element, or else the call that it runs for traps.
func (a *assembler) fill(table uint32) {
	d := a.w.demands[table]
	leaves := uint32(len(d.functions)-1)>>leafShift + 1
	for range leaves + 1 {
		a.open(wasm.OpBlock)
	}
	a.op(wasm.OpLocalGet, 0)
	a.i32(int32(d.first))
	a.op(wasm.OpI32Sub)
	a.i32(leafShift)
	a.op(opI32ShrU)
	a.branches(leaves)
	for leaf := range leaves {
		a.op(wasm.OpEnd)
		a.op(wasm.OpLocalGet, 0)
		a.op(wasm.OpCall, a.w.helper(helperKey{op: opLeaf, a: table, b: leaf}))
		a.op(wasm.OpReturn)
	}
	a.op(wasm.OpEnd)
}

// leaf is fill for a run of elements. An index below or above it leaves the
// table as it is.
func (a *assembler) leaf(table, leaf uint32) {
	d := a.w.demands[table]
	functions := d.functions[leaf<<leafShift:]
	functions = functions[:min(len(functions), 1<<leafShift)]
	a.op(wasm.OpLocalGet, 0)
	a.code = append(a.code, byte(wasm.OpBlock), byte(wasm.FuncRef))
	for range len(functions) + 1 {
		a.open(wasm.OpBlock)
	}
	a.op(wasm.OpLocalGet, 0)
	a.i32(int32(d.first + leaf<<leafShift))
	a.op(wasm.OpI32Sub)
	a.branches(uint32(len(functions)))
	for n, f := range functions {
		a.op(wasm.OpEnd)
		if f == 0 {
			a.op(wasm.OpReturn)
			continue
		}
		a.op(wasm.OpRefFunc, a.w.reference(f-1))
		a.op(wasm.OpBr, uint32(len(functions)-n))
	}
	a.op(wasm.OpEnd)
	a.op(wasm.OpReturn)
	a.op(wasm.OpEnd)
	a.op(wasm.OpTableSet, table)
}

// branches leads by the value on the stack to one of the n blocks around it,
// the innermost for zero, and by default to the one around those.
func (a *assembler) branches(n uint32) {
	a.op(wasm.OpBrTable, n)
	for label := range n + 1 {
		a.code = wasm.AppendU32(a.code, label)
	}
}

const (
	opI32ShrU wasm.Opcode = 0x76
	// opLeaf names the functions that fill a run of elements; it is no
	// instruction's code.
	opLeaf wasm.Opcode = 0xffff
)
