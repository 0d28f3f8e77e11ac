// Command sandbox-only runs a module in the box and nothing else: no store, no
// model, no file that the module could reach.
//
//	go run ./examples/sandbox-only FILE.wasm "the question"
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

func main() {
	// This program is also the process that compiles modules: compiling cannot
	// be interrupted, a process can be ended.
	registry.CompilerMain()
	if len(os.Args) != 3 {
		log.Fatal("usage: sandbox-only FILE.wasm PROMPT")
	}
	framed, err := ask(context.Background(), os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(framed)
}

func ask(ctx context.Context, file, prompt string) (string, error) {
	module, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	compiler, err := registry.Self()
	if err != nil {
		return "", err
	}
	engine, err := sandbox.New(sandbox.Config{Compiler: compiler})
	if err != nil {
		return "", err
	}
	defer engine.Close()
	hand, err := engine.Load(ctx, module, sandbox.Options{Name: "guest", Limits: abi.Limits{Timeout: 2 * time.Second, MemoryBytes: 32 << 20}})
	if err != nil {
		return "", err
	}
	// The zero Ports reach nothing.
	result, err := hand.Query(ctx, abi.Query{Prompt: prompt, Now: time.Now(), Timezone: "UTC"}, sandbox.Ports{})
	if errors.Is(err, abi.KindTimeout) {
		return "", fmt.Errorf("the hand is too slow: %w", err)
	}
	return result.Reply.Render(), err
}
