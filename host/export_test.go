package host

import "time"

// Tool is what the host offers to its model.
type Tool = tool

// Offer sets the tools and how long a call may take, before the first turn.
func (h *Host) Offer(timeout time.Duration, tools ...Tool) { h.toolTimeout, h.tools = timeout, tools }
