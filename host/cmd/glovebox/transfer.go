package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// writer opens the session database for writing, which nobody else may do
// meanwhile, and makes it if there is none.
func (a *app) writer(c *cobra.Command) (memory.Store, error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	path, err := config.DatabasePath()
	if err != nil {
		return nil, err
	}
	return sqlite.Open(c.Context(), path, sqlite.Options{})
}

func (a *app) userExport() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "export USER", Short: "Write everything of a user as JSON lines", Args: cobra.ExactArgs(1),
		Long: "Write everything of a user as JSON lines: conversations, summaries, files and what was learned. The document\n" +
			"does not name the user; glovebox user import reads it.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withUser(c, args[0], func(store memory.Store, user memory.User) error {
				if output == "" || output == "-" {
					return a.export(c, store, user, a.stdout)
				}
				if err := a.sparesDatabases(output); err != nil {
					return err
				}
				return writeFile(output, func(w io.Writer) error { return a.export(c, store, user, w) })
			})
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default standard output)")
	return c
}

// export writes everything of the user to w, and on standard error how much that
// is so far, if a person watches that and does not see the output itself.
func (a *app) export(c *cobra.Command, store memory.Store, user memory.User, w io.Writer) error {
	if !onTerminal(a.stderr) || w == a.stdout && a.terminal {
		return transfer.Export(c.Context(), store, user.ID, w)
	}
	watched := &watchedWriter{w, progress{to: a.stderr}}
	defer watched.clear()
	return transfer.Export(c.Context(), store, user.ID, watched)
}

// sparesDatabases refuses to write over what the data directory is made of: the
// databases, the tokens, the configuration.
func (a *app) sparesDatabases(name string) error {
	there, err := os.Stat(name)
	if err != nil {
		return nil
	}
	path, err := a.databasePath()
	if err != nil {
		return err
	}
	_, config, err := a.places()
	if err != nil {
		return err
	}
	for _, own := range []string{path, ledgerBeside(path), tokensBeside(path), config} {
		for _, ending := range []string{"", "-wal", "-shm", ".lock"} {
			if file, err := os.Stat(own + ending); err == nil && os.SameFile(file, there) {
				return fmt.Errorf("%s is one of glovebox's own files: give another name", name)
			}
		}
	}
	return nil
}

// writeFile writes a file that is there only when it is whole, for its owner
// alone. What is there and no file, such as a device or a pipe, is written to and
// not replaced.
func writeFile(name string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if there, err := os.Stat(name); err == nil && !there.Mode().IsRegular() {
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

func (a *app) userImport() *cobra.Command {
	var options transfer.Options
	c := &cobra.Command{
		Use: "import USER FILE|-", Short: "Store what was exported, or transcripts, for a user", Args: cobra.ExactArgs(2),
		Long: "Store what glovebox user export wrote, or transcripts as glovebox session import takes them, for a user.\n" +
			"What is there already is skipped: an import that was cut short is run again.",
		RunE: func(c *cobra.Command, args []string) error { return a.importFor(c, args[0], args[1], options) },
	}
	importFlags(c, &options)
	return c
}

func (a *app) sessionImport() *cobra.Command {
	var (
		options       transfer.Options
		user, session string
	)
	c := &cobra.Command{
		Use: "import FILE|-", Short: "Store the conversations of a transcript", Args: cobra.ExactArgs(1),
		Long: "Store the conversations of a transcript as OpenAI's interface has them: {\"messages\": [...]}, several of these,\n" +
			"a list of messages, or one message a line. What is there already is skipped, so that a transcript which has\n" +
			"grown can be imported again. What tools said is stored as external text.",
		RunE: func(c *cobra.Command, args []string) error {
			if session != "" {
				id, err := memory.ParseID[memory.SessionID](session)
				if err != nil {
					return usagef("--session %q: give an id from glovebox session list, or a new UUID", session)
				}
				options.Session = id
			}
			return a.importFor(c, user, args[0], options)
		},
	}
	userFlag(c, &user)
	importFlags(c, &options)
	c.Flags().StringVar(&session, "session", "", "conversation that takes the messages (default one that is found by how the transcript begins)")
	return c
}

func importFlags(c *cobra.Command, options *transfer.Options) {
	c.Flags().StringVar(&options.Agent, "agent", host.DefaultAgent, "whom the conversations of a transcript are with")
	c.Flags().IntVar(&options.MaxLine, "max-line", transfer.DefaultMaxLine, "bytes that one record or message may have")
}

// importFor stores a document for the user of this name and says what became of
// it, also when it failed: what was stored stays.
func (a *app) importFor(c *cobra.Command, name, path string, options transfer.Options) error {
	if !memory.ValidName(options.Agent) {
		return usagef("--agent %q: a name is made of a-z, 0-9, '.', '_' and '-'", options.Agent)
	}
	if options.MaxLine <= 0 {
		return usagef("--max-line %d: give a number of bytes", options.MaxLine)
	}
	in := a.stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	store, err := a.writer(c)
	if err != nil {
		return err
	}
	user, err := userNamed(c, store, name)
	if err == nil {
		var report transfer.Report
		if onTerminal(a.stderr) {
			watched := &watchedReader{in, progress{to: a.stderr}}
			report, err = transfer.Import(c.Context(), store, user.ID, watched, options)
			watched.clear()
		} else {
			report, err = transfer.Import(c.Context(), store, user.ID, in, options)
		}
		err = errors.Join(err, a.printImport(report))
	}
	return errors.Join(err, store.Close())
}

func (a *app) printImport(report transfer.Report) error {
	if a.asJSON {
		return a.printJSON(report)
	}
	a.printf("added %s, skipped %s\n", counted(report.Added), counted(report.Skipped))
	return nil
}

// counted lists how many things of each kind there are.
func counted(counts map[memory.RecordKind]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		noun := string(kind) + "s"
		switch {
		case counts[kind] == 1:
			noun = string(kind)
		case kind == memory.RecordSummary:
			noun = "summaries"
		}
		list = append(list, fmt.Sprintf("%d %s", counts[kind], noun))
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// progress tells a person how far a stream has come.
type progress struct {
	to          io.Writer
	done, shown int64
}

// progressStep is how many bytes pass between two reports.
const progressStep = 4 << 20

func (p *progress) pass(n int) {
	p.done += int64(n)
	if p.done-p.shown >= progressStep {
		p.shown = p.done
		fmt.Fprintf(p.to, "\r%d MiB", p.done>>20)
	}
}

func (p *progress) clear() {
	if p.shown > 0 {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

type watchedWriter struct {
	io.Writer
	progress
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.pass(n)
	return n, err
}

type watchedReader struct {
	io.Reader
	progress
}

func (r *watchedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.pass(n)
	return n, err
}
