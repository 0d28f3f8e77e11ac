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

// verdict is what is taken of an answer.
type verdict struct {
	rows             []memory.NewTopic
	retired, dropped int
}

// judge decides what of a dream's answer is stored. Whatever a model writes, these
// hold:
//
//   - A row has a name, a content, and messages of the user as its sources.
//   - It retires the topics that it names by their handles, which hold now, and
//     nothing else: never by its name, and never because they were left out. Of
//     two rows that name the same topic the first is its successor.
//   - It stands where what it retires stood: for the user with every agent if any
//     of that did. Otherwise what the user told one agent would appear with
//     another, or what all may know vanish from the others.
//   - What is remembered already, under the name and in the scope, with the same
//     content and the same end, is not stored again; and nothing retires what says
//     the same.
//
// An expiry that cannot be read is none: a fact that is not stored now is lost,
// for what says so counts as looked at, while one that has outlived its use is
// retired by the next that contradicts it. A row that has expired already is
// dropped unless it retires something: then that is what it is for, and it holds
// for an instant. The error
// wraps ErrUnreadable: the answer has no list of topics.
func judge(answer object, now time.Time, topics []memory.Topic, items []noted, lines []said) (verdict, error) {
	var entries []json.RawMessage
	if err := json.Unmarshal(answer["topics"], &entries); err != nil || entries == nil {
		return verdict{}, fmt.Errorf("it has no list of topics: %w", ErrUnreadable)
	}
	j := judging{now: now, topics: topics, items: items, lines: lines, retired: map[int]bool{}, known: map[statement][]int{}, said: map[statement]int{}}
	for i, t := range topics {
		s := statementOf(!t.Agent.IsZero(), t.Name, t.Content)
		j.known[s] = append(j.known[s], i)
	}
	v := verdict{}
	for i, encoded := range entries {
		if i == maxEntries || len(j.rows) == maxRows {
			v.dropped += len(entries) - i
			break
		}
		entry, err := readObject(encoded)
		if err != nil || !j.take(entry) {
			v.dropped++
		}
	}
	v.rows, v.retired = j.rows, len(j.retired)
	return v, nil
}

// judging is the state of judge.
type judging struct {
	now    time.Time
	topics []memory.Topic
	items  []noted
	lines  []said

	rows []memory.NewTopic
	// retired holds the places in topics of what a row retires.
	retired map[int]bool
	// known holds the places in topics, and said in rows, of what is stated.
	known map[statement][]int
	said  map[statement]int
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
	name, err := memory.TopicName(entry.text("topic"))
	if err != nil {
		return false
	}
	content, err := memory.TopicContent(oneLine(entry.text("content"), memory.MaxTopicContent))
	if err != nil {
		return false
	}
	from := entry.names("from", maxEntries)
	supersedes := j.supersedes(entry.names("supersedes", maxEntries))
	sources := j.sources(from, supersedes)
	if len(sources) == 0 {
		return false
	}
	expires := expiry(entry.text("expires_at"))
	ofAgent := entry.text("scope") == scopeAgent
	if len(supersedes) > 0 {
		ofAgent = !slices.ContainsFunc(supersedes, func(i int) bool { return j.topics[i].Agent.IsZero() })
	}
	s := statementOf(ofAgent, name, content)
	isKnown := false
	for _, i := range j.known[s] {
		if j.topics[i].ExpiresAt.Equal(expires) && !j.retired[i] {
			isKnown = true
			supersedes = slices.DeleteFunc(supersedes, func(other int) bool { return other == i })
		}
	}
	isOver := !expires.IsZero() && !expires.After(j.now)
	if (isKnown || isOver) && len(supersedes) == 0 {
		return false
	}
	if isOver {
		// The least that a store can tell from nothing.
		expires = j.now.Truncate(time.Microsecond).Add(time.Microsecond)
	}
	row, twice := j.said[s]
	if !twice {
		row = len(j.rows)
		j.said[s] = row
		j.rows = append(j.rows, memory.NewTopic{OfAgent: ofAgent, Name: name, Content: content, ExpiresAt: expires})
	} else if len(supersedes) == 0 {
		return false
	}
	r := &j.rows[row]
	for _, i := range supersedes {
		j.retired[i] = true
		r.Supersedes = append(r.Supersedes, j.topics[i].ID)
	}
	for _, id := range sources {
		if len(r.Sources) < memory.MaxTopicSources && !slices.Contains(r.Sources, id) {
			r.Sources = append(r.Sources, id)
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
// is neither.
func expiry(text string) time.Time {
	text = strings.TrimSpace(text)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC().Truncate(time.Microsecond)
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t.AddDate(0, 0, 1)
	}
	return time.Time{}
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
