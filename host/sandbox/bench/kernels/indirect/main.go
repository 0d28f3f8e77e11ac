// Kernels in Go that call through the function table more than most code does:
// interfaces, closures and reflection. They are exported like those of
// kernels/go.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
)

func main() {}

type ascending []uint32

func (a ascending) Len() int           { return len(a) }
func (a ascending) Less(i, j int) bool { return a[i] < a[j] }
func (a ascending) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

var numbers = make(ascending, 1024)

func shuffle(x uint32) uint32 {
	for i := range numbers {
		x = x*1664525 + 1013904223
		numbers[i] = x
	}
	return x
}

//go:wasmexport interface
func sortInterface(n int32) int32 {
	x := uint32(1)
	for range n {
		x = shuffle(x)
		sort.Sort(numbers)
	}
	return int32(numbers[5])
}

//go:wasmexport closure
func sortClosure(n int32) int32 {
	x := uint32(1)
	for range n {
		x = shuffle(x)
		sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	}
	return int32(numbers[5])
}

//go:wasmexport json
func jsonBothWays(n int32) int32 {
	sum := 0
	for range n {
		var v any
		if err := json.Unmarshal([]byte(`{"a":[1,2,3,{"b":"c"}],"d":{"e":null,"f":true}}`), &v); err != nil {
			panic(err)
		}
		out, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		sum += len(out)
	}
	return int32(sum)
}

//go:wasmexport format
func format(n int32) int32 {
	sum := 0
	var b bytes.Buffer
	for i := range n {
		b.Reset()
		fmt.Fprintf(&b, "%d %s %v %5.2f", i&7, "abc", []int{1, 2}, 1.5)
		sum += b.Len()
	}
	return int32(sum)
}
