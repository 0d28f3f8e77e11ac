package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// streaming is a model that says what a script says, in its pieces.
type streaming struct {
	mu     sync.Mutex
	script []spoken
	asked  int
}

// spoken is one answer: pieces, and what comes with them.
type spoken struct {
	pieces []string
	calls  []llm.ToolCall
	err    error
	// hangs keeps it from ending before the context does; begun is closed when the
	// pieces are out.
	hangs bool
	begun chan struct{}
	// text is what the response says if it is not the pieces.
	text string
}

func (m *streaming) Complete(context.Context, llm.Request) (llm.Response, error) {
	return llm.Response{}, errors.New("nobody listens")
}

func (m *streaming) Stream(ctx context.Context, r llm.Request, each func(string)) (llm.Response, error) {
	m.mu.Lock()
	if m.asked == len(m.script) {
		m.mu.Unlock()
		return llm.Response{}, fmt.Errorf("asked %d times: %w", m.asked+1, llm.ErrUnavailable)
	}
	says := m.script[m.asked]
	m.asked++
	m.mu.Unlock()
	for _, p := range says.pieces {
		each(p)
	}
	if says.begun != nil {
		close(says.begun)
	}
	if says.hangs {
		<-ctx.Done()
		return llm.Response{}, ctx.Err()
	}
	text := strings.Join(says.pieces, "")
	if says.text != "" {
		text = says.text
	}
	return llm.Response{Text: text, ToolCalls: says.calls, Model: "test"}, says.err
}

func says(pieces ...string) spoken { return spoken{pieces: pieces} }

// heard is a turn's listener, and what it was told.
type heard struct {
	events []host.Event
	// at is called with each event.
	at func(host.Event)
}

// tell is not locked: under the race detector it shows that it is called by one
// goroutine.
func (l *heard) tell(e host.Event) {
	l.events = append(l.events, e)
	if l.at != nil {
		l.at(e)
	}
}

// lines writes the events down.
func (l *heard) lines() (lines []string) {
	for _, e := range l.events {
		switch {
		case e.Restart && e.Text == "" && e.Tool == "":
			lines = append(lines, "restart")
		case e.Tool != "" && e.Text == "" && !e.Restart:
			lines = append(lines, "tool "+e.Tool)
		case e.Text != "" && !e.Restart && e.Tool == "":
			lines = append(lines, e.Text)
		default:
			lines = append(lines, fmt.Sprintf("malformed %+v", e))
		}
	}
	return lines
}

// told is what the pieces after the last restart say.
func (l *heard) told() string {
	var b strings.Builder
	for _, e := range l.events {
		if b.WriteString(e.Text); e.Restart {
			b.Reset()
		}
	}
	return b.String()
}

func toolCall(id, name, input string) llm.ToolCall {
	return llm.ToolCall{ID: id, Name: name, Input: []byte(input)}
}

