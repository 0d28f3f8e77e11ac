package control_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// say sends a message and returns where it was said, and its id.
func (s *system) say(user memory.User, agent, text string) (memory.SessionID, memory.MessageID) {
	s.t.Helper()
	answer, err := s.host.Send(s.t.Context(), host.Message{User: user.ID, Agent: agent, Text: text})
	if err != nil {
		s.t.Fatal(err)
	}
	messages, err := s.store.Messages(s.t.Context(), user.ID, answer.Session, memory.MessageQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range messages {
		if m.IsUsers() {
			return answer.Session, m.ID
		}
	}
	s.t.Fatal("the message was not stored")
	return memory.SessionID{}, memory.MessageID{}
}

// learn stores what a dream would have made of topics.
func (s *system) learn(user memory.User, agent string, topics ...memory.NewTopic) []memory.Topic {
	s.t.Helper()
	a, err := s.host.Agent(agent)
	if err != nil {
		s.t.Fatal(err)
	}
	_, revision, err := s.store.Topics(s.t.Context(), user.ID, memory.TopicQuery{})
	if err != nil {
		s.t.Fatal(err)
	}
	stored, err := s.store.CommitDream(s.t.Context(), user.ID, revision, memory.Dream{Agent: a.ID, Topics: topics, At: s.clock.Now()})
	if err != nil {
		s.t.Fatal(err)
	}
	return stored
}

func (s *system) extract(user memory.User, session memory.SessionID, l memory.Learnings) memory.Extraction {
	s.t.Helper()
	x, err := s.store.CommitExtraction(s.t.Context(), user.ID, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: 1, Last: 2}}, Learnings: l, At: s.clock.Now()})
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// topicsAnswer is a list of topics.
type topicsAnswer struct {
	Topics []memory.Remembered `json:"topics"`
}

func (s *system) topics(path, token string) topicsAnswer {
	s.t.Helper()
	var list topicsAnswer
	s.want(http.StatusOK, request{method: "GET", path: path, token: token}).into(s.t, &list)
	return list
}

func names(list topicsAnswer) string {
	var all []string
	for _, r := range list.Topics {
		all = append(all, r.Name)
	}
	return strings.Join(all, ",")
}

// M4: topics are listed by name, shown with their history and sources, and deleted
// one by one; what has expired or was superseded is in the history alone.
func TestTopics(t *testing.T) {
	s := serve(t)
	_, said := s.say(s.anna, "jeeves", "I live in Oslo with two cats.")
	old := s.learn(s.anna, "jeeves",
		memory.NewTopic{Name: "home", Content: "Lives in Oslo.", Sources: []memory.MessageID{said}},
		memory.NewTopic{Name: "cats", Content: "Has a cat.", Sources: []memory.MessageID{said}},
		memory.NewTopic{Name: "cats", Content: "Has a second cat."},
		memory.NewTopic{Name: "trip", Content: "Is in Rome.", ExpiresAt: monday.Add(time.Hour)},
		memory.NewTopic{Name: "style", Content: "Wants Jeeves to be brief.", OfAgent: true},
	)
	s.clock.Move(time.Minute)
	s.learn(s.anna, "jeeves", memory.NewTopic{Name: "home", Content: "Lives in Bergen.", Supersedes: []memory.TopicID{old[0].ID}})

	list := s.topics("/api/users/default/memory", s.byAnna)
	if names(list) != "cats,home,trip" || list.Topics[0].Content != "Has a cat.\nHas a second cat." || len(list.Topics[0].Items[0].Sources) != 1 || list.Topics[2].ExpiresAt.IsZero() {
		t.Errorf("topics %+v", list)
	}
	if got := s.topics("/api/users/"+s.anna.ID.String()+"/agents/jeeves/memory", s.admin); names(got) != "style" {
		t.Errorf("of the agent: %+v", got)
	}
	if got := s.topics("/api/users/default/agents/plain/memory", s.admin); len(got.Topics) != 0 {
		t.Errorf("of another agent: %+v", got)
	}
	if got := s.topics("/api/users/"+s.bert.ID.String()+"/memory", s.byBert); len(got.Topics) != 0 {
		t.Errorf("of bert: %+v", got)
	}

	var home struct {
		memory.Remembered
		History []memory.Topic `json:"history"`
	}
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/memory/HOME", token: s.byAnna}).into(t, &home)
	if home.Content != "Lives in Bergen." || len(home.Items) != 1 || len(home.History) != 1 || home.History[0].Content != "Lives in Oslo." || home.History[0].SupersededBy != home.Items[0].ID || home.History[0].Sources[0] != said {
		t.Errorf("home %+v", home)
	}
	s.clock.Move(time.Hour)
	if list := s.topics("/api/users/default/memory", s.byAnna); names(list) != "cats,home" {
		t.Errorf("after its time: %q", names(list))
	}
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/memory/trip", token: s.byAnna}).into(t, &home)
	if home.Content != "" || len(home.Items) != 0 || len(home.History) != 1 || home.Name != "trip" {
		t.Errorf("trip %+v", home)
	}

	var deleted struct{ Deleted int }
	remove := request{method: "DELETE", path: "/api/users/default/memory/home", token: s.byAnna}
	s.want(http.StatusOK, remove).into(t, &deleted)
	if deleted.Deleted != 2 {
		t.Errorf("deleted %+v", deleted)
	}
	s.want(http.StatusNotFound, remove)
	s.want(http.StatusNotFound, request{method: "GET", path: "/api/users/default/memory/home", token: s.byAnna})
	// One agent's topics and the user's do not mix.
	s.want(http.StatusNotFound, request{method: "DELETE", path: "/api/users/default/memory/style", token: s.byAnna})
	s.want(http.StatusNotFound, request{method: "DELETE", path: "/api/users/default/agents/jeeves/memory/cats", token: s.byAnna})
	s.want(http.StatusOK, request{method: "DELETE", path: "/api/users/default/agents/jeeves/memory/style", token: s.byAnna})
}

