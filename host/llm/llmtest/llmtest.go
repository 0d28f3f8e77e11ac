// Package llmtest is the suite that every llm.Model passes, and every
// llm.Streamer: TestModel for models that need nobody, TestDriver for those that
// ask a server.
package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Turn is what a server does with one request, whatever its protocol. The zero
// Turn is an answer with nothing in it.
type Turn struct {
	// Text is what the model says, in the pieces in which it is streamed; joined,
	// where it is not.
	Text []string
	// Next, if not nil, gives a value for each piece of Text that may be sent.
	Next <-chan struct{}
	// Calls are what the model asks for after Text.
	Calls []llm.ToolCall
	// Truncated says that the output limit cut the answer off, Declined that the
	// model would rather not answer, or not go on.
	Truncated, Declined bool
	// Status of at least 400 is answered instead, with an error in the form of
	// the protocol that says no more than the status; and RetryAfter, in whole
	// seconds, unless it is zero.
	Status     int
	RetryAfter time.Duration
	// Then, if not nil, is called on the server's goroutine when Text was sent, and
	// nothing of the rest; before the first byte, if the answer is not streamed.
	// ctx is done when the client has gone.
	Then func(ctx context.Context)
	// BrokenOff says that the connection breaks after Text; without Text, after
	// the status.
	BrokenOff bool
}

// concurrent is how many ask at the same time.
const concurrent = 8

// patience is when something that should have ended is called endless.
const patience = 10 * time.Second

// TestModel holds m to the contract of llm.Model, and of llm.Streamer if it is
// one. It answers r with text, the same each time.
func TestModel(t *testing.T, m llm.Model, r llm.Request) {
	before := clone(t, r)
	want, err := m.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if want.Text == "" {
		t.Fatalf("the answer has no text: %+v", want)
	}
	checkResponse(t, r, want)
	t.Run("another answer", func(t *testing.T) {
		if got, err := m.Complete(t.Context(), r); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nthen %+v", want, err, got)
		}
	})
	t.Run("cancelled before", func(t *testing.T) { testCancelledBefore(t, m, r) })
	t.Run("concurrent", func(t *testing.T) {
		testConcurrent(t, m, r, func(got llm.Response) error {
			if !reflect.DeepEqual(got, want) {
				return fmt.Errorf("got %+v, want %+v", got, want)
			}
			return nil
		})
	})
	if s, ok := m.(llm.Streamer); ok {
		t.Run("stream", func(t *testing.T) {
			got, pieces, err := stream(t, t.Context(), s, r)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
			}
			checkPieces(t, got, pieces)
		})
		t.Run("cancelled after a piece", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			_, err := s.Stream(ctx, r, func(string) { n++; cancel() })
			// Who has said all of it may return it.
			if n != 1 && err == nil || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("after %d pieces: %v", n, err)
			}
		})
	}
	if !reflect.DeepEqual(r, before) {
		t.Errorf("the request was\n%+v, and is\n%+v", before, r)
	}
}

// TestDriver holds a driver to the contract of llm.Model, and of llm.Streamer if
// it is one. Open returns a model, called "test-model", whose server answers one
// request after the other by the turns; a request too many fails t. The model
// sends no request a second time.
func TestDriver(t *testing.T, open func(t *testing.T, turns ...Turn) llm.Model) {
	d := driver{open: open}
	_, d.streams = open(t).(llm.Streamer)
	t.Run("answers", d.testAnswers)
	t.Run("statuses", d.testStatuses)
	t.Run("broken off", d.testBrokenOff)
	t.Run("cancelled", d.testCancelled)
	t.Run("a slow first byte", d.testSlow)
	t.Run("piece by piece", d.testPieceByPiece)
	t.Run("one call at most", d.testOneCall)
	t.Run("concurrent", func(t *testing.T) {
		turns := slices.Repeat([]Turn{{Text: []string{"for ", "all"}}}, 2*concurrent)
		testConcurrent(t, d.open(t, turns...), Prompt(), func(got llm.Response) error {
			if got.Text != "for all" {
				return fmt.Errorf("got %+v", got)
			}
			return nil
		})
	})
}

