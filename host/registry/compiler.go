package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// compileArgument makes a program that calls CompilerMain a compiler.
const compileArgument = "__glovebox_compile"

// Limits of one compilation. An honest Go guest with net/http takes 2.7 s on a
// quiet machine.
const (
	compileWall       = slowdown * 30 * time.Second
	compileCPUSeconds = slowdown * 10
	compileDataBytes  = slowdown << 30
)

// Compiler compiles modules in a process of its own, with an empty environment
// and bounds on its time and memory, because compiling cannot be interrupted
// and is quadratic in places. It implements sandbox.Compiler and is safe for
// concurrent use.
type Compiler struct {
	// Command is a program that calls CompilerMain, and its arguments.
	Command []string
}

var _ sandbox.Compiler = Compiler{}

// Self returns the compiler that is this program. Its main function must call
// CompilerMain first.
func Self() (Compiler, error) {
	path, err := os.Executable()
	if err != nil {
		return Compiler{}, fmt.Errorf("find this program to compile with: %w", err)
	}
	return Compiler{Command: []string{path}}, nil
}

// Compile implements sandbox.Compiler. A module that the engine refuses or that
// is over the limits is of kind bad_module; a process that cannot be started, and what
// it compiled and cannot keep, unavailable.
func (c Compiler) Compile(ctx context.Context, dir string, module []byte) error {
	if len(c.Command) == 0 {
		return &abi.Error{Kind: abi.KindUnavailable, Text: "the compiler has no command"}
	}
	limited, cancel := context.WithTimeout(ctx, compileWall)
	defer cancel()
	arguments := append(append([]string{}, c.Command[1:]...), compileArgument, dir)
	worker := exec.CommandContext(limited, c.Command[0], arguments...)
	worker.Env = []string{} // nil would be this process's
	worker.Dir = dir
	worker.Stdin = bytes.NewReader(module)
	var said head
	worker.Stdout, worker.Stderr = &said, &said
	worker.WaitDelay = time.Second
	err := worker.Run()
	switch exit, exited := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return refused("compiling it takes longer than %v", compileWall)
	case !exited:
		return &abi.Error{Kind: abi.KindUnavailable, Text: "start the compiler " + c.Command[0], Err: err}
	case exit.ExitCode() == exitRefused:
		return refused("the engine refuses it: %s", said.kept)
	case exit.ExitCode() == exitNotKept:
		return &abi.Error{Kind: abi.KindUnavailable, Text: string(said.kept)}
	case exit.Exited() && !crashed(said.kept):
		return &abi.Error{Kind: abi.KindUnavailable, Text: fmt.Sprintf("the compiler %s ended with %v: does its main function call registry.CompilerMain first?", c.Command[0], exit)}
	}
	return refused("compiling it takes more than %d s of processor time or %d MiB of memory", compileCPUSeconds, compileDataBytes>>20)
}

// crashed tells whether Go's runtime ended the process, which it does when it
// gets no more memory.
func crashed(said []byte) bool {
	return bytes.Contains(said, []byte("fatal error: ")) || bytes.Contains(said, []byte("runtime: ")) || bytes.Contains(said, []byte("panic: "))
}

func refused(format string, args ...any) error {
	return &abi.Error{Kind: abi.KindBadModule, Text: fmt.Sprintf(format, args...)}
}

// Exit codes of a compiler.
const (
	exitRefused = 3
	exitUsage   = 4
	exitNotKept = 5
)

// CompilerMain compiles and exits if this process was started by a Compiler;
// else it does nothing. A program whose Compiler is itself calls it first, and
// so does TestMain.
func CompilerMain() {
	if len(os.Args) < 3 || os.Args[len(os.Args)-2] != compileArgument {
		return
	}
	os.Exit(compile(os.Args[len(os.Args)-1]))
}

func compile(dir string) int {
	if err := limitThisProcess(); err != nil {
		fmt.Fprintln(os.Stderr, "set limits:", err)
		return exitUsage
	}
	// What is admitted grows when it is metered, but not without bound.
	module, err := io.ReadAll(io.LimitReader(os.Stdin, 16*sandbox.MaxModuleBytes))
	if err != nil {
		fmt.Fprintln(os.Stderr, "read module:", err)
		return exitUsage
	}
	if err := sandbox.CompileInto(context.Background(), dir, module); err != nil {
		fmt.Fprint(os.Stderr, err)
		switch abi.KindOf(err) {
		case abi.KindBadModule:
			return exitRefused
		case abi.KindUnavailable:
			return exitNotKept
		}
		return exitUsage
	}
	return 0
}

// head keeps the first bytes written to it: a crash tells its reason first.
type head struct{ kept []byte }

func (h *head) Write(b []byte) (int, error) {
	h.kept = append(h.kept, b[:min(len(b), 4<<10-len(h.kept))]...)
	return len(b), nil
}
