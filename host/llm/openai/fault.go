package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// complaint is what a server says that is wrong. Its words are external: only a
// code that is a plain identifier gets into an error, and the rest is only
// searched.
type complaint struct {
	Message, Type, Param string
	Code                 any
	// blind says that the model cannot see pictures.
	blind bool
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
			{"to stream this model", "stream"}, {"reasoning_effort", "reasoning_effort"}, {"parallel_tool_calls", "parallel_tool_calls"},
			{"tool_choice", "tool_choice"}, {"top_p", "top_p"}, {`"stop"`, "stop"}, {"'stop'", "stop"}, {"`stop`", "stop"},
		} {
			if strings.Contains(string(body), known.word) {
				c.Param = known.param
				break
			}
		}
	}
	c.blind = remote.SaysBlind(string(body))
	return c
}

// failure explains an error that comes in place of an answer, or in the middle of
// one, for which the server had promised success.
func (c complaint) failure() *remote.Failure {
	return c.read().Explain(c.status(), "an error for an answer")
}

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
		case "invalid_api_key", "authentication_error":
			return http.StatusUnauthorized
		case "permission_error":
			return http.StatusForbidden
		case "model_not_found", "not_found_error":
			return http.StatusNotFound
		case "service_unavailable", "server_overloaded":
			return http.StatusServiceUnavailable
		case "overloaded_error":
			return 529 // as it is with Anthropic, behind a gateway
		case "invalid_request_error", "BadRequestError", "invalid_prompt":
			return http.StatusBadRequest
		}
	}
	if c.isTooLong() {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// read is the complaint in the terms of every protocol.
func (c complaint) read() remote.Complaint {
	code, _ := c.Code.(string)
	return remote.Complaint{Code: cmp.Or(code, c.Type), NoCredit: code == "insufficient_quota", TooLong: c.isTooLong(), Blind: c.blind, Refused: c.Param}
}

// isTooLong knows OpenAI's code, llama.cpp's type and the sentences of those who
// have neither.
func (c complaint) isTooLong() bool {
	return c.Code == "context_length_exceeded" || c.Type == "exceed_context_size_error" || remote.SaysTooLong(c.Message)
}
