package plugins_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// TestMain lets this program be the compiler of its hosts.
func TestMain(m *testing.M) {
	registry.CompilerMain()
	os.Exit(m.Run())
}

// documented returns the configurations that docs/hands.md shows for a hand.
func documented(t testing.TB, hand string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/hands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+hand+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range strings.Split(section, "```toml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		all = append(all, block)
	}
	if len(all) == 0 {
		t.Fatalf("docs/hands.md has no configuration of %s", hand)
	}
	return all
}

// openHost opens a host with a configuration in TOML.
func openHost(t testing.TB, configuration string) *host.Host {
	t.Helper()
	config, err := host.ParseConfig([]byte(configuration), t.TempDir())
	if err != nil {
		t.Fatalf("%v in\n%s", err, configuration)
	}
	if config.Compiler, err = registry.Self(); err != nil {
		t.Fatal(err)
	}
	config.Data, config.Sessions.Timezone = t.TempDir(), "Europe/Berlin"
	config.Now = func() time.Time { return time.Date(2026, time.March, 24, 0, 0, 0, 0, time.UTC) }
	h, err := host.New(t.Context(), config)
	if err != nil {
		t.Fatalf("%v in\n%s", err, configuration)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// askHost asks about the 24 hours before the host's time.
func askHost(t testing.TB, h *host.Host, hand string) (sandbox.Result, error) {
	t.Helper()
	return h.Query(t.Context(), host.HandQuery{Hand: hand, Prompt: "What is new?", MaxTokens: 1_000})
}

// TestFeedsInAHost: with the configuration of the documentation, its servers
// being one on this machine.
func TestFeedsInAHost(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/blog/feed.atom", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "application/atom+xml") || r.Header.Get("User-Agent") != "glovebox" {
			t.Errorf("asked with %v", r.Header)
		}
		http.Redirect(w, r, "/blog/v2/feed.atom", http.StatusMovedPermanently)
	})
	mux.HandleFunc("/blog/v2/feed.atom", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<feed xmlns="http://www.w3.org/2005/Atom"><title>The Go Blog</title>
<entry><title>Go 1.27 is released</title><link rel="alternate" href="go1.27"></link><published>2026-03-23T10:00:00+00:00</published><summary type="html">&lt;p&gt;Faster &amp;amp; smaller&lt;/p&gt;</summary></entry></feed>`)
	})
	status := http.StatusServiceUnavailable
	mux.HandleFunc("/headlines/newrss", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	server := httptest.NewServer(mux)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	configuration := strings.NewReplacer("https://go.dev", server.URL, "https://lwn.net", server.URL).Replace(documented(t, "feeds")[0])
	h := openHost(t, strings.Replace(configuration, "[hands.feeds.grant]\n", fmt.Sprintf("[hands.feeds.grant]\nallow_private = [%q]\n", address), 1))
	result, err := askHost(t, h, "feeds")
	want := "Feeds from Mon 23 Mar 2026 01:00 to Tue 24 Mar 2026 01:00 (Europe/Berlin): 1 item in 1 of 1 feed.\n\n" +
		"The Go Blog (" + address + "):\n- Mon 23 Mar 11:00: Go 1.27 is released\n  \"Faster & smaller\"\n  " + server.URL + "/blog/v2/go1.27\n\n" +
		"Could not read: " + address + ", no. 2 of urls (503 Service Unavailable)"
	if got := boundary.Neutral(result.Reply); err != nil || got != want {
		t.Errorf("%v, said %q, got:\n%s\nwant:\n%s", err, boundary.Neutral(result.Said), got, want)
	}
	// Without the word for a private address, no request is made.
	h = openHost(t, configuration)
	if result, err := askHost(t, h, "feeds"); !errors.Is(err, abi.KindHandFailed) || !strings.Contains(boundary.Neutral(result.Said), "not allowed: add it") {
		t.Errorf("%v, said %q", err, boundary.Neutral(result.Said))
	}
}

// TestHostileFeedsInAHost: what is 4 MiB long, or never ends, or is made to use
// up memory, costs its own line within the limits of a hand.
func TestHostileFeedsInAHost(t *testing.T) {
	const item = `<rss><channel><title>T</title><item><title>one</title><pubDate>Mon, 23 Mar 2026 10:00:00 GMT</pubDate></item>`
	bodies := map[string]string{
		"attributes": "<item " + strings.Repeat("a='' ", 900_000),
		"nesting":    strings.Repeat("<a>", 1_400_000),
		"elements":   strings.Repeat("<a/>", 1_000_000),
		"items":      strings.Repeat("<item/>", 600_000),
		"references": "<item><title>" + strings.Repeat("&#1;", 260_000),
		"markup":     "<item><description>" + strings.Repeat("&lt;a ", 200_000),
		"namespaces": "<item " + strings.Repeat("xmlns:a='b' ", 80_000) + ">" + strings.Repeat("<x/>", 700_000),
	}
	mux := http.NewServeMux()
	var urls []string
	for name, body := range bodies {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, item+body) })
		urls = append(urls, "/"+name)
	}
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, item+"<item><title>")
		for r.Context().Err() == nil {
			fmt.Fprint(w, strings.Repeat("x", 1<<16))
		}
	})
	mux.HandleFunc("/json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"version":"https://jsonfeed.org/version/1","items":[{"title":"one","date_published":"2026-03-23T10:00:00Z"},`+strings.Repeat("{},", 1_300_000))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	urls = append(urls, "/endless", "/json")
	// Each alone, then all of them, and a good one last.
	mux.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, item+"</channel></rss>") })
	all := append(slices.Concat(urls, urls), "/good")
	for _, asked := range append(slices.Collect(slices.Chunk(urls, 1)), all) {
		var list []string
		for _, path := range asked {
			list = append(list, fmt.Sprintf("%q", server.URL+path))
		}
		h := openHost(t, fmt.Sprintf("[hands.feeds.grant]\nhttp = [%q]\nallow_private = [%q]\n[hands.feeds.config]\nurls = [%s]\n",
			server.URL, strings.TrimPrefix(server.URL, "http://"), strings.Join(list, ",")))
		result, err := askHost(t, h, "feeds")
		got := boundary.Neutral(result.Reply)
		if err != nil || strings.Count(got, "11:00: one") != len(asked) || !strings.Contains(got, "Could not read: ") {
			t.Errorf("%s: %v, %q, said %q", asked, err, got, boundary.Neutral(result.Said))
		}
		t.Logf("%s: %d Mfuel, %d MiB, %v", asked, result.Fuel/1e6, result.MemoryBytes>>20, result.Took)
	}
}