// A user says what is remembered; whatever the name, it is found again.
func TestTheUserEdits(t *testing.T) {
	s := serve(t)
	for name, stored := range map[string]string{
		"cats": "cats", "  Two\tWords ": "two words", "a/b": "a/b", "/": "/", "//": "//", "🐈🐈‍⬛": "🐈🐈‍⬛", "100%": "100%", "a?b#c": "a?b#c", "Audit": "audit-topic",
		strings.Repeat("é", 100): strings.Repeat("é", 100), "a+b": "a+b", "..": "..-topic", "v1.2": "v1.2", "<script>": "<script>", "a\"b": "a\"b",
	} {
		for _, prefix := range []string{"/api/users/default/memory/", "/api/users/default/agents/plain/memory/"} {
			path := prefix + strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
			var topic memory.Topic
			s.want(http.StatusOK, request{method: "PUT", path: path, token: s.byAnna, body: map[string]any{"content": "About " + name}}).into(t, &topic)
			if topic.Name != stored || topic.Agent.IsZero() == strings.Contains(prefix, "agents") || len(topic.Sources) != 0 {
				t.Errorf("%q: stored %+v", name, topic)
			}
			var shown memory.Remembered
			s.want(http.StatusOK, request{method: "GET", path: path, token: s.byAnna}).into(t, &shown)
			if shown.Name != stored || len(shown.Items) != 1 || shown.Items[0].ID != topic.ID {
				t.Errorf("%q: shown %+v", name, shown)
			}
			s.want(http.StatusOK, request{method: "DELETE", path: path, token: s.byAnna})
		}
	}
	put := func(status int, body any, header map[string]string) answer {
		t.Helper()
		return s.want(status, request{method: "PUT", path: "/api/users/default/memory/cats", token: s.byAnna, body: body, header: header})
	}
	put(http.StatusOK, `{"content":"Has two cats.","expires_at":"2026-03-24T09:00:00Z"}`, nil)
	put(http.StatusOK, `{"content":"Has three cats.","expires_at":null}`, nil)
	list := s.topics("/api/users/default/memory", s.byAnna)
	if len(list.Topics) != 1 || list.Topics[0].Content != "Has three cats." || !list.Topics[0].ExpiresAt.IsZero() {
		t.Errorf("topics %+v", list)
	}
	for _, body := range []string{
		"", "{", "null", "[]", `"x"`, `{}`, `{"content":""}`, `{"content":" \n"}`, `{"content":null}`, `{"content":5}`, `{"content":"x","x":1}`, `{"content":"x"} {}`, `{"content":"x"}]`,
		`{"content":"x","expires_at":"soon"}`, `{"content":"x","expires_at":5}`, `{"content":"x","expires_at":"2026-03-23T08:00:00Z"}`, `{"content":"x","expires_at":"2026-03-23T09:00:00Z"}`,
		`{"content":"` + strings.Repeat("x", memory.MaxTopicContent+1) + `"}`, strings.Repeat("[", 100_000),
	} {
		put(http.StatusBadRequest, body, nil)
	}
	put(http.StatusRequestEntityTooLarge, `{"content":"`+strings.Repeat("x", 2<<20)+`"}`, nil)
	put(http.StatusRequestEntityTooLarge, `{"content":"x"}`+strings.Repeat(" ", 2<<20), nil)
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=latin1", "", "x"} {
		put(http.StatusUnsupportedMediaType, `{"content":"x"}`, map[string]string{"Content-Type": kind})
	}
	put(http.StatusUnsupportedMediaType, `{"content":"x"}`, map[string]string{"Content-Encoding": "gzip"})
	put(http.StatusOK, `{"content":"x"}`, map[string]string{"Content-Type": "Application/JSON; charset=UTF-8"})
}

