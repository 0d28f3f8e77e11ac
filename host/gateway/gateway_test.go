package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

func TestMain(m *testing.M) { controltest.Main(m) }

var monday = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// system is a host with a server on loopback, and the model's server behind it.
type system struct {
	t      testing.TB
	host   *host.Host
	script *openaitest.Script
	// url is that of the server, without a path.
	url  string
	anna memory.User
	bert memory.User
	// secrets
	byAnna, byBert string
}

// setup is what a system is started with.
type setup struct {
	host   host.Config
	script *openaitest.Script
	log    io.Writer
}

// serve starts a host whose model is a server that answers by a script, and serves
// its gateway on loopback with a token for each of anna, the default user, and bert.
func serve(t testing.TB, options ...func(*setup)) *system {
	t.Helper()
	up := setup{script: openaitest.NewScript(t).Otherwise(openaitest.Text("Noted.")), log: t.Output()}
	up.host = host.Config{
		Model:  host.ModelConfig{Provider: "openai", Name: "scripted", APIKey: "env:GATEWAY_TEST_KEY"},
		Agents: []host.AgentConfig{{Name: "jeeves", SystemPrompt: "You are Jeeves."}, {Name: "plain"}},
	}
	for _, change := range options {
		change(&up)
	}
	if up.host.Model.BaseURL == "" {
		model := httptest.NewServer(up.script)
		t.Cleanup(model.Close)
		up.host.Model.BaseURL = model.URL + "/v1"
	}
	t.Setenv("GATEWAY_TEST_KEY", openaitest.Key)

	s := inFrontOf(t, up.host, slog.New(slog.NewTextHandler(up.log, nil)))
	s.script = up.script
	return s
}

// inFrontOf serves the gateway of a host.
func inFrontOf(t testing.TB, config host.Config, log *slog.Logger) *system {
	t.Helper()
	config.Now = controltest.NewClock(monday, time.Second).Now
	started := controltest.Start(t, config)
	handler := gateway.New(gateway.Config{
		Host: started.Host, HostConfig: started.Config, Now: config.Now, Log: log,
		User: func(ctx context.Context) memory.UserID { return control.CallerOf(ctx).User },
	})
	started.Serve(control.Config{
		Log: log, Meter: config.Meter, Tracer: config.Tracer, Mounts: []control.Mount{{Patterns: gateway.Patterns, Access: control.ForUser, Handler: handler, Refuse: gateway.Refuse}},
	})
	return &system{
		t: t, host: started.Host, url: started.URL, anna: started.Anna, bert: started.Bert,
		byAnna: started.Own(started.Anna), byBert: started.Own(started.Bert),
	}
}

// serveAt is serve with the model's server at another URL.
func serveAt(t testing.TB, url string) *system {
	return serve(t, func(up *setup) { up.host.Model.BaseURL = url + "/v1" })
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %.500s", a.status, a.body) }

// into decodes the body.
func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v is not JSON of that form: %v", a, err)
	}
}

// send sends a body, as it is if it is a string, else as JSON, with anna's token.
// Headers follow as names and values.
func (s *system) send(method, path string, body any, headers ...string) answer {
	s.t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		content = strings.NewReader(string(encoded))
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+s.byAnna)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(all)}
}

// fault is an error as OpenAI's clients read it.
type fault struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// failed holds an answer against the form of OpenAI's errors and a status.
func (a answer) failed(t testing.TB, status int) (message, kind, param, code string) {
	t.Helper()
	var f fault
	a.into(t, &f)
	if a.status != status || f.Error.Message == "" || f.Error.Type == "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v (%s), want %d and an error", a, a.header.Get("Content-Type"), status)
	}
	value := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	return f.Error.Message, f.Error.Type, value(f.Error.Param), value(f.Error.Code)
}

// U3: every model that a request may name is listed, for clients of both providers,
// and nothing else is found.
func TestModels(t *testing.T) {
	s := serve(t)
	var list struct {
		Object string
		Data   []struct {
			ID, Object, Type string
			Created          *int64
		}
		HasMore *bool `json:"has_more"`
	}
	a := s.send("GET", "/v1/models", nil)
	a.into(t, &list)
	var names []string
	for _, m := range list.Data {
		if names = append(names, m.ID); m.Object != "model" || m.Type != "model" || m.Created == nil {
			t.Errorf("model %+v", m)
		}
	}
	if got := strings.Join(names, " "); got != "jeeves plain scripted" || list.Object != "list" || list.HasMore == nil {
		t.Errorf("models %q in %v", got, a)
	}
	for _, name := range names {
		if a := s.send("GET", "/v1/models/"+name, nil); a.status != http.StatusOK || !strings.Contains(a.body, `"id":"`+name+`"`) {
			t.Errorf("%s: %v", name, a)
		}
	}
	for _, path := range []string{"nobody", "nobody/else", "jeeves%00", "%2e%2e", "Jeeves"} {
		if _, _, _, code := s.send("GET", "/v1/models/"+path, nil).failed(t, http.StatusNotFound); code != "model_not_found" {
			t.Errorf("%s: code %q", path, code)
		}
	}
	if a := s.send("GET", "/v1/models/nobody", nil, "Anthropic-Version", "2023-06-01"); a.status != http.StatusNotFound || !strings.Contains(a.body, `"type":"not_found_error"`) {
		t.Errorf("to a client of Anthropic's: %v", a)
	}
}

// U6: who is refused is told so in the form of the API that was called.
func TestRefused(t *testing.T) {
	s := serve(t)
	body := map[string]any{"model": "jeeves", "messages": []any{map[string]any{"role": "user", "content": "Hello."}}}
	for _, test := range []struct {
		name          string
		method, path  string
		status        int
		openAI, other string
		headers       []string
	}{
		{"no token", "POST", "/v1/chat/completions", 401, "invalid_api_key", "", []string{"Authorization", ""}},
		{"a wrong token", "POST", "/v1/chat/completions", 401, "invalid_api_key", "", []string{"Authorization", "Bearer glovebox_wrong"}},
		{"a wrong token of Anthropic's client", "POST", "/v1/messages", 401, "", "authentication_error", []string{"Authorization", "", "X-Api-Key", "wrong"}},
		{"another site", "POST", "/v1/chat/completions", 403, "", "", []string{"Origin", "https://evil.example"}},
		{"an opaque origin", "POST", "/v1/messages", 403, "", "permission_error", []string{"Origin", "null"}},
		{"no such route", "POST", "/v1/completions", 404, "", "", nil},
		{"no such route of Anthropic's", "POST", "/v1/messages/batches", 404, "", "not_found_error", nil},
		{"a wrong method", "GET", "/v1/chat/completions", 405, "", "", nil},
		{"a wrong method for models", "DELETE", "/v1/models/jeeves", 405, "", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.send(test.method, test.path, body, test.headers...)
			if test.other != "" {
				if a.status != test.status || !strings.HasPrefix(a.body, `{"type":"error","error":{"type":"`+test.other+`","message":"`) {
					t.Errorf("%v", a)
				}
				return
			}
			if _, _, _, code := a.failed(t, test.status); code != test.openAI {
				t.Errorf("%v: code %q", a, code)
			}
		})
	}
	if n := len(s.script.Requests()); n != 0 {
		t.Errorf("%d requests came through to the model", n)
	}
}
