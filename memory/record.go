package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// RecordKind says what a Record holds.
type RecordKind string

// The kinds, in the order in which an export has them: a session, which stands
// after its parent, and what belongs to it; then what outlives sessions. A file
// stands right before the first message that refers to it.
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
// the field of its kind is set. Decoding refuses fields that it does not know,
// and anything after the object, as ErrInvalid.
type Record struct {
	Kind       RecordKind
	Session    *SessionRecord
	File       *FileRecord
	Message    *Message
	Summary    *SummaryRecord
	Compaction *CompactionRecord
	Extraction *ExtractionRecord
	Topic      *TopicRecord
}

// SessionRecord is a session without what its messages say of it. Agents are
// exported by name. A session that is there keeps the name it has.
type SessionRecord struct {
	ID        SessionID `json:"id"`
	Agent     string    `json:"agent"`
	Parent    SessionID `json:"parent_session_id,omitzero"`
	Title     string    `json:"title,omitempty"`
	Name      string    `json:"name,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Learned are the messages that were looked at to learn from them, in order;
	// runs neither overlap nor touch. What the session does not have counts for
	// nothing.
	Learned []SeqRange `json:"learned,omitempty"`
}

// FileRecord is a file with the block that it was made from.
type FileRecord struct {
	File
	Block Block
}

// SummaryRecord is a summary with what it was made from.
type SummaryRecord struct {
	Summary
	Messages  []MessageID `json:"messages,omitempty"`
	Summaries []SummaryID `json:"summaries,omitempty"`
}

// CompactionRecord is a run by the agent of its session.
type CompactionRecord struct {
	CompactionRun
	// NoAgent keeps the agent's id out, which means nothing to another store.
	NoAgent struct{} `json:"agent_id,omitzero"`
}

// ExtractionRecord is what was learned from one session, which may have gone
// since. Decoding takes a text in place of a list too, as exports had it before
// there was anything to learn: all of it is one item.
type ExtractionRecord struct {
	ID      ExtractionID `json:"id"`
	Agent   string       `json:"agent"`
	Session SessionID    `json:"session_id"`
	Learnings
	CreatedAt time.Time `json:"created_at"`
	// MergedAt is zero while no dream has merged it.
	MergedAt time.Time `json:"merged_at,omitzero"`
}

// UnmarshalJSON reads what json.Marshal writes of r, and refuses other fields.
func (r *ExtractionRecord) UnmarshalJSON(data []byte) error {
	var in struct {
		ID          ExtractionID `json:"id"`
		Agent       string       `json:"agent"`
		Session     SessionID    `json:"session_id"`
		Facts       learnedList  `json:"facts"`
		Preferences learnedList  `json:"preferences"`
		Decisions   learnedList  `json:"decisions"`
		Tasks       learnedList  `json:"tasks"`
		OpenItems   learnedList  `json:"open_items"`
		CreatedAt   time.Time    `json:"created_at"`
		MergedAt    time.Time    `json:"merged_at"`
	}
	if err := decodeKnown(data, &in); err != nil {
		return err
	}
	*r = ExtractionRecord{
		ID: in.ID, Agent: in.Agent, Session: in.Session, CreatedAt: in.CreatedAt, MergedAt: in.MergedAt,
		Learnings: Learnings{Facts: in.Facts, Preferences: in.Preferences, Decisions: in.Decisions, Tasks: in.Tasks, OpenItems: in.OpenItems},
	}
	return nil
}

// learnedList is a list of an ExtractionRecord on its way in.
type learnedList []Learned

func (l *learnedList) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '"' {
		return decodeKnown(data, (*[]Learned)(l))
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*l = nil
	if text = strings.TrimSpace(text); text != "" && text != "[]" {
		*l = learnedList{{Text: text}}
	}
	return nil
}

// decodeKnown is json.Unmarshal that refuses fields it does not know.
func decodeKnown(data []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v)
}

// TopicRecord is one version of what is known of the user about a topic. It
// stands after the one that superseded it.
type TopicRecord struct {
	ID TopicID `json:"id"`
	// Agent is set if the topic is of the user with one agent.
	Agent string `json:"agent,omitempty"`
	// Topic is as TopicName has it, Content as TopicContent has it.
	Topic        string    `json:"topic"`
	Content      string    `json:"content"`
	Embedding    []byte    `json:"embedding,omitempty"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
	SupersededBy TopicID   `json:"superseded_by,omitzero"`
	ValidFrom    time.Time `json:"valid_from"`
	UpdatedAt    time.Time `json:"updated_at"`
	// Sources are the messages that it was learned from, by id; they may have
	// gone since.
	Sources []MessageID `json:"sources,omitempty"`
}

