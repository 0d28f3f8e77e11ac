//go:build wasip1

package http

//go:wasmimport glovebox_http fetch
func hostFetch(ptr, size uint32) int32
