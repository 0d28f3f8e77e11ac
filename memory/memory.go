// Package memory is the vocabulary of everything Glovebox keeps: users, agents,
// sessions, messages, summaries and what the model is shown of them; and Store,
// with the rules that every store keeps. memory/sqlite implements it,
// memory/memorytest proves it.
//
// Three rules hold for every method of every store:
//
//   - What was acknowledged is durable: when a write returns nil, it survives
//     the death of the process at any later instant.
//   - Nothing of one user is reachable by another: every call takes the user,
//     and what belongs to somebody else is ErrNotFound, as if it did not exist.
//   - Messages are never changed, nor dropped but by a deletion or a wipe that
//     somebody asked for. Compaction changes the frontier, which is what the
//     model is shown.
package memory

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
)

// Errors that callers branch on.
var (
	// ErrNotFound says that there is no such thing, or that it is not this
	// user's.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that the frontier is no longer the one that was read,
	// or that a name is taken. Read again and decide anew.
	ErrConflict = errors.New("changed in the meantime")
	// ErrInvalid says that the caller's value breaks a rule of this package.
	ErrInvalid = errors.New("invalid")
	// ErrInUse says that another process has the store open for writing.
	ErrInUse = errors.New("in use by another process")
	// ErrNewer says that a newer version of the program wrote the store.
	ErrNewer = errors.New("written by a newer version")
	// ErrForeign says that the file is not a store of this program.
	ErrForeign = errors.New("not a glovebox database")
	// ErrWiped says that everything of the user is being removed.
	ErrWiped = errors.New("the user is being wiped")
	// ErrReadOnly says that the store cannot be written: the file or its
	// directory does not allow it, or it was opened for reading.
	ErrReadOnly = errors.New("read-only")
	// ErrUnsettled says that the store was opened for reading and has to be opened
	// for writing once before: an older version of the program wrote it, or one
	// that died meanwhile. Errors that wrap it wrap ErrReadOnly too.
	ErrUnsettled = errors.New("open it for writing once")
)

// User is somebody the agents talk to. Names are unique and match
// [a-z0-9][a-z0-9._-]{0,62}.
type User struct {
	ID        UserID    `json:"id"`
	Name      string    `json:"name"`
	IsDefault bool      `json:"is_default"`
	CreatedAt time.Time `json:"created_at"`
}

// DefaultUserName is what the default user is called until the configuration
// gives it a name.
const DefaultUserName = "default"

