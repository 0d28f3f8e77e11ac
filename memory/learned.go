package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Learned is one thing that somebody said of themselves or their work, in the
// words of whoever extracted it, and where they said it.
type Learned struct {
	// Text is as TopicContent has it.
	Text string `json:"text"`
	// Sources are messages of the source user that say so; at least one.
	Sources []MessageID `json:"message_ids,omitempty"`
}

// Learnings is what is to be remembered of a run of messages: at most MaxLearned
// things.
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

// lists are those of l, with their names.
func (l *Learnings) lists() [5]struct {
	name  string
	items *[]Learned
} {
	return [...]struct {
		name  string
		items *[]Learned
	}{{"facts", &l.Facts}, {"preferences", &l.Preferences}, {"decisions", &l.Decisions}, {"tasks", &l.Tasks}, {"open_items", &l.OpenItems}}
}

// Canonical returns l in the form in which it is stored: texts as TopicContent
// has them, sources once each, lists that are empty and not nil. The error wraps
// ErrInvalid and names the item: its text is out of form, it has no source, one of
// no ID or more than MaxTopicSources, or l has more than MaxLearned items.
func (l Learnings) Canonical() (Learnings, error) { return l.canonical(false) }

// Kept is Canonical for what was stored once: an item may be blank, as Extraction
// says, and its sources may be unknown.
func (l Learnings) Kept() (Learnings, error) { return l.canonical(true) }

func (l Learnings) canonical(kept bool) (Learnings, error) {
	if n := l.Len(); n > MaxLearned {
		return Learnings{}, invalid("of one run at most " + strconv.Itoa(MaxLearned) + " things are learned, not " + strconv.Itoa(n))
	}
	for _, list := range l.lists() {
		canonical := make([]Learned, 0, len(*list.items))
		for i, item := range *list.items {
			one, err := item.canonical(kept)
			if err != nil {
				return Learnings{}, fmt.Errorf("%s %d: %w", list.name, i+1, err)
			}
			canonical = append(canonical, one)
		}
		*list.items = canonical
	}
	return l, nil
}

func (l Learned) canonical(kept bool) (Learned, error) {
	if kept && l.Text == "" && len(l.Sources) == 0 {
		return Learned{}, nil
	}
	text, err := TopicContent(l.Text)
	if err != nil {
		return Learned{}, err
	}
	if len(l.Sources) == 0 && !kept {
		return Learned{}, invalid("it names no message that says so")
	}
	sources, err := distinctSources(l.Sources)
	return Learned{Text: text, Sources: sources}, err
}

// distinctSources returns sources in their order, each once; nil if there are
// none.
func distinctSources(sources []MessageID) ([]MessageID, error) {
	if len(sources) > MaxTopicSources {
		return nil, invalid("it names more than " + strconv.Itoa(MaxTopicSources) + " messages")
	}
	var distinct []MessageID
	for _, id := range sources {
		if id.IsZero() {
			return nil, invalid("it names a message without an id")
		}
		if !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	return distinct, nil
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
	// MergedAt is when a dream took it into the topics; zero if none did yet. One
	// of which nothing is to be remembered, or nothing any more, waits for no dream:
	// it counts as merged when it was made.
	MergedAt time.Time `json:"merged_at,omitzero"`
}

// NewExtraction is an extraction before it is stored.
type NewExtraction struct {
	Session SessionID
	// Seen are the places of the messages that were looked at, whether anything
	// was learned from them or not; at least one. Their order does not matter.
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
	// After leaves out those up to the one with that ID; none if it has gone.
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

// DueQuery says for which session a dream is wanted next.
type DueQuery struct {
	// Agents are those whose sessions count.
	Agents []AgentID
	// IdleSince is before which the session was last active.
	IdleSince time.Time
	// After is the user whose turn it was last; zero begins with the first.
	After UserID
	// Except are sessions that are left alone.
	Except []SessionID
}

// The bounds of topics.
const (
	// MaxTopicName is the most bytes of a topic's name, MaxTopicContent of what
	// one says.
	MaxTopicName    = 200
	MaxTopicContent = 2000
	// MaxTopicSources is the most messages that one names, and that one thing that
	// was learned does.
	MaxTopicSources = 64
	// MaxLearned is the most things of one extraction.
	MaxLearned = 4096
)

// TopicName returns the form in which a topic's name is stored and found: one
// line in lower case, in Unicode's form C, with single spaces, no characters that
// control or are not seen, and no byte that is not UTF-8. Names that the control
// API uses itself, audit, export and import, and those that no path can hold, "."
// and "..", get "-topic" behind them. A name in this form stays as it is. The error
// wraps ErrInvalid: nothing is left, or more than MaxTopicName bytes. It takes
// linear time.
func TopicName(name string) (string, error) {
	canonical := oneLine(name, MaxTopicName)
	// Composed first: some letters have a lower case only as one character.
	canonical = norm.NFC.String(strings.ToLower(norm.NFC.String(canonical)))
	switch canonical {
	case "":
		return "", invalid("a topic needs a name")
	case "audit", "export", "import", ".", "..":
		canonical += "-topic"
	}
	if len(canonical) > MaxTopicName {
		return "", invalid("a topic's name has at most " + strconv.Itoa(MaxTopicName) + " bytes")
	}
	return canonical, nil
}

// TopicContent returns the form in which what a topic says is stored, and what was
// learned: one line with single spaces, without characters that control or are not
// seen. Bytes that are not UTF-8 become U+FFFD. A content in this form stays as it
// is. The error wraps ErrInvalid: nothing is left, or more than MaxTopicContent
// bytes. It takes linear time.
func TopicContent(text string) (string, error) {
	canonical := oneLine(text, MaxTopicContent)
	switch {
	case canonical == "":
		return "", invalid("it says nothing")
	case len(canonical) > MaxTopicContent:
		return "", invalid("it says more than " + strconv.Itoa(MaxTopicContent) + " bytes")
	}
	return canonical, nil
}

// oneLine makes one line of text. It may stop early where that has become much
// longer than limit: composed, a text is shorter, but not by so much.
func oneLine(text string, limit int) string {
	var line strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = line.Len() > 0
			continue
		case isUnseen(r):
			continue
		case line.Len() > 16*limit:
			return line.String()
		}
		if space {
			line.WriteByte(' ')
			space = false
		}
		// A byte that is not UTF-8 comes as U+FFFD.
		line.WriteRune(r)
	}
	if strings.Trim(line.String(), string([]rune{nonJoiner, joiner})) == "" {
		return ""
	}
	return line.String()
}

