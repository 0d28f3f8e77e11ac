package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// handSet is the hands of one configuration and what may be asked of them. It does
// not change: a reload makes another one. A turn keeps the one that it began with,
// and so does a query; the modules that no other set has are freed when the last of
// them is over.
type handSet struct {
	// config is the host's with the Hands, the Trust and the ContextSources of this
	// set.
	config Config
	// trusted are the keys of config as they were read, agreed is what the lock said
	// when the set was made.
	trusted  map[string]signature.PublicKey
	agreed   *lock.Snapshot
	hands    map[string]*hand         // by the operator's names
	disabled map[string]*disabledHand // those that are not asked
	tools    map[string]*handQuery    // which have hands asked, by the user's name
	asked    map[string]*handQuery    // those whatever they cost a prompt, for users' own programs
	owner    *handSets

	// offers are the lists of tools that turns offered, each an []assembly.Tool, by the
	// *handQuery that is in it.
	offers sync.Map

	// Guarded by owner.mu: uses is how many have the set, its place in the host
	// included; freed says that its modules may be closed.
	uses  int
	freed bool
}

// handSets are the sets of a host: the one in force, and those that somebody has yet.
type handSets struct {
	mu sync.Mutex
	// All below is guarded by mu. loaded is how many sets have a module.
	current *handSet
	loaded  map[*registry.Hand]int
}

// use returns the set in force, until release is called.
func (s *handSets) use() (_ *handSet, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.uses++
	return s.current, s.current.release
}

// knows reports whether a hand is configured or installed.
func (set *handSet) knows(name string) bool {
	return set.hands[name] != nil || set.disabled[name] != nil
}

// state is that of the lock which a hand was loaded by; "" for none.
func (set *handSet) state(name string) string {
	switch {
	case set.hands[name] != nil:
		return set.hands[name].terms.state
	case set.disabled[name] != nil:
		return set.disabled[name].state
	}
	return ""
}

// reuse keeps a set that was used before for longer. It reports false if that is
// over and its modules are gone.
func (set *handSet) reuse() bool {
	set.owner.mu.Lock()
	defer set.owner.mu.Unlock()
	if set.freed {
		return false
	}
	set.uses++
	return true
}

func (set *handSet) release() {
	s := set.owner
	s.mu.Lock()
	var idle []*registry.Hand
	if set.uses--; set.uses == 0 {
		set.freed = true
		for _, k := range set.hands {
			if s.loaded[k.Hand]--; s.loaded[k.Hand] == 0 {
				delete(s.loaded, k.Hand)
				idle = append(idle, k.Hand)
			}
		}
	}
	s.mu.Unlock()
	for _, k := range idle {
		// Nobody is asking it, and what is freed is of no use to anybody: there is
		// nothing to do about an error.
		_ = k.Module().Close()
	}
}

// replace puts a set into force, which nobody has yet.
func (s *handSets) replace(with *handSet) {
	s.mu.Lock()
	before := s.current
	s.current = with
	s.mu.Unlock()
	if before != nil {
		before.release()
	}
}

// load counts a module that a new set has.
func (s *handSets) load(k *registry.Hand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded[k]++
}

// pinnedKey is where the context of a turn has its hands.
type pinnedKey struct{}

// pinHands has everything that is done with a context ask the hands that are in
// force now, until unpin is called.
func (h *Host) pinHands(ctx context.Context) (_ context.Context, unpin func()) {
	h.catchUp(ctx)
	set, release := h.handSets.use()
	return context.WithValue(ctx, pinnedKey{}, set), release
}

// handsFor returns the hands of a context, until release is called: those that it
// was pinned to, and else those in force.
func (h *Host) handsFor(ctx context.Context) (_ *handSet, release func()) {
	// A tool that nobody waits for any more may outlive its turn.
	if set, ok := ctx.Value(pinnedKey{}).(*handSet); ok && set.reuse() {
		return set, set.release
	}
	return h.handSets.use()
}

