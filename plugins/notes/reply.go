package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

// maxPlannedFirst is how many dates of Org files stand before the notes; the
// others follow them.
const maxPlannedFirst = 20

// render writes the reply, within the tokens that q allows. It is "" when there
// is nothing to say.
func render(c *collector, q hand.Query) string {
	notes := slices.DeleteFunc(c.notes, func(n *note) bool {
		if n.broken != nil {
			c.trouble.Broken(n.path, n.broken)
		}
		return n.broken != nil
	})
	if len(notes)+len(c.planned)+c.surplus == 0 && !c.trouble.Any() {
		return ""
	}
	slices.SortFunc(c.planned, func(a, b planned) int {
		return cmp.Or(a.start.Compare(b.start), a.end.Compare(b.end), strings.Compare(a.path, b.path), strings.Compare(a.title, b.title), strings.Compare(a.what, b.what))
	})
	first := min(len(c.planned), maxPlannedFirst)
	reply := compose.List{Heading: heading(c, notes, q), Foot: c.trouble.Foot(), Unlisted: c.surplus}
	for _, p := range c.planned[:first] {
		reply.Entries = append(reply.Entries, compose.Entry{Brief: p.line(q)})
	}
	for _, n := range notes {
		brief := n.line(q)
		reply.Entries = append(reply.Entries, compose.Entry{Brief: brief, Short: brief + n.tasks(), Long: brief + n.details()})
	}
	for _, p := range c.planned[first:] {
		reply.Entries = append(reply.Entries, compose.Entry{Brief: p.line(q)})
	}
	return reply.Within(q.MaxOutputTokens)
}

func heading(c *collector, notes []*note, q hand.Query) string {
	var said []string
	if c.changed > 0 {
		said = append(said, compose.Plural(c.changed, "note changed", "notes changed"))
	}
	daily := 0
	for _, n := range notes {
		if !n.day.IsZero() {
			daily++
		}
	}
	if daily > 0 {
		said = append(said, compose.Plural(daily, "note of a day in it", "notes of days in it"))
	}
	if len(c.planned) > 0 {
		said = append(said, compose.Plural(len(c.planned), "dated item of Org files", "dated items of Org files"))
	}
	if len(said) == 0 {
		said = append(said, "no note changed")
	}
	text := fmt.Sprintf("Notes %s: %s.", compose.Span(q), strings.Join(said, ", "))
	if c.later > 0 {
		text += fmt.Sprintf(" %s after it, perhaps also in it.", compose.Plural(c.later, "note was written", "notes were written"))
	}
	return text
}

// line is the line of a dated item: when, what, and in which file.
func (p planned) line(q hand.Query) string {
	when := compose.Moment(p.start, q)
	if p.allDay {
		when = compose.Day(p.start, q)
	}
	return fmt.Sprintf("\n- %s %s: %s (%s)", when, p.what, p.title, compose.OneLine(p.path, maxTitle))
}

// line is the line of a note: when, its title and its file.
func (n *note) line(q hand.Query) string {
	when := compose.Day(n.day, q) + " note of the day"
	if n.changed {
		when = compose.Moment(n.written, q) + " changed"
	}
	return fmt.Sprintf("\n- %s: %s (%s)", when, n.title, compose.OneLine(n.path, maxTitle))
}

// tasks are the lines below a note's first about what is to do and was done.
func (n *note) tasks() string { return n.open.line("open") + n.done.line("done") }

// details are all lines below a note's first.
func (n *note) details() string {
	text := n.sections.line("sections") + n.tasks()
	if n.excerpt != "" {
		text += "\n  \"" + n.excerpt + "\""
	}
	return text
}

func (l list) line(word string) string {
	if l.count == 0 {
		return ""
	}
	text := "\n  " + word + ": " + strings.Join(l.first, "; ")
	if more := l.count - len(l.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
