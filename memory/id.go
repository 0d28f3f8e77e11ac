package memory

import (
	"fmt"

	"github.com/google/uuid"
)

// ID is a UUID of one kind of thing; the kinds cannot be mixed up. The zero ID
// is the nil UUID and names nothing. Its text form is the usual one of 36
// characters.
type ID[Kind any] uuid.UUID

type (
	userKind       struct{}
	agentKind      struct{}
	sessionKind    struct{}
	messageKind    struct{}
	summaryKind    struct{}
	fileKind       struct{}
	extractionKind struct{}
	topicKind      struct{}
)

// The ids of everything that has one.
type (
	UserID       = ID[userKind]
	AgentID      = ID[agentKind]
	SessionID    = ID[sessionKind]
	MessageID    = ID[messageKind]
	SummaryID    = ID[summaryKind]
	FileID       = ID[fileKind]
	ExtractionID = ID[extractionKind]
	TopicID      = ID[topicKind]
)

// NewID returns a new UUIDv7, which sorts by the time it was made.
func NewID[T ID[K], K any]() T {
	return T(uuid.Must(uuid.NewV7()))
}

// ParseID reads the text form of a UUID. The nil UUID and other forms are
// ErrInvalid.
func ParseID[T ID[K], K any](text string) (T, error) {
	u, err := uuid.Parse(text)
	if err != nil || len(text) != 36 || u == uuid.Nil {
		return T{}, fmt.Errorf("id %q is not a UUID: %w", text, ErrInvalid)
	}
	return T(u), nil
}

// String returns the text form.
func (id ID[K]) String() string { return uuid.UUID(id).String() }

// IsZero reports whether id names nothing.
func (id ID[K]) IsZero() bool { return uuid.UUID(id) == uuid.Nil }

// MarshalText implements encoding.TextMarshaler.
func (id ID[K]) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID[K]) UnmarshalText(text []byte) error {
	parsed, err := ParseID[ID[K]](string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
