package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// A server whose model's server is itself says so at the first request, instead of
// asking itself until memory ends.
func TestLoop(t *testing.T) {
	var itself, token atomic.Pointer[string]
	var asked atomic.Int32
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		asked.Add(1)
		to, err := url.Parse(*itself.Load())
		if err != nil {
			t.Error(err)
		}
		r.SetURL(to)
		r.Out.Host = to.Host
		r.Out.Header.Set("Authorization", "Bearer "+*token.Load())
	}})
	defer proxy.Close()
	s := serveAt(t, proxy.URL)
	itself.Store(&s.url)
	token.Store(&s.byAnna)
	got := s.send("POST", "/v1/chat/completions", `{"model":"jeeves","messages":[{"role":"user","content":"Hello."}]}`)
	if got.status != http.StatusLoopDetected || !strings.Contains(got.body, "loop_detected") || asked.Load() != 1 {
		t.Errorf("got %v after %d requests", got, asked.Load())
	}
}
