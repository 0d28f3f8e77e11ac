// Package dashboard is the host in a browser: what the model sees and why, the
// hands and what they may do, conversations, users and what is remembered of them.
//
// Pages are made here and need no script to be read; assets/ has the style, one
// library that exchanges parts of pages, and the few lines that stream a chat.
// Everything is embedded, nothing is fetched from elsewhere. What a hand, a model or
// a person said stands in a page as text alone: templates escape it, and the
// policy of the pages lets no script in that is not an asset.
package dashboard

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
)

// Config sets up a handler. Host, HostConfig and Logins are needed.
type Config struct {
	Host *host.Host
	// HostConfig is the one that Host was opened with.
	HostConfig host.Config
	// Logins exchanges tokens for the cookies of browsers.
	Logins *control.Logins
	// Version is that of the program.
	Version string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

// Mounts returns the parts of the dashboard: pages, those of them that need no
// token, and assets.
func Mounts(c Config) []control.Mount {
	return []control.Mount{{Patterns: []string{"GET /{$}"}, Access: control.ForUser, Handler: http.NotFoundHandler()}}
}
