package dream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gloveboxhq/glovebox/memory"
)

// The scopes as an answer writes them.
const (
	scopeUser  = "user"
	scopeAgent = "agent"
)

// judging decides what of a dream's answers is stored. Whatever a model writes,
// these hold:
//
//   - A row has a name, a content, and messages of the user as its sources.
//   - It retires the topics that it names by their handles, which hold now, and
//     nothing else: never by its name, and never because they were left out. Of
//     two rows that name the same topic the first is its successor.
//   - It stands where what it retires stood: for the user with every agent if any
//     of that did. Otherwise what the user told one agent would appear with
//     another, or what all may know vanish from the others.
//   - What is remembered already, under the name and in the scope, with the same
//     content and for as long or longer, is neither stored again nor retired by
//     what says the same: it is the successor of what that retires. It can be
//     shortened by naming it.
//   - What an answer retires is not brought back by the rest of it.
//
// An expiry that cannot be read is none: a fact that is not stored now is lost,
// for what says so counts as looked at, while one that has outlived its use is
// retired by the next that contradicts it. A row that has expired already is
// dropped unless it retires something: then that is what it is for, and it holds
// for an instant.
type judging struct {
	now time.Time
	// topics are what prompts show; all begins with them, and has the others that
	// hold.
	topics, all []memory.Topic
	// items and lines are what the prompt of an answer shows.
	items []noted
	lines []said

	rows        []memory.NewTopic
	retirements []memory.Retirement
	dropped     int
	// retired holds the places in topics of what a row retires.
	retired map[int]bool
	// known holds the places in all, and said in rows, of what is stated.
	known map[statement][]int
	said  map[statement]int
}

// newJudging begins to judge answers to prompts that show the first topics; others
// hold too.
func newJudging(now time.Time, topics, others []memory.Topic) *judging {
	j := &judging{now: now, topics: topics, all: slices.Concat(topics, others), retired: map[int]bool{}, known: map[statement][]int{}, said: map[statement]int{}}
	for i, t := range j.all {
		s := statementOf(!t.Agent.IsZero(), t.Name, t.Content)
		j.known[s] = append(j.known[s], i)
	}
	return j
}

// judge adds what is taken of an answer. The error wraps ErrUnreadable: it has no
// list of topics.
func (j *judging) judge(answer object, items []noted, lines []said) error {
	var entries []json.RawMessage
	if err := json.Unmarshal(answer["topics"], &entries); err != nil || entries == nil {
		return fmt.Errorf("it has no list of topics: %w", ErrUnreadable)
	}
	j.items, j.lines = items, lines
	for i, before := 0, len(j.rows); i < len(entries); i++ {
		if i == maxEntries || len(j.rows)-before == maxRows {
			j.dropped += len(entries) - i
			break
		}
		entry, err := readObject(entries[i])
		if err != nil || !j.take(entry) {
			j.dropped++
		}
	}
	return nil
}

// statement is what makes two topics the same.
type statement struct {
	ofAgent       bool
	name, content string
}

// statementOf reads a content without its case, spaces, and the full stop that one
// writes and another does not.
func statementOf(ofAgent bool, name, content string) statement {
	folded := strings.Join(strings.Fields(strings.ToLower(norm.NFKC.String(content))), " ")
	return statement{ofAgent, name, strings.TrimRight(folded, ".!。 ")}
}

