package mcp

import "time"

// Shorten has sessions end and streams say that they live after so long.
func (h *Handler) Shorten(idle, silence time.Duration) { h.idle, h.silence = idle, silence }

// Sessions counts those that are open.
func (h *Handler) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}
