package host_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// PromptOf gives what the next prompt of a session is made of. A program adds
// what only it knows, and assembles that; ContextOf is the same without.
func ExamplePromptOf() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "glovebox-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := host.Config{Data: dir}
	h, err := host.New(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	answer, err := h.Send(ctx, host.Message{Text: "Have the report written, please."})
	if err != nil {
		log.Fatal(err)
	}
	user, err := h.User("")
	if err != nil {
		log.Fatal(err)
	}

	in, err := host.PromptOf(ctx, config, h.Store(), user.ID, answer.Session, 0)
	if err != nil {
		log.Fatal(err)
	}
	in.Turn = "turn 2"
	in.Live = []assembly.Live{{
		Role: memory.RoleUser, Source: memory.SourceTaskCompletion, Turn: in.Turn,
		Blocks: []memory.Block{memory.Text("[The writer: the report has 12 pages.]")},
	}}
	prompt, report, err := assembly.Assemble(in)
	if err != nil {
		log.Fatal(err)
	}
	last := prompt.Messages[len(prompt.Messages)-1]
	fmt.Println(last.Text())
	fmt.Println(report.Totals.Live > 0, report.OverBudget)
	// Output:
	// [The writer: the report has 12 pages.]
	// true false
}
