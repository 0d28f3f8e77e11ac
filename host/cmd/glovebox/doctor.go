package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func (a *app) doctor() *cobra.Command {
	var repair bool
	c := &cobra.Command{
		Use: "doctor", Short: "Examine the databases, and mend them", Args: cobra.NoArgs,
		Long: "Examine both databases and say what is wrong and what to do about it; the exit status is 1 if anything is. It\n" +
			"works beside a running glovebox. With --repair, which needs the databases for itself, it mends what can be\n" +
			"mended without losing anything that was said, and finishes wipes; what it prints is left then.",
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := a.databasePath()
			if err != nil {
				return err
			}
			examine := a.examine
			if repair {
				examine = a.repair
			}
			found, err := examine(c, path)
			if err != nil {
				return err
			}
			if a.asJSON {
				if err := a.printJSON(append([]sqlite.Finding{}, found...)); err != nil {
					return err
				}
			} else if len(found) == 0 {
				a.printf("all is well\n")
			}
			for _, f := range found {
				if a.asJSON {
					break
				}
				a.printf("%s: %s\n    %s\n", printable(f.Where), printable(f.What), f.Advice)
			}
			if len(found) > 0 {
				return errReported
			}
			return nil
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "mend what can be mended")
	return c
}

func (a *app) examine(c *cobra.Command, path string) ([]sqlite.Finding, error) {
	store, err := sqlite.Open(c.Context(), path, sqlite.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	found, err := store.Check(c.Context())
	if err != nil {
		return nil, err
	}
	more, err := examineLedger(c, path)
	return append(found, more...), err
}

func (a *app) repair(c *cobra.Command, path string) ([]sqlite.Finding, error) {
	d, err := a.openBoth(c)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := host.ResumeWipes(c.Context(), d.store, d.ledger, a.logger()); err != nil {
		return nil, err
	}
	left, err := d.store.Repair(c.Context())
	if err != nil {
		return nil, err
	}
	more, err := examineLedger(c, path)
	return append(left, more...), errors.Join(err, d.close())
}

// examineLedger looks at hands.db, if there is one.
func examineLedger(c *cobra.Command, path string) ([]sqlite.Finding, error) {
	ledger := ledgerBeside(path)
	if _, err := os.Stat(ledger); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	wrong, err := capability.CheckLedger(c.Context(), ledger)
	if err != nil {
		if c.Context().Err() != nil {
			return nil, err
		}
		// What was found in the other database is not to be lost over it.
		wrong = append(wrong, err.Error())
	}
	var found []sqlite.Finding
	for _, what := range wrong {
		found = append(found, sqlite.Finding{What: what, Where: ledger, Advice: "move it away with its -wal and -shm, and put a backup in its place; without one hands lose what they keep"})
	}
	return found, nil
}
