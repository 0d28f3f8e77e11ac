package assembly_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

func thought(signature string) memory.Block {
	return memory.Block{
		Type: memory.BlockThinking, Name: string(assembly.Anthropic),
		Input: json.RawMessage(`{"type":"thinking","thinking":"hm","signature":"` + signature + `"}`),
	}
}

// Thinking is bound to what stands before it, and a stage of recovery changes that.
func TestRecoveryTakesThoughtsOut(t *testing.T) {
	in := assembly.Input{Budget: 1000, Provider: assembly.Anthropic, Items: []memory.Item{
		said("user", "look"), message(memory.RoleAssistant, thought("a"), call("c1")), result("c1", found(t, "it")),
	}}
	for in.Recovery = assembly.RecoverNothing; in.Recovery <= assembly.RecoverShorten; in.Recovery++ {
		prompt, _ := assemble(t, in)
		if got, want := strings.Contains(script(prompt), "thinking"), in.Recovery == assembly.RecoverNothing; got != want {
			t.Errorf("%s: has thinking: %v, want %v\n%s", in.Recovery, got, want, script(prompt))
		}
	}
}

// Thinking between other parts has no place in a prompt that has it first, and none
// of that message may stay without the rest.
func TestInterleavedThoughtsAreLeftOut(t *testing.T) {
	prompt, _ := assemble(t, assembly.Input{Budget: 1000, Provider: assembly.Anthropic, Items: []memory.Item{
		said("user", "look"),
		message(memory.RoleAssistant, thought("a"), call("c1"), thought("b"), call("c2")),
		message(memory.RoleTool, memory.ToolResult("c1", "grep", found(t, "it"), false), memory.ToolResult("c2", "grep", found(t, "that"), false)),
	}})
	if strings.Contains(script(prompt), "thinking") {
		t.Errorf("got\n%s", script(prompt))
	}
}

// Two messages of the assistant become one, which would have the thinking of both
// before the words of either.
func TestThoughtsOfMergedMessagesAreLeftOut(t *testing.T) {
	prompt, _ := assemble(t, assembly.Input{Budget: 1000, Provider: assembly.Anthropic, Items: []memory.Item{
		said("user", "look"),
		message(memory.RoleAssistant, thought("a"), memory.Text("I look.")),
		message(memory.RoleAssistant, thought("b"), call("c1")), result("c1", found(t, "it")),
	}})
	if want := lines("user text look", "assistant text I look.", "assistant tool_call c1", "user tool_result c1"); script(prompt) != want {
		t.Errorf("got\n%swant\n%s", script(prompt), want)
	}
}

// The round of tools that goes on stays whatever it costs and is not shortened;
// those before it have no such right.
func TestRecoveryKeepsTheLastRound(t *testing.T) {
	first, last := "first "+words(400), "last "+words(400)
	in := assembly.Input{Budget: 300, Items: []memory.Item{
		said("user", "look"),
		message(memory.RoleAssistant, call("c1")), result("c1", found(t, first)),
		message(memory.RoleAssistant, call("c2")), result("c2", found(t, last)),
	}}
	for in.Recovery = assembly.RecoverKeepTen; in.Recovery <= assembly.RecoverShorten; in.Recovery++ {
		prompt, report := assemble(t, in)
		shown := shownIn(prompt)
		if !strings.Contains(shown, last) || strings.Contains(shown, first) || !report.OverBudget {
			t.Errorf("%s: over budget: %v, got\n%s", in.Recovery, report.OverBudget, script(prompt))
		}
	}

	in.Budget, in.Recovery = 10_000, assembly.RecoverShorten
	prompt, _ := assemble(t, in)
	shown := shownIn(prompt)
	if !strings.Contains(shown, last) || strings.Contains(shown, first) || !strings.Contains(shown, "first word") {
		t.Errorf("the last result has to be whole, and of the first the beginning: got\n%s", shown)
	}
}

// What a note costs is found out when all else is chosen: then something goes for it.
func TestANoteIsPaidForWithTheBudget(t *testing.T) {
	in := assembly.Input{Budget: 1000, FreshTail: 1, Items: []memory.Item{
		said("assistant", words(40)), said("assistant", words(20)), said("user", "go on"),
	}}
	_, report := assemble(t, in)
	if report.Totals.Notes == 0 {
		t.Fatal("the prompt needs no note")
	}
	in.Budget = report.Tokens - report.Totals.Notes
	prompt, report := assemble(t, in)
	if report.OverBudget || report.Tokens > in.Budget {
		t.Errorf("%d tokens of %d\n%s", report.Tokens, in.Budget, script(prompt))
	}
}

// What is larger than half of the budget goes before what is older.
func TestMoreThanHalfOfTheBudgetGoesFirst(t *testing.T) {
	big := said("assistant", words(60))
	in := assembly.Input{FreshTail: 1, Items: []memory.Item{
		said("user", "old"), said("assistant", "older answer"), said("user", "ask"), big, said("user", words(50)),
	}}
	_, report := assemble(t, in)
	cost := report.Entries[4].Tokens // behind the system text
	in.Budget = 2*cost - 1
	prompt, report := assemble(t, in)
	if report.Entries[4].Included || !report.Entries[1].Included {
		t.Errorf("%+v\n%s", report.Entries, script(prompt))
	}
}

