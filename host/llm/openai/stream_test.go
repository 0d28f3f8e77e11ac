package openai_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// collect asks for a stream and returns what was given out, too.
func collect(ctx context.Context, m llm.Streamer, r llm.Request) (got llm.Response, pieces []string, err error) {
	got, err = m.Stream(ctx, r, func(text string) { pieces = append(pieces, text) })
	return got, pieces, err
}

// event is the data of an event with one choice.
func event(choice string) string { return `{"choices":[` + choice + `]}` }

// says is an event that says text, which is written into JSON as it is.
func says(text string) string { return event(`{"delta":{"content":"` + text + `"}}`) }

const stops = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`

// sse writes events as a server does.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

func TestStreamShapes(t *testing.T) {
	for _, test := range []struct {
		name, body string
		pieces     []string
		err        error
	}{
		{"plain", sse(says("fo"), says("ur"), stops, "[DONE]"), []string{"fo", "ur"}, nil},
		{"CRLF", strings.ReplaceAll(sse(says("fo"), says("ur"), stops, "[DONE]"), "\n", "\r\n"), []string{"fo", "ur"}, nil},
		{"comments and keep-alives", ": PROCESSING\n\n:\n\n" + sse(says("fo")) + ": PROCESSING\n\n\n\n" + sse(says("ur"), stops) + ":\n" + sse("[DONE]"), []string{"fo", "ur"}, nil},
		{"other fields", "retry: 10\nid: 1\nevent: message\nfoo: bar\nfoo\n" + sse(says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"no space behind the colon", strings.ReplaceAll(sse(says("four"), stops, "[DONE]"), "data: ", "data:"), []string{"four"}, nil},
		{"data in lines", "data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"four\"}}]\ndata: }\n\n" + sse(stops, "[DONE]"), []string{"four"}, nil},
		{"empty data", "data:\n\ndata: \n\ndata\n\n" + sse(says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"a byte order mark", "\ufeff" + sse(says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"no end of the last line", strings.TrimRight(sse(says("four"), stops, "[DONE]"), "\n"), []string{"four"}, nil},
		{"no [DONE]", sse(says("four"), stops), []string{"four"}, nil},
		{"no finish_reason", sse(says("four"), "[DONE]"), []string{"four"}, nil},
		{"neither", sse(says("four")), []string{"four"}, llm.ErrUnavailable},
		{"cut within an event", sse(says("four")) + `data: {"choices":[{"delta":{"content":"!`, []string{"four"}, llm.ErrUnavailable},
		{"cut within a keep-alive", ": PROC", nil, llm.ErrUnavailable},
		{"nothing", "", nil, llm.ErrUnavailable},
		{"an end without a beginning", sse("[DONE]"), nil, llm.ErrEmpty},
		{"what comes after the end", sse(says("four"), stops, "[DONE]", says("five")), []string{"four"}, nil},
		{"an event of an error without one", "event: error\n\n" + sse(says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"an error after the end", sse(says("four"), stops, `{"error":{"message":"x"}}`), []string{"four"}, llm.ErrUnavailable},
		{"no error", sse(`{"error":null,"choices":[{"delta":{"content":"four"}}]}`, stops, "[DONE]"), []string{"four"}, nil},
		{"null for everything", sse(`{"choices":null,"usage":null}`, `{"choices":[null]}`, event(`{"delta":null,"finish_reason":null}`), event(`{"delta":{"content":null,"tool_calls":null}}`), says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"other types", sse(event(`{"delta":{"content":4,"tool_calls":"x"},"finish_reason":7,"index":"0"}`), event(`{"delta":[]}`), `{"choices":{},"usage":"x","object":1}`, says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"another choice", sse(event(`{"index":1,"delta":{"content":"five"}}`), says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"a message for a delta", sse(event(`{"message":{"content":"four"},"finish_reason":"stop"}`), "[DONE]"), []string{"four"}, nil},
		{"a message that repeats the deltas", sse(says("four"), event(`{"message":{"content":"four"},"finish_reason":"stop"}`), "[DONE]"), []string{"four"}, nil},
		{"thoughts", sse(event(`{"delta":{"reasoning_content":"hm","reasoning":"hm","thinking":"hm"}}`), says("four"), stops, "[DONE]"), []string{"four"}, nil},
		{"thoughts alone", sse(event(`{"delta":{"reasoning_content":"hm"}}`), stops, "[DONE]"), nil, llm.ErrEmpty},
		{"a refusal", sse(event(`{"delta":{"refusal":"I would"}}`), event(`{"delta":{"refusal":" rather not."}}`), stops, "[DONE]"), nil, llm.ErrRefused},
		{"given up", sse(says("four"), event(`{"delta":{},"finish_reason":"error"}`), "[DONE]"), []string{"four"}, llm.ErrUnavailable},
		{"a character in two events", sse(says("\xf0\x9f"), says("\xa6\x9c!"), stops, "[DONE]"), []string{"🦜!"}, nil},
		{"a character in four events", sse(says("a\xf0"), says("\x9f"), says("\xa6"), says("\x9c"), stops, "[DONE]"), []string{"a", "🦜"}, nil},
		{"escapes beside half a character", sse(says(`\"\u00e9\n`+"\xf0\x9f"), says("\xa6\x9c\\t"), stops, "[DONE]"), []string{"\"é\n", "🦜\t"}, nil},
		{"half a character", sse(says("a\xf0\x9f"), says("b\xff\xfe"), says("\xe4"), stops, "[DONE]"), []string{"a", "\ufffd\ufffdb\ufffd\ufffd", "\ufffd"}, nil},
		{"half a surrogate", sse(says(`a\ud83e`), stops, "[DONE]"), []string{"a\ufffd"}, nil},
		{"wide spaces in halves", sse(says("\xe3\x80"), says("\x80"), says("four"), stops, "[DONE]"), []string{"\u3000four"}, nil},
		{"white space alone", sse(says(`\n`), says("\xe3\x80"), says("\x80 "), stops, "[DONE]"), nil, llm.ErrEmpty},
		{"an answer that is whole", `{"choices":[{"message":{"content":"four"},"finish_reason":"stop"}]}`, []string{"four"}, nil},
		{"an answer that is whole, after space", "\r\n {\"choices\":[{\"message\":{\"content\":\"four\"}}]}", []string{"four"}, nil},
		{"not JSON", sse("four", "[DONE]"), nil, llm.ErrUnavailable},
		{"JSON of another kind", sse(`["four"]`, "[DONE]"), nil, llm.ErrUnavailable},
		{"an object of another kind", `{"text":"four"}`, nil, llm.ErrEmpty},
		{"a page", "<!DOCTYPE html>\n\n<html>" + hostile, nil, llm.ErrUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range []string{"text/event-stream", "application/json", ""} {
				s := openaitest.NewServer(t, openaitest.Status(200, test.body, "Content-Type", kind))
				got, pieces, err := collect(t.Context(), open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never}), prompt())
				if !reflect.DeepEqual(pieces, test.pieces) || !errors.Is(err, test.err) {
					t.Fatalf("got %q, %v\nwant %q, %v", pieces, err, test.pieces, test.err)
				}
				if err != nil {
					checkError(t, err, test.err, s.BaseURL)
				}
				if want := strings.Join(pieces, ""); err == nil && got.Text != want || err != nil && got.Text != "" {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
}

// What it cost comes last, with each event, or not at all.
func TestWhatAStreamCosts(t *testing.T) {
	const cost = `"usage":{"prompt_tokens":11,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":5}}`
	for name, test := range map[string]struct {
		body string
		want llm.Response
	}{
		"last":    {sse(says("four"), stops, `{"choices":[],`+cost+`}`, "[DONE]"), llm.Response{InputTokens: 11, OutputTokens: 7, CachedTokens: 5}},
		"always":  {sse(`{"choices":[{"delta":{"content":"four"}}],"usage":{"prompt_tokens":11,"completion_tokens":1}}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],`+cost+`}`), llm.Response{InputTokens: 11, OutputTokens: 7, CachedTokens: 5}},
		"never":   {sse(says("four"), stops, "[DONE]"), llm.Response{InputTokens: prompt().Tokens(), OutputTokens: 5}},
		"no sums": {sse(says("four"), stops, `{"usage":{"prompt_tokens":-3,"completion_tokens":1e30}}`, "[DONE]"), llm.Response{InputTokens: prompt().Tokens(), OutputTokens: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openaitest.NewServer(t, openaitest.Stream(openaitest.Raw(test.body)))
			got, err := open(t, openai.Config{BaseURL: s.BaseURL}).Stream(t.Context(), prompt(), func(string) {})
			test.want.Text, test.want.Model = "four", "test-model"
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, test.want)
			}
		})
	}
}

func TestStreamedCalls(t *testing.T) {
	part := func(fields string) string { return event(`{"delta":{"tool_calls":[` + fields + `]}}`) }
	call := func(id, name, input string) llm.ToolCall {
		return llm.ToolCall{ID: id, Name: name, Input: []byte(input)}
	}
	one := []llm.ToolCall{call("a", "search", `{"q":"x"}`)}
	for _, test := range []struct {
		name   string
		events []string
		want   []llm.ToolCall // an ID of "" is one that was made up
	}{
		{"as OpenAI does", []string{
			part(`{"index":0,"id":"a","type":"function","function":{"name":"search","arguments":""}}`),
			part(`{"index":0,"function":{"arguments":"{\"q\":"}}`), part(`{"index":0,"function":{"arguments":"\"x\"}"}}`),
			part(`{"index":1,"id":"b","type":"function","function":{"name":"now","arguments":""}}`), part(`{"index":1,"function":{"arguments":"{}"}}`),
		}, append(slices.Clone(one), call("b", "now", "{}"))},
		{"in turns", []string{
			part(`{"index":0,"id":"a","function":{"name":"search"}}`), part(`{"index":1,"id":"b","function":{"name":"now"}}`),
			part(`{"index":0,"function":{"arguments":"{\"q\":"}},{"index":1,"function":{"arguments":"{"}}`),
			part(`{"index":1,"function":{"arguments":"}"}}`), part(`{"index":0,"function":{"arguments":"\"x\"}"}}`),
		}, append(slices.Clone(one), call("b", "now", "{}"))},
		{"at once", []string{part(`{"index":0,"id":"a","function":{"name":"search","arguments":"{\"q\":\"x\"}"}}`)}, one},
		{"arguments that are no string", []string{part(`{"index":0,"id":"a","function":{"name":"search","arguments":{"q":"x"}}}`)}, one},
		{"no arguments", []string{part(`{"index":0,"id":"a","function":{"name":"now"}}`)}, []llm.ToolCall{call("a", "now", "{}")}},
		{"the name with each part", []string{
			part(`{"index":0,"id":"a","function":{"name":"search","arguments":"{\"q\":"}}`), part(`{"index":0,"id":"a","function":{"name":"search","arguments":"\"x\"}"}}`),
			part(`{"index":0,"id":"a","function":{"name":"search","arguments":""}}`),
		}, one},
		{"the name with each part, and no arguments at first", []string{
			part(`{"index":0,"id":"a","function":{"name":"search"}}`), part(`{"index":0,"id":"a","function":{"name":"search","arguments":"{\"q\":\"x\"}"}}`),
		}, one},
		{"the name with each part, no id", []string{
			part(`{"index":0,"function":{"name":"search","arguments":"{\"q\":\"}"}}`), part(`{"index":0,"function":{"name":"search","arguments":"{\\\"\"}"}}`),
		}, []llm.ToolCall{call("", "search", `{"q":"}{\""}`)}},
		{"the name in parts", []string{part(`{"index":0,"id":"a","function":{"name":"sea"}}`), part(`{"index":0,"function":{"name":"rch","arguments":"{\"q\":\"x\"}"}}`)}, one},
		{"another id for each part", []string{
			part(`{"index":0,"id":"a","function":{"name":"search","arguments":""}}`), part(`{"index":0,"id":"b","function":{"arguments":"{\"q\":"}}`), part(`{"index":0,"id":"c","function":{"arguments":"\"x\"}"}}`),
		}, one},
		{"no index", []string{
			part(`{"id":"a","function":{"name":"search","arguments":"{\"q\":"}}`), part(`{"function":{"arguments":"\"x\"}"}}`), part(`{"id":"b","function":{"name":"now","arguments":"{}"}}`),
		}, append(slices.Clone(one), call("b", "now", "{}"))},
		{"no index, ids throughout", []string{
			part(`{"id":"a","function":{"name":"search","arguments":"{\"q\":"}},{"id":"b","function":{"name":"now","arguments":"{"}}`),
			part(`{"id":"b","function":{"arguments":"}"}},{"id":"a","function":{"arguments":"\"x\"}"}}`),
		}, append(slices.Clone(one), call("b", "now", "{}"))},
		{"index 0 for all", []string{part(`{"index":0,"id":"a","function":{"name":"search","arguments":"{\"q\":\"x\"}"}}`), part(`{"index":0,"id":"b","function":{"name":"search","arguments":"{\"q\":\"y\"}"}}`)},
			append(slices.Clone(one), call("b", "search", `{"q":"y"}`))},
		{"index 0 for all, and no ids", []string{part(`{"index":0,"function":{"name":"search","arguments":"{\"q\":\"\\\"\"}"}},{"index":0,"id":"","function":{"name":"search","arguments":"{\"q\":\"y\"}"}}`)},
			[]llm.ToolCall{call("", "search", `{"q":"\""}`), call("", "search", `{"q":"y"}`)}},
		{"neither index nor ids", []string{part(`{"function":{"name":"search","arguments":"{\"q\":\"x\"}"}}`), part(`{"function":{"name":"now","arguments":"{}"}}`)},
			[]llm.ToolCall{call("", "search", `{"q":"x"}`), call("", "now", `{}`)}},
		{"indices out of range", []string{part(`{"index":-7,"id":"a","function":{"name":"search","arguments":"{\"q\":"}}`), part(`{"index":9000000000000000000,"id":"b","function":{"name":"now"}}`), part(`{"index":-7,"function":{"arguments":"\"x\"}"}}`)},
			append(slices.Clone(one), call("b", "now", "{}"))},
		{"half a character", []string{part(`{"index":0,"id":"a","function":{"name":"search","arguments":"{\"q\":\"` + "\xc3" + `"}}`), part(`{"index":0,"function":{"arguments":"` + "\xa9" + `\"}"}}`)},
			[]llm.ToolCall{call("a", "search", `{"q":"é"}`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := sse(append(test.events, event(`{"delta":{},"finish_reason":"tool_calls"}`), "[DONE]")...)
			s := openaitest.NewServer(t, openaitest.Stream(openaitest.Raw(body)))
			r := prompt()
			r.Tools = tools()
			got, pieces, err := collect(t.Context(), open(t, openai.Config{BaseURL: s.BaseURL}), r)
			if err != nil || pieces != nil || len(got.ToolCalls) != len(test.want) {
				t.Fatalf("got %+v, %q, %v", got.ToolCalls, pieces, err)
			}
			for i, want := range test.want {
				if want.ID == "" {
					want.ID = got.ToolCalls[i].ID
				}
				if c := got.ToolCalls[i]; !reflect.DeepEqual(c, want) || !llm.ValidToolCallID(c.ID) {
					t.Errorf("call %d is %s %s %s (%s), want %+v", i, c.ID, c.Name, c.Input, c.Fault, want)
				}
			}
		})
	}
}

// What is too much of calls is dropped: no part of it ends up in one that is kept.
func TestTooManyStreamedCalls(t *testing.T) {
	var events []string
	for i := range 2 * llm.MaxToolCalls {
		events = append(events, event(fmt.Sprintf(`{"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"now","arguments":"{"}}]}}`, i, i)),
			event(`{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}`))
	}
	events = append(events, event(`{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"`+strings.Repeat(" ", llm.MaxToolInput)+`"}}]}}`), stops)
	s := openaitest.NewServer(t, openaitest.Stream(openaitest.Raw(sse(events...))))
	r := prompt()
	r.Tools = tools()
	got, _, err := collect(t.Context(), open(t, openai.Config{BaseURL: s.BaseURL}), r)
	if err != nil || len(got.ToolCalls) != llm.MaxToolCalls {
		t.Fatalf("%d calls, %v", len(got.ToolCalls), err)
	}
	for i, c := range got.ToolCalls {
		if tooLong := i == 0; c.ID != fmt.Sprint("c", i) || string(c.Input) != "{}" || (c.Fault != "") != tooLong {
			t.Errorf("call %d is %+v", i, c)
		}
	}
}

// What goes wrong before the first piece is tried again as it is of a whole answer,
// and after it never: what was said cannot be taken back.
func TestStreamFaults(t *testing.T) {
	fault := func(data string) openaitest.Step { return openaitest.Event(data) }
	type faultOf struct {
		name    string
		fault   openaitest.Step
		want    error
		passing bool
		says    string
	}
	faults := []faultOf{
		{"cut", openaitest.Break(), llm.ErrUnavailable, true, "breaks off"},
		{"ended within an event", openaitest.Raw(`data: {"choices":[{"delta":{"content":"ee`), llm.ErrUnavailable, true, "breaks off"},
		{"ended", func(io.Writer, *http.Request) {}, llm.ErrUnavailable, true, "breaks off"},
		{"not JSON", fault(hostile), llm.ErrUnavailable, false, "not of the protocol"},
		{"an error without a code", fault(`{"error":{"message":"` + hostile + `"}}`), llm.ErrUnavailable, true, "an error for an answer"},
		{"an error that is text", fault(`{"error":"` + hostile + `"}`), llm.ErrUnavailable, true, "an error for an answer"},
		{"an error by its event", openaitest.Raw("event: error\ndata: " + hostile + "\n\n"), llm.ErrUnavailable, true, "an error for an answer"},
		{"an error by its object", fault(`{"object":"error","message":"x","type":"BadRequestError","code":400}`), llm.ErrRefused, false, "an error for an answer"},
		{"a number", fault(`{"error":{"code":502,"message":"x"},"choices":[]}`), llm.ErrUnavailable, true, ""},
		{"a number in a string", fault(`{"error":{"code":"429","message":"x"}}`), llm.ErrRateLimited, true, ""},
		{"rate", fault(`{"error":{"code":"rate_limit_exceeded"}}`), llm.ErrRateLimited, true, "rate_limit_exceeded"},
		{"rate, by its type", fault(`{"error":{"type":"rate_limit_error"}}`), llm.ErrRateLimited, true, ""},
		{"no quota", fault(`{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}`), llm.ErrAuth, false, "insufficient_quota"},
		{"key", fault(`{"error":{"code":"invalid_api_key"}}`), llm.ErrAuth, false, "invalid_api_key"},
		{"overloaded", fault(`{"error":{"type":"overloaded_error","code":529}}`), llm.ErrUnavailable, true, ""},
		{"too long", fault(`{"error":{"code":"context_length_exceeded"}}`), llm.ErrContextTooLong, false, "context_length_exceeded"},
		{"too long, as text", fault(`{"error":"the prompt exceeds the context size"}`), llm.ErrContextTooLong, false, ""},
		{"refused", fault(`{"error":{"type":"invalid_request_error","code":"invalid_value"}}`), llm.ErrRefused, false, "invalid_value"},
	}
	for _, test := range faults {
		t.Run(test.name, func(t *testing.T) {
			for when, said := range map[string][]openaitest.Step{
				"first":                {},
				"after thoughts":       {openaitest.Delta(map[string]any{"reasoning_content": "hm"})},
				"after white space":    {openaitest.Piece("\n")},
				"after a call's begin": {openaitest.Deltas(openaitest.Call("a", "search", `{"q":1}`))},
				"after a piece":        {openaitest.Piece("thr")},
			} {
				synctest.Test(t, func(t *testing.T) {
					script, m := offline(t, openai.Config{MaxRetries: 1}, openaitest.Stream(append(said, test.fault)...), openaitest.Text("four"))
					got, pieces, err := collect(t.Context(), m, prompt())
					synctest.Wait()
					n := len(script.Requests())
					if begun := when == "after a piece"; test.passing && !begun {
						if err != nil || n != 2 || got.Text != "four" || !reflect.DeepEqual(pieces, []string{"four"}) {
							t.Errorf("%s: %d requests, %+v, %q, %v", when, n, got, pieces, err)
						}
						return
					} else if want := strings.Repeat("thr", map[bool]int{true: 1}[begun]); n != 1 || strings.Join(pieces, "") != want {
						t.Errorf("%s: %d requests, %q", when, n, pieces)
					}
					checkError(t, err, test.want, "http://model.test/v1")
					if !strings.Contains(err.Error(), test.says) || !reflect.DeepEqual(got, llm.Response{}) {
						t.Errorf("%s: %+v, %v", when, got, err)
					}
				})
			}
		})
	}
}

// An error in place of an answer, or in the middle of one, has the status that it
// stands for.
func TestStatusesWithinAnAnswer(t *testing.T) {
	for said, want := range map[string]llm.StatusError{
		`{"message":"` + hostile + `"}`:                                                {Status: 500},
		`{"code":502,"message":"x"}`:                                                   {Status: 502},
		`{"code":"rate_limit_exceeded","type":"requests"}`:                             {Status: 429, Code: "rate_limit_exceeded"},
		`{"type":"rate_limit_error","code":null}`:                                      {Status: 429, Code: "rate_limit_error"},
		`{"code":"insufficient_quota"}`:                                                {Status: 429, Code: "insufficient_quota"},
		`{"code":"invalid_api_key"}`:                                                   {Status: 401, Code: "invalid_api_key"},
		`{"type":"permission_error"}`:                                                  {Status: 403, Code: "permission_error"},
		`{"code":"model_not_found","type":"invalid_request_error"}`:                    {Status: 404, Code: "model_not_found"},
		`{"type":"invalid_request_error","code":"` + hostile + `"}`:                    {Status: 400},
		`{"code":"context_length_exceeded","type":"invalid_request_error"}`:            {Status: 400, Code: "context_length_exceeded"},
		`{"code":"server_overloaded"}`:                                                 {Status: 503, Code: "server_overloaded"},
		`{"type":"overloaded_error"}`:                                                  {Status: 529, Code: "overloaded_error"},
		`{"type":"server_error","message":"The server had an error while processing"}`: {Status: 500, Code: "server_error"},
	} {
		data := `{"error":` + said + `}`
		for _, answer := range []openaitest.Answer{openaitest.Body(data), openaitest.Stream(openaitest.Event(data)), openaitest.Stream(openaitest.Piece("fo"), openaitest.Event(data))} {
			_, m := offline(t, openai.Config{MaxRetries: never}, answer)
			_, err := m.Stream(t.Context(), prompt(), func(string) {})
			if got, ok := errors.AsType[*llm.StatusError](err); !ok || *got != want {
				t.Errorf("%s: %v has the status %+v, want %+v", said, err, got, want)
			}
		}
	}
}

// A server that was alive may be so again; a page is no server of the protocol.
func TestAStreamThatOnlyBegan(t *testing.T) {
	for body, passing := range map[string]bool{": PROCESSING": true, "": true, "id: 1\n\n": true, "<html>\n": false} {
		synctest.Test(t, func(t *testing.T) {
			script, m := offline(t, openai.Config{MaxRetries: 1}, openaitest.Body(body), openaitest.Text("four"))
			_, _, err := collect(t.Context(), m, prompt())
			if n := len(script.Requests()); (err == nil) != passing || (n == 2) != passing {
				t.Errorf("%q: %d requests, %v", body, n, err)
			}
		})
	}
}

// What is refused after the first piece teaches nothing, for nothing is asked again.
func TestALessonThatComesTooLate(t *testing.T) {
	script, m := offline(t, openai.Config{}, openaitest.Stream(openaitest.Piece("fo"),
		openaitest.Event(`{"error":{"type":"invalid_request_error","param":"stream_options","message":"`+hostile+`"}}`)))
	_, pieces, err := collect(t.Context(), m, prompt())
	checkError(t, err, llm.ErrRefused, "http://model.test/v1")
	if n := len(script.Requests()); n != 1 || !reflect.DeepEqual(pieces, []string{"fo"}) {
		t.Errorf("%d requests, heard %q", n, pieces)
	}
}

// An error for an answer is told also from an answer that is whole.
func TestAnErrorWithStatus200(t *testing.T) {
	s := openaitest.NewServer(t, openaitest.Body(`{"error":{"code":429,"message":"`+hostile+`"}}`))
	_, err := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never}).Complete(t.Context(), prompt())
	checkError(t, err, llm.ErrRateLimited, s.BaseURL)
}

// after returns a step that waits.
func after(d time.Duration) openaitest.Step {
	return openaitest.Pause(func(ctx context.Context) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	})
}

func TestStreamsTakeTheirTime(t *testing.T) {
	const timeout = 30 * time.Second
	alive := openaitest.Raw(": still here\n\n")
	var lively []openaitest.Step
	for range 5 {
		lively = append(lively, after(timeout-time.Second), alive)
	}
	endless := slices.Repeat([]openaitest.Step{after(timeout - time.Second), openaitest.Piece("x")}, 20)
	good := []openaitest.Step{openaitest.Piece("four"), openaitest.Finish("stop"), openaitest.Done()}
	for _, test := range []struct {
		name   string
		answer openaitest.Answer
		each   time.Duration // how long the caller takes for a piece
		took   time.Duration
		says   string // "" if it is answered
	}{
		{"no first byte", openaitest.Stalled(nil, nil, openaitest.Text("late")), 0, timeout, "no answer within 30s"},
		{"nothing after the status", openaitest.Stream(after(time.Hour)), 0, timeout, "no answer within 30s"},
		{"silence in the middle", openaitest.Stream(openaitest.Piece("fo"), after(time.Hour)), 0, timeout, "no answer within 30s"},
		{"signs of life", openaitest.Stream(slices.Concat(lively, good)...), 0, 5 * (timeout - time.Second), ""},
		{"pieces for ever", openaitest.Stream(endless...), 0, 10 * timeout, "no answer within 5m0s"},
		{"a caller who takes long", openaitest.Stream(good...), time.Hour, time.Hour, ""},
		{"no [DONE]", openaitest.Stream(openaitest.Piece("four"), openaitest.Finish("stop"), after(time.Hour)), 0, 5 * time.Second, ""},
		{"no end of the connection", openaitest.Stream(append(slices.Clone(good), after(time.Hour))...), 0, 100 * time.Millisecond, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script, m := offline(t, openai.Config{Timeout: timeout, MaxRetries: 5}, test.answer)
				began := time.Now()
				got, err := m.Stream(t.Context(), prompt(), func(string) {
					if test.each > 0 {
						<-time.After(test.each)
					}
				})
				if took := time.Since(began); took != test.took || len(script.Requests()) != 1 {
					t.Errorf("%d requests took %s, want one of %s", len(script.Requests()), took, test.took)
				}
				if test.says == "" {
					if err != nil || got.Text != "four" {
						t.Errorf("got %+v, %v", got, err)
					}
					return
				}
				checkError(t, err, llm.ErrUnavailable, "http://model.test/v1")
				if !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v does not say %q", err, test.says)
				}
			})
		})
	}
}

