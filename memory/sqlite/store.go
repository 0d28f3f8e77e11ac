package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

var errClosed = errors.New("the store is closed")

// reading runs f with the readers, in one snapshot of the database.
func (s *Store) reading(ctx context.Context, what string, f func(*sql.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return fmt.Errorf("%s: %w", what, errClosed)
	}
	tx, err := s.read.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback()
		err = f(tx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, explain(err))
	}
	return nil
}

// writing runs f in a transaction, which is on disk when writing returns nil.
func (s *Store) writing(ctx context.Context, what string, f func(*sql.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return fmt.Errorf("%s: %w", what, errClosed)
	}
	if s.readOnly {
		return fmt.Errorf("%s: the database was opened for reading: %w", what, memory.ErrReadOnly)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback()
		if err = f(tx); err == nil {
			err = tx.Commit()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, explain(err))
	}
	return nil
}

// row is what *sql.Row and *sql.Rows have in common.
type row interface{ Scan(...any) error }

// all reads every row with scan.
func all[T any](rows *sql.Rows, err error, scan func(row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// found turns the absence of a row into memory.ErrNotFound.
func found(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return memory.ErrNotFound
	}
	return err
}

// blob is an id as a parameter; a zero id is NULL.
func blob[K any](id memory.ID[K]) []byte {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// identifier reads an id from a column; NULL is the zero id.
type identifier[K any] struct{ to *memory.ID[K] }

// Scan implements sql.Scanner.
func (i identifier[K]) Scan(value any) error {
	if value == nil {
		*i.to = memory.ID[K]{}
		return nil
	}
	b, ok := value.([]byte)
	if !ok || len(b) != len(i.to) {
		return fmt.Errorf("an id of %d bytes", len(b))
	}
	copy(i.to[:], b)
	return nil
}

func into[K any](id *memory.ID[K]) identifier[K] { return identifier[K]{id} }

// instant reads a time from a column.
type instant struct{ to *time.Time }

// Scan implements sql.Scanner.
func (i instant) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a time that is a %T", value)
	}
	*i.to = fromMicros(n)
	return nil
}

const userColumns = "id, name, is_default, created_at"

func scanUser(r row) (u memory.User, err error) {
	return u, r.Scan(into(&u.ID), &u.Name, &u.IsDefault, instant{&u.CreatedAt})
}

// DefaultUser implements memory.Store.
func (s *Store) DefaultUser(ctx context.Context) (u memory.User, err error) {
	err = s.reading(ctx, "read the default user", func(tx *sql.Tx) error {
		u, err = scanUser(tx.QueryRowContext(ctx, "SELECT "+userColumns+" FROM users WHERE id = (SELECT value FROM kv WHERE scope = ? AND key = ?)", kvShared, keyDefaultUser))
		return found(err)
	})
	return u, err
}

// Users implements memory.Store.
func (s *Store) Users(ctx context.Context) (users []memory.User, err error) {
	err = s.reading(ctx, "read users", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT "+userColumns+" FROM users ORDER BY is_default DESC, name")
		users, err = all(rows, err, scanUser)
		return err
	})
	return users, err
}

// PutUser implements memory.Store.
func (s *Store) PutUser(ctx context.Context, u memory.User) error {
	what := fmt.Sprintf("put user %q", u.Name)
	if !memory.ValidName(u.Name) || u.ID.IsZero() {
		return fmt.Errorf("%s: a name out of form or no id: %w", what, memory.ErrInvalid)
	}
	return s.writing(ctx, what, func(tx *sql.Tx) error {
		taken := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM users WHERE name = ? AND id <> ?)", u.Name, blob(u.ID)).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return fmt.Errorf("another user has this name: %w", memory.ErrConflict)
		}
		renamed, err := tx.ExecContext(ctx, "UPDATE users SET name = ? WHERE id = ?", u.Name, blob(u.ID))
		if err != nil {
			return err
		}
		if n, err := renamed.RowsAffected(); err != nil || n > 0 {
			return err
		}
		if u.IsDefault {
			return fmt.Errorf("there is one default user already: %w", memory.ErrInvalid)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO users VALUES (?, ?, 0, ?)", blob(u.ID), u.Name, micros(u.CreatedAt))
		return err
	})
}

const agentColumns = "id, name, manifest, created_at"

func scanAgent(r row) (a memory.Agent, err error) {
	return a, r.Scan(into(&a.ID), &a.Name, &a.Manifest, instant{&a.CreatedAt})
}