type driver struct {
	open    func(*testing.T, ...Turn) llm.Model
	streams bool
}

// Prompt is a request with all that every protocol has.
func Prompt() llm.Request {
	temperature, topP := 0.5, 0.9
	return llm.Request{
		System: "Be kind.",
		Messages: []llm.Message{
			{Role: llm.RoleUser, Text: "Who feeds the parrot? 🦜 Look.", Images: []llm.Image{
				{At: 27, MediaType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}, {At: 33, URL: "https://example.com/parrot.jpg"},
			}},
			{Role: llm.RoleAssistant, Text: "Let me see.", ToolCalls: []llm.ToolCall{{ID: "call_1", Name: "search", Input: json.RawMessage(`{"query":"parrot"}`)}}},
			{Role: llm.RoleUser, Text: "Be quick.", ToolResults: []llm.ToolResult{{ID: "call_1", Name: "search", Text: "Marta"}}},
		},
		Tools:           []llm.Tool{{Name: "search", Description: "Searches.", Parameters: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"}}}`)}},
		MaxOutputTokens: 99,
		Choice:          llm.ToolChoice{Required: true, Name: "search"},
		TopP:            &topP,
		Stop:            []string{"END", "\n\n\n"},
		Effort:          "low",
		Temperature:     &temperature,
	}
}

// without returns Prompt without tools and all that came of them.
func without() llm.Request {
	r := Prompt()
	r.Tools, r.Messages = nil, r.Messages[:1]
	return r
}

// both asks with the same turn by Complete and, where there is one, by Stream. A
// stream that fails after its first piece is no answer at all, so that it is for
// check to compare; whatever ends well is the same in both ways.
func (d driver) both(t *testing.T, turn Turn, r llm.Request, check func(t *testing.T, got llm.Response, pieces []string, err error)) {
	t.Helper()
	before := clone(t, r)
	whole, err := d.open(t, turn).Complete(t.Context(), r)
	checkError(t, err)
	check(t, whole, nil, err)
	if err == nil {
		checkResponse(t, r, whole)
	}
	if d.streams {
		streamed, pieces, streamErr := stream(t, t.Context(), d.open(t, turn).(llm.Streamer), r)
		checkError(t, streamErr)
		check(t, streamed, pieces, streamErr)
		if streamErr == nil {
			checkResponse(t, r, streamed)
			checkPieces(t, streamed, pieces)
		}
		if (err == nil) != (streamErr == nil) || !reflect.DeepEqual(streamed, whole) {
			t.Errorf("streamed %+v, %v\nwhole    %+v, %v", streamed, streamErr, whole, err)
		}
	}
	if !reflect.DeepEqual(r, before) {
		t.Errorf("the request was\n%+v, and is\n%+v", before, r)
	}
}

func (d driver) testAnswers(t *testing.T) {
	call := llm.ToolCall{ID: "call_2", Name: "search", Input: json.RawMessage(`{"query":"who"}`)}
	other := llm.ToolCall{ID: "call_3", Name: "search", Input: json.RawMessage(`{"query":"when"}`)}
	for _, test := range []struct {
		name    string
		turn    Turn
		request llm.Request
		want    llm.Response // but what it costs and who answered
		err     error
	}{
		{name: "one piece", turn: Turn{Text: []string{"Marta."}}, request: Prompt(), want: llm.Response{Text: "Marta."}},
		{name: "pieces", turn: Turn{Text: []string{"Mar", "ta, ", "in the ", "m", "orning. 🦜"}}, request: Prompt(), want: llm.Response{Text: "Marta, in the morning. 🦜"}},
		{name: "space around it", turn: Turn{Text: []string{"\n", " ", "Marta.", "\n"}}, request: Prompt(), want: llm.Response{Text: "\n Marta.\n"}},
		{name: "nothing but text", turn: Turn{Text: []string{"Marta."}}, request: without(), want: llm.Response{Text: "Marta."}},
		{name: "cut off", turn: Turn{Text: []string{"Mar", "ta"}, Truncated: true}, request: Prompt(), want: llm.Response{Text: "Marta", Truncated: true}},
		{name: "a call", turn: Turn{Calls: []llm.ToolCall{call}}, request: Prompt(), want: llm.Response{ToolCalls: []llm.ToolCall{call}}},
		{name: "text and calls", turn: Turn{Text: []string{"I ", "look."}, Calls: []llm.ToolCall{call, other}}, request: Prompt(), want: llm.Response{Text: "I look.", ToolCalls: []llm.ToolCall{call, other}}},
		{name: "a call that nobody offered", turn: Turn{Text: []string{"Hm."}, Calls: []llm.ToolCall{call}}, request: without(), want: llm.Response{Text: "Hm."}},
		{name: "only a call that nobody offered", turn: Turn{Calls: []llm.ToolCall{call}}, request: without(), err: llm.ErrEmpty},
		{name: "nothing", request: Prompt(), err: llm.ErrEmpty},
		{name: "white space", turn: Turn{Text: []string{" ", "\n"}}, request: Prompt(), err: llm.ErrEmpty},
		{name: "nothing, cut off", turn: Turn{Truncated: true}, request: Prompt(), want: llm.Response{Truncated: true}, err: llm.ErrEmpty},
		{name: "declined", turn: Turn{Declined: true}, request: Prompt(), want: llm.Response{Filtered: true}, err: llm.ErrRefused},
		{name: "declined in the middle", turn: Turn{Text: []string{"To ", "build"}, Calls: []llm.ToolCall{call}, Declined: true}, request: Prompt(), want: llm.Response{Text: "To build", Filtered: true}},
		{name: "declined with a call alone", turn: Turn{Calls: []llm.ToolCall{call}, Declined: true}, request: Prompt(), want: llm.Response{Filtered: true}, err: llm.ErrRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			d.both(t, test.turn, test.request, func(t *testing.T, got llm.Response, pieces []string, err error) {
				t.Helper()
				if !errors.Is(err, test.err) {
					t.Fatalf("got %+v, %v; want %v", got, err, test.err)
				}
				if test.err != nil && len(pieces) > 0 {
					t.Errorf("pieces of no answer: %q", pieces)
				}
				if got.Text != test.want.Text || got.Truncated != test.want.Truncated || got.Filtered != test.want.Filtered || got.Stopped != "" || !reflect.DeepEqual(got.ToolCalls, test.want.ToolCalls) {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
			})
		})
	}
}

func (d driver) testStatuses(t *testing.T) {
	for status, want := range map[int]error{
		400: llm.ErrRefused, 401: llm.ErrAuth, 403: llm.ErrAuth, 404: llm.ErrRefused, 413: llm.ErrContextTooLong,
		429: llm.ErrRateLimited, 500: llm.ErrUnavailable, 502: llm.ErrUnavailable, 503: llm.ErrUnavailable, 529: llm.ErrUnavailable,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			d.both(t, Turn{Status: status}, Prompt(), func(t *testing.T, got llm.Response, pieces []string, err error) {
				t.Helper()
				if !errors.Is(err, want) || !reflect.DeepEqual(got, llm.Response{}) || len(pieces) > 0 {
					t.Errorf("got %+v, %q, %v; want %v", got, pieces, err, want)
				}
				checkStatus(t, err, llm.StatusError{Status: status})
			})
		})
	}
	t.Run("with a time to come back", func(t *testing.T) {
		d.both(t, Turn{Status: 429, RetryAfter: 7 * time.Second}, Prompt(), func(t *testing.T, _ llm.Response, _ []string, err error) {
			t.Helper()
			checkStatus(t, err, llm.StatusError{Status: 429, RetryAfter: 7 * time.Second})
		})
	})
}

