package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gloveboxhq/glovebox/memory"
)

// Patterns are what NewHandler's handler is to be mounted at.
var Patterns = []string{"/mcp"}

const (
	// maxSessions bounds the sessions of all users, maxUserSessions those of one: who
	// opens many keeps nobody else out.
	maxSessions, maxUserSessions = 1000, 250
	// idleTimeout is how long a session lasts in which nothing is asked and to which
	// nobody listens.
	idleTimeout = 30 * time.Minute
	// keepAlive is how long a stream is silent at most: proxies take one that is
	// silent for longer for dead.
	keepAlive = 15 * time.Second
	// bodyTimeout is how long a message may take to come, writeTimeout how long a
	// reader may take for one piece of an answer.
	bodyTimeout, writeTimeout = 30 * time.Second, 30 * time.Second

	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	// sessionless is the first version of the protocol that knows no sessions.
	sessionless = "2026-07-28"
	eventStream = "text/event-stream"
)

// Handler is the server over streamable HTTP. It is to stand behind a door that
// knows who calls, and has looked at Host and Origin. It is safe for concurrent use.
//
// A session is its user's: to everybody else there is none of that id. Clients of
// protocol versions that know no sessions are answered without.
type Handler struct {
	config Config
	// stateful and alone answer with sessions and without.
	stateful, alone *sdk.StreamableHTTPHandler
	// idle and silence are idleTimeout and keepAlive but in tests.
	idle, silence time.Duration

	mu sync.Mutex
	// guarded by mu: the servers of those who called, and what is open.
	people   map[memory.UserID]*person
	sessions map[string]*session
	ended    bool
	// open counts sessions that have not ended.
	open sync.WaitGroup
}

// session is one that a client opened.
type session struct {
	*sdk.ServerSession
	of *person
	// guarded by Handler.mu: how many requests of it are being answered, and what
	// ends it while there are none.
	requests int
	idle     *time.Timer
}

// NewHandler returns the server over streamable HTTP.
func NewHandler(c Config) *Handler {
	h := &Handler{config: c, idle: idleTimeout, silence: keepAlive, people: map[memory.UserID]*person{}, sessions: map[string]*session{}}
	options := sdk.StreamableHTTPOptions{
		// One answer to each message: no tool has anything to say before its end.
		JSONResponse: true, MaxRequestBodyBytes: maxMessage,
		// The door has looked at the Host header, and knows which names are this server's.
		DisableLocalhostProtection: true,
	}
	h.stateful = sdk.NewStreamableHTTPHandler(serverOf, &options)
	options.Stateless, options.PropagateRequestCancellation = true, true
	h.alone = sdk.NewStreamableHTTPHandler(serverOf, &options)
	return h
}

// personKey is where the context of a request has its person.
type personKey struct{}

func serverOf(r *http.Request) *sdk.Server {
	if p, ok := r.Context().Value(personKey{}).(*person); ok {
		return p.server
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, err := h.person(r.Context(), h.config.user(r.Context()))
	if err != nil {
		if errors.Is(err, memory.ErrNotFound) {
			refuse(w, http.StatusNotFound, "there is no such user")
			return
		}
		h.config.log().ErrorContext(r.Context(), "mcp", "error", err)
		refuse(w, http.StatusInternalServerError, "internal error")
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), personKey{}, p))
	out := &answerWriter{ResponseWriter: w, connection: http.NewResponseController(w), begun: h.begun}
	defer func() { _ = out.connection.SetWriteDeadline(time.Time{}) }()
	switch r.Method {
	case http.MethodPost:
		if !readMessage(out, r) {
			return
		}
		if r.Header.Get(versionHeader) >= sessionless {
			h.alone.ServeHTTP(out, r)
			return
		}
	case http.MethodGet, http.MethodDelete:
	default:
		w.Header().Set("Allow", "DELETE, GET, POST")
		refuse(w, http.StatusMethodNotAllowed, "use DELETE, GET or POST")
		return
	}
	if id := r.Header.Get(sessionHeader); id != "" {
		release, ok := h.use(id, p)
		if !ok {
			refuse(w, http.StatusNotFound, "there is no such session: begin a new one")
			return
		}
		defer release()
	}
	if r.Method == http.MethodGet {
		defer out.keepAlive(h.silence)()
	}
	h.stateful.ServeHTTP(out, r)
}

// Close ends all sessions, when what is being answered in them has been, and lets no
// more begin. Those who listen are let go.
func (h *Handler) Close() {
	h.mu.Lock()
	h.ended = true
	var all []*session
	for _, s := range h.sessions {
		all = append(all, s)
	}
	h.mu.Unlock()
	for _, s := range all {
		go s.Close()
	}
	h.open.Wait()
}