// PutAgent implements memory.Store.
func (s *Store) PutAgent(ctx context.Context, name, manifest string, at time.Time) (a memory.Agent, err error) {
	what := fmt.Sprintf("put agent %q", name)
	if !memory.ValidName(name) {
		return a, fmt.Errorf("%s: a name out of form: %w", what, memory.ErrInvalid)
	}
	err = s.writing(ctx, what, func(tx *sql.Tx) error {
		id := memory.NewID[memory.AgentID]()
		a, err = scanAgent(tx.QueryRowContext(ctx, "INSERT INTO agents VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET manifest = excluded.manifest RETURNING "+agentColumns,
			blob(id), name, manifest, micros(at)))
		return err
	})
	return a, err
}

// Agents implements memory.Store.
func (s *Store) Agents(ctx context.Context) (agents []memory.Agent, err error) {
	err = s.reading(ctx, "read agents", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT "+agentColumns+" FROM agents ORDER BY name")
		agents, err = all(rows, err, scanAgent)
		return err
	})
	return agents, err
}

const sessionColumns = "id, agent_id, user_id, parent_session_id, title, created_at, last_active_at, user_messages, exchanges, messages"

func scanSession(r row) (v memory.Session, err error) {
	return v, r.Scan(into(&v.ID), into(&v.Agent), into(&v.User), into(&v.Parent), &v.Title,
		instant{&v.CreatedAt}, instant{&v.LastActive}, &v.UserMessages, &v.Exchanges, &v.Messages)
}

// CreateSession implements memory.Store.
func (s *Store) CreateSession(ctx context.Context, v memory.Session) (created memory.Session, err error) {
	if v.ID.IsZero() {
		v.ID = memory.NewID[memory.SessionID]()
	}
	if v.CreatedAt.IsZero() {
		return created, fmt.Errorf("create session: no time: %w", memory.ErrInvalid)
	}
	err = s.writing(ctx, "create session", func(tx *sql.Tx) error {
		var user, agent, parent, exists bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM users WHERE id = ?), EXISTS (SELECT 1 FROM agents WHERE id = ?),
			?3 IS NULL OR EXISTS (SELECT 1 FROM sessions WHERE id = ?3 AND user_id = ?1), EXISTS (SELECT 1 FROM sessions WHERE id = ?4)`,
			blob(v.User), blob(v.Agent), blob(v.Parent), blob(v.ID)).Scan(&user, &agent, &parent, &exists); err != nil {
			return err
		}
		switch {
		case !user:
			return fmt.Errorf("user: %w", memory.ErrNotFound)
		case !agent:
			return fmt.Errorf("agent: %w", memory.ErrNotFound)
		case !parent:
			return fmt.Errorf("parent session: %w", memory.ErrNotFound)
		case exists:
			return fmt.Errorf("the id is taken: %w", memory.ErrConflict)
		}
		created, err = scanSession(tx.QueryRowContext(ctx, `INSERT INTO sessions (id, agent_id, user_id, parent_session_id, title, created_at, last_active_at)
			VALUES (?, ?, ?, ?, ?, ?6, ?6) RETURNING `+sessionColumns,
			blob(v.ID), blob(v.Agent), blob(v.User), blob(v.Parent), strings.ToValidUTF8(v.Title, "\ufffd"), micros(v.CreatedAt)))
		return err
	})
	return created, err
}

func session(ctx context.Context, tx *sql.Tx, user memory.UserID, id memory.SessionID) (memory.Session, error) {
	v, err := scanSession(tx.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE id = ? AND user_id = ?", blob(id), blob(user)))
	return v, found(err)
}

// Session implements memory.Store.
func (s *Store) Session(ctx context.Context, user memory.UserID, id memory.SessionID) (v memory.Session, err error) {
	err = s.reading(ctx, "read session "+id.String(), func(tx *sql.Tx) error {
		v, err = session(ctx, tx, user, id)
		return err
	})
	return v, err
}

// Sessions implements memory.Store.
func (s *Store) Sessions(ctx context.Context, user memory.UserID, q memory.SessionQuery) (sessions []memory.Session, err error) {
	limit := -1
	if q.Limit > 0 {
		limit = q.Limit
	}
	err = s.reading(ctx, "read sessions", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE user_id = ?1 AND (?2 IS NULL OR agent_id = ?2) ORDER BY last_active_at DESC, id DESC LIMIT ?3",
			blob(user), blob(q.Agent), limit)
		sessions, err = all(rows, err, scanSession)
		return err
	})
	return sessions, err
}

// LastActivity implements memory.Store.
func (s *Store) LastActivity(ctx context.Context, user memory.UserID, agent memory.AgentID) (at time.Time, err error) {
	err = s.reading(ctx, "read last activity", func(tx *sql.Tx) error {
		var last sql.NullInt64
		if err := tx.QueryRowContext(ctx, "SELECT max(last_active_at) FROM sessions WHERE agent_id = ? AND user_id = ? AND active", blob(agent), blob(user)).Scan(&last); err != nil {
			return err
		}
		if last.Valid {
			at = fromMicros(last.Int64)
		}
		return nil
	})
	return at, err
}
