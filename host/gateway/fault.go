package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// fault is what a request is refused with, before an API gives it its form. It is an
// error, so that handlers return it like any other.
type fault struct {
	// status is the answer's; 529 is Anthropic's for overloaded.
	status int
	// code is OpenAI's identifier of what is wrong; "" if it has none for it.
	code string
	// param is where in the request it is wrong, such as messages[2].content; "" where
	// it is no place of it.
	param string
	// message is in the host's own words and names nothing that the caller did not.
	message string
	// retryAfter is when to come back; zero if nobody knows.
	retryAfter time.Duration
}

func (f *fault) Error() string {
	if f.param == "" {
		return f.message
	}
	return f.param + ": " + f.message
}

// refuse makes a fault of no place.
func refuse(status int, code, message string) *fault {
	return &fault{status: status, code: code, message: message}
}

// badf makes a fault of something that the caller wrote.
func badf(param, format string, values ...any) *fault {
	return &fault{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, values...)}
}

// unsupportedf makes a fault of something that is not understood here.
func unsupportedf(param, format string, values ...any) *fault {
	return &fault{status: http.StatusBadRequest, param: param, code: "unsupported_parameter", message: fmt.Sprintf(format, values...)}
}

// codeTooLong is OpenAI's code of what does not fit the model.
const codeTooLong = "context_length_exceeded"

// statusOverloaded is Anthropic's.
const statusOverloaded = 529

// faultOf is the one place where errors become answers. What it does not know is an
// internal error to the outside, and known is false: the log has the rest. Only of
// memory.ErrInvalid are the words told, which are about what the caller sent.
//
// What the model's server refused keeps its status: the caller's client does with
// it what it would do there.
func faultOf(err error) (_ *fault, known bool) {
	if f, ok := errors.AsType[*fault](err); ok {
		return f, true
	}
	for _, rule := range []struct {
		is     error
		status int
		code   string
		// message is that of the error where it is "".
		message string
	}{
		// A wipe ends what goes on with other errors too: it is the reason.
		{memory.ErrWiped, http.StatusConflict, "", "what is this user's is being removed"},
		{host.ErrClosed, http.StatusServiceUnavailable, "", "the server is stopping"},
		{memory.ErrReadOnly, http.StatusServiceUnavailable, "", "nothing can be stored: the server's log says why"},
		{memory.ErrConflict, http.StatusConflict, "", "it was changed in the meantime: send it again"},
		{memory.ErrNotFound, http.StatusNotFound, "", "there is no such session, or no such agent"},
		{llm.ErrContextTooLong, http.StatusBadRequest, codeTooLong, "the prompt is too long: the system text, the tools and what was said last do not fit the model's context window together"},
		{llm.ErrRateLimited, http.StatusTooManyRequests, "rate_limit_exceeded", ""},
		{llm.ErrAuth, http.StatusBadGateway, "upstream_authentication", ""},
		{llm.ErrRefused, http.StatusBadGateway, "upstream_rejected", ""},
		{llm.ErrEmpty, http.StatusBadGateway, "upstream_empty", ""},
		{llm.ErrUnavailable, http.StatusBadGateway, "upstream_unavailable", ""},
		{errTakenBack, http.StatusBadGateway, "upstream_unavailable", "the model began its answer anew: send the request again"},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, "", "it took too long"},
		// Of a caller who went away nobody reads it.
		{context.Canceled, http.StatusServiceUnavailable, "", "the server is stopping"},
	} {
		if !errors.Is(err, rule.is) {
			continue
		}
		f := refuse(rule.status, rule.code, rule.message)
		if f.message == "" {
			f.message = rule.is.Error()
		}
		if upstream, ok := errors.AsType[*llm.StatusError](err); ok {
			f.take(upstream)
		}
		return f, true
	}
	if errors.Is(err, memory.ErrInvalid) {
		return refuse(http.StatusBadRequest, "", err.Error()), true
	}
	return refuse(http.StatusInternalServerError, "", "internal error"), false
}

