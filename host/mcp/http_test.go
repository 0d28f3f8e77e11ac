package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/mcp"
	"github.com/gloveboxhq/glovebox/memory"
)

const initialize = `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}}`

// send sends a request with anna's token; headers follow as names and values, and
// one without a value is left out.
func (s *system) send(ctx context.Context, method, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+"/mcp", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.byAnna)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
	return http.DefaultClient.Do(r)
}

// answer is send, read to its end.
func (s *system) answer(method, body string, headers ...string) (status int, header http.Header, said string) {
	s.t.Helper()
	response, err := s.send(s.t.Context(), method, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(all)
}

// begin opens a session and returns its id; "" and why if there is none.
func (s *system) begin(secret string) (id, why string) {
	s.t.Helper()
	status, header, said := s.answer("POST", initialize, "Authorization", "Bearer "+secret)
	if status != http.StatusOK || strings.Contains(said, `"error"`) {
		if id := header.Get("Mcp-Session-Id"); id != "" {
			s.t.Errorf("refused with %s, but as session %s", said, id)
		}
		return "", fmt.Sprintf("%d %s", status, said)
	}
	return header.Get("Mcp-Session-Id"), ""
}

// settle waits until a condition holds.
func settle(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker, late := time.NewTicker(5*time.Millisecond), time.After(10*time.Second)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatal(what)
		}
	}
}

// U6: who has no token, a wrong one, or comes from elsewhere is refused; and whose
// session it is not is told that there is none.
func TestWhoMayCome(t *testing.T) {
	s := serve(t)
	id, why := s.begin(s.byAnna)
	if id == "" {
		t.Fatal(why)
	}
	const list = `{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}`
	for _, test := range []struct {
		name, method, body string
		headers            []string
		want               int
	}{
		{"own session", "POST", list, nil, http.StatusOK},
		{"no token", "POST", list, []string{"Authorization", ""}, http.StatusUnauthorized},
		{"wrong token", "POST", list, []string{"Authorization", "Bearer glovebox_" + strings.Repeat("a", 52)}, http.StatusUnauthorized},
		{"foreign origin", "POST", list, []string{"Origin", "https://elsewhere.example"}, http.StatusForbidden},
		{"no origin", "POST", list, []string{"Origin", "null"}, http.StatusForbidden},
		{"cross site", "POST", list, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"own origin", "POST", list, []string{"Origin", s.url}, http.StatusOK},
		{"foreign host", "POST", list, []string{"Host", "rebound.example"}, http.StatusMisdirectedRequest},
		{"localhost", "POST", list, []string{"Host", "localhost:" + s.url[strings.LastIndex(s.url, ":")+1:]}, http.StatusOK},
		{"another's session", "POST", list, []string{"Authorization", "Bearer " + s.byBert}, http.StatusNotFound},
		{"another's session, listening", "GET", "", []string{"Authorization", "Bearer " + s.byBert}, http.StatusNotFound},
		{"another's session, ending it", "DELETE", "", []string{"Authorization", "Bearer " + s.byBert}, http.StatusNotFound},
		{"no such session", "POST", list, []string{"Mcp-Session-Id", "../../" + id}, http.StatusNotFound},
		{"still there", "POST", list, nil, http.StatusOK},
		{"its end", "DELETE", "", nil, http.StatusNoContent},
		{"after its end", "POST", list, nil, http.StatusNotFound},
	} {
		if status, _, said := s.answer(test.method, test.body, append([]string{"Mcp-Session-Id", id}, test.headers...)...); status != test.want {
			t.Errorf("%s: %d, want %d: %s", test.name, status, test.want, said)
		}
	}
}

