package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// logged keeps what is logged as lines of JSON.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines are the records with that message.
func (l *logged) lines(t *testing.T, message string) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if record["msg"] == message {
			found = append(found, record)
		}
	}
	return found
}

func (l *logged) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// Each request has an id of its own, which the answer tells and the log has in one
// line, with the route, the status, the size and whose token it bore, and nothing
// that the caller wrote: no path, no parameter, no secret, no id of theirs.
func TestEveryRequestIsLoggedOnce(t *testing.T) {
	var log logged
	s := serve(t, func(up *setup) { up.control.Log = log.logger(slog.LevelDebug) })
	const canary = "c4n4ry"
	form := regexp.MustCompile(`^[0-9a-f]{24}$`)
	seen := map[string]bool{}
	for _, call := range []struct {
		request
		route  string
		status int
		level  string
	}{
		{request{method: "GET", path: "/api/users", token: s.admin}, "GET /api/users", 200, "INFO"},
		{request{method: "GET", path: "/api/users/" + s.bert.ID.String() + "/memory/" + canary, token: s.byAnna}, "GET /api/users/{user}/memory/{topic}", 404, "INFO"},
		{request{method: "GET", path: "/api/users?x=" + canary, token: s.admin}, "GET /api/users", 400, "INFO"},
		{request{method: "GET", path: "/" + canary, token: s.admin}, "none", 404, "INFO"},
		{request{method: "GET", path: "/api/users", token: canary}, "GET /api/users", 401, "INFO"},
		{request{method: "GET", path: "/healthz"}, "GET /healthz", 200, "DEBUG"},
		{request{method: "GET", path: "/readyz"}, "GET /readyz", 200, "DEBUG"},
	} {
		call.header = map[string]string{"X-Request-Id": canary, "User-Agent": canary}
		a := s.do(call.request)
		id := a.header.Get("X-Request-Id")
		if a.status != call.status || !form.MatchString(id) || seen[id] {
			t.Errorf("%s: %d with the id %q", call.route, a.status, id)
		}
		seen[id] = true
		var line map[string]any
		for _, l := range log.lines(t, "request") {
			if l["request_id"] == id {
				if line != nil {
					t.Errorf("%s: two lines", call.route)
				}
				line = l
			}
		}
		if line["route"] != call.route || line["status"] != float64(call.status) || line["level"] != call.level || line["bytes"] != float64(len(a.body)) || line["took"] == nil {
			t.Errorf("%s: logged %v", call.route, line)
		}
		if _, has := line["token"].(string); has != (call.token == s.admin || call.token == s.byAnna) {
			t.Errorf("%s: logged %v, with a token of %q", call.route, line, call.token)
		}
	}
	// Of the word that a caller makes up for a method the log has the beginning.
	s.do(request{method: strings.Repeat("X", 1000), path: "/"})
	if lines := log.lines(t, "request"); lines[len(lines)-1]["method"] != strings.Repeat("X", 16) {
		t.Errorf("a long method: logged %v", lines[len(lines)-1])
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, secret := range []string{canary, s.admin, s.byAnna} {
		if strings.Contains(log.text.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, log.text.String())
		}
	}
}

// slow is a model that answers when it is let.
type slow struct {
	asked chan struct{}
	let   chan struct{}
}

func newSlow() *slow { return &slow{make(chan struct{}, 8), make(chan struct{})} }

func (m *slow) Complete(ctx context.Context, _ llm.Request) (llm.Response, error) {
	m.asked <- struct{}{}
	select {
	case <-m.let:
		return llm.Response{Text: "At last.", Model: "slow"}, nil
	case <-ctx.Done():
		return llm.Response{}, ctx.Err()
	}
}

// Stream says something at once, and the rest when it is let.
func (m *slow) Stream(ctx context.Context, r llm.Request, each func(string)) (llm.Response, error) {
	each("At ")
	response, err := m.Complete(ctx, r)
	if err == nil {
		each("last.")
	}
	return response, err
}

// stoppable is a server that a test stops.
type stoppable struct {
	host    *host.Host
	url     string
	handler http.Handler
	stop    context.CancelFunc
	ended   chan error
}

func serveSlowly(t *testing.T, model llm.Model, drain time.Duration, mounts ...control.Mount) *stoppable {
	t.Helper()
	started := controltest.Start(t, host.Config{LLM: model})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &stoppable{host: started.Host, url: "http://" + listener.Addr().String(), stop: stop, ended: make(chan error, 1)}
	s.handler = control.New(control.Config{Host: started.Host, HostConfig: started.Config, Tokens: started.Tokens, Open: true, Hosts: []string{"example.com"}, Ending: ctx, Mounts: mounts})
	go func() { s.ended <- control.Server{Handler: s.handler, Drain: drain}.Serve(ctx, listener) }()
	t.Cleanup(stop)
	return s
}

