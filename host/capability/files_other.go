//go:build !unix

package capability

const openNonBlocking = 0
