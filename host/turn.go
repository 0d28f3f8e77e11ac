package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Message is one input of a conversation.
type Message struct {
	// User is who speaks; zero means the default user.
	User memory.UserID
	// Agent is the name of who is spoken to; "" means the first one.
	Agent string
	// Session is the conversation that goes on; zero begins a new one.
	Session memory.SessionID
	Text    string
	// Source is why the message exists; "" means memory.SourceUser.
	Source memory.Source
}

// Answer is what came of a message.
type Answer struct {
	Session memory.SessionID
	// Message is the answer as it was stored.
	Message memory.Message
	// Prompt is what the model was shown, and Report explains it.
	Prompt assembly.Prompt
	Report assembly.Report
	// Gap tells of the refresh that preceded the answer.
	Gap compaction.Report
	// Tokens are the model's own counts, or estimates if it gives none.
	InputTokens, OutputTokens int
}

// Send stores a message, brings the context up to date if its user was away,
// asks the model and stores the answer. Messages of one session are handled
// one at a time.
//
// The message is durable before the model is asked: when Send fails after that,
// the session holds it without an answer, and the next message is answered with
// both in view. Errors wrap memory.ErrNotFound, memory.ErrInvalid and those of
// package llm.
func (h *Host) Send(ctx context.Context, m Message) (Answer, error) {
	if m.Source == "" {
		m.Source = memory.SourceUser
	}
	if m.Text == "" {
		return Answer{}, fmt.Errorf("send: the message is empty: %w", memory.ErrInvalid)
	}
	user, err := h.userOrDefault(m.User)
	if err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	agent, err := h.agentNamed(m.Agent)
	if err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	session, err := h.sessionFor(ctx, user, agent, m.Session)
	if err != nil {
		return Answer{}, fmt.Errorf("send: %w", err)
	}
	unlock, err := h.turns.lock(ctx, session.ID)
	if err != nil {
		return Answer{}, fmt.Errorf("send: wait for the session: %w", err)
	}
	defer unlock()

	answer := Answer{Session: session.ID}
	turn := compaction.Turn{User: user.ID, Agent: session.Agent, Session: session.ID, At: h.now(), Source: m.Source}
	if answer.Gap, err = h.compaction.Gap(ctx, turn); err != nil {
		// A turn goes on with what it has.
		h.log.Warn("gap refresh", "session", session.ID, "error", err)
	}
	if _, err := h.store.Append(ctx, user.ID, session.ID, memory.Draft{
		Role: memory.RoleUser, Source: m.Source, Blocks: []memory.Block{memory.Text(m.Text)}, At: turn.At,
	}); err != nil {
		return answer, fmt.Errorf("send: store message: %w", err)
	}
	if answer.Prompt, answer.Report, err = h.assemble(ctx, user.ID, session.ID, agent, h.budget()); err != nil {
		return answer, fmt.Errorf("send: %w", err)
	}
	response, err := h.model.Complete(ctx, request(answer.Prompt, h.config.Model.maxOutput()))
	if err != nil {
		return answer, fmt.Errorf("send: ask the model: %w", err)
	}
	answer.InputTokens, answer.OutputTokens = response.InputTokens, response.OutputTokens
	if response.Text == "" {
		return answer, fmt.Errorf("send: ask the model: %w", llm.ErrEmpty)
	}
	trust := memory.TrustDirect
	if answer.Report.HasExternal() {
		trust = memory.TrustDerived
	}
	// The answer exists: it is kept even if the caller has gone meanwhile.
	stored, err := h.store.Append(context.WithoutCancel(ctx), user.ID, session.ID, memory.Draft{
		Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.Text(response.Text)}, Trust: trust, At: h.now(),
	})
	if err != nil {
		return answer, fmt.Errorf("send: store answer: %w", err)
	}
	answer.Message = stored[0]
	turn.At = stored[0].At
	h.background.Go(func() { h.cadence(turn) })
	return answer, nil
}

// cadence runs after the answer is on its way.
func (h *Host) cadence(turn compaction.Turn) {
	report, err := h.compaction.Cadence(h.ending, turn)
	if err != nil && !errors.Is(err, context.Canceled) {
		h.log.Warn("cadence compaction", "session", turn.Session, "error", err)
	}
	if observe := h.config.OnCompaction; observe != nil && report.Reason != compaction.ReasonNotDue {
		observe(report)
	}
}

func (h *Host) sessionFor(ctx context.Context, user memory.User, a agent, id memory.SessionID) (memory.Session, error) {
	if !id.IsZero() {
		return h.store.Session(ctx, user.ID, id)
	}
	return h.store.CreateSession(ctx, memory.Session{Agent: a.ID, User: user.ID, CreatedAt: h.now()})
}

func (h *Host) budget() int {
	return h.config.Model.window() - h.config.Model.maxOutput()
}

func (h *Host) assemble(ctx context.Context, user memory.UserID, session memory.SessionID, a agent, budget int) (assembly.Prompt, assembly.Report, error) {
	return assemble(ctx, h.config, h.store, user, session, a.system, budget)
}

func assemble(ctx context.Context, config Config, store memory.Store, user memory.UserID, session memory.SessionID, system string, budget int) (assembly.Prompt, assembly.Report, error) {
	frontier, err := store.Frontier(ctx, user, session)
	if err != nil {
		return assembly.Prompt{}, assembly.Report{}, fmt.Errorf("read frontier: %w", err)
	}
	prompt, report := assembly.Assemble(assembly.Input{
		System: system + "\n\n" + boundary.SystemParagraph, Items: frontier.Items,
		Budget: budget, FreshTail: config.Compaction.KeepRecent,
	})
	return prompt, report, nil
}

// ContextOf returns the prompt that a session's next turn would begin with and
// explains it. It needs no running host: the store may be open for reading
// beside one. A budget of zero means the one of a turn. Errors wrap
// memory.ErrNotFound.
func ContextOf(ctx context.Context, config Config, store memory.Store, user memory.UserID, session memory.SessionID, budget int) (assembly.Prompt, assembly.Report, error) {
	fail := func(err error) (assembly.Prompt, assembly.Report, error) {
		return assembly.Prompt{}, assembly.Report{}, fmt.Errorf("context of session %s: %w", session, err)
	}
	if budget == 0 {
		budget = config.Model.window() - config.Model.maxOutput()
	}
	s, err := store.Session(ctx, user, session)
	if err != nil {
		return fail(err)
	}
	agents, err := store.Agents(ctx)
	if err != nil {
		return fail(err)
	}
	// The conversations of an agent that is no longer configured can still be
	// read.
	system := defaultSystemPrompt
	for _, a := range agents {
		for _, c := range config.agents() {
			if a.ID == s.Agent && a.Name == c.Name {
				system = c.systemPrompt()
			}
		}
	}
	return assemble(ctx, config, store, user, session, system, budget)
}

func request(p assembly.Prompt, maxOutput int) llm.Request {
	r := llm.Request{System: p.System, MaxOutputTokens: maxOutput}
	for _, m := range p.Messages {
		role := llm.RoleUser
		if m.Role == memory.RoleAssistant {
			role = llm.RoleAssistant
		}
		r.Messages = append(r.Messages, llm.Message{Role: role, Text: m.Text})
	}
	return r
}
