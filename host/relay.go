package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Conversation is one turn of a conversation that a client holds and sends whole
// each time, as the clients of model APIs do.
type Conversation struct {
	// User is who speaks; zero means the default user.
	User memory.UserID
	// Agent is the name of who is spoken to; "" means that of the session, or the
	// first one.
	Agent string
	// Session names the session: the id of one of the user's, or a name that the
	// client gives it, of at most memory.MaxSessionName bytes. "" means that it is
	// found by what was said in it.
	Session string
	// After, if not "", is the AnswerKey of an answer in Session, which is then an id:
	// Messages are what comes behind it alone. The conversation goes on in a fork if
	// the client has seen something behind that answer already. memory.ErrNotFound if
	// there is no such answer.
	After string
	// AnswerKey, if not "", becomes the memory.Draft.EventKey of the answer.
	AnswerKey string
	// System is the client's system text. It takes the place of the agent's default;
	// a system text that the operator configured stands before it. It is not stored.
	System string
	// Messages are the conversation as the client has it, the oldest first; the last
	// is the user's or a tool's. Of each Role, Blocks and At count, and a zero At means
	// now: the host says what their Source and Trust are. A call has its result in a
	// later message, or in none.
	Messages []memory.Draft
	// Tools are the client's, which runs them: the turn ends with calls of them.
	Tools []llm.Tool
	// Ask is how the model is asked: of it NoCalls, Choice, MaxOutputTokens, TopP,
	// Stop, Effort, Temperature and Schema count. MaxOutputTokens is at most the
	// configuration's, which is meant by zero. The tools of the host are left out of a
	// turn whose Choice demands a call, or that has a Schema.
	Ask llm.Request
	// OnPlaced is told, before the model is asked, where the conversation is kept; nil
	// means nobody is. OnEvent is Message.OnEvent's, but that there is no
	// Event.Restart: where the tools of the host are offered, what the model says is
	// held back until it is known to be the answer. Event.Tool is told of tools of the
	// host alone. Neither blocks.
	OnPlaced func(Placed)
	OnEvent  func(Event)
}

// Placed says where a conversation is kept.
type Placed struct {
	Session memory.SessionID
	// New says that the session began with this turn, Parent which one it was forked
	// from, zero if none.
	New    bool
	Parent memory.SessionID
	// Added is how many of the client's messages were not stored before.
	Added int
}

// Relayed is what came of a Conversation.
type Relayed struct {
	Placed
	// Message is the answer as it was stored: text, and calls of the client's tools.
	// Calls of the host's tools are not in it.
	Message memory.Message
	// Calls are those of the client's tools.
	Calls []llm.ToolCall
	// Response is the model's last answer; its counts of tokens are those of all
	// answers of the turn together. It is there beside an error if the model was
	// asked: an answer that was cut off before its first word, say, has Truncated, one
	// that was refused has Filtered.
	Response llm.Response
	Prompt   assembly.Prompt
	Report   assembly.Report
	Gap      compaction.Report
}

// Relay finds the session of a conversation, or makes one, stores what is new of
// it, brings the context up to date if the user was away, asks the model and
// stores the answer.
//
// Without a name the session is the one whose transcript, with at least one answer
// in it, is the beginning of the conversation; an opening alone is a new session.
// A conversation that departs from what is stored, because something in it was
// edited or is to be answered anew, goes on in a fork of the session: the common
// part is shared, and the session that it departs from stays as it is. One that was
// stored and never answered, because the client was cut off, is answered where it
// is.
//
// A named session may also be sent the end of its conversation alone, and a message
// without any answer before it is its next one. A name goes with the fork, and back
// to the session that it was forked from if the conversation is that one's again.
//
// Texts are stored as they came. Words of the user are memory.SourceUser, whatever
// they look like; results of tools are external; answers that the host did not give
// are memory.TrustDerived, for nobody knows what was in view. Calls that the
// conversation has no result of, though the host gave them to the client, get one
// that says so.
//
// Turns of one session are handled one at a time, those of different sessions at
// once. The tools of the host are offered if Config.Server.Gateway.HostTools says
// so, and answered here; a client's tool of the same name takes the place of the
// host's. Errors are those of Send; memory.ErrNotFound for an agent that is not
// configured, memory.ErrInvalid for a conversation or for tools that no provider
// takes. When ctx is done the model is no longer asked, what the client said
// stays stored, and the same conversation sent again is answered.
func (h *Host) Relay(ctx context.Context, c *Conversation) (out *Relayed, err error) {
	out = new(Relayed)
	ctx, seen := h.instruments.turn(ctx)
	defer func() { seen.end(err) }()
	if err := h.relay(ctx, c, out, seen); err != nil {
		return out, fmt.Errorf("relay: %w", err)
	}
	return out, nil
}

