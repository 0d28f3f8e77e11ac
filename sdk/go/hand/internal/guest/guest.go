// Package guest is the lowest layer of the SDK: the host's functions as Go
// functions. Outside a hand each answers abi.KindDisabled.
package guest

import (
	"encoding/json"
	"reflect"

	"github.com/gloveboxhq/glovebox/abi"
)

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

var warmers []any

// WarmJSON has values encoded and decoded when the SDK warms up: what
// encoding/json does for the first value of a type is many times what it does for
// the next. It is for the packages of the SDK, and their requests and results.
func WarmJSON(values ...any) { warmers = append(warmers, values...) }

// Warm does what WarmJSON asked for.
func Warm() {
	for _, value := range warmers {
		encoded, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(encoded, reflect.New(reflect.TypeOf(value)).Interface())
		}
		if err != nil {
			panic(err)
		}
	}
}
