package sandbox

import "github.com/gloveboxhq/glovebox/host/sandbox/wasm"

// maxGap is the longest run of zeros that is written out to join two data
// segments. The engine spends about half a microsecond on a segment and less on
// a few hundred bytes.
const maxGap = 512

// joining changes with what joinSegments does: its results are kept.
const joining = 1

// joinSegments joins data segments that follow each other closely. Go's linker
// leaves out runs of zeros and so writes thousands, each of which the engine
// evaluates and copies for every instance. What instances begin with stays the
// same: memory begins as zeros, and only segments in ascending order are joined.
// A module that uses segments at run time is left alone.
func joinSegments(m *wasm.Module) {
	if m.DataCount != nil || len(m.Data) < 2 {
		return
	}
	type segment struct {
		at    int64
		bytes []byte
	}
	var joined []segment
	end := int64(-1)
	for _, s := range m.Data {
		at, constant := s.Place.ConstantI32()
		if s.Mode != wasm.Active || !constant {
			return
		}
		// Addresses are unsigned.
		place := int64(uint32(at))
		switch gap := place - end; {
		case end >= 0 && gap < 0:
			return // they overlap, or do not ascend
		case end >= 0 && gap <= maxGap:
			last := &joined[len(joined)-1]
			last.bytes = append(append(last.bytes, make([]byte, gap)...), s.Bytes...)
		default:
			joined = append(joined, segment{place, append([]byte(nil), s.Bytes...)})
		}
		end = place + int64(len(s.Bytes))
	}
	out := wasm.AppendU32(nil, uint32(len(joined)))
	for _, s := range joined {
		out = wasm.AppendS64(append(out, 0, byte(wasm.OpI32Const)), int64(int32(uint32(s.at))))
		out = wasm.AppendU32(append(out, byte(wasm.OpEnd)), uint32(len(s.bytes)))
		out = append(out, s.bytes...)
	}
	m.Replace(wasm.SectionData, out)
}
