package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gloveboxhq/glovebox/memory"
)

const fileColumns = "f.id, f.session_id, f.name, f.mime, f.bytes, f.tokens, f.digest, f.outline, f.trust, f.created_at"

// preparedFile is a file with its block as it is stored.
type preparedFile struct {
	memory.File
	block string
}

func scanFile(r row, after ...any) (f memory.File, err error) {
	return f, r.Scan(append([]any{into(&f.ID), into(&f.Session), &f.Name, &f.MIME, &f.Bytes, &f.Tokens, &f.Digest, &f.Outline, &f.Trust, instant{&f.CreatedAt}}, after...)...)
}

func insertFile(ctx context.Context, tx *sql.Tx, f preparedFile) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO files (id, session_id, name, mime, bytes, tokens, digest, outline, trust, created_at, block) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		blob(f.ID), blob(f.Session), f.Name, f.MIME, f.Bytes, f.Tokens, f.Digest, f.Outline, string(f.Trust), micros(f.CreatedAt), f.block)
	return err
}

// refer returns memory.ErrInvalid unless the file is of the session: a block names
// no other.
func refer(ctx context.Context, tx *sql.Tx, session memory.SessionID, id memory.FileID) error {
	known := false
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM files WHERE id = ? AND session_id = ?)", blob(id), blob(session)).Scan(&known); err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("a block names file %s, which the session does not have: %w", id, memory.ErrInvalid)
	}
	return nil
}

// Files implements memory.Store.
func (s *Store) Files(ctx context.Context, user memory.UserID, session memory.SessionID) (files []memory.File, err error) {
	err = s.reading(ctx, "read files of session "+session.String(), func(tx *sql.Tx) error {
		if _, err := s.revision(ctx, tx, user, session); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+fileColumns+" FROM files f WHERE f.session_id = "+ownSession+" ORDER BY f.number", blob(session), blob(user))
		files, err = all(rows, err, func(r row) (memory.File, error) { return scanFile(r) })
		return err
	})
	return files, err
}

// File implements memory.Store.
func (s *Store) File(ctx context.Context, user memory.UserID, id memory.FileID) (f memory.File, b memory.Block, err error) {
	err = s.reading(ctx, "read file "+id.String(), func(tx *sql.Tx) error {
		f, b, err = scanWholeFile(tx.QueryRowContext(ctx, "SELECT "+fileColumns+", f.block FROM files f JOIN sessions s ON s.id = f.session_id WHERE f.id = ? AND s.user_id = ?", blob(id), blob(user)))
		return found(err)
	})
	if err != nil {
		return memory.File{}, memory.Block{}, err
	}
	return f, b, nil
}

// scanWholeFile reads fileColumns and the block.
func scanWholeFile(r row) (f memory.File, b memory.Block, err error) {
	var block []byte
	if f, err = scanFile(r, &block); err != nil {
		return f, b, err
	}
	if err := b.UnmarshalJSON(block); err != nil {
		return f, b, fmt.Errorf("file %s as stored: %w", f.ID, err)
	}
	return f, b, nil
}

// whole returns blocks with those of the session's files in the place of their
// outlines.
func whole(ctx context.Context, tx *sql.Tx, session memory.SessionID, blocks []memory.Block) ([]memory.Block, error) {
	var resolved []memory.Block
	for i, outline := range blocks {
		if outline.File.IsZero() {
			continue
		}
		_, b, err := scanWholeFile(tx.QueryRowContext(ctx, "SELECT "+fileColumns+", f.block FROM files f WHERE f.id = ? AND f.session_id = ?", blob(outline.File), blob(session)))
		if err == sql.ErrNoRows {
			continue
		}
		if err != nil {
			return nil, err
		}
		if resolved == nil {
			resolved = append(resolved, blocks...)
		}
		resolved[i] = b
	}
	if resolved == nil {
		return blocks, nil
	}
	return resolved, nil
}
