package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/kv"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/llm"
)

// The whole of what it does is in testdata/abi/sample.json, which asks the module.
// This is how one tests a hand without building it.
func TestNatively(t *testing.T) {
	march := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	ctx := files.WithRoot(t.Context(), "docs", fstest.MapFS{"a.txt": {Data: []byte("A"), ModTime: march}, "b": {Data: []byte{0xff}, ModTime: march}})
	ctx = kv.WithStore(ctx, &kv.Memory{})
	ctx = http.WithFetcher(ctx, func(_ context.Context, r http.Request) (http.Response, error) {
		if r.URL != "https://sample.example/" {
			return http.Response{}, abi.KindDenied
		}
		return http.Response{Status: 201, Header: http.Header{{"x-answer", r.Header.Get("Content-Type")}}, Body: r.Body, Truncated: true}, nil
	})
	ctx = llm.WithModel(ctx, func(_ context.Context, r llm.Request) (llm.Response, error) {
		return llm.Response{Text: strings.ToUpper(r.Prompt), InputTokens: 3, OutputTokens: r.MaxOutputTokens}, nil
	})
	for prompt, want := range map[string]string{
		"":                                    "",
		"list":                                "file 1 2026-03-01T00:00:00Z a.txt\nfile 1 2026-03-01T00:00:00Z b",
		"list a.txt\nread a.txt\nread b":      "file 1 2026-03-01T00:00:00Z a.txt\nA\nerror: not text",
		"list absent\nsize b":                 "error: not_found\n1",
		"post https://sample.example/ words":  "201 text/plain words (cut)",
		"get https://other.example/":          "error: denied",
		"kv-set k  v\nkv-get k\nkv-list\nx":   "ok\n v\nk\nerror: unknown command x",
		"kv-delete k\nkv-get k\nlog info hey": "ok\nerror: not_found",
		"ask why":                             "WHY (3+64 tokens)",
		"config":                              "greeting=hi\nratio=-1/1000\nwords=a,b",
	} {
		q := hand.Query{Prompt: prompt, MaxOutputTokens: 100, Config: map[string]any{"greeting": "hi", "ratio": -0.0005, "words": []string{"a", "b"}}}
		if got, err := answer(ctx, q); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", prompt, got, err, want)
		}
	}
	var failed failure
	if _, err := answer(ctx, hand.Query{Prompt: "say a\nfail no ward", MaxOutputTokens: 100}); !errors.As(err, &failed) || failed != "no ward" {
		t.Errorf("got %v", err)
	}
}
