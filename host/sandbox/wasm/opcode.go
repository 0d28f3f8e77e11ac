package wasm

import "fmt"

// Opcode is an instruction's code: its byte, or for those after a prefix byte
// 0xFC or 0xFD the prefix in the upper byte and the number in the lower one.
type Opcode uint16

// The opcodes that this project's code names.
const (
	OpUnreachable  Opcode = 0x00
	OpNop          Opcode = 0x01
	OpBlock        Opcode = 0x02
	OpLoop         Opcode = 0x03
	OpIf           Opcode = 0x04
	OpElse         Opcode = 0x05
	OpEnd          Opcode = 0x0b
	OpBr           Opcode = 0x0c
	OpBrIf         Opcode = 0x0d
	OpBrTable      Opcode = 0x0e
	OpReturn       Opcode = 0x0f
	OpCall         Opcode = 0x10
	OpCallIndirect Opcode = 0x11
	OpDrop         Opcode = 0x1a
	OpSelect       Opcode = 0x1b
	OpSelectTyped  Opcode = 0x1c
	OpLocalGet     Opcode = 0x20
	OpLocalSet     Opcode = 0x21
	OpLocalTee     Opcode = 0x22
	OpGlobalGet    Opcode = 0x23
	OpGlobalSet    Opcode = 0x24
	OpTableGet     Opcode = 0x25
	OpTableSet     Opcode = 0x26
	OpMemorySize   Opcode = 0x3f
	OpMemoryGrow   Opcode = 0x40
	OpI32Const     Opcode = 0x41
	OpI64Const     Opcode = 0x42
	OpF32Const     Opcode = 0x43
	OpF64Const     Opcode = 0x44
	OpI32Eqz       Opcode = 0x45
	OpI32LtS       Opcode = 0x48
	OpI32GtU       Opcode = 0x4b
	OpI32LeU       Opcode = 0x4d
	OpI64LtS       Opcode = 0x53
	OpI64GtU       Opcode = 0x56
	OpI32Add       Opcode = 0x6a
	OpI32Sub       Opcode = 0x6b
	OpI64Add       Opcode = 0x7c
	OpI64Sub       Opcode = 0x7d
	OpI64Or        Opcode = 0x84
	OpI64Shl       Opcode = 0x86
	OpI64ShrU      Opcode = 0x88
	OpI64ExtendU   Opcode = 0xad
	OpRefNull      Opcode = 0xd0
	OpRefIsNull    Opcode = 0xd1
	OpRefFunc      Opcode = 0xd2
	OpMemoryInit   Opcode = 0xfc08
	OpDataDrop     Opcode = 0xfc09
	OpMemoryCopy   Opcode = 0xfc0a
	OpMemoryFill   Opcode = 0xfc0b
	OpTableInit    Opcode = 0xfc0c
	OpElemDrop     Opcode = 0xfc0d
	OpTableCopy    Opcode = 0xfc0e
	OpTableGrow    Opcode = 0xfc0f
	OpTableSize    Opcode = 0xfc10
	OpTableFill    Opcode = 0xfc11
	OpV128Const    Opcode = 0xfd0c
	OpShuffle      Opcode = 0xfd0d
)

// immediates says what follows an opcode.
type immediates byte

const (
	immNone    immediates = iota
	immBlock              // a block type
	immIndex              // one index
	immTwo                // two indices
	immZero               // a byte that must be zero
	immIndex0             // an index, then a byte that must be zero
	immZero2              // two bytes that must be zero
	immTargets            // the labels of br_table
	immTypes              // a vector of value types
	immRef                // a reference type
	immI32
	immI64
	imm4Bytes
	imm8Bytes
	imm16Bytes
	immMemory     // alignment and offset
	immLane       // a lane
	immMemoryLane // both
	immLanes      // 16 lanes
)

// instruction is what the specification says of an opcode. Those without a
// signature have rules of their own.
type instruction struct {
	known      bool
	immediates immediates
	signature  bool
	params     string // value types as in letters
	result     byte   // a letter, or 0
	// bound is the number of lanes, or the largest alignment as a power of
	// two.
	lanes, align byte
	usesMemory   bool
}

// letters of value types: i, l, f, d, v for i32, i64, f32, f64, v128.
func typeOf(letter byte) ValueType {
	switch letter {
	case 'i':
		return I32
	case 'l':
		return I64
	case 'f':
		return F32
	case 'd':
		return F64
	}
	return V128
}

