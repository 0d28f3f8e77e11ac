package dream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

const (
	// tickSessions is how many sessions one tick dreams for at most.
	tickSessions = 64
	// After a failure a session rests for firstRest, and twice as long after each
	// further one, but no longer than longestRest.
	firstRest   = time.Minute
	longestRest = time.Hour
	// maxFailed bounds how many sessions are remembered to have failed. It is lost
	// with the process: the cost of a restart is one more attempt.
	maxFailed = 1024
)

func (c Config) workers() int {
	if c.Workers <= 0 {
		return 2
	}
	return c.Workers
}

// failure is what is remembered of a session whose dreams failed.
type failure struct {
	times int
	at    time.Time
}

// rest is how long the session is left alone.
func (f failure) rest() time.Duration {
	// Shifted further it would overflow.
	return min(firstRest<<min(f.times-1, 10), longestRest)
}

// Tick looks once for sessions that are due, dreams for them through the workers,
// oldest first, and returns when that is over. Those of one user come one after the
// other, whichever the agent: they change the same topics, and of two dreams at once
// the model would be asked by one for nothing. A session whose dream failed is left alone for a minute, and
// twice as long each further time, up to an hour; the failure is logged, and in no
// error. With a Gap of 0, without a model, or while no agent has structured memory,
// it does nothing, not even read. Errors are the store's, ctx's, and ErrClosed.
func (d *Dreamer) Tick(ctx context.Context) error {
	ctx = memory.Background(ctx)
	if d.config.Gap <= 0 || d.config.Model == nil || d.config.Agents == nil {
		return nil
	}
	agents := d.config.Agents()
	if len(agents) == 0 {
		return nil
	}
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return fmt.Errorf("look for sessions that are due: %w", err)
	}
	defer end()
	now := d.now()
	resting := d.resting(now)
	// Those that rest must not keep the others out.
	due, err := d.store.IdleSessions(ctx, agents, now.Add(-d.config.Gap), tickSessions+len(resting))
	if err != nil {
		return fmt.Errorf("look for sessions that are due: %w", err)
	}
	due = slices.DeleteFunc(due, func(s memory.IdleSession) bool { return resting[s.Session] })
	due = due[:min(len(due), tickSessions)]

	var users []memory.UserID
	sessions := map[memory.UserID][]memory.IdleSession{}
	for _, s := range due {
		if sessions[s.User] == nil {
			users = append(users, s.User)
		}
		sessions[s.User] = append(sessions[s.User], s)
	}
	next := make(chan memory.UserID)
	var workers sync.WaitGroup
	for range min(d.config.workers(), len(users)) {
		workers.Go(func() {
			for user := range next {
				for _, s := range sessions[user] {
					d.dreamOf(ctx, s)
				}
			}
		})
	}
	for _, user := range users {
		next <- user
	}
	close(next)
	workers.Wait()
	if err := d.over(ctx); err != nil {
		return fmt.Errorf("dream: %w", err)
	}
	return nil
}

// dreamOf dreams for one session that is due.
func (d *Dreamer) dreamOf(ctx context.Context, s memory.IdleSession) {
	if ctx.Err() != nil {
		return
	}
	at := Place{User: s.User, Agent: s.Agent, Session: s.Session}
	report, err := d.Dream(ctx, at)
	switch {
	case err == nil:
		d.succeeded(s.Session)
		d.log.DebugContext(ctx, "dream", "user", s.User, "session", s.Session, "topics", len(report.Topics), "retired", report.Retired, "dropped", report.Dropped)
	case errors.Is(err, ErrBusy), errors.Is(err, memory.ErrWiped), d.over(ctx) != nil:
		// It is due again, or gone.
	default:
		rest := d.failedAt(s.Session, d.now())
		d.log.WarnContext(ctx, "dream", "user", s.User, "session", s.Session, "error", err, "rest", rest)
	}
}

// resting returns the sessions that are left alone now.
func (d *Dreamer) resting(now time.Time) map[memory.SessionID]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	resting := map[memory.SessionID]bool{}
	for session, f := range d.failed {
		// A clock that was set back does not make the rest longer.
		if since := now.Sub(f.at); since >= 0 && since < f.rest() {
			resting[session] = true
		}
	}
	return resting
}

func (d *Dreamer) succeeded(session memory.SessionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failed, session)
}

// failedAt returns how long the session rests.
func (d *Dreamer) failedAt(session memory.SessionID, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, again := d.failed[session]
	if !again && len(d.failed) >= maxFailed {
		oldest, found := memory.SessionID{}, time.Time{}
		for other, g := range d.failed {
			if found.IsZero() || g.at.Before(found) {
				oldest, found = other, g.at
			}
		}
		delete(d.failed, oldest)
	}
	f.times, f.at = f.times+1, now
	d.failed[session] = f
	return f.rest()
}
