// Package wasm decodes, validates and encodes WebAssembly modules. It is the
// first to look at the bytes of a hand, before any engine does, and believes
// nothing in them: every length and every count is held against the bytes that
// are left before anything is allocated.
//
// The format is that of the WebAssembly core specification, release 2.0
// (chapters "Binary Format" and "Validation"), without imported strings of
// proposals: no threads, tail calls, exceptions, garbage collection, several
// memories or 64-bit memories.
package wasm

import (
	"errors"
	"fmt"
)

// Errors of this package are of type *Error and match one of these.
var (
	// ErrMalformed says that the bytes are not a module.
	ErrMalformed = errors.New("malformed WebAssembly module")
	// ErrInvalid says that the bytes are a module, which breaks a rule of
	// validation.
	ErrInvalid = errors.New("invalid WebAssembly module")
)

// Error says where a module breaks which rule. Its text holds nothing that the
// module's author chose.
type Error struct {
	// Section is the section's name in the specification, "" for the
	// preamble.
	Section string
	// Offset counts bytes from the start of the module.
	Offset int
	Rule   string

	invalid bool
}

func (e *Error) Error() string {
	where := fmt.Sprintf("at byte %d", e.Offset)
	if e.Section != "" {
		where = e.Section + " section " + where
	}
	return where + ": " + e.Rule
}

// Is reports whether target is the sentinel that e matches.
func (e *Error) Is(target error) bool {
	return target == ErrInvalid && e.invalid || target == ErrMalformed && !e.invalid
}

// Kind is what an import or export is.
type Kind byte

// The kinds.
const (
	KindFunction Kind = 0
	KindTable    Kind = 1
	KindMemory   Kind = 2
	KindGlobal   Kind = 3
)

func (k Kind) String() string {
	switch k {
	case KindFunction:
		return "function"
	case KindTable:
		return "table"
	case KindMemory:
		return "memory"
	case KindGlobal:
		return "global"
	}
	return "unknown"
}

// ValueType is the type of a value, in the encoding of the binary format.
type ValueType byte

// The value types.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

// IsReference reports whether values of the type are references.
func (t ValueType) IsReference() bool { return t == FuncRef || t == ExternRef }

func (t ValueType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return "unknown"
}

// FunctionType is the type of a function.
type FunctionType struct {
	Params, Results []ValueType
}

// Import is one import. Module and Name are the author's words; of the other
// fields the one of Kind has a meaning.
type Import struct {
	Module, Name string
	Kind         Kind
	Function     uint32 // index of its type
	Table        Table
	Memory       Memory
	Global       GlobalType
}

// Export is one export. Name is the author's word.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32
}

// Table is a table and its size in elements.
type Table struct {
	Element ValueType
	Min     uint32
	// Max is nil if the module declares none.
	Max *uint32
}

// Memory is the size of a linear memory in pages of 64 KiB.
type Memory struct {
	Min uint64
	// Max is nil if the module declares none.
	Max *uint64
}

// PageBytes is the size of a page of linear memory.
const PageBytes = 64 << 10

// MaxPages is the size of the largest memory that 32 bits can address.
const MaxPages = 1 << 16

// GlobalType is the type of a global.
type GlobalType struct {
	Type    ValueType
	Mutable bool
}

// Global is a global that the module defines.
type Global struct {
	GlobalType
	Init Expression
}

// Expression is a sequence of instructions, its last "end" included.
type Expression struct {
	// Code aliases the module; Offset is where in it.
	Code   []byte
	Offset int
}

// SegmentMode is what happens to a segment when the module is instantiated.
type SegmentMode byte

// The modes.
const (
	Active SegmentMode = iota
	Passive
	Declarative
)

// ElementSegment is one element segment. Its elements are function indices or,
// if Items is not nil, expressions.
type ElementSegment struct {
	Mode      SegmentMode
	Type      ValueType
	Table     uint32
	Place     Expression // for Active
	Functions []uint32
	Items     []Expression
}

// DataSegment is one data segment. Bytes alias the module.
type DataSegment struct {
	Mode   SegmentMode
	Memory uint32
	Place  Expression // for Active
	Bytes  []byte
}

// LocalRun is a run of locals of one type.
type LocalRun struct {
	Count uint32
	Type  ValueType
}

// Body is the body of a function.
type Body struct {
	Locals []LocalRun
	// LocalCount is the sum of Locals, at most MaxLocals.
	LocalCount int
	Expression
	// Size is that of the whole entry in bytes, locals included.
	Size int
}

// MaxLocals bounds the locals of one function, as engines do.
const MaxLocals = 50_000

// Section is one section. Its Data aliases the module.
type Section struct {
	ID SectionID
	// Name is the name of a custom section.
	Name string
	// Data is the content; without the name in a custom section.
	Data []byte
	// whole is the section with its id and size.
	whole []byte
}

// SectionID names a kind of section.
type SectionID byte

// The sections, by their ids.
const (
	SectionCustom SectionID = iota
	SectionType
	SectionImport
	SectionFunction
	SectionTable
	SectionMemory
	SectionGlobal
	SectionExport
	SectionStart
	SectionElement
	SectionCode
	SectionData
	SectionDataCount
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory",
	"global", "export", "start", "element", "code", "data", "data count"}

func (s SectionID) String() string { return sectionNames[s] }

// order is where a section may stand; custom sections may stand anywhere.
var order = [...]int{SectionType: 1, SectionImport: 2, SectionFunction: 3, SectionTable: 4, SectionMemory: 5, SectionGlobal: 6,
	SectionExport: 7, SectionStart: 8, SectionElement: 9, SectionDataCount: 10, SectionCode: 11, SectionData: 12}

// Module is a decoded module. It aliases the bytes that it was decoded from.
// What it lists, the module defines; imports precede that in each index space.
type Module struct {
	Sections  []Section
	Types     []FunctionType
	Imports   []Import
	Functions []uint32 // indices of their types
	Tables    []Table
	Memories  []Memory
	Globals   []Global
	Exports   []Export
	Start     *uint32
	Elements  []ElementSegment
	DataCount *uint32
	Bodies    []Body
	Data      []DataSegment
}

// Imported counts the imports of a kind.
func (m *Module) Imported(k Kind) int {
	n := 0
	for _, i := range m.Imports {
		if i.Kind == k {
			n++
		}
	}
	return n
}

// Custom returns the data of the first custom section called name.
func (m *Module) Custom(name string) ([]byte, bool) {
	for _, s := range m.Sections {
		if s.ID == SectionCustom && s.Name == name {
			return s.Data, true
		}
	}
	return nil, false
}

// FunctionType returns the type of the function with an index that is in range,
// in a valid module.
func (m *Module) FunctionType(function uint32) FunctionType {
	for _, i := range m.Imports {
		if i.Kind != KindFunction {
			continue
		}
		if function == 0 {
			return m.Types[i.Function]
		}
		function--
	}
	return m.Types[m.Functions[function]]
}
