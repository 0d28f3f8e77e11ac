package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/plugins/internal/web"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
)

// provider is how an API is asked.
type provider struct {
	base, example string
	header        http.Header
	// lists returns the addresses, below base, of a project's lists, each by
	// kind of what has no other.
	lists func(path string) []list
	// parameters asks for what was updated from a time on, the latest first.
	parameters func(from time.Time, assignee string) url.Values
}

type list struct {
	path string
	kind kind
}

// github is the REST API of GitHub, version 2022-11-28. Its issues are also the
// pull requests.
var github = provider{
	base: "https://api.github.com", example: "owner/repository",
	header: http.Header{{"Accept", "application/vnd.github+json"}, {"X-GitHub-Api-Version", "2022-11-28"}},
	lists: func(path string) []list {
		return []list{{"/repos/" + escapeElements(path) + "/issues", issue}}
	},
	parameters: func(from time.Time, assignee string) url.Values {
		v := url.Values{"state": {"all"}, "sort": {"updated"}, "direction": {"desc"}, "since": {from.UTC().Format(time.RFC3339)}}
		if assignee != "" {
			v.Set("assignee", assignee)
		}
		return v
	},
}

// gitlab is version 4 of the REST API of GitLab.
var gitlab = provider{
	base: "https://gitlab.com/api/v4", example: "group/project",
	header: http.Header{{"Accept", "application/json"}},
	lists: func(path string) []list {
		id := url.PathEscape(path)
		return []list{{"/projects/" + id + "/issues", issue}, {"/projects/" + id + "/merge_requests", mergeRequest}}
	},
	parameters: func(from time.Time, _ string) url.Values {
		return url.Values{"scope": {"all"}, "order_by": {"updated_at"}, "sort": {"desc"}, "updated_after": {from.UTC().Format(time.RFC3339)}}
	},
}

func escapeElements(path string) string {
	elements := strings.Split(path, "/")
	for i := range elements {
		elements[i] = url.PathEscape(elements[i])
	}
	return strings.Join(elements, "/")
}

const (
	// mostPerPage keeps an answer below what the host takes, as each ticket may
	// come with 64 KiB of text.
	mostPerPage = 50
	maxPages    = 6
)

var (
	errNoList    = errors.New("no list of tickets, or a broken one: is base_url the address of the API?")
	errElsewhere = errors.New("its next page is on another server")
	errCut       = errors.New("a page without its end, or too long: see http_bytes in the limits")
	errTooMuch   = errors.New("too much to read in one query")
)

// project is what is read of one project.
type project struct {
	path string
	// tickets changed in the window, later are those of which nobody knows, as
	// they changed after it. More says that there are more of either.
	tickets []ticket
	later   int
	more    bool
	// work is what may be read, in bytes.
	work int
}

// tracker asks one server.
type tracker struct {
	settings
	client *web.Client
	query  hand.Query
}

// read asks for all lists of p. What was read before an error is kept.
func (t *tracker) read(ctx context.Context, p *project) error {
	for _, l := range t.provider.lists(p.path) {
		if err := t.readList(ctx, p, l); err != nil {
			return err
		}
	}
	p.sort(t.maxItems)
	return nil
}

func (t *tracker) readList(ctx context.Context, p *project, l list) error {
	parameters := t.provider.parameters(t.query.From, t.assignee)
	parameters.Set("per_page", strconv.Itoa(min(t.maxItems, mostPerPage)))
	address := strings.TrimSuffix(t.base.String(), "/") + l.path
	next := address + "?" + parameters.Encode()
	found := 0
	for page := 1; next != ""; page++ {
		if page > maxPages || found >= t.maxItems {
			p.more = true
			return nil
		}
		response, err := t.client.Get(ctx, next, t.provider.header)
		if err != nil {
			return t.explained(err)
		}
		n, err := t.readPage(p, l.kind, response)
		if err != nil {
			return err
		}
		found += n
		if next, err = nextPage(response, next, parameters); err != nil {
			return err
		}
	}
	return nil
}

