package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

// render writes the reply, within the tokens that q allows. It is "" when there
// is nothing to say.
func render(feeds []*feed, trouble *compose.Trouble, q hand.Query) string {
	// What two feeds of a planet have in common is told once.
	type identity struct{ title, link string }
	told := map[identity]bool{}
	type ranked struct {
		compose.Entry
		rank int // how many of its feed come before it
		item item
	}
	var entries []ranked
	found, speaking, unlisted := 0, 0, 0
	for _, f := range feeds {
		listed := 0
		for _, i := range f.items {
			key := identity{i.title, i.link}
			if i.link != "" && told[key] {
				f.found--
				continue
			}
			told[key] = true
			entries = append(entries, ranked{f.entry(i, q), listed, i})
			listed++
		}
		unlisted += f.found - listed
		if found += f.found; f.found > 0 {
			speaking++
		}
		if f.undated > 0 {
			trouble.Note("Without a date, and so not told of: %s of %s.", compose.Plural(f.undated, "item", "items"), f.name)
		}
	}
	if len(entries) == 0 && !trouble.Any() {
		return ""
	}
	// Where there is no room for all, each feed has its newest before another
	// has its second.
	slices.SortStableFunc(entries, func(a, b ranked) int {
		return cmp.Or(a.rank-b.rank, b.item.at.Compare(a.item.at))
	})
	list := compose.List{Foot: trouble.Foot(), Unlisted: unlisted}
	list.Heading = fmt.Sprintf("Feeds %s: ", compose.Span(q))
	if found == 0 {
		list.Heading += "nothing new."
	} else {
		list.Heading += fmt.Sprintf("%s in %d of %s.", compose.Plural(found, "item", "items"), speaking, compose.Plural(len(feeds), "feed", "feeds"))
	}
	for _, e := range entries {
		list.Entries = append(list.Entries, e.Entry)
	}
	return list.Within(q.MaxOutputTokens)
}

func (f *feed) entry(i item, q hand.Query) compose.Entry {
	when := compose.Moment(i.at, q)
	if i.wholeDay {
		when = compose.Day(i.at, q)
	}
	if i.updated {
		when += " updated"
	}
	e := compose.Entry{Group: f.name + ":", Brief: "\n- " + when + ": " + cmp.Or(i.title, "(no title)")}
	e.Short, e.Long = e.Brief, e.Brief
	if i.excerpt != "" {
		e.Long += "\n  \"" + i.excerpt + "\""
	}
	if i.link != "" {
		e.Short += "\n  " + i.link
		e.Long += "\n  " + i.link
	}
	return e
}
