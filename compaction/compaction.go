// Package compaction keeps conversations within what a model can be shown,
// without losing a message: it replaces runs of messages in a session's frontier
// by summaries, runs of those by summaries of them, and brings in what hands
// know as one context refresh.
//
// It is set off by three triggers, and by hand. Cadence runs after an answer, in
// the background, every so many exchanges. Gap runs before a message is handled,
// when its user comes back after a while, and is waited for, but never beyond
// its deadline. Threshold runs after an answer when the next prompt would come
// near its budget, and before one, waited for in the same way, when the prompt is
// over it. Without configuration none is armed and nothing is asked, locked or
// read.
package compaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Config sets the triggers. The zero value arms none.
type Config struct {
	// Interval is the number of user exchanges between two cadence runs; 0
	// turns cadence off.
	Interval int
	// KeepRecent is how many of the last messages are never summarised; zero
	// means 6.
	KeepRecent int
	// Gap is how long a user must have been away for a gap run; 0 turns gap
	// off.
	Gap time.Duration
	// GapMaxLookback bounds the window that hands are asked about; zero means
	// 24 h.
	GapMaxLookback time.Duration
	// GapDeadline bounds how long a gap run is waited for; zero means
	// SourceTimeout.
	GapDeadline time.Duration
	// ContextTokenCap bounds the texts of one refresh. Zero means that no
	// source is asked.
	ContextTokenCap int
	// SourceTimeout bounds one question to one source; zero means 30 s.
	SourceTimeout time.Duration
	// MaxSummaryTokens is what a leaf of a cadence, gap or manual run is to cost
	// at most; zero means 1,024.
	MaxSummaryTokens int
	// MaxRunTokens bounds what one summary is made from, if the summarizer cannot
	// read 20,000 tokens, the summary before it and its own; zero means 20,000. A
	// single message may be longer.
	MaxRunTokens int
	// Threshold is the part of the budget which a prompt may fill before a
	// threshold run begins, between 0 and 1; 0 turns thresholds off.
	Threshold float64
	// LowMark is the part at which a threshold run ends; zero means two thirds
	// of Threshold. The space between the two is what new messages fill before
	// the beginning of the prompt changes again, and a provider's cache of it
	// with it: equal marks would change it with every turn. A lower mark makes
	// changes rarer and shows less of the conversation.
	LowMark float64
	// Workers bounds how many runs of all users go on at once behind the turns; zero
	// means 8. Most of the time they wait for a model or for sources.
	Workers int
	// Admit, if not nil, is waited for before each call of the summarizer that
	// nobody waits for, and release is called when the call has ended. A Local
	// summarizer is asked without. The error is ctx's.
	Admit func(ctx context.Context) (release func(), err error)
	// Now is the clock of the spend guard, of the circuit breaker and of runs that
	// were pending; nil means time.Now.
	Now func() time.Time
}

func (c Config) keepRecent() int              { return orDefault(c.KeepRecent, 6) }
func (c Config) lookback() time.Duration      { return orDefault(c.GapMaxLookback, 24*time.Hour) }
func (c Config) sourceTimeout() time.Duration { return orDefault(c.SourceTimeout, 30*time.Second) }
func (c Config) gapDeadline() time.Duration   { return orDefault(c.GapDeadline, c.sourceTimeout()) }
func (c Config) maxSummaryTokens() int        { return orDefault(c.MaxSummaryTokens, 1024) }
func (c Config) maxRunTokens() int            { return orDefault(c.MaxRunTokens, maxRunTokens) }
func (c Config) lowMark() float64             { return orDefault(c.LowMark, c.Threshold*2/3) }
func (c Config) workers() int                 { return max(orDefault(c.Workers, 8), 1) }

func orDefault[T int | float64 | time.Duration](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}

// Question is what a source is asked.
type Question struct {
	User memory.UserID
	// From and To bound the window: From ≤ t < To. To is the time of asking.
	From, To time.Time
	// MaxTokens is what the answer may cost.
	MaxTokens int
}

// Source is somebody to ask for context: a hand with the operator's prompt. It
// is safe for concurrent use.
type Source interface {
	// Name identifies the source in reports, in the host's own words.
	Name() string
	// Ask returns the source's text, within q.MaxTokens; empty if it has
	// nothing to say. Beside an error, the text is its own account of the
	// failure. It returns when ctx is done.
	Ask(ctx context.Context, q Question) (boundary.Content, error)
}

