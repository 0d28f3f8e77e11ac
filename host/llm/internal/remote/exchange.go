package remote

import (
	"github.com/gloveboxhq/glovebox/host/llm"

	"context"
	"io"
	"math"
	"net/http"
	"time"
)

const (
	maxResponseBytes = 16 << 20
	maxErrorBytes    = 64 << 10
	// streamTimeouts is how many times Timeout a stream may take in all.
	streamTimeouts = 10
	// forTheConnection is how long the end of a response is waited for.
	forTheConnection = 100 * time.Millisecond
)

// bounded keeps a server from filling the memory, also through an SDK that reads
// errors by itself.
type bounded struct {
	next http.RoundTripper // nil means the default
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	r = r.Clone(r.Context())
	r.Header.Set(llm.RelayedHeader, "1")
	response, err := next.RoundTrip(r)
	if err == nil && response.Body != nil {
		limit := int64(maxResponseBytes)
		if response.StatusCode >= 300 {
			limit = maxErrorBytes
		}
		response.Body = http.MaxBytesReader(nil, response.Body, limit)
	}
	return response, err
}

// Exchange is one request and its answer, which is read from it. It cancels the
// request when the server is silent for too long, or not done in time. What is
// done with the answer meanwhile does not count. It is used by one goroutine.
type Exchange struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	endpoint *Endpoint
	body     io.ReadCloser
	// silence is what the server may take between two signs of life and whole for
	// all; quiet and spent are what it took.
	silence, whole, quiet, spent time.Duration
}

// Send has send ask, which returns the response as soon as its header is there, or
// why there is none; a response is taken even beside an error. Streams says that
// the answer may come in pieces, and so take longer. Read reads what is wrong from
// the body of a status of at least 300.
//
// Without a Failure the response is returned too, whose Body is the Exchange. The
// caller closes it.
func (e *Endpoint) Send(
	ctx context.Context, streams bool, send func(ctx context.Context) (*http.Response, error),
	read func(status int, body []byte) Complaint,
) (*Exchange, *http.Response, *Failure) {
	x := &Exchange{endpoint: e, silence: e.timeout, whole: e.timeout}
	if streams {
		x.whole = streamTimeouts * min(e.timeout, math.MaxInt64/streamTimeouts)
	}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	var response *http.Response
	var err error
	var failed *Failure
	x.during(func() {
		response, err = send(x.ctx)
		if response == nil {
			return
		}
		x.body = response.Body
		if response.StatusCode >= 300 {
			failed = refusal(response, read)
		}
	})
	if failed == nil && err != nil {
		failed = x.Broken(err)
	}
	if failed != nil {
		x.Close()
		return nil, nil, failed
	}
	response.Body = x
	return x, response, nil
}

// Read reads the answer. After an error the caller asks Broken what it means.
func (x *Exchange) Read(b []byte) (n int, err error) {
	x.during(func() { n, err = x.body.Read(b) })
	return n, err
}

func (x *Exchange) during(f func()) {
	began, limit, late := time.Now(), x.silence-x.quiet, &lateError{x.silence}
	if left := x.whole - x.spent; left < limit {
		limit, late = left, &lateError{x.whole}
	}
	timer := time.AfterFunc(limit, func() { x.cancel(late) })
	f()
	timer.Stop()
	took := time.Since(began)
	x.quiet += took
	x.spent += took
}

// Alive ends a silence: until it is called, all that the server takes is one.
func (x *Exchange) Alive() { x.quiet = 0 }

// Patience begins a silence of at most d.
func (x *Exchange) Patience(d time.Duration) { x.silence, x.quiet = d, 0 }

// Err is not nil when the request has been cancelled.
func (x *Exchange) Err() error { return x.ctx.Err() }

// Drain reads what is behind an answer, if it comes at once: what is read to its
// end leaves the connection to the next request.
func (x *Exchange) Drain() {
	x.Patience(forTheConnection)
	_, _ = io.CopyN(io.Discard, x, maxErrorBytes)
}

// Close ends the exchange.
func (x *Exchange) Close() error {
	defer x.cancel(nil)
	if x.body == nil {
		return nil
	}
	return x.body.Close()
}

// lateError says that a server took too long.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string { return "no answer within " + e.limit.String() }
