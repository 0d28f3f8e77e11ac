// Package gateway speaks the APIs of model providers and answers with a host: a
// program that points its base URL here has its conversations kept, compacted,
// brought up to date and assembled without knowing of it. docs/gateway.md says what
// of each API is understood.
//
// chat.go has OpenAI's chat completions, responses.go its responses, messages.go
// Anthropic's messages. Each turns a request into a host.Conversation and the answer
// back, in its own words for errors and streams: body.go reads what is sent,
// fault.go says what went wrong, stream.go answers while the model speaks.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
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

// Patterns are what New's handler is to be mounted at: the routes that there are, so
// that who counts requests tells them apart, and all that is none below /v1.
var Patterns = patterns()

func patterns() []string {
	all := []string{"/v1/"}
	for _, route := range routes {
		all = append(all, route.pattern)
	}
	return all
}

// SessionHeader names the session in a request, as host.Conversation.Session, and
// says in the answer which one it was, by its id.
const SessionHeader = "Glovebox-Session"

// relayer is the host, as far as the gateway is concerned.
type relayer interface {
	Relay(context.Context, *host.Conversation) (*host.Relayed, error)
	Agents() []host.AgentInfo
	Store() memory.Store
}

// server is the handler of /v1.
type server struct {
	host relayer
	// model is the configuration's name of the model; "" if it has none.
	model string
	user  func(context.Context) memory.UserID
	now   func() time.Time
	log   *slog.Logger
	// room bounds the bodies that are in memory.
	room *allotment
	// alive is how long a stream is silent before it says that it lives.
	alive time.Duration
}

// New returns the handler of /v1. It is safe for concurrent use.
//
// A model is the name of an agent, or the configuration's name of the model, which
// is the first agent's. Answers name the model as they were asked.
func New(c Config) http.Handler {
	return newServer(c, c.Host).handler()
}

func newServer(c Config, h relayer) *server {
	s := &server{
		host: h, model: c.HostConfig.Model.Name, user: c.User, now: c.Now, log: c.Log,
		room: newAllotment(maxBodies), alive: keepAlive,
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// routes is the whole interface.
var routes = []struct {
	pattern string
	// dialect is nil where the request decides.
	dialect dialect
	handle  func(*server, http.ResponseWriter, *http.Request) error
}{
	{"GET /v1/models", nil, (*server).listModels},
	{"GET /v1/models/{model...}", nil, (*server).retrieveModel},
	{"POST /v1/chat/completions", openAI{}, (*server).chatCompletions},
	{"POST /v1/responses", openAI{}, (*server).responses},
	{"GET /v1/responses/{id}", openAI{}, (*server).retrieveResponse},
	{"POST /v1/messages", anthropic{}, (*server).messages},
	{"POST /v1/messages/count_tokens", anthropic{}, (*server).countTokens},
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		in := func(r *http.Request) dialect {
			if route.dialect != nil {
				return route.dialect
			}
			return dialectOf(r)
		}
		mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) {
			err := looped(r)
			if err == nil {
				err = route.handle(s, w, r)
			}
			if err != nil {
				s.fail(w, r, in(r), err)
			}
		})
		// What the mux says of a wrong method is not in the API's form.
		method, path, _ := strings.Cut(route.pattern, " ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			s.fail(w, r, in(r), refuse(http.StatusMethodNotAllowed, "", "use "+method))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, dialectOf(r), refuse(http.StatusNotFound, "", "there is no such route: docs/gateway.md has those that there are"))
	})
	return mux
}

// looped refuses what a host like this one asks of its model's server, which it takes
// this to be: with OPENAI_BASE_URL in its own environment a server is its own model,
// and one word would be asked on until memory ends.
func looped(r *http.Request) error {
	if r.Method == http.MethodPost && r.Header.Get(llm.RelayedHeader) != "" {
		return refuse(http.StatusLoopDetected, "loop_detected", "this comes from a Glovebox that has this server for its model: [model] base_url, or the OPENAI_BASE_URL or ANTHROPIC_BASE_URL that it was started with, has to name a server with models")
	}
	return nil
}

// Refuse answers what was refused before it came to the handler, in the form of the
// API that was called.
func Refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	f := refuse(status, "", detail)
	if status == http.StatusUnauthorized {
		f.code = "invalid_api_key"
	}
	writeFault(w, dialectOf(r), f)
}

// fail answers with what an error is to the outside.
func (s *server) fail(w http.ResponseWriter, r *http.Request, d dialect, err error) {
	f, known := faultOf(err)
	if r.Context().Err() != nil && (!known || errors.Is(err, context.Canceled)) {
		// Who has gone does not read it; who only closed its half of the connection does,
		// which is all that is left of it.
		writeFault(w, d, badf("", "the request was over before its answer: keep both halves of the connection open until it has come"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	s.report(r, f, known, err)
	writeFault(w, d, f)
}

// report tells the operator of what is not the caller's doing.
func (s *server) report(r *http.Request, f *fault, known bool, err error) {
	if !known || f.status >= http.StatusInternalServerError {
		s.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("route", r.Pattern), slog.Int("status", f.status), slog.Any("error", err))
	}
}

// writeJSON answers with a JSON value.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		// What is written here are structs of strings, numbers and JSON that was checked.
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	// A reader that has gone is nobody to tell.
	_, _ = newPieces(w).Write(append(body, '\n'))
}
