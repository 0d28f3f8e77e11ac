// Package wasm reads the outline of a WebAssembly module: its sections,
// imports, exports and memory. It is the first to look at the bytes of a hand,
// before any engine does, and believes nothing in them: every length and every
// count is held against the bytes that are left before anything is allocated.
//
// The format is that of the WebAssembly core specification, release 2.0,
// chapter "Binary Format".
package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrMalformed is matched by every error of this package.
var ErrMalformed = errors.New("malformed WebAssembly module")

// Error says where a module breaks which rule. Its text holds nothing that the
// module's author chose.
type Error struct {
	// Section is the section's name in the specification, "" for the
	// preamble.
	Section string
	// Offset counts bytes from the start of the module.
	Offset int
	Rule   string
}

func (e *Error) Error() string {
	where := fmt.Sprintf("at byte %d", e.Offset)
	if e.Section != "" {
		where = e.Section + " section " + where
	}
	return where + ": " + e.Rule
}

// Is reports whether target is ErrMalformed.
func (e *Error) Is(target error) bool { return target == ErrMalformed }

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

// Import is one import. Module and Name are the author's words.
type Import struct {
	Module, Name string
	Kind         Kind
}

// Export is one export. Name is the author's word.
type Export struct {
	Name string
	Kind Kind
}

// Section is one section. Its Data aliases the module.
type Section struct {
	ID byte
	// Name is the name of a custom section.
	Name string
	// Data is the content; without the name in a custom section.
	Data []byte
	// start and end bound the whole section, id and size included.
	start, end int
}

// Module is the outline of one module. It aliases the bytes it was read from.
type Module struct {
	Sections []Section
	Imports  []Import
	Exports  []Export
	// Memory tells of the memory that the module defines; nil if none.
	Memory *Memory
	// Functions is the number of functions that the module defines.
	Functions int

	data []byte
}

// Memory is the size of a linear memory in pages of 64 KiB.
type Memory struct {
	Min uint64
	// Max is nil if the module declares none.
	Max *uint64
}

// PageBytes is the size of a page of linear memory.
const PageBytes = 64 << 10

const (
	sectionCustom   = 0
	sectionImport   = 2
	sectionFunction = 3
	sectionMemory   = 5
	sectionExport   = 7
	sectionLast     = 12
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory",
	"global", "export", "start", "element", "code", "data", "data count"}

var preamble = []byte{0, 'a', 's', 'm', 1, 0, 0, 0}

