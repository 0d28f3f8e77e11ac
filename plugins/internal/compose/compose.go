// Package compose puts the replies of the bundled hands together: the words of
// strangers on one line, a list cut to the tokens that a query allows with what
// had no room counted, and what could not be read.
package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

// DefaultTokens is the size of a reply when the query names none.
const DefaultTokens = 1_000

// Entry is one item of a list. Long and Short begin with Brief and say more;
// both may be empty, where there is no more to say or no way to say less of it.
// Each begins with a line break. Entries of one Group, unless it is "", stand
// together below it, one line without a line break, in their order.
type Entry struct{ Brief, Short, Long, Group string }

// List is a reply: a heading, entries with the most important first, and a foot
// about what was not read.
type List struct {
	Heading string
	Entries []Entry
	// Foot begins with a line break, unless it is empty.
	Foot string
	// Unlisted counts entries that there are beyond Entries.
	Unlisted int
}

// Within writes the list in at most most tokens, DefaultTokens if that is not
// positive: lines first, for as many entries as three fifths of the room hold;
// then more words for the most important; then more lines. How many entries had
// no room is said.
func (l List) Within(most int) string {
	if most <= 0 {
		most = DefaultTokens
	}
	// The parts are counted one by one, and each is rounded up: the sum is
	// never below the host's count of the whole.
	budget := most - most/50
	foot := l.Foot
	left := budget - tokens.Estimate(l.Heading) - tokens.Estimate(foot)
	if left < 0 && foot != "" {
		foot, left = "", budget-tokens.Estimate(l.Heading)
	}
	if left < 0 {
		return tokens.Cut(l.Heading, budget)
	}
	more := func(n int) string { return fmt.Sprintf("\n… and %d more", n) }
	total := 0
	lines := make([]int, len(l.Entries)) // the tokens of each, at its shortest
	grouped := map[string]int{"": 0}
	for i, e := range l.Entries {
		lines[i] = tokens.Estimate(e.Brief)
		total += tokens.Estimate(e.longest())
		if _, seen := grouped[e.Group]; !seen {
			grouped[e.Group] = len(grouped)
			group := tokens.Estimate(groupLine(e.Group))
			lines[i] += group
			total += group
		}
	}
	if total > left || l.Unlisted > 0 {
		left -= tokens.Estimate(more(len(l.Entries) + l.Unlisted))
	}

	shown, size := 0, 0
	takeLines := func(limit int) {
		for shown < len(l.Entries) && size+lines[shown] <= limit {
			size += lines[shown]
			shown++
		}
	}
	takeLines(left * 3 / 5)
	if shown == 0 {
		takeLines(left)
	}
	words := make([]string, shown)
	for i, e := range l.Entries[:shown] {
		words[i] = e.Brief
		for _, longer := range []string{e.Long, e.Short} {
			if longer == "" {
				continue
			}
			if grown := size - tokens.Estimate(e.Brief) + tokens.Estimate(longer); grown <= left {
				words[i], size = longer, grown
				break
			}
		}
	}
	takeLines(left)
	for _, e := range l.Entries[len(words):shown] {
		words = append(words, e.Brief)
	}

	var b strings.Builder
	b.WriteString(l.Heading)
	if len(words) > 0 {
		b.WriteString("\n")
	}
	order := make([]int, len(words))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return grouped[l.Entries[a].Group] - grouped[l.Entries[b].Group] })
	group := ""
	for n, i := range order {
		if g := l.Entries[i].Group; g != group {
			group = g
			// The first follows the empty line below the heading.
			b.WriteString(groupLine(g)[min(1, max(0, 1-n)):])
		}
		b.WriteString(words[i])
	}
	if rest := len(l.Entries) + l.Unlisted - shown; rest > 0 && left >= 0 {
		b.WriteString(more(rest))
	}
	b.WriteString(foot)
	return b.String()
}

// groupLine is the line above the entries of a group, after an empty one.
func groupLine(group string) string { return "\n\n" + group }

func (e Entry) longest() string {
	if e.Long != "" {
		return e.Long
	}
	return e.Brief
}

// Span writes the window of q with its zone, such as
// "from Mon 2 Mar 2026 00:00 to Tue 3 Mar 2026 00:00 (UTC)".
func Span(q hand.Query) string {
	const layout = "Mon 2 Jan 2006 15:04"
	return fmt.Sprintf("from %s to %s (%s)", q.From.In(q.Location).Format(layout), q.To.In(q.Location).Format(layout), q.Location)
}

// Moment writes t in q's zone, with the year if it is not that of q.Now.
func Moment(t time.Time, q hand.Query) string {
	return Day(t, q) + t.In(q.Location).Format(" 15:04")
}

// Day writes the day of t in q's zone, with the year if it is not that of q.Now.
func Day(t time.Time, q hand.Query) string {
	t = t.In(q.Location)
	if t.Year() != q.Now.In(q.Location).Year() {
		return t.Format("Mon 2 Jan 2006")
	}
	return t.Format("Mon 2 Jan")
}

// Plural writes n with the word for one or for many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// maxProblems is how many things a foot names that could not be read, maxNotes
// how many sentences about what was left out.
const (
	maxProblems = 5
	maxNotes    = 8
)

// Trouble collects what a reply's foot is made of. The zero value is empty.
type Trouble struct {
	notes  []string
	broken []string // the first maxProblems: "NAME (reason)"
	count  int
}

// Note records a sentence for the reader, once however often it is said.
func (t *Trouble) Note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); len(t.notes) < maxNotes && !slices.Contains(t.notes, note) {
		t.notes = append(t.notes, note)
	}
}

// Broken records that something called name could not be read.
func (t *Trouble) Broken(name string, err error) {
	if t.count++; len(t.broken) < maxProblems {
		t.broken = append(t.broken, fmt.Sprintf("%s (%s)", OneLine(name, 100), OneLine(Reason(err), 80)))
	}
}

// Problems returns how often Broken was called.
func (t *Trouble) Problems() int { return t.count }

// Any tells whether anything was recorded.
func (t *Trouble) Any() bool { return t.count > 0 || len(t.notes) > 0 }

// Foot returns the lines, after an empty one; "" if there are none.
func (t *Trouble) Foot() string {
	var b strings.Builder
	for _, note := range t.notes {
		b.WriteString("\n" + note)
	}
	if len(t.broken) > 0 {
		b.WriteString("\nCould not read: " + strings.Join(t.broken, "; "))
		if more := t.count - len(t.broken); more > 0 {
			fmt.Fprintf(&b, "; and %d more", more)
		}
	}
	if b.Len() > 0 {
		return "\n" + b.String()
	}
	return ""
}

// Reason is the text of err without the name of the file, which is said beside
// it.
func Reason(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}
