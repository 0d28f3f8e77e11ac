package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// standIn is a host whose turns are those of a test: for what a real one does only
// by bad luck.
type standIn struct {
	relay func(context.Context, *host.Conversation) (*host.Relayed, error)
}

func (s standIn) Relay(ctx context.Context, c *host.Conversation) (*host.Relayed, error) {
	return s.relay(ctx, c)
}

func (standIn) Agents() []host.AgentInfo { return []host.AgentInfo{{Name: "jeeves"}} }

func (standIn) Store() memory.Store { return nil }

// userKey is where a request's context has the name of its user.
type userKey struct{}

// behind is the gateway before a stand-in. The header User of a request says whose it
// is.
func behind(t *testing.T, b gateway.Bounds, relay func(context.Context, *host.Conversation) (*host.Relayed, error)) http.Handler {
	t.Helper()
	users := map[string]memory.UserID{"": memory.NewID[memory.UserID](), "other": memory.NewID[memory.UserID]()}
	config := gateway.Config{
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		User: func(ctx context.Context) memory.UserID { return users[fmt.Sprint(ctx.Value(userKey{}))] },
	}
	handler := gateway.NewFor(config, standIn{relay}, b)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("User"))))
	})
}

// gatewayOf serves the gateway before a stand-in.
func gatewayOf(t *testing.T, relay func(context.Context, *host.Conversation) (*host.Relayed, error)) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(behind(t, gateway.Bounds{}, relay))
	t.Cleanup(server.Close)
	return server
}

// says is a turn that ends with text and calls, of which each piece is told.
func says(r llm.Response, pieces ...string) func(context.Context, *host.Conversation) (*host.Relayed, error) {
	return func(_ context.Context, c *host.Conversation) (*host.Relayed, error) {
		placed := host.Placed{Session: memory.NewID[memory.SessionID](), New: true}
		c.OnPlaced(placed)
		for _, piece := range pieces {
			if c.OnEvent != nil {
				c.OnEvent(host.Event{Text: piece})
			}
		}
		r.Text = strings.Join(pieces, "")
		m := memory.Message{Role: memory.RoleAssistant}
		if r.Text != "" {
			m.Blocks = append(m.Blocks, memory.Text(r.Text))
		}
		for _, call := range r.ToolCalls {
			m.Blocks = append(m.Blocks, memory.ToolCall(call.ID, call.Name, call.Input))
		}
		return &host.Relayed{Placed: placed, Message: m, Calls: r.ToolCalls, Response: r}, nil
	}
}

// answered is what comes of a turn that ends with a text.
func answered(text string) *host.Relayed {
	return &host.Relayed{Message: memory.Message{ID: memory.NewID[memory.MessageID](), Blocks: []memory.Block{memory.Text(text)}}}
}

var somewhere = host.Placed{Session: memory.NewID[memory.SessionID](), New: true, Added: 1}

// recorder keeps what a handler writes, and lets others wait for it.
type recorder struct {
	mu     sync.Mutex
	more   sync.Cond
	status int
	head   http.Header
	body   strings.Builder
	// broken is what every write fails with, if it is not nil.
	broken error
	// reading and writing are the deadlines that were set.
	reading, writing []time.Time
}

func newRecorder() *recorder {
	w := &recorder{head: http.Header{}}
	w.more.L = &w.mu
	return w
}

func (w *recorder) Header() http.Header { return w.head }

func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return 0, w.broken
	}
	w.more.Broadcast()
	return w.body.Write(b)
}

func (w *recorder) Flush() {}

func (w *recorder) SetReadDeadline(t time.Time) error {
	w.reading = append(w.reading, t)
	return nil
}

func (w *recorder) SetWriteDeadline(t time.Time) error {
	w.writing = append(w.writing, t)
	return nil
}

// seen waits until a text was written.
func (w *recorder) seen(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !strings.Contains(w.body.String(), text) {
		w.more.Wait()
	}
}

func (w *recorder) breakOff(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = err
}

// contents puts together what the chunks of a stream say.
func (w *recorder) contents() string {
	var b strings.Builder
	for line := range strings.Lines(w.body.String()) {
		if _, rest, ok := strings.Cut(line, `"delta":{"content":"`); ok {
			text, _, _ := strings.Cut(rest, `"`)
			b.WriteString(text)
		}
	}
	return b.String()
}

