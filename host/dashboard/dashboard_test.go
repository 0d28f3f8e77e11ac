package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/dashboard"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/memory"
)

var monday = time.Date(2030, 1, 7, 9, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	registry.CompilerMain() // hands that are not bundled are compiled by this program
	controltest.Main(m)
}

// scripted answers what the test says, or fails.
type scripted struct {
	mu   sync.Mutex
	text string
	err  error
	next func()
}

func (m *scripted) Complete(context.Context, llm.Request) (llm.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if next := m.next; next != nil {
		m.next = nil
		next()
	}
	return llm.Response{Text: m.text, Model: "scripted"}, m.err
}

func (m *scripted) say(text string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text, m.err = text, err
}

// then has something happen while the next answer is made.
func (m *scripted) then(next func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = next
}

// house is a host and its server, as glovebox serve puts them together, for the users
// anna, who is the default one, and bert.
type house struct {
	url        string
	handler    http.Handler
	host       *host.Host
	store      memory.Store
	tokens     *control.Tokens
	clock      *controltest.Clock
	model      *scripted
	anna, bert memory.User
}

// open starts one; options change its configuration.
func open(t testing.TB, options ...func(*host.Config)) *house {
	t.Helper()
	clock, model := controltest.NewClock(monday, 0), &scripted{text: "Noted."}
	config := host.Config{Now: clock.Now, LLM: model, Agents: []host.AgentConfig{{Name: "jeeves"}, {Name: "plain"}}}
	for _, change := range options {
		change(&config)
	}
	started := controltest.Start(t, config)
	logins := control.NewLogins(started.Tokens, clock.Now)
	started.Serve(doorOf(started, logins))
	return &house{
		url: started.URL, handler: started.Handler, host: started.Host, store: started.Host.Store(), tokens: started.Tokens,
		clock: clock, model: model, anna: started.Anna, bert: started.Bert,
	}
}

// doorOf is the door with the dashboard behind it.
func doorOf(s *controltest.System, logins *control.Logins) control.Config {
	return control.Config{
		Logins: logins, Open: true, Hosts: []string{"127.0.0.1"},
		Mounts: dashboard.Mounts(dashboard.Config{Host: s.Host, HostConfig: s.Config, Logins: logins, Version: "1.2.3", Now: s.Config.Now}),
	}
}

// token makes one of a user.
func (h *house) token(t testing.TB, user memory.User, scope control.Scope) (secret string, token control.Token) {
	t.Helper()
	secret, token, err := h.tokens.Create(user.ID, scope, h.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	return secret, token
}

// visitor is a browser without scripts: it keeps cookies, and follows nothing by
// itself.
type visitor struct {
	t    testing.TB
	at   string
	http http.Client
}

func (h *house) visitor(t testing.TB) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t: t, at: h.url, http: http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// as is a browser that is logged in.
func (h *house) as(t testing.TB, user memory.User, scope control.Scope) *visitor {
	t.Helper()
	secret, _ := h.token(t, user, scope)
	b := h.visitor(t)
	if got := b.post("/login", url.Values{"token": {secret}}); got.status != http.StatusSeeOther {
		t.Fatalf("login: %d %s", got.status, got.body)
	}
	return b
}

// got is an answer.
type got struct {
	status int
	header http.Header
	body   string
}

func (g got) location() string { return g.header.Get("Location") }

// get asks for a page; headers are names and values in turns.
func (b *visitor) get(path string, headers ...string) got {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil, headers...)
}

// post sends a form, as a browser does from a page of the server.
func (b *visitor) post(path string, form url.Values, headers ...string) got {
	b.t.Helper()
	return b.do(http.MethodPost, path, form, append([]string{"Origin", b.at, "Sec-Fetch-Site", "same-origin"}, headers...)...)
}

func (b *visitor) do(method, path string, form url.Values, headers ...string) got {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.at+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return got{answer.StatusCode, answer.Header, string(text)}
}

// want fails the test unless an answer has that status.
func (g got) want(t testing.TB, what string, status int) got {
	t.Helper()
	if g.status != status {
		t.Fatalf("%s: status %d, want %d: %s", what, g.status, status, g.body)
	}
	return g
}

// says fails the test unless the page has all of the texts in what a reader sees.
func (g got) says(t testing.TB, what string, texts ...string) got {
	t.Helper()
	seen := textOf(t, g.body)
	for _, text := range texts {
		if !strings.Contains(seen, text) {
			t.Errorf("%s: the page does not say %q", what, text)
		}
	}
	return g
}

