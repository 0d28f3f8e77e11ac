package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

func (a *app) memory() *cobra.Command {
	return group("memory", "See, correct, take along and erase what is remembered of a user",
		a.memoryList(), a.memoryShow(), a.memorySet(), a.memoryDelete(), a.memoryWipe(), a.memoryAudit(), a.memoryExport(), a.memoryImport(), a.memoryDream())
}

// whose says of whom, and with which agent, something is remembered.
type whose struct{ user, agent string }

// flags adds --user and --agent to a command.
func (w *whose) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.user, "user", memory.DefaultUserName, "of whom it is remembered")
	c.Flags().StringVar(&w.agent, "agent", "", "what is remembered with this agent alone (default what every agent knows)")
}

// find returns the user and, if one is named, the agent.
func (w *whose) find(c *cobra.Command, store memory.Store) (memory.User, memory.AgentID, error) {
	user, err := userNamed(c, store, w.user)
	if err != nil || w.agent == "" {
		return user, memory.AgentID{}, err
	}
	agents, err := store.Agents(c.Context())
	if err != nil {
		return user, memory.AgentID{}, err
	}
	var names []string
	for _, a := range agents {
		if a.Name == w.agent {
			return user, a.ID, nil
		}
		names = append(names, a.Name)
	}
	return user, memory.AgentID{}, fmt.Errorf("no agent %q: there are %v", w.agent, names)
}

// reading opens the database for reading, beside whoever writes it.
func (a *app) reading(c *cobra.Command, w *whose, run func(memory.Store, memory.User, memory.AgentID) error) error {
	store, err := a.reader(c)
	if err != nil {
		return err
	}
	defer store.Close()
	user, agent, err := w.find(c, store)
	if err != nil {
		return err
	}
	return run(store, user, agent)
}

// changing opens the database, which must exist, for writing.
func (a *app) changing(c *cobra.Command, w *whose, run func(memory.Store, memory.User, memory.AgentID) error) (err error) {
	if _, err := a.databasePath(); err != nil {
		return err
	}
	store, err := a.writer(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	user, agent, err := w.find(c, store)
	if err != nil {
		return err
	}
	return run(store, user, agent)
}

func (a *app) memoryList() *cobra.Command {
	var w whose
	c := &cobra.Command{
		Use: "list", Short: "List what is remembered and holds now", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c, &w, func(store memory.Store, user memory.User, agent memory.AgentID) error {
				topics, _, err := store.Topics(c.Context(), user.ID, memory.TopicQuery{Agent: agent, At: time.Now()})
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(memory.ByName(topics))
				}
				for _, r := range memory.ByName(topics) {
					a.printf("%s  %s\n%s\n", r.UpdatedAt.Local().Format("2006-01-02 15:04"), printable(r.Name), indented(r.Content))
				}
				return nil
			})
		},
	}
	w.flags(c)
	return c
}

func (a *app) memoryShow() *cobra.Command {
	var w whose
	c := &cobra.Command{
		Use: "show TOPIC", Short: "Show a topic with its history and where it comes from", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c, &w, func(store memory.Store, user memory.User, agent memory.AgentID) error {
				name, err := memory.TopicName(args[0])
				if err != nil {
					return usagef("%w", err)
				}
				topics, _, err := store.Topics(c.Context(), user.ID, memory.TopicQuery{Agent: agent, Name: name})
				if err != nil {
					return err
				}
				if len(topics) == 0 {
					return noTopic(name)
				}
				now := time.Now()
				if a.asJSON {
					return a.printJSON(memory.WithHistory(name, topics, now))
				}
				for _, t := range topics {
					a.printf("%s  %s\n%s\n", t.ValidFrom.Local().Format("2006-01-02 15:04"), standing(t, now), indented(t.Content))
					for _, id := range t.Sources {
						a.printf("    from message %s\n", id)
					}
				}
				return nil
			})
		},
	}
	w.flags(c)
	return c
}

// standing says whether something that is remembered holds.
func standing(t memory.Topic, now time.Time) string {
	switch {
	case !t.SupersededBy.IsZero():
		return "superseded by " + t.SupersededBy.String()
	case !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(now):
		return "expired " + t.ExpiresAt.Local().Format("2006-01-02 15:04")
	case !t.ExpiresAt.IsZero():
		return "holds until " + t.ExpiresAt.Local().Format("2006-01-02 15:04")
	}
	return "holds"
}

