package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic/anthropictest"
)

// Pieces come as they are said: the server waits until the first was heard.
func TestPiecesComeAsTheyAreSaid(t *testing.T) {
	first, stalled := make(chan struct{}), make(chan struct{})
	s := anthropictest.NewServer(t, anthropictest.Started("Good morn", anthropictest.Stalled(stalled, first, anthropictest.Events(
		"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ing.\"}}\n\n"+
			"data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"+
			"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n"+
			"data: {\"type\":\"message_stop\"}\n\n"))))
	var h heard
	got, err := open(t, anthropic.Config{BaseURL: s.BaseURL}).Stream(t.Context(), prompt(), func(text string) {
		h.each(text)
		if h.text.String() == "Good morn" {
			close(first)
		}
	})
	if err != nil || got.Text != "Good morning." || got.OutputTokens != 3 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if want := []string{"Good ", "morn", "ing."}; !reflect.DeepEqual(h.pieces, want) {
		t.Errorf("heard %q, want %q", h.pieces, want)
	}
}

// Nothing is asked again once something was heard, and everything before.
func TestBrokenStreams(t *testing.T) {
	gone, ended, overloaded, limited := anthropictest.Disconnected(), anthropictest.Ended(), anthropictest.Error("overloaded_error", hostile), anthropictest.Error("rate_limit_error", hostile)
	for _, test := range []struct {
		name   string
		answer anthropictest.Answer
		heard  string
		err    error
		says   string
		again  bool
	}{
		{"overloaded at once", overloaded, "", llm.ErrUnavailable, "overloaded_error", true},
		{"rate limited at once", limited, "", llm.ErrRateLimited, "rate_limit_error", true},
		{"an error of no type", anthropictest.Error(hostile, ""), "", llm.ErrUnavailable, "an error in the stream", true},
		{"refused at once", anthropictest.Error("invalid_request_error", hostile), "", llm.ErrRefused, "invalid_request_error", false},
		{"the key", anthropictest.Error("authentication_error", hostile), "", llm.ErrAuth, "authentication_error", false},
		{"cut before a word", anthropictest.Started("", gone), "", llm.ErrUnavailable, "breaks off", true},
		{"cut behind a space", anthropictest.Started(" ", gone), "", llm.ErrUnavailable, "breaks off", true},
		{"ended before a word", anthropictest.Started("", ended), "", llm.ErrUnavailable, "breaks off", true},
		{"cut", anthropictest.Started("fo", gone), "fo", llm.ErrUnavailable, "breaks off", false},
		{"ended", anthropictest.Started("fo", ended), "fo", llm.ErrUnavailable, "breaks off", false},
		{"overloaded", anthropictest.Started("fo", overloaded), "fo", llm.ErrUnavailable, "overloaded_error", false},
		{"rate limited", anthropictest.Started("fo", limited), "fo", llm.ErrRateLimited, "rate_limit_error", false},
		{"nonsense", anthropictest.Started("fo", anthropictest.Events("data: {"+hostile+"\n\n")), "fo", llm.ErrUnavailable, "not of the protocol", false},
		{"nothing", anthropictest.Events(""), "", llm.ErrUnavailable, "breaks off", true},
		{"half an event", anthropictest.Events(`data: {"type":"message_stop"}`), "", llm.ErrUnavailable, "breaks off", true},
		{"a gap", anthropictest.Events("data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\"}}\n\n"), "", llm.ErrUnavailable, "not of the protocol", false},
		{"a block of nothing", anthropictest.Events("data: {\"type\":\"content_block_start\",\"index\":0}\n\n"), "", llm.ErrUnavailable, "not of the protocol", false},
		{"a delta of nothing", anthropictest.Events("data: {\"type\":\"content_block_delta\",\"index\":-1}\n\n"), "", llm.ErrUnavailable, "not of the protocol", false},
		{"usage that is none", anthropictest.Events("data: {\"type\":\"message_delta\",\"usage\":[]}\n\n"), "", llm.ErrUnavailable, "not of the protocol", false},
		{"words out of order", anthropictest.Events("data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"fo\"}}\n\n" +
			"data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
			"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n"), "fo", llm.ErrUnavailable, "not of the protocol", false},
		{"a thought that is none", anthropictest.Events("data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":7}}\n\n" +
			"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"x\"}}\n\n" +
			"data: {\"type\":\"message_stop\"}\n\n"), "", llm.ErrUnavailable, "not of the protocol", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script, m := offline(t, anthropic.Config{MaxRetries: 1}, test.answer, anthropictest.Text("four"))
				var h heard
				got, err := m.Stream(t.Context(), prompt(), h.each)
				if test.again {
					if n := len(script.Requests()); err != nil || got.Text != "four" || h.text.String() != "four" || n != 2 {
						t.Errorf("after %d requests: %+v, %v; heard %q", n, got, err, h.pieces)
					}
					// What it says when there is no second chance.
					_, m := offline(t, anthropic.Config{MaxRetries: never}, test.answer)
					h = heard{}
					got, err = m.Stream(t.Context(), prompt(), h.each)
				}
				checkError(t, err, test.err, "http://model.test")
				if !strings.Contains(err.Error(), test.says) || h.text.String() != test.heard || !reflect.DeepEqual(got, llm.Response{}) {
					t.Errorf("got %+v, %v; heard %q", got, err, h.pieces)
				}
				if n := len(script.Requests()); !test.again && n != 1 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

// An error in the middle of an answer has the status that it stands for.
func TestStatusesWithinAStream(t *testing.T) {
	for kind, want := range map[string]struct {
		status int
		code   string
		err    error
	}{
		"overloaded_error":      {529, "overloaded_error", llm.ErrUnavailable},
		"api_error":             {500, "api_error", llm.ErrUnavailable},
		"timeout_error":         {504, "timeout_error", llm.ErrUnavailable},
		"rate_limit_error":      {429, "rate_limit_error", llm.ErrRateLimited},
		"authentication_error":  {401, "authentication_error", llm.ErrAuth},
		"billing_error":         {402, "billing_error", llm.ErrAuth},
		"permission_error":      {403, "permission_error", llm.ErrAuth},
		"not_found_error":       {404, "not_found_error", llm.ErrRefused},
		"invalid_request_error": {400, "invalid_request_error", llm.ErrRefused},
		"conflict_error":        {409, "conflict_error", llm.ErrUnavailable},
		"request_too_large":     {413, "request_too_large", llm.ErrContextTooLong},
		"error_of_tomorrow":     {500, "error_of_tomorrow", llm.ErrUnavailable},
		hostile:                 {500, "", llm.ErrUnavailable},
	} {
		for _, answer := range []anthropictest.Answer{anthropictest.Error(kind, hostile), anthropictest.Started("fo", anthropictest.Error(kind, hostile))} {
			_, m := offline(t, anthropic.Config{MaxRetries: never}, answer)
			_, err := m.Stream(t.Context(), prompt(), func(string) {})
			checkError(t, err, want.err, "http://model.test")
			if got, ok := errors.AsType[*llm.StatusError](err); !ok || *got != (llm.StatusError{Status: want.status, Code: want.code}) {
				t.Errorf("%s: %v has the status %+v", kind, err, got)
			}
		}
	}
	_, m := offline(t, anthropic.Config{MaxRetries: never}, anthropictest.Error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"))
	_, err := m.Stream(t.Context(), prompt(), func(string) {})
	checkError(t, err, llm.ErrContextTooLong, "http://model.test")
}

// White space, comments and events of tomorrow change nothing, nor do line ends.
func TestStreamsOfOtherServers(t *testing.T) {
	events := []string{
		": keep-alive", "event: ping\ndata: {\"type\":\"ping\"}", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":6}}}",
		"data:", "data: {\"type\":\"of_tomorrow\",\"index\":99}",
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"of_tomorrow\",\"text\":\"x\"}}", "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"of_tomorrow\",\"text\":\"x\"}}",
		"data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"fo\"}}",
		"data: {\"type\":\"content_block_delta\",\"index\":1,\ndata: \"delta\":{\"type\":\"text_delta\",\"text\":\"ü\"}}",
		"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":null},\"usage\":{\"input_tokens\":null,\"output_tokens\":9}}", "data: {\"type\":\"message_stop\"}", "data: {not read any more",
	}
	for _, end := range []string{"\n", "\r\n"} {
		raw := strings.ReplaceAll(strings.Join(events, "\n\n")+"\n\n", "\n", end)
		// A byte at a time: a letter may come in two.
		s := anthropictest.NewServer(t, func(w http.ResponseWriter, _ *http.Request, _ anthropictest.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range len(raw) {
				io.WriteString(w, raw[i:i+1])
				http.NewResponseController(w).Flush()
			}
		})
		var h heard
		got, err := open(t, anthropic.Config{BaseURL: s.BaseURL}).Stream(t.Context(), prompt(), h.each)
		want := llm.Response{Text: "foü", InputTokens: 11, CachedTokens: 6, OutputTokens: 9, Model: "test-model"}
		if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(h.pieces, []string{"fo", "ü"}) {
			t.Errorf("got %+v, %v; heard %q", got, err, h.pieces)
		}
	}
	// A server that does not stream sends all at once.
	s := anthropictest.NewServer(t, anthropictest.Body(`{"type":"message","content":[{"type":"text","text":"four"}]}`))
	var h heard
	if got, err := open(t, anthropic.Config{BaseURL: s.BaseURL}).Stream(t.Context(), prompt(), h.each); err != nil || got.Text != "four" || !reflect.DeepEqual(h.pieces, []string{"four"}) {
		t.Errorf("got %+v, %v; heard %q", got, err, h.pieces)
	}
}

// Silence has an end, and so has a stream that only says that it is alive.
func TestStreamsEnd(t *testing.T) {
	forever := anthropictest.Stalled(nil, nil, nil)
	pinging := func(w http.ResponseWriter, r *http.Request, _ anthropictest.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: {\"type\":\"ping\"}\n\n"); err != nil {
				return
			}
			select {
			case <-time.After(20 * time.Second):
			case <-r.Context().Done():
			}
		}
	}
	dripping := func(w http.ResponseWriter, r *http.Request, _ anthropictest.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: \n"); err != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
			}
		}
	}
	for _, test := range []struct {
		name     string
		deadline time.Duration
		answer   anthropictest.Answer
		heard    string
		want     error
		says     string
		took     time.Duration
	}{
		{"silent at once", time.Hour, forever, "", llm.ErrUnavailable, "no answer within 30s", 30 * time.Second},
		{"silent later", time.Hour, anthropictest.Started("fo", forever), "fo", llm.ErrUnavailable, "no answer within 30s", 30 * time.Second},
		{"an event that never ends", time.Hour, dripping, "", llm.ErrUnavailable, "no answer within 30s", 30 * time.Second},
		{"nothing but signs of life", time.Hour, pinging, "", llm.ErrUnavailable, "no answer within 5m0s", 5 * time.Minute},
		{"the caller's time", 7 * time.Second, anthropictest.Started("fo", forever), "fo", context.DeadlineExceeded, "", 7 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, m := offline(t, anthropic.Config{MaxRetries: 5}, test.answer)
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				began := time.Now()
				var h heard
				_, err := m.Stream(ctx, prompt(), h.each)
				if took := time.Since(began); !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.says) || took != test.took || h.text.String() != test.heard {
					t.Errorf("after %s: %v, heard %q; want %v %q after %s", took, err, h.pieces, test.want, test.says, test.took)
				}
			})
		})
	}
	// Nor is a server silent that sends comments, as proxies do.
	synctest.Test(t, func(t *testing.T) {
		commenting := func(w http.ResponseWriter, r *http.Request, sent anthropictest.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				if _, err := io.WriteString(w, ": wait\n\n"); err != nil {
					return
				}
				time.Sleep(20 * time.Second)
			}
			anthropictest.Text("here it is")(w, r, sent)
		}
		_, m := offline(t, anthropic.Config{MaxRetries: never}, commenting)
		got, err := m.Stream(t.Context(), prompt(), func(string) {})
		if err != nil || got.Text != "here it is" {
			t.Errorf("after comments: %+v, %v", got, err)
		}
	})
	// Who did not ask for a stream has one Timeout for all of it.
	synctest.Test(t, func(t *testing.T) {
		_, m := offline(t, anthropic.Config{MaxRetries: 5}, pinging)
		began := time.Now()
		_, err := m.Complete(t.Context(), prompt())
		checkError(t, err, llm.ErrUnavailable, "http://model.test")
		if took := time.Since(began); took != 30*time.Second || !strings.Contains(err.Error(), "no answer within 30s") {
			t.Errorf("after %s: %v", took, err)
		}
	})
	// A listener that takes its time is no silence of the server.
	synctest.Test(t, func(t *testing.T) {
		_, m := offline(t, anthropic.Config{}, anthropictest.Text("four words of it"))
		pieces := 0
		got, err := m.Stream(t.Context(), prompt(), func(string) {
			pieces++
			<-time.After(35 * time.Second)
		})
		if err != nil || got.Text != "four words of it" || pieces != 4 {
			t.Errorf("got %+v in %d pieces, %v", got, pieces, err)
		}
	})
}

