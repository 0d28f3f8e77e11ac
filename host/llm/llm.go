// Package llm is how the host asks a language model: one method. Drivers live
// in the folders below; Extractive is the model that needs no network.
package llm

import (
	"context"
	"errors"
)

// Errors that callers branch on. Drivers wrap them with the operation and the
// server's name, never with a key.
var (
	// ErrRateLimited says that the server wants fewer requests; asking again
	// later may succeed.
	ErrRateLimited = errors.New("the model's server limits the rate")
	// ErrUnavailable says that the server cannot be reached, is overloaded or
	// failed; asking again later may succeed.
	ErrUnavailable = errors.New("the model's server is unavailable")
	// ErrAuth says that the server does not accept the key.
	ErrAuth = errors.New("the model's server refuses the key")
	// ErrContextTooLong says that the request is larger than the model's
	// window; a shorter one may succeed.
	ErrContextTooLong = errors.New("the request is too long for the model")
	// ErrEmpty says that the model answered nothing.
	ErrEmpty = errors.New("the model's answer is empty")
	// ErrRefused says that the server rejects the request as it is.
	ErrRefused = errors.New("the model's server rejects the request")
)

// Role is who speaks.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of a prompt; external text in it stands in its frame.
type Message struct {
	Role Role
	Text string
}

// Request is one prompt.
type Request struct {
	// System is the system text; it may be empty.
	System string
	// Messages take turns, and the user begins.
	Messages []Message
	// MaxOutputTokens bounds the answer; zero leaves it to the model.
	MaxOutputTokens int
	// Temperature is between 0 and 2; nil leaves it to the model.
	Temperature *float64
}

// Response is one answer.
type Response struct {
	// Text is not empty.
	Text string
	// InputTokens and OutputTokens are the model's own counts, or estimates
	// where it gives none.
	InputTokens, OutputTokens int
	// Truncated says that MaxOutputTokens cut the answer off.
	Truncated bool
	// Model names who answered.
	Model string
}

// Model answers prompts. It is safe for concurrent use.
type Model interface {
	// Complete returns the answer to one prompt. It honours ctx, and its
	// errors wrap those of this package where they apply.
	Complete(ctx context.Context, r Request) (Response, error)
}