// catchUp takes over what was agreed or taken back, by whatever process, since the
// hands in force were loaded, and returns what the lock says. When the hands cannot
// be loaded, those in force stay, of which none is asked whose entry has changed.
func (h *Host) catchUp(ctx context.Context) *lock.Snapshot {
	agreed := h.agreed.Read()
	inForce := func() *lock.Snapshot {
		h.handSets.mu.Lock()
		defer h.handSets.mu.Unlock()
		return h.handSets.current.agreed
	}
	if inForce() == agreed || h.ending.Err() != nil {
		return agreed
	}
	unlock, err := h.choosing.lock(ctx, struct{}{})
	if err != nil {
		return agreed
	}
	defer unlock()
	if agreed = h.agreed.Read(); inForce() == agreed || h.refused == agreed {
		return agreed
	}
	// Who asks first may go away; the others have the hands too.
	set, err := h.openHands(h.ending, h.Config(), agreed)
	if err != nil {
		if h.ending.Err() == nil {
			h.refused = agreed
			h.log.Error("what was agreed for hands has changed, and they cannot be loaded again: those whose entry changed are not asked", "error", err)
		}
		return agreed
	}
	old, release := h.handSets.use()
	changed := differences(old, set)
	release()
	h.handSets.replace(set)
	h.log.Info("what was agreed for hands is taken over", "added", changed.Added, "changed", changed.Changed, "removed", changed.Removed)
	return agreed
}

// openHands loads the hands of a configuration, and those that were installed. What
// is the same in the set in force is not loaded again. When it fails, nothing is
// changed.
func (h *Host) openHands(ctx context.Context, config Config, agreed *lock.Snapshot) (_ *handSet, err error) {
	set := &handSet{config: config, agreed: agreed, hands: map[string]*hand{}, disabled: map[string]*disabledHand{}, owner: &h.handSets, uses: 1}
	defer func() {
		if err != nil {
			set.release()
		}
	}()
	if set.trusted, err = config.TrustedKeys(); err != nil {
		return nil, err
	}
	before, release := &handSet{}, func() {}
	if h.handSets.loaded == nil {
		h.handSets.loaded = map[*registry.Hand]int{}
	} else {
		before, release = h.handSets.use()
	}
	defer release()
	names := slices.Collect(maps.Keys(config.Hands))
	for _, name := range agreed.Names() {
		// What somebody made of an entry is told, whatever it says now.
		if entry, err := agreed.Entry(name); entry.Installed || errors.Is(err, lock.ErrUnsealed) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		k, off, err := h.openHand(ctx, name, set, before)
		if err != nil {
			return nil, err
		}
		if off != nil {
			h.log.WarnContext(ctx, "a hand is disabled", "hand", name, "why", off.info.Disabled)
			set.disabled[name] = off
			continue
		}
		h.handSets.load(k.Hand)
		set.hands[name] = k
	}
	set.tools, set.asked = set.config.handTools(h.tools), set.config.handQueries()
	for _, tools := range []map[string]*handQuery{set.tools, set.asked} {
		for _, t := range tools {
			t.query, t.now = h.Query, h.now
		}
	}
	return set, nil
}

// openHand loads one hand, or tells why it is disabled: what is wrong with a hand that
// has an entry in the lock concerns that hand alone.
func (h *Host) openHand(ctx context.Context, name string, set, before *handSet) (*hand, *disabledHand, error) {
	t, err := termsOf(name, set.config.Hands[name], h.agreed, set.agreed)
	if err != nil {
		return nil, nil, err
	}
	users := set.config.handUsers(t.config)
	if t.off != "" {
		return nil, disable(name, t, users, t.off), nil
	}
	k, err := h.load(ctx, name, t, set, before)
	if err != nil && t.state != "" && ctx.Err() == nil {
		return nil, disable(name, t, users, err.Error()), nil
	}
	return k, nil, err
}

