package transfer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// What another session or a task announced in a transcript is nobody's words: it
// is no activity of the user, and is told as what it is, and an answer behind it may
// repeat it. A tool or an assistant that writes the marks gains nothing.
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
	const direct, derived = memory.TrustDirect, memory.TrustDerived
	trusts := []memory.Trust{direct, direct, direct, derived, direct, derived, derived, memory.TrustExternal, direct}
	var got []memory.Source
	for _, m := range messages(t, t.Context(), store, user)[0] {
		got = append(got, m.Source)
		if want := trusts[m.Seq-1]; m.Trust != want {
			t.Errorf("message %d has the trust %s, want %s", m.Seq, m.Trust, want)
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

// A transcript's calls of tools that take a text, and calls of kinds that are not
// known, lose none of their words.
func TestCallsThatAreNoFunctions(t *testing.T) {
	store, user := open(t)
	document := `{"messages":[{"role":"user","content":"mend it"},{"role":"assistant","content":null,"tool_calls":[
		{"id":"c1","type":"custom","custom":{"name":"patch","input":"the words of a patch"}},
		{"id":"c2","type":"remote","server":"elsewhere","name":"fetch"},
		{"id":"c3","type":"function","function":{"name":"now","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"done"}]}`
	must(transfer.Import(t.Context(), store, user, strings.NewReader(document), options))(t)
	said := messages(t, t.Context(), store, user)[0]
	calls := said[1].Blocks
	if len(calls) != 3 {
		t.Fatalf("%d blocks: %+v", len(calls), calls)
	}
	if c := calls[0]; c.Type != memory.BlockToolCall || c.ID != "c1" || c.Name != "patch" || string(c.Input) != `{"arguments":"the words of a patch"}` {
		t.Errorf("the call with a text is %+v", c)
	}
	if encoded, _, err := memory.Encode(calls[1:2]); err != nil || !strings.Contains(encoded[0], "elsewhere") {
		t.Errorf("the call of an unknown kind is %s, %v", encoded, err)
	}
	if c := calls[2]; c.Type != memory.BlockToolCall || c.Name != "now" || string(c.Input) != `{}` {
		t.Errorf("the call of a function is %+v", c)
	}
	if r := said[2].Blocks[0]; r.Name != "patch" {
		t.Errorf("the result is of %q", r.Name)
	}
}