var (
	plain   [256]instruction
	bulk    [18]instruction
	vectors [256]instruction
)

func (op Opcode) instruction() *instruction {
	switch op >> 8 {
	case 0:
		return &plain[op]
	case 0xfc:
		if n := op & 0xff; int(n) < len(bulk) {
			return &bulk[n]
		}
	case 0xfd:
		return &vectors[op&0xff]
	}
	return &instruction{}
}

// SIMD reports whether op belongs to the vector instructions.
func (op Opcode) SIMD() bool { return op>>8 == 0xfd }

func init() {
	own := func(table []instruction, imm immediates, codes ...byte) {
		for _, c := range codes {
			table[c] = instruction{known: true, immediates: imm}
		}
	}
	own(plain[:], immNone, 0x00, 0x01, 0x05, 0x0b, 0x0f, 0x1a, 0x1b, 0xd1)
	own(plain[:], immBlock, 0x02, 0x03, 0x04)
	own(plain[:], immIndex, 0x0c, 0x0d, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0xd2)
	own(plain[:], immTargets, 0x0e)
	own(plain[:], immTwo, 0x11)
	own(plain[:], immTypes, 0x1c)
	own(plain[:], immZero, 0x3f, 0x40)
	own(plain[:], immI32, 0x41)
	own(plain[:], immI64, 0x42)
	own(plain[:], imm4Bytes, 0x43)
	own(plain[:], imm8Bytes, 0x44)
	own(plain[:], immRef, 0xd0)
	own(bulk[:], immIndex0, 8)
	own(bulk[:], immIndex, 9, 13, 15, 16, 17)
	own(bulk[:], immZero2, 10)
	own(bulk[:], immZero, 11)
	own(bulk[:], immTwo, 12, 14)

	simple := func(table []instruction, from, to int, signature string, imm immediates, lanes, align byte) {
		for c := from; c <= to; c++ {
			i := instruction{known: true, immediates: imm, signature: true, lanes: lanes, align: align}
			i.usesMemory = imm == immMemory || imm == immMemoryLane
			for n := range len(signature) {
				if signature[n] == ':' {
					i.params = signature[:n]
					if n+1 < len(signature) {
						i.result = signature[n+1]
					}
				}
			}
			table[c] = i
		}
	}
	for _, s := range []struct {
		from, to  int
		signature string
	}{
		{0x45, 0x45, "i:i"}, {0x46, 0x4f, "ii:i"}, {0x50, 0x50, "l:i"}, {0x51, 0x5a, "ll:i"}, {0x5b, 0x60, "ff:i"}, {0x61, 0x66, "dd:i"},
		{0x67, 0x69, "i:i"}, {0x6a, 0x78, "ii:i"}, {0x79, 0x7b, "l:l"}, {0x7c, 0x8a, "ll:l"}, {0x8b, 0x91, "f:f"}, {0x92, 0x98, "ff:f"},
		{0x99, 0x9f, "d:d"}, {0xa0, 0xa6, "dd:d"}, {0xa7, 0xa7, "l:i"}, {0xa8, 0xa9, "f:i"}, {0xaa, 0xab, "d:i"}, {0xac, 0xad, "i:l"},
		{0xae, 0xaf, "f:l"}, {0xb0, 0xb1, "d:l"}, {0xb2, 0xb3, "i:f"}, {0xb4, 0xb5, "l:f"}, {0xb6, 0xb6, "d:f"}, {0xb7, 0xb8, "i:d"},
		{0xb9, 0xba, "l:d"}, {0xbb, 0xbb, "f:d"}, {0xbc, 0xbc, "f:i"}, {0xbd, 0xbd, "d:l"}, {0xbe, 0xbe, "i:f"}, {0xbf, 0xbf, "l:d"},
		{0xc0, 0xc1, "i:i"}, {0xc2, 0xc4, "l:l"},
	} {
		simple(plain[:], s.from, s.to, s.signature, immNone, 0, 0)
	}
	for _, s := range []struct {
		code      int
		signature string
		align     byte
	}{
		{0x28, "i:i", 2}, {0x29, "i:l", 3}, {0x2a, "i:f", 2}, {0x2b, "i:d", 3}, {0x2c, "i:i", 0}, {0x2d, "i:i", 0}, {0x2e, "i:i", 1},
		{0x2f, "i:i", 1}, {0x30, "i:l", 0}, {0x31, "i:l", 0}, {0x32, "i:l", 1}, {0x33, "i:l", 1}, {0x34, "i:l", 2}, {0x35, "i:l", 2},
		{0x36, "ii:", 2}, {0x37, "il:", 3}, {0x38, "if:", 2}, {0x39, "id:", 3}, {0x3a, "ii:", 0}, {0x3b, "ii:", 1}, {0x3c, "il:", 0},
		{0x3d, "il:", 1}, {0x3e, "il:", 2},
	} {
		simple(plain[:], s.code, s.code, s.signature, immMemory, 0, s.align)
	}
	simple(bulk[:], 0, 1, "f:i", immNone, 0, 0)
	simple(bulk[:], 2, 3, "d:i", immNone, 0, 0)
	simple(bulk[:], 4, 5, "f:l", immNone, 0, 0)
	simple(bulk[:], 6, 7, "d:l", immNone, 0, 0)

	v := func(signature string, codes ...int) {
		for i := 0; i < len(codes); i += 2 {
			simple(vectors[:], codes[i], codes[i+1], signature, immNone, 0, 0)
		}
	}
	v("vv:v", 14, 14, 35, 76, 78, 81, 101, 102, 110, 115, 118, 121, 123, 123, 130, 130, 133, 134, 142, 147, 149, 153, 155, 159)
	v("v:v", 77, 77, 94, 98, 103, 106, 116, 117, 122, 122, 124, 129, 135, 138, 148, 148, 160, 161, 167, 170, 192, 193, 199, 202,
		224, 225, 227, 227, 236, 237, 239, 239, 248, 255)
	v("vvv:v", 82, 82)
	v("v:i", 83, 83, 99, 100, 131, 132, 163, 164, 195, 196)
	v("vi:v", 107, 109, 139, 141, 171, 173, 203, 205)
	v("vv:v", 174, 174, 177, 177, 181, 186, 188, 191, 206, 206, 209, 209, 213, 223, 228, 235, 240, 247)
	v("i:v", 15, 17)
	v("l:v", 18, 18)
	v("f:v", 19, 19)
	v("d:v", 20, 20)
	for _, s := range []struct {
		from, to  int
		signature string
		imm       immediates
		lanes     byte
		align     byte
	}{
		{0, 0, "i:v", immMemory, 0, 4}, {1, 6, "i:v", immMemory, 0, 3}, {7, 7, "i:v", immMemory, 0, 0}, {8, 8, "i:v", immMemory, 0, 1},
		{9, 9, "i:v", immMemory, 0, 2}, {10, 10, "i:v", immMemory, 0, 3}, {11, 11, "iv:", immMemory, 0, 4},
		{12, 12, ":v", imm16Bytes, 0, 0}, {13, 13, "vv:v", immLanes, 32, 0},
		{21, 22, "v:i", immLane, 16, 0}, {23, 23, "vi:v", immLane, 16, 0}, {24, 25, "v:i", immLane, 8, 0}, {26, 26, "vi:v", immLane, 8, 0},
		{27, 27, "v:i", immLane, 4, 0}, {28, 28, "vi:v", immLane, 4, 0}, {29, 29, "v:l", immLane, 2, 0}, {30, 30, "vl:v", immLane, 2, 0},
		{31, 31, "v:f", immLane, 4, 0}, {32, 32, "vf:v", immLane, 4, 0}, {33, 33, "v:d", immLane, 2, 0}, {34, 34, "vd:v", immLane, 2, 0},
		{84, 84, "iv:v", immMemoryLane, 16, 0}, {85, 85, "iv:v", immMemoryLane, 8, 1}, {86, 86, "iv:v", immMemoryLane, 4, 2},
		{87, 87, "iv:v", immMemoryLane, 2, 3}, {88, 88, "iv:", immMemoryLane, 16, 0}, {89, 89, "iv:", immMemoryLane, 8, 1},
		{90, 90, "iv:", immMemoryLane, 4, 2}, {91, 91, "iv:", immMemoryLane, 2, 3}, {92, 92, "i:v", immMemory, 0, 2}, {93, 93, "i:v", immMemory, 0, 3},
	} {
		simple(vectors[:], s.from, s.to, s.signature, s.imm, s.lanes, s.align)
	}
}

