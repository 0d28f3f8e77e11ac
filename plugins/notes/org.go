package main

import (
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// outline is an Org text that is being read (Org syntax, orgmode.org/worg/org-syntax.html).
type outline struct {
	*note
	window     window
	open, done []string // keywords of tasks

	// Of the headline that is being read:
	level    int
	keyword  string
	finished bool
	title    string
	silent   int // level of the archived or commented tree it is in, 0 if none
	best     planned
	rank     int // of best, 0 if there is none

	drawer bool
	block  string // the word that ends the block: "src"
	words  excerpt
}

// The keywords that there are without a line #+TODO; NEXT and the others are
// what people have in the configuration of their editor.
var (
	openKeywords = []string{"TODO", "NEXT", "STARTED", "WAITING", "WAIT", "HOLD", "PROJ", "SOMEDAY"}
	doneKeywords = []string{"DONE", "CANCELLED", "CANCELED", "KILL"}
)

// readOrg finds the title, headlines, tasks and first words of an Org text, and
// what it has planned for the window: of each headline the one date that matters
// most.
func readOrg(n *note, text string, w window) {
	o := &outline{note: n, window: w, open: openKeywords, done: doneKeywords}
	lines(text, o.line)
	o.endHeadline()
	n.excerpt = o.words.text()
}

func (o *outline) line(line string) {
	if level, rest := headline(line); level > 0 {
		o.endHeadline()
		o.beginHeadline(level, rest)
		return
	}
	s := strings.TrimSpace(line)
	if o.block != "" {
		if word, ok := directive(s, "#+end_"); ok && strings.EqualFold(word, o.block) {
			o.block = ""
		}
		return
	}
	switch {
	case s == "":
		o.words.add("")
		return
	case strings.HasPrefix(s, "#+"):
		o.option(s)
		return
	case s == "#" || strings.HasPrefix(s, "# "):
		return // a comment
	case strings.EqualFold(s, ":end:"):
		o.drawer = false
		return
	case len(s) > 2 && s[0] == ':' && s[len(s)-1] == ':' && !strings.ContainsAny(s[1:len(s)-1], ": \t"):
		o.drawer = true
		return
	}
	isPlanning := o.readStamps(s)
	if o.drawer || isPlanning {
		return
	}
	if state, task, ok := checkbox(line); ok {
		o.addTask(state, task)
		return
	}
	o.words.add(s)
}

// option reads a line such as "#+TITLE: Garden".
func (o *outline) option(s string) {
	if word, ok := directive(s, "#+begin_"); ok {
		o.block = word
		return
	}
	key, value, ok := strings.Cut(s[2:], ":")
	if !ok {
		return
	}
	switch strings.ToLower(key) {
	case "title":
		if o.note.title == "" {
			o.note.title = compose.OneLine(unlink(value), maxTitle)
		}
	case "todo", "seq_todo", "typ_todo":
		o.readKeywords(value)
	}
}

// directive returns the word after prefix, in whatever case that is written.
func directive(s, prefix string) (word string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	word, _, _ = strings.Cut(s[len(prefix):], " ")
	return word, word != ""
}

// maxKeywords bounds the keywords of a file, which are looked for in each of its
// headlines.
const maxKeywords = 32

// readKeywords reads such as "TODO(t) WAIT(w@) | DONE(d)": what follows the bar,
// or else the last, says that something is done.
func (o *outline) readKeywords(value string) {
	open, done, bar := strings.Cut(value, "|")
	words := func(s string) (all []string) {
		for word := range strings.FieldsSeq(s) {
			word, _, _ = strings.Cut(word, "(")
			if word != "" {
				all = append(all, word)
			}
		}
		return all
	}
	opens, dones := words(open), words(done)
	if !bar && len(opens) > 0 {
		opens, dones = opens[:len(opens)-1], opens[len(opens)-1:]
	}
	// A word may be open in one file and done by default.
	o.open = append(slices.DeleteFunc(slices.Clone(o.open), func(w string) bool { return slices.Contains(dones, w) }), opens...)
	o.done = append(slices.DeleteFunc(slices.Clone(o.done), func(w string) bool { return slices.Contains(opens, w) }), dones...)
	o.open, o.done = o.open[:min(len(o.open), maxKeywords)], o.done[:min(len(o.done), maxKeywords)]
}

// headline reads the stars that a headline begins with; level 0 is none.
func headline(line string) (level int, rest string) {
	rest = strings.TrimLeft(line, "*")
	level = len(line) - len(rest)
	if level == 0 || rest == "" || rest[0] != ' ' {
		return 0, ""
	}
	return level, strings.TrimSpace(rest)
}

func (o *outline) beginHeadline(level int, s string) {
	o.level, o.keyword, o.finished, o.drawer, o.block = level, "", false, false, ""
	if o.silent >= level {
		o.silent = 0
	}
	if word, rest, _ := strings.Cut(s, " "); slices.Contains(o.open, word) || slices.Contains(o.done, word) {
		o.keyword, o.finished = word, slices.Contains(o.done, word)
		s = strings.TrimSpace(rest)
	}
	if len(s) >= 4 && s[0] == '[' && s[1] == '#' && s[3] == ']' { // a priority
		s = strings.TrimSpace(s[4:])
	}
	s, tags := cutTags(s)
	if word, _, _ := strings.Cut(s, " "); o.silent == 0 && (word == "COMMENT" || slices.Contains(tags, "ARCHIVE")) {
		o.silent = level
	}
	o.title = compose.OneLine(unlink(withoutStamps(s)), maxTitle)
	if o.title == "" {
		o.title = compose.OneLine(s, maxTitle)
	}
	if o.silent > 0 {
		return
	}
	switch {
	case o.keyword == "":
		o.sections.add(o.title, maxSections, maxTitle)
	case o.finished:
		o.note.done.add(o.title, maxTasks, maxTaskText)
	default:
		o.note.open.add(o.title, maxTasks, maxTaskText)
	}
	// A headline of a date tree is "2026-03-23 Monday".
	if year, month, day, rest, ok := leadingDate(s); ok && (rest == "" || rest[0] == ' ') {
		if start, in := o.window.day(year, month, day); in {
			o.offer("of the day", 1, stamp{start: start, end: start.AddDate(0, 0, 1), allDay: true})
		}
	}
	o.readStamps(s)
}

// cutTags separates the tags, such as ":work:ARCHIVE:", from the end of a
// headline.
func cutTags(s string) (rest string, tags []string) {
	i := strings.LastIndexAny(s, " \t")
	last := s[i+1:]
	if len(last) < 3 || last[0] != ':' || last[len(last)-1] != ':' {
		return s, nil
	}
	return strings.TrimSpace(s[:i+1]), strings.Split(last[1:len(last)-1], ":")
}

// withoutStamps removes what stands in the brackets of time stamps.
func withoutStamps(s string) string {
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "<[")
		if i < 0 {
			break
		}
		t, ok := readStamp(s[i:])
		if !ok {
			b.WriteString(s[:i+1])
			s = s[i+1:]
			continue
		}
		b.WriteString(s[:i])
		s = strings.TrimPrefix(s[i+t.size:], "--")
	}
	b.WriteString(s)
	return b.String()
}

