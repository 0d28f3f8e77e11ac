// Package dream is structured memory: it learns from what users say and keeps it
// in topics, which the model is shown beside the next input.
//
// Extraction looks at a run of messages and notes what is to be remembered. A
// dream merges what was noted, and what was said last, into topics; the mini-dream
// does both for messages that are about to leave the prompt. Nothing of it is
// waited for by an answer, but for the mini-dream, which is bounded.
//
// What a hand said, what a tool returned, what was recalled, and what the
// assistant said with any of that in view is never part of a prompt here, and
// every thing that is learned names a message of the user that says so: the rest
// of what a model answers is dropped.
package dream

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Store is what a Dreamer needs of a memory.Store.
type Store interface {
	Session(ctx context.Context, user memory.UserID, id memory.SessionID) (memory.Session, error)
	UnseenMessages(ctx context.Context, user memory.UserID, session memory.SessionID, q memory.MessageQuery) ([]memory.Message, error)
	Unseen(ctx context.Context, user memory.UserID, session memory.SessionID) (memory.Unseen, error)
	CommitExtraction(ctx context.Context, user memory.UserID, x memory.NewExtraction) (memory.Extraction, error)
	Extractions(ctx context.Context, user memory.UserID, q memory.ExtractionQuery) ([]memory.Extraction, error)
	IdleSessions(ctx context.Context, agents []memory.AgentID, idleSince time.Time, limit int) ([]memory.IdleSession, error)
	Topics(ctx context.Context, user memory.UserID, q memory.TopicQuery) ([]memory.Topic, memory.TopicRevision, error)
	CommitDream(ctx context.Context, user memory.UserID, r memory.TopicRevision, d memory.Dream) ([]memory.Topic, error)
}

// Config sets up a Dreamer.
type Config struct {
	// Model is who is asked. Nil means that nobody is, and that nothing is learned.
	Model llm.Model
	// MaxOutputTokens is what an answer may cost at first; it is doubled when it
	// did not suffice, to at most 16,384. Less than 4,096 means that.
	MaxOutputTokens int
	// ExtractionTokens and ExtractionToolCalls are after how much an extraction is
	// due; zero means 4,000 tokens and 20 calls, negative means never.
	ExtractionTokens    int
	ExtractionToolCalls int
	// Gap is how long a session has rested when a dream is due; 0 turns the loop
	// off.
	Gap time.Duration
	// Workers bounds how many dreams go on at the same time; zero means 2.
	Workers int
	// Timeout bounds one call of the model; zero means 2 minutes.
	Timeout time.Duration
	// MiniTimeout bounds a mini-dream; zero means 30 seconds.
	MiniTimeout time.Duration
	// Agents returns those who have structured memory now.
	Agents func() []memory.AgentID
	// Enter begins something for a user: its context ends when the user is wiped.
	// Nil means that nobody has to be told.
	Enter func(ctx context.Context, user memory.UserID) (entered context.Context, leave func(), err error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

// Place is a conversation.
type Place struct {
	User    memory.UserID
	Agent   memory.AgentID
	Session memory.SessionID
}

// Errors that callers branch on.
var (
	// ErrBusy says that another dream for the agent and the user goes on.
	ErrBusy = errors.New("another dream for this agent and user is going on")
	// ErrUnreadable says that the model's answer is not what was asked for. Nothing
	// was changed.
	ErrUnreadable = errors.New("the model's answer cannot be read")
	// ErrNoModel says that there is no model to ask.
	ErrNoModel = errors.New("no model is configured that could remember anything")
)

// Counts are how often something ended in which way since the Dreamer was made.
type Counts struct {
	Extractions, ExtractionsFailed int
	MiniDreams, MiniDreamsFailed   int
	Dreams, DreamsFailed           int
	// Busy counts dreams that were skipped because another one went on; Nothing
	// those that found nothing new.
	Busy, Nothing int
}

// Dreamer learns. It is safe for concurrent use. Close it to wait for what goes on.
type Dreamer struct {
	store  Store
	config Config
}

// New returns a Dreamer.
func New(store Store, config Config) *Dreamer { return &Dreamer{store: store, config: config} }

// Extract returns earlier with what the messages add to it. It never fails: when
// the model errs, answers nothing or what cannot be read, it returns earlier as it
// is, and learned is false. An answer that the output limit cut off is asked for
// again with twice the limit. What a source does not bear out is dropped: each
// thing cites messages of the run whose source is the user.
func (d *Dreamer) Extract(ctx context.Context, messages []memory.Message, earlier memory.Learnings) (all memory.Learnings, learned bool) {
	return earlier, false
}

// AfterTurn extracts what is new in a session if enough has come in since the last
// time. It is for the background: it returns when that is over.
func (d *Dreamer) AfterTurn(ctx context.Context, at Place) error { return nil }

// Mini extracts from messages that are about to leave the prompt, exactly those of
// them that were not looked at, and merges what it learned into the topics. It is
// bounded by MiniTimeout; what is extracted by then stays and is merged by the next
// dream. Changed says that the topics are not what they were. It never fails.
func (d *Dreamer) Mini(ctx context.Context, at Place, leaving []memory.Message) (changed bool) {
	return false
}

// Report tells of one dream.
type Report struct {
	User    memory.UserID    `json:"user_id"`
	Agent   memory.AgentID   `json:"agent_id"`
	Session memory.SessionID `json:"session_id,omitzero"`
	// Extractions is how many were merged, Messages how many were looked at beside
	// them.
	Extractions int `json:"extractions"`
	Messages    int `json:"messages"`
	// Topics are those that were stored; Retired is how many they superseded.
	Topics  []memory.Topic `json:"topics"`
	Retired int            `json:"retired"`
	// Dropped is how much of the answer was not taken: no name, no source that bears
	// it out, nothing new.
	Dropped int `json:"dropped"`
}

// Dream merges all that was extracted for the agent and the user, and what is new
// in the session, into topics, now. With nothing new it asks nobody. Errors wrap
// ErrBusy, ErrUnreadable, ErrNoModel, memory.ErrConflict if the topics were changed
// meanwhile, and those of package llm. Nothing was changed then.
func (d *Dreamer) Dream(ctx context.Context, at Place) (Report, error) { return Report{}, nil }

// Tick looks once for sessions that are due, dreams for them through the workers,
// oldest first, and returns when that is over. A session whose dream failed is left
// alone for a while, longer each time.
func (d *Dreamer) Tick(ctx context.Context) error { return nil }

// Counts returns the counts so far.
func (d *Dreamer) Counts() Counts { return Counts{} }

// Close cancels what goes on and waits for it, at most until ctx is done.
func (d *Dreamer) Close(ctx context.Context) error { return nil }

// Heading begins what a prompt says of the topics.
const Heading = "What I remember about you"

// Section returns what a prompt says of topics, within maxTokens; "" if there is
// nothing to say. What was learned last goes in first, whole or not at all, and
// stands by its topic; a line of a topic is one line of the text. The host puts it
// beside the last input, never into the system text.
func Section(topics []memory.Topic, maxTokens int) string { return "" }
