package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// taskVariable is set in a process that was started to do a task. It reads the
// task from its standard input and writes the outcome, as JSON, to its standard
// output.
const taskVariable = "GLOVEBOX_BENCH_TASK"

// task is what is measured in a process of its own, where nothing else has used
// memory.
type task struct {
	Kind string
	Host string
	// Module is the path of the hand.
	Module string
	// Cache is a directory for compiled modules.
	Cache string
	// Time is how long a hand is asked, after it was warmed up.
	Time time.Duration
	// Variant and Hands are for what loads many hands; Guest is what they are written in,
	// for a task that has no module.
	Variant string
	Hands   int
	Guest   string
	// Patience bounds the time that they take, but for the first Least of them; zero
	// means as long as it takes.
	Patience time.Duration
	Least    int
	// Profile is a path for a profile of the heap; "" means none.
	Profile string
}

// read finds the task's host and reads its hand.
func (t task) read() (host, []byte, error) {
	h, err := hostNamed(t.Host)
	if err != nil {
		return h, nil, err
	}
	module, err := os.ReadFile(t.Module)
	return h, module, err
}

// tasks are what doTask knows, by kind.
var tasks = map[string]func(ctx context.Context, t task) (outcome any, err error){}

// elsewhere does a task in a process of its own and decodes what came of it.
func elsewhere(ctx context.Context, t task, outcome any) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	input, err := json.Marshal(t)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program)
	command.Env = append(os.Environ(), taskVariable+"="+t.Kind)
	var printed, failed bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &printed, &failed
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", t.Kind, t.Host, err, strings.TrimSpace(failed.String()))
	}
	if err := json.Unmarshal(printed.Bytes(), outcome); err != nil {
		return fmt.Errorf("%s in %s: %w", t.Kind, t.Host, err)
	}
	return nil
}

// doTask is the whole of a process that elsewhere started.
func doTask(ctx context.Context, r io.Reader, w io.Writer) error {
	var t task
	if err := json.NewDecoder(r).Decode(&t); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	do, ok := tasks[t.Kind]
	if !ok {
		return fmt.Errorf("no task is called %q", t.Kind)
	}
	outcome, err := do(ctx, t)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(outcome)
}

// inFolder builds a guest's hand for a host and calls do with its path and that
// of an empty cache.
func inFolder(ctx context.Context, l language, h host, do func(t task) error) error {
	return inFolders(ctx, l, []host{h}, func(tasks []task) error { return do(tasks[0]) })
}

// inFolders is inFolder for several hosts, each with a folder of its own.
func inFolders(ctx context.Context, l language, hosts []host, do func(tasks []task) error) error {
	dir, err := os.MkdirTemp("", "glovebox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tasks := make([]task, len(hosts))
	for i, h := range hosts {
		module, err := l.hand(ctx, h.contract)
		if err != nil {
			return err
		}
		own := filepath.Join(dir, h.name)
		tasks[i] = task{Host: h.name, Module: filepath.Join(own, "hand.wasm"), Cache: filepath.Join(own, "cache")}
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(tasks[i].Module, module, 0o600); err != nil {
			return err
		}
	}
	return do(tasks)
}
