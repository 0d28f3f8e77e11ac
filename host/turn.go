package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// Message is one input of a conversation.
type Message struct {
	// User is who speaks; zero means the default user.
	User memory.UserID
	// Agent is the name of who is spoken to; "" means the one of the session,
	// or the first one if the session is new.
	Agent string
	// Session is the conversation that goes on; zero begins a new one.
	Session memory.SessionID
	Text    string
	// Source is why the message exists: memory.SourceUser, which "" means, a
	// tick, or another of those that are not an answer, a tool's result or an
	// injection. The answer to memory.SourceInterSession is the work of a sub-agent:
	// its prompt says nothing of what is remembered of the user.
	Source memory.Source
	// EventKey, if not empty, identifies the message within Session, which must
	// be given: sent again with it, because the first time did not end well or
	// nobody learned how, the message is stored once and answered once. It is at
	// most maxEventKey bytes, else as memory.Draft has it.
	EventKey string
	// OnStored is told where the message is kept once it is, before any Event and by
	// the same goroutine: whoever hears no answer knows then where to go on. nil means
	// that nobody is told. It neither blocks nor panics.
	OnStored func(memory.SessionID)
	// OnEvent is told of the turn while it goes on, by the goroutine that called
	// Send; nil means that nobody is. It does not block: the turn waits for it. When
	// it panics, the turn goes on and tells no more.
	OnEvent func(Event)
}

// Event is something that happens in a turn. Exactly one field is set.
type Event struct {
	// Text is a piece of what the model says, as it says it; all of it at once
	// from a model that does not stream. When Send returns an answer, the pieces
	// after the last Restart put together are its text.
	Text string
	// Restart says that the pieces so far are no part of the answer: the model
	// said something before it called tools, or has to be asked again. It comes
	// only after pieces.
	Restart bool
	// Tool names a tool that runs now.
	Tool string
}

// listener tells of one turn. The zero value tells nobody.
type listener struct {
	tell func(Event)
	log  *slog.Logger
	// final says that what was told stays told: there are no restarts. held says that
	// what is said now may turn out not to be the answer, and is not told before.
	final, held bool
	// said is what was told since the last restart.
	said strings.Builder
}

// isCommitted reports whether something was told that cannot be taken back.
func (l *listener) isCommitted() bool { return l.final && l.said.Len() > 0 }

func (l *listener) listens() bool { return l.tell != nil }