func TestEventsOfATurn(t *testing.T) {
	tooLong := fmt.Errorf("test: %w", llm.ErrContextTooLong)
	for name, test := range map[string]struct {
		script []spoken
		want   []string
		answer string
	}{
		"pieces":                   {[]spoken{says("It ", "does", ".")}, []string{"It ", "does", "."}, "It does."},
		"one piece":                {[]spoken{says("It does.")}, []string{"It does."}, "It does."},
		"white space around":       {[]spoken{says(" \n", "It does. ")}, []string{" \n", "It does. "}, " \nIt does. "},
		"an empty piece":           {[]spoken{says("", "It does.", "")}, []string{"It does."}, "It does."},
		"a tool without a word":    {[]spoken{{calls: []llm.ToolCall{toolCall("a", "search", "{}")}}, says("It does.")}, []string{"tool search", "It does."}, "It does."},
		"a tool after words":       {[]spoken{{pieces: []string{"Let me ", "see."}, calls: []llm.ToolCall{toolCall("a", "search", "{}")}}, says("It does.")}, []string{"Let me ", "see.", "restart", "tool search", "It does."}, "It does."},
		"tools of which some run":  {[]spoken{{calls: []llm.ToolCall{toolCall("a", "search", "{}"), toolCall("b", "format_disk", "{}"), toolCall("c", "search", "[")}}, says("It does.")}, []string{"tool search", "It does."}, "It does."},
		"a prompt that is cut":     {[]spoken{{pieces: []string{"It"}, err: tooLong}, says("It does.")}, []string{"It", "restart", "It does."}, "It does."},
		"cut before a word":        {[]spoken{{err: tooLong}, says("It does.")}, []string{"It does."}, "It does."},
		"a driver that loses some": {[]spoken{{pieces: []string{"It do"}, text: "It does."}}, []string{"It do", "restart", "It does."}, "It does."},
		"a driver that says none":  {[]spoken{{text: "It does."}}, []string{"It does."}, "It does."},
	} {
		t.Run(name, func(t *testing.T) {
			model := &streaming{script: test.script}
			h := open(t, host.Config{LLM: model})
			h.Offer(time.Minute, &testTool{name: "search"})
			session := newSession(t, h)
			// Something that recovery can leave out.
			user, err := h.User("")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 12 {
				if _, err := h.Store().Append(t.Context(), user.ID, session, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: monday, Blocks: []memory.Block{memory.Text(fmt.Sprint("Number ", i))}}); err != nil {
					t.Fatal(err)
				}
			}
			var listener heard
			answer := send(t, h, host.Message{Session: session, Text: "How does the pump do?", OnEvent: listener.tell})
			if got := listener.lines(); !slices.Equal(got, test.want) {
				t.Errorf("told %q, want %q", got, test.want)
			}
			if got := answer.Message.Blocks[0].Text; got != test.answer || listener.told() != got {
				t.Errorf("stored %q, told %q, want %q", got, listener.told(), test.answer)
			}
		})
	}
}

// A model that is told to call no tools and says nothing is asked once more
// without any: what it said of that is taken back.
func TestEventsWhenNoCallsAreLeft(t *testing.T) {
	var script []spoken
	for i := range 8 {
		script = append(script, spoken{calls: []llm.ToolCall{toolCall(fmt.Sprint("c", i), "search", "{}")}})
	}
	script = append(script, spoken{pieces: []string{" ", "\n"}, calls: []llm.ToolCall{toolCall("x", "search", "{}")}}, says("I give ", "up."))
	h := open(t, host.Config{LLM: &streaming{script: script}})
	h.Offer(time.Minute, &testTool{name: "search"})
	var listener heard
	answer := send(t, h, host.Message{Text: "Please.", OnEvent: listener.tell})
	want := append(slices.Repeat([]string{"tool search"}, 8), " ", "\n", "restart", "I give ", "up.")
	if got := listener.lines(); !slices.Equal(got, want) || answer.Message.Blocks[0].Text != "I give up." {
		t.Errorf("told %q, answered %+v", got, answer.Message.Blocks)
	}
}

// Without a listener nothing is streamed, and a model that cannot is heard whole.
func TestEventsOfAModelThatDoesNotStream(t *testing.T) {
	h := open(t, host.Config{LLM: &model{}})
	var listener heard
	session := send(t, h, host.Message{Text: "Hello.", OnEvent: listener.tell}).Session
	if got := listener.lines(); !slices.Equal(got, []string{"ok"}) {
		t.Errorf("told %q", got)
	}
	h = open(t, host.Config{LLM: &streaming{}})
	if _, err := h.Send(t.Context(), host.Message{Text: "Hello."}); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("without a listener: %v, session %s", err, session)
	}
}

// What was answered before is told whole.
func TestEventsOfAMessageSentAgain(t *testing.T) {
	h := open(t, host.Config{LLM: &streaming{script: []spoken{says("Good ", "morning.")}}})
	keyed := host.Message{Session: newSession(t, h), Text: "Hello.", EventKey: "k"}
	var first, again heard
	keyed.OnEvent = first.tell
	send(t, h, keyed)
	keyed.OnEvent = again.tell
	send(t, h, keyed)
	if got := again.lines(); !slices.Equal(got, []string{"Good morning."}) || first.told() != again.told() {
		t.Errorf("told %q, then %q", first.lines(), got)
	}
}

