//go:build wasip1

package main

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
)

// answer does what the SDK does with a query before the hand sees it.
func answer(query []byte) (text string, ok bool) {
	var q abi.Query
	if json.Unmarshal(query, &q) != nil {
		return "", false
	}
	if _, err := time.LoadLocation(q.Timezone); err != nil {
		return "", false
	}
	if strings.HasPrefix(q.Prompt, "!") {
		wait()
	}
	return "Nothing happened.", true
}