// TestTicketsInAHost: with the configurations of the documentation, the server
// being one on this machine. The token arrives, and the hand never has it.
func TestTicketsInAHost(t *testing.T) {
	const token = "glpat-0123456789abcdef"
	const issue = `[{"number":7,"iid":7,"title":"Leak, says %s","state":"open","created_at":"2026-03-23T10:00:00Z","updated_at":"2026-03-23T10:00:00Z","user":{"login":"ada"},"author":{"username":"ada"}}]`
	for i, test := range []struct {
		header, want string
		has          []string
	}{
		{"Authorization", "Bearer " + token, []string{"2 issues.", "golang/go:\n- Mon 23 Mar 11:00 #7 opened: Leak", "tetratelabs/wazero:\n"}},
		{"Private-Token", token, []string{"1 issue, 1 merge request.", "water/pumps/pump:\n- Mon 23 Mar 11:00 #7 opened: Leak", "!7 opened: Leak"}},
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if got := r.Header.Get(test.header); got != test.want {
				t.Errorf("%s has %s %q", r.URL, test.header, got)
			}
			// A server that gives the token away.
			w.Header().Set("Link", "<"+r.URL.Path+"?page=1&token="+token+`>; rel="prev"`)
			fmt.Fprintf(w, issue, r.Header.Get(test.header))
		}))
		defer server.Close()
		t.Setenv("GITHUB_TOKEN", token)
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		// The default address is another one, and a token goes over https unless
		// the operator says otherwise.
		configuration := strings.NewReplacer("https://api.github.com", server.URL, "https://gitlab.example.com", server.URL, "/etc/glovebox/gitlab-token", file,
			"[hands.tickets.grant]\n", fmt.Sprintf("[hands.tickets.grant]\nallow_private = [%q]\n", strings.TrimPrefix(server.URL, "http://")),
			"[hands.tickets.grant.secrets.token]\n", "[hands.tickets.grant.secrets.token]\ninsecure = true\n").Replace(documented(t, "tickets")[i])
		if !strings.Contains(configuration, "base_url") {
			configuration += fmt.Sprintf("base_url = %q\n", server.URL)
		}
		result, err := askHost(t, openHost(t, configuration), "tickets")
		got := boundary.Neutral(result.Reply)
		for _, want := range test.has {
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("%v, said %q, got:\n%s\nwant %q", err, boundary.Neutral(result.Said), got, want)
			}
		}
		if all := got + boundary.Neutral(result.Said) + boundary.Neutral(result.Log); asked != 2 || strings.Contains(all, token) || !strings.Contains(all, "says") {
			t.Errorf("%d requests, got %q", asked, all)
		}
	}
}

