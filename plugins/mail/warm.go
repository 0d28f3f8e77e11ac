package main

import (
	"context"
	"embed"
	"time"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

//go:embed sample/sample.eml
var sample embed.FS

func init() { hand.Warm(warm) }

// warm answers from the sample, which has a part of each kind: what its
// libraries do first is much more than what they do next.
func warm() {
	from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	q := hand.Query{From: from, To: from.Add(24 * time.Hour), Now: from.Add(24 * time.Hour), Location: time.UTC, MaxOutputTokens: 1_000}
	if _, err := answer(files.WithRoot(context.Background(), rootName, sample), q); err != nil {
		panic(err)
	}
}
