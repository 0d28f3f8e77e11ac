package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// answered is an answer of a chat.
type answered struct {
	Session memory.SessionID `json:"session"`
	Message memory.MessageID `json:"message_id"`
	Text    string           `json:"text"`
}

// chat says something to somebody.
func (s *system) chat(token, user string, body map[string]any) answered {
	s.t.Helper()
	var a answered
	s.want(http.StatusOK, request{method: "POST", path: "/api/users/" + user + "/chat", token: token, body: body}).into(s.t, &a)
	return a
}

func TestChat(t *testing.T) {
	s := serve(t)
	first := s.chat(s.byAnna, "default", map[string]any{"text": "Good morning, Jeeves."})
	if first.Text != "Noted." || first.Session.IsZero() {
		t.Errorf("answer %+v", first)
	}
	second := s.chat(s.byAnna, s.anna.ID.String(), map[string]any{"text": "And again.", "session": first.Session, "agent": "jeeves", "event_key": "two"})
	if second.Session != first.Session || second.Message == first.Message {
		t.Errorf("answers %+v and %+v", first, second)
	}
	// Sent again with its key, it is answered once.
	if again := s.chat(s.byAnna, "default", map[string]any{"text": "And again.", "session": first.Session, "event_key": "two"}); again.Message != second.Message {
		t.Errorf("answers %+v and %+v", second, again)
	}
	if other := s.chat(s.byAnna, "default", map[string]any{"text": "Hello.", "agent": "plain"}); other.Session == first.Session {
		t.Error("another agent answered in the same session")
	}
	requests := s.script.Requests()
	if len(requests) != 3 || !strings.Contains(requests[0].Messages[0].Content, "You are Jeeves.") {
		t.Errorf("%d requests: %+v", len(requests), requests)
	}

	bad := func(status int, body any) {
		t.Helper()
		s.want(status, request{method: "POST", path: "/api/users/default/chat", token: s.byAnna, body: body})
	}
	for _, body := range []string{
		"", "null", "{}", "[]", `{"text":""}`, `{"text":"  "}`, `{"text":5}`, `{"text":"x","source":"tick"}`, `{"text":"x","user":"` + s.bert.ID.String() + `"}`,
		`{"text":"x","session":"last"}`, `{"text":"x","session":""}`, `{"text":"x","session":"00000000-0000-0000-0000-000000000000"}`, `{"text":"x"}{"text":"y"}`,
		`{"text":"x","event_key":"no session"}`, `{"text":"x","session":"` + first.Session.String() + `","agent":"plain"}`,
		`{"text":"x","session":"` + first.Session.String() + `","event_key":"` + strings.Repeat("k", 600) + `"}`,
	} {
		bad(http.StatusBadRequest, body)
	}
	bad(http.StatusNotFound, `{"text":"x","agent":"nobody"}`)
	bad(http.StatusNotFound, `{"text":"x","session":"`+memory.NewID[memory.SessionID]().String()+`"}`)
	bad(http.StatusRequestEntityTooLarge, `{"text":"`+strings.Repeat("x", 1<<20)+`"}`)
	// A session of somebody else's is none.
	bobs := s.chat(s.byBert, s.bert.ID.String(), map[string]any{"text": "I am Bert."})
	bad(http.StatusNotFound, `{"text":"x","session":"`+bobs.Session.String()+`"}`)
	if got := len(s.script.Requests()); got != 4 {
		t.Errorf("%d requests, want 4: what was refused reached the model", got)
	}
}

// What goes wrong with the model is the gateway's status, in the host's words.
func TestChatFaults(t *testing.T) {
	for name, test := range map[string]struct {
		answer openaitest.Answer
		status int
	}{
		"refused":   {openaitest.Fault(400, "invalid_value", "messages", "SECRET WORDS"), 502},
		"auth":      {openaitest.Fault(401, "invalid_api_key", "", "SECRET WORDS"), 502},
		"too long":  {openaitest.Fault(400, "context_length_exceeded", "messages", "SECRET WORDS"), 413},
		"empty":     {openaitest.Text(""), 502},
		"not found": {openaitest.Fault(404, "model_not_found", "model", "SECRET WORDS"), 502},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(up *setup) { up.script.Otherwise(test.answer) })
			a := s.want(test.status, request{method: "POST", path: "/api/users/default/chat", token: s.byAnna, body: `{"text":"Hello."}`})
			if strings.Contains(a.body, "SECRET") || strings.Contains(a.body, "127.0.0.1") {
				t.Errorf("%v tells what the model's server said", a)
			}
		})
	}
}

