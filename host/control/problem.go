package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// problem is what a request is refused with: problem details as RFC 9457 has
// them. It is an error, so that handlers return it like any other.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is in the host's own words and names nothing that the caller did not.
	Detail string `json:"detail,omitempty"`
	// Kind is that of a hand that failed, Said its own account.
	Kind abi.Kind         `json:"kind,omitempty"`
	Said boundary.Content `json:"said,omitzero"`
	// Session is where a message is kept that has no answer.
	Session memory.SessionID `json:"session,omitzero"`

	// header goes out with it.
	header http.Header
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// refuse makes a problem. Its type is about:blank: that of the status alone.
func refuse(status int, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// with adds a header.
func (p *problem) with(name string, values ...string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header[http.CanonicalHeaderKey(name)] = values
	return p
}

// What more than one place says. They are functions, for a problem is not shared.
func noUser() *problem    { return refuse(http.StatusNotFound, "no such user") }
func noAgent() *problem   { return refuse(http.StatusNotFound, "no such agent") }
func noTopic() *problem   { return refuse(http.StatusNotFound, "nothing is remembered of that topic") }
func noSession() *problem { return refuse(http.StatusNotFound, "the user has no such session") }

// problemOf is the one place where errors become statuses. What it does not know
// is an internal error to the outside, and known is false: the log has the rest.
// Only of memory.ErrInvalid are the words told, which are about what the caller
// sent; other errors may name what is somebody else's.
func problemOf(err error) (_ *problem, known bool) {
	if p, ok := errors.AsType[*problem](err); ok {
		return p, true
	}
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "the body is longer than "+bytesText(tooLong.Limit)), true
	}
	for _, rule := range []struct {
		is     error
		status int
		detail string
	}{
		// A wipe ends what goes on with other errors too: it is the reason.
		{memory.ErrWiped, http.StatusConflict, "what is this user's is being removed"},
		{errPrecondition, http.StatusPreconditionFailed, "it has changed since it was read"},
		{memory.ErrConflict, http.StatusConflict, "it was changed in the meantime, or an id of it is taken"},
		{dream.ErrBusy, http.StatusConflict, "another dream for this agent and user is going on"},
		{memory.ErrNotFound, http.StatusNotFound, "there is no such thing"},
		{host.ErrClosed, http.StatusServiceUnavailable, "the server is stopping"},
		{ErrDamaged, http.StatusServiceUnavailable, "the tokens cannot be read: the server's log says why"},
		{memory.ErrReadOnly, http.StatusServiceUnavailable, "nothing can be stored: the server's log says why"},
		{llm.ErrContextTooLong, http.StatusRequestEntityTooLarge, "the message is too long for the model"},
		{llm.ErrRateLimited, http.StatusServiceUnavailable, llm.ErrRateLimited.Error()},
		{llm.ErrUnavailable, http.StatusBadGateway, llm.ErrUnavailable.Error()},
		{llm.ErrAuth, http.StatusBadGateway, llm.ErrAuth.Error()},
		{llm.ErrEmpty, http.StatusBadGateway, llm.ErrEmpty.Error()},
		{llm.ErrRefused, http.StatusBadGateway, llm.ErrRefused.Error()},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, "it took too long"},
		// Of a caller who went away nobody reads it.
		{context.Canceled, http.StatusServiceUnavailable, "the server is stopping"},
	} {
		if errors.Is(err, rule.is) {
			return refuse(rule.status, rule.detail), true
		}
	}
	if errors.Is(err, memory.ErrInvalid) {
		return refuse(http.StatusBadRequest, err.Error()), true
	}
	return refuse(http.StatusInternalServerError, "internal error"), false
}

// StatusOf is what an error is to the outside: a status of HTTP, and words that name
// nothing that the caller did not. Known is false for one that is internal: only the
// log has its words.
func StatusOf(err error) (status int, detail string, known bool) {
	p, known := problemOf(err)
	return p.Status, p.Detail, known
}

// handProblem is what the failure of a hand is. Of what the host says of it, which
// may name directories and servers, others than the operator learn the kind.
func handProblem(failed *abi.Error, said boundary.Content, admin bool) *problem {
	status := http.StatusBadGateway
	switch failed.Kind {
	case abi.KindUnknownHand:
		status = http.StatusNotFound
	case abi.KindNotGranted, abi.KindDisabled:
		status = http.StatusForbidden
	case abi.KindBadRequest:
		status = http.StatusBadRequest
	case abi.KindTimeout, abi.KindOutOfFuel:
		status = http.StatusGatewayTimeout
	case abi.KindBusy, abi.KindHostClosed:
		status = http.StatusServiceUnavailable
	}
	p := refuse(status, failed.Kind.Error())
	if admin && failed.Text != "" {
		p.Detail = failed.Text
	}
	p.Kind, p.Said = failed.Kind, said
	return p
}

// logged are statuses that an operator wants to know the reason of.
func (p *problem) logged() bool { return p.Status >= http.StatusInternalServerError }

// refusalOf returns how the mount that a request is for refuses it; nil for one
// that takes problem details. Where there is no route, a person who typed an address
// is told by the front page's mount.
func (s *server) refusalOf(r *http.Request) refusal {
	_, pattern := s.routes.Handler(r)
	if pattern == "" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		pattern = frontPage
	}
	return s.refusals[pattern]
}

// frontPage is the pattern of the page at the root.
const frontPage = "GET /{$}"

// fail answers with what an error is to the outside.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, known := problemOf(err)
	if at, ok := errors.AsType[inSession](err); ok {
		p = new(*p)
		p.Session = at.session
	}
	if r.Context().Err() != nil && (!known || errors.Is(err, context.Canceled)) {
		// Who has gone does not read it; who only closed its half of the connection does,
		// which is all that is left of it.
		s.write(w, r, refuse(http.StatusBadRequest, "the request was over before its answer: keep both halves of the connection open until it has come"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if !known || p.logged() {
		s.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Int("status", p.Status), slog.Any("error", err))
	}
	s.write(w, r, p)
}

func (s *server) write(w http.ResponseWriter, r *http.Request, p *problem) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	if refuse := s.refusalOf(r); refuse != nil {
		refuse(w, r, p.Status, p.Detail)
		return
	}
	body, err := encodeJSON(p)
	if err != nil {
		body = []byte("{}\n") // strings and a number are always JSON
	}
	_ = writeBody(w, p.Status, "application/problem+json", body)
}
