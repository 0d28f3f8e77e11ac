package dashboard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// screenshots is where pictures of pages are written, for docs/images.
var screenshots = flag.String("screenshots", "", "folder to write pictures of pages to")

// hostile is what a hand says, for it stands in testdata/calendars: were it taken for
// markup, the title would change.
const hostile = `<script>document.title="taken"</script><img src=x onerror="document.title='taken'"><b id=bold>Review</b> moved`

// TestBrowser is everything that is done in a real browser: one of them, and one
// host, for all.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser is not for short runs")
	}
	f := furnish(t)
	f.start(t)
	// What deletes comes last; each leaves what the next needs.
	t.Run("Watch", f.watch)
	t.Run("Login", f.login)
	t.Run("HandTextIsText", f.handText)
	t.Run("ChatStreams", f.chatStreams)
	t.Run("Keyboard", f.keyboard)
	t.Run("Sessions", f.sessions)
	t.Run("MemorySystem", f.memorySystem)
	t.Run("Topics", f.topics)
	t.Run("Exports", f.exports)
	t.Run("Scope", f.scope)
	t.Run("WithoutScript", f.withoutScript)
	t.Run("EveryPage", f.everyPage)
	t.Run("Delete", f.delete)
	t.Run("Everything", f.everything)
}

// furnished is a host that has something of everything, its server, and a browser.
type furnished struct {
	url    string
	host   *host.Host
	logins *control.Logins
	anna   memory.User
	bert   memory.User
	admin  string // secrets
	byBert string

	talk    memory.SessionID // with a summary, a refresh and a compaction
	said    memory.MessageID
	summary memory.SummaryID

	// go on lets the model finish an answer that it gives slowly.
	goOn chan struct{}

	// patterns are those of the dashboard.
	patterns *http.ServeMux
	all      []string
	mu       sync.Mutex
	asked    map[string]bool // guarded by mu: the patterns that were asked for

	browser context.Context
}

// furnish starts a host with a scripted model, the bundled calendar with a hostile
// event, and for anna a conversation, memory and a record.
func furnish(t *testing.T) *furnished {
	f := &furnished{asked: map[string]bool{}, goOn: make(chan struct{}), patterns: http.NewServeMux()}
	model := httptest.NewServer(openaitest.NewScript(t).Otherwise(f.answer))
	t.Cleanup(model.Close)
	t.Setenv("DASHBOARD_TEST_KEY", openaitest.Key)
	config := host.Config{
		Now: func() time.Time { return monday }, Sessions: host.SessionsConfig{Timezone: "UTC"},
		Model: host.ModelConfig{Provider: "openai", Name: "scripted", APIKey: "env:DASHBOARD_TEST_KEY", BaseURL: model.URL + "/v1"},
		Users: []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}, {Name: "carla"}},
		Agents: []host.AgentConfig{
			{Name: "assistant", SystemPrompt: "You are a calm assistant."},
			{Name: "jeeves", SystemPrompt: "You are Jeeves.", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}},
		},
		Hands: map[string]host.HandConfig{"calendar": {
			Users: []string{"anna"}, Prompts: map[string]string{"today": "What is on today?"},
			Grant: host.GrantConfig{Files: map[string]string{"calendars": filepath.Join("testdata", "calendars")}},
		}},
	}
	started := controltest.Start(t, config)
	f.host, f.anna, f.bert = started.Host, started.Anna, started.Bert
	f.admin, f.byBert = started.Admin(f.anna), started.Own(f.bert)
	f.logins = control.NewLogins(started.Tokens, config.Now)
	door := doorOf(started, f.logins)
	for i, m := range door.Mounts {
		for _, p := range m.Patterns {
			f.patterns.Handle(p, http.NotFoundHandler())
			f.all = append(f.all, p)
		}
		door.Mounts[i].Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, pattern := f.patterns.Handler(r)
			f.mu.Lock()
			f.asked[pattern] = true
			f.mu.Unlock()
			m.Handler.ServeHTTP(w, r)
		})
	}
	started.Serve(door)
	f.url = started.URL
	f.fill(t)
	return f
}

// answer is what the model says: to who asks for a slow answer half of it at once, and
// the rest when told to go on.
func (f *furnished) answer(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
	last := sent.Messages[len(sent.Messages)-1].Content
	switch {
	case strings.Contains(last, "fails") && !strings.Contains(last, "does not"):
		openaitest.Fault(http.StatusBadRequest, "invalid_value", "messages", "no")(w, r, sent)
	case strings.Contains(last, "slowly"):
		openaitest.Stream(openaitest.Piece("One moment, "), openaitest.Pause(func(ctx context.Context) {
			select {
			case <-f.goOn:
			case <-ctx.Done():
			}
		}), openaitest.Piece("here it is. "+hostile), openaitest.Finish("stop"), openaitest.Usage(nil), openaitest.Done())(w, r, sent)
	case sent.Stream:
		openaitest.Stream(openaitest.Piece("Gladly, "), openaitest.Piece("noted."), openaitest.Finish("stop"), openaitest.Usage(nil), openaitest.Done())(w, r, sent)
	default:
		openaitest.Text("Gladly, noted.")(w, r, sent)
	}
}

