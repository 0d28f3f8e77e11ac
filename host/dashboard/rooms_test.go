package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/plugins"
)

// withHostileHand configures for anna a hand whose manifest is markup wherever it may
// be, and whose calendar has the hostile event.
func withHostileHand(t testing.TB) func(*host.Config) {
	t.Helper()
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := wasm.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf("name = \"evil\"\nversion = \"1.0.0\"\nabi = 1\ndescription = '''about %[1]s'''\n[[permissions]]\ncapability = \"files\"\npaths = [\"calendars\"]\nreason = '''because %[1]s'''\n",
		strings.ReplaceAll(markup, "'", "\""))
	changed := decoded.WithCustom(abi.ManifestSection, []byte(manifest))
	path := filepath.Join(t.TempDir(), "evil.wasm")
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	compiler, err := registry.Self()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *host.Config) {
		c.Compiler, c.Sessions.Timezone = compiler, "UTC"
		c.Hands = map[string]host.HandConfig{"evil": {
			Module: path, Digest: sandbox.Digest(changed), Users: []string{"anna"}, Prompts: map[string]string{"today": "What is on? " + markup},
			Grant: host.GrantConfig{Files: map[string]string{"calendars": filepath.Join("testdata", "calendars")}},
		}}
	}
}

// B8, U5: what a manifest says of a hand, what the hand says and what it wanted to
// reach is text; its record has pages; the form asks it and says what is wrong.
func TestHands(t *testing.T) {
	h := open(t, withHostileHand(t))
	ledger := h.host.Ledger()
	caller := capability.Caller{Hand: "evil", Subject: ledger.Subject("evil", h.anna.ID.String())}
	for i := range 60 {
		if err := ledger.RecordRun(t.Context(), capability.Run{Hand: "evil", Subject: caller.Subject, Outcome: abi.KindTrap, Text: fmt.Sprintf("run %d: trap", i)}); err != nil {
			t.Fatal(err)
		}
		if _, err := capability.NewFiles(ledger, caller, nil).List(t.Context(), abi.FilesListRequest{Root: fmt.Sprintf("root%d %s", i, markup)}); err == nil {
			t.Fatal("files without a grant")
		}
	}
	b := h.as(t, h.anna, control.ScopeAdmin)
	found := b.crawl("/hands")
	for path, page := range found {
		checkPage(t, path, page)
	}
	found["/hands"].says(t, "/hands", "evil", "about ", "<script>alert(1)</script>", "Bundled, not configured", "calendar", "mail", "not granted", "hands.mail.grant.files")
	found["/hands/evil"].says(t, "/hands/evil", "because ", "<img src=x onerror=alert(2)>", "granted", "hands.evil.grant.files", "sha256:", "run 59: trap", "root59", "anna")
	// Older rows are on pages of their own, which link back, each kind by itself.
	runs, refusals := map[string]bool{}, map[string]bool{}
	for _, page := range found {
		for _, n := range regexp.MustCompile(`run (\d+): trap`).FindAllStringSubmatch(page.body, -1) {
			runs[n[1]] = true
		}
		for _, n := range regexp.MustCompile(`root(\d+)`).FindAllStringSubmatch(page.body, -1) {
			refusals[n[1]] = true
		}
	}
	if len(runs) != 60 || len(refusals) != 60 {
		t.Errorf("links lead to %d runs and %d refusals of 60", len(runs), len(refusals))
	}

	form := func(changes ...string) url.Values {
		f := url.Values{"user": {h.anna.ID.String()}, "prompt": {"today"}, "from": {"2030-01-07T00:00"}, "to": {"2030-01-08T00:00"}, "max_tokens": {"500"}}
		for i := 0; i < len(changes); i += 2 {
			f.Set(changes[i], changes[i+1])
		}
		return f
	}
	const ask = "/hands/evil/query"
	for _, page := range []got{b.post(ask, form()), b.post(ask, form(), "HX-Request", "true"), b.post(ask, form("prompt", "", "question", "All?"))} {
		page.want(t, "a question", http.StatusOK).says(t, "a question", hostile, "hand://evil", "<<<EXTCONTENT_")
		checkText(t, "a question", page.body)
	}
	b.get("/hands/evil").says(t, "after a question", "answered")
	for name, test := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"no question":               {form("prompt", "", "question", " "), 422, "Say what the hand is to be asked."},
		"a prompt that is not":      {form("prompt", "x"), 422, "Say what the hand is to be asked."},
		"a window that ends first":  {form("to", "2030-01-06T00:00"), 422, "The window ends before it begins."},
		"no begin":                  {form("from", ""), 422, "Say when the window begins."},
		"no end":                    {form("to", "soon"), 422, "Say when the window ends."},
		"no tokens":                 {form("max_tokens", "0"), 422, "The answer may have 1 to"},
		"too many tokens":           {form("max_tokens", "99999"), 422, "The answer may have 1 to"},
		"too long":                  {form("prompt", "", "question", strings.Repeat("a", abi.MaxPromptBytes+1)), 422, "bytes"},
		"somebody whose it is not":  {form("user", h.bert.ID.String()), 404, "no such user"},
		"nobody":                    {form("user", "x"), 404, "no such user"},
		"markup in the form":        {form("from", markup, "prompt", "", "question", markup), 422, "<script>alert(1)</script>"},
		"a form that is too long":   {form("question", strings.Repeat("a", 2<<20)), 413, ""},
		"tokens that are no number": {form("max_tokens", markup), 422, "The answer may have 1 to"},
	} {
		page := b.post(ask, test.form).want(t, name, test.status).says(t, name, test.says)
		checkText(t, name, page.body)
	}
	b.get("/hands/nobody").want(t, "no such hand", http.StatusNotFound)
	b.post("/hands/nobody/query", form()).want(t, "no such hand", http.StatusNotFound)
	for _, query := range []string{"?runs=x", "?runs=-1&refusals=99999999999999999999", "?runs=1&refusals=1", "?runs=" + url.QueryEscape(markup)} {
		checkPage(t, query, b.get("/hands/evil"+query))
	}
}