func (h *Host) relay(ctx context.Context, c *Conversation, out *Relayed, seen *turnSpan) (err error) {
	ctx, user, leave, err := h.enter(ctx, c.User)
	if err != nil {
		return err
	}
	defer leave()
	defer func() { err = wipedMeanwhile(ctx, err) }()
	t, release, err := h.place(ctx, user, c)
	if err != nil {
		return err
	}
	defer release()
	seen.in(t.agent.Name, &t.session)
	out.Placed = t.Placed
	if c.OnPlaced != nil {
		c.OnPlaced(out.Placed)
	}
	if err := h.hear(ctx, t, out); err != nil {
		return err
	}
	return h.reply(ctx, t, out)
}

// relayed is a turn that is relayed. A stream has it for as long as its client
// listens, as it does the frames of the functions that wait for the model: what is
// large in a turn is here, and done with in functions of its own.
type relayed struct {
	seat
	rows      []row
	turn      compaction.Turn
	course    course
	answer    Answer
	answerKey string
}

// place finds where a conversation goes on. Nobody else goes on there before release.
func (h *Host) place(ctx context.Context, user memory.User, c *Conversation) (_ *relayed, release func(), err error) {
	t := &relayed{answerKey: c.AnswerKey}
	if t.rows, err = rowsOf(c.Messages); err != nil {
		return nil, nil, err
	}
	if t.course, err = h.courseWith(ctx, user.ID, *c); err != nil {
		return nil, nil, err
	}
	if t.seat, release, err = h.seat(ctx, user, *c, t.rows); err != nil {
		return nil, nil, fmt.Errorf("find the session: %w", err)
	}
	t.turn = compaction.Turn{User: user.ID, Agent: t.agent.ID, Session: t.session.ID, Source: memory.SourceUser, LastActive: lastSaidIn(t.session)}
	t.course.system, t.course.called = t.agent.systemBefore(c.System), calledIn(t.rows)
	return t, release, nil
}

// hear stores what is new of a conversation, behind what its user is to know first.
func (h *Host) hear(ctx context.Context, t *relayed, out *Relayed) (err error) {
	if !t.answered {
		if err := h.settle(ctx, t.turn.User, t.session, answeredIn(t.fresh)); err != nil {
			return fmt.Errorf("answer open tool calls: %w", err)
		}
	}
	t.turn.At = h.now()
	var asked bool
	if t.course.said, asked = lastSaid(t.rows); asked {
		if out.Gap, err = h.refresh(ctx, t.turn); err != nil {
			// A turn goes on with what it has.
			h.log.WarnContext(ctx, "gap refresh", "session", t.turn.Session, "error", err)
		}
	}
	if len(t.fresh) == 0 {
		return nil
	}
	drafts := make([]memory.Draft, len(t.fresh))
	for i := range t.fresh {
		if drafts[i] = t.fresh[i].Draft; drafts[i].At.IsZero() {
			drafts[i].At = t.turn.At
		}
	}
	if _, err := h.store.Append(ctx, t.turn.User, t.turn.Session, drafts...); err != nil {
		return fmt.Errorf("store messages: %w", err)
	}
	return nil
}