// Turn says where in which conversation a trigger stands.
type Turn struct {
	User    memory.UserID
	Agent   memory.AgentID
	Session memory.SessionID
	// At is the time of the turn: of the message that came in, or of the
	// answer that went out.
	At time.Time
	// Source is that of the message that came in.
	Source memory.Source
	// LastActive is when something was said in the session last, before the turn, as
	// far as the caller knows; zero says nothing. It spares a gap trigger that is not
	// due the look at all of the user's sessions.
	LastActive time.Time
	// Exchanges is the session's count of user exchanges if the answer
	// completed one, else 0. It is taken when the answer is stored: a reader in
	// the background may find a later count.
	Exchanges int
	// Between, if not nil, waits until the session is between two turns and
	// keeps it there until release: a refresh that comes from the background
	// must not stand between a message and its answer.
	Between func(ctx context.Context) (release func(), err error)

	// held is the pair, if the run has it.
	held *holding
}

// Reasons for skipping a run, as they stand in reports and in the record.
const (
	ReasonBusy     = "another run for this agent and user is going on"
	ReasonInactive = "nobody has said anything in the session"
	ReasonNothing  = "nothing outside the recent messages"
	ReasonNotDue   = "not due"
	// ReasonBusySession is that of threshold runs.
	ReasonBusySession = "another run for this session is going on"
)

// Report tells of one run.
type Report struct {
	Trigger memory.Trigger
	Outcome memory.Outcome
	// Reason says why the run was skipped or failed.
	Reason  string
	At      time.Time
	Refresh RefreshReport
	Sweep   SweepReport
	// Pending says that a gap run was not waited for to its end: its
	// compaction goes on in the background.
	Pending bool
	Took    time.Duration
}

// Engine runs compactions. It is safe for concurrent use. Close it to wait for
// what runs in the background.
type Engine struct {
	store      memory.Store
	summarizer Summarizer
	config     Config
	sources    func(memory.UserID) []Source
	log        *slog.Logger
	now        func() time.Time
	// local says that the summarizer asks no model.
	local bool

	// background is cancelled by Close and parents what outlives a call.
	background context.Context
	stop       context.CancelFunc
	running    Group

	// processors are taken by sweeps in the background that need one all the time.
	processors chan struct{}

	// pending is what goes on behind the turns.
	pending rounds

	mu sync.Mutex
	// All below is guarded by mu. busy holds the (agent, user) pairs with a run.
	busy     map[pair]*holding
	sessions map[memory.SessionID]*sessionState
	// forgetAt is from how many sessions on it is looked for those to forget.
	forgetAt int
	breaker  breaker
	counts   map[memory.Trigger]Counts
}

type pair struct {
	agent memory.AgentID
	user  memory.UserID
}

// holding is a pair with a run.
type holding struct {
	// Both are guarded by Engine.mu. yield, while the run waits to be admitted, ends
	// that; heir, if not nil, is who gets the pair then.
	yield context.CancelCauseFunc
	heir  chan *holding
}

// Counts are how often a trigger ended in which way since the engine was made:
// Fired ran to their end, Failed did not, the others were skipped. A run that is
// not due is none, nor is one that Close ended and Resume will take up.
type Counts struct {
	Fired, Busy, Inactive, Nothing, Failed int
}

func (c *Counts) add(other Counts) {
	c.Fired += other.Fired
	c.Busy += other.Busy
	c.Inactive += other.Inactive
	c.Nothing += other.Nothing
	c.Failed += other.Failed
}

// New returns an engine. Sources gives the sources of a user, in the order in
// which their blocks shall stand; it may be nil.
func New(store memory.Store, summarizer Summarizer, config Config, sources func(memory.UserID) []Source, log *slog.Logger) *Engine {
	if sources == nil {
		sources = func(memory.UserID) []Source { return nil }
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	now := config.Now
	if now == nil {
		now = time.Now
	}
	local, _ := summarizer.(Local)
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{
		store: store, summarizer: summarizer, config: config, sources: sources, log: log, now: now, local: local != nil && local.Local(),
		background: ctx, stop: cancel, busy: map[pair]*holding{}, sessions: map[memory.SessionID]*sessionState{},
		processors: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		counts:     map[memory.Trigger]Counts{}, pending: rounds{going: map[memory.UserID]struct{}{}},
	}
}

// Close cancels what runs in the background and waits for it, at most until
// ctx is done. Every pass whose summary was made is kept, and what is left of a
// run that is pending is so still, for the next engine. Triggers fail with ErrClosed
// from then on.
func (e *Engine) Close(ctx context.Context) error {
	e.running.Close()
	e.stop()
	if err := e.running.Wait(ctx); err != nil {
		return fmt.Errorf("wait for compactions: %w", err)
	}
	return nil
}

// Idle waits until no run is going on, in the background or not.
func (e *Engine) Idle(ctx context.Context) error { return e.running.Wait(ctx) }

// Counts returns the counts so far, of all triggers together.
func (e *Engine) Counts() Counts {
	var sum Counts
	for _, c := range e.CountsByTrigger() {
		sum.add(c)
	}
	return sum
}

// CountsByTrigger returns the counts so far; a trigger that never ran has none.
func (e *Engine) CountsByTrigger() map[memory.Trigger]Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// tryLock takes the pair without waiting, for t. The caller calls unlock once.
func (e *Engine) tryLock(t *Turn) (unlock func(), ok bool) {
	p := pair{t.Agent, t.User}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy[p] != nil {
		return nil, false
	}
	t.held = new(holding)
	e.busy[p] = t.held
	return e.unlocks(p, t.held), true
}

// unlocks returns what lets go of the pair.
func (e *Engine) unlocks(p pair, mine *holding) func() {
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.busy, p)
		if mine.heir != nil {
			// At once: a worker that looks for what is next must not come between.
			next := new(holding)
			e.busy[p] = next
			mine.heir <- next
		}
	}
}

