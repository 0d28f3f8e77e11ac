// Package http makes requests to the hosts that the operator granted to a hand.
// Importing it makes the module ask for the capability "http"; the manifest
// must ask for it too, with the hosts.
//
// It does without net/http, which adds about 7 MiB to a module. Code that needs
// an http.Client finds the same in package transport below.
package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

// Header is the fields of a header in order. Names may come more than once.
type Header [][2]string

// Get returns the value of the first field called name, in letters of any case,
// or "".
func (h Header) Get(name string) string {
	for _, field := range h {
		if strings.EqualFold(field[0], name) {
			return field[1]
		}
	}
	return ""
}

// Add appends a field.
func (h *Header) Add(name, value string) { *h = append(*h, [2]string{name, value}) }

// Request is one exchange. The host sets the headers that are about the
// connection, the encoding and the secrets; a hand may not.
type Request struct {
	// Method is in upper case; "" means GET.
	Method string
	// URL begins with https:// or http://, without user name and fragment.
	URL    string
	Header Header
	Body   []byte
	// Timeout bounds the exchange, redirects included; zero means the time
	// left in ctx, or else the host's limit, which also is its cap.
	Timeout time.Duration
}

// Response is the answer, after redirects.
type Response struct {
	// Status is the code; one that tells of a failure is no error.
	Status int
	// URL is the last one that was asked.
	URL    string
	Header Header
	// Body is decoded. Secrets of the operator are redacted in it.
	Body []byte
	// Truncated says that the body is only the beginning: it was longer than
	// the host's limit (4 MiB unless the operator changed it).
	Truncated bool
}

func init() {
	header := Header{{"X", "x"}}
	guest.WarmJSON(
		abi.HTTPFetchRequest{Method: "GET", URL: "https://x", Header: header, TimeoutMillis: 1},
		abi.HTTPFetchResult{Status: 200, URL: "https://x", Header: header, Truncated: true},
	)
}

// Fetcher is what makes requests.
type Fetcher func(ctx context.Context, r Request) (Response, error)

type fetcherKey struct{}

// WithFetcher returns a context in which Fetch calls f. It is how a native test
// answers a hand's requests.
func WithFetcher(ctx context.Context, f Fetcher) context.Context {
	return context.WithValue(ctx, fetcherKey{}, f)
}

// Fetch makes one exchange. The host follows redirects. An error matches the
// abi.Kind that says why there is no answer: KindDenied and KindNotGranted where
// the request is not allowed, KindBadRequest for a URL or a header that is not
// well-formed, KindTimeout, KindQuotaExceeded when the query's requests are used
// up, KindTooLarge, and KindUnavailable when the server is not there.
func Fetch(ctx context.Context, r Request) (Response, error) {
	if err := ctx.Err(); err != nil {
		return Response{}, failed(r, err)
	}
	if r.Method == "" {
		r.Method = "GET"
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); r.Timeout == 0 || left < r.Timeout {
			r.Timeout = left
		}
	}
	if f, ok := ctx.Value(fetcherKey{}).(Fetcher); ok {
		return f(ctx, r)
	}
	request, err := encode(r)
	if err != nil {
		return Response{}, failed(r, err)
	}
	result, err := guest.Call(hostFetch, request)
	if err != nil {
		return Response{}, failed(r, err)
	}
	response, err := decode(result)
	if err != nil {
		return Response{}, failed(r, err)
	}
	return response, nil
}

func failed(r Request, err error) error { return fmt.Errorf("fetch %s: %w", r.URL, err) }

// encode writes the request as ABI 2.4 has it: JSON on one line and, if there is
// one, LF and the body.
func encode(r Request) ([]byte, error) {
	if r.Timeout < 0 {
		return nil, abi.KindTimeout
	}
	// Zero would mean the host's limit.
	millis := int((r.Timeout + time.Millisecond - 1) / time.Millisecond)
	request, err := json.Marshal(abi.HTTPFetchRequest{Method: r.Method, URL: r.URL, Header: r.Header, TimeoutMillis: millis})
	if err != nil {
		return nil, err
	}
	if len(r.Body) > 0 {
		request = append(append(request, '\n'), r.Body...)
	}
	return request, nil
}

var errNoHead = errors.New("the host's answer has no head")

// decode reads what the host answers: JSON, LF, the body.
func decode(result []byte) (Response, error) {
	line, body, found := bytes.Cut(result, []byte("\n"))
	if !found {
		return Response{}, errNoHead
	}
	var head abi.HTTPFetchResult
	if err := json.Unmarshal(line, &head); err != nil {
		return Response{}, err
	}
	return Response{Status: head.Status, URL: head.URL, Header: head.Header, Body: body, Truncated: head.Truncated}, nil
}
