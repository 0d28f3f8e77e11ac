package hand

import (
	"fmt"
	"time"

	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

var warmers []func()

// Warm has f called before the first query, on a host that keeps an image of
// the started hand and has each query begin as a copy of it: compile patterns,
// load zones, read tables there, and no query does it again. Call Warm from
// init; the functions are called in the order in which they came.
//
// f may also never be called, so let it only do early what answering does
// anyway, as a sync.OnceValue can. When it is called there is no query and no
// capability: a function of this SDK that asks the host, Logf among them, ends
// the warming, as do a panic and os.Exit, and queries begin as if nothing had
// been warmed. Chance and time are not real yet. The seeds of math/rand, of maps
// and of hash/maphash are older than the image, so what these give in one query
// they give in every other; crypto/rand and time.Now are live in the query.
//
// If f leaves megabytes of garbage behind, let it end with runtime.GC: a query
// collects when the heap comes to 4 MiB, what f left included.
func Warm(f func()) { warmers = append(warmers, f) }

// warm is glovebox_warm_v1. A panic is not held back: the host then drops what
// was left half done. The SDK's own part is last, to leave the allocator as it
// wants it.
//
// There is no garbage collection at its end, though there is garbage: one
// empties the allocator's caches and the pools and shrinks the stack, all of
// which each query then pays for again. After one, the sample hand's query used
// 1.8 times the fuel and wrote to 2.5 times the pages. One before the SDK's part
// made no difference to the sample and the bundled hands, nor did turning the
// collector off: few queries come to the 4 MiB at which it begins.
func warm() {
	for _, f := range warmers {
		f()
	}
	guest.Warm()
	warmQuery()
	warmAllocator()
}

// sampleQuery has every field of the contract and a configuration value of every
// type.
const sampleQuery = `{"prompt":"What is new?\n","from":"2026-03-22T09:00:00Z","to":"2026-03-23T09:00:00.5+01:00","now":"2026-03-23T09:00:00Z",` +
	`"timezone":"Europe/Berlin","max_output_tokens":1000,"config":{"s":"x","i":1,"f":1.5,"b":true,"l":["x"]},"subject":"x"}`

// warmQuery reads a query in both ways and writes what hands write: what
// encoding/json and fmt do first is many times what they do again.
func warmQuery() {
	if _, err := decodeQuery([]byte(sampleQuery)); err != nil {
		panic(err)
	}
	q, err := parseQuery([]byte(sampleQuery))
	if err != nil {
		panic(err)
	}
	warmed = fmt.Sprintf("%s %d %v %q %.1f", q.Prompt, q.MaxOutputTokens, q.Config, q.From.In(q.Location).Format(time.RFC3339), 1.5)
}

// warmAllocator allocates something of each small size, with and without
// pointers: the first of a size has the allocator take and set up pages for it.
// It saves the sample hand's query a third of the pages that it writes to.
func warmAllocator() {
	for size := 8; size <= 2048; size += max(8, size/8/8*8) {
		warmed = make([]byte, size)
		warmed = make([]*byte, size/8)
	}
	warmed = nil
}

// warmed has what is made in vain escape to the heap.
var warmed any
