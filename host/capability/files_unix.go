//go:build unix

package capability

import "syscall"

// openNonBlocking keeps the opening of a pipe that took a file's place from
// waiting for a writer.
const openNonBlocking = syscall.O_NONBLOCK
