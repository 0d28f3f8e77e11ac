package control

import (
	"context"
	"net/http"

	"github.com/gloveboxhq/glovebox/memory"
)

// Route tells tests of one route.
type Route struct {
	Pattern    string
	Admin      bool
	Tokenless  bool
	Parameters []string
}

// Routes are all routes.
func Routes() []Route {
	var all []Route
	for _, r := range routes {
		all = append(all, Route{r.pattern, r.access == ForAdmin, r.access == ForAll, r.parameters})
	}
	return all
}

// LoggedIn reports whether a request's browser is let in.
func LoggedIn(l *Logins, r *http.Request) bool {
	_, err := l.tokenOf(r)
	return err == nil
}

// Probe is what /readyz asks of a store.
func Probe(store memory.Store) func(context.Context) error {
	return (&server{store: store, probing: make(chan struct{}, 1)}).probe
}
