package sandbox

import (
	"errors"
	"os"
	"sync"
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
}

// mapInto has the image's memories mapped from now on, if the system can. A small
// memory is copied and cleared faster than the kernel maps and looks through it.
func (i *image) mapInto() {
	if i.Size <= clearBytes {
		return
	}
	file, err := unix.MemfdCreate("glovebox-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return
	}
	m := &mappedImage{image: i, file: file}
	if m.fill() != nil {
		_ = unix.Close(file)
		return
	}
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
	if err == nil {
		mapSinglePages(memory[:m.image.Size])
	}
	return err
}

// mapSinglePages has the kernel map no more pages of an image's mapping than are
// touched. By itself it maps sixteen where one is read, in case that they are read too
// ("fault-around"): a guest in Go reads a few pages here and there, had three times as
// many of them to its name, and the scan after its query went through them. The kernel
// leaves it in mappings that are registered for write protection by userfaultfd
// (uffd_disable_fault_around in include/linux/userfaultfd_k.h; for memory of files since
// 5.19: UFFD_FEATURE_WP_HUGETLBFS_SHMEM in UFFDIO_API(2const)). Nothing is ever
// protected, so that no fault is ever waited for. Where that cannot be had, memories are
// only larger.
func mapSinglePages(memory []byte) {
	descriptor, err := faults()
	if err != nil {
		return
	}
	register := uffdioRegister{start: addressOf(memory), length: uint64(len(memory)), mode: registerModeWP}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, descriptor, uffdioRegisterCode, uintptr(unsafe.Pointer(&register)))
}

// faults is the userfaultfd of this process: ioctl_userfaultfd(2).
var faults = sync.OnceValues(func() (uintptr, error) {
	descriptor, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	api := uffdioAPI{api: uffdAPI}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, descriptor, uffdioAPICode, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return 0, errors.Join(errno, unix.Close(int(descriptor)))
	}
	return descriptor, nil
})

// What linux/userfaultfd.h defines. A process without privileges may have one for the
// faults of its own code alone.
type (
	uffdioAPI      struct{ api, features, ioctls uint64 }
	uffdioRegister struct{ start, length, mode, ioctls uint64 }
)

const (
	userModeOnly       = 1
	uffdAPI            = 0xaa
	uffdioAPICode      = 0xc018aa3f
	uffdioRegisterCode = 0xc020aa00
	registerModeWP     = 1 << 1
)

// restore makes used, the beginning of a mapping, what it began as. Pages that the
// query has made its own by writing to them are written again as the image has them,
// which costs a tenth of what the kernel takes to drop them and to copy them again
// when they are touched; those that are still the image's stay where they are. If the
// kernel cannot tell them apart, all are dropped, so that who touches one next finds
// the image's, or zeros.
func (m *mappedImage) restore(used []byte) bool {
	scan, _ := pageScans.Get().(*pageScan)
	defer pageScans.Put(scan)
	own, complete := scan.ownPages(used)
	if !complete {
		return madviseDontNeed(used) == nil
	}
	base := addressOf(used)
	for _, r := range own {
		from := int(r.start - base)
		pages := used[from:int(r.end-base)]
		if from < len(m.view) {
			pages = pages[copy(pages, m.view[from:]):]
		}
		clear(pages)
	}
	return true
}

func addressOf(memory []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}

// pageScan is struct pm_scan_arg of the kernel, with room for what it finds, and
// pageRegion struct page_region: Documentation/admin-guide/mm/pagemap.rst, "Pagemap
// Scan IOCTL". Linux has it since 6.7.
type pageScan struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages       uint64
	categoryInverted, categoryMask, categoryAnyOfMask, returnMask uint64

	regions [maxOwnPages + 1]pageRegion
}

type pageRegion struct{ start, end, categories uint64 }

const (
	pageScanBytes = 12 * 8 // of the argument alone
	pagemapScan   = 0xc0606610
	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	// maxOwnPages bounds the pages that are written again: of more, it is cheaper
	// to have the kernel drop them all, and an idle mapping would hold too much.
	maxOwnPages = 512
)

// pageScans keeps what the kernel is given: it must not be on a stack, which moves.
var pageScans = sync.Pool{New: func() any { return new(pageScan) }}

// pagemap tells of the pages of this process.
var pagemap = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/pagemap") })

// ownPages lists which pages of memory are neither untouched nor still the file's
// that they were mapped from. It is not complete if there are too many, or if the
// kernel cannot tell.
func (s *pageScan) ownPages(memory []byte) (own []pageRegion, complete bool) {
	file, err := pagemap()
	if err != nil {
		return nil, false
	}
	base := addressOf(memory)
	s.size, s.start, s.end, s.walkEnd, s.maxPages = pageScanBytes, base, base+uint64(len(memory)), 0, maxOwnPages+1
	s.vec, s.vecLen = uint64(uintptr(unsafe.Pointer(&s.regions))), uint64(len(s.regions))
	s.categoryInverted, s.categoryMask, s.categoryAnyOfMask, s.returnMask = pageIsFile, pageIsFile, pageIsPresent|pageIsSwapped, pageIsPresent
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), pagemapScan, uintptr(unsafe.Pointer(s)))
	if errno != 0 || s.walkEnd != s.end || n > uintptr(len(s.regions)) {
		return nil, false
	}
	return s.regions[:n], true
}
