package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// openHost opens a host that asks no hands, to change what is stored. Another
// process that writes is memory.ErrInUse.
func (a *app) openHost(c *cobra.Command) (*host.Host, error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	if _, err := existingDatabase(config); err != nil {
		return nil, err
	}
	config.Hands, config.Compaction.ContextSources = nil, nil
	return open(c.Context(), config)
}

// compacted is what session compact prints.
type compacted struct {
	Session memory.SessionID `json:"session"`
	// Compacted says that the model is shown something else than before.
	Compacted    bool             `json:"compacted"`
	ItemsBefore  int              `json:"items_before"`
	ItemsAfter   int              `json:"items_after"`
	TokensBefore int              `json:"tokens_before"`
	TokensAfter  int              `json:"tokens_after"`
	Summaries    []writtenSummary `json:"summaries"`
	Repaired     []writtenSummary `json:"repaired"`
	// Calls is how often the summarizer was asked.
	Calls int `json:"summarizer_calls"`
	// Reason says why nothing was done, or not all.
	Reason string          `json:"reason,omitempty"`
	Error  string          `json:"error,omitempty"`
	Took   time.Duration   `json:"took_ns"`
	Debt   compaction.Debt `json:"debt"`
}

type writtenSummary struct {
	ID       memory.SummaryID `json:"id"`
	Depth    int              `json:"depth"`
	Level    memory.Level     `json:"level"`
	Model    string           `json:"model"`
	Messages int              `json:"messages"`
	Tokens   int              `json:"tokens"`
}

func written(summaries []memory.Summary) []writtenSummary {
	out := []writtenSummary{}
	for _, v := range summaries {
		out = append(out, writtenSummary{v.ID, v.Depth, v.Level, v.Model, v.Descendants, v.Tokens})
	}
	return out
}

func (a *app) sessionCompact() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "compact SESSION|last", Short: "Summarise all but the recent messages of a conversation", Args: cobra.ExactArgs(1),
		Long: "Summarise all but the recent messages of a conversation now, whatever triggers are configured, and say what\n" +
			"was done. No message is changed or lost: a summary can be expanded.",
		RunE: func(c *cobra.Command, args []string) (err error) {
			h, err := a.openHost(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, h.Close()) }()
			user, err := userNamed(c, h.Store(), name)
			if err != nil {
				return err
			}
			session, err := find(c, h.Store(), user.ID, args[0])
			if err != nil {
				return err
			}
			report, runErr := h.Compact(c.Context(), user.ID, session.ID)
			// What was done before a failure is done.
			status, _, err := h.CompactionStatus(context.WithoutCancel(c.Context()), user.ID, session.ID)
			if err != nil {
				return errors.Join(runErr, err)
			}
			if a.asJSON {
				err = a.printJSON(compactedOf(session.ID, report, status, runErr))
			} else {
				a.printCompacted(report, status)
			}
			return errors.Join(runErr, err)
		},
	}
	userFlag(c, &name)
	return c
}

func compactedOf(session memory.SessionID, r compaction.Report, status compaction.Status, err error) compacted {
	s := r.Sweep
	out := compacted{
		Session: session, Compacted: s.Changed(), ItemsBefore: s.ItemsBefore, ItemsAfter: s.ItemsAfter,
		TokensBefore: s.TokensBefore, TokensAfter: s.TokensAfter, Summaries: written(s.Summaries), Repaired: written(s.Repaired),
		Calls: s.Calls, Reason: whyEnded(r), Took: r.Took, Debt: status.Debt,
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

func whyEnded(r compaction.Report) string {
	if r.Sweep.Stopped != "" {
		return r.Sweep.Stopped
	}
	return r.Reason
}

func (a *app) printCompacted(r compaction.Report, status compaction.Status) {
	s := r.Sweep
	if !s.Changed() {
		a.printf("nothing changed: %s\n", printable(whyEnded(r)))
	} else {
		a.printf("%d → %d items, %d → %d tokens\n", s.ItemsBefore, s.ItemsAfter, s.TokensBefore, s.TokensAfter)
		for _, v := range s.Summaries {
			a.printf("  summary %s  depth %d  %s  %d messages  %d tokens\n", v.ID, v.Depth, v.Level, v.Descendants, v.Tokens)
		}
		for _, v := range s.Repaired {
			a.printf("  repaired %s  depth %d  %s  %d tokens\n", v.ID, v.Depth, v.Level, v.Tokens)
		}
		if s.Stopped != "" {
			a.printf("ended early: %s\n", printable(s.Stopped))
		}
	}
	a.printDebt(status.Debt)
}

func (a *app) printDebt(d compaction.Debt) {
	if d == (compaction.Debt{}) {
		a.printf("no debt\n")
		return
	}
	a.printf("debt: %d messages of %d tokens are not summarised, %d summaries to repair\n", d.Messages, d.Tokens, d.Fallbacks)
}

// lastRuns is how many compactions session status shows.
const lastRuns = 5

func (a *app) sessionStatus() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "status SESSION|last", Short: "Show what the model is shown of a conversation, and what is still to be summarised", Args: cobra.ExactArgs(1),
		Long: "Show what the model is shown of a conversation: messages and summaries by depth and level; the debt, which is what\n" +
			"compaction has still to do; and the last compactions. It reads beside a running glovebox, which keeps its spend\n" +
			"guard and circuit breaker to itself: that one of them ended a compaction is the reason shown with it.",
		RunE: func(c *cobra.Command, args []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			return a.withSession(c, name, args[0], func(store memory.Store, u memory.User, session memory.Session) error {
				status, err := host.CompactionStatusOf(c.Context(), config, store, u.ID, session.ID)
				if err != nil {
					return err
				}
				runs, err := store.Compactions(c.Context(), u.ID, session.ID, lastRuns)
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(struct {
						Session memory.SessionID `json:"session"`
						compaction.Status
						Runs []memory.CompactionRun `json:"last_compactions"`
					}{session.ID, status, append([]memory.CompactionRun{}, runs...)})
				}
				a.printf("%d items, %d of them messages, %d tokens\n", status.Items, status.Messages, status.Tokens)
				for _, l := range status.Layers {
					a.printf("  depth %d  %-10s  %d summaries of %d messages, %d tokens\n", l.Depth, l.Level, l.Count, l.Messages, l.Tokens)
				}
				a.printDebt(status.Debt)
				for _, r := range runs {
					a.printf("%s %s %s: %d → %d tokens, %d summaries %s\n", r.StartedAt.Local().Format("2006-01-02 15:04"),
						r.Trigger, r.Outcome, r.TokensBefore, r.TokensAfter, r.Summaries, printable(r.Reason))
				}
				return nil
			})
		},
	}
	userFlag(c, &name)
	return c
}
