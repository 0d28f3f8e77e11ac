// Command glovebox asks sandboxed hands for context and keeps the conversations
// that use it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/registry/source"
	"github.com/gloveboxhq/glovebox/memory"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	registry.CompilerMain()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// open opens a host whose compiler is this program.
func open(ctx context.Context, config host.Config) (*host.Host, error) {
	compiler, err := registry.Self()
	if err != nil {
		return nil, err
	}
	config.Compiler = compiler
	return host.New(ctx, config)
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first := make(chan os.Signal, 1)
	signal.Notify(first, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(first)
	go func() {
		select {
		case <-first:
			// A second signal ends the program at once: whoever sees the context end
			// may count on that.
			signal.Stop(first)
			cancel()
		case <-ctx.Done():
		}
	}()
	// A reader that has gone is an error of the write, so that what is to be
	// removed is removed.
	signal.Ignore(syscall.SIGPIPE)
	output := &sticky{to: stdout}
	app := &app{stdin: stdin, stdout: output, stderr: stderr, terminal: onTerminal(stdout)}
	root := app.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(output)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if output.err != nil && (err == nil || errors.Is(err, errReported)) {
		err = fmt.Errorf("write output: %w", output.err)
	}
	switch usage := (*usageError)(nil); {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitFailed
	case errors.As(err, &usage):
		printError(stderr, err)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "glovebox: interrupted")
		return exitFailed
	}
	printError(stderr, err)
	if hint := hintFor(err); hint != "" {
		fmt.Fprintf(stderr, "glovebox: hint: %s\n", hint)
	}
	return exitFailed
}

// printError prints an error, which may repeat the words of a module or a file.
func printError(w io.Writer, err error) {
	fmt.Fprintf(w, "glovebox: error: %s\n", printable(err.Error()))
}

// sticky keeps the first error of a writer.
type sticky struct {
	to  io.Writer
	err error
}

func (s *sticky) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.to.Write(b)
	s.err = err
	return n, err
}

// errReported says that a command has already printed its failure.
var errReported = errors.New("failed")

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

func hintFor(err error) string {
	switch {
	case errors.Is(err, memory.ErrInUse):
		return "stop the other glovebox, or choose another data directory with --data"
	case errors.Is(err, memory.ErrNewer):
		return "use the newer glovebox that wrote it"
	case errors.Is(err, memory.ErrUnsettled):
		return "glovebox doctor --repair does that, and brings a database of an older version to this one: copy the file first if you want to go back"
	case errors.Is(err, memory.ErrReadOnly):
		return "make the directory writable, or choose another with --data"
	case errors.Is(err, memory.ErrForeign):
		return "choose another data directory with --data"
	case errors.Is(err, memory.ErrConflict):
		return "what was exported goes back to the user it came from, or into a data directory that has none of it"
	case errors.Is(err, source.ErrInsecure):
		return "only https is trusted to say who answers; for a server of this machine there is --plain-http"
	case errors.Is(err, abi.KindUnknownHand):
		return "name a hand of the configuration, a bundled one as bundled:NAME, or a .wasm file"
	case errors.Is(err, signature.ErrUnsigned), errors.Is(err, signature.ErrUnknownKey), errors.Is(err, signature.ErrExpired):
		return "glovebox hand verify says who signed a module; glovebox hand inspect shows its digest"
	case errors.Is(err, abi.KindNotGranted):
		return "glovebox hand inspect shows what a module asks for and its digest; grant it under [hands.NAME.grant], or for one query with --files, --http or --grant"
	}
	return ""
}

// app is what the commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	// terminal tells whether stdout is one.
	terminal bool

	data, configPath string
	asJSON, verbose  bool
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "glovebox",
		Short:         "Ask untrusted plugins for context without trusting them",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&a.data, "data", "", "data directory (default $GLOVEBOX_HOME, else the user's data directory)")
	flags.StringVar(&a.configPath, "config", "", "configuration file (default glovebox.toml in the data directory, if there is one)")
	flags.BoolVar(&a.asJSON, "json", false, "print data as JSON")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log to standard error")
	root.AddCommand(a.demo(), a.serve(), a.chat(), a.hand(), a.session(), a.assemble(), a.memory(), a.user(), a.agent(), a.token(), a.doctor(), a.backup(), a.configCommand(), a.mcp(), a.version())
	refuseBadArguments(root)
	return root
}

// refuseBadArguments makes wrong arguments a usage error in every command.
func refuseBadArguments(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usagef("%w: see %s --help", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		refuseBadArguments(sub)
	}
}

// config returns the configuration that the flags name.
func (a *app) config() (host.Config, error) {
	data, path, err := a.places()
	if err != nil {
		return host.Config{}, err
	}
	if a.configPath == "" {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return a.finished(host.Config{}, data), nil
		}
	}
	config, err := host.LoadConfig(path)
	if err != nil {
		return host.Config{}, err
	}
	return a.finished(config, data), nil
}

// places are the data directory and the configuration file, which need not exist.
func (a *app) places() (data, config string, err error) {
	if data = a.data; data == "" {
		if data, err = host.DefaultData(); err != nil {
			return "", "", err
		}
	}
	if config = a.configPath; config == "" {
		config = filepath.Join(data, "glovebox.toml")
	}
	return data, config, nil
}

func (a *app) finished(config host.Config, data string) host.Config {
	config.Data = data
	config.Log = a.logger()
	return config
}

func (a *app) logger() *slog.Logger {
	level := slog.LevelError
	if a.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }

// onTerminal reports whether a person watches w.
func onTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// group is a command that only has others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(commands...)
	return c
}

// printable leaves out what would steer a terminal or turn the order of what it
// shows: a model's words and an imported transcript's are not ours.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text)
}

// indented sets text off as a quotation.
func indented(text string) string {
	return "    " + strings.ReplaceAll(printable(text), "\n", "\n    ")
}
