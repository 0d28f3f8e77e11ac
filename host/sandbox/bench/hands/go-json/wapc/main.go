//go:build wasip1

// The trivial hand for waPC.
package main

import "unsafe"

//go:wasmimport wapc __guest_request
func guestRequest(operation, payload unsafe.Pointer)

//go:wasmimport wapc __guest_response
func guestResponse(text unsafe.Pointer, length uint32)

//go:wasmimport wapc __host_call
func hostCall(binding unsafe.Pointer, bindingLength uint32, namespace unsafe.Pointer, namespaceLength uint32,
	operation unsafe.Pointer, operationLength uint32, payload unsafe.Pointer, payloadLength uint32) int32

func wait() { hostCall(nil, 0, nil, 0, nil, 0, nil, 0) }

func main() {}

//go:wasmexport __guest_call
func guestCall(operationLength, queryLength uint32) int32 {
	operation := make([]byte, operationLength)
	query := make([]byte, queryLength)
	guestRequest(unsafe.Pointer(unsafe.SliceData(operation)), unsafe.Pointer(unsafe.SliceData(query)))
	text, ok := answer(query)
	if !ok {
		return 0
	}
	guestResponse(unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
	return 1
}
