package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host"
)

// tryOpen loads everything that a configuration names, with a data directory
// that is thrown away, and looks at the directories that it grants.
// What it returns is worth a note.
func tryOpen(ctx context.Context, config host.Config) (notes []string, err error) {
	if config.Agreed, err = agreedBeside(ctx, config); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "glovebox-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	config.Data, config.Store.Path = temp, ""
	h, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	for _, k := range h.Hands() {
		if k.Absent {
			return nil, fmt.Errorf("hands.%s: %s", k.Name, k.Disabled)
		}
		if k.Disabled != "" {
			notes = append(notes, fmt.Sprintf("hand %s is disabled: %s", k.Name, printable(k.Disabled)))
		}
		for root, dir := range k.Files {
			for _, user := range k.Users {
				own := strings.ReplaceAll(dir, "{user}", user)
				if info, err := os.Stat(own); err != nil || !info.IsDir() {
					return nil, fmt.Errorf("hands.%s.grant.files.%s: %s is not a directory that can be read", k.Name, root, own)
				}
			}
		}
	}
	return notes, h.Close()
}

// reloadable is the part of a configuration that needs no restart.
type reloadable struct {
	Hands          []string `json:"hands"`
	ContextSources int      `json:"context_sources"`
	TrustedKeys    []string `json:"trusted_keys"`
}

func (a *app) configCommand() *cobra.Command {
	check := &cobra.Command{
		Use: "check", Short: "Read the configuration and say what is wrong with it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			disabled, err := tryOpen(c.Context(), config)
			if err != nil {
				return err
			}
			notes := append(config.Notes(), disabled...)
			hands := slices.Sorted(maps.Keys(config.Hands))
			if a.asJSON {
				return a.printJSON(struct {
					OK    bool     `json:"ok"`
					Notes []string `json:"notes"`
					// Reload is what a server that runs takes over on SIGHUP.
					Reload reloadable `json:"reload"`
				}{true, append([]string{}, notes...), reloadable{append([]string{}, hands...), len(config.Compaction.ContextSources), append([]string{}, slices.Sorted(maps.Keys(config.Trust.Keys))...)}})
			}
			for _, note := range notes {
				a.printf("note: %s\n", note)
			}
			a.printf("the configuration is fine: %d hands, %d context sources, %d users\n",
				len(hands), len(config.Compaction.ContextSources), max(1, len(config.Users)))
			a.printf("a server that runs takes over on SIGHUP: the hands (%s) with their grants and prompts, the trusted keys (%s), and %d context sources; the rest at its next start\n",
				cmp.Or(strings.Join(hands, ", "), "none"), cmp.Or(strings.Join(slices.Sorted(maps.Keys(config.Trust.Keys)), ", "), "none"), len(config.Compaction.ContextSources))
			return nil
		},
	}
	return group("config", "Work with the configuration", check)
}
