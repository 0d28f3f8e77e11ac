package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// client returns a client for one fetch or push, whose every request passes a
// guard: those to a registry, to the server of its tokens, and to where either
// redirects.
func (o Options) client(ref Reference) *http.Client {
	base := o.Transport
	if base == nil {
		base = defaultTransport()
	}
	return &http.Client{
		Transport: &guard{base: base, stall: o.stall(), plain: o.PlainHTTP && ref.loopback(), moved: o.Progress},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("%w: it redirects more than %d times", ErrInsecure, maxRedirects)
			}
			return nil
		},
	}
}

// defaultTransport is shared, so that connections are.
var defaultTransport = sync.OnceValue(func() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	// A body is taken as it comes: none that inflates.
	t.DisableCompression = true
	t.MaxResponseHeaderBytes = 64 << 10
	return t
})

// guard sends requests by https alone, ends those of which nothing moves, and
// bounds what comes back.
type guard struct {
	base  http.RoundTripper
	stall time.Duration
	// plain lets http be spoken with loopback.
	plain bool
	moved func(bytes int)
}

func (g *guard) allow(to *url.URL) error {
	switch {
	case to.Scheme == "https":
		return nil
	case to.Scheme == "http" && g.plain && isLoopback(to.Hostname()):
		return nil
	}
	return fmt.Errorf("%w: it leads to %s://%s, and only https is followed", ErrInsecure, to.Scheme, to.Host)
}

func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := g.allow(request.URL); err != nil {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	stalled := fmt.Errorf("%w: nothing moved for %v", ErrStalled, g.stall)
	w := &watch{stall: g.stall, moved: g.moved, cancel: cancel, timer: time.AfterFunc(g.stall, func() { cancel(stalled) })}
	request = request.Clone(ctx)
	request.Header.Set("Accept-Encoding", "identity")
	if request.Body != nil && request.Body != http.NoBody {
		request.Body = &upload{request.Body, w}
	}
	response, err := g.base.RoundTrip(request)
	if err == nil {
		if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
			response.Body.Close()
			err = fmt.Errorf("%w: the server compresses it (%q), unasked", ErrNotModule, encoding)
		}
	}
	if err != nil {
		w.end()
		return nil, because(ctx, err)
	}
	w.timer.Stop()
	response.Body = &download{ctx: ctx, body: response.Body, watch: w, left: sandbox.MaxModuleBytes + 1}
	return response, nil
}

// watch ends a request of which nothing has moved.
type watch struct {
	stall  time.Duration
	timer  *time.Timer
	moved  func(bytes int)
	cancel context.CancelCauseFunc
}

func (w *watch) progress(n int) {
	w.timer.Reset(w.stall)
	if w.moved != nil && n > 0 {
		w.moved(n)
	}
}

func (w *watch) end() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

type upload struct {
	io.ReadCloser
	watch *watch
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	u.watch.progress(n)
	return n, err
}

// download is the body of a response. The clock runs only while it is read.
type download struct {
	ctx   context.Context
	body  io.ReadCloser
	watch *watch
	left  int64
}

func (d *download) Read(p []byte) (int, error) {
	if d.left <= 0 {
		return 0, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, sandbox.MaxModuleBytes)
	}
	d.watch.timer.Reset(d.watch.stall)
	n, err := d.body.Read(p[:min(int64(len(p)), d.left)])
	d.watch.progress(n)
	d.watch.timer.Stop()
	d.left -= int64(n)
	if d.ctx.Err() != nil {
		// Also if it seems to have ended well: a server that sees us go may end
		// its answer there and then.
		return n, context.Cause(d.ctx)
	}
	return n, err
}

func (d *download) Close() error {
	err := d.body.Close()
	d.watch.end()
	return err
}
