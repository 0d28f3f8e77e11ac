package sqlite

import (
	"context"
	"errors"

	"github.com/gloveboxhq/glovebox/memory"
)

// Files implements memory.Store.
func (s *Store) Files(ctx context.Context, user memory.UserID, session memory.SessionID) ([]memory.File, error) {
	return nil, errors.ErrUnsupported
}

// File implements memory.Store.
func (s *Store) File(ctx context.Context, user memory.UserID, id memory.FileID) (memory.File, memory.Block, error) {
	return memory.File{}, memory.Block{}, errors.ErrUnsupported
}