// What is no message of the protocol is refused with a reason, and leaves nothing
// behind.
func TestBadMessages(t *testing.T) {
	s := serve(t)
	call := func(arguments string) string {
		return `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hand_list", "arguments": ` + arguments + `}}`
	}
	for name, test := range map[string]struct {
		method, body string
		headers      []string
		want         int
	}{
		"nothing":            {"POST", "", []string{"Content-Type", "application/json"}, http.StatusBadRequest},
		"no JSON":            {"POST", "<script>", nil, http.StatusBadRequest},
		"half of it":         {"POST", initialize[:40], nil, http.StatusBadRequest},
		"two":                {"POST", initialize + initialize, nil, http.StatusBadRequest},
		"a batch":            {"POST", "[" + initialize + "," + initialize + "]", nil, http.StatusBadRequest},
		"deep":               {"POST", call(strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)), nil, http.StatusBadRequest},
		"deep and open":      {"POST", call(strings.Repeat("[", 200_000)), nil, http.StatusBadRequest},
		"huge":               {"POST", call(`"` + strings.Repeat("x", 1<<20) + `"`), nil, http.StatusRequestEntityTooLarge},
		"a form":             {"POST", initialize, []string{"Content-Type", "application/x-www-form-urlencoded"}, http.StatusUnsupportedMediaType},
		"text":               {"POST", initialize, []string{"Content-Type", "text/plain"}, http.StatusUnsupportedMediaType},
		"accepts nothing":    {"POST", initialize, []string{"Accept", "text/html"}, http.StatusBadRequest},
		"a version of never": {"POST", initialize, []string{"Mcp-Protocol-Version", "1999-01-01"}, http.StatusBadRequest},
		"a version of later": {"POST", initialize, []string{"Mcp-Protocol-Version", "2999-01-01"}, http.StatusBadRequest},
		"another method":     {"PUT", initialize, nil, http.StatusMethodNotAllowed},
		"listens to nothing": {"GET", "", nil, http.StatusBadRequest},
		"ends nothing":       {"DELETE", "", nil, http.StatusBadRequest},
		"no such method":     {"POST", `{"jsonrpc": "2.0", "id": 1, "method": "sessions/wipe"}`, nil, http.StatusBadRequest},
	} {
		if status, _, said := s.answer(test.method, test.body, test.headers...); status != test.want || strings.TrimSpace(said) == "" {
			t.Errorf("%s: %d, want %d: %.200s", name, status, test.want, said)
		}
	}
	// A message that breaks off.
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		strings.TrimPrefix(s.url, "http://"), s.byAnna, len(initialize), initialize[:50])
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != http.StatusBadRequest {
		t.Errorf("half of a message: %v, %v", r, err)
	}
	// A call before the greeting.
	if status, _, said := s.answer("POST", call("{}")); status != http.StatusOK || !strings.Contains(said, `"error"`) {
		t.Errorf("a call without a session: %d %s", status, said)
	}
	settle(t, "sessions are left", func() bool { return s.handler.Sessions() == 0 })
}

// An answer names a session if one was begun, and then there is one.
func TestRefusedSessionsHaveNoName(t *testing.T) {
	s := serve(t)
	id, why := s.begin(s.byAnna)
	if id == "" {
		t.Fatal(why)
	}
	for name, test := range map[string]struct {
		body    string
		session string
		named   bool
	}{
		"a greeting":          {initialize, "", true},
		"without parameters":  {`{"jsonrpc": "2.0", "id": 1, "method": "initialize"}`, "", false},
		"null for parameters": {`{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": null}`, "", false},
		"wrong parameters":    {`{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 7}}`, "", false},
		"a list of them":      {`{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": [1]}`, "", false},
		"without an id":       {`{"jsonrpc": "2.0", "method": "initialize", "params": {}}`, "", false},
		"a second greeting":   {initialize, id, true},
	} {
		status, header, said := s.answer("POST", test.body, "Mcp-Session-Id", test.session)
		named := header.Get("Mcp-Session-Id")
		if (named != "") != test.named {
			t.Errorf("%s: %d, session %q: %s", name, status, named, said)
		}
		if named == "" {
			continue
		}
		if status, _, said := s.answer("POST", `{"jsonrpc": "2.0", "id": 2, "method": "ping"}`, "Mcp-Session-Id", named); status != http.StatusOK {
			t.Errorf("%s: session %s: %d %s", name, named, status, said)
		}
	}
}