// load loads a hand with its terms.
func (h *Host) load(ctx context.Context, name string, t terms, set, before *handSet) (*hand, error) {
	// What was agreed may contradict what the configuration says of the same hand.
	if err := set.config.checkHand(name, t.config); err != nil {
		return nil, err
	}
	var opened *registry.Hand
	var err error
	if have, ok := before.hands[name]; ok && have.Module().Digest() == sandbox.Digest(t.module) && reflect.DeepEqual(have.terms.config, t.config) &&
		(t.bundled || maps.Equal(before.trusted, set.trusted) && have.trustedAt(h.now())) && !have.Module().Lost() {
		opened = have.Hand
	} else if opened, err = registry.Open(ctx, h.engine, requestFor(name, t, set.trusted, h.now())); err != nil {
		return nil, err
	}
	t.module = nil
	k, err := h.admit(name, opened, t, set.config)
	if err != nil && (before.hands[name] == nil || before.hands[name].Hand != opened) {
		err = errors.Join(err, opened.Module().Close())
	}
	return k, err
}

func requestFor(name string, t terms, trusted map[string]signature.PublicKey, now time.Time) registry.Request {
	c := t.config
	return registry.Request{
		Name: name, Module: t.module, Bundled: t.bundled, Digest: c.Digest, Trusted: trusted, Unsigned: c.Unsigned, Now: now,
		Grant:  registry.Grant{Files: c.Grant.Files, HTTP: len(c.Grant.HTTP) > 0, KV: c.Grant.KV, LLM: c.Grant.LLM},
		Config: c.Config, Limits: c.Limits.abi(),
	}
}

// trustedAt reports whether what was found out about a hand's signature when it was
// opened is still so.
func (k *hand) trustedAt(now time.Time) bool {
	signer, ok := k.Signer()
	return !ok || signer.Name == "" || signer.Expires.IsZero() || now.Before(signer.Expires)
}

// admit says for whom a hand that is open may be asked, and what it may reach.
func (h *Host) admit(name string, opened *registry.Hand, t terms, config Config) (_ *hand, err error) {
	c := t.config
	k := &hand{Hand: opened, users: config.handUsers(c), terms: t}
	k.hold()
	if opened.Grant().HTTP {
		if k.http, err = c.Grant.http(opened.Permission(abi.CapabilityHTTP), nil); err != nil {
			return nil, fmt.Errorf("hands.%s.grant: %w", name, err)
		}
		if len(c.Grant.Files) > 0 {
			h.log.Warn("a hand may read files and make requests: what it reads, it can send away", "hand", name)
		}
	} else if len(c.Grant.AllowPrivate)+len(c.Grant.Secrets) > 0 {
		return nil, fmt.Errorf("hands.%s.grant: allow_private and secrets belong to http, which is not granted", name)
	}
	if k.asks, err = permissionsOf(name, opened.Permissions(), opened.Grant(), k.http); err != nil {
		return nil, err
	}
	return k, nil
}

// Config returns the configuration that is in force, with the paths that New chose.
// It is not to be changed.
func (h *Host) Config() Config {
	set, release := h.handSets.use()
	defer release()
	config := set.config
	h.people.RLock()
	defer h.people.RUnlock()
	config.defaultName = h.config.defaultName
	return config
}

// Reloaded tells what a Reload changed. Lists are sorted, and empty where there is
// nothing.
type Reloaded struct {
	// Added, Changed and Removed are hands. Changed is also one whose module is
	// another one now, whose signature was held against other keys, or whose code was
	// no longer in the compilation cache.
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	// Sources says that the context sources are others.
	Sources bool `json:"sources"`
	// Restart are the sections that differ from what is in force, and are not taken
	// before the next start.
	Restart []string `json:"restart"`
}

