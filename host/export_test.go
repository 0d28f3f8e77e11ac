package host

import (
	"context"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// Tool is what the host offers to its model.
type Tool = tool

// Offer sets the tools and how long a call may take, before the first turn.
func (h *Host) Offer(timeout time.Duration, tools ...Tool) { h.toolTimeout, h.tools = timeout, tools }

// Interpose puts another store between the host and its own: a test's, some of
// whose writes fail. Nothing else may use the host meanwhile.
func (h *Host) Interpose(ctx context.Context, wrap func(memory.Store) memory.Store) error {
	if err := h.compaction.Close(ctx); err != nil {
		return err
	}
	h.store = wrap(h.store)
	h.compaction = compaction.New(h.store, h.summarizer(), h.config.Compaction.engine(), h.sourcesOf, h.log)
	h.compaction.Start(compaction.Background{Between: h.between, Begin: h.beginRun})
	return h.Dreaming(ctx, func(*dream.Config) {})
}

// DropCode has the hands that are loaded from now on lose their code when nobody asks
// for it, and find it again in a cache of their own. Those that are loaded are closed.
// Nothing else may use the host meanwhile.
func (h *Host) DropCode(cache string) error {
	before := h.engine
	var err error
	if h.engine, err = sandbox.New(sandbox.Config{CacheDir: cache, Compiler: h.config.Compiler, CodeBytes: 1}); err != nil {
		return err
	}
	return before.Close()
}

// Dreaming makes the host's Dreamer anew, set up as the test has it. The bound of
// its mini-dreams is the one of a turn. Nothing else may use the host meanwhile.
func (h *Host) Dreaming(ctx context.Context, change func(*dream.Config)) error {
	if h.dreams == nil {
		return nil
	}
	if err := h.dreams.Close(ctx); err != nil {
		return err
	}
	config := h.dreamConfig()
	change(&config)
	h.miniTimeout = config.MiniTimeout
	h.dreams = dream.New(h.store, config)
	return nil
}

// Dreamer is who learns for a host.
type Dreamer = dreamer

// Learn puts another Dreamer in the place of the host's own. Nothing else may use
// the host meanwhile.
func (h *Host) Learn(with Dreamer) { h.dreams = with }

// LoadedModules is how many modules are loaded for all sets of hands together.
func (h *Host) LoadedModules() int {
	h.handSets.mu.Lock()
	defer h.handSets.mu.Unlock()
	return len(h.handSets.loaded)
}

// Box returns what asks a hand's module the question of q and nothing else: what
// remains of Query when the host has nothing to do.
func (h *Host) Box(q HandQuery) func(context.Context) (sandbox.Result, error) {
	set, release := h.handSets.use()
	defer release()
	k, user := set.hands[q.Hand], h.users[h.config.defaultName]
	question := abi.Query{
		Prompt: q.Prompt, From: q.From, To: q.To, Now: h.now(), Timezone: h.timezone(), MaxOutputTokens: q.MaxTokens,
		Config: k.configFor(user.Name), Subject: h.ledger.Subject(q.Hand, user.ID.String()),
	}
	return func(ctx context.Context) (sandbox.Result, error) {
		return k.Module().Query(ctx, question, sandbox.Ports{})
	}
}

// QueryParts are what Query does beside asking the box, one by one.
func (h *Host) QueryParts(ctx context.Context, q HandQuery) map[string]func() {
	set, release := h.handSets.use()
	defer release()
	k, user := set.hands[q.Hand], h.users[h.config.defaultName]
	subject := h.ledger.Subject(q.Hand, user.ID.String())
	caller := capability.Caller{Hand: q.Hand, Subject: subject}
	result := sandbox.Result{Took: time.Microsecond, Fuel: 100, MemoryBytes: 64 << 10, ReplyBytes: 17}
	return map[string]func(){
		"find": func() {
			set, release := h.handsFor(ctx)
			defer release()
			_ = set.state(q.Hand) != h.catchUp(ctx).State(q.Hand)
		},
		"user": func() {
			_, _ = h.userOrDefault(q.User)
			_, leave, _ := h.present.enter(ctx, user.ID)
			leave()
		},
		"values": func() {
			_, _, _ = h.timezone(), k.configFor(user.Name), h.ledger.Subject(q.Hand, user.ID.String())
		},
		"ports": func() {
			_ = capability.NewFiles(h.ledger, caller, k.filesFor(user.Name)).Close()
			_ = capability.NewKV(h.ledger, caller, k.Module().Limits())
		},
		"frame": func() { boundary.Wrap(boundary.Source{}, "Nothing happened.", 2000) },
		"frame-8KiB": func() {
			boundary.Wrap(boundary.Source{}, longReply, 4000)
		},
		"row": func() {
			_ = h.ledger.RecordRun(ctx, capability.Run{Hand: q.Hand, Digest: k.Module().Digest(), Subject: subject, Took: result.Took, Fuel: result.Fuel,
				MemoryBytes: result.MemoryBytes, ReplyBytes: result.ReplyBytes, ReplyTokens: 5})
		},
		"telemetry": func() {
			_, ended := h.instruments.queries(ctx, q.Hand, true)
			ended(result, nil)
		},
	}
}

var longReply = strings.Repeat("Design review moved to Thursday 15:00, room 4.\n", 8<<10/47)

// Pace is what a host waits for before a call of the model that nobody waits for.
func Pace(c ModelConfig) (admit func(context.Context) (func(), error)) { return newPace(c).admit }
