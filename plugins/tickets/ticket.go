package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// kind is what a ticket is.
type kind string

const (
	issue        kind = "issue"
	pullRequest  kind = "pull request"
	mergeRequest kind = "merge request"
)

// wireTicket is an element of an answer, of GitHub or GitLab.
type wireTicket struct {
	Number       int64  `json:"number"`
	IID          int64  `json:"iid"`
	Title        string `json:"title"`
	State        string `json:"state"`
	StateReason  string `json:"state_reason"`
	HTMLURL      string `json:"html_url"`
	WebURL       string `json:"web_url"`
	User         person `json:"user"`
	Author       person `json:"author"`
	Assignee     person `json:"assignee"`
	Assignees    people `json:"assignees"`
	Labels       labels `json:"labels"`
	Created      string `json:"created_at"`
	Updated      string `json:"updated_at"`
	Closed       string `json:"closed_at"`
	Merged       string `json:"merged_at"`
	Comments     int64  `json:"comments"`
	Notes        int64  `json:"user_notes_count"`
	Draft        bool   `json:"draft"`
	Confidential bool   `json:"confidential"`
	PullRequest  *struct {
		Merged string `json:"merged_at"`
	} `json:"pull_request"`
}

// people and labels are the first of a list: a long one would take all memory.
type (
	people []person
	labels []label
)

func (p *people) UnmarshalJSON(data []byte) error {
	*p = first[person](data, maxListed)
	return nil
}

func (l *labels) UnmarshalJSON(data []byte) error {
	*l = first[label](data, maxListed)
	return nil
}

// first decodes at most most elements of a JSON array, leaving out those of
// another type. What is no array has none.
func first[T any](data []byte, most int) []T {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return nil
	}
	var list []T
	for len(list) < most && d.More() {
		var element T
		if d.Decode(&element) != nil {
			break
		}
		list = append(list, element)
	}
	return list
}

type person struct {
	Login    string `json:"login"`
	Username string `json:"username"`
}

func (p person) name() string { return cmp.Or(p.Login, p.Username) }

// label is a name, or an object that has one.
type label string

// UnmarshalJSON takes what is neither for no label.
func (l *label) UnmarshalJSON(data []byte) error {
	var name string
	var object struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(data, &name) == nil {
		*l = label(name)
	} else if json.Unmarshal(data, &object) == nil {
		*l = label(object.Name)
	}
	return nil
}

// Bounds of what is kept of a ticket.
const (
	maxTitle  = 160 // runes
	maxName   = 40  // runes
	maxLabels = 5
	maxPeople = 3
	// maxListed is how many labels or people of a ticket are looked at.
	maxListed = 20
	maxLink   = 300 // bytes
)

// ticket is what is kept. Its strings are single lines of bounded length.
type ticket struct {
	kind      kind
	number    int64
	title     string
	author    string
	assignees []string
	labels    []string
	unlisted  bool // there are labels beyond those
	// state is "open", "closed", "merged" or another word of the server, with
	// the reason why it was closed if there is one.
	state, reason                    string
	draft, confidential              bool
	comments                         int64
	created, updated, closed, merged time.Time
	link                             string
	// at is when the last of what is known of the window happened, and events
	// what.
	at     time.Time
	events []string
}

// ticket returns what is kept of w, and whether it is a ticket at all.
func (w *wireTicket) ticket(k kind) (ticket, bool) {
	t := ticket{
		kind: k, number: cmp.Or(w.IID, w.Number), title: compose.OneLine(w.Title, maxTitle), author: compose.OneLine(cmp.Or(w.User.name(), w.Author.name()), maxName),
		state: compose.OneLine(w.State, maxName), draft: w.Draft, confidential: w.Confidential, comments: cmp.Or(w.Comments, w.Notes),
		created: moment(w.Created), updated: moment(w.Updated), closed: moment(w.Closed), merged: moment(w.Merged),
	}
	if w.PullRequest != nil {
		t.kind, t.merged = pullRequest, moment(w.PullRequest.Merged)
	}
	switch {
	case !t.merged.IsZero():
		t.state = "merged"
	case t.state == "opened":
		t.state = "open"
	case t.state == "closed":
		t.reason = compose.OneLine(strings.ReplaceAll(w.StateReason, "_", " "), maxName)
	}
	for _, p := range w.people() {
		if name := compose.OneLine(p.name(), maxName); name != "" && len(t.assignees) < maxPeople {
			t.assignees = append(t.assignees, name)
		}
	}
	for _, l := range w.Labels {
		switch name := compose.OneLine(string(l), maxName); {
		case name == "":
		case len(t.labels) < maxLabels:
			t.labels = append(t.labels, name)
		default:
			t.unlisted = true
		}
	}
	if address := cmp.Or(w.HTMLURL, w.WebURL); len(address) <= maxLink && (strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")) && !strings.ContainsAny(address, " \t\r\n") {
		t.link = compose.OneLine(address, maxLink)
	}
	return t, t.number > 0 && !t.updated.IsZero()
}

func (w *wireTicket) people() people {
	if len(w.Assignees) == 0 && w.Assignee.name() != "" {
		return people{w.Assignee}
	}
	return w.Assignees
}

// assignedTo tells whether the ticket is name's; everyone is "".
func (w *wireTicket) assignedTo(name string) bool {
	return name == "" || slices.ContainsFunc(w.people(), func(p person) bool { return strings.EqualFold(p.name(), name) })
}

func moment(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Year() < 1970 || at.Year() > 2200 {
		return time.Time{}
	}
	return at
}

// when tells where the changes of a ticket are.
type when int

const (
	outside when = iota
	inside
	// perhaps is what changed after the window, and nobody knows what else.
	perhaps
)

// happened notes what the ticket tells of from ≤ t < to.
func (t *ticket) happened(from, to time.Time) when {
	for _, e := range []struct {
		at   time.Time
		word string
	}{{t.created, "opened"}, {t.closed, "closed"}, {t.merged, "merged"}, {t.updated, "updated"}} {
		if e.at.Before(from) || !e.at.Before(to) {
			continue
		}
		if e.at.After(t.at) {
			t.at = e.at
		}
		switch e.word {
		case "updated":
			if len(t.events) > 0 {
				continue
			}
		case "merged":
			// What is merged is closed.
			t.events = slices.DeleteFunc(t.events, func(s string) bool { return s == "closed" })
		}
		t.events = append(t.events, e.word)
	}
	switch {
	case len(t.events) > 0:
		return inside
	case !t.updated.Before(to):
		return perhaps
	}
	return outside
}

// add keeps a ticket, unless it came on the page before, and returns 1 if so.
func (p *project) add(t ticket) int {
	for _, have := range p.tickets {
		if have.kind == t.kind && have.number == t.number {
			return 0
		}
	}
	p.tickets = append(p.tickets, t)
	return 1
}

// sort keeps the latest tickets, at most most.
func (p *project) sort(most int) {
	slices.SortStableFunc(p.tickets, func(a, b ticket) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.number, a.number)) })
	if len(p.tickets) > most {
		clear(p.tickets[most:])
		p.tickets, p.more = p.tickets[:most], true
	}
}
