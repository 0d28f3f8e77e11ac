package compaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gloveboxhq/glovebox/memory"
)

// What goes on behind the turns is found in the store, not queued here: an answer
// that makes a run due is stored with it, and a worker that is free takes the next
// one. So it costs the memory of the workers, however many are due, and is all the
// same whether this process made them due or one that was killed.

// Background says what a host has to do with the runs behind its turns. Any of it
// may be nil.
type Background struct {
	// Between gives the Between of a turn.
	Between func(Turn) func(context.Context) (release func(), err error)
	// Begin is told of a run that begins, which goes on with the context that it
	// returns; ended is told of its end, once, with an error that wraps ErrPending if
	// it will be taken up again.
	Begin func(ctx context.Context, t Turn, trigger memory.Trigger) (_ context.Context, ended func(Report, error))
}

// ErrPending says that a run is not over: Close ended it, or it gave way to one that
// somebody waits for. It is taken up again.
var ErrPending = errors.New("the run is pending still")

// rounds is what the workers share.
type rounds struct {
	// picking lets one worker look for what is next at a time, and guards last:
	// whose turn it was last.
	picking sync.Mutex
	last    memory.UserID

	// guarded by Engine.mu
	host    Background
	started bool
	workers int
	// woken counts the calls of Wake: who has found nothing looks again if there was
	// one meanwhile.
	woken int
	// going are the users with a run.
	going map[memory.UserID]struct{}
}

func pendingRun(t Turn) memory.PendingRun {
	return memory.PendingRun{User: t.User, Agent: t.Agent, Session: t.Session, Trigger: memory.TriggerCadence, Exchanges: t.Exchanges, At: t.At}
}

// endPending records that a run is over, whoever has gone meanwhile. One that became
// due while it went on is not. A row that stays costs another run, which finds the
// refresh stored and nothing to summarise.
func (e *Engine) endPending(ctx context.Context, run memory.PendingRun) error {
	err := e.store.EndPendingRun(context.WithoutCancel(ctx), run.User, run.Session, run.Trigger, run.At)
	if errors.Is(err, memory.ErrNotFound) || errors.Is(err, memory.ErrWiped) {
		return nil
	}
	return err
}

// Start begins to take up, in the background, the runs that are pending: those of an
// earlier process, and whichever become due from then on, after Wake. One whose
// refresh was stored asks no source again. With cadence and threshold off nothing is
// read or done, and the second call does nothing. It is to be called before the first
// turn.
//
// The order is by turns of the users: whoever has something pending has one run, the
// one that was due first, before anybody has the next but one. Exactly: in the order
// of their ids, round and round, each user who has something pending and no run going
// on has one. So from when a run is the first of its user's, at most one run of each
// other user begins before it. A user has one run at a time, and Config.Workers go on
// in all. A run whose agent and user have a gap run just then waits for the next
// round.
func (e *Engine) Start(host Background) {
	if e.config.Interval <= 0 && e.config.Threshold <= 0 {
		return
	}
	e.mu.Lock()
	if !e.pending.started {
		e.pending.started, e.pending.host = true, host
	}
	e.mu.Unlock()
	e.Wake()
}

// Wake has what became pending found. It does not wait for it.
func (e *Engine) Wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &e.pending
	p.woken++
	if !p.started || p.workers >= e.config.workers() {
		return
	}
	end, err := e.running.Begin()
	if err != nil {
		return // closing: it stays pending
	}
	p.workers++
	go func() {
		defer end()
		e.work()
	}()
}

// Active is how many runs go on behind the turns.
func (e *Engine) Active() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending.going)
}

