package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// misused makes a query that the library refuses a usage error.
func misused(err error) error {
	if errors.Is(err, memory.ErrInvalid) {
		return &usageError{err}
	}
	return err
}

func (a *app) sessionSearch() *cobra.Command {
	var (
		user, session, order, from, to string
		in                             []string
		expression                     bool
		limit                          int
	)
	c := &cobra.Command{
		Use: "search WORDS...", Short: "Find what was said, by words or by an expression", Args: cobra.MinimumNArgs(1),
		Long: "Find what was said in all conversations of the user, also what the model is no longer shown. Words are looked up\n" +
			"in the index, stemmed; with --regexp they are one regular expression (RE2), and texts are read one after the other,\n" +
			"the latest first, within bounds: a search that meets one says so. Times are RFC 3339 or dates, in UTC.",
		Example: "  glovebox session search pump hall three\n  glovebox session search --regexp '(?i)invoice \\d+' --from 2026-03-01 --in messages,files",
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return usagef("--limit %d: give a number from 1 to %d", limit, compaction.MaxHits)
			}
			q := compaction.GrepQuery{Words: strings.Join(args, " "), Order: compaction.Order(order), Limit: limit}
			if expression {
				q.Words, q.Expression = "", q.Words
			}
			var err error
			if q.In, err = kinds(in); err != nil {
				return err
			}
			if q.From, err = timeFlag("from", from); err != nil {
				return err
			}
			if q.To, err = timeFlag("to", to); err != nil {
				return err
			}
			return a.withUser(c, user, func(store memory.Store, u memory.User) error {
				if session != "" {
					s, err := find(c, store, u.ID, session)
					if err != nil {
						return err
					}
					q.Session = s.ID
				}
				found, err := compaction.NewRetrieval(store, nil, compaction.ScanLimits{}).Grep(c.Context(), u.ID, q)
				if err != nil {
					return misused(err)
				}
				if a.asJSON {
					return a.printJSON(found)
				}
				a.printFound(found)
				return nil
			})
		},
	}
	userFlag(c, &user)
	flags := c.Flags()
	flags.StringVar(&session, "session", "", "one conversation alone: an id, or last")
	flags.BoolVar(&expression, "regexp", false, "the words are a regular expression")
	flags.StringVar(&order, "order", "", "relevance, recency or hybrid (default relevance; an expression knows recency alone)")
	flags.StringSliceVar(&in, "in", nil, "messages, summaries, files (default messages,summaries)")
	flags.StringVar(&from, "from", "", "not before this time")
	flags.StringVar(&to, "to", "", "before this time")
	flags.IntVar(&limit, "limit", compaction.DefaultHits, fmt.Sprintf("most places, up to %d", compaction.MaxHits))
	return c
}

// kinds reads the values of --in, in the plural or not.
func kinds(names []string) ([]memory.TextKind, error) {
	var list []memory.TextKind
	for _, name := range names {
		switch strings.TrimSuffix(strings.TrimSpace(name), "s") {
		case "message":
			list = append(list, memory.TextMessage)
		case "summarie", "summary":
			list = append(list, memory.TextSummary)
		case "file":
			list = append(list, memory.TextFile)
		default:
			return nil, usagef("--in %s: give messages, summaries or files", name)
		}
	}
	return list, nil
}

func timeFlag(name, value string) (time.Time, error) {
	t, err := compaction.ParseTime(value)
	if err != nil {
		return t, usagef("--%s: %w", name, err)
	}
	return t, nil
}

func (a *app) printFound(found compaction.Found) {
	for _, h := range found.Hits {
		a.printf("%s %s  %s", h.Kind, h.ID, when(h.At, h.Until))
		if h.Role != "" {
			a.printf("  %s", speaker(memory.Message{Role: h.Role, Source: h.Source}))
		}
		a.printf("  session %s", h.Session)
		if h.Seq > 0 {
			a.printf(" #%d", h.Seq)
		}
		if h.Name != "" {
			a.printf("  %s", printable(oneLine(h.Name)))
		}
		if h.Beside {
			a.printf("  (beside a message with the words)")
		}
		a.printf("\n%s\n\n", indented(memory.Shown(h.Excerpt)))
	}
	if len(found.Hits) == 0 {
		a.printf("nothing was found\n")
	}
	if found.Stopped != "" {
		a.printf("the search ended early: %s", found.Stopped)
		if !found.Since.IsZero() {
			a.printf("; go on with --to %s", found.Since.UTC().Add(time.Microsecond).Format(time.RFC3339Nano))
		}
		a.printf("\n")
	}
}

