package conformance

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
)

// Runner asks a loaded hand one question in a fresh instance. What stops the
// runner itself is the error; what stops the hand is in the outcome. Whoever
// supplies one decides what the hand can reach.
type Runner func(ctx context.Context, ask Ask) (Outcome, error)

// Ask is one question.
type Ask struct {
	// Query is the query, in JSON, as the guest is to have it.
	Query []byte
	// Now and Seed decide what the guest's clock and random numbers say.
	Now  time.Time
	Seed uint64
	// FromStart asks an instance that begins from no image (ABI.md §1.4), so that Now
	// and Seed are those of all that it runs.
	FromStart bool
	// Ports are all that the guest can reach, if they are not nil; else the
	// runner decides.
	Ports *Ports
}

// Outcome is what came of one question.
type Outcome struct {
	// Kind is "" if the hand answered, hand_failed if it says that it failed,
	// and else what ended it; Text says so in the host's words.
	Kind abi.Kind
	Text string
	// Reply, Said and Log are what the hand replied, said of its failure and
	// logged, for people: what a terminal should not see may be left out.
	Reply, Said, Log string
	// ReplyDigest, SaidDigest and LogDigest are SHA-256 of the same, to the byte;
	// log lines are LEVEL, a colon, a space, the text and a line feed.
	ReplyDigest, SaidDigest, LogDigest [sha256.Size]byte
	// ReplyBytes is all that the hand wrote, also beyond the host's limit.
	ReplyBytes int
	// OverTokens is by how much the reply is over max_output_tokens, and
	// OverBytes by how much over the host's limit.
	OverTokens, OverBytes int
	// InvalidUTF8 counts bytes of the reply that are not UTF-8.
	InvalidUTF8 int
	Cost        Cost
}

// Cost is what one question took.
type Cost struct {
	// Tokens is what the reply costs in a prompt, Bytes what the hand wrote of it.
	Tokens, Bytes int
	// Took is wall time.
	Took time.Duration
	// Fuel is in units of about one instruction.
	Fuel int64
	// MemoryBytes is the largest size of the linear memory.
	MemoryBytes int64
	// Calls counts the capability calls.
	Calls int
}
