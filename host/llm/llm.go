// Package llm is how the host asks a language model: one method. Drivers live
// in the folders below; Extractive is the model that needs no network, Echo
// the one that is of no use.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors that callers branch on. Drivers wrap them with the operation and the
// server's name, never with a key and never with the server's own words, which
// are external text.
var (
	// ErrRateLimited says that the server wants fewer requests; asking again
	// later may succeed.
	ErrRateLimited = errors.New("the model's server limits the rate")
	// ErrUnavailable says that the server cannot be reached, is overloaded,
	// failed or does not answer in its protocol; asking again later may
	// succeed.
	ErrUnavailable = errors.New("the model's server is unavailable")
	// ErrAuth says that the server does not accept the key, or that nothing is
	// left on its account; only the operator can help.
	ErrAuth = errors.New("the model's server refuses the key")
	// ErrContextTooLong says that the request is larger than the model's
	// window; a shorter one may succeed.
	ErrContextTooLong = errors.New("the request is too long for the model")
	// ErrEmpty says that the model answered nothing.
	ErrEmpty = errors.New("the model's answer is empty")
	// ErrRefused says that the server or the model rejects the request as it
	// is; the same one will be rejected again.
	ErrRefused = errors.New("the model's server rejects the request")
)

// StatusError is wrapped by the error of a request that a server answered with an
// HTTP status, beside one of the errors above; or with an error in the middle of an
// answer, whose Status is the one that such an error stands for. It is of the last
// attempt.
type StatusError struct {
	// Status is from 300 to 599; 529 is Anthropic's for overloaded.
	Status int
	// Code is the server's identifier of what is wrong, of lower-case letters, digits
	// and '_'; "" if it has none.
	Code string
	// RetryAfter is how long the server wants to be left alone; zero if it does not
	// say.
	RetryAfter time.Duration
}

// Error says the status and the code.
func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s", e.Status, e.Code))
}

// RelayedHeader is in every request of a driver: a server that asks models itself,
// as the gateway of this program does, refuses it, lest it asks itself without end.
const RelayedHeader = "Glovebox-Relayed"

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
	// Thinking is what the assistant thought before its Text: the parts of a
	// Response of Provider, in order and with every byte as they came. A driver
	// of another provider does not send them.
	Thinking []json.RawMessage
	Provider string
	// Text may be empty beside tool calls or results.
	Text string
	// Images stand in the user's Text, in order; a Message of the assistant has none.
	// Each is one that ValidImage accepts.
	Images []Image
	// ToolCalls are what the assistant asked for, after its Text. The next
	// message is the user's and holds one result for each, by ID, and no other
	// results.
	ToolCalls []ToolCall
	// ToolResults come before the user's Text.
	ToolResults []ToolResult
	// Breakpoint asks the provider to keep its work on everything up to the end
	// of this message for the next request that begins the same. A provider
	// that keeps what it likes takes no notice.
	Breakpoint bool
}

// Image is a picture in a user's message. A model that cannot see any is sent none:
// what stands for it in the Text is enough, so that a conversation with pictures can
// go on with any model.
type Image struct {
	// At is where it stands: the byte in Text, between two characters, before which
	// it comes. Those of a message have it ascending, or the same.
	At int
	// MediaType is image/png, image/jpeg, image/gif or image/webp, and Data the
	// picture; or both are empty and URL says where it is, for the provider to fetch.
	MediaType string
	Data      []byte
	URL       string
}

// ToolChoice says whether tools are to be called. The zero value leaves it to the
// model.
type ToolChoice struct {
	// Required demands at least one call, of the tool with Name if that is not "". A
	// server that cannot be told so leaves it to the model.
	Required bool
	// Name is that of one of the Tools; without Required it counts for nothing.
	Name string
	// One allows at most one call in an answer: of several the first is kept.
	One bool
}

