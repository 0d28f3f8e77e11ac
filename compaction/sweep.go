package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of one sweep.
const (
	maxPasses = 12
	maxSweep  = 120 * time.Second
	// maxRepairs bounds the summaries of last resort that one sweep replaces.
	maxRepairs = 4
	// maxConflicts is how often one summary is offered to a frontier that
	// somebody else changes.
	maxConflicts = 3
)

// Targets and tails of threshold sweeps.
const (
	leafTokens      = 2400
	condensedTokens = 2000
	tailMessages    = 64
	tailTokens      = 24_000
)

// SweepReport tells what passes did to a frontier.
type SweepReport struct {
	ItemsBefore, ItemsAfter   int
	TokensBefore, TokensAfter int
	// Summaries are those that were written, leaves and condensed ones, in the
	// order in which they were.
	Summaries []memory.Summary
	// Repaired are the summaries of LevelFallback that have another text now.
	Repaired []memory.Summary
	// Calls is how often the summarizer was asked.
	Calls int
	// Stopped says why the sweep ended before all it could have done was done;
	// "" if it did not.
	Stopped string
}

// Changed reports whether the frontier is another one than before.
func (r SweepReport) Changed() bool { return len(r.Summaries)+len(r.Repaired) > 0 }

// Reasons for ending a sweep early. One that met the spend guard or the circuit
// breaker says until when it rests.
const (
	stoppedNoGain   = "a pass saved nothing"
	stoppedBounds   = "the bounds of one sweep were reached"
	stoppedConflict = "another run changed the session"
)

// plan is what a sweep is to reach.
type plan struct {
	// keep and keepTokens bound the messages at the end that stay as they are;
	// of them at least atLeast stay, whatever they cost. No keepTokens is no
	// bound.
	keep, keepTokens, atLeast int
	// leaf and condensed are what summaries are to cost at most.
	leaf, condensed int
	// enough ends the sweep when the items cost no more in a prompt; below zero,
	// all that can be summarised is.
	enough int
	// smallest is the run that is worth a change of the prompt's beginning.
	smallest int
	// pressure says that somebody waits, with a prompt that is too long: there
	// is no time for repairs, and a cut is better than nothing. The summarizer
	// may be asked for as long as patience, then texts are cut.
	pressure bool
	patience time.Duration
	// hurry says not to wait for another sweep of the session.
	hurry bool
	// waited, if not nil, is done when nobody waits for the sweep any more, which
	// did not begin in the background.
	waited context.Context
}

// continuous is the plan of cadence, gap and manual runs.
func (e *Engine) continuous() plan {
	return plan{keep: e.config.keepRecent(), leaf: e.config.maxSummaryTokens(), condensed: condensedTokens, enough: -1, smallest: minWorth}
}

// sweeper is one sweep of one session.
type sweeper struct {
	engine *Engine
	turn   Turn
	plan   plan
	state  *sessionState
	// asking is done when the summarizer may be asked no more.
	asking context.Context
	limit  *limit
	report SweepReport
	// failed says that the summarizer gave nothing of use in this sweep, and
	// refused is why it was not asked.
	failed  bool
	refused error
	passes  int
	// passedOver says that a run was left because a summary of it would save
	// nothing.
	passedOver bool
}

// errStopped ends a sweep early, with what is done so far; the report says why.
var errStopped = errors.New("stopped")

