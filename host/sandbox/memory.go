package sandbox

import (
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryPool keeps the mappings of linear memories that are not in use, all of
// them zero. It is safe for concurrent use.
type memoryPool struct {
	mu sync.Mutex
	// idle maps sizes to mappings; count is how many there are in all. Both
	// are guarded by mu.
	idle  map[uint64][][]byte
	count int
}

// maxIdle bounds the mappings of a pool, clearBytes those of their bytes that
// stay in memory: so few are cleared faster than the kernel takes and gives
// them.
const (
	maxIdle    = 64
	clearBytes = 128 << 10
)

func (p *memoryPool) take(size uint64) ([]byte, error) {
	p.mu.Lock()
	if idle := p.idle[size]; len(idle) > 0 {
		last := len(idle) - 1
		mapped := idle[last]
		p.idle[size] = idle[:last]
		p.count--
		p.mu.Unlock()
		return mapped, nil
	}
	p.mu.Unlock()
	return reserve(size)
}

// give takes a mapping back of which the first used bytes may not be zero.
func (p *memoryPool) give(mapped []byte, used uint64) {
	if used <= clearBytes {
		clear(mapped[:used])
	} else if !discard(mapped[:used]) {
		release(mapped)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == maxIdle {
		release(mapped)
		return
	}
	size := uint64(len(mapped))
	p.idle[size] = append(p.idle[size], mapped)
	p.count++
}

func (p *memoryPool) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, idle := range p.idle {
		for _, mapped := range idle {
			release(mapped)
		}
	}
	p.idle, p.count = nil, maxIdle
}

// linearMemory is the memory of one instance, within the limit of its query
// and the bound of all queries together. One goroutine owns it.
type linearMemory struct {
	pool  *memoryPool
	limit uint64
	// total counts all memories of the engine; bound is its limit.
	total *atomic.Int64
	bound int64

	// begun says that the instance has a memory, of whatever size.
	begun  bool
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
	m.begun = true
	mapped, err := m.pool.take(min(most, m.limit))
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
		m.pool.give(m.mapped, m.peak)
		m.mapped = nil
	}
	m.total.Add(-int64(m.size))
	m.size = 0
}
