package llm_test

import (
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
)

func TestValidImage(t *testing.T) {
	for name, test := range map[string]struct {
		image llm.Image
		want  bool
	}{
		"data":                 {llm.Image{MediaType: "image/png", Data: []byte("x")}, true},
		"webp":                 {llm.Image{MediaType: "image/webp", Data: []byte("x"), At: 3}, true},
		"an address":           {llm.Image{URL: "https://example.com/a.png?b=c"}, true},
		"nothing":              {llm.Image{}, false},
		"no data":              {llm.Image{MediaType: "image/png"}, false},
		"no type":              {llm.Image{Data: []byte("x")}, false},
		"a program":            {llm.Image{MediaType: "image/svg+xml", Data: []byte("x")}, false},
		"a type with more":     {llm.Image{MediaType: "image/png;base64,x", Data: []byte("x")}, false},
		"both":                 {llm.Image{MediaType: "image/png", Data: []byte("x"), URL: "https://example.com/"}, false},
		"a type at an address": {llm.Image{MediaType: "image/png", URL: "https://example.com/"}, false},
		"a file":               {llm.Image{URL: "file:///etc/passwd"}, false},
		"data as an address":   {llm.Image{URL: "data:image/png;base64,eA=="}, false},
		"no host":              {llm.Image{URL: "https:///a.png"}, false},
		"no URL":               {llm.Image{URL: "https://example.com/\n"}, false},
		"no UTF-8":             {llm.Image{URL: "https://example.com/\xff"}, false},
		"too long":             {llm.Image{URL: "https://example.com/" + strings.Repeat("a", 8<<10)}, false},
	} {
		if got := llm.ValidImage(test.image); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// A picture costs the same whatever its size.
func TestImagesAreCounted(t *testing.T) {
	with := func(images ...llm.Image) int {
		return llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Text: "Look.", Images: images}}}.Tokens()
	}
	small, large := llm.Image{MediaType: "image/png", Data: []byte("x")}, llm.Image{MediaType: "image/png", Data: make([]byte, 1<<20)}
	if got, want := with(small, large, llm.Image{URL: "https://example.com/a.png"}), with()+3*llm.ImageTokens; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
