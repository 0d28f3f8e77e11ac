// Package control serves a host over HTTP: the users and what is remembered of
// them, the agents, and conversations. docs/control.md describes the routes, the
// document at /openapi.json too.
//
// A request passes one door (door.go), which looks at where it comes from and who
// sends it before anything is looked up, then one route of the table below. Errors
// become answers in one place (problem.go).
package control

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// Config sets up a handler. Host, HostConfig and Tokens are needed.
type Config struct {
	Host *host.Host
	// HostConfig is the one that Host was opened with; reports of what a model is
	// shown are made by it.
	HostConfig host.Config
	// Tokens are who may call.
	Tokens *Tokens
	// Logins are the browsers that may call without sending a token; nil means none.
	Logins *Logins
	// Open lets everybody do everything for as long as no token was ever created;
	// without it nobody gets in then. It is for a handler that is reached through
	// loopback alone.
	Open bool
	// Hosts are what a request's Host header may say, with or without a port: one
	// without stands for every port. The address that a connection was made to, and
	// localhost on loopback, may be said as well.
	Hosts []string
	// Mounts are answered by other packages.
	Mounts []Mount
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log takes what an operator may want to know, and a line for each request; nil
	// discards it.
	Log *slog.Logger
	// Meter and Tracer measure requests; nil means that nobody does.
	Meter  metric.MeterProvider
	Tracer trace.TracerProvider
	// Ending is done when the server is to stop: /readyz says so from then on, and
	// streams that only listen end. Nil means never.
	Ending context.Context
}

// server is the handler of all routes.
type server struct {
	host   *host.Host
	config host.Config
	store  memory.Store
	tokens *Tokens
	logins *Logins
	open   bool
	hosts  map[string]bool
	now    func() time.Time
	log    *slog.Logger
	// ending may be nil; probing has room for the one read of /readyz.
	ending  context.Context
	probing chan struct{}

	routes *http.ServeMux
	// tokenless are the patterns of routes that need no token.
	tokenless map[string]bool
	// refusals are those of mounts, by pattern.
	refusals map[string]refusal
	// importing bounds how many imports are in memory at once; importers has the
	// users whose imports they are, by memory.UserID.
	importing chan struct{}
	importers sync.Map
}

// maxImports is how many imports, of up to transfer.MaxMemoryDocument each, are
// taken at once, of different users: who sends one slowly does not keep the others
// waiting.
const maxImports = 4

