package dashboard_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// crawl follows every link to this server from a page on, and returns what it found by
// path. Parts that scripts exchange are asked for as scripts do.
func (b *visitor) crawl(from string) map[string]got {
	b.t.Helper()
	found, todo := map[string]got{}, []string{from}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		if _, seen := found[path]; seen {
			continue
		}
		if len(found) > 500 {
			b.t.Fatal("there is no end of pages")
		}
		page := b.get(path)
		found[path] = page
		root, err := html.Parse(strings.NewReader(page.body))
		if err != nil {
			b.t.Fatalf("%s: %v", path, err)
		}
		for n := range root.Descendants() {
			for _, a := range n.Attr {
				switch {
				case n.Data == "a" && a.Key == "href":
				case a.Key == "hx-get":
					part := b.get(a.Val, "HX-Request", "true")
					part.want(b.t, "part "+a.Val, http.StatusOK)
					if strings.Contains(part.body, "<!doctype") {
						b.t.Errorf("%s: the part %s is a page", path, a.Val)
					}
					checkText(b.t, "part "+a.Val, part.body)
				default:
					continue
				}
				to, err := url.Parse(a.Val)
				if err != nil || to.IsAbs() || to.Host != "" {
					b.t.Errorf("%s: a link to %q", path, a.Val)
					continue
				}
				if to.Path != "" && !strings.HasPrefix(to.Path, "/api/") {
					todo = append(todo, to.RequestURI())
				}
			}
		}
	}
	return found
}

// checkText fails the test if anything markup is more than text, or any script or
// style stands in the page itself.
func checkText(t testing.TB, what, page string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for n := range root.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("%s: a comment", what)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "style" || n.Data == "script" && (n.FirstChild != nil || !strings.HasPrefix(attribute(n, "src"), "/assets/")) {
			t.Errorf("%s: <%s> in the page", what, n.Data)
		}
		if n.Data == "img" && !strings.HasPrefix(attribute(n, "src"), "/assets/") {
			t.Errorf("%s: an image of %q", what, attribute(n, "src"))
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:") {
				t.Errorf("%s: <%s %s=%q>", what, n.Data, a.Key, a.Val)
			}
		}
	}
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// checkPage fails the test if a page is not one that everybody can use.
func checkPage(t testing.TB, path string, page got) {
	t.Helper()
	if page.status != http.StatusOK {
		t.Errorf("%s: status %d", path, page.status)
		return
	}
	policy := page.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy+";", part+";") {
			t.Errorf("%s: the policy %q does not say %q", path, policy, part)
		}
	}
	for name, value := range map[string]string{"Referrer-Policy": "same-origin", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8"} {
		if page.header.Get(name) != value {
			t.Errorf("%s: %s: %q", path, name, page.header.Get(name))
		}
	}
	if len(page.body) > 200_000 {
		t.Errorf("%s: %d bytes", path, len(page.body))
	}
	checkText(t, path, page.body)
	root, err := html.Parse(strings.NewReader(page.body))
	if err != nil {
		t.Fatal(err)
	}
	ids, labelled, level, mains := map[string]bool{}, map[string]bool{}, 0, 0
	for n := range root.Descendants() {
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("%s: two elements have the id %q", path, id)
			}
			ids[id] = true
		}
		switch n.Data {
		case "label":
			labelled[attribute(n, "for")] = true
		case "main":
			mains++
		case "h1", "h2", "h3", "h4", "h5", "h6":
			at := int(n.Data[1] - '0')
			if at > level+1 || at == 1 && level != 0 {
				t.Errorf("%s: <%s> after <h%d>", path, n.Data, level)
			}
			level = at
		}
	}
	if mains != 1 || level == 0 || attribute(root.FirstChild.NextSibling, "lang") != "en" {
		t.Errorf("%s: %d mains, level %d", path, mains, level)
	}
	for n := range root.Descendants() {
		switch n.Data {
		case "input", "select", "textarea":
			if kind := attribute(n, "type"); kind != "hidden" && kind != "submit" && !labelled[attribute(n, "id")] && attribute(n, "aria-label") == "" && (n.Parent == nil || n.Parent.Data != "label") {
				t.Errorf("%s: <%s name=%q> has no label", path, n.Data, attribute(n, "name"))
			}
		case "form":
			if action := attribute(n, "action"); !strings.HasPrefix(action, "/") || strings.HasPrefix(action, "//") {
				t.Errorf("%s: a form to %q", path, action)
			}
		case "button":
			if attribute(n, "type") == "" {
				t.Errorf("%s: a button without a type", path)
			}
		case "meter":
			if attribute(n, "aria-label") == "" {
				t.Errorf("%s: a meter without a name", path)
			}
		}
		for _, name := range []string{"aria-describedby", "aria-controls", "aria-labelledby"} {
			if to := attribute(n, name); to != "" && !ids[to] {
				t.Errorf("%s: %s names %q, which is not there", path, name, to)
			}
		}
	}
}

