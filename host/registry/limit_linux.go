package registry

import "golang.org/x/sys/unix"

// limitThisProcess bounds the data segment, not the address space: Go reserves
// more than a gigabyte of that when it starts.
func limitThisProcess() error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CPU: compileCPUSeconds, unix.RLIMIT_DATA: compileDataBytes, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}
