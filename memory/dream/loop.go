package dream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

const (
	// maxInARow is how many dreams one after the other that a model does not answer end
	// a tick.
	maxInARow = 5
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
	return min(firstRest<<min(max(f.times-1, 0), 10), longestRest)
}

// ticking is what the workers of a tick share.
type ticking struct {
	// mu guards all below, and lets one worker look for what is next at a time; left
	// is told of each dream that is over.
	mu   sync.Mutex
	left sync.Cond
	// last is whose turn it was last, in this tick or the one before.
	last memory.UserID
	// going are the users who are dreamt of.
	going map[memory.UserID]struct{}
	// unanswered is how many dreams, one after the other, the model did not answer.
	unanswered int
	// over says that the tick is; err is why, if the store failed.
	over bool
	err  error
}

// Tick dreams, through the workers, for sessions that are due, until none is, and
// returns when that is over. What is next is found in the store, one at a time:
// however many are due, it costs the memory of the workers.
//
// The order is by turns of the users: in the order of their ids, round and round,
// each who has a session that is due, and is not dreamt of just then, has one dream,
// of the session in which there was something to learn first. So from when a session
// is the first of its user's, at most one dream of each other user begins before it.
// Those of one user come one after the other, whichever the agent: they change the
// same topics, and of two dreams at once the model would be asked by one for nothing.
//
// A session whose dream failed is left alone for a minute, and twice as long each
// further time, up to an hour; the failure is logged, and in no error. After five in a
// row that the model did not answer, and while a thousand are left alone, the tick is
// over, and the next one tries again. With a Gap of 0, without a model, or while no agent has structured
// memory, it does nothing, not even read. A second tick while one goes on does
// nothing. Errors are the store's, ctx's, and ErrClosed.
func (d *Dreamer) Tick(ctx context.Context) error {
	ctx = memory.Background(ctx)
	if d.config.Gap <= 0 || d.config.Model == nil || d.config.Agents == nil || len(d.config.Agents()) == 0 {
		return nil
	}
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return fmt.Errorf("look for sessions that are due: %w", err)
	}
	defer end()
	t := &d.ticking
	t.mu.Lock()
	if t.going != nil {
		t.mu.Unlock()
		return nil
	}
	t.going, t.left.L = map[memory.UserID]struct{}{}, &t.mu
	t.unanswered, t.over, t.err = 0, false, nil
	t.mu.Unlock()

	var workers sync.WaitGroup
	for range d.config.workers() {
		workers.Go(func() {
			for {
				s, ok := d.next(ctx)
				if !ok {
					return
				}
				t.leave(s.User, d.dreamOf(ctx, s))
			}
		})
	}
	workers.Wait()
	t.mu.Lock()
	err = t.err
	t.going = nil
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("look for sessions that are due: %w", err)
	}
	if err := d.over(ctx); err != nil {
		return fmt.Errorf("dream: %w", err)
	}
	return nil
}

// next chooses the session that is dreamt of next. Until leave, its user has no other.
// It waits while all that is due is of users who are dreamt of; ok is false once the
// tick is over.
func (d *Dreamer) next(ctx context.Context) (s memory.IdleSession, ok bool) {
	t := &d.ticking
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.over = t.over || d.over(ctx) != nil; t.over {
			return s, false
		}
		s, err := d.search(ctx)
		switch {
		case err == nil:
			t.last = s.User
			t.going[s.User] = struct{}{}
			return s, true
		case !errors.Is(err, memory.ErrNotFound):
			if d.over(ctx) == nil {
				t.err = err
			}
			t.over = true
		case len(t.going) == 0:
			t.over = true
		default:
			t.left.Wait()
		}
	}
}

// search goes round the users once, beginning behind whose turn it was last. The
// caller holds ticking.mu.
func (d *Dreamer) search(ctx context.Context) (s memory.IdleSession, err error) {
	t, now := &d.ticking, d.now()
	q := memory.DueQuery{Agents: d.config.Agents(), IdleSince: now.Add(-d.config.Gap), Except: d.resting(now)}
	if len(q.Agents) == 0 || len(q.Except) >= maxFailed {
		return s, memory.ErrNotFound
	}
	wrapped := t.last.IsZero()
	for q.After = t.last; ; q.After = s.User {
		s, err = d.store.NextIdleSession(ctx, q)
		switch {
		case errors.Is(err, memory.ErrNotFound) && !wrapped:
			wrapped, s = true, memory.IdleSession{}
			continue
		case err != nil:
			return s, err
		case wrapped && !t.last.IsZero() && bytes.Compare(s.User[:], t.last[:]) > 0:
			return s, memory.ErrNotFound
		}
		if _, goes := t.going[s.User]; !goes {
			return s, nil
		}
	}
}

// leave takes the end of a dream.
func (t *ticking) leave(user memory.UserID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.going, user)
	switch {
	case errors.Is(err, llm.ErrUnavailable), errors.Is(err, llm.ErrRateLimited), errors.Is(err, llm.ErrAuth), errors.Is(err, context.DeadlineExceeded):
		t.unanswered++
		t.over = t.over || t.unanswered >= maxInARow
	case err == nil:
		t.unanswered = 0
	}
	t.left.Broadcast()
}

// dreamOf dreams for one session that is due.
func (d *Dreamer) dreamOf(ctx context.Context, s memory.IdleSession) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := Place{User: s.User, Agent: s.Agent, Session: s.Session}
	report, err := d.Dream(ctx, at)
	switch {
	case err == nil && report.Extractions+report.Messages > 0:
		d.succeeded(s.Session)
		d.log.DebugContext(ctx, "dream", "user", s.User, "session", s.Session, "topics", len(report.Topics), "retired", report.Retired, "dropped", report.Dropped)
	case err == nil, errors.Is(err, ErrBusy), errors.Is(err, errYielded):
		// If it is due still, it is not looked at again at once.
		d.pass(s.Session, d.now())
	case errors.Is(err, memory.ErrWiped), d.over(ctx) != nil:
		// It is due again, or gone.
	default:
		rest := d.failedAt(s.Session, d.now())
		d.log.WarnContext(ctx, "dream", "user", s.User, "session", s.Session, "error", err, "rest", rest)
	}
	return err
}

// resting returns the sessions that are left alone now.
func (d *Dreamer) resting(now time.Time) (resting []memory.SessionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for session, f := range d.failed {
		// A clock that was set back does not make the rest longer.
		if since := now.Sub(f.at); since >= 0 && since < f.rest() {
			resting = append(resting, session)
		} else if f.times == 0 {
			delete(d.failed, session)
		}
	}
	return resting
}

func (d *Dreamer) succeeded(session memory.SessionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failed, session)
}

// pass leaves a session alone for as long as after a first failure, of which it has
// had none more.
func (d *Dreamer) pass(session memory.SessionID, now time.Time) { d.rests(session, 0, now) }

// failedAt returns how long the session rests.
func (d *Dreamer) failedAt(session memory.SessionID, now time.Time) time.Duration {
	return d.rests(session, 1, now)
}

func (d *Dreamer) rests(session memory.SessionID, failures int, now time.Time) time.Duration {
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
	f.times, f.at = f.times+failures, now
	d.failed[session] = f
	return f.rest()
}
