// Package dashboard is the host in a browser: what the model sees and why, the
// hands and what they may do, conversations, users and what is remembered of them.
//
// Pages are made here and need no script to be read; assets/ has the style, one
// library that exchanges parts of pages, and the few lines that stream a chat.
// Everything is embedded, nothing is fetched from elsewhere. What a hand, a model or
// a person said stands in a page as text alone: templates escape it, and the
// policy of the pages lets no script in that is not an asset.
//
// Each room has a file with its routes, its handlers and what its template is
// given: overview.go, chat.go, sessions.go and session.go, hands.go, agents.go,
// users.go. page.go turns that into a page.
package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
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

// site answers all pages.
type site struct {
	host    *host.Host
	config  host.Config
	store   memory.Store
	logins  *control.Logins
	version string
	now     func() time.Time
	log     *slog.Logger
	mux     *http.ServeMux
}

// route is one pattern of the dashboard and what answers it. A pattern with {user}
// is of that user's data: the viewer's User is the one it names, and who may not
// look is told that there is no such user.
type route struct {
	pattern string
	access  control.Access
	handle  func(*site, http.ResponseWriter, *http.Request, viewer) error
}

// Mounts returns the parts of the dashboard: pages, those of them that need no
// token, and assets.
func Mounts(c Config) []control.Mount {
	s := &site{
		host: c.Host, config: c.HostConfig, store: c.Host.Store(), logins: c.Logins, version: c.Version, now: c.Now, log: c.Log,
		mux: http.NewServeMux(),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	patterns := map[control.Access][]string{}
	for _, r := range slices.Concat(shellRoutes, overviewRoutes, chatRoutes, sessionRoutes, handRoutes, agentRoutes, userRoutes) {
		patterns[r.access] = append(patterns[r.access], r.pattern)
		s.mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) {
			guardPage(w.Header())
			v, err := s.viewer(req, r.access)
			if err == nil {
				err = r.handle(s, w, req, v)
			}
			if err != nil {
				s.fail(w, req, v, err)
			}
		})
	}
	var mounts []control.Mount
	for _, access := range []control.Access{control.ForAll, control.ForUser, control.ForAdmin} {
		mounts = append(mounts, control.Mount{Patterns: patterns[access], Access: access, Handler: s.mux, Refuse: s.refuse})
	}
	return mounts
}

// viewer is who looks at a page, and whose data it shows. It is zero where nobody
// had to log in to see the page.
type viewer struct {
	Admin bool
	// Open says that nobody has to log in to this server.
	Open bool
	// Me is the caller; User is whose data the page is about: the one in its path,
	// else the caller.
	Me, User memory.User
	// users are all that the viewer may look at.
	users []memory.User
}

// Known reports whether anybody looks: not so before the login.
func (v viewer) Known() bool { return !v.Me.ID.IsZero() }

// Path is the address of something that belongs to the user, with elements that are
// escaped: Path("sessions", id).
func (v viewer) Path(elements ...any) string { return userPath(v.User.ID, elements...) }

func userPath(user memory.UserID, elements ...any) string {
	at := "/users/" + user.String()
	for _, e := range elements {
		at += "/" + url.PathEscape(fmt.Sprint(e))
	}
	return at
}

// viewer returns who sent a request, and the user in its path.
func (s *site) viewer(r *http.Request, access control.Access) (viewer, error) {
	if access == control.ForAll {
		return viewer{}, nil
	}
	caller := control.CallerOf(r.Context())
	v := viewer{Admin: caller.Admin, Open: caller.Open}
	users, err := s.store.Users(r.Context())
	if err != nil {
		return v, fmt.Errorf("read users: %w", err)
	}
	for _, u := range users {
		if u.ID == caller.User || caller.User.IsZero() && u.IsDefault {
			v.Me, v.User = u, u
		}
	}
	if v.users = users; !v.Admin {
		v.users = []memory.User{v.Me}
	}
	named := r.PathValue("user")
	if named == "" {
		return v, nil
	}
	i := slices.IndexFunc(v.users, func(u memory.User) bool {
		return u.ID.String() == named || u.IsDefault && named == memory.DefaultUserName
	})
	if i < 0 {
		return v, refused(http.StatusNotFound, "There is no such user.")
	}
	v.User = v.users[i]
	return v, nil
}

// agentOf returns the configured agent with an id.
func (s *site) agentOf(id memory.AgentID) (host.AgentInfo, bool) {
	for _, a := range s.host.Agents() {
		if a.ID == id {
			return a, true
		}
	}
	return host.AgentInfo{}, false
}

// sessionIn returns the session in the path, of the viewer's User.
func (s *site) sessionIn(ctx context.Context, r *http.Request, v viewer) (memory.Session, error) {
	id, err := memory.ParseID[memory.SessionID](r.PathValue("session"))
	if err != nil {
		return memory.Session{}, refused(http.StatusNotFound, "There is no such session.")
	}
	return s.store.Session(ctx, v.User.ID, id)
}
