package memory

import "time"

// WordQuery ranks what one user has said or was told by words.
type WordQuery struct {
	// Words are at most MaxWords; without any there are no hits.
	Words []WeightedWord
	// Session and Agent, if not zero, keep what belongs to them.
	Session SessionID
	Agent   AgentID
	// From and To bound the time: From ≤ t < To. A zero bound is none.
	From, To time.Time
	// Limit bounds the hits: 0 means 50, MaxHits is the most.
	Limit int
}

// WeightedWord is one word that hits are to have.
type WeightedWord struct {
	// Text is split and stemmed as the store's index does; several words in
	// it count alike.
	Text string
	// Weight is over 0.
	Weight float64
}

// Bounds of a WordQuery.
const (
	MaxWords = 32
	MaxHits  = 1000
)

// WordHits is what a WordQuery finds.
type WordHits struct {
	// Hits are in order.
	Hits []WordHit
	// Messages is how many the user has in all, whatever the query keeps;
	// Frequency says, for each of the query's words, how many of them hold it
	// (of a Text of several words, the rarest).
	Messages  int
	Frequency []int
}

// WordHit is a message with its score by BM25, over the user's messages alone:
// no number in it depends on what other users say.
type WordHit struct {
	Message Message
	// Own is the score of the message itself, Near that of the two messages
	// before and the two after it in its session.
	Own, Near float64
}

// SummaryHit is a summary with its score by BM25, over the user's summaries.
type SummaryHit struct {
	Summary Summary
	Score   float64
}

// TextKind says what a text belongs to.
type TextKind string

// The kinds of texts.
const (
	TextMessage TextKind = "message"
	TextSummary TextKind = "summary"
	TextFile    TextKind = "file"
)

// TextQuery selects texts to be read one after the other, as an expression
// that no index knows must be sought.
type TextQuery struct {
	// Kinds keeps the texts of these kinds; none means all.
	Kinds    []TextKind
	Session  SessionID
	Agent    AgentID
	From, To time.Time
}

// StoredText is what one message, one summary or one file says: exactly one of
// the ids is set. Text is never for a prompt: see Plain.
type StoredText struct {
	Message MessageID
	Summary SummaryID
	File    FileID
	Session SessionID
	// Seq is that of the message, or of the first message that the summary
	// stands for; 0 for a file.
	Seq  int64
	At   time.Time
	Text string
}
