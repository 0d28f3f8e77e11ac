package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// lines passes on what is written, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// The log says of each request which route it took, in the server's words and not in
// the client's, and nothing of what was said.
func TestRoutesInTheLog(t *testing.T) {
	const secret = "the key lies under the doormat"
	log := make(lines, 100)
	s := serve(t, func(up *setup) { up.log = log })
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/v1/models", "", `route="GET /v1/models" status=200`},
		{"GET", "/v1/models/" + "jeeves", "", `route="GET /v1/models/{model...}" status=200`},
		{"POST", "/v1/chat/completions", `{"model":"jeeves","messages":[{"role":"user","content":"` + secret + `"}]}`, `route="POST /v1/chat/completions" status=200`},
		{"POST", "/v1/responses", `{"model":"jeeves","input":"` + secret + `"}`, `route="POST /v1/responses" status=200`},
		{"GET", "/v1/responses/" + secret[4:7], "", `route="GET /v1/responses/{id}" status=404`},
		{"POST", "/v1/messages", `{"model":"jeeves","max_tokens":9,"messages":[{"role":"user","content":"` + secret + `"}]}`, `route="POST /v1/messages" status=200`},
		{"POST", "/v1/messages/count_tokens", `{"model":"jeeves","messages":[{"role":"user","content":"` + secret + `"}]}`, `route="POST /v1/messages/count_tokens" status=200`},
		{"POST", "/v1/nothing/of/" + secret[4:7], "", `route=/v1/ status=404`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, s.url+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.byAnna)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		line := ""
		for !strings.Contains(line, "msg=request ") {
			line = <-log
			if strings.Contains(line, "doormat") || strings.Contains(line, s.byAnna) {
				t.Errorf("it says what was said: %s", line)
			}
		}
		if !strings.Contains(line, test.want) || !strings.Contains(line, "request_id="+response.Header.Get("X-Request-Id")) {
			t.Errorf("%s %s: no %s in %s", test.method, test.path, test.want, line)
		}
	}
}
