//go:build wasip1

package files

//go:wasmimport glovebox_files list
func hostList(ptr, size uint32) int32

//go:wasmimport glovebox_files read
func hostRead(ptr, size uint32) int32
