package assembly

import "math"

// Pressure tells how near a session is to its budget.
type Pressure struct {
	// Percent is what a prompt that left nothing out would cost, of the budget,
	// rounded up: it is over 100 exactly where something has to be left out, or
	// the budget is nothing and it is 100.
	Percent int   `json:"percent"`
	Level   Level `json:"level"`
	// Advice says what to do about it; "" if nothing.
	Advice string `json:"advice,omitempty"`
}

// Level is a range of percents.
type Level string

// The levels: under 50 %; from 50 to under 70; from 70 to 85; over 85. What
// counts is the share itself, before it is rounded.
const (
	LevelLow      Level = "low"
	LevelModerate Level = "moderate"
	LevelHigh     Level = "high"
	LevelCritical Level = "critical"
)

// advice is what a person can do at a level.
var advice = map[Level]string{
	LevelModerate: "more than half of the budget is used; nothing needs to be done yet",
	LevelHigh: "older messages are summarised soon where [compaction] threshold is set, and left out of prompts where it is not: " +
		"set it, or run glovebox session compact",
	LevelCritical: "there is no room left, or hardly any, and what has none is left out of prompts: run glovebox session compact, " +
		"set [compaction] threshold, or give the model a larger [model] context_window",
}

// pressureOf tells what demand tokens mean to a budget. A budget of nothing, or
// of less, leaves no room whatever the demand.
func pressureOf(demand, budget int) Pressure {
	if budget <= 0 {
		return Pressure{Percent: 100, Level: LevelCritical, Advice: advice[LevelCritical]}
	}
	// Bounded so that a hundred times it is an int64 still.
	d, b := min(max(int64(demand), 0), math.MaxInt64/128), min(int64(budget), math.MaxInt64/128)
	level := LevelLow
	switch {
	case 100*d > 85*b:
		level = LevelCritical
	case 100*d >= 70*b:
		level = LevelHigh
	case 100*d >= 50*b:
		level = LevelModerate
	}
	percent := 100 * d / b
	if 100*d%b > 0 {
		percent++
	}
	return Pressure{Percent: int(min(percent, math.MaxInt32)), Level: level, Advice: advice[level]}
}
