package gateway

import (
	"net/http"
	"time"

	"github.com/gloveboxhq/glovebox/host"
)

// Bounds are those of a handler that a test may change; zero leaves one as it is.
type Bounds struct {
	// Alive is how long a stream is silent before it says that it lives.
	Alive time.Duration
	// Room is how many bytes of bodies may be in memory.
	Room int
}

// NewFor is New with something in place of the host.
func NewFor(c Config, h relayer, b Bounds) http.Handler {
	s := newServer(c, h)
	if b.Alive != 0 {
		s.alive = b.Alive
	}
	if b.Room != 0 {
		s.room = newAllotment(b.Room)
	}
	return s.handler()
}

// The bounds of a body.
const (
	MaxBody   = maxBody
	MaxBodies = maxBodies
	MaxDepth  = maxDepth
	MaxValues = maxValues
)

// ParseChat reads the body of a request for a chat completion.
func ParseChat(body []byte) (*host.Conversation, error) {
	var asked chatRequest
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	c := new(host.Conversation)
	return c, asked.fill(c)
}
