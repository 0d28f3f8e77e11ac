package compaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// The spend guard: so many calls of the summarizer for one session within the
// window, then rest. A pass whose first answers are good makes one call, two with
// text from outside: a whole sweep of such passes does not meet it.
const (
	guardCalls  = 24
	guardWindow = 10 * time.Minute
	guardRest   = 30 * time.Minute
)

// The circuit breaker: so many failures one after the other, of whatever
// session, then rest; after that one call at a time is tried until one
// succeeds.
const (
	breakerFailures = 5
	breakerRest     = 5 * time.Minute
)

// errRefused says that the guard or the breaker keeps the summarizer from being
// called.
var errRefused = errors.New("the summarizer is not asked")

// spending counts the calls for one session.
type spending struct {
	calls []time.Time
	rest  time.Time // no calls before it
}

// spend takes one call, or returns until when there is none to take.
func (s *spending) spend(now time.Time) (rest time.Time, ok bool) {
	if s.resting(now) {
		return s.rest, false
	}
	if s.calls = s.recent(now); len(s.calls) >= guardCalls {
		s.calls, s.rest = nil, now.Add(guardRest)
		return s.rest, false
	}
	s.calls = append(s.calls, now)
	return time.Time{}, true
}

// resting reports whether the rest goes on. A clock that was set back does not
// make it longer.
func (s *spending) resting(now time.Time) bool {
	return now.Before(s.rest) && s.rest.Sub(now) <= guardRest
}

func (s *spending) recent(now time.Time) (recent []time.Time) {
	for _, t := range s.calls {
		if since := now.Sub(t); since >= 0 && since < guardWindow {
			recent = append(recent, t)
		}
	}
	return recent
}

// breaker watches the summarizer.
type breaker struct {
	failures int
	rest     time.Time
	// trying says that the one call of a breaker that is half open goes on.
	trying bool
}

func (b *breaker) open(now time.Time) bool {
	return b.failures >= breakerFailures && now.Before(b.rest) && b.rest.Sub(now) <= breakerRest
}

// admit takes one call that refuses lets through.
func (b *breaker) admit() { b.trying = b.failures >= breakerFailures }

// refuses reports whether there is no call to take.
func (b *breaker) refuses(now time.Time) bool {
	return b.open(now) || b.failures >= breakerFailures && b.trying
}

// done takes the end of a call that was admitted.
func (b *breaker) done(failed bool, now time.Time) {
	b.trying = false
	if !failed {
		b.failures = 0
		return
	}
	if b.failures++; b.failures >= breakerFailures {
		b.rest = now.Add(breakerRest)
	}
}

// sessionState is what the engine remembers of a session beside the store. It
// is lost with the process, as the cost of a restart is at most one more window
// of calls.
type sessionState struct {
	// turn is held by who changes the session's frontier.
	turn chan struct{}
	// barren are the runs of which a summary saved nothing, by their ends: they
	// are not tried again. It belongs to who holds turn.
	barren map[stretch]struct{}
	// unrepaired is the summary which could not be repaired last. It belongs to
	// who holds turn.
	unrepaired memory.SummaryID

	// guarded by Engine.mu; preempt ends the sweep that holds turn, or is nil.
	users   int
	preempt context.CancelCauseFunc
	// wanted is how many wait for turn whom somebody waits for; yield, while the
	// sweep that holds it waits to be admitted, ends that.
	wanted int
	yield  context.CancelCauseFunc
	spending
}

// stretch names a run by its first and last source.
type stretch struct{ first, last string }

func (w work) stretch() stretch {
	if n := len(w.messages); n > 0 {
		return stretch{w.messages[0].ID.String(), w.messages[n-1].ID.String()}
	}
	return stretch{w.summaries[0].ID.String(), w.summaries[len(w.summaries)-1].ID.String()}
}

// maxBarren and maxSessions bound what is remembered; beyond maxSessions, the calls of
// a session that had fewer than fewCalls are forgotten before their time.
const (
	maxBarren   = 64
	maxSessions = 1024
	fewCalls    = guardCalls / 4
)

func (s *sessionState) isBarren(w work) bool {
	_, known := s.barren[w.stretch()]
	return known
}

func (s *sessionState) setBarren(w work) {
	if len(s.barren) >= maxBarren {
		clear(s.barren)
	}
	s.barren[w.stretch()] = struct{}{}
}

// errBusy says that somebody else changes the session's frontier; errPreempted
// that an answer needs room in it at once.
// errYielded that a run which somebody waits for came while it had to wait itself.
var (
	errBusy      = errors.New("busy")
	errPreempted = errors.New("an answer needed room")
	errYielded   = errors.New("gave way to a run that somebody waits for")
)