// sweep makes passes until the plan is reached, or a bound is. First the oldest
// messages become leaves, then what was cut down before is repaired, then
// summaries are condensed. Every pass that was committed stays, also when an
// error is returned.
func (e *Engine) sweep(ctx context.Context, t Turn, p plan) (SweepReport, error) {
	entered, state, leave, err := e.enter(ctx, t.Session, p)
	if err != nil {
		return SweepReport{}, err
	}
	defer leave()
	if e.local && memory.InBackground(ctx) {
		select {
		case e.processors <- struct{}{}:
			defer func() { <-e.processors }()
		case <-entered.Done():
			if cause := context.Cause(entered); errors.Is(cause, errPreempted) {
				return SweepReport{Stopped: cause.Error()}, nil
			}
			return SweepReport{}, entered.Err()
		}
	}
	limited := newLimit(entered, maxSweep)
	defer limited.end()
	s := &sweeper{engine: e, turn: t, plan: p, state: state, asking: limited, limit: limited}
	if p.pressure {
		var stop context.CancelFunc
		s.asking, stop = context.WithTimeout(limited, p.patience)
		defer stop()
	}
	frontier, err := s.read(limited)
	if err == nil {
		s.report.ItemsBefore, s.report.TokensBefore = s.report.ItemsAfter, s.report.TokensAfter
		err = s.run(limited, frontier)
	}
	switch {
	case err == nil:
	case errors.Is(err, errStopped):
	case errors.Is(err, errYielded):
		return s.report, err
	case errors.Is(err, errRefused):
		s.report.Stopped = err.Error()
	case errors.Is(context.Cause(limited), errPreempted):
		s.report.Stopped = errPreempted.Error()
	case limited.Err() != nil && ctx.Err() == nil:
		s.report.Stopped = stoppedBounds
	default:
		return s.report, err
	}
	switch {
	case s.report.Stopped != "":
	case s.refused != nil:
		s.report.Stopped = s.refused.Error()
	case s.passedOver:
		s.report.Stopped = stoppedNoGain
	}
	return s.report, nil
}

// read reads the frontier and notes its size.
func (s *sweeper) read(ctx context.Context) (memory.Frontier, error) {
	frontier, err := s.engine.store.Frontier(ctx, s.turn.User, s.turn.Session)
	if err != nil {
		return memory.Frontier{}, fmt.Errorf("read frontier: %w", err)
	}
	s.report.ItemsAfter, s.report.TokensAfter = len(frontier.Items), frontier.Tokens()
	return frontier, nil
}

func (s *sweeper) run(ctx context.Context, f memory.Frontier) error {
	f, err := s.passOver(ctx, f, s.leaves)
	if err != nil {
		return err
	}
	if f, err = s.repair(ctx, f); err != nil {
		return err
	}
	f, err = s.passOver(ctx, f, func(f memory.Frontier) []work {
		return condensable(f.Items, false, s.plan.pressure, s.engine.config.maxRunTokens())
	})
	if err != nil || s.plan.enough < 0 {
		return err
	}
	_, err = s.passOver(ctx, f, func(f memory.Frontier) []work {
		return condensable(f.Items, true, s.plan.pressure, s.engine.config.maxRunTokens())
	})
	return err
}

// leaves are the runs of messages outside the tail.
func (s *sweeper) leaves(f memory.Frontier) []work {
	free := cuts(f.Items)
	return leaves(f.Items, free, freshTail(f.Items, free, s.plan.keep, s.plan.keepTokens, s.plan.atLeast), s.engine.config.maxRunTokens())
}

// passOver makes passes over what find finds, the first first, until nothing is
// found that saves something, or the plan is reached.
func (s *sweeper) passOver(ctx context.Context, f memory.Frontier, find func(memory.Frontier) []work) (memory.Frontier, error) {
	for {
		if s.plan.enough >= 0 && assembly.Demand(f.Items) <= s.plan.enough {
			return f, nil
		}
		w, found := s.choose(find(f))
		switch {
		case !found:
			return f, nil
		case s.passes == maxPasses:
			s.report.Stopped = stoppedBounds
			return f, errStopped
		}
		s.passes++
		text, smaller, err := s.summarise(ctx, f, w)
		if err != nil {
			return f, err
		}
		if !smaller {
			s.state.setBarren(w)
			continue
		}
		// What is made is stored, and told, even if the sweep is to end: else
		// nobody knew whether it was.
		if err := s.commit(context.WithoutCancel(ctx), f, w, text); err != nil {
			return f, err
		}
		if f, err = s.read(context.WithoutCancel(ctx)); err != nil {
			return f, err
		}
	}
}

// choose returns the first run that may be worth a summary.
func (s *sweeper) choose(runs []work) (work, bool) {
	for _, w := range runs {
		switch {
		case w.depth() == 0 && w.tokens < s.plan.smallest || w.tokens < minWorth || s.state.isBarren(w):
			// A run that only waits to grow is no pass without gain.
			s.passedOver = s.passedOver || s.plan.smallest <= minWorth
		default:
			return w, true
		}
	}
	return work{}, false
}

