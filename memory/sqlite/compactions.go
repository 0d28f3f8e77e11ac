package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// RecordCompaction implements memory.Store.
func (s *Store) RecordCompaction(ctx context.Context, user memory.UserID, run memory.CompactionRun) error {
	return s.writingBeside(ctx, "record compaction of session "+run.Session.String(), func(ctx context.Context, tx *sql.Tx) error {
		if err := notWiped(ctx, tx, user); err != nil {
			return err
		}
		recorded, err := tx.ExecContext(ctx, `INSERT INTO compaction_runs (session_id, agent_id, trigger, outcome, reason, items_before, items_after,
			tokens_before, tokens_after, summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took)
			SELECT s.id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16 FROM sessions s WHERE s.id = ?1 AND s.user_id = ?2 AND s.agent_id = ?3`,
			blob(run.Session), blob(user), blob(run.Agent), string(run.Trigger), string(run.Outcome), valid(run.Reason), run.ItemsBefore, run.ItemsAfter,
			run.TokensBefore, run.TokensAfter, run.Summaries, run.RefreshBlocks, run.RefreshTokens, run.RefreshSkipped, micros(run.StartedAt), int64(run.Took))
		if err != nil {
			return err
		}
		if n, err := recorded.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return memory.ErrNotFound
	})
}

// Compactions implements memory.Store.
func (s *Store) Compactions(ctx context.Context, user memory.UserID, id memory.SessionID, limit int) (runs []memory.CompactionRun, err error) {
	if limit < 0 {
		return nil, fmt.Errorf("read compactions of session %s: a limit of %d: %w", id, limit, memory.ErrInvalid)
	}
	if limit == 0 {
		limit = -1 // as SQLite has it
	}
	err = s.reading(ctx, "read compactions of session "+id.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, id); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT session_id, agent_id, trigger, outcome, reason, items_before, items_after, tokens_before, tokens_after,
			summaries, refresh_blocks, refresh_tokens, refresh_skipped, started_at, took FROM compaction_runs WHERE session_id = `+ownSession+` ORDER BY id DESC LIMIT ?3 + 0`,
			blob(id), blob(user), limit)
		runs, err = all(rows, err, func(r row) (c memory.CompactionRun, err error) {
			return c, r.Scan(into(&c.Session), into(&c.Agent), &c.Trigger, &c.Outcome, &c.Reason, &c.ItemsBefore, &c.ItemsAfter, &c.TokensBefore, &c.TokensAfter,
				&c.Summaries, &c.RefreshBlocks, &c.RefreshTokens, &c.RefreshSkipped, instant{&c.StartedAt}, &c.Took)
		})
		slices.Reverse(runs)
		return err
	})
	return runs, err
}