// fill has things said, learned, compacted, asked and refused.
func (f *furnished) fill(t *testing.T) {
	ctx, store := t.Context(), f.host.Store()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range []string{"I live in Oslo with two cats.", "What is on today?", "And on Tuesday?"} {
		answer, err := f.host.Send(ctx, host.Message{User: f.anna.ID, Agent: "assistant", Session: f.talk, Text: text})
		must(err)
		if f.talk = answer.Session; i == 0 {
			messages, err := store.Messages(ctx, f.anna.ID, f.talk, memory.MessageQuery{Limit: 1})
			must(err)
			f.said = messages[0].ID
		}
	}
	asked, err := f.host.Query(ctx, host.HandQuery{Hand: "calendar", User: f.anna.ID, Prompt: "What is on today?", From: monday.Add(-time.Hour), To: monday.Add(24 * time.Hour)})
	must(err)
	if !strings.Contains(asked.Reply.Render(), hostile) {
		t.Fatalf("the hand says %q", asked.Reply.Render())
	}
	_, err = store.Inject(ctx, f.anna.ID, f.talk, memory.Injection{At: monday, Blocks: []boundary.Content{asked.Reply}})
	must(err)
	frontier, err := store.Frontier(ctx, f.anna.ID, f.talk)
	must(err)
	var covered []memory.MessageID
	for _, item := range frontier.Items[:4] {
		covered = append(covered, item.Message.ID)
	}
	summary, err := store.CommitSummary(ctx, f.anna.ID, frontier.Revision, memory.NewSummary{
		ID: memory.NewID[memory.SummaryID](), At: monday, Messages: covered,
		SummaryText: memory.SummaryText{Text: "The user lives in Oslo and asked for the day.", External: asked.Reply, Level: memory.LevelNormal, Model: "scripted"},
	})
	must(err)
	f.summary = summary.ID
	session, err := store.Session(ctx, f.anna.ID, f.talk)
	must(err)
	must(store.RecordCompaction(ctx, f.anna.ID, memory.CompactionRun{Session: f.talk, Agent: session.Agent, Trigger: memory.TriggerManual, Outcome: memory.OutcomeDone,
		ItemsBefore: 7, ItemsAfter: 4, TokensBefore: 180, TokensAfter: 120, Summaries: 1, RefreshBlocks: 1, RefreshTokens: 40, StartedAt: monday, Took: 1200 * time.Millisecond}))

	jeeves, err := f.host.Agent("jeeves")
	must(err)
	_, revision, err := store.Topics(ctx, f.anna.ID, memory.TopicQuery{})
	must(err)
	old, err := store.CommitDream(ctx, f.anna.ID, revision, memory.Dream{Agent: jeeves.ID, At: monday.Add(-time.Hour), Topics: []memory.NewTopic{
		{Name: "home", Content: "Lives in Bergen.", Sources: []memory.MessageID{f.said}},
		{Name: "a/b ?#%", Content: "Has a topic with an odd name. " + hostile},
		{Name: "trip", Content: "Is in Rome until Friday.", ExpiresAt: monday.Add(96 * time.Hour)},
		{Name: "style", Content: "Wants Jeeves to be brief.", OfAgent: true},
	}})
	must(err)
	_, revision, err = store.Topics(ctx, f.anna.ID, memory.TopicQuery{})
	must(err)
	_, err = store.CommitDream(ctx, f.anna.ID, revision, memory.Dream{Agent: jeeves.ID, At: monday, Topics: []memory.NewTopic{
		{Name: "home", Content: "Lives in Oslo.", Sources: []memory.MessageID{f.said}, Supersedes: []memory.TopicID{old[0].ID}},
	}})
	must(err)
	// One conversation was learned from and is gone, the other is there.
	for _, gone := range []bool{true, false} {
		s, err := store.CreateSession(ctx, memory.Session{User: f.anna.ID, Agent: jeeves.ID, CreatedAt: monday})
		must(err)
		stored, err := store.Append(ctx, f.anna.ID, s.ID, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: monday, Blocks: []memory.Block{memory.Text("I have a cat.")}})
		must(err)
		_, err = store.CommitExtraction(ctx, f.anna.ID, memory.NewExtraction{Session: s.ID, Seen: []memory.SeqRange{{First: 1, Last: 1}}, At: monday,
			Learnings: memory.Learnings{Facts: []memory.Learned{{Text: "Has a cat.", Sources: []memory.MessageID{stored[0].ID}}}}})
		must(err)
		if gone {
			must(store.DeleteSession(ctx, f.anna.ID, s.ID))
		}
	}
	ledger := f.host.Ledger()
	caller := capability.Caller{Hand: "calendar", Subject: ledger.Subject("calendar", f.anna.ID.String())}
	if _, err := capability.NewFiles(ledger, caller, nil).List(ctx, abi.FilesListRequest{Root: "<b>home</b>"}); err == nil {
		t.Fatal("files without a grant")
	}
	for range 30 { // more than a page
		must(ledger.RecordRun(ctx, capability.Run{Hand: "calendar", Subject: caller.Subject, Outcome: abi.KindTimeout, Text: "calendar: it took longer than 5s", Took: 5 * time.Second}))
	}
}

// start opens the browser.
func (f *furnished) start(t *testing.T) {
	binary := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			binary = found
			break
		}
	}
	if binary == "" {
		t.Skip("there is no chromium: pages are not looked at in a browser")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(binary), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-extensions", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("metrics-recording-only", true), chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(30 * time.Second), chromedp.WindowSize(wide, tall),
	}
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to run with one
	}
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", binary, err)
	}
	f.browser = ctx
}

// The sizes of windows.
const (
	wide, tall = 1200, 800
	narrow     = 360
)

// tab is one page of the browser, with cookies of its own. What goes wrong in it
// fails the test: a request to elsewhere, an error of a script or of the console, a
// breach of the policy.
type tab struct {
	t    *testing.T
	f    *furnished
	ctx  context.Context
	user memory.UserID

	mu         sync.Mutex
	expected   []string // guarded by mu: parts of what the console may say
	complaints []string // guarded by mu
}

// tabTimeout is more than any step takes.
const tabTimeout = 30 * time.Second

