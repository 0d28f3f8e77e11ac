package compaction_test

import (
	"context"
	"slices"
	"sync"

	"github.com/gloveboxhq/glovebox/memory"
)

type pendingRows struct {
	memory.Store
	mu   sync.Mutex
	rows []memory.PendingRun
}

func (p *pendingRows) PutPendingRun(_ context.Context, r memory.PendingRun) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows = slices.DeleteFunc(p.rows, func(o memory.PendingRun) bool { return o.Session == r.Session && o.Trigger == r.Trigger })
	p.rows = append(p.rows, r)
	return nil
}

func (p *pendingRows) EndPendingRun(_ context.Context, u memory.UserID, s memory.SessionID, t memory.Trigger) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows = slices.DeleteFunc(p.rows, func(o memory.PendingRun) bool { return o.Session == s && o.Trigger == t && o.User == u })
	return nil
}

func (p *pendingRows) PendingRuns(context.Context) ([]memory.PendingRun, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.rows), nil
}

func (p *pendingRows) DeleteSession(ctx context.Context, u memory.UserID, s memory.SessionID) error {
	_ = p.EndPendingRun(ctx, u, s, memory.TriggerCadence)
	return p.Store.DeleteSession(ctx, u, s)
}
