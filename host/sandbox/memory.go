package sandbox

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/cpu"
)

// mapping is address space for one linear memory, which begins as an image that is
// mapped or, if that is nil, as zeros.
type mapping struct {
	image *mappedImage
	bytes []byte
}

// memoryPool keeps the mappings of linear memories that are not in use, each as a
// new one would be. It is safe for concurrent use.
type memoryPool struct {
	// near is a place for each processor, where the mapping is that was given back
	// there last: what another processor wrote takes it three times as long to clear.
	near []nearPlace
	// places are those of near, by the processor that is asked on; used counts those
	// that were put there.
	places sync.Pool
	used   atomic.Uint32

	mu sync.Mutex
	// idle are all other mappings, the longest unused first; guarded by mu.
	idle []mapping
}

// nearPlace may have a mapping. Its lock is taken before that of the pool.
type nearPlace struct {
	mu      sync.Mutex
	mapping mapping // has no bytes if there is none
	closed  bool
	_       cpu.CacheLinePad
}

func newMemoryPool() *memoryPool {
	return &memoryPool{near: make([]nearPlace, runtime.GOMAXPROCS(0))}
}

// place returns what is near the processor that asks.
func (p *memoryPool) place() *nearPlace {
	place, ok := p.places.Get().(*nearPlace)
	if !ok {
		place = &p.near[p.used.Add(1)%uint32(len(p.near))]
	}
	p.places.Put(place)
	return place
}

// maxIdle bounds the mappings of a pool that are near no processor. clearBytes bounds
// what of a mapping of zeros is cleared in place: so little is cleared faster than the
// kernel takes and gives it.
const (
	maxIdle    = 64
	clearBytes = 128 << 10
)

// take returns a mapping of a size, in bytes, whose beginning is the image; nil means
// zeros.
func (p *memoryPool) take(i *image, size uint64) (mapping, error) {
	switch {
	case i == nil:
		return p.takeMapped(nil, size)
	case i.mapped != nil:
		return p.takeMapped(i.mapped, size)
	}
	m, err := p.takeMapped(nil, size)
	if err == nil {
		i.copyTo(m.bytes)
	}
	return m, err
}

func (p *memoryPool) takeMapped(i *mappedImage, size uint64) (mapping, error) {
	fits := func(m mapping) bool { return m.image == i && uint64(len(m.bytes)) == size }
	own := p.place()
	if m, ok := own.take(fits); ok {
		return m, nil
	}
	if m, ok := p.takeIdle(fits); ok {
		return m, nil
	}
	for n := range p.near {
		if m, ok := p.near[n].take(fits); ok {
			return m, nil
		}
	}
	bytes, err := reserve(size)
	if err != nil {
		return mapping{}, err
	}
	if i != nil {
		if err := i.over(bytes); err != nil {
			release(bytes)
			return mapping{}, err
		}
	}
	return mapping{image: i, bytes: bytes}, nil
}

func (n *nearPlace) take(fits func(mapping) bool) (m mapping, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mapping.bytes == nil || !fits(n.mapping) {
		return mapping{}, false
	}
	m, n.mapping = n.mapping, mapping{}
	return m, true
}

func (p *memoryPool) takeIdle(fits func(mapping) bool) (m mapping, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle) - 1; n >= 0; n-- {
		if m := p.idle[n]; fits(m) {
			p.idle = slices.Delete(p.idle, n, n+1)
			return m, true
		}
	}
	return mapping{}, false
}

// give takes a mapping back of which the first used bytes may have been written.
func (p *memoryPool) give(m mapping, used uint64) {
	if !m.restore(used) {
		release(m.bytes)
		return
	}
	if out := p.put(p.place(), m); out != nil {
		release(out)
	}
}

// put puts a mapping near and what was there before among the idle; out is what
// there is no room for.
func (p *memoryPool) put(near *nearPlace, m mapping) (out []byte) {
	near.mu.Lock()
	defer near.mu.Unlock()
	if near.closed {
		return m.bytes
	}
	before := near.mapping
	near.mapping = m
	if before.bytes == nil {
		return nil
	}
	// Under both locks: who looks through the places and then through the pool misses
	// nothing that is on its way.
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == maxIdle {
		out = p.idle[0].bytes
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, before)
	return out
}

// restore makes a mapping what it began as; not ok if that cannot be had.
func (m mapping) restore(used uint64) bool {
	switch {
	case m.image != nil:
		return m.image.restore(m.bytes[:used])
	case used <= clearBytes:
		clear(m.bytes[:used])
		return true
	}
	return discard(m.bytes[:used])
}

// forget frees the mappings of an image, which no query is in.
func (p *memoryPool) forget(i *mappedImage) {
	p.drop(func(m mapping) bool { return m.image == i }, false)
}

// free frees all mappings, and those that are given from now on.
func (p *memoryPool) free() {
	p.drop(func(mapping) bool { return true }, true)
}

func (p *memoryPool) drop(which func(mapping) bool, closing bool) {
	for n := range p.near {
		place := &p.near[n]
		place.mu.Lock()
		if m := place.mapping; m.bytes != nil && which(m) {
			release(m.bytes)
			place.mapping = mapping{}
		}
		place.closed = place.closed || closing
		place.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(m mapping) bool {
		if which(m) {
			release(m.bytes)
			return true
		}
		return false
	})
}

// linearMemory is the memory of one instance, within the limit of its query
// and the bound of all queries together. One goroutine owns it.
type linearMemory struct {
	pool *memoryPool
	// image is what the memory begins as; nil means zeros.
	image *image
	limit uint64
	// total counts all memories of the engine; bound is its limit.
	total *atomic.Int64
	bound int64

	// begun says that the instance has a memory, of whatever size.
	begun   bool
	mapping mapping
	size    uint64
	// peak is the largest size; refused says that a growth was denied, crowded
	// that it was for the bound of all.
	peak             uint64
	refused, crowded bool
}

var _ experimental.LinearMemory = (*linearMemory)(nil)

// Allocate implements experimental.MemoryAllocator. Admission has made sure
// that a module has at most one memory and begins within the limit.
func (m *linearMemory) Allocate(_, most uint64) experimental.LinearMemory {
	m.begun = true
	size := min(most, m.limit)
	if m.image != nil && m.image.Size > size {
		return m
	}
	if mapped, err := m.pool.take(m.image, size); err == nil {
		m.mapping = mapped
	}
	return m
}

// Reallocate implements experimental.LinearMemory. What it returns never
// moves.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.mapping.bytes)) {
		m.refused = true
		return nil
	}
	more := int64(size) - int64(m.size)
	if m.total.Add(more) > m.bound {
		m.total.Add(-more)
		m.refused, m.crowded = true, true
		return nil
	}
	m.size, m.peak = size, max(m.peak, size)
	return m.mapping.bytes[:size:len(m.mapping.bytes)]
}

// Free implements experimental.LinearMemory. The engine calls it when it
// closes an instance, but not when instantiation fails; so it does nothing and
// the query calls release.
func (m *linearMemory) Free() {}

func (m *linearMemory) release() {
	if m.mapping.bytes != nil {
		used := m.peak
		if m.image != nil {
			used = max(used, m.image.Size)
		}
		m.pool.give(m.mapping, used)
		m.mapping = mapping{}
	}
	m.total.Add(-int64(m.size))
	m.size = 0
}