// readStamps considers the time stamps of a line, and tells whether it is one of
// planning (SCHEDULED, DEADLINE, CLOSED) or of the clock.
func (o *outline) readStamps(s string) (planning bool) {
	from := 0
	var before string
	for range 16 {
		i := strings.IndexAny(s[from:], "<[")
		if i < 0 {
			break
		}
		before = strings.TrimRight(s[:from+i], " ")
		from += i
		first, ok := readStamp(s[from:])
		if !ok {
			from++
			continue
		}
		from += first.size
		at := first.in(o.window.location)
		if rest, ok := strings.CutPrefix(s[from:], "--"); ok {
			if last, ok := readStamp(rest); ok {
				from += 2 + last.size
				if end := last.in(o.window.location); end.end.After(at.start) {
					at.end = end.end
				}
			}
		}
		what, rank := "on the day", 3
		switch {
		case strings.HasSuffix(before, "DEADLINE:"):
			what, rank, planning = "deadline", 6, true
		case strings.HasSuffix(before, "SCHEDULED:"):
			what, rank, planning = "scheduled", 5, true
		case strings.HasSuffix(before, "CLOSED:"):
			what, rank, planning = "closed", 4, true
		case !first.active:
			what, rank = "logged", 2
			planning = planning || strings.HasPrefix(s, "CLOCK:") || strings.HasPrefix(s, "- State ")
		}
		if first.active && !o.finished {
			at = first.repeatedIn(at, o.window)
		}
		if o.window.overlaps(at.start, at.end) {
			o.offer(what, rank, at)
		}
	}
	return planning
}

// offer takes a date as that of the headline if it matters more than what it
// has, or as much and is later.
func (o *outline) offer(what string, rank int, at stamp) {
	if o.silent > 0 || rank < o.rank || rank == o.rank && !at.start.After(o.best.start) {
		return
	}
	title := o.title
	if o.keyword != "" {
		title = o.keyword + " " + title
	}
	o.best, o.rank = planned{stamp: at, what: what, title: title, path: o.path}, rank
}

func (o *outline) endHeadline() {
	if o.rank > 0 && len(o.note.planned) < maxPlanned {
		o.note.planned = append(o.note.planned, o.best)
	}
	o.rank = 0
}

// stamp is a time or a span of time.
type stamp struct {
	start, end time.Time // end is start for a moment
	allDay     bool
}