// lock is tryLock for a run that somebody waits for: a run that waits to be admitted
// gives way to it, at most until ctx is done.
func (e *Engine) lock(ctx context.Context, t *Turn) (unlock func(), ok bool) {
	if unlock, ok = e.tryLock(t); ok {
		return unlock, true
	}
	p := pair{t.Agent, t.User}
	heir := make(chan *holding, 1)
	e.mu.Lock()
	other := e.busy[p]
	gives := other != nil && other.yield != nil && other.heir == nil
	if gives {
		other.heir = heir
		other.yield(errYielded)
	}
	e.mu.Unlock()
	if !gives {
		return nil, false
	}
	select {
	case t.held = <-heir:
		return e.unlocks(p, t.held), true
	case <-ctx.Done():
	}
	e.mu.Lock()
	other.heir = nil
	e.mu.Unlock()
	select {
	case mine := <-heir:
		e.unlocks(p, mine)()
	default:
	}
	return nil, false
}

// Cadence runs after an answer if the turn's count of exchanges says so. It
// returns when the run is over, so that the caller chooses the background; it
// never touches what an answer waits for. A run that is not due returns a
// report of OutcomeSkipped with ReasonNotDue and leaves no record.
//
// What has begun is pending in the store until it is over. A run that ctx or Close
// ends, be it before its first step, is not: Start takes it up. A host has no need of
// it: what is pending with an answer is found.
func (e *Engine) Cadence(ctx context.Context, t Turn) (Report, error) {
	report := Report{Trigger: memory.TriggerCadence, Outcome: memory.OutcomeSkipped, Reason: ReasonNotDue, At: t.At}
	if !e.isCadenceDue(t) {
		return report, nil
	}
	end, err := e.running.Begin()
	if err != nil {
		e.postpone(ctx, t)
		return report, fmt.Errorf("cadence: %w", err)
	}
	defer end()
	// Closing the engine ends the run, whoever waits for it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.background, cancel)()
	report, err = e.cadence(memory.Background(ctx), t, report)
	if err != nil && ctx.Err() != nil {
		// It may have ended before it was known to the store.
		e.postpone(ctx, t)
	}
	return report, err
}

func (e *Engine) isCadenceDue(t Turn) bool {
	return e.config.Interval > 0 && t.Exchanges > 0 && t.Exchanges%e.config.Interval == 0
}

// postpone leaves a cadence run that is due to the next engine.
func (e *Engine) postpone(ctx context.Context, t Turn) {
	err := e.store.PutPendingRun(context.WithoutCancel(ctx), pendingRun(t))
	if err != nil && !errors.Is(err, memory.ErrNotFound) && !errors.Is(err, memory.ErrWiped) {
		e.log.WarnContext(ctx, "cadence: leave the run to the next engine", "session", t.Session, "error", err)
	}
}

// cadence runs a cadence run that is due.
func (e *Engine) cadence(ctx context.Context, t Turn, report Report) (Report, error) {
	unlock, ok := e.tryLock(&t)
	if !ok {
		return e.skip(ctx, t, report, ReasonBusy)
	}
	defer unlock()
	report, err := e.cadenceAlone(ctx, t, report, nil)
	if err == nil || ctx.Err() == nil {
		if err := e.endPending(ctx, pendingRun(t)); err != nil {
			e.log.WarnContext(ctx, "cadence", "session", t.Session, "error", err)
		}
	} // else it is not over: the row that says so stays
	return report, err
}

