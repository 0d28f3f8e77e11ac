package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/gloveboxhq/glovebox/memory"
)

// The memory systems of agents.
const (
	// MemorySummarization keeps the conversation and its summaries, and nothing of
	// the user: no model is asked, nothing is read, no prompt says anything.
	MemorySummarization = "summarization"
	// MemoryStructured also learns what is to be remembered of the user; see package
	// dream.
	MemoryStructured = "structured"
)

func isMemorySystem(name string) bool {
	return name == MemorySummarization || name == MemoryStructured
}

// AgentInfo tells of one configured agent.
type AgentInfo struct {
	Name string         `json:"name"`
	ID   memory.AgentID `json:"id,omitzero"`
	// MemorySystem is what is in force.
	MemorySystem string        `json:"memory_system"`
	Manifest     AgentManifest `json:"manifest"`
}

// AgentManifest is what was chosen for an agent: by the configuration, and in its
// place by SetMemorySystem.
type AgentManifest struct {
	SystemPrompt string `json:"system_prompt,omitempty"`
	// Memory is nil where nobody chose.
	Memory *AgentMemory `json:"memory,omitempty"`
}

// AgentMemory is the table [memory] of an agent.
type AgentMemory struct {
	System string `json:"system"`
}

// agent is one configured agent as it is for a turn.
type agent struct {
	memory.Agent
	config AgentConfig
	// memorySystem is what SetMemorySystem stored, or what the configuration says;
	// "" if nobody chose.
	memorySystem string
}

// newAgent is a configured agent with what the store has of it. A manifest that
// cannot be read chooses nothing, and keeps nobody from being answered.
func newAgent(config AgentConfig, stored memory.Agent) agent {
	a := agent{Agent: stored, config: config, memorySystem: config.Memory.System}
	a.Name = config.Name
	if chosen, err := storedMemorySystem(stored.Manifest); err == nil && chosen != "" {
		a.memorySystem = chosen
	}
	return a
}

// system is the text that tells the agent how to answer.
func (a agent) system() string { return a.config.systemPrompt() }

// structured reports whether the agent remembers users in topics.
func (a agent) structured() bool { return a.memorySystem == MemoryStructured }

func (a agent) info() AgentInfo {
	info := AgentInfo{Name: a.Name, ID: a.ID, MemorySystem: a.memorySystem, Manifest: AgentManifest{SystemPrompt: a.config.SystemPrompt}}
	if a.memorySystem == "" {
		info.MemorySystem = MemorySummarization
		return info
	}
	info.Manifest.Memory = &AgentMemory{a.memorySystem}
	return info
}

// Agents returns the configured agents in their order.
func (h *Host) Agents() []AgentInfo {
	h.binding.RLock()
	defer h.binding.RUnlock()
	var all []AgentInfo
	for _, c := range h.config.agents() {
		all = append(all, h.agents[c.Name].info())
	}
	return all
}

// AgentsOf is Host.Agents where no host runs: the store may be open for reading
// beside one. An agent that no host has seen yet has no ID.
func AgentsOf(ctx context.Context, config Config, store memory.Store) ([]AgentInfo, error) {
	agents, err := agentsOf(ctx, config, store)
	if err != nil {
		return nil, err
	}
	all := make([]AgentInfo, len(agents))
	for i, a := range agents {
		all[i] = a.info()
	}
	return all, nil
}

// agentsOf returns the configured agents as the store has them, in their order.
func agentsOf(ctx context.Context, config Config, store memory.Store) ([]agent, error) {
	stored, err := store.Agents(ctx)
	if err != nil {
		return nil, fmt.Errorf("read agents: %w", err)
	}
	byName := map[string]memory.Agent{}
	for _, s := range stored {
		byName[s.Name] = s
	}
	var all []agent
	for _, c := range config.agents() {
		all = append(all, newAgent(c, byName[c.Name]))
	}
	return all, nil
}

// SetMemorySystem chooses how an agent remembers, from its next turn on, and keeps
// the choice over restarts. "" leaves it to the configuration again. Errors wrap
// memory.ErrNotFound, memory.ErrInvalid and ErrClosed.
func (h *Host) SetMemorySystem(ctx context.Context, agent, system string) (AgentInfo, error) {
	fail := func(err error) (AgentInfo, error) {
		return AgentInfo{}, fmt.Errorf("choose the memory system of agent %q: %w", agent, err)
	}
	end, err := h.sending.Begin()
	if err != nil {
		return fail(fmt.Errorf("the host is %w", err))
	}
	defer end()
	if system != "" && !isMemorySystem(system) {
		return fail(fmt.Errorf("%q: use %s or %s: %w", system, MemorySummarization, MemoryStructured, memory.ErrInvalid))
	}
	unlock, err := h.choosing.lock(ctx, struct{}{})
	if err != nil {
		return fail(err)
	}
	defer unlock()
	a, err := h.agentNamed(agent)
	if err != nil {
		return fail(err)
	}
	manifest, err := withMemorySystem(a.Manifest, system)
	if err != nil {
		return fail(err)
	}
	if manifest != a.Manifest {
		stored, err := h.store.PutAgent(ctx, a.Name, manifest, h.now())
		if err != nil {
			return fail(err)
		}
		a = newAgent(a.config, stored)
	}
	h.binding.Lock()
	defer h.binding.Unlock()
	h.agents[a.Name] = a
	return a.info(), nil
}