// Block types other than an index of a type.
const (
	blockEmpty = -64 // 0x40 as a signed LEB128
)

// Instruction is one instruction with its immediates; which of them have a
// meaning depends on Op.
type Instruction struct {
	Op Opcode
	// Start and End bound the instruction in its expression.
	Start, End int
	// Index is the first index, or a memory access's alignment as a power of
	// two; Index2 is the second.
	Index, Index2 uint32
	// Block is the type of a block: an index of a type, or a value type, or
	// nothing, as the signed number that it is encoded as.
	Block int64
	// Targets are the labels of br_table, the default last. They are valid
	// until the next instruction is read.
	Targets []uint32
	// Type is the type of ref.null, or the one type of a typed select.
	Type ValueType
	lane byte
}

// Scanner reads one instruction after the other.
type Scanner struct {
	r       reader
	current Instruction
}

// NewScanner reads the instructions of an expression of a module's code
// section.
func NewScanner(e Expression) *Scanner {
	return &Scanner{r: reader{data: e.Code, base: e.Offset, where: "code"}}
}

// More reports whether bytes follow.
func (s *Scanner) More() bool { return s.r.left() > 0 }

// Next reads one instruction. What it returns is valid until the next call.
func (s *Scanner) Next() (*Instruction, error) {
	i := &s.current
	i.Start = s.r.at
	i.Index, i.Index2 = 0, 0
	code, err := s.r.byte()
	if err != nil {
		return nil, err
	}
	i.Op = Opcode(code)
	if code == 0xfc || code == 0xfd {
		n, err := s.r.u32()
		if err != nil {
			return nil, err
		}
		if n > 0xff {
			return nil, s.r.broken(fmt.Sprintf("opcode 0x%02x %d is not one that hands can use", code, n))
		}
		i.Op = Opcode(code)<<8 | Opcode(n)
	}
	what := i.Op.instruction()
	if !what.known {
		s.r.at = i.Start
		return nil, s.r.broken(fmt.Sprintf("opcode 0x%02x is not one that hands can use", uint16(i.Op)))
	}
	if what.immediates != immNone {
		if err := s.immediates(i, what); err != nil {
			return nil, err
		}
	}
	i.End = s.r.at
	return i, nil
}