// An ETag names what was read: the same is not sent again, and a change that
// insists on it is refused once anything else has changed.
func TestTopicTags(t *testing.T) {
	s := serve(t)
	const path = "/api/users/default/memory"
	s.learn(s.anna, "jeeves", memory.NewTopic{Name: "trip", Content: "Is in Rome.", ExpiresAt: monday.Add(time.Hour)})
	get := func(status int, known string) string {
		t.Helper()
		header := map[string]string{}
		if known != "" {
			header["If-None-Match"] = known
		}
		return s.want(status, request{method: "GET", path: path, token: s.byAnna, header: header}).header.Get("ETag")
	}
	tag := get(http.StatusOK, "")
	for _, known := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if again := get(http.StatusNotModified, known); again != tag {
			t.Errorf("tag %s, then %s", tag, again)
		}
	}
	get(http.StatusOK, `"x"`)
	get(http.StatusOK, strings.Trim(tag, `"`))
	// What expires changes the list without anybody writing.
	s.clock.Move(2 * time.Hour)
	if later := get(http.StatusOK, tag); later == tag {
		t.Error("the tag outlived what it named")
	}

	put := func(status int, tag string) {
		t.Helper()
		s.want(status, request{method: "PUT", path: path + "/cats", token: s.byAnna, body: `{"content":"Has a cat."}`, header: map[string]string{"If-Match": tag}})
	}
	put(http.StatusPreconditionFailed, "*") // there is no such topic yet
	put(http.StatusPreconditionFailed, `"x"`)
	put(http.StatusPreconditionFailed, "nonsense")
	put(http.StatusOK, tag)
	put(http.StatusPreconditionFailed, tag)
	put(http.StatusOK, "*")
	one := s.want(http.StatusOK, request{method: "GET", path: path + "/cats", token: s.byAnna}).header.Get("ETag")
	put(http.StatusOK, one)
	put(http.StatusPreconditionFailed, one)

	// Of many who read the same, one writes.
	tag = get(http.StatusOK, "")
	var group sync.WaitGroup
	statuses := make(chan int, 8)
	for range cap(statuses) {
		group.Go(func() {
			a, err := s.try(request{method: "PUT", path: path + "/cats", token: s.byAnna, body: `{"content":"Has a dog."}`, header: map[string]string{"If-Match": tag}})
			if err != nil {
				t.Error(err)
			}
			statuses <- a.status
		})
	}
	group.Wait()
	close(statuses)
	wrote := 0
	for status := range statuses {
		if status == http.StatusOK {
			wrote++
		} else if status != http.StatusPreconditionFailed {
			t.Errorf("status %d", status)
		}
	}
	if wrote != 1 {
		t.Errorf("%d wrote", wrote)
	}
}

// The revisions of a user begin anywhere, below zero too: whatever the number is,
// the tag that was read is one to insist on.
func TestTagsOfEveryUser(t *testing.T) {
	users := []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}}
	for i := range 16 {
		users = append(users, host.UserConfig{Name: fmt.Sprintf("user%d", i)})
	}
	s := serve(t, func(up *setup) { up.host.Users = users })
	for _, u := range users {
		user, err := s.host.User(u.Name)
		if err != nil {
			t.Fatal(err)
		}
		path := "/api/users/" + user.ID.String() + "/memory"
		tag := s.want(http.StatusOK, request{method: "GET", path: path, token: s.admin}).header.Get("ETag")
		put := request{method: "PUT", path: path + "/pets", token: s.admin, body: `{"content":"Has a cat."}`, header: map[string]string{"If-Match": tag}}
		s.want(http.StatusOK, put)
		s.want(http.StatusPreconditionFailed, put)
	}
}

