//go:build wasip1

// The trivial hand that reads the query with encoding/json, and has read one
// before the first comes.
package main

import (
	"encoding/json"
	"time"
	"unsafe"

	"github.com/gloveboxhq/glovebox/abi"
)

//go:wasmimport glovebox query_size
func querySize() int32

//go:wasmimport glovebox query_read
func queryRead(to unsafe.Pointer, capacity uint32) int32

//go:wasmimport glovebox reply
func reply(text unsafe.Pointer, length uint32) int32

//go:wasmimport glovebox_kv get
func kvGet(request unsafe.Pointer, length uint32) int32

func wait() {
	request := `{"key":"wait"}`
	kvGet(unsafe.Pointer(unsafe.StringData(request)), uint32(len(request)))
}

func main() {}

//go:wasmexport glovebox_query_v1
func query() int32 {
	bytes := make([]byte, querySize())
	queryRead(unsafe.Pointer(unsafe.SliceData(bytes)), uint32(len(bytes)))
	text, ok := answer(bytes)
	if !ok {
		return 1
	}
	return reply(unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
}

//go:wasmexport glovebox_warm_v1
func warm() {
	encoded, err := json.Marshal(abi.Query{Prompt: "What happened?", From: time.Unix(0, 0), To: time.Unix(1, 0), Now: time.Unix(1, 0), Timezone: "UTC"})
	if err != nil {
		panic(err)
	}
	if _, ok := answer(encoded); !ok {
		panic("a query cannot be read")
	}
}