// Who did not ask for a stream has had nothing of it: what breaks off is tried again,
// and all of it has one Timeout.
func TestAStreamThatNobodyAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := openaitest.Stream(openaitest.Piece("fo"), openaitest.Break())
		slow := openaitest.Stream(after(20*time.Second), openaitest.Piece("fo"), after(time.Hour))
		_, m := offline(t, openai.Config{Timeout: 30 * time.Second, MaxRetries: 1}, cut, openaitest.Text("four"), slow)
		if got, err := m.Complete(t.Context(), prompt()); err != nil || got.Text != "four" {
			t.Errorf("%+v, %v", got, err)
		}
		began := time.Now()
		_, err := m.Complete(t.Context(), prompt())
		checkError(t, err, llm.ErrUnavailable, "http://model.test/v1")
		if took := time.Since(began); took != 30*time.Second || !strings.Contains(err.Error(), "within 30s") {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// The caller's time is the caller's error, wherever the stream is.
func TestTheCallersTimeInAStream(t *testing.T) {
	for name, steps := range map[string][]openaitest.Step{
		"before the first piece": {after(time.Hour)},
		"after it":               {openaitest.Piece("fo"), after(time.Hour)},
		"after the end":          {openaitest.Piece("four"), openaitest.Finish("stop"), after(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, m := offline(t, openai.Config{}, openaitest.Stream(steps...))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				began := time.Now()
				got, err := m.Stream(ctx, prompt(), func(string) {})
				if !errors.Is(err, context.DeadlineExceeded) || !reflect.DeepEqual(got, llm.Response{}) || time.Since(began) != 2*time.Second {
					t.Errorf("after %s: %+v, %v", time.Since(began), got, err)
				}
			})
		})
	}
}