// event tells of one thing. It keeps a panic from the turn.
func (l *listener) event(e Event) {
	if l.tell == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			l.tell = nil
			l.log.Error("panic in a turn's OnEvent: it is told no more", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	l.tell(e)
}

func (l *listener) text(piece string) {
	if l.tell != nil && !l.held && piece != "" {
		l.said.WriteString(piece)
		l.event(Event{Text: piece})
	}
}

// restart takes back what was said, if that can be.
func (l *listener) restart() {
	if l.said.Len() > 0 && !l.final {
		l.said.Reset()
		l.event(Event{Restart: true})
	}
}

// whole makes what was said the text, if it is not. It fails if something else was
// told that cannot be taken back.
func (l *listener) whole(text string) error {
	l.held = false
	if said := l.said.String(); l.isCommitted() {
		rest, ok := strings.CutPrefix(text, said)
		if !ok {
			return fmt.Errorf("the model's stream is not its answer: %w", llm.ErrUnavailable)
		}
		l.text(rest)
	} else if l.tell != nil && said != text {
		l.restart()
		l.text(text)
	}
	return nil
}

// enter begins a turn of a user, in a host that is open, by a user who is not being
// wiped. Leave ends it.
func (h *Host) enter(ctx context.Context, id memory.UserID) (_ context.Context, user memory.User, leave func(), err error) {
	end, err := h.sending.Begin()
	if err != nil {
		return nil, memory.User{}, nil, fmt.Errorf("the host is %w", err)
	}
	if user, err = h.userOrDefault(id); err != nil {
		end()
		return nil, memory.User{}, nil, err
	}
	ctx, depart, err := h.present.enter(ctx, user.ID)
	if err != nil {
		end()
		return nil, memory.User{}, nil, err
	}
	ctx, unpin := h.pinHands(ctx)
	// A host that closes waits for turns, but not for ever.
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(h.ending, cancel)
	return ctx, user, func() {
		unbind()
		cancel()
		unpin()
		depart()
		end()
	}, nil
}

// answerKey begins the event key of the answer to a message that has one.
const answerKey = "answer to "

const maxEventKey = memory.MaxEventKey - len(answerKey)

// Answer is what came of a message.
type Answer struct {
	Session memory.SessionID
	// Message is the answer as it was stored.
	Message memory.Message
	// Prompt is what the model was shown last, when it gave this answer, and
	// Report explains it; Report.Recovery says whether it had to be cut down.
	Prompt assembly.Prompt
	Report assembly.Report
	// Gap tells of the refresh that preceded the answer.
	Gap compaction.Report
	// Tokens are the model's own counts, or estimates if it gives none, of all
	// that it was asked and said in this turn.
	InputTokens, OutputTokens int
}

// Send stores a message, brings the context up to date if its user was away,
// asks the model and stores the answer. The model may call tools before it
// answers, in at most 8 rounds. Messages of one user to one agent are handled one
// at a time, in whichever sessions; those of others do not wait for them. When
// everything of the user is wiped meanwhile, it ends with memory.ErrWiped.
//
// The message is durable before the model is asked: when Send fails after that,
// the session holds it without an answer, with the tools' results that there
// are, and the next message is answered with all of it in view. Errors wrap
// memory.ErrNotFound, memory.ErrInvalid, ErrClosed and those of package llm;
// one that wraps llm.ErrContextTooLong, after the prompt was cut down as far as
// it may be, also wraps *assembly.TooLargeError, which says what is too big.
func (h *Host) Send(ctx context.Context, m Message) (_ Answer, err error) {
	ctx, seen := h.instruments.turn(ctx)
	defer func() { seen.end(err) }()
	ctx, user, leave, err := h.enter(ctx, m.User)
	if err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	defer leave()
	defer func() { err = wipedMeanwhile(ctx, err) }()

	switch m.Source {
	case "":
		m.Source = memory.SourceUser
	case memory.SourceAssistant, memory.SourceTool, memory.SourceContextInjection:
		return Answer{}, fmt.Errorf("send: a message of source %q is not sent: %w", m.Source, memory.ErrInvalid)
	}
	if strings.TrimSpace(m.Text) == "" {
		return Answer{}, fmt.Errorf("send: the message is empty: %w", memory.ErrInvalid)
	}
	if len(m.EventKey) > maxEventKey || m.EventKey != "" && m.Session.IsZero() {
		return Answer{}, fmt.Errorf("send: an event key is at most %d bytes long and belongs to a session: %w", maxEventKey, memory.ErrInvalid)
	}
	draft := memory.Draft{Role: memory.RoleUser, Source: m.Source, Blocks: []memory.Block{memory.Text(m.Text)}, EventKey: m.EventKey, At: h.now()}
	if err := draft.Check(); err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	session, agent, err := h.sessionFor(ctx, user, m)
	if err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	seen.in(agent.Name, &session)
	unlock, err := h.turns.lock(ctx, pair{session.Agent, user.ID})
	if err != nil {
		return Answer{}, fmt.Errorf("send: wait for the turn before: %w", err)
	}
	defer unlock()
	leaveSession, err := h.sessions.lock(ctx, session.ID)
	if err != nil {
		return Answer{}, fmt.Errorf("send: wait for the turn before: %w", err)
	}
	defer leaveSession()
	// Another turn may have been handled meanwhile.
	if session, err = h.store.Session(ctx, user.ID, session.ID); err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	if err := h.settle(ctx, user.ID, session, nil); err != nil {
		return Answer{}, fmt.Errorf("send: answer open tool calls: %w", err)
	}

	answer := Answer{Session: session.ID}
	events := &listener{tell: m.OnEvent, log: h.log}
	if m.EventKey != "" {
		// Before the gap trigger: who asks for an answer that there is has not come
		// back, and nobody would read the refresh.
		answer.Message, err = h.answerBefore(ctx, user.ID, session.ID, m.EventKey)
		if err == nil {
			err = events.whole(saidIn(answer.Message))
		}
		if err == nil || !errors.Is(err, memory.ErrNotFound) {
			return answer, err
		}
	}
	turn := compaction.Turn{User: user.ID, Agent: session.Agent, Session: session.ID, At: h.now(), Source: m.Source, LastActive: lastSaidIn(session)}
	if answer.Gap, err = h.refresh(ctx, turn); err != nil {
		// A turn goes on with what it has.
		h.log.WarnContext(ctx, "gap refresh", "session", session.ID, "error", err)
	}
	draft.At = turn.At
	// One that was stored before, and not answered, is stored no second time.
	if _, err := h.store.Append(ctx, user.ID, session.ID, draft); err != nil {
		return answer, fmt.Errorf("send: store message: %w", err)
	}
	if m.OnStored != nil {
		m.OnStored(session.ID)
	}
	c, err := h.courseOf(ctx, user.ID, agent, m.Text, events)
	if err != nil {
		return answer, fmt.Errorf("send: %w", err)
	}
	reply, _, err := h.converse(ctx, &turn, &agent, &c, &answer)
	if err != nil {
		return answer, fmt.Errorf("send: %w", err)
	}
	if m.EventKey != "" {
		reply.EventKey = answerKey + m.EventKey
	}
	// The answer exists: it is kept even if the caller has gone meanwhile.
	reply.Runs = h.dueWith(ctx, &turn, &c, answer.Report.Totals.Beside, reply)
	stored, err := h.store.Append(context.WithoutCancel(ctx), user.ID, session.ID, *reply)
	if err != nil {
		return answer, fmt.Errorf("send: store answer: %w", err)
	}
	answer.Message = stored[0]
	h.afterAnswer(&turn, &agent, len(reply.Runs) > 0)
	return answer, nil
}

// saidIn is the text of an answer as it was told.
func saidIn(m memory.Message) string {
	var b strings.Builder
	for _, block := range m.Blocks {
		if block.Type == memory.BlockText {
			b.WriteString(block.Text)
		}
	}
	return b.String()
}

// dueWith are the runs of compaction that an answer makes due. They are stored with
// it: nothing that happens between the two can lose them.
func (h *Host) dueWith(ctx context.Context, turn *compaction.Turn, c *course, beside int, answer *memory.Draft) (runs []memory.DueRun) {
	if every := h.config.Compaction.ContinuousInterval; every > 0 {
		runs = append(runs, memory.DueRun{Trigger: memory.TriggerCadence, Every: every})
	}
	if h.config.Compaction.Threshold > 0 {
		window := h.windowOf(c, beside)
		stored := memory.Item{Message: &memory.Message{Blocks: answer.Blocks, Tokens: memory.Count(answer.Blocks)}}
		if h.compaction.IsThresholdDue(window, c.demand+assembly.Demand([]memory.Item{stored})) {
			runs = append(runs, memory.DueRun{Trigger: memory.TriggerThreshold, Budget: window.Budget, System: window.System})
		}
	}
	if len(runs) > 0 {
		h.traced.put(ctx, turn.Session)
	}
	return runs
}

// afterAnswer begins the background work of a turn; due says that a run of compaction
// may have become due.
func (h *Host) afterAnswer(turn *compaction.Turn, a *agent, due bool) {
	if h.dreams != nil && a.structured() {
		h.learn(dream.Place{User: turn.User, Agent: turn.Agent, Session: turn.Session})
	}
	if due {
		h.compaction.Wake()
	}
}

// lastSaidIn is when something was said in a session last; zero if that is not known. A
// session that was just made, a fork too, has the time at which it was.
func lastSaidIn(s memory.Session) time.Time {
	if !s.LastActive.After(s.CreatedAt) {
		return time.Time{}
	}
	return s.LastActive
}

// refresh brings the context up to date if the user was away.
func (h *Host) refresh(ctx context.Context, turn compaction.Turn) (compaction.Report, error) {
	ctx, ended := h.instruments.compacts(ctx, "refresh", memory.TriggerGap)
	report, err := h.compaction.Gap(ctx, turn)
	ended(report, err)
	return report, err
}

// between waits until a session is between two turns and keeps it there. Turns of
// other sessions do not wait with it.
func (h *Host) between(turn compaction.Turn) func(context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) { return h.sessions.lock(ctx, turn.Session) }
}

