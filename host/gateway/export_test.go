package gateway

import (
	"net/http"
	"time"
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
