package memory

import (
	"encoding/json"
	"time"
)

// RecordKind says what a Record holds.
type RecordKind string

// The kinds, in the order in which an export has them: first of a session
// itself, then of what belongs to it. A session stands after its parent.
const (
	RecordSession    RecordKind = "session"
	RecordFile       RecordKind = "file"
	RecordMessage    RecordKind = "message"
	RecordSummary    RecordKind = "summary"
	RecordCompaction RecordKind = "compaction"
	RecordExtraction RecordKind = "extraction"
	RecordTopic      RecordKind = "topic"
)

// Record is one thing of an export: one line of JSON. It names no user. Exactly
// the field of its kind is set.
type Record struct {
	Kind       RecordKind     `json:"kind"`
	Session    *SessionRecord `json:"session,omitempty"`
	File       *FileRecord    `json:"file,omitempty"`
	Message    *Message       `json:"message,omitempty"`
	Summary    *SummaryRecord `json:"summary,omitempty"`
	Compaction *CompactionRun `json:"compaction,omitempty"`
	// Extraction and Topic are rows as they are stored.
	Extraction json.RawMessage `json:"extraction,omitempty"`
	Topic      json.RawMessage `json:"topic,omitempty"`
}

// SessionRecord is a session without what its messages say of it. Agents are
// exported by name.
type SessionRecord struct {
	ID        SessionID `json:"id"`
	Agent     string    `json:"agent"`
	Parent    SessionID `json:"parent_session_id,omitzero"`
	Title     string    `json:"title,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// FileRecord is a file with the block that it was made from.
type FileRecord struct {
	File
	Block Block `json:"block"`
}

// SummaryRecord is a summary with what it was made from.
type SummaryRecord struct {
	Summary
	Messages  []MessageID `json:"messages,omitempty"`
	Summaries []SummaryID `json:"summaries,omitempty"`
}

// ImportReport tells what an import did.
type ImportReport struct {
	// Added and Skipped count records by kind.
	Added   map[RecordKind]int `json:"added"`
	Skipped map[RecordKind]int `json:"skipped"`
}
