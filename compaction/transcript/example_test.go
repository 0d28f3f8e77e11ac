package transcript_test

import (
	"fmt"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

func exampleWords(role memory.Role, text string) transcript.Row {
	return transcript.Row{Role: role, Parts: []transcript.Part{{Type: transcript.PartText, Text: text}}, Cost: 10}
}

func printRows(rows []transcript.Row) {
	for _, r := range rows {
		for _, p := range r.Parts {
			if p.Type == transcript.PartCall {
				fmt.Printf("%s calls %s\n", r.Role, p.Name)
			} else {
				fmt.Printf("%s: %s\n", r.Role, p.Text)
			}
		}
	}
}

// The process died before the tool did.
func ExampleRepair() {
	call := transcript.Row{Role: memory.RoleAssistant, Parts: []transcript.Part{{Type: transcript.PartCall, ID: "a", Name: "search", Raw: []byte(`{}`)}}}
	printRows(transcript.Repair([]transcript.Row{
		exampleWords(memory.RoleUser, "Find the report."), call, exampleWords(memory.RoleUser, "Are you there?"),
	}, 24))
	// Output:
	// user: Find the report.
	// assistant calls search
	// tool: [no result of this tool call is known]
	// user: Are you there?
}

// One of two equal announcements is stored, and one occurrence covers one. There
// is room for three rows, so that the oldest goes.
func ExampleJoin() {
	announced := exampleWords(memory.RoleUser, "The report is done.")
	joined := transcript.Join(transcript.JoinInput{
		Rows:   []transcript.Row{exampleWords(memory.RoleUser, "Hello."), exampleWords(memory.RoleAssistant, "Good morning."), announced},
		Live:   []transcript.Live{{Row: announced, Volatile: true}, {Row: announced, Volatile: true}},
		Budget: 30, RowsCost: 30,
	})
	printRows(joined.Rows)
	fmt.Println("covered by row", joined.CoveredBy[0], "- appended:", joined.Appended, "- evicted:", joined.Evicted)
	// Output:
	// assistant: Good morning.
	// user: The report is done.
	// user: The report is done.
	// covered by row 2 - appended: [1] - evicted: [0]
}
