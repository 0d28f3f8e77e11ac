// Package transport lets an http.Client, and the libraries that take one, work
// inside a hand. It is a package of its own because it brings net/http along:
// about 7 MiB of module and milliseconds at each query. Package http above it
// does without.
package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/gloveboxhq/glovebox/abi"
	hand "github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

// RoundTripper makes requests through the host. It is an http.RoundTripper:
//
//	client := &http.Client{Transport: transport.RoundTripper{}}
//
// The host follows redirects itself, so that a client never sees one; the
// response's Request then is the last one. A request's context bounds it. Of a
// body that was longer than the host's limit the beginning can be read; then
// reading fails with an error that matches abi.KindTooLarge. Errors are those of
// http.Fetch. It is safe for concurrent use.
type RoundTripper struct{}

var errHost = errors.New("a hand may not set the Host header")

// RoundTrip implements http.RoundTripper.
func (RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := outgoing(r)
	if err != nil {
		return nil, err
	}
	answer, err := hand.Fetch(r.Context(), request)
	if err != nil {
		return nil, err
	}
	return incoming(r, answer)
}

// outgoing reads the body to its end and closes it, as the interface wants.
func outgoing(r *http.Request) (hand.Request, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		most := abi.MaxLimits().HTTPBytes
		if body, err = io.ReadAll(io.LimitReader(r.Body, most+1)); err != nil {
			return hand.Request{}, fmt.Errorf("read request body: %w", err)
		}
		if int64(len(body)) > most {
			return hand.Request{}, fmt.Errorf("request body: %w", abi.KindTooLarge)
		}
	}
	if r.URL == nil {
		return hand.Request{}, fmt.Errorf("no URL: %w", abi.KindBadRequest)
	}
	if r.Host != "" && r.Host != r.URL.Host {
		return hand.Request{}, fmt.Errorf("%w: %w", errHost, abi.KindDenied)
	}
	// A client takes fragments, which are never sent.
	plain := *r.URL
	plain.Fragment, plain.RawFragment = "", ""
	request := hand.Request{Method: r.Method, URL: plain.String(), Body: body}
	for name, values := range r.Header {
		for _, value := range values {
			request.Header.Add(name, value)
		}
	}
	return request, nil
}

func incoming(r *http.Request, answer hand.Response) (*http.Response, error) {
	last := r
	if answer.URL != "" && answer.URL != r.URL.String() {
		u, err := url.Parse(answer.URL)
		if err != nil {
			return nil, fmt.Errorf("the host's answer: %w", err)
		}
		last = r.Clone(context.WithoutCancel(r.Context()))
		last.URL, last.Host, last.Body = u, u.Host, nil
	}
	response := &http.Response{
		Status:     strconv.Itoa(answer.Status) + " " + http.StatusText(answer.Status),
		StatusCode: answer.Status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{},
		ContentLength: int64(len(answer.Body)),
		Uncompressed:  true,
		Request:       last,
	}
	for _, field := range answer.Header {
		response.Header.Add(field[0], field[1])
	}
	var body io.Reader = bytes.NewReader(answer.Body)
	if answer.Truncated {
		response.ContentLength = -1
		body = io.MultiReader(body, truncated{})
	}
	response.Body = io.NopCloser(body)
	return response, nil
}

// truncated is the end of a body that goes on where the host stopped.
type truncated struct{}

func (truncated) Read([]byte) (int, error) {
	return 0, fmt.Errorf("the body is longer than the host's limit: %w", abi.KindTooLarge)
}

var _ http.RoundTripper = RoundTripper{}
