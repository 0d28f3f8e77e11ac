package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/tools/txtar"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/golden"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

// march23 is a query for 23 March 2026 in UTC, the day of most items here.
func march23(urls ...string) hand.Query {
	day := time.Date(2026, time.March, 23, 0, 0, 0, 0, time.UTC)
	return hand.Query{From: day, To: day.AddDate(0, 0, 1), Now: day.AddDate(0, 0, 1), Location: time.UTC, MaxOutputTokens: 2_000, Config: map[string]any{"urls": urls}}
}

// server answers with what it has under an address, as it stands on the wire.
type server map[string]string

func (s server) fetch(_ context.Context, r http.Request) (http.Response, error) {
	text, ok := s[r.URL]
	if !ok {
		return http.Response{}, fmt.Errorf("fetch %s: %w", r.URL, abi.KindDenied)
	}
	response, err := nethttp.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return http.Response{}, err
	}
	body, err := io.ReadAll(response.Body)
	answer := http.Response{Status: response.StatusCode, URL: r.URL, Body: body, Truncated: response.Header.Get("Truncated") != ""}
	for name := range response.Header {
		answer.Header.Add(name, response.Header.Get(name))
	}
	return answer, err
}

func ok(contentType, body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\n\r\n" + body
}

func query(t testing.TB, s server, q hand.Query) (string, error) {
	t.Helper()
	return answer(http.WithFetcher(t.Context(), s.fetch), q)
}

// TestReplies compares whole replies. An archive holds the zone, what servers
// answer under the addresses of urls, and the reply.
func TestReplies(t *testing.T) {
	golden.Replies(t, func(t *testing.T, files []txtar.File) string {
		s, q := server{}, march23()
		var urls []string
		for _, f := range files {
			switch {
			case strings.Contains(f.Name, "://"):
				s[f.Name] = string(f.Data)
				urls = append(urls, f.Name)
			case f.Name == "zone":
				var err error
				if q.Location, err = time.LoadLocation(strings.TrimSpace(string(f.Data))); err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatalf("unknown file %q", f.Name)
			}
		}
		q.Config["urls"] = urls
		got, err := query(t, s, q)
		if err != nil {
			t.Fatal(err)
		}
		return got
	})
}

