package control_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/memory"
)

// escaped writes any bytes as one segment of a path.
func escaped(segment string) string {
	return strings.ReplaceAll(url.PathEscape(segment), ".", "%2E")
}

// Whatever a topic's name is made of, it is one segment of the path: it reaches the
// store as TopicName has it, or is refused for what it is, and never taken for
// another route.
func TestAnyTopicIsOneSegment(t *testing.T) {
	s := serve(t)
	name := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("/.%?#&=+;: \\\x00\x7f\u0301éÅ🐈\u200d{}\"'<>"))), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }), rapid.StringN(150, 400, -1))
	rapid.Check(t, func(rt *rapid.T) {
		name := name.Draw(rt, "name")
		if name == "" {
			return
		}
		// Of one agent's memory every segment is a topic.
		a := s.do(request{method: "GET", path: "/api/users/default/agents/plain/memory/" + escaped(name), token: s.byAnna})
		status, says := http.StatusNotFound, "nothing is remembered of that topic"
		if _, err := memory.TopicName(name); err != nil || !utf8.ValidString(name) {
			status, says = http.StatusBadRequest, "topic"
		}
		if a.status != status || !strings.Contains(a.body, says) {
			rt.Errorf("%q: %v, want %d", name, a, status)
		}
	})
}

// Whatever a path is, it is answered with an answer of the interface: no redirect,
// no page, nothing from inside.
func TestAnyPathIsAnswered(t *testing.T) {
	s := serve(t)
	segment := rapid.OneOf(rapid.SampledFrom([]string{
		"", ".", "..", "%2e", "%2F", "api", "users", "default", "agents", "jeeves", "memory", "audit", "export", "import", "sessions", "context", "chat", "config", "status", "healthz", "openapi.json",
		s.anna.ID.String(), s.bert.ID.String(), "00000000-0000-0000-0000-000000000000", "cats", ";", "*", "{user}",
	}), rapid.Map(rapid.String(), escaped))
	method := rapid.SampledFrom([]string{"GET", "HEAD", "PUT", "PATCH", "POST", "OPTIONS", "TRACE", "PROPFIND"})
	rapid.Check(t, func(rt *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(segment, 0, 8).Draw(rt, "segments"), "/")
		if rapid.Bool().Draw(rt, "known") {
			path = "/api/users" + path
		}
		r := request{method: method.Draw(rt, "method"), path: path, token: s.byAnna}
		a, err := s.try(r)
		if err != nil {
			rt.Fatal(err)
		}
		switch a.status {
		case 200, 400, 403, 404, 405, 415:
		default:
			rt.Errorf("%s %s: %v", r.method, r.path, a)
		}
		if strings.Contains(path, s.bert.ID.String()) && a.status == 200 {
			rt.Errorf("%s %s: %v", r.method, r.path, a)
		}
		if err := document.check(r, a); err != nil && r.method != "HEAD" {
			rt.Errorf("%s %s: %v: %v", r.method, r.path, a, err)
		}
	})
}
