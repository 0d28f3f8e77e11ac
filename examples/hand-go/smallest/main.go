// Command smallest is the smallest hand in Go: it says what it was asked.
package main

import (
	"context"
	"fmt"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

func answer(_ context.Context, q hand.Query) (string, error) {
	if q.Prompt == "" {
		return "", nil // nothing to say
	}
	return fmt.Sprintf("You asked: %s\nIt is %s.", q.Prompt, q.Now.In(q.Location).Format("Monday 15:04")), nil
}
