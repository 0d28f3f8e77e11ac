package llm_test

import (
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/llmtest"
)

// The models that need nobody keep the contract, and give out more than one piece.
func TestOfflineModelsKeepTheContract(t *testing.T) {
	r := llmtest.Prompt()
	r.MaxOutputTokens = 0
	for name, m := range map[string]llm.Streamer{"extractive": llm.NewExtractive(), "echo": llm.Echo{}} {
		t.Run(name, func(t *testing.T) {
			llmtest.TestModel(t, m, r)
			pieces := 0
			if _, err := m.Stream(t.Context(), r, func(string) { pieces++ }); err != nil || pieces < 2 {
				t.Errorf("%d pieces, %v", pieces, err)
			}
		})
	}
}
