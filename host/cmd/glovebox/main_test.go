package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"glovebox": main})
}

// The scripts drive the binary as a person would; several of their lines are
// hostile.
func TestScripts(t *testing.T) {
	guest, err := build.Hand(t.Context(), filepath.Join("..", "..", "..", "examples", "hand-go"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	injector, err := build.Hand(t.Context(), filepath.Join("..", "..", "testdata", "injector"), build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	demo, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "demo"))
	if err != nil {
		t.Fatal(err)
	}
	// All scripts share one compilation cache, as the commands of one user do.
	cache := t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GLOVEBOX_HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_CACHE_HOME", cache)
			env.Setenv("DEMO", demo)
			env.Setenv("TZ", "UTC")
			for name, module := range map[string][]byte{"hand.wasm": guest, "injector.wasm": injector} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), module, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