func (s *Scanner) immediates(i *Instruction, what *instruction) (err error) {
	r := &s.r
	switch what.immediates {
	case immIndex:
		i.Index, err = r.u32()
	case immMemory:
		if i.Index, err = r.u32(); err == nil {
			_, err = r.u32()
		}
	case immI32:
		_, err = r.signed(32)
	case immI64:
		_, err = r.signed(64)
	case imm4Bytes:
		_, err = r.bytes(4)
	case imm8Bytes:
		_, err = r.bytes(8)
	case imm16Bytes:
		_, err = r.bytes(16)
	case immBlock:
		i.Block, err = r.blockType()
	case immTwo:
		if i.Index, err = r.u32(); err == nil {
			i.Index2, err = r.u32()
		}
	case immZero:
		err = r.zero()
	case immZero2:
		if err = r.zero(); err == nil {
			err = r.zero()
		}
	case immIndex0:
		if i.Index, err = r.u32(); err == nil {
			err = r.zero()
		}
	case immTargets:
		n, err := r.count()
		if err != nil {
			return err
		}
		i.Targets = i.Targets[:0]
		for range n + 1 {
			target, err := r.u32()
			if err != nil {
				return err
			}
			i.Targets = append(i.Targets, target)
		}
	case immTypes:
		n, err := r.count()
		if err == nil && n != 1 {
			err = r.broken("a typed select has one type")
		}
		if err != nil {
			return err
		}
		i.Type, err = r.valueType()
		return err
	case immRef:
		i.Type, err = r.referenceType()
	case immLane:
		i.lane, err = r.byte()
	case immMemoryLane:
		if i.Index, err = r.u32(); err != nil {
			return err
		}
		if _, err = r.u32(); err == nil {
			i.lane, err = r.byte()
		}
	case immLanes:
		lanes, err := r.bytes(16)
		i.lane = 0
		for _, l := range lanes {
			i.lane = max(i.lane, l)
		}
		return err
	}
	return err
}

func (r *reader) zero() error {
	b, err := r.byte()
	if err == nil && b != 0 {
		err = r.broken("a byte that must be zero is not")
	}
	return err
}

func (r *reader) blockType() (int64, error) {
	v, err := r.signed(33)
	if err != nil || v >= 0 || v == blockEmpty {
		return v, err
	}
	switch ValueType(v & 0x7f) {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
		if v >= -64 {
			return v, nil
		}
	}
	return 0, r.broken("a block type that hands cannot use")
}