// asking is a request for a chat completion.
func asking(ctx context.Context, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func askingStream(ctx context.Context) *http.Request {
	return asking(ctx, strings.NewReader(chatting(`"stream":true`)))
}

// A client is told the whole answer, whatever was told of it while it came; and
// that something is wrong if that was another one, which a stream cannot take back.
func TestStreamTellsTheAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		pieces []string
		says   string
		fails  bool
	}{
		"in pieces":                 {[]string{"Good", " ", "day."}, "Good day.", false},
		"without any":               {nil, "Good day.", false},
		"the last piece is missing": {[]string{"Good"}, "Good day.", false},
		"another answer":            {[]string{"Bad"}, "Bad", true},
		"more than the answer":      {[]string{"Good day.", " Or not."}, "Good day. Or not.", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRecorder()
			handler := behind(t, gateway.Bounds{}, func(_ context.Context, c *host.Conversation) (*host.Relayed, error) {
				c.OnPlaced(somewhere)
				for _, piece := range test.pieces {
					c.OnEvent(host.Event{Tool: "memory_search"})
					c.OnEvent(host.Event{Text: piece})
					w.seen(`"delta":{"content":"` + piece + `"}`)
				}
				return answered("Good day."), nil
			})
			handler.ServeHTTP(w, askingStream(t.Context()))
			if got := w.contents(); got != test.says {
				t.Errorf("it says %q, want %q", got, test.says)
			}
			if failed := strings.Contains(w.body.String(), `data: {"error":{`); failed != test.fails || failed == strings.HasSuffix(w.body.String(), "data: [DONE]\n\n") {
				t.Error(w.body.String())
			}
			if got := w.head.Get(gateway.SessionHeader); got != somewhere.Session.String() {
				t.Errorf("the session is %q", got)
			}
		})
	}
}

// A stream that has nothing to say says that it lives, from when it is known where
// the conversation is kept; what goes wrong then is an event, and before it a status.
func TestStreamLives(t *testing.T) {
	for name, early := range map[string]bool{"early": true, "late": false} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { streamLives(t, early) }) })
	}
}

func streamLives(t *testing.T, early bool) {
	w := newRecorder()
	handler := behind(t, gateway.Bounds{}, func(_ context.Context, c *host.Conversation) (*host.Relayed, error) {
		if early {
			// However long it is not known where the conversation is kept.
			<-time.After(time.Minute)
			return &host.Relayed{}, fmt.Errorf("relay: %w", llm.ErrUnavailable)
		}
		c.OnPlaced(somewhere)
		w.seen(":\n\n:\n\n")
		return &host.Relayed{}, fmt.Errorf("relay: %w", llm.ErrUnavailable)
	})
	handler.ServeHTTP(w, askingStream(t.Context()))
	body := w.body.String()
	if early {
		if w.status != http.StatusBadGateway || !strings.HasPrefix(body, `{"error":`) || w.head.Get("Content-Type") != "application/json" {
			t.Errorf("%d %s", w.status, body)
		}
		return
	}
	if w.status != 0 || w.head.Get(gateway.SessionHeader) == "" || w.head.Get("X-Accel-Buffering") != "no" || !strings.HasPrefix(w.head.Get("Content-Type"), "text/event-stream") {
		t.Errorf("%d %v", w.status, w.head)
	}
	if end := strings.TrimLeft(body, ":\n"); !strings.HasPrefix(end, `data: {"error":{"message":"`) || strings.Contains(body, "[DONE]") {
		t.Errorf("%s", body)
	}
}

// While it has something to say, it says nothing else.
func TestStreamThatSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := behind(t, gateway.Bounds{}, func(_ context.Context, c *host.Conversation) (*host.Relayed, error) {
			c.OnPlaced(somewhere)
			for range 10 {
				<-time.After(10 * time.Second)
				c.OnEvent(host.Event{Text: "on "})
			}
			return answered(strings.Repeat("on ", 10)), nil
		})
		w := newRecorder()
		handler.ServeHTTP(w, askingStream(t.Context()))
		if body := w.body.String(); w.contents() != strings.Repeat("on ", 10) || strings.Contains("\n"+body, "\n:\n") {
			t.Errorf("%s", body)
		}
	})
}