// cadenceAlone is for who holds the pair; begun is set if the run is pending.
func (e *Engine) cadenceAlone(ctx context.Context, t Turn, report Report, begun *memory.PendingRun) (Report, error) {
	session, err := e.store.Session(ctx, t.User, t.Session)
	if err != nil {
		return report, fmt.Errorf("cadence: %w", err)
	}
	if !session.HasRealUserActivity() {
		return e.skip(ctx, t, report, ReasonInactive)
	}
	frontier, err := e.store.Frontier(ctx, t.User, t.Session)
	if err != nil {
		return report, fmt.Errorf("cadence: %w", err)
	}
	if !e.hasOldMessages(frontier.Items) {
		return e.skip(ctx, t, report, ReasonNothing)
	}
	w := e.window(frontier, session, t.At)
	if begun == nil {
		// Without the row a restart forgets the run; the run itself needs none.
		if err := e.store.PutPendingRun(ctx, pendingRun(t)); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "cadence: record that the run has begun", "session", t.Session, "error", err)
		}
	} else if i := newestRefresh(frontier.Items); i >= 0 && !frontier.Items[i].Message.At.Before(begun.At) {
		// The sources were asked before the process ended.
		w = window{}
	}
	return e.run(ctx, t, report, w)
}

// run asks the sources and then sweeps: with the new refresh in place, the
// sweep may summarise the one before it.
func (e *Engine) run(ctx context.Context, t Turn, report Report, window window) (Report, error) {
	began := time.Now()
	report.Reason = ""
	refresh, refreshErr := e.refresh(ctx, ctx, t, window)
	sweep, sweepErr := e.sweep(ctx, t, e.continuous())
	report.Refresh, report.Sweep, report.Took = refresh, sweep, time.Since(began)
	err := errors.Join(refreshErr, sweepErr)
	if err != nil && (ctx.Err() != nil || errors.Is(err, errYielded)) {
		// Nothing is counted or recorded of a run that is still pending.
		report.Outcome, report.Reason = memory.OutcomeFailed, cmp.Or(ctx.Err(), err).Error()
		return report, err
	}
	return e.finish(ctx, t, report, err)
}

// Gap runs before a message is handled if its user was away for longer than
// configured. It returns when the run is over or its deadline has passed,
// whichever is first; sources that are late have no part in the refresh, and a
// compaction that is not done goes on in the background. A run that is not due
// leaves no record.
func (e *Engine) Gap(ctx context.Context, t Turn) (Report, error) {
	report := Report{Trigger: memory.TriggerGap, Outcome: memory.OutcomeSkipped, Reason: ReasonNotDue, At: t.At}
	if e.config.Gap <= 0 || (t.Source != memory.SourceUser && t.Source != memory.SourceUnknown) {
		return report, nil
	}
	end, err := e.running.Begin()
	if err != nil {
		return report, fmt.Errorf("gap: %w", err)
	}
	defer end()
	if last := t.LastActive; !last.IsZero() && !last.After(t.At) && t.At.Sub(last) <= e.config.Gap {
		return report, nil
	}
	last, err := e.store.LastActivity(ctx, t.User, t.Agent)
	if err != nil {
		return report, fmt.Errorf("gap: %w", err)
	}
	if last.After(t.At) {
		// The clock was ahead once, or is behind now: how long the user was
		// away is not known.
		e.log.WarnContext(ctx, "gap: the last message is of a later time than this one", "last", last, "now", t.At)
	}
	if last.IsZero() || t.At.Sub(last) <= e.config.Gap {
		return report, nil
	}
	locking, cancel := context.WithTimeout(ctx, e.config.gapDeadline())
	unlock, ok := e.lock(locking, &t)
	cancel()
	if !ok {
		return e.skip(ctx, t, report, ReasonBusy)
	}
	release := unlock
	unlock = func() {
		release()
		e.Wake() // what is pending of the pair was passed over
	}
	active, err := e.hasRealActivity(ctx, t)
	if err != nil || !active {
		unlock()
		if err != nil {
			return report, fmt.Errorf("gap: %w", err)
		}
		return e.skip(ctx, t, report, ReasonInactive)
	}
	return e.runWithin(ctx, t, report, e.bounded(last, t.At), unlock)
}

