package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/plugins"
)

// stamp is the version that whoever built the program gave it, by
// -ldflags "-X main.stamp=v1.2.3"; "" leaves it to what the toolchain knows.
var stamp string

// buildVersion tells which program this is.
type buildVersion struct {
	Version string `json:"version"`
	// Revision is the commit that it was built from, and Modified says that the
	// checkout had changes beside it; "" and false where the toolchain did not know.
	Revision string   `json:"revision,omitempty"`
	Modified bool     `json:"modified"`
	Go       string   `json:"go"`
	ABI      int      `json:"abi"`
	Bundled  []string `json:"bundled"`
}

// buildOf puts together what a build was stamped with and what the toolchain noted;
// info is nil where it noted nothing.
func buildOf(stamp string, info *debug.BuildInfo) buildVersion {
	b := buildVersion{Version: stamp, Go: runtime.Version(), ABI: abi.Version, Bundled: plugins.Names()}
	if info != nil {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, "unknown")
	return b
}

func thisBuild() buildVersion {
	info, _ := debug.ReadBuildInfo()
	return buildOf(stamp, info)
}

// programVersion is what the build calls itself.
func programVersion() string { return thisBuild().Version }

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if a.asJSON {
				return a.printJSON(b)
			}
			a.printf("glovebox %s (%s, ABI %d)\n", b.Version, b.Go, b.ABI)
			if b.Revision != "" {
				a.printf("revision %s%s\n", b.Revision, map[bool]string{true: ", with changes beside it"}[b.Modified])
			}
			return nil
		},
	}
}
