package meter

import "github.com/gloveboxhq/glovebox/host/sandbox/wasm"

// helper returns the index of the function that runs an instruction whose cost
// depends on an operand, or calls an imported function, and charges it. It
// charges the global, since whoever calls it has written the fuel back.
func (w *rewriter) helper(key helperKey) uint32 {
	if index, ok := w.helpers[key]; ok {
		return index
	}
	// The index is known before the body is, which may need other helpers.
	index := w.imports + 1 + uint32(len(w.m.Functions)+len(w.added))
	w.helpers[key] = index
	w.added = append(w.added, addedFunction{})
	at := len(w.added) - 1
	a := &assembler{w: w}
	var t wasm.FunctionType
	switch key.op {
	case wasm.OpCall:
		t = w.m.FunctionType(key.a)
		a.imported(key.a, t)
	case wasm.OpMemoryFill, wasm.OpMemoryCopy, wasm.OpMemoryInit:
		t.Params = []wasm.ValueType{wasm.I32, wasm.I32, wasm.I32}
		a.memory(key)
	case wasm.OpTableSet:
		t.Params = []wasm.ValueType{wasm.I32}
		a.fill(key.a)
	case opLeaf:
		t.Params = []wasm.ValueType{wasm.I32}
		a.leaf(key.a, key.b)
	case wasm.OpTableCopy, wasm.OpTableInit:
		t.Params = []wasm.ValueType{wasm.I32, wasm.I32, wasm.I32}
		a.table(key, 3)
	case wasm.OpTableFill:
		t.Params = []wasm.ValueType{wasm.I32, w.elementType(key.a), wasm.I32}
		a.table(key, 3)
	case wasm.OpTableGrow:
		t.Params = []wasm.ValueType{w.elementType(key.a), wasm.I32}
		t.Results = []wasm.ValueType{wasm.I32}
		a.table(key, 2)
	}
	a.op(wasm.OpEnd)
	w.added[at] = addedFunction{typeIndex: w.typeIndex(t), body: append([]byte{0}, a.code...)}
	return index
}

func (w *rewriter) elementType(table uint32) wasm.ValueType {
	for _, i := range w.m.Imports {
		if i.Kind != wasm.KindTable {
			continue
		}
		if table == 0 {
			return i.Table.Element
		}
		table--
	}
	return w.m.Tables[table].Element
}

// assembler writes the instructions of one helper.
type assembler struct {
	w    *rewriter
	code []byte
}

func (a *assembler) op(op wasm.Opcode, indices ...uint32) {
	if op > 0xff {
		a.code = wasm.AppendU32(append(a.code, byte(op>>8)), uint32(op&0xff))
	} else {
		a.code = append(a.code, byte(op))
	}
	for _, i := range indices {
		a.code = wasm.AppendU32(a.code, i)
	}
}

func (a *assembler) i32(v int32) {
	a.code = wasm.AppendS64(append(a.code, byte(wasm.OpI32Const)), int64(v))
}

func (a *assembler) i64(v int64) {
	a.code = wasm.AppendS64(append(a.code, byte(wasm.OpI64Const)), v)
}

func (a *assembler) open(op wasm.Opcode) { a.code = append(a.code, byte(op), emptyBlock) }

// tick asks for fuel.
func (a *assembler) tick() {
	a.op(wasm.OpGlobalGet, a.w.fuel)
	a.op(wasm.OpCall, a.w.imports)
	a.op(wasm.OpGlobalSet, a.w.fuel)
}

// tickIfUsedUp asks for fuel if none is left.
func (a *assembler) tickIfUsedUp() {
	a.op(wasm.OpGlobalGet, a.w.fuel)
	a.i64(0)
	a.op(wasm.OpI64LtS)
	a.open(wasm.OpIf)
	a.tick()
	a.op(wasm.OpEnd)
}

// chargeOperand takes from the fuel what the local, an i32, is worth: one unit
// for each 2^shift.
func (a *assembler) chargeOperand(local uint32, shift int64) {
	a.op(wasm.OpGlobalGet, a.w.fuel)
	a.op(wasm.OpLocalGet, local)
	a.op(wasm.OpI64ExtendU)
	if shift > 0 {
		a.i64(shift)
		a.op(wasm.OpI64ShrU)
	}
	a.op(wasm.OpI64Sub)
	a.i64(costCall)
	a.op(wasm.OpI64Sub)
	a.op(wasm.OpGlobalSet, a.w.fuel)
}

func (a *assembler) imported(function uint32, t wasm.FunctionType) {
	a.op(wasm.OpGlobalGet, a.w.fuel)
	a.i64(costHostCall)
	a.op(wasm.OpI64Sub)
	a.op(wasm.OpGlobalSet, a.w.fuel)
	a.tickIfUsedUp()
	for i := range t.Params {
		a.op(wasm.OpLocalGet, uint32(i))
	}
	a.op(wasm.OpCall, function)
}

