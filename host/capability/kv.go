package capability

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gloveboxhq/glovebox/abi"
)

// The actions of KV.
const (
	ActionKVGet    Action = "kv.get"
	ActionKVSet    Action = "kv.set"
	ActionKVDelete Action = "kv.delete"
	ActionKVList   Action = "kv.list"
)

// KV is the port to the values of one hand for one subject, in the ledger's
// file. It implements sandbox.KV, holds nothing that must be closed, and is safe
// for concurrent use, like the values themselves: each call is one transaction.
type KV struct {
	door   door
	limits abi.Limits
}

// NewKV returns the port. Of limits it takes KVValueBytes and KVTotalBytes; zero
// means the default.
func NewKV(ledger *Ledger, caller Caller, limits abi.Limits) *KV {
	standard := abi.DefaultLimits()
	limits.KVValueBytes = cmp.Or(limits.KVValueBytes, standard.KVValueBytes)
	limits.KVTotalBytes = cmp.Or(limits.KVTotalBytes, standard.KVTotalBytes)
	return &KV{door{ledger, caller}, limits}
}

// valueStatements are what KV runs, on the connections of the ledger.
type valueStatements struct {
	// for reading
	get, list *sql.Stmt
	// for writing
	owner, size, addOwner, put, remove, account *sql.Stmt
}

func (s *valueStatements) prepare(ctx context.Context, write, read *sql.DB) error {
	for _, p := range []struct {
		into **sql.Stmt
		db   *sql.DB
		text string
	}{
		{&s.get, read, "SELECT value FROM kv WHERE owner = (SELECT id FROM owners WHERE hand = ? AND subject = ?) AND key = ?"},
		{&s.list, read, `SELECT key FROM kv WHERE owner = (SELECT id FROM owners WHERE hand = ? AND subject = ?)
			AND key >= ? AND key < ? ORDER BY key LIMIT ? + 0`},
		{&s.owner, write, "SELECT id, bytes FROM owners WHERE hand = ? AND subject = ?"},
		{&s.size, write, "SELECT length(key) + length(value) FROM kv WHERE owner = ? AND key = ?"},
		{&s.addOwner, write, "INSERT INTO owners (hand, subject, bytes) VALUES (?, ?, 0) RETURNING id"},
		{&s.put, write, "INSERT INTO kv (owner, key, value) VALUES (?, ?, ?) ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value"},
		{&s.remove, write, "DELETE FROM kv WHERE owner = ? AND key = ?"},
		{&s.account, write, "UPDATE owners SET bytes = ? WHERE id = ?"},
	} {
		var err error
		if *p.into, err = p.db.PrepareContext(ctx, p.text); err != nil {
			return err
		}
	}
	return nil
}

// Get implements sandbox.KV.
func (k *KV) Get(ctx context.Context, r abi.KVGetRequest) ([]byte, error) {
	if err := k.door.decide(ctx, ActionKVGet, r.Key, nil); err != nil {
		return nil, err
	}
	caller := k.door.caller
	var value []byte
	err := k.door.ledger.values.get.QueryRowContext(ctx, caller.Hand, caller.Subject, []byte(r.Key)).Scan(&value)
	return value, k.translate(ctx, ActionKVGet, err)
}

