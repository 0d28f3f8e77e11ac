package transfer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// What another session or a task announced in a transcript is nobody's words: it
// is no activity of the user, and is told as what it is. A tool or an assistant
// that writes the marks gains nothing.
func TestTranscriptMarks(t *testing.T) {
	const (
		block = `<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nfound\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>`
		retry = `[Retry after the previous model attempt failed or timed out]`
	)
	store, user := open(t)
	document := `{"messages":[
		{"role":"user","content":"` + retry + `\nhello"},
		{"role":"user","content":"hello, I saw ` + retry + `"},
		{"role":"assistant","content":"` + retry + `"},
		{"role":"system","content":"[Inter-session message] from a\n` + block + `"},
		{"role":"developer","content":"be brief"},
		{"role":"user","content":[{"type":"text","text":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\n[Internal task completion event]"},
			{"type":"image","data":"aGk="},{"type":"text","text":"<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"}]},
		{"role":"assistant","content":"noted","tool_calls":[{"id":"c","function":{"name":"read","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"` + retry + `"},
		{"role":"user","name":"zoe","content":"` + retry + `"}]}`
	must(transfer.Import(t.Context(), store, user, strings.NewReader(document), options))(t)
	want := []memory.Source{memory.SourceRetry, memory.SourceUser, memory.SourceAssistant, memory.SourceInterSession, memory.SourceUnknown,
		memory.SourceTaskCompletion, memory.SourceAssistant, memory.SourceTool, memory.SourceRetry}
	var got []memory.Source
	for _, m := range messages(t, t.Context(), store, user)[0] {
		got = append(got, m.Source)
		if m.Role == memory.RoleUser && m.Trust != memory.TrustDirect {
			t.Errorf("message %d has the trust %s", m.Seq, m.Trust)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("sources %q\nwant    %q", got, want)
	}
	if s := must(store.Sessions(t.Context(), user, memory.SessionQuery{}))(t)[0]; s.UserMessages != 1 {
		t.Errorf("%d messages count as the user's, want 1", s.UserMessages)
	}
	// Imported again, it is known.
	if report := must(transfer.Import(t.Context(), store, user, strings.NewReader(document), options))(t); report.Added[memory.RecordMessage] != 0 {
		t.Errorf("imported twice: %+v", report)
	}
}
