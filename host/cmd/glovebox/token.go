package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

func (a *app) token() *cobra.Command {
	return group("token", "Say who may call glovebox serve", a.tokenCreate(), a.tokenList(), a.tokenRevoke())
}

// tokens opens the tokens of the data directory, which need not exist.
func (a *app) tokens() (*control.Tokens, error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	path, err := config.DatabasePath()
	if err != nil {
		return nil, err
	}
	return control.OpenTokens(tokensBeside(path))
}

func (a *app) tokenCreate() *cobra.Command {
	var user, scope string
	c := &cobra.Command{
		Use: "create", Short: "Make a token and print it, this once", Args: cobra.NoArgs,
		Long: "Make a token and print it, this once: only its hash is kept. With the scope user it is good for the\n" +
			"conversations and the memory of that user, with admin for everything. A server that runs knows it at once.",
		RunE: func(c *cobra.Command, _ []string) error {
			if scope != "admin" && scope != "user" {
				return usagef("--scope %q: say admin or user", scope)
			}
			config, err := a.config()
			if err != nil {
				return err
			}
			path, err := config.DatabasePath()
			if err != nil {
				return err
			}
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				if err := a.bindUsers(c, config); err != nil {
					return err
				}
			}
			return a.withUser(c, user, func(_ memory.Store, u memory.User) error {
				tokens, err := a.tokens()
				if err != nil {
					return err
				}
				granted := control.ScopeAdmin
				if scope == "user" {
					granted = control.UserScope(u.ID)
				}
				secret, token, err := tokens.Create(u.ID, granted, time.Now())
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(struct {
						Secret string `json:"secret"`
						control.Token
					}{secret, token})
				}
				a.printf("%s\n", secret)
				return nil
			})
		},
	}
	c.Flags().StringVar(&user, "user", memory.DefaultUserName, "whose token it is")
	c.Flags().StringVar(&scope, "scope", "user", "what it is good for: user, or admin for everything")
	return c
}

func (a *app) tokenList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens, the oldest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			tokens, err := a.tokens()
			if err != nil {
				return err
			}
			all, err := tokens.List()
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(all)
			}
			for _, t := range all {
				a.printf("%s  %s  of %s  %s\n", t.ID, t.CreatedAt.Local().Format("2006-01-02 15:04"), t.User, t.Scope)
			}
			return nil
		},
	}
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Make a token worthless", Args: cobra.ExactArgs(1),
		Long: "Make a token worthless, also to a server that runs. When the last one is gone nobody may call it.",
		RunE: func(c *cobra.Command, args []string) error {
			tokens, err := a.tokens()
			if err != nil {
				return err
			}
			if err := tokens.Revoke(args[0]); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(struct {
					Revoked string `json:"revoked"`
				}{args[0]})
			}
			a.printf("revoked %s\n", args[0])
			return nil
		},
	}
}
