package compaction_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// scanning is a store whose search reads everything.
type scanning struct {
	memory.Store
	files map[memory.FileID]stored
}

type stored struct {
	user  memory.UserID
	file  memory.File
	block memory.Block
}

func (s *scanning) File(_ context.Context, user memory.UserID, id memory.FileID) (memory.File, memory.Block, error) {
	f, ok := s.files[id]
	if !ok || f.user != user {
		return memory.File{}, memory.Block{}, memory.ErrNotFound
	}
	return f.file, f.block, nil
}

func (s *scanning) each(ctx context.Context, user memory.UserID, session memory.SessionID, agent memory.AgentID, visit func([]memory.Message, []memory.Summary)) error {
	sessions, err := s.Sessions(ctx, user, memory.SessionQuery{Agent: agent})
	if err != nil {
		return err
	}
	for _, v := range sessions {
		if !session.IsZero() && v.ID != session {
			continue
		}
		messages, err := s.Messages(ctx, user, v.ID, memory.MessageQuery{})
		if err != nil {
			return err
		}
		summaries, err := s.Summaries(ctx, user, v.ID)
		if err != nil {
			return err
		}
		visit(messages, summaries)
	}
	return nil
}

func score(text string, q memory.WordQuery) float64 {
	sum := 0.0
	for _, w := range q.Words {
		sum += w.Weight * float64(strings.Count(strings.ToLower(text), strings.ToLower(w.Text)))
	}
	return sum
}

func within(at, from, to time.Time) bool {
	return (from.IsZero() || !at.Before(from)) && (to.IsZero() || at.Before(to))
}

func (s *scanning) SearchWords(ctx context.Context, user memory.UserID, q memory.WordQuery) ([]memory.WordHit, error) {
	var hits []memory.WordHit
	err := s.each(ctx, user, q.Session, q.Agent, func(messages []memory.Message, _ []memory.Summary) {
		for i, m := range messages {
			hit := memory.WordHit{Message: m, Own: score(memory.Plain(m.Blocks), q)}
			for j := max(0, i-2); j < min(len(messages), i+3); j++ {
				if j != i {
					hit.Near += score(memory.Plain(messages[j].Blocks), q)
				}
			}
			if hit.Own+hit.Near > 0 && within(m.At, q.From, q.To) {
				hits = append(hits, hit)
			}
		}
	})
	slices.SortStableFunc(hits, func(a, b memory.WordHit) int {
		return cmp.Or(cmp.Compare(b.Own+b.Near/2, a.Own+a.Near/2), b.Message.At.Compare(a.Message.At))
	})
	return hits[:min(len(hits), q.Limit)], err
}

func (s *scanning) SearchSummaries(ctx context.Context, user memory.UserID, q memory.WordQuery) ([]memory.SummaryHit, error) {
	var hits []memory.SummaryHit
	err := s.each(ctx, user, q.Session, q.Agent, func(_ []memory.Message, summaries []memory.Summary) {
		for _, v := range summaries {
			if n := score(v.Text+"\n"+memory.Plain([]memory.Block{memory.External(v.External)}), q); n > 0 && within(v.Latest, q.From, q.To) {
				hits = append(hits, memory.SummaryHit{Summary: v, Score: n})
			}
		}
	})
	slices.SortStableFunc(hits, func(a, b memory.SummaryHit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), b.Summary.Latest.Compare(a.Summary.Latest))
	})
	return hits[:min(len(hits), q.Limit)], err
}

func (s *scanning) Texts(ctx context.Context, user memory.UserID, q memory.TextQuery, visit func(memory.StoredText) bool) error {
	var texts []memory.StoredText
	err := s.each(ctx, user, q.Session, q.Agent, func(messages []memory.Message, summaries []memory.Summary) {
		for _, m := range messages {
			texts = append(texts, memory.StoredText{Message: m.ID, Session: m.Session, Seq: m.Seq, At: m.At, Text: memory.Plain(m.Blocks)})
		}
		for _, v := range summaries {
			text := v.Text + "\n" + memory.Plain([]memory.Block{memory.External(v.External)})
			texts = append(texts, memory.StoredText{Summary: v.ID, Session: v.Session, At: v.Latest, Text: text})
		}
	})
	for id, f := range s.files {
		if f.user == user && (q.Session.IsZero() || f.file.Session == q.Session) {
			texts = append(texts, memory.StoredText{File: id, Session: f.file.Session, At: f.file.CreatedAt, Text: memory.Plain([]memory.Block{f.block})})
		}
	}
	slices.SortStableFunc(texts, func(a, b memory.StoredText) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Seq, a.Seq)) })
	for _, t := range texts {
		if within(t.At, q.From, q.To) && !visit(t) {
			break
		}
	}
	return err
}