// tab opens one; secret logs in.
func (f *furnished) tab(t *testing.T, secret string) *tab {
	t.Helper()
	b := &tab{t: t, f: f, user: f.anna.ID}
	ctx, stop := chromedp.NewContext(f.browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.heard))
	t.Cleanup(func() {
		stop()
		for _, complaint := range b.complained() {
			t.Error(complaint)
		}
	})
	b.ctx = ctx
	// The first step makes the tab, which ends with its context.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	b.do(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}), b.look(wide, "light"))
	if secret != "" {
		cookie, err := f.logins.Login(secret, false)
		if err != nil {
			t.Fatal(err)
		}
		yes := true
		b.do(call(network.SetCookie, network.SetCookieParams{Name: cookie.Name, Value: cookie.Value, URL: f.url, HTTPOnly: &yes, SameSite: network.CookieSameSiteStrict}))
	}
	return b
}

// heard is told of everything that happens in the tab.
func (b *tab) heard(event any) {
	complain := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(text, part) }) {
			b.complaints = append(b.complaints, text)
		}
	}
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		at := e.Request.URL
		if !strings.HasPrefix(at, b.f.url+"/") && !strings.HasPrefix(at, "data:") && at != "about:blank" {
			complain("a request leaves the origin: %s", at)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			complain("the browser says of %s: %s", e.Entry.URL, e.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var said []string
			for _, arg := range e.Args {
				said = append(said, string(arg.Value)+arg.Description)
			}
			complain("the console says: %s", strings.Join(said, " "))
		}
	case *runtime.EventExceptionThrown:
		complain("a script fails: %s", e.ExceptionDetails.Text)
	case *page.EventJavascriptDialogOpening:
		complain("a dialog opens: %s", e.Message)
	}
}

// complained returns what went wrong so far, once.
func (b *tab) complained() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complaints
	b.complaints = nil
	return all
}

// expect lets the console say something.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

// action is a step without a value, css the selector of an element.
type (
	action = chromedp.Action[chromedp.Void]
	css    = chromedp.CSS
)

// call is a command of the protocol as a step.
func call[P, R any](command cdp.Command[P, R], parameters P) action {
	return func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, target, command, parameters)
		return none, err
	}
}

func (b *tab) do(actions ...action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, tabTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.seen())
	}
}

// seen is what stands in the page, for a test that fails.
func (b *tab) seen() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// look sets the width of the window and the theme of the system.
func (b *tab) look(width int64, theme string) action {
	return chromedp.Steps(
		call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: tall, DeviceScaleFactor: 1}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}),
	)
}

// goes runs actions that load a page, and returns the status of that page.
func (b *tab) goes(actions ...action) int {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, tabTimeout)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, actions...)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.seen())
	}
	return int(response.Status)
}

// open goes to a path of the server and fails unless there is a page.
func (b *tab) open(path string) {
	b.t.Helper()
	if status := b.goes(chromedp.Navigate(b.f.url + path)); status != http.StatusOK {
		b.t.Fatalf("%s: %d\n%s", path, status, b.seen())
	}
}

// press clicks on what has that selector, which loads a page.
func (b *tab) press(selector css) int {
	b.t.Helper()
	return b.goes(chromedp.Click(selector))
}

// fill puts text into a field, in place of what was in it.
func fill(selector css, text string) action {
	return chromedp.Steps(set(selector, ""), chromedp.SendKeys(selector, text))
}

// set puts a value into a field that is not typed into: a choice or a time.
func set(selector css, value string) action {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).value = %q", selector, value))
}

// eval returns what a script says.
func eval[T any](b *tab, script string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, tabTimeout)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, options...))
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.seen())
	}
	return out
}

// text is what can be read of the main part.
func (b *tab) text() string { return eval[string](b, `document.querySelector("main").innerText`) }

// says fails unless all of the parts can be read.
func (b *tab) says(parts ...string) {
	b.t.Helper()
	text := b.text()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			b.t.Errorf("%q cannot be read in\n%s", part, text)
		}
	}
}

// path is where the tab is.
func (b *tab) path() string { return eval[string](b, `location.pathname`) }

func (b *tab) at(elements ...string) string {
	path := "/users/" + b.user.String()
	for _, e := range elements {
		path += "/" + e
	}
	return path
}

// untouched fails if hostile text was anything but text.
func (b *tab) untouched() {
	b.t.Helper()
	if title := eval[string](b, `document.title`); !strings.HasSuffix(title, "· Glovebox") {
		b.t.Errorf("a script ran: the title is %q", title)
	}
	if n := eval[int](b, `document.querySelectorAll("main script, main img, #bold").length`); n != 0 {
		b.t.Errorf("%d elements were made of a hand's text", n)
	}
}

// until waits for a script to be true.
func until(script string) action {
	return chromedp.Poll[chromedp.Void](script, chromedp.WithPollingInterval(20*time.Millisecond))
}

// The tests below would be worth little if nothing were noticed: what the policy
// keeps out is, and so is an error.
func (f *furnished) watch(t *testing.T) {
	b := f.tab(t, "")
	for name, script := range map[string]string{
		"a picture from elsewhere": `new Promise((done) => { const i = new Image(); i.onerror = () => done(0); i.src = "http://192.0.2.1/x.png" })`,
		"a request to elsewhere":   `fetch("http://192.0.2.1/").catch(() => 0)`,
		"an inline script":         `(() => { const s = document.createElement("script"); s.textContent = "document.title = 'ran'"; document.body.append(s); return 0 })()`,
		"an inline style":          `(() => { document.body.setAttribute("style", "color: red"); return 0 })()`,
		"a word to the console":    `(() => { console.error("oh"); return 0 })()`,
		"a script that fails":      `new Promise((done) => { setTimeout(() => { done(0); throw new Error("oh") }) })`,
	} {
		b.open("/login")
		b.complained()
		eval[int](b, script, chromedp.EvalAwaitPromise)
		b.do(until("true")) // what was said before has been heard then
		if len(b.complained()) == 0 {
			t.Errorf("%s: nothing was noticed", name)
		}
		if title := eval[string](b, "document.title"); title == "ran" {
			t.Errorf("%s ran", name)
		}
	}
}

