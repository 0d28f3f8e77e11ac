package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// Without a token nobody is asked for one, and the page says so.
func TestOpen(t *testing.T) {
	h := open(t)
	b := h.visitor(t)
	b.get("/").want(t, "open", http.StatusOK).says(t, "open", "Nobody has to log in", "anna")
	// What a proxy passes on comes from anywhere.
	if to := b.get("/", "X-Forwarded-For", "203.0.113.1").want(t, "forwarded", http.StatusSeeOther).location(); to != "/login?next=%2F" {
		t.Errorf("forwarded: sent to %q", to)
	}
	h.token(t, h.anna, control.ScopeAdmin)
	b.get("/").want(t, "with a token", http.StatusSeeOther)
}

// A browser exchanges a token for a cookie that no script and no other site can use,
// and that ends with the token, with the time and by the button (U6).
func TestLogin(t *testing.T) {
	h := open(t)
	secret, token := h.token(t, h.bert, control.UserScope(h.bert.ID))
	other, _ := h.token(t, h.anna, control.ScopeAdmin)
	b := h.visitor(t)
	want := "/users/" + h.bert.ID.String() + "/sessions?q=a%26b"
	to := b.get(want).want(t, "without a login", http.StatusSeeOther).location()
	if to != "/login?next="+url.QueryEscape(want) {
		t.Fatalf("sent to %q", to)
	}
	checkPage(t, to, b.get(to))
	for _, wrong := range []string{"", "x", secret + "x", secret[:len(secret)-1], token.ID} {
		page := b.post("/login", url.Values{"token": {wrong}, "next": {want}}).want(t, "wrong token", http.StatusUnauthorized)
		if page.header.Get("Set-Cookie") != "" {
			t.Errorf("token %q: a cookie", wrong)
		}
		if len(wrong) > 1 && strings.Contains(page.body, wrong) {
			t.Errorf("token %q: the page repeats it", wrong)
		}
		page.says(t, "wrong token", "That token is not known here.")
	}
	in := b.post("/login", url.Values{"token": {" " + secret + "\n"}, "next": {want}}).want(t, "login", http.StatusSeeOther)
	if in.location() != want {
		t.Errorf("after the login: %q", in.location())
	}
	cookie, err := http.ParseSetCookie(in.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	if cookie.Name != control.LoginCookie || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" || cookie.Secure || cookie.MaxAge != 12*60*60 || len(cookie.Value) != 64 || strings.Contains(cookie.Value, secret) {
		t.Errorf("the cookie %s", in.header.Get("Set-Cookie"))
	}
	b.get(want).want(t, "with a login", http.StatusOK).says(t, "with a login", "bert", "Log out")
	// The API takes it too, as it takes the token.
	b.get("/api/users/"+h.bert.ID.String()+"/sessions").want(t, "the API", http.StatusOK)
	b.get("/api/users/"+h.anna.ID.String()+"/sessions").want(t, "another's", http.StatusNotFound)
	// A token that is sent counts before it, also a wrong one.
	b.get("/users", "Authorization", "Bearer "+other).want(t, "another token", http.StatusOK)
	b.get("/", "Authorization", "Bearer x").want(t, "a wrong token", http.StatusSeeOther)

	out := b.post("/logout", url.Values{}).want(t, "logout", http.StatusSeeOther)
	if gone, err := http.ParseSetCookie(out.header.Get("Set-Cookie")); err != nil || gone.MaxAge >= 0 || gone.Value != "" || out.location() != "/login?notice=out" {
		t.Errorf("logout: %q, to %q, %v", out.header.Get("Set-Cookie"), out.location(), err)
	}
	b.get(out.location()).says(t, "logout", "You are logged out.")
	// Who kept the cookie has nothing of it.
	kept := control.LoginCookie + "=" + cookie.Value
	h.visitor(t).get("/", "Cookie", kept).want(t, "a cookie after the logout", http.StatusSeeOther)
	h.visitor(t).post("/logout", url.Values{}).want(t, "logout of nobody", http.StatusSeeOther)

	b = h.as(t, h.bert, control.UserScope(h.bert.ID))
	h.clock.Move(12*time.Hour - time.Second)
	b.get("/").want(t, "after almost 12 hours", http.StatusOK)
	h.clock.Move(time.Second)
	b.get("/").want(t, "after 12 hours", http.StatusSeeOther)

	b = h.visitor(t)
	b.post("/login", url.Values{"token": {secret}}).want(t, "login again", http.StatusSeeOther)
	b.get("/").want(t, "again", http.StatusOK)
	if err := h.tokens.Revoke(token.ID); err != nil {
		t.Fatal(err)
	}
	b.get("/").want(t, "after the token was revoked", http.StatusSeeOther)
}

