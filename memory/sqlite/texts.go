package sqlite

import (
	"context"
	"errors"

	"github.com/gloveboxhq/glovebox/memory"
)

// Texts implements memory.Store.
func (s *Store) Texts(ctx context.Context, user memory.UserID, q memory.TextQuery, visit func(memory.StoredText) bool) error {
	return errors.ErrUnsupported
}