// U5, U6: without a login there is the form, and a wrong token stays there; the right
// one opens the page that was asked for, with a cookie that no script reads; the end of
// a login is one.
func (f *furnished) login(t *testing.T) {
	b := f.tab(t, "")
	b.expect("401")
	b.open("/hands")
	if b.path() != "/login" {
		t.Fatalf("without a login at %s", b.path())
	}
	if status := b.goes(fill("#token", "glovebox_wrong"), chromedp.Submit(css("#token"))); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", status)
	}
	b.says("not known")
	if status := b.goes(fill("#token", f.admin), chromedp.Submit(css("#token"))); status != http.StatusOK || b.path() != "/hands" {
		t.Fatalf("logged in: %d at %s", status, b.path())
	}
	if cookies := eval[string](b, `document.cookie`); cookies != "" {
		t.Errorf("a script reads %q", cookies)
	}
	if b.press(`form[action="/logout"] button`); b.path() != "/login" {
		t.Errorf("logged out at %s", b.path())
	}
	b.says("You are logged out.")
	if b.open("/users"); b.path() != "/login" {
		t.Errorf("after the end of the login at %s", b.path())
	}
}

// U5, B8: a hand is tried; its text, which is markup and a script, is text, on every
// page that shows it. Its permissions stand with their reasons, and its record has
// pages.
func (f *furnished) handText(t *testing.T) {
	b := f.tab(t, f.admin)
	b.open("/hands")
	b.says("calendar", "bundled", "files", "Bundled, not configured", "mail", "not granted", "hands.mail.grant.")
	b.press(`a[href="/hands/calendar"]`)
	b.says("Reads the .ics files", "granted", "hands.calendar.grant.files", "sha256:", "What is on today?", "timeout", "<b>home</b>")
	b.press(`a[href*="runs="]`)
	b.says("Newest runs", "answered")
	b.do(set(css("#ask-from"), "2030-01-07T00:00"), set(css("#ask-to"), "2030-01-08T00:00"),
		chromedp.Click(css("#ask button")), chromedp.WaitVisible(css("#answer")))
	b.says("<<<EXTCONTENT_", hostile, "hand://calendar")
	b.untouched()
	// Its row is there at once.
	if got := eval[string](b, `document.querySelector("#runs-list tbody tr").innerText`); !strings.Contains(got, "answered") {
		t.Errorf("the last run is %q", got)
	}
	if *screenshots != "" {
		b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("try").scrollIntoView()`))
		b.shoot("hand-answer")
	}
	// A question of one's own, and one that cannot be.
	b.do(set(css("#ask-prompt"), ""), chromedp.Click(css("#ask button")), chromedp.WaitVisible(css("#ask-wrong")))
	b.says("Say what the hand is to be asked.")
	b.do(fill("#ask-question", "All of it?"), chromedp.Click(css("#ask button")), chromedp.WaitVisible(css("#answer")))
	b.says("Review")
	for _, path := range []string{
		b.at("sessions", f.talk.String()), b.at("sessions", f.talk.String(), "messages"), b.at("sessions", f.talk.String(), "context"), b.at("chat", f.talk.String()), b.at(),
	} {
		b.open(path)
		b.untouched()
	}
}

// U5: an answer is shown as it comes, before it is whole; then what was stored takes
// its place, in a conversation that has an address.
func (f *furnished) chatStreams(t *testing.T) {
	b := f.tab(t, f.admin)
	b.open(b.at("chat"))
	b.do(chromedp.SendKeys(css("#text"), "Please answer slowly."), chromedp.Click(css("#send")),
		until(`document.getElementById("saying").textContent === "One moment, "`))
	if eval[bool](b, `document.getElementById("live").hidden`) {
		t.Error("the answer that comes is hidden")
	}
	f.goOn <- struct{}{}
	b.do(until(`document.getElementById("live").hidden && document.querySelectorAll("#talk .line").length === 2`))
	b.says("Please answer slowly.", "One moment, here it is. "+hostile)
	b.untouched()
	if !strings.HasPrefix(b.path(), b.at("chat")+"/") {
		t.Errorf("the conversation is at %s", b.path())
	}
	if focus := eval[string](b, `document.activeElement.id`); focus != "text" {
		t.Errorf("the focus is on %q", focus)
	}
	// It goes on in the same conversation, and is there when the page is loaded again.
	b.do(chromedp.SendKeys(css("#text"), "And again."), chromedp.Click(css("#send")),
		until(`document.getElementById("live").hidden && document.querySelectorAll("#talk .line").length === 4`))
	b.open(b.path())
	b.says("Please answer slowly.", "And again.", "Gladly, noted.")
	// What is stopped has no answer, and says so.
	b.do(chromedp.SendKeys(css("#text"), "Once more slowly."), chromedp.Click(css("#send")),
		until(`document.getElementById("saying").textContent === "One moment, "`), chromedp.Click(css("#cancel")),
		chromedp.WaitVisible(css("#chat-wrong")))
	b.says("Stopped")
	// A first message that has no answer is kept, and what follows is in its conversation.
	b.open(b.at("chat"))
	b.do(chromedp.SendKeys(css("#text"), "This fails."), chromedp.Click(css("#send")), chromedp.WaitVisible(css("#chat-wrong")),
		until(`document.querySelectorAll("#talk .line").length === 1 && document.getElementById("text").value === ""`))
	first := b.path()
	if !strings.HasPrefix(first, b.at("chat")+"/") {
		t.Errorf("the message is at %s", first)
	}
	b.do(chromedp.SendKeys(css("#text"), "This does not."), chromedp.Click(css("#send")),
		until(`document.getElementById("live").hidden && document.querySelectorAll("#talk .line").length === 3`))
	b.says("This fails.", "This does not.", "Gladly, noted.")
	if b.path() != first {
		t.Errorf("it goes on at %s, not at %s", b.path(), first)
	}
	// Where nobody learns that it was stored, the words stay, and sent again they are
	// stored once.
	b.do(chromedp.Evaluate[chromedp.Void](`(() => {
			const real = window.fetch;
			let lost = 2;
			window.fetch = async (...request) => {
				const answer = await real(...request);
				if (lost-- <= 0) return answer;
				await answer.text();
				throw new TypeError("lost");
			};
		})()`),
		chromedp.SendKeys(css("#text"), "Say it once."), chromedp.Click(css("#send")), until(`document.getElementById("chat-wrong").innerText.includes("cannot be reached")`),
		until(`document.getElementById("text").value === "Say it once."`), chromedp.Click(css("#send")),
		until(`document.getElementById("live").hidden && document.querySelectorAll("#talk .line").length > 3`))
	b.open(b.path())
	if n := eval[int](b, `document.querySelectorAll("#talk .line").length`); n != 5 {
		t.Errorf("the conversation has %d lines, with a message that was sent twice", n)
	}
	// What was not taken is not lost: here the session is gone since the page was made.
	b.expect("404")
	b.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("say").dataset.session = "`+memory.NewID[memory.SessionID]().String()+`"`),
		chromedp.SendKeys(css("#text"), "Words of mine."), chromedp.Click(css("#send")), until(`document.getElementById("chat-wrong").innerText.includes("no such session")`),
		until(`document.getElementById("text").value === "Words of mine."`))
	// Nor where the login ended meanwhile: the way back in is beside the page.
	b.expect("401")
	b.do(chromedp.Evaluate[chromedp.Void](`fetch("/logout", {method: "POST"}).then((answer) => { document.body.dataset.out = answer.status; }); undefined`),
		until(`"out" in document.body.dataset`),
		chromedp.Click(css("#send")), until(`document.getElementById("chat-wrong").innerText.includes("logged out")`),
		until(`document.getElementById("text").value === "Words of mine."`))
	if to := eval[string](b, `document.querySelector("#chat-wrong a").pathname + document.querySelector("#chat-wrong a").target`); to != "/login_blank" {
		t.Errorf("the way back in is %s", to)
	}
}

