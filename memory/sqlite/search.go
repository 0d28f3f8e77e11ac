package sqlite

import (
	"context"
	"errors"

	"github.com/gloveboxhq/glovebox/memory"
)

// SearchWords implements memory.Store.
func (s *Store) SearchWords(ctx context.Context, user memory.UserID, q memory.WordQuery) ([]memory.WordHit, error) {
	return nil, errors.ErrUnsupported
}

// SearchSummaries implements memory.Store.
func (s *Store) SearchSummaries(ctx context.Context, user memory.UserID, q memory.WordQuery) ([]memory.SummaryHit, error) {
	return nil, errors.ErrUnsupported
}
