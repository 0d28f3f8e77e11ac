package assembly_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

// The faults of the reference implementation that Assemble does not have (design,
// "Faults of the reference that we do not inherit"). Those of transcript.Join and
// transcript.Repair have their tests there.

// stored makes an item of what somebody says.
func (d *dice) stored(role memory.Role, blocks ...memory.Block) memory.Item {
	return memory.Item{Message: &memory.Message{
		ID: memory.MessageID(d.id()), Role: role, Source: memory.Source(role), Blocks: blocks, Tokens: memory.Count(blocks), At: epoch,
	}}
}

func (d *dice) storedText(role memory.Role, text string) memory.Item {
	return d.stored(role, memory.Text(text))
}

func (d *dice) told(text string) memory.Item {
	s := &memory.Summary{ID: memory.SummaryID(d.id()), Text: text, Descendants: 3, Earliest: epoch, Latest: epoch}
	s.Tokens = tokens.Estimate(s.Shown())
	return memory.Item{Summary: s}
}

func (d *dice) lookup(id string) (call, result memory.Item) {
	return d.stored(memory.RoleAssistant, memory.ToolCall(id, "grep", json.RawMessage(`{"for":"pumps"}`))),
		d.stored(memory.RoleTool, memory.ToolResult(id, "grep", framed("the pump of "+id+" runs"), false))
}

func announced(turn, text string) assembly.Live {
	return assembly.Live{Role: memory.RoleUser, Source: memory.SourceTaskCompletion, Turn: turn, Blocks: []memory.Block{memory.Text(text)}}
}

func mustAssemble(t *testing.T, in assembly.Input) (string, assembly.Report) {
	t.Helper()
	prompt, report, err := assembly.Assemble(in)
	if err != nil {
		t.Fatal(err)
	}
	return shownIn(prompt), report
}

func mustHold(t *testing.T, shown string, want map[string]bool) {
	t.Helper()
	for text, in := range want {
		if strings.Contains(shown, text) != in {
			t.Errorf("%q is in the prompt: %v, want %v:\n%s", text, !in, in, shown)
		}
	}
}

// A5: a later clamp dropped the very input that had just been guaranteed.
func TestNoLaterClampDropsWhatHasToBeIn(t *testing.T) {
	for _, budget := range []int{-1, 0, 1, 60, 200} {
		d := &dice{}
		call, result := d.lookup("call_1")
		shown, report := mustAssemble(t, assembly.Input{Turn: "2", Budget: budget, FreshTail: 2, Live: []assembly.Live{
			announced("2", "task 1 is done "+strings.Repeat("and done ", 40)), announced("2", "task 2 is done"),
		}, Items: []memory.Item{
			d.told("They met."), d.storedText(memory.RoleUser, "Is the pump on? "+strings.Repeat("really ", 40)), call, result,
		}})
		mustHold(t, shown, map[string]bool{
			"task 1 is done": true, "task 2 is done": true, "Is the pump on?": true, "the pump of call_1 runs": true, `{"for":"pumps"}`: true, "They met.": false,
		})
		if !report.OverBudget {
			t.Errorf("budget %d, tokens %d: want over budget", budget, report.Tokens)
		}
	}
}

// Announcements of past turns were appended again each turn although they were
// stored or summarised by then.
func TestAnnouncementsOfPastTurnsAreNotRepeated(t *testing.T) {
	d := &dice{}
	shown, report := mustAssemble(t, assembly.Input{Turn: "3", Budget: 10_000, Live: []assembly.Live{
		announced("1", "task 1 is done"), announced("2", "task 2 is done"), announced("3", "task 3 is done"),
	}, Items: []memory.Item{
		d.told("They met, and a task was done."), d.storedText(memory.RoleUser, "Go on."), d.storedText(memory.RoleAssistant, "I do."),
	}})
	mustHold(t, shown, map[string]bool{"task 1 is done": false, "task 2 is done": false, "task 3 is done": true})
	for _, e := range report.Entries {
		if e.Kind == assembly.KindLive && e.Included != (e.Reason == assembly.ReasonLive) {
			t.Errorf("entry %+v", e)
		}
	}
}

