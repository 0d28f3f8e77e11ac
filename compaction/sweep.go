package compaction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of one sweep.
const (
	maxPasses     = 12
	maxSweep      = 120 * time.Second
	maxRunTokens  = 20_000
	fallbackToken = 512
	// minSummaryTokens is the least that a summary is given to say something.
	minSummaryTokens = 64
)

// SweepReport tells what leaf passes did to a frontier.
type SweepReport struct {
	ItemsBefore, ItemsAfter   int
	TokensBefore, TokensAfter int
	Summaries                 []memory.Summary
	// Stopped says why the sweep ended before everything outside the recent
	// messages was summarised; "" if it did not.
	Stopped string
}

// Changed reports whether the frontier is another one than before.
func (r SweepReport) Changed() bool { return len(r.Summaries) > 0 }

// Reasons for ending a sweep early.
const (
	stoppedNoGain   = "a pass saved nothing"
	stoppedBounds   = "the bounds of one sweep were reached"
	stoppedConflict = "another run changed the session"
)

// sweep makes leaf passes until nothing but the recent messages is left, or a
// bound is reached. Every pass that was committed stays.
func (e *Engine) sweep(ctx context.Context, t Turn) (SweepReport, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSweep)
	defer cancel()
	var report SweepReport
	for pass := 0; ; pass++ {
		frontier, err := e.store.Frontier(ctx, t.User, t.Session)
		if err != nil {
			return report, fmt.Errorf("read frontier: %w", err)
		}
		report.ItemsAfter, report.TokensAfter = len(frontier.Items), frontier.Tokens()
		if pass == 0 {
			report.ItemsBefore, report.TokensBefore = report.ItemsAfter, report.TokensAfter
		}
		run := e.oldestRun(frontier.Items)
		if len(run.messages) == 0 {
			return report, nil
		}
		if pass == maxPasses {
			report.Stopped = stoppedBounds
			return report, nil
		}
		leaf, ok, err := e.summarise(ctx, t, run)
		switch {
		case err != nil:
			return report, err
		case !ok:
			report.Stopped = stoppedNoGain
			return report, nil
		}
		summary, err := e.store.CommitLeaf(ctx, t.User, frontier.Revision, leaf)
		switch {
		case errors.Is(err, memory.ErrConflict):
			report.Stopped = stoppedConflict
			return report, nil
		case err != nil:
			return report, fmt.Errorf("commit summary: %w", err)
		}
		report.Summaries = append(report.Summaries, summary)
	}
}

// run is a run of neighbouring messages that one leaf shall stand for.
type run struct {
	messages []memory.Message
	// previous is the summary that stands before it, if one does.
	previous *memory.Summary
}

func (r run) tokens() int {
	sum := 0
	for _, m := range r.messages {
		sum += m.Tokens
	}
	return sum
}

// oldestRun returns the first run of messages outside the recent ones. The
// newest refresh stays as it is: it ends a run, and is never in one.
func (e *Engine) oldestRun(items []memory.Item) run {
	tail := e.recent(items)
	pinned := newestRefresh(items)
	var r run
	sum := 0
	for i := 0; i < tail; i++ {
		item := items[i]
		if item.Summary != nil || i == pinned {
			if len(r.messages) > 0 {
				return r
			}
			r.previous = item.Summary
			continue
		}
		if sum > 0 && sum+item.Message.Tokens > maxRunTokens && !isResult(item) {
			return r
		}
		sum += item.Message.Tokens
		r.messages = append(r.messages, *item.Message)
	}
	return r
}

// recent returns the index of the first item that belongs to the recent
// messages. A tool's results are never parted from their call.
func (e *Engine) recent(items []memory.Item) int {
	keep := e.config.keepRecent()
	start := len(items)
	for start > 0 && keep > 0 {
		start--
		if m := items[start].Message; m == nil || !m.IsRefresh() {
			keep--
		}
	}
	for start > 0 && start < len(items) && isResult(items[start]) {
		start--
	}
	return start
}

