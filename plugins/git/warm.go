package main

import (
	"compress/zlib"
	"io"
	"strings"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func init() { hand.Warm(warm) }

// warm inflates nothing, with the fixed code, whose tables are built when it is
// first met.
func warm() {
	r, err := zlib.NewReader(strings.NewReader("\x78\x9c\x03\x00\x00\x00\x00\x01"))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil {
		panic(err)
	}
}
