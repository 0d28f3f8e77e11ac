package main

import (
	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	check := &cobra.Command{
		Use: "check", Short: "Read the configuration and say what is wrong with it", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			notes := config.Notes()
			if a.asJSON {
				return a.printJSON(struct {
					OK    bool     `json:"ok"`
					Notes []string `json:"notes"`
				}{true, append([]string{}, notes...)})
			}
			for _, note := range notes {
				a.printf("note: %s\n", note)
			}
			a.printf("the configuration is fine: %d hands, %d context sources, %d users\n",
				len(config.Hands), len(config.Compaction.ContextSources), max(1, len(config.Users)))
			return nil
		},
	}
	return group("config", "Work with the configuration", check)
}
