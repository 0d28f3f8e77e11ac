//go:build wasip1

// The trivial hand with the SDK, which has read a query before the first one
// comes.
package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/kv"
)

func init() {
	hand.Register(func(ctx context.Context, q hand.Query) (string, error) {
		if strings.HasPrefix(q.Prompt, "!") {
			_, _ = kv.Get(ctx, "wait") // it may be absent
		}
		return "Nothing happened.", nil
	})
}

//go:wasmexport glovebox_warm_v1
func warm() {
	var q abi.Query
	encoded, err := json.Marshal(abi.Query{Prompt: "What happened?", From: time.Unix(0, 0), To: time.Unix(1, 0), Now: time.Unix(1, 0), Timezone: "UTC"})
	if err != nil || json.Unmarshal(encoded, &q) != nil {
		panic("a query cannot be read")
	}
}

func main() { hand.Main() }