func isResult(item memory.Item) bool {
	return item.Message != nil && item.Message.Role == memory.RoleTool
}

// hasOldMessages reports whether something that was said lies outside the
// recent messages.
func (e *Engine) hasOldMessages(f memory.Frontier) bool {
	for _, item := range f.Items[:e.recent(f.Items)] {
		if item.Message != nil && !item.Message.IsRefresh() {
			return true
		}
	}
	return false
}

// newestRefresh returns the index of the last context refresh, or -1.
func newestRefresh(items []memory.Item) int {
	for i := len(items) - 1; i >= 0; i-- {
		if m := items[i].Message; m != nil && m.IsRefresh() {
			return i
		}
	}
	return -1
}

// summarise makes the leaf of a run; not ok if it would not be smaller than
// what it stands for.
func (e *Engine) summarise(ctx context.Context, t Turn, r run) (memory.Leaf, bool, error) {
	leaf := memory.Leaf{ID: memory.NewID[memory.SummaryID](), At: t.At, Level: memory.LevelNormal}
	for _, m := range r.messages {
		leaf.Messages = append(leaf.Messages, m.ID)
	}
	limit := min(e.config.maxSummaryTokens(), max(minSummaryTokens, r.tokens()/3))
	said, external, refreshes := parts(r.messages)

	var lines []string
	if said != "" {
		request := SummaryRequest{Transcript: said, MaxTokens: limit}
		if r.previous != nil {
			request.Previous = r.previous.Text
		}
		result, level, err := e.escalate(ctx, request)
		if err != nil {
			return leaf, false, err
		}
		leaf.Level, leaf.Model = level, result.Model
		lines = append(lines, result.Text)
	}
	if external != "" {
		result, level, err := e.escalate(ctx, SummaryRequest{Transcript: external, MaxTokens: limit, External: true})
		if err != nil {
			return leaf, false, err
		}
		if level == memory.LevelFallback {
			leaf.Level = level
		}
		leaf.Model = result.Model
		source, err := boundary.SummarySource(leaf.ID.String())
		if err != nil {
			return leaf, false, err
		}
		leaf.External, _ = boundary.Wrap(source, result.Text, limit)
	}
	for _, m := range refreshes {
		lines = append(lines, refreshLine(m))
	}
	leaf.Text = strings.Join(lines, "\n")
	shown := memory.Summary{ID: leaf.ID, Text: leaf.Text, External: leaf.External, Descendants: len(r.messages)}.Shown()
	return leaf, tokens.Estimate(shown) < r.tokens(), nil
}

// parts divides what was said from what came from outside. External text stays
// in its frame, for the summarizer is a model too.
func parts(messages []memory.Message) (said, external string, refreshes []memory.Message) {
	var own, foreign []string
	for _, m := range messages {
		if m.IsRefresh() {
			refreshes = append(refreshes, m)
			continue
		}
		var plain, framed []memory.Block
		for _, b := range m.Blocks {
			if b.External.IsEmpty() {
				plain = append(plain, b)
			} else {
				framed = append(framed, b)
			}
		}
		if text := memory.Shown(plain); text != "" {
			own = append(own, string(m.Role)+": "+text)
		}
		if text := memory.Shown(framed); text != "" {
			foreign = append(foreign, text)
		}
	}
	return strings.Join(own, "\n"), strings.Join(foreign, "\n"), refreshes
}

// refreshLine stands for a refresh that a newer one has replaced, in the
// host's own words.
func refreshLine(m memory.Message) string {
	var sources []string
	for _, b := range m.Blocks {
		if !b.External.IsEmpty() {
			sources = append(sources, b.External.Source().String())
		}
	}
	return fmt.Sprintf("[An earlier context refresh of %s from %s, %d tokens, is replaced by a newer one. Its id is %s.]",
		m.At.UTC().Format(time.RFC3339), strings.Join(sources, " and "), m.Tokens, m.ID)
}
