package host

import (
	"context"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/memory"
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
	return nil
}
