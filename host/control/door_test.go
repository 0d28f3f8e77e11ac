package control_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// concrete fills in what stands in the braces of a pattern.
func (s *system) concrete(pattern string, user memory.UserID) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("{user}", user.String(), "{agent}", "jeeves", "{topic}", "cats", "{session}", memory.NewID[memory.SessionID]().String(),
		"{summary}", memory.NewID[memory.SummaryID]().String(), "{hand}", "calendar").Replace(path)
}

// U6: no token, a wrong one, one that is no bearer's, and two that differ are
// refused by every route, whatever it is.
func TestNobodyWithoutAToken(t *testing.T) {
	s := serve(t)
	for _, route := range control.Routes() {
		method, path := s.concrete(route.Pattern, s.anna.ID)
		for name, header := range map[string]map[string]string{
			"none":           {},
			"unknown":        {"Authorization": "Bearer " + control.SecretPrefix + strings.Repeat("a", 52)},
			"unknown key":    {"X-Api-Key": "secret"},
			"empty":          {"Authorization": "Bearer "},
			"another scheme": {"Authorization": "Basic " + s.admin},
			"no scheme":      {"Authorization": s.admin},
			"two differ":     {"Authorization": "Bearer " + s.admin, "X-Api-Key": s.byAnna},
			"cut":            {"Authorization": "Bearer " + s.admin[:len(s.admin)-1]},
			"in the query":   {},
		} {
			r := request{method: method, path: path, header: header}
			if name == "in the query" {
				r.path += "?token=" + s.admin
			}
			if route.Tokenless {
				if name == "none" {
					s.want(http.StatusOK, r)
				}
				continue
			}
			if a := s.want(http.StatusUnauthorized, r); !strings.HasPrefix(a.header.Get("Www-Authenticate"), "Bearer") {
				t.Errorf("%s: %s: no WWW-Authenticate", route.Pattern, name)
			}
		}
	}
	for _, header := range []map[string]string{
		{"Authorization": "Bearer " + s.admin}, {"Authorization": "bearer " + s.admin}, {"X-Api-Key": s.admin},
		{"Authorization": "Bearer " + s.admin, "X-Api-Key": s.admin},
	} {
		s.want(http.StatusOK, request{method: "GET", path: "/api/users", header: header})
	}
	// Who has no token does not learn what routes there are.
	s.want(http.StatusUnauthorized, request{method: "GET", path: "/api/nothing"})
	s.want(http.StatusUnauthorized, request{method: "DELETE", path: "/api/users"})
}

// U6: to the token of a user every other user's path is not there, whether the
// user exists or not: the answers are the same byte for byte, and nothing is looked
// up for them.
func TestAnotherUserIsNotThere(t *testing.T) {
	s := serve(t)
	stranger := memory.NewID[memory.UserID]()
	for _, route := range control.Routes() {
		method, there := s.concrete(route.Pattern, s.bert.ID)
		_, absent := s.concrete(route.Pattern, stranger)
		switch {
		case route.Tokenless:
			continue
		case route.Admin:
			s.want(http.StatusForbidden, request{method: method, path: there, token: s.byAnna})
			continue
		}
		body := any(nil)
		if method == "POST" || method == "PUT" {
			body = `{"text":"hello","content":"hello"}`
		}
		a := s.want(http.StatusNotFound, request{method: method, path: there, token: s.byAnna, body: body})
		b := s.want(http.StatusNotFound, request{method: method, path: absent, token: s.byAnna, body: body})
		// These differ between any two answers.
		for _, name := range []string{"Date", "X-Request-Id"} {
			a.header.Del(name)
			b.header.Del(name)
		}
		if a.body != b.body || len(a.header) != len(b.header) {
			t.Errorf("%s: %v %v is not %v %v", route.Pattern, a, a.header, b, b.header)
		}
		for name := range a.header {
			if a.header.Get(name) != b.header.Get(name) {
				t.Errorf("%s: %s is %q and %q", route.Pattern, name, a.header.Get(name), b.header.Get(name))
			}
		}
		// An operator learns the same of nobody.
		c := s.want(http.StatusNotFound, request{method: method, path: absent, token: s.admin, body: body})
		if c.body != b.body {
			t.Errorf("%s: to an operator %v, to a user %v", route.Pattern, c, b)
		}
	}
	// default is anna: bert's token does not get there.
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/default/sessions", token: s.byAnna})
	s.want(http.StatusNotFound, request{method: "GET", path: "/api/users/default/sessions", token: s.byBert})
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/" + s.bert.ID.String() + "/sessions", token: s.byBert})
	s.want(http.StatusOK, request{method: "GET", path: "/api/users/" + strings.ToUpper(s.bert.ID.String()) + "/sessions", token: s.byBert})
	// What anna is told never names bert.
	for _, path := range []string{"/api/users/default/chat"} {
		a := s.want(http.StatusNotFound, request{method: "POST", path: path, token: s.byAnna, body: map[string]any{"text": "x", "agent": "nobody"}})
		if strings.Contains(a.body, "bert") || strings.Contains(a.body, "plain") {
			t.Errorf("%v names others", a)
		}
	}
}