// sessionFor returns the session that a message belongs to and who answers in
// it.
func (h *Host) sessionFor(ctx context.Context, user memory.User, m Message) (memory.Session, agent, error) {
	if m.Session.IsZero() {
		a, err := h.agentNamed(m.Agent)
		if err != nil {
			return memory.Session{}, agent{}, err
		}
		session, err := h.store.CreateSession(ctx, memory.Session{Agent: a.ID, User: user.ID, CreatedAt: h.now()})
		return session, a, err
	}
	session, err := h.store.Session(ctx, user.ID, m.Session)
	if err != nil {
		return memory.Session{}, agent{}, err
	}
	a, ok := h.agentWith(session.Agent)
	switch {
	case !ok:
		return memory.Session{}, agent{}, fmt.Errorf("session %s is with an agent that is not configured: %w", session.ID, memory.ErrNotFound)
	case m.Agent != "" && m.Agent != a.Name:
		return memory.Session{}, agent{}, fmt.Errorf("session %s is with agent %q, not %q: %w", session.ID, a.Name, m.Agent, memory.ErrInvalid)
	}
	return session, a, nil
}

// answerBefore is answerTo of the message with that key, or memory.ErrNotFound if
// there is none.
func (h *Host) answerBefore(ctx context.Context, user memory.UserID, session memory.SessionID, key string) (memory.Message, error) {
	asked, err := h.store.Messages(ctx, user, session, memory.MessageQuery{EventKey: key, Limit: 1})
	switch {
	case err != nil:
		return memory.Message{}, fmt.Errorf("send: look for the message: %w", err)
	case len(asked) == 0:
		return memory.Message{}, memory.ErrNotFound
	}
	return h.answerTo(ctx, user, asked[0])
}

