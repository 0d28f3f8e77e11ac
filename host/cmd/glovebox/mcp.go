package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host/mcp"
	"github.com/gloveboxhq/glovebox/memory"
)

// maxMCPLine bounds one message on standard input.
const maxMCPLine = 1 << 20

func (a *app) mcp() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "mcp", Short: "Answer a client of the Model Context Protocol on standard input and output", Args: cobra.NoArgs,
		Long: "Answer a client of the Model Context Protocol on standard input and output, until it has gone: the hands and the\n" +
			"memory of one user, as tools. A client starts this itself; docs/mcp.md says how it is told to. While glovebox serve\n" +
			"has the data directory, clients use its /mcp instead.",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			config, err := a.config()
			if err != nil {
				return err
			}
			h, err := open(c.Context(), config)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, h.Close()) }()
			user, err := h.User(name)
			if err != nil {
				return usagef("--user: %w", err)
			}
			if a.terminal {
				fmt.Fprintln(a.stderr, "glovebox: waiting for what a client of the Model Context Protocol says on standard input; Ctrl-C ends this")
			}
			return mcp.Serve(c.Context(), mcp.Config{
				Host: h, User: func(context.Context) memory.UserID { return user.ID }, Version: programVersion(), Log: config.Log,
			}, mcp.Lines(a.stdin, a.stdout, maxMCPLine))
		},
	}
	c.Flags().StringVar(&name, "user", "", "whose hands and memory (default: the default user's)")
	return c
}