// checkStatus has an error tell the status that the server answered.
func checkStatus(t *testing.T, err error, want llm.StatusError) {
	t.Helper()
	if got, ok := errors.AsType[*llm.StatusError](err); !ok || *got != want {
		t.Errorf("%v has the status %+v, want %+v", err, got, want)
	}
}

func (d driver) testBrokenOff(t *testing.T) {
	for name, turn := range map[string]Turn{
		"before the first piece": {BrokenOff: true},
		"after white space":      {Text: []string{" "}, BrokenOff: true},
		"after pieces":           {Text: []string{"Mar", "ta"}, BrokenOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			d.both(t, turn, Prompt(), func(t *testing.T, got llm.Response, pieces []string, err error) {
				t.Helper()
				if !errors.Is(err, llm.ErrUnavailable) || !reflect.DeepEqual(got, llm.Response{}) {
					t.Errorf("got %+v, %v", got, err)
				}
				if said := strings.TrimSpace(strings.Join(turn.Text, "")); !strings.HasPrefix(said, strings.Join(pieces, "")) {
					t.Errorf("got the pieces %q", pieces)
				}
			})
		})
	}
}

func (d driver) testCancelled(t *testing.T) {
	t.Run("before", func(t *testing.T) { testCancelledBefore(t, d.open(t), Prompt()) })
	t.Run("while the server thinks", func(t *testing.T) {
		d.eachWay(t, func(t *testing.T, ask func(context.Context, llm.Model) error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := d.open(t, Turn{Then: func(gone context.Context) { cancel(); wait(gone) }})
			checkEnds(t, context.Canceled, func() error { return ask(ctx, m) })
		})
	})
	t.Run("deadline", func(t *testing.T) {
		d.eachWay(t, func(t *testing.T, ask func(context.Context, llm.Model) error) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			m := d.open(t, Turn{Then: wait})
			checkEnds(t, context.DeadlineExceeded, func() error { return ask(ctx, m) })
		})
	})
	if !d.streams {
		return
	}
	t.Run("between pieces", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := d.open(t, Turn{Text: []string{"Marta"}, Then: wait}).(llm.Streamer)
		var pieces []string
		checkEnds(t, context.Canceled, func() error {
			got, err := s.Stream(ctx, Prompt(), func(text string) {
				pieces = append(pieces, text)
				cancel()
			})
			if !reflect.DeepEqual(got, llm.Response{}) {
				t.Errorf("got %+v", got)
			}
			return err
		})
		if strings.Join(pieces, "") != "Marta" {
			t.Errorf("got %q", pieces)
		}
	})
}

