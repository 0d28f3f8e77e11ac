//go:build wasip1

package llm

//go:wasmimport glovebox_llm complete
func hostComplete(ptr, size uint32) int32
