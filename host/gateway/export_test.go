package gateway

import (
	"net/http"
	"time"

	"github.com/gloveboxhq/glovebox/host"
)

// NewFor is New with something in place of the host; its streams say that they live
// that often.
func NewFor(c Config, h relayer, alive time.Duration) http.Handler {
	s := newServer(c, h)
	s.alive = alive
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
func ParseChat(body []byte) (host.Conversation, error) {
	var asked chatRequest
	if err := decode(body, &asked); err != nil {
		return host.Conversation{}, err
	}
	var c host.Conversation
	return c, asked.fill(&c)
}