// Who goes at the first piece hears no more, though more has come already.
func TestAStreamEndsWithItsCaller(t *testing.T) {
	s := openaitest.NewServer(t, openaitest.Stream(openaitest.Raw(sse(says("fo"), says("ur"), stops, "[DONE]"))))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pieces []string
	got, err := open(t, openai.Config{BaseURL: s.BaseURL}).Stream(ctx, prompt(), func(text string) {
		pieces = append(pieces, text)
		cancel()
	})
	if !errors.Is(err, context.Canceled) || !reflect.DeepEqual(got, llm.Response{}) || !reflect.DeepEqual(pieces, []string{"fo"}) {
		t.Errorf("%q, %+v, %v", pieces, got, err)
	}
}

// An answer of 10 MB is one; of more than 16 MiB none, whatever it is made of.
func TestStreamsAreBounded(t *testing.T) {
	const mebi = 1 << 20
	long := strings.Repeat("x", 10*mebi)
	for name, answer := range map[string]openaitest.Answer{
		"whole": openaitest.Text(long), "in one piece": openaitest.Stream(openaitest.Piece(long), openaitest.Finish("stop"), openaitest.Done()),
		"in pieces": openaitest.Stream(append(slices.Repeat([]openaitest.Step{openaitest.Piece(long[:mebi])}, 10), openaitest.Finish("stop"), openaitest.Done())...),
	} {
		t.Run(name, func(t *testing.T) {
			s := openaitest.NewServer(t, answer, answer)
			m, size := open(t, openai.Config{BaseURL: s.BaseURL}), 0
			got, err := m.Stream(t.Context(), prompt(), func(text string) { size += len(text) })
			if err != nil || got.Text != long || size != len(long) {
				t.Errorf("%d bytes in pieces of %d, %v", len(got.Text), size, err)
			}
			if got, err := m.Complete(t.Context(), prompt()); err != nil || got.Text != long {
				t.Errorf("%d bytes, %v", len(got.Text), err)
			}
		})
	}
	for name, unit := range map[string]string{
		"events": sse(says(strings.Repeat("y", 1<<16))), "a line": "data: " + strings.Repeat(" ", 1<<16), "data": "data: x\n",
		"comments":    strings.Repeat(": x\n\n", 1<<13),
		"white space": sse(says(strings.Repeat(" ", 1<<16))),
	} {
		t.Run("endless "+name, func(t *testing.T) {
			endless := func(w io.Writer, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, unit); err != nil {
						return
					}
				}
			}
			s := openaitest.NewServer(t, openaitest.Stream(endless))
			size := 0
			_, err := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: 1}).Stream(t.Context(), prompt(), func(text string) { size += len(text) })
			checkError(t, err, llm.ErrUnavailable, s.BaseURL)
			if !strings.Contains(err.Error(), "more than 16777216 bytes") || size > 16*mebi {
				t.Errorf("%d bytes, %v", size, err)
			}
		})
	}
}