// Who goes away ends the turn, which the handler waits for; a reader who takes
// nothing is one who has gone.
func TestStreamEnds(t *testing.T) {
	for _, how := range []string{"the client goes", "nothing is read"} {
		t.Run(how, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { streamEnds(t, how) }) })
	}
}

func streamEnds(t *testing.T, how string) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	w, over := newRecorder(), false
	handler := behind(t, gateway.Bounds{}, func(turn context.Context, c *host.Conversation) (*host.Relayed, error) {
		c.OnPlaced(somewhere)
		c.OnEvent(host.Event{Text: "Good"})
		w.seen("Good")
		if how == "the client goes" {
			leave()
		} else {
			w.breakOff(os.ErrDeadlineExceeded)
			c.OnEvent(host.Event{Text: " day."})
		}
		select {
		case <-turn.Done():
		case <-time.After(time.Hour):
			t.Error("the turn goes on though nobody reads")
		}
		over = true
		w.breakOff(nil)
		return &host.Relayed{}, turn.Err()
	})
	// The server is not to take the answer for one that was given.
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("the handler ended with %v", p)
			}
		}()
		handler.ServeHTTP(w, askingStream(ctx))
	}()
	if !over {
		t.Error("the handler returned before the turn")
	}
	if n := len(w.writing); n == 0 || time.Until(w.writing[n-1]) > time.Minute || time.Until(w.writing[n-1]) < 0 {
		t.Errorf("deadlines of writing: %v", w.writing)
	}
	// What follows a gap is not the answer, should the reader take it again.
	if how == "nothing is read" && (w.contents() != "Good" || strings.Contains(w.body.String(), "error")) {
		t.Errorf("after a write that failed: %s", w.body.String())
	}
}

// Who is told when to come back is not told a moment too early.
func TestRetryAfterIsWholeSeconds(t *testing.T) {
	handler := behind(t, gateway.Bounds{}, func(context.Context, *host.Conversation) (*host.Relayed, error) {
		return &host.Relayed{}, fmt.Errorf("%w: %w", llm.ErrRateLimited, &llm.StatusError{Status: http.StatusTooManyRequests, RetryAfter: 1500 * time.Millisecond})
	})
	w := newRecorder()
	handler.ServeHTTP(w, asking(t.Context(), strings.NewReader(chatting())))
	if w.status != http.StatusTooManyRequests || w.head.Get("Retry-After") != "2" {
		t.Errorf("%d, Retry-After: %s", w.status, w.head.Get("Retry-After"))
	}
}

// A panic of the host costs one request, and nothing waits for it.
func TestStreamPanics(t *testing.T) {
	handler := behind(t, gateway.Bounds{}, func(_ context.Context, c *host.Conversation) (*host.Relayed, error) {
		c.OnPlaced(somewhere)
		panic("a mistake")
	})
	defer func() {
		// With the stack of the goroutine that the host had.
		if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "a mistake\n") || !strings.Contains(p, "standIn.Relay") {
			t.Errorf("recovered %v", p)
		}
	}()
	handler.ServeHTTP(newRecorder(), askingStream(t.Context()))
}

// failingBody is a body of which nothing comes any more.
type failingBody struct {
	first io.Reader
	err   error
}

func (b *failingBody) Read(p []byte) (int, error) {
	if n, err := b.first.Read(p); err == nil {
		return n, nil
	}
	return 0, b.err
}

// A body comes in time and whole, or is refused; afterwards the connection has no
// deadline, for an answer takes its time.
func TestBodyDoesNotCome(t *testing.T) {
	handler := behind(t, gateway.Bounds{}, func(context.Context, *host.Conversation) (*host.Relayed, error) {
		t.Error("the host was asked")
		return &host.Relayed{}, nil
	})
	for _, test := range []struct {
		err    error
		status int
	}{{os.ErrDeadlineExceeded, http.StatusRequestTimeout}, {io.ErrUnexpectedEOF, http.StatusBadRequest}, {errors.New("reset"), http.StatusBadRequest}} {
		w := newRecorder()
		handler.ServeHTTP(w, asking(t.Context(), &failingBody{strings.NewReader(chatting()[:30]), test.err}))
		if w.status != test.status || !strings.HasPrefix(w.body.String(), `{"error":`) {
			t.Errorf("%v: %d %s", test.err, w.status, w.body.String())
		}
		if n := len(w.reading); n != 2 || time.Until(w.reading[0]) > time.Minute || time.Until(w.reading[0]) < 30*time.Second || !w.reading[1].IsZero() {
			t.Errorf("deadlines of reading: %v", w.reading)
		}
	}
}

