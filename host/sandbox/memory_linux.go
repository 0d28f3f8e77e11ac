package sandbox

import "golang.org/x/sys/unix"

func madviseDontNeed(memory []byte) error { return unix.Madvise(memory, unix.MADV_DONTNEED) }