// answerTo returns the answer to a message with an event key, or
// memory.ErrNotFound. If it got none, but a later message did, that one was given
// with this one in view and answers both: a prompt that ends with it would ask
// nothing, and some providers refuse it.
func (h *Host) answerTo(ctx context.Context, user memory.UserID, asked memory.Message) (memory.Message, error) {
	const chunk = 64
	for after := asked.Seq; ; {
		messages, err := h.store.Messages(ctx, user, asked.Session, memory.MessageQuery{After: after, Limit: chunk})
		if err != nil {
			return memory.Message{}, fmt.Errorf("send: read what followed the message: %w", err)
		}
		for _, m := range messages {
			if m.Role == memory.RoleAssistant && !holdsCall(m) {
				return m, nil
			}
			after = m.Seq
		}
		if len(messages) < chunk {
			return memory.Message{}, memory.ErrNotFound
		}
	}
}

// budget is what a prompt may cost: the window without the answer.
func (c Config) budget() int { return c.Model.window() - c.Model.maxOutput() }

// readTail reads the end of a frontier for prompts of a budget: twice as much, what
// one could hold and what it would have instead of that which is too large. A
// message of more than half of the budget may be left out, so that it counts for
// nothing; after a few of them, what is there is enough.
func readTail(ctx context.Context, store memory.Store, user memory.UserID, session memory.SessionID, budget int) (memory.Frontier, memory.FrontierRest, error) {
	const rereads = 3
	// A window that is given as larger than any must not wrap around.
	atLeast := 2 * min(budget, math.MaxInt/4)
	want := atLeast
	for n := 0; ; n++ {
		tail, older, err := store.FrontierTail(ctx, user, session, want)
		if err != nil || older.Items == 0 || n == rereads {
			return tail, older, err
		}
		enough := atLeast
		for i := range tail.Items {
			if tokens := tail.Items[i].Tokens(); tokens > budget/2 {
				enough += tokens
			}
		}
		if enough <= want {
			return tail, older, nil
		}
		want = enough
	}
}

