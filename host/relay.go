package host

import (
	"context"
	"fmt"

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
	// configuration's, which is meant by zero.
	Ask llm.Request
	// OnPlaced is told, before the model is asked, where the conversation is kept; nil
	// means nobody is. OnEvent is Message.OnEvent's; Event.Tool is told of tools of the
	// host alone.
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
	// answers of the turn together.
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
// part is shared, and the session that it departs from stays as it is. A named
// session may also be sent the end of its conversation alone. A name goes with the
// fork.
//
// Turns of one session are handled one at a time, those of different sessions at
// once. The tools of the host are offered if Config.Server.Gateway.HostTools says
// so, and answered here; a client's tool of the same name takes the place of the
// host's. Errors are those of Send; memory.ErrNotFound for an agent that is not
// configured. When ctx is done the model is no longer asked, what the client said
// stays stored, and the same conversation sent again is answered.
func (h *Host) Relay(ctx context.Context, c Conversation) (Relayed, error) {
	return Relayed{}, fmt.Errorf("relay: %w", memory.ErrInvalid)
}