// Set implements sandbox.KV. The value is durable when it returns nil. A set
// that leaves the subject with more than KVTotalBytes of keys and values, and
// with more than before, is refused and changes nothing.
func (k *KV) Set(ctx context.Context, r abi.KVSetRequest) error {
	if int64(len(r.Value)) > k.limits.KVValueBytes {
		return k.door.decide(ctx, ActionKVSet, r.Key, &refusal{abi.KindTooLarge,
			fmt.Sprintf("a value of %d bytes: at most %d are allowed", len(r.Value), k.limits.KVValueBytes)})
	}
	if err := k.door.decide(ctx, ActionKVSet, r.Key, nil); err != nil {
		return err
	}
	added := int64(len(r.Key) + len(r.Value))
	var over *refusal
	err := k.door.ledger.apply(ctx, int(added), func(ctx context.Context, tx *sql.Tx) (refused, err error) {
		v, caller, key := &k.door.ledger.values, k.door.caller, []byte(r.Key)
		var owner, total, replaced int64
		switch err := tx.StmtContext(ctx, v.owner).QueryRowContext(ctx, caller.Hand, caller.Subject).Scan(&owner, &total); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return nil, err
		default:
			if replaced, err = v.replaced(ctx, tx, owner, key); err != nil {
				return nil, err
			}
		}
		if total += added - replaced; total > k.limits.KVTotalBytes && added > replaced {
			over = &refusal{abi.KindQuotaExceeded, fmt.Sprintf("the keys and values would have %d bytes: at most %d are allowed", total, k.limits.KVTotalBytes)}
			return abi.KindQuotaExceeded, nil
		}
		if owner == 0 {
			if err := tx.StmtContext(ctx, v.addOwner).QueryRowContext(ctx, caller.Hand, caller.Subject).Scan(&owner); err != nil {
				return nil, err
			}
		}
		value := r.Value
		if value == nil {
			value = []byte{} // nil would be NULL
		}
		if _, err := tx.StmtContext(ctx, v.put).ExecContext(ctx, owner, key, value); err != nil {
			return nil, err
		}
		_, err = tx.StmtContext(ctx, v.account).ExecContext(ctx, total, owner)
		return nil, err
	})
	if errors.Is(err, abi.KindQuotaExceeded) {
		return k.door.decide(ctx, ActionKVSet, r.Key, over)
	}
	return k.translate(ctx, ActionKVSet, err)
}

// Delete implements sandbox.KV. The value is gone for good when it returns nil.
func (k *KV) Delete(ctx context.Context, r abi.KVDeleteRequest) error {
	if err := k.door.decide(ctx, ActionKVDelete, r.Key, nil); err != nil {
		return err
	}
	err := k.door.ledger.apply(ctx, 0, func(ctx context.Context, tx *sql.Tx) (refused, err error) {
		v, caller, key := &k.door.ledger.values, k.door.caller, []byte(r.Key)
		var owner, total int64
		err = tx.StmtContext(ctx, v.owner).QueryRowContext(ctx, caller.Hand, caller.Subject).Scan(&owner, &total)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		removed, err := v.replaced(ctx, tx, owner, key)
		if err != nil || removed == 0 {
			return nil, err
		}
		if _, err := tx.StmtContext(ctx, v.remove).ExecContext(ctx, owner, key); err != nil {
			return nil, err
		}
		_, err = tx.StmtContext(ctx, v.account).ExecContext(ctx, total-removed, owner)
		return nil, err
	})
	return k.translate(ctx, ActionKVDelete, err)
}

// replaced returns the bytes of a key and its value; 0 if there is none, for a
// key is never empty.
func (s *valueStatements) replaced(ctx context.Context, tx *sql.Tx, owner int64, key []byte) (int64, error) {
	var size int64
	err := tx.StmtContext(ctx, s.size).QueryRowContext(ctx, owner, key).Scan(&size)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return size, err
}

// List implements sandbox.KV. Its order is that of the keys' bytes.
func (k *KV) List(ctx context.Context, r abi.KVListRequest) (abi.KVListResult, error) {
	if err := k.door.decide(ctx, ActionKVList, r.Prefix, nil); err != nil {
		return abi.KVListResult{}, err
	}
	// One bound from below, for SQLite seeks to one and would pass over the
	// rest row by row. The least key after another is that and a NUL;
	// none is less than a NUL.
	from := r.Prefix
	if r.After >= r.Prefix {
		from = r.After + "\x00"
	}
	// No key in UTF-8 has the byte 0xff: all that begin with the prefix are
	// less than this.
	below := r.Prefix + "\xff"
	caller := k.door.caller
	rows, err := k.door.ledger.values.list.QueryContext(ctx, caller.Hand, caller.Subject, []byte(from), []byte(below), r.Limit+1)
	if err != nil {
		return abi.KVListResult{}, k.translate(ctx, ActionKVList, err)
	}
	defer rows.Close()
	result := abi.KVListResult{Keys: []string{}}
	for rows.Next() {
		if len(result.Keys) == r.Limit {
			result.More = true
			break
		}
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return abi.KVListResult{}, k.translate(ctx, ActionKVList, err)
		}
		result.Keys = append(result.Keys, string(key))
	}
	return result, k.translate(ctx, ActionKVList, rows.Err())
}

// translate gives an error its kind; that of no error is none.
func (k *KV) translate(ctx context.Context, action Action, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", action, abi.KindNotFound)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %w", action, context.Cause(ctx), abi.KindTimeout)
	}
	return fmt.Errorf("%s: %w: %w", action, err, abi.KindUnavailable)
}
