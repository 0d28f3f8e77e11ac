//go:build wasip1

// The trivial hand with the SDK, which warms itself up.
package main

import (
	"context"
	"strings"

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

func main() { hand.Main() }
