package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	hand "github.com/gloveboxhq/glovebox/sdk/go/hand/http"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http/transport"
)

var client = &http.Client{Transport: transport.RoundTripper{}}

func TestClient(t *testing.T) {
	var got hand.Request
	answer := hand.Response{Status: 201, URL: "https://a.example/last", Header: hand.Header{{"X-A", "1"}, {"X-A", "2"}}, Body: []byte("hello")}
	ctx := hand.WithFetcher(t.Context(), func(_ context.Context, r hand.Request) (hand.Response, error) {
		got = r
		return answer, nil
	})
	request, err := http.NewRequestWithContext(ctx, "POST", "https://a.example/first?q=1#part", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-B", "3")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "hello" || response.StatusCode != 201 || response.Status != "201 Created" || response.ContentLength != 5 {
		t.Errorf("%q, %v, %+v", body, err, response)
	}
	if response.Request.URL.Path != "/last" || len(response.Header["X-A"]) != 2 {
		t.Errorf("%v %v", response.Request.URL, response.Header)
	}
	if got.Method != "POST" || got.URL != "https://a.example/first?q=1" || string(got.Body) != "body" || got.Header.Get("X-B") != "3" {
		t.Errorf("%+v", got)
	}

	answer.Truncated = true
	request, _ = http.NewRequestWithContext(ctx, "GET", "https://a.example/", nil)
	response, err = client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "hello" || !errors.Is(err, abi.KindTooLarge) {
		t.Errorf("truncated: %q, %v", body, err)
	}
	request, _ = http.NewRequestWithContext(ctx, "GET", "https://a.example/", nil)
	request.Host = "internal"
	if _, err := client.Do(request); !errors.Is(err, abi.KindDenied) {
		t.Errorf("another host: %v", err)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	_, err := client.Get("https://a.example/")
	if _, ok := errors.AsType[*url.Error](err); !ok || !errors.Is(err, abi.KindDisabled) {
		t.Errorf("%v", err)
	}
}