// promptInput is what every prompt of an agent is made of.
func promptInput(config Config, system string, tools []assembly.Tool) assembly.Input {
	mode := config.boundaryMode()
	return assembly.Input{
		System: system + "\n\n" + mode.SystemParagraph(), Tools: tools, Mode: mode,
		Budget: config.budget(), FreshTail: config.Compaction.KeepRecent, Provider: config.Model.shape(), Count: config.counter(),
	}
}

// PromptOf returns what the prompt of a session's next turn is made of, before
// anything new is said; Previous is the trace of the last one that was answered.
// It needs no running host: the store may be open for reading beside one. A budget
// of zero means the one of a turn. Errors wrap memory.ErrNotFound.
func PromptOf(ctx context.Context, config Config, store memory.Store, user memory.UserID, session memory.SessionID, budget int) (assembly.Input, error) {
	fail := func(err error) (assembly.Input, error) {
		return assembly.Input{}, fmt.Errorf("context of session %s: %w", session, err)
	}
	s, err := store.Session(ctx, user, session)
	if err != nil {
		return fail(err)
	}
	agents, err := agentsOf(ctx, config, store)
	if err != nil {
		return fail(err)
	}
	// The conversations of an agent that is no longer configured can still be
	// read.
	var with agent
	if i := slices.IndexFunc(agents, func(a agent) bool { return a.ID == s.Agent }); i >= 0 {
		with = agents[i]
	}
	users, err := store.Users(ctx)
	if err != nil {
		return fail(err)
	}
	tools, err := offered(config.toolsOf(users, user))
	if err != nil {
		return fail(err)
	}
	in := promptInput(config, with.system(), tools)
	if budget != 0 {
		in.Budget = budget
	}
	frontier, older, err := readTail(ctx, store, user, session, max(in.Budget, config.budget()))
	if err != nil {
		return fail(err)
	}
	in.Items, in.Older = frontier.Items, older
	if recalls(with, lastSource(in.Items)) {
		now := config.Now
		if now == nil {
			now = time.Now
		}
		if in.Beside, err = remembered(ctx, config, store, user, s.Agent, "", now()); err != nil {
			return fail(err)
		}
	}
	for i := len(in.Items) - 1; i > 0; i-- {
		if m := in.Items[i].Message; m != nil && m.IsAnswer() {
			before := in
			before.Items = in.Items[:i]
			_, report, err := assembly.Assemble(before)
			if err != nil {
				return fail(err)
			}
			in.Previous = report.Trace
			break
		}
	}
	return in, nil
}

// lastSource is why the last thing was said that is no answer, tool's result or
// refresh: the next turn is taken to be another of that kind.
func lastSource(items []memory.Item) memory.Source {
	for i := len(items) - 1; i >= 0; i-- {
		if m := items[i].Message; m != nil && m.Role == memory.RoleUser && !m.IsRefresh() {
			return m.Source
		}
	}
	return memory.SourceUser
}

// ContextOf returns the prompt that PromptOf describes, and explains it.
func ContextOf(ctx context.Context, config Config, store memory.Store, user memory.UserID, session memory.SessionID, budget int) (assembly.Prompt, assembly.Report, error) {
	in, err := PromptOf(ctx, config, store, user, session, budget)
	if err != nil {
		return assembly.Prompt{}, assembly.Report{}, err
	}
	return assembly.Assemble(in)
}

// traces remembers the last prompts of sessions. It is safe for concurrent use.
type traces struct {
	mu sync.Mutex
	of map[memory.SessionID]assembly.Trace
}

// maxTraces bounds how many are remembered; a session that is forgotten is told
// to reuse nothing, once.
const maxTraces = 1024

func (t *traces) get(session memory.SessionID) assembly.Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[session]
}

func (t *traces) put(session memory.SessionID, trace assembly.Trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[memory.SessionID]assembly.Trace{}
	}
	for other := range t.of {
		if len(t.of) < maxTraces {
			break
		}
		delete(t.of, other)
	}
	t.of[session] = trace
}
