package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

const (
	maxFilesNamed = 6 // of one commit
	fewFilesNamed = 2 // where there is little room
	maxNamesShown = 4 // of branches and tags at one commit
	// lineTokens is what the line of a commit takes at least: so many more than
	// that have no room need no list of files.
	lineTokens = 8
)

// render writes the reply, within the tokens that q allows. It is "" when there
// is nothing to say. It fails when the query is to end.
func (h *history) render(q hand.Query) (string, error) {
	trouble := &h.repo.trouble
	if h.count == 0 && !trouble.Any() {
		return "", nil
	}
	room := q.MaxOutputTokens
	if room <= 0 {
		room = compose.DefaultTokens
	}
	listed := min(len(h.commits), h.settings.maxCommits)
	reply := compose.List{Heading: h.heading(q), Unlisted: h.count - listed}
	d := &differ{objects: h.repo.objects}
	out := false
	for i, c := range h.commits[:listed] {
		brief := h.line(c, q)
		entry := compose.Entry{Brief: brief}
		if len(c.parents) < 2 && i <= room/lineTokens && !out {
			changed, err := h.changesOf(d, c)
			if errors.Is(err, budget.ErrSpent) {
				trouble.Note("Reading stopped at a limit; the files of some commits are not told.")
				out = true
			} else if err != nil {
				return "", err
			} else if changed != nil {
				entry.Long = brief + "\n  " + changed.text(maxFilesNamed)
				entry.Short = brief + "\n  " + changed.text(fewFilesNamed)
			}
		}
		reply.Entries = append(reply.Entries, entry)
	}
	reply.Foot = trouble.Foot()
	return reply.Within(q.MaxOutputTokens), nil
}

// changesOf returns what a commit changed, nil if that cannot be told.
func (h *history) changesOf(d *differ, c *commit) (*changes, error) {
	if h.repo.shallow[c.id] {
		return nil, nil // what was before it is not here
	}
	if d.trees+2 > maxAllTrees {
		h.repo.trouble.Note("Only %d folders were compared; the files of some commits are not told.", maxAllTrees)
		return nil, nil
	}
	var before objectID
	if len(c.parents) > 0 {
		parent, err := h.repo.commit(c.parents[0])
		if err != nil {
			// It was told of when the walk came to it.
			return nil, h.repo.reader.budget.Ends(err)
		}
		before = parent.tree
	}
	changed, err := d.compare(before, c.tree)
	if err != nil {
		if errors.Is(err, errMissing) && h.repo.partial {
			return nil, h.problem("", err)
		}
		return nil, h.problem("the files of "+h.repo.objects.short(c.id), err)
	}
	return changed, nil
}

func (h *history) heading(q hand.Query) string {
	text := fmt.Sprintf("Commits %s: ", compose.Span(q))
	switch {
	case h.count == 0:
		text += "none"
	case len(h.authors) > 1:
		text += fmt.Sprintf("%d by %d authors", h.count, len(h.authors))
	default:
		text += fmt.Sprint(h.count)
	}
	if h.settings.author != "" {
		text += " by " + compose.OneLine(h.settings.author, maxName)
	}
	switch {
	case len(h.read) == 1:
		text += " on " + h.read[0]
	case len(h.read) > 1:
		text += fmt.Sprintf(" on %d branches", len(h.read))
	}
	if h.head != "" && len(h.read) != 1 {
		text += ", of which " + compose.OneLine(compose.Text([]byte(h.head)), maxName) + " is checked out"
	}
	return text + "."
}

// line is the line of a commit: when, its name, who, what, and where it is.
func (h *history) line(c *commit, q hand.Query) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n- %s %s ", compose.Moment(c.at, q), h.repo.objects.short(c.id))
	if c.author != "" {
		b.WriteString(c.author + ": ")
	}
	if c.subject == "" {
		b.WriteString("(no message)")
	}
	b.WriteString(c.subject)
	if len(c.parents) > 1 {
		b.WriteString(" (merge)")
	}
	if names := h.names[c.id]; len(names) > 0 {
		shown := names[:min(len(names), maxNamesShown)]
		b.WriteString(" [" + strings.Join(shown, ", "))
		if more := len(names) - len(shown); more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
		b.WriteString("]")
	}
	return b.String()
}
