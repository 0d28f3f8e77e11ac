package dream_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// overlay keeps in memory what was learned from the messages of a real store.
type overlay struct {
	*sqlite.Store
	mu          sync.Mutex
	seen        map[memory.MessageID]bool
	extractions []memory.Extraction
	revision    int64
}

func newOverlay(s *sqlite.Store) *overlay {
	return &overlay{Store: s, seen: map[memory.MessageID]bool{}}
}

func (o *overlay) UnseenMessages(ctx context.Context, user memory.UserID, session memory.SessionID, q memory.MessageQuery) ([]memory.Message, error) {
	all, err := o.Messages(ctx, user, session, memory.MessageQuery{After: q.After})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all = slices.DeleteFunc(all, func(m memory.Message) bool { return o.seen[m.ID] })
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	return all, nil
}

func (o *overlay) Unseen(ctx context.Context, user memory.UserID, session memory.SessionID) (memory.Unseen, error) {
	all, err := o.UnseenMessages(ctx, user, session, memory.MessageQuery{})
	u := memory.Unseen{Messages: len(all)}
	for _, m := range all {
		u.Tokens += m.Tokens
		if m.Role == memory.RoleTool {
			u.ToolResults++
		}
		if m.IsUsers() {
			u.UserMessages++
		}
	}
	return u, err
}

func (o *overlay) CommitExtraction(ctx context.Context, user memory.UserID, x memory.NewExtraction) (memory.Extraction, error) {
	session, err := o.Session(ctx, user, x.Session)
	if err != nil {
		return memory.Extraction{}, err
	}
	all, err := o.Messages(ctx, user, x.Session, memory.MessageQuery{})
	if err != nil {
		return memory.Extraction{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var looked []memory.MessageID
	for _, r := range x.Seen {
		if r.First < 1 || r.Last < r.First || r.Last > int64(len(all)) {
			return memory.Extraction{}, fmt.Errorf("range %v: %w", r, memory.ErrInvalid)
		}
		for _, m := range all[r.First-1 : r.Last] {
			if o.seen[m.ID] {
				return memory.Extraction{}, memory.ErrConflict
			}
			looked = append(looked, m.ID)
		}
	}
	for _, list := range [][]memory.Learned{x.Facts, x.Preferences, x.Decisions, x.Tasks, x.OpenItems} {
		for _, item := range list {
			if len(item.Sources) == 0 || item.Text == "" || len(item.Text) > memory.MaxTopicContent {
				return memory.Extraction{}, fmt.Errorf("item %q: %w", item.Text, memory.ErrInvalid)
			}
			for _, s := range item.Sources {
				if !slices.ContainsFunc(all, func(m memory.Message) bool { return m.ID == s && m.Source == memory.SourceUser }) {
					return memory.Extraction{}, fmt.Errorf("source of %q: %w", item.Text, memory.ErrInvalid)
				}
			}
		}
	}
	for _, id := range looked {
		o.seen[id] = true
	}
	e := memory.Extraction{ID: memory.NewID[memory.ExtractionID](), Agent: session.Agent, Session: x.Session, Learnings: x.Learnings, CreatedAt: x.At}
	o.extractions = append(o.extractions, e)
	return e, nil
}

func (o *overlay) Extractions(_ context.Context, _ memory.UserID, q memory.ExtractionQuery) ([]memory.Extraction, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []memory.Extraction
	for _, e := range o.extractions {
		if (q.Agent.IsZero() || q.Agent == e.Agent) && (!q.Pending || e.MergedAt.IsZero()) {
			list = append(list, e)
		}
	}
	return list, nil
}

func (o *overlay) IdleSessions(context.Context, []memory.AgentID, time.Time, int) ([]memory.IdleSession, error) {
	return nil, nil
}

func (o *overlay) Topics(_ context.Context, user memory.UserID, _ memory.TopicQuery) ([]memory.Topic, memory.TopicRevision, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return nil, memory.NewTopicRevision(user, o.revision), nil
}

func (o *overlay) CommitDream(_ context.Context, _ memory.UserID, _ memory.TopicRevision, d memory.Dream) ([]memory.Topic, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revision++
	for i := range o.extractions {
		if slices.Contains(d.Extractions, o.extractions[i].ID) {
			o.extractions[i].MergedAt = d.At
		}
	}
	var topics []memory.Topic
	for _, t := range d.Topics {
		topics = append(topics, memory.Topic{ID: memory.NewID[memory.TopicID](), Name: t.Name, Content: t.Content, Sources: t.Sources})
	}
	return topics, nil
}
