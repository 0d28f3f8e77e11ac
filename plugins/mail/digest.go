package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

// shortQuote is what is quoted of a mail where maxQuote does not fit, in runes.
const shortQuote = 80

// digest is what is told of the window's mail.
type digest struct {
	c      *collector
	me     map[string]bool
	mails  int // that came for the user: no bulk, no spam, not their own
	marked int // of mails, those of which it is known whether they were read
	unread int
	bulk   int
	spam   int
	// threads are those that are listed, the most important first.
	threads []*thread
}

// thread is the mails of one conversation under one subject that arrived in the
// window, oldest first.
type thread struct {
	mails []*mailMessage
	// listed are those that are unread or notable; never empty.
	listed   []*mailMessage
	answered bool // the user wrote last
	score    int
}

// newDigest sorts out what c collected. configured are addresses of the user;
// those of their sent mail are added.
func newDigest(c *collector, configured []string) *digest {
	d := &digest{c: c}
	var learned []string
	for _, m := range c.mails {
		if m.sent && len(learned) < 16 && !slices.Contains(learned, m.from) {
			learned = append(learned, m.from)
		}
	}
	d.me = ownAddresses(configured, learned)
	mails := unique(c.mails)
	for _, m := range mails {
		if m.sent = m.sent || d.me[m.from]; m.sent {
			c.sentIDs[m.id] = true
		}
	}
	for _, t := range d.group(mails) {
		d.judge(t)
		if len(t.listed) > 0 {
			d.threads = append(d.threads, t)
		}
	}
	slices.SortFunc(d.threads, func(a, b *thread) int {
		return cmp.Or(b.score-a.score, byArrival(b.last(), a.last()))
	})
	return d
}

func (t *thread) last() *mailMessage { return t.listed[len(t.listed)-1] }

func byArrival(a, b *mailMessage) int {
	return cmp.Or(a.arrived.Compare(b.arrived), strings.Compare(a.from, b.from), strings.Compare(a.subject, b.subject), slices.Compare(a.id[:], b.id[:]))
}

// unique returns the mails, oldest first, each once. What one copy records of a
// mail holds for it: read in one folder is read. A Message-ID alone does not
// make a copy, or a stranger could hide a mail by sending its id.
func unique(mails []*mailMessage) []*mailMessage {
	type identity struct {
		id      messageID
		from    string
		written int64
	}
	sorted := slices.SortedStableFunc(slices.Values(mails), byArrival)
	first := make(map[identity]*mailMessage, len(sorted))
	return slices.DeleteFunc(sorted, func(m *mailMessage) bool {
		key := identity{m.id, m.from, m.written}
		original, ok := first[key]
		if !ok {
			first[key] = m
			return false
		}
		original.known = original.known || m.known
		original.seen = original.seen || m.seen
		original.flagged = original.flagged || m.flagged
		original.answered = original.answered || m.answered
		original.sent = original.sent || m.sent
		original.spam = original.spam || m.spam
		original.calendar = cmp.Or(original.calendar, m.calendar)
		if original.bulk && !m.bulk {
			// The copy that came directly, beside the list's.
			original.bulk, original.quote = false, m.quote
			original.attachments, original.attached = m.attachments, m.attached
		}
		return true
	})
}

// group returns the threads of mails, in order of their first mail. Mails
// belong together when one refers to another, directly or through mails that
// are not there, and they have one topic: by a reference alone a stranger could
// have their mail shown in place of another's.
func (d *digest) group(mails []*mailMessage) []*thread {
	type node struct {
		id    messageID
		topic string
	}
	parent := make(map[node]node)
	var find func(n node) node
	find = func(n node) node {
		root := n
		for {
			up, ok := parent[root]
			if !ok {
				break
			}
			root = up
		}
		for n != root {
			n, parent[n] = parent[n], root
		}
		return root
	}
	for _, m := range mails {
		for _, reference := range m.references {
			a, b := find(node{m.id, m.topic}), find(node{reference, m.topic})
			if a != b {
				parent[a] = b
			}
		}
	}
	var threads []*thread
	byRoot := make(map[node]*thread)
	for _, m := range mails {
		root := find(node{m.id, m.topic})
		t := byRoot[root]
		if t == nil {
			t = &thread{}
			byRoot[root] = t
			threads = append(threads, t)
		}
		t.mails = append(t.mails, m)
	}
	return threads
}

// judge counts the mails of t, decides which are listed and how important they
// are.
func (d *digest) judge(t *thread) {
	var came []*mailMessage
	for _, m := range t.mails {
		if m.sent {
			t.answered = true
			continue
		}
		personal := m.flagged || m.calendar != "" || d.c.answersUser(m)
		switch {
		case m.spam && !m.flagged:
			d.spam++
			continue
		case m.bulk && !personal:
			d.bulk++
			continue
		}
		t.answered = m.answered
		came = append(came, m)
		d.mails++
		unread := m.known && !m.seen
		if m.known {
			d.marked++
		}
		if unread {
			d.unread++
		}
		score := d.score(m)
		if unread || !m.known || m.flagged || score >= notable && !m.answered {
			t.listed = append(t.listed, m)
			t.score = max(t.score, score)
		}
	}
	if t.mails = came; t.answered {
		// What the user has dealt with counts only as long as it is marked.
		t.listed = slices.DeleteFunc(t.listed, func(m *mailMessage) bool { return m.known && m.seen && !m.flagged })
		t.score -= 4
	}
	t.score += min(len(t.listed), 3)
}