// A listener that panics harms nobody.
func TestAListenerThatPanics(t *testing.T) {
	h := open(t, host.Config{LLM: &streaming{script: []spoken{{pieces: []string{"Let ", "me see."}, calls: []llm.ToolCall{toolCall("a", "search", "{}")}}, says("unheard")}}, Log: nil})
	h.Offer(time.Minute, &testTool{name: "search"})
	listener := heard{at: func(e host.Event) {
		if e.Text == "me see." {
			panic("swordfish")
		}
	}}
	_, err := h.Send(t.Context(), host.Message{Text: "Please.", OnEvent: listener.tell})
	// Nobody listens any more, so the model is not streamed.
	if err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("the turn: %v", err)
	}
	if got := listener.lines(); !slices.Equal(got, []string{"Let ", "me see."}) {
		t.Errorf("told %q", got)
	}
	plain := open(t, host.Config{LLM: &model{}})
	listener.at = func(host.Event) { panic("swordfish") }
	if answer := send(t, plain, host.Message{Text: "Hello.", OnEvent: listener.tell}); answer.Message.Blocks[0].Text != "ok" {
		t.Errorf("answered %+v", answer.Message)
	}
}

// A panic of the driver while it streams is the turn's failure, and so is what
// breaks off: nothing of it is stored.
func TestAStreamThatBreaksOff(t *testing.T) {
	model := &streaming{script: []spoken{{pieces: []string{"The pa"}, err: fmt.Errorf("test: %w", llm.ErrUnavailable)}, says("The pump does.")}}
	h := open(t, host.Config{LLM: model})
	session := newSession(t, h)
	var listener heard
	if _, err := h.Send(t.Context(), host.Message{Session: session, Text: "Hello?", OnEvent: listener.tell}); !errors.Is(err, llm.ErrUnavailable) {
		t.Errorf("the turn: %v", err)
	}
	lines, _ := transcriptOf(t, h, session)
	wantLines(t, lines, "user/user Hello?")
	send(t, h, host.Message{Session: session, Text: "Again?", OnEvent: listener.tell})
	lines, _ = transcriptOf(t, h, session)
	wantLines(t, lines, "user/user Hello?", "user/user Again?", "assistant/assistant The pump does.")
}

// Whoever gives up, in whichever phase of a turn, leaves a session that answers
// the next message.
func TestCancelInEveryPhase(t *testing.T) {
	entered := make(chan struct{}, 1)
	// block stands in a tool, or where the model is asked, until the turn is given
	// up.
	block := func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	for name, test := range map[string]struct {
		first spoken
		// events that are told before the turn is given up
		want []string
		// tool is called by the first answer.
		tool bool
		// stored is what the session holds between the two messages.
		stored []string
	}{
		"before the first piece": {spoken{hangs: true, begun: make(chan struct{})}, nil, false, []string{"user/user one"}},
		"while streaming":        {spoken{pieces: []string{"It d"}, hangs: true, begun: make(chan struct{})}, []string{"It d"}, false, []string{"user/user one"}},
		"in a tool": {spoken{pieces: []string{"Let me see."}, calls: []llm.ToolCall{toolCall("a", "search", "{}")}}, []string{"Let me see.", "restart", "tool search"}, true,
			[]string{"user/user one", "assistant/assistant Let me see. call a", "tool/tool result a failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, host.Config{LLM: &streaming{script: []spoken{test.first, says("It does.")}}})
			h.Offer(time.Minute, &testTool{name: "search", call: func(ctx context.Context, _ string, _ int) (boundary.Content, error) {
				return boundary.Content{}, block(ctx)
			}})
			session := newSession(t, h)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var listener heard
			sent := make(chan error, 1)
			go func() {
				_, err := h.Send(ctx, host.Message{Session: session, Text: "one", OnEvent: listener.tell})
				sent <- err
			}()
			if test.tool {
				<-entered
			} else {
				<-test.first.begun
			}
			cancel()
			if err := <-sent; !errors.Is(err, context.Canceled) {
				t.Errorf("the turn: %v", err)
			}
			if got := listener.lines(); !slices.Equal(got, test.want) {
				t.Errorf("told %q, want %q", got, test.want)
			}
			lines, _ := transcriptOf(t, h, session)
			wantLines(t, lines, test.stored...)
			answer := send(t, h, host.Message{Session: session, Text: "two", OnEvent: listener.tell})
			if answer.Message.Blocks[0].Text != "It does." {
				t.Errorf("answered %+v", answer.Message)
			}
			lines, _ = transcriptOf(t, h, session)
			wantLines(t, lines, append(test.stored, "user/user two", "assistant/assistant It does.")...)
		})
	}
}