// ImportReport tells what an import did.
type ImportReport struct {
	// Added and Skipped count records by kind.
	Added   map[RecordKind]int `json:"added"`
	Skipped map[RecordKind]int `json:"skipped"`
}

// recordJSON is the line of a Record.
type recordJSON struct {
	Kind       RecordKind        `json:"kind"`
	Session    *SessionRecord    `json:"session,omitempty"`
	File       *fileJSON         `json:"file,omitempty"`
	Message    *messageJSON      `json:"message,omitempty"`
	Summary    *SummaryRecord    `json:"summary,omitempty"`
	Compaction *CompactionRecord `json:"compaction,omitempty"`
	Extraction *ExtractionRecord `json:"extraction,omitempty"`
	Topic      *TopicRecord      `json:"topic,omitempty"`
}

type fileJSON struct {
	File
	Block exactBlock `json:"block"`
}

type messageJSON struct {
	Message
	Blocks []exactBlock `json:"content"`
}

// exactBlock is a block that keeps its bytes on the way through one line of JSON,
// where white space between tokens is lost and a line feed ends the record: if
// it has any, it is written as a string that holds its JSON.
type exactBlock struct{ Block }

func (b exactBlock) MarshalJSON() ([]byte, error) {
	encoded, err := b.Block.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, encoded); err != nil {
		return nil, err
	}
	if bytes.Equal(compact.Bytes(), encoded) {
		return encoded, nil
	}
	return encodeLine(string(encoded))
}

func (b *exactBlock) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		data = []byte(text)
		if !json.Valid(data) {
			return fmt.Errorf("a block in a string that is not JSON: %w", ErrInvalid)
		}
	}
	return b.Block.UnmarshalJSON(data)
}

// encodeLine writes v as JSON without a line feed, and without the escapes that
// are for HTML.
func encodeLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// MarshalJSON writes the record as one line, without the line feed. The same
// record gives the same bytes.
func (r Record) MarshalJSON() ([]byte, error) {
	out := recordJSON{Kind: r.Kind, Session: r.Session, Summary: r.Summary, Compaction: r.Compaction, Extraction: r.Extraction, Topic: r.Topic}
	if r.File != nil {
		out.File = &fileJSON{r.File.File, exactBlock{r.File.Block}}
	}
	if r.Message != nil {
		out.Message = &messageJSON{Message: *r.Message, Blocks: make([]exactBlock, len(r.Message.Blocks))}
		for i, b := range r.Message.Blocks {
			out.Message.Blocks[i] = exactBlock{b}
		}
	}
	return encodeLine(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Record) UnmarshalJSON(data []byte) error {
	var in recordJSON
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("something stands after the object: %w", ErrInvalid)
	}
	out := Record{Kind: in.Kind, Session: in.Session, Summary: in.Summary, Compaction: in.Compaction, Extraction: in.Extraction, Topic: in.Topic}
	if in.File != nil {
		out.File = &FileRecord{in.File.File, in.File.Block.Block}
	}
	if in.Message != nil {
		out.Message = &in.Message.Message
		out.Message.Blocks = make([]Block, len(in.Message.Blocks))
		for i, b := range in.Message.Blocks {
			out.Message.Blocks[i] = b.Block
		}
	}
	if err := out.Check(); err != nil {
		return err
	}
	*r = out
	return nil
}

// Check returns an error matching ErrInvalid unless exactly the field of the
// record's kind is set.
func (r Record) Check() error {
	set := 0
	for _, field := range []struct {
		kind RecordKind
		set  bool
	}{
		{RecordSession, r.Session != nil}, {RecordFile, r.File != nil}, {RecordMessage, r.Message != nil}, {RecordSummary, r.Summary != nil},
		{RecordCompaction, r.Compaction != nil}, {RecordExtraction, r.Extraction != nil}, {RecordTopic, r.Topic != nil},
	} {
		if !field.set {
			continue
		}
		if set++; field.kind != r.Kind {
			return invalid("a record of kind " + quote(string(r.Kind)) + " holds a " + string(field.kind))
		}
	}
	if set == 0 {
		return invalid("a record of kind " + quote(string(r.Kind)) + " holds nothing")
	}
	return nil
}
