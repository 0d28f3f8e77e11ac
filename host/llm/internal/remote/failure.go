package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Failure is an attempt without an answer. It holds nothing of the request, and of
// the server's words only identifiers.
type Failure struct {
	// Kind is one of package llm's errors, What happened in the host's own words.
	Kind error
	What string
	// Refused is what the server says is wrong with the request, in the form that
	// the driver learns from; it goes no further.
	Refused string
	// Passing says that the same request may succeed soon.
	Passing bool
	// Status is the one that the server answered, or that what it says in an answer
	// stands for; nil if there is none.
	Status *llm.StatusError

	waits bool // the server says how long it wants to be left alone
}

// Error is What and Kind.
func (f *Failure) Error() string { return f.What + ": " + f.Kind.Error() }

// Unwrap is Kind, and Status if there is one.
func (f *Failure) Unwrap() []error {
	if f.Status == nil {
		return []error{f.Kind}
	}
	return []error{f.Kind, f.Status}
}

// delay before the next attempt: what the server says, or else twice as long
// each time. Chance spreads those who failed together: up to a tenth later than
// the server says, up to half earlier than the schedule.
func (f *Failure) delay(attempt int) time.Duration {
	if f.waits {
		return f.Status.RetryAfter + rand.N(f.Status.RetryAfter/10+1)
	}
	full := min(firstDelay<<attempt, maxDelay)
	return full - rand.N(full/2)
}

// Errors of reading an answer, for Broken.
var (
	// ErrCut says that an answer ends where it must not.
	ErrCut = errors.New("the answer breaks off")
	// ErrProtocol says that something is no answer at all. What a decoder complains
	// about is not in it: it quotes what it reads.
	ErrProtocol = errors.New("the answer is not of the protocol")
)

// Broken explains an attempt without a status or without an answer that can be
// read. A *Failure explains itself, ErrProtocol is final, and whatever else ends
// an answer may pass.
func (x *Exchange) Broken(err error) *Failure {
	if told, ok := errors.AsType[*Failure](err); ok {
		return told
	}
	if late, ok := errors.AsType[*lateError](context.Cause(x.ctx)); ok {
		// A model that took all of its time will take it again.
		return &Failure{Kind: llm.ErrUnavailable, What: late.Error()}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Failure{Kind: llm.ErrUnavailable, What: "an answer of more than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes"}
	}
	if refused, ok := errors.AsType[*url.Error](err); ok {
		what := refused.Err.Error()
		if key := x.endpoint.key; key != "" {
			what = strings.ReplaceAll(what, key, "[key]")
		}
		return &Failure{Kind: llm.ErrUnavailable, What: what, Passing: true}
	}
	if errors.Is(err, ErrProtocol) {
		return &Failure{Kind: llm.ErrUnavailable, What: ErrProtocol.Error()}
	}
	return &Failure{Kind: llm.ErrUnavailable, What: ErrCut.Error(), Passing: true}
}

// Complaint is what a server says that is wrong, as a driver reads it.
type Complaint struct {
	// Code is shown if it is a plain identifier.
	Code string
	// NoCredit says that nothing is left on the account, whatever the status.
	NoCredit bool
	// TooLong says that the request is larger than the model's window. It counts
	// with status 400.
	TooLong bool
	// Blind says that the model cannot see pictures, of which the request has some.
	Blind bool
	// Refused is a Failure's, if what is wrong is the request.
	Refused string
}

// Images is what a Failure has Refused where the model cannot see any.
const Images = "images"

// Explain returns what a complaint with a status means. What says in which way it
// came.
func (c Complaint) Explain(status int, what string) *Failure {
	f := &Failure{Kind: llm.ErrRefused, What: what, Status: &llm.StatusError{Status: status}}
	if isIdentifier(c.Code) {
		f.What += " " + c.Code
		f.Status.Code = c.Code
	}
	switch {
	case status < 400:
		f.What += ", a redirect, which is not followed"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired, c.NoCredit:
		f.Kind = llm.ErrAuth
	case status == http.StatusTooManyRequests:
		f.Kind, f.Passing = llm.ErrRateLimited, true
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest && c.TooLong:
		f.Kind = llm.ErrContextTooLong
	case status == http.StatusNotImplemented, status == http.StatusLoopDetected:
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		f.Kind, f.Passing = llm.ErrUnavailable, true
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		f.Refused = c.Refused
	}
	if c.Blind && f.Kind != llm.ErrAuth && f.Kind != llm.ErrRateLimited {
		// OpenRouter says so with 404, llama.cpp with 500.
		f.Refused = Images
	}
	return f
}

// refusal explains a status.
func refusal(response *http.Response, read func(int, []byte) Complaint) *Failure {
	said, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	f := read(response.StatusCode, said).Explain(response.StatusCode, "status "+strconv.Itoa(response.StatusCode))
	f.Status.RetryAfter, f.waits = retryAfter(response.Header)
	return f
}

// isIdentifier reports whether a server's word can be shown.
func isIdentifier(code string) bool {
	return code != "" && len(code) <= 48 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// SaysTooLong knows the sentences of servers that have no code for it: of OpenAI's
// protocol vLLM, Ollama and others, of Anthropic's all.
func SaysTooLong(message string) bool {
	message = strings.ToLower(message)
	for _, words := range []string{"prompt is too long", "input is too long", "exceed context limit", "context length", "context window", "context size"} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// SaysBlind knows the sentences by which servers say that a model takes no pictures.
func SaysBlind(message string) bool {
	message = strings.ToLower(message)
	for _, words := range []string{
		"image_url is only supported",            // OpenAI
		"not support image", "n't support image", // Ollama, LM Studio
		"unknown variant `image_url`", "content must be a string", // DeepSeek, Groq
		"that support image input",                  // OpenRouter
		"image input is not supported",              // llama.cpp
		"not a multimodal model", "at most 0 image", // vLLM
	} {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// retryAfter reads how long the server wants to be left alone: seconds or a
// date, or milliseconds as OpenAI writes them.
func retryAfter(h http.Header) (time.Duration, bool) {
	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.ParseFloat(h.Get(header.name), 64); err == nil && n >= 0 {
			// Whatever is beyond the longest wait is all the same.
			return time.Duration(min(n, float64(time.Hour/header.unit)) * float64(header.unit)), true
		}
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return min(max(time.Until(at), 0), time.Hour), true
	}
	return 0, false
}
