package control_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/memory"
)

// cookieOf logs in and returns the cookie as a browser sends it back.
func cookieOf(t *testing.T, logins *control.Logins, secret string) string {
	t.Helper()
	cookie, err := logins.Login(secret, false)
	if err != nil {
		t.Fatal(err)
	}
	return cookie.Name + "=" + cookie.Value
}

// A browser's cookie stands for its token at the door, until it ends (U6).
func TestLoginAtTheDoor(t *testing.T) {
	var logins *control.Logins
	s := serve(t, func(up *setup) {
		tokens := openTokens(t, filepath.Join(up.host.Data, "tokens.json"))
		logins = control.NewLogins(tokens, up.clock.Now)
		up.control.Logins = logins
	})
	ask := func(path string, headers ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if _, err := logins.Login("x", false); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("a wrong token: %v", err)
	}
	admin, anna := cookieOf(t, logins, s.admin), cookieOf(t, logins, s.byAnna)
	own, other := "/api/users/"+s.anna.ID.String()+"/sessions", "/api/users/"+s.bert.ID.String()+"/sessions"
	for _, c := range []struct {
		what, path string
		want       int
		headers    []string
	}{
		{"no cookie", own, 401, nil},
		{"hers", own, 200, []string{"Cookie", anna}},
		{"another's", other, 404, []string{"Cookie", anna}},
		{"an operator's", "/api/users", 200, []string{"Cookie", admin}},
		{"of a user", "/api/users", 403, []string{"Cookie", anna}},
		{"among others", own, 200, []string{"Cookie", "glovebox_session=x; a=b; " + anna}},
		{"behind many", own, 401, []string{"Cookie", strings.Repeat("glovebox_session=x; ", 8) + anna}},
		{"cut", own, 401, []string{"Cookie", anna[:len(anna)-1]}},
		{"longer", own, 401, []string{"Cookie", anna + "0"}},
		{"in capitals", own, 401, []string{"Cookie", strings.ToUpper(anna)}},
		{"a token as a cookie", own, 401, []string{"Cookie", "glovebox_session=" + s.byAnna}},
		{"a cookie as a token", own, 401, []string{"Authorization", "Bearer " + strings.TrimPrefix(anna, "glovebox_session=")}},
		{"a token before it", "/api/users", 200, []string{"Cookie", anna, "X-Api-Key", s.admin}},
		{"a wrong token before it", own, 401, []string{"Cookie", anna, "X-Api-Key", "x"}},
		{"from another site", own, 403, []string{"Cookie", anna, "Sec-Fetch-Site", "cross-site"}},
		{"of an opaque origin", own, 403, []string{"Cookie", anna, "Origin", "null"}},
	} {
		if got := ask(c.path, c.headers...); got != c.want {
			t.Errorf("%s: status %d, want %d", c.what, got, c.want)
		}
	}
	s.clock.Move(12 * time.Hour)
	if got := ask(own, "Cookie", anna); got != 401 {
		t.Errorf("after 12 hours: status %d", got)
	}
	anna = cookieOf(t, logins, s.byAnna)
	list, err := s.tokens.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range list {
		if token.Scope == control.UserScope(s.anna.ID) {
			if err := s.tokens.Revoke(token.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := ask(own, "Cookie", anna); got != 401 {
		t.Errorf("revoked: status %d", got)
	}
}

// Logins are bounded, by token and in all: the oldest go.
func TestLoginsAreBounded(t *testing.T) {
	at := controltest.NewClock(monday, 0)
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	logins := control.NewLogins(tokens, at.Now)
	// Logout has a cookie for the browser whatever it sent; whether a login lives is
	// seen at the door.
	user := memory.NewID[memory.UserID]()
	var secrets []string
	for range 21 {
		secret, _, err := tokens.Create(user, control.UserScope(user), monday)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	lives := func(cookie string) bool {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Cookie", cookie)
		return control.LoggedIn(logins, r)
	}
	var first []string
	for range 51 {
		first = append(first, cookieOf(t, logins, secrets[0]))
	}
	if lives(first[0]) || !lives(first[1]) || !lives(first[50]) {
		t.Errorf("of 51 logins of one token the first lives: %v, the second: %v, the last: %v", lives(first[0]), lives(first[1]), lives(first[50]))
	}
	for _, secret := range secrets[1:20] {
		for range 50 {
			cookieOf(t, logins, secret)
		}
	}
	if !lives(first[1]) {
		t.Error("of 1,000 logins the first does not live")
	}
	last := cookieOf(t, logins, secrets[20])
	if lives(first[1]) || !lives(first[2]) || !lives(last) {
		t.Errorf("of 1,001 logins the first lives: %v, the second: %v, the last: %v", lives(first[1]), lives(first[2]), lives(last))
	}
	// What has ended makes room for what begins.
	at.Move(12 * time.Hour)
	again := cookieOf(t, logins, secrets[20])
	if lives(last) || !lives(again) {
		t.Errorf("after 12 hours the old one lives: %v, the new one: %v", lives(last), lives(again))
	}
	r := httptest.NewRequest(http.MethodPost, "/logout", nil)
	if cookie := logins.Logout(r); cookie != nil {
		t.Errorf("logout of nobody: %v", cookie)
	}
	r.Header.Set("Cookie", again)
	if cookie := logins.Logout(r); cookie == nil || cookie.MaxAge >= 0 || cookie.Value != "" || lives(again) {
		t.Errorf("logout: %v", cookie)
	}
}

// No script, no other site and, where the browser came over TLS, nobody on the way
// reads a cookie (U6).
func TestLoginCookie(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	secret, _, err := tokens.Create(memory.NewID[memory.UserID](), control.ScopeAdmin, monday)
	if err != nil {
		t.Fatal(err)
	}
	logins := control.NewLogins(tokens, nil)
	for _, secure := range []bool{false, true} {
		cookie, err := logins.Login(secret, secure)
		if err != nil {
			t.Fatal(err)
		}
		want := http.Cookie{
			Name: control.LoginCookie, Value: cookie.Value, Path: "/", MaxAge: 12 * 60 * 60,
			HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
		}
		if cookie.String() != want.String() {
			t.Errorf("over TLS %t: %s, want %s", secure, cookie, &want)
		}
	}
}

// Cookies come from the machine's randomness alone, and have 256 bits of it.
func TestCookiesAreRandom(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	user := memory.NewID[memory.UserID]()
	secret, _, err := tokens.Create(user, control.ScopeAdmin, monday)
	if err != nil {
		t.Fatal(err)
	}
	valueOf := func(seed uint64) (value string) {
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			value = strings.TrimPrefix(cookieOf(t, control.NewLogins(tokens, nil), secret), control.LoginCookie+"=")
		})
		return value
	}
	a, b, c := valueOf(1), valueOf(1), valueOf(2)
	if a != b || a == c || len(a) != 64 || strings.Trim(a, "0123456789abcdef") != "" {
		t.Errorf("cookies %q, %q, %q", a, b, c)
	}
}

// Browsers log in and out and are let in at once.
func TestLoginsAtOnce(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	logins := control.NewLogins(tokens, nil)
	user := memory.NewID[memory.UserID]()
	secret, _, err := tokens.Create(user, control.ScopeAdmin, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				cookie, err := logins.Login(secret, true)
				if err != nil {
					t.Error(err)
					return
				}
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.AddCookie(cookie)
				if !control.LoggedIn(logins, r) {
					t.Error("a login does not live")
				}
				if logins.Logout(r); control.LoggedIn(logins, r) {
					t.Error("a login lives after its end")
				}
			}
		})
	}
	all.Wait()
}
