package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

const (
	// maxProblems is how many files the reply names, maxNotesShown how many notes.
	maxProblems   = 5
	maxNotesShown = 3
)

// digest is a reply in the making.
type digest struct {
	window
	sections []*section
	ranked   []*entry // of all sections, the most important first
	trailer  []string // lines about what was not read
}

type section struct {
	heading, short string
	// from and to bound the section; on one day its lines need no date.
	from, to time.Time
	entries  []*entry // by time
}

// entry is one line of the reply.
type entry struct {
	*occurrence
	section  *section
	score    int
	line     string // without the description
	shown    bool
	detailed bool // with the description
	conflict bool
	// more counts later entries of the same series that this one stands for.
	more int
}

func newDigest(c *calendar, w window, problems []problem) *digest {
	d := &digest{window: w}
	verb := "Between"
	if !w.to.After(w.now) {
		verb = "Happened between"
	}
	past := &section{from: w.from, to: w.to, short: "Window:"}
	past.heading = fmt.Sprintf("%s %s and %s:", verb, d.moment(w.from), d.moment(w.to))
	next := &section{from: w.next, to: w.end(), short: "Next 24 hours:"}
	next.heading = fmt.Sprintf("Next 24 hours, from %s:", d.moment(w.next))
	off := &section{from: w.from, to: w.end(), heading: "Cancelled:", short: "Cancelled:"}
	if w.from.Before(w.to) {
		d.sections = append(d.sections, past)
	}
	d.sections = append(d.sections, next, off)

	// The same event from two calendars that gave it different UIDs is one.
	type looks struct {
		start, end        int64
		allDay, cancelled bool
		summary, location string
	}
	seen := make(map[looks]bool)
	put := func(s *section, o *occurrence) {
		k := looks{o.start.Unix(), o.end.Unix(), o.allDay, o.cancelled, o.summary, o.location}
		if seen[k] {
			return
		}
		seen[k] = true
		if o.cancelled {
			s = off
		}
		s.entries = append(s.entries, &entry{occurrence: o, section: s})
	}
	// What is under way when the next 24 hours begin is listed there, and only
	// there.
	for _, o := range c.between(w.next, w.end()) {
		put(next, o)
	}
	for _, o := range c.between(w.from, w.to) {
		if !o.overlaps(w.next, w.end()) {
			put(past, o)
		}
	}
	d.arrange(next)
	d.trail(problems, c.notes)
	return d
}

// arrange orders the entries, writes their lines and ranks them.
func (d *digest) arrange(next *section) {
	for _, s := range d.sections {
		slices.SortStableFunc(s.entries, func(a, b *entry) int {
			return cmp.Or(a.start.Compare(b.start), b.end.Compare(a.end), strings.Compare(a.summary, b.summary), strings.Compare(a.uid, b.uid))
		})
	}
	for _, s := range d.sections {
		s.foldSeries()
	}
	markConflicts(next.entries)
	for _, s := range d.sections {
		for _, e := range s.entries {
			e.line = d.describe(e)
			e.score = importance(e, s == next)
			d.ranked = append(d.ranked, e)
		}
	}
	slices.SortStableFunc(d.ranked, func(a, b *entry) int {
		return cmp.Or(b.score-a.score, cmp.Compare(d.distance(a), d.distance(b)))
	})
}

// maxOfSeries is how many entries of one series a section lists: what comes
// every minute must not crowd out the rest.
const maxOfSeries = 6

func (s *section) foldSeries() {
	listed, last := map[string]int{}, map[string]*entry{}
	kept := s.entries[:0]
	for _, e := range s.entries {
		if e.uid == "" || listed[e.uid] < maxOfSeries {
			listed[e.uid]++
			last[e.uid] = e
			kept = append(kept, e)
		} else {
			last[e.uid].more++
		}
	}
	s.entries = kept
}

// distance is how far an entry is from the moment when the next 24 hours begin.
func (d *digest) distance(e *entry) time.Duration { return e.start.Sub(d.next).Abs() }

