package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote/remotetest"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// refuses answers 400 or 422 as servers do that do not know a parameter.
func refuses(param string) map[string]openaitest.Answer {
	return map[string]openaitest.Answer{
		"by name":         openaitest.Fault(400, "unsupported_parameter", param, hostile),
		"by path":         openaitest.Fault(400, "invalid_value", param+".type", hostile),
		"in prose":        openaitest.Fault(400, "", "", "This "+param+" type is unavailable now"),
		"as text":         openaitest.Status(400, `{"error":"unknown field `+param+`"}`),
		"in a list":       openaitest.Status(422, `{"detail":[{"type":"extra_forbidden","loc":["body","`+param+`"],"msg":"Extra inputs are not permitted"}]}`),
		"in an answer":    openaitest.Body(`{"error":{"type":"invalid_request_error","param":"` + param + `"}}`),
		"within an event": openaitest.Stream(openaitest.Event(`{"error":{"type":"invalid_request_error","param":"` + param + `"}}`)),
	}
}

var form = llm.Schema{Name: "memory-1_A", JSON: json.RawMessage(`{"type":"object","required":["z","a"],"additionalProperties":false,"properties":{"z":{"type":"string"},"a":{"type":"string"}}}`)}

// formOf says in one word how a request asks for the form.
func formOf(t *testing.T, sent openaitest.Request) string {
	t.Helper()
	told := slices.ContainsFunc(sent.Messages, func(m openaitest.Message) bool {
		return m.Role == "system" && strings.Contains(m.Content, string(form.JSON))
	})
	f := sent.ResponseFormat
	switch {
	case f != nil && f.Type == "json_schema" && !told:
		// Its properties stay in their order: models answer in it.
		if want := (openaitest.JSONSchema{Name: form.Name, Schema: form.JSON, Strict: true}); !reflect.DeepEqual(*f.JSONSchema, want) {
			t.Errorf("sent %s", f.JSONSchema.Schema)
		}
		return "held"
	case f != nil && f.Type == "json_object" && told:
		return "any JSON"
	case f == nil && told:
		return "words"
	case f == nil:
		return "nothing"
	}
	return fmt.Sprintf("%+v, told %t", f, told)
}

// A server is held to the schema as far as it can be, and asked once.
func TestSchemas(t *testing.T) {
	answer := openaitest.Text(`{"z":"1","a":"2"}`)
	bothWays(t, func(t *testing.T, ask remotetest.Ask) {
		all := refuses("response_format")
		all["by its type"] = openaitest.Fault(400, "", "", "This model does not support response format `json_schema`.")
		for how, refuses := range all {
			for refusals, want := range []string{"held", "any JSON", "words"} {
				t.Run(fmt.Sprintf("refused %d times %s", refusals, how), func(t *testing.T) {
					s := openaitest.NewServer(t, append(slices.Repeat([]openaitest.Answer{refuses}, refusals), answer, answer, answer)...)
					m := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never})
					r := prompt()
					r.Schema = &form
					for range 2 {
						if got, err := ask(t.Context(), m, r); err != nil || got.Text != `{"z":"1","a":"2"}` {
							t.Fatalf("%+v, %v", got, err)
						}
						r.System = "" // that of the schema is enough
					}
					r.Schema = nil
					if _, err := ask(t.Context(), m, r); err != nil {
						t.Fatal(err)
					}
					var sent []string
					for _, r := range s.Requests() {
						sent = append(sent, formOf(t, r))
					}
					all := append([]string{"held", "any JSON", "words"}[:refusals], want, want, "nothing")
					if !reflect.DeepEqual(sent, all) {
						t.Errorf("sent %q, want %q", sent, all)
					}
				})
			}
		}
	})
}

func TestAServerThatRefusesAnyFormIsAskedNoMore(t *testing.T) {
	refuses := refuses("response_format")["by name"]
	s := openaitest.NewServer(t, refuses, refuses, refuses)
	r := prompt()
	r.Schema = &form
	_, err := open(t, openai.Config{BaseURL: s.BaseURL}).Complete(t.Context(), r)
	checkError(t, err, llm.ErrRefused, s.BaseURL)
}

