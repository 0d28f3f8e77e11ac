package wasm

import (
	"bytes"
	"fmt"
	"math"
)

var preamble = []byte{0, 'a', 's', 'm', 1, 0, 0, 0}

// Decode reads a module. Errors match ErrMalformed. Validate tells whether what
// was read makes sense.
func Decode(data []byte) (*Module, error) {
	if err := checkPreamble(data); err != nil {
		return nil, err
	}
	m := &Module{}
	r := reader{data: data, at: len(preamble)}
	last := 0
	for r.at < len(data) {
		s, err := r.nextSection(m)
		if err != nil {
			return nil, err
		}
		if s.ID == SectionCustom {
			continue
		}
		content := reader{data: data[:r.at], at: r.at - len(s.Data), where: s.ID.String()}
		if order[s.ID] <= last {
			return nil, content.broken("the section is out of order or there twice")
		}
		last = order[s.ID]
		if err := m.read(s.ID, &content); err != nil {
			return nil, err
		}
		if content.left() != 0 {
			return nil, content.broken("bytes after the last entry")
		}
	}
	return m, m.agree(len(data))
}

// Sections reads where the sections of a module are, and the names of custom ones,
// but nothing else that they hold: for what has to be known before a module is worth
// decoding. Of the Module only Sections is set. Errors match ErrMalformed.
func Sections(data []byte) (*Module, error) {
	if err := checkPreamble(data); err != nil {
		return nil, err
	}
	m := &Module{}
	r := reader{data: data, at: len(preamble)}
	for r.at < len(data) {
		if _, err := r.nextSection(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (r *reader) nextSection(m *Module) (Section, error) {
	s, err := r.section()
	if err != nil {
		return s, err
	}
	if m.Sections = append(m.Sections, s); len(m.Sections) > maxSections {
		return s, &Error{Offset: r.at, Rule: fmt.Sprintf("more than %d sections", maxSections)}
	}
	return s, nil
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

// agree holds the sections whose entries belong together against each other.
func (m *Module) agree(end int) error {
	if len(m.Functions) != len(m.Bodies) {
		return &Error{Section: "code", Offset: end, Rule: fmt.Sprintf("%d bodies for %d functions", len(m.Bodies), len(m.Functions))}
	}
	if m.DataCount != nil && uint64(*m.DataCount) != uint64(len(m.Data)) {
		return &Error{Section: "data count", Offset: end, Rule: "the number of data segments is another"}
	}
	return nil
}

// Bounds on what a module lists, far above what toolchains write: Go's linker
// makes tens of thousands of data segments. They hold before an entry is kept.
const (
	maxTypes    = 200_000
	maxEntries  = 200_000 // imports, functions, tables, globals, exports, element segments
	maxSegments = 1_000_000
	maxElements = 1 << 18 // of all element segments together
	maxSections = 1_000
)

func (m *Module) read(id SectionID, r *reader) (err error) {
	r.most = maxEntries
	switch id {
	case SectionType:
		r.most = maxTypes
		m.Types, err = vector(r, (*reader).functionType)
	case SectionImport:
		m.Imports, err = vector(r, (*reader).importEntry)
	case SectionFunction:
		m.Functions, err = vector(r, (*reader).u32)
	case SectionTable:
		m.Tables, err = vector(r, (*reader).table)
	case SectionMemory:
		m.Memories, err = vector(r, (*reader).memory)
	case SectionGlobal:
		m.Globals, err = vector(r, (*reader).global)
	case SectionExport:
		m.Exports, err = vector(r, (*reader).exportEntry)
	case SectionStart:
		m.Start, err = r.index()
	case SectionElement:
		m.Elements, err = vector(r, (*reader).element)
	case SectionDataCount:
		m.DataCount, err = r.index()
	case SectionCode:
		m.Bodies, err = vector(r, (*reader).body)
	case SectionData:
		r.most = maxSegments
		m.Data, err = vector(r, (*reader).segment)
	}
	return err
}

func (r *reader) section() (Section, error) {
	start := r.at
	id, err := r.byte()
	if err != nil {
		return Section{}, err
	}
	if int(id) >= len(sectionNames) {
		return Section{}, r.broken(fmt.Sprintf("section id %d is not in the specification", id))
	}
	s := Section{ID: SectionID(id)}
	r.where = s.ID.String()
	defer func() { r.where = "" }()
	n, err := r.u32()
	if err != nil {
		return s, err
	}
	if s.Data, err = r.bytes(n); err != nil {
		return s, err
	}
	s.whole = r.data[start:r.at]
	if s.ID == SectionCustom {
		content := reader{data: r.data[:r.at], at: r.at - len(s.Data), where: r.where}
		if s.Name, err = content.name(); err != nil {
			return s, err
		}
		s.Data = content.data[content.at:]
	}
	return s, nil
}

func (r *reader) index() (*uint32, error) {
	v, err := r.u32()
	return &v, err
}

func (r *reader) functionType() (FunctionType, error) {
	form, err := r.byte()
	if err == nil && form != 0x60 {
		err = r.broken(fmt.Sprintf("type form 0x%02x is not that of a function", form))
	}
	var t FunctionType
	if err == nil {
		t.Params, err = vector(r, (*reader).valueType)
	}
	if err == nil {
		t.Results, err = vector(r, (*reader).valueType)
	}
	return t, err
}

func (r *reader) importEntry() (i Import, err error) {
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
		i.Function, err = r.u32()
	case KindTable:
		i.Table, err = r.table()
	case KindMemory:
		i.Memory, err = r.memory()
	case KindGlobal:
		i.Global, err = r.globalType()
	default:
		err = r.broken(fmt.Sprintf("import kind %d is not one that hands can use", kind))
	}
	return i, err
}

func (r *reader) exportEntry() (e Export, err error) {
	if e.Name, err = r.name(); err != nil {
		return e, err
	}
	kind, err := r.byte()
	if err != nil {
		return e, err
	}
	if e.Kind = Kind(kind); e.Kind > KindGlobal {
		return e, r.broken(fmt.Sprintf("export kind %d is not one that hands can use", kind))
	}
	e.Index, err = r.u32()
	return e, err
}

// limits reads a flag, a minimum and perhaps a maximum.
func (r *reader) limits() (low uint32, high *uint32, err error) {
	flag, err := r.byte()
	if err != nil {
		return 0, nil, err
	}
	if flag > 1 {
		return 0, nil, r.broken("shared or 64-bit limits")
	}
	if low, err = r.u32(); err != nil || flag == 0 {
		return low, nil, err
	}
	high, err = r.index()
	return low, high, err
}

func (r *reader) memory() (Memory, error) {
	low, high, err := r.limits()
	m := Memory{Min: uint64(low)}
	if high != nil {
		most := uint64(*high)
		m.Max = &most
	}
	return m, err
}

func (r *reader) table() (t Table, err error) {
	if t.Element, err = r.referenceType(); err != nil {
		return t, err
	}
	t.Min, t.Max, err = r.limits()
	return t, err
}

func (r *reader) globalType() (g GlobalType, err error) {
	if g.Type, err = r.valueType(); err != nil {
		return g, err
	}
	mutable, err := r.byte()
	if err == nil && mutable > 1 {
		err = r.broken("mutability is 0 or 1")
	}
	g.Mutable = mutable == 1
	return g, err
}

func (r *reader) global() (g Global, err error) {
	if g.GlobalType, err = r.globalType(); err != nil {
		return g, err
	}
	g.Init, err = r.constant()
	return g, err
}

// constant reads a constant expression: no instruction that may stand in one
// nests, so that it ends with the first "end".
func (r *reader) constant() (Expression, error) {
	e := Expression{Offset: r.at}
	scanner := Scanner{r: *r}
	for {
		i, err := scanner.Next()
		if err != nil {
			return e, err
		}
		if i.Op == OpEnd {
			break
		}
	}
	r.at = scanner.r.at
	e.Code = r.data[e.Offset:r.at:r.at]
	return e, nil
}

// element reads a segment; the flag says which of eight forms it has.
func (r *reader) element() (s ElementSegment, err error) {
	flag, err := r.u32()
	if err != nil {
		return s, err
	}
	if flag > 7 {
		return s, r.broken("an element segment of an unknown form")
	}
	s.Type = FuncRef
	expressions := flag&4 != 0
	defer func(most int) { r.most = most }(r.most)
	r.most = maxElements - r.elements
	switch {
	case flag&1 == 0:
		if flag&2 != 0 {
			if s.Table, err = r.u32(); err != nil {
				return s, err
			}
		}
		if s.Place, err = r.constant(); err != nil {
			return s, err
		}
	case flag&2 != 0:
		s.Mode = Declarative
	default:
		s.Mode = Passive
	}
	if flag&3 != 0 {
		if expressions {
			s.Type, err = r.referenceType()
		} else if kind, e := r.byte(); e != nil || kind != 0 {
			err = r.broken("an element kind other than function")
		}
		if err != nil {
			return s, err
		}
	}
	if expressions {
		s.Items = []Expression{}
		items, err := vector(r, (*reader).constant)
		s.Items = append(s.Items, items...)
		r.elements += len(items)
		return s, err
	}
	s.Functions, err = vector(r, (*reader).u32)
	r.elements += len(s.Functions)
	return s, err
}

func (r *reader) segment() (s DataSegment, err error) {
	flag, err := r.u32()
	if err != nil {
		return s, err
	}
	switch flag {
	case 0:
		s.Place, err = r.constant()
	case 1:
		s.Mode = Passive
	case 2:
		if s.Memory, err = r.u32(); err == nil {
			s.Place, err = r.constant()
		}
	default:
		err = r.broken("a data segment of an unknown form")
	}
	if err != nil {
		return s, err
	}
	n, err := r.u32()
	if err != nil {
		return s, err
	}
	s.Bytes, err = r.bytes(n)
	return s, err
}

func (r *reader) body() (b Body, err error) {
	n, err := r.u32()
	if err != nil {
		return b, err
	}
	start := r.at
	if _, err := r.bytes(n); err != nil {
		return b, err
	}
	content := reader{data: r.data[:r.at:r.at], at: start, where: r.where}
	b.Size = int(n)
	if b.Locals, err = vector(&content, (*reader).localRun); err != nil {
		return b, err
	}
	sum := uint64(0)
	for _, run := range b.Locals {
		sum += uint64(run.Count)
	}
	if sum > math.MaxUint32 {
		return b, content.broken("more locals than 32 bits can count")
	}
	if sum > MaxLocals {
		return b, content.broken(fmt.Sprintf("%d locals: at most %d are allowed in a function", sum, MaxLocals))
	}
	b.LocalCount = int(sum)
	b.Expression = Expression{Code: content.data[content.at:], Offset: content.at}
	return b, nil
}

func (r *reader) localRun() (l LocalRun, err error) {
	if l.Count, err = r.u32(); err == nil {
		l.Type, err = r.valueType()
	}
	return l, err
}

// ConstantI32 returns the value of a constant expression that is one i32.const.
func (e Expression) ConstantI32() (int32, bool) {
	if len(e.Code) < 3 || Opcode(e.Code[0]) != OpI32Const {
		return 0, false
	}
	r := reader{data: e.Code, at: 1}
	v, err := r.signed(32)
	return int32(v), err == nil && r.left() == 1
}