// A list of millions of nulls is not a list of millions of structs.
func TestListsAreBounded(t *testing.T) {
	nulls := strings.Repeat("null,", 3<<20) + "null"
	for name, body := range map[string]string{
		"choices": `{"choices":[` + nulls + `]}`, "calls": event(`{"message":{"tool_calls":[` + nulls + `]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := openaitest.NewServer(t, openaitest.Body(body))
			r := prompt()
			r.Tools = tools()
			got, err := open(t, openai.Config{BaseURL: s.BaseURL}).Complete(t.Context(), r)
			if len(got.ToolCalls) > llm.MaxToolCalls || err != nil && !errors.Is(err, llm.ErrEmpty) {
				t.Errorf("%d calls, %v", len(got.ToolCalls), err)
			}
		})
	}
}

// A connection serves the next request, too.
func TestStreamsShareAConnection(t *testing.T) {
	s := openaitest.NewServer(t, openaitest.Text("four"), openaitest.Text("four"), openaitest.Text("four"))
	var from []string
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	m := open(t, openai.Config{BaseURL: s.BaseURL, HTTPClient: &http.Client{Transport: transport}})
	for range 3 {
		if _, err := m.Stream(t.Context(), prompt(), func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.Requests() {
		from = append(from, r.From)
	}
	if len(slices.Compact(slices.Clone(from))) != 1 {
		t.Errorf("connections from %q", from)
	}
}

// FuzzStream has any bytes for an answer: they are an answer or an error that
// callers know, the same whole as in pieces, and no longer than they are.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		sse(says("fo"), says("ur"), stops, "[DONE]"), sse(says("\xf0\x9f"), says(`\n\ud83e`+"\xa6\x9c")),
		": x\r\nevent: error\r\ndata: {}\r\n\r\n", `{"choices":[{"message":{"content":" x","tool_calls":[null,{"function":{"arguments":{}}}]}}]}`,
		sse(event(`{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"s","arguments":"{\"q\":"}},{"index":0,"function":{"name":"s","arguments":"}{"}}]},"finish_reason":"length"}`)),
		sse(`{"error":{"code":429,"param":"response_format"}}`), sse(`{"usage":{"prompt_tokens":1e9},"choices":[{"delta":{"refusal":"x"},"finish_reason":"error"}]}`, "[DONE]"),
	} {
		f.Add([]byte(seed))
	}
	known := []error{llm.ErrRateLimited, llm.ErrUnavailable, llm.ErrAuth, llm.ErrContextTooLong, llm.ErrEmpty, llm.ErrRefused}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := openai.New(openai.Config{BaseURL: "http://model.test/v1", Name: "m", MaxRetries: never, HTTPClient: &http.Client{Transport: answers(body)}})
		if err != nil {
			t.Fatal(err)
		}
		r := prompt()
		r.Tools = tools()
		got, pieces, err := collect(t.Context(), m, r)
		joined := strings.Join(pieces, "")
		if err != nil && !slices.ContainsFunc(known, func(kind error) bool { return errors.Is(err, kind) }) {
			t.Fatalf("an error of no kind: %v", err)
		}
		if err == nil && joined != got.Text || err != nil && (got.Text != "" || got.ToolCalls != nil) {
			t.Fatalf("the pieces %q of %+v, %v", pieces, got, err)
		}
		// A byte that is none of a character's becomes three.
		if len(joined) > 3*len(body) || !utf8.ValidString(joined) || slices.Contains(pieces, "") {
			t.Fatalf("of %d bytes the pieces %q", len(body), pieces)
		}
		whole, wholeErr := m.Complete(t.Context(), r)
		for i := range min(len(got.ToolCalls), len(whole.ToolCalls)) {
			got.ToolCalls[i].ID, whole.ToolCalls[i].ID = "", "" // some are random
		}
		if !reflect.DeepEqual(whole, got) || fmt.Sprint(wholeErr) != fmt.Sprint(err) {
			t.Fatalf("whole %+v, %v\nin pieces %+v, %v", whole, wholeErr, got, err)
		}
	})
}

// answers is a transport that answers bytes.
type answers []byte

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a)), Request: r}, nil
}
