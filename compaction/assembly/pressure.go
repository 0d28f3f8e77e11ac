package assembly

// Pressure tells how near a session is to its budget.
type Pressure struct {
	// Percent is what a prompt that left nothing out would cost, of the budget;
	// it may be over 100.
	Percent int   `json:"percent"`
	Level   Level `json:"level"`
	// Advice says what to do about it; "" if nothing.
	Advice string `json:"advice,omitempty"`
}

// Level is a range of percents.
type Level string

// The levels: under 50 %, to 70, to 85, and over.
const (
	LevelLow      Level = "low"
	LevelModerate Level = "moderate"
	LevelHigh     Level = "high"
	LevelCritical Level = "critical"
)

func pressureOf(demand, budget int) Pressure { return Pressure{} }