// take makes f say what the model's server said, as far as that is a status of an
// error.
func (f *fault) take(upstream *llm.StatusError) {
	f.retryAfter = upstream.RetryAfter
	if upstream.Status < http.StatusBadRequest || f.code == codeTooLong {
		return
	}
	f.status = upstream.Status
	if upstream.Code != "" {
		f.code = upstream.Code
	}
	if f.status == http.StatusUnauthorized || f.status == http.StatusForbidden {
		// Else the caller would look for the fault in the token of this server.
		f.message += ": it is the key in this server's configuration, not the one of this request"
	}
	f.message += " (" + upstream.Error() + ")"
}

// dialect is the form of an API's errors.
type dialect interface {
	// fault is the body of an answer that refuses, a value for JSON. Request is the id
	// of the request, "" if it has none.
	fault(f *fault, request string) any
}

// openAI is the dialect of chat completions, responses and models.
type openAI struct{}

// openAIError is the error of OpenAI's APIs, in a body or a stream.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (openAI) fault(f *fault, _ string) any {
	return struct {
		Error openAIError `json:"error"`
	}{openAIErrorOf(f)}
}

func openAIErrorOf(f *fault) openAIError {
	e := openAIError{Message: f.message, Type: "invalid_request_error", Param: orNull(f.param), Code: orNull(f.code)}
	switch {
	case f.code == "insufficient_quota":
		e.Type = f.code
	case f.status == http.StatusTooManyRequests:
		e.Type = "rate_limit_error"
	case f.status >= http.StatusInternalServerError:
		e.Type = "server_error"
	}
	return e
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// anthropic is the dialect of messages.
type anthropic struct{}

// anthropicError is the error of Anthropic's API, in a body or a stream.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string            `json:"type"`
		Message string            `json:"message"`
		Details *anthropicDetails `json:"details,omitempty"`
	} `json:"error"`
	RequestID *string `json:"request_id"`
}

// anthropicDetails say what programs branch on.
type anthropicDetails struct {
	ErrorCode string `json:"error_code"`
}

// numbered is an element in a place, for which Anthropic writes messages.2.content.
var numbered = regexp.MustCompile(`\[([0-9]+)\]`)

func (anthropic) fault(f *fault, request string) any {
	e := anthropicError{Type: "error", RequestID: orNull(request)}
	e.Error.Message = (&fault{param: numbered.ReplaceAllString(f.param, ".$1"), message: f.message}).Error()
	if f.code != "" {
		e.Error.Details = &anthropicDetails{f.code}
	}
	switch f.status {
	case http.StatusUnauthorized:
		e.Error.Type = "authentication_error"
	case http.StatusPaymentRequired:
		e.Error.Type = "billing_error"
	case http.StatusForbidden:
		e.Error.Type = "permission_error"
	case http.StatusNotFound:
		e.Error.Type = "not_found_error"
	case http.StatusRequestEntityTooLarge:
		e.Error.Type = "request_too_large"
	case http.StatusTooManyRequests:
		e.Error.Type = "rate_limit_error"
	case http.StatusGatewayTimeout:
		e.Error.Type = "timeout_error"
	case statusOverloaded:
		e.Error.Type = "overloaded_error"
	default:
		e.Error.Type = "invalid_request_error"
		if f.status >= http.StatusInternalServerError {
			e.Error.Type = "api_error"
		}
	}
	return e
}

// dialectOf tells by path and headers which API a request means.
func dialectOf(r *http.Request) dialect {
	if strings.HasPrefix(r.URL.Path, "/v1/messages") || isAnthropic(r) {
		return anthropic{}
	}
	return openAI{}
}

// isAnthropic reports whether a client of Anthropic's sent the request.
func isAnthropic(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// requestID is the id of the request that is answered, under which the log has it.
func requestID(w http.ResponseWriter) string { return w.Header().Get("X-Request-Id") }

// writeFault answers with a fault.
func writeFault(w http.ResponseWriter, d dialect, f *fault) {
	if f.retryAfter > 0 {
		seconds := (f.retryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	writeJSON(w, f.status, d.fault(f, requestID(w)))
}
