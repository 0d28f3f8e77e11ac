package capability

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/gloveboxhq/glovebox/host/gaps"
)

// ForgetUser deletes all that the ledger has of one user, whatever hand it is of,
// also one that is configured no longer: the values, the runs and the decisions.
// The user's id is what Subject takes. Runs that are recorded afterwards are not
// found: the caller sees to it that there are none.
//
// Done is false if another process reads the file and so keeps its log, which then
// still has what was deleted; or if the context ended before it could be scrubbed,
// which the error says. The counts are right then; asking again finishes. When
// done is true no byte of it is in the file or its log.
func (l *Ledger) ForgetUser(ctx context.Context, user string) (f Forgotten, done bool, err error) {
	const what = "forget a user in the ledger"
	err = l.apply(ctx, 0, func(ctx context.Context, tx *sql.Tx) (refused, err error) {
		rows, err := tx.QueryContext(ctx, "SELECT hand FROM owners UNION SELECT hand FROM runs UNION SELECT hand FROM audit")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var hands []string
		for rows.Next() {
			var hand string
			if err := rows.Scan(&hand); err != nil {
				return nil, err
			}
			hands = append(hands, hand)
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		f = Forgotten{}
		// Another value each time, so that a Scrub that began before does not take
		// it for its own.
		if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO settings VALUES ('scrub_pending', randomblob(8))"); err != nil {
			return nil, err
		}
		for _, hand := range hands {
			if err := f.forget(ctx, tx, hand, l.Subject(hand, user)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		return Forgotten{}, false, fmt.Errorf("%s: %w", what, err)
	}
	if done, err = l.Scrub(ctx); err != nil {
		return f, false, fmt.Errorf("%s: scrub %s: %w", what, l.path, err)
	}
	return f, done, nil
}

// ForgetValues deletes the values that a hand keeps, for whomever: a hand that takes
// its name later is another one. What it did stays recorded.
func (l *Ledger) ForgetValues(ctx context.Context, hand string) error {
	err := l.apply(ctx, 0, func(ctx context.Context, tx *sql.Tx) (refused, err error) {
		for _, statement := range []string{
			"DELETE FROM kv WHERE owner IN (SELECT id FROM owners WHERE hand = ?)",
			"DELETE FROM owners WHERE hand = ?",
		} {
			if _, err := tx.ExecContext(ctx, statement, hand); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("forget the values of hand %q: %w", hand, err)
	}
	return nil
}

// forget deletes what there is of one hand and one subject, and counts it.
func (f *Forgotten) forget(ctx context.Context, tx *sql.Tx, hand, subject string) error {
	for _, step := range []struct {
		count     *int
		statement string
	}{
		{&f.Values, "DELETE FROM kv WHERE owner = (SELECT id FROM owners WHERE hand = ? AND subject = ?)"},
		{new(int), "DELETE FROM owners WHERE hand = ? AND subject = ?"},
		{&f.Runs, "DELETE FROM runs WHERE hand = ? AND subject = ?"},
		{&f.Decisions, "DELETE FROM audit WHERE hand = ? AND subject = ?"},
	} {
		result, err := tx.ExecContext(ctx, step.statement, hand, subject)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return err
		}
		*step.count += int(n)
	}
	return nil
}

// gapBatch is how many pages are overwritten in one transaction.
const gapBatch = 256

// Scrub finishes what ForgetUser began, if it could not be finished then. Done is
// false if it still cannot, because another process reads the file.
func (l *Ledger) Scrub(ctx context.Context) (done bool, err error) {
	var mark []byte
	if err := l.read.QueryRowContext(ctx, "SELECT value FROM settings WHERE key = 'scrub_pending'").Scan(&mark); errors.Is(err, sql.ErrNoRows) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	if done, err := l.scrub(ctx); err != nil || !done {
		return false, err
	}
	return true, l.apply(ctx, 0, func(ctx context.Context, tx *sql.Tx) (refused, err error) {
		_, err = tx.ExecContext(ctx, "DELETE FROM settings WHERE key = 'scrub_pending' AND value = ?", mark)
		return nil, err
	})
}

// scrub removes the last trace of what was deleted, in the way of the store of
// sessions.
func (l *Ledger) scrub(ctx context.Context) (done bool, err error) {
	for after := int64(0); ; {
		var dirty []int64
		if dirty, after, err = l.findGaps(ctx, after); err != nil {
			return false, err
		}
		if len(dirty) == 0 {
			break
		}
		if err := l.apply(ctx, len(dirty)<<12, func(ctx context.Context, tx *sql.Tx) (refused, err error) {
			return nil, gaps.Overwrite(ctx, tx, dirty)
		}); err != nil {
			return false, err
		}
	}
	var busy, frames, moved int
	if err := l.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return false, fmt.Errorf("truncate the log: %w", err)
	}
	return busy == 0, nil
}

func (l *Ledger) findGaps(ctx context.Context, after int64) (pages []int64, last int64, err error) {
	tx, err := l.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, after, err
	}
	defer tx.Rollback()
	return gaps.Find(ctx, tx, after, math.MaxInt64, gapBatch)
}

// CheckLedger examines the ledger at path, beside whoever writes it, and returns
// what is wrong with it, in words for an operator.
func CheckLedger(ctx context.Context, path string) (wrong []string, err error) {
	l := &Ledger{path: path}
	db, err := l.connect(1, "ro", "deferred", "query_only(ON)")
	if err != nil {
		return nil, fmt.Errorf("examine ledger %s: %w", path, err)
	}
	defer db.Close()
	report := func(query string, form func(...any) (string, bool), columns int) error {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			values := make([]any, columns)
			into := make([]any, columns)
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			if what, bad := form(values...); bad {
				wrong = append(wrong, what)
			}
		}
		return rows.Err()
	}
	err = report("PRAGMA integrity_check(20)", func(v ...any) (string, bool) {
		return fmt.Sprintf("the file is damaged: %v", v[0]), v[0] != "ok"
	}, 1)
	if err == nil && len(wrong) == 0 {
		err = report(`SELECT o.hand, o.bytes, coalesce(sum(length(k.key) + length(k.value)), 0) AS found FROM owners o
			LEFT JOIN kv k ON k.owner = o.id GROUP BY o.id HAVING found <> o.bytes LIMIT 20`, func(v ...any) (string, bool) {
			return fmt.Sprintf("hand %q keeps %v bytes for somebody, %v are counted", v[0], v[2], v[1]), true
		}, 3)
	}
	if err == nil && len(wrong) == 0 {
		err = report("SELECT count(*) FROM settings WHERE key = 'scrub_pending'", func(v ...any) (string, bool) {
			return "what was deleted may still be in the file: run glovebox doctor --repair when no other program reads it", v[0] != int64(0)
		}, 1)
	}
	if err != nil {
		return wrong, fmt.Errorf("examine ledger %s: %w", path, err)
	}
	return wrong, nil
}
