// Command tickets is the bundled hand for issue trackers: it asks the API of
// GitHub or GitLab, or of a server that speaks one of them, for the issues and
// the pull or merge requests of some projects, and answers with those that
// changed in the query's window.
//
// The token is the host's: it is put into the requests to the server that the
// operator bound it to. Tickets are written by strangers. The hand bounds what
// it reads and shows every text as a part of one line; framing the reply as
// external text is the host's work. What a project breaks is its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/plugins/internal/web"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

var (
	errConfig  = errors.New("configuration")
	errNothing = errors.New("no project could be read")
)

// now is the clock that bounds the time of the requests.
var now = time.Now

// answer lists what changed in q's window. It returns "" when that is nothing
// and all projects were read, and an error when none was.
func answer(ctx context.Context, q hand.Query) (string, error) {
	s, err := settingsOf(q)
	if err != nil {
		return "", err
	}
	t := &tracker{settings: s, client: web.NewClient(s.wait, now), query: q}
	var read []*project
	var trouble compose.Trouble
	work := maxWork
	for i, path := range s.projects {
		// What one does not use is the others'.
		p := &project{path: path, work: work / (len(s.projects) - i)}
		share := p.work
		err := t.read(ctx, p)
		work -= share - p.work
		if ctx.Err() != nil {
			return "", fmt.Errorf("ask for tickets: %w", context.Cause(ctx))
		}
		if err != nil {
			trouble.Broken(path, err)
		}
		if err == nil || len(p.tickets) > 0 {
			read = append(read, p)
		}
		if rest := len(s.projects) - i - 1; errors.As(err, new(*rateLimited)) && rest > 0 {
			trouble.Note("Not asked because of the rate limit: %s.", compose.Plural(rest, "project", "projects"))
			break
		}
	}
	if len(read) == 0 {
		return "", fmt.Errorf("%w. %s", errNothing, compose.OneLine(trouble.Foot(), 1_000))
	}
	return render(read, &trouble, q, s), nil
}

// settings are the operator's, checked.
type settings struct {
	provider *provider
	base     *url.URL
	projects []string
	assignee string
	maxItems int
	wait     time.Duration
}

const (
	maxProjects     = 50
	maxPath         = 300 // bytes
	defaultMaxItems = 30
	mostItems       = 100
	// maxWork is what is read of all answers together, in bytes. A byte costs up
	// to 900 units of fuel, of which a query has 10,000 million.
	maxWork = 8 << 20
)

func settingsOf(q hand.Query) (settings, error) {
	s := settings{provider: &github, maxItems: defaultMaxItems, wait: web.DefaultWait}
	fail := func(format string, args ...any) (settings, error) {
		return settings{}, fmt.Errorf("%w: %w", errConfig, fmt.Errorf(format, args...))
	}
	switch name, _ := q.Config["provider"].(string); name {
	case "", "github":
	case "gitlab":
		s.provider = &gitlab
	default:
		return fail(`provider is %q: write "github" or "gitlab"`, compose.OneLine(name, 40))
	}
	address, _ := q.Config["base_url"].(string)
	if address == "" {
		address = s.provider.base
	}
	base, err := web.ParseURL(address)
	if err != nil {
		return fail("base_url: %w", err)
	}
	if base.RawQuery != "" {
		return fail("base_url: leave out what follows the question mark")
	}
	s.base = base
	if n, ok := q.Config["max_items"].(int64); ok {
		if n < 1 || n > mostItems {
			return fail("max_items is %d: write a number from 1 to %d", n, mostItems)
		}
		s.maxItems = int(n)
	}
	if n, ok := q.Config["wait_secs"].(int64); ok {
		if n < 1 || n > int64(web.MostWait/time.Second) {
			return fail("wait_secs is %d: write a number from 1 to %d", n, web.MostWait/time.Second)
		}
		s.wait = time.Duration(n) * time.Second
	}
	assignee, _ := q.Config["assignee"].(string)
	s.assignee = strings.TrimPrefix(strings.TrimSpace(assignee), "@")
	s.projects, _ = q.Config["projects"].([]string)
	switch {
	case len(s.projects) == 0:
		return fail(`projects is empty: write paths such as "gloveboxhq/glovebox"`)
	case len(s.projects) > maxProjects:
		return fail("projects has %d paths, at most %d are asked for", len(s.projects), maxProjects)
	}
	for i, path := range s.projects {
		elements := strings.Split(path, "/")
		good := len(elements) == 2 || len(elements) > 2 && s.provider == &gitlab
		for _, e := range elements {
			good = good && e != "" && strings.Trim(e, ".") != "" && !strings.ContainsFunc(e, func(r rune) bool {
				return r <= ' ' || strings.ContainsRune(`%?#\`, r)
			})
		}
		if !good || len(path) > maxPath {
			return fail("no. %d of projects: %q is no path such as %q", i+1, compose.OneLine(path, 80), s.provider.example)
		}
	}
	return s, nil
}
