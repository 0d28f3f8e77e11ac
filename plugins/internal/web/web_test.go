package web_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/plugins/internal/web"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

var noon = time.Date(2026, time.March, 23, 12, 0, 0, 0, time.UTC)

// TestGet: the requests of a client end within its time, and what failed is said
// in words and can be told by its kind.
func TestGet(t *testing.T) {
	clock := noon
	client := web.NewClient(10*time.Second, func() time.Time { return clock })
	var response http.Response
	var failure error
	var waited time.Duration
	ctx := http.WithFetcher(t.Context(), func(_ context.Context, r http.Request) (http.Response, error) {
		if r.URL != "https://a.example/" || r.Header.Get("Accept") != "x" {
			t.Errorf("asked for %+v", r)
		}
		waited = r.Timeout
		return response, failure
	})
	get := func() error {
		_, err := client.Get(ctx, "https://a.example/", http.Header{{"Accept", "x"}})
		return err
	}
	for status, want := range map[int]string{200: "", 204: "", 199: "199", 304: "304 Not Modified", 404: "404 Not Found", 503: "503 Service Unavailable", 700: "700"} {
		response.Status = status
		err := get()
		if is := (*web.StatusError)(nil); (err == nil) != (want == "") || err != nil && (!errors.As(err, &is) || is.Status != status || err.Error() != want) {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
	}
	for kind, want := range map[abi.Kind]string{
		abi.KindDenied: "not allowed: add it", abi.KindTimeout: "no answer in 8s", abi.KindQuotaExceeded: "http_requests", abi.KindTooManyCalls: "see calls",
		abi.KindUnavailable: "no connection", abi.KindBadRequest: "no well-formed", abi.KindTooLarge: "too large", abi.KindNotGranted: "not granted",
	} {
		failure = fmt.Errorf("fetch: %w", kind)
		if err := get(); !errors.Is(err, kind) || !strings.Contains(err.Error(), want) || len([]rune(err.Error())) > 80 {
			t.Errorf("%s: %v, want %q", kind, err, want)
		}
	}
	if failure = nil; waited != 8*time.Second {
		t.Errorf("one request may take %v", waited)
	}
	clock = noon.Add(7 * time.Second)
	if response.Status = 200; get() != nil || waited != 3*time.Second {
		t.Errorf("the last may take %v", waited)
	}
	if clock = noon.Add(10 * time.Second); !errors.Is(get(), web.ErrNoTime) {
		t.Errorf("after the time: %v", get())
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Time{
		"90": noon.Add(90 * time.Second), " 0 ": noon, "Mon, 23 Mar 2026 13:00:00 GMT": noon.Add(time.Hour),
		"": {}, "soon": {}, "-1": {}, "1.5": {}, "99999999999999999999": {}, "Mon, 23 Mar 2026 13:00:00": {},
	} {
		e := web.StatusError{Status: 429, Header: http.Header{{"retry-after", text}}}
		if got, ok := e.RetryAfter(noon); ok != !want.IsZero() || ok && !got.Equal(want) {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
	}
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		" https://a.example/x?y=1#z ": "https://a.example/x?y=1", "http://10.0.0.5:8080": "http://10.0.0.5:8080",
		"": "", "a.example": "", "feed://a.example/": "", "https:///x": "", "https://me@a.example/": "", "https://a.example:port/": "", "javascript:alert(1)": "",
	} {
		u, err := web.ParseURL(text)
		if (err == nil) != (want != "") || err == nil && u.String() != want {
			t.Errorf("%q is %v, %v", text, u, err)
		}
	}
}