// testSlow has pieces come as soon as the server sends them: the rest of the
// answer is sent only when the first of them has arrived.
func (d driver) testSlow(t *testing.T) {
	if !d.streams {
		t.Skip("the model does not stream")
	}
	arrived := make(chan struct{})
	s := d.open(t, Turn{Text: []string{"Marta"}, Then: func(gone context.Context) {
		select {
		case <-arrived:
		case <-gone.Done():
		}
	}}).(llm.Streamer)
	checkEnds(t, nil, func() error {
		got, err := s.Stream(t.Context(), Prompt(), func(string) { close(arrived) })
		if err == nil && got.Text != "Marta" {
			t.Errorf("got %+v", got)
		}
		return err
	})
}

// testPieceByPiece has each piece of a stream heard before the next is sent.
func (d driver) testPieceByPiece(t *testing.T) {
	if !d.streams {
		t.Skip("the model does not stream")
	}
	text := []string{"Mar", "ta, ", "in", " the ", "morning."}
	next := make(chan struct{}, len(text)+1)
	next <- struct{}{}
	s := d.open(t, Turn{Text: text, Next: next}).(llm.Streamer)
	checkEnds(t, nil, func() error {
		var heard []string
		_, err := s.Stream(t.Context(), Prompt(), func(piece string) {
			heard = append(heard, piece)
			next <- struct{}{}
		})
		if !slices.Equal(heard, text) {
			t.Errorf("heard %q of %q", heard, text)
		}
		return err
	})
}

