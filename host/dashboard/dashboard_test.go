package dashboard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/dashboard"
	"github.com/gloveboxhq/glovebox/memory"
)

var monday = time.Date(2030, 1, 7, 9, 0, 0, 0, time.UTC)

// house is a host with its server, as serve makes them.
type house struct {
	*httptest.Server
	host   *host.Host
	tokens *control.Tokens
	logins *control.Logins
	now    time.Time
}

func open(t testing.TB, config host.Config) *house {
	t.Helper()
	dir := t.TempDir()
	config.Store.Path = filepath.Join(dir, "glovebox.db")
	h := &house{now: monday}
	clock := func() time.Time { return h.now }
	if config.Now == nil {
		config.Now = clock
	}
	var err error
	if h.host, err = host.New(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.host.Close(); err != nil {
			t.Error(err)
		}
	})
	if h.tokens, err = control.OpenTokens(filepath.Join(dir, "tokens.json")); err != nil {
		t.Fatal(err)
	}
	h.logins = control.NewLogins(h.tokens, clock)
	h.Server = httptest.NewServer(control.New(control.Config{
		Host: h.host, HostConfig: config, Tokens: h.tokens, Open: true, Now: clock, Logins: h.logins,
		Mounts: dashboard.Mounts(dashboard.Config{Host: h.host, HostConfig: config, Logins: h.logins, Version: "v0.0.0-test", Now: clock}),
	}))
	t.Cleanup(h.Server.Close)
	h.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h
}

// user returns the id of a configured user.
func (h *house) user(t testing.TB, name string) memory.UserID {
	t.Helper()
	u, err := h.host.User(name)
	if err != nil {
		t.Fatal(err)
	}
	return u.ID
}

func TestPagesOpen(t *testing.T) {
	h := open(t, host.Config{})
	for _, path := range []string{"/", "/hands", "/agents", "/users", "/login"} {
		res, err := h.Client().Get(h.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, res.StatusCode, b)
		}
	}
}
