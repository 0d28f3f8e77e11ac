package sandbox

import (
	"cmp"
	"slices"

	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// maxGap is the longest run of zeros that is written out to join two data
// segments. The engine spends about half a microsecond on a segment and less on
// a few hundred bytes.
const maxGap = 512

// joining changes with what joinSegments does: its results are kept.
const joining = 3

// joinSegments joins data segments that lie close to each other. Go's linker
// leaves out runs of zeros and so writes tens of thousands, each of which the
// engine evaluates and copies for every instance. What instances begin with
// stays the same: memory begins as zeros, and segments that do not overlap may
// stand in any order. A module whose segments do, or that uses them at run time,
// is left alone.
func joinSegments(m *wasm.Module) {
	if m.DataCount != nil || len(m.Data) < 2 {
		return
	}
	type segment struct {
		at    int64
		bytes []byte
	}
	segments := make([]segment, 0, len(m.Data))
	for _, s := range m.Data {
		at, constant := s.Place.ConstantI32()
		if s.Mode != wasm.Active || !constant {
			return
		}
		// Addresses are unsigned.
		segments = append(segments, segment{int64(uint32(at)), s.Bytes})
	}
	slices.SortStableFunc(segments, func(a, b segment) int { return cmp.Compare(a.at, b.at) })
	joined := segments[:0:0]
	for _, s := range segments {
		if len(joined) == 0 {
			joined = append(joined, segment{s.at, slices.Clone(s.bytes)})
			continue
		}
		last := &joined[len(joined)-1]
		gap := s.at - last.at - int64(len(last.bytes))
		switch {
		case gap < 0:
			return
		case gap <= maxGap:
			last.bytes = append(append(last.bytes, make([]byte, gap)...), s.bytes...)
		default:
			joined = append(joined, segment{s.at, slices.Clone(s.bytes)})
		}
	}
	out := wasm.AppendU32(nil, uint32(len(joined)))
	for _, s := range joined {
		out = wasm.AppendS64(append(out, 0, byte(wasm.OpI32Const)), int64(int32(uint32(s.at))))
		out = wasm.AppendU32(append(out, byte(wasm.OpEnd)), uint32(len(s.bytes)))
		out = append(out, s.bytes...)
	}
	m.Replace(wasm.SectionData, out)
}
