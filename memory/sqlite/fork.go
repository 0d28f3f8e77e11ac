package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

var errStub = errors.New("not there yet")

// NameSession implements memory.Store.
func (s *Store) NameSession(ctx context.Context, user memory.UserID, id memory.SessionID, name string) error {
	return errStub
}

// Fork implements memory.Store.
func (s *Store) Fork(ctx context.Context, user memory.UserID, id memory.SessionID, last int64, at time.Time) (memory.Session, error) {
	return memory.Session{}, errStub
}

// Places implements memory.Store.
func (s *Store) Places(ctx context.Context, user memory.UserID, agent memory.AgentID, digest memory.Digest, limit int) ([]memory.Place, error) {
	return nil, errStub
}