// when is a time or a stretch of it, as the lists print it.
func when(at, until time.Time) string {
	const layout = "2006-01-02 15:04"
	text := at.Local().Format(layout)
	if last := until.Local().Format(layout); !until.IsZero() && last != text {
		text += " to " + last
	}
	return text
}

func (a *app) sessionExpand() *cobra.Command {
	var (
		user, cursor string
		size         int
		messages     bool
	)
	c := &cobra.Command{
		Use: "expand ID", Short: "Show what a summary stands for, or all of a message or file", Args: cobra.ExactArgs(1),
		Long: "Show, word for word, what a summary was made from, a message, or a file that was too large to be shown. What does\n" +
			"not fit --tokens comes in parts: the last line names the --cursor to go on with.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withUser(c, user, func(store memory.Store, u memory.User) error {
				r := compaction.NewRetrieval(store, nil, compaction.ScanLimits{})
				e, err := r.Expand(c.Context(), u.ID, compaction.ExpandQuery{ID: args[0], Messages: messages, Tokens: size, Cursor: cursor})
				if errors.Is(err, memory.ErrNotFound) {
					return fmt.Errorf("no summary, message or file %s of this user: glovebox session search and show print ids", args[0])
				}
				if err != nil {
					return misused(err)
				}
				if a.asJSON {
					return a.printJSON(e)
				}
				for _, item := range e.Items {
					a.printExpanded(item)
				}
				if e.Next != "" {
					a.printf("there is more: go on with --cursor %s\n", e.Next)
				}
				return nil
			})
		},
	}
	userFlag(c, &user)
	flags := c.Flags()
	flags.IntVar(&size, "tokens", compaction.DefaultExpandTokens, fmt.Sprintf("most tokens at once, from %d to %d", compaction.MinExpandTokens, compaction.MaxExpandTokens))
	flags.StringVar(&cursor, "cursor", "", "go on where the part before ended")
	flags.BoolVar(&messages, "messages", false, "of a summary of summaries, show the messages below")
	return c
}

func (a *app) printExpanded(item compaction.Expanded) {
	if item.Seq > 0 {
		a.printf("#%d ", item.Seq)
	}
	a.printf("%s %s  %s", item.Kind, item.ID, when(item.At, item.Until))
	if item.Role != "" {
		a.printf("  %s", speaker(memory.Message{Role: item.Role, Source: item.Source}))
	}
	a.printf(" (%d tokens)", item.Tokens)
	if item.Piece {
		a.printf(", a piece")
	}
	a.printf("\n%s\n\n", indented(memory.Shown(item.Content)))
}

func (a *app) sessionDelete() *cobra.Command {
	var (
		user string
		sure bool
	)
	c := &cobra.Command{
		Use: "delete SESSION", Short: "Delete a conversation for good", Args: cobra.ExactArgs(1),
		Long: "Delete a conversation for good: its messages, summaries, files and records, and their last trace in the files of\n" +
			"the database. Without --yes, it only says what would go.",
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "last" {
				return usagef("last: name the conversation by its id")
			}
			if !sure {
				return a.withSession(c, user, args[0], func(_ memory.Store, _ memory.User, s memory.Session) error {
					return usagef("conversation %s (%d messages, %q) would be deleted for good: say --yes", s.ID, s.Messages, oneLine(s.Title))
				})
			}
			store, err := a.writable(c)
			if err != nil {
				return err
			}
			defer store.Close()
			u, err := userNamed(c, store, user)
			if err != nil {
				return err
			}
			session, err := find(c, store, u.ID, args[0])
			if err != nil {
				return err
			}
			if err := store.DeleteSession(c.Context(), u.ID, session.ID); err != nil {
				return err
			}
			done, err := store.Scrub(c.Context())
			if err != nil {
				return fmt.Errorf("conversation %s is deleted, but traces may be in the files: %w", session.ID, err)
			}
			if a.asJSON {
				return a.printJSON(struct {
					Session  memory.SessionID `json:"session"`
					Messages int              `json:"messages"`
					Residue  bool             `json:"residue_pending"`
				}{session.ID, session.Messages, !done})
			}
			a.printf("deleted conversation %s with %d messages\n", session.ID, session.Messages)
			if !done {
				a.printf("traces are in the files until whoever reads the database has ended and something is deleted again\n")
			}
			return nil
		},
	}
	userFlag(c, &user)
	c.Flags().BoolVar(&sure, "yes", false, "delete it")
	return c
}

// writable opens the session database for a change, if nobody else has it open
// for one.
func (a *app) writable(c *cobra.Command) (memory.Store, error) {
	// A change never begins with a new database.
	path, err := a.databasePath()
	if err != nil {
		return nil, err
	}
	return sqlite.Open(c.Context(), path, sqlite.Options{})
}
