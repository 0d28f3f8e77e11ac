package assembly_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// A conversation as memory.Store.FrontierTail returns it.
func exampleFrontier() []memory.Item {
	monday := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	item := func(role memory.Role, source memory.Source, text string) memory.Item {
		blocks := []memory.Block{memory.Text(text)}
		return memory.Item{Message: &memory.Message{Role: role, Source: source, Blocks: blocks, Tokens: memory.Count(blocks), At: monday}}
	}
	return []memory.Item{
		item(memory.RoleUser, memory.SourceUser, "Have the report written, please."),
		item(memory.RoleAssistant, memory.SourceAssistant, "I have asked the writer."),
		item(memory.RoleUser, memory.SourceUser, "Is it done?"),
	}
}

// What another agent announced is stored nowhere: it is live. The date is beside
// the input, so that the next prompt begins with the same bytes.
func ExampleAssemble() {
	mode := boundary.ModeDelimit
	prompt, report, err := assembly.Assemble(assembly.Input{
		System: "You help with reports.\n\n" + mode.SystemParagraph(),
		Items:  exampleFrontier(),
		Live: []assembly.Live{{
			Role: memory.RoleUser, Source: memory.SourceTaskCompletion, Turn: "turn 2",
			Blocks: []memory.Block{memory.Text("[The writer: the report has 12 pages.]")},
		}},
		Turn:     "turn 2",
		Beside:   []memory.Block{memory.Text("It is Monday, 9:00.")},
		Budget:   8000,
		Provider: assembly.Anthropic,
		Mode:     mode,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range prompt.Messages {
		for _, p := range m.Parts {
			fmt.Printf("%s: %s\n", m.Role, p.Text)
		}
	}
	fmt.Println()
	for _, e := range report.Entries {
		fmt.Printf("%s: %s\n", e.Kind, e.Reason)
	}
	// Output:
	// user: Have the report written, please.
	// assistant: I have asked the writer.
	// user: It is Monday, 9:00.
	// user: Is it done?
	// user: [The writer: the report has 12 pages.]
	//
	// system: always
	// message: one of the last messages
	// message: one of the last messages
	// message: one of the last messages
	// live: not stored yet
	// beside: goes beside the last input
}

// Count is exact where a tokenizer of the model is at hand, such as Count of a
// host/tokenizer.Counter. This one takes every byte for a token.
func ExampleInput_count() {
	_, report, err := assembly.Assemble(assembly.Input{
		System: "Be kind.", Items: exampleFrontier(), Budget: 50, FreshTail: 1,
		Count: func(text string) int { return len(text) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d tokens, %s pressure\n", report.Tokens, report.Budget, report.Pressure.Level)
	for _, e := range report.Entries {
		fmt.Printf("%s, %d tokens, in: %t, %s\n", e.Kind, e.Tokens, e.Included, e.Reason)
	}
	// Output:
	// 23 of 50 tokens, critical pressure
	// system, 8 tokens, in: true, always
	// message, 36 tokens, in: false, no room in the budget
	// message, 28 tokens, in: false, no room in the budget
	// message, 15 tokens, in: true, one of the last messages
}

// The trace of a prompt tells how much of it the next one begins with.
func ExampleTrace() {
	items := exampleFrontier()
	in := assembly.Input{System: "Be kind.", Items: items[:1], Budget: 8000, Provider: assembly.OpenAIChat}
	_, first, err := assembly.Assemble(in)
	if err != nil {
		log.Fatal(err)
	}
	in.Items, in.Previous = items, first.Trace
	_, second, err := assembly.Assemble(in)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d tokens are those of the prompt before\n", second.PrefixReuse.Tokens, second.PrefixReuse.Of)
	// Output:
	// 14 of 31 tokens are those of the prompt before
}

// A prompt of your own making is held against the rules of a provider, too.
func ExampleCheck() {
	broken := assembly.Check(assembly.Prompt{Messages: []assembly.Message{
		{Role: memory.RoleAssistant, Parts: []assembly.Part{{Type: assembly.PartText, Text: "Hello."}}},
	}}, assembly.Gemini)
	err := error(&assembly.RuleError{Provider: assembly.Gemini, Violations: broken})
	var rules *assembly.RuleError
	if errors.As(err, &rules) {
		for _, v := range rules.Violations {
			fmt.Println(v.Rule)
		}
	}
	// Output:
	// first_is_user
	// last_is_user
}