// tabTo moves the focus with the key alone until it is on what matches the selector.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	const most = 80
	for range most {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b, `document.activeElement.matches(`+strconv.Quote(selector)+`)`) {
			if !eval[bool](b, `(() => { const r = document.activeElement.getBoundingClientRect(); return r.width > 0 && r.height > 0 })()`) {
				b.t.Errorf("%s has the focus and cannot be seen", selector)
			}
			return
		}
	}
	b.t.Fatalf("%d times Tab do not reach %s", most, selector)
}

// U5: the keyboard alone is enough to talk and to delete.
func (f *furnished) keyboard(t *testing.T) {
	b := f.tab(t, f.admin)
	b.open(b.at("chat"))
	b.tabTo(".skip")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.tabTo("#text")
	b.do(chromedp.KeyEvent("By keyboard."))
	b.tabTo("#send")
	b.do(chromedp.KeyEvent(kb.Enter), until(`document.getElementById("live").hidden && document.querySelectorAll("#talk .line").length === 2`))
	b.says("By keyboard.", "Gladly, noted.")
	// From the message that was last, on to the next.
	b.do(chromedp.KeyEvent("Again."), chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(chromedp.ModifierCtrl)), until(`document.querySelectorAll("#talk .line").length === 4`))

	b.user = f.bert.ID
	b.put(t, f.bert, "pets", "Has a dog.")
	b.open(b.at())
	b.says("pets")
	b.tabTo("details.danger > summary")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.tabTo("#all-confirm")
	b.expect("422")
	b.do(chromedp.KeyEvent("anna"))
	b.tabTo("details.danger button")
	if status := b.goes(chromedp.KeyEvent(kb.Enter)); status != http.StatusUnprocessableEntity {
		t.Errorf("somebody else's name confirms: %d", status)
	}
	b.says("Nothing was deleted", "pets")
	b.tabTo("#all-confirm")
	b.do(chromedp.KeyEvent("bert"))
	b.tabTo("details.danger button")
	b.goes(chromedp.KeyEvent(kb.Enter))
	b.says("All that was remembered was deleted.", "Nothing is remembered of bert.")
}

