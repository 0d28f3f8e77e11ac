package sqlite

import (
	"context"
	"errors"
	"iter"

	"github.com/gloveboxhq/glovebox/memory"
)

// Export implements memory.Store.
func (s *Store) Export(ctx context.Context, user memory.UserID, visit func(memory.Record) error) error {
	return errors.ErrUnsupported
}

// Import implements memory.Store.
func (s *Store) Import(ctx context.Context, user memory.UserID, records iter.Seq2[memory.Record, error]) (memory.ImportReport, error) {
	return memory.ImportReport{}, errors.ErrUnsupported
}
