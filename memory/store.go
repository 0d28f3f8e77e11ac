package memory

import (
	"context"
	"iter"
	"time"
)

// SessionQuery selects sessions of one user. The zero value selects all.
type SessionQuery struct {
	// Agent, if not zero, keeps the sessions with that agent.
	Agent AgentID
	// WithUser keeps the sessions in which the user has said something.
	WithUser bool
	// Name, if not empty, keeps the session of that name.
	Name string
	// Limit bounds the answer; 0 means no bound.
	Limit int
}

// MessageQuery selects messages of one session, in order.
type MessageQuery struct {
	// After leaves out the messages up to that Seq.
	After int64
	// Limit bounds the answer; 0 means no bound.
	Limit int
	// EventKey, if not empty, leaves out the messages without that key. Only
	// Messages heeds it.
	EventKey string
}

// Store keeps everything. It is safe for concurrent use; readers never wait for
// a writer. All times it returns are UTC, to the microsecond. Texts are UTF-8:
// other bytes become U+FFFD, and nothing else changes, NUL included; a write
// returns what a later read will. Names and ids are ordered by bytes, whatever
// the machine's language. A call whose context ends fails with the context's
// error; whether a write was stored is then open. An error wraps one of the
// package's errors where its comment says so, else it tells of the machine.
type Store interface {
	// DefaultUser returns the user that exists from the first open on.
	DefaultUser(ctx context.Context) (User, error)
	// Users returns all users, the default one first, then by name.
	Users(ctx context.Context) ([]User, error)
	// PutUser creates the user, or renames the one that has its ID. IsDefault
	// and CreatedAt of an existing user stay as they are; a new one cannot be
	// the default user (ErrInvalid). Errors: ErrInvalid for a name out of
	// form or a zero ID, ErrConflict for a name that another user has.
	PutUser(ctx context.Context, u User) error

	// PutAgent creates the agent or, if the name exists, stores the manifest
	// in it.
	PutAgent(ctx context.Context, name, manifest string, at time.Time) (Agent, error)
	// Agents returns all agents by name.
	Agents(ctx context.Context) ([]Agent, error)

	// CreateSession creates a session from Agent, User, Parent, Title and
	// CreatedAt of s; ID is made if zero. Errors: ErrNotFound if user, agent
	// or parent (of the same user) does not exist; ErrConflict if the ID does;
	// ErrInvalid without CreatedAt.
	CreateSession(ctx context.Context, s Session) (Session, error)
	// NameSession gives a session its name, which no other of the user's sessions has
	// any more; "" takes it away. Names are compared by bytes. CreateSession gives
	// none. Errors: ErrNotFound; ErrWiped; ErrInvalid for a name that ValidSessionName
	// refuses.
	NameSession(ctx context.Context, user UserID, id SessionID, name string) error
	// Fork creates a session of the same user and agent whose Parent is id, CreatedAt
	// at, and that begins with the messages of it up to and with number last: the same
	// words, times, sources, trust and digests, in rows of its own, without their event
	// keys. Blocks keep their bytes, but that they name files of the fork's own. What
	// the model is shown of them is what it is shown of them in the parent, summaries
	// that stand for no later message included; one that stands for messages on both
	// sides of last is open into its sources. The title comes along, a name does not.
	// They count as looked at: what there is to learn from them is learned from the
	// parent. When that is deleted, the fork stays whole. All of it is stored or none.
	// Last of 0 forks off nothing but the parent's name in Parent. Errors: ErrNotFound;
	// ErrWiped; ErrInvalid for a last that the session does not have, or without a time.
	Fork(ctx context.Context, user UserID, id SessionID, last int64, at time.Time) (Session, error)
	// Places returns where the user's sessions with the agent have that digest: those
	// that are Last first, then the session that was active last, ties by id, newest
	// first; at most limit. The zero digest has no place. The cost depends on how many
	// sessions of all users have it. Errors: ErrInvalid for a limit of 0 or less.
	Places(ctx context.Context, user UserID, agent AgentID, digest Digest, limit int) ([]Place, error)
	// Session returns one session. Errors: ErrNotFound.
	Session(ctx context.Context, user UserID, id SessionID) (Session, error)
	// Sessions returns the user's sessions, the last active first; ties by id,
	// newest first.
	Sessions(ctx context.Context, user UserID, q SessionQuery) ([]Session, error)
	// LastActivity returns the latest LastActive of the user's sessions with
	// the agent that a message of activity gave them; zero if none did. A session
	// in which nothing was said since it was made, such as a new fork, tells
	// nothing of its user.
	LastActivity(ctx context.Context, user UserID, agent AgentID) (time.Time, error)

	// Append adds the drafts at the end of the session and of its frontier,
	// all or none, and returns them as stored, in order. A draft whose
	// EventKey is already stored adds nothing: the stored message is returned
	// in its place. Errors: ErrNotFound; ErrInvalid for a draft that Check
	// refuses, a block that cannot be encoded or names a file that the session
	// does not have, and for SourceContextInjection, which only Inject may
	// write.
	Append(ctx context.Context, user UserID, session SessionID, drafts ...Draft) ([]Message, error)
	// Inject adds one context refresh at the end. Errors: ErrNotFound;
	// ErrInvalid if no block has text.
	Inject(ctx context.Context, user UserID, session SessionID, i Injection) (Message, error)
	// Ingest adds what is new of a transcript that may have been stored before,
	// whole or from any place on: the longest beginning of drafts that equals the
	// end of what is stored, by role and blocks, adds nothing, nor do two or more
	// drafts that all equal the beginning of what is stored, nor does a draft
	// whose EventKey is stored. Context injections do not count as stored; the
	// ids in the frames of external text make no difference, nor does it that a
	// large block was moved to a file. It returns the messages that were added.
	// Two equal messages said one after the other are two. Errors: as Append.
	Ingest(ctx context.Context, user UserID, session SessionID, drafts ...Draft) ([]Message, error)
	// Message returns one message. Errors: ErrNotFound.
	Message(ctx context.Context, user UserID, id MessageID) (Message, error)
	// Messages returns messages by Seq. Errors: ErrNotFound for the session.
	Messages(ctx context.Context, user UserID, session SessionID, q MessageQuery) ([]Message, error)

	// Frontier returns what the model is shown. Errors: ErrNotFound.
	Frontier(ctx context.Context, user UserID, session SessionID) (Frontier, error)
	// FrontierTail returns the last items of the frontier, as Frontier has them,
	// and what stands before them: the fewest that have the given number of
	// tokens together, as stored; all if the frontier has less, none for a number
	// of 0 or less. It begins earlier, by MaxTailReach items at the most, where
	// TailStart has it so: a tool's result has its call with it. The
	// cost depends on what is returned, not on what stands before that. The
	// revision is Frontier's. Errors: ErrNotFound.
	FrontierTail(ctx context.Context, user UserID, session SessionID, tokens int) (tail Frontier, older FrontierRest, err error)
	// CommitSummary replaces a run of the frontier by its summary, in the
	// transaction that writes the summary. Errors: ErrNotFound; ErrConflict if
	// the frontier was replaced since r was read, or the summary's ID is taken;
	// ErrInvalid if the run is not made of neighbours of one depth, or the
	// summary has no ID, no time or no run, or both kinds of run.
	CommitSummary(ctx context.Context, user UserID, r Revision, s NewSummary) (Summary, error)
	// RepairSummary gives a summary of LevelFallback another text. Its place,
	// sources and time stay. Errors: ErrNotFound; ErrConflict if the summary is
	// not of LevelFallback any more, or the frontier was replaced since r was
	// read; ErrInvalid if the text is of LevelFallback itself.
	RepairSummary(ctx context.Context, user UserID, r Revision, id SummaryID, text SummaryText) (Summary, error)
	// Summaries returns all summaries of the session, in the order in which
	// they were made. Errors: ErrNotFound.
	Summaries(ctx context.Context, user UserID, session SessionID) ([]Summary, error)
	// Summary returns one summary and the one that it was condensed into; the
	// zero ID if none. Errors: ErrNotFound.
	Summary(ctx context.Context, user UserID, id SummaryID) (s Summary, parent SummaryID, err error)
	// Sources returns what a summary was made from, in order: messages, or
	// summaries of the depth below. Errors: ErrNotFound.
	Sources(ctx context.Context, user UserID, id SummaryID) ([]Item, error)
	// Expand returns the messages that a summary stands for, whatever its
	// depth, by Seq. Errors: ErrNotFound.
	Expand(ctx context.Context, user UserID, id SummaryID, q MessageQuery) ([]Message, error)

	// SearchWords returns the messages that hold one of the words, or stand
	// beside one that does: the best first by Own + Near/2, ties by time, the
	// latest first, then by ID. What was stored before the call is found; only
	// while a store indexes much at once, after a session was deleted or a
	// database was taken over, may it look at the newest alone for a while.
	// Errors: ErrInvalid for a query out of bounds.
	SearchWords(ctx context.Context, user UserID, q WordQuery) (WordHits, error)
	// SearchSummaries does the same for summaries, by Score.
	SearchSummaries(ctx context.Context, user UserID, q WordQuery) ([]SummaryHit, error)
	// Texts visits what the user's messages, summaries and files say, the
	// latest first, until visit returns false. A summary's time is that of the
	// last message it stands for, a file's that of the message it came with.
	// What is stored or removed meanwhile may be visited or not.
	Texts(ctx context.Context, user UserID, q TextQuery, visit func(StoredText) bool) error

	// Files returns the files of a session, in the order in which they came.
	// Errors: ErrNotFound for the session.
	Files(ctx context.Context, user UserID, session SessionID) ([]File, error)
	// File returns one file and the block that it was made from, as it came.
	// Errors: ErrNotFound.
	File(ctx context.Context, user UserID, id FileID) (File, Block, error)

	// RecordCompaction adds one row to the record. Errors: ErrNotFound, also
	// for an agent that is not the session's.
	RecordCompaction(ctx context.Context, user UserID, run CompactionRun) error
	// Compactions returns the last limit rows of the session's record, oldest first;
	// zero means all. Errors: ErrNotFound, ErrInvalid for a negative limit.
	Compactions(ctx context.Context, user UserID, session SessionID, limit int) ([]CompactionRun, error)

	// PutPendingRun records that a run is due or has begun, as Append does for those
	// of a Draft. A session has at most one of a trigger: a later one takes the place
	// of the earlier, and its place in the order of NextPendingRun; if its time is
	// before that of the earlier, it is due a microsecond after that. Errors:
	// ErrNotFound, also for an agent that is not the session's; ErrWiped; ErrInvalid
	// for a trigger that is unknown, and without a time.
	PutPendingRun(ctx context.Context, run PendingRun) error
	// EndPendingRun records that a run is over which was due at the time until. One
	// that became due since then stays. To end none is no error.
	EndPendingRun(ctx context.Context, user UserID, session SessionID, trigger Trigger, until time.Time) error
	// NextPendingRun returns one run of the user who comes after the given one in the
	// order of their ids, of those who have any and are not being wiped: the one that
	// was due first. The zero user is before all. Who asks again with the user of the
	// answer, and with the zero user after ErrNotFound, goes round: each user has one
	// turn in a round. The cost depends neither on how many are due nor on how many
	// users there are. Errors: ErrNotFound if no such user comes after.
	NextPendingRun(ctx context.Context, after UserID) (PendingRun, error)
	// PendingRuns returns the runs of all users that are not over, by At: a process
	// that died leaves them. It is for tests and for looking at a small store.
	PendingRuns(ctx context.Context) ([]PendingRun, error)

	// UnseenMessages returns the messages of a session that no extraction and no
	// dream has looked at, by Seq. Errors: ErrNotFound.
	UnseenMessages(ctx context.Context, user UserID, session SessionID, q MessageQuery) ([]Message, error)
	// Unseen counts them. The cost depends on what is unseen, not on what was
	// seen. Errors: ErrNotFound.
	Unseen(ctx context.Context, user UserID, session SessionID) (Unseen, error)
	// CommitExtraction stores what was learned and, in the same transaction, that
	// the messages of Seen were looked at. Errors: ErrNotFound; ErrConflict if one
	// of them was already, by somebody else; ErrWiped; ErrInvalid for no range or
	// one that the session does not have, for what Learnings.Canonical refuses, or
	// a source that is not a message of the source user in that session.
	CommitExtraction(ctx context.Context, user UserID, x NewExtraction) (Extraction, error)
	// Extractions returns what was learned, oldest first. Who is not known has
	// nothing.
	Extractions(ctx context.Context, user UserID, q ExtractionQuery) ([]Extraction, error)
	// IdleSessions returns up to limit sessions with the given agents for which a
	// dream is due: they were last active before idleSince, and hold a user's
	// message that was not looked at, or have an extraction that is pending. Those
	// that have rested longest come first; users who are being wiped are left out.
	// A limit of 0 means no bound. The cost depends on what is due, not on how many
	// sessions there are.
	IdleSessions(ctx context.Context, agents []AgentID, idleSince time.Time, limit int) ([]IdleSession, error)
	// NextIdleSession returns one session of IdleSessions, as NextPendingRun returns
	// one run: of the next user, the session in which there was something to learn
	// first. What it costs more than that are the sessions in between which have not
	// rested yet, or are not wanted. Errors: ErrNotFound if no such user comes after.
	NextIdleSession(ctx context.Context, q DueQuery) (IdleSession, error)

	// Topics returns what is remembered of a user, and the revision that was read.
	// Who is not known has nothing.
	Topics(ctx context.Context, user UserID, q TopicQuery) ([]Topic, TopicRevision, error)
	// CommitDream stores topics, retires what they supersede, and records that the
	// extractions were merged and the messages looked at, in one transaction.
	// Errors: ErrConflict if any topic of the user was changed since r was read,
	// an extraction was merged or a message looked at by somebody else; ErrNotFound
	// for an extraction, a session, an agent or something superseded that is not
	// there, or not of the user with the agent; ErrWiped; ErrInvalid for a revision
	// of another user, what NewTopic.Canonical refuses, or a source that may not be
	// one.
	CommitDream(ctx context.Context, user UserID, r TopicRevision, d Dream) ([]Topic, error)
	// PutTopic stores what the user says of a topic: it takes the place of all that
	// is valid of it, and what those were learned from is not learned from again.
	// Of t, Supersedes is not looked at; agent is zero for a topic of the user with
	// every agent. r, if not the zero revision, is the one that was read. What is
	// retired holds until t does. Errors: as CommitDream.
	PutTopic(ctx context.Context, user UserID, agent AgentID, r TopicRevision, t NewTopic, at time.Time) (Topic, error)
	// DeleteTopic removes a topic with its history: all rows of the name, and all
	// whose place they took, whatever their name was. What was learned from their
	// sources, or says the same, is removed from the extractions, and those messages
	// are not learned from again. It returns how many rows went. Scrub makes it final. Errors:
	// ErrNotFound.
	DeleteTopic(ctx context.Context, user UserID, agent AgentID, name string) (int, error)
	// WipeAgentMemory is WipeMemory for what is remembered of the user with one
	// agent: its topics, and extractions of sessions with it.
	WipeAgentMemory(ctx context.Context, user UserID, agent AgentID) (WipeCounts, error)

	// DeleteSession removes a session with all that belongs to it. Sessions
	// whose parent it was have none afterwards. Errors: ErrNotFound.
	DeleteSession(ctx context.Context, user UserID, id SessionID) error

	// WipeMemory removes what is remembered of the user: topics and
	// extractions, all or none. What was said so far is not learned from again. A
	// user who is not known has nothing.
	WipeMemory(ctx context.Context, user UserID) (WipeCounts, error)
	// WipeUser removes everything of the user, in one transaction, and the user,
	// unless that is the default one. Scrub makes it final. A user who is not
	// known has nothing.
	WipeUser(ctx context.Context, user UserID) (WipeCounts, error)
	// Scrub removes the last trace of what was deleted from the files. It waits
	// for the store's own readers; done is false if another process that reads
	// kept it from finishing: call it again later.
	Scrub(ctx context.Context) (done bool, err error)
	// Wipes returns the wipes that were begun and not ended, oldest first.
	Wipes(ctx context.Context) ([]Wipe, error)
	// BeginWipe records that the user is to be wiped. From then on, until
	// EndWipe, nothing is written for them: ErrWiped. Errors: ErrNotFound.
	// Twice is once.
	BeginWipe(ctx context.Context, user UserID, at time.Time) error
	// EndWipe forgets that the user was to be wiped.
	EndWipe(ctx context.Context, user UserID) error

	// Export visits everything that belongs to the user, in an order that
	// Import understands, until visit fails. The same content gives the same
	// records. Each session is as it was when its turn came. Errors: ErrNotFound,
	// visit's own, and ErrConflict when a session is removed meanwhile.
	Export(ctx context.Context, user UserID, visit func(Record) error) error
	// ExportMemory is Export for extractions and topics alone.
	ExportMemory(ctx context.Context, user UserID, visit func(Record) error) error
	// Import stores records for the user, each after what it refers to. What is
	// there already in the same form is skipped. Trust, tokens and outlines are
	// made anew, and counts by what is said. It stores as it goes: when a record
	// is refused, those before it stay, and at any instant each session is
	// whole. Errors: ErrNotFound; ErrWiped; ErrInvalid with the record's number
	// for one that breaks a rule or stands in a wrong place; ErrConflict for an
	// id or a place that is taken by something else, be it another user's; and
	// those of records.
	Import(ctx context.Context, user UserID, records iter.Seq2[Record, error]) (ImportReport, error)

	// Close waits for what is being written and closes the store. Later calls
	// fail.
	Close() error
}