func noTopic(name string) error {
	return fmt.Errorf("nothing is remembered of %q: glovebox memory list shows the topics: %w", name, memory.ErrNotFound)
}

func (a *app) memorySet() *cobra.Command {
	var (
		w       whose
		expires string
	)
	c := &cobra.Command{
		Use: "set TOPIC TEXT", Short: "Say yourself what is remembered of a topic", Args: cobra.ExactArgs(2),
		Long: "Say yourself what is remembered of a topic. It takes the place of all that held of it; that stays in the\n" +
			"history, and is not learned again from the messages that it came from.",
		RunE: func(c *cobra.Command, args []string) error {
			topic := memory.NewTopic{Name: args[0], Content: args[1]}
			if expires != "" {
				at, err := time.Parse(time.RFC3339, expires)
				if err != nil {
					return usagef("--expires %q: write a time such as 2030-12-31T18:00:00Z", expires)
				}
				if !at.After(time.Now()) {
					return usagef("--expires %s has passed: glovebox memory delete forgets a topic", expires)
				}
				topic.ExpiresAt = at
			}
			return a.changing(c, &w, func(store memory.Store, user memory.User, agent memory.AgentID) error {
				stored, err := store.PutTopic(c.Context(), user.ID, agent, memory.TopicRevision{}, topic, time.Now())
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(stored)
				}
				a.printf("remembered %s of %s\n", stored.ID, printable(stored.Name))
				return nil
			})
		},
	}
	w.flags(c)
	c.Flags().StringVar(&expires, "expires", "", "when it holds no more, such as 2030-12-31T18:00:00Z (default never)")
	return c
}

func (a *app) memoryDelete() *cobra.Command {
	var w whose
	c := &cobra.Command{
		Use: "delete TOPIC", Short: "Remove a topic with its history", Args: cobra.ExactArgs(1),
		Long: "Remove a topic with its history, for good. It is not learned again from the messages that it came from; those\n" +
			"stay in their conversations.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.changing(c, &w, func(store memory.Store, user memory.User, agent memory.AgentID) error {
				name, err := memory.TopicName(args[0])
				if err != nil {
					return usagef("%w", err)
				}
				deleted, err := store.DeleteTopic(c.Context(), user.ID, agent, name)
				if errors.Is(err, memory.ErrNotFound) {
					return noTopic(name)
				} else if err != nil {
					return err
				}
				clean, err := store.Scrub(c.Context())
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(struct {
						Deleted        int  `json:"deleted"`
						ResiduePending bool `json:"residue_pending"`
					}{deleted, !clean})
				}
				a.printf("removed %s, %d entries with its history\n", printable(name), deleted)
				a.printResidue(!clean)
				return nil
			})
		},
	}
	w.flags(c)
	return c
}

// printResidue says that a file still has what was removed, if it does.
func (a *app) printResidue(pending bool) {
	if pending {
		a.printf("another program reads a database, whose log still has what was removed: close it and run glovebox doctor --repair\n")
	}
}

func (a *app) memoryWipe() *cobra.Command {
	var (
		w   whose
		yes bool
	)
	c := &cobra.Command{
		Use: "wipe", Short: "Remove all that is remembered of a user", Args: cobra.NoArgs,
		Long: "Remove all that is remembered of a user, for good: topics with their history and the record of what was\n" +
			"learned. Conversations stay, and nothing is learned again from what was said in them so far. With --agent only\n" +
			"what is remembered with that agent goes.",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.changing(c, &w, func(store memory.Store, user memory.User, agent memory.AgentID) error {
				if !yes {
					if err := a.confirm(fmt.Sprintf("This removes what is remembered of user %s (%s) for good. Type the name to go on: ", user.Name, user.ID), user.Name); err != nil {
						return err
					}
				}
				wipe := store.WipeMemory
				if !agent.IsZero() {
					wipe = func(ctx context.Context, user memory.UserID) (memory.WipeCounts, error) {
						return store.WipeAgentMemory(ctx, user, agent)
					}
				}
				counts, err := wipe(c.Context(), user.ID)
				if err != nil {
					return err
				}
				clean, err := store.Scrub(c.Context())
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(struct {
						memory.WipeCounts
						ResiduePending bool `json:"residue_pending"`
					}{counts, !clean})
				}
				a.printf("removed %d topics, %d topics of one agent, %d extractions\n", counts.Topics, counts.AgentTopics, counts.Extractions)
				a.printResidue(!clean)
				return nil
			})
		},
	}
	w.flags(c)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func (a *app) memoryAudit() *cobra.Command {
	var w whose
	c := &cobra.Command{
		Use: "audit", Short: "List when something was learned, from which conversation, and how much", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c, &w, func(store memory.Store, user memory.User, agent memory.AgentID) error {
				extractions, err := store.Extractions(c.Context(), user.ID, memory.ExtractionQuery{Agent: agent})
				if err != nil {
					return err
				}
				agents, err := store.Agents(c.Context())
				if err != nil {
					return err
				}
				events := memory.Audit(extractions, agents)
				if a.asJSON {
					return a.printJSON(events)
				}
				for _, e := range events {
					gone := ""
					if e.SessionDeleted {
						gone = " (deleted)"
					}
					a.printf("%s  %s  session %s%s  %d facts, %d preferences, %d decisions, %d tasks, %d open items\n", e.CreatedAt.Local().Format("2006-01-02 15:04"),
						e.Agent, e.Session, gone, e.Facts, e.Preferences, e.Decisions, e.Tasks, e.OpenItems)
				}
				return nil
			})
		},
	}
	w.flags(c)
	return c
}