// put has something remembered.
func (b *tab) put(t *testing.T, user memory.User, name, content string) {
	t.Helper()
	_, revision, err := b.f.host.Store().Topics(t.Context(), user.ID, memory.TopicQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.f.host.Store().PutTopic(t.Context(), user.ID, memory.AgentID{}, revision, memory.NewTopic{Name: name, Content: content}, monday); err != nil {
		t.Fatal(err)
	}
}

// U5, C5: a session is drawn as the model sees it; a summary opens into its sources,
// down to the messages; the timeline, the report and a search are there; compaction
// can be asked for.
func (f *furnished) sessions(t *testing.T) {
	b := f.tab(t, f.admin)
	b.open(b.at("sessions"))
	b.press(css(`main a[href="` + b.at("sessions", f.talk.String()) + `"]`))
	b.says("The user lives in Oslo", "And on Tuesday?")
	b.do(chromedp.Click(css(".item.summary .opens > summary")), until(`document.querySelector("main").innerText.includes("I live in Oslo with two cats.")`))
	b.untouched()
	// A part that does not come says why, to whoever sees and to whoever hears.
	b.open(b.at("sessions", f.talk.String()))
	b.expect("404")
	b.do(chromedp.Evaluate[chromedp.Void](`
			const opens = [...document.querySelectorAll(".item.summary .opens")].at(-1), other = opens.cloneNode(true);
			other.setAttribute("hx-get", "`+b.at("sessions", f.talk.String(), "summaries", "gone")+`");
			opens.replaceWith(other);
			htmx.process(other)`),
		chromedp.Click(css(".item.summary .opens > summary")), chromedp.WaitVisible(css(".opened > .trouble[role=alert]")))
	b.says("That did not work: There is no such summary.")
	b.open(b.at("sessions", f.talk.String(), "timeline"))
	b.says("manual")
	b.open(b.at("sessions", f.talk.String(), "context"))
	b.says("fits the budget", "hand://calendar")
	b.open(b.at("sessions", f.talk.String(), "messages", f.said.String()))
	b.says("I live in Oslo with two cats.")
	b.open(b.at("sessions"))
	b.goes(fill("#q", "cats"), chromedp.Submit(css("#q")))
	b.says("two cats")
	b.open(b.at("sessions", f.talk.String()))
	b.press(`form[action$="/compact"] button`)
	b.says("nothing to do")
}

// U5: the memory system is chosen, and chosen still when the page and the host's own
// record are read again.
func (f *furnished) memorySystem(t *testing.T) {
	b := f.tab(t, f.admin)
	b.open("/agents")
	b.press(`a[href="/agents/assistant"]`)
	chosen := func() string {
		return eval[string](b, `document.querySelector("input[name=memory_system]:checked").value`)
	}
	inForce := func() string {
		for _, a := range f.host.Agents() {
			if a.Name == "assistant" {
				return a.MemorySystem
			}
		}
		return ""
	}
	if chosen() != host.MemorySummarization {
		t.Errorf("at first %s", chosen())
	}
	b.do(chromedp.Click(css("#structured")))
	b.press("form.card button")
	b.says("Saved.")
	b.open("/agents/assistant")
	if chosen() != host.MemoryStructured || inForce() != host.MemoryStructured {
		t.Errorf("after a reload %s, in force %s", chosen(), inForce())
	}
	b.says("The configuration says summarization.")
	b.press("form:not(.card) main button, main form:not(.card) button")
	if chosen() != host.MemorySummarization || inForce() != host.MemorySummarization {
		t.Errorf("left to the configuration: %s, in force %s", chosen(), inForce())
	}
}

// U5, M4: what is remembered is listed, shown with history and provenance, changed,
// added and deleted; the audit says what was learned, from conversations that are
// gone too.
func (f *furnished) topics(t *testing.T) {
	b := f.tab(t, f.admin)
	b.expect("422")
	b.open("/users")
	b.says("anna", "default", "bert", "carla")
	b.press(css(`tbody th a[href="` + b.at() + `"]`))
	b.says("default", "home", "Lives in Oslo.", "With jeeves alone", "style", hostile)
	b.untouched()
	b.press(`a[href*="name=home"]`)
	b.says("Lives in Oslo.", "Lives in Bergen.", "Replaced", "I live in Oslo with two cats.")
	if link := eval[string](b, `document.querySelector("article a").pathname`); link != b.at("sessions", f.talk.String(), "messages", f.said.String()) {
		t.Errorf("the source is at %s", link)
	}
	b.goes(fill("#content", "Lives in Oslo, near the harbour."), chromedp.Click(css(`form[action$="/topic"] button`)))
	b.says("Saved.", "Lives in Oslo, near the harbour.", "the user wrote it")
	// Who did not see a change does not undo it.
	b.put(t, f.anna, "other", "Changed meanwhile.")
	if status := b.goes(fill("#content", "Lives elsewhere."), chromedp.Click(css(`form[action$="/topic"] button`))); status != http.StatusUnprocessableEntity {
		t.Errorf("a change over another: %d", status)
	}
	b.says("changed meanwhile", "Lives in Oslo, near the harbour.")
	if got := eval[string](b, `document.getElementById("content").value`); got != "Lives elsewhere." {
		t.Errorf("the words that were typed are %q", got)
	}
	// A name may be anything.
	b.open(b.at())
	b.press(`a[href*="name=a%2Fb"]`)
	b.says("odd name")
	b.untouched()
	b.do(chromedp.Click(css("details.danger > summary")))
	b.press(`form[action$="/topic/delete"] button`)
	b.says("The topic was deleted")
	if strings.Contains(b.text(), "odd name") {
		t.Error("the topic is still there")
	}
	b.do(chromedp.Click(css("details:not(.danger) > summary")))
	b.goes(fill("#topic-name", "Work"), fill("#topic-content", "Is a joiner."), chromedp.Click(css("details:not(.danger) button")))
	b.says("Saved.", "Is a joiner.")
	b.open(b.at())
	b.do(chromedp.Click(css("details:not(.danger) > summary")))
	if status := b.goes(fill("#topic-name", "work"), fill("#topic-content", "Is a smith."), chromedp.Click(css("details:not(.danger) button"))); status != http.StatusUnprocessableEntity {
		t.Errorf("a second topic of a name: %d", status)
	}
	b.says("There is a topic of that name")
	b.press(`.tabs a[href$="/audit"]`)
	b.says("jeeves", "deleted")
	if n := eval[int](b, `document.querySelectorAll("tbody tr").length`); n != 2 {
		t.Errorf("%d events", n)
	}
}

// U5: what is remembered, and everything, is exported as a file with a name of its
// own.
func (f *furnished) exports(t *testing.T) {
	b := f.tab(t, f.admin)
	folder := t.TempDir()
	done := make(chan string, 4)
	var mu sync.Mutex
	names := map[string]string{}
	if err := chromedp.ListenBrowser(b.ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *browser.EventDownloadWillBegin:
			names[e.GUID] = e.SuggestedFilename
		case *browser.EventDownloadProgress:
			if e.State == browser.DownloadProgressStateCompleted {
				done <- names[e.GUID]
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	yes := true
	if _, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID, DownloadPath: folder, EventsEnabled: &yes,
	}); err != nil {
		t.Fatal(err)
	}
	for _, export := range []struct{ page, name, has string }{
		{b.at(), "memory_anna_20300107.json", "near the harbour"},
		{b.at("data"), "user_anna_20300107.jsonl", "I live in Oslo with two cats."},
	} {
		b.open(export.page)
		b.do(chromedp.Click(css("a[download]")))
		select {
		case name := <-done:
			data, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil || name != export.name || !strings.Contains(string(data), export.has) {
				t.Errorf("%s: %q of %d bytes, %v", export.page, name, len(data), err)
			}
		case <-time.After(tabTimeout):
			t.Fatalf("%s: no file came", export.page)
		}
	}
}

// U6: who is not the operator sees what is theirs, and nothing else is there.
func (f *furnished) scope(t *testing.T) {
	b := f.tab(t, f.byBert)
	b.expect("403")
	b.expect("404")
	b.open("/")
	if rooms := eval[string](b, `[...document.querySelectorAll(".rooms a")].map((a) => a.textContent).join()`); rooms != "Overview,Chat,Sessions,Memory" {
		t.Errorf("rooms %s", rooms)
	}
	for path, want := range map[string]int{
		"/hands": 403, "/hands/calendar": 403, "/agents": 403, "/users": 403,
		"/users/" + f.anna.ID.String(): 404, "/users/" + f.anna.ID.String() + "/sessions/" + f.talk.String(): 404,
		"/users/" + f.bert.ID.String() + "/sessions/" + f.talk.String(): 404, "/users/" + f.bert.ID.String() + "/data": 403,
		"/users/" + f.bert.ID.String(): 200, "/users/" + f.bert.ID.String() + "/audit": 200,
	} {
		if status := b.goes(chromedp.Navigate(f.url + path)); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
		if want != 200 && strings.Contains(b.text(), "Oslo") {
			t.Errorf("%s shows what is somebody else's", path)
		}
	}
}

// Pages work where no script runs: a form is posted and answered with a page.
func (f *furnished) withoutScript(t *testing.T) {
	b := f.tab(t, f.admin)
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	b.open(b.at("chat"))
	b.goes(chromedp.SendKeys(css("#text"), "Without a script."), chromedp.Click(css("#send")))
	b.says("Without a script.", "Gladly, noted.")
	b.goes(chromedp.SendKeys(css("#text"), "And on."), chromedp.Click(css("#send")))
	b.says("Without a script.", "And on.")
	b.open("/hands/calendar")
	b.goes(chromedp.Click(css("#ask button")))
	b.says("Answer", "nothing")
	b.open(b.at("sessions", f.talk.String()))
	b.do(chromedp.Click(css(".item.summary .opens > summary")))
	b.press(".item.summary .opens a")
	b.says("I live in Oslo with two cats.")
}

// pages are all of them, by what a picture of them is called.
func (f *furnished) pages(b *tab) []struct{ name, path string } {
	talk := f.talk.String()
	return []struct{ name, path string }{
		{"overview", "/"}, {"own-chat", "/chat"}, {"own-sessions", "/sessions"}, {"chat", b.at("chat", talk)}, {"chat-new", b.at("chat")},
		{"sessions", b.at("sessions")}, {"search", b.at("sessions") + "?q=cats"}, {"session", b.at("sessions", talk)}, {"messages", b.at("sessions", talk, "messages")},
		{"message", b.at("sessions", talk, "messages", f.said.String())}, {"summary", b.at("sessions", talk, "summaries", f.summary.String())},
		{"timeline", b.at("sessions", talk, "timeline")}, {"context", b.at("sessions", talk, "context")}, {"delete", b.at("sessions", talk, "delete")},
		{"hands", "/hands"}, {"hand", "/hands/calendar"}, {"agents", "/agents"}, {"agent", "/agents/jeeves"}, {"users", "/users"}, {"memory", b.at()},
		{"topic", b.at("topic") + "?name=home"}, {"audit", b.at("audit")}, {"data", b.at("data")},
	}
}

// U5: every page, in both themes and on a narrow screen: nothing wider than that,
// nothing that keeps anybody out, nothing from elsewhere, no word of the console.
func (f *furnished) everyPage(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join("testdata", "node_modules", "axe-core", "axe.min.js"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("there is no node_modules (npm ci in testdata): barriers are not looked for")
	} else if err != nil {
		t.Fatal(err)
	}
	b := f.tab(t, "")
	b.expect("404")
	f.lookAt(t, b, "login", "/login", string(axe))
	b = f.tab(t, f.admin)
	b.expect("404")
	for _, path := range []string{"/hands/a/b", "/agents/a/b", "/chat/a", "/sessions/a", "/users/a/b"} {
		if status := b.goes(chromedp.Navigate(f.url + path)); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	for _, p := range f.pages(b) {
		f.lookAt(t, b, p.name, p.path, string(axe))
	}
	f.lookAt(t, b, "refusal", "/hands/nobody", string(axe))
	if len(axe) > 0 {
		b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("main").append(document.createElement("button"))`))
		if found := b.violations(`{}`); !slices.ContainsFunc(found, violation.isSerious) {
			t.Errorf("a button without a name keeps nobody out: %+v", found)
		}
	}
}

func (f *furnished) lookAt(t *testing.T, b *tab, name, path, axe string) {
	t.Helper()
	b.do(b.look(wide, "light"))
	if status := b.goes(chromedp.Navigate(f.url + path)); status != http.StatusOK && name != "refusal" {
		t.Errorf("%s: %d\n%s", path, status, b.seen())
		return
	}
	// What opens is looked at open.
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("main details").forEach((d) => { d.open = true })`))
	if axe != "" {
		b.do(chromedp.Evaluate[chromedp.Void](axe + ";0"))
		b.barriers(name, "light", `{}`)
	}
	light := eval[string](b, `getComputedStyle(document.body).backgroundColor`)
	b.do(b.look(wide, "dark"))
	if dark := eval[string](b, `getComputedStyle(document.body).backgroundColor`); dark == light {
		t.Errorf("%s: dark is as light: %s", name, dark)
	}
	if axe != "" {
		// Of the rules, the theme makes a difference to this one.
		b.barriers(name, "dark", `{runOnly: ["color-contrast"]}`)
	}
	b.do(b.look(narrow, "light"))
	if over := eval[int](b, `document.scrollingElement.scrollWidth - innerWidth`); over > 0 {
		who := eval[string](b, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).slice(0, 5).map((e) => e.tagName + "." + e.className).join(", ")`)
		t.Errorf("%s: %d px wider than %d: %s", name, over, narrow, who)
	}
	if n := eval[int](b, `document.querySelectorAll("main h1, main > h1").length`); n != 1 {
		t.Errorf("%s: %d first headings", name, n)
	}
	if *screenshots != "" {
		b.picture(name)
	}
}

// violation is what axe-core finds of one rule.
type violation struct {
	ID, Impact, Help string
	Nodes            []string
}

func (v violation) isSerious() bool { return v.Impact == "serious" || v.Impact == "critical" }

// violations has axe-core look at the page.
func (b *tab) violations(options string) []violation {
	b.t.Helper()
	return eval[[]violation](b, `axe.run(document, Object.assign({resultTypes: ["violations"]}, `+options+`)).then((r) => r.violations.map((v) => ({
		ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.slice(0, 3).map((n) => n.html + " " + n.any.map((a) => a.message).join("; "))})))`, chromedp.EvalAwaitPromise)
}

// barriers fails for what keeps people out.
func (b *tab) barriers(name, theme, options string) {
	b.t.Helper()
	for _, v := range b.violations(options) {
		say := b.t.Logf
		if v.isSerious() {
			say = b.t.Errorf
		}
		say("%s, %s: %s: %s: %s\n%s", name, theme, v.Impact, v.ID, v.Help, strings.Join(v.Nodes, "\n"))
	}
}

// pictured are the pages that docs/images has, and how.
var pictured = map[string][]string{
	"overview": {"light"}, "chat": {"light", "dark", "narrow"}, "session": {"light", "dark", "narrow"}, "hand": {"light", "dark"}, "agent": {"light"},
	"memory": {"light", "dark", "narrow"}, "topic": {"light"}, "audit": {"light"}, "context": {"light"},
}

// picture writes pictures of the page, as it is when it is opened.
func (b *tab) picture(name string) {
	b.t.Helper()
	for _, how := range pictured[name] {
		width, theme := int64(wide), how
		if how == "narrow" {
			width, theme = narrow, "light"
		}
		b.do(b.look(width, theme), chromedp.Reload())
		b.shoot(name + "-" + how)
	}
}

// shoot writes a picture of what can be seen.
func (b *tab) shoot(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	const most = 150 << 10
	if len(png) > most {
		b.t.Errorf("%s: %d bytes, at most %d are for a picture", name, len(png), most)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// U5: a session and a user are deleted, the user with all that is the user's.
func (f *furnished) delete(t *testing.T) {
	b := f.tab(t, f.admin)
	b.expect("422")
	b.expect("404")
	b.open(b.at("sessions", f.talk.String(), "delete"))
	b.press(`form[action$="/delete"] button`)
	b.says("The session was deleted.")
	if status := b.goes(chromedp.Navigate(f.url + b.at("sessions", f.talk.String()))); status != http.StatusNotFound {
		t.Errorf("the session after it was deleted: %d", status)
	}
	// Another user's data by the header's choice.
	b.open(b.at("data"))
	b.goes(set(css("#look-user"), f.bert.ID.String()), chromedp.Click(css(".look button")))
	if !strings.Contains(b.path(), f.bert.ID.String()) {
		t.Errorf("another user at %s", b.path())
	}
	b.open(b.at("data"))
	b.do(chromedp.Click(css("details.danger > summary")))
	if status := b.goes(fill("#user-confirm", "Anna"), chromedp.Click(css("details.danger button"))); status != http.StatusUnprocessableEntity {
		t.Errorf("another name confirms: %d", status)
	}
	b.says("Nothing was deleted")
	b.goes(fill("#user-confirm", "anna"), chromedp.Click(css("details.danger button")))
	b.says("Everything of the user was deleted.", "anna")
	topics, _, err := f.host.Store().Topics(t.Context(), f.anna.ID, memory.TopicQuery{})
	if err != nil || len(topics) != 0 {
		t.Errorf("%d topics, %v", len(topics), err)
	}
}

// U5: there is no page and no action that no test went to. What leads nowhere is
// TestNoSuchPage's.
func (f *furnished) everything(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.all {
		if !f.asked[p] && !strings.HasSuffix(p, "/{rest...}") {
			t.Errorf("nothing in these tests went to %s", p)
		}
	}
	if len(f.all) < 30 {
		t.Errorf("only %d patterns: this test looks at the wrong thing", len(f.all))
	}
}
