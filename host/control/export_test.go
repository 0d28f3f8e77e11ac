package control

import "net/http"

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
