// Package kv keeps values from one query to the next: those of this hand for the
// user whom it is asked for, whom nobody else can read. Importing it makes the
// module ask for the capability "kv"; the manifest must ask for it too.
//
// Keys are 1 to MaxKeyBytes bytes of UTF-8. The operator limits the size of one
// value and that of all keys and values together, by default to 1 MiB and
// 16 MiB.
//
// Errors match the kinds of package abi with errors.Is: not_found for an absent
// key, bad_request for a key that is none, too_large for a value over its limit,
// quota_exceeded when all together are over theirs, too_many_calls, not_granted,
// timeout and unavailable; disabled outside a hand.
package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/internal/guest"
)

// MaxKeyBytes bounds a key.
const MaxKeyBytes = abi.MaxKeyBytes

// MaxPageKeys bounds one page of List.
const MaxPageKeys = abi.MaxPageEntries

func init() {
	guest.WarmJSON(
		abi.KVGetRequest{Key: "x"}, abi.KVSetRequest{Key: "x"}, abi.KVDeleteRequest{Key: "x"},
		abi.KVListRequest{Prefix: "x", After: "x", Limit: 1}, abi.KVListResult{Keys: []string{"x"}, More: true},
	)
}

// Store is what the functions of this package reach: the host's inside a hand,
// that of WithStore in a test. It is given valid keys and limits alone.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Set(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page is a part of the keys, in the order of their bytes.
type Page struct {
	Keys []string
	// More says that keys follow the last one.
	More bool
}

type storeKey struct{}

// WithStore returns a context in which the functions of this package use s. It
// is how a native test gives a hand its values; see Memory.
func WithStore(ctx context.Context, s Store) context.Context {
	return context.WithValue(ctx, storeKey{}, s)
}

func storeOf(ctx context.Context) Store {
	if s, ok := ctx.Value(storeKey{}).(Store); ok {
		return s
	}
	return host{}
}

// Get returns the value of key.
func Get(ctx context.Context, key string) ([]byte, error) {
	if err := check(key); err != nil {
		return nil, failed("get", key, err)
	}
	value, err := storeOf(ctx).Get(ctx, key)
	return value, failed("get", key, err)
}

// Set stores a value, which may be empty. It is on the operator's disk when Set
// returns nil, and replaces an earlier one as a whole or not at all. Each Set
// waits for that disk: one value that holds many things is quicker than many.
func Set(ctx context.Context, key string, value []byte) error {
	if err := check(key); err != nil {
		return failed("set", key, err)
	}
	return failed("set", key, storeOf(ctx).Set(ctx, key, value))
}

// Delete removes a value. That there is none is not an error.
func Delete(ctx context.Context, key string) error {
	if err := check(key); err != nil {
		return failed("delete", key, err)
	}
	return failed("delete", key, storeOf(ctx).Delete(ctx, key))
}

// List returns the first keys that begin with prefix and come after the key
// after, which need not exist; "" stands before all. A limit of 0, or over
// MaxPageKeys, means MaxPageKeys.
func List(ctx context.Context, prefix, after string, limit int) (Page, error) {
	if limit < 0 || !utf8.ValidString(prefix) || !utf8.ValidString(after) {
		return Page{}, failed("list", prefix, abi.KindBadRequest)
	}
	if limit == 0 || limit > MaxPageKeys {
		limit = MaxPageKeys
	}
	page, err := storeOf(ctx).List(ctx, prefix, after, limit)
	return page, failed("list", prefix, err)
}

// Keys returns all keys that begin with prefix, in the order of their bytes, a
// page at a time. Values may be set and deleted meanwhile. An error ends it.
func Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for after := ""; ; {
			page, err := List(ctx, prefix, after, 0)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page.Keys {
				if !yield(key, nil) {
					return
				}
				after = key
			}
			if !page.More || len(page.Keys) == 0 {
				return
			}
		}
	}
}

// check also keeps invalid UTF-8 from JSON, which would put the same letter for
// different bytes, and so make one key of two.
func check(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !utf8.ValidString(key) {
		return abi.KindBadRequest
	}
	return nil
}

func failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kv %s %q: %w", op, key[:min(len(key), MaxKeyBytes)], err)
}

// host asks the host.
type host struct{}

func (host) Get(_ context.Context, key string) ([]byte, error) {
	return call(hostGet, abi.KVGetRequest{Key: key})
}

func (host) Set(_ context.Context, key string, value []byte) error {
	request, err := json.Marshal(abi.KVSetRequest{Key: key})
	if err != nil {
		return err
	}
	_, err = guest.Call(hostSet, append(append(request, '\n'), value...))
	return err
}

func (host) Delete(_ context.Context, key string) error {
	_, err := call(hostDelete, abi.KVDeleteRequest{Key: key})
	return err
}

func (host) List(_ context.Context, prefix, after string, limit int) (Page, error) {
	data, err := call(hostList, abi.KVListRequest{Prefix: prefix, After: after, Limit: limit})
	if err != nil {
		return Page{}, err
	}
	var result abi.KVListResult
	if err := json.Unmarshal(data, &result); err != nil {
		return Page{}, err
	}
	return Page(result), nil
}

func call(f guest.Function, request any) ([]byte, error) {
	encoded, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return guest.Call(f, encoded)
}
