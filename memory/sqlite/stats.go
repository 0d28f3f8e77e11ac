package sqlite

import (
	"context"
	"database/sql"
)

// Stats tells how much a store has, and how much waits.
type Stats struct {
	// Sessions and Messages are those of all users.
	Sessions, Messages int64
	// Unindexed is at most how many messages are stored and not in the search index
	// yet.
	Unindexed int64
	// PendingRuns is how many runs of compaction are due or go on.
	PendingRuns int64
	// Waiting is how many wait to write while somebody waits for them, WaitingBehind
	// how many of those in the background do.
	Waiting, WaitingBehind int
}

// Stats reads how much the store has. It looks at every session, at no message; the
// queues are there also beside an error.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	stats.Waiting, stats.WaitingBehind = s.writer.waiting()
	err := s.reading(ctx, "read the sizes of the store", func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(messages), 0) FROM sessions").Scan(&stats.Sessions, &stats.Messages); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM pending_runs").Scan(&stats.PendingRuns); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT max(0, coalesce((SELECT max(number) FROM messages), 0) - (SELECT cursor FROM index_state WHERE kind = ?))", ofMessages).Scan(&stats.Unindexed)
	})
	return stats, err
}

// waiting is how many wait for their turn, of each kind.
func (t *turnstile) waiting() (front, back int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.front), len(t.back)
}
