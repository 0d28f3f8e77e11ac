// Package gaps overwrites what SQLite leaves behind in its pages. With secure_delete
// SQLite overwrites what is deleted, but when it moves rows between the pages of a
// tree, copies of them stay in the gap between a page's directory and its cells,
// and no later deletion finds those.
//
// It sees pages through the virtual table sqlite_dbpage, so that a change is part of
// a transaction as any other is. A leaf: both databases need it, and neither side
// may reach the other.
package gaps

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Find looks at the pages after the one with the number after up to the one with
// the number to, in order, and returns the numbers of those whose gaps hold anything
// but zeros, at most most of them, and the number of the last page that it looked
// at. None means that there are no more. The file has less than MaxPages pages.
func Find(ctx context.Context, tx *sql.Tx, after, to int64, most int) (pages []int64, last int64, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT pgno, data FROM sqlite_dbpage WHERE pgno > ?", after)
	if err != nil {
		return nil, after, err
	}
	defer rows.Close()
	last = after
	for len(pages) < most && rows.Next() {
		var data sql.RawBytes
		if err := rows.Scan(&last, &data); err != nil {
			return nil, last, err
		}
		// sqlite_dbpage knows no ranges: it would go on to the end for nothing.
		if last > to {
			break
		}
		found, err := clearGap(last, data, false)
		if err != nil {
			return nil, last, fmt.Errorf("page %d: %w", last, err)
		}
		if found {
			pages = append(pages, last)
		}
	}
	return pages, last, rows.Err()
}

// Overwrite fills the gaps of pages with zeros. What became of a page since Find
// does not matter: it is looked at again.
func Overwrite(ctx context.Context, tx *sql.Tx, pages []int64) error {
	read, err := tx.PrepareContext(ctx, "SELECT data FROM sqlite_dbpage WHERE pgno = ?")
	if err != nil {
		return err
	}
	defer read.Close()
	update, err := tx.PrepareContext(ctx, "UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?")
	if err != nil {
		return err
	}
	defer update.Close()
	for _, number := range pages {
		var data []byte
		if err := read.QueryRowContext(ctx, number).Scan(&data); errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		if found, err := clearGap(number, data, true); err != nil {
			return fmt.Errorf("page %d: %w", number, err)
		} else if !found {
			continue
		}
		if _, err := update.ExecContext(ctx, data, number); err != nil {
			return err
		}
	}
	return nil
}