// A condition that is not looked at changes nothing.
func TestConditionsAreNotPassedOver(t *testing.T) {
	s := serve(t)
	const path = "/api/users/default/memory/pets"
	s.want(http.StatusOK, request{method: "PUT", path: path, token: s.byAnna, body: `{"content":"Has a cat."}`})
	for _, r := range []request{
		{method: "PUT", body: `{"content":"Has a dog."}`, header: map[string]string{"If-None-Match": "*"}},
		{method: "DELETE", header: map[string]string{"If-Match": `"0.x"`}},
		{method: "DELETE", header: map[string]string{"If-None-Match": `"0.x"`}},
	} {
		r.path, r.token = path, s.byAnna
		s.want(http.StatusBadRequest, r)
	}
	if a := s.want(http.StatusOK, request{method: "GET", path: path, token: s.byAnna}); !strings.Contains(a.body, `"Has a cat."`) || strings.Contains(a.body, "dog") {
		t.Error(a.body)
	}
}

// A body is taken as it is written or not at all.
func TestBodiesAreTakenAsWritten(t *testing.T) {
	s := serve(t)
	for body, says := range map[string]string{
		`{"content":"a","content":"b"}`:       "there twice",
		`{"Content":"a"}`:                     "unknown field",
		`{"content":"a","CONTENT":null}`:      "unknown field",
		"{\"content\":\"caf\xe9\"}":           "not UTF-8",
		`{"content":"a","expires_at":7}`:      "2030-12-31T18:00:00Z",
		`{"content":"a","expires_at":"soon"}`: "2030-12-31T18:00:00Z",
	} {
		a := s.want(http.StatusBadRequest, request{method: "PUT", path: "/api/users/default/memory/pets", token: s.byAnna, body: body})
		if !strings.Contains(a.body, says) || strings.Contains(a.body, "2006") {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	s.want(http.StatusNotFound, request{method: "GET", path: "/api/users/default/memory/pets", token: s.byAnna})
	topic := func(fields string) string {
		return `{"records":[{"kind":"topic","topic":{` + fields + `}}]}`
	}
	for body, says := range map[string]string{
		`[]`:                           "it is not a JSON object",
		``:                             "it is not a JSON object",
		`{"records":`:                  "it ends too early",
		`{"records":[],"records":[]}`:  "there twice",
		`{"Format":"glovebox-memory"}`: "unknown field",
		"{\"format\":\"caf\xe9\"}":     "not UTF-8",
		topic(`"id":5`):                "records[0].topic.id: it has to be a text, not a number",
		topic(`"valid_from":"soon"`):   "records[0]: it has to be a time such as 2030-12-31T18:00:00Z",
		topic(`"valid_from":7`):        "records[0]: it has to be a time such as 2030-12-31T18:00:00Z",
		topic(`"id":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)): "nests deeper",
	} {
		a := s.want(http.StatusBadRequest, request{method: "POST", path: "/api/users/default/memory/import", token: s.byAnna, body: body})
		if !strings.Contains(a.body, says) || strings.Contains(a.body, "Go value") {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}

// A body that breaks off is its sender's fault, not the server's.
func TestBodiesThatBreakOff(t *testing.T) {
	s := serve(t)
	for _, path := range []string{"/api/users/default/memory/import", "/api/users/default/chat"} {
		for what, rest := range map[string]string{"length": "Content-Length: 100\r\n\r\n{", "chunk": "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"} {
			connection, err := net.Dial("tcp", s.address)
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s", path, s.address, s.byAnna, rest)
			if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(connection)
			if line, _, _ := strings.Cut(string(said), "\r\n"); len(said) > 0 && line != "HTTP/1.1 400 Bad Request" {
				t.Errorf("%s, %s: %s", path, what, line)
			}
		}
	}
}

// Two who delete the same topic at once: one did it, the other finds nothing.
func TestTwoDeletesAtOnce(t *testing.T) {
	s := serve(t)
	for range 10 {
		s.learn(s.anna, "jeeves", memory.NewTopic{Name: "cats", Content: "Has a cat."})
		statuses := make(chan int, 2)
		for range 2 {
			go func() {
				a, err := s.try(request{method: "DELETE", path: "/api/users/default/memory/cats", token: s.byAnna})
				if err != nil {
					t.Error(err)
				}
				statuses <- a.status
			}()
		}
		if a, b := <-statuses, <-statuses; a+b != http.StatusOK+http.StatusNotFound {
			t.Fatalf("statuses %d and %d", a, b)
		}
	}
}

// M5: the audit says that something was learned, how much and where, page by page,
// and outlives the session; it does not say what.
func TestAudit(t *testing.T) {
	s := serve(t)
	var sessions []memory.SessionID
	for range 3 {
		session, said := s.say(s.anna, "jeeves", "I like tea.")
		s.extract(s.anna, session, memory.Learnings{
			Preferences: []memory.Learned{{Text: "Likes tea.", Sources: []memory.MessageID{said}}, {Text: "Drinks it.", Sources: []memory.MessageID{said}}},
			Tasks:       []memory.Learned{{Text: "Buy tea.", Sources: []memory.MessageID{said}}},
		})
		sessions = append(sessions, session)
	}
	if err := s.store.DeleteSession(t.Context(), s.anna.ID, sessions[0]); err != nil {
		t.Fatal(err)
	}
	type page struct {
		Events    []memory.LearningEvent `json:"events"`
		NextAfter string                 `json:"next_after"`
	}
	var all page
	a := s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/memory/audit", token: s.byAnna})
	a.into(t, &all)
	if len(all.Events) != 3 || all.NextAfter != "" {
		t.Fatalf("events %v", a)
	}
	for i, e := range all.Events {
		if e.Agent != "jeeves" || e.Session != sessions[i] || e.SessionDeleted != (i == 0) || e.Preferences != 2 || e.Tasks != 1 || e.Facts != 0 {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if strings.Contains(a.body, "tea") {
		t.Errorf("%v says what was learned", a)
	}
	var seen []memory.ExtractionID
	for after := ""; ; {
		var some page
		s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/memory/audit?limit=2" + after, token: s.byAnna}).into(t, &some)
		for _, e := range some.Events {
			seen = append(seen, e.ID)
		}
		if some.NextAfter == "" {
			break
		}
		after = "&after=" + some.NextAfter
	}
	if len(seen) != 3 || seen[0] != all.Events[0].ID || seen[2] != all.Events[2].ID {
		t.Errorf("in pages: %v", seen)
	}
	var none page
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/" + s.bert.ID.String() + "/memory/audit", token: s.byBert}).into(t, &none)
	if len(none.Events) != 0 {
		t.Errorf("bert's: %+v", none)
	}
}

// What is remembered is taken along: out, erased, and in again the same.
func TestMemoryGoesOutAndIn(t *testing.T) {
	s := serve(t)
	session, said := s.say(s.anna, "jeeves", "I have a cat.")
	s.extract(s.anna, session, memory.Learnings{Facts: []memory.Learned{{Text: "Has a cat.", Sources: []memory.MessageID{said}}}})
	s.learn(s.anna, "jeeves", memory.NewTopic{Name: "cats", Content: "Has a cat.", Sources: []memory.MessageID{said}}, memory.NewTopic{Name: "style", Content: "Brief.", OfAgent: true})
	export := request{method: "GET", path: "/api/users/default/memory/export", token: s.byAnna}
	out := s.want(http.StatusOK, export)
	if got := out.header.Get("Content-Disposition"); got != "attachment; filename=memory_anna_20260323.json" {
		t.Errorf("Content-Disposition: %s", got)
	}
	if strings.Contains(out.body, s.anna.ID.String()) {
		t.Error("the document names the user")
	}
	var wiped struct {
		Topics, Extractions int
		AgentTopics         int `json:"agent_topics"`
	}
	s.want(http.StatusOK, request{method: "DELETE", path: "/api/users/default/memory", token: s.byAnna}).into(t, &wiped)
	if wiped.Topics != 1 || wiped.AgentTopics != 1 || wiped.Extractions != 1 {
		t.Errorf("wiped %+v", wiped)
	}
	s.want(http.StatusOK, request{method: "DELETE", path: "/api/users/default/memory", token: s.byAnna}).into(t, &wiped)
	if wiped.Topics+wiped.AgentTopics+wiped.Extractions != 0 {
		t.Errorf("wiped again %+v", wiped)
	}
	bring := request{method: "POST", path: "/api/users/default/memory/import", token: s.byAnna, body: out.body}
	var report memory.ImportReport
	s.want(http.StatusOK, bring).into(t, &report)
	if report.Added[memory.RecordTopic] != 2 || report.Added[memory.RecordExtraction] != 1 {
		t.Errorf("import %+v", report)
	}
	report = memory.ImportReport{}
	s.want(http.StatusOK, bring).into(t, &report)
	if report.Skipped[memory.RecordTopic] != 2 || len(report.Added) != 0 {
		t.Errorf("import again %+v", report)
	}
	if again := s.want(http.StatusOK, export); again.body != out.body {
		t.Errorf("out again\n%s\nwas\n%s", again.body, out.body)
	}
	var document map[string]any
	if err := json.Unmarshal([]byte(out.body), &document); err != nil {
		t.Fatal(err)
	}
	with := func(key string, value any) any {
		changed := map[string]any{}
		for k, v := range document {
			changed[k] = v
		}
		changed[key] = value
		return changed
	}
	for name, body := range map[string]any{
		"nothing": "", "no JSON": "cats", "another format": with("format", "x"), "another version": with("version", 2), "an unknown field": with("x", 1),
		"more than one": out.body + out.body, "a session": with("records", []any{map[string]any{"kind": "session", "session": map[string]any{"id": session, "agent": "jeeves", "created_at": monday}}}),
		"an empty record": with("records", []any{map[string]any{}}),
	} {
		bring.body = body
		if a := s.do(bring); a.status != http.StatusBadRequest {
			t.Errorf("%s: %v", name, a)
		}
	}
	// Of a document that is too long no more is read than may come, also where it
	// does not say how long it is.
	bring.body = strings.Repeat(" ", transfer.MaxMemoryDocument+1)
	s.want(http.StatusRequestEntityTooLarge, bring)
	bring.body = io.LimitReader(spaces{}, transfer.MaxMemoryDocument+1)
	s.want(http.StatusRequestEntityTooLarge, bring)
	bring.body = out.body
	bring.header = map[string]string{"Content-Type": "text/plain"}
	s.want(http.StatusUnsupportedMediaType, bring)
}

// An import that comes slowly keeps nobody else's waiting, and no second one of the
// same user in memory.
func TestOneImportOfAUserAtOnce(t *testing.T) {
	s := serve(t)
	// The body is sent when the handler reads it.
	patient := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer patient.CloseIdleConnections()
	slow, end := io.Pipe()
	again := request{method: "POST", path: "/api/users/default/memory/import", token: s.byAnna, body: "{}"}
	sent := again
	sent.body, sent.header = slow, map[string]string{"Expect": "100-continue"}
	first := make(chan int, 1)
	go func() {
		response, err := patient.Do(s.build(t.Context(), sent))
		if err != nil {
			t.Error(err)
			first <- 0
			return
		}
		response.Body.Close()
		first <- response.StatusCode
	}()
	if _, err := end.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusConflict, again)
	bert := request{method: "POST", path: "/api/users/" + s.bert.ID.String() + "/memory/import", token: s.byBert, body: "{}"}
	s.want(http.StatusBadRequest, bert)
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	if status := <-first; status != http.StatusBadRequest {
		t.Errorf("the slow one: %d", status)
	}
	s.want(http.StatusBadRequest, again)
}

// spaces never end.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// An agent's memory is wiped without the rest.
func TestWipeOfOneAgent(t *testing.T) {
	s := serve(t)
	s.learn(s.anna, "jeeves", memory.NewTopic{Name: "cats", Content: "Has a cat."}, memory.NewTopic{Name: "style", Content: "Brief.", OfAgent: true})
	s.learn(s.anna, "plain", memory.NewTopic{Name: "style", Content: "Long.", OfAgent: true})
	var wiped struct {
		Topics      int
		AgentTopics int `json:"agent_topics"`
	}
	s.want(http.StatusOK, request{method: "DELETE", path: "/api/users/default/agents/jeeves/memory", token: s.byAnna}).into(t, &wiped)
	if wiped.Topics != 0 || wiped.AgentTopics != 1 {
		t.Errorf("wiped %+v", wiped)
	}
	if a, b := s.topics("/api/users/default/memory", s.byAnna), s.topics("/api/users/default/agents/plain/memory", s.byAnna); names(a) != "cats" || names(b) != "style" {
		t.Errorf("left %+v and %+v", a, b)
	}
}
