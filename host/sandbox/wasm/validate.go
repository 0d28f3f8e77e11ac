package wasm

import (
	"fmt"
	"slices"
)

// Validate holds a module against the rules of validation (specification,
// chapter "Validation", with the algorithm of its appendix), every index
// against the index space as the module has it. Errors match ErrInvalid.
func (m *Module) Validate() error {
	v := newValidator(m)
	for _, check := range []func() error{
		v.spaces, v.globals, v.exports, v.start, v.elements, v.data, v.bodies,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validator knows the index spaces of a module.
type validator struct {
	m         *Module
	functions []uint32 // types
	tables    []Table
	memories  int
	globalsAt []GlobalType
	imported  int // of globalsAt
	// declared are the functions that ref.func may name in a body.
	declared map[uint32]bool

	section string
	offset  int
	// moved counts the values that branches, blocks and calls take and leave.
	moved int
}

// maxMoved bounds moved: the types of a module of 32 MiB could make every
// second byte move thousands of values. Large honest modules move a few
// million.
const maxMoved = 100_000_000

func newValidator(m *Module) *validator {
	v := &validator{m: m, declared: map[uint32]bool{}}
	for _, i := range m.Imports {
		switch i.Kind {
		case KindFunction:
			v.functions = append(v.functions, i.Function)
		case KindTable:
			v.tables = append(v.tables, i.Table)
		case KindMemory:
			v.memories++
		case KindGlobal:
			v.globalsAt = append(v.globalsAt, i.Global)
		}
	}
	v.imported = len(v.globalsAt)
	v.functions = append(v.functions, m.Functions...)
	v.tables = append(v.tables, m.Tables...)
	v.memories += len(m.Memories)
	for _, g := range m.Globals {
		v.globalsAt = append(v.globalsAt, g.GlobalType)
	}
	return v
}

func (v *validator) invalid(format string, args ...any) error {
	return &Error{Section: v.section, Offset: v.offset, Rule: fmt.Sprintf(format, args...), invalid: true}
}

func (v *validator) in(id SectionID) {
	v.section, v.offset = id.String(), 0
}

// outside says that an index is not in its space.
func (v *validator) outside(what string, index uint32, size int) error {
	return v.invalid("%s %d: there are %d", what, index, size)
}

func (v *validator) spaces() error {
	v.in(SectionFunction)
	for _, t := range v.functions {
		if int(t) >= len(v.m.Types) {
			return v.outside("type", t, len(v.m.Types))
		}
	}
	v.in(SectionTable)
	for _, t := range v.tables {
		if t.Max != nil && *t.Max < t.Min {
			return v.invalid("a table's maximum is below its minimum")
		}
	}
	v.in(SectionMemory)
	if v.memories > 1 {
		return v.invalid("more than one memory")
	}
	check := func(m Memory) error {
		if m.Min > MaxPages || m.Max != nil && (*m.Max > MaxPages || *m.Max < m.Min) {
			return v.invalid("a memory has at most %d pages, and its maximum is not below its minimum", MaxPages)
		}
		return nil
	}
	for _, i := range v.m.Imports {
		if i.Kind == KindMemory {
			if err := check(i.Memory); err != nil {
				return err
			}
		}
	}
	for _, m := range v.m.Memories {
		if err := check(m); err != nil {
			return err
		}
	}
	return nil
}

func (v *validator) globals() error {
	v.in(SectionGlobal)
	for _, g := range v.m.Globals {
		if err := v.constant(g.Init, g.Type); err != nil {
			return err
		}
	}
	return nil
}

// constant checks a constant expression: one instruction and the end.
func (v *validator) constant(e Expression, want ValueType) error {
	v.offset = e.Offset
	scanner := NewScanner(e)
	var have []ValueType
	for {
		i, err := scanner.Next()
		if err != nil {
			return err
		}
		switch i.Op {
		case OpEnd:
			if len(have) != 1 || have[0] != want {
				return v.invalid("a constant expression of another type than %s", want)
			}
			return nil
		case OpI32Const:
			have = append(have, I32)
		case OpI64Const:
			have = append(have, I64)
		case OpF32Const:
			have = append(have, F32)
		case OpF64Const:
			have = append(have, F64)
		case OpV128Const:
			have = append(have, V128)
		case OpRefNull:
			have = append(have, i.Type)
		case OpRefFunc:
			if int(i.Index) >= len(v.functions) {
				return v.outside("function", i.Index, len(v.functions))
			}
			v.declared[i.Index] = true
			have = append(have, FuncRef)
		case OpGlobalGet:
			// Only imported globals are known before the module's own.
			if int(i.Index) >= v.imported {
				return v.outside("imported global", i.Index, v.imported)
			}
			if v.globalsAt[i.Index].Mutable {
				return v.invalid("a constant expression reads a global that changes")
			}
			have = append(have, v.globalsAt[i.Index].Type)
		default:
			return v.invalid("opcode 0x%02x is not constant", uint16(i.Op))
		}
	}
}

func (v *validator) exports() error {
	v.in(SectionExport)
	seen := make(map[string]bool, len(v.m.Exports))
	for _, e := range v.m.Exports {
		if seen[e.Name] {
			return v.invalid("two exports have the same name")
		}
		seen[e.Name] = true
		size := 0
		switch e.Kind {
		case KindFunction:
			size = len(v.functions)
			v.declared[e.Index] = true
		case KindTable:
			size = len(v.tables)
		case KindMemory:
			size = v.memories
		case KindGlobal:
			size = len(v.globalsAt)
		}
		if int(e.Index) >= size {
			return v.outside("exported "+e.Kind.String(), e.Index, size)
		}
	}
	return nil
}

func (v *validator) start() error {
	v.in(SectionStart)
	if v.m.Start == nil {
		return nil
	}
	if int(*v.m.Start) >= len(v.functions) {
		return v.outside("start function", *v.m.Start, len(v.functions))
	}
	if t := v.typeOf(*v.m.Start); len(t.Params)+len(t.Results) > 0 {
		return v.invalid("the start function takes or returns values")
	}
	return nil
}

func (v *validator) typeOf(function uint32) *FunctionType { return &v.m.Types[v.functions[function]] }

func (v *validator) elements() error {
	v.in(SectionElement)
	for _, s := range v.m.Elements {
		if s.Mode == Active {
			if int(s.Table) >= len(v.tables) {
				return v.outside("table", s.Table, len(v.tables))
			}
			if v.tables[s.Table].Element != s.Type {
				return v.invalid("an element segment of another type than its table")
			}
			if err := v.constant(s.Place, I32); err != nil {
				return err
			}
		}
		for _, f := range s.Functions {
			if int(f) >= len(v.functions) {
				return v.outside("function", f, len(v.functions))
			}
			v.declared[f] = true
		}
		for _, e := range s.Items {
			if err := v.constant(e, s.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *validator) data() error {
	v.in(SectionData)
	for _, s := range v.m.Data {
		if s.Mode != Active {
			continue
		}
		if int(s.Memory) >= v.memories {
			return v.outside("memory", s.Memory, v.memories)
		}
		if err := v.constant(s.Place, I32); err != nil {
			return err
		}
	}
	return nil
}

func (v *validator) bodies() error {
	v.in(SectionCode)
	b := bodyValidator{validator: v}
	imported := len(v.functions) - len(v.m.Functions)
	for n, body := range v.m.Bodies {
		if err := b.check(body, v.typeOf(uint32(imported+n))); err != nil {
			return err
		}
	}
	return nil
}

// unknown is the type of a value that unreachable code may take from an empty
// stack.
const unknown ValueType = 0

// frame is a block that is open.
type frame struct {
	op             Opcode
	params, result []ValueType
	height         int
	unreachable    bool
}

// labels are the types that a branch to the frame carries.
func (f *frame) labels() []ValueType {
	if f.op == OpLoop {
		return f.params
	}
	return f.result
}

// bodyValidator checks one body after the other.
type bodyValidator struct {
	*validator
	locals []ValueType
	stack  []ValueType
	frames []frame
}

func (b *bodyValidator) check(body Body, t *FunctionType) error {
	b.locals = append(b.locals[:0], t.Params...)
	for _, run := range body.Locals {
		for range run.Count {
			b.locals = append(b.locals, run.Type)
		}
	}
	b.stack = b.stack[:0]
	b.frames = append(b.frames[:0], frame{op: OpBlock, result: t.Results})
	scanner := NewScanner(body.Expression)
	for len(b.frames) > 0 {
		i, err := scanner.Next()
		if err != nil {
			return err
		}
		b.offset = body.Offset + i.Start
		if err := b.instruction(i); err != nil {
			return err
		}
		if b.moved > maxMoved {
			return b.invalid("more than %d values are moved by branches, blocks and calls", maxMoved)
		}
	}
	if scanner.More() {
		return &Error{Section: "code", Offset: body.Offset + len(body.Code) - scanner.r.left(), Rule: "bytes after the end of a function"}
	}
	return nil
}

func (b *bodyValidator) push(t ValueType) { b.stack = append(b.stack, t) }

func (b *bodyValidator) pushAll(types []ValueType) {
	b.moved += len(types)
	b.stack = append(b.stack, types...)
}

func (b *bodyValidator) popAny() (ValueType, error) {
	top := &b.frames[len(b.frames)-1]
	if len(b.stack) == top.height {
		if top.unreachable {
			return unknown, nil
		}
		return 0, b.invalid("a value is missing on the stack")
	}
	t := b.stack[len(b.stack)-1]
	b.stack = b.stack[:len(b.stack)-1]
	return t, nil
}

func (b *bodyValidator) pop(want ValueType) error {
	have, err := b.popAny()
	if err == nil && have != want && have != unknown && want != unknown {
		err = b.invalid("a value of type %s where %s is needed", have, want)
	}
	return err
}

func (b *bodyValidator) popAll(types []ValueType) error {
	b.moved += len(types)
	for i := len(types) - 1; i >= 0; i-- {
		if err := b.pop(types[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bodyValidator) open(op Opcode, params, result []ValueType) {
	b.frames = append(b.frames, frame{op: op, params: params, result: result, height: len(b.stack)})
	b.pushAll(params)
}

func (b *bodyValidator) close() (frame, error) {
	top := b.frames[len(b.frames)-1]
	if err := b.popAll(top.result); err != nil {
		return top, err
	}
	if len(b.stack) != top.height {
		return top, b.invalid("values are left on the stack at the end of a block")
	}
	b.frames = b.frames[:len(b.frames)-1]
	return top, nil
}

func (b *bodyValidator) unreachable() {
	top := &b.frames[len(b.frames)-1]
	b.stack = b.stack[:top.height]
	top.unreachable = true
}

func (b *bodyValidator) label(depth uint32) (*frame, error) {
	if int64(depth) >= int64(len(b.frames)) {
		return nil, b.outside("label", depth, len(b.frames))
	}
	return &b.frames[len(b.frames)-1-int(depth)], nil
}

// BlockType returns the parameters and results of a block.
func (m *Module) BlockType(block int64) (params, results []ValueType, ok bool) {
	switch {
	case block == blockEmpty:
		return nil, nil, true
	case block < 0:
		return nil, single(ValueType(block & 0x7f)), true
	case block < int64(len(m.Types)):
		t := m.Types[block]
		return t.Params, t.Results, true
	}
	return nil, nil, false
}

var singles = func() (all [256][]ValueType) {
	for _, t := range []ValueType{I32, I64, F32, F64, V128, FuncRef, ExternRef} {
		all[t] = []ValueType{t}
	}
	return all
}()

func single(t ValueType) []ValueType { return singles[t] }

func (b *bodyValidator) instruction(i *Instruction) error {
	what := i.Op.instruction()
	if !what.signature {
		return b.special(i)
	}
	if what.usesMemory {
		if b.memories == 0 {
			return b.outside("memory", 0, 0)
		}
		if i.Index > uint32(what.align) {
			return b.invalid("an alignment larger than the access")
		}
	}
	if what.lanes > 0 && i.lane >= what.lanes {
		return b.invalid("a lane beyond the last one")
	}
	for n := len(what.params) - 1; n >= 0; n-- {
		if err := b.pop(typeOf(what.params[n])); err != nil {
			return err
		}
	}
	if what.result != 0 {
		b.push(typeOf(what.result))
	}
	return nil
}

func (b *bodyValidator) special(i *Instruction) error {
	switch i.Op {
	case OpNop:
		return nil
	case OpUnreachable:
		b.unreachable()
		return nil
	case OpBlock, OpLoop, OpIf:
		return b.block(i)
	case OpElse:
		top, err := b.close()
		if err != nil {
			return err
		}
		if top.op != OpIf {
			return b.invalid("an else without an if")
		}
		b.open(OpElse, top.params, top.result)
		return nil
	case OpEnd:
		top, err := b.close()
		if err != nil {
			return err
		}
		if top.op == OpIf && !slices.Equal(top.params, top.result) {
			return b.invalid("an if without an else cannot change types")
		}
		if len(b.frames) > 0 {
			b.pushAll(top.result)
		}
		return nil
	case OpBr:
		f, err := b.label(i.Index)
		if err != nil {
			return err
		}
		if err := b.popAll(f.labels()); err != nil {
			return err
		}
		b.unreachable()
		return nil
	case OpBrIf:
		f, err := b.label(i.Index)
		if err != nil {
			return err
		}
		types := f.labels()
		if err := b.pop(I32); err != nil {
			return err
		}
		if err := b.popAll(types); err != nil {
			return err
		}
		b.pushAll(types)
		return nil
	case OpBrTable:
		return b.branchTable(i)
	case OpReturn:
		if err := b.popAll(b.frames[0].result); err != nil {
			return err
		}
		b.unreachable()
		return nil
	case OpCall:
		if int64(i.Index) >= int64(len(b.functions)) {
			return b.outside("function", i.Index, len(b.functions))
		}
		return b.call(b.typeOf(i.Index))
	case OpCallIndirect:
		switch {
		case int64(i.Index) >= int64(len(b.m.Types)):
			return b.outside("type", i.Index, len(b.m.Types))
		case int64(i.Index2) >= int64(len(b.tables)):
			return b.outside("table", i.Index2, len(b.tables))
		case b.tables[i.Index2].Element != FuncRef:
			return b.invalid("an indirect call through a table of something else than functions")
		}
		if err := b.pop(I32); err != nil {
			return err
		}
		return b.call(&b.m.Types[i.Index])
	case OpDrop:
		_, err := b.popAny()
		return err
	case OpSelect:
		return b.choose()
	case OpSelectTyped:
		for _, t := range []ValueType{I32, i.Type, i.Type} {
			if err := b.pop(t); err != nil {
				return err
			}
		}
		b.push(i.Type)
		return nil
	case OpI32Const:
		b.push(I32)
		return nil
	case OpI64Const:
		b.push(I64)
		return nil
	case OpF32Const:
		b.push(F32)
		return nil
	case OpF64Const:
		b.push(F64)
		return nil
	case OpRefNull:
		b.push(i.Type)
		return nil
	case OpRefIsNull:
		t, err := b.popAny()
		if err == nil && t != unknown && !t.IsReference() {
			err = b.invalid("a reference is needed")
		}
		b.push(I32)
		return err
	case OpRefFunc:
		if int64(i.Index) >= int64(len(b.functions)) {
			return b.outside("function", i.Index, len(b.functions))
		}
		if !b.declared[i.Index] {
			return b.invalid("a reference to a function that is not declared")
		}
		b.push(FuncRef)
		return nil
	}
	return b.access(i)
}

func (b *bodyValidator) block(i *Instruction) error {
	params, results, ok := b.m.BlockType(i.Block)
	if !ok {
		return b.outside("type", uint32(i.Block), len(b.m.Types))
	}
	if i.Op == OpIf {
		if err := b.pop(I32); err != nil {
			return err
		}
	}
	if err := b.popAll(params); err != nil {
		return err
	}
	b.open(i.Op, params, results)
	return nil
}

func (b *bodyValidator) branchTable(i *Instruction) error {
	if err := b.pop(I32); err != nil {
		return err
	}
	last, err := b.label(i.Targets[len(i.Targets)-1])
	if err != nil {
		return err
	}
	arity := len(last.labels())
	var popped []ValueType
	for n, target := range i.Targets {
		f, err := b.label(target)
		if err != nil {
			return err
		}
		types := f.labels()
		if len(types) != arity {
			return b.invalid("the labels of a branch table take different numbers of values")
		}
		if n > 0 && arity == 0 {
			continue
		}
		if b.moved += 2 * len(types); b.moved > maxMoved {
			return nil // the caller refuses
		}
		popped = popped[:0]
		for k := len(types) - 1; k >= 0; k-- {
			have, err := b.popAny()
			if err == nil && have != types[k] && have != unknown {
				err = b.invalid("a value of type %s where %s is needed", have, types[k])
			}
			if err != nil {
				return err
			}
			popped = append(popped, have)
		}
		slices.Reverse(popped)
		b.pushAll(popped)
	}
	if err := b.popAll(last.labels()); err != nil {
		return err
	}
	b.unreachable()
	return nil
}

func (b *bodyValidator) call(t *FunctionType) error {
	if err := b.popAll(t.Params); err != nil {
		return err
	}
	b.pushAll(t.Results)
	return nil
}

func (b *bodyValidator) choose() error {
	if err := b.pop(I32); err != nil {
		return err
	}
	one, err := b.popAny()
	if err != nil {
		return err
	}
	two, err := b.popAny()
	if err != nil {
		return err
	}
	switch {
	case one.IsReference() || two.IsReference():
		return b.invalid("a select between references needs a type")
	case one != two && one != unknown && two != unknown:
		return b.invalid("a select between values of two types")
	case one == unknown:
		one = two
	}
	b.push(one)
	return nil
}

// access checks what reads or changes locals, globals, tables and memory.
func (b *bodyValidator) access(i *Instruction) error {
	switch i.Op {
	case OpLocalGet, OpLocalSet, OpLocalTee:
		if int64(i.Index) >= int64(len(b.locals)) {
			return b.outside("local", i.Index, len(b.locals))
		}
		t := b.locals[i.Index]
		if i.Op != OpLocalGet {
			if err := b.pop(t); err != nil {
				return err
			}
		}
		if i.Op != OpLocalSet {
			b.push(t)
		}
		return nil
	case OpGlobalGet, OpGlobalSet:
		if int64(i.Index) >= int64(len(b.globalsAt)) {
			return b.outside("global", i.Index, len(b.globalsAt))
		}
		g := b.globalsAt[i.Index]
		if i.Op == OpGlobalGet {
			b.push(g.Type)
			return nil
		}
		if !g.Mutable {
			return b.invalid("a global that does not change is set")
		}
		return b.pop(g.Type)
	case OpMemorySize, OpMemoryGrow, OpMemoryCopy, OpMemoryFill, OpMemoryInit:
		if b.memories == 0 {
			return b.outside("memory", 0, 0)
		}
	case OpTableGet, OpTableSet, OpTableGrow, OpTableSize, OpTableFill:
		if int64(i.Index) >= int64(len(b.tables)) {
			return b.outside("table", i.Index, len(b.tables))
		}
	}
	switch i.Op {
	case OpMemoryInit, OpDataDrop:
		if b.m.DataCount == nil {
			return &Error{Section: b.section, Offset: b.offset, Rule: "a data segment is used without a data count section"}
		}
		if i.Index >= *b.m.DataCount {
			return b.outside("data segment", i.Index, int(*b.m.DataCount))
		}
	case OpElemDrop:
		if int64(i.Index) >= int64(len(b.m.Elements)) {
			return b.outside("element segment", i.Index, len(b.m.Elements))
		}
	case OpTableInit:
		switch {
		case int64(i.Index) >= int64(len(b.m.Elements)):
			return b.outside("element segment", i.Index, len(b.m.Elements))
		case int64(i.Index2) >= int64(len(b.tables)):
			return b.outside("table", i.Index2, len(b.tables))
		case b.m.Elements[i.Index].Type != b.tables[i.Index2].Element:
			return b.invalid("an element segment of another type than its table")
		}
	case OpTableCopy:
		switch {
		case int64(i.Index) >= int64(len(b.tables)):
			return b.outside("table", i.Index, len(b.tables))
		case int64(i.Index2) >= int64(len(b.tables)):
			return b.outside("table", i.Index2, len(b.tables))
		case b.tables[i.Index].Element != b.tables[i.Index2].Element:
			return b.invalid("a copy between tables of two types")
		}
	}
	params, result := b.accessSignature(i)
	if err := b.popAll(params); err != nil {
		return err
	}
	if result != 0 {
		b.push(result)
	}
	return nil
}

var (
	threeI32 = []ValueType{I32, I32, I32}
	oneI32   = threeI32[:1]
)

func (b *bodyValidator) accessSignature(i *Instruction) (params []ValueType, result ValueType) {
	switch i.Op {
	case OpMemorySize:
		return nil, I32
	case OpMemoryGrow:
		return oneI32, I32
	case OpMemoryCopy, OpMemoryFill, OpMemoryInit, OpTableInit, OpTableCopy:
		return threeI32, 0
	case OpTableGet:
		return oneI32, b.tables[i.Index].Element
	case OpTableSet:
		return []ValueType{I32, b.tables[i.Index].Element}, 0
	case OpTableGrow:
		return []ValueType{b.tables[i.Index].Element, I32}, I32
	case OpTableSize:
		return nil, I32
	case OpTableFill:
		return []ValueType{I32, b.tables[i.Index].Element, I32}, 0
	}
	return nil, 0 // data.drop and elem.drop
}
