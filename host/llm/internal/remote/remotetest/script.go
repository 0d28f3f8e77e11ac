// Package remotetest is what the servers of the drivers' tests have in common, and
// the suite that every driver passes: Script plays answers of any protocol, whose
// requests are of type R.
package remotetest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Answer is one step of a script. It runs on the server's goroutine; the HTTP
// request's context is done when the client has gone.
type Answer[R any] func(w http.ResponseWriter, r *http.Request, sent R)

// Script is the server without a network: it is an http.Handler, and an
// http.RoundTripper for a client that is to reach it without one, as under
// testing/synctest. It is safe for concurrent use.
type Script[R any] struct {
	t    testing.TB
	read func(*http.Request) (R, error)

	mu        sync.Mutex
	answers   []Answer[R]
	otherwise Answer[R]
	requests  []R
	times     []time.Time
}

// NewScript returns a script that gives one answer after the other. Read takes a
// request apart, maybe several at the same time, and returns what is wrong with
// it. A request outside the protocol, and one too many, fail t.
func NewScript[R any](t testing.TB, read func(*http.Request) (R, error), answers ...Answer[R]) *Script[R] {
	return &Script[R]{t: t, read: read, answers: answers}
}

// Otherwise sets the answer to the requests that come when the script has
// ended, and returns s.
func (s *Script[R]) Otherwise(a Answer[R]) *Script[R] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherwise = a
	return s
}

// Requests returns what came so far, in the order in which it came.
func (s *Script[R]) Requests() []R {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Times returns when each of Requests came.
func (s *Script[R]) Times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.times)
}

// ServeHTTP checks, keeps and answers one request.
func (s *Script[R]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	sent, err := s.read(r)
	if err != nil {
		s.t.Errorf("the model's server: a request outside the protocol: %v", err)
		http.Error(w, "outside the protocol", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	n := len(s.requests)
	s.requests, s.times = append(s.requests, sent), append(s.times, at)
	answer := s.otherwise
	if n < len(s.answers) {
		answer = s.answers[n]
	}
	s.mu.Unlock()
	if answer == nil {
		s.t.Errorf("the model's server: request %d of a script of %d answers", n+1, len(s.answers))
		http.Error(w, "the script has ended", http.StatusBadRequest)
		return
	}
	answer(w, r, sent)
}

// RoundTrip serves one request without a network. What the Answer writes is read
// as it comes; one that panics with http.ErrAbortHandler is a connection that
// breaks.
func (s *Script[R]) RoundTrip(r *http.Request) (*http.Response, error) {
	body, writer := io.Pipe()
	wire := &wire{header: http.Header{}, body: writer, begun: make(chan *http.Response, 1)}
	broken := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() { body.CloseWithError(r.Context().Err()) })
	go func() {
		defer stop()
		defer func() {
			switch p := recover(); p {
			case nil:
				wire.WriteHeader(http.StatusOK)
				writer.Close()
			case http.ErrAbortHandler:
				writer.CloseWithError(io.ErrUnexpectedEOF)
				close(broken)
			default:
				panic(p)
			}
		}()
		s.ServeHTTP(wire, r)
	}()
	select {
	case response := <-wire.begun:
		response.Body, response.Request = body, r
		return response, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-broken:
		select {
		case response := <-wire.begun: // both at once
			response.Body, response.Request = body, r
			return response, nil
		default:
			return nil, io.ErrUnexpectedEOF
		}
	}
}

// wire is the server's end of a RoundTrip. It is used by one goroutine.
type wire struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan *http.Response // of one
	status int
}

func (w *wire) Header() http.Header { return w.header }

func (w *wire) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.begun <- &http.Response{
			StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: w.header.Clone(), ContentLength: -1,
		}
	}
}

func (w *wire) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush sends what there is of an answer: at the least that there will be one.
func (w *wire) Flush() { w.WriteHeader(http.StatusOK) }

// Server is a Script on a loopback port.
type Server[R any] struct {
	*Script[R]
	// BaseURL is the one that a driver is given.
	BaseURL string
}

// NewServer starts a server that answers by a script, and stops it when t ends.
// Path is what BaseURL has behind the host.
func NewServer[R any](t testing.TB, script *Script[R], path string) *Server[R] {
	server := httptest.NewServer(script)
	t.Cleanup(server.Close)
	return &Server[R]{Script: script, BaseURL: server.URL + path}
}

// Status answers a status with a body. Headers follow as names and values.
func Status[R any](code int, body string, headers ...string) Answer[R] {
	return func(w http.ResponseWriter, _ *http.Request, _ R) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// BrokenOff begins an answer, whole, and closes the connection in the middle of it.
func BrokenOff[R any](begin string) Answer[R] {
	return func(w http.ResponseWriter, _ *http.Request, _ R) {
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, begin)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Disconnected closes the connection without a word more.
func Disconnected[R any]() Answer[R] {
	return func(http.ResponseWriter, *http.Request, R) { panic(http.ErrAbortHandler) }
}

// Stalled closes entered, if it is not nil, when the request is there, and sends
// the first byte of then only after release is closed, or nothing if the client
// goes first; a nil release is never closed.
func Stalled[R any](entered chan<- struct{}, release <-chan struct{}, then Answer[R]) Answer[R] {
	return func(w http.ResponseWriter, r *http.Request, sent R) {
		if entered != nil {
			close(entered)
		}
		select {
		case <-release:
			then(w, r, sent)
		case <-r.Context().Done():
		}
	}
}

// Endless sends begin and then more again and again, until the client has gone.
func Endless[R any](begin, more string) Answer[R] {
	return func(w http.ResponseWriter, r *http.Request, _ R) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, begin)
		for err == nil && r.Context().Err() == nil {
			_, err = io.WriteString(w, more)
		}
	}
}