// The bodies that are in memory are bounded, those of one user by half of that, and
// what was taken is given back.
func TestBodiesAreBounded(t *testing.T) {
	const room = 4 << 20
	entered, release := make(chan struct{}), make(chan struct{})
	var full atomic.Bool
	handler := behind(t, gateway.Bounds{Room: room}, func(context.Context, *host.Conversation) (*host.Relayed, error) {
		if full.Load() {
			t.Error("the host was asked when there was no room")
			return answered("Good day."), nil
		}
		entered <- struct{}{}
		<-release
		return answered("Good day."), nil
	})
	ask := func(user string) *recorder {
		w := newRecorder()
		// No length is announced: what comes is what counts.
		r := asking(t.Context(), io.MultiReader(strings.NewReader(saying(`{"role":"user","content":"`+strings.Repeat("x", room/4)+`"}`))))
		r.Header.Set("User", user)
		r.ContentLength = -1
		handler.ServeHTTP(w, r)
		return w
	}
	var asked sync.WaitGroup
	asked.Go(func() {
		if w := ask(""); w.status != http.StatusOK {
			t.Errorf("the first: %d %s", w.status, w.body.String())
		}
	})
	<-entered
	refused := func(what, user string) {
		t.Helper()
		full.Store(true)
		defer full.Store(false)
		if w := ask(user); w.status != http.StatusServiceUnavailable || w.head.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", what, w.status, w.body.String())
		}
	}
	refused("the same user's second", "")
	asked.Go(func() {
		if w := ask("other"); w.status != http.StatusOK {
			t.Errorf("another user's: %d %s", w.status, w.body.String())
		}
	})
	<-entered
	refused("a third user's, when two have all", "third")
	close(release)
	asked.Wait()
	go func() { <-entered }()
	if w := ask(""); w.status != http.StatusOK {
		t.Errorf("after it: %d %s", w.status, w.body.String())
	}
}

// A thousand connections that send half a request, or nothing, keep nobody from
// being answered.
func TestManyConnections(t *testing.T) {
	const many = 1000
	handler := behind(t, gateway.Bounds{}, func(context.Context, *host.Conversation) (*host.Relayed, error) {
		return answered("Good day."), nil
	})
	url := controltest.Listen(t, handler, slog.New(slog.DiscardHandler))
	address := strings.TrimPrefix(url, "http://")
	for i := range many {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Skipf("no more than %d connections can be made here: %v", i, err)
		}
		defer connection.Close()
		switch i % 4 {
		case 0:
		case 1:
			fmt.Fprintf(connection, "POST /v1/chat/comp")
		case 2:
			fmt.Fprintf(connection, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 33554432\r\n\r\n{\"model\":")
		case 3:
			fmt.Fprintf(connection, "\x16\x03\x01 GET / \xff\r\n\r\n")
			if line, err := bufio.NewReader(connection).ReadString('\n'); err == nil && !strings.Contains(line, " 400 ") {
				t.Fatalf("what is no HTTP is answered %q", line)
			}
		}
	}
	response, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(chatting()))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || err != nil {
		t.Errorf("%d %s, %v", response.StatusCode, body, err)
	}
}

// Who closes its half before the answer is told why there is none, and not that it
// went well; the turn ends.
func TestHalfClosed(t *testing.T) {
	for name, stream := range map[string]string{"whole": "false", "stream": "true"} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			server := gatewayOf(t, func(ctx context.Context, c *host.Conversation) (*host.Relayed, error) {
				close(begun)
				<-ctx.Done()
				return new(host.Relayed), ctx.Err()
			})
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			body := `{"model":"jeeves","stream":` + stream + `,"messages":[{"role":"user","content":"Hello."}]}`
			fmt.Fprintf(connection, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			<-begun
			if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), "both halves") {
				t.Errorf("%s %s, %v", response.Status, said, err)
			}
		})
	}
}
