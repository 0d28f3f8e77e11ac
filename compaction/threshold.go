package compaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

// Window is what prompts of a session have to fit into, in tokens.
type Window struct {
	// Budget is what a whole prompt may cost.
	Budget int
	// System is what the system text costs of it.
	System int
}

// threshold is the plan of a run that makes room in a window. The tail is at
// most half of what the run shall leave: else a conversation of long messages
// would have no room for what was said before.
func (e *Engine) threshold(w Window) plan {
	enough := max(int(e.config.lowMark()*float64(w.Budget))-w.System, 0)
	return plan{
		keep: tailMessages, keepTokens: max(min(tailTokens, enough/2), 1), atLeast: min(e.config.keepRecent(), tailMessages),
		leaf: leafTokens, condensed: condensedTokens, enough: enough,
		// A change of the prompt's beginning shall make room for some turns.
		smallest: max(minWorth, w.Budget/20),
		hurry:    true,
	}
}

// pressing is the plan of a run that an answer waits for.
func (e *Engine) pressing(w Window) plan {
	p := e.threshold(w)
	p.keep, p.keepTokens, p.atLeast = e.config.keepRecent(), 0, 0
	p.smallest, p.pressure, p.hurry = minWorth, true, false
	// The other half of the time is for what was cut to be stored.
	p.patience = e.config.gapDeadline() / 2
	return p
}

func (e *Engine) fills(f memory.Frontier, w Window, part float64) bool {
	return float64(w.System+assembly.Demand(f.Items)) > part*float64(w.Budget)
}

// Threshold runs after an answer if the next prompt would fill more of its
// budget than configured. It returns when the run is over, so that the caller
// chooses the background. While another run changes the session, it is skipped.
// A run that is not due, or that finds nothing to summarise, returns a report of OutcomeSkipped and leaves no record.
func (e *Engine) Threshold(ctx context.Context, t Turn, w Window) (Report, error) {
	report := Report{Trigger: memory.TriggerThreshold, Outcome: memory.OutcomeSkipped, Reason: ReasonNotDue, At: t.At}
	if e.config.Threshold <= 0 || w.Budget <= 0 {
		return report, nil
	}
	end, err := e.running.Begin()
	if err != nil {
		return report, fmt.Errorf("threshold: %w", err)
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.background, cancel)()
	return e.makeRoom(memory.Background(ctx), t, w, report)
}

// IsThresholdDue reports whether a threshold run is due in a session whose frontier
// costs so much in a prompt, by assembly.Demand.
func (e *Engine) IsThresholdDue(w Window, demand int) bool {
	return e.config.Threshold > 0 && w.Budget > 0 && float64(w.System+demand) > e.config.Threshold*float64(w.Budget)
}

// makeRoom is Threshold for a run that goes on in the background.
func (e *Engine) makeRoom(ctx context.Context, t Turn, w Window, report Report) (Report, error) {
	frontier, err := e.store.Frontier(ctx, t.User, t.Session)
	if err != nil {
		return report, fmt.Errorf("threshold: read frontier: %w", err)
	}
	if !e.fills(frontier, w, e.config.Threshold) {
		return report, nil
	}
	began := time.Now()
	report.Reason = ""
	report.Sweep, err = e.sweep(ctx, t, e.threshold(w))
	if errors.Is(err, errBusy) {
		return e.skip(ctx, t, report, ReasonBusySession)
	}
	report.Took = time.Since(began)
	if err != nil && (ctx.Err() != nil || errors.Is(err, errYielded)) {
		// Nothing is counted or recorded of a run that may be pending still.
		report.Outcome, report.Reason = memory.OutcomeFailed, cmp.Or(ctx.Err(), err).Error()
		return report, err
	}
	return e.swept(ctx, t, report, err)
}

// swept ends a run that only swept. One that found nothing is not recorded: it
// would be, with every turn.
func (e *Engine) swept(ctx context.Context, t Turn, report Report, err error) (Report, error) {
	if s := report.Sweep; err == nil && !s.Changed() && s.Stopped == "" {
		report.Outcome, report.Reason = memory.OutcomeSkipped, ReasonNothing
		return report, nil
	}
	return e.finish(ctx, t, report, err)
}

// Relieve runs before an answer whose prompt would pass its budget. It is waited
// for until the gap deadline, and goes on in the background after that. With the
// guard or the breaker open it cuts down instead of summarising; that is repaired
// later.
func (e *Engine) Relieve(ctx context.Context, t Turn, w Window) (Report, error) {
	report := Report{Trigger: memory.TriggerThreshold, Outcome: memory.OutcomeSkipped, Reason: ReasonNotDue, At: t.At}
	if e.config.Threshold <= 0 || w.Budget <= 0 {
		return report, nil
	}
	end, err := e.running.Begin()
	if err != nil {
		return report, fmt.Errorf("relieve: %w", err)
	}
	defer end()
	frontier, err := e.store.Frontier(ctx, t.User, t.Session)
	if err != nil {
		return report, fmt.Errorf("relieve: read frontier: %w", err)
	}
	if !e.fills(frontier, w, 1) {
		return report, nil
	}
	began := time.Now()
	report.Reason = ""
	waiting, cancel := context.WithTimeout(ctx, e.config.gapDeadline())
	defer cancel()
	type ended struct {
		report Report
		err    error
	}
	done := make(chan ended, 1)
	e.running.goes(func() {
		late := report
		behind, over := e.beyond(ctx)
		defer over()
		sweep, err := e.sweep(behind, t, e.pressing(w))
		late.Sweep, late.Took = sweep, time.Since(began)
		late, err = e.swept(context.WithoutCancel(ctx), t, late, err)
		if err != nil {
			e.log.Warn("compaction of a prompt over its budget", "session", t.Session, "error", err)
		}
		done <- ended{late, err}
	})
	select {
	case end := <-done:
		return end.report, end.err
	case <-waiting.Done():
		report.Pending, report.Outcome, report.Took = true, memory.OutcomeDone, time.Since(began)
		return report, ctx.Err()
	}
}

// Compact runs now, whatever is configured: somebody asked for it. It summarises
// all but the recent messages.
func (e *Engine) Compact(ctx context.Context, t Turn) (Report, error) {
	report := Report{Trigger: memory.TriggerManual, Outcome: memory.OutcomeSkipped, At: t.At}
	end, err := e.running.Begin()
	if err != nil {
		return report, fmt.Errorf("compact: %w", err)
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.background, cancel)()
	began := time.Now()
	report.Sweep, err = e.sweep(ctx, t, e.continuous())
	report.Took = time.Since(began)
	return e.swept(ctx, t, report, err)
}
