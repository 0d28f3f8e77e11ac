package kv

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/gloveboxhq/glovebox/abi"
)

// Memory is a Store for native tests. It answers as the host does. The zero
// value is empty and without limits; it is safe for concurrent use and must not
// be copied.
type Memory struct {
	// ValueBytes bounds one value, TotalBytes all keys and values; zero means
	// no bound. They are set before first use.
	ValueBytes, TotalBytes int

	mu sync.Mutex
	// values and bytes, the size of keys and values, are guarded by mu.
	values map[string][]byte
	bytes  int
}

var _ Store = (*Memory)(nil)

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	if !ok {
		return nil, abi.KindNotFound
	}
	return append([]byte{}, value...), nil
}

// Set implements Store.
func (m *Memory) Set(_ context.Context, key string, value []byte) error {
	if m.ValueBytes > 0 && len(value) > m.ValueBytes {
		return abi.KindTooLarge
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	grows := len(value)
	if before, ok := m.values[key]; ok {
		grows -= len(before)
	} else {
		grows += len(key)
	}
	if m.TotalBytes > 0 && grows > 0 && m.bytes+grows > m.TotalBytes {
		return abi.KindQuotaExceeded
	}
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	m.values[key] = bytes.Clone(value)
	m.bytes += grows
	return nil
}

// Delete implements Store.
func (m *Memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok := m.values[key]; ok {
		m.bytes -= len(key) + len(value)
		delete(m.values, key)
	}
	return nil
}

// List implements Store.
func (m *Memory) List(_ context.Context, prefix, after string, limit int) (Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := Page{Keys: []string{}}
	for key := range m.values {
		if strings.HasPrefix(key, prefix) && key > after {
			page.Keys = append(page.Keys, key)
		}
	}
	slices.Sort(page.Keys)
	if len(page.Keys) > limit {
		page.Keys, page.More = page.Keys[:limit], true
	}
	return page, nil
}
