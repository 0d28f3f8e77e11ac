//go:build wasip1

package kv

//go:wasmimport glovebox_kv get
func hostGet(ptr, size uint32) int32

//go:wasmimport glovebox_kv set
func hostSet(ptr, size uint32) int32

//go:wasmimport glovebox_kv delete
func hostDelete(ptr, size uint32) int32

//go:wasmimport glovebox_kv list
func hostList(ptr, size uint32) int32