// event is one of a stream.
type event struct{ name, data string }

// events reads a stream to its end, or calls each, which may end it.
func events(t *testing.T, body io.Reader, each func(event)) []event {
	t.Helper()
	var all []event
	scanner := bufio.NewScanner(body)
	var e event
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case line == "" && e.name != "":
			all = append(all, e)
			if each != nil {
				each(e)
			}
			e = event{}
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			e.data = line[len("data: "):]
		case line != "" && !strings.HasPrefix(line, ":"):
			t.Errorf("a stream has the line %q", line)
		}
	}
	return all
}

func (s *system) stream(ctx context.Context, body string) *http.Response {
	s.t.Helper()
	response, err := client.Do(s.build(ctx, request{method: "POST", path: "/api/users/default/chat", token: s.byAnna, body: body, header: map[string]string{"Accept": "application/json;q=0.5, text/event-stream"}}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestChatStreams(t *testing.T) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, func(up *setup) {
		up.script.Otherwise(openaitest.Stream(openaitest.Piece("Good "), openaitest.Pause(func(ctx context.Context) {
			close(reached)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}), openaitest.Piece("morning,\n"), openaitest.Piece("data: sir."), openaitest.Finish("stop"), openaitest.Usage(nil), openaitest.Done()))
	})
	response := s.stream(t.Context(), `{"text":"Hello."}`)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	said, first := "", true
	all := events(t, response.Body, func(e event) {
		if first {
			// The first piece is here while the model has not said the rest.
			first = false
			<-reached
			close(goOn)
		}
		if e.name == "text" {
			var piece struct{ Text string }
			if err := json.Unmarshal([]byte(e.data), &piece); err != nil {
				t.Error(err)
			}
			said += piece.Text
		}
	})
	last := all[len(all)-1]
	var a answered
	if err := json.Unmarshal([]byte(last.data), &a); err != nil || last.name != "answer" {
		t.Fatalf("events %v: %v", all, err)
	}
	if a.Text != "Good morning,\ndata: sir." || said != a.Text {
		t.Errorf("said %q, answered %q", said, a.Text)
	}
	document.hold(t, request{method: "POST", path: "/api/users/default/chat"}, answer{status: 200, header: http.Header{"Content-Type": {"application/json"}}, body: last.data})
}

// Tools and what was said before them show in the stream.
func TestChatStreamsTools(t *testing.T) {
	s := serve(t, func(up *setup) {
		up.script = openaitest.NewScript(t,
			openaitest.Stream(openaitest.Piece("Let me look."), openaitest.Deltas(openaitest.Call("c1", "memory_search", `{"query":"cats"}`)), openaitest.Finish("tool_calls"), openaitest.Usage(nil), openaitest.Done()),
			openaitest.Stream(openaitest.Piece("Nothing."), openaitest.Finish("stop"), openaitest.Usage(nil), openaitest.Done()),
		)
	})
	var order []string
	for _, e := range events(t, s.stream(t.Context(), `{"text":"What did I say of cats?"}`).Body, nil) {
		order = append(order, e.name)
		if e.name == "tool" && e.data != `{"name":"memory_search"}` {
			t.Errorf("tool %s", e.data)
		}
	}
	joined := strings.Join(order, " ")
	if !strings.HasSuffix(joined, "text answer") || !strings.Contains(joined, "tool") || !strings.Contains(joined, "restart") {
		t.Errorf("events %s", joined)
	}
}

// A turn that fails before its message is stored has a status; after that, an event.
// Who is told where it is stored goes on there.
func TestChatStreamFails(t *testing.T) {
	s := serve(t, func(up *setup) {
		up.script = openaitest.NewScript(t, openaitest.Fault(400, "invalid_value", "messages", "no"),
			openaitest.Stream(openaitest.Piece("Half an ans"), openaitest.Break()))
	})
	response := s.stream(t.Context(), `{"text":""}`)
	if response.StatusCode != http.StatusBadRequest || response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	all := events(t, s.stream(t.Context(), `{"text":"Hello."}`).Body, nil)
	if len(all) != 2 || all[0].name != "session" || all[1].name != "error" {
		t.Fatalf("events %v", all)
	}
	var kept struct{ Session memory.SessionID }
	if err := json.Unmarshal([]byte(all[0].data), &kept); err != nil {
		t.Fatal(err)
	}
	all = events(t, s.stream(t.Context(), `{"text":"Hello.","session":"`+kept.Session.String()+`"}`).Body, nil)
	var p struct{ Status int }
	last := all[len(all)-1]
	if err := json.Unmarshal([]byte(last.data), &p); err != nil || last.name != "error" || p.Status != http.StatusBadGateway {
		t.Errorf("events %v: %v", all, err)
	}
	for _, e := range all {
		if e.name == "answer" {
			t.Errorf("half an answer was given: %v", all)
		}
	}
	if sessions, err := s.host.Store().Sessions(t.Context(), s.anna.ID, memory.SessionQuery{}); err != nil || len(sessions) != 1 || sessions[0].ID != kept.Session {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
}

// Without events the problem says where the message is.
func TestChatFails(t *testing.T) {
	s := serve(t, func(up *setup) {
		up.script = openaitest.NewScript(t, openaitest.Fault(400, "invalid_value", "messages", "no"))
	})
	a := s.do(request{method: "POST", path: "/api/users/default/chat", token: s.byAnna, body: `{"text":"Hello."}`})
	var p struct{ Session memory.SessionID }
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != http.StatusBadGateway {
		t.Fatalf("%v: %v", a, err)
	}
	if messages, err := s.host.Store().Messages(t.Context(), s.anna.ID, p.Session, memory.MessageQuery{}); err != nil || len(messages) != 1 {
		t.Errorf("%d messages, %v", len(messages), err)
	}
}

// Who closes only its half ends the turn, and is told why there is no answer.
func TestNoSuccessForWhoClosedItsHalf(t *testing.T) {
	entered := make(chan struct{})
	s := serve(t, func(up *setup) {
		up.script.Otherwise(func(_ http.ResponseWriter, r *http.Request, _ openaitest.Request) {
			close(entered)
			<-r.Context().Done()
		})
	})
	connection, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	const body = `{"text":"Hello."}`
	fmt.Fprintf(connection, "POST /api/users/default/chat HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.address, s.byAnna, len(body), body)
	<-entered
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), "both halves") {
		t.Errorf("the answer is %s %q, %v", response.Status, said, err)
	}
}

// Who goes away ends the turn; the message stays.
func TestChatWhenTheCallerGoes(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	s := serve(t, func(up *setup) {
		up.script.Otherwise(func(_ http.ResponseWriter, r *http.Request, _ openaitest.Request) {
			close(entered)
			<-r.Context().Done()
			close(gone)
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		response, err := client.Do(s.build(ctx, request{method: "POST", path: "/api/users/default/chat", token: s.byAnna, body: `{"text":"Hello."}`}))
		if err == nil {
			response.Body.Close()
		}
		failed <- err
	}()
	<-entered
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	<-gone
	sessions, err := s.store.Sessions(t.Context(), s.anna.ID, memory.SessionQuery{WithUser: true})
	if err != nil || len(sessions) != 1 || sessions[0].Messages != 1 {
		t.Errorf("sessions %+v, %v", sessions, err)
	}
}

func TestSessions(t *testing.T) {
	s := serve(t)
	a := s.chat(s.byAnna, "default", map[string]any{"text": "one"})
	for range 4 {
		s.clock.Move(time.Second)
		s.chat(s.byAnna, "default", map[string]any{"text": "more", "session": a.Session})
	}
	s.clock.Move(time.Minute)
	b := s.chat(s.byAnna, "default", map[string]any{"text": "two"})
	var list struct {
		Sessions []memory.Session `json:"sessions"`
	}
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/sessions", token: s.byAnna}).into(t, &list)
	if len(list.Sessions) != 2 || list.Sessions[0].ID != b.Session || list.Sessions[1].Messages != 10 {
		t.Errorf("sessions %+v", list)
	}
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/sessions?limit=1", token: s.byAnna}).into(t, &list)
	if len(list.Sessions) != 1 {
		t.Errorf("sessions %+v", list)
	}
	path := "/api/users/default/sessions/" + a.Session.String()
	var seqs []int64
	for after := int64(0); ; {
		var page struct {
			Messages []struct {
				Seq           int64
				Role, Content string
			}
			NextAfter int64 `json:"next_after"`
		}
		s.want(http.StatusOK, request{method: "GET", path: path + "?limit=3&after=" + strconv.FormatInt(after, 10), token: s.byAnna}).into(t, &page)
		for _, m := range page.Messages {
			seqs = append(seqs, m.Seq)
		}
		if after = page.NextAfter; after == 0 {
			break
		}
	}
	if len(seqs) != 10 || seqs[0] != 1 || seqs[9] != 10 {
		t.Errorf("pages have %v", seqs)
	}
	var shown struct {
		Session memory.SessionID
		System  string
		Report  struct{ Tokens int }
	}
	s.want(http.StatusOK, request{method: "GET", path: path + "/context", token: s.byAnna}).into(t, &shown)
	if shown.Session != a.Session || !strings.Contains(shown.System, "You are Jeeves.") || shown.Report.Tokens == 0 {
		t.Errorf("context %+v", shown)
	}
	for _, p := range []string{path, path + "/context"} {
		s.want(http.StatusNotFound, request{method: "GET", path: strings.Replace(p, "default", s.bert.ID.String(), 1), token: s.byBert})
	}
	for _, query := range []string{"?after=-1", "?limit=0", "?limit=501", "?after=x"} {
		s.want(http.StatusBadRequest, request{method: "GET", path: path + query, token: s.byAnna})
	}
}

// B8: what a user takes along is what the command line writes: each record a line,
// the last one says how many.
func TestExportOfAUser(t *testing.T) {
	s := serve(t)
	s.chat(s.byAnna, "default", map[string]any{"text": "I have a cat."})
	s.learn(s.anna, "jeeves", memory.NewTopic{Name: "cats", Content: "Has a cat."})
	a := s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/export", token: s.byAnna})
	if got := a.header.Get("Content-Disposition"); got != "attachment; filename=user_anna_20260323.jsonl" {
		t.Errorf("Content-Disposition: %s", got)
	}
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	var end struct{ End struct{ Records int } }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || end.End.Records != len(lines)-2 {
		t.Errorf("%d lines, the last %s", len(lines), lines[len(lines)-1])
	}
	if !strings.Contains(a.body, "I have a cat.") || !strings.Contains(a.body, "Has a cat.") {
		t.Error("something is missing")
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// M2: how an agent remembers is chosen, shown flat and nested, and kept over a
// restart; what is no choice is refused.
func TestConfigureAgent(t *testing.T) {
	var dir string
	s := serve(t, func(up *setup) { dir = up.host.Data })
	type agent struct {
		Name         string
		MemorySystem string `json:"memory_system"`
		Manifest     struct {
			Memory *struct{ System string }
		}
	}
	get := func() (a agent) {
		t.Helper()
		s.want(http.StatusOK, request{method: "GET", path: "/api/agents/plain", token: s.admin}).into(t, &a)
		return a
	}
	patch := func(status int, body string) answer {
		t.Helper()
		return s.want(status, request{method: "PATCH", path: "/api/agents/plain/config", token: s.admin, body: body})
	}
	if a := get(); a.MemorySystem != host.MemorySummarization || a.Manifest.Memory != nil {
		t.Errorf("at first %+v", a)
	}
	var a agent
	patch(http.StatusOK, `{"memory_system":"structured"}`).into(t, &a)
	if b := get(); a.MemorySystem != host.MemoryStructured || a.Manifest.Memory == nil || a.Manifest.Memory.System != host.MemoryStructured || b.MemorySystem != a.MemorySystem || b.Manifest.Memory == nil {
		t.Errorf("chosen %+v, then %+v", a, b)
	}
	for _, body := range []string{
		"", "{}", "null", "[]", `{"memory_system":""}`, `{"memory_system":"Structured"}`, `{"memory_system":"none"}`, `{"memory_system":1}`, `{"memory_system":true}`, `{"memory_system":{}}`,
		`{"memory_system":["structured"]}`, `{"memory_system":"structured","x":1}`, `{"memory":"structured"}`, `{"memory_system":"structured"} x`,
	} {
		patch(http.StatusBadRequest, body)
	}
	if b := get(); b.MemorySystem != host.MemoryStructured {
		t.Errorf("after refusals %+v", b)
	}
	var list struct{ Agents []agent }
	s.want(http.StatusOK, request{method: "GET", path: "/api/agents", token: s.admin}).into(t, &list)
	if len(list.Agents) != 2 || list.Agents[0].Name != "jeeves" || list.Agents[1].MemorySystem != host.MemoryStructured {
		t.Errorf("agents %+v", list)
	}
	if err := s.host.Close(); err != nil {
		t.Fatal(err)
	}
	again := serve(t, func(up *setup) { up.host.Data = dir })
	s = again
	if b := get(); b.MemorySystem != host.MemoryStructured {
		t.Errorf("after a restart %+v", b)
	}
	patch(http.StatusOK, `{"memory_system":null}`)
	if b := get(); b.MemorySystem != host.MemorySummarization || b.Manifest.Memory != nil {
		t.Errorf("left to the configuration %+v", b)
	}
}

func TestUsersAndStatus(t *testing.T) {
	s := serve(t)
	var list struct{ Users []memory.User }
	s.want(http.StatusOK, request{method: "GET", path: "/api/users", token: s.admin}).into(t, &list)
	if len(list.Users) != 2 || !list.Users[0].IsDefault || list.Users[0].ID != s.anna.ID || list.Users[1].IsDefault {
		t.Errorf("users %+v", list)
	}
	s.want(http.StatusOK, request{method: "GET", path: "/api/status", token: s.admin})
}

// A user is erased by an operator or by themselves; others stay.
func TestWipeUser(t *testing.T) {
	s := serve(t)
	s.chat(s.byAnna, "default", map[string]any{"text": "I have a cat."})
	s.chat(s.byBert, s.bert.ID.String(), map[string]any{"text": "I have a dog."})
	s.learn(s.bert, "jeeves", memory.NewTopic{Name: "dogs", Content: "Has a dog."})
	var report struct{ Sessions, Messages, Topics int }
	s.want(http.StatusOK, request{method: "DELETE", path: "/api/users/" + s.bert.ID.String(), token: s.byBert}).into(t, &report)
	if report.Sessions != 1 || report.Messages != 2 || report.Topics != 1 {
		t.Errorf("report %+v", report)
	}
	var list struct{ Sessions []memory.Session }
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/sessions", token: s.byAnna}).into(t, &list)
	if len(list.Sessions) != 1 {
		t.Errorf("anna's sessions %+v", list)
	}
}

// A wipe that comes while the user talks: the turn ends with a clear answer, and
// nothing is left of it.
func TestWipeDuringAChat(t *testing.T) {
	entered := make(chan struct{})
	s := serve(t, func(up *setup) {
		var once sync.Once
		up.script.Otherwise(func(_ http.ResponseWriter, r *http.Request, _ openaitest.Request) {
			once.Do(func() { close(entered) })
			<-r.Context().Done()
		})
	})
	chatted := make(chan answer, 1)
	go func() {
		a, err := s.try(request{method: "POST", path: "/api/users/default/chat", token: s.byAnna, body: `{"text":"I have a cat."}`})
		if err != nil {
			t.Error(err)
		}
		chatted <- a
	}()
	<-entered
	s.want(http.StatusOK, request{method: "DELETE", path: "/api/users/default", token: s.admin})
	if a := <-chatted; a.status != http.StatusConflict || !strings.Contains(a.body, "removed") {
		t.Errorf("the turn was answered %v", a)
	}
	sessions, err := s.store.Sessions(t.Context(), s.anna.ID, memory.SessionQuery{})
	if err != nil || len(sessions) != 0 {
		t.Errorf("left: %+v, %v", sessions, err)
	}
}