// table charges a table instruction by its last operand, and runs it. A table
// is too small, and growing it beyond its maximum too quick, to need pieces.
func (a *assembler) table(key helperKey, operands uint32) {
	if key.op == wasm.OpTableGrow {
		// What fails at once costs no more than an attempt.
		a.op(wasm.OpLocalGet, operands-1)
		a.i32(int32(a.w.limits.TableElements))
		a.op(wasm.OpI32LeU)
		a.open(wasm.OpIf)
		a.chargeOperand(operands-1, 0)
		a.op(wasm.OpElse)
		a.op(wasm.OpGlobalGet, a.w.fuel)
		a.i64(costCall)
		a.op(wasm.OpI64Sub)
		a.op(wasm.OpGlobalSet, a.w.fuel)
		a.op(wasm.OpEnd)
	} else {
		a.chargeOperand(operands-1, 0)
	}
	a.tickIfUsedUp()
	for i := range operands {
		a.op(wasm.OpLocalGet, i)
	}
	switch key.op {
	case wasm.OpTableCopy, wasm.OpTableInit:
		a.op(key.op, key.a, key.b)
	default:
		a.op(key.op, key.a)
	}
}

// Parameters of the memory helpers.
const (
	to uint32 = iota
	from
	size
)

// memory charges a memory instruction by its size. A long one runs in pieces
// with a tick after each, once it is known that the whole range is within
// bounds; one that is not runs whole, for it traps before it writes.
func (a *assembler) memory(key helperKey) {
	a.chargeOperand(size, bytesPerUnit)
	a.tickIfUsedUp()
	whole := func(n func()) {
		a.op(wasm.OpLocalGet, to)
		a.op(wasm.OpLocalGet, from)
		n()
		switch key.op {
		case wasm.OpMemoryFill:
			a.op(key.op, 0)
		case wasm.OpMemoryCopy:
			a.op(key.op, 0, 0)
		case wasm.OpMemoryInit:
			a.op(key.op, key.a, 0)
		}
	}
	rest := func() { a.op(wasm.OpLocalGet, size) }
	onePiece := func() { a.i32(piece) }

	a.op(wasm.OpLocalGet, size)
	a.i32(piece)
	a.op(wasm.OpI32GtU)
	a.open(wasm.OpIf)
	{
		a.endWithin(to, func() {
			a.op(wasm.OpMemorySize, 0)
			a.op(wasm.OpI64ExtendU)
			a.i64(16)
			a.op(wasm.OpI64Shl)
		})
		switch key.op {
		case wasm.OpMemoryCopy:
			a.endWithin(from, func() {
				a.op(wasm.OpMemorySize, 0)
				a.op(wasm.OpI64ExtendU)
				a.i64(16)
				a.op(wasm.OpI64Shl)
			})
			a.op(opI32And)
		case wasm.OpMemoryInit:
			bytes := int64(len(a.w.m.Data[key.a].Bytes))
			a.endWithin(from, func() { a.i64(bytes) })
			a.op(opI32And)
		}
		a.open(wasm.OpIf)
		if key.op == wasm.OpMemoryCopy {
			// Downwards if the target is above the source, for they may overlap.
			a.op(wasm.OpLocalGet, to)
			a.op(wasm.OpLocalGet, from)
			a.op(wasm.OpI32GtU)
			a.open(wasm.OpIf)
			a.pieces(func() {
				a.op(wasm.OpLocalGet, size)
				a.i32(piece)
				a.op(wasm.OpI32Sub)
				a.op(wasm.OpLocalSet, size)
				for _, local := range []uint32{to, from} {
					a.op(wasm.OpLocalGet, local)
					a.op(wasm.OpLocalGet, size)
					a.op(wasm.OpI32Add)
				}
				a.i32(piece)
				a.op(wasm.OpMemoryCopy, 0, 0)
			})
			a.op(wasm.OpElse)
		}
		a.pieces(func() {
			whole(onePiece)
			moved := []uint32{to, from}
			if key.op == wasm.OpMemoryFill {
				moved = moved[:1] // from is the value
			}
			for _, local := range moved {
				a.op(wasm.OpLocalGet, local)
				a.i32(piece)
				a.op(wasm.OpI32Add)
				a.op(wasm.OpLocalSet, local)
			}
			a.op(wasm.OpLocalGet, size)
			a.i32(piece)
			a.op(wasm.OpI32Sub)
			a.op(wasm.OpLocalSet, size)
		})
		if key.op == wasm.OpMemoryCopy {
			a.op(wasm.OpEnd)
		}
		a.op(wasm.OpEnd)
	}
	a.op(wasm.OpEnd)
	whole(rest)
}

const opI32And wasm.Opcode = 0x71

// endWithin pushes whether the range of size bytes from a local on ends within
// a limit, which is an i64.
func (a *assembler) endWithin(local uint32, limit func()) {
	a.op(wasm.OpLocalGet, local)
	a.op(wasm.OpI64ExtendU)
	a.op(wasm.OpLocalGet, size)
	a.op(wasm.OpI64ExtendU)
	a.op(wasm.OpI64Add)
	limit()
	a.op(opI64LeU)
}

const opI64LeU wasm.Opcode = 0x58

// pieces repeats one, with a tick after each, while more than a piece is left.
func (a *assembler) pieces(one func()) {
	a.open(wasm.OpLoop)
	one()
	a.tick()
	a.op(wasm.OpLocalGet, size)
	a.i32(piece)
	a.op(wasm.OpI32GtU)
	a.op(wasm.OpBrIf, 0)
	a.op(wasm.OpEnd)
}
