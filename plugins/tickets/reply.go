package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

// render writes the reply, within the tokens that q allows. It is "" when there
// is nothing to say.
func render(projects []*project, trouble *compose.Trouble, q hand.Query, s settings) string {
	type ranked struct {
		rank   int // how many of its project come before it
		group  string
		ticket ticket
	}
	var all []ranked
	counts := map[kind]int{}
	for _, p := range projects {
		p.sort(s.maxItems)
		for i, t := range p.tickets {
			all = append(all, ranked{i, p.path + ":", t})
			counts[t.kind]++
		}
		if p.more {
			trouble.Note("There is more of %s.", compose.OneLine(p.path, 100))
		}
		if p.later > 0 {
			trouble.Note("Of %s %s after the window, perhaps also in it.", compose.OneLine(p.path, 100), compose.Plural(p.later, "ticket changed", "tickets changed"))
		}
	}
	if len(all) == 0 && !trouble.Any() {
		return ""
	}
	// Where there is no room for all, each project has its latest before another
	// has its second.
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Or(a.rank-b.rank, b.ticket.at.Compare(a.ticket.at)) })
	var said []string
	for _, k := range []kind{issue, pullRequest, mergeRequest} {
		if n := counts[k]; n > 0 {
			said = append(said, compose.Plural(n, string(k), string(k)+"s"))
		}
	}
	list := compose.List{Heading: fmt.Sprintf("Tickets %s: %s", compose.Span(q), cmp.Or(strings.Join(said, ", "), "nothing changed")), Foot: trouble.Foot()}
	if s.assignee != "" {
		list.Heading += " assigned to " + compose.OneLine(s.assignee, maxName)
	}
	list.Heading += "."
	for _, r := range all {
		brief := r.ticket.line(q)
		short := brief + r.ticket.details(q)
		long := short
		if r.ticket.link != "" {
			long += "\n  " + r.ticket.link
		}
		list.Entries = append(list.Entries, compose.Entry{Group: r.group, Brief: brief, Short: short, Long: long})
	}
	return list.Within(q.MaxOutputTokens)
}

// line is the line of a ticket: when, its number, what happened and its title.
func (t *ticket) line(q hand.Query) string {
	mark := "#"
	if t.kind == mergeRequest {
		mark = "!"
	}
	return fmt.Sprintf("\n- %s %s%d %s: %s", compose.Moment(t.at, q), mark, t.number, strings.Join(t.events, " and "), cmp.Or(t.title, "(no title)"))
}

// details is the line below: what it is and its state, whose it is, labels and
// comments.
func (t *ticket) details(q hand.Query) string {
	what := string(t.kind)
	if t.draft {
		what = "draft " + what
	}
	if t.confidential {
		what = "confidential " + what
	}
	state := t.state
	if t.reason != "" {
		state += " as " + t.reason
	}
	facts := []string{strings.TrimSpace(what + ", " + cmp.Or(state, "of unknown state"))}
	if !slices.Contains(t.events, "opened") && !t.created.IsZero() {
		facts[0] += ", opened " + compose.Day(t.created, q)
	}
	if t.author != "" {
		facts = append(facts, "by "+t.author)
	}
	if len(t.assignees) > 0 {
		facts = append(facts, "assigned to "+strings.Join(t.assignees, ", "))
	}
	if len(t.labels) > 0 {
		text := "labels: " + strings.Join(t.labels, ", ")
		if t.unlisted {
			text += " and more"
		}
		facts = append(facts, text)
	}
	if t.comments > 0 {
		facts = append(facts, fmt.Sprintf("%d comment%s", t.comments, map[bool]string{true: "", false: "s"}[t.comments == 1]))
	}
	return "\n  " + strings.Join(facts, "; ")
}
