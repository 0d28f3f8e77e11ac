//go:build unix

package sandbox

import (
	"io/fs"
	"os"
	"syscall"
)

// reserve maps bytes of zeroed address space. Pages cost memory when they are
// touched, growing costs nothing, and nothing is left for the garbage
// collector.
func reserve(bytes uint64) ([]byte, error) {
	return syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func release(memory []byte) { _ = syscall.Munmap(memory) }

// discard gives pages back; they are zero when they are next touched. It
// reports false if that cannot be had.
func discard(memory []byte) bool { return madviseDontNeed(memory) == nil }

// atOnceNoLink opens no link, and does not wait for who writes to a pipe.
const atOnceNoLink = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// ofAnother reports whether another user than this process's or root owns a file.
func ofAnother(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}

func writableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }
