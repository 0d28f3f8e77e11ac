// Package mcp offers a host's hands and memory to clients of the Model Context
// Protocol, over HTTP and over standard input and output. docs/mcp.md lists the
// tools. What comes from hands, and what was said in conversations, stands in the
// frame of external text.
package mcp

import (
	"context"
	"log/slog"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// Config sets up a server. Host is needed.
type Config struct {
	Host *host.Host
	// User returns whose request it is, out of its context; nil means the default
	// user's.
	User func(context.Context) memory.UserID
	// Version is what clients are told of this program.
	Version string
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

// Patterns are what NewHandler's handler is to be mounted at.
var Patterns = []string{"/mcp"}

// NewHandler returns the server over streamable HTTP. It is safe for concurrent use.
func NewHandler(c Config) http.Handler {
	return http.NotFoundHandler()
}

// Serve answers one client over a transport, until ctx is done or the client has
// gone.
func Serve(ctx context.Context, c Config, t sdk.Transport) error {
	return nil
}
