// Package host composes Glovebox: it opens the store, loads the hands, runs the
// turns of agents and triggers compaction. It is what an embedder imports.
//
//	h, err := host.New(ctx, config)
//	defer h.Close()
//	answer, err := h.Send(ctx, host.Message{Text: "What is on today?"})
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// Host is a running Glovebox. It is safe for concurrent use. One process at a
// time has a data directory.
type Host struct {
	config Config
	now    func() time.Time
	log    *slog.Logger

	store      memory.Store           // sessions, users, summaries
	ledger     *capability.Ledger     // what hands did and were refused
	engine     *sandbox.Engine        // the boxes
	hands      map[string]*hand       // by the operator's names
	model      llm.Model              // who answers
	compaction *compaction.Engine     // triggers and summaries
	agents     map[string]agent       // by name
	users      map[string]memory.User // by name
	usersByID  map[memory.UserID]memory.User

	turns      keyedMutex[memory.SessionID]
	background sync.WaitGroup
	// ending is cancelled by Close and parents what outlives a turn.
	ending context.Context
	end    context.CancelFunc
	closed sync.Once
}

type agent struct {
	memory.Agent
	system string
}

// DefaultAgent is the agent that exists where none is configured.
const DefaultAgent = "assistant"

const defaultSystemPrompt = "You are a helpful assistant. Answer briefly and say what you do not know."

// closeTimeout bounds how long Close waits for background work, which is
// cancelled before.
const closeTimeout = 10 * time.Second

// New opens a host. It creates the data directory if need be. Errors name the
// file or the key of the configuration; those of the store wrap
// memory.ErrInUse, memory.ErrNewer, memory.ErrForeign and memory.ErrReadOnly.
func New(ctx context.Context, config Config) (_ *Host, err error) {
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if config.Data == "" {
		if config.Data, err = DefaultData(); err != nil {
			return nil, err
		}
	}
	if config.Store.Path, err = config.DatabasePath(); err != nil {
		return nil, err
	}
	if config.Cache == "" {
		config.Cache = defaultCache(config.Data)
	}
	h := &Host{config: config, now: config.Now, log: config.Log, turns: newKeyedMutex[memory.SessionID]()}
	if h.now == nil {
		h.now = time.Now
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.ending, h.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = h.Close()
		}
	}()
	if h.model, err = h.openModel(); err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, config.Store.Path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	h.store = store
	if h.ledger, err = capability.OpenLedger(ctx, filepath.Join(filepath.Dir(config.Store.Path), "hands.db"), h.now); err != nil {
		return nil, err
	}
	if h.engine, err = sandbox.New(sandbox.Config{CacheDir: config.Cache, Compiler: config.Compiler}); err != nil {
		return nil, err
	}
	if err := h.bindUsers(ctx); err != nil {
		return nil, err
	}
	if err := h.bindAgents(ctx); err != nil {
		return nil, err
	}
	if err := h.openHands(ctx); err != nil {
		return nil, err
	}
	h.compaction = compaction.New(h.store, h.summarizer(), config.Compaction.engine(), h.sourcesOf, h.log)
	return h, nil
}

// Close waits for the background work, which it cancels, and closes
// everything. What was acknowledged is on disk whether Close is called or not.
func (h *Host) Close() error {
	var errs []error
	h.closed.Do(func() {
		h.end()
		if h.compaction != nil {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			errs = append(errs, h.compaction.Close(ctx))
		}
		h.background.Wait()
		if h.engine != nil {
			errs = append(errs, h.engine.Close())
		}
		if h.ledger != nil {
			errs = append(errs, h.ledger.Close())
		}
		if h.store != nil {
			errs = append(errs, h.store.Close())
		}
	})
	return errors.Join(errs...)
}

// Idle waits until no background work is left, or ctx is done. Turns that are
// sent meanwhile may start more.
func (h *Host) Idle(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		h.background.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Store gives access to what is kept. It belongs to the host.
func (h *Host) Store() memory.Store { return h.store }

// Ledger gives access to the record of what hands did. It belongs to the host.
func (h *Host) Ledger() *capability.Ledger { return h.ledger }

// User returns the user of that name; "" and "default" are the default user.
// The error wraps memory.ErrNotFound.
func (h *Host) User(name string) (memory.User, error) {
	if name == "" {
		name = memory.DefaultUserName
	}
	if u, ok := h.users[h.config.canonicalUser(name)]; ok {
		return u, nil
	}
	return memory.User{}, fmt.Errorf("user %q: %w: the configuration has %v", name, memory.ErrNotFound, slices.Sorted(maps.Keys(h.users)))
}

// Agent returns the agent of that name; "" is the first configured one. The
// error wraps memory.ErrNotFound.
func (h *Host) Agent(name string) (memory.Agent, error) {
	a, err := h.agentNamed(name)
	return a.Agent, err
}

func (h *Host) agentNamed(name string) (agent, error) {
	if name == "" {
		name = h.config.agents()[0].Name
	}
	if a, ok := h.agents[name]; ok {
		return a, nil
	}
	return agent{}, fmt.Errorf("agent %q: %w: the configuration has %v", name, memory.ErrNotFound, slices.Sorted(maps.Keys(h.agents)))
}

func (c *Config) agents() []AgentConfig {
	if len(c.Agents) == 0 {
		return []AgentConfig{{Name: DefaultAgent}}
	}
	return c.Agents
}

func (c AgentConfig) systemPrompt() string {
	if c.SystemPrompt == "" {
		return defaultSystemPrompt
	}
	return c.SystemPrompt
}

func defaultCache(data string) string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "glovebox")
	}
	return filepath.Join(data, "cache")
}