// commit replaces w by its summary. If the frontier was replaced meanwhile, the
// summary is offered again, for it is as good as before if its sources still
// stand there.
func (s *sweeper) commit(ctx context.Context, f memory.Frontier, w work, n memory.NewSummary) error {
	for tries := 1; ; tries++ {
		summary, err := s.engine.store.CommitSummary(ctx, s.turn.User, f.Revision, n)
		switch {
		case err == nil:
			s.report.Summaries = append(s.report.Summaries, summary)
			return nil
		case tries > 1 && errors.Is(err, memory.ErrInvalid), tries == maxConflicts && errors.Is(err, memory.ErrConflict):
			s.report.Stopped = stoppedConflict
			return errStopped
		case !errors.Is(err, memory.ErrConflict):
			return fmt.Errorf("commit summary: %w", err)
		}
		if f, err = s.read(ctx); err != nil {
			return err
		}
	}
}

// summarise makes the summary of a run; not smaller if it does not cost less
// than what it stands for.
func (s *sweeper) summarise(ctx context.Context, f memory.Frontier, w work) (n memory.NewSummary, smaller bool, err error) {
	n = memory.NewSummary{ID: memory.NewID[memory.SummaryID](), At: s.turn.At}
	for _, m := range w.messages {
		n.Messages = append(n.Messages, m.ID)
	}
	for _, v := range w.summaries {
		n.Summaries = append(n.Summaries, v.ID)
	}
	if n.SummaryText, err = s.compose(ctx, n.ID, w); err != nil {
		return n, false, err
	}
	shown := memory.Summary{ID: n.ID, Text: n.Text, External: n.External, Descendants: w.descendants()}.Shown()
	return n, tokens.Estimate(shown) < w.tokens, nil
}

// compose makes the text of the summary id. What was said and what came from
// outside are summarised apart.
func (s *sweeper) compose(ctx context.Context, id memory.SummaryID, w work) (memory.SummaryText, error) {
	out := memory.SummaryText{Level: memory.LevelNormal}
	target := s.plan.leaf
	if w.depth() > 0 {
		target = s.plan.condensed
	}
	limit := min(target, max(minSummaryTokens, w.tokens/3))
	said, external, refreshes := parts(w)
	lines := make([]string, 0, len(refreshes)+1)
	for _, m := range refreshes {
		lines = append(lines, refreshLine(m))
	}
	if said.Transcript != "" {
		said.MaxTokens, said.Depth = limit, w.depth()
		if w.previous != nil {
			said.Previous = w.previous.Text
		}
		made, err := s.escalate(ctx, said)
		if err != nil {
			return out, err
		}
		out.Level, out.Model = made.level, made.Model
		lines = append(lines, made.Text)
	}
	if external.Transcript != "" {
		external.MaxTokens, external.Depth, external.External = limit, w.depth(), true
		made, err := s.escalate(ctx, external)
		if err != nil {
			return out, err
		}
		out.Level = worse(out.Level, made.level)
		if out.Model == "" || made.level == out.Level {
			out.Model = made.Model
		}
		source, err := boundary.SummarySource(id.String())
		if err != nil {
			return out, err
		}
		out.External, _ = boundary.Wrap(source, made.Text, 2*limit)
	}
	for _, v := range w.summaries {
		// A summary is no better than what it was made from.
		if v.Level == memory.LevelFallback {
			out.Level = memory.LevelFallback
		}
	}
	out.Text = strings.Join(lines, "\n")
	return out, nil
}

// worse returns the level that is tried later.
func worse(a, b memory.Level) memory.Level {
	for _, level := range []memory.Level{memory.LevelFallback, memory.LevelAggressive} {
		if a == level || b == level {
			return level
		}
	}
	return memory.LevelNormal
}

// parts divides what was said from what came from outside. External text stays
// in its frame, for the summarizer is a model too.
func parts(w work) (said, external text, refreshes []memory.Message) {
	var own, framed, plain []string
	outside := func(blocks ...memory.Block) {
		if shown := memory.Shown(blocks); shown != "" {
			framed, plain = append(framed, shown), append(plain, memory.Plain(blocks))
		}
	}
	for _, m := range w.messages {
		if m.IsRefresh() {
			refreshes = append(refreshes, m)
			continue
		}
		var words, foreign []memory.Block
		for _, b := range m.Blocks {
			if b.External.IsEmpty() {
				words = append(words, b)
			} else {
				foreign = append(foreign, b)
			}
		}
		if text := memory.Shown(words); text != "" {
			own = append(own, string(m.Role)+": "+text)
		}
		outside(foreign...)
	}
	for _, v := range w.summaries {
		if v.Text != "" {
			own = append(own, spanOf(v)+"\n"+withoutExpandLine(v.Text))
		}
		if !v.External.IsEmpty() {
			outside(memory.External(v.External))
		}
	}
	said.Transcript = strings.Join(own, "\n")
	said.plain = said.Transcript
	external.Transcript, external.plain = strings.Join(framed, "\n"), strings.Join(plain, "\n")
	return said, external, refreshes
}