// runWithin starts the sources and the sweep together and waits for both until
// the gap deadline. It owns unlock.
func (e *Engine) runWithin(ctx context.Context, t Turn, report Report, w window, unlock func()) (Report, error) {
	began := time.Now()
	report.Reason = ""
	waiting, cancel := context.WithTimeout(ctx, e.config.gapDeadline())
	defer cancel()

	type swept struct {
		report SweepReport
		err    error
	}
	sweep := make(chan swept, 1)
	e.running.goes(func() {
		ctx, done := e.beyond(ctx)
		defer done()
		p := e.continuous()
		p.waited = waiting
		r, err := e.sweep(ctx, t, p)
		sweep <- swept{r, err}
	})
	refresh, err := e.refresh(ctx, waiting, t, w)
	report.Refresh = refresh
	if err != nil {
		e.running.goes(func() { <-sweep; unlock() })
		report.Took = time.Since(began)
		return e.finish(ctx, t, report, err)
	}
	done := func(s swept) (Report, error) {
		unlock()
		report.Sweep, report.Took = s.report, time.Since(began)
		return e.finish(ctx, t, report, s.err)
	}
	// What is there at the deadline counts.
	select {
	case s := <-sweep:
		return done(s)
	default:
	}
	select {
	case s := <-sweep:
		return done(s)
	case <-waiting.Done():
		report.Pending, report.Outcome, report.Took = true, memory.OutcomeDone, time.Since(began)
		late := report
		e.running.goes(func() {
			s := <-sweep
			unlock()
			late.Sweep, late.Took = s.report, time.Since(began)
			if _, err := e.finish(context.WithoutCancel(ctx), t, late, s.err); err != nil {
				e.log.Warn("gap compaction in the background", "session", t.Session, "error", err)
			}
		})
		return report, nil
	}
}

// beyond is a context with the values of ctx, such as the trace that it is of, that
// goes on after it and ends with the engine.
func (e *Engine) beyond(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(e.background, cancel)
	return ctx, func() { unlink(); cancel() }
}

// hasOldMessages reports whether something that was said lies outside the
// recent messages.
func (e *Engine) hasOldMessages(items []memory.Item) bool {
	p := e.continuous()
	for _, item := range items[:freshTail(items, cuts(items), p.keep, p.keepTokens, p.atLeast)] {
		if item.Message != nil && !item.Message.IsRefresh() {
			return true
		}
	}
	return false
}

// hasRealActivity looks at the session that goes on and, since a user may come
// back to a new one, at the others.
func (e *Engine) hasRealActivity(ctx context.Context, t Turn) (bool, error) {
	session, err := e.store.Session(ctx, t.User, t.Session)
	if err != nil {
		return false, err
	}
	if session.Messages > 0 {
		return session.HasRealUserActivity(), nil
	}
	others, err := e.store.Sessions(ctx, t.User, memory.SessionQuery{Agent: t.Agent, WithUser: true, Limit: 1})
	return len(others) > 0, err
}

func (e *Engine) skip(ctx context.Context, t Turn, report Report, reason string) (Report, error) {
	report.Outcome, report.Reason = memory.OutcomeSkipped, reason
	return e.finish(ctx, t, report, nil)
}

// finish counts and records a run. The record is written even if the caller
// has gone meanwhile.
func (e *Engine) finish(ctx context.Context, t Turn, report Report, runErr error) (Report, error) {
	switch {
	case runErr != nil:
		report.Outcome, report.Reason = memory.OutcomeFailed, runErr.Error()
	case report.Reason == "":
		report.Outcome = memory.OutcomeDone
	}
	var ended Counts
	switch {
	case runErr != nil:
		ended.Failed = 1
	case report.Reason == ReasonBusy || report.Reason == ReasonBusySession:
		ended.Busy = 1
	case report.Reason == ReasonInactive:
		ended.Inactive = 1
	case report.Reason == ReasonNothing:
		ended.Nothing = 1
	default:
		ended.Fired = 1
	}
	e.mu.Lock()
	ended.add(e.counts[report.Trigger])
	e.counts[report.Trigger] = ended
	e.mu.Unlock()
	reason := report.Reason
	if report.Outcome == memory.OutcomeDone {
		reason = report.Sweep.Stopped
	}
	err := e.store.RecordCompaction(context.WithoutCancel(ctx), t.User, memory.CompactionRun{
		Session: t.Session, Agent: t.Agent, Trigger: report.Trigger, Outcome: report.Outcome, Reason: reason,
		ItemsBefore: report.Sweep.ItemsBefore, ItemsAfter: report.Sweep.ItemsAfter,
		TokensBefore: report.Sweep.TokensBefore, TokensAfter: report.Sweep.TokensAfter,
		Summaries: len(report.Sweep.Summaries), RefreshBlocks: len(report.Refresh.Blocks),
		RefreshTokens: report.Refresh.Tokens(), RefreshSkipped: len(report.Refresh.Skipped),
		StartedAt: t.At, Took: report.Took,
	})
	return report, errors.Join(runErr, err)
}