// textOf is what a page shows.
func textOf(t testing.TB, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && (n.Parent == nil || n.Parent.Data != "script") {
			b.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// markup is text that breaks out of whatever does not escape it.
const markup = `"'></pre></textarea></title><script>alert(1)</script><img src=x onerror=alert(2)><!-- {{.}} `

// content is external text of the calendar.
func content(t testing.TB, text string) boundary.Content {
	t.Helper()
	source, err := boundary.HandSource("calendar")
	if err != nil {
		t.Fatal(err)
	}
	c, _ := boundary.Wrap(source, text, boundary.Unlimited)
	return c
}

// talk makes a session of a user in which everything is markup that anybody can
// write: its title, messages of every kind, a refresh, a summary of the first of them,
// and what is recorded of it.
func (h *house) talk(t testing.TB, user memory.User) memory.Session {
	t.Helper()
	ctx := t.Context()
	agent, err := h.host.Agent("jeeves")
	if err != nil {
		t.Fatal(err)
	}
	session, err := h.store.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user.ID, Title: markup, CreatedAt: h.clock.Now()})
	if err != nil {
		t.Fatal(err)
	}
	draft := func(role memory.Role, source memory.Source, blocks ...memory.Block) memory.Draft {
		h.clock.Move(time.Second)
		return memory.Draft{Role: role, Source: source, Blocks: blocks, At: h.clock.Now()}
	}
	var drafts []memory.Draft
	for i := range 3 {
		drafts = append(drafts,
			draft(memory.RoleUser, memory.SourceUser, memory.Text(fmt.Sprintf("question %d about the garden %s", i, markup))),
			draft(memory.RoleAssistant, memory.SourceAssistant, memory.Text(fmt.Sprintf("answer %d %s", i, markup))))
	}
	drafts = append(drafts,
		draft(memory.RoleUser, memory.SourceUser, memory.Text("look it up")),
		draft(memory.RoleAssistant, memory.SourceAssistant, memory.Thinking("other", "thought "+markup, nil), memory.ToolCall("c1", markup, []byte(`{"a":"<script>alert(3)</script>"}`))),
		draft(memory.RoleTool, memory.SourceTool, memory.ToolResult("c1", markup, content(t, "result "+markup), true)),
		draft(memory.RoleAssistant, memory.SourceAssistant, memory.Text("long "+strings.Repeat("word ", 1000)+"end of it")),
	)
	stored, err := h.store.Append(ctx, user.ID, session.ID, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Move(time.Second)
	if _, err := h.store.Inject(ctx, user.ID, session.ID, memory.Injection{At: h.clock.Now(), Blocks: []boundary.Content{content(t, "appointment "+markup)}}); err != nil {
		t.Fatal(err)
	}
	frontier, err := h.store.Frontier(ctx, user.ID, session.ID)
	if err != nil {
		t.Fatal(err)
	}
	summary := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), At: h.clock.Now(), SummaryText: memory.SummaryText{
		Text: "they spoke of the garden " + markup, External: content(t, "summed up "+markup), Level: memory.LevelFallback, Model: markup,
	}}
	for _, m := range stored[:4] {
		summary.Messages = append(summary.Messages, m.ID)
	}
	if _, err := h.store.CommitSummary(ctx, user.ID, frontier.Revision, summary); err != nil {
		t.Fatal(err)
	}
	if err := h.store.RecordCompaction(ctx, user.ID, memory.CompactionRun{
		Session: session.ID, Agent: session.Agent, Trigger: memory.TriggerGap, Outcome: memory.OutcomeFailed, Reason: markup, StartedAt: h.clock.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	ledger := h.host.Ledger()
	if err := ledger.RecordRun(ctx, capability.Run{Hand: "calendar", Subject: ledger.Subject("calendar", user.ID.String()), Outcome: abi.KindTimeout, Text: markup}); err != nil {
		t.Fatal(err)
	}
	// Rows are written in their order, and this one is waited for.
	if _, err := ledger.ForgetSubject(ctx, "mail", "nobody"); err != nil {
		t.Fatal(err)
	}
	if session, err = h.store.Session(ctx, user.ID, session.ID); err != nil {
		t.Fatal(err)
	}
	return session
}

func sessionPath(s memory.Session) string {
	return "/users/" + s.User.String() + "/sessions/" + s.ID.String()
}
