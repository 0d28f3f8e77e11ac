package wasm

import "slices"

// Encode returns the module's bytes: those that it was decoded from, but for
// the sections that were replaced.
func (m *Module) Encode() []byte {
	size := len(preamble)
	for _, s := range m.Sections {
		size += len(s.Data) + len(s.Name) + 12
	}
	out := append(make([]byte, 0, size), preamble...)
	for _, s := range m.Sections {
		out = s.append(out)
	}
	return out
}

func (s Section) append(out []byte) []byte {
	if s.whole != nil {
		return append(out, s.whole...)
	}
	content := s.Data
	if s.ID == SectionCustom {
		content = append(AppendName(nil, s.Name), s.Data...)
	}
	return append(AppendU32(append(out, byte(s.ID)), uint32(len(content))), content...)
}

// Replace gives the section id new content, or adds it where it belongs. What
// was decoded of it stays as it was.
func (m *Module) Replace(id SectionID, content []byte) {
	section := Section{ID: id, Data: content}
	at := slices.IndexFunc(m.Sections, func(s Section) bool {
		return s.ID == id || s.ID != SectionCustom && order[s.ID] > order[id]
	})
	switch {
	case at < 0:
		m.Sections = append(m.Sections, section)
	case m.Sections[at].ID == id:
		m.Sections[at] = section
	default:
		m.Sections = slices.Insert(m.Sections, at, section)
	}
}

// Remove takes out all sections of an id.
func (m *Module) Remove(id SectionID) {
	m.Sections = m.except(func(s Section) bool { return s.ID == id })
}

// Bare returns the module's bytes without custom sections: they mean nothing to
// an engine, and an engine that reads them can be attacked through them.
func (m *Module) Bare() []byte {
	bare := Module{Sections: m.except(func(s Section) bool { return s.ID == SectionCustom })}
	return bare.Encode()
}

// WithCustom returns the module's bytes with data as the content of the one
// custom section called name, which stands at the end.
func (m *Module) WithCustom(name string, data []byte) []byte {
	with := Module{Sections: m.except(func(s Section) bool { return s.ID == SectionCustom && s.Name == name })}
	with.Sections = append(with.Sections, Section{ID: SectionCustom, Name: name, Data: data})
	return with.Encode()
}

func (m *Module) except(drop func(Section) bool) []Section {
	return slices.DeleteFunc(slices.Clone(m.Sections), drop)
}

// AppendU32 appends v as an unsigned LEB128.
func AppendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendS64 appends v as a signed LEB128. It also encodes an i32.
func AppendS64(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// AppendName appends a name as its length and its bytes.
func AppendName(b []byte, name string) []byte {
	return append(AppendU32(b, uint32(len(name))), name...)
}
