package sandbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

// Equal queries in a world without chance use equal fuel, and the limit is
// exact to the unit.
func TestFuelIsDeterministicAndExact(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	at := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	for _, profile := range []build.Profile{build.Reactor, build.Command} {
		t.Run(string(profile), func(t *testing.T) {
			use := func(module *sandbox.Module, seed uint64) (int64, error) {
				result, err := module.Query(t.Context(), abi.Query{Prompt: "say hello", Now: at}, sandbox.Ports{Fixed: &sandbox.Fixed{Now: at, Seed: seed}})
				return result.Fuel, err
			}
			free := load(t, engine, profile, abi.Limits{})
			used, err := use(free, 1)
			if err != nil || used < 10_000 {
				t.Fatalf("%d units, %v", used, err)
			}
			for range 3 {
				if again, err := use(free, 1); err != nil || again != used {
					t.Errorf("%d units, then %d, %v", used, again, err)
				}
			}
			if got, err := use(load(t, engine, profile, abi.Limits{Fuel: used}), 1); err != nil || got != used {
				t.Errorf("with exactly enough: %d units, %v", got, err)
			}
			if got, err := use(load(t, engine, profile, abi.Limits{Fuel: used - 1}), 1); !errors.Is(err, abi.KindOutOfFuel) {
				t.Errorf("with one unit less: %d units, %v", got, err)
			}
		})
	}
}

func TestOutOfFuelNamesTheLimit(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{Fuel: 5_000_000})
	result, err := module.Query(t.Context(), abi.Query{Prompt: "loop"}, sandbox.Ports{})
	if !errors.Is(err, abi.KindOutOfFuel) || !strings.Contains(err.Error(), `hand "guest": ran out of fuel: the limit is 5000000 units`) {
		t.Errorf("got %v", err)
	}
	if result.Fuel < 5_000_000 || result.Fuel > 5_100_000 {
		t.Errorf("%d units were used", result.Fuel)
	}
}

// A clock that stands still would keep a guest that sleeps for ever.
func TestFixedTimePassesWhileTheGuestSleeps(t *testing.T) {
	module := load(t, newEngine(t, sandbox.Config{}), build.Reactor, abi.Limits{Timeout: 10 * time.Second})
	began := time.Now()
	_, err := module.Query(t.Context(), abi.Query{Prompt: "nap 1h"}, sandbox.Ports{Fixed: &sandbox.Fixed{Now: time.Unix(1, 0)}})
	if err != nil || time.Since(began) > 8*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
