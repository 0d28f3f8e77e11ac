package sandbox

import (
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// linearMemory is the memory of one instance, within the limit of its query
// and the bound of all queries together. One goroutine owns it.
type linearMemory struct {
	limit uint64
	// total counts all memories of the engine; bound is its limit.
	total *atomic.Int64
	bound int64

	mapped []byte
	size   uint64
	// peak is the largest size; refused says that a growth was denied.
	peak    uint64
	refused bool
}

var _ experimental.LinearMemory = (*linearMemory)(nil)

// Allocate implements experimental.MemoryAllocator. Admission has made sure
// that a module has at most one memory and begins within the limit.
func (m *linearMemory) Allocate(_, most uint64) experimental.LinearMemory {
	mapped, err := reserve(min(most, m.limit))
	if err == nil {
		m.mapped = mapped
	}
	return m
}

// Reallocate implements experimental.LinearMemory. What it returns never
// moves.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.mapped)) {
		m.refused = true
		return nil
	}
	more := int64(size) - int64(m.size)
	if m.total.Add(more) > m.bound {
		m.total.Add(-more)
		m.refused = true
		return nil
	}
	m.size, m.peak = size, max(m.peak, size)
	return m.mapped[:size:len(m.mapped)]
}

// Free implements experimental.LinearMemory. The engine calls it when it
// closes an instance, but not when instantiation fails; so it does nothing and
// the query calls release.
func (m *linearMemory) Free() {}

func (m *linearMemory) release() {
	if m.mapped != nil {
		release(m.mapped)
		m.mapped = nil
	}
	m.total.Add(-int64(m.size))
	m.size = 0
}