// work takes up one run after the other until there is none, or Close ends it.
func (e *Engine) work() {
	ctx := memory.Background(e.background)
	for {
		e.mu.Lock()
		seen := e.pending.woken
		e.mu.Unlock()
		run, leave, err := e.next(ctx)
		switch {
		case err == nil:
			// There may be more, for another worker.
			e.Wake()
			err = e.take(ctx, run)
			leave()
		case !errors.Is(err, memory.ErrNotFound) && ctx.Err() == nil:
			e.log.Warn("look for compactions that are due", "error", err)
		}
		e.mu.Lock()
		again := err == nil || errors.Is(err, memory.ErrNotFound) && e.pending.woken != seen
		if !again || ctx.Err() != nil {
			// What the store fails now is left until somebody wakes a worker.
			e.pending.workers--
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
	}
}

// next chooses the run whose turn it is. Until leave, its user has no other. The
// error is the store's, memory.ErrNotFound if there is none.
func (e *Engine) next(ctx context.Context) (run memory.PendingRun, leave func(), err error) {
	p := &e.pending
	p.picking.Lock()
	defer p.picking.Unlock()
	// Whose turn it was comes last in the round, at its end.
	wrapped := p.last.IsZero()
	for after := p.last; ; after = run.User {
		run, err = e.store.NextPendingRun(ctx, after)
		switch {
		case errors.Is(err, memory.ErrNotFound) && !wrapped:
			wrapped, run = true, memory.PendingRun{}
			continue
		case err != nil:
			return run, nil, err
		case wrapped && !p.last.IsZero() && bytes.Compare(run.User[:], p.last[:]) > 0:
			return run, nil, memory.ErrNotFound
		}
		if e.reserve(run) {
			p.last = run.User
			return run, func() {
				// Not while another worker looks: it may have read that the run is
				// pending still.
				p.picking.Lock()
				defer p.picking.Unlock()
				e.mu.Lock()
				defer e.mu.Unlock()
				delete(p.going, run.User)
			}, nil
		}
	}
}

// reserve keeps the run's user from having another, unless there is one.
func (e *Engine) reserve(run memory.PendingRun) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, goes := e.pending.going[run.User]; goes || e.busy[pair{run.Agent, run.User}] != nil {
		return false
	}
	e.pending.going[run.User] = struct{}{}
	return true
}

// take runs one run. The error is that it is pending still, and not because somebody
// else has the pair.
func (e *Engine) take(ctx context.Context, run memory.PendingRun) error {
	t := Turn{User: run.User, Agent: run.Agent, Session: run.Session, At: e.now(), Source: memory.SourceUser, Exchanges: run.Exchanges}
	host := e.pending.host
	if host.Between != nil {
		t.Between = host.Between(t)
	}
	report := Report{Trigger: run.Trigger, Outcome: memory.OutcomeSkipped, Reason: ReasonNotDue, At: t.At}
	ended := func(Report, error) {}
	begin := func() {
		if host.Begin != nil {
			ctx, ended = host.Begin(ctx, t, run.Trigger)
		}
	}
	var err error
	switch {
	case run.Trigger == memory.TriggerCadence && e.config.Interval > 0:
		unlock, ok := e.tryLock(&t)
		if !ok {
			return nil
		}
		defer unlock()
		begin()
		report, err = e.cadenceAlone(ctx, t, report, &run)
	case run.Trigger == memory.TriggerThreshold && e.config.Threshold > 0:
		begin()
		report, err = e.makeRoom(ctx, t, Window{run.Budget, run.System}, report)
	}
	yielded := errors.Is(err, errYielded)
	if yielded || err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrPending, err)
		ended(report, err)
		if yielded {
			return nil
		}
		return err
	}
	ended(report, err)
	switch {
	case err == nil:
	case errors.Is(err, memory.ErrNotFound), errors.Is(err, memory.ErrWiped):
		// A session that has gone, and a user who is being wiped, are no failure.
	default:
		e.log.Warn("compaction in the background", "trigger", run.Trigger, "session", run.Session, "error", err)
	}
	if err := e.endPending(ctx, run); err != nil {
		e.log.Warn("compaction in the background", "trigger", run.Trigger, "session", run.Session, "error", err)
		return fmt.Errorf("record that a compaction is over: %w", err)
	}
	return nil
}
