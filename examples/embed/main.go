// Command embed puts the whole host into a program: a hand is asked, and a
// conversation goes on that brings itself up to date.
//
//	go run ./examples/embed DIR-WITH-ICS-FILES
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/gloveboxhq/glovebox/host"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: embed DIR-WITH-ICS-FILES")
	}
	data, err := os.MkdirTemp("", "glovebox-embed-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(data)
	if err := run(context.Background(), os.Stdout, data, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, data, calendars string) error {
	h, err := host.New(ctx, host.Config{
		Data:       data,
		Hands:      map[string]host.HandConfig{"calendar": {Grant: host.GrantConfig{Files: map[string]string{"calendars": calendars}}}},
		Compaction: host.CompactionConfig{GapSecs: 900, ContextSources: []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}},
	})
	if err != nil {
		return err
	}
	defer h.Close()

	result, err := h.Query(ctx, host.HandQuery{Hand: "calendar", Prompt: "What is on?"})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, result.Reply.Render()) // framed, as a prompt has it

	answer, err := h.Send(ctx, host.Message{Text: "What is on today?"})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, answer.Message.Blocks[0].Text)
	return nil
}
