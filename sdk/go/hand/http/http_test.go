package http

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
)

func TestFetchGivenByATest(t *testing.T) {
	var got Request
	ctx := WithFetcher(t.Context(), func(_ context.Context, r Request) (Response, error) {
		got = r
		return Response{Status: 200, Header: Header{{"Content-Type", "text/plain"}}, Body: []byte("hello")}, nil
	})
	r, err := Fetch(ctx, Request{URL: "https://api.example.com/"})
	if err != nil || string(r.Body) != "hello" || r.Header.Get("content-type") != "text/plain" || r.Header.Get("absent") != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if got.Method != "GET" || got.Timeout != 0 {
		t.Errorf("%+v", got)
	}
	hour, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if _, err := Fetch(hour, Request{}); err != nil || got.Timeout <= 0 || got.Timeout > time.Hour {
		t.Errorf("timeout %v, %v", got.Timeout, err)
	}
	if _, err := Fetch(hour, Request{Timeout: time.Minute}); err != nil || got.Timeout != time.Minute {
		t.Errorf("timeout %v, %v", got.Timeout, err)
	}
	cancel()
	if _, err := Fetch(hour, Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Outside a hand there is no host to ask. How it behaves inside is tested with
// the host.
func TestFetchOutsideAHand(t *testing.T) {
	if _, err := Fetch(t.Context(), Request{URL: "https://api.example.com/"}); !errors.Is(err, abi.KindDisabled) || !strings.Contains(err.Error(), "https://api.example.com/") {
		t.Error(err)
	}
}

// ABI 2.2 and 2.4: the JSON stands on one line, whatever is in it, and the body
// follows as it is.
func TestWireForm(t *testing.T) {
	header := Header{{"X-A", "1\n2"}}
	header.Add("X-A", "3")
	data, err := encode(Request{Method: "POST", URL: "https://a/\n", Header: header, Body: []byte("\n\x00b\n"), Timeout: 1500 * time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	line, body, _ := strings.Cut(string(data), "\n")
	var request abi.HTTPFetchRequest
	if err := json.Unmarshal([]byte(line), &request); err != nil || body != "\n\x00b\n" || request.TimeoutMillis != 2 || len(request.Header) != 2 || request.Header[0][1] != "1\n2" {
		t.Errorf("%q: %+v, %v", data, request, err)
	}
	if data, err := encode(Request{Method: "GET"}); err != nil || strings.Contains(string(data), "\n") {
		t.Errorf("without a body: %q, %v", data, err)
	}
	if _, err := encode(Request{Timeout: -1}); !errors.Is(err, abi.KindTimeout) {
		t.Errorf("no time left: %v", err)
	}
	r, err := decode([]byte(`{"status":404,"url":"https://a/b","header":[["X-A","1"]],"truncated":true,"a field of tomorrow":1}` + "\n\nbody\n"))
	if err != nil || r.Status != 404 || r.URL != "https://a/b" || !r.Truncated || string(r.Body) != "\nbody\n" || r.Header.Get("x-a") != "1" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", `{"status":200}`, "\n", "not JSON\nbody"} {
		if _, err := decode([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