// markConflicts marks the entries of a section, sorted by start, that take place
// at the same time as another.
func markConflicts(entries []*entry) {
	var last *entry // of those before, the one that ends last
	for _, e := range entries {
		if e.allDay || e.transparent || !e.end.After(e.start) {
			continue
		}
		if last != nil && e.start.Before(last.end) {
			e.conflict, last.conflict = true, true
		}
		if last == nil || e.end.After(last.end) {
			last = e
		}
	}
}

// importance ranks entries of equal distance: what comes before what was, times
// before days, then what asks for somebody's presence.
func importance(e *entry, upcoming bool) int {
	score := 0
	add := func(points int, applies bool) {
		if applies {
			score += points
		}
	}
	add(100, upcoming)
	add(-200, e.cancelled)
	add(40, !e.allDay)
	add(20, e.priority >= 1 && e.priority <= 4)
	add(-10, e.priority >= 6 && e.priority <= 9)
	add(10, e.attendees > 1)
	add(10, e.conflict)
	add(5, e.location != "")
	add(5, e.hasAlarms)
	add(-5, e.tentative)
	add(-10, e.transparent)
	return score
}

// describe writes the line of one entry.
func (d *digest) describe(e *entry) string {
	var b strings.Builder
	b.WriteString("- ")
	b.WriteString(d.when(e))
	b.WriteByte(' ')
	b.WriteString(title(e.event))
	var remarks []string
	if e.tentative {
		remarks = append(remarks, "tentative")
	}
	if !e.allDay && e.start.Before(d.next) && e.end.After(d.next) {
		remarks = append(remarks, "under way")
	}
	if !e.movedFrom.IsZero() {
		remarks = append(remarks, "moved from "+d.moment(e.movedFrom))
	}
	if e.conflict {
		remarks = append(remarks, "conflict")
	}
	switch {
	case e.more >= maxInstances-maxOfSeries:
		remarks = append(remarks, fmt.Sprintf("and at least %d times more", e.more))
	case e.more > 0:
		remarks = append(remarks, fmt.Sprintf("and %d times more", e.more))
	}
	if len(remarks) > 0 {
		b.WriteString(" (" + strings.Join(remarks, ", ") + ")")
	}
	if e.location != "" {
		b.WriteString(" · " + e.location)
	}
	switch {
	case e.organizer != "" && e.attendees > 0:
		fmt.Fprintf(&b, " · %s, %s", e.organizer, people(e.attendees))
	case e.organizer != "":
		b.WriteString(" · " + e.organizer)
	case e.attendees > 0:
		b.WriteString(" · " + people(e.attendees))
	}
	return b.String()
}

func people(n int) string {
	if n == 1 {
		return "1 attendee"
	}
	return fmt.Sprintf("%d attendees", n)
}

// when writes the time of an entry, with its date where the section's heading
// does not tell it.
func (d *digest) when(e *entry) string {
	start, end := e.start.In(d.location), e.end.In(d.location)
	obvious := sameDay(e.section.from.In(d.location), e.section.to.Add(-1).In(d.location))
	dated := !obvious || !sameDay(start, e.section.from.In(d.location))
	prefix := ""
	if dated {
		prefix = d.date(start) + " "
	}
	if e.allDay {
		if last := end.AddDate(0, 0, -1); !sameDay(start, last) {
			return d.date(start) + " – " + d.date(last) + " all day"
		}
		return prefix + "all day"
	}
	from := prefix + start.Format("15:04")
	switch midnight := end.Format("15:04") == "00:00"; {
	case start.Equal(end):
		return from
	case sameDay(start, end):
		return from + "–" + end.Format("15:04")
	case midnight && sameDay(start, end.Add(-1)):
		return from + "–24:00"
	}
	return d.date(start) + start.Format(" 15:04") + " – " + d.date(end) + end.Format(" 15:04")
}

func sameDay(a, b time.Time) bool { return a.YearDay() == b.YearDay() && a.Year() == b.Year() }

// date writes a day, with the year if it is not the current one.
func (d *digest) date(t time.Time) string {
	if t.Year() != d.now.In(d.location).Year() {
		return t.Format("Mon 2 Jan 2006")
	}
	return t.Format("Mon 2 Jan")
}