// U6: for another user's path nothing is looked up: the answer is the same when
// there is nothing left to look in.
func TestAnotherUserIsDecidedByTheTokenAlone(t *testing.T) {
	s := serve(t)
	other := request{method: "GET", path: "/api/users/" + s.bert.ID.String() + "/memory", token: s.byAnna}
	before := s.want(http.StatusNotFound, other)
	if err := s.host.Close(); err != nil {
		t.Fatal(err)
	}
	if after := s.want(http.StatusNotFound, other); after.body != before.body {
		t.Errorf("%v, then %v", before, after)
	}
	// Of what is one's own there is nothing to tell then, and no word of why.
	if a := s.want(http.StatusInternalServerError, request{method: "GET", path: "/api/users/default/memory", token: s.byAnna}); !strings.Contains(a.body, `"detail":"internal error"`) {
		t.Errorf("%v", a)
	}
	s.want(http.StatusOK, request{method: "GET", path: "/healthz"})
}

// S4, and paths that are nearly right: a 400 or a 404, never a redirect.
func TestBadPaths(t *testing.T) {
	s := serve(t)
	for path, status := range map[string]int{
		"/api/users/test/memory":                                                   400,
		"/api/users/anna/memory":                                                   400,
		"/api/users/00000000-0000-0000-0000-000000000000/memory":                   400,
		"/api/users//memory":                                                       400,
		"/api/users/":                                                              400,
		"/api/users//":                                                             400,
		"/api/users/%20/memory":                                                    400,
		"/api/users/%00/memory":                                                    400,
		"/api/users/%2F/memory":                                                    400,
		"/api/users/..%2Fx/memory":                                                 400,
		"/api/users/DEFAULT/memory":                                                400,
		"/api/users/{" + s.anna.ID.String() + "}/memory":                           400,
		"/api/users/urn:uuid:" + s.anna.ID.String() + "/memory":                    400,
		"/api/users/" + strings.Repeat("x", 10_000) + "/memory":                    400,
		"/api/users/%F0%9F%90%88/memory":                                           400,
		"/api/users/default/sessions/test":                                         400,
		"/api/users/default/sessions?limit=0":                                      400,
		"/api/users/default/sessions?limit=x":                                      400,
		"/api/users/default/sessions?limit=5&limit=6":                              400,
		"/api/users/default/sessions?limt=5":                                       400,
		"/api/users/default/sessions?limit=%zz":                                    400,
		"/api/users/default/sessions?limit=":                                       400,
		"/api/users/default/sessions?limit=99999999999999999999":                   400,
		"/api/users/default/memory/audit?after=x":                                  400,
		"/api/users?x=1":                                                           400,
		"/api/users/default/memory/%FF":                                            400,
		"/api/users/default/memory/%20":                                            400,
		"/api/users/default/memory/%00":                                            400,
		"/api/users/default/memory/" + strings.Repeat("x", 10_000):                 400,
		"/api/users/default/memory/" + strings.Repeat("%F0%9F%90%88", 10_000):      400,
		"/api/users/default/agents/nobody/memory":                                  404,
		"/api/users/default/agents/" + s.anna.ID.String() + "/memory":              404,
		"/api/agents/nobody":                                                       404,
		"/api/agents/..":                                                           404,
		"/api/users/" + memory.NewID[memory.UserID]().String() + "/memory":         404,
		"/api/users/default/sessions/" + memory.NewID[memory.SessionID]().String(): 404,
		"/api/users/default/sessions/" + memory.NewID[memory.SessionID]().String() + "/context": 404,
		"/api/users/default/memory/":           404,
		"/api/users/default/memory/a/b":        404,
		"/api/users/default//memory":           404,
		"/api//users":                          404,
		"/api/users/default/../default/memory": 404,
		"/api":                                 404,
		"/":                                    404,
	} {
		s.want(status, request{method: "GET", path: path, token: s.admin})
	}
	for target, allowed := range map[string]string{
		"DELETE /api/users":                       "GET, HEAD",
		"POST /api/users/default":                 "DELETE",
		"PATCH /api/users/default/memory/cats":    "DELETE, GET, HEAD, PUT",
		"PUT /api/users/default/memory/audit":     "GET, HEAD",
		"DELETE /api/users/default/memory/export": "GET, HEAD",
		"GET /api/users/default/memory/import":    "POST",
		"GET /api/users/default/chat":             "POST",
		"OPTIONS /api/users":                      "GET, HEAD",
		"PUT /healthz":                            "GET, HEAD",
	} {
		method, path, _ := strings.Cut(target, " ")
		body := any(nil)
		if method == "PUT" {
			body = `{"content":"x"}`
		}
		if a := s.want(http.StatusMethodNotAllowed, request{method: method, path: path, token: s.admin, body: body}); a.header.Get("Allow") != allowed {
			t.Errorf("%s: Allow: %q, want %q", target, a.header.Get("Allow"), allowed)
		}
	}
}

