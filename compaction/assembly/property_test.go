package assembly_test

import (
	"testing"

	"pgregory.net/rapid"
)

// A2, A3: whatever the history, wherever it was compacted, whatever is live and
// however small the budget, no rule is broken, nothing that has to be in is
// missing, and the report tells the truth.
func TestEveryPromptKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		// Left alone, rapid chooses short ones.
		length := rapid.SampledFrom([]int{0, 40, 80, 160, 320, 640}).Draw(r, "length")
		checkAssemble(r, rapid.SliceOfN(rapid.Byte(), length, length).Draw(r, "choices"))
	})
}
