package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// What structured memory costs agents that have it: each turn reads the topics and
// shows them beside the last input, and an overflow waits for a mini-dream; all
// else is done in the background. Agents that do not have it pay nothing: nothing
// here is reached for them.

// dreamer is what the host needs of a dream.Dreamer.
type dreamer interface {
	AfterTurn(ctx context.Context, at dream.Place) error
	Mini(ctx context.Context, at dream.Place, leaving []memory.Message) (changed bool)
	Dream(ctx context.Context, at dream.Place) (dream.Report, error)
	Tick(ctx context.Context) error
	Counts() dream.Counts
	Close(ctx context.Context) error
}

// tickEvery is how often sessions are looked at that a dream is due for.
const tickEvery = 30 * time.Second

// miniTimeout bounds what the mini-dreams of one turn take together.
const miniTimeout = 30 * time.Second

// dreamConfig is how the host's Dreamer is set up.
func (h *Host) dreamConfig() dream.Config {
	c := h.config
	return dream.Config{
		Model: h.instruments.asks(h.model, forMemory), MaxOutputTokens: c.Compaction.MaxSummaryTokens,
		ExtractionTokens: c.Memory.ExtractionTokens, ExtractionToolCalls: c.Memory.ExtractionToolCalls,
		Gap: seconds(c.Sessions.gapSecs()), MiniTimeout: h.miniTimeout,
		Admit: h.pace.admit, Workers: h.config.Model.backgroundCalls(), Agents: h.structuredAgents, Enter: h.enterDream, Now: h.now, Log: h.log,
	}
}

// startDreaming makes the Dreamer and its loop, if there is a model that could
// learn anything.
func (h *Host) startDreaming() {
	if h.config.isOffline() {
		return
	}
	h.dreams = measuredDreamer{dream.New(h.store, h.dreamConfig()), h.instruments}
	if h.config.Sessions.gapSecs() == 0 {
		return
	}
	go func() {
		ticks := h.config.Ticks
		if ticks == nil {
			every := time.NewTicker(tickEvery)
			defer every.Stop()
			ticks = every.C
		}
		for {
			select {
			case <-h.ending.Done():
				return
			case <-ticks:
				h.tick()
			}
		}
	}()
}

// tick has the sessions looked at that a dream is due for, and returns when the
// dreams are over.
func (h *Host) tick() {
	if len(h.structuredAgents()) == 0 {
		return
	}
	end, err := h.background.Begin()
	if err != nil {
		return // closing
	}
	defer end()
	if err := h.dreams.Tick(h.ending); err != nil && h.ending.Err() == nil {
		h.log.Warn("look for sessions that a dream is due for", "error", err)
	}
}

// enterDream begins a dream or an extraction for a user: its context ends when the
// user is wiped, or what is remembered of them.
func (h *Host) enterDream(ctx context.Context, user memory.UserID) (context.Context, func(), error) {
	ctx, leave, err := h.present.enter(ctx, user)
	if err != nil {
		return ctx, nil, err
	}
	ctx, wake, err := h.dreaming.enter(ctx, user)
	if err != nil {
		leave()
		return ctx, nil, err
	}
	return ctx, func() { wake(); leave() }, nil
}

// mostTopics is how many of a user's topics, and of those with the agent, one turn
// chooses from.
const mostTopics = 512

// embedTimeout bounds how long an answer waits for the topics to be chosen by
// meaning.
const embedTimeout = 2 * time.Second

// remembered is what a prompt says of a user's topics: one block, or nothing. It is
// never stored. Where there is no room for all, those go in that have to do with
// what was said, by the embedder or else by their words.
func remembered(ctx context.Context, config Config, store memory.Store, user memory.UserID, agent memory.AgentID, said string, at time.Time) ([]memory.Block, error) {
	topics, _, err := store.Topics(ctx, user, memory.TopicQuery{At: at, Latest: mostTopics})
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	own, _, err := store.Topics(ctx, user, memory.TopicQuery{Agent: agent, At: at, Latest: mostTopics})
	if err != nil {
		return nil, fmt.Errorf("read topics of the agent: %w", err)
	}
	topics = append(topics, own...)
	section := dream.Section(topics, relevance(ctx, config, topics, said), config.topicTokens())
	if section == "" {
		return nil, nil
	}
	return []memory.Block{memory.Text(section)}, nil
}

// relevance scores topics by what was said; nil if nothing was.
func relevance(ctx context.Context, config Config, topics []memory.Topic, said string) []float64 {
	if said == "" || len(topics) == 0 {
		return nil
	}
	if config.Embedder != nil {
		ctx, cancel := context.WithTimeout(ctx, embedTimeout)
		defer cancel()
		scores, err := dream.ByMeaning(ctx, config.Embedder, topics, said)
		if err == nil {
			return scores
		}
		if config.Log != nil {
			config.Log.Warn("choose topics by their meaning", "error", err)
		}
	}
	return dream.ByWords(topics, said)
}

