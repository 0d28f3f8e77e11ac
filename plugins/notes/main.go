// Command notes is the bundled notes hand: it finds the Markdown, Org and text
// files below the granted folder "notes" and answers with those that changed in
// the query's window or are the notes of a day in it, newest first, and with
// what Org files have scheduled, due, done or logged in it.
//
// It keeps nothing between queries, so it cannot tell what changed in a note,
// only that its file was written. Notes may quote anybody; the hand bounds what
// it reads and puts every text on a line of its own making. Framing the reply as
// external text is the host's work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

// rootName is the name under which the operator grants the folder.
const rootName = "notes"

// Errors that an operator can act on.
var (
	errNotGranted = errors.New(`no folder to read: grant one under the name "notes" (files = { notes = "/path/to/notes" })`)
	errNoNotes    = errors.New(`no note in the folder granted as "notes": it should hold .md, .markdown, .org or .txt files, in folders of any depth`)
	errConfig     = errors.New("configuration")
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// answer lists the notes of q's window. It returns "" when nothing of it was
// found and nothing went wrong, and an error when there is no note at all.
func answer(ctx context.Context, q hand.Query) (string, error) {
	s, err := settingsOf(q)
	if err != nil {
		return "", err
	}
	c := &collector{ctx: ctx, budget: budget.New(ctx, maxCalls, maxTotalBytes), fsys: files.Root(ctx, rootName), settings: s, window: window{q.From, q.To, q.Location}}
	if err := c.collect(); err != nil {
		switch {
		case ctx.Err() != nil:
			return "", fmt.Errorf("read notes: %w", context.Cause(ctx))
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%w: %w", errNotGranted, err)
		}
		return "", fmt.Errorf("read notes: %w", err)
	}
	if c.found == 0 && !c.trouble.Any() {
		return "", errNoNotes
	}
	return render(c, q), nil
}

// settings are the operator's, checked.
type settings struct {
	ignore   []string
	maxNotes int
}

const (
	defaultMaxNotes = 100
	mostNotes       = 1_000
	maxPatterns     = 100
)

func settingsOf(q hand.Query) (settings, error) {
	s := settings{maxNotes: defaultMaxNotes}
	if n, ok := q.Config["max_notes"].(int64); ok {
		if n < 1 || n > mostNotes {
			return s, fmt.Errorf("%w: max_notes is %d: write a number from 1 to %d", errConfig, n, mostNotes)
		}
		s.maxNotes = int(n)
	}
	patterns, _ := q.Config["ignore"].([]string)
	if len(patterns) > maxPatterns {
		return s, fmt.Errorf("%w: ignore has %d patterns, at most %d are looked at", errConfig, len(patterns), maxPatterns)
	}
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, "x"); err != nil || pattern == "" {
			return s, fmt.Errorf("%w: ignore has %q, which is no pattern: write names or paths with * and ?, such as \"archive\"", errConfig, pattern)
		}
		s.ignore = append(s.ignore, strings.Trim(pattern, "/"))
	}
	return s, nil
}

// ignores tells whether name, a path below the folder, is left out: by the whole
// path, or by its last element if the pattern has no slash.
func (s settings) ignores(name string) bool {
	for _, pattern := range s.ignore {
		subject := name
		if !strings.Contains(pattern, "/") {
			subject = path.Base(name)
		}
		if ok, _ := path.Match(pattern, subject); ok {
			return true
		}
	}
	return false
}

// window is the time asked about, from ≤ t < to, and the zone of dates that
// name none.
type window struct {
	from, to time.Time
	location *time.Location
}

func (w window) contains(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// overlaps tells whether anything of start ≤ t < end is in the window; a moment
// is what ends when it starts.
func (w window) overlaps(start, end time.Time) bool {
	if !end.After(start) {
		return w.contains(start)
	}
	return start.Before(w.to) && end.After(w.from)
}

// day returns the day of t in the window's zone, and whether any of it is in the
// window.
func (w window) day(year, month, day int) (time.Time, bool) {
	start := time.Date(year, time.Month(month), day, 0, 0, 0, 0, w.location)
	return start, w.overlaps(start, start.AddDate(0, 0, 1))
}