// Who names a parameter that was not sent teaches nothing: it may quote the prompt.
func TestWhatWasNotSentIsNotRefused(t *testing.T) {
	for _, param := range []string{"response_format", "json_schema", "stream_options", "stream"} {
		s := openaitest.NewServer(t, openaitest.Fault(400, "", param, hostile), openaitest.Text("four"))
		m := open(t, openai.Config{BaseURL: s.BaseURL})
		_, err := m.Complete(t.Context(), prompt())
		checkError(t, err, llm.ErrRefused, s.BaseURL)
		r := prompt()
		r.Schema = &form
		if _, err := m.Stream(t.Context(), r, func(string) {}); err != nil {
			t.Fatal(err)
		}
		if sent := s.Requests()[1]; formOf(t, sent) != "held" || !sent.Stream || sent.StreamOptions == nil {
			t.Errorf("%s: sent %+v", param, sent)
		}
	}
}

func TestNamesOfSchemas(t *testing.T) {
	for _, schema := range []llm.Schema{
		{Name: "", JSON: form.JSON}, {Name: "a name", JSON: form.JSON}, {Name: strings.Repeat("x", 65), JSON: form.JSON},
	} {
		script, m := offline(t, openai.Config{})
		r := prompt()
		r.Schema = &schema
		_, err := m.Complete(t.Context(), r)
		checkError(t, err, llm.ErrRefused, "http://model.test/v1")
		if len(script.Requests()) != 0 {
			t.Errorf("%+v was sent", schema)
		}
	}
}

