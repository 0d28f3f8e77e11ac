package control

import (
	"context"
	"net/http"
	"time"
)

// health answers for as long as the process does.
func (s *server) health(w http.ResponseWriter, _ *http.Request, _ place) error {
	return writeJSON(w, http.StatusOK, condition{"ok"})
}

// condition is all that is said to who has no token.
type condition struct {
	Status string `json:"status"`
}

// readyTimeout is how long the store may take to answer a read.
const readyTimeout = time.Second

// ready says whether requests are better sent elsewhere: the server stops, or its
// store does not answer. Why is in the log.
func (s *server) ready(w http.ResponseWriter, r *http.Request, _ place) error {
	if s.ending != nil && s.ending.Err() != nil {
		return writeJSON(w, http.StatusServiceUnavailable, condition{"unavailable"})
	}
	if err := s.probe(r.Context()); err != nil {
		s.log.WarnContext(r.Context(), "the store does not answer", "error", err)
		return writeJSON(w, http.StatusServiceUnavailable, condition{"unavailable"})
	}
	return writeJSON(w, http.StatusOK, condition{"ok"})
}

// probe reads something small from the store. It returns in time also when the
// store hangs; then the read that hangs is the only one, however often it is asked.
func (s *server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case s.probing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	read := make(chan error, 1)
	go func() {
		defer func() { <-s.probing }()
		_, err := s.store.DefaultUser(ctx)
		read <- err
	}()
	select {
	case err := <-read:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
