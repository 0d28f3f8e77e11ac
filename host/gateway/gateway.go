// Package gateway speaks the APIs of model providers and answers with a host: a
// program that points its base URL here has its conversations kept, compacted,
// brought up to date and assembled without knowing of it. docs/gateway.md says what
// of each API is understood.
//
// chat.go has OpenAI's chat completions, responses.go its responses, messages.go
// Anthropic's messages. Each turns a request into a host.Conversation and the answer
// back, in its own words for errors and streams.
package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// Config sets up a handler. Host, HostConfig and User are needed.
type Config struct {
	Host *host.Host
	// HostConfig is the one that Host was opened with.
	HostConfig host.Config
	// User returns whose request it is, out of its context.
	User func(context.Context) memory.UserID
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

// Patterns are what New's handler is to be mounted at.
var Patterns = []string{"/v1/"}

// SessionHeader names the session in a request, as host.Conversation.Session, and
// says in the answer which one it was, by its id.
const SessionHeader = "Glovebox-Session"

// New returns the handler of /v1. It is safe for concurrent use.
//
// A model is the name of an agent, or the configuration's name of the model, which
// is the first agent's. Answers name the model as they were asked.
func New(c Config) http.Handler {
	return http.NotFoundHandler()
}

// Refuse answers what was refused before it came to the handler, in the form of the
// API that was called.
func Refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	http.Error(w, detail, status)
}