// Clients of a version of the protocol that knows no sessions are answered without.
func TestWithoutSessions(t *testing.T) {
	s := serve(t)
	const meta = `"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"}, "io.modelcontextprotocol/clientCapabilities": {}}`
	status, header, said := s.answer("POST", `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hand_list", "arguments": {}, `+meta+`}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "hand_list")
	if status != http.StatusOK || !strings.Contains(said, "What is on today?") || header.Get("Mcp-Session-Id") != "" || s.handler.Sessions() != 0 {
		t.Errorf("%d %s %v", status, said, header)
	}
	if kept := header.Get("Cache-Control"); !strings.Contains(kept, "no-store") {
		t.Errorf("somebody's memory may be kept on its way: %q", kept)
	}
}

// Sessions that were opened and dropped leave no goroutine behind, and nobody opens
// so many that others find no room.
func TestManySessions(t *testing.T) {
	s := serve(t)
	before := runtime.NumGoroutine()
	for range 2 {
		var opened []string
		for range 200 {
			id, why := s.begin(s.byAnna)
			if id == "" {
				t.Fatal(why)
			}
			opened = append(opened, id)
		}
		if n := s.handler.Sessions(); n != 200 {
			t.Errorf("%d are open", n)
		}
		for _, id := range opened {
			if status, _, said := s.answer("DELETE", "", "Mcp-Session-Id", id); status != http.StatusNoContent {
				t.Fatalf("%d %s", status, said)
			}
		}
	}
	settle(t, "sessions or their goroutines are left", func() bool { return s.handler.Sessions() == 0 && runtime.NumGoroutine() < before+20 })

	for i := range 250 {
		if id, why := s.begin(s.byAnna); id == "" {
			t.Fatalf("session %d: %s", i, why)
		}
	}
	if id, why := s.begin(s.byAnna); id != "" || !strings.Contains(why, "too many sessions") {
		t.Errorf("one too many: %s", why)
	}
	if id, why := s.begin(s.byBert); id == "" {
		t.Errorf("another user: %s", why)
	}
	s.handler.Close()
	if n := s.handler.Sessions(); n != 0 {
		t.Errorf("%d are open after the end", n)
	}
	if id, why := s.begin(s.byBert); id != "" || !strings.Contains(why, "stopping") {
		t.Errorf("after the end: %s", why)
	}
}

// A session in which nothing is asked ends, and one to which somebody listens does
// not, who hears that the stream lives.
func TestIdleSessionsEnd(t *testing.T) {
	s := serve(t)
	// Longer than a busy machine takes from one request to the next.
	const idle, silence = time.Second, 25 * time.Millisecond
	s.handler.Shorten(idle, silence)
	id, why := s.begin(s.byAnna)
	if id == "" {
		t.Fatal(why)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	response, err := s.send(ctx, "GET", "", "Mcp-Session-Id", id)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("listen: %v, %v", response, err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for heard := time.Duration(0); heard*silence < idle+idle/8; {
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		if lines.Text() == ": still here" {
			heard++
		}
	}
	if s.handler.Sessions() != 1 {
		t.Error("the session has ended while somebody listened")
	}
	leave()
	settle(t, "the session does not end", func() bool { return s.handler.Sessions() == 0 })
	if status, _, said := s.answer("POST", `{"jsonrpc": "2.0", "id": 2, "method": "ping"}`, "Mcp-Session-Id", id); status != http.StatusNotFound {
		t.Errorf("%d %s", status, said)
	}
}

// When the server stops, who listens is let go, and a call that runs is answered.
func TestStop(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := serve(t, func(_ *host.Config, c *mcp.Config) {
		c.Now = func() time.Time {
			begun <- struct{}{}
			<-release
			return monday
		}
	})
	session := s.dial(s.byAnna) // which listens
	answered := make(chan error, 1)
	go func() {
		result, err := session.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "memory_topics"})
		if err == nil && result.IsError {
			err = fmt.Errorf("refused: %v", result.Content)
		}
		answered <- err
	}()
	<-begun
	stopped := make(chan struct{})
	go func() {
		s.stop()
		close(stopped)
	}()
	settle(t, "the server takes more", func() bool {
		r, err := http.Get(s.url + "/healthz")
		if err == nil {
			r.Body.Close()
		}
		return err != nil
	})
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-stopped
}

// FuzzMessages: whatever is sent, the answer is one of the caller's doing, and no
// session that nobody greeted is left.
func FuzzMessages(f *testing.F) {
	s := serve(f)
	c := s.config
	c.User = func(context.Context) memory.UserID { return s.anna.ID }
	handler := mcp.NewHandler(c)
	f.Cleanup(handler.Close)
	for _, seed := range []string{
		initialize, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"x"}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"memory_search","arguments":{"words":"pump"},"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`, `{"a":[[[[{}]]]]}`,
	} {
		f.Add(seed, "2025-06-18")
		f.Add(seed, "2026-07-28")
	}
	f.Fuzz(func(t *testing.T, body, version string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Protocol-Version", version)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
		if id := w.Header().Get("Mcp-Session-Id"); id != "" {
			end := httptest.NewRequestWithContext(t.Context(), "DELETE", "/mcp", nil)
			end.Header.Set("Mcp-Session-Id", id)
			handler.ServeHTTP(httptest.NewRecorder(), end)
		}
	})
}

// deadlines is a connection that keeps the deadlines of reading that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	reading []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.reading = append(d.reading, t)
	return nil
}

// A message comes in time; afterwards the connection has no deadline, so that a
// client that goes away during a call is noticed.
func TestMessagesComeInTime(t *testing.T) {
	s := serve(t)
	config := s.config
	config.User = func(context.Context) memory.UserID { return s.anna.ID }
	handler := mcp.NewHandler(config)
	defer handler.Close()
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader("{"))
	r.Header.Set("Content-Type", "application/json")
	handler.ServeHTTP(d, r)
	if d.Code != http.StatusBadRequest || len(d.reading) != 2 || time.Until(d.reading[0]) < 10*time.Second || time.Until(d.reading[0]) > time.Minute || !d.reading[1].IsZero() {
		t.Errorf("%d, deadlines of reading: %v", d.Code, d.reading)
	}
}
