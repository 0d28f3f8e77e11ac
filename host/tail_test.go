package host_test

import (
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// One message that is too large for a prompt is no reason to forget what was said
// before it.
func TestWhatStandsBeforeALargeMessageIsRead(t *testing.T) {
	server := openaitest.NewServer(t, openaitest.Text("one"), openaitest.Text("two"), openaitest.Text("three"), openaitest.Text("four"))
	h := asking(t, host.Config{
		Model: host.ModelConfig{ContextWindow: 6000, MaxOutputTokens: 1000}, Compaction: host.CompactionConfig{KeepRecent: 1},
	}, server)
	session := send(t, h, host.Message{Text: "The gate is green."}).Session
	if _, err := h.Send(t.Context(), host.Message{Session: session, Text: strings.Repeat("word ", 15_000)}); err == nil {
		t.Fatal("a message of 18,750 tokens went into a prompt of 5,000")
	}
	answer := send(t, h, host.Message{Session: session, Text: "Which colour?"})
	if got := promptText(answer); !strings.Contains(got, "The gate is green.") || !strings.Contains(got, "Which colour?") {
		t.Errorf("the prompt is\n%.500s", got)
	}
	if answer.Report.Entries[len(answer.Report.Entries)-1].Reason == "" || answer.Report.OverBudget {
		t.Errorf("%+v", answer.Report)
	}
}
