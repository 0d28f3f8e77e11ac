package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// Bounds of one query. The host has its own; these leave room below them, so
// that the reply says what was left out and no read fails for want of quota.
const (
	maxCalls       = 6_000
	maxTotalBytes  = 64 << 20
	maxNoteBytes   = 512 << 10 // the beginning of each file: one call of the host
	maxEntries     = 50_000
	maxFolders     = 2_500
	maxFolderDepth = 16
	maxDaily       = 400 // notes named after a day
	maxAgenda      = 500 // Org files that did not change
	pageEntries    = 1_000
)

// listedNote is a file that may be told of, as its folder lists it.
type listedNote struct {
	path    string
	size    int64
	written time.Time // the file's modification time
	// day is the one that the name gives, zero if it gives none in the window.
	day     time.Time
	changed bool // written in the window
}

// when is the time that the note is listed by.
func (n listedNote) when() time.Time {
	if n.changed {
		return n.written
	}
	return n.day
}

// collector finds and reads the notes. It is used once, by one goroutine.
type collector struct {
	ctx      context.Context
	fsys     fs.FS
	settings settings
	window   window

	budget           *budget.Budget
	entries, folders int // seen so far

	found   int // files that are notes by their name
	changed int // of them, those that were written in the window
	later   int // and those that were written after it
	surplus int // changed ones that are not opened
	// listed holds what was written in the window or is named after a day of
	// it, agenda the other Org files.
	listed, agenda []listedNote

	notes   []*note // read, newest first
	planned []planned
	trouble compose.Trouble
}

// collect finds the notes and reads those of the window. It fails when the
// context ends or the folder itself cannot be listed.
func (c *collector) collect() error {
	err := c.walk(".", 0)
	if err == nil {
		err = c.read()
	}
	if errors.Is(err, budget.ErrSpent) {
		c.trouble.Note("Reading stopped at a limit; some notes were not looked at.")
		err = nil
	}
	return err
}

// problem records that something could not be read, and passes on what must end
// the query.
func (c *collector) problem(name string, err error) error {
	if err == nil {
		return nil
	}
	if ends := c.budget.Ends(err); ends != nil {
		return ends
	}
	c.trouble.Broken(name, err)
	return nil
}