// notable is the score from which a mail is listed although it was read.
const notable = 2

func (d *digest) score(m *mailMessage) int {
	score := 0
	if m.flagged {
		score += 8
	}
	if d.c.answersUser(m) {
		score += 6
	}
	if m.calendar != "" {
		score += 5
	}
	switch mine := func(a string) bool { return d.me[a] }; {
	case slices.ContainsFunc(m.to, mine):
		score += 4
	case slices.ContainsFunc(m.cc, mine):
		score++
	}
	if m.important {
		score += 2
	}
	switch {
	case !m.known:
		score++
	case !m.seen:
		score += 3
	}
	return score
}

// render writes the reply, within the tokens that q allows: a heading, as many
// threads as fit, the most important with their words, and what could not be
// read. It is "" when there is nothing to say.
func (d *digest) render(q hand.Query) string {
	if d.mails+d.bulk+d.spam+d.c.trouble.Problems() == 0 && !d.c.incomplete {
		return ""
	}
	list := compose.List{Heading: d.heading(q), Foot: d.c.trouble.Foot()}
	for _, t := range d.threads {
		brief := t.brief(q)
		list.Entries = append(list.Entries, compose.Entry{Brief: brief, Short: brief + t.details(shortQuote), Long: brief + t.details(maxQuote)})
	}
	return list.Within(q.MaxOutputTokens)
}

func (d *digest) heading(q hand.Query) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Mail %s: ", compose.Span(q))
	switch d.mails {
	case 0:
		b.WriteString("no new mail")
	case 1:
		b.WriteString("1 new mail")
	default:
		fmt.Fprintf(&b, "%d new mails", d.mails)
	}
	if d.marked > 0 {
		fmt.Fprintf(&b, ", %d unread", d.unread)
	}
	b.WriteString(".")
	var left []string
	if d.bulk > 0 {
		left = append(left, compose.Plural(d.bulk, "newsletter or notification", "newsletters and notifications"))
	}
	if d.spam > 0 {
		left = append(left, compose.Plural(d.spam, "spam mail", "spam mails"))
	}
	if len(left) > 0 {
		fmt.Fprintf(&b, " Left out: %s.", strings.Join(left, ", "))
	}
	return b.String()
}

// brief is the line of a thread: when, the state, who and what about.
func (t *thread) brief(q hand.Query) string {
	m := t.last()
	var b strings.Builder
	b.WriteString("\n- ")
	b.WriteString(compose.Moment(m.arrived, q))
	if state := t.state(); len(state) > 0 {
		fmt.Fprintf(&b, " [%s]", strings.Join(state, ", "))
	}
	b.WriteString(" " + m.sender() + ": ")
	b.WriteString(cmp.Or(m.subject, "(no subject)"))
	return b.String()
}

func (t *thread) state() []string {
	var state []string
	add := func(word string, has func(*mailMessage) bool) {
		if slices.ContainsFunc(t.listed, has) {
			state = append(state, word)
		}
	}
	add("unread", func(m *mailMessage) bool { return m.known && !m.seen })
	add("flagged", func(m *mailMessage) bool { return m.flagged })
	add("important", func(m *mailMessage) bool { return m.important })
	add("invitation", func(m *mailMessage) bool { return m.calendar == "invitation" })
	add("cancellation", func(m *mailMessage) bool { return m.calendar == "cancellation" })
	if t.answered {
		state = append(state, "answered")
	}
	return state
}

func (m *mailMessage) sender() string {
	switch {
	case m.from == "" && m.fromName == "":
		return "unknown sender"
	case m.from == "":
		return m.fromName
	case m.fromName == "" || strings.EqualFold(m.fromName, m.from):
		return "<" + m.from + ">"
	}
	return m.fromName + " <" + m.from + ">"
}

// details are the lines below a thread's first: the size of the conversation,
// what is attached to its last mail, and what that mail says, in at most words
// runes.
func (t *thread) details(words int) string {
	m := t.last()
	var b strings.Builder
	var facts []string
	if len(t.mails) > 1 {
		facts = append(facts, fmt.Sprintf("%d mails%s", len(t.mails), t.others()))
	}
	if m.attached > 0 {
		attached := "attached: " + strings.Join(m.attachments, ", ")
		if more := m.attached - len(m.attachments); more > 0 {
			attached += fmt.Sprintf(" and %d more", more)
		} else if m.cut {
			attached += " and perhaps more"
		}
		facts = append(facts, attached)
	}
	if m.encrypted {
		facts = append(facts, "encrypted")
	}
	if len(facts) > 0 {
		b.WriteString("\n  " + strings.Join(facts, "; "))
	}
	if m.quote != "" {
		b.WriteString("\n  \"" + compose.OneLine(m.quote, words) + "\"")
	}
	return b.String()
}

// others names the senders beside the last mail's.
func (t *thread) others() string {
	var names []string
	seen := map[string]bool{"": true}
	for _, m := range t.mails {
		if name := cmp.Or(m.fromName, m.from); m.from != t.last().from && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	const most = 3
	if len(names) > most {
		return fmt.Sprintf(", also from %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return ", also from " + strings.Join(names, ", ")
}