// Reload takes over the hands of a configuration, with their grants, prompts, users,
// values and limits, the trusted keys and the context sources. Everything else stays as it is until
// the next start. Turns and queries that go on keep the hands that they began with;
// those that begin when it has returned have the new ones.
//
// All hands are loaded before any is taken over: when one cannot be, or the
// configuration contradicts itself or the users in force, the error names the key and
// nothing has changed. It wraps ErrClosed for a host that is closed. Reloads wait for
// each other.
func (h *Host) Reload(ctx context.Context, config Config) (out Reloaded, err error) {
	return h.ReloadFrom(ctx, func() (Config, error) { return config, nil })
}

// ReloadFrom is Reload with what read returns; when that is an error, it is returned
// and counts as a reload that failed.
func (h *Host) ReloadFrom(ctx context.Context, read func() (Config, error)) (out Reloaded, err error) {
	defer func() {
		outcome := "ok"
		if err != nil {
			outcome = "failed"
		}
		h.instruments.reloads.Add(context.WithoutCancel(ctx), 1, labels("outcome", outcome))
	}()
	config, err := read()
	if err != nil {
		return out, err
	}
	end, err := h.sending.Begin()
	if err != nil {
		return out, fmt.Errorf("reload: the host is %w", err)
	}
	defer end()
	unlock, err := h.choosing.lock(ctx, struct{}{})
	if err != nil {
		return out, fmt.Errorf("reload: %w", err)
	}
	defer unlock()
	before := h.Config()
	next := before
	next.Hands, next.Trust, next.Compaction.ContextSources = config.Hands, config.Trust, config.Compaction.ContextSources
	if err := next.Check(); err != nil {
		return out, fmt.Errorf("reload: %w", err)
	}
	set, err := h.openHands(ctx, next, h.agreed.Read())
	if err != nil {
		return out, fmt.Errorf("reload: %w", err)
	}
	old, release := h.handSets.use()
	out = differences(old, set)
	release()
	out.Restart = restartFor(before, config)
	h.handSets.replace(set)
	return out, nil
}

// differences tells how the hands of two sets differ.
func differences(before, after *handSet) Reloaded {
	out := Reloaded{Added: []string{}, Changed: []string{}, Removed: []string{}}
	for _, name := range slices.Sorted(maps.Keys(after.hands)) {
		switch had, ok := before.hands[name]; {
		case !ok:
			out.Added = append(out.Added, name)
		case had.Hand != after.hands[name].Hand:
			out.Changed = append(out.Changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.hands)) {
		if _, ok := after.hands[name]; !ok {
			out.Removed = append(out.Removed, name)
		}
	}
	out.Sources = !slices.EqualFunc(before.config.Compaction.ContextSources, after.config.Compaction.ContextSources,
		func(a, b ContextSource) bool { return reflect.DeepEqual(a, b) })
	return out
}

// restartFor names the sections of a configuration that differ from those in force
// and are not taken over by a reload.
func restartFor(inForce, config Config) []string {
	if config.Data == "" {
		config.Data = inForce.Data
	}
	if path, err := config.DatabasePath(); err == nil {
		config.Store.Path = filepath.Clean(path)
	}
	inForce.Store.Path = filepath.Clean(inForce.Store.Path)
	config.Compaction.ContextSources, inForce.Compaction.ContextSources = nil, nil
	sections := []string{}
	for _, s := range []struct {
		name          string
		before, after any
	}{
		{"store", inForce.Store, config.Store},
		{"model", inForce.Model, config.Model},
		{"boundary", inForce.Boundary, config.Boundary},
		{"engine", inForce.Engine, config.Engine},
		{"compaction", inForce.Compaction, config.Compaction},
		{"sessions", inForce.Sessions, config.Sessions},
		{"memory", inForce.Memory, config.Memory},
		{"server", inForce.Server, config.Server},
		{"log", inForce.Logging, config.Logging},
		{"users", inForce.Users, config.Users},
		{"agents", inForce.Agents, config.Agents},
	} {
		if !reflect.DeepEqual(s.before, s.after) {
			sections = append(sections, s.name)
		}
	}
	return sections
}
