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
	"github.com/gloveboxhq/glovebox/host/registry/lock"
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
	agreed     *lock.File             // what the operator agreed to for hands
	handSets   handSets               // the hands that may be asked
	model      *measuredModel         // who answers
	tools      []tool                 // what the model may call; set by New alone
	programs   []tool                 // what users' own programs may call beside hands; set by New alone
	compaction *compaction.Engine     // triggers and summaries
	dreams     dreamer                // structured memory; nil if no model learns
	pace       *pace                  // how often the model is asked behind the turns
	agents     map[string]agent       // by name
	users      map[string]memory.User // by name
	usersByID  map[memory.UserID]memory.User

	toolTimeout time.Duration // of one call
	miniTimeout time.Duration // of the mini-dreams of one turn
	// people guards users, usersByID and config.defaultName, which a wipe
	// changes.
	people sync.RWMutex
	// binding guards agents, whose memory systems change; choosing lets one choice, or
	// one reload, at a time.
	binding  sync.RWMutex
	choosing keyedMutex[struct{}]
	// refused is what the lock said when hands could not be loaded again by it;
	// guarded by choosing.
	refused *lock.Snapshot
	// present are the users for whom something is done now, dreaming those for whom
	// something is learned; wiping lets one wipe of a user at a time.
	present, dreaming presence
	wiping            keyedMutex[memory.UserID]

	instruments *instruments // what is measured

	// turns lets one message of a user to an agent be handled at a time, sessions one
	// turn of a session, whoever it is of; naming lets one conversation of a name be
	// looked for. They are taken in the order naming, turns, sessions.
	turns    keyedMutex[pair]
	sessions keyedMutex[memory.SessionID]
	naming   keyedMutex[named]
	// traces are of the prompts that were answered last.
	traces traces
	// traced are of the turns that made something due.
	traced traced
	// learners look at what is new after turns.
	learners *learners
	// sending counts turns, background what goes on behind them beside compaction:
	// learners and dreams.
	sending, background compaction.Group
	// ending is cancelled by Close and parents what outlives a turn.
	ending context.Context
	end    context.CancelFunc
	closed sync.Once
}

// pair is who talks to whom: its turns go one after the other.
type pair struct {
	agent memory.AgentID
	user  memory.UserID
}

// DefaultAgent is the agent that exists where none is configured.
const DefaultAgent = "assistant"

const defaultSystemPrompt = "You are a helpful assistant. Answer briefly and say what you do not know."

// closeTimeout bounds how long Close waits for turns, and once more for what it
// has cancelled.
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
	h := &Host{
		config: config, now: config.Now, log: config.Log, toolTimeout: defaultToolTimeout, miniTimeout: miniTimeout,
		turns: newKeyedMutex[pair](), sessions: newKeyedMutex[memory.SessionID](), naming: newKeyedMutex[named](), wiping: newKeyedMutex[memory.UserID](), choosing: newKeyedMutex[struct{}](), learners: newLearners(),
	}
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
	if h.instruments, err = newInstruments(config); err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	model, err := h.openModel()
	if err != nil {
		return nil, err
	}
	h.model = h.instruments.measured(model, forAnswer)
	store, err := sqlite.Open(ctx, config.Store.Path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	h.store = store
	retrieval := compaction.NewRetrieval(store, h.instruments.asks(h.model, forSearch), compaction.ScanLimits{})
	h.tools, h.programs = config.memoryTools(retrieval), allMemoryTools(retrieval)
	if h.ledger, err = capability.OpenLedger(ctx, filepath.Join(filepath.Dir(config.Store.Path), "hands.db"), h.now); err != nil {
		return nil, err
	}
	if h.engine, err = sandbox.New(config.sandbox(config.Cache)); err != nil {
		return nil, err
	}
	if err := ResumeWipes(ctx, store, h.ledger, h.log); err != nil {
		return nil, err
	}
	if err := h.bindUsers(ctx); err != nil {
		return nil, err
	}
	if err := h.bindAgents(ctx); err != nil {
		return nil, err
	}
	if h.agreed = config.Agreed; h.agreed == nil {
		if h.agreed, err = lockBeside(filepath.Dir(config.Store.Path), h.ledger); err != nil {
			return nil, err
		}
	}
	hands, err := h.openHands(ctx, h.config, h.agreed.Read())
	if err != nil {
		return nil, err
	}
	h.handSets.replace(hands)
	h.pace = newPace(config.Model)
	engine := config.Compaction.engine()
	engine.Now, engine.Admit = h.now, h.pace.admit
	// A run that asks sources, or reads, leaves its call to another.
	engine.Workers = max(8, 2*config.Model.backgroundCalls())
	// The model that summarises reads no more than it reads of a conversation:
	// the rest of its window is for the summary before, the prompt and the answer.
	const beside = 8000
	engine.MaxRunTokens = min(20_000, max(config.Model.window()-beside, config.Model.window()/3))
	h.compaction = compaction.New(h.store, h.summarizer(), engine, h.sourcesOf, h.log)
	h.compaction.Start(compaction.Background{Between: h.between, Begin: h.beginRun})
	h.startDreaming()
	if err := h.instruments.watch(h); err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	return h, nil
}

