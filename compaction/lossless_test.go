package compaction_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// C12, C14, invariant 6: whatever is said, however the model behaves, whoever
// compacts meanwhile and whenever a commit fails, the frontier covers each message
// once, gives every one back byte for byte, and reaches all of them from its roots.
func TestRandomHistoriesLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and does one thing after the other: left to the whole run")
	}
	w := newWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		w.session = w.newSession(w.anna)
		h := &history{t: r, world: w, summarizer: &teller{}, store: &failing{Store: w.store}}
		h.restart(r)
		for range rapid.IntRange(4, 18).Draw(r, "steps") {
			step := rapid.SampledFrom([]func(*rapid.T){
				h.talk, h.talk, h.talk, h.tool, h.inject, h.foreign, h.model, h.disturb, h.restart, h.compact, h.compact, h.threshold, h.relieve,
			}).Draw(r, "step")
			step(r)
		}
		h.check(r)
	})
}

// history is one random conversation.
type history struct {
	t          *rapid.T
	world      *world
	summarizer *teller
	store      *failing
	engine     *compaction.Engine
	said       []memory.Message
	calls      int
}

// failing is a store whose next commit goes wrong.
type failing struct {
	memory.Store
	next func(commit func() (memory.Summary, error)) (memory.Summary, error)
}

var errDisk = errors.New("the disk is full")

func (s *failing) CommitSummary(ctx context.Context, user memory.UserID, r memory.Revision, n memory.NewSummary) (memory.Summary, error) {
	commit := func() (memory.Summary, error) { return s.Store.CommitSummary(ctx, user, r, n) }
	if next := s.next; next != nil {
		s.next = nil
		return next(commit)
	}
	return commit()
}

func (h *history) add(r *rapid.T, drafts ...memory.Draft) {
	stored, err := h.store.Append(context.Background(), h.world.anna, h.world.session, drafts...)
	if err != nil {
		r.Fatal(err)
	}
	h.said = append(h.said, stored...)
}

func (h *history) draft(role memory.Role, source memory.Source, blocks ...memory.Block) memory.Draft {
	h.world.at = h.world.at.Add(7 * time.Second)
	return memory.Draft{Role: role, Source: source, Blocks: blocks, At: h.world.at}
}

func (h *history) words(r *rapid.T) string {
	return strings.Repeat(rapid.SampledFrom([]string{"the pump runs. ", "日本語のポンプ。", "\x00 odd\nExpand for: nothing ", "[Summary ", "ok "}).Draw(r, "words"), rapid.IntRange(1, 120).Draw(r, "length"))
}

func (h *history) talk(r *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(r, "exchanges") {
		h.add(r, h.draft(memory.RoleUser, memory.SourceUser, memory.Text(h.words(r))), h.draft(memory.RoleAssistant, memory.SourceAssistant, memory.Text(h.words(r))))
	}
}

// tool is a call, perhaps two, with results that come after something else, or
// never.
func (h *history) tool(r *rapid.T) {
	var calls, results []memory.Block
	for range rapid.IntRange(1, 2).Draw(r, "calls") {
		h.calls++
		id := fmt.Sprint("call-", h.calls)
		calls = append(calls, memory.ToolCall(id, "grep", json.RawMessage(`{"for":"pumps"}`)))
		results = append(results, memory.ToolResult(id, "grep", wrapped(h.world.t, h.words(r)+"."), false))
	}
	h.add(r, h.draft(memory.RoleAssistant, memory.SourceAssistant, calls...))
	switch rapid.SampledFrom([]string{"at once", "at once", "after a refresh", "after words", "never"}).Draw(r, "result") {
	case "never":
		return
	case "after a refresh":
		h.inject(r)
	case "after words":
		h.add(r, h.draft(memory.RoleUser, memory.SourceUser, memory.Text(h.words(r))))
	}
	for _, b := range results {
		h.add(r, h.draft(memory.RoleTool, memory.SourceTool, b))
	}
}

func (h *history) inject(r *rapid.T) {
	h.world.at = h.world.at.Add(time.Second)
	m, err := h.store.Inject(context.Background(), h.world.anna, h.world.session, memory.Injection{At: h.world.at, Blocks: []boundary.Content{wrapped(h.world.t, h.words(r)+".")}})
	if err != nil {
		r.Fatal(err)
	}
	h.said = append(h.said, m)
}

func (h *history) foreign(r *rapid.T) {
	h.add(r, h.draft(memory.RoleUser, memory.SourceUser, memory.Text(h.words(r)), memory.External(wrapped(h.world.t, h.words(r)+"."))))
}

// model changes how the model behaves.
func (h *history) model(r *rapid.T) {
	h.summarizer.becomes(rapid.SampledFrom([]func(int, compaction.SummaryRequest) (compaction.SummaryResult, error){
		brief, aThird, down, tooLong,
		func(int, compaction.SummaryRequest) (compaction.SummaryResult, error) {
			return compaction.SummaryResult{Text: " \n"}, nil
		},
		func(int, compaction.SummaryRequest) (compaction.SummaryResult, error) {
			return compaction.SummaryResult{Text: "cut", Truncated: true}, nil
		},
		func(int, compaction.SummaryRequest) (compaction.SummaryResult, error) { panic("a fault") },
	}).Draw(r, "model"))
}