// person returns the server of a user, which is made at the first request and
// offers what is in force.
func (h *Handler) person(ctx context.Context, user memory.UserID) (*person, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := h.people[user]; ok {
		return p, p.refresh(ctx)
	}
	p, err := h.config.person(ctx, user)
	if err != nil {
		return nil, err
	}
	p.server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			if s, ok := r.GetSession().(*sdk.ServerSession); ok && method == "initialize" && s.ID() != "" {
				if err := h.begin(s, p); err != nil {
					return nil, err
				}
			}
			return next(ctx, method, r)
		}
	})
	h.people[user] = p
	return p, nil
}

// begin counts a session that a client opens.
func (h *Handler) begin(opened *sdk.ServerSession, p *person) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, own := opened.ID(), 0
	for _, s := range h.sessions {
		if s.of == p {
			own++
		}
	}
	switch {
	case h.sessions[id] != nil:
		return nil // it says so again, which the protocol decides about
	case h.ended:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the server is stopping"}
	case own >= maxUserSessions || len(h.sessions) >= maxSessions:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "too many sessions are open: end one, or come back later"}
	}
	s := &session{ServerSession: opened, of: p}
	s.idle = time.AfterFunc(h.idle, func() { _ = s.Close() })
	h.sessions[id] = s
	h.open.Go(func() {
		_ = s.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		s.idle.Stop()
		delete(h.sessions, id)
	})
	return nil
}

// begun reports whether begin let a session begin that is still open.
func (h *Handler) begun(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id] != nil
}

// use finds a session of a person, which does not end for being idle until it is
// released.
func (h *Handler) use(id string, p *person) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[id]
	if s == nil || s.of != p || s.requests == 0 && !s.idle.Stop() {
		return nil, false
	}
	s.requests++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.requests--; s.requests == 0 && h.sessions[id] == s {
			s.idle.Reset(h.idle)
		}
	}, true
}

// readMessage reads the message of a request, within bounds of size and time, and
// puts it back; if there is none that can be read further, it has answered why.
func readMessage(w *answerWriter, r *http.Request) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "send the message as application/json")
		return false
	}
	_ = w.connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w.ResponseWriter, r.Body, maxMessage))
	// Lifted, so that a client that goes away during a call is noticed.
	_ = w.connection.SetReadDeadline(time.Time{})
	if err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			refuse(w, http.StatusRequestEntityTooLarge, "the message is too long")
		} else {
			refuse(w, http.StatusBadRequest, "the message did not come whole")
		}
		return false
	}
	// The standard library bounds how deep a message nests; what decodes it after
	// this does not. Batches, which one version of the protocol had, would be many
	// calls for the price of one request.
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(body) {
		refuse(w, http.StatusBadRequest, "the body is not one JSON object")
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}

// refuse answers a request that does not come to the protocol, in its form.
func refuse(w http.ResponseWriter, status int, why string) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": jsonrpc.CodeInvalidRequest, "message": why}})
	if err != nil {
		body = nil // of strings and numbers: it cannot be
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// answerWriter gives each piece of an answer writeTimeout, and may keep a stream of
// events alive. It is safe for concurrent use once the header is written.
type answerWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
	// begun is Handler.begun.
	begun func(session string) bool

	mu sync.Mutex
	// guarded by mu: that the answer is a stream.
	streams bool
}

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = w.Header().Get("Content-Type") == eventStream
	w.amend()
	w.ResponseWriter.WriteHeader(status)
}

// amend changes what the SDK says of an answer, as long as its header is not sent: it
// would have others keep what is somebody's, and name a session that was refused.
func (w *answerWriter) amend() {
	header := w.Header()
	header.Set("Cache-Control", "no-store, no-transform")
	if id := header.Get(sessionHeader); id != "" && !w.begun(id) {
		header.Del(sessionHeader)
	}
}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.amend()
	_ = w.connection.SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (w *answerWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.connection.SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.connection.Flush()
}

// keepAlive writes a comment to the stream again and again, until stop is called,
// which must be before the request is over. There is no account of what else was
// written, for the server says nothing there by itself.
func (w *answerWriter) keepAlive(every time.Duration) (stop func()) {
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				w.comment(now)
			}
		}
	})
	return func() {
		close(done)
		writing.Wait()
	}
}

func (w *answerWriter) comment(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.streams {
		return
	}
	_ = w.connection.SetWriteDeadline(now.Add(writeTimeout))
	// A reader that has gone ends the request by itself.
	if _, err := io.WriteString(w.ResponseWriter, ": still here\n\n"); err == nil {
		_ = w.connection.Flush()
	}
}
