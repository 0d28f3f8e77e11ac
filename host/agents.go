package host

import (
	"context"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
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

// AgentInfo tells of one configured agent.
type AgentInfo struct {
	Name string         `json:"name"`
	ID   memory.AgentID `json:"id"`
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

// Agents returns the configured agents in their order.
func (h *Host) Agents() []AgentInfo { return nil }

// AgentsOf is Host.Agents where no host runs: the store may be open for reading
// beside one. An agent that no host has seen yet has no ID.
func AgentsOf(ctx context.Context, config Config, store memory.Store) ([]AgentInfo, error) {
	return nil, nil
}

// SetMemorySystem chooses how an agent remembers, from its next turn on, and keeps
// the choice over restarts. "" leaves it to the configuration again. Errors wrap
// memory.ErrNotFound and memory.ErrInvalid.
func (h *Host) SetMemorySystem(ctx context.Context, agent, system string) (AgentInfo, error) {
	return AgentInfo{}, nil
}

// Dream merges what is new of a user with an agent into the topics, now, whether a
// session has rested or not. Errors are those of dream.Dreamer, and memory.ErrInvalid
// for an agent without structured memory.
func (h *Host) Dream(ctx context.Context, user memory.UserID, agent string) (dream.Report, error) {
	return dream.Report{}, nil
}

// WipeMemory removes what is remembered of a user, with one agent or, if agent is
// the zero ID, altogether, and the last trace of it from the files.
func (h *Host) WipeMemory(ctx context.Context, user memory.UserID, agent memory.AgentID) (WipeReport, error) {
	return WipeReport{}, nil
}

// Counts are how often things ended in which way since the host was opened.
type Counts struct {
	// Triggers are those of compaction.
	Triggers map[memory.Trigger]TriggerCounts `json:"triggers"`
	Memory   dream.Counts                     `json:"memory"`
}

// TriggerCounts counts the runs of one trigger. Fired are those that ran to their
// end, Failed those that did not; the others were skipped.
type TriggerCounts struct {
	Fired    int `json:"fired"`
	Busy     int `json:"busy"`
	Inactive int `json:"inactive"`
	Nothing  int `json:"nothing"`
	Failed   int `json:"failed"`
}

// Counts returns the counts so far.
func (h *Host) Counts() Counts { return Counts{} }