// New returns the handler of all routes. It is safe for concurrent use.
func New(c Config) http.Handler {
	s := &server{
		host: c.Host, config: c.HostConfig, store: c.Host.Store(), tokens: c.Tokens, logins: c.Logins, open: c.Open, now: c.Now, log: c.Log,
		hosts: map[string]bool{}, tokenless: map[string]bool{}, refusals: map[string]refusal{}, routes: http.NewServeMux(), importing: make(chan struct{}, maxImports),
		ending: c.Ending, probing: make(chan struct{}, 1),
	}
	for _, name := range c.Hosts {
		s.hosts[strings.ToLower(name)] = true
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, route := range routes {
		s.tokenless[route.pattern] = route.access == ForAll
		s.routes.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := s.enter(route, w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	for _, m := range c.Mounts {
		s.mount(m)
	}
	s.log = slog.New(LogHandler(s.log.Handler()))
	return observe(s, s.log, c)
}

// mount adds the routes of another package.
func (s *server) mount(m Mount) {
	for _, pattern := range m.Patterns {
		s.tokenless[pattern] = m.Access == ForAll
		if m.Refuse != nil {
			s.refusals[pattern] = m.Refuse
		}
		s.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if m.Access == ForAdmin && !callerOf(r.Context()).admin {
				s.fail(w, r, onlyAdmin())
				return
			}
			liftDeadlines(w, r)
			m.Handler.ServeHTTP(w, r)
		})
	}
}

// refusal answers what the door refuses.
type refusal func(w http.ResponseWriter, r *http.Request, status int, detail string)

// Mount is a part of the server that another package answers, behind the same door.
type Mount struct {
	// Patterns are those of http.ServeMux, without a host.
	Patterns []string
	Access   Access
	// Handler finds who called by CallerOf. It bounds what it reads and how long it
	// waits for it.
	Handler http.Handler
	// Refuse answers what the door refuses, in the form that callers of the mount know;
	// nil means problem details. Headers that belong to the refusal are set.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, detail string)
}

// Caller is who sent a request that the door let in.
type Caller struct {
	// Admin may do everything, also in the name of others.
	Admin bool
	// User is whose the token is; of a caller without one, the default user.
	User memory.UserID
	// Open says that nobody has a token, and so nobody is asked for one.
	Open bool
}

// CallerOf returns who sent a request. It is the zero Caller where nobody had to
// have a token.
func CallerOf(ctx context.Context) Caller {
	c := callerOf(ctx)
	return Caller{Admin: c.admin, User: c.user, Open: c.open}
}

// Access is who may use a route.
type Access int

const (
	// ForAdmin is the zero value: what nobody thought about is the operator's.
	ForAdmin Access = iota
	// ForUser is for the user in the path, where there is one, and the operator.
	ForUser
	// ForAll needs no token.
	ForAll
)

// route is one pattern of the interface and what answers it.
type route struct {
	pattern string
	access  Access
	handle  func(*server, http.ResponseWriter, *http.Request, place) error
	// parameters are what may stand in the query.
	parameters []string
}

// place is what a request names, found and allowed.
type place struct {
	query *query
	user  memory.User
	// agent is zero where the path names none.
	agent host.AgentInfo
}

// routes is the whole interface. openapi.json describes it; a test holds the two
// against each other.
var routes = []route{
	{"GET /healthz", ForAll, (*server).health, nil},
	{"GET /readyz", ForAll, (*server).ready, nil},
	{"GET /openapi.json", ForAll, (*server).document, nil},

	{"GET /api/status", ForAdmin, (*server).status, nil},
	{"GET /api/agents", ForAdmin, (*server).agents, nil},
	{"GET /api/agents/{agent}", ForAdmin, (*server).agent, nil},
	{"PATCH /api/agents/{agent}/config", ForAdmin, (*server).configureAgent, nil},

	{"GET /api/hands", ForAdmin, (*server).hands, nil},
	{"GET /api/hands/{hand}", ForAdmin, (*server).hand, nil},
	{"GET /api/hands/{hand}/runs", ForAdmin, (*server).runs, []string{"after", "limit"}},
	{"GET /api/hands/{hand}/refusals", ForAdmin, (*server).refusedCalls, []string{"after", "limit"}},
	{"POST /api/users/{user}/hands/{hand}/query", ForUser, (*server).queryHand, nil},

	{"GET /api/users", ForAdmin, (*server).users, nil},
	{"DELETE /api/users/{user}", ForUser, (*server).wipeUser, nil},
	{"GET /api/users/{user}/export", ForUser, (*server).exportUser, nil},

	{"GET /api/users/{user}/memory", ForUser, (*server).topics, nil},
	{"DELETE /api/users/{user}/memory", ForUser, (*server).wipeMemory, nil},
	{"GET /api/users/{user}/memory/audit", ForUser, (*server).audit, []string{"after", "limit"}},
	{"GET /api/users/{user}/memory/export", ForUser, (*server).exportMemory, nil},
	{"POST /api/users/{user}/memory/import", ForUser, (*server).importMemory, nil},
	{"GET /api/users/{user}/memory/{topic}", ForUser, (*server).topic, nil},
	{"PUT /api/users/{user}/memory/{topic}", ForUser, (*server).putTopic, nil},
	{"DELETE /api/users/{user}/memory/{topic}", ForUser, (*server).deleteTopic, nil},
	{"GET /api/users/{user}/agents/{agent}/memory", ForUser, (*server).topics, nil},
	{"DELETE /api/users/{user}/agents/{agent}/memory", ForUser, (*server).wipeMemory, nil},
	{"GET /api/users/{user}/agents/{agent}/memory/{topic}", ForUser, (*server).topic, nil},
	{"PUT /api/users/{user}/agents/{agent}/memory/{topic}", ForUser, (*server).putTopic, nil},
	{"DELETE /api/users/{user}/agents/{agent}/memory/{topic}", ForUser, (*server).deleteTopic, nil},

	{"POST /api/users/{user}/chat", ForUser, (*server).chat, nil},
	{"GET /api/users/{user}/sessions", ForUser, (*server).sessions, []string{"limit"}},
	{"GET /api/users/{user}/sessions/{session}", ForUser, (*server).session, []string{"after", "limit"}},
	{"GET /api/users/{user}/sessions/{session}/context", ForUser, (*server).context, nil},
	{"GET /api/users/{user}/sessions/{session}/summaries/{summary}", ForUser, (*server).summary, nil},
	{"GET /api/users/{user}/sessions/{session}/compactions", ForUser, (*server).compactions, []string{"limit"}},
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guardAnswer(w.Header())
	if err := s.cameHere(r); err != nil {
		s.fail(w, r, err)
		return
	}
	// Who may not come in does not learn which routes there are.
	pattern, missing := s.find(r)
	visitOf(r.Context()).route = pattern
	if !s.tokenless[pattern] {
		c, err := s.caller(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		visitOf(r.Context()).token = c.token
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
	}
	if missing != nil {
		s.fail(w, r, missing)
		return
	}
	s.routes.ServeHTTP(w, r)
}

// find returns the pattern of the route, or a problem where there is none. A path is
// taken as it is written: what is nearly a route is none, and nobody is redirected.
func (s *server) find(r *http.Request) (pattern string, missing error) {
	written := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(written, "/api/users/"); ok {
		switch user, _, _ := strings.Cut(rest, "/"); strings.ToLower(user) {
		case "", ".", "..", slash:
			return "", badUser()
		}
	}
	if path.Clean(written) != written {
		return "", noRoute()
	}
	if before, ok := strings.CutSuffix(strings.ToLower(written), "/"+slash); ok {
		// The mux takes a segment that is a slash for the end of the path: a topic
		// of that name is found with the space that its name does not keep.
		r.URL.RawPath = written[:len(before)+1] + slash + "%20"
		r.URL.Path += " "
	}
	handler, pattern := s.routes.Handler(r)
	if pattern != "" {
		return pattern, nil
	}
	// The mux knows which methods there are instead, and says so in its answer.
	var answer muxAnswer
	handler.ServeHTTP(&answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		return "", noMethod(answer.header.Get("Allow"))
	}
	return "", noRoute()
}

// slash is one within a segment.
const slash = "%2f"

func noRoute() *problem { return refuse(http.StatusNotFound, "no such route") }

func noMethod(allowed string) *problem {
	return refuse(http.StatusMethodNotAllowed, "use "+allowed).with("Allow", allowed)
}

// muxAnswer keeps what the mux answers to a request that it has no route for.
type muxAnswer struct {
	header http.Header
	status int
}

func (a *muxAnswer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

func (a *muxAnswer) WriteHeader(status int) { a.status = status }

func (a *muxAnswer) Write(b []byte) (int, error) { return len(b), nil }

// enter lets a caller that was admitted into a route, or not: who may not learn of
// something is told that it is not there before it is looked for.
func (s *server) enter(route route, w http.ResponseWriter, r *http.Request) error {
	caller := callerOf(r.Context())
	var at place
	var err error
	switch {
	case route.access == ForAdmin && !caller.admin:
		return onlyAdmin()
	case route.access == ForUser:
		if at.user, err = s.userAt(r, caller); err != nil {
			return err
		}
	}
	if name := r.PathValue("agent"); name != "" {
		if at.agent, err = s.agentAt(name); err != nil {
			return err
		}
	}
	if at.query = queryOf(r, route.parameters...); at.query.err != nil {
		return at.query.err
	}
	if err := conditions(r); err != nil {
		return err
	}
	liftDeadlines(w, r)
	return route.handle(s, w, r, at)
}

// liftDeadlines leaves the deadlines of a connection to whoever reads or writes it:
// the handler may take its time, and the last request's are over.
func liftDeadlines(w http.ResponseWriter, r *http.Request) {
	connection := http.NewResponseController(w)
	_ = connection.SetWriteDeadline(time.Time{})
	if r.Body == http.NoBody {
		_ = connection.SetReadDeadline(time.Time{})
	}
}

func onlyAdmin() *problem { return refuse(http.StatusForbidden, "this is for the scope admin") }

// conditions refuses a condition that no route looks at: to change something as if
// it had not been made is what the caller wanted to be kept from.
func conditions(r *http.Request) error {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
	case len(r.Header.Values("If-None-Match")) > 0:
		return refuse(http.StatusBadRequest, "If-None-Match is for GET")
	case len(r.Header.Values("If-Match")) > 0 && r.Method != http.MethodPut:
		return refuse(http.StatusBadRequest, "If-Match is for PUT")
	}
	return nil
}

func badUser() *problem {
	return refuse(http.StatusBadRequest, "a user is named by a UUID, or is "+memory.DefaultUserName)
}

// userAt returns the user in the path. To somebody else's token every other user
// is one who is not known, without a look.
func (s *server) userAt(r *http.Request, c caller) (memory.User, error) {
	var id memory.UserID
	if name := r.PathValue("user"); name == memory.DefaultUserName {
		standard, err := s.host.User("")
		if err != nil {
			return memory.User{}, err
		}
		id = standard.ID
	} else if parsed, err := memory.ParseID[memory.UserID](name); err == nil {
		id = parsed
	} else {
		return memory.User{}, badUser()
	}
	if !c.admin && id != c.user {
		return memory.User{}, noUser()
	}
	users, err := s.store.Users(r.Context())
	if err != nil {
		return memory.User{}, err
	}
	for _, u := range users {
		if u.ID == id {
			return u, nil
		}
	}
	return memory.User{}, noUser()
}

// agentAt returns the configured agent of that name.
func (s *server) agentAt(name string) (host.AgentInfo, error) {
	for _, a := range s.host.Agents() {
		if a.Name == name {
			return a, nil
		}
	}
	return host.AgentInfo{}, noAgent()
}

// callerKey is where a request's context has its caller.
type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}