// ErrClosed says that the host was closed.
var ErrClosed = compaction.ErrClosed

// Close lets no more turns begin, waits for those that go on, cancels the
// background work and closes everything. It waits for a few seconds at most;
// a turn that has no answer by then fails, with its message stored. What was
// acknowledged is on disk whether Close is called or not.
func (h *Host) Close() error {
	var errs []error
	h.closed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		h.sending.Close()
		h.background.Close()
		if h.sending.Wait(ctx) != nil {
			h.log.Warn("close: a turn has no answer yet and is given up")
		}
		h.end()
		ending, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		errs = append(errs, h.sending.Wait(ending))
		if h.dreams != nil {
			errs = append(errs, h.dreams.Close(ending))
		}
		if h.compaction != nil {
			errs = append(errs, h.compaction.Close(ending))
		}
		errs = append(errs, h.background.Wait(ending))
		errs = append(errs, h.instruments.unwatch())
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
	if err := h.background.Wait(ctx); err != nil {
		return err
	}
	return h.compaction.Idle(ctx)
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
	h.people.RLock()
	defer h.people.RUnlock()
	if u, ok := h.users[h.config.canonicalUser(name)]; ok {
		return u, nil
	}
	return memory.User{}, fmt.Errorf("user %q: %w: the configuration has %v", name, memory.ErrNotFound, slices.Sorted(maps.Keys(h.users)))
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
	if h.config.LLM != nil {
		return h.config.LLM, nil
	}
	return h.config.Model.open()
}

func (h *Host) summarizer() compaction.Summarizer {
	switch {
	case h.config.Summarizer != nil:
		return h.config.Summarizer
	case h.config.isOffline():
		return compaction.NewOffline()
	}
	return compaction.NewPrompted(h.instruments.asks(h.model, forSummary))
}

// bindUsers makes the configured users exist. The entry that is the default
// one names the default user, which has its id from the store.
func (h *Host) bindUsers(ctx context.Context) error {
	h.people.Lock()
	defer h.people.Unlock()
	stored, err := h.store.Users(ctx)
	if err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	bound, err := h.config.bind(stored)
	if err != nil {
		return err
	}
	for i, u := range bound {
		u.CreatedAt = h.now()
		if err := h.store.PutUser(ctx, u); err != nil {
			return fmt.Errorf("users[%d] %q: %w", i, u.Name, err)
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
		if u.IsDefault {
			// Without [[users]], whatever name it had last is the one.
			h.config.defaultName = u.Name
		}
	}
	return nil
}

// bind decides which stored user each entry is, before anything is changed:
// who has conversations must not become somebody else by an edit.
func (c *Config) bind(stored []memory.User) ([]memory.User, error) {
	byName := map[string]memory.User{}
	var standard memory.User
	for _, u := range stored {
		byName[u.Name] = u
		if u.IsDefault {
			standard = u
		}
	}
	var bound []memory.User
	seen := map[memory.UserID]string{}
	for i, entry := range c.Users {
		key := fmt.Sprintf("users[%d]", i)
		u := memory.User{Name: entry.Name}
		if have, known := byName[entry.Name]; known {
			u.ID = have.ID
		}
		isDefault := entry.Name == c.defaultUser()
		if isDefault && u.ID.IsZero() {
			if slices.ContainsFunc(c.Users, func(other UserConfig) bool { return other.Name == standard.Name }) {
				return nil, fmt.Errorf("%s: %q would become the default user, whose conversations are those of %q: write is_default = true beside %q", key, entry.Name, standard.Name, standard.Name)
			}
			u.ID = standard.ID
		}
		if entry.ID != "" {
			id, err := memory.ParseID[memory.UserID](entry.ID)
			if err != nil {
				return nil, fmt.Errorf("%s.id: %w", key, err)
			}
			if !u.ID.IsZero() && u.ID != id {
				return nil, fmt.Errorf("%s.id: the database knows %q as %s, the configuration says %s: take the id out, or use the other database", key, entry.Name, u.ID, id)
			}
			u.ID = id
		}
		switch {
		case isDefault && u.ID != standard.ID:
			return nil, fmt.Errorf("%s: %q has conversations of its own and cannot become the default user, who is %q: write is_default = true beside %q", key, entry.Name, standard.Name, standard.Name)
		case !isDefault && u.ID == standard.ID:
			return nil, fmt.Errorf("%s: %q is the default user, and %q would become it: write is_default = true beside %q", key, entry.Name, c.defaultUser(), entry.Name)
		case u.ID.IsZero():
			u.ID = memory.NewID[memory.UserID]()
		}
		if other, twice := seen[u.ID]; twice {
			return nil, fmt.Errorf("%s: %q and %q are the same user, %s", key, other, entry.Name, u.ID)
		}
		seen[u.ID] = entry.Name
		bound = append(bound, u)
	}
	return bound, nil
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
	defer turnIn(ctx).waits()()
	select {
	case w.lock <- struct{}{}:
		return func() { <-w.lock; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