// U6: a request that a browser sends for another site, or to a name that was made
// to resolve to this machine, is refused.
func TestForeignSites(t *testing.T) {
	s := serve(t, func(up *setup) { up.control.Hosts = []string{"Glovebox.example.com", "box:8443"} })
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	for host, status := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LOCALHOST:" + port: 200, "[::1]:" + port: 200, "[::ffff:7f00:1]:" + port: 200,
		"glovebox.example.com": 200, "glovebox.example.com:443": 200, "GLOVEBOX.example.com:1": 200, "box:8443": 200,
		"127.0.0.1": 421, "localhost": 421, "localhost:1": 421, "box": 421, "box:443": 421, "evil.example": 421, "evil.example:" + port: 421,
		"127.0.0.1.evil.example:" + port: 421, "localhost.:" + port: 421, "127.1:" + port: 421, "2130706433:" + port: 421, "0.0.0.0:" + port: 421,
		"192.168.0.1:" + port: 421, "glovebox.example.com.evil.example": 421, "[::ffff:c000:201]:" + port: 421,
	} {
		for _, path := range []string{"/api/users", "/healthz", "/nothing"} {
			want := status
			if path == "/nothing" && status == 200 {
				want = 404
			}
			if a := s.do(request{method: "GET", path: path, token: s.admin, host: host}); a.status != want {
				t.Errorf("Host: %s: GET %s: %v, want %d", host, path, a, want)
			}
		}
	}
	own := "http://" + s.address
	for _, test := range []struct {
		header map[string]string
		// what a request that reads, and one that changes something, is answered
		read, change int
	}{
		{nil, 200, 200},
		{map[string]string{"Origin": own}, 200, 200},
		{map[string]string{"Origin": own, "Sec-Fetch-Site": "same-origin"}, 200, 200},
		{map[string]string{"Sec-Fetch-Site": "none"}, 200, 200},
		{map[string]string{"Origin": "null"}, 403, 403},
		{map[string]string{"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 403, 403},
		{map[string]string{"Origin": "http://evil.example"}, 403, 403},
		{map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 403, 403},
		{map[string]string{"Origin": "http://127.0.0.1:1"}, 403, 403},
		{map[string]string{"Origin": "file://" + s.address}, 403, 403},
		{map[string]string{"Origin": "moz-extension://" + s.address}, 403, 403},
		{map[string]string{"Origin": ""}, 403, 403},
		{map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, 403},
		{map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": own}, 403, 403},
		// Another port of localhost is the same site, and may not change anything.
		{map[string]string{"Sec-Fetch-Site": "same-site"}, 200, 403},
	} {
		s.want(test.read, request{method: "GET", path: "/api/users", token: s.admin, header: test.header})
		s.want(test.change, request{method: "PATCH", path: "/api/agents/plain/config", token: s.admin, header: test.header, body: `{"memory_system":null}`})
		s.want(test.change, request{method: "POST", path: "/api/users/default/chat", token: s.admin, header: test.header, body: `{"text":"x"}`})
	}
	// Of two origins one is not this server's, or somebody plays with what is read.
	r := s.build(t.Context(), request{method: "GET", path: "/api/users", token: s.admin})
	r.Header["Origin"] = []string{own, "http://evil.example"}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("two origins: status %d", response.StatusCode)
	}
}

// While no token was ever made, a server on loopback lets in whoever is there, but
// not what a proxy passes on; the first token ends that, and no revocation brings
// it back.
func TestOpenUntilTheFirstToken(t *testing.T) {
	s := serve(t, func(up *setup) { up.tokenless, up.control.Open = true, true })
	users := request{method: "GET", path: "/api/users"}
	s.want(http.StatusOK, users)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "Via"} {
		s.want(http.StatusUnauthorized, request{method: "GET", path: "/api/users", header: map[string]string{name: "for=192.0.2.1"}})
	}
	s.want(http.StatusUnauthorized, request{method: "GET", path: "/api/users", token: "wrong"})
	s.want(http.StatusForbidden, request{method: "GET", path: "/api/users", header: map[string]string{"Origin": "http://evil.example"}})
	s.want(http.StatusMisdirectedRequest, request{method: "GET", path: "/api/users", host: "evil.example"})

	// Another process makes one.
	elsewhere, err := control.OpenTokens(s.path)
	if err != nil {
		t.Fatal(err)
	}
	secret, token, err := elsewhere.Create(s.anna.ID, control.ScopeAdmin, monday)
	if err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusUnauthorized, users)
	users.token = secret
	s.want(http.StatusOK, users)
	if err := elsewhere.Revoke(token.ID); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusUnauthorized, users)
	users.token = ""
	s.want(http.StatusUnauthorized, users)
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusUnauthorized, users)
}

