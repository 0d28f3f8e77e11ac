package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Compact compacts a session now, whatever triggers are configured, and returns
// when that is done. The recent messages stay as they are. Errors wrap
// memory.ErrNotFound and ErrClosed.
func (h *Host) Compact(ctx context.Context, user memory.UserID, session memory.SessionID) (compaction.Report, error) {
	s, err := h.store.Session(ctx, user, session)
	if err != nil {
		return compaction.Report{}, fmt.Errorf("compact: %w", err)
	}
	ctx, ended := h.instruments.compacts(ctx, "compaction", memory.TriggerManual)
	report, err := h.compaction.Compact(ctx, compaction.Turn{User: user, Agent: s.Agent, Session: session, At: h.now()})
	ended(report, err)
	return report, err
}

// CompactionStatus tells what the model is shown of a session, what compaction
// has still to do, and whether the summarizer may be asked. The error wraps
// memory.ErrNotFound.
func (h *Host) CompactionStatus(ctx context.Context, user memory.UserID, session memory.SessionID) (compaction.Status, compaction.Watch, error) {
	return h.compaction.Status(ctx, user, session)
}

// CompactionStatusOf is the part of CompactionStatus that needs no running host:
// the store may be open for reading beside one. The error wraps
// memory.ErrNotFound.
func CompactionStatusOf(ctx context.Context, config Config, store memory.Store, user memory.UserID, session memory.SessionID) (compaction.Status, error) {
	frontier, err := store.Frontier(ctx, user, session)
	if err != nil {
		return compaction.Status{}, fmt.Errorf("compaction status: %w", err)
	}
	return compaction.StatusOf(frontier, config.Compaction.engine()), nil
}

// windowOf is what the prompts of a turn have to fit into. Beside is what goes beside
// the last input, in tokens.
func (h *Host) windowOf(c *course, beside int) compaction.Window {
	system := beside + tokens.Estimate(c.system+"\n\n"+h.config.boundaryMode().SystemParagraph())
	for _, t := range c.tools {
		system += llm.Tool(t).Tokens()
	}
	return compaction.Window{Budget: h.config.budget(), System: system}
}

// relieve makes room before the answer if something has none in its prompt. It
// reports whether the prompt is to be assembled again.
func (h *Host) relieve(ctx context.Context, turn compaction.Turn, c *course, r *assembly.Report) bool {
	noRoom := func(e assembly.Entry) bool { return e.Reason == assembly.ReasonNoRoom }
	if h.config.Compaction.Threshold <= 0 || !r.OverBudget && !slices.ContainsFunc(r.Entries, noRoom) {
		return false
	}
	relieving, ended := h.instruments.compacts(ctx, "compaction", memory.TriggerThreshold)
	report, err := h.compaction.Relieve(relieving, turn, h.windowOf(c, r.Totals.Beside))
	ended(report, err)
	if err != nil {
		// A turn goes on with what it has.
		h.log.WarnContext(ctx, "compaction before the answer", "session", turn.Session, "error", err)
	}
	h.observe(report)
	return report.Sweep.Changed() || report.Pending
}

// beginRun begins a run behind the turns.
func (h *Host) beginRun(ctx context.Context, t compaction.Turn, trigger memory.Trigger) (context.Context, func(compaction.Report, error)) {
	ctx, ended := h.instruments.compacts(h.traced.behind(ctx, t.Session), "compaction", trigger)
	return ctx, func(r compaction.Report, err error) {
		ended(r, err)
		if !errors.Is(err, compaction.ErrPending) {
			h.observe(r)
		}
	}
}

// observe tells who wants to know of a run that was due.
func (h *Host) observe(r compaction.Report) {
	if tell := h.config.OnCompaction; tell != nil && r.Reason != compaction.ReasonNotDue {
		tell(r)
	}
}