// U5: the memory system of an agent is chosen, kept, and left to the configuration
// again.
func TestAgents(t *testing.T) {
	h := open(t, func(c *host.Config) {
		c.Agents = []host.AgentConfig{{Name: "plain", SystemPrompt: markup}, {Name: "jeeves", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}}
	})
	b := h.as(t, h.anna, control.ScopeAdmin)
	for path, page := range b.crawl("/agents") {
		checkPage(t, path, page)
	}
	inForce := func(name string) string {
		for _, a := range h.host.Agents() {
			if a.Name == name {
				return a.MemorySystem
			}
		}
		return ""
	}
	for _, step := range []struct{ agent, choice, want, says string }{
		{"plain", "structured", "structured", "The configuration says summarization."},
		{"plain", "summarization", "summarization", "Summarization (default)"},
		{"jeeves", "summarization", "summarization", "The configuration says structured."},
		{"jeeves", "", "structured", "Structured"},
	} {
		to := b.post("/agents/"+step.agent+"/config", url.Values{"memory_system": {step.choice}}).want(t, step.agent, http.StatusSeeOther).location()
		b.get(to).want(t, to, http.StatusOK).says(t, to, "Saved.", step.says)
		if got := inForce(step.agent); got != step.want {
			t.Errorf("%s: %q, want %q", step.agent, got, step.want)
		}
	}
	b.post("/agents/plain/config", url.Values{"memory_system": {"else"}}).want(t, "a system that is none", http.StatusBadRequest)
	b.post("/agents/plain/config", url.Values{}).want(t, "no choice", http.StatusBadRequest)
	b.post("/agents/nobody/config", url.Values{"memory_system": {"structured"}}).want(t, "no such agent", http.StatusNotFound)
	b.get("/agents/nobody").want(t, "no such agent", http.StatusNotFound)
	if got := inForce("plain"); got != "summarization" {
		t.Errorf("what was refused is in force: %q", got)
	}
}

