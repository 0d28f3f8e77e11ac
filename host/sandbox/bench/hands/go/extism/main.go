//go:build wasip1

// The trivial hand for Extism, whose guests move bytes through the host's
// kernel in words, as its own development kits do.
package main

import "encoding/binary"

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoadU8(offset uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func inputLoadU64(offset uint64) uint64

//go:wasmimport extism:host/env alloc
func alloc(length uint64) uint64

//go:wasmimport extism:host/env store_u8
func storeU8(offset uint64, value uint32)

//go:wasmimport extism:host/env store_u64
func storeU64(offset, value uint64)

//go:wasmimport extism:host/env output_set
func outputSet(offset, length uint64)

//go:wasmimport extism:host/user wait
func wait()

func main() {}

//go:wasmexport query
func query() int32 {
	text, ok := answer(input())
	if !ok {
		return 1
	}
	output(text)
	return 0
}

func input() []byte {
	length := inputLength()
	bytes := make([]byte, 0, length)
	at := uint64(0)
	for ; at+8 <= length; at += 8 {
		bytes = binary.LittleEndian.AppendUint64(bytes, inputLoadU64(at))
	}
	for ; at < length; at++ {
		bytes = append(bytes, byte(inputLoadU8(at)))
	}
	return bytes
}

func output(text string) {
	start := alloc(uint64(len(text)))
	at := 0
	for ; at+8 <= len(text); at += 8 {
		storeU64(start+uint64(at), binary.LittleEndian.Uint64([]byte(text[at:at+8])))
	}
	for ; at < len(text); at++ {
		storeU8(start+uint64(at), uint32(text[at]))
	}
	outputSet(start, uint64(len(text)))
}
