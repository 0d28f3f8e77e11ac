package assembly

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The borders of the levels: 50 and 70 begin one, 85 ends one.
func TestPressure(t *testing.T) {
	for _, c := range []struct {
		demand, budget, percent int
		level                   Level
		advice                  string
	}{
		{0, 1000, 0, LevelLow, ""},
		{1, 1000, 1, LevelLow, ""},
		{499, 1000, 50, LevelLow, ""},
		{500, 1000, 50, LevelModerate, "nothing needs to be done"},
		{699, 1000, 70, LevelModerate, "nothing needs to be done"},
		{700, 1000, 70, LevelHigh, "glovebox session compact"},
		{850, 1000, 85, LevelHigh, "threshold"},
		{851, 1000, 86, LevelCritical, "context_window"},
		{1000, 1000, 100, LevelCritical, "glovebox session compact"},
		{1001, 1000, 101, LevelCritical, "glovebox session compact"},
		{25_000, 1000, 2500, LevelCritical, "threshold"},
		{-5, 1000, 0, LevelLow, ""},
		{0, 0, 100, LevelCritical, "context_window"},
		{10, 0, 100, LevelCritical, "context_window"},
		{10, -7, 100, LevelCritical, "context_window"},
		{math.MaxInt, 1, math.MaxInt32, LevelCritical, "context_window"},
		{math.MaxInt, math.MaxInt, 100, LevelCritical, "context_window"},
		{1, math.MaxInt, 1, LevelLow, ""},
	} {
		got := pressureOf(c.demand, c.budget)
		if got.Percent != c.percent || got.Level != c.level || !strings.Contains(got.Advice, c.advice) || (got.Advice == "") != (c.advice == "") {
			t.Errorf("%d of %d: %+v, want %d %% and %s", c.demand, c.budget, got, c.percent, c.level)
		}
	}
}

// More is never less: neither the percent nor the level falls as the demand
// grows, and over 100 % is over the budget.
func TestPressureGrowsWithTheDemand(t *testing.T) {
	order := map[Level]int{LevelLow: 1, LevelModerate: 2, LevelHigh: 3, LevelCritical: 4}
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.IntRange(1, 1_000_000).Draw(t, "budget")
		less := rapid.IntRange(0, 2*budget).Draw(t, "less")
		more := less + rapid.IntRange(0, budget).Draw(t, "more")
		a, b := pressureOf(less, budget), pressureOf(more, budget)
		if order[a.Level] == 0 || a.Percent > b.Percent || order[a.Level] > order[b.Level] || (b.Percent > 100) != (more > budget) {
			t.Fatalf("%d of %d: %+v; %d: %+v", less, budget, a, more, b)
		}
	})
}