// Request is one prompt. A model does not change it.
type Request struct {
	// System is the system text; it may be empty.
	System string
	// CacheSystem is a Message's Breakpoint at the end of Tools and System. With
	// it a request has at most 4.
	CacheSystem bool
	// Messages take turns, the user begins and ends, and none is empty, its
	// Thinking aside.
	Messages []Message
	// Tools may be called; their names differ. A model that cannot call any
	// takes no notice.
	Tools []Tool
	// NoCalls says that no tool may be called now; Tools are described all the
	// same, for a prompt with calls in it is refused by some providers without
	// them, and begins otherwise than the one before.
	NoCalls bool
	// Choice is about Tools; without them, or with NoCalls, it counts for nothing.
	Choice ToolChoice
	// MaxOutputTokens bounds the answer; zero leaves it to the model.
	MaxOutputTokens int
	// TopP is over 0 and at most 1; nil leaves it to the model.
	TopP *float64
	// Stop are texts, at most 4, none empty, before the first of which the answer
	// ends. A driver sees to it where the server does not; a model without a server
	// takes no notice.
	Stop []string
	// Effort is how much the model thinks before it answers: low, medium, high, or
	// another word that the provider knows; "" leaves it to the model. A model that
	// knows only its own takes no notice.
	Effort string
	// Temperature is between 0 and 2; nil leaves it to the model. A model that
	// knows only its own takes no notice.
	Temperature *float64
	// Schema asks for an answer that is one JSON value of that form. A provider
	// that cannot be held to it takes no notice: who asks parses the answer as
	// anything else that a model writes. With it there are no Tools.
	Schema *Schema
}

// Schema is the form of an answer.
type Schema struct {
	// Name is 1 to 64 of A-Z, a-z, 0-9, '_' and '-'.
	Name string
	// JSON is a JSON Schema of type object, within what the providers have in
	// common: every object lists all its properties as required and allows no
	// others, and there are no bounds on lengths, numbers or counts.
	JSON json.RawMessage
}

// Response is one answer.
type Response struct {
	// Text is not white space alone, and empty only beside ToolCalls. It is the
	// model's, and no more trustworthy than what the model was shown.
	Text string
	// Thinking is what came before Text, as the provider sent it, for the
	// Message that returns it; a driver whose protocol cannot take it back has
	// none. Provider names who made it and can read it.
	Thinking []json.RawMessage
	Provider string
	// ToolCalls are made by ParseToolCalls; there are none where the Request has
	// no Tools.
	ToolCalls []ToolCall
	// InputTokens and OutputTokens are the model's own counts, or estimates
	// where it gives none.
	InputTokens, OutputTokens int
	// CachedTokens is how many of InputTokens the provider had kept from an
	// earlier request; zero also where it does not say.
	CachedTokens int
	// WrittenTokens is how many of InputTokens the provider kept for a later request,
	// ThoughtTokens how many of OutputTokens were thoughts; zero also where it does
	// not say.
	WrittenTokens, ThoughtTokens int
	// Truncated says that MaxOutputTokens cut the answer off.
	Truncated bool
	// Filtered says that the provider, or the model itself, ended the answer for what
	// it says; Text is what came before, and there are no ToolCalls. One without Text
	// comes beside an error that wraps ErrRefused.
	Filtered bool
	// Stopped is the one of Stop that ended the answer; "" if none did, or the
	// provider does not say which. An answer that it ended at once is ErrEmpty.
	Stopped string
	// Model names who answered, in the words of the configuration.
	Model string
}

// Streamer is a Model that gives out its answer while it comes.
type Streamer interface {
	Model
	// Stream is Complete, but that it calls each with the pieces of
	// Response.Text as they come, in order, in the goroutine that called it.
	// Put together they are that Text; none is empty or ends within a character,
	// and white space at the beginning comes with the first words, so that nothing
	// is given out of an answer that turns out to be none.
	//
	// After the first piece nothing is asked again: when the answer breaks off the
	// error wraps ErrUnavailable, or what the server says instead, and what came so
	// far is no answer. A slow each holds the answer back.
	Stream(ctx context.Context, r Request, each func(text string)) (Response, error)
}

// Model answers prompts. It is safe for concurrent use.
type Model interface {
	// Complete returns the answer to one prompt. It returns soon after ctx is
	// done, with an error that wraps ctx's. Its other errors wrap one of this
	// package's, and a *StatusError if it is by its status that the server refused
	// the last attempt. With ErrEmpty comes the Response without its text: a model
	// that spent all of MaxOutputTokens on thinking has Truncated set, and may
	// answer when it is given more.
	Complete(ctx context.Context, r Request) (Response, error)
}
