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
	maxPasses    = 12
	maxSweep     = 120 * time.Second
	maxRunTokens = 20_000
	// minRunTokens is the least that a run has before it is ended for its size.
	minRunTokens  = 1000
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
// bound is reached. Every pass that was committed stays. A run that a summary
// would not make smaller is passed over.
func (e *Engine) sweep(ctx context.Context, t Turn) (SweepReport, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSweep)
	defer cancel()
	var report SweepReport
	passedOver := 0
	for pass := 0; ; pass++ {
		frontier, err := e.store.Frontier(ctx, t.User, t.Session)
		if err != nil {
			return report, fmt.Errorf("read frontier: %w", err)
		}
		report.ItemsAfter, report.TokensAfter = len(frontier.Items), frontier.Tokens()
		if pass == 0 {
			report.ItemsBefore, report.TokensBefore = report.ItemsAfter, report.TokensAfter
		}
		runs := e.oldRuns(frontier.Items)
		switch {
		case passedOver >= len(runs):
			if len(runs) > 0 {
				report.Stopped = stoppedNoGain
			}
			return report, nil
		case pass == maxPasses:
			report.Stopped = stoppedBounds
			return report, nil
		}
		leaf, ok, err := e.summarise(ctx, t, runs[passedOver])
		if err != nil {
			return report, err
		}
		if !ok {
			passedOver++
			continue
		}
		summary, err := e.store.CommitSummary(ctx, t.User, frontier.Revision, leaf)
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

// oldRuns returns the runs of messages outside the recent ones, oldest first.
// The newest refresh stays as it is: it ends a run, and is never in one.
func (e *Engine) oldRuns(items []memory.Item) []run {
	tail := e.recent(items)
	pinned := newestRefresh(items)
	var runs []run
	var r run
	sum := 0
	end := func() {
		if len(r.messages) > 0 {
			runs = append(runs, r)
		}
		r, sum = run{}, 0
	}
	for i := 0; i < tail; i++ {
		item := items[i]
		if item.Summary != nil || i == pinned {
			end()
			r.previous = item.Summary
			continue
		}
		// A run that is small goes on: alone, it could not be made smaller.
		if sum >= minRunTokens && sum+item.Message.Tokens > maxRunTokens && !isResult(item) {
			end()
		}
		sum += item.Message.Tokens
		r.messages = append(r.messages, *item.Message)
	}
	end()
	return runs
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
	return withCalls(items, start)
}

// withCalls returns the index from which on every tool's result has its call.
// A result whose call is nowhere holds nothing.
func withCalls(items []memory.Item, start int) int {
	calls := map[string]int{}
	for i, item := range items[:start] {
		for _, b := range blocksOf(item) {
			if b.Type == memory.BlockToolCall {
				calls[b.ID] = i
			}
		}
	}
	for i := len(items) - 1; i >= start; i-- {
		for _, b := range blocksOf(items[i]) {
			if at, ok := calls[b.ID]; ok && b.Type == memory.BlockToolResult && at < start {
				start = at
			}
		}
	}
	// Results without blocks of their own follow what they belong to.
	for start > 0 && start < len(items) && isResult(items[start]) {
		start--
	}
	return start
}

func blocksOf(item memory.Item) []memory.Block {
	if item.Message == nil {
		return nil
	}
	return item.Message.Blocks
}

// isResult reports whether an item is a tool's result, which follows its call.
func isResult(item memory.Item) bool {
	if item.Message == nil {
		return false
	}
	if item.Message.Role == memory.RoleTool {
		return true
	}
	for _, b := range item.Message.Blocks {
		if b.Type == memory.BlockToolResult {
			return true
		}
	}
	return false
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
func (e *Engine) summarise(ctx context.Context, t Turn, r run) (memory.NewSummary, bool, error) {
	// The heading of a summary alone costs as much as a short run.
	if r.tokens() <= minSummaryTokens {
		return memory.NewSummary{}, false, nil
	}
	leaf := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), At: t.At, SummaryText: memory.SummaryText{Level: memory.LevelNormal}}
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