// Over TLS the cookie is for TLS alone, whether it is spoken here or by a proxy before
// the server, where the browser says so itself; without TLS it would not come back.
func TestLoginOverTLS(t *testing.T) {
	h := open(t)
	secret, _ := h.token(t, h.anna, control.ScopeAdmin)
	direct := httptest.NewTLSServer(h.handler)
	defer direct.Close()
	overTLS := strings.Replace(h.url, "http://", "https://", 1)
	for name, test := range map[string]struct {
		url, origin string
		client      *http.Client
		secure      bool
	}{
		"without":                  {h.url, h.url, http.DefaultClient, false},
		"without, and no origin":   {h.url, "", http.DefaultClient, false},
		"to a proxy":               {h.url, overTLS, http.DefaultClient, true},
		"to the server":            {direct.URL, direct.URL, direct.Client(), true},
		"to the server, no origin": {direct.URL, "", direct.Client(), true},
	} {
		client := *test.client
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		b := &visitor{t: t, at: test.url, http: client}
		in := b.post("/login", url.Values{"token": {secret}}, "Origin", test.origin).want(t, name, http.StatusSeeOther)
		if cookie, err := http.ParseSetCookie(in.header.Get("Set-Cookie")); err != nil || cookie.Secure != test.secure {
			t.Errorf("%s: the cookie %s, %v; want Secure %t", name, in.header.Get("Set-Cookie"), err, test.secure)
		}
	}
}

// After a login the browser goes on within this server alone.
func TestLoginGoesOnHere(t *testing.T) {
	h := open(t)
	secret, _ := h.token(t, h.anna, control.ScopeAdmin)
	for next, want := range map[string]string{
		"": "/", "/": "/", "/users?a=b": "/users?a=b", "/a%2fb": "/a%2fb",
		"//evil.example": "/", "/\\evil.example": "/", "https://evil.example": "/", "javascript:alert(1)": "/", "evil.example": "/", "/\t/evil.example": "/",
		"\\\\evil.example": "/", "/a\nSet-Cookie: x=y": "/", "http:/evil": "/", "///evil.example": "/", " //evil.example": "/",
	} {
		b := h.visitor(t)
		if to := b.post("/login", url.Values{"token": {secret}, "next": {next}}).want(t, next, http.StatusSeeOther).location(); to != want {
			t.Errorf("next %q: sent to %q, want %q", next, to, want)
		}
		root, err := html.Parse(strings.NewReader(b.get("/login?next=" + url.QueryEscape(next)).body))
		if err != nil {
			t.Fatal(err)
		}
		for n := range root.Descendants() {
			if n.Data == "input" && attribute(n, "name") == "next" && attribute(n, "value") != want {
				t.Errorf("next %q: the form has %q", next, attribute(n, "value"))
			}
		}
	}
}