// Who gives up while another turn of the pair goes on has said nothing.
func TestCancelWhileWaiting(t *testing.T) {
	begun := make(chan struct{})
	h := open(t, host.Config{LLM: &streaming{script: []spoken{{hangs: true, begun: begun}, says("It does.")}}})
	first, second := newSession(t, h), newSession(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	var listener heard
	go func() {
		_, err := h.Send(ctx, host.Message{Session: first, Text: "one", OnEvent: listener.tell})
		sent <- err
	}()
	<-begun
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := h.Send(gone, host.Message{Session: second, Text: "two"}); !errors.Is(err, context.Canceled) {
		t.Errorf("who waited: %v", err)
	}
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("the first turn: %v", err)
	}
	lines, _ := transcriptOf(t, h, second)
	wantLines(t, lines)
	send(t, h, host.Message{Session: second, Text: "three", OnEvent: listener.tell})
}

// At the socket: what a server streams is told piece by piece, and stored whole.
func TestEventsAtTheSocket(t *testing.T) {
	server := openaitest.NewServer(t,
		openaitest.Stream(openaitest.Piece("Let me "), openaitest.Piece("see."), openaitest.Deltas(openaitest.Call("a", "search", "{}")), openaitest.Finish("tool_calls"), openaitest.Usage(nil), openaitest.Done()),
		openaitest.Stream(openaitest.Piece("It "), openaitest.Piece("does."), openaitest.Finish("stop"), openaitest.Usage(nil), openaitest.Done()),
		openaitest.Stream(openaitest.Piece("It d"), openaitest.Break()),
		openaitest.Text("It still does."))
	h := asking(t, host.Config{}, server, &testTool{name: "search"})
	var listener heard
	answer := send(t, h, host.Message{Text: "How does the pump do?", OnEvent: listener.tell})
	if got, want := listener.lines(), []string{"Let me ", "see.", "restart", "tool search", "It ", "does."}; !slices.Equal(got, want) || answer.Message.Blocks[0].Text != "It does." {
		t.Errorf("told %q, want %q; answered %+v", got, want, answer.Message.Blocks)
	}
	if answer.InputTokens != 2*openaitest.InputTokens || answer.OutputTokens != 2*openaitest.OutputTokens {
		t.Errorf("%d and %d tokens", answer.InputTokens, answer.OutputTokens)
	}
	if _, err := h.Send(t.Context(), host.Message{Session: answer.Session, Text: "And now?", OnEvent: listener.tell}); !errors.Is(err, llm.ErrUnavailable) {
		t.Errorf("of a stream that breaks off: %v", err)
	}
	// Nobody listens: nothing is streamed.
	answer = send(t, h, host.Message{Session: answer.Session, Text: "Hello?"})
	if requests := server.Requests(); !requests[2].Stream || requests[3].Stream || answer.Message.Blocks[0].Text != "It still does." {
		t.Errorf("answered %+v", answer.Message.Blocks)
	}
}