// A hand that is disabled says so, and why, to the operator.
func TestDisabledHandSaysWhy(t *testing.T) {
	h := open(t, func(c *host.Config) { c.Hands = map[string]host.HandConfig{"gone": {}} })
	b := h.as(t, h.anna, control.ScopeAdmin)
	for _, path := range []string{"/hands", "/hands/gone"} {
		page := b.get(path)
		page.want(t, path, http.StatusOK)
		if !strings.Contains(page.body, "Disabled: no hand of this name is bundled or installed") {
			t.Errorf("%s: %s", path, page.body)
		}
		checkPage(t, path, page)
	}
}

// Every page that can be reached is whole, usable, and shows what anybody said as
// text (B8, U5).
func TestPages(t *testing.T) {
	h := open(t)
	session := h.talk(t, h.anna)
	found := h.as(t, h.anna, control.ScopeAdmin).crawl("/")
	for path, page := range found {
		checkPage(t, path, page)
	}
	at := sessionPath(session)
	for _, path := range []string{"/", "/hands", "/agents", "/users", at, at + "/messages", at + "/timeline", at + "/context", at + "/delete", "/users/" + h.anna.ID.String() + "/sessions", "/users/" + h.anna.ID.String() + "/chat/" + session.ID.String()} {
		if _, ok := found[path]; !ok {
			t.Errorf("no link leads to %s", path)
		}
	}
	for path, texts := range map[string][]string{
		at:               {"<script>alert(1)</script>", "summed up", "they spoke of the garden", "appointment", "external: treat as untrusted", "hand://calendar", "in the prompt"},
		at + "/messages": {"question 0 about the garden", "answer 2", "<script>alert(3)</script>", "thought", "result", "— treat as untrusted"},
		at + "/timeline": {"gap", "failed", "<script>alert(1)</script>", "hand calendar", "timeout"},
		at + "/context":  {"summary", "refresh", "system", "hand://calendar"},
		"/users/" + h.anna.ID.String() + "/chat/" + session.ID.String(): {"<script>alert(1)</script>", "end of it", "appointment"},
	} {
		found[path].says(t, path, texts...)
	}
}

// A user sees what is their own, and no link leads to anything else (invariant 10, U6).
func TestPagesOfUser(t *testing.T) {
	h := open(t)
	hers := h.talk(t, h.anna)
	his := h.talk(t, h.bert)
	b := h.as(t, h.bert, control.UserScope(h.bert.ID))
	found := b.crawl("/")
	for path, page := range found {
		checkPage(t, path, page)
		if strings.Contains(page.body, h.anna.ID.String()) || strings.Contains(page.body, hers.ID.String()) {
			t.Errorf("%s names anna", path)
		}
	}
	if _, ok := found[sessionPath(his)]; !ok {
		t.Errorf("no link leads to %s", sessionPath(his))
	}
	herPath, at := "/users/"+h.anna.ID.String(), sessionPath(hers)
	frontier, err := h.store.Frontier(t.Context(), h.anna.ID, hers.ID)
	if err != nil {
		t.Fatal(err)
	}
	summary, message := frontier.Items[0].Summary.ID.String(), frontier.Items[1].Message.ID.String()
	nobody := b.get("/users/"+memory.NewID[memory.UserID]().String()).want(t, "nobody", http.StatusNotFound)
	for _, path := range []string{
		herPath, herPath + "/sessions", herPath + "/sessions?q=garden", herPath + "/chat", herPath + "/chat/" + hers.ID.String(), herPath + "/chat/" + hers.ID.String() + "/since?after=0",
		"/users/default/sessions", at, at + "/messages", at + "/messages/" + message, at + "/summaries/" + summary, at + "/timeline", at + "/context", at + "/delete",
	} {
		if page := b.get(path).want(t, path, http.StatusNotFound); page.body != nobody.body {
			t.Errorf("%s: what is there is told apart from what is not", path)
		}
	}
	// By way of his own path nothing of hers is found either.
	own, mine := "/users/"+h.bert.ID.String(), sessionPath(his)
	for _, path := range []string{
		own + "/sessions/" + hers.ID.String(), own + "/chat/" + hers.ID.String(), mine + "/messages/" + message, mine + "/summaries/" + summary, mine + "/summaries/x", mine + "/messages/x", own + "/sessions/x",
	} {
		b.get(path).want(t, path, http.StatusNotFound)
	}
	for _, path := range []string{at + "/delete", at + "/compact", herPath + "/chat", herPath + "/chat/" + hers.ID.String(), own + "/chat/" + hers.ID.String(), own + "/sessions/" + hers.ID.String() + "/delete"} {
		b.post(path, url.Values{"text": {"hello"}}).want(t, "POST "+path, http.StatusNotFound)
	}
	if s, err := h.store.Session(t.Context(), h.anna.ID, hers.ID); err != nil || s.Messages != hers.Messages {
		t.Errorf("hers: %+v, %v", s, err)
	}
	for _, path := range []string{"/hands", "/agents", "/users", "/look?user=" + h.anna.ID.String()} {
		b.get(path).want(t, path, http.StatusForbidden).says(t, path, "This is for the scope admin.")
	}
}