func (s *stoppable) post(t *testing.T, accept string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/users/default/chat", strings.NewReader(`{"text":"Hello?"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	return http.DefaultClient.Do(r)
}

// A server that is told to stop answers what it was asked before, streams to their
// end, says that it is not ready, and takes nothing more.
func TestStopWaitsForAnswers(t *testing.T) {
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			model := newSlow()
			s := serveSlowly(t, model, time.Minute)
			answered := make(chan string, 1)
			go func() {
				response, err := s.post(t, accept)
				if err != nil {
					answered <- err.Error()
					return
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				answered <- string(body)
				if err != nil {
					t.Error(err)
				}
			}()
			<-model.asked
			if got := s.ready(); got != http.StatusOK {
				t.Errorf("before it is told to stop, /readyz is %d", got)
			}
			s.stop()
			if got := s.ready(); got != http.StatusServiceUnavailable {
				t.Errorf("once it is told to stop, /readyz is %d", got)
			}
			select {
			case err := <-s.ended:
				t.Fatalf("it ended before the answer: %v", err)
			default:
			}
			close(model.let)
			if said := <-answered; !strings.Contains(said, "At last.") && !strings.Contains(said, "last.") {
				t.Errorf("answered %q", said)
			}
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
			if response, err := s.post(t, accept); err == nil {
				response.Body.Close()
				t.Error("it answers after its end")
			}
		})
	}
}

// ready asks the handler itself: nobody can connect to a server that stops.
func (s *stoppable) ready() int {
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, httptest.NewRequest("GET", "http://example.com/readyz", nil))
	return answer.Code
}

// What is not answered in time is broken off: the session holds what was said and
// no part of an answer, and goes on.
func TestStopBreaksOffWhatTakesTooLong(t *testing.T) {
	model := newSlow()
	s := serveSlowly(t, model, 50*time.Millisecond)
	broken := make(chan error, 1)
	go func() {
		response, err := s.post(t, "text/event-stream")
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		broken <- err
	}()
	<-model.asked
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if err := <-broken; err == nil {
		t.Error("an answer that was broken off ends like a whole one")
	}
	user, err := s.host.User("")
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := s.host.Store().Sessions(t.Context(), user.ID, memory.SessionQuery{Limit: 2})
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v", len(sessions), err)
	}
	close(model.let)
	answer, err := s.host.Send(t.Context(), host.Message{Session: sessions[0].ID, Text: "Still there?"})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.host.Store().Messages(t.Context(), user.ID, answer.Session, memory.MessageQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range messages {
		said = append(said, string(m.Role)+": "+memory.Shown(m.Blocks))
	}
	if got := strings.Join(said, " | "); got != "user: Hello? | user: Still there? | assistant: At last." {
		t.Errorf("the session holds %q", got)
	}
}

// A stream that only listens does not hold up the end, and is counted while it is
// open.
func TestStopEndsStreamsThatListen(t *testing.T) {
	listening := control.Mount{Patterns: []string{"GET /listen"}, Access: control.ForAll, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write([]byte("data: listening\n\n"))
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})}
	s := serveSlowly(t, newSlow(), time.Minute, listening)
	response, err := http.Get(s.url + "/listen")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "data: listening\n" {
		t.Fatalf("%q, %v", line, err)
	}
	s.stop()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for a stream that never ends")
	}
}

// The metrics of requests have their route and status, and none of the caller's
// words, however many different ones there are.
func TestRequestsAreMeasured(t *testing.T) {
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	s := serve(t, func(up *setup) { up.control.Meter = meters })
	for _, path := range []string{"/api/users", "/api/users", "/nothing", "/nothing/else", "/api/users/" + s.bert.ID.String() + "/memory"} {
		s.do(request{method: "GET", path: path, token: s.byAnna})
	}
	var read metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &read); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "glovebox.http.requests" {
				continue
			}
			for _, p := range sum.DataPoints {
				route, _ := p.Attributes.Value("route")
				status, _ := p.Attributes.Value("status")
				got[route.AsString()+" "+status.AsString()] = p.Value
			}
		}
	}
	for series, n := range map[string]int64{"GET /api/users 403": 2, "none 404": 2, "GET /api/users/{user}/memory 404": 1} {
		if got[series] != n {
			t.Errorf("%s: counted %d, want %d", series, got[series], n)
		}
	}
	if len(got) != 3 {
		t.Errorf("counted %v", got)
	}
}

