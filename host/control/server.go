package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// headerTimeout is how long the head of a request may take to come, bodyTimeout
	// all of it, importTimeout the body of an import; idleTimeout is how long a
	// connection is kept for the next request.
	headerTimeout, bodyTimeout, importTimeout, idleTimeout = 10 * time.Second, 30 * time.Second, 5 * time.Minute, 2 * time.Minute
	// maxHeader holds a topic of 10,000 emoji, percent-encoded.
	maxHeader = 256 << 10
	// writeTimeout is how long a reader may take for one piece of an answer, of at
	// most pieceBytes.
	pieceBytes   = 64 << 10
	writeTimeout = 30 * time.Second
	// DrainTimeout is how long a server waits at its end for what is being answered,
	// if nothing else is said.
	DrainTimeout = 30 * time.Second
	// arrivalTimeout is how long a server that stops waits for the rest of requests that
	// are on their way: nothing is being answered yet.
	arrivalTimeout = time.Second
	// maxMeaningless is how many bytes of a body are read that nobody asked for.
	maxMeaningless = 64 << 10
)

// Server answers requests. Handler is needed.
type Server struct {
	Handler http.Handler
	// Drain is how long Serve waits at its end for what is being answered; zero means
	// DrainTimeout.
	Drain time.Duration
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

// Serve is Server.Serve with the standard DrainTimeout.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) error {
	return Server{Handler: handler, Log: logger}.Serve(ctx, listener)
}

// Serve answers requests until ctx is done; then it takes no more, gives those that
// have not come whole a second for their rest, waits for those being answered up to
// Drain, breaks the rest off, whose contexts end with that, and returns nil. It closes
// the listener.
func (s Server) Serve(ctx context.Context, listener net.Listener) error {
	logger, drain := s.Log, s.Drain
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if drain <= 0 {
		drain = DrainTimeout
	}
	arriving := &arrivals{all: map[*connection]struct{}{}}
	server := &http.Server{
		Handler: arriving.watch(s.Handler), ConnContext: withConnection, ConnState: awaitNext,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(slogWriter{logger}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(arrivalListener{listener, arriving}) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	logger.Info("stopping: no more connections are taken", "drain", drain)
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	arriving.stop(time.Now().Add(arrivalTimeout))
	err := server.Shutdown(draining)
	if errors.Is(err, context.DeadlineExceeded) {
		logger.Warn("requests that were still being answered are broken off")
		err = server.Close()
	}
	<-ended
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", listener.Addr(), err)
	}
	return nil
}

// arrivals are the connections of a server, of which it knows whether there is a
// request on its way: who sends one byte of a body and no more would else hold up the
// end for as long as an answer may.
type arrivals struct {
	mu sync.Mutex
	// Guarded by mu: until is when what is on its way has to be there, zero before the
	// end of the server.
	all   map[*connection]struct{}
	until time.Time
}

// stop says until when the rest of a request is waited for.
func (a *arrivals) stop(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = until
	for c := range a.all {
		c.change(func() { c.until = until })
	}
}

func (a *arrivals) add(to net.Conn) *connection {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &connection{Conn: to, of: a, until: a.until}
	a.all[c] = struct{}{}
	return c
}

// watch tells the connections of next's requests how far they have come.
func (a *arrivals) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connectionKey{}).(*connection)
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		if r.Body == http.NoBody {
			c.change(func() { c.whole = true })
			next.ServeHTTP(w, r)
			return
		}
		// The server looks at the body of its own request at the end.
		r = r.WithContext(r.Context())
		r.Body = arrivingBody{r.Body, c}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			if status := passOver(r.Body); status != 0 {
				http.Error(w, "a "+r.Method+" needs no body", status)
				return
			}
			r.Body = http.NoBody
		}
		next.ServeHTTP(w, r)
	})
}

// passOver reads a body that means nothing: an answer that streams is not to be held to
// the time that a body has. The status says why it cannot be, 0 that it is read.
func passOver(body io.Reader) (status int) {
	switch n, err := io.CopyN(io.Discard, body, maxMeaningless+1); {
	case n > maxMeaningless:
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, io.EOF):
		return 0
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

type arrivalListener struct {
	net.Listener
	arriving *arrivals
}

func (l arrivalListener) Accept() (net.Conn, error) {
	to, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.arriving.add(to), nil
}

// connection is one whose reads end in time. What reads its requests sets deadlines as
// it likes, later than the one of a server that stops, or none.
type connection struct {
	net.Conn
	of *arrivals

	mu sync.Mutex
	// Guarded by mu: asked is the deadline that was set, until that of the server's end,
	// zero for none. Whole says that the request that is being answered is there, late
	// that it did not come in time: what net/http reads behind it, to keep the connection,
	// would be waited for with no deadline.
	asked, until time.Time
	whole, late  bool
}

// SetReadDeadline implements net.Conn.
func (c *connection) SetReadDeadline(t time.Time) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = t
	return c.Conn.SetReadDeadline(c.deadline())
}

// SetDeadline implements net.Conn.
func (c *connection) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// change has what is known of the connection changed, and its deadline with that.
func (c *connection) change(apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.deadline()
	apply()
	if d := c.deadline(); !d.Equal(before) {
		_ = c.Conn.SetReadDeadline(d) // of one that is closed there is nothing to read
	}
}

// deadline is that of the next read; c.mu is held.
func (c *connection) deadline() time.Time {
	switch {
	case c.late:
		return time.Unix(1, 0)
	case !c.whole && !c.until.IsZero() && (c.asked.IsZero() || c.asked.After(c.until)):
		return c.until
	}
	return c.asked
}

// CloseWrite is what net/http ends an answer with, so that it is read before the
// connection is gone.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// awaitNext tells a connection that its request is answered: the next may come.
func awaitNext(c net.Conn, state http.ConnState) {
	if c, ok := c.(*connection); ok && state == http.StateIdle {
		c.change(func() { c.whole = false })
	}
}

// arrivingBody is a body that tells its connection when it is there.
type arrivingBody struct {
	io.ReadCloser
	on *connection
}

func (b arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.on.change(func() { b.on.whole = true })
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.on.change(func() { b.on.late = true })
	}
	return n, err
}

// slogWriter takes what net/http has to say of connections.
type slogWriter struct{ to *slog.Logger }

func (w slogWriter) Write(line []byte) (int, error) {
	w.to.Warn("http", "message", string(line))
	return len(line), nil
}

// streamed is an answer on its way. Each piece has writeTimeout: who reads nothing
// is not waited for.
type streamed struct {
	to         http.ResponseWriter
	connection *http.ResponseController
	// begun says that the status is on its way.
	begun bool
}

func (s *streamed) Write(b []byte) (int, error) {
	s.begun = true
	written := 0
	for piece := range slices.Chunk(b, pieceBytes) {
		_ = s.connection.SetWriteDeadline(time.Now().Add(writeTimeout))
		n, err := s.to.Write(piece)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

func stream(w http.ResponseWriter) streamed {
	return streamed{to: w, connection: http.NewResponseController(w)}
}