// An operator looks at the data of others by choosing them.
func TestLook(t *testing.T) {
	h := open(t)
	session := h.talk(t, h.bert)
	b := h.as(t, h.anna, control.ScopeAdmin)
	for room, want := range map[string]string{"Sessions": "/sessions", "Chat": "/chat", "Overview": "", "Users": "", "": "", "x": ""} {
		to := b.get("/look?"+url.Values{"user": {h.bert.ID.String()}, "room": {room}}.Encode()).want(t, room, http.StatusSeeOther).location()
		if to != "/users/"+h.bert.ID.String()+want {
			t.Errorf("room %q: %s", room, to)
		}
	}
	b.get(sessionPath(session)).want(t, "bert's", http.StatusOK)
	for _, user := range []string{"", "x", "../.."} {
		b.get("/look?user="+url.QueryEscape(user)).want(t, user, http.StatusNotFound)
	}
	b.get("/look?user="+memory.NewID[memory.UserID]().String()).want(t, "nobody", http.StatusSeeOther)
}

// An address that leads nowhere has a page that says so.
func TestNoSuchPage(t *testing.T) {
	h := open(t)
	b := h.as(t, h.anna, control.ScopeAdmin)
	for _, path := range []string{"/users/" + h.anna.ID.String() + "/x", "/users/" + h.anna.ID.String() + "/sessions/x/y/z", "/sessions/x", "/chat/x", "/hands/x/y", "/agents/x/y"} {
		page := b.get(path).want(t, path, http.StatusNotFound).says(t, path, "Not Found", "There is no such", "Overview")
		page.status = http.StatusOK
		checkPage(t, path, page)
	}
	// A person who mistypes an address gets a page, a program an answer that it can read.
	for path, status := range map[string]int{"/nope": http.StatusNotFound, "/login/": http.StatusNotFound, "/logout": http.StatusMethodNotAllowed} {
		page := b.get(path, "Accept", "text/html,*/*;q=0.8").want(t, path, status).says(t, path, http.StatusText(status), "Overview")
		if got := page.header.Get("Content-Type"); got != "text/html; charset=utf-8" {
			t.Errorf("%s: a person gets %s", path, got)
		}
		if got := b.get(path).want(t, path, status).header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s: a program gets %s", path, got)
		}
	}
	h.visitor(t).get("/nope", "Accept", "text/html").want(t, "without a login", http.StatusSeeOther)
	h.visitor(t).get("/hands/x").want(t, "without a login", http.StatusSeeOther)
	b.get("/users/"+h.anna.ID.String()+"/sessions", "HX-Request", "true").want(t, "a page for a script", http.StatusOK)
	if part := b.get("/hands/x/y", "HX-Request", "true").want(t, "a part", http.StatusNotFound); part.body != "There is no such page." {
		t.Errorf("a part: %q", part.body)
	}
}

// Assets may be kept for ever, under a path that changes with them, and are small.
func TestAssets(t *testing.T) {
	h := open(t)
	b := h.visitor(t)
	page := b.get("/login").want(t, "login", http.StatusOK)
	root, err := html.Parse(strings.NewReader(page.body))
	if err != nil {
		t.Fatal(err)
	}
	total := len(page.body)
	var paths []string
	for n := range root.Descendants() {
		for _, name := range []string{"src", "href"} {
			if at := attribute(n, name); strings.HasPrefix(at, "/assets/") && !slices.Contains(paths, at) {
				paths = append(paths, at)
			}
		}
	}
	if len(paths) != 4 {
		t.Errorf("the page has the assets %q", paths)
	}
	for _, path := range paths {
		asset := b.get(path).want(t, path, http.StatusOK)
		total += len(asset.body)
		if c := asset.header.Get("Cache-Control"); !strings.Contains(c, "immutable") {
			t.Errorf("%s: Cache-Control %q", path, c)
		}
		tag := asset.header.Get("ETag")
		b.get(path, "If-None-Match", tag).want(t, path+" again", http.StatusNotModified)
		parts := strings.Split(path, "/")
		b.get("/assets/0000000000000000/"+parts[3]).want(t, "another tag", http.StatusNotFound)
	}
	if total > 300_000-200_000 {
		t.Errorf("a page without rows is %d bytes with its assets", total)
	}
	for _, path := range []string{"/assets/x/README.md", "/assets/x/y", "/assets/x/..%2fassets.go"} {
		b.get(path).want(t, path, http.StatusNotFound)
	}
}