// The oldest copy was credited as cover while the newest was the anchor, and a
// summary's words were taken for a copy.
func TestNewestCopyCoversAndASummaryDoesNot(t *testing.T) {
	d := &dice{}
	items := []memory.Item{
		d.storedText(memory.RoleUser, "task 1 is done"), d.storedText(memory.RoleAssistant, "Good."),
		d.storedText(memory.RoleUser, "task 1 is done"), d.storedText(memory.RoleAssistant, "Good again."),
		d.told("task 2 is done"), d.storedText(memory.RoleUser, "Go on."),
	}
	// Whose caller names no turns.
	shown, report := mustAssemble(t, assembly.Input{Budget: 10_000, Items: items, Live: []assembly.Live{
		announced("", "task 1 is done"), announced("", "task 2 is done"),
	}})
	if n := strings.Count(shown, "task 1 is done"); n != 2 {
		t.Errorf("task 1 is told of %d times, want 2:\n%s", n, shown)
	}
	live := report.Entries[1+len(items):]
	if live[0].CoveredBy != 1+2 || live[0].Included || live[1].CoveredBy != 0 || !live[1].Included {
		t.Errorf("entries %+v", live)
	}
}

// Several estimators disagreed on what a prompt costs. There is one: what the
// store demands, the report, its entries and the parts say the same.
func TestAllCountsAgree(t *testing.T) {
	d := &dice{}
	call, result := d.lookup("call_1")
	items := []memory.Item{
		d.storedText(memory.RoleUser, "Is the pump on? 日本語"), call, result, d.told("They met."),
		d.storedText(memory.RoleAssistant, "It is."), d.storedText(memory.RoleUser, "Good."),
	}
	in := assembly.Input{System: "Be kind.", Budget: 10_000, Items: items}
	prompt, report, err := assembly.Assemble(in)
	if err != nil {
		t.Fatal(err)
	}
	byEntry := make([]int, len(report.Entries))
	for _, m := range prompt.Messages {
		for _, part := range m.Parts {
			byEntry[part.Entry] += part.Tokens
		}
	}
	sum := report.Totals.System
	for i, e := range report.Entries[1:] {
		if sum += e.Tokens; byEntry[1+i] != e.Tokens {
			t.Errorf("the parts of entry %+v cost %d", e, byEntry[1+i])
		}
	}
	if demand := tokens.Estimate(in.System) + assembly.Demand(items); report.Tokens != sum || prompt.Tokens != sum || demand != sum {
		t.Errorf("the entries cost %d, the report says %d, the prompt %d, and the store demands %d", sum, report.Tokens, prompt.Tokens, demand)
	}
}

// A result that stood before its call was thrown away.
func TestResultBeforeItsCallIsShown(t *testing.T) {
	d := &dice{}
	call, result := d.lookup("call_1")
	shown, _ := mustAssemble(t, assembly.Input{Budget: 10_000, Items: []memory.Item{
		d.storedText(memory.RoleUser, "Is the pump on?"), result, call, d.storedText(memory.RoleUser, "Well?"),
	}})
	mustHold(t, shown, map[string]bool{"the pump of call_1 runs": true})
}

// A user's text that happens to be JSON was stored as one of its fields.
func TestTextThatHappensToBeJSONIsText(t *testing.T) {
	for _, text := range []string{
		`{"type":"text","text":"only this"}`, `[{"type":"text","text":"only this"}]`, `{"role":"assistant","content":"only this"}`, `"only this"`, `null`,
	} {
		d := &dice{}
		for _, in := range []assembly.Input{
			{Budget: 10_000, Items: []memory.Item{d.storedText(memory.RoleUser, text)}},
			{Budget: 10_000, Live: []assembly.Live{{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text(text)}}}},
		} {
			shown, _ := mustAssemble(t, in)
			mustHold(t, shown, map[string]bool{text: true})
		}
	}
}