// Agent is one configured assistant. Names are unique, of the same form as
// those of users.
type Agent struct {
	ID        AgentID   `json:"id"`
	Name      string    `json:"name"`
	Manifest  string    `json:"manifest,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// Session is one conversation of one user with one agent.
type Session struct {
	ID     SessionID `json:"id"`
	Agent  AgentID   `json:"agent_id"`
	User   UserID    `json:"user_id"`
	Parent SessionID `json:"parent_session_id,omitzero"`
	Title  string    `json:"title,omitempty"`
	// Name is what a caller calls the session, among those of its user; "" if
	// nobody does. At most one session of a user has it.
	Name string `json:"name,omitempty"`
	// CreatedAt and LastActive are UTC, to the microsecond. LastActive moves
	// with messages of the sources user, assistant, tool and unknown, and is
	// never before CreatedAt; ticks and injections are not activity.
	CreatedAt  time.Time `json:"created_at"`
	LastActive time.Time `json:"last_active_at"`
	// UserMessages counts messages of the source user, or of role user with
	// an unknown source. Exchanges counts how often an assistant's message
	// followed one or more of them; one that holds a tool call is not yet the
	// answer and does not count.
	UserMessages int `json:"user_messages"`
	Exchanges    int `json:"exchanges"`
	// Messages counts all messages.
	Messages int `json:"messages"`
}

// HasRealUserActivity reports whether a person ever said something in the
// session: one that holds only ticks, injections and the assistant's turns is
// not worth a compaction, a question to a hand or a dream.
func (s Session) HasRealUserActivity() bool { return s.UserMessages > 0 }

// Role is who speaks.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleSystem    Role = "system"
	RoleTool      Role = "tool"
)

// Source is why a message exists. The empty source is unknown, as in data that
// is older than the field.
type Source string

// The sources.
const (
	SourceUnknown          Source = ""
	SourceUser             Source = "user"
	SourceAssistant        Source = "assistant"
	SourceTool             Source = "tool"
	SourceContextInjection Source = "context_injection"
	SourceAutonomousTick   Source = "autonomous_tick"
	SourceScheduledTick    Source = "scheduled_tick"
	SourceInterSession     Source = "inter_session"
	SourceTaskCompletion   Source = "task_completion"
	SourceRetry            Source = "retry"
)

// IsActivity reports whether a message of this source moves a session's
// LastActive.
func (s Source) IsActivity() bool {
	switch s {
	case SourceUser, SourceAssistant, SourceTool, SourceUnknown:
		return true
	}
	return false
}

func (s Source) known() bool {
	switch s {
	case SourceContextInjection, SourceAutonomousTick, SourceScheduledTick, SourceInterSession, SourceTaskCompletion, SourceRetry:
		return true
	}
	return s.IsActivity()
}

// Trust says whose words a text is made of.
type Trust string

// The trusts, from most to least.
const (
	// TrustDirect is what users, assistants and the host say themselves.
	TrustDirect Trust = "direct"
	// TrustDerived is an assistant's answer to a prompt that held external text,
	// what is remembered of the user, or such an answer; and what another session
	// or a task reports, in whose prompts any of that may have been.
	TrustDerived Trust = "derived"
	// TrustExternal holds external text.
	TrustExternal Trust = "external"
)

// Least returns the lesser of two trusts.
func (t Trust) Least(other Trust) Trust {
	for _, low := range []Trust{TrustExternal, TrustDerived} {
		if t == low || other == low {
			return low
		}
	}
	return TrustDirect
}

// Draft is a message before it is stored.
type Draft struct {
	Role   Role
	Source Source
	Blocks []Block
	// Trust is TrustDirect if empty. A draft with an external block is
	// TrustExternal whatever it says, and one of SourceInterSession or
	// SourceTaskCompletion TrustDerived at most.
	Trust Trust
	// EventKey makes the append idempotent within the session: a draft whose
	// key is already stored adds nothing. Empty means no key; else it is at
	// most MaxEventKey bytes of UTF-8 without NUL, compared by bytes.
	EventKey string
	// Transcript is of the conversation as its holder has it, up to and with this
	// message; zero for what the holder does not see.
	Transcript Digest
	// At is when it was said; the store keeps microseconds, in UTC.
	At time.Time
	// Runs are those of compaction that the message makes due: they are pending from
	// then on, At, and are stored with it or not at all.
	Runs []DueRun
}

// DueRun is a run of compaction that becomes due with a message.
type DueRun struct {
	// Trigger is one that goes on behind an answer, TriggerCadence or
	// TriggerThreshold.
	Trigger Trigger
	// Every, if not zero, makes it due only if the message completes a user exchange
	// whose number in the session is a multiple of it.
	Every int
	// Budget and System are those of PendingRun.
	Budget, System int
}

// MaxEventKey is the most bytes that an event key has.
const MaxEventKey = 512

// Message is one stored message. Seq counts from 1 within the session.
type Message struct {
	ID       MessageID `json:"id"`
	Session  SessionID `json:"session_id"`
	Seq      int64     `json:"seq"`
	Role     Role      `json:"role"`
	Source   Source    `json:"source,omitempty"`
	Blocks   []Block   `json:"content"`
	Tokens   int       `json:"tokens"`
	Trust    Trust     `json:"trust"`
	EventKey string    `json:"event_key,omitempty"`
	// Transcript is the Draft's.
	Transcript Digest    `json:"transcript,omitzero"`
	At         time.Time `json:"created_at"`
}

// IsRefresh reports whether m is a context refresh.
func (m Message) IsRefresh() bool { return m.Source == SourceContextInjection }

// IsUsers reports whether a person says it, as Session.UserMessages counts.
func (m Message) IsUsers() bool {
	return m.Source == SourceUser || m.Source == SourceUnknown && m.Role == RoleUser
}

// IsAnswer reports whether it can end an exchange: the assistant's last word,
// not one that calls tools.
func (m Message) IsAnswer() bool {
	return m.Role == RoleAssistant && !slices.ContainsFunc(m.Blocks, func(b Block) bool { return b.Type == BlockToolCall })
}

// Injection is a context refresh before it is stored. It is the only way for
// the text of a hand into a session.
type Injection struct {
	// At is the time in the message's heading, and the message's own.
	At time.Time
	// Blocks are framed one after the other. At least one is not empty;
	// empty ones are left out.
	Blocks []boundary.Content
}

// RefreshHeadingPrefix begins the text of every context refresh.
const RefreshHeadingPrefix = "[Context refresh — "

// RefreshHeading returns the first line of a refresh made at t.
func RefreshHeading(t time.Time) string {
	return RefreshHeadingPrefix + t.UTC().Format(time.RFC3339) + "]"
}

// Draft returns the message that i becomes.
func (i Injection) Draft() Draft {
	blocks := []Block{Text(RefreshHeading(i.At))}
	for _, c := range i.Blocks {
		if !c.IsEmpty() {
			blocks = append(blocks, External(c))
		}
	}
	return Draft{Role: RoleUser, Source: SourceContextInjection, Blocks: blocks, Trust: TrustExternal, At: i.At}
}

// Level says how a summary was made.
type Level string

// The levels, in the order in which they are tried.
const (
	LevelNormal     Level = "normal"
	LevelAggressive Level = "aggressive"
	// LevelFallback is made without a model, by cutting; it is repaired when
	// a model answers again.
	LevelFallback Level = "fallback"
)

// Summary stands in the frontier for the messages it was made from. What was
// said and what came from outside are never mixed: External is a text of its
// own, framed apart.
type Summary struct {
	ID       SummaryID        `json:"id"`
	Session  SessionID        `json:"session_id"`
	Depth    int              `json:"depth"`
	Text     string           `json:"text"`
	External boundary.Content `json:"external,omitzero"`
	// Tokens is the cost of the summary as it is shown.
	Tokens int `json:"tokens"`
	// Earliest and Latest are the times of the first and last message it
	// stands for; Descendants is their number.
	Earliest    time.Time `json:"earliest_at"`
	Latest      time.Time `json:"latest_at"`
	Descendants int       `json:"descendants"`
	// Trust is the least of what the summary was made from.
	Trust     Trust     `json:"trust"`
	Level     Level     `json:"level"`
	Model     string    `json:"model"`
	CreatedAt time.Time `json:"created_at"`
}

// Shown returns the summary as the model sees it. It is ShownIn
// boundary.ModeDelimit, by which Tokens are counted.
func (s Summary) Shown() string { return s.ShownIn(boundary.ModeDelimit) }

// ShownIn is Shown with External framed in the mode of a prompt.
func (s Summary) ShownIn(mode boundary.Mode) string {
	var b strings.Builder
	b.WriteString("[Summary " + s.ID.String() + " of " + plural(s.Descendants, "earlier message") + ", " +
		s.Earliest.UTC().Format(time.RFC3339) + " to " + s.Latest.UTC().Format(time.RFC3339) + "]\n")
	b.WriteString(s.Text)
	if !s.External.IsEmpty() {
		b.WriteString("\n" + mode.Render(s.External))
	}
	return b.String()
}

// NewSummary is a summary before it is stored. The caller chooses the id,
// because the frame of External names it.
type NewSummary struct {
	ID SummaryID
	// Messages or Summaries is the run it replaces: neighbours in the
	// frontier, in order, at least one. Messages make a leaf, of depth 0;
	// summaries are all of one depth and make one of the depth above.
	Messages  []MessageID
	Summaries []SummaryID
	SummaryText
	At time.Time
}

// SummaryText is what a summary says and how that was made.
type SummaryText struct {
	Text     string
	External boundary.Content
	Level    Level
	Model    string
}

// Item is one place of a frontier: a message or a summary.
type Item struct {
	Message *Message
	Summary *Summary
}

// Tokens is what the item costs as it is shown. An empty one costs nothing.
func (i Item) Tokens() int {
	switch {
	case i.Message != nil:
		return i.Message.Tokens
	case i.Summary != nil:
		return i.Summary.Tokens
	}
	return 0
}

// Frontier is what the model is shown of a session: messages and summaries in
// the order of the conversation, each message covered exactly once.
type Frontier struct {
	// Revision proves what was read. It changes when a run is replaced, not
	// when a message is appended.
	Revision Revision
	Items    []Item
}

// Tokens is the sum over all items.
func (f Frontier) Tokens() int {
	sum := 0
	for _, item := range f.Items {
		sum += item.Tokens()
	}
	return sum
}

// Revision names one state of one session's frontier. Only a store makes one,
// by NewRevision; a caller gets it by reading a Frontier and gives it back.
type Revision struct {
	session SessionID
	number  int64
}

// NewRevision is for stores.
func NewRevision(session SessionID, number int64) Revision { return Revision{session, number} }

// Session returns the session whose frontier was read.
func (r Revision) Session() SessionID { return r.session }

// Number returns the number that the store gave it.
func (r Revision) Number() int64 { return r.number }

// Trigger is what set a compaction off.
type Trigger string

// The triggers.
const (
	TriggerCadence Trigger = "cadence"
	TriggerGap     Trigger = "gap"
	// TriggerThreshold is a prompt that came near the window.
	TriggerThreshold Trigger = "threshold"
	// TriggerManual is somebody's command.
	TriggerManual Trigger = "manual"
)

// Outcome is how a compaction run ended.
type Outcome string

// The outcomes. A run of OutcomeDone may still have changed nothing: see its
// counts.
const (
	OutcomeDone    Outcome = "done"
	OutcomeSkipped Outcome = "skipped"
	OutcomeFailed  Outcome = "failed"
)

// CompactionRun is one row of the record of compactions. Reason and Failures
// are in the host's own words.
type CompactionRun struct {
	Session SessionID `json:"session_id"`
	Agent   AgentID   `json:"agent_id"`
	Trigger Trigger   `json:"trigger"`
	Outcome Outcome   `json:"outcome"`
	// Reason says why a run was skipped or failed.
	Reason       string `json:"reason,omitempty"`
	ItemsBefore  int    `json:"items_before"`
	ItemsAfter   int    `json:"items_after"`
	TokensBefore int    `json:"tokens_before"`
	TokensAfter  int    `json:"tokens_after"`
	// Summaries is how many were written; RefreshBlocks and RefreshTokens
	// tell of the refresh, RefreshSkipped of sources that had no part in it.
	Summaries      int           `json:"summaries"`
	RefreshBlocks  int           `json:"refresh_blocks"`
	RefreshTokens  int           `json:"refresh_tokens"`
	RefreshSkipped int           `json:"refresh_skipped"`
	StartedAt      time.Time     `json:"started_at"`
	Took           time.Duration `json:"took_ns"`
}

// ValidName reports whether name can be a user's or an agent's.
func ValidName(name string) bool {
	if len(name) == 0 || len(name) > 63 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return false
		}
	}
	return true
}

// maxYear is the last that RFC 3339 can write, in UTC.
const maxYear = 9999

// Check returns an error matching ErrInvalid that says what breaks the rules
// of a draft. Stores call it before they write.
func (d Draft) Check() error {
	switch {
	case d.Role != RoleUser && d.Role != RoleAssistant && d.Role != RoleSystem && d.Role != RoleTool:
		return invalid("role " + quote(string(d.Role)) + " is not one of user, assistant, system, tool")
	case !d.Source.known():
		return invalid("source " + quote(string(d.Source)) + " is unknown")
	case d.Trust != "" && d.Trust != TrustDirect && d.Trust != TrustDerived && d.Trust != TrustExternal:
		return invalid("trust " + quote(string(d.Trust)) + " is not one of direct, derived, external")
	case len(d.EventKey) > MaxEventKey || !utf8.ValidString(d.EventKey) || strings.Contains(d.EventKey, "\x00"):
		return invalid("an event key is at most " + plural(MaxEventKey, "byte") + " of UTF-8 without NUL")
	case len(d.Blocks) == 0:
		return invalid("a message needs at least one block")
	case !d.At.IsZero() && (d.At.UTC().Year() < 1 || d.At.UTC().Year() > maxYear):
		return invalid("a time of the year " + strconv.Itoa(d.At.UTC().Year()) + " cannot be written")
	case d.At.IsZero():
		return invalid("a message needs a time")
	case d.Trust == TrustExternal && d.saysOnlyItself():
		return invalid("a message with the trust external has its words in plain blocks: what is external stands in external blocks, which frame it")
	}
	for _, run := range d.Runs {
		if run.Trigger != TriggerCadence && run.Trigger != TriggerThreshold {
			return invalid("trigger " + quote(string(run.Trigger)) + " makes no run due with a message")
		}
		if run.Every < 0 || run.Budget < 0 || run.System < 0 {
			return invalid("a run that is due has numbers that are not negative")
		}
	}
	return nil
}

// saysOnlyItself reports whether the draft has words, and none of them external.
func (d Draft) saysOnlyItself() bool {
	words := false
	for _, b := range d.Blocks {
		if !b.External.IsEmpty() {
			return false
		}
		words = words || strings.TrimSpace(b.Text) != ""
	}
	return words
}

// Sealed returns the draft's trust after looking at its blocks.
func (d Draft) Sealed() Trust {
	for _, b := range d.Blocks {
		if !b.External.IsEmpty() {
			return TrustExternal
		}
	}
	switch {
	case d.Trust == TrustExternal:
		return TrustExternal
	case d.Trust == TrustDerived, d.Source == SourceInterSession, d.Source == SourceTaskCompletion:
		return TrustDerived
	}
	return TrustDirect
}

// ImageTokens is what an image costs beside the words that stand for it, whatever
// its size: about as many as the largest that a provider does not scale down.
const ImageTokens = 1600

// Count estimates what blocks cost in a prompt.
func Count(blocks []Block) int {
	count := tokens.Estimate(Shown(blocks))
	for i := range blocks {
		if blocks[i].Type == BlockImage {
			count += ImageTokens
		}
	}
	return count
}
