package compaction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// minSourceTokens is what a source gets however many share the cap.
const minSourceTokens = 256

// RefreshReport tells of one round of questions.
type RefreshReport struct {
	// Message is the context refresh as it was stored; nil if there is none.
	Message *memory.Message
	// From and To are the window that was asked about.
	From, To time.Time
	// Blocks lists what is in the refresh, in order.
	Blocks []RefreshBlock
	// Skipped lists the sources that have no part in it, and why.
	Skipped []SkippedSource
}

// Tokens is the sum over the blocks, of the texts without their frames.
func (r RefreshReport) Tokens() int {
	sum := 0
	for _, b := range r.Blocks {
		sum += b.Content.Tokens()
	}
	return sum
}

// RefreshBlock is one source's part.
type RefreshBlock struct {
	Source  string
	Content boundary.Content
	Took    time.Duration
}

// SkippedSource is a source without a part. Reason is in the host's own words.
type SkippedSource struct {
	Source string
	Reason string
	Err    error
	// Said is the source's own account of a failure, if it gave one.
	Said boundary.Content
}

type window struct{ from, to time.Time }

// bounded is the window from the last activity to now, no longer than the
// lookback.
func (e *Engine) bounded(last, now time.Time) window {
	if earliest := now.Add(-e.config.lookback()); last.Before(earliest) {
		last = earliest
	}
	return window{last, now}
}

// window of a cadence run begins at the last refresh, or else with the session.
func (e *Engine) window(f memory.Frontier, session memory.Session, now time.Time) window {
	since := session.CreatedAt
	if i := newestRefresh(f.Items); i >= 0 {
		since = f.Items[i].Message.At
	}
	return e.bounded(since, now)
}

// refresh asks every source at once, until asking is done, and injects what came
// back in one message. Its error is ctx's or the store's alone: a source that
// fails costs its own block.
func (e *Engine) refresh(ctx, asking context.Context, t Turn, w window) (RefreshReport, error) {
	report := RefreshReport{From: w.from, To: w.to}
	sources := e.sources(t.User)
	if e.config.ContextTokenCap <= 0 || len(sources) == 0 || !w.from.Before(w.to) {
		return report, nil
	}
	budget := max(minSourceTokens, e.config.ContextTokenCap/len(sources))
	answers := e.ask(asking, sources, Question{User: t.User, From: w.from, To: w.to, MaxTokens: budget})

	left := max(e.config.ContextTokenCap, minSourceTokens*len(sources))
	var contents []boundary.Content
	for i, a := range answers {
		skip := func(reason string) {
			report.Skipped = append(report.Skipped, SkippedSource{Source: sources[i].Name(), Reason: reason, Err: a.err})
			if a.err != nil {
				report.Skipped[len(report.Skipped)-1].Said = a.content
			}
		}
		switch {
		case errors.Is(a.err, context.DeadlineExceeded):
			skip("too late")
		case a.err != nil:
			skip("failed: " + a.err.Error())
		case a.content.IsEmpty():
			skip("nothing to say")
		case a.content.Tokens() > left:
			// Never cut through its frame: the whole block goes.
			skip(fmt.Sprintf("%d tokens where %d are left", a.content.Tokens(), left))
		default:
			left -= a.content.Tokens()
			contents = append(contents, a.content)
			report.Blocks = append(report.Blocks, RefreshBlock{sources[i].Name(), a.content, a.took})
		}
	}
	// A caller who has gone meanwhile gets no refresh: who tries again would
	// find one for each attempt.
	if err := ctx.Err(); err != nil {
		return report, err
	}
	if len(contents) == 0 {
		return report, nil
	}
	if t.Between != nil {
		release, err := t.Between(ctx)
		if err != nil {
			return report, fmt.Errorf("inject context refresh: wait for the turn: %w", err)
		}
		defer release()
		// The next turn waits for it.
		ctx = memory.Foreground(ctx)
	}
	message, err := e.store.Inject(context.WithoutCancel(ctx), t.User, t.Session, memory.Injection{At: t.At, Blocks: contents})
	if err != nil {
		return report, fmt.Errorf("inject context refresh: %w", err)
	}
	report.Message = &message
	return report, nil
}

type answer struct {
	content boundary.Content
	err     error
	took    time.Duration
}

// ask returns one answer for each source, in their order, when all have
// answered or ctx is done. A source that does not return by then is left
// behind: it holds nothing that anybody waits for.
func (e *Engine) ask(ctx context.Context, sources []Source, q Question) []answer {
	limited, cancel := context.WithTimeout(ctx, e.config.sourceTimeout())
	defer cancel()
	began := time.Now()
	var mu sync.Mutex
	answers := make([]answer, len(sources))
	for i := range answers {
		answers[i].err = context.DeadlineExceeded
	}
	all := e.running.Each(len(sources), func(i int) {
		content, err := askOne(limited, sources[i], q)
		mu.Lock()
		defer mu.Unlock()
		answers[i] = answer{content, err, time.Since(began)}
	})
	select {
	case <-all:
	case <-limited.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	return append([]answer(nil), answers...)
}

// askOne keeps a source's panic from the turn.
func askOne(ctx context.Context, source Source, q Question) (content boundary.Content, err error) {
	defer func() {
		if r := recover(); r != nil {
			content, err = boundary.Content{}, fmt.Errorf("panic in source %s: %v", source.Name(), r)
		}
	}()
	return source.Ask(ctx, q)
}