// Parse reads the outline of a module. Errors are of type *Error.
func Parse(data []byte) (*Module, error) {
	if err := checkPreamble(data); err != nil {
		return nil, err
	}
	m := &Module{data: data}
	r := reader{data: data, at: len(preamble)}
	for r.at < len(data) {
		s, err := r.section()
		if err != nil {
			return nil, err
		}
		m.Sections = append(m.Sections, s)
		content := reader{data: data[:s.end], at: s.end - len(s.Data), where: sectionNames[s.ID]}
		if err := m.read(s, &content); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func checkPreamble(data []byte) error {
	switch {
	case len(data) == 0:
		return &Error{Rule: "the file is empty"}
	case len(data) < len(preamble) && bytes.HasPrefix(preamble, data):
		return &Error{Rule: "the file ends inside the preamble: it is truncated"}
	case !bytes.HasPrefix(data, preamble[:4]):
		return &Error{Rule: `not a WebAssembly module: it does not begin with "\0asm"`}
	case len(data) >= 8 && data[6] == 1:
		return &Error{Offset: 4, Rule: "a WebAssembly component, not a core module: build a core module"}
	case !bytes.HasPrefix(data, preamble):
		return &Error{Offset: 4, Rule: "a version of the binary format other than 1"}
	}
	return nil
}

func (m *Module) read(s Section, r *reader) (err error) {
	switch s.ID {
	case sectionImport:
		m.Imports, err = vector(r, (*reader).importEntry)
	case sectionExport:
		m.Exports, err = vector(r, (*reader).exportEntry)
	case sectionFunction:
		var n uint32
		n, err = r.u32()
		m.Functions = int(n)
		if err == nil && m.Functions > len(s.Data) {
			err = r.broken("more functions than the section has bytes")
		}
	case sectionMemory:
		var memories []Memory
		memories, err = vector(r, (*reader).memory)
		if err == nil && len(memories) > 1 {
			err = r.broken("more than one memory")
		}
		if err == nil && len(memories) == 1 {
			m.Memory = &memories[0]
		}
	}
	return err
}

// Custom returns the data of the first custom section called name.
func (m *Module) Custom(name string) ([]byte, bool) {
	for _, s := range m.Sections {
		if s.ID == sectionCustom && s.Name == name {
			return s.Data, true
		}
	}
	return nil, false
}

// Bare returns a copy of the module without custom sections: they mean nothing
// to the engine, and an engine that reads them can be attacked through them.
func (m *Module) Bare() []byte {
	return m.without(func(s Section) bool { return s.ID == sectionCustom })
}

// WithCustom returns a copy of the module in which the one custom section
// called name holds data. It stands at the end.
func (m *Module) WithCustom(name string, data []byte) []byte {
	out := m.without(func(s Section) bool { return s.ID == sectionCustom && s.Name == name })
	content := appendU32(nil, uint32(len(name)))
	content = append(append(content, name...), data...)
	out = appendU32(append(out, sectionCustom), uint32(len(content)))
	return append(out, content...)
}

func (m *Module) without(drop func(Section) bool) []byte {
	out := append(make([]byte, 0, len(m.data)), m.data[:len(preamble)]...)
	for _, s := range m.Sections {
		if !drop(s) {
			out = append(out, m.data[s.start:s.end]...)
		}
	}
	return out
}

// reader walks over data. Its offset is always within it.
type reader struct {
	data  []byte
	at    int
	where string
}

func (r *reader) broken(rule string) error {
	return &Error{Section: r.where, Offset: r.at, Rule: rule}
}

func (r *reader) left() int { return len(r.data) - r.at }

func (r *reader) byte() (byte, error) {
	if r.left() == 0 {
		return 0, r.broken("unexpected end")
	}
	b := r.data[r.at]
	r.at++
	return b, nil
}

// u32 reads an unsigned LEB128 of at most 32 bits.
func (r *reader) u32() (uint32, error) {
	v, err := r.leb(32)
	return uint32(v), err
}

func (r *reader) leb(bits uint) (uint64, error) {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b, err := r.byte()
		if err != nil {
			return 0, err
		}
		if shift+7 > bits && b>>(bits-shift) != 0 {
			return 0, r.broken("integer too large or too long")
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
}

func (r *reader) bytes(n uint32) ([]byte, error) {
	if uint64(n) > uint64(r.left()) {
		return nil, r.broken(fmt.Sprintf("a length of %d where %d bytes are left: the file is truncated or damaged", n, r.left()))
	}
	b := r.data[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b, nil
}

func (r *reader) name() (string, error) {
	n, err := r.u32()
	if err != nil {
		return "", err
	}
	b, err := r.bytes(n)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", r.broken("a name that is not UTF-8")
	}
	return string(b), nil
}

func (r *reader) section() (Section, error) {
	s := Section{start: r.at}
	id, err := r.byte()
	if err != nil {
		return s, err
	}
	if id > sectionLast {
		return s, r.broken(fmt.Sprintf("section id %d is not in the specification", id))
	}
	s.ID = id
	r.where = sectionNames[id]
	defer func() { r.where = "" }()
	n, err := r.u32()
	if err != nil {
		return s, err
	}
	if s.Data, err = r.bytes(n); err != nil {
		return s, err
	}
	s.end = r.at
	if id == sectionCustom {
		content := reader{data: r.data[:s.end], at: s.end - len(s.Data), where: r.where}
		if s.Name, err = content.name(); err != nil {
			return s, err
		}
		s.Data = content.data[content.at:]
	}
	return s, nil
}

// vector reads a count and that many entries. No entry is shorter than one
// byte, so a count above the bytes left is refused before it costs anything.
func vector[T any](r *reader, entry func(*reader) (T, error)) ([]T, error) {
	n, err := r.u32()
	if err != nil {
		return nil, err
	}
	if uint64(n) > uint64(r.left()) {
		return nil, r.broken(fmt.Sprintf("a count of %d where %d bytes are left", n, r.left()))
	}
	var all []T
	for range n {
		e, err := entry(r)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if r.left() != 0 {
		return nil, r.broken("bytes after the last entry")
	}
	return all, nil
}

func (r *reader) importEntry() (Import, error) {
	var i Import
	var err error
	if i.Module, err = r.name(); err != nil {
		return i, err
	}
	if i.Name, err = r.name(); err != nil {
		return i, err
	}
	kind, err := r.byte()
	if err != nil {
		return i, err
	}
	i.Kind = Kind(kind)
	switch i.Kind {
	case KindFunction:
		_, err = r.u32()
	case KindTable:
		if _, err = r.byte(); err == nil {
			_, err = r.memory()
		}
	case KindMemory:
		_, err = r.memory()
	case KindGlobal:
		if _, err = r.byte(); err == nil {
			_, err = r.byte()
		}
	default:
		err = r.broken(fmt.Sprintf("import kind %d is not in the specification", kind))
	}
	return i, err
}

func (r *reader) exportEntry() (Export, error) {
	var e Export
	var err error
	if e.Name, err = r.name(); err != nil {
		return e, err
	}
	kind, err := r.byte()
	if err != nil {
		return e, err
	}
	if e.Kind = Kind(kind); e.Kind > KindGlobal {
		return e, r.broken(fmt.Sprintf("export kind %d is not in the specification", kind))
	}
	_, err = r.u32()
	return e, err
}

// memory reads limits: a flag, a minimum and perhaps a maximum.
func (r *reader) memory() (Memory, error) {
	flag, err := r.byte()
	if err != nil {
		return Memory{}, err
	}
	if flag > 1 {
		return Memory{}, r.broken("shared or 64-bit limits")
	}
	low, err := r.u32()
	if err != nil {
		return Memory{}, err
	}
	m := Memory{Min: uint64(low)}
	if flag == 1 {
		high, err := r.u32()
		if err != nil {
			return Memory{}, err
		}
		most := uint64(high)
		m.Max = &most
	}
	return m, nil
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}
