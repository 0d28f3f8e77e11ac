package control

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
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

// Serve answers requests until ctx is done; then it takes no more, waits for those
// being answered up to Drain, breaks the rest off, whose contexts end with that, and
// returns nil. It closes the listener.
func (s Server) Serve(ctx context.Context, listener net.Listener) error {
	logger, drain := s.Log, s.Drain
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if drain <= 0 {
		drain = DrainTimeout
	}
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(slogWriter{logger}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	logger.Info("stopping: no more connections are taken", "drain", drain)
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
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
