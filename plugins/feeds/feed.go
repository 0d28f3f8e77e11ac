package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// Bounds of what is kept of a feed.
const (
	maxTitle   = 160 // runes
	maxExcerpt = 280 // runes
	maxLink    = 500 // bytes; a part of a longer one would lead nowhere
	// maxText bounds what is looked at of one text, in bytes.
	maxText = 16 << 10
	// maxItems is more than any feed has.
	maxItems = 5_000
)

var (
	errNoFeed   = errors.New("no RSS, Atom or JSON feed")
	errPage     = errors.New("a web page, no feed: look in its source for the address of the feed")
	errCut      = errors.New("its end is missing")
	errTooMany  = fmt.Errorf("it has more than %d", maxItems)
	errTooLarge = errors.New("too long: see http_bytes in the limits")
)

// feed is what is kept of one feed.
type feed struct {
	// name is of the source until the feed says its own.
	name   string
	source source
	window window
	most   int
	// work is what may be read, in bytes, and once parse has returned what is
	// left of it.
	work int
	// items are those of the window, at most most of them once parse returns,
	// the newest first.
	items []item
	// found counts those of the window, seen all, undated those of which nobody
	// knows when they were published.
	found, seen, undated int
}

// item is what is kept of one entry. Its strings are single lines of bounded
// length.
type item struct {
	date
	// updated says that the date is of a change, and what changed is older.
	updated              bool
	title, excerpt, link string
}

// parse reads a whole document. What stands before an error is kept.
func (f *feed) parse(body []byte, contentType string, truncated bool, base *url.URL) error {
	if len(body) > f.work {
		body, truncated = body[:max(f.work, 0)], true
	}
	text := document(body, contentType, truncated)
	var err error
	if bytes.HasPrefix(text, []byte("{")) {
		err = f.parseJSON(text, base)
	} else {
		err = f.parseXML(text, base)
	}
	if truncated && errors.Is(err, errCut) {
		err = errTooLarge
	}
	f.sort()
	return err
}

// add keeps an item if it is of the window, with the title and the excerpt that
// words returns.
func (f *feed) add(i item, published, updated date, words func() (title, excerpt string)) error {
	if f.seen == maxItems {
		return errTooMany
	}
	f.seen++
	switch {
	case published.at.IsZero() && updated.at.IsZero():
		f.undated++
		return nil
	case !published.at.IsZero() && f.window.contains(published):
		i.date = published
	case !updated.at.IsZero() && f.window.contains(updated):
		i.date, i.updated = updated, !published.at.IsZero()
	default:
		return nil
	}
	f.found++
	i.words(words())
	if f.items = append(f.items, i); len(f.items) >= 2*f.most {
		f.sort()
	}
	return nil
}

func (f *feed) sort() {
	slices.SortStableFunc(f.items, func(a, b item) int { return b.at.Compare(a.at) })
	if len(f.items) > f.most {
		clear(f.items[f.most:])
		f.items = f.items[:f.most]
	}
}

func (f *feed) setTitle(title string) {
	if title = compose.OneLine(title, maxTitle); title != "" && f.name == f.source.name {
		f.name = title + " (" + f.source.host + ")"
	}
}

// words makes the texts of an item one line each.
func (i *item) words(title, excerpt string) {
	i.title = compose.OneLine(title, maxTitle)
	i.excerpt = compose.OneLine(excerpt, maxExcerpt)
	if i.title == "" {
		i.title, i.excerpt = compose.OneLine(i.excerpt, 80), ""
	}
	if i.excerpt == i.title {
		i.excerpt = ""
	}
}

// link returns reference as it is from base, if it leads to the web.
func link(base *url.URL, reference string) string {
	reference = strings.TrimSpace(reference)
	if reference == "" || len(reference) > maxLink {
		return ""
	}
	u, err := base.Parse(reference)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	u.User = nil
	if text := compose.OneLine(u.String(), 2*maxLink); len(text) <= maxLink {
		return text
	}
	return ""
}
