package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func (a *app) user() *cobra.Command {
	return group("user", "Look at users, move what is theirs, and forget them", a.userList(), a.userExport(), a.userImport(), a.userWipe())
}

func (a *app) userList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the users, the default one first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := a.reader(c)
			if err != nil {
				return err
			}
			defer store.Close()
			users, err := store.Users(c.Context())
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(users)
			}
			for _, u := range users {
				mark := ""
				if u.IsDefault {
					mark = "  default"
				}
				a.printf("%s  %s  %s%s\n", u.ID, u.CreatedAt.Local().Format("2006-01-02 15:04"), u.Name, mark)
			}
			return nil
		},
	}
}

// databases are both files of a data directory, open for writing, without a host.
type databases struct {
	store  *sqlite.Store
	ledger *capability.Ledger
}

func (d databases) close() error {
	var errs []error
	if d.ledger != nil {
		errs = append(errs, d.ledger.Close())
	}
	return errors.Join(append(errs, d.store.Close())...)
}

// openBoth opens both databases. It is refused while another process has them.
func (a *app) openBoth(c *cobra.Command) (d databases, err error) {
	path, err := a.databasePath()
	if err != nil {
		return d, err
	}
	if d.store, err = sqlite.Open(c.Context(), path, sqlite.Options{}); err != nil {
		return d, err
	}
	if d.ledger, err = capability.OpenLedger(c.Context(), ledgerBeside(path), nil); err != nil {
		return d, errors.Join(err, d.store.Close())
	}
	return d, nil
}

// databasePath is where the session database is, which must exist.
func (a *app) databasePath() (string, error) {
	config, err := a.config()
	if err != nil {
		return "", err
	}
	return existingDatabase(config)
}

func existingDatabase(config host.Config) (string, error) {
	path, err := config.DatabasePath()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("no database at %s: begin with glovebox chat, or name the data directory with --data", path)
	}
	return path, nil
}

func ledgerBeside(path string) string { return filepath.Join(filepath.Dir(path), "hands.db") }

func (a *app) userWipe() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "wipe USER", Short: "Remove everything of a user, for good", Args: cobra.ExactArgs(1),
		Long: "Remove everything of a user, by name or id: conversations, summaries, memory, what hands keep for them and the\n" +
			"record of their runs, down to the last byte in both databases. Backups keep what they have. The user goes too,\n" +
			"but for the default one; one of the configuration comes back empty.",
		RunE: func(c *cobra.Command, args []string) error {
			d, err := a.openBoth(c)
			if err != nil {
				return err
			}
			defer d.close()
			user, err := wipedUser(c, d.store, args[0])
			if err != nil {
				return err
			}
			if !yes {
				if err := a.confirm(fmt.Sprintf("This removes everything of user %s (%s) for good. Type the name to go on: ", user.Name, user.ID), user.Name); err != nil {
					return err
				}
			}
			report, err := host.WipeUser(c.Context(), d.store, d.ledger, user.ID, time.Now())
			if err != nil {
				return err
			}
			if err := d.close(); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(report)
			}
			a.printf("removed %d sessions, %d messages, %d summaries, %d files, %d compactions, %d topics, %d extractions; of hands %d values, %d runs, %d decisions\n",
				report.Sessions, report.Messages, report.Summaries, report.Files, report.Compactions, report.Topics+report.AgentTopics, report.Extractions,
				report.Hands.Values, report.Hands.Runs, report.Hands.Decisions)
			if report.ResiduePending {
				a.printf("another program reads a database, whose log still has what was removed: close it and run glovebox doctor --repair\n")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// wipedUser finds a user by name or id. An id that is not known has nothing, which
// a second wipe may find.
func wipedUser(c *cobra.Command, store memory.Store, name string) (memory.User, error) {
	id, err := memory.ParseID[memory.UserID](name)
	if err != nil {
		return userNamed(c, store, name)
	}
	users, err := store.Users(c.Context())
	if err != nil {
		return memory.User{}, err
	}
	for _, u := range users {
		if u.ID == id {
			return u, nil
		}
	}
	return memory.User{ID: id, Name: name}, nil
}

// confirm asks a person at a terminal to type a word.
func (a *app) confirm(question, word string) error {
	in, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usagef("nobody can be asked here: say --yes")
	}
	fmt.Fprint(a.stderr, question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(line) != word || err != nil {
		return errors.New("not confirmed, nothing was removed")
	}
	return nil
}
