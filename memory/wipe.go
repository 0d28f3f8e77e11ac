package memory

import "time"

// WipeCounts are how many things of each kind were removed.
type WipeCounts struct {
	Topics      int `json:"topics"`
	AgentTopics int `json:"agent_topics"`
	Extractions int `json:"extractions"`
	// What follows is removed with the user alone.
	Sessions    int `json:"sessions,omitempty"`
	Messages    int `json:"messages,omitempty"`
	Summaries   int `json:"summaries,omitempty"`
	Files       int `json:"files,omitempty"`
	Compactions int `json:"compactions,omitempty"`
	Users       int `json:"users,omitempty"`
}

// Wipe is a wipe that has begun.
type Wipe struct {
	User    UserID    `json:"user_id"`
	BegunAt time.Time `json:"begun_at"`
}
