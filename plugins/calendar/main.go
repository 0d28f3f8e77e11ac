// Command calendar is the bundled calendar hand: it reads every .ics file below
// the granted folder "calendars" and answers with what happened in the query's
// window and what is next in the 24 hours after it, most important first when
// not all of it fits.
//
// Calendars are written by strangers, who send invitations. The hand bounds what
// it reads and how far it follows a recurrence, and shows every text as a part
// of one line; framing the reply as external text is the host's work.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

// rootName is the name under which the operator grants the folder.
const rootName = "calendars"

const (
	maxFiles     = 2_000
	maxFileBytes = 16 << 20
	// maxTotalBytes bounds all files together, maxEntries the folders' entries.
	maxTotalBytes  = 256 << 20
	maxEntries     = 20_000
	maxFolderDepth = 16
	// maxWeight bounds what is held of all events together, to about 25 MB and
	// 10 s: an event that may be shown weighs liveWeight, one that is only a
	// version of another weighs 1.
	maxWeight  = 40_000
	liveWeight = 4
)

// Errors that an operator can act on.
var (
	errNotGranted = errors.New(`no folder to read: grant one under the name "calendars" (files = { calendars = "/path/to/folder" })`)
	errNoFiles    = errors.New(`no .ics file in the folder granted as "calendars": export a calendar into it, or grant the folder that your calendars are synchronised to`)
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// answer lists the events of q's window and of the 24 hours that follow. It
// returns "" when there are none and every file was read.
func answer(ctx context.Context, q hand.Query) (string, error) {
	f := folder{fsys: files.Root(ctx, rootName)}
	if err := f.walk(ctx, ".", 0); err != nil {
		switch {
		case ctx.Err() != nil:
			return "", fmt.Errorf("list calendars: %w", context.Cause(ctx))
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%w: %w", errNotGranted, err)
		}
		return "", fmt.Errorf("list calendars: %w", err)
	}
	if len(f.files) == 0 && len(f.problems) == 0 {
		return "", errNoFiles
	}
	w := newWindow(q)
	c := newCalendar(w.location)
	if err := f.read(ctx, c, w); err != nil {
		return "", fmt.Errorf("read calendars: %w", err)
	}
	return newDigest(c, w, f.problems).render(q.MaxOutputTokens), nil
}

// window holds the times asked about: [from, to) and the next 24 hours, which
// begin at next.
type window struct {
	from, to, now, next time.Time
	location            *time.Location
}

func newWindow(q hand.Query) window {
	w := window{from: q.From, to: q.To, now: q.Now, next: q.Now, location: q.Location}
	if w.to.After(w.next) {
		w.next = w.to
	}
	if w.location == nil {
		w.location = time.UTC
	}
	return w
}

// end is the end of the next 24 hours.
func (w window) end() time.Time { return w.next.Add(24 * time.Hour) }

// folder finds and reads the files.
type folder struct {
	fsys     fs.FS
	files    []source // sorted within each folder
	entries  int
	full     bool // one of the bounds is reached
	problems []problem
}

// source is one file, as it was listed.
type source struct {
	name string
	size int64
}

// problem is a file that was not read, or not all of it.
type problem struct{ name, reason string }

func (f *folder) fail(name string, err error) {
	f.problems = append(f.problems, problem{compose.OneLine(name, 80), compose.OneLine(compose.Reason(err), 120)})
}

// walk collects the names of the .ics files in dir and below. It fails only if
// the top folder cannot be listed or ctx ends.
func (f *folder) walk(ctx context.Context, dir string, depth int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	entries, err := fs.ReadDir(f.fsys, dir)
	if err != nil {
		if depth == 0 {
			return err
		}
		f.fail(dir, err)
		return nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if f.full {
			return nil
		}
		name := path.Join(dir, e.Name())
		if f.entries++; f.entries > maxEntries || len(f.files) == maxFiles && isCalendar(name) {
			f.full = true
			f.fail(name, fmt.Errorf("this and what follows: more than %d files or %d entries", maxFiles, maxEntries))
			return nil
		}
		switch {
		case strings.HasPrefix(e.Name(), "."):
			// Hidden, such as the "._NAME" that macOS puts beside its files.
		case e.IsDir() && depth == maxFolderDepth:
			f.fail(name, errors.New("too many folders deep"))
		case e.IsDir():
			if err := f.walk(ctx, name, depth+1); err != nil {
				return err
			}
		case e.Type().IsRegular() && isCalendar(e.Name()):
			info, err := e.Info()
			if err != nil {
				f.fail(name, err)
				continue
			}
			f.files = append(f.files, source{name, info.Size()})
		}
	}
	return nil
}

func isCalendar(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".ics", ".ical", ".icalendar":
		return true
	}
	return false
}

// read parses all files into c. It fails only when ctx ends.
func (f *folder) read(ctx context.Context, c *calendar, w window) error {
	var total int64
	weight := 0
	for i, file := range f.files {
		name := file.name
		if total >= maxTotalBytes || weight >= maxWeight {
			f.fail(name, fmt.Errorf("this and %d more: too much to read", len(f.files)-i-1))
			return nil
		}
		d, size, err := f.parse(ctx, file, w, maxWeight-weight)
		total += size
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			f.fail(name, err)
			continue
		}
		weight += d.weight
		switch {
		case d.problem != nil && len(d.events) == 0:
			f.fail(name, fmt.Errorf("%w; no usable event", d.problem))
		case d.problems > 1:
			f.fail(name, fmt.Errorf("%d events in it, the first: %w", d.problems, d.problem))
		case d.problem != nil:
			f.fail(name, fmt.Errorf("1 event in it: %w", d.problem))
		case d.full:
			f.fail(name, fmt.Errorf("only its first %d events: too many", len(d.events)))
		case d.truncated:
			f.fail(name, errors.New("the end is missing"))
		}
		c.add(d, i, compose.OneLine(name, 80), w)
	}
	return nil
}

// smallFile is up to what size a file is read at once. Each call of the host
// costs a guest more than the memory does.
const smallFile = 256 << 10

func (f *folder) parse(ctx context.Context, listed source, w window, maxWeight int) (d *document, size int64, err error) {
	if listed.size > maxFileBytes {
		return nil, 0, errTooLarge
	}
	if listed.size <= smallFile {
		data, err := fs.ReadFile(f.fsys, listed.name)
		if err != nil {
			return nil, 0, err
		}
		d, err = parse(ctx, bytes.NewReader(data), w, maxWeight)
		return d, int64(len(data)), err
	}
	file, err := f.fsys.Open(listed.name)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	// The file may grow while it is read.
	limited := &limitedReader{r: file, left: maxFileBytes}
	d, err = parse(ctx, limited, w, maxWeight)
	return d, maxFileBytes - limited.left, err
}