// Without Open nobody gets in without a token, made or not.
func TestClosedWithoutTokens(t *testing.T) {
	s := serve(t, func(up *setup) { up.tokenless = true })
	s.want(http.StatusUnauthorized, request{method: "GET", path: "/api/users"})
}

// A token that is made or revoked by another process holds at once, and a file of
// tokens that is damaged lets nobody in.
func TestTokensOfARunningServer(t *testing.T) {
	s := serve(t)
	elsewhere, err := control.OpenTokens(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		secret, token, err := elsewhere.Create(s.bert.ID, control.UserScope(s.bert.ID), monday)
		if err != nil {
			t.Fatal(err)
		}
		mine := request{method: "GET", path: "/api/users/" + s.bert.ID.String() + "/sessions", token: secret}
		s.want(http.StatusOK, mine)
		if err := elsewhere.Revoke(token.ID); err != nil {
			t.Fatal(err)
		}
		s.want(http.StatusUnauthorized, mine)
	}
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"", "{", string(whole[:len(whole)/2]), "null", "[]", "{}", string(whole) + "x"} {
		if err := os.WriteFile(s.path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := s.want(http.StatusServiceUnavailable, request{method: "GET", path: "/api/users", token: s.admin}); !strings.Contains(a.body, "tokens cannot be read") {
			t.Errorf("%v does not say why", a)
		}
		s.want(http.StatusServiceUnavailable, request{method: "GET", path: "/api/users"})
	}
	if err := os.WriteFile(s.path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusOK, request{method: "GET", path: "/api/users", token: s.admin})
}

func TestHeadersOfAnswers(t *testing.T) {
	s := serve(t)
	for path, token := range map[string]string{"/api/users": s.admin, "/api/agents": "", "/healthz": "", "/nothing": s.admin} {
		a := s.do(request{method: "GET", path: path, token: token})
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer"} {
			if a.header.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, a.header.Get(name), want)
			}
		}
		if !strings.Contains(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy", path)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s", path, name)
			}
		}
	}
}

// Serve ends when its context does, and says why it cannot begin.
func TestServeEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	entered, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		w.WriteHeader(http.StatusNoContent)
	})
	ended := make(chan error, 1)
	go func() { ended <- control.Serve(ctx, listener, handler, nil) }()
	answered := make(chan int, 1)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	<-entered
	stop()
	// What is being answered is waited for.
	select {
	case err := <-ended:
		t.Fatalf("Serve returned %v while a request was being answered", err)
	default:
	}
	close(release)
	if status := <-answered; status != http.StatusNoContent {
		t.Errorf("status %d", status)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := control.Serve(t.Context(), listener, handler, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a closed listener was served")
	}
}