// testOneCall has a request that allows for one call get no more.
func (d driver) testOneCall(t *testing.T) {
	calls := []llm.ToolCall{
		{ID: "call_2", Name: "search", Input: json.RawMessage(`{"query":"who"}`)}, {ID: "call_3", Name: "search", Input: json.RawMessage(`{"query":"when"}`)},
	}
	for name, choice := range map[string]llm.ToolChoice{"of any": {One: true}, "that there must be": {Required: true, One: true}, "of one": {Required: true, Name: "search", One: true}} {
		t.Run(name, func(t *testing.T) {
			r := Prompt()
			r.Choice = choice
			d.both(t, Turn{Calls: calls}, r, func(t *testing.T, got llm.Response, _ []string, err error) {
				t.Helper()
				if err != nil || !reflect.DeepEqual(got.ToolCalls, calls[:1]) {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		})
	}
}

// eachWay runs a test for each way to ask.
func (d driver) eachWay(t *testing.T, test func(*testing.T, func(context.Context, llm.Model) error)) {
	t.Run("complete", func(t *testing.T) {
		test(t, func(ctx context.Context, m llm.Model) error {
			_, err := m.Complete(ctx, Prompt())
			return err
		})
	})
	if d.streams {
		t.Run("stream", func(t *testing.T) {
			test(t, func(ctx context.Context, m llm.Model) error {
				_, err := m.(llm.Streamer).Stream(ctx, Prompt(), func(text string) { t.Errorf("said %q", text) })
				return err
			})
		})
	}
}

func testCancelledBefore(t *testing.T, m llm.Model, r llm.Request) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := m.Complete(ctx, r); !errors.Is(err, context.Canceled) || !reflect.DeepEqual(got, llm.Response{}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if s, ok := m.(llm.Streamer); ok {
		if got, pieces, err := stream(t, ctx, s, r); !errors.Is(err, context.Canceled) || !reflect.DeepEqual(got, llm.Response{}) || len(pieces) > 0 {
			t.Errorf("got %+v, %q, %v", got, pieces, err)
		}
	}
}

// testConcurrent asks in all ways at once, twice concurrent times in all at most.
func testConcurrent(t *testing.T, m llm.Model, r llm.Request, check func(llm.Response) error) {
	var all sync.WaitGroup
	ask := func(ask func() (llm.Response, error)) {
		all.Go(func() {
			got, err := ask()
			if err == nil {
				err = check(got)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range concurrent {
		ask(func() (llm.Response, error) { return m.Complete(t.Context(), r) })
		if s, ok := m.(llm.Streamer); ok {
			ask(func() (llm.Response, error) {
				got, pieces, err := stream(t, t.Context(), s, r)
				if joined := strings.Join(pieces, ""); err == nil && joined != got.Text {
					err = fmt.Errorf("streamed %q of %q", joined, got.Text)
				}
				return got, err
			})
		}
	}
	all.Wait()
}

// stream collects the pieces of one answer, which come in its own goroutine.
func stream(t *testing.T, ctx context.Context, s llm.Streamer, r llm.Request) (llm.Response, []string, error) {
	var pieces []string
	returned := false
	asker := caller()
	got, err := s.Stream(ctx, r, func(text string) {
		if returned {
			t.Errorf("the piece %q came after the end", text)
		}
		if !isCalledFrom(asker) {
			t.Errorf("the piece %q came in another goroutine", text)
		}
		pieces = append(pieces, text)
	})
	returned = true
	return got, pieces, err
}

// caller is the function that called the caller.
func caller() string { return callers(2)[0] }

// isCalledFrom reports whether a function is among those that this goroutine is in.
func isCalledFrom(function string) bool { return slices.Contains(callers(2), function) }

// callers are the functions that this goroutine is in, the innermost first.
func callers(skip int) (names []string) {
	var at [256]uintptr
	frames := runtime.CallersFrames(at[:runtime.Callers(skip+1, at[:])])
	for {
		frame, more := frames.Next()
		if names = append(names, frame.Function); !more {
			return names
		}
	}
}

// wait returns when the client has gone.
func wait(gone context.Context) { <-gone.Done() }

// checkEnds has ask end in time, with an error that is want.
func checkEnds(t *testing.T, want error, ask func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- ask() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-ended:
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	case <-timer.C:
		t.Fatalf("no end within %s", patience)
	}
}

// checkPieces holds the pieces of an answer against its text.
func checkPieces(t *testing.T, got llm.Response, pieces []string) {
	t.Helper()
	if joined := strings.Join(pieces, ""); joined != got.Text {
		t.Errorf("the pieces %q are not the text %q", pieces, got.Text)
	}
	for _, p := range pieces {
		if p == "" || !utf8.ValidString(p) {
			t.Errorf("the piece %q is empty or cuts a character", p)
		}
	}
}

// checkResponse holds an answer against what llm.Response promises.
func checkResponse(t *testing.T, r llm.Request, got llm.Response) {
	t.Helper()
	if got.Text != "" && strings.TrimSpace(got.Text) == "" || got.Text == "" && len(got.ToolCalls) == 0 {
		t.Errorf("no answer: %+v", got)
	}
	if !utf8.ValidString(got.Text) {
		t.Errorf("the text %q is not UTF-8", got.Text)
	}
	if len(got.ToolCalls) > 0 && (len(r.Tools) == 0 || !reflect.DeepEqual(llm.ParseToolCalls(got.ToolCalls), got.ToolCalls)) {
		t.Errorf("calls that nobody offered, or that are out of form: %+v", got.ToolCalls)
	}
	if got.InputTokens <= 0 || got.CachedTokens < 0 || got.WrittenTokens < 0 || got.CachedTokens+got.WrittenTokens > got.InputTokens {
		t.Errorf("it cost %d tokens, %d of them kept before and %d now", got.InputTokens, got.CachedTokens, got.WrittenTokens)
	}
	if got.OutputTokens <= 0 || got.ThoughtTokens < 0 || got.ThoughtTokens > got.OutputTokens {
		t.Errorf("it cost %d tokens, %d of them thoughts", got.OutputTokens, got.ThoughtTokens)
	}
	if got.Filtered && len(got.ToolCalls) > 0 || r.Choice.One && len(got.ToolCalls) > 1 {
		t.Errorf("calls that may not be: %+v", got)
	}
	if got.Stopped != "" && !slices.Contains(r.Stop, got.Stopped) {
		t.Errorf("it ended before %q, of %q", got.Stopped, r.Stop)
	}
	if got.Model == "" {
		t.Error("nobody answered")
	}
}

// checkError has an error be one that callers know.
func checkError(t *testing.T, err error) {
	t.Helper()
	known := []error{
		nil, llm.ErrRateLimited, llm.ErrUnavailable, llm.ErrAuth, llm.ErrContextTooLong, llm.ErrEmpty, llm.ErrRefused,
		context.Canceled, context.DeadlineExceeded,
	}
	if !slices.ContainsFunc(known, func(kind error) bool { return errors.Is(err, kind) }) {
		t.Errorf("an error of no kind: %v", err)
	}
}

// clone returns a request that shares nothing with r.
func clone(t *testing.T, r llm.Request) llm.Request {
	t.Helper()
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var c llm.Request
	if err := json.Unmarshal(encoded, &c); err != nil {
		t.Fatal(err)
	}
	return c
}