func TestDates(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"2026-03-23T10:00:00Z":                             "2026-03-23T10:00:00Z",
		"2026-03-23T10:00:00.123456+01:00":                 "2026-03-23T09:00:00Z",
		"2026-03-23T10:00:00+0100":                         "2026-03-23T09:00:00Z",
		"2026-03-23T10:00-05":                              "2026-03-23T15:00:00Z",
		"2026-03-23T10:00:00":                              "2026-03-23T10:00:00Z",
		"2026-03-23 10:00:00":                              "2026-03-23T10:00:00Z",
		"2026-03-23 10:00:00 +0200 CEST":                   "2026-03-23T08:00:00Z",
		"2026/3/5 7:05":                                    "2026-03-05T07:05:00Z",
		"2026-03-23T24:00:00Z":                             "2026-03-24T00:00:00Z",
		"2026-03-23":                                       "day 2026-03-23",
		"20260323":                                         "day 2026-03-23",
		"2026-03":                                          "day 2026-03-01",
		"Mon, 23 Mar 2026 10:00:00 GMT":                    "2026-03-23T10:00:00Z",
		"Mon, 23 Mar 26 10:00:00 +0100":                    "2026-03-23T09:00:00Z",
		"23 Mar 99 10:00 UT":                               "1999-03-23T10:00:00Z",
		"Mon, 23 Mar 126 10:00:00 GMT":                     "2026-03-23T10:00:00Z",
		"Mon,23 Mar 2026 10:00:00 EST":                     "2026-03-23T15:00:00Z",
		"Monday, March 23, 2026 10:00 AM":                  "2026-03-23T10:00:00Z",
		"March 23rd, 2026 at 1:30 p.m. PDT":                "2026-03-23T20:30:00Z",
		"Mon, 23 March 2026 12:30am":                       "2026-03-23T00:30:00Z",
		"Thu, 23 Sept 2026 10:00:00 +0000":                 "2026-09-23T10:00:00Z",
		"Mon Mar 23 10:00:00 UTC 2026":                     "2026-03-23T10:00:00Z",
		"Mon Mar 23 10:00:00 2026":                         "2026-03-23T10:00:00Z",
		"23-Mar-2026 10:00":                                "2026-03-23T10:00:00Z",
		"23.03.2026 10:00":                                 "2026-03-23T10:00:00Z",
		"Mon, 23 Mar 2026 10:00:00 GMT+1":                  "2026-03-23T09:00:00Z",
		"Mon, 23 Mar 2026 10:00:00 CET (Central European)": "2026-03-23T09:00:00Z",
		"Mon, 23 Mar 2026 10:00:00 +0100 (CET)":            "2026-03-23T09:00:00Z",
		"Mon, 23 Mar 2026 10:00:00 Z":                      "2026-03-23T10:00:00Z",
		"Mon, 23 Mar 2026 10:00:00 -0000":                  "2026-03-23T10:00:00Z",
		"Mon, 23 Mar 2026 10:00:60 GMT":                    "2026-03-23T10:01:00Z",
		"Mar, 24 Feb 2026 10:00:00 GMT":                    "2026-02-24T10:00:00Z",
		"Tue, 31 Mar 2026":                                 "day 2026-03-31",
		"\n  23 Mar 2026  ":                                "day 2026-03-23",
		"":                                                 "", "now": "", "yesterday 10:00": "", "2026-02-30": "", "31 Feb 2026 10:00": "", "2026-13-01": "", "23 Mar 10:00": "",
		"Mon, 23 Mar 2026 25:00:00 GMT": "", "Mon, 23 Mar 2026 10:61 GMT": "", "1774260000": "", "2026": "", "03/04/2026": "", "23 Mar 20260": "",
		"Mon, 23 Mar 2026 10:00:00 +9900": "", "0000-00-00T00:00:00Z": "", "Mon, 00 Mar 2026 10:00:00 GMT": "", "99999999": "", "10:00 10:00 23 Mar 2026": "",
		strings.Repeat("1", 1_000): "", "23-03-2026": "", "23 Mar 2026 2027": "", "9999-01-01T00:00:00Z": "",
	} {
		got := ""
		if d, ok := parseDate(text, berlin); ok && d.wholeDay {
			got = "day " + d.at.Format(time.DateOnly)
			if d.at.Location() != berlin || d.at.Hour() != 0 {
				t.Errorf("%q is %v", text, d.at)
			}
		} else if ok {
			got = d.at.UTC().Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestCharsets: what a feed says, what its server says and what it is are often
// three things.
func TestCharsets(t *testing.T) {
	feed := func(declaration string) string {
		return declaration + `<rss version="2.0"><channel><title>Naïve Ж 日本</title><item><title>x</title><pubDate>Mon, 23 Mar 2026 10:00:00 GMT</pubDate></item></channel></rss>`
	}
	encoded := func(label, text string) string {
		e, err := htmlindex.Get(label)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.NewEncoder().String(strings.Map(func(r rune) rune {
			if _, err := e.NewEncoder().String(string(r)); err != nil {
				return -1
			}
			return r
		}, text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const utf8Declared = `<?xml version="1.0" encoding="utf-8"?>`
	for name, test := range map[string]struct{ contentType, body, want string }{
		"utf-8":                     {"application/rss+xml", feed(utf8Declared), "Naïve Ж 日本"},
		"byte order mark":           {"text/xml; charset=iso-8859-1", "\ufeff" + feed(""), "Naïve Ж 日本"},
		"latin-1 by the server":     {"text/xml; charset=ISO-8859-1", encoded("windows-1252", feed("<?xml version='1.0'?>")), "Naïve"},
		"latin-1 by the document":   {"text/xml", encoded("windows-1252", feed(`<?xml version="1.0" encoding="ISO-8859-1"?>`)), "Naïve"},
		"windows-1251":              {"application/xml", encoded("windows-1251", feed(`<?xml version='1.0' encoding='windows-1251' standalone='yes'?>`)), "Nave Ж"},
		"shift_jis":                 {"text/html", encoded("shift_jis", feed(`<?xml version="1.0" encoding="Shift_JIS"?>`)), "Nave Ж 日本"},
		"iso-2022-jp":               {"text/html", encoded("iso-2022-jp", feed(`<?xml version="1.0" encoding="ISO-2022-JP"?>`)), "Nave Ж 日本"},
		"labelled wrong":            {"text/xml; charset=us-ascii", feed(`<?xml version="1.0" encoding="ISO-8859-1"?>`), "Naïve Ж 日本"},
		"nobody knows":              {"", encoded("windows-1252", feed("")), "Naïve"},
		"no such charset":           {"text/xml; charset=klingon", encoded("windows-1252", feed(`<?xml version="1.0" encoding="klingon"?>`)), "Naïve"},
		"utf-16":                    {"", encoded("utf-16le", "\ufeff"+feed("")), "Naïve Ж 日本"},
		"utf-16 without a mark":     {"", encoded("utf-16be", feed("")), "Naïve Ж 日本"},
		"broken utf-8":              {"", strings.Replace(feed(utf8Declared), "日", "\xe6\x97", 1), "Naïve Ж �本"},
		"xml 1.1, after some lines": {"", "\n\n" + feed(`<?xml version="1.1" encoding="utf-8"?>`), "Naïve Ж 日本"},
		"text in front of it":       {"", "Warning: something in line 7\n" + feed(utf8Declared), "Naïve Ж 日本"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := query(t, server{"https://a.example/": ok(test.contentType, test.body)}, march23("https://a.example/"))
			if want := "\n\n" + test.want + " (a.example):\n- Mon 23 Mar 10:00: x"; err != nil || !strings.HasSuffix(got, want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func rss(items string) string {
	return ok("application/rss+xml", `<rss version="2.0"><channel><title>T</title>`+items+`</channel></rss>`)
}

const dated = "<pubDate>Mon, 23 Mar 2026 10:00:00 GMT</pubDate>"

// TestHostile: what is wrong with a feed costs nothing but what cannot be read.
func TestHostile(t *testing.T) {
	one := "<item><title>one</title>" + dated + "</item>"
	var nested strings.Builder
	for range 300_000 {
		nested.WriteString("<a>")
	}
	var attributes strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&attributes, "a%d='' ", i)
	}
	for name, test := range map[string]struct{ response, has, lacks string }{
		"entity bomb": {ok("text/xml", `<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><rss><channel>`+one+
			`<item><title>&b;</title>`+dated+`</item></channel></rss>`), "10:00: &b;", "aaaa"},
		"external entity":  {ok("text/xml", `<!DOCTYPE rss [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss><channel>`+one+`<item><title>&a;</title>`+dated+`</item></channel></rss>`), "10:00: &a;", "root"},
		"nesting":          {rss(one + "<item>" + nested.String()), "Could not read: a.example (only its first 1 item: its elements are nested more than 100 deep)", "never"},
		"attributes":       {rss(one + "<item " + attributes.String()), "(only its first 1 item: a tag or a text of more than 1048576 bytes)", "never"},
		"long text":        {rss(one + "<item><title>" + strings.Repeat("x", 2<<20)), "a text of more than", "xxx"},
		"cut":              {ok("", "<rss><channel><title>T</title>"+one+"<item><title>two"), "(only its first 1 item: its end is missing)", "two"},
		"truncated":        {strings.Replace(ok("", "<rss>"+one+"<item><title>two"), "\r\n", "\r\nTruncated: 1\r\n", 1), "too long: see http_bytes in the limits", "two"},
		"control":          {rss("<item><title>a\x00b\x1b[31m &#0;&#x1F;&#55296; c&#8217;s</title>" + dated + "</item>"), "10:00: a b [31m \uFFFD \uFFFD c’s", "Could not"},
		"lines":            {rss("<item><title>a&#10;- Tue: b\u2028\u202ec</title><description>one&lt;br&gt;\n\nTwo</description>" + dated + "</item>"), "10:00: a - Tue: b c\n  \"one Two\"", "\n- Tue"},
		"stray characters": {rss("<item><title>R&D & Sons &nbsp; caf&eacute; &copy</title>" + dated + "</item>"), "10:00: R&D & Sons café ©", "Could not"},
		"unclosed":         {rss("<item><title>a</title><description>b <br> c <img src=x> d</description>" + dated + "</item>" + one), `"b c d"`, "Could not"},
		"scripts":          {rss("<item><title>a</title><description><![CDATA[<style>p{}</style><p>b</p><script>alert(1)</script><!-- c -->]]></description>" + dated + "</item>"), `"b"`, "alert"},
		"scheme":           {rss("<item><title>a</title><link>javascript:alert(1)</link>" + dated + "</item>"), "10:00: a", "alert"},
		"user in a link":   {rss("<item><title>a</title><link>https://me:secret@a.example/x</link>" + dated + "</item>"), "\n  https://a.example/x", "secret"},
		"two titles":       {rss("<item><title>one</title><title>two</title><pubDate>x</pubDate>" + dated + "</item>"), "10:00: two", "Without"},
		"no dates":         {rss("<item><title>a</title></item><item><title>b</title><pubDate>soon</pubDate></item>" + one), "Without a date, and so not told of: 2 items of T (a.example).", "10:00: a"},
		"json nesting":     {ok("application/json", `{"version":"https://jsonfeed.org/version/1","items":[{"title":"one","date_published":"2026-03-23T10:00:00Z"}],"x":`+strings.Repeat("[", 20_000)), "(only its first 1 item: ", "never"},
		"json of others":   {ok("application/json", `{"title":7,"title":"T","version":"https://jsonfeed.org/version/1","items":[7,{"id":7,"title":{},"title":"one","tags":1e999,"date_published":"2026-03-23T10:00:00Z"},null]}`), "10:00: one", "Could not"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := query(t, server{"https://a.example/": test.response}, march23("https://a.example/"))
			if err != nil || !strings.Contains(got, test.has) || strings.Contains(got, test.lacks) {
				t.Errorf("got %q, %v; want %q, not %q", got, err, test.has, test.lacks)
			}
		})
	}
}

// TestFailures: a feed that fails costs its own words; all of them are an error.
func TestFailures(t *testing.T) {
	s := server{
		"https://good.example/feed": rss("<item><title>one</title>" + dated + "</item>"),
		"https://quiet.example/":    rss(""),
	}
	for i, test := range []struct{ response, want string }{
		{"HTTP/1.1 503 Service Unavailable\r\n\r\n", "(503 Service Unavailable)"},
		{"HTTP/1.1 429 Too Many Requests\r\nRetry-After: Mon, 23 Mar 2026 12:00:00 GMT\r\n\r\n", "(429 Too Many Requests: asks to wait until 23 Mar 12:00 UTC)"},
		{"HTTP/1.1 410 Gone\r\n\r\n", "(410 Gone: no feed is there any more; correct urls)"},
		{"HTTP/1.1 403 Forbidden\r\n\r\n", "(403 Forbidden: the server refuses to show it)"},
		{"HTTP/1.1 599 x\r\n\r\n", "(599)"},
		{ok("text/html", "<!DOCTYPE html>\n<html lang=en><head><title>Hi"), "(a web page, no feed: look in its source for the address of the feed)"},
		{ok("text/plain", "hello"), "(no RSS, Atom or JSON feed)"},
		{ok("text/plain", ""), "(no RSS, Atom or JSON feed)"},
		{ok("text/xml", "<opml/>"), "(no RSS, Atom or JSON feed)"},
		{ok("application/json", `{"error":"no"}`), "(no RSS, Atom or JSON feed)"},
		{"", "(not allowed: add it, or where it redirects to, to http of the hand's grant)"},
	} {
		bad := fmt.Sprintf("https://bad%d.example/secret-path?token=secret", i)
		delete(s, bad)
		if test.response != "" {
			s[bad] = test.response
		}
		want := fmt.Sprintf("bad%d.example %s", i, test.want)
		got, err := query(t, s, march23(bad, "https://good.example/feed"))
		if err != nil || !strings.Contains(got, "Could not read: "+want) || !strings.Contains(got, "10:00: one") || strings.Contains(got, "secret") {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		got, err = query(t, s, march23(bad))
		if !errors.Is(err, errNothing) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || got != "" {
			t.Errorf("alone: %q, %v; want %q", got, err, want)
		}
	}
	if got, err := query(t, s, march23("https://quiet.example/")); got != "" || err != nil {
		t.Errorf("nothing new: %q, %v", got, err)
	}
	got, err := query(t, s, march23("https://good.example/feed", "https://good.example/other"))
	if err != nil || !strings.Contains(got, "Could not read: good.example, no. 2 of urls (not allowed") {
		t.Errorf("two of a host: %q, %v", got, err)
	}
}

func TestConfiguration(t *testing.T) {
	for want, config := range map[string]map[string]any{
		"urls is empty": nil,
		"urls has 101 addresses, at most 100 are asked":                      {"urls": make([]string, 101)},
		"no. 2 of urls: write an address that begins with https://":          {"urls": []string{"https://a.example/", "a.example"}},
		"no. 1 of urls: it cannot be read as an address":                     {"urls": []string{"https://%zz/"}},
		"no. 1 of urls: leave out the user":                                  {"urls": []string{"https://me:secret@a.example/"}},
		"max_items is 0: write a number from 1 to 100":                       {"urls": []string{"https://a.example/"}, "max_items": int64(0)},
		"max_items is 101: write a number from 1 to 100":                     {"urls": []string{"https://a.example/"}, "max_items": int64(101)},
		"wait_secs is 281: write a number from 1 to 280":                     {"urls": []string{"https://a.example/"}, "wait_secs": int64(281)},
		"wait_secs is -9223372036854775808: write a number from 1 to 280":    {"urls": []string{"https://a.example/"}, "wait_secs": int64(-1 << 63)},
		"no feed could be read. Could not read: a.example (not allowed: add": {"urls": []string{"https://a.example/"}, "wait_secs": int64(280), "max_items": int64(100)},
	} {
		q := march23()
		q.Config = config
		if _, err := query(t, nil, q); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "me:secret") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestTime: the requests together take no longer than wait_secs.
func TestTime(t *testing.T) {
	clock := time.Date(2026, time.March, 24, 0, 0, 0, 0, time.UTC)
	now = func() time.Time { return clock }
	t.Cleanup(func() { now = time.Now })
	var waited []time.Duration
	slow := func(_ context.Context, r http.Request) (http.Response, error) {
		waited = append(waited, r.Timeout)
		clock = clock.Add(r.Timeout)
		return http.Response{}, abi.KindTimeout
	}
	_, err := answer(http.WithFetcher(t.Context(), slow), march23("https://a.example/", "https://b.example/", "https://c.example/", "https://d.example/"))
	if fmt.Sprint(waited) != "[8s 8s 4s]" || err == nil || !strings.Contains(err.Error(), "c.example (no answer in 4s); d.example (not asked: the requests before it took the time that wait_secs gives)") {
		t.Errorf("waited %v, %v", waited, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := answer(http.WithFetcher(ctx, slow), march23("https://a.example/")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestMany: each feed has its newest listed before another has its second, what
// is over max_items or the budget is counted, and what two feeds share is told
// once.
func TestMany(t *testing.T) {
	s, q := server{}, march23()
	var urls []string
	for feed := range 3 {
		var b strings.Builder
		for i := range 500 {
			fmt.Fprintf(&b, "<item><title>item %d of %d</title><link>/%d</link><pubDate>Mon, 23 Mar 2026 10:%02d:%02d GMT</pubDate></item>", i, feed, i, i/60, i%60)
		}
		fmt.Fprintf(&b, "<item><title>shared</title><link>https://x.example/</link><pubDate>Mon, 23 Mar 2026 2%d:00:00 GMT</pubDate></item>", feed)
		u := fmt.Sprintf("https://f%d.example/", feed)
		s[u] = rss(b.String())
		urls = append(urls, u)
	}
	q.Config["urls"], q.Config["max_items"] = urls, int64(10)
	for limit := 1; limit < 3_000; limit += 43 {
		q.MaxOutputTokens = limit
		got, err := query(t, s, q)
		if err != nil || tokens.Estimate(got) > limit {
			t.Fatalf("limit %d: %d tokens, %v: %q", limit, tokens.Estimate(got), err, got)
		}
		if shown := strings.Count(got, "\n- "); shown >= 3 && strings.Count(got, ".example):") != 3 {
			t.Fatalf("limit %d: %d items of %d feeds: %q", limit, shown, strings.Count(got, ".example):"), got)
		}
	}
	got, err := query(t, s, q)
	if err != nil || strings.Count(got, "\n- ") != 28 || strings.Count(got, "shared") != 1 || !strings.Contains(got, "1501 items in 3 of 3 feeds.") || !strings.HasSuffix(got, "\n… and 1473 more") ||
		!strings.Contains(got, "item 499 of 2\n  https://f2.example/499\n- Mon 23 Mar 10:08: item 498 of 2") {
		t.Errorf("%v: %s", err, got)
	}
}

func FuzzParse(f *testing.F) {
	archives, _ := filepath.Glob("testdata/*.txtar")
	for _, name := range archives {
		if archive, err := txtar.ParseFile(name); err == nil {
			for _, file := range archive.Files {
				_, body, _ := strings.Cut(string(file.Data), "\n\n")
				f.Add([]byte(body), "text/xml; charset=utf-8", false)
			}
		}
	}
	f.Add([]byte("<rss><item><title>&#xD800;&#99999999999;</title>"+dated), "", true)
	q := march23()
	base := &url.URL{Scheme: "https", Host: "a.example", Path: "/"}
	f.Fuzz(func(t *testing.T, body []byte, contentType string, truncated bool) {
		feed := &feed{name: "a.example", source: source{host: "a.example", name: "a.example"}, window: window{q.From, q.To, q.Location}, most: 5, work: 1 << 20}
		err := feed.parse(body, contentType, truncated, base)
		if len(feed.items) > 5 || feed.found < len(feed.items) || feed.seen < feed.found+feed.undated {
			t.Fatalf("%d items of %d found of %d seen, %v", len(feed.items), feed.found, feed.seen, err)
		}
		lines := []string{feed.name}
		for _, i := range feed.items {
			if !feed.window.contains(i.date) || len(i.link) > maxLink {
				t.Fatalf("%+v", i)
			}
			lines = append(lines, i.title, i.excerpt, i.link)
		}
		for _, line := range lines {
			if !utf8.ValidString(line) || strings.ContainsAny(line, "\n\r\x00\u2028\u202e") || utf8.RuneCountInString(line) > maxLink {
				t.Fatalf("%q", line)
			}
		}
	})
}

func FuzzDate(f *testing.F) {
	f.Add("Mon, 23-Mar-26 10:00:00.5+01:00 (CET)")
	f.Add("2026-03-23T10:00:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		if d, ok := parseDate(text, time.UTC); ok && (d.at.Year() < 1969 || d.at.Year() > 2201) {
			t.Fatalf("%q is %v", text, d)
		}
	})
}
