package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/plugins"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string   `json:"version"`
				Go      string   `json:"go"`
				ABI     int      `json:"abi"`
				Bundled []string `json:"bundled"`
			}{programVersion(), runtime.Version(), abi.Version, plugins.Names()}
			if a.asJSON {
				return a.printJSON(v)
			}
			a.printf("glovebox %s (%s, ABI %d)\n", v.Version, v.Go, v.ABI)
			return nil
		},
	}
}

// programVersion is what the build was stamped with.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