// Characters that are not seen, but that letters and emoji need.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// isUnseen reports whether r controls how others are shown, or is not shown
// itself; not the joiners.
func isUnseen(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf) && r != nonJoiner && r != joiner
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
	// SupersededBy names what took its place, at SupersededAt: since then that
	// holds, and this one does not.
	SupersededBy TopicID   `json:"superseded_by,omitzero"`
	SupersededAt time.Time `json:"superseded_at,omitzero"`
	UpdatedAt    time.Time `json:"updated_at"`
	// Sources are the messages that it was learned from; they may have gone
	// since. One that the user wrote into the memory has none.
	Sources []MessageID `json:"message_ids,omitempty"`
}

// ValidAt reports whether t held at that instant: it was known, nothing had taken
// its place, and it had not expired. TopicQuery.At selects by the same rule.
func (t Topic) ValidAt(at time.Time) bool {
	return !t.ValidFrom.After(at) && (t.SupersededBy.IsZero() || t.SupersededAt.After(at)) && (t.ExpiresAt.IsZero() || t.ExpiresAt.After(at))
}

// TopicQuery selects topics of one user, by name and then by ValidFrom.
type TopicQuery struct {
	// Agent selects the topics of the user with that agent; zero those of the
	// user with every agent.
	Agent AgentID
	// Name, if not "", keeps those of the name that TopicName makes of it.
	Name string
	// At keeps those that held at that instant; the zero time means all, what was
	// superseded and what has expired included.
	At time.Time
	// Limit bounds the answer; 0 means no bound.
	Limit int
	// Latest, if not 0, keeps that many, which were learned last, without their
	// Sources: what a prompt has room for.
	Latest int
	// Names, if not 0, keeps the topics of that many names, without their Sources: what
	// a list has room for. SkipNames is how many names of what Agent, Name and At select
	// stand before them; the cost depends on those and on what is returned, not on what
	// comes after. Below 0 both are 0, and without Names SkipNames is.
	Names, SkipNames int
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
	// Extractions are those that were merged, of sessions with the agent.
	Extractions []ExtractionID
	// Session and Seen are the messages that were looked at beside them, if any.
	Session SessionID
	Seen    []SeqRange
	Topics  []NewTopic
	// Retired are of the user, or of the user with the agent, as what Topics
	// supersede.
	Retired []Retirement
	At      time.Time
}

// Retirement has a topic hold no more because of another that was stored before: it
// was said again, and this time what it contradicts was named.
type Retirement struct {
	Topic TopicID
	// By takes the place of Topic, from its own ValidFrom on.
	By TopicID
}

// NewTopic is a topic before it is stored.
type NewTopic struct {
	// OfAgent says that it is of the user with the agent of the dream alone.
	OfAgent bool
	// Name is stored as TopicName has it, Content as TopicContent has it.
	Name    string
	Content string
	// ValidFrom may be zero for the time of the dream. One that expires before that
	// never holds, and takes the place of others all the same.
	ValidFrom, ExpiresAt time.Time
	// Supersedes are topics of the user, or of the user with the agent, that hold
	// no more from ValidFrom on. Nothing else is retired. One that something took
	// the place of before keeps that: the first does, so that of one topic several
	// can be made.
	Supersedes []TopicID
	// Sources are messages of the source user, at most MaxTopicSources, that say
	// so. They may have gone, if an extraction of the dream or an earlier topic
	// names them.
	Sources []MessageID
}

// Canonical returns t as it is stored by something that happens at that time. The
// error wraps ErrInvalid: a name, a content or a time is out of form, or a source
// is.
func (t NewTopic) Canonical(at time.Time) (NewTopic, error) {
	var err error
	if t.Name, err = TopicName(t.Name); err != nil {
		return NewTopic{}, err
	}
	fail := func(err error) (NewTopic, error) {
		return NewTopic{}, fmt.Errorf("topic %q: %w", t.Name, err)
	}
	if t.Content, err = TopicContent(t.Content); err != nil {
		return fail(err)
	}
	if t.Sources, err = distinctSources(t.Sources); err != nil {
		return fail(err)
	}
	if t.ValidFrom.IsZero() {
		t.ValidFrom = at
	}
	for _, instant := range []time.Time{t.ValidFrom, t.ExpiresAt} {
		if year := instant.UTC().Year(); year < 1 || year > maxYear {
			return fail(invalid("a time of the year " + strconv.Itoa(year) + " cannot be written"))
		}
	}
	return t, nil
}

// PendingRun is a run of compaction in the background that is due or was begun, and
// is not over.
type PendingRun struct {
	User      UserID
	Agent     AgentID
	Session   SessionID
	Trigger   Trigger
	Exchanges int
	// Budget is what a whole prompt may cost, and System what the system text costs
	// of it, in tokens, where the run makes room for prompts; else 0.
	Budget, System int
	At             time.Time
}
