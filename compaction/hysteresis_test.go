package compaction_test

import (
	"context"
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
		prompt, report, _ := assembly.Assemble(assembly.Input{System: system, Items: w.frontier().Items, Budget: budget})
		var b strings.Builder
		for _, m := range prompt.Messages {
			b.WriteString(string(m.Role) + "\x00" + m.Text() + "\x00")
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

// policy compacts after answers of one kind of conversation.
type policy struct {
	name  string
	after func(*world) func(compaction.Turn) error
}

func marks(name string, budget int, low float64) policy {
	return policy{name, func(w *world) func(compaction.Turn) error {
		engine := w.asking(&teller{tell: aThird}, compaction.Config{Threshold: 0.75, LowMark: low})
		return func(turn compaction.Turn) error {
			_, err := engine.Threshold(context.Background(), turn, compaction.Window{Budget: budget, System: 10})
			return err
		}
	}}
}

func every(name string, interval int) policy {
	return policy{name, func(w *world) func(compaction.Turn) error {
		engine := w.asking(&teller{tell: aThird}, compaction.Config{Interval: interval})
		return func(turn compaction.Turn) error {
			_, err := engine.Cadence(context.Background(), turn)
			return err
		}
	}}
}

const chatBudget = 8000

// Hysteresis: with two marks the beginning of the prompt stays the same over
// many turns; with one it changes as soon as there is something to change.
func TestHysteresisKeepsThePrefix(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and does one thing after the other: left to the whole run")
	}
	const exchanges = 160
	results := map[string]cached{}
	for _, p := range []policy{marks("two marks", chatBudget, 0), marks("one mark", chatBudget, 0.75), every("each exchange", 1)} {
		w := newWorld(t)
		c := w.converse(exchanges, chatBudget, p.after(w))
		if c.over > 0 {
			t.Errorf("%s: %d prompts were over the budget", p.name, c.over)
		}
		w.checkCoverage()
		results[p.name] = c
	}
	two, one, each := results["two marks"], results["one mark"], results["each exchange"]
	if two.reuse() < 0.93 || two.changes > exchanges/15 {
		t.Errorf("with two marks the beginning changed %d times, %.1f %% were reused", two.changes, 100*two.reuse())
	}
	if one.changes < 2*two.changes || each.changes < 8*two.changes {
		t.Errorf("the beginning changed %d times with two marks, %d with one, %d with each exchange", two.changes, one.changes, each.changes)
	}
}

// BenchmarkHysteresis reports, for a chat of 300 exchanges, in how many turns the
// beginning of the prompt changed and how much of the prompts was reused.
func BenchmarkHysteresis(b *testing.B) {
	for _, p := range []policy{
		marks("0.75-0.35", chatBudget, 0.35), marks("0.75-0.5", chatBudget, 0.5), marks("0.75-0.65", chatBudget, 0.65), marks("0.75-0.75", chatBudget, 0.75),
		every("cadence-1", 1), every("cadence-5", 5),
	} {
		b.Run(p.name, func(b *testing.B) {
			for range b.N {
				w := newWorld(b)
				c := w.converse(300, chatBudget, p.after(w))
				b.ReportMetric(float64(c.changes), "changes")
				b.ReportMetric(100*c.reuse(), "%reused")
			}
		})
	}
}

// aThird is a summary of about a third of what there is, at most as long as
// asked for.
func aThird(_ int, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	limit := min(r.MaxTokens-10, tokens.Estimate(r.Transcript)/3)
	return compaction.SummaryResult{Text: tokens.Cut(r.Transcript, limit) + "\nExpand for: the rest.", Model: "m"}, nil
}
