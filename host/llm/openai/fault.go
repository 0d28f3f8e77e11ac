package openai

import (
	"context"
	"encoding/json"
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

// failure is an attempt without an answer.
type failure struct {
	kind    error  // one of package llm's
	what    string // in the host's own words
	param   string // that the server refuses
	passing bool   // the same request may succeed soon
	after   time.Duration
	waits   bool // the server says after
}

func (f *failure) Error() string { return f.what + ": " + f.kind.Error() }
func (f *failure) Unwrap() error { return f.kind }

// delay before the next attempt: what the server says, or else twice as long
// each time. Chance spreads those who failed together: up to a tenth later than
// the server says, up to half earlier than the schedule.
func (f *failure) delay(attempt int) time.Duration {
	if f.waits {
		return f.after + rand.N(f.after/10+1)
	}
	full := min(firstDelay<<attempt, maxDelay)
	return full - rand.N(full/2)
}

// broken explains an attempt without a status or without a body that can be
// read. ctx is the attempt's, and done only if the server took too long.
func (m *Model) broken(ctx context.Context, err error) *failure {
	if told, ok := errors.AsType[*failure](err); ok {
		return told
	}
	if late, ok := errors.AsType[*lateError](context.Cause(ctx)); ok {
		// A model that took all of its time will take it again.
		return &failure{kind: llm.ErrUnavailable, what: late.Error()}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &failure{kind: llm.ErrUnavailable, what: "an answer of more than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes"}
	}
	if refused, ok := errors.AsType[*url.Error](err); ok {
		what := refused.Err.Error()
		if m.key != "" {
			what = strings.ReplaceAll(what, m.key, "[key]")
		}
		return &failure{kind: llm.ErrUnavailable, what: what, passing: true}
	}
	if errors.Is(err, errProtocol) {
		return &failure{kind: llm.ErrUnavailable, what: errProtocol.Error()}
	}
	return &failure{kind: llm.ErrUnavailable, what: errCut.Error(), passing: true}
}

// refusal explains a status.
func refusal(response *http.Response) *failure {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	f := complain(body).explain(response.StatusCode, "status "+strconv.Itoa(response.StatusCode))
	f.after, f.waits = retryAfter(response.Header)
	return f
}

// complaint is what a server says that is wrong. Its words are external: only a
// code that is a plain identifier gets into an error, and the rest is only
// searched.
type complaint struct {
	Message, Type, Param string
	Code                 any
}

// complain reads a complaint: an object called error, as OpenAI has it, or a text
// of that name, or its fields alone. What does not fit says nothing.
func complain(body []byte) complaint {
	var said struct {
		complaint
		Error json.RawMessage
	}
	_ = json.Unmarshal(body, &said)
	c := said.complaint
	if json.Unmarshal(said.Error, &c) != nil {
		_ = json.Unmarshal(said.Error, &c.Message)
	}
	if c.Param, _, _ = strings.Cut(c.Param, "."); c.Param == "" {
		// Compatible servers say in prose, or in a list, which field they do not
		// know; gateways quote what they were told.
		for _, known := range [...]struct{ word, param string }{
			{"response_format", "response_format"}, {"json_schema", "response_format"}, {"stream_options", "stream_options"},
			{"to stream this model", "stream"},
		} {
			if strings.Contains(string(body), known.word) {
				c.Param = known.param
				break
			}
		}
	}
	return c
}

// failure explains an error that comes in place of an answer, or in the middle of
// one, for which the server had promised success.
func (c complaint) failure() *failure { return c.explain(c.status(), "an error for an answer") }

// status is the one that the server would have answered: what it says, or else
// what its code or type means. Whatever is not known is the server's own failure.
func (c complaint) status() int {
	if n, ok := c.Code.(float64); ok && n >= 400 && n < 600 {
		return int(n)
	}
	code, _ := c.Code.(string)
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
		return n
	}
	for _, word := range [...]string{code, c.Type} {
		switch word {
		case "rate_limit_exceeded", "rate_limit_error", "too_many_requests", "insufficient_quota":
			return http.StatusTooManyRequests
		case "invalid_api_key", "authentication_error", "permission_error":
			return http.StatusUnauthorized
		case "invalid_request_error", "BadRequestError", "invalid_prompt":
			return http.StatusBadRequest
		}
	}
	if c.isTooLong() {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func (c complaint) explain(status int, what string) *failure {
	code, _ := c.Code.(string)
	f := &failure{kind: llm.ErrRefused, what: what}
	if isIdentifier(code) {
		f.what += " " + code
	}
	switch {
	case status < 400:
		f.what += ", a redirect, which is not followed"
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired, code == "insufficient_quota":
		f.kind = llm.ErrAuth
	case status == http.StatusTooManyRequests:
		f.kind, f.passing = llm.ErrRateLimited, true
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest && c.isTooLong():
		f.kind = llm.ErrContextTooLong
	case status == http.StatusNotImplemented:
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		f.kind, f.passing = llm.ErrUnavailable, true
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		f.param = c.Param
	}
	return f
}

func isIdentifier(code string) bool {
	return code != "" && len(code) <= 48 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// isTooLong knows OpenAI's code, llama.cpp's type and the sentences of vLLM,
// Ollama and others, who have neither.
func (c complaint) isTooLong() bool {
	if c.Code == "context_length_exceeded" || c.Type == "exceed_context_size_error" {
		return true
	}
	message := strings.ToLower(c.Message)
	for _, words := range []string{"context length", "context window", "context size", "prompt is too long", "input is too long"} {
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
