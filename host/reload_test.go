package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// asker is a model that has the hand mirror asked once, says what the result was,
// and knows no reason to do anything else. Before it answers, it calls between.
type asker struct {
	between func(tools []llm.Tool)
}

func (m *asker) Complete(_ context.Context, r llm.Request) (llm.Response, error) {
	last := r.Messages[len(r.Messages)-1]
	if len(last.ToolResults) > 0 {
		return llm.Response{Text: "It said: " + last.ToolResults[0].Text, Model: "asker"}, nil
	}
	if m.between != nil {
		m.between(r.Tools)
	}
	return llm.Response{ToolCalls: []llm.ToolCall{{ID: llm.NewToolCallID(), Name: "hand_query", Input: json.RawMessage(`{"hand":"mirror","prompt":"mark"}`)}}, Model: "asker"}, nil
}

// mirrorConfig has the hand mirror with a mark, which its replies show.
func mirrorConfig(t testing.TB, mark string) host.Config {
	path, digest := mirrorHand(t)
	return host.Config{Hands: map[string]host.HandConfig{"mirror": {
		Module: path, Digest: digest, Config: map[string]any{"mark": mark}, Prompts: map[string]string{"mark": "What is your mark?"},
	}}}
}

// with is a configuration whose hand mirror is another one.
func with(c host.Config, change func(*host.HandConfig)) host.Config {
	c.Hands = maps.Clone(c.Hands)
	hand := c.Hands["mirror"]
	change(&hand)
	c.Hands["mirror"] = hand
	return c
}

func marked(mark string) func(*host.HandConfig) {
	return func(h *host.HandConfig) { h.Config = map[string]any{"mark": mark} }
}