// structuredAgents are those who have structured memory now.
func (h *Host) structuredAgents() []memory.AgentID {
	h.binding.RLock()
	defer h.binding.RUnlock()
	var ids []memory.AgentID
	for _, name := range slices.Sorted(maps.Keys(h.agents)) {
		if a := h.agents[name]; a.structured() {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// bindAgents makes the configured agents exist. What is stored in their manifests
// stays.
func (h *Host) bindAgents(ctx context.Context) error {
	agents, err := agentsOf(ctx, h.config, h.store)
	if err != nil {
		return err
	}
	h.binding.Lock()
	defer h.binding.Unlock()
	h.agents = map[string]agent{}
	for _, a := range agents {
		if a.ID.IsZero() {
			if a.Agent, err = h.store.PutAgent(ctx, a.Name, "", h.now()); err != nil {
				return fmt.Errorf("agent %q: %w", a.Name, err)
			}
		}
		if _, err := storedMemorySystem(a.Manifest); err != nil {
			h.log.Warn("the stored manifest of an agent is left aside", "agent", a.Name, "error", err)
		}
		h.agents[a.Name] = a
	}
	return nil
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
	h.binding.RLock()
	defer h.binding.RUnlock()
	if a, ok := h.agents[name]; ok {
		return a, nil
	}
	return agent{}, fmt.Errorf("agent %q: %w: the configuration has %v", name, memory.ErrNotFound, slices.Sorted(maps.Keys(h.agents)))
}

// agentWith returns the configured agent with that id.
func (h *Host) agentWith(id memory.AgentID) (agent, bool) {
	h.binding.RLock()
	defer h.binding.RUnlock()
	for _, a := range h.agents {
		if a.ID == id {
			return a, true
		}
	}
	return agent{}, false
}

// The table of a stored manifest that chooses the memory system, and its key.
const memoryTable, systemKey = "memory", "system"

// maxManifest is more than anything that this program stores.
const maxManifest = 64 << 10

// storedMemorySystem returns what a stored manifest chooses, "" if nothing. The
// error wraps memory.ErrInvalid: it is no TOML, or chooses what does not exist.
func storedMemorySystem(manifest string) (string, error) {
	tables, err := parseManifest(manifest)
	if err != nil {
		return "", err
	}
	table, ok := tables[memoryTable].(map[string]any)
	if !ok {
		if tables[memoryTable] != nil {
			return "", fmt.Errorf("stored manifest: %s is not a table: %w", memoryTable, memory.ErrInvalid)
		}
		return "", nil
	}
	switch system, ok := table[systemKey].(string); {
	case table[systemKey] == nil:
		return "", nil
	case !ok || !isMemorySystem(system):
		return "", fmt.Errorf("stored manifest: %s.%s is neither %s nor %s: %w", memoryTable, systemKey, MemorySummarization, MemoryStructured, memory.ErrInvalid)
	default:
		return system, nil
	}
}

// withMemorySystem returns the manifest with another choice, none for "". All other
// keys stay; comments and the order of keys do not. A manifest that nobody wrote
// anything else into is "" again without a choice.
func withMemorySystem(manifest, system string) (string, error) {
	if chosen, err := storedMemorySystem(manifest); err == nil && chosen == system {
		return manifest, nil
	}
	tables, err := parseManifest(manifest)
	if err != nil {
		return "", err
	}
	table, _ := tables[memoryTable].(map[string]any)
	if table == nil {
		table = map[string]any{}
	}
	if delete(table, systemKey); system != "" {
		table[systemKey] = system
	}
	if delete(tables, memoryTable); len(table) > 0 {
		tables[memoryTable] = table
	}
	if len(tables) == 0 {
		return "", nil
	}
	written, err := toml.Marshal(tables)
	if err != nil {
		return "", fmt.Errorf("write manifest: %w", err)
	}
	return string(written), nil
}

func parseManifest(manifest string) (map[string]any, error) {
	tables := map[string]any{}
	if len(manifest) > maxManifest {
		return nil, fmt.Errorf("stored manifest: %d bytes, at most %d are read: %w", len(manifest), maxManifest, memory.ErrInvalid)
	}
	if err := toml.Unmarshal([]byte(manifest), &tables); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := at.Position()
			return nil, fmt.Errorf("stored manifest, line %d, column %d: no TOML: %w", line, column, memory.ErrInvalid)
		}
		return nil, fmt.Errorf("stored manifest: no TOML: %w", memory.ErrInvalid)
	}
	return tables, nil
}