// No other site can have a browser do anything here (U6).
func TestOtherSites(t *testing.T) {
	h := open(t)
	session := h.talk(t, h.anna)
	b := h.as(t, h.anna, control.ScopeAdmin)
	at := sessionPath(session)
	for name, headers := range map[string][]string{
		"foreign origin":  {"Origin", "https://evil.example", "Sec-Fetch-Site", ""},
		"origin null":     {"Origin", "null", "Sec-Fetch-Site", ""},
		"another port":    {"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"},
		"cross-site":      {"Origin", "", "Sec-Fetch-Site", "cross-site"},
		"same-site":       {"Origin", "", "Sec-Fetch-Site", "same-site"},
		"null, same-site": {"Origin", "null", "Sec-Fetch-Site", "same-origin"},
	} {
		for _, path := range []string{at + "/delete", at + "/compact", "/users/" + h.anna.ID.String() + "/chat", "/login", "/logout"} {
			page := b.post(path, url.Values{"text": {"hello"}, "token": {"x"}}, headers...).want(t, name+" "+path, http.StatusForbidden)
			if page.header.Get("Set-Cookie") != "" {
				t.Errorf("%s: %s sets a cookie", name, path)
			}
		}
	}
	// Who follows a link from elsewhere is told, and can go on from there.
	follow := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	page := b.get(at+"?page=1", follow...).want(t, "a link from elsewhere", http.StatusForbidden)
	page.says(t, "a link from elsewhere", "Another site sent you here.", "Go on to the page")
	if !strings.Contains(page.body, fmt.Sprintf("href=%q", at+"?page=1")) {
		t.Errorf("the page has no link to go on: %s", page.body)
	}
	if strings.Contains(page.body, "garden") || strings.Contains(page.body, "Log out") {
		t.Error("the page shows what is somebody's")
	}
	if strings.Contains(b.get(at, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors").want(t, "embedded", http.StatusForbidden).body, "Go on") {
		t.Error("what is embedded elsewhere is offered to go on")
	}
	b.get("/", "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate").want(t, "typed", http.StatusOK)
	if got, err := h.store.Session(t.Context(), h.anna.ID, session.ID); err != nil || got.Messages != session.Messages {
		t.Errorf("the session: %+v, %v", got, err)
	}
	if all, err := h.store.Sessions(t.Context(), h.anna.ID, memory.SessionQuery{}); err != nil || len(all) != 1 {
		t.Errorf("%d sessions, %v", len(all), err)
	}
}

// Scripts are told where to go in a form that they follow.
func TestLoginOfParts(t *testing.T) {
	h := open(t)
	h.token(t, h.anna, control.ScopeAdmin)
	got := h.visitor(t).get("/users", "HX-Request", "true")
	if to := got.header.Get("HX-Redirect"); got.status != http.StatusNoContent || to != "/login" {
		t.Errorf("status %d, HX-Redirect %q", got.status, to)
	}
}

// Forms are bounded and are forms.
func TestForms(t *testing.T) {
	h := open(t)
	b := h.visitor(t)
	b.post("/login", url.Values{"token": {strings.Repeat("x", 2<<20)}}).want(t, "a large form", http.StatusRequestEntityTooLarge)
	b.post("/users/"+h.anna.ID.String()+"/chat", url.Values{"text": {"a\xffb"}}).want(t, "no UTF-8", http.StatusBadRequest)
	b.post("/login?%zz=1", url.Values{"token": {"x"}}).want(t, "a broken query", http.StatusBadRequest)
	b.post("/login", url.Values{"token": {"x"}}, "Content-Type", "application/json").want(t, "no form", http.StatusUnauthorized)
	b.do(http.MethodPut, "/login", url.Values{}).want(t, "another method", http.StatusMethodNotAllowed)
}

// Who logs in again leaves no cookie behind that would still let somebody in.
func TestLoginAgain(t *testing.T) {
	h := open(t)
	secret, _ := h.token(t, h.anna, control.UserScope(h.anna.ID))
	b := h.visitor(t)
	cookie := func() string {
		t.Helper()
		in := b.post("/login", url.Values{"token": {secret}}).want(t, "login", http.StatusSeeOther)
		set, err := http.ParseSetCookie(in.header.Get("Set-Cookie"))
		if err != nil {
			t.Fatal(err)
		}
		return set.Name + "=" + set.Value
	}
	first, second := cookie(), cookie()
	h.visitor(t).get("/", "Cookie", first).want(t, "the first", http.StatusSeeOther)
	h.visitor(t).get("/", "Cookie", second).want(t, "the second", http.StatusOK)
	b.post("/login", url.Values{"token": {"wrong"}}).want(t, "wrong token", http.StatusUnauthorized)
	b.get("/").want(t, "after a wrong token", http.StatusOK)
}
