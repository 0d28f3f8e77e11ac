//go:build wasip1

package main

import "bytes"

func answer(query []byte) (text string, ok bool) {
	if bytes.HasPrefix(query, []byte(`{"prompt":"!`)) {
		wait()
	}
	return "Nothing happened.", len(query) > 0
}
