package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gloveboxhq/glovebox/host/gaps"
)

// Text that was deleted can be in three places. Freed pages and cells are
// overwritten at once: that is what secure_delete does. When SQLite moves rows
// between the pages of a tree, it leaves copies of them in the gap that every
// page has, and no later deletion finds those: scrub overwrites the gaps. And
// the log has the pages as they were until it is truncated.

// Scrub implements memory.Store. It can die anywhere: what it has done stays
// done, and nothing that it does changes what is stored.
func (s *Store) Scrub(ctx context.Context) (done bool, err error) {
	if err := s.lockScrub(ctx); err != nil {
		return false, s.failed(ctx, "scrub", err)
	}
	defer func() { <-s.scrubbing }()
	var mark []byte
	if err := s.reading(ctx, "scrub", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "SELECT value FROM kv WHERE scope = ? AND key = ?", kvShared, keyScrub).Scan(&mark)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	}); err != nil {
		return false, err
	}
	if err := s.settleIndex(ctx); err != nil {
		return false, err
	}
	if err := s.clearGaps(ctx); err != nil {
		return false, err
	}
	for again := true; again; {
		// Outside of the writer's turn as long as it takes, inside shortly.
		if err := s.reads.drain(ctx); err != nil {
			return false, s.failed(ctx, "scrub: wait for readers", err)
		}
		if err := s.asWriter(ctx, "scrub", func(writer *sql.Conn) error {
			done, again, err = s.truncateLog(ctx, writer)
			return err
		}); err != nil {
			return false, err
		}
	}
	if !done {
		return false, nil
	}
	return true, s.writing(ctx, "scrub", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM kv WHERE scope = ? AND key = ? AND value = ?", kvShared, keyScrub, mark)
		return err
	})
}

func (s *Store) lockScrub(ctx context.Context) error {
	select {
	case s.scrubbing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readersMayTake is how long the writer waits for readers that began while the
// log was checkpointed. One that calls for the writer itself, in the middle of
// what it reads, gets it after that.
const readersMayTake = time.Second

// truncateLog empties the log. It says again if one of this store's own readers
// still needs it: wait for them, and call it again.
func (s *Store) truncateLog(ctx context.Context, writer *sql.Conn) (done, again bool, err error) {
	// After this, who begins to read does not need the log.
	if _, err := checkpoint(ctx, writer, "PASSIVE"); err != nil {
		return false, false, err
	}
	shortly, cancel := context.WithTimeout(ctx, readersMayTake)
	defer cancel()
	if err := s.reads.drain(shortly); err != nil {
		return false, ctx.Err() == nil, ctx.Err()
	}
	if _, err := writer.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", foreignersMayTake.Milliseconds())); err != nil {
		return false, false, err
	}
	defer writer.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout.Milliseconds()))
	busy, err := checkpoint(ctx, writer, "TRUNCATE")
	return !busy, false, err
}

// foreignersMayTake is how long the writer waits for the readers of other
// processes.
const foreignersMayTake = 500 * time.Millisecond

func checkpoint(ctx context.Context, writer *sql.Conn, mode string) (busy bool, err error) {
	var frames, moved int
	err = writer.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &frames, &moved)
	return busy, err
}

// gapBatch is how many pages are overwritten in one transaction: appends wait
// for no more.
const gapBatch = 256

// clearGaps overwrites what no row occupies in the pages of all trees. A page
// that changes after it was looked at gets no more than copies of rows that
// exist.
func (s *Store) clearGaps(ctx context.Context) error {
	var pages int64
	if err := s.reading(ctx, "scrub: count the pages", func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages)
	}); err != nil {
		return err
	}
	if pages > gaps.MaxPages {
		// Which pages are a tree's cannot be told by looking at them.
		return s.asWriter(ctx, "scrub: write the file anew", func(writer *sql.Conn) error {
			_, err := writer.ExecContext(ctx, "VACUUM")
			return err
		})
	}
	group, ctx := errgroup.WithContext(ctx)
	for part := range int64(gapReaders) {
		group.Go(func() error { return s.clearRange(ctx, pages*part/gapReaders, pages*(part+1)/gapReaders) })
	}
	return group.Wait()
}

// gapReaders is how many look at pages at the same time: half of the readers, so
// that others find one.
const gapReaders = readers / 2

// clearRange clears the pages after one up to another. What the file grows by
// meanwhile was made after the deletion.
func (s *Store) clearRange(ctx context.Context, after, to int64) error {
	for {
		var dirty []int64
		err := s.reading(ctx, "scrub: look at the pages", func(tx *sql.Tx) (err error) {
			dirty, after, err = gaps.Find(ctx, tx, after, to, gapBatch)
			return err
		})
		if err != nil || len(dirty) == 0 {
			return err
		}
		if err := s.writing(ctx, "scrub: overwrite gaps", func(ctx context.Context, tx *sql.Tx) error {
			return gaps.Overwrite(ctx, tx, dirty)
		}); err != nil {
			return err
		}
	}
}

// epochs lets somebody wait for all who read now, without keeping others from
// beginning.
type epochs struct {
	mu      sync.Mutex
	current *epoch   // guarded by mu
	earlier []*epoch // guarded by mu: those that still have readers
}

type epoch struct {
	readers int
	// empty is closed when the last one leaves after the epoch's end.
	empty chan struct{}
	ended bool
}

func (e *epochs) enter() (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		e.current = &epoch{empty: make(chan struct{})}
	}
	own := e.current
	own.readers++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if own.readers--; own.readers == 0 && own.ended {
			close(own.empty)
		}
	}
}

// drain returns when all who had entered before the call have left. One caller at
// a time.
func (e *epochs) drain(ctx context.Context) error {
	e.mu.Lock()
	if e.current != nil && e.current.readers > 0 {
		e.current.ended = true
		e.earlier = append(e.earlier, e.current)
		e.current = nil
	}
	waiting := e.earlier
	e.mu.Unlock()
	for i, old := range waiting {
		select {
		case <-old.empty:
		case <-ctx.Done():
			e.mu.Lock()
			e.earlier = waiting[i:]
			e.mu.Unlock()
			return ctx.Err()
		}
	}
	e.mu.Lock()
	e.earlier = nil
	e.mu.Unlock()
	return nil
}

// scrubPending reports whether deleted text may still be in the files.
func scrubPending(ctx context.Context, tx *sql.Tx) (pending bool, err error) {
	err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM kv WHERE scope = ? AND key = ?)", kvShared, keyScrub).Scan(&pending)
	return pending, err
}

// ScrubPending reports whether something was deleted since the last Scrub that
// was finished.
func (s *Store) ScrubPending(ctx context.Context) (pending bool, err error) {
	err = s.reading(ctx, "read whether the files are to be scrubbed", func(tx *sql.Tx) error {
		pending, err = scrubPending(ctx, tx)
		return err
	})
	return pending, err
}
