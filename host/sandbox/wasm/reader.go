package wasm

import (
	"fmt"
	"unicode/utf8"
)

// reader walks over data. Its offset is always within it.
type reader struct {
	data  []byte
	at    int
	where string
	// base is where data begins in the module.
	base int
	// most bounds a count beside the bytes that are left, if it is not zero;
	// elements counts those of the element segments so far.
	most, elements int
}

func (r *reader) broken(rule string) error {
	return &Error{Section: r.where, Offset: r.base + r.at, Rule: rule}
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
	if r.at < len(r.data) && r.data[r.at] < 0x80 {
		r.at++
		return uint32(r.data[r.at-1]), nil
	}
	v := uint32(0)
	for shift := uint(0); ; shift += 7 {
		b, err := r.byte()
		if err != nil {
			return 0, err
		}
		if shift == 28 && b > 0x0f {
			return 0, r.broken("integer too large or too long")
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
}

// signed reads a signed LEB128 of at most bits bits.
func (r *reader) signed(bits uint) (int64, error) {
	v := int64(0)
	for shift := uint(0); ; {
		b, err := r.byte()
		if err != nil {
			return 0, err
		}
		v |= int64(b&0x7f) << shift
		shift += 7
		if shift >= bits {
			// What is above the last bit repeats the sign, and nothing follows.
			unused := shift - bits
			top := int8(b<<1) >> (7 - unused)
			if b >= 0x80 || top != 0 && top != -1 {
				return 0, r.broken("integer too large or too long")
			}
		}
		if b < 0x80 {
			if shift < 64 && b&0x40 != 0 {
				v |= -1 << shift
			}
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

// count reads how many entries follow. No entry is shorter than one byte, so a
// count above the bytes left is refused before it costs anything.
func (r *reader) count() (int, error) {
	n, err := r.u32()
	if err != nil {
		return 0, err
	}
	if uint64(n) > uint64(r.left()) {
		return 0, r.broken(fmt.Sprintf("a count of %d where %d bytes are left", n, r.left()))
	}
	if r.most > 0 && int64(n) > int64(r.most) {
		return 0, r.broken(fmt.Sprintf("a count of %d: at most %d are allowed", n, r.most))
	}
	return int(n), nil
}

// vector reads a count and that many entries.
func vector[T any](r *reader, entry func(*reader) (T, error)) ([]T, error) {
	n, err := r.count()
	if err != nil {
		return nil, err
	}
	var all []T
	for range n {
		e, err := entry(r)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (r *reader) valueType() (ValueType, error) {
	b, err := r.byte()
	if err != nil {
		return 0, err
	}
	switch t := ValueType(b); t {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
		return t, nil
	}
	return 0, r.broken(fmt.Sprintf("value type 0x%02x is not one that hands can use", b))
}

func (r *reader) referenceType() (ValueType, error) {
	t, err := r.valueType()
	if err == nil && !t.IsReference() {
		err = r.broken("a reference type is needed")
	}
	return t, err
}
