package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

func TestMain(m *testing.M) { controltest.Main(m) }

var monday = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// system is a host with a server on loopback.
type system struct {
	t       *testing.T
	host    *host.Host
	store   memory.Store
	script  *openaitest.Script
	clock   *controltest.Clock
	tokens  *control.Tokens
	path    string // of the tokens
	address string
	anna    memory.User
	bert    memory.User
	// secrets
	admin, byAnna, byBert string
}

// serve starts a host whose model is a server that answers by a script, and serves
// it on loopback with a token for each of anna, the default user, bert, and an
// operator. Options change what it is started with.
func serve(t *testing.T, options ...func(*setup)) *system {
	t.Helper()
	up := setup{clock: controltest.NewClock(monday, 0), script: openaitest.NewScript(t).Otherwise(openaitest.Text("Noted."))}
	up.host = host.Config{
		Data: t.TempDir(), Now: up.clock.Now,
		Model: host.ModelConfig{Provider: "openai", Name: "scripted", APIKey: "env:CONTROL_TEST_KEY"},
		Agents: []host.AgentConfig{
			{Name: "jeeves", SystemPrompt: "You are Jeeves.", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}, {Name: "plain"},
		},
	}
	for _, change := range options {
		change(&up)
	}
	model := httptest.NewServer(up.script)
	t.Cleanup(model.Close)
	up.host.Model.BaseURL = model.URL + "/v1"
	t.Setenv("CONTROL_TEST_KEY", openaitest.Key)

	started := controltest.Start(t, up.host)
	s := &system{
		t: t, host: started.Host, store: started.Host.Store(), script: up.script, clock: up.clock,
		tokens: started.Tokens, path: started.TokensPath, anna: started.Anna, bert: started.Bert,
	}
	if !up.tokenless {
		s.admin, s.byAnna, s.byBert = started.Admin(s.anna), started.Own(s.anna), started.Own(s.bert)
	}
	started.Serve(up.control)
	s.address = strings.TrimPrefix(started.URL, "http://")
	return s
}

// setup is what a system is started with.
type setup struct {
	host      host.Config
	control   control.Config
	script    *openaitest.Script
	clock     *controltest.Clock
	tokenless bool
}

// request is one call. A body that is no string is sent as JSON.
type request struct {
	method, path string
	body         any
	token        string
	header       map[string]string
	host         string
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// into decodes the body.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v is not JSON of that form: %v", a, err)
	}
}

// build makes the HTTP request.
func (s *system) build(ctx context.Context, r request) *http.Request {
	s.t.Helper()
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	case io.Reader:
		body = b
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		body = bytes.NewReader(encoded)
	}
	out, err := http.NewRequestWithContext(ctx, r.method, "http://"+s.address+r.path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		out.Header.Set("Authorization", "Bearer "+r.token)
	}
	for name, value := range r.header {
		out.Header.Set(name, value)
	}
	if r.host != "" {
		out.Host = r.host
	}
	return out
}

// client takes answers as they come: no redirect is followed, nothing is unpacked.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// do sends a request and holds its answer against the document of the interface.
func (s *system) do(r request) answer {
	s.t.Helper()
	a, err := s.try(r)
	if err != nil {
		s.t.Fatal(err)
	}
	document.hold(s.t, r, a)
	return a
}

func (s *system) try(r request) (answer, error) {
	response, err := client.Do(s.build(s.t.Context(), r))
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body)}, err
}

// want sends a request, fails unless it is answered with a status, and returns the
// answer.
func (s *system) want(status int, r request) answer {
	s.t.Helper()
	a := s.do(r)
	if a.status != status {
		s.t.Fatalf("%s %s: %v, want %d", r.method, shortened(r.path), a, status)
	}
	if status >= 400 {
		var p struct {
			Type, Title, Detail string
			Status              int
		}
		a.into(s.t, &p)
		if a.header.Get("Content-Type") != "application/problem+json" || p.Status != status || p.Title != http.StatusText(status) || p.Type != "about:blank" || p.Detail == "" {
			s.t.Errorf("%s %s: %v of %q is no problem", r.method, shortened(r.path), a, a.header.Get("Content-Type"))
		}
	}
	return a
}

func shortened(path string) string {
	if len(path) > 200 {
		return path[:200] + "…"
	}
	return path
}