// walk looks for notes in dir and below. Hidden folders hold what programs keep
// beside the notes.
func (c *collector) walk(dir string, depth int) error {
	if c.folders++; c.folders > maxFolders {
		c.trouble.Note("More than %d folders; the others were not looked at.", maxFolders)
		return nil
	}
	folders, err := c.list(dir)
	if err != nil {
		if depth == 0 && !errors.Is(err, budget.ErrSpent) {
			return err
		}
		return c.problem(dir, err)
	}
	if depth == maxFolderDepth {
		if len(folders) > 0 {
			c.trouble.Note("Folders more than %d deep were not looked at.", maxFolderDepth)
		}
		return nil
	}
	slices.Sort(folders)
	for _, name := range folders {
		if err := c.walk(name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// list considers the files of dir and returns its folders, reading a page of
// entries at a time.
func (c *collector) list(dir string) (folders []string, err error) {
	if err := c.budget.Spend(1, 0); err != nil {
		return nil, err
	}
	opened, err := c.fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	lister, ok := opened.(fs.ReadDirFile)
	if !ok {
		return nil, errors.New("not a directory")
	}
	for {
		if err := c.budget.Spend(1, 0); err != nil {
			return folders, err
		}
		page, err := lister.ReadDir(pageEntries)
		for _, e := range page {
			if c.entries++; c.entries > maxEntries {
				c.trouble.Note("More than %d files and folders; the others were not looked at.", maxEntries)
				return folders, budget.ErrSpent
			}
			name := path.Join(dir, e.Name())
			switch {
			case strings.HasPrefix(e.Name(), "."), c.settings.ignores(name):
			case e.IsDir():
				folders = append(folders, name)
			case e.Type().IsRegular() && formatOf(name) != formatNone:
				if err := c.consider(name, e); err != nil {
					return folders, err
				}
			}
		}
		if err == io.EOF || err == nil && len(page) == 0 {
			return folders, nil
		}
		if err != nil {
			return folders, err
		}
	}
}

// consider remembers the file if it may be told of.
func (c *collector) consider(name string, e fs.DirEntry) error {
	c.found++
	info, err := e.Info()
	if err != nil {
		return c.problem(name, err)
	}
	n := listedNote{path: name, size: info.Size(), written: info.ModTime()}
	n.changed = c.window.contains(n.written)
	if day, ok := c.window.dayNamed(name); ok {
		n.day = day
	}
	if n.changed {
		c.changed++
	} else if !n.written.Before(c.window.to) {
		c.later++
	}
	switch {
	case n.changed || !n.day.IsZero():
		if c.listed = append(c.listed, n); len(c.listed) >= 4*mostNotes {
			c.trim()
		}
	case formatOf(name) == formatOrg:
		if c.agenda = append(c.agenda, n); len(c.agenda) >= 4*maxAgenda {
			c.trimAgenda()
		}
	}
	return nil
}

func newestFirst(a, b listedNote) int {
	return cmp.Or(b.when().Compare(a.when()), strings.Compare(a.path, b.path))
}

// trim keeps the newest notes, and of the notes of a day those of the last days.
func (c *collector) trim() {
	slices.SortFunc(c.listed, newestFirst)
	changed, daily := 0, 0
	c.listed = slices.DeleteFunc(c.listed, func(n listedNote) bool {
		if !n.day.IsZero() && daily < maxDaily {
			daily++
			return false
		}
		if changed < c.settings.maxNotes {
			changed++
			return false
		}
		c.surplus++
		return true
	})
}

func (c *collector) trimAgenda() {
	slices.SortFunc(c.agenda, func(a, b listedNote) int {
		return cmp.Or(b.written.Compare(a.written), strings.Compare(a.path, b.path))
	})
	if len(c.agenda) > maxAgenda {
		c.trouble.Note("Only the newest %d Org files were looked through for dates.", maxAgenda)
		c.agenda = c.agenda[:maxAgenda]
	}
}

// read reads the notes that walk found, then the Org files that may have dates
// of the window.
func (c *collector) read() error {
	c.trim()
	c.trimAgenda()
	for i, n := range slices.Concat(c.listed, c.agenda) {
		content, cut, err := c.contentOf(n)
		if err != nil {
			if err := c.problem(n.path, err); err != nil {
				return err
			}
			continue
		}
		parsed := parse(n, content, c.window)
		if cut {
			c.trouble.Note("Of %s only the first %d KiB were read.", compose.OneLine(n.path, 100), maxNoteBytes>>10)
		}
		c.planned = append(c.planned, parsed.planned...)
		if i < len(c.listed) {
			c.notes = append(c.notes, parsed)
		}
	}
	return nil
}

// contentOf returns the beginning of a file, and whether there is more.
func (c *collector) contentOf(n listedNote) (content []byte, cut bool, err error) {
	if n.size < maxNoteBytes {
		if err := c.budget.Spend(1, int(n.size)); err != nil {
			return nil, false, err
		}
		content, err := fs.ReadFile(c.fsys, n.path)
		if len(content) > maxNoteBytes {
			return content[:maxNoteBytes], true, err // grown since it was listed
		}
		return content, false, err
	}
	if err := c.budget.Spend(2, maxNoteBytes); err != nil {
		return nil, false, err
	}
	file, err := c.fsys.Open(n.path)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	content = make([]byte, maxNoteBytes)
	size, err := io.ReadFull(file, content)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return content[:size], false, nil
	}
	return content[:size], n.size > maxNoteBytes, err
}

// format is how a note is written.
type format int

const (
	formatNone format = iota
	formatMarkdown
	formatOrg
	formatText
)

func formatOf(name string) format {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".markdown":
		return formatMarkdown
	case ".org":
		return formatOrg
	case ".txt":
		return formatText
	}
	return formatNone
}

// dayNamed returns the day that a name begins with, as 2026-03-23, 2026_03_23 or
// 20260323, also with a time after it, or that the last three parts of a path
// are, as in 2026/03/23.md; and whether any of it is in the window.
func (w window) dayNamed(name string) (time.Time, bool) {
	base := path.Base(name)
	year, month, day, rest, ok := leadingDate(base)
	if !ok || rest != "" && isDigit(rest[0]) && !isTimeOfDay(rest) {
		parts := strings.Split(strings.TrimSuffix(name, path.Ext(name)), "/")
		if len(parts) < 3 {
			return time.Time{}, false
		}
		year, month, day, rest, ok = leadingDate(strings.Join(parts[len(parts)-3:], "-"))
		if !ok || rest != "" {
			return time.Time{}, false
		}
	}
	return w.day(year, month, day)
}

// isTimeOfDay tells whether s begins with four or six digits and no more, as
// names made of a moment do.
func isTimeOfDay(s string) bool {
	digits := 0
	for digits < len(s) && isDigit(s[digits]) {
		digits++
	}
	return digits == 4 || digits == 6
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// leadingDate reads the date that s begins with, as 2026-03-23, 2026_03_23 or
// 20260323.
func leadingDate(s string) (year, month, day int, rest string, ok bool) {
	number := func(digits int) int {
		if !ok || len(rest) < digits {
			ok = false
			return 0
		}
		n := 0
		for i := range digits {
			if !isDigit(rest[i]) {
				ok = false
				return 0
			}
			n = n*10 + int(rest[i]-'0')
		}
		rest = rest[digits:]
		return n
	}
	rest, ok = s, true
	year = number(4)
	var separator byte
	if ok && rest != "" && (rest[0] == '-' || rest[0] == '_') {
		separator, rest = rest[0], rest[1:]
	}
	month = number(2)
	if separator != 0 && ok {
		if rest == "" || rest[0] != separator {
			return 0, 0, 0, s, false
		}
		rest = rest[1:]
	}
	day = number(2)
	if !ok || year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day() {
		return 0, 0, 0, s, false
	}
	return year, month, day, rest, true
}