// spanOf is the heading of a summary among others.
func spanOf(v memory.Summary) string {
	return "[" + v.Earliest.UTC().Format(time.RFC3339) + " to " + v.Latest.UTC().Format(time.RFC3339) + "]"
}

// withoutExpandLine leaves out what a summary says that it leaves out: the next
// one says so of itself.
func withoutExpandLine(text string) string {
	if i := strings.LastIndexByte(text, '\n'); strings.HasPrefix(text[i+1:], expandLine) {
		return text[:max(i, 0)]
	}
	return text
}

// refreshLine stands for a refresh that a newer one has replaced, in the
// host's own words.
func refreshLine(m memory.Message) string {
	var sources []string
	for _, b := range m.Blocks {
		if !b.External.IsEmpty() {
			sources = append(sources, b.External.Source().String())
		}
	}
	return fmt.Sprintf("[An earlier context refresh of %s from %s, %d tokens, is replaced by a newer one. Its id is %s.]",
		m.At.UTC().Format(time.RFC3339), strings.Join(sources, " and "), m.Tokens, m.ID)
}

// repair gives summaries that were cut down a text of the summarizer's, the
// oldest first. It does nothing in a sweep in which the summarizer failed, and
// ends at the first that it still cannot make: the next sweep goes on behind
// that one, and comes back to it after the others.
func (s *sweeper) repair(ctx context.Context, f memory.Frontier) (memory.Frontier, error) {
	if s.plan.pressure || s.failed {
		return f, nil
	}
	first := 1 + slices.IndexFunc(f.Items, func(item memory.Item) bool { return item.Summary != nil && item.Summary.ID == s.state.unrepaired })
	for n := 0; n < len(f.Items); n++ {
		i := (first + n) % len(f.Items)
		if v := f.Items[i].Summary; v == nil || v.Level != memory.LevelFallback {
			continue
		}
		var previous *memory.Summary
		if i > 0 {
			previous = f.Items[i-1].Summary
		}
		repaired, err := s.repairOne(ctx, f.Revision, *f.Items[i].Summary, previous)
		switch {
		case errors.Is(err, memory.ErrConflict):
			s.report.Stopped = stoppedConflict
			return f, errStopped
		case err != nil:
			return f, err
		case !repaired:
			s.state.unrepaired = f.Items[i].Summary.ID
			return f, nil
		}
		if f, err = s.read(context.WithoutCancel(ctx)); err != nil {
			return f, err
		}
		// The place is the same; a summary whose sources were repaired first is
		// looked at again.
		n--
		if len(s.report.Repaired) >= maxRepairs {
			return f, nil
		}
	}
	return f, nil
}

// repairOne repairs v or, if v was made from others that were cut down, the
// first of those. Not repaired is what still cannot be made.
func (s *sweeper) repairOne(ctx context.Context, r memory.Revision, v memory.Summary, previous *memory.Summary) (bool, error) {
	sources, err := s.engine.store.Sources(ctx, s.turn.User, v.ID)
	if err != nil {
		return false, fmt.Errorf("repair summary: %w", err)
	}
	w := work{previous: previous}
	for i, source := range sources {
		w.tokens += source.Tokens()
		if source.Message != nil {
			w.messages = append(w.messages, *source.Message)
			continue
		}
		if source.Summary.Level == memory.LevelFallback {
			if i > 0 {
				previous = sources[i-1].Summary
			}
			return s.repairOne(ctx, r, *source.Summary, previous)
		}
		w.summaries = append(w.summaries, *source.Summary)
	}
	text, err := s.compose(ctx, v.ID, w)
	if err != nil || text.Level == memory.LevelFallback {
		return false, err
	}
	repaired, err := s.engine.store.RepairSummary(context.WithoutCancel(ctx), s.turn.User, r, v.ID, text)
	if err != nil {
		return false, fmt.Errorf("repair summary: %w", err)
	}
	s.report.Repaired = append(s.report.Repaired, repaired)
	return true, nil
}