// TestHostileTicketsInAHost: what never ends, or is made to use up memory or
// work, costs its own project within the limits of a hand.
func TestHostileTicketsInAHost(t *testing.T) {
	const one = `{"number":1,"title":"one","state":"open","updated_at":"2026-03-23T10:00:00Z"}`
	answers := map[string]string{
		"good":    "[" + one + "]",
		"objects": "[" + one + strings.Repeat(",{}", 1_300_000) + "]",
		"tickets": "[" + one + strings.Repeat(","+one, 50_000) + "]",
		"labels":  "[" + one + `,{"labels":[` + strings.Repeat("0,", 2_000_000) + `0]}]`,
		"people":  "[" + one + `,{"assignees":[` + strings.Repeat("{},", 1_300_000) + `{}]}]`,
		"nesting": "[" + one + "," + strings.Repeat("[", 4_000_000),
		"keys":    "[" + one + `,{` + strings.Repeat(`"a":0,`, 600_000) + `"a":0}]`,
		"text":    "[" + one + `,{"title":"` + strings.Repeat(`\u0041`, 600_000) + `"}]`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.Split(r.URL.Path, "/")[3]
		if name == "endless" {
			fmt.Fprint(w, "["+one)
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat(" ", 1<<16))
			}
			return
		}
		w.Header().Set("Link", `<`+r.URL.Path+`?page=`+r.URL.Query().Get("page")+`1>; rel="next"`)
		fmt.Fprint(w, answers[name])
	}))
	defer server.Close()
	names := append(slices.Sorted(maps.Keys(answers)), "endless")
	for _, asked := range append(slices.Collect(slices.Chunk(names, 1)), names) {
		h := openHost(t, fmt.Sprintf("[hands.tickets.grant]\nhttp = [%q]\nallow_private = [%q]\n[hands.tickets.limits]\nhttp_requests = 200\n[hands.tickets.config]\nbase_url = %q\nprojects = [\"a/%s\"]\n",
			server.URL, strings.TrimPrefix(server.URL, "http://"), server.URL, strings.Join(asked, `", "a/`)))
		result, err := askHost(t, h, "tickets")
		got := boundary.Neutral(result.Reply)
		if err != nil || strings.Count(got, "#1 updated: one") != len(asked) {
			t.Errorf("%s: %v, %q, said %q", asked, err, got, boundary.Neutral(result.Said))
		}
		t.Logf("%s: %d Mfuel, %d MiB, %v: %s", asked, result.Fuel/1e6, result.MemoryBytes>>20, result.Took, got[strings.LastIndex(got, "\n")+1:])
	}
}

// BenchmarkTickets asks for 10 projects with 50 tickets each, 5 KB a ticket as
// GitHub's have.
func BenchmarkTickets(b *testing.B) {
	var tickets []string
	for i := range 50 {
		tickets = append(tickets, fmt.Sprintf(`{"number":%d,"title":"Title no. %d","state":"open","updated_at":"2026-03-23T10:%02d:00Z","user":{"login":"ada","id":1,"url":"https://api.github.com/users/ada"},"labels":[{"id":1,"name":"bug"}],"body":%q}`,
			i+1, i, i, strings.Repeat("Some words of a ticket.\n", 200)))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "["+strings.Join(tickets, ",")+"]") }))
	defer server.Close()
	var projects []string
	for i := range 10 {
		projects = append(projects, fmt.Sprintf(`"a/p%d"`, i))
	}
	h := openHost(b, fmt.Sprintf("[hands.tickets.grant]\nhttp = [%q]\nallow_private = [%q]\n[hands.tickets.config]\nbase_url = %q\nprojects = [%s]\n",
		server.URL, strings.TrimPrefix(server.URL, "http://"), server.URL, strings.Join(projects, ",")))
	benchmarkHost(b, h, "tickets")
}

// BenchmarkFeeds asks 20 feeds of 50 items, 100 KB each.
func BenchmarkFeeds(b *testing.B) {
	var feed strings.Builder
	feed.WriteString(`<rss version="2.0"><channel><title>T</title>`)
	for i := range 50 {
		fmt.Fprintf(&feed, "<item><title>Title no. %d</title><link>https://a.example/%d</link><pubDate>Mon, 23 Mar 2026 10:%02d:00 GMT</pubDate><description><![CDATA[%s]]></description></item>", i, i, i,
			strings.Repeat("<p>Some <b>words</b> of an item &amp; more.</p>\n", 40))
	}
	feed.WriteString("</channel></rss>")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, feed.String()) }))
	defer server.Close()
	var urls []string
	for i := range 20 {
		urls = append(urls, fmt.Sprintf("%q", fmt.Sprintf("%s/%d", server.URL, i)))
	}
	h := openHost(b, fmt.Sprintf("[hands.feeds.grant]\nhttp = [%q]\nallow_private = [%q]\n[hands.feeds.config]\nurls = [%s]\n",
		server.URL, strings.TrimPrefix(server.URL, "http://"), strings.Join(urls, ",")))
	benchmarkHost(b, h, "feeds")
}

func benchmarkHost(b *testing.B, h *host.Host, hand string) {
	b.Helper()
	var result sandbox.Result
	var err error
	for b.Loop() {
		if result, err = askHost(b, h, hand); err != nil || result.Reply.IsEmpty() {
			b.Fatalf("%v, said %q", err, boundary.Neutral(result.Said))
		}
	}
	b.ReportMetric(float64(result.Fuel)/1e6, "Mfuel")
	b.ReportMetric(float64(result.MemoryBytes)/(1<<20), "MiB")
	b.ReportMetric(float64(result.Calls), "calls")
}