func (d *digest) moment(t time.Time) string {
	t = t.In(d.location)
	return d.date(t) + t.Format(" 15:04")
}

// header is the first line: the zone, and the year that the dates leave out.
func (d *digest) header() string {
	names := []string{}
	for _, t := range []time.Time{d.from, d.to, d.next, d.end()} {
		if name := t.In(d.location).Format("MST"); !slices.Contains(names, name) && !t.IsZero() {
			names = append(names, name)
		}
	}
	year := d.now.In(d.location).Year()
	if zone := d.location.String(); zone != "UTC" && zone != "Local" {
		return fmt.Sprintf("Calendar %d, times in %s (%s)", year, zone, strings.Join(names, ", "))
	}
	return fmt.Sprintf("Calendar %d, times in %s", year, strings.Join(names, ", "))
}

// trail writes the lines about files and series that were not read whole.
func (d *digest) trail(problems []problem, notes []string) {
	for i, p := range problems {
		if i == maxProblems {
			d.trailer = append(d.trailer, fmt.Sprintf("could not read %d more files", len(problems)-i))
			break
		}
		d.trailer = append(d.trailer, fmt.Sprintf("could not read: %s (%s)", p.name, p.reason))
	}
	for i, n := range notes {
		if i == maxNotesShown {
			break
		}
		d.trailer = append(d.trailer, "note: "+n)
	}
}

// render writes the reply in at most most tokens, compose.DefaultTokens if that is not
// positive. When there is too much, descriptions go first, then the least
// important entries.
func (d *digest) render(most int) string {
	if len(d.ranked) == 0 && len(d.trailer) == 0 {
		return ""
	}
	if most <= 0 {
		most = compose.DefaultTokens
	}
	// A little room, so that the host never cuts.
	room := max(most-2-most/50, 1)
	for _, e := range d.ranked {
		e.shown, e.detailed = true, e.description != ""
	}
	if reply := d.write(false); tokens.Estimate(reply) <= room {
		return reply
	}
	for _, e := range d.ranked {
		e.shown, e.detailed = false, false
	}
	// Headings that take more than a quarter are too long, and so are trailers.
	short := tokens.Estimate(d.write(false)) > room/2
	for len(d.trailer) > 0 && cost(strings.Join(d.trailer, "\n")) > room/4 {
		d.trailer = d.trailer[:len(d.trailer)-1]
	}
	used := tokens.Estimate(d.write(short)) + 1
	for _, e := range d.ranked {
		if used += cost(e.line); used > room {
			break
		}
		e.shown = true
	}
	used = tokens.Estimate(d.write(short))
	for _, e := range d.ranked {
		if extra := cost(separator + e.description); e.shown && e.description != "" && used+extra <= room {
			used += extra
			e.detailed = true
		}
	}
	return tokens.Cut(d.write(short), room)
}

const separator = " · "

// cost is what a line adds to a reply at most.
func cost(line string) int { return tokens.Estimate(line) + 1 }

// write writes the entries that are shown and counts the others.
func (d *digest) write(short bool) string {
	var b strings.Builder
	if !short {
		b.WriteString(d.header() + "\n")
	}
	for i, s := range d.sections {
		if len(s.entries) == 0 && s.heading == "Cancelled:" {
			continue
		}
		heading := s.heading
		if short {
			heading = s.short
		}
		if i > 0 || !short {
			b.WriteByte('\n')
		}
		b.WriteString(heading)
		if len(s.entries) == 0 {
			b.WriteString(" nothing\n")
			continue
		}
		b.WriteByte('\n')
		left := 0
		for _, e := range s.entries {
			if !e.shown {
				left++
				continue
			}
			b.WriteString(e.line)
			if e.detailed {
				b.WriteString(separator + e.description)
			}
			b.WriteByte('\n')
		}
		if left > 0 {
			fmt.Fprintf(&b, "… and %d more\n", left)
		}
	}
	if len(d.trailer) > 0 {
		b.WriteByte('\n')
		for _, line := range d.trailer {
			b.WriteString(line + "\n")
		}
	}
	return strings.TrimSpace(b.String())
}
