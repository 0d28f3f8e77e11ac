package memory

import (
	"strings"
	"time"
)

// Remembered is all that is said under one topic's name, as a person is shown it.
type Remembered struct {
	Name string `json:"topic"`
	// Content is what Items say, a line each.
	Content string `json:"content"`
	// Items are in the order in which they were learned.
	Items []Topic `json:"items"`
	// UpdatedAt is when the last of them was stored.
	UpdatedAt time.Time `json:"updated_at"`
	// ExpiresAt is when the first of them expires, zero if none does.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// ByName puts topics of the same name together, in the order in which their names
// come first. It does not look at what is valid.
func ByName(topics []Topic) []Remembered {
	all := []Remembered{}
	at := map[string]int{}
	for _, t := range topics {
		i, known := at[t.Name]
		if !known {
			i = len(all)
			at[t.Name] = i
			all = append(all, Remembered{Name: t.Name})
		}
		r := &all[i]
		r.Items = append(r.Items, t)
		if t.UpdatedAt.After(r.UpdatedAt) {
			r.UpdatedAt = t.UpdatedAt
		}
		if !t.ExpiresAt.IsZero() && (r.ExpiresAt.IsZero() || t.ExpiresAt.Before(r.ExpiresAt)) {
			r.ExpiresAt = t.ExpiresAt
		}
	}
	for i := range all {
		lines := make([]string, len(all[i].Items))
		for k, t := range all[i].Items {
			lines[k] = t.Content
		}
		all[i].Content = strings.Join(lines, "\n")
	}
	return all
}

// TopicHistory is one topic as a person is shown it: what holds of it now, and in
// History what held once, or does not yet.
type TopicHistory struct {
	Remembered
	History []Topic `json:"history"`
}

// WithHistory parts what holds of a topic from what does not, now. Topics are all of
// that name.
func WithHistory(name string, topics []Topic, now time.Time) TopicHistory {
	shown := TopicHistory{Remembered: Remembered{Name: name, Items: []Topic{}}, History: []Topic{}}
	var holds []Topic
	for _, t := range topics {
		if t.ValidAt(now) {
			holds = append(holds, t)
			continue
		}
		shown.History = append(shown.History, t)
		if t.UpdatedAt.After(shown.UpdatedAt) {
			shown.UpdatedAt = t.UpdatedAt
		}
	}
	if len(holds) > 0 {
		last := shown.UpdatedAt
		if shown.Remembered = ByName(holds)[0]; last.After(shown.UpdatedAt) {
			shown.UpdatedAt = last
		}
	}
	return shown
}

// LearningEvent is one line of the audit: that something was learned, how much,
// and from whose conversation with whom; not what.
type LearningEvent struct {
	ID ExtractionID `json:"id"`
	// Agent is the agent's name.
	Agent   string    `json:"agent"`
	Session SessionID `json:"session_id"`
	// SessionDeleted says that the session has gone; the event stays.
	SessionDeleted bool      `json:"session_deleted"`
	Facts          int       `json:"facts"`
	Preferences    int       `json:"preferences"`
	Decisions      int       `json:"decisions"`
	Tasks          int       `json:"tasks"`
	OpenItems      int       `json:"open_items"`
	CreatedAt      time.Time `json:"created_at"`
	// MergedAt is when a dream took it into the topics; zero if none did yet.
	MergedAt time.Time `json:"merged_at,omitzero"`
}

// Audit returns the events of extractions, in their order.
func Audit(extractions []Extraction, agents []Agent) []LearningEvent {
	names := map[AgentID]string{}
	for _, a := range agents {
		names[a.ID] = a.Name
	}
	events := make([]LearningEvent, len(extractions))
	for i, x := range extractions {
		events[i] = LearningEvent{
			ID: x.ID, Agent: names[x.Agent], Session: x.Session, SessionDeleted: x.SessionDeleted,
			Facts: len(x.Facts), Preferences: len(x.Preferences), Decisions: len(x.Decisions), Tasks: len(x.Tasks), OpenItems: len(x.OpenItems),
			CreatedAt: x.CreatedAt, MergedAt: x.MergedAt,
		}
	}
	return events
}