// readPage takes in the tickets of an answer and returns how many were found.
func (t *tracker) readPage(p *project, k kind, response http.Response) (found int, err error) {
	body, tooLong := response.Body, errCut
	if most := max(p.work, 0) / 8 * 7; len(body) > most {
		body, tooLong = body[:most], errTooMuch
	}
	p.work -= len(body)
	d := json.NewDecoder(bytes.NewReader(body))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		if err != nil && len(body) < len(response.Body) {
			return 0, errTooMuch
		}
		return 0, errNoList
	}
	for d.More() {
		var w wireTicket
		if err := d.Decode(&w); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
			if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
				return found, tooLong
			}
			return found, errNoList
		}
		if p.work -= ticketWork; p.work < 0 {
			return found, errTooMuch
		}
		ticket, ok := w.ticket(k)
		if !ok || !w.assignedTo(t.assignee) {
			continue
		}
		switch ticket.happened(t.query.From, t.query.To) {
		case inside:
			if found += p.add(ticket); len(p.tickets) > 2*mostItems {
				p.sort(t.maxItems)
			}
		case perhaps:
			p.later++
		}
	}
	if _, err := d.Token(); err != nil {
		return found, tooLong
	}
	return found, nil
}

// ticketWork is what a ticket costs beside its bytes, in bytes.
const ticketWork = 64

// nextPage returns the address of the page after the one at current, "" if there
// is none: from the Link field (RFC 8288), or from X-Next-Page. The address is
// the server's word, so it must stay where the operator's was.
func nextPage(response http.Response, current string, parameters url.Values) (string, error) {
	from, err := url.Parse(current)
	if err != nil {
		return "", err
	}
	for link := range strings.SplitSeq(response.Header.Get("Link"), ",") {
		target, attributes, _ := strings.Cut(strings.TrimSpace(link), ">")
		target, ok := strings.CutPrefix(target, "<")
		if !ok || !strings.Contains(strings.ReplaceAll(attributes, `"`, ""), "rel=next") {
			continue
		}
		to, err := from.Parse(target)
		if err != nil || to.Scheme != from.Scheme || to.Host != from.Host {
			return "", errElsewhere
		}
		if next := to.String(); next != current {
			return next, nil
		}
		return "", nil
	}
	if n, err := strconv.Atoi(strings.TrimSpace(response.Header.Get("X-Next-Page"))); err == nil && n > 1 {
		parameters.Set("page", strconv.Itoa(n))
		from.RawQuery = parameters.Encode()
		if next := from.String(); next != current {
			return next, nil
		}
	}
	return "", nil
}

// rateLimited is an answer of a server that wants no more requests for a while.
type rateLimited struct {
	status error
	until  string
}

func (r *rateLimited) Error() string {
	if r.until == "" {
		return r.status.Error() + ": the rate limit is reached; wait some minutes"
	}
	return r.status.Error() + ": the rate limit is reached until " + r.until
}

func (r *rateLimited) Unwrap() error { return r.status }

// explained says what to do about an answer that is none of success. Servers
// have 404 for what a token may not see.
func (t *tracker) explained(err error) error {
	status := (*web.StatusError)(nil)
	if !errors.As(err, &status) {
		return err
	}
	switch status.Status {
	case 401:
		return fmt.Errorf("%w: the token is wrong or has expired; bind a new one", err)
	case 403, 429:
		until, limited := resetOf(status)
		if limited || status.Status == 429 {
			limit := &rateLimited{status: err}
			if !until.IsZero() {
				limit.until = compose.Moment(until, t.query)
			}
			return limit
		}
		return fmt.Errorf("%w: the token may not read issues and requests here", err)
	case 404:
		return fmt.Errorf("%w: no such project, or the token may not see it", err)
	case 410:
		return fmt.Errorf("%w: the project has no issues", err)
	}
	return err
}

// resetOf returns when a server takes requests again, and whether it said that
// its rate limit is what it refuses for: by Retry-After, or by the fields that
// GitHub and GitLab have.
func resetOf(status *web.StatusError) (time.Time, bool) {
	if at, ok := status.RetryAfter(now()); ok {
		return at, true
	}
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
		if status.Header.Get(prefix+"Remaining") != "0" {
			continue
		}
		seconds, err := strconv.ParseUint(status.Header.Get(prefix+"Reset"), 10, 33)
		if err != nil {
			return time.Time{}, true
		}
		return time.Unix(int64(seconds), 0), true
	}
	return time.Time{}, false
}