// disturb makes the next commit fail: not stored, stored all the same, or somebody
// else was first.
func (h *history) disturb(r *rapid.T) {
	switch rapid.SampledFrom([]string{"not stored", "stored", "conflict", "other run"}).Draw(r, "fault") {
	case "not stored":
		h.store.next = func(func() (memory.Summary, error)) (memory.Summary, error) { return memory.Summary{}, errDisk }
	case "stored":
		h.store.next = func(commit func() (memory.Summary, error)) (memory.Summary, error) {
			_, err := commit()
			return memory.Summary{}, errors.Join(errDisk, err)
		}
	case "conflict":
		h.store.next = func(func() (memory.Summary, error)) (memory.Summary, error) {
			return memory.Summary{}, memory.ErrConflict
		}
	case "other run":
		h.store.next = func(commit func() (memory.Summary, error)) (memory.Summary, error) {
			other := compaction.New(h.world.store, compaction.NewOffline(), compaction.Config{KeepRecent: 3}, nil, nil)
			if _, err := other.Compact(context.Background(), h.world.turn(h.world.anna, h.world.session)); err != nil {
				r.Fatal(err)
			}
			return commit()
		}
	}
}

// restart forgets what the engine had in memory.
func (h *history) restart(*rapid.T) {
	h.engine = compaction.New(h.store, h.summarizer, compaction.Config{
		Threshold: 0.6, KeepRecent: 4, MaxSummaryTokens: 200, Now: func() time.Time { return h.world.at },
	}, nil, nil)
}

func (h *history) compact(r *rapid.T) {
	h.sweep(r, func(t compaction.Turn) (compaction.Report, error) {
		return h.engine.Compact(context.Background(), t)
	})
}

func (h *history) threshold(r *rapid.T) {
	w := compaction.Window{Budget: rapid.IntRange(200, 8000).Draw(r, "budget"), System: 50}
	h.sweep(r, func(t compaction.Turn) (compaction.Report, error) {
		return h.engine.Threshold(context.Background(), t, w)
	})
}

func (h *history) relieve(r *rapid.T) {
	w := compaction.Window{Budget: rapid.IntRange(200, 8000).Draw(r, "budget"), System: 50}
	h.sweep(r, func(t compaction.Turn) (compaction.Report, error) {
		return h.engine.Relieve(context.Background(), t, w)
	})
}

func (h *history) sweep(r *rapid.T, run func(compaction.Turn) (compaction.Report, error)) {
	before := h.world.frontier()
	disturbed := h.store.next != nil
	report, err := run(h.world.turn(h.world.anna, h.world.session))
	if err != nil && !errors.Is(err, errDisk) {
		r.Fatal(err)
	}
	after := h.world.frontier()
	if s := report.Sweep; !disturbed && s.Changed() != (before.Revision != after.Revision) {
		r.Fatalf("says that it changed: %v; the frontier went from %v to %v", s.Changed(), before.Revision, after.Revision)
	}
	if s := report.Sweep; !disturbed && len(s.Summaries) > 0 && len(s.Repaired) == 0 && after.Tokens() >= before.Tokens() {
		r.Fatalf("%d tokens became %d", before.Tokens(), after.Tokens())
	}
	if err == nil && report.Outcome == memory.OutcomeDone && (report.Sweep.ItemsAfter != len(after.Items) || report.Sweep.TokensAfter != after.Tokens()) {
		r.Fatalf("reports %+v of a frontier of %d items and %d tokens", report.Sweep, len(after.Items), after.Tokens())
	}
	h.check(r)
	h.world.checkPairs(r)
}

// check holds all that is stored against what was said.
func (h *history) check(r *rapid.T) {
	ctx := context.Background()
	var covered []memory.Message
	reached := map[memory.MessageID]int{}
	var reach func(memory.SummaryID)
	reach = func(id memory.SummaryID) {
		sources, err := h.store.Sources(ctx, h.world.anna, id)
		if err != nil {
			r.Fatal(err)
		}
		for _, s := range sources {
			if s.Message != nil {
				reached[s.Message.ID]++
			} else {
				reach(s.Summary.ID)
			}
		}
	}
	for _, item := range h.world.frontier().Items {
		if item.Message != nil {
			covered = append(covered, *item.Message)
			reached[item.Message.ID]++
			continue
		}
		expanded, err := h.store.Expand(ctx, h.world.anna, item.Summary.ID, memory.MessageQuery{})
		if err != nil {
			r.Fatal(err)
		}
		if covered = append(covered, expanded...); len(expanded) != item.Summary.Descendants {
			r.Fatalf("%s stands for %d messages and gives %d back", item.Summary.ID, item.Summary.Descendants, len(expanded))
		}
		reach(item.Summary.ID)
	}
	if len(covered) != len(h.said) {
		r.Fatalf("%d messages were said, the frontier covers %d", len(h.said), len(covered))
	}
	for i, m := range h.said {
		want, err := json.Marshal(m)
		if err != nil {
			r.Fatal(err)
		}
		if got, err := json.Marshal(covered[i]); err != nil || !bytes.Equal(got, want) {
			r.Fatalf("message %d came back as\n%s\nit was\n%s", i, got, want)
		}
		if reached[m.ID] != 1 {
			r.Fatalf("message %d is reached %d times", i, reached[m.ID])
		}
	}
}
