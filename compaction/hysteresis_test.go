package compaction_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

// cached tells what a provider's cache of prompt beginnings would have saved of
// a conversation.
type cached struct {
	turns, changes int
	// reused and total are bytes of prompts.
	reused, total int
	over          int
}

func (c cached) reuse() float64 { return float64(c.reused) / float64(c.total) }

// converse lets people talk for that many exchanges of some 120 tokens, and
// compacts after each answer.
func (w *world) converse(exchanges, budget int, after func(compaction.Turn) error) (c cached) {
	w.t.Helper()
	const system = "You are a helpful assistant."
	before := ""
	for n := range exchanges {
		w.put(memory.RoleUser, memory.SourceUser, memory.Text(fmt.Sprintf("Question %d: %s", n, strings.Repeat("how does the pump do? ", 4+n%7))))
		prompt, report := assembly.Assemble(assembly.Input{System: system, Items: w.frontier().Items, Budget: budget})
		var b strings.Builder
		for _, m := range prompt.Messages {
			b.WriteString(string(m.Role) + "\x00" + m.Text + "\x00")
		}
		now := b.String()
		same := 0
		for same < min(len(before), len(now)) && before[same] == now[same] {
			same++
		}
		c.turns++
		c.reused += same
		c.total += len(now)
		// Neighbours of one role are one message, so that the last one of the
		// prompt before may have gone on.
		if same < len(strings.TrimSuffix(before, "\x00")) {
			c.changes++
		}
		if report.OverBudget || prompt.Tokens > budget {
			c.over++
		}
		before = now
		w.put(memory.RoleAssistant, memory.SourceAssistant, memory.Text(fmt.Sprintf("Answer %d: %s", n, strings.Repeat("it runs, as it did before. ", 6+n%11))))
		if err := after(w.turn(w.anna, w.session)); err != nil {
			w.t.Fatal(err)
		}
		w.at = w.at.Add(2 * time.Minute)
	}
	return c
}

// Hysteresis: with two marks the beginning of the prompt stays the same over
// many turns; with one it changes as soon as there is something to change.
func TestHysteresisKeepsThePrefix(t *testing.T) {
	const exchanges, budget = 300, 8000
	threshold := func(low float64) func(*world) func(compaction.Turn) error {
		return func(w *world) func(compaction.Turn) error {
			engine := w.asking(&teller{tell: aThird}, compaction.Config{Threshold: 0.75, LowMark: low})
			return func(turn compaction.Turn) error {
				_, err := engine.Threshold(t.Context(), turn, compaction.Window{Budget: budget, System: 10})
				return err
			}
		}
	}
	cadence := func(interval int) func(*world) func(compaction.Turn) error {
		return func(w *world) func(compaction.Turn) error {
			engine := w.asking(&teller{tell: aThird}, compaction.Config{Interval: interval})
			return func(turn compaction.Turn) error {
				_, err := engine.Cadence(t.Context(), turn)
				return err
			}
		}
	}
	results := map[string]cached{}
	for _, policy := range []struct {
		name  string
		after func(*world) func(compaction.Turn) error
	}{
		{"threshold 0.75, low mark 0.5", threshold(0)},
		{"threshold 0.75, low mark 0.65", threshold(0.65)},
		{"threshold 0.75, low mark 0.35", threshold(0.35)},
		{"threshold 0.75, one mark", threshold(0.75)},
		{"cadence of 5", cadence(5)},
		{"cadence of 1", cadence(1)},
	} {
		w := newWorld(t)
		c := w.converse(exchanges, budget, policy.after(w))
		t.Logf("%-30s the beginning changed in %3d of %d turns, %.1f %% of the prompts' bytes were reused", policy.name, c.changes, c.turns, 100*c.reuse())
		if c.over > 0 {
			t.Errorf("%s: %d prompts were over the budget", policy.name, c.over)
		}
		w.checkCoverage()
		results[policy.name] = c
	}
	two, one, every := results["threshold 0.75, low mark 0.5"], results["threshold 0.75, one mark"], results["cadence of 1"]
	if two.reuse() < 0.94 || two.changes > exchanges/15 {
		t.Errorf("with two marks: %+v", two)
	}
	if one.changes < 2*two.changes || every.changes < 10*two.changes {
		t.Errorf("the beginning changed %d times with two marks, %d with one, %d with each exchange", two.changes, one.changes, every.changes)
	}
}

// aThird is a summary of about a third of what there is, at most as long as
// asked for.
func aThird(_ int, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	limit := min(r.MaxTokens-10, tokens.Estimate(r.Transcript)/3)
	return compaction.SummaryResult{Text: tokens.Cut(r.Transcript, limit) + "\nExpand for: the rest.", Model: "m"}, nil
}
