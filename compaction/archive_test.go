package compaction_test

import (
	"cmp"
	"context"
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// scanning is a store with files of any size: those of a real one are large.
type scanning struct {
	memory.Store
	files map[memory.FileID]stored
}

type stored struct {
	user  memory.UserID
	file  memory.File
	block memory.Block
}

func (s *scanning) File(ctx context.Context, user memory.UserID, id memory.FileID) (memory.File, memory.Block, error) {
	if f, ok := s.files[id]; ok && f.user == user {
		return f.file, f.block, nil
	}
	return s.Store.File(ctx, user, id)
}

func (s *scanning) Texts(ctx context.Context, user memory.UserID, q memory.TextQuery, visit func(memory.StoredText) bool) error {
	var texts []memory.StoredText
	if err := s.Store.Texts(ctx, user, q, func(t memory.StoredText) bool { texts = append(texts, t); return true }); err != nil {
		return err
	}
	for id, f := range s.files {
		at := f.file.CreatedAt
		in := (q.From.IsZero() || !at.Before(q.From)) && (q.To.IsZero() || at.Before(q.To)) && (q.Session.IsZero() || f.file.Session == q.Session)
		if f.user == user && in && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, memory.TextFile)) {
			texts = append(texts, memory.StoredText{File: id, Session: f.file.Session, At: at, Text: memory.Plain([]memory.Block{f.block})})
		}
	}
	slices.SortStableFunc(texts, func(a, b memory.StoredText) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Seq, a.Seq)) })
	for _, t := range texts {
		if !visit(t) {
			break
		}
	}
	return nil
}