// Filling stopped at the first row that did not fit, so that one big row dropped
// every summary.
func TestOneBigRowDropsNoSummary(t *testing.T) {
	d := &dice{}
	shown, _ := mustAssemble(t, assembly.Input{Budget: 400, FreshTail: 1, Items: []memory.Item{
		d.told("They met."), d.told("They met again."), d.storedText(memory.RoleUser, "A log: "+strings.Repeat("line ", 2000)),
		d.storedText(memory.RoleAssistant, "I read it."), d.storedText(memory.RoleUser, "Well?"),
	}})
	mustHold(t, shown, map[string]bool{"They met.": true, "They met again.": true, "A log:": false, "I read it.": true, "Well?": true})
}

// The borders of the tail, of what is left out and of what a recovery keeps went
// through pairs of call and result.
func TestNoBorderSplitsAPair(t *testing.T) {
	d := &dice{}
	items := []memory.Item{d.storedText(memory.RoleUser, "Are the pumps on?")}
	var ids []string
	for i := range 12 {
		id := "call_" + string(rune('a'+i))
		ids = append(ids, id)
		call, result := d.lookup(id)
		call.Message.Blocks[0].Input = json.RawMessage(`{"for":"` + id + `"}`)
		items = append(items, call, result)
	}
	demand := assembly.Demand(items)
	for budget := 0; budget <= demand+100; budget += 41 {
		for _, tail := range []int{1, 2, 3, 4} {
			for recovery := assembly.RecoverNothing; recovery <= assembly.RecoverShorten; recovery++ {
				shown, _ := mustAssemble(t, assembly.Input{Budget: budget, FreshTail: tail, Recovery: recovery, Items: items})
				for _, id := range ids {
					if strings.Contains(shown, `{"for":"`+id+`"}`) != strings.Contains(shown, "the pump of "+id+" runs") {
						t.Fatalf("budget %d, tail %d, recovery %d: half of the pair %s is in the prompt", budget, tail, recovery, id)
					}
				}
			}
		}
	}
}

// What a tool says is told in the user's role, and is nothing that the user said.
func TestToolsWordsCoverNoInput(t *testing.T) {
	d := &dice{}
	shown, report := mustAssemble(t, assembly.Input{Turn: "2", Budget: 10_000, Items: []memory.Item{
		d.storedText(memory.RoleUser, "Is the pump on?"), d.storedText(memory.RoleTool, "task 1 is done"),
	}, Live: []assembly.Live{announced("2", "task 1 is done")}})
	if n := strings.Count(shown, "task 1 is done"); n != 2 {
		t.Errorf("it is in the prompt %d times, want 2: %+v", n, report.Entries)
	}
}

// A live result that is stored by now is covered, not told again; of two, where
// one is stored, the message goes in for the other.
func TestStoredResultCoversALiveOne(t *testing.T) {
	d := &dice{}
	both := d.stored(memory.RoleAssistant, memory.ToolCall("call_1", "grep", json.RawMessage(`{}`)), memory.ToolCall("call_2", "grep", json.RawMessage(`{}`)))
	first, second := memory.ToolResult("call_1", "grep", framed("the first runs"), false), memory.ToolResult("call_2", "grep", framed("the second runs"), false)
	for _, live := range [][]memory.Block{{first}, {first, second}} {
		shown, report := mustAssemble(t, assembly.Input{Turn: "2", Budget: 10_000, Items: []memory.Item{
			d.storedText(memory.RoleUser, "Are the pumps on?"), both, d.stored(memory.RoleTool, first),
		}, Live: []assembly.Live{{Role: memory.RoleTool, Source: memory.SourceTool, Turn: "2", Blocks: live}}})
		if n := strings.Count(shown, "the first runs"); n != 1 {
			t.Errorf("%d live results: the stored one is in the prompt %d times", len(live), n)
		}
		partly := len(live) > 1
		mustHold(t, shown, map[string]bool{"the second runs": partly})
		if e := report.Entries[4]; e.Kind != assembly.KindLive || e.Included != partly || (e.CoveredBy != 0) == partly {
			t.Errorf("%d live results: entry %+v", len(live), e)
		}
	}
}
