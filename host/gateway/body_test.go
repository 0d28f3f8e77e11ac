package gateway_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/memory"
)

// Whoever takes and gives in whatever order, there are never more bytes out than
// there are, nor more than half of them with one user, nobody is refused what there
// is, and of who gave all back nothing is kept.
func TestRoomForBodies(t *testing.T) {
	users := make([]memory.UserID, 5)
	for i := range users {
		users[i] = memory.NewID[memory.UserID]()
	}
	rapid.Check(t, func(t *rapid.T) {
		const size = 100
		room := gateway.NewAllotment(size)
		out, has := 0, map[memory.UserID][]int{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			user := rapid.SampledFrom(users).Draw(t, "user")
			if pieces := has[user]; rapid.Bool().Draw(t, "give") {
				n := 0 // as of a body of which nothing came
				if len(pieces) > 0 {
					n, has[user] = pieces[0], pieces[1:]
				}
				room.Give(user, n)
				out -= n
			} else {
				n, own := rapid.IntRange(1, size).Draw(t, "bytes"), 0
				for _, piece := range pieces {
					own += piece
				}
				fits := out+n <= size && own+n <= size/2
				if room.Take(user, n) != fits {
					t.Fatalf("%d bytes, with %d out, %d of them the user's: taken %t", n, out, own, !fits)
				}
				if fits {
					has[user] = append(pieces, n)
					out += n
				}
			}
			holders := 0
			for _, pieces := range has {
				if len(pieces) > 0 {
					holders++
				}
			}
			if known := room.Known(); known != holders {
				t.Fatalf("%d users have bytes, and %d are known", holders, known)
			}
		}
	})
}