// recalls reports whether a turn of that source is shown the topics. What another
// session asks for is the work of an agent, not a conversation with the user.
func recalls(a agent, source memory.Source) bool {
	return a.structured() && source != memory.SourceInterSession
}

// recall reads what the prompts of a turn say of the topics. It is the same in all
// of them: what stands beside the input must not change while tools are called. A
// turn goes on without, if it cannot be read.
func (h *Host) recall(ctx context.Context, turn *compaction.Turn, a *agent, c *course) {
	if !recalls(*a, turn.Source) {
		return
	}
	beside, err := remembered(ctx, h.config, h.store, turn.User, turn.Agent, c.said, h.now())
	if err != nil {
		h.log.WarnContext(ctx, "recall", "session", turn.Session, "error", err)
		return
	}
	c.beside = beside
}

// drain has the last look at the messages that a stage of recovery is about to
// leave out, and reports whether the topics are others after it. It fails in
// silence, and takes no longer than miniTimeout in a turn.
func (h *Host) drain(ctx context.Context, turn compaction.Turn, a agent, c *course, in assembly.Input) (changed bool) {
	if h.dreams == nil || !a.structured() {
		return false
	}
	var leaving []memory.Message
	for _, i := range assembly.OverflowDrained(in) {
		if m := in.Items[i].Message; m != nil {
			leaving = append(leaving, *m)
		}
	}
	if len(leaving) == 0 {
		return false
	}
	if c.drainUntil.IsZero() {
		c.drainUntil = time.Now().Add(h.miniTimeout)
	}
	ctx, cancel := context.WithDeadline(ctx, c.drainUntil)
	defer cancel()
	return ctx.Err() == nil && h.dreams.Mini(ctx, dream.Place{User: turn.User, Agent: turn.Agent, Session: turn.Session}, leaving)
}

// learners look at sessions after turns. However many turns there are, few go on at a
// time, no session has more than one, and a bounded number of sessions wait, by turns
// of their users. One for which there is no room is looked at after its next turn, or
// by its dream: what is new in it stays new.
type learners struct {
	mu sync.Mutex
	// All below is guarded by mu. going is how many there are; waiting are the
	// sessions of users, the first first, order the users who have any, by whose
	// turn it is.
	going   int
	waiting map[memory.UserID][]dream.Place
	order   []memory.UserID
	// again says of each session that waits or is looked at whether a turn has ended
	// since it does or is.
	again map[memory.SessionID]bool
}

// maxLearners is how many sessions are looked at at a time, maxToLearn how many wait,
// and maxToLearnOfOne how many of one user.
const (
	maxLearners     = 4
	maxToLearn      = 1024
	maxToLearnOfOne = 32
)

func newLearners() *learners {
	return &learners{waiting: map[memory.UserID][]dream.Place{}, again: map[memory.SessionID]bool{}}
}

// add has a session looked at, and reports whether that needs one more learner.
func (l *learners) add(at dream.Place) (hire bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.waiting[at.User]
	if _, has := l.again[at.Session]; has {
		l.again[at.Session] = true
		return false
	}
	if len(l.again) >= maxToLearn || len(of) >= maxToLearnOfOne {
		return false
	}
	l.again[at.Session] = false
	if len(of) == 0 {
		l.order = append(l.order, at.User)
	}
	l.waiting[at.User] = append(of, at)
	if l.going == maxLearners {
		return false
	}
	l.going++
	return true
}

// next returns the session whose turn it is; if there is none, the learner goes.
func (l *learners) next() (at dream.Place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.order) == 0 {
		l.going--
		return at, false
	}
	user := l.order[0]
	l.order = l.order[1:]
	at = l.waiting[user][0]
	if rest := l.waiting[user][1:]; len(rest) > 0 {
		l.waiting[user] = rest
		l.order = append(l.order, user)
	} else {
		delete(l.waiting, user)
	}
	return at, true
}

// end reports whether the session is to be looked at again, and lets it go if not.
func (l *learners) end(session memory.SessionID) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if again = l.again[session]; again {
		l.again[session] = false
	} else {
		delete(l.again, session)
	}
	return again
}

// learn has what is new in a session looked at in the background, if there is
// enough of it.
func (h *Host) learn(at dream.Place) {
	end, err := h.background.Begin()
	if err != nil {
		return // closing: what is new stays new
	}
	if !h.learners.add(at) {
		end()
		return
	}
	go func() {
		defer end()
		for {
			at, ok := h.learners.next()
			if !ok || h.ending.Err() != nil {
				return
			}
			for again := true; again; again = h.learners.end(at.Session) {
				err := h.dreams.AfterTurn(h.ending, at)
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, memory.ErrWiped) {
					h.log.Warn("extraction after a turn", "session", at.Session, "error", err)
				}
			}
		}
	}()
}

