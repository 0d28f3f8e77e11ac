package compaction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Status tells what the frontier of a session is made of.
type Status struct {
	Items    int `json:"items"`
	Messages int `json:"messages"`
	// Tokens is what all items cost as they are shown.
	Tokens int `json:"tokens"`
	// Layers are the summaries in the frontier, the deepest first.
	Layers []Layer `json:"summaries"`
	Debt   Debt    `json:"debt"`
}

// Layer counts the summaries of one depth and level.
type Layer struct {
	Depth  int          `json:"depth"`
	Level  memory.Level `json:"level"`
	Count  int          `json:"count"`
	Tokens int          `json:"tokens"`
	// Messages is how many messages they stand for.
	Messages int `json:"messages"`
}

// Debt is what compaction has still to do.
type Debt struct {
	// Messages and Tokens are those outside the recent messages that no summary
	// stands for yet.
	Messages int `json:"messages"`
	Tokens   int `json:"tokens"`
	// Fallbacks are summaries that were cut down and wait for repair.
	Fallbacks int `json:"fallbacks"`
}

// StatusOf tells what a frontier is made of, as cadence, gap and manual runs of
// config see it.
func StatusOf(f memory.Frontier, config Config) Status {
	s := Status{Items: len(f.Items), Tokens: f.Tokens(), Layers: []Layer{}}
	type layer struct {
		depth int
		level memory.Level
	}
	layers := map[layer]*Layer{}
	for _, item := range f.Items {
		if item.Message != nil {
			s.Messages++
			continue
		}
		v := item.Summary
		key := layer{v.Depth, v.Level}
		if layers[key] == nil {
			layers[key] = &Layer{Depth: v.Depth, Level: v.Level}
		}
		l := layers[key]
		l.Count, l.Tokens, l.Messages = l.Count+1, l.Tokens+v.Tokens, l.Messages+v.Descendants
		if v.Level == memory.LevelFallback {
			s.Debt.Fallbacks++
		}
	}
	for _, l := range layers {
		s.Layers = append(s.Layers, *l)
	}
	slices.SortFunc(s.Layers, func(a, b Layer) int {
		return cmp.Or(cmp.Compare(b.Depth, a.Depth), cmp.Compare(b.Level, a.Level))
	})
	pinned := newestRefresh(f.Items)
	for i := range freshTail(f.Items, cuts(f.Items), config.keepRecent(), 0, 0) {
		if m := f.Items[i].Message; m != nil && i != pinned {
			s.Debt.Messages++
			s.Debt.Tokens += m.Tokens
		}
	}
	return s
}

// Watch tells what keeps the summarizer from being asked.
type Watch struct {
	// Calls is how many there were for the session within the guard's window.
	Calls int `json:"calls"`
	// Resting is until when the guard allows none; zero if it does.
	Resting time.Time `json:"resting_until,omitzero"`
	// Failures is how many calls failed in a row, for whatever session, and
	// Broken is until when the breaker allows none; zero if it does.
	Failures int       `json:"failures"`
	Broken   time.Time `json:"broken_until,omitzero"`
}

// Status returns what the session's frontier is made of and how the guard and
// the breaker of this engine stand. The error wraps memory.ErrNotFound.
func (e *Engine) Status(ctx context.Context, user memory.UserID, session memory.SessionID) (Status, Watch, error) {
	frontier, err := e.store.Frontier(ctx, user, session)
	if err != nil {
		return Status{}, Watch{}, fmt.Errorf("compaction status: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	watch := Watch{Failures: e.breaker.failures}
	if e.breaker.open(now) {
		watch.Broken = e.breaker.rest
	}
	if state := e.sessions[session]; state != nil {
		watch.Calls = len(state.recent(now))
		if state.resting(now) {
			watch.Resting = state.rest
		}
	}
	return StatusOf(frontier, e.config), watch, nil
}
