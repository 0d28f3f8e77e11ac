// Package web asks servers what the bundled hands want to know: one request
// after the other within one span of time, and with the reasons of failures in
// words for the operator.
package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

// The bounds of the time that the requests of a query take together.
const (
	DefaultWait = 20 * time.Second
	MostWait    = 280 * time.Second
)

// oneRequest is how long one server may take: a few that do not answer leave
// time for the others.
const oneRequest = 8 * time.Second

// ErrNoTime says that a request was not made, or not waited for, because those
// before it took all the time.
var ErrNoTime = errors.New("not asked: the requests before it took the time that wait_secs gives")

// Client makes the requests of one query. It is for one goroutine.
type Client struct {
	now   func() time.Time
	until time.Time
}

// NewClient returns a client whose requests end within wait of now.
func NewClient(wait time.Duration, now func() time.Time) *Client {
	return &Client{now, now().Add(wait)}
}

// Get asks for url. It returns a *StatusError beside the response when the
// status is none of success, ErrNoTime, or an error that says what failed and
// what to do about it; each matches the abi.Kind that it came from.
func (c *Client) Get(ctx context.Context, url string, header http.Header) (http.Response, error) {
	left := min(c.until.Sub(c.now()), oneRequest)
	if left <= 0 {
		return http.Response{}, ErrNoTime
	}
	response, err := http.Fetch(ctx, http.Request{URL: url, Header: header, Timeout: left})
	if err != nil {
		if ctx.Err() != nil {
			return response, context.Cause(ctx)
		}
		return response, explained(err, left)
	}
	if response.Status < 200 || response.Status > 299 {
		return response, &StatusError{response.Status, response.Header}
	}
	return response, nil
}

// failure is an error of the host in words for the operator.
type failure struct {
	words string
	kind  abi.Kind
}

func (f *failure) Error() string { return f.words }

func (f *failure) Unwrap() error { return f.kind }

func explained(err error, waited time.Duration) error {
	kind := abi.KindOf(err)
	words := map[abi.Kind]string{
		abi.KindDenied:        "not allowed: add it, or where it redirects to, to http of the hand's grant",
		abi.KindBadRequest:    "the host takes it for no well-formed request",
		abi.KindTimeout:       fmt.Sprintf("no answer in %s", waited.Round(time.Second/10)),
		abi.KindQuotaExceeded: "not asked: the requests of a query are used up, see http_requests in the limits",
		abi.KindTooManyCalls:  "not asked: the calls of a query are used up, see calls in the limits",
		abi.KindTooLarge:      "the answer's header is too large",
		abi.KindUnavailable:   "no connection, or one that broke",
	}[kind]
	if words == "" {
		return err
	}
	return &failure{words, kind}
}

// StatusError is an answer that is none of success.
type StatusError struct {
	Status int
	Header http.Header
}

func (e *StatusError) Error() string {
	words := map[int]string{
		304: "Not Modified", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 406: "Not Acceptable", 410: "Gone",
		422: "Unprocessable Content", 429: "Too Many Requests", 451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 502: "Bad Gateway",
		503: "Service Unavailable", 504: "Gateway Timeout",
	}[e.Status]
	return strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, words))
}

// RetryAfter returns when the server wants to be asked again, by its
// Retry-After field (RFC 9110, 10.2.3), which is a number of seconds or a date;
// and whether it said so.
func (e *StatusError) RetryAfter(now time.Time) (time.Time, bool) {
	text := strings.TrimSpace(e.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return now.Add(time.Duration(seconds) * time.Second), true
	}
	const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"
	at, err := time.Parse(httpDate, text)
	return at, err == nil
}

// ParseURL reads an address that the operator configured: http or https, with
// a host, without a user. A fragment is dropped, as it is never sent.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return nil, errors.New("it cannot be read as an address")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("write an address that begins with https://")
	case u.User != nil:
		return nil, errors.New("leave out the user: a secret is bound under grant.secrets")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