// enter waits until nobody else changes the session's frontier, or ctx is done,
// and returns ctx for the one who does. Different sessions do not wait for one
// another. In a hurry it returns errBusy in place of waiting; under pressure it
// ends the sweep that goes on, unless that is under pressure too.
func (e *Engine) enter(ctx context.Context, id memory.SessionID, p plan) (_ context.Context, state *sessionState, leave func(), err error) {
	state = e.visit(id)
	if p.pressure {
		e.preempt(state)
	}
	select {
	case state.turn <- struct{}{}:
	default:
		if p.hurry {
			e.depart(state)
			return nil, nil, nil, errBusy
		}
		err := e.await(ctx, state)
		if err != nil {
			e.depart(state)
			return nil, nil, nil, fmt.Errorf("wait for the session's compaction: %w", err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if !p.pressure {
		e.mu.Lock()
		state.preempt = cancel
		e.mu.Unlock()
	}
	return ctx, state, func() {
		cancel(nil)
		e.mu.Lock()
		state.preempt = nil
		e.mu.Unlock()
		<-state.turn
		e.depart(state)
	}, nil
}

// await waits for the session's turn. Who has it and waits to be admitted, for nobody,
// gives way to somebody.
func (e *Engine) await(ctx context.Context, state *sessionState) error {
	if !memory.InBackground(ctx) {
		e.mu.Lock()
		state.wanted++
		if state.yield != nil {
			state.yield(errYielded)
		}
		e.mu.Unlock()
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			state.wanted--
		}()
	}
	select {
	case state.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admitted waits until the summarizer may be asked for a sweep that nobody waits for.
// The time does not count as time of the sweep. The error is ctx's, or errYielded.
func (s *sweeper) admitted(ctx context.Context) (release func(), err error) {
	e := s.engine
	if e.config.Admit == nil || e.local || !memory.InBackground(ctx) && (s.plan.waited == nil || s.plan.waited.Err() == nil) {
		return func() {}, nil
	}
	ctx, yield := context.WithCancelCause(ctx)
	defer yield(nil)
	setYield := func(f context.CancelCauseFunc) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s.state.yield = f
		if s.turn.held != nil {
			s.turn.held.yield = f
		}
		if f != nil && s.state.wanted > 0 {
			f(errYielded)
		}
	}
	setYield(yield)
	defer setYield(nil)
	defer s.limit.pause()()
	release, err = e.config.Admit(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errYielded) {
		err = errYielded
	}
	return release, err
}

func (e *Engine) preempt(state *sessionState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if state.preempt != nil {
		state.preempt(errPreempted)
	}
}

func (e *Engine) visit(id memory.SessionID) *sessionState {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.sessions[id]
	if state == nil {
		e.forget()
		state = &sessionState{turn: make(chan struct{}, 1), barren: map[stretch]struct{}{}}
		e.sessions[id] = state
	}
	state.users++
	return state
}

func (e *Engine) depart(state *sessionState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	state.users--
}

// forget drops the sessions of which little needs to be remembered, once there
// are many: what is left are those that are changed now, rest, or are expensive. The
// caller holds mu.
func (e *Engine) forget() {
	if len(e.sessions) < max(maxSessions, e.forgetAt) {
		return
	}
	now := e.now()
	for id, state := range e.sessions {
		if state.users == 0 && !state.resting(now) && len(state.recent(now)) < fewCalls {
			delete(e.sessions, id)
		}
	}
	// Else each that comes would look at all of those that stay.
	e.forgetAt = 2 * len(e.sessions)
}

// admit takes one call of the summarizer, or returns an error that wraps
// errRefused and says until when there is none.
func (e *Engine) admit(state *sessionState) error {
	if e.local {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	// A call that the breaker refuses is not spent.
	if e.breaker.refuses(now) {
		return fmt.Errorf("%w before %s: it failed %d times in a row", errRefused, e.breaker.rest.UTC().Format(time.RFC3339), e.breaker.failures)
	}
	if rest, ok := state.spend(now); !ok {
		return fmt.Errorf("%w for this session before %s: %d calls within %v", errRefused, rest.UTC().Format(time.RFC3339), guardCalls, guardWindow)
	}
	e.breaker.admit()
	return nil
}

// settle takes the end of a call that was admitted.
func (e *Engine) settle(failed bool) {
	if e.local {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breaker.done(failed, e.now())
}

// abandon takes the end of a call whose caller has gone: it says nothing of the
// summarizer.
func (e *Engine) abandon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breaker.trying = false
}
