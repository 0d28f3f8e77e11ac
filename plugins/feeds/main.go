// Command feeds is the bundled hand for feeds: it asks for the RSS, Atom and
// JSON feeds that its configuration names and answers with what they published
// in the query's window, the newest first of each.
//
// Feeds are written by strangers. The hand bounds what it keeps of each and how
// deep it looks into it, and shows every text as a part of one line; framing
// the reply as external text is the host's work. What a feed breaks is its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
	_ "time/tzdata"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/plugins/internal/web"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

var (
	errConfig  = errors.New("configuration")
	errNothing = errors.New("no feed could be read")
)

// now is the clock that bounds the time of the requests.
var now = time.Now

// answer lists what the feeds published in q's window. It returns "" when that
// is nothing and all feeds were read, and an error when none was.
func answer(ctx context.Context, q hand.Query) (string, error) {
	s, err := settingsOf(q)
	if err != nil {
		return "", err
	}
	client := web.NewClient(s.wait, now)
	window := window{q.From, q.To, q.Location}
	var read []*feed
	var trouble compose.Trouble
	work := maxWork
	for i, source := range s.sources {
		// What one does not use is the others'.
		f := &feed{name: source.name, source: source, window: window, most: s.maxItems, work: work / (len(s.sources) - i)}
		share := f.work
		err := f.ask(ctx, client)
		work -= share - f.work
		if ctx.Err() != nil {
			return "", fmt.Errorf("ask for feeds: %w", context.Cause(ctx))
		}
		if err != nil {
			trouble.Broken(source.name, err)
		}
		if err == nil || f.seen > 0 {
			read = append(read, f)
		}
	}
	if len(read) == 0 {
		return "", fmt.Errorf("%w. %s", errNothing, compose.OneLine(trouble.Foot(), 1_000))
	}
	return render(read, &trouble, q), nil
}

// settings are the operator's, checked.
type settings struct {
	sources  []source
	maxItems int
	wait     time.Duration
}

// source is one feed that is configured.
type source struct {
	url string
	// host and name are what is told of the address: never the path, which is
	// the secret of a private feed. The name tells feeds of one host apart.
	host, name string
}

const (
	maxSources = 100
	// maxWork is what is read of all feeds together, in bytes. A byte costs up
	// to 350 units of fuel, of which a query has 10,000 million.
	maxWork         = 20 << 20
	defaultMaxItems = 20
	mostItems       = 100
)

func settingsOf(q hand.Query) (settings, error) {
	s := settings{maxItems: defaultMaxItems, wait: web.DefaultWait}
	if n, ok := q.Config["max_items"].(int64); ok {
		if n < 1 || n > mostItems {
			return s, fmt.Errorf("%w: max_items is %d: write a number from 1 to %d", errConfig, n, mostItems)
		}
		s.maxItems = int(n)
	}
	if n, ok := q.Config["wait_secs"].(int64); ok {
		s.wait = time.Duration(n) * time.Second
		if n < 1 || n > int64(web.MostWait/time.Second) {
			return s, fmt.Errorf("%w: wait_secs is %d: write a number from 1 to %d", errConfig, n, web.MostWait/time.Second)
		}
	}
	urls, _ := q.Config["urls"].([]string)
	switch {
	case len(urls) == 0:
		return s, fmt.Errorf(`%w: urls is empty: write the addresses of feeds, such as "https://go.dev/blog/feed.atom"`, errConfig)
	case len(urls) > maxSources:
		return s, fmt.Errorf("%w: urls has %d addresses, at most %d are asked", errConfig, len(urls), maxSources)
	}
	perHost := map[string]int{}
	for i, text := range urls {
		u, err := web.ParseURL(text)
		if err != nil {
			return s, fmt.Errorf("%w: no. %d of urls: %w", errConfig, i+1, err)
		}
		perHost[u.Host]++
		s.sources = append(s.sources, source{u.String(), u.Host, u.Host})
	}
	for i := range s.sources {
		if host := s.sources[i].host; perHost[host] > 1 {
			s.sources[i].name = fmt.Sprintf("%s, no. %d of urls", host, i+1)
		}
	}
	return s, nil
}

// accept prefers what the hand reads; many servers send a page without it.
const accept = "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.5"

// ask gets the feed. Beside an error is what was read before it.
func (f *feed) ask(ctx context.Context, client *web.Client) error {
	response, err := client.Get(ctx, f.source.url, http.Header{{"Accept", accept}})
	if err != nil {
		return advised(err)
	}
	base, err := url.Parse(response.URL)
	if err != nil {
		base = &url.URL{}
	}
	err = f.parse(response.Body, response.Header.Get("Content-Type"), response.Truncated, base)
	if err != nil && f.seen > 0 {
		return fmt.Errorf("only its first %s: %w", compose.Plural(f.seen, "item", "items"), err)
	}
	return err
}

func advised(err error) error {
	status := (*web.StatusError)(nil)
	if !errors.As(err, &status) {
		return err
	}
	switch status.Status {
	case 401, 403:
		return fmt.Errorf("%w: the server refuses to show it", err)
	case 404, 410:
		return fmt.Errorf("%w: no feed is there any more; correct urls", err)
	case 429, 503:
		if at, ok := status.RetryAfter(now()); ok {
			return fmt.Errorf("%w: asks to wait until %s", err, at.UTC().Format("2 Jan 15:04 MST"))
		}
	}
	return err
}

// window is the time asked about, from ≤ t < to, and the zone of days.
type window struct {
	from, to time.Time
	location *time.Location
}

func (w window) contains(d date) bool {
	if d.wholeDay {
		return d.at.Before(w.to) && d.at.AddDate(0, 0, 1).After(w.from)
	}
	return !d.at.Before(w.from) && d.at.Before(w.to)
}
