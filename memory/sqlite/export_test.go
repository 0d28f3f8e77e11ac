package sqlite

import (
	"context"
	"database/sql"

	"github.com/gloveboxhq/glovebox/memory"
)

// CatchUp indexes all that is stored, now.
func (s *Store) CatchUp(ctx context.Context) error { return s.indexer.catchUp(ctx) }

// StopIndexer leaves what is stored from now on to be indexed after the next
// open.
func (s *Store) StopIndexer() { s.indexer.close() }

// CheckIndex is checkIndex.
func (s *Store) CheckIndex(ctx context.Context) ([]string, error) { return s.checkIndex(ctx) }

// DropIndex does what a wipe of a user does to the index.
func (s *Store) DropIndex(ctx context.Context, user memory.UserID) error {
	return s.writing(ctx, "drop", func(ctx context.Context, tx *sql.Tx) error { return s.dropIndex(ctx, tx, user) })
}

// MarkRebuild has the index of a user made anew, some time.
func (s *Store) MarkRebuild(ctx context.Context, user memory.UserID) error {
	return s.writing(ctx, "mark", func(ctx context.Context, tx *sql.Tx) error { return rebuildIndex(ctx, tx, user, kinds...) })
}

// Indexed returns how many messages are behind the cursor.
func (s *Store) Indexed(ctx context.Context) (at int64, err error) {
	err = s.reading(ctx, "read the cursor", func(tx *sql.Tx) error {
		state, err := readState(ctx, tx, ofMessages)
		at = state.cursor
		return err
	})
	return at, err
}

// KeepTails has the store keep the tails of short frontiers too.
func (s *Store) KeepTails() { s.tails.least = 1 }

// KeptTails is of how many sessions the store keeps the tails, and about how many bytes
// they are.
func (s *Store) KeptTails() (sessions, bytes int) {
	s.tails.mu.Lock()
	defer s.tails.mu.Unlock()
	return len(s.tails.of), s.tails.bytes
}
