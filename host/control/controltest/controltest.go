// Package controltest gives a test a working system: a real host with two users,
// tokens, and a server on loopback with the door of package control before all that
// is mounted, as glovebox serve has it.
package controltest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

var cache string

// Main is the TestMain of a package whose tests start hosts: it runs them with a
// folder for compiled modules that they share, removes it, and ends the process.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "glovebox-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cache = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Cache is the folder that Main made; without Main it is empty.
func Cache() string { return cache }

// Clock is the time of a test. It is safe for concurrent use.
type Clock struct {
	step time.Duration

	mu sync.Mutex
	at time.Time // guarded by mu
}

// NewClock makes a clock that shows at, and goes on by step before each look, which
// may be zero.
func NewClock(at time.Time, step time.Duration) *Clock { return &Clock{step: step, at: at} }

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(c.step)
	return c.at
}

// Move puts the clock forward.
func (c *Clock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// System is a host, and what stands before it once Serve was called. All of it ends
// with the test that it was started for.
type System struct {
	t testing.TB

	Host *host.Host
	// Config is what the host was started with.
	Config host.Config
	// Tokens is empty, and kept in the file TokensPath.
	Tokens     *control.Tokens
	TokensPath string
	// Anna is the default user.
	Anna, Bert memory.User

	// Handler is the door, with everything behind it, and URL where it is served,
	// without a path. Stop ends the server, and waits until it has ended; a second call
	// does nothing. They are set by Serve.
	Handler http.Handler
	URL     string
	Stop    func()
}

// Start starts a host. Data, Cache and Users, if they are empty, become a folder of
// the test, that of Main, and the users anna, who is the default one, and bert; other
// Users must have both.
func Start(t testing.TB, config host.Config) *System {
	t.Helper()
	if config.Data == "" {
		config.Data = t.TempDir()
	}
	if config.Cache == "" {
		config.Cache = cache
	}
	if config.Users == nil {
		config.Users = []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}}
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	h, err := host.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &System{t: t, Host: h, Config: config, TokensPath: filepath.Join(config.Data, "tokens.json")}
	if s.Tokens, err = control.OpenTokens(s.TokensPath); err != nil {
		t.Fatal(err)
	}
	if s.Anna, err = h.User("anna"); err != nil {
		t.Fatal(err)
	}
	if s.Bert, err = h.User("bert"); err != nil {
		t.Fatal(err)
	}
	return s
}

// Admin makes a token of a user who may do everything, and returns its secret.
func (s *System) Admin(user memory.User) string { return s.token(user, control.ScopeAdmin) }

// Own makes a token of a user for what is theirs, and returns its secret.
func (s *System) Own(user memory.User) string { return s.token(user, control.UserScope(user.ID)) }

func (s *System) token(user memory.User, scope control.Scope) string {
	s.t.Helper()
	secret, _, err := s.Tokens.Create(user.ID, scope, s.Config.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// Serve sets in c what it has of the host and the tokens, and the clock, the log and
// Ending if they are nil; then it serves that on loopback until Stop.
func (s *System) Serve(c control.Config) {
	s.t.Helper()
	ending, end := context.WithCancel(context.WithoutCancel(s.t.Context()))
	c.Host, c.HostConfig, c.Tokens = s.Host, s.Config, s.Tokens
	if c.Now == nil {
		c.Now = s.Config.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	}
	if c.Ending == nil {
		c.Ending = ending
	}
	s.Handler = control.New(c)
	s.URL, s.Stop = serve(s.t, ending, end, s.Handler, c.Log)
}

// Listen serves a handler on loopback as glovebox serve does, until the test ends,
// and returns its URL.
func Listen(t testing.TB, handler http.Handler, log *slog.Logger) string {
	t.Helper()
	ending, end := context.WithCancel(context.WithoutCancel(t.Context()))
	url, _ := serve(t, ending, end, handler, log)
	return url
}

func serve(t testing.TB, ending context.Context, end context.CancelFunc, handler http.Handler, log *slog.Logger) (url string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- control.Serve(ending, listener, handler, log) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return "http://" + listener.Addr().String(), stop
}