// A request that the server fails at is an error in its span; one that the caller is
// wrong about is not.
func TestSpansOfRequests(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	s := serve(t, func(up *setup) { up.control.Tracer = trace.NewTracerProvider(trace.WithSyncer(spans)) })
	for _, call := range []struct {
		route  string
		path   string
		status int
		code   codes.Code
	}{
		{"GET /readyz", "/readyz", http.StatusOK, codes.Unset},
		{"GET /api/users", "/api/users?x=1", http.StatusBadRequest, codes.Unset},
		{"GET /readyz", "/readyz", http.StatusServiceUnavailable, codes.Error},
	} {
		if call.code == codes.Error {
			if err := s.host.Close(); err != nil {
				t.Fatal(err)
			}
		}
		spans.Reset()
		s.do(request{method: "GET", path: call.path, token: s.admin})
		got := spans.GetSpans()
		if len(got) != 1 || got[0].Status.Code != call.code || !slices.Contains(got[0].Attributes, attribute.Int("http.response.status_code", call.status)) || !slices.Contains(got[0].Attributes, attribute.String("http.route", call.route)) {
			t.Errorf("%s: %+v", call.route, got)
		}
	}
}

// Streams count as open from their first word to their end.
func TestOpenStreamsAreCounted(t *testing.T) {
	reader := metric.NewManualReader()
	next := make(chan struct{})
	s := serve(t, func(up *setup) {
		up.control.Meter = metric.NewMeterProvider(metric.WithReader(reader))
		up.script.Otherwise(openaitest.Paced(next, "One ", "two."))
	})
	open := func() (n int64) {
		t.Helper()
		var read metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &read); err != nil {
			t.Fatal(err)
		}
		for _, scope := range read.ScopeMetrics {
			for _, m := range scope.Metrics {
				if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "glovebox.http.streams.open" {
					n = sum.DataPoints[0].Value
				}
			}
		}
		return n
	}
	body := bufio.NewReader(s.stream(t.Context(), `{"text":"Count."}`).Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 1 {
		t.Errorf("while one is open: %d", n)
	}
	close(next)
	if _, err := io.Copy(io.Discard, body); err != nil {
		t.Fatal(err)
	}
	if n := open(); n != 0 {
		t.Errorf("when it has ended: %d", n)
	}
}

// /readyz says that the store does not answer, and nothing else.
func TestReadyAsksTheStore(t *testing.T) {
	s := serveSlowly(t, newSlow(), time.Minute)
	if got := s.ready(); got != http.StatusOK {
		t.Errorf("with a store: %d", got)
	}
	if err := s.host.Close(); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, httptest.NewRequest("GET", "http://example.com/readyz", nil))
	if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != "{\"status\":\"unavailable\"}\n" {
		t.Errorf("with a store that is closed: %d %q", answer.Code, answer.Body)
	}
	alive := httptest.NewRecorder()
	s.handler.ServeHTTP(alive, httptest.NewRequest("GET", "http://example.com/healthz", nil))
	if alive.Code != http.StatusOK {
		t.Errorf("/healthz is of the process, not of the store: %d", alive.Code)
	}
	if _, err := s.host.Send(t.Context(), host.Message{Text: "x"}); !errors.Is(err, host.ErrClosed) {
		t.Errorf("the host is %v", err)
	}
}

// hanging is a store that does not answer, whatever is said to it, until it is told to.
type hanging struct {
	memory.Store
	asked  atomic.Int32
	answer chan struct{}
}

func (h *hanging) DefaultUser(context.Context) (memory.User, error) {
	h.asked.Add(1)
	<-h.answer
	return memory.User{}, nil
}

// A store that hangs is said not to answer, in time, and is not asked again and again
// meanwhile.
func TestReadyWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{answer: make(chan struct{})}
		probe := control.Probe(store)
		for range 3 {
			began := time.Now()
			if err := probe(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
				t.Errorf("a store that hangs: %v after %s", err, time.Since(began))
			}
		}
		if n := store.asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		close(store.answer)
		synctest.Wait()
		if err := probe(t.Context()); err != nil {
			t.Errorf("a store that answers again: %v", err)
		}
	})
}

// connection is a recorder of an answer that also keeps the deadlines that are set.
type connection struct {
	*httptest.ResponseRecorder
	reading, writing []time.Time
}

func (c *connection) SetReadDeadline(t time.Time) error {
	c.reading = append(c.reading, t)
	return nil
}

func (c *connection) SetWriteDeadline(t time.Time) error {
	c.writing = append(c.writing, t)
	return nil
}

// A body comes in time, and an answer is taken in time; between the two the connection
// has no deadline, for an answer takes its time.
func TestDeadlines(t *testing.T) {
	s := serveSlowly(t, newSlow(), time.Minute)
	c := &connection{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "http://example.com/api/users/default/chat", strings.NewReader(`{"text":""}`))
	r.Header.Set("Content-Type", "application/json")
	s.handler.ServeHTTP(c, r)
	soon := func(at time.Time) bool { return time.Until(at) > 10*time.Second && time.Until(at) < time.Minute }
	if c.Code != http.StatusBadRequest || len(c.reading) != 2 || !soon(c.reading[0]) || !c.reading[1].IsZero() {
		t.Errorf("%d %s: deadlines of reading: %v", c.Code, c.Body, c.reading)
	}
	if n := len(c.writing); n == 0 || !soon(c.writing[n-1]) {
		t.Errorf("deadlines of writing: %v", c.writing)
	}
}