// A server that cannot say what a stream cost is not asked to, and one that does not
// stream is asked for the whole.
func TestServersThatDoNotStreamLikeOpenAI(t *testing.T) {
	for how, refusesUsage := range refuses("stream_options") {
		t.Run(how, func(t *testing.T) {
			refusesStream := openaitest.Fault(400, "unsupported_value", "stream", hostile)
			s := openaitest.NewServer(t, refusesUsage, openaitest.Text("four"), refusesStream, openaitest.Text("five"), openaitest.Text("six"))
			m := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never})
			for _, want := range []string{"four", "five", "six"} {
				got, pieces, err := collect(t.Context(), m, prompt())
				if err != nil || got.Text != want || !reflect.DeepEqual(pieces, []string{want}) || got.InputTokens == 0 || got.OutputTokens == 0 {
					t.Fatalf("%+v, %q, %v", got, pieces, err)
				}
			}
			var streams, usage []bool
			for _, r := range s.Requests() {
				streams = append(streams, r.Stream)
				usage = append(usage, r.StreamOptions != nil)
			}
			if !reflect.DeepEqual(streams, []bool{true, true, true, false, false}) || !reflect.DeepEqual(usage, []bool{true, false, false, false, false}) {
				t.Errorf("streams %v, with usage %v", streams, usage)
			}
		})
	}
	t.Run("through a gateway", func(t *testing.T) {
		s := openaitest.NewServer(t, openaitest.Status(400, `{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"Your organization must be verified to stream this model.\"}}"}}}`), openaitest.Text("four"))
		got, _, err := collect(t.Context(), open(t, openai.Config{BaseURL: s.BaseURL}), prompt())
		if err != nil || got.Text != "four" || s.Requests()[1].Stream {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("not at all", func(t *testing.T) {
		refuses := openaitest.Fault(400, "unsupported_value", "stream", hostile)
		s := openaitest.NewServer(t, refuses, refuses)
		_, _, err := collect(t.Context(), open(t, openai.Config{BaseURL: s.BaseURL}), prompt())
		if !errors.Is(err, llm.ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}

// asked is a request in which all is said that can be said of how it is asked.
func asked() llm.Request {
	topP := 0.5
	r := prompt()
	r.Tools, r.Choice = tools(), llm.ToolChoice{Required: true, Name: "now", One: true}
	r.TopP, r.Stop, r.Effort = &topP, []string{"END", "\n"}, "high"
	return r
}

// said is what a request says of how it is asked.
func said(r openaitest.Request) map[string]bool {
	return map[string]bool{
		"tool_choice": r.ToolChoice != "", "parallel_tool_calls": r.ParallelToolCalls != nil, "top_p": r.TopP != nil,
		"stop": r.Stop != nil, "reasoning_effort": r.ReasoningEffort != "",
	}
}

func TestHowItIsAsked(t *testing.T) {
	bothWays(t, func(t *testing.T, ask remotetest.Ask) {
		s := openaitest.NewServer(t, openaitest.Text("one"), openaitest.Text("two"), openaitest.Text("three"), openaitest.Text("four"))
		m := open(t, openai.Config{BaseURL: s.BaseURL})
		named, any, none, bare := asked(), asked(), asked(), asked()
		any.Choice.Name, none.NoCalls, bare.Tools = "", true, nil
		for _, r := range []llm.Request{named, any, none, bare} {
			if _, err := ask(t.Context(), m, r); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []openaitest.ToolChoice{"function now", "required", "none", ""} {
			sent := s.Requests()[i]
			if sent.ToolChoice != want || (sent.ParallelToolCalls != nil) != (i < 2) || i < 2 && *sent.ParallelToolCalls {
				t.Errorf("sent %q, in parallel %v; want %q", sent.ToolChoice, sent.ParallelToolCalls, want)
			}
			if *sent.TopP != 0.5 || !reflect.DeepEqual(sent.Stop, []string{"END", "\n"}) || sent.ReasoningEffort != "high" {
				t.Errorf("sent %v, %q, %q", *sent.TopP, sent.Stop, sent.ReasoningEffort)
			}
		}
	})
}

// What a server does not know it is not told again, and everything else it is.
func TestWhatAServerDoesNotKnow(t *testing.T) {
	for param := range said(openaitest.Request{}) {
		for how, refuses := range map[string]openaitest.Answer{
			"by name":      openaitest.Fault(400, "unsupported_parameter", param, hostile),
			"in prose":     openaitest.Fault(400, "", "", "Unsupported parameter: '"+param+"' is not supported with this model."),
			"in a list":    openaitest.Status(422, `{"detail":[{"type":"extra_forbidden","loc":["body","`+param+`"],"msg":"Extra inputs are not permitted"}]}`),
			"in an answer": openaitest.Body(`{"error":{"type":"invalid_request_error","param":"` + param + `"}}`),
		} {
			t.Run(param+" "+how, func(t *testing.T) {
				s := openaitest.NewServer(t, refuses, openaitest.Text("four"), openaitest.Text("five"), openaitest.Text("six"))
				m := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never})
				for range 2 {
					if _, err := m.Complete(t.Context(), asked()); err != nil {
						t.Fatal(err)
					}
				}
				for i, sent := range s.Requests() {
					want := map[string]bool{"tool_choice": true, "parallel_tool_calls": true, "top_p": true, "stop": true, "reasoning_effort": true}
					want[param] = i == 0
					if got := said(sent); !reflect.DeepEqual(got, want) {
						t.Errorf("request %d says %v, want %v", i, got, want)
					}
				}
				// That none may be called is another matter.
				r := asked()
				r.NoCalls = true
				if _, err := m.Complete(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				if sent := s.Requests()[3]; sent.ToolChoice != "none" {
					t.Errorf("then sent %q", sent.ToolChoice)
				}
			})
		}
		t.Run(param+" that was not sent", func(t *testing.T) {
			s := openaitest.NewServer(t, openaitest.Fault(400, "unsupported_parameter", param, hostile), openaitest.Text("four"))
			m := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never})
			_, err := m.Complete(t.Context(), prompt())
			checkError(t, err, llm.ErrRefused, s.BaseURL)
			if _, err := m.Complete(t.Context(), asked()); err != nil || !said(s.Requests()[1])[param] {
				t.Errorf("%v: sent %+v", err, s.Requests()[1])
			}
		})
	}
}

// A word of effort that one model does not know says nothing about the others.
func TestUnknownEfforts(t *testing.T) {
	s := openaitest.NewServer(t, openaitest.Fault(400, "unsupported_value", "reasoning_effort", hostile), openaitest.Text("four"), openaitest.Text("five"))
	m := open(t, openai.Config{BaseURL: s.BaseURL, MaxRetries: never})
	var sent []string
	for _, effort := range []string{"minimal", "high"} {
		r := prompt()
		r.Effort = effort
		if _, err := m.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.Requests() {
		sent = append(sent, r.ReasoningEffort)
	}
	if want := []string{"minimal", "", "high"}; !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}
