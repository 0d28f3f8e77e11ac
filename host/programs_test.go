package host_test

import (
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// A program is not offered what its calls are refused for: it is in no session, and
// no result has room for 8,000 tokens.
func TestProgramToolsOfferNothingThatIsRefused(t *testing.T) {
	h := open(t, host.Config{})
	tools, err := h.ProgramTools(t.Context(), memory.UserID{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, tool := range tools {
		switch parameters := string(tool.Parameters); tool.Name {
		case compaction.ToolSearch:
			seen++
			if strings.Contains(parameters, `"session"`) || !strings.Contains(parameters, `"words"`) {
				t.Errorf("search takes %s", parameters)
			}
		case compaction.ToolExpand:
			seen++
			if !strings.Contains(parameters, `"maximum":4000`) {
				t.Errorf("expand takes %s", parameters)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of the tools are there", seen)
	}
}
