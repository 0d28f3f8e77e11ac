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
		return s.failed(ctx, what, errClosed)
	}
	defer s.reads.enter()()
	tx, err := s.read.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback()
		err = f(tx)
	}
	if err != nil {
		return s.failed(ctx, what, err)
	}
	return nil
}

// glancing runs f with the readers, which asks a prepared statement or two for a few
// rows. Each has a snapshot of its own, and f gets a context that does not end: a
// transaction, and to watch ctx, cost more than the rows do. A turn is little else.
func (s *Store) glancing(ctx context.Context, what string, f func(context.Context) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return s.failed(ctx, what, errClosed)
	}
	defer s.reads.enter()()
	err := ctx.Err()
	if err == nil {
		err = f(context.WithoutCancel(ctx))
	}
	if err != nil {
		return s.failed(ctx, what, err)
	}
	return nil
}

// writing runs f in a transaction, which is on disk when writing returns nil. A
// process that dies before the commit leaves nothing of it. It waits for its
// turn as long as ctx allows; the transaction itself waits for nobody, so that
// f gets a context that does not end (to watch one costs more than to insert a
// row), and ctx is asked once more before the commit.
func (s *Store) writing(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	err := s.asWriter(ctx, what, func(writer *sql.Conn) error {
		clear(s.positions)
		defer s.tails.change()()
		return transact(ctx, writer, f)
	})
	if err == nil {
		s.indexer.notify()
	}
	return err
}

// writingBeside is writing of what leaves every frontier as it is, but for messages
// at the end and what has another revision after it.
func (s *Store) writingBeside(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	err := s.asWriter(ctx, what, func(writer *sql.Conn) error {
		clear(s.positions)
		return transact(ctx, writer, f)
	})
	if err == nil {
		s.indexer.notify()
	}
	return err
}

// writingIndex is writing for the indexer, which touches no session and need not
// be told of it.
func (s *Store) writingIndex(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	return s.asWriter(memory.Background(ctx), what, func(writer *sql.Conn) error { return transact(ctx, writer, f) })
}

// asWriter runs f with the connection that writes, which nobody else has
// meanwhile.
func (s *Store) asWriter(ctx context.Context, what string, f func(*sql.Conn) error) error {
	return s.asWriterUnless(ctx, what, nil, f)
}

// asWriterUnless is asWriter, but that f is not run, and there is no error, if
// settled is closed before its turn.
func (s *Store) asWriterUnless(ctx context.Context, what string, settled <-chan struct{}, f func(*sql.Conn) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return s.failed(ctx, what, errClosed)
	}
	if s.readOnly {
		return s.failed(ctx, what, fmt.Errorf("%w: it was opened for reading", memory.ErrReadOnly))
	}
	entered, err := s.writer.enterUnless(ctx, settled)
	if err != nil {
		return s.failed(ctx, what, err)
	}
	if !entered {
		return nil
	}
	defer s.writer.leave()
	writer, err := s.write.Conn(ctx)
	if err != nil {
		return s.failed(ctx, what, err)
	}
	defer writer.Close()
	if err := f(writer); err != nil {
		return s.failed(ctx, what, err)
	}
	return nil
}

