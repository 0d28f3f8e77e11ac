// Package control serves a host over HTTP: the users and what is remembered of
// them, the agents, and conversations. docs/control.md describes the routes, the
// document at /openapi.json too.
package control

import (
	"log/slog"
	"net/http"

	"github.com/gloveboxhq/glovebox/host"
)

// Config sets up a handler.
type Config struct {
	Host *host.Host
	// Tokens are who may call. With none at all, everybody may do everything: it
	// is for the caller to listen on loopback alone then.
	Tokens *Tokens
	// Hosts are what a request's Host header may say, with or without a port.
	Hosts []string
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

// New returns the handler of all routes. It is safe for concurrent use.
func New(c Config) http.Handler { return http.NotFoundHandler() }
