package main

import "github.com/spf13/cobra"

func (a *app) user() *cobra.Command {
	return group("user", "Move what belongs to a user", a.userExport(), a.userImport())
}