// reply has the model answer, and keeps what it says.
func (h *Host) reply(ctx context.Context, t *relayed, out *Relayed) error {
	reply, calls, err := h.converse(ctx, &t.turn, &t.agent, &t.course, &t.answer)
	out.Prompt = t.answer.Prompt
	out.Report = t.answer.Report
	out.Response = t.course.response
	if err != nil {
		return err
	}
	return h.keep(ctx, t, reply, calls, out)
}

// keep stores an answer, and begins what comes after it.
func (h *Host) keep(ctx context.Context, t *relayed, reply *memory.Draft, calls []llm.ToolCall, out *Relayed) error {
	visible := slices.DeleteFunc(slices.Clone(reply.Blocks), func(b memory.Block) bool {
		return b.Type == memory.BlockThinking || b.Type == memory.BlockToolCall && t.course.own[b.Name]
	})
	var sums summer
	reply.Transcript = after(t.transcript, sums.row(memory.RoleAssistant, visible))
	reply.EventKey = t.answerKey
	reply.Runs = h.dueWith(ctx, &t.turn, &t.course, t.answer.Report.Totals.Beside, reply)
	// The answer exists: it is kept even if the client has gone meanwhile.
	stored, err := h.store.Append(context.WithoutCancel(ctx), t.turn.User, t.turn.Session, *reply)
	if err != nil {
		return fmt.Errorf("store answer: %w", err)
	}
	out.Message = stored[0]
	out.Message.Blocks = visible
	var beside []llm.ToolCall
	for _, call := range calls {
		if t.course.isClients(call) {
			out.Calls = append(out.Calls, call)
		} else {
			beside = append(beside, call)
		}
	}
	if len(beside) > 0 {
		if err := h.answerCalls(ctx, t.turn, &t.course, beside); err != nil {
			// The client has its calls: what they come to finds these without a result,
			// and the next turn says so.
			h.log.WarnContext(ctx, "answer the calls beside the client's", "session", t.turn.Session, "error", err)
		}
	}
	h.afterAnswer(&t.turn, &t.agent, len(reply.Runs) > 0)
	return nil
}

// courseWith is the course of a turn whose calls a client answers, but for the host's
// own tools.
func (h *Host) courseWith(ctx context.Context, user memory.UserID, c Conversation) (course, error) {
	tools := make([]assembly.Tool, len(c.Tools))
	taken := map[string]bool{}
	for i, t := range c.Tools {
		tools[i], taken[t.Name] = assembly.Tool(t), true
	}
	var own map[string]bool
	if h.config.Server.Gateway.HostTools && !c.Ask.Choice.Required && c.Ask.Schema == nil {
		own = map[string]bool{}
		for _, t := range h.toolsOf(ctx, user) {
			if definition := t.Definition(); !taken[definition.Name] {
				tools, own[definition.Name] = append(tools, assembly.Tool(definition)), true
			}
		}
	}
	tools, err := assembly.CanonicalTools(tools)
	if err != nil {
		return course{}, fmt.Errorf("%w: %w", err, memory.ErrInvalid)
	}
	return course{
		tools: tools, relayed: true, own: own, ask: c.Ask, left: h.config.budget() / 2,
		events: &listener{tell: c.OnEvent, log: h.log, final: true},
	}, nil
}

// systemBefore is the system text of a client that says one, which does not take the
// place of what the operator has the agent told.
func (a agent) systemBefore(client string) string {
	switch operator := a.config.SystemPrompt; {
	case strings.TrimSpace(client) == "":
		return a.system()
	case operator == "":
		return client
	default:
		return operator + "\n\n" + client
	}
}

// lastSaid is what the user says behind the last answer; false if that is nothing.
func lastSaid(rows []row) (text string, ok bool) {
	var parts []string
	for i := len(rows) - 1; i >= 0 && rows[i].Role != memory.RoleAssistant; i-- {
		if rows[i].Role == memory.RoleUser {
			ok = true
			parts = append(parts, memory.Shown(rows[i].Blocks))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "\n"), ok
}