func (a *app) memoryExport() *cobra.Command {
	var user, output string
	c := &cobra.Command{
		Use: "export", Short: "Write what is remembered of a user as JSON", Args: cobra.NoArgs,
		Long: "Write what is remembered of a user as JSON: topics with their history and what was learned. The document does\n" +
			"not name the user; glovebox memory import reads it.",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withUser(c, user, func(store memory.Store, u memory.User) error {
				write := func(w io.Writer) error {
					return transfer.ExportMemory(c.Context(), store, u.ID, time.Now(), w)
				}
				if output == "" || output == "-" {
					return write(a.stdout)
				}
				if err := a.sparesDatabases(output); err != nil {
					return err
				}
				return writeFile(output, write)
			})
		},
	}
	c.Flags().StringVar(&user, "user", memory.DefaultUserName, "of whom it is remembered")
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default standard output)")
	return c
}

func (a *app) memoryImport() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use: "import FILE|-", Short: "Store what glovebox memory export wrote", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in := a.stdin
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			return a.changing(c, &whose{user: user}, func(store memory.Store, u memory.User, _ memory.AgentID) error {
				report, err := transfer.ImportMemory(c.Context(), store, u.ID, in)
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(report)
				}
				a.printf("added %s, skipped %s\n", counted(report.Added), counted(report.Skipped))
				return nil
			})
		},
	}
	c.Flags().StringVar(&user, "user", memory.DefaultUserName, "for whom it is stored")
	return c
}

func (a *app) memoryDream() *cobra.Command {
	var user, agent string
	c := &cobra.Command{
		Use: "dream", Short: "Merge what was said last into what is remembered, now", Args: cobra.NoArgs,
		Long: "Merge what was said last into what is remembered, now: glovebox serve does it when a conversation has rested for\n" +
			"[sessions] gap_secs. It asks the configured model.",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			h, err := a.openHost(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, h.Close()) }()
			u, err := userNamed(c, h.Store(), user)
			if err != nil {
				return err
			}
			report, err := h.Dream(c.Context(), u.ID, agent)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(report)
			}
			a.printDream(report)
			return nil
		},
	}
	c.Flags().StringVar(&user, "user", memory.DefaultUserName, "of whom it is remembered")
	c.Flags().StringVar(&agent, "agent", "", "with which agent (default the first one)")
	return c
}

func (a *app) printDream(r dream.Report) {
	a.printf("looked at %d messages and %d extractions: %d things remembered, %d superseded, %d not taken\n", r.Messages, r.Extractions, len(r.Topics), r.Retired, r.Dropped)
	for _, t := range r.Topics {
		a.printf("  %s: %s\n", printable(t.Name), strings.TrimSpace(indented(t.Content)))
	}
}

func (a *app) agent() *cobra.Command {
	return group("agent", "Look at agents", a.agentList())
}

func (a *app) agentList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the configured agents and how each remembers", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			store, err := a.reader(c)
			if err != nil {
				return err
			}
			defer store.Close()
			agents, err := host.AgentsOf(c.Context(), config, store)
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(agents)
			}
			for _, g := range agents {
				a.printf("%s  %-13s  %s\n", g.ID, g.MemorySystem, g.Name)
			}
			return nil
		},
	}
}
