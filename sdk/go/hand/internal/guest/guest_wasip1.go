//go:build wasip1

package guest

import (
	"runtime"
	"unsafe"
)

//go:wasmimport glovebox query_size
func querySize() int32

//go:wasmimport glovebox query_read
func queryRead(ptr, size uint32) int32

//go:wasmimport glovebox reply
func reply(ptr, size uint32) int32

//go:wasmimport glovebox fail
func fail(ptr, size uint32)

//go:wasmimport glovebox log
func log(level int32, ptr, size uint32)

//go:wasmimport glovebox result_read
func resultRead(ptr, size uint32) int32

// Inside tells whether this program runs as a hand.
const Inside = true

// Query returns the JSON of the query.
func Query() []byte {
	b := make([]byte, max(querySize(), 0))
	n := queryRead(address(b), uint32(len(b)))
	runtime.KeepAlive(b)
	return b[:max(n, 0)]
}

// Reply appends text to the reply.
func Reply(text string) {
	reply(address(text), uint32(len(text)))
	runtime.KeepAlive(text)
}

// Fail records why the query could not be answered.
func Fail(text string) {
	fail(address(text), uint32(len(text)))
	runtime.KeepAlive(text)
}

// Log writes one line to the query's log.
func Log(level int32, text string) {
	log(level, address(text), uint32(len(text)))
	runtime.KeepAlive(text)
}

// ReadResult copies the result of the last capability call into b and returns
// how many bytes it copied.
func ReadResult(b []byte) int {
	n := resultRead(address(b), uint32(len(b)))
	runtime.KeepAlive(b)
	return int(max(n, 0))
}

func invoke(f Function, request []byte) int32 {
	size := f(address(request), uint32(len(request)))
	runtime.KeepAlive(request)
	return size
}

func address[T ~string | ~[]byte](s T) uint32 {
	if len(s) == 0 {
		return 0
	}
	switch s := any(s).(type) {
	case string:
		return uint32(uintptr(unsafe.Pointer(unsafe.StringData(s))))
	case []byte:
		return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(s))))
	}
	return 0
}