// take adds a row for an entry, or to one that states the same, and reports whether
// anything came of it.
func (j *judging) take(entry object) bool {
	from, supersedes := entry.names("from", maxEntries), j.supersedes(entry.names("supersedes", maxEntries))
	r := memory.NewTopic{
		OfAgent: entry.text("scope") == scopeAgent,
		Name:    entry.text("topic"), Content: oneLine(entry.text("content"), memory.MaxTopicContent),
		ExpiresAt: expiry(entry.text("expires_at")), Sources: j.sources(from, supersedes),
	}
	if len(r.Sources) == 0 {
		return false
	}
	isOver := !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(j.now)
	if isOver {
		// The least that a store can tell from nothing.
		r.ExpiresAt = j.now.Truncate(time.Microsecond).Add(time.Microsecond)
	}
	// One row that a store refuses would cost all the others.
	r, err := r.Canonical(j.now)
	if err != nil {
		return false
	}
	if len(supersedes) > 0 {
		r.OfAgent = !slices.ContainsFunc(supersedes, func(i int) bool { return j.topics[i].Agent.IsZero() })
	}
	s := statementOf(r.OfAgent, r.Name, r.Content)
	// What holds as long or longer says it already, unless this is to shorten it.
	says := slices.DeleteFunc(slices.Clone(j.known[s]), func(i int) bool {
		end := j.all[i].ExpiresAt
		return j.retired[i] || !end.Equal(r.ExpiresAt) && (slices.Contains(supersedes, i) || !end.IsZero() && (r.ExpiresAt.IsZero() || r.ExpiresAt.After(end)))
	})
	// What the answer retires is not brought back by saying it again.
	isRetired := slices.ContainsFunc(j.known[s], func(i int) bool { return j.retired[i] })
	supersedes = slices.DeleteFunc(supersedes, func(i int) bool { return slices.Contains(says, i) })
	place, isSaid := j.said[s]
	if (len(says) > 0 || isOver || isSaid || isRetired) && len(supersedes) == 0 {
		return false
	}
	if len(says) > 0 {
		for _, i := range supersedes {
			j.retired[i] = true
			j.retirements = append(j.retirements, memory.Retirement{Topic: j.topics[i].ID, By: j.all[says[0]].ID})
		}
		return true
	}
	for _, i := range supersedes {
		j.retired[i] = true
		r.Supersedes = append(r.Supersedes, j.topics[i].ID)
	}
	if !isSaid {
		j.said[s] = len(j.rows)
		j.rows = append(j.rows, r)
		return true
	}
	first := &j.rows[place]
	first.Supersedes = append(first.Supersedes, r.Supersedes...)
	for _, id := range r.Sources {
		if len(first.Sources) < memory.MaxTopicSources && !slices.Contains(first.Sources, id) {
			first.Sources = append(first.Sources, id)
		}
	}
	return true
}

// sources returns the user's messages that handles lead to. Those of a topic that
// is rewritten and cited are among them, but they do not suffice: nothing is
// learned again from itself.
func (j *judging) sources(from []string, supersedes []int) (ids []memory.MessageID) {
	add := func(more ...memory.MessageID) {
		for _, id := range more {
			if len(ids) < memory.MaxTopicSources && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	for _, h := range from {
		if i, ok := resolve('m', h, len(j.lines)); ok && j.lines[i].users {
			add(j.lines[i].id)
		}
		if i, ok := resolve('x', h, len(j.items)); ok {
			add(j.items[i].Sources...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	for _, h := range from {
		if i, ok := resolve('t', h, len(j.topics)); ok && slices.Contains(supersedes, i) {
			add(j.topics[i].Sources...)
		}
	}
	return ids
}

// supersedes returns the places of the topics that handles name and that no row
// retires yet.
func (j *judging) supersedes(handles []string) (places []int) {
	for _, h := range handles {
		if i, ok := resolve('t', h, len(j.topics)); ok && !j.retired[i] && !slices.Contains(places, i) {
			places = append(places, i)
		}
	}
	return places
}

// expiry reads a time, or a day, at whose end in UTC something expires; zero if it
// is neither, or one that RFC 3339 cannot write in UTC.
func expiry(text string) time.Time {
	text = strings.TrimSpace(text)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, text); err != nil {
			return time.Time{}
		}
		t = t.AddDate(0, 0, 1)
	}
	t = t.UTC().Truncate(time.Microsecond)
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// oneLine returns text without what nobody sees, with single spaces, cut to maxBytes
// at the end of a character.
func oneLine(text string, maxBytes int) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		if unicode.IsSpace(r) {
			space = b.Len() > 0
			continue
		}
		if isInvisible(r) || r == utf8.RuneError {
			continue
		}
		size := utf8.RuneLen(r)
		if space {
			size++
		}
		if b.Len()+size > maxBytes {
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
