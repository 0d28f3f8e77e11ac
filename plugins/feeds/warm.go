package main

import (
	"context"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

func init() { hand.Warm(warm) }

const (
	sampleRSS = `<?xml version="1.0" encoding="UTF-8"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>A sample</title>
<item><title>An &amp;amp; item</title><link>https://a.example/1</link><pubDate>Sat, 01 Jan 2000 09:00:00 +0100</pubDate><description><![CDATA[<p>Words <b>in</b> HTML</p>]]></description></item>
</channel></rss>`
	sampleAtom = `<feed xmlns="http://www.w3.org/2005/Atom"><title>A sample</title><entry><title type="html">An item</title><link href="/1"/><id>1</id>
<published>2000-01-01T09:00:00Z</published><updated>2000-01-01T10:00:00Z</updated><summary type="html">&lt;p&gt;Words&lt;/p&gt;</summary></entry></feed>`
	sampleJSON = `{"version": "https://jsonfeed.org/version/1.1", "title": "A sample", "items": [
{"id": "1", "url": "https://a.example/2", "title": "An item", "content_html": "<p>Words</p>", "date_published": "2000-01-01T09:00:00Z"}]}`
)

// warm answers from a feed of each kind: what the libraries do first is many
// times what they do next.
func warm() {
	ctx := http.WithFetcher(context.Background(), func(_ context.Context, r http.Request) (http.Response, error) {
		response := http.Response{Status: 200, URL: r.URL, Header: http.Header{{"Content-Type", "application/xml; charset=utf-8"}}, Body: []byte(sampleRSS)}
		switch {
		case strings.HasSuffix(r.URL, "atom"):
			response.Body = []byte(sampleAtom)
		case strings.HasSuffix(r.URL, "json"):
			response.Header, response.Body = http.Header{{"Content-Type", "application/json"}}, []byte(sampleJSON)
		}
		return response, nil
	})
	from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	q := hand.Query{From: from, To: from.Add(24 * time.Hour), Now: from.Add(24 * time.Hour), Location: time.UTC, MaxOutputTokens: 1_000,
		Config: map[string]any{"urls": []string{"https://a.example/rss", "https://a.example/atom", "https://a.example/json"}}}
	if _, err := answer(ctx, q); err != nil {
		panic(err)
	}
}