// Dream merges what is new of a user with an agent into the topics, now, whether a
// session has rested or not. The report is of all sessions together, and names one
// if it was one; beside an error it tells of those before it. Errors are those of
// dream.Dreamer, memory.ErrNotFound, memory.ErrWiped, ErrClosed, and
// memory.ErrInvalid for an agent without structured memory.
func (h *Host) Dream(ctx context.Context, user memory.UserID, agent string) (dream.Report, error) {
	var report dream.Report
	end, err := h.background.Begin()
	if err != nil {
		return report, fmt.Errorf("dream: the host is %w", err)
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ending, cancel)()
	who, err := h.userOrDefault(user)
	if err != nil {
		return report, fmt.Errorf("dream: %w", err)
	}
	a, err := h.agentNamed(agent)
	if err != nil {
		return report, fmt.Errorf("dream: %w", err)
	}
	report.User, report.Agent, report.Topics = who.ID, a.ID, []memory.Topic{}
	switch {
	case !a.structured():
		return report, fmt.Errorf("dream: agent %q has no structured memory: %w", a.Name, memory.ErrInvalid)
	case h.dreams == nil:
		return report, fmt.Errorf("dream: %w", dream.ErrNoModel)
	}
	sessions, err := h.undreamt(ctx, who.ID, a.ID)
	if err != nil {
		return report, fmt.Errorf("dream: %w", err)
	}
	for _, session := range sessions {
		one, err := h.dreams.Dream(ctx, dream.Place{User: who.ID, Agent: a.ID, Session: session})
		if err != nil {
			return report, fmt.Errorf("dream: %w", err)
		}
		report.Extractions += one.Extractions
		report.Messages += one.Messages
		report.Topics = append(report.Topics, one.Topics...)
		report.Retired += one.Retired
		report.Dropped += one.Dropped
	}
	if len(sessions) == 1 {
		report.Session = sessions[0]
	}
	return report, nil
}

// undreamt are the sessions of a user with an agent that hold something new. If
// none does, it is the zero session, of which there may be extractions.
func (h *Host) undreamt(ctx context.Context, user memory.UserID, agent memory.AgentID) ([]memory.SessionID, error) {
	// Rested or not, and also where a clock was ahead once.
	anytime := h.now().AddDate(1, 0, 0)
	for limit := 256; ; limit *= 4 {
		idle, err := h.store.IdleSessions(ctx, []memory.AgentID{agent}, anytime, limit)
		if err != nil {
			return nil, fmt.Errorf("look for new messages: %w", err)
		}
		if len(idle) == limit {
			continue // others may stand before this user
		}
		var own []memory.SessionID
		for _, s := range idle {
			if s.User == user {
				own = append(own, s.Session)
			}
		}
		if len(own) == 0 {
			own = append(own, memory.SessionID{})
		}
		return own, nil
	}
}

// WipeMemory removes what is remembered of a user, with one agent or, if agent is
// the zero ID, altogether, and the last trace of it from the files. Dreams of the
// user that go on end first, turns do not. Nothing is learned again from what was
// said so far. Who is not known has nothing.
func (h *Host) WipeMemory(ctx context.Context, user memory.UserID, agent memory.AgentID) (WipeReport, error) {
	fail := func(err error) (WipeReport, error) {
		return WipeReport{}, fmt.Errorf("wipe memory of user %s: %w", user, err)
	}
	end, err := h.sending.Begin()
	if err != nil {
		return fail(fmt.Errorf("the host is %w", err))
	}
	defer end()
	if user.IsZero() {
		return fail(fmt.Errorf("no id: %w", memory.ErrInvalid))
	}
	unlock, err := h.wiping.lock(ctx, user)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	returns, err := h.dreaming.dismiss(ctx, user)
	defer returns()
	if err != nil {
		return fail(fmt.Errorf("wait for their dreams: %w", err))
	}
	var report WipeReport
	if agent.IsZero() {
		report.WipeCounts, err = h.store.WipeMemory(ctx, user)
	} else {
		report.WipeCounts, err = h.store.WipeAgentMemory(ctx, user, agent)
	}
	if err != nil {
		return fail(err)
	}
	done, err := h.store.Scrub(ctx)
	if err != nil {
		return report, fmt.Errorf("wipe memory of user %s: %w", user, err)
	}
	report.ResiduePending = !done
	return report, nil
}

// Counts are how often things ended in which way since the host was opened.
type Counts struct {
	// Triggers are those of compaction.
	Triggers map[memory.Trigger]TriggerCounts `json:"triggers"`
	Memory   dream.Counts                     `json:"memory"`
}

// TriggerCounts counts the runs of one trigger. Fired are those that ran to their
// end, Failed those that did not; the others were skipped.
type TriggerCounts struct {
	Fired    int `json:"fired"`
	Busy     int `json:"busy"`
	Inactive int `json:"inactive"`
	Nothing  int `json:"nothing"`
	Failed   int `json:"failed"`
}

// Counts returns the counts so far.
func (h *Host) Counts() Counts {
	counts := Counts{Triggers: map[memory.Trigger]TriggerCounts{}}
	for trigger, c := range h.compaction.CountsByTrigger() {
		counts.Triggers[trigger] = TriggerCounts(c)
	}
	if h.dreams != nil {
		counts.Memory = h.dreams.Counts()
	}
	return counts
}
