package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func (a *app) backup() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Write a copy of the session database, beside whoever uses it", Args: cobra.ExactArgs(1),
		Long: "Write a copy of the session database as it is at one moment, also while glovebox runs. FILE must not exist. To go\n" +
			"back to it, stop glovebox and put it in the place of glovebox.db, without the -wal and -shm beside that.",
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" {
				return usagef("the name of the file is empty")
			}
			path, err := a.databasePath()
			if err != nil {
				return err
			}
			store, err := sqlite.Open(c.Context(), path, sqlite.Options{ReadOnly: true})
			if err != nil {
				return err
			}
			defer store.Close()
			if err := store.Backup(c.Context(), args[0]); errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists already: give another name", args[0])
			} else if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(struct {
					File string `json:"file"`
				}{args[0]})
			}
			a.printf("backed up to %s\n", args[0])
			return nil
		},
	}
}