// A hand whose code nobody asked for, and that is gone from the cache, is there again
// after a reload of what is in force.
func TestReloadLoadsLostHandAnew(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	h := open(t, mirrorConfig(t, "first"))
	if err := h.DropCode(cache); err != nil {
		t.Fatal(err)
	}
	config := mirrorConfig(t, "second")
	reload := func() []string {
		t.Helper()
		reloaded, err := h.Reload(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return reloaded.Changed
	}
	ask := func() error {
		_, err := h.Query(t.Context(), host.HandQuery{Hand: "mirror", Prompt: "x"})
		return err
	}
	if changed := reload(); !slices.Equal(changed, []string{"mirror"}) {
		t.Fatalf("changed are %q", changed)
	}
	entries, err := filepath.Glob(filepath.Join(cache, "*", "*", "seal"))
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if err := os.RemoveAll(filepath.Dir(entries[0])); err != nil {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, abi.KindUnavailable) {
		t.Errorf("without its code: %v", err)
	}
	if changed := reload(); !slices.Equal(changed, []string{"mirror"}) {
		t.Errorf("changed are %q", changed)
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	if changed := reload(); len(changed) > 0 {
		t.Errorf("changed are %q", changed)
	}
}

// A reload takes over hands, what they may reach and be asked, and sources, for what
// begins after it, and says what is left for a restart. What is wrong leaves
// everything as it was.
func TestReload(t *testing.T) {
	config := mirrorConfig(t, "first")
	h := open(t, config)
	ask := func(hand string) string {
		t.Helper()
		result, err := h.Query(t.Context(), host.HandQuery{Hand: hand, Prompt: "x"})
		if err != nil {
			return err.Error()
		}
		return result.Reply.Render()
	}
	if got := ask("mirror"); !strings.Contains(got, "first") {
		t.Fatalf("it said %q", got)
	}
	same, err := h.Reload(t.Context(), config)
	if err != nil || len(same.Added)+len(same.Changed)+len(same.Removed)+len(same.Restart) > 0 || same.Sources {
		t.Errorf("with what it has: %+v, %v", same, err)
	}
	second := with(config, marked("second"))
	second.Hands["notes"] = config.Hands["mirror"]
	second.Compaction.ContextSources = []host.ContextSource{{Hand: "notes", Prompt: "x"}}
	second.Agents = []host.AgentConfig{{Name: "somebody"}}
	second.Compaction.KeepRecent = 9
	changed, err := h.Reload(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(changed.Added, []string{"notes"}) || !slices.Equal(changed.Changed, []string{"mirror"}) || len(changed.Removed) > 0 ||
		!changed.Sources || !slices.Equal(changed.Restart, []string{"compaction", "agents"}) {
		t.Errorf("reloaded %+v", changed)
	}
	if got := ask("mirror"); !strings.Contains(got, "second") {
		t.Errorf("after the reload it said %q", got)
	}
	if got := ask("notes"); !strings.Contains(got, "first") {
		t.Errorf("the hand that was added said %q", got)
	}
	if names := h.Agents(); len(names) != 1 || names[0].Name == "somebody" {
		t.Errorf("an agent was taken over: %+v", names)
	}
	if c := h.Config(); c.Compaction.KeepRecent == 9 || len(c.Hands) != 2 || len(c.Compaction.ContextSources) != 1 {
		t.Errorf("in force is %+v", c)
	}
	for name, wrong := range map[string]host.Config{
		"hands.mirror.module":          with(config, func(h *host.HandConfig) { h.Module = "/nowhere.wasm" }),
		"hands.mirror.users":           with(config, func(h *host.HandConfig) { h.Users = []string{"stranger"} }),
		"context_sources[0].hand":      {Hands: config.Hands, Compaction: host.CompactionConfig{ContextSources: []host.ContextSource{{Hand: "nobody", Prompt: "x"}}}},
		"the module is not the one":    with(config, func(h *host.HandConfig) { h.Digest = "sha256:" + strings.Repeat("0", 64) }),
		"hands.mirror.grant: allow_pr": with(config, func(h *host.HandConfig) { h.Grant.AllowPrivate = []string{"10.0.0.5:80"} }),
	} {
		if got, err := h.Reload(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got := ask("mirror"); !strings.Contains(got, "second") {
			t.Fatalf("%s: after it failed, the hand said %q", name, got)
		}
	}
	gone, err := h.Reload(t.Context(), host.Config{})
	if err != nil || !slices.Equal(gone.Removed, []string{"mirror", "notes"}) {
		t.Errorf("reloaded %+v, %v", gone, err)
	}
	if _, err := h.Query(t.Context(), host.HandQuery{Hand: "mirror", Prompt: "x"}); !errors.Is(err, abi.KindUnknownHand) {
		t.Errorf("a hand that was removed: %v", err)
	}
	// The file is another one, the configuration is not.
	path := filepath.Join(t.TempDir(), "mirror.wasm")
	module, err := os.ReadFile(config.Hands["mirror"].Module)
	if err != nil {
		t.Fatal(err)
	}
	replaced := with(config, func(h *host.HandConfig) { h.Module, h.Digest = path, "" })
	for _, module := range [][]byte{module, []byte(mirror)} {
		if err := os.WriteFile(path, module, 0o600); err != nil {
			t.Fatal(err)
		}
		replaced.Hands["mirror"] = host.HandConfig{Module: path}
		got, err := h.Reload(t.Context(), replaced)
		if err != nil || len(got.Added)+len(got.Changed) != 1 {
			t.Errorf("with another file: %+v, %v", got, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Reload(t.Context(), config); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a host that is closed reloads: %v", err)
	}
}

// A turn keeps the hands that it began with: those that its model was offered answer
// it, although they are gone for everybody else.
func TestReloadLeavesTurnsTheirHands(t *testing.T) {
	model := &asker{}
	config := mirrorConfig(t, "the turn's own")
	config.LLM = model
	h := open(t, config)
	model.between = func(tools []llm.Tool) {
		if !slices.ContainsFunc(tools, func(t llm.Tool) bool { return t.Name == "hand_query" }) {
			t.Error("the model is not offered the hand")
		}
		if _, err := h.Reload(t.Context(), host.Config{}); err != nil {
			t.Error(err)
		}
		if _, err := h.Query(t.Context(), host.HandQuery{Hand: "mirror", Prompt: "x"}); !errors.Is(err, abi.KindUnknownHand) {
			t.Errorf("for everybody else the hand is not gone: %v", err)
		}
	}
	answer := send(t, h, host.Message{Text: "Ask it."})
	if got := memory.Shown(answer.Message.Blocks); !strings.Contains(got, "the turn's own") {
		t.Errorf("the hand was not asked: %q", got)
	}
	model.between = func(tools []llm.Tool) {
		if slices.ContainsFunc(tools, func(t llm.Tool) bool { return t.Name == "hand_query" }) {
			t.Error("the next turn is offered a hand that is gone")
		}
	}
	send(t, h, host.Message{Text: "And now?"})
}

// However often the configuration is reloaded, no turn and no query is dropped, and
// each is of one configuration, an old or a new one.
func TestReloadDropsNothing(t *testing.T) {
	const reloads = 50
	config := mirrorConfig(t, "0")
	config.LLM = &asker{}
	h := open(t, config)
	var stop atomic.Bool
	var running sync.WaitGroup
	var turns, queries atomic.Int64
	for range 2 {
		running.Go(func() {
			for n := 0; n == 0 || !stop.Load(); n++ {
				result, err := h.Query(t.Context(), host.HandQuery{Hand: "mirror", Prompt: "x"})
				if err != nil || !strings.Contains(result.Reply.Render(), `"mark":"`) {
					t.Errorf("a query was dropped: %v", err)
					return
				}
				queries.Add(1)
			}
		})
		running.Go(func() {
			for n := 0; n == 0 || !stop.Load(); n++ {
				answer, err := h.Send(t.Context(), host.Message{Text: "Ask it."})
				if err != nil || !strings.Contains(memory.Shown(answer.Message.Blocks), `"mark":"`) {
					t.Errorf("a turn was dropped: %v: %s", err, memory.Shown(answer.Message.Blocks))
					return
				}
				turns.Add(1)
			}
		})
	}
	for n := range reloads {
		next := with(config, marked(strings.Repeat("x", n%3+1)))
		if _, err := h.Reload(t.Context(), next); err != nil {
			t.Errorf("reload %d: %v", n, err)
		}
	}
	stop.Store(true)
	running.Wait()
	if turns.Load() < 2 || queries.Load() < 2 {
		t.Errorf("%d turns and %d queries went on meanwhile", turns.Load(), queries.Load())
	}
	if got := h.LoadedModules(); got != 1 {
		t.Errorf("%d modules are loaded for one hand", got)
	}
}
