//go:build wasip1

// The trivial hand with the SDK, which reads the query with encoding/json.
package main

import (
	"context"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func init() {
	hand.Register(func(context.Context, hand.Query) (string, error) {
		return "Nothing happened.", nil
	})
}

func main() { hand.Main() }
