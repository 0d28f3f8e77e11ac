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
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	NextIdleSession(ctx context.Context, q memory.DueQuery) (memory.IdleSession, error)
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
	// Admit, if not nil, is waited for before each call of the model that nobody waits
	// for, and release is called when the call has ended. The error is ctx's.
	Admit func(ctx context.Context) (release func(), err error)
	// Timeout bounds one call of the model; zero means 2 minutes.
	Timeout time.Duration
	// MiniTimeout bounds a mini-dream; zero means 30 seconds.
	MiniTimeout time.Duration
	// Agents returns those who have structured memory now.
	Agents func() []memory.AgentID
	// Enter begins something for a user: its context ends when the user is wiped.
	// Dreams, extractions and mini-dreams are entered, and so is the dream within a
	// mini-dream once more. Nil means that nobody has to be told.
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
	// ErrClosed says that the Dreamer was closed.
	ErrClosed = errors.New("the dreamer is closed")
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

	asked bool // whether the model was
}

// Dreamer learns. It is safe for concurrent use. Close it to wait for what goes on.
type Dreamer struct {
	store  Store
	config Config
	log    *slog.Logger
	now    func() time.Time

	// background is cancelled by Close and ends whatever goes on.
	background context.Context
	stop       context.CancelFunc

	extracting extracting
	ticking    ticking

	mu sync.Mutex
	// All below is guarded by mu. dreaming holds the pairs with a dream.
	counts   Counts
	dreaming map[pair]struct{}
	failed   map[memory.SessionID]failure
	// active is how much goes on; idle, if somebody waits for it, is closed when
	// that is nothing.
	active int
	closed bool
	idle   chan struct{}
}

// pair is what at most one dream at a time is for.
type pair struct {
	agent memory.AgentID
	user  memory.UserID
}

// New returns a Dreamer.
func New(store Store, config Config) *Dreamer {
	d := &Dreamer{
		store: store, config: config, log: config.Log, now: config.Now,
		dreaming: map[pair]struct{}{}, failed: map[memory.SessionID]failure{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.background, d.stop = context.WithCancel(context.Background())
	return d
}

// begin starts something that Close ends and waits for. The caller calls end
// once.
func (d *Dreamer) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ctx, nil, ErrClosed
	}
	d.active++
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(d.background, cancel)
	return ctx, func() {
		unlink()
		cancel()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.active--; d.active == 0 && d.idle != nil {
			close(d.idle)
			d.idle = nil
		}
	}, nil
}

// over returns why what began with ctx is at an end, nil if it is not. Close may have
// ended a dream before the context of the tick that it is a part of hears of it.
func (d *Dreamer) over(ctx context.Context) error {
	return cmp.Or(ctx.Err(), d.background.Err())
}

// count changes the counts.
func (d *Dreamer) count(change func(*Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.counts)
}

// Counts returns the counts so far.
func (d *Dreamer) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// Close cancels what goes on and waits for it, at most until ctx is done; the
// error wraps ctx's then. What was stored by then stays, and what was not is due
// again. Later calls do nothing, and those that return an error wrap ErrClosed.
func (d *Dreamer) Close(ctx context.Context) error {
	d.stop()
	d.mu.Lock()
	d.closed = true
	if d.active == 0 {
		d.mu.Unlock()
		return nil
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for dreams: %w", ctx.Err())
	}
}
