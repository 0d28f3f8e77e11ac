package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// DeleteSession implements memory.Store.
func (s *Store) DeleteSession(ctx context.Context, user memory.UserID, id memory.SessionID) error {
	return errors.ErrUnsupported
}

// WipeMemory implements memory.Store.
func (s *Store) WipeMemory(ctx context.Context, user memory.UserID) (memory.WipeCounts, error) {
	return memory.WipeCounts{}, errors.ErrUnsupported
}

// WipeUser implements memory.Store.
func (s *Store) WipeUser(ctx context.Context, user memory.UserID) (memory.WipeCounts, error) {
	return memory.WipeCounts{}, errors.ErrUnsupported
}

// Scrub implements memory.Store.
func (s *Store) Scrub(ctx context.Context) (bool, error) { return false, errors.ErrUnsupported }

// Wipes implements memory.Store.
func (s *Store) Wipes(ctx context.Context) ([]memory.Wipe, error) { return nil, errors.ErrUnsupported }

// BeginWipe implements memory.Store.
func (s *Store) BeginWipe(ctx context.Context, user memory.UserID, at time.Time) error {
	return errors.ErrUnsupported
}

// EndWipe implements memory.Store.
func (s *Store) EndWipe(ctx context.Context, user memory.UserID) error { return errors.ErrUnsupported }
