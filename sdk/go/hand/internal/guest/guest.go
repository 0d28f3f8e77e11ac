// Package guest is the lowest layer of the SDK: the host's functions as Go
// functions. Outside a hand each answers abi.KindDisabled.
package guest

import "github.com/gloveboxhq/glovebox/abi"

// Function is one capability function of the host: it takes the address and
// length of a JSON request and returns the size of its result, or the negative
// code of an abi.Kind.
type Function func(ptr, length uint32) int32

// Call sends request to f and returns the result.
func Call(f Function, request []byte) ([]byte, error) {
	size := invoke(f, request)
	if size < 0 {
		if kind := abi.KindOfCode(size); kind != "" {
			return nil, kind
		}
		return nil, abi.KindUnavailable
	}
	result := make([]byte, size)
	return result[:ReadResult(result)], nil
}

var warmers []func()

// Warm has f called when the SDK warms up; it is for the packages of the SDK.
func Warm(f func()) { warmers = append(warmers, f) }

// RunWarm calls the functions that Warm was given.
func RunWarm() {
	for _, f := range warmers {
		f()
	}
}
