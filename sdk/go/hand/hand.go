// Package hand is what a Glovebox hand written in Go imports. A hand is one
// function, registered in init, that turns a question into a text:
//
//	func init() { hand.Register(answer) }
//	func main() { hand.Main() }
//
//	func answer(ctx context.Context, q hand.Query) (string, error) {
//		return "Nothing happened before " + q.Now.String(), nil
//	}
//
// Build it with the standard toolchain, as a reactor:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath \
//		-buildvcs=false -ldflags='-s -w' -o hand.wasm .
//
// Without -buildmode=c-shared the same source becomes a command, which reads
// the query from standard input and writes the reply to standard output. In a
// reactor main is never called: register in init.
//
// There is no time zone database inside a hand. One that shows local times
// imports time/tzdata (about 450 KB).
//
// Natively, in go test, call the function itself: a Query is a plain struct.
package hand

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

// Query is what the hand is asked.
type Query struct {
	// Prompt is the operator's question.
	Prompt string
	// From and To bound the window asked about: From ≤ t < To.
	From, To time.Time
	// Now is the host's time of asking; use it in place of time.Now.
	Now time.Time
	// Location is the zone to show times in, never nil. It is UTC when the
	// zone is unknown here; Timezone then still has its name.
	Location *time.Location
	// Timezone is the IANA name of the zone.
	Timezone string
	// MaxOutputTokens is the size to keep to; the host cuts what is longer.
	// Package abi/tokens estimates as the host does.
	MaxOutputTokens int
	// Config holds the operator's values, of the types that the manifest
	// declares: string, int64, float64, bool, []string.
	Config map[string]any
	// Subject is opaque and stable for this hand and one user.
	Subject string
}

// Handler answers one query. An empty text means that there is nothing to say.
// The message of an error is shown to the operator as external text.
type Handler func(ctx context.Context, q Query) (string, error)

var registered Handler

// Register makes f the hand's answer. Call it once, from init.
func Register(f Handler) {
	if registered != nil {
		panic("hand: Register called twice")
	}
	registered = f
}

// Logf writes one line to the query's log, which the operator can read. Levels
// are those of package abi.
func Logf(level abi.Level, format string, args ...any) {
	guest.Log(int32(level), fmt.Sprintf(format, args...))
}

var errNotRegistered = errors.New("no handler: call hand.Register in init")

func answer(ctx context.Context, query []byte) (string, error) {
	if registered == nil {
		return "", errNotRegistered
	}
	q, err := parseQuery(query)
	if err != nil {
		return "", err
	}
	return registered(ctx, q)
}
