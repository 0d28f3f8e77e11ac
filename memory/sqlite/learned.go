package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

var errUnfinished = errors.New("not implemented yet")

func (s *Store) PutPendingRun(context.Context, memory.PendingRun) error { return errUnfinished }

func (s *Store) EndPendingRun(context.Context, memory.UserID, memory.SessionID, memory.Trigger) error {
	return errUnfinished
}

func (s *Store) PendingRuns(context.Context) ([]memory.PendingRun, error) { return nil, nil }

func (s *Store) UnseenMessages(context.Context, memory.UserID, memory.SessionID, memory.MessageQuery) ([]memory.Message, error) {
	return nil, errUnfinished
}

func (s *Store) Unseen(context.Context, memory.UserID, memory.SessionID) (memory.Unseen, error) {
	return memory.Unseen{}, errUnfinished
}

func (s *Store) CommitExtraction(context.Context, memory.UserID, memory.NewExtraction) (memory.Extraction, error) {
	return memory.Extraction{}, errUnfinished
}

func (s *Store) Extractions(context.Context, memory.UserID, memory.ExtractionQuery) ([]memory.Extraction, error) {
	return nil, errUnfinished
}

func (s *Store) IdleSessions(context.Context, []memory.AgentID, time.Time, int) ([]memory.IdleSession, error) {
	return nil, errUnfinished
}

func (s *Store) Topics(context.Context, memory.UserID, memory.TopicQuery) ([]memory.Topic, memory.TopicRevision, error) {
	return nil, memory.TopicRevision{}, errUnfinished
}

func (s *Store) CommitDream(context.Context, memory.UserID, memory.TopicRevision, memory.Dream) ([]memory.Topic, error) {
	return nil, errUnfinished
}

func (s *Store) PutTopic(context.Context, memory.UserID, memory.AgentID, memory.TopicRevision, memory.NewTopic, time.Time) (memory.Topic, error) {
	return memory.Topic{}, errUnfinished
}

func (s *Store) DeleteTopic(context.Context, memory.UserID, memory.AgentID, string) (int, error) {
	return 0, errUnfinished
}

func (s *Store) WipeAgentMemory(context.Context, memory.UserID, memory.AgentID) (memory.WipeCounts, error) {
	return memory.WipeCounts{}, errUnfinished
}

func (s *Store) ExportMemory(context.Context, memory.UserID, func(memory.Record) error) error {
	return errUnfinished
}