func (h *Host) openModel() (llm.Model, error) {
	m := h.config.Model
	switch {
	case h.config.LLM != nil:
		return h.config.LLM, nil
	case m.Provider != "openai":
		return llm.NewExtractive(), nil
	}
	reference := m.APIKey
	if reference == "" {
		reference = "env:OPENAI_API_KEY"
	}
	key, err := secret(reference)
	if err != nil {
		return nil, fmt.Errorf("model.api_key: %w", err)
	}
	base := m.BaseURL
	if base == "" {
		base = os.Getenv("OPENAI_BASE_URL")
	}
	model, err := openai.New(openai.Config{BaseURL: base, APIKey: key, Name: m.Name})
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return model, nil
}

func (h *Host) summarizer() compaction.Summarizer {
	switch {
	case h.config.Summarizer != nil:
		return h.config.Summarizer
	case h.config.LLM == nil && h.config.Model.Provider != "openai":
		return compaction.NewOffline()
	}
	return compaction.NewPrompted(h.model)
}

// bindUsers makes the configured users exist. The entry that is the default
// one names the default user, which has its id from the store.
func (h *Host) bindUsers(ctx context.Context) error {
	existing, err := h.store.Users(ctx)
	if err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	byName := map[string]memory.User{}
	for _, u := range existing {
		byName[u.Name] = u
	}
	first, err := h.store.DefaultUser(ctx)
	if err != nil {
		return fmt.Errorf("read the default user: %w", err)
	}
	for i, c := range h.config.Users {
		u := memory.User{Name: c.Name, CreatedAt: h.now()}
		have, known := byName[c.Name]
		switch {
		case c.Name == h.config.defaultUser():
			u.ID = first.ID
		case known:
			u.ID = have.ID
		case c.ID == "":
			u.ID = memory.NewID[memory.UserID]()
		}
		if c.ID != "" {
			id, err := memory.ParseID[memory.UserID](c.ID)
			if err != nil {
				return fmt.Errorf("users[%d].id: %w", i, err)
			}
			if !u.ID.IsZero() && u.ID != id {
				return fmt.Errorf("users[%d].id: the database knows %q as %s, the configuration says %s: take the id out, or use the other database", i, c.Name, u.ID, id)
			}
			u.ID = id
		}
		if err := h.store.PutUser(ctx, u); err != nil {
			return fmt.Errorf("users[%d] %q: %w", i, c.Name, err)
		}
	}
	h.users, h.usersByID = map[string]memory.User{}, map[memory.UserID]memory.User{}
	all, err := h.store.Users(ctx)
	if err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	for _, u := range all {
		h.users[u.Name] = u
		h.usersByID[u.ID] = u
	}
	return nil
}

func (h *Host) bindAgents(ctx context.Context) error {
	h.agents = map[string]agent{}
	for _, c := range h.config.agents() {
		stored, err := h.store.PutAgent(ctx, c.Name, "", h.now())
		if err != nil {
			return fmt.Errorf("agent %q: %w", c.Name, err)
		}
		h.agents[c.Name] = agent{stored, c.systemPrompt()}
	}
	return nil
}

// keyedMutex serialises work by key. Waiting ends with the context.
type keyedMutex[K comparable] struct {
	mu   *sync.Mutex
	held map[K]*waiting // guarded by mu
}

// waiting is a lock of capacity one and the number of those who want it.
type waiting struct {
	lock  chan struct{}
	users int
}

func newKeyedMutex[K comparable]() keyedMutex[K] {
	return keyedMutex[K]{mu: new(sync.Mutex), held: map[K]*waiting{}}
}

func (m keyedMutex[K]) lock(ctx context.Context, key K) (unlock func(), err error) {
	m.mu.Lock()
	w := m.held[key]
	if w == nil {
		w = &waiting{lock: make(chan struct{}, 1)}
		m.held[key] = w
	}
	w.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if w.users--; w.users == 0 {
			delete(m.held, key)
		}
	}
	select {
	case w.lock <- struct{}{}:
		return func() { <-w.lock; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