// remember stores topics of a user as a dream does.
func (h *house) remember(t testing.TB, user memory.User, topics ...memory.NewTopic) []memory.Topic {
	t.Helper()
	agent, err := h.host.Agent("jeeves")
	if err != nil {
		t.Fatal(err)
	}
	_, revision, err := h.store.Topics(t.Context(), user.ID, memory.TopicQuery{})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := h.store.CommitDream(t.Context(), user.ID, revision, memory.Dream{Agent: agent.ID, Topics: topics, At: h.clock.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// held is what holds of a user now, by name.
func (h *house) held(t testing.TB, user memory.User) map[string]string {
	t.Helper()
	topics, _, err := h.store.Topics(t.Context(), user.ID, memory.TopicQuery{At: h.clock.Now()})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, topic := range memory.ByName(topics) {
		all[topic.Name] = topic.Content
	}
	return all
}

// revisionIn is the one in a topic's form.
func revisionIn(t testing.TB, page got) string {
	t.Helper()
	m := regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(page.body)
	if m == nil {
		t.Fatalf("there is no revision in %s", page.body)
	}
	return m[1]
}

// M4, U5: a topic is shown with history and provenance, changed only by who has seen
// it as it is, added and deleted, whatever its name; all of it is somebody's words.
func TestTopics(t *testing.T) {
	h := open(t)
	session := h.talk(t, h.anna)
	said, err := h.store.Messages(t.Context(), h.anna.ID, session.ID, memory.MessageQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	gone := memory.NewTopic{Name: "gone", Content: "From a conversation that is gone.", Sources: []memory.MessageID{said[0].ID}}
	old := h.remember(t, h.anna, memory.NewTopic{Name: "home", Content: "Lives in Bergen. " + markup, Sources: []memory.MessageID{said[0].ID}},
		memory.NewTopic{Name: "a/../b?c#d%2f" + `"<b>`, Content: "Odd."}, memory.NewTopic{Name: "style", Content: "Brief.", OfAgent: true}, gone)
	h.clock.Move(time.Minute)
	h.remember(t, h.anna, memory.NewTopic{Name: "home", Content: "Lives in Oslo.", Supersedes: []memory.TopicID{old[0].ID}})

	for _, who := range []struct {
		user  memory.User
		scope control.Scope
	}{{h.anna, control.ScopeAdmin}, {h.anna, control.UserScope(h.anna.ID)}} {
		b := h.as(t, who.user, who.scope)
		for path, page := range b.crawl("/users/" + h.anna.ID.String()) {
			checkPage(t, path, page)
		}
	}
	b, at := h.as(t, h.anna, control.UserScope(h.anna.ID)), "/users/"+h.anna.ID.String()
	b.get(at).says(t, at, "home", "Lives in Oslo.", "Odd.", "With jeeves alone", "Brief.")
	home := at + "/topic?name=home"
	page := b.get(home).want(t, home, http.StatusOK).says(t, home, "Lives in Oslo.", "Lives in Bergen.", "<script>alert(1)</script>", "Replaced", "question 0 about the garden")
	if !strings.Contains(page.body, sessionPath(session)+"/messages/"+said[0].ID.String()) {
		t.Error("nothing leads to the message that it was learned from")
	}

	edit := func(changes ...string) url.Values {
		f := url.Values{"name": {"home"}, "agent": {""}, "revision": {revisionIn(t, b.get(home))}, "content": {"Lives by the sea."}, "expires": {""}}
		for i := 0; i < len(changes); i += 2 {
			f.Set(changes[i], changes[i+1])
		}
		return f
	}
	stale := edit("content", "Lives nowhere.")
	to := b.post(at+"/topic", edit("expires", "2030-02-01T00:00")).want(t, "an edit", http.StatusSeeOther).location()
	b.get(to).says(t, to, "Saved.", "Lives by the sea.", "2030-02-01 00:00", "the user wrote it")
	b.post(at+"/topic", stale).want(t, "a stale edit", http.StatusUnprocessableEntity).says(t, "a stale edit", "Lives by the sea.", "Lives nowhere.", "changed meanwhile")
	for name, test := range map[string]struct {
		form   url.Values
		status int
	}{
		"empty":                   {edit("content", " "), 422},
		"past":                    {edit("expires", "2020-01-01T00:00"), 422},
		"no time":                 {edit("expires", markup), 422},
		"too long":                {edit("content", strings.Repeat("word ", 20_000)), 422},
		"no revision":             {edit("revision", "x"), 400},
		"a revision of nobody":    {edit("revision", "-5"), 422},
		"no such agent":           {edit("agent", "nobody"), 404},
		"a name that none has":    {edit("name", strings.Repeat("a", 500)), 400},
		"a topic that is not":     {edit("name", "nothing", "content", ""), 404},
		"a new one without words": {url.Values{"name": {"new"}, "content": {""}}, 422},
		"a new one without name":  {url.Values{"name": {" "}, "content": {"x"}}, 422},
		"a new one that is there": {url.Values{"name": {"HOME"}, "content": {"x"}}, 422},
	} {
		page := b.post(at+"/topic", test.form)
		if page.status != test.status {
			t.Errorf("%s: %d, want %d: %s", name, page.status, test.status, textOf(t, page.body))
		}
		checkText(t, name, page.body)
	}
	if got := h.held(t, h.anna)["home"]; got != "Lives by the sea." {
		t.Errorf("home: %q", got)
	}
	to = b.post(at+"/topic", url.Values{"name": {"New / one"}, "content": {"Is new."}}).want(t, "a new one", http.StatusSeeOther).location()
	b.get(to).want(t, to, http.StatusOK).says(t, to, "Saved.", "Is new.")
	b.post(at+"/topic/delete", url.Values{"name": {`a/../b?c#d%2f"<b>`}}).want(t, "delete", http.StatusSeeOther)
	b.post(at+"/topic/delete", url.Values{"name": {`a/../b?c#d%2f"<b>`}}).want(t, "delete twice", http.StatusNotFound)
	b.post(at+"/topic/delete", url.Values{"name": {"style"}, "agent": {"jeeves"}}).want(t, "delete of an agent", http.StatusSeeOther)
	held := h.held(t, h.anna)
	if _, there := held[`a/../b?c#d%2f"<b>`]; there || held["new / one"] != "Is new." {
		t.Errorf("held %v", held)
	}
	// What somebody wrote about a topic that another page deleted is not lost.
	late := edit("content", "Lives in the hills.")
	b.post(at+"/topic/delete", url.Values{"name": {"home"}}).want(t, "delete", http.StatusSeeOther)
	page = b.post(at+"/topic", late).want(t, "a change of what was deleted", http.StatusUnprocessableEntity)
	page.says(t, "a change of what was deleted", "The topic was deleted meanwhile.", "Lives in the hills.")
	page.status = http.StatusOK
	checkPage(t, "a change of what was deleted", page)
	if _, there := h.held(t, h.anna)["home"]; there {
		t.Error("a change brings back what was deleted")
	}
	if err := h.store.DeleteSession(t.Context(), h.anna.ID, session.ID); err != nil {
		t.Fatal(err)
	}
	b.get(at+"/topic?name=gone").want(t, "gone", http.StatusOK).says(t, "gone", "1 of the messages are not there any more")
}

// M4, U5: all that is remembered goes once the name was typed, and nothing before; the
// audit tells what was learned, of conversations that are gone too, in pages.
func TestMemoryAndAudit(t *testing.T) {
	h := open(t)
	agent, err := h.host.Agent("jeeves")
	if err != nil {
		t.Fatal(err)
	}
	const n = 55
	for i := range n {
		s, err := h.store.CreateSession(t.Context(), memory.Session{User: h.bert.ID, Agent: agent.ID, CreatedAt: h.clock.Now()})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := h.store.Append(t.Context(), h.bert.ID, s.ID, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: h.clock.Now(), Blocks: []memory.Block{memory.Text("I have a cat.")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.store.CommitExtraction(t.Context(), h.bert.ID, memory.NewExtraction{Session: s.ID, Seen: []memory.SeqRange{{First: 1, Last: 1}}, At: h.clock.Now(),
			Learnings: memory.Learnings{Facts: []memory.Learned{{Text: "Has a cat." + strconv.Itoa(i), Sources: []memory.MessageID{stored[0].ID}}}}}); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := h.store.DeleteSession(t.Context(), h.bert.ID, s.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.remember(t, h.bert, memory.NewTopic{Name: "cats", Content: "Has many."})
	b, at := h.as(t, h.bert, control.UserScope(h.bert.ID)), "/users/"+h.bert.ID.String()
	rows, deleted := 0, 0
	for path, page := range b.crawl(at + "/audit") {
		checkPage(t, path, page)
		if strings.Contains(path, "/audit") {
			if strings.Contains(page.body, "Has a cat") {
				t.Errorf("%s says what was learned", path)
			}
			rows += strings.Count(page.body, "not yet")
			deleted += strings.Count(page.body, `<span class="badge warn">deleted</span>`)
		}
	}
	if rows != n || deleted != (n+1)/2 {
		t.Errorf("%d rows of %d, of conversations that are gone %d of %d", rows, n, deleted, (n+1)/2)
	}
	b.get(at+"/audit?after=x").want(t, "a page that is none", http.StatusNotFound)
	for _, typed := range []string{"", "anna", "Bert", "bert bert"} {
		b.post(at+"/memory/delete", url.Values{"confirm": {typed}}).want(t, typed, http.StatusUnprocessableEntity).says(t, typed, "Nothing was deleted", "Has many.")
	}
	to := b.post(at+"/memory/delete", url.Values{"confirm": {" bert "}}).want(t, "confirmed", http.StatusSeeOther).location()
	b.get(to).says(t, to, "All that was remembered was deleted.", "Nothing is remembered of bert.")
	b.get(at+"/audit").says(t, "audit", "Nothing was learned.")
}

// U5, U6: a user goes with all that is theirs once the operator typed the name; no
// user can do that to another, and no page of another site.
func TestDeleteUser(t *testing.T) {
	h := open(t)
	session := h.talk(t, h.bert)
	h.remember(t, h.bert, memory.NewTopic{Name: "cats", Content: "Has many."})
	at := "/users/" + h.bert.ID.String()
	confirmed := url.Values{"confirm": {"bert"}}
	byUser, byAnna := h.as(t, h.bert, control.UserScope(h.bert.ID)), h.as(t, h.anna, control.UserScope(h.anna.ID))
	byUser.post(at+"/delete", confirmed).want(t, "by a user", http.StatusForbidden)
	byUser.get(at+"/data").want(t, "by a user", http.StatusForbidden)
	for _, path := range []string{"/memory/delete", "/topic", "/topic/delete"} {
		byAnna.post(at+path, url.Values{"confirm": {"bert"}, "name": {"cats"}, "content": {"x"}}).want(t, path, http.StatusNotFound)
	}
	b := h.as(t, h.anna, control.ScopeAdmin)
	for name, headers := range map[string][]string{
		"another site": {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, "no origin": {"Origin", "null"},
	} {
		b.post(at+"/delete", confirmed, headers...).want(t, name, http.StatusForbidden)
	}
	b.get(at+"/data").says(t, "data", "Export everything", "Type bert to confirm")
	b.post(at+"/delete", url.Values{"confirm": {"anna"}}).want(t, "another name", http.StatusUnprocessableEntity).says(t, "another name", "Nothing was deleted")
	if held := h.held(t, h.bert); held["cats"] == "" {
		t.Fatal("it went without the name")
	}
	to := b.post(at+"/delete", confirmed).want(t, "confirmed", http.StatusSeeOther).location()
	b.get(to).says(t, to, "Everything of the user was deleted.", "bert")
	b.get(sessionPath(session)).want(t, "a session of who is gone", http.StatusNotFound)
	if held := h.held(t, h.bert); len(held) != 0 {
		t.Errorf("held still: %v", held)
	}
}

// A memory of any size has pages that are not larger for it.
func TestManyTopics(t *testing.T) {
	h := open(t)
	var many []memory.NewTopic
	for i := range 120 {
		many = append(many, memory.NewTopic{Name: fmt.Sprintf("topic %03d", i), Content: strings.Repeat("long ", 100)})
		many = append(many, memory.NewTopic{Name: "crowded", Content: fmt.Sprintf("entry %03d", i)})
	}
	h.remember(t, h.anna, many...)
	b, at := h.as(t, h.anna, control.UserScope(h.anna.ID)), "/users/"+h.anna.ID.String()
	seen := map[string]bool{}
	for path, page := range b.crawl(at) {
		checkPage(t, path, page)
		for _, m := range regexp.MustCompile(`>(topic \d+|crowded)</a>`).FindAllStringSubmatch(page.body, -1) {
			seen[m[1]] = true
		}
		if !strings.Contains(path, "topic?") && len(page.body) > 60_000 {
			t.Errorf("%s: %d bytes", path, len(page.body))
		}
	}
	if len(seen) != 121 {
		t.Errorf("links lead to %d topics of 121", len(seen))
	}
	b.get(at+"/topic?name=crowded").says(t, "crowded", "70 entries before these.", "entry 119")
}

// Paging forward comes to an end, with every topic seen, however many there are; and a
// page reads what it shows.
func TestTopicsHaveALastPage(t *testing.T) {
	h := open(t)
	const all, few = 2_600, 100
	many := make([]memory.NewTopic, all)
	for i := range many {
		many[i] = memory.NewTopic{Name: fmt.Sprintf("topic %04d", i), Content: "x"}
	}
	allocated := func() float64 {
		const runs = 5
		secret, _ := h.token(t, h.anna, control.UserScope(h.anna.ID))
		return testing.AllocsPerRun(runs, func() {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/users/"+h.anna.ID.String(), nil)
			r.Header.Set("Authorization", "Bearer "+secret)
			if h.handler.ServeHTTP(w, r); w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
		})
	}
	h.remember(t, h.anna, many[:few]...)
	before := allocated()
	h.remember(t, h.anna, many[few:]...)
	if after := allocated(); after > 1.1*before {
		t.Errorf("the first page of %d topics takes %.0f allocations, that of %d took %.0f", all, after, few, before)
	}
	b, seen := h.as(t, h.anna, control.UserScope(h.anna.ID)), map[string]bool{}
	next := regexp.MustCompile(`href="([^"]+)"[^>]*>Next page<`)
	at, pages := "/users/"+h.anna.ID.String(), 0
	for ; at != "" && pages < all; pages++ {
		page := b.get(at).want(t, at, http.StatusOK)
		for _, m := range regexp.MustCompile(`>(topic \d+)</a>`).FindAllStringSubmatch(page.body, -1) {
			seen[m[1]] = true
		}
		at = ""
		if m := next.FindStringSubmatch(page.body); m != nil {
			at = m[1]
		}
	}
	if len(seen) != all || at != "" {
		t.Errorf("%d topics of %d on %d pages, then %q", len(seen), all, pages, at)
	}
}

// Many users have pages.
func TestUsers(t *testing.T) {
	h := open(t, func(c *host.Config) {
		c.Users = []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}}
		for i := range 130 {
			c.Users = append(c.Users, host.UserConfig{Name: fmt.Sprintf("user-%d", i)})
		}
	})
	b := h.as(t, h.anna, control.ScopeAdmin)
	b.get("/users").says(t, "/users", "anna default", "bert", "Next page")
	seen := map[string]bool{}
	for _, path := range []string{"/users", "/users?page=2", "/users?page=3"} {
		page := b.get(path)
		checkPage(t, path, page)
		for _, m := range regexp.MustCompile(`<th scope="row"[^>]*><a[^>]*>([^<]+)</a>`).FindAllStringSubmatch(page.body, -1) {
			seen[m[1]] = true
		}
	}
	if len(seen) != 132 {
		t.Errorf("%d users on three pages, want 132", len(seen))
	}
	checkPage(t, "a page after all", b.get("/users?page=999"))
}
