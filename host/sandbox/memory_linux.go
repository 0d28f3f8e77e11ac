package sandbox

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

func madviseDontNeed(memory []byte) error { return unix.Madvise(memory, unix.MADV_DONTNEED) }

// mappedImage is an image in a file of its own that has no name, is in memory, and
// can never be written again.
type mappedImage struct {
	image *image
	file  int
	// view is the file, to be read.
	view []byte

	// given counts the mappings that came back from queries.
	given atomic.Int64
	// hot are the pages that queries mostly write to, in order: to write their
	// first content back costs a tenth of what the kernel takes to drop them and
	// to copy them again when they are touched. What is not hot is dropped, so
	// that nothing depends on this being right.
	hot atomic.Pointer[[]pageRun]

	mu sync.Mutex
	// samples counts what was learned from; seen maps pages to the last sample
	// that they were in. Both are guarded by mu.
	samples int
	seen    map[int]int
}

// How hot pages are learned: of every sampleEach'th query, and of the first samples,
// a page is hot if it is in one of the last samples.
const (
	samplesKept = 8
	sampleEach  = 512
	// maxHot bounds the pages that an idle mapping keeps.
	maxHot = 256
	// maxHotGap is the longest run of other pages that is written too, to save a
	// call of the kernel.
	maxHotGap = 2
)

// mapInto has the image's memories mapped from now on, if the system can.
func (i *image) mapInto() {
	if i.Size == 0 {
		return
	}
	file, err := unix.MemfdCreate("glovebox-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return
	}
	m := &mappedImage{image: i, file: file, seen: map[int]int{}}
	if m.fill() != nil {
		_ = unix.Close(file)
		return
	}
	m.hot.Store(&[]pageRun{})
	i.mapped, i.content = m, nil
}

func (m *mappedImage) fill() error {
	if err := unix.Ftruncate(m.file, int64(m.image.Size)); err != nil {
		return err
	}
	content := m.image.content
	for _, r := range m.image.Runs {
		piece := content[:r.Count*imagePage]
		content = content[len(piece):]
		for at := int64(r.First) * imagePage; len(piece) > 0; {
			n, err := unix.Pwrite(m.file, piece, at)
			if err != nil {
				return err
			}
			piece, at = piece[n:], at+int64(n)
		}
	}
	if _, err := unix.FcntlInt(uintptr(m.file), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return err
	}
	var err error
	m.view, err = unix.Mmap(m.file, 0, int(m.image.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	return err
}

// unmap frees what mapInto took. No mapping of the image may be in use.
func (i *image) unmap() {
	if i.mapped != nil {
		_ = unix.Munmap(i.mapped.view)
		_ = unix.Close(i.mapped.file)
		i.mapped = nil
	}
}

// over puts a private mapping of the image over the beginning of memory.
func (m *mappedImage) over(memory []byte) error {
	_, err := unix.MmapPtr(m.file, 0, unsafe.Pointer(unsafe.SliceData(memory)), uintptr(m.image.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	return err
}

// restore makes a mapping what it began as: each page is either dropped, so that the
// next to touch it finds the image's or zeros, or written again as the image has it.
func (m *mappedImage) restore(used *mapping, size uint64) bool {
	memory := used.bytes[:size]
	if used.untouched {
		m.learn(memory)
	}
	given := m.given.Add(1)
	used.untouched = given <= samplesKept || given%sampleEach == 0
	if used.untouched {
		return madviseDontNeed(memory) == nil
	}
	at := 0
	for _, r := range *m.hot.Load() {
		from, to := r.First*imagePage, r.end()*imagePage
		if to > len(memory) {
			break
		}
		if from > at && madviseDontNeed(memory[at:from]) != nil {
			return false
		}
		copied := 0
		if from < len(m.view) {
			copied = copy(memory[from:to], m.view[from:])
		}
		clear(memory[from+copied : to])
		at = to
	}
	return at == len(memory) || madviseDontNeed(memory[at:]) == nil
}

// learn counts which pages a query has made its own.
func (m *mappedImage) learn(memory []byte) {
	if os.Getpagesize() != imagePage {
		return
	}
	own, err := ownPages(memory)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples++
	for _, page := range own {
		m.seen[page] = m.samples
	}
	hot := []pageRun{}
	count := 0
	for page := range len(memory) / imagePage {
		last, ok := m.seen[page]
		if !ok {
			continue
		}
		if last <= m.samples-samplesKept {
			delete(m.seen, page)
			continue
		}
		if count++; count > maxHot {
			break
		}
		if n := len(hot) - 1; n >= 0 && page-hot[n].end() <= maxHotGap {
			hot[n].Count = page + 1 - hot[n].First
		} else {
			hot = append(hot, pageRun{page, 1})
		}
	}
	m.hot.Store(&hot)
}

// pagemap tells of each page of this process where it is; proc(5) has the bits.
var pagemap = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/pagemap") })

const (
	pageEntry   = 8
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// ownPages returns the pages of memory that are neither the file's that they were
// mapped from nor untouched.
func ownPages(memory []byte) ([]int, error) {
	file, err := pagemap()
	if err != nil {
		return nil, err
	}
	entries := make([]byte, len(memory)/imagePage*pageEntry)
	if _, err := file.ReadAt(entries, int64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))/imagePage*pageEntry)); err != nil {
		return nil, err
	}
	var own []int
	for page := range len(entries) / pageEntry {
		bits := binary.LittleEndian.Uint64(entries[page*pageEntry:])
		if bits&(pagePresent|pageSwapped) != 0 && bits&pageOfFile == 0 {
			own = append(own, page)
		}
	}
	return own, nil
}
