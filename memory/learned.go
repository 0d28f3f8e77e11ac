package memory

import "time"

// Learned is one thing that somebody said of themselves or their work, in the
// words of whoever extracted it, and where they said it.
type Learned struct {
	// Text is one line of at most MaxTopicContent bytes.
	Text string `json:"text"`
	// Sources are messages of the source user that say so; at least one.
	Sources []MessageID `json:"message_ids,omitempty"`
}

// Learnings is what is to be remembered of a run of messages.
type Learnings struct {
	Facts       []Learned `json:"facts"`
	Preferences []Learned `json:"preferences"`
	Decisions   []Learned `json:"decisions"`
	Tasks       []Learned `json:"tasks"`
	OpenItems   []Learned `json:"open_items"`
}

// Len counts all that was learned.
func (l Learnings) Len() int {
	return len(l.Facts) + len(l.Preferences) + len(l.Decisions) + len(l.Tasks) + len(l.OpenItems)
}

// Extraction is what was learned from a part of one session, which may have gone
// since. It is also the record that something was.
type Extraction struct {
	ID      ExtractionID `json:"id"`
	Agent   AgentID      `json:"agent_id"`
	Session SessionID    `json:"session_id"`
	// SessionDeleted says that the session has gone.
	SessionDeleted bool `json:"session_deleted"`
	// What a deleted topic was learned from keeps its place in the lists, with
	// neither Text nor Sources: the counts stay.
	Learnings
	CreatedAt time.Time `json:"created_at"`
	// MergedAt is when a dream took it into the topics; zero if none did yet.
	MergedAt time.Time `json:"merged_at,omitzero"`
}

// NewExtraction is an extraction before it is stored.
type NewExtraction struct {
	Session SessionID
	// Seen are the places of the messages that were looked at, whether anything
	// was learned from them or not.
	Seen []SeqRange
	Learnings
	At time.Time
}

// SeqRange is the messages of a session from First to Last, by Seq.
type SeqRange struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// ExtractionQuery selects extractions of one user, oldest first.
type ExtractionQuery struct {
	// Agent, if not zero, keeps those of sessions with that agent.
	Agent AgentID
	// Pending keeps those that no dream has merged yet.
	Pending bool
	// After leaves out those up to the one with that ID.
	After ExtractionID
	// Limit bounds the answer; 0 means no bound.
	Limit int
}

// Unseen counts what no extraction and no dream has looked at.
type Unseen struct {
	Messages int `json:"messages"`
	Tokens   int `json:"tokens"`
	// ToolResults counts messages of role tool, UserMessages those of
	// Session.UserMessages.
	ToolResults  int `json:"tool_results"`
	UserMessages int `json:"user_messages"`
}

// IdleSession is a session that a dream is due for: its user has said something
// in it that no dream has merged, and it has rested since LastActive.
type IdleSession struct {
	User       UserID
	Agent      AgentID
	Session    SessionID
	LastActive time.Time
}

// The bounds of topics.
const (
	// MaxTopicName is the most bytes of a topic's name, MaxTopicContent of what
	// one says.
	MaxTopicName    = 200
	MaxTopicContent = 2000
	// MaxTopicSources is the most messages that one names.
	MaxTopicSources = 64
)

// TopicName returns the form in which a topic's name is stored and found: one
// line in lower case, in Unicode's form C, with single spaces and no control
// characters. Names that the control API uses itself, audit, export and import,
// get "-topic" behind them. The error wraps ErrInvalid: nothing is left, or more
// than MaxTopicName bytes.
func TopicName(name string) (string, error) {
	return name, nil
}

// Topic is one thing that is remembered of a user, under the name of what it is
// about: several may share a name. It is bi-temporal: from ValidFrom it held until
// another took its place or it expired, and it was stored at UpdatedAt.
type Topic struct {
	ID TopicID `json:"id"`
	// Agent is set if it is of the user with that agent alone.
	Agent AgentID `json:"agent_id,omitzero"`
	// Name is as TopicName has it; Content is one line.
	Name    string `json:"topic"`
	Content string `json:"content"`
	// ValidFrom is since when it is known, ExpiresAt until when it holds, zero if
	// that is open.
	ValidFrom time.Time `json:"valid_from"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// SupersededBy names what took its place.
	SupersededBy TopicID   `json:"superseded_by,omitzero"`
	UpdatedAt    time.Time `json:"updated_at"`
	// Sources are the messages that it was learned from; they may have gone
	// since. One that the user wrote into the memory has none.
	Sources []MessageID `json:"message_ids,omitempty"`
}

// ValidAt reports whether nothing had taken the place of t, and it had not
// expired. Topics tells the same of any instant.
func (t Topic) ValidAt(at time.Time) bool {
	return t.SupersededBy.IsZero() && !t.ValidFrom.After(at) && (t.ExpiresAt.IsZero() || t.ExpiresAt.After(at))
}

// TopicQuery selects topics of one user, by name and then by ValidFrom.
type TopicQuery struct {
	// Agent selects the topics of the user with that agent; zero those of the
	// user with every agent.
	Agent AgentID
	// Name, if not "", keeps those of that name.
	Name string
	// At keeps those that held at that instant; the zero time means all, what was
	// superseded and what has expired included.
	At time.Time
	// Limit bounds the answer; 0 means no bound.
	Limit int
}

// TopicRevision names one state of all topics of one user. Only a store makes one,
// by NewTopicRevision; a caller gets it by reading and gives it back.
type TopicRevision struct {
	user   UserID
	number int64
}

// NewTopicRevision is for stores.
func NewTopicRevision(user UserID, number int64) TopicRevision { return TopicRevision{user, number} }

// User returns whose topics were read.
func (r TopicRevision) User() UserID { return r.user }

// Number returns the number that the store gave it.
func (r TopicRevision) Number() int64 { return r.number }

// Dream is what became of extractions and messages: all of it is stored or none.
type Dream struct {
	Agent AgentID
	// Extractions are those that were merged.
	Extractions []ExtractionID
	// Session and Seen are the messages that were looked at beside them, if any.
	Session SessionID
	Seen    []SeqRange
	Topics  []NewTopic
	At      time.Time
}

// NewTopic is a topic before it is stored.
type NewTopic struct {
	// OfAgent says that it is of the user with the agent of the dream alone.
	OfAgent bool
	Name    string
	Content string
	// ValidFrom may be zero for the time of the dream.
	ValidFrom, ExpiresAt time.Time
	// Supersedes are topics of the user, or of the user with the agent, that hold
	// no more from ValidFrom on. Nothing else is retired.
	Supersedes []TopicID
	Sources    []MessageID
}

// PendingRun is a run of compaction that was begun in the background and is not
// over.
type PendingRun struct {
	User      UserID
	Agent     AgentID
	Session   SessionID
	Trigger   Trigger
	Exchanges int
	At        time.Time
}