// An id that is made for a call is the same however much of the frontier before it
// is left out: an id that changes changes the prompt's beginning.
func TestMadeIDsAreOfTheMessage(t *testing.T) {
	items := []memory.Item{
		said("user", "one"), said("assistant", "two"),
		said("user", "look"), message(memory.RoleAssistant, call("not an id")), result("not an id", boundary.Content{}),
	}
	idIn := func(items []memory.Item) string {
		prompt, _ := assemble(t, assembly.Input{Budget: 1000, Items: items})
		return prompt.Messages[len(prompt.Messages)-1].Parts[0].ID
	}
	if all, end := idIn(items), idIn(items[2:]); all != end {
		t.Errorf("%q became %q", all, end)
	}
}

// A refresh never has the last word, stored or not: it is nothing to answer.
func TestALiveRefreshStandsBeforeTheInput(t *testing.T) {
	told := live(memory.SourceContextInjection, "[Context refresh] rain")
	prompt, _ := assemble(t, assembly.Input{Budget: 1000, Items: []memory.Item{said("user", "go on")}, Live: []assembly.Live{told}})
	if want := lines("user text [Context refresh] rain", "user text go on"); script(prompt) != want {
		t.Errorf("got\n%swant\n%s", script(prompt), want)
	}
	prompt, report := assemble(t, assembly.Input{Budget: 1000, Live: []assembly.Live{told}})
	last := prompt.Messages[0].Parts[len(prompt.Messages[0].Parts)-1]
	if report.Entries[last.Entry].Reason != assembly.ReasonClosing {
		t.Errorf("got\n%s", script(prompt))
	}
}

// What OverflowDrained foretells is what the prompts of two stages differ in, and
// OverflowDrainCount counts the messages of it.
func TestOverflowDrainCountIsWhatGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := (&dice{rest: rapid.SliceOfN(rapid.Byte(), 200, 600).Draw(t, "choices")}).input()
		in.Budget = 1 << 40
		first := 1 // entry of the first item
		if len(in.Tools) > 0 {
			first++
		}
		before := make([]bool, len(in.Items))
		for in.Recovery = assembly.RecoverKeepTen; in.Recovery <= assembly.RecoverShorten; in.Recovery++ {
			_, report, err := assembly.Assemble(in)
			if err != nil {
				t.Fatal(err)
			}
			var went []int
			messages := 0
			for i := range in.Items {
				out := report.Entries[first+i].Reason == assembly.ReasonRecovery
				if before[i] && !out {
					t.Fatalf("%s brings item %d back\n%s", in.Recovery, i, describe(in))
				}
				if out && !before[i] {
					went = append(went, i)
					if in.Items[i].Message != nil {
						messages++
					}
				}
				before[i] = out
			}
			if drained := assembly.OverflowDrained(in); !slices.Equal(drained, went) {
				t.Fatalf("%s: %v foretold, %v went\n%s", in.Recovery, drained, went, describe(in))
			}
			if n := assembly.OverflowDrainCount(in); n != messages {
				t.Fatalf("%s: %d messages foretold, %d went\n%s", in.Recovery, n, messages, describe(in))
			}
		}
	})
}

// The last 10 and the last 4 are counted in messages, and the last input of a
// person stays however old it is.
func TestStagesKeepTenAndFour(t *testing.T) {
	items := []memory.Item{summary("before"), said("user", "ask")}
	for range 20 {
		items = append(items, said("assistant", "aside"))
	}
	for stage, want := range map[assembly.Recovery]int{
		assembly.RecoverNothing: 0, assembly.RecoverKeepTen: 20 - 10, assembly.RecoverKeepFour: 10 - 4, assembly.RecoverShorten: 0,
	} {
		in := assembly.Input{Items: items, Recovery: stage}
		if got := assembly.OverflowDrainCount(in); got != want {
			t.Errorf("%s: %d messages, want %d", stage, got, want)
		}
		if got := slices.Contains(assembly.OverflowDrained(in), 0); got != (stage == assembly.RecoverKeepFour) {
			t.Errorf("%s: the summary goes: %v", stage, got)
		}
	}
}

// What was not even read is left out like all that has no room, and tells how full
// the session is.
func TestPressureCountsWhatIsOlder(t *testing.T) {
	in := assembly.Input{Budget: 1000, Items: []memory.Item{said("user", "go on")}}
	_, report := assemble(t, in)
	if report.Pressure.Level != assembly.LevelLow {
		t.Fatalf("%+v", report.Pressure)
	}
	in.Older = memory.FrontierRest{Items: 3, Tokens: 1000}
	if _, report = assemble(t, in); report.Pressure.Level != assembly.LevelCritical || report.OverBudget {
		t.Errorf("%+v, over budget: %v", report.Pressure, report.OverBudget)
	}
}