func transact(ctx context.Context, writer *sql.Conn, f func(context.Context, *sql.Tx) error) error {
	unending := context.WithoutCancel(ctx)
	tx, err := writer.BeginTx(unending, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(unending, tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return tx.Commit()
}

// failed says what could not be done and, unless the caller's own values are
// why, in which file.
func (s *Store) failed(ctx context.Context, what string, err error) error {
	if errors.Is(err, memory.ErrNotFound) || errors.Is(err, memory.ErrConflict) || errors.Is(err, memory.ErrInvalid) || errors.Is(err, memory.ErrWiped) {
		return fmt.Errorf("%s: %w", what, err)
	}
	// When its context ends, a transaction is rolled back beside whoever works
	// in it, who may notice that first.
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%s: database %s: %w", what, s.path, explain(err))
}

// prepare makes statements for queries, each at the place beside it.
func prepare(ctx context.Context, db *sql.DB, queries map[**sql.Stmt]string) (err error) {
	for statement, query := range queries {
		if *statement, err = db.PrepareContext(ctx, query); err != nil {
			return explain(err)
		}
	}
	return nil
}

func closeAll(statements ...*sql.Stmt) {
	for _, s := range statements {
		if s != nil {
			_ = s.Close()
		}
	}
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

// valid is text as it is stored: see memory.Store.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// optionalText is a text as a parameter; "" is NULL.
func optionalText(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

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
	if !memory.ValidName(u.Name) {
		return fmt.Errorf("%s: the name is out of form: %w", what, memory.ErrInvalid)
	}
	if u.ID.IsZero() {
		return fmt.Errorf("%s: it has no id: %w", what, memory.ErrInvalid)
	}
	return s.writing(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if err := notWiped(ctx, tx, u.ID); err != nil {
			return err
		}
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
		// Somebody may have read the topics of a user who was wiped and had this ID.
		_, err = tx.ExecContext(ctx, "INSERT INTO users (id, name, is_default, created_at, memory_revision) VALUES (?, ?, 0, ?, random() >> 2)", blob(u.ID), u.Name, micros(u.CreatedAt))
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
		return a, fmt.Errorf("%s: the name is out of form: %w", what, memory.ErrInvalid)
	}
	err = s.writing(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		id := memory.NewID[memory.AgentID]()
		a, err = scanAgent(tx.QueryRowContext(ctx, "INSERT INTO agents VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET manifest = excluded.manifest RETURNING "+agentColumns,
			blob(id), name, valid(manifest), micros(at)))
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

const sessionColumns = "id, agent_id, user_id, parent_session_id, title, coalesce(name, ''), created_at, last_active_at, user_messages, exchanges, messages"

func scanSession(r row) (v memory.Session, err error) {
	return v, r.Scan(into(&v.ID), into(&v.Agent), into(&v.User), into(&v.Parent), &v.Title, &v.Name,
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
	err = s.writingBeside(ctx, "create session", func(ctx context.Context, tx *sql.Tx) error {
		var user, agent, parent, exists, wiped bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM users WHERE id = ?), EXISTS (SELECT 1 FROM agents WHERE id = ?),
			?3 IS NULL OR EXISTS (SELECT 1 FROM sessions WHERE id = ?3 AND user_id = ?1), EXISTS (SELECT 1 FROM sessions WHERE id = ?4),
			EXISTS (SELECT 1 FROM wipes WHERE user_id = ?1)`,
			blob(v.User), blob(v.Agent), blob(v.Parent), blob(v.ID)).Scan(&user, &agent, &parent, &exists, &wiped); err != nil {
			return err
		}
		switch {
		case !user:
			return fmt.Errorf("user: %w", memory.ErrNotFound)
		case wiped:
			return memory.ErrWiped
		case !agent:
			return fmt.Errorf("agent: %w", memory.ErrNotFound)
		case !parent:
			return fmt.Errorf("parent session: %w", memory.ErrNotFound)
		case exists:
			return fmt.Errorf("the id is taken: %w", memory.ErrConflict)
		}
		created, err = scanSession(tx.QueryRowContext(ctx, `INSERT INTO sessions (id, agent_id, user_id, parent_session_id, title, created_at, last_active_at)
			VALUES (?, ?, ?, ?, ?, ?6, ?6) RETURNING `+sessionColumns,
			blob(v.ID), blob(v.Agent), blob(v.User), blob(v.Parent), valid(v.Title), micros(v.CreatedAt)))
		return err
	})
	return created, err
}

// Session implements memory.Store.
func (s *Store) Session(ctx context.Context, user memory.UserID, id memory.SessionID) (v memory.Session, err error) {
	err = s.glancing(ctx, "read session "+id.String(), func(ctx context.Context) error {
		v, err = scanSession(s.showing.session.QueryRowContext(ctx, blob(id), blob(user)))
		return found(err)
	})
	return v, err
}

// Sessions implements memory.Store.
func (s *Store) Sessions(ctx context.Context, user memory.UserID, q memory.SessionQuery) (sessions []memory.Session, err error) {
	err = s.reading(ctx, "read sessions", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE user_id = ?1 AND (?2 IS NULL OR agent_id = ?2) AND (NOT ?4 OR user_messages > 0) AND (?5 IS NULL OR name = ?5) ORDER BY last_active_at DESC, id DESC LIMIT ?3 + 0",
			blob(user), blob(q.Agent), limit(q.Limit), q.WithUser, optionalText(q.Name))
		sessions, err = all(rows, err, scanSession)
		return err
	})
	return sessions, err
}

// LastActivity implements memory.Store.
func (s *Store) LastActivity(ctx context.Context, user memory.UserID, agent memory.AgentID) (at time.Time, err error) {
	err = s.glancing(ctx, "read last activity", func(ctx context.Context) error {
		var last sql.NullInt64
		if err := s.showing.lastActive.QueryRowContext(ctx, blob(agent), blob(user)).Scan(&last); err != nil {
			return err
		}
		if last.Valid {
			at = fromMicros(last.Int64)
		}
		return nil
	})
	return at, err
}