// writtenStamp is a time stamp of Org, such as <2026-03-23 Mon 10:00-11:00 +1w>.
type writtenStamp struct {
	active           bool // <…>, not […]
	year, month, day int
	minutes, until   int // of the day, -1 if the stamp has none
	every            int // the repeater, 0 if there is none
	unit             byte
	size             int // in bytes
}

// maxStampBytes bounds one stamp; names of days are in any language.
const maxStampBytes = 100

// readStamp reads the stamp that s begins with.
func readStamp(s string) (t writtenStamp, ok bool) {
	if len(s) < len("<2026-03-23>") || s[5] != '-' {
		return t, false
	}
	t.active = s[0] == '<'
	closing := byte(']')
	if t.active {
		closing = '>'
	}
	end := strings.IndexByte(s[:min(len(s), maxStampBytes)], closing)
	if end < 0 {
		return t, false
	}
	t.size, t.minutes, t.until = end+1, -1, -1
	var rest string
	if t.year, t.month, t.day, rest, ok = leadingDate(s[1:end]); !ok || rest != "" && rest[0] != ' ' {
		return t, false
	}
	for field := range strings.FieldsSeq(rest) {
		switch {
		case isDigit(field[0]):
			from, until, isSpan := strings.Cut(field, "-")
			t.minutes = minutesOf(from)
			if isSpan && t.minutes >= 0 {
				t.until = minutesOf(until)
			}
		case field[0] == '+' || field[0] == '.':
			// What a done item moves by differs between +, ++ and .+; when it
			// comes next does not. An upper end follows a slash.
			field = strings.TrimLeft(field, ".+")
			field, _, _ = strings.Cut(field, "/")
			t.every, t.unit = interval(field)
		}
	}
	return t, true
}

// minutesOf reads a time of the day; -1 if it is none.
func minutesOf(s string) int {
	hours, minutes, ok := strings.Cut(s, ":")
	if !ok || hours == "" || len(hours) > 2 || len(minutes) != 2 {
		return -1
	}
	total := 0
	for i, part := range []string{hours, minutes} {
		n := 0
		for j := range len(part) {
			if !isDigit(part[j]) {
				return -1
			}
			n = n*10 + int(part[j]-'0')
		}
		if i == 0 && n > 24 || i == 1 && n > 59 {
			return -1
		}
		total = total*60 + n
	}
	return total
}

// interval reads such as "2w"; 0 if it is none.
func interval(s string) (n int, unit byte) {
	if len(s) < 2 || len(s) > 5 || !strings.ContainsAny(s[len(s)-1:], "hdwmy") {
		return 0, 0
	}
	for i := range len(s) - 1 {
		if !isDigit(s[i]) {
			return 0, 0
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, s[len(s)-1]
}

// in returns the time in a zone.
func (t writtenStamp) in(zone *time.Location) stamp {
	date := func(minutes int) time.Time {
		return time.Date(t.year, time.Month(t.month), t.day, 0, minutes, 0, 0, zone)
	}
	if t.minutes < 0 {
		return stamp{start: date(0), end: date(24 * 60), allDay: true}
	}
	s := stamp{start: date(t.minutes), end: date(t.minutes)}
	if t.until > t.minutes {
		s.end = date(t.until)
	}
	return s
}

// repeatedIn returns the first repetition of at that is in the window or after
// it.
func (t writtenStamp) repeatedIn(at stamp, w window) stamp {
	if t.every == 0 || w.overlaps(at.start, at.end) || !at.start.Before(w.from) {
		return at
	}
	length := at.end.Sub(at.start)
	nth := func(n int) stamp {
		s := stamp{allDay: at.allDay}
		switch n *= t.every; t.unit {
		case 'h':
			s.start = at.start.Add(time.Duration(n) * time.Hour)
		case 'd':
			s.start = at.start.AddDate(0, 0, n)
		case 'w':
			s.start = at.start.AddDate(0, 0, 7*n)
		case 'm':
			s.start = at.start.AddDate(0, n, 0)
		default:
			s.start = at.start.AddDate(n, 0, 0)
		}
		if s.end = s.start.Add(length); at.allDay {
			s.end = s.start.AddDate(0, 0, int((length+12*time.Hour)/(24*time.Hour)))
		}
		return s
	}
	// From here it is a few steps: a day's length differs by an hour when the
	// clock is changed, that of a month and of a year always.
	longest := 24 * time.Hour
	switch t.unit {
	case 'h':
		longest = time.Hour
	case 'w':
		longest *= 7
	case 'm':
		longest *= 31
	case 'y':
		longest *= 366
	}
	n := max(0, int((w.from.Sub(at.end)-26*time.Hour)/(longest*time.Duration(t.every))))
	for range 2_000 {
		if s := nth(n); s.end.After(w.from) || !s.start.Before(w.from) {
			return s
		}
		n++
	}
	return at
}
