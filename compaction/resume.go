package compaction

import (
	"context"
	"errors"
	"fmt"

	"github.com/gloveboxhq/glovebox/memory"
)

// maxResumed is how many runs of an earlier process are taken up at a time: all
// at once, after a bad end, they would leave nothing to the turns.
const maxResumed = 2

// errTakenUp says that a run of an earlier process is another one's now.
var errTakenUp = errors.New("a later run took its place")

func pendingRun(t Turn) memory.PendingRun {
	return memory.PendingRun{User: t.User, Agent: t.Agent, Session: t.Session, Trigger: memory.TriggerCadence, Exchanges: t.Exchanges, At: t.At}
}

// endPending records that the session's cadence run is over, whoever has gone
// meanwhile. A row that stays costs a look at the next start, which finds the
// refresh stored and nothing to summarise.
func (e *Engine) endPending(ctx context.Context, t Turn) {
	err := e.store.EndPendingRun(context.WithoutCancel(ctx), t.User, t.Session, memory.TriggerCadence, t.At)
	if err != nil && !errors.Is(err, memory.ErrNotFound) && !errors.Is(err, memory.ErrWiped) {
		e.log.WarnContext(ctx, "cadence: record that the run is over", "session", t.Session, "error", err)
	}
}

// takeUp reports whether an earlier process began a run in the session that
// nobody has taken up yet, and takes it: it is the caller's, who holds the pair.
func (e *Engine) takeUp(session memory.SessionID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, there := e.unresumed[session]
	delete(e.unresumed, session)
	return there
}

// Resume takes up, in the background, the cadence runs that an earlier process
// began and did not end: each at most once, under the rules of any cadence run.
// One whose refresh was stored asks no source again. One whose agent and user have
// another run just then is left to the session's next cadence run, which takes its
// place, or to the next process. With cadence off nothing is read or done, and the
// second call does nothing.
//
// It is to be called before the first turn. Between gives the Between of a
// turn, and done is told of each run that is over; both may be nil. The
// error is the store's: nothing is resumed then.
func (e *Engine) Resume(ctx context.Context, between func(Turn) func(context.Context) (release func(), err error), done func(Report)) error {
	if e.config.Interval <= 0 {
		return nil
	}
	end, err := e.running.Begin()
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	defer end()
	pending, err := e.store.PendingRuns(ctx)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	// The runs of a pair follow one another, oldest first: side by side, one would
	// be skipped.
	var pairs []pair
	runs := map[pair][]memory.PendingRun{}
	e.mu.Lock()
	first := !e.resumed
	e.resumed = true
	for _, run := range pending {
		if !first || run.Trigger != memory.TriggerCadence {
			continue
		}
		p := pair{run.Agent, run.User}
		if runs[p] == nil {
			pairs = append(pairs, p)
		}
		runs[p] = append(runs[p], run)
		e.unresumed[run.Session] = struct{}{}
	}
	e.mu.Unlock()
	if len(pairs) == 0 {
		return nil
	}
	e.log.InfoContext(ctx, "resume compactions of an earlier process", "runs", len(pending))
	next := make(chan pair)
	e.goes(func() {
		defer close(next)
		for _, p := range pairs {
			select {
			case next <- p:
			case <-e.background.Done():
				return
			}
		}
	})
	for range min(maxResumed, len(pairs)) {
		e.goes(func() {
			for p := range next {
				for _, run := range runs[p] {
					e.resume(run, between, done)
				}
			}
		})
	}
	return nil
}

// resume takes up one run.
func (e *Engine) resume(run memory.PendingRun, between func(Turn) func(context.Context) (func(), error), done func(Report)) {
	ctx := memory.Background(e.background)
	if ctx.Err() != nil {
		return
	}
	t := Turn{User: run.User, Agent: run.Agent, Session: run.Session, At: e.now(), Source: memory.SourceUser, Exchanges: run.Exchanges}
	if between != nil {
		t.Between = between(t)
	}
	report := Report{Trigger: memory.TriggerCadence, Outcome: memory.OutcomeSkipped, Reason: ReasonNotDue, At: t.At}
	report, err := e.cadence(ctx, t, report, &run)
	// A session that has gone, and a user who is being wiped, have no run to resume.
	for _, expected := range []error{errTakenUp, memory.ErrNotFound, memory.ErrWiped, context.Canceled} {
		if errors.Is(err, expected) {
			return
		}
	}
	if err != nil {
		e.log.Warn("resume compaction", "session", run.Session, "error", err)
	}
	if done != nil {
		done(report)
	}
}