// talkative is a model that says something and then nothing more, until who asked
// goes away.
type talkative struct{ leave func() }

func (m talkative) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	return m.Stream(ctx, r, func(string) {})
}

func (m talkative) Stream(ctx context.Context, _ llm.Request, each func(string)) (llm.Response, error) {
	each("Well, ")
	m.leave()
	<-ctx.Done()
	return llm.Response{}, ctx.Err()
}

// A stream that began and is broken off is not an answer that was given: the server
// breaks the connection, and the log says 499.
func TestStreamThatIsBrokenOff(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	s := serveSlowly(t, talkative{leave}, time.Minute)
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("the handler ended with %v", p)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, "POST", "/api/users/default/chat", strings.NewReader(`{"text":"Hello?"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	s.handler.ServeHTTP(httptest.NewRecorder(), r)
}

// What has not come whole does not hold up the end of a server, whatever of it is
// there; what is being answered does.
func TestStopWaitsForNoRequests(t *testing.T) {
	model := newSlow()
	s := serveSlowly(t, model, time.Hour)
	answered := make(chan string, 1)
	go func() {
		response, err := s.post(t, "application/json")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-model.asked
	begin := func(text string) (net.Conn, *bufio.Reader) {
		connection, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		if err := connection.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		io.WriteString(connection, text)
		return connection, bufio.NewReader(connection)
	}
	const chat = "POST /api/users/default/chat HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\n"
	reading := map[string]*bufio.Reader{}
	for what, body := range map[string]string{"a length": "Content-Length: 100\r\n", "chunks": "Transfer-Encoding: chunked\r\n"} {
		connection, from := begin(chat + "Expect: 100-continue\r\n" + body + "\r\n")
		// The server says so when it begins to read.
		if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%s: %q, %v", what, line, err)
		}
		if what == "chunks" {
			io.WriteString(connection, "64\r\n")
		}
		io.WriteString(connection, "{")
		reading[what] = from
	}
	_, head := begin(chat[:50])
	_, refused := begin(strings.Replace(chat, "application/json", "text/plain", 1) + "Content-Length: 100\r\n\r\n{")
	s.stop()
	for what, from := range reading {
		said, err := io.ReadAll(from)
		if err != nil || !strings.Contains(string(said), "HTTP/1.1 408 ") {
			t.Errorf("a body of %s is cut off with %q, %v", what, said, err)
		}
	}
	for what, from := range map[string]*bufio.Reader{"half a head": head, "a body that is not wanted": refused} {
		if _, err := io.ReadAll(from); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s is waited for", what)
		}
	}
	select {
	case err := <-s.ended:
		t.Fatalf("it ended before the answer: %v", err)
	default:
	}
	close(model.let)
	if said := <-answered; !strings.Contains(said, "At last.") {
		t.Errorf("answered %q", said)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// serveHandler serves a handler as the control API is served, until the test is over,
// and returns its address.
func serveHandler(t *testing.T, handler http.HandlerFunc) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- control.Serve(ctx, listener, handler, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// Who is told that a body did not come in time is told at once: the rest of it is not
// waited for, though nothing bounds that any more.
func TestLateBodiesEnd(t *testing.T) {
	address := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		_ = connection.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := io.ReadAll(r.Body)
		_ = connection.SetReadDeadline(time.Time{})
		if err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(connection, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
	if said, err := io.ReadAll(connection); err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 408 ") {
		t.Errorf("%q, %v", said, err)
	}
}

// A body of a GET, which means nothing, is read before it is answered: an answer that
// streams would else end with the time that a body has.
func TestBodiesOfGET(t *testing.T) {
	address := serveHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			t.Error("there is a body to read")
		}
	})
	for _, test := range []struct {
		name   string
		body   io.Reader
		status int
	}{
		{"of a length", strings.NewReader("{}"), http.StatusOK},
		{"in chunks", io.MultiReader(strings.NewReader("{}")), http.StatusOK},
		{"as long as can be", strings.NewReader(strings.Repeat("x", 64<<10)), http.StatusOK},
		{"too long", strings.NewReader(strings.Repeat("x", 64<<10+1)), http.StatusRequestEntityTooLarge},
		{"none", nil, http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			request, err := http.NewRequest("GET", "http://"+address, test.body)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != test.status {
				t.Errorf("%s", response.Status)
			}
		})
	}
}