// What an answer cost may come after why it ended.
func TestTheReasonStays(t *testing.T) {
	_, m := offline(t, anthropic.Config{}, anthropictest.Events(
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n"+
			"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n"+
			"data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":3}}\n\n"+
			"data: {\"type\":\"message_stop\"}\n\n"))
	if got, err := m.Complete(t.Context(), prompt()); err != nil || !got.Truncated || got.OutputTokens != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Whatever a server sends as events, the answer is bounded, is what was heard, and
// keeps the contract.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"", "data: {\"type\":\"message_stop\"}\n\n", ": x\r\n\r\n",
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\" \"}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"a\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"thinking\":\"a\",\"signature\":\"b\"}}\n\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"now\",\"input\":{}}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"partial_json\":\"{}\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":1}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
		"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		m, err := anthropic.New(anthropic.Config{BaseURL: "http://model.test", Name: "m", MaxRetries: never, HTTPClient: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(raw))}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		r := prompt()
		r.Tools = tools()
		var h heard
		got, err := m.Stream(t.Context(), r, h.each)
		if err == nil && (h.text.String() != got.Text || strings.TrimSpace(got.Text) == "" && len(got.ToolCalls) == 0) {
			t.Errorf("heard %q, got %+v", h.pieces, got)
		}
		if len(h.pieces) > 0 && strings.TrimSpace(h.pieces[0]) == "" {
			t.Errorf("the first piece is %q", h.pieces[0])
		}
		for _, c := range got.ToolCalls {
			if !llm.ValidToolCallID(c.ID) || !llm.ValidToolName(c.Name) || len(c.Input) == 0 {
				t.Errorf("the call %+v", c)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "ask m at model.test: ") {
			t.Errorf("the error %v", err)
		}
		if (len(got.Thinking) > 0) != (got.Provider == anthropic.Provider) {
			t.Errorf("thoughts %s of %q", got.Thinking, got.Provider)
		}
		// What it keeps it can send.
		if err == nil && len(got.Thinking) > 0 {
			r.Messages[1].Thinking, r.Messages[1].Provider = got.Thinking, got.Provider
			if _, err := m.Complete(t.Context(), r); errors.Is(err, llm.ErrRefused) {
				t.Errorf("thoughts %s cannot be sent: %v", got.Thinking, err)
			}
		}
	})
}
