package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/source"
)

// connection is what the commands that fetch or push share.
type connection struct{ plainHTTP bool }

func (f *connection) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.plainHTTP, "plain-http", false, "speak http with a server of this machine, which has no certificate")
}

// options returns the options, and what ends the line of progress.
func (f *connection) options(a *app) (source.Options, func()) {
	o := source.Options{PlainHTTP: f.plainHTTP, Logins: true}
	if !onTerminal(a.stderr) {
		return o, func() {}
	}
	var moved, shown atomic.Int64
	o.Progress = func(n int) {
		all := moved.Add(int64(n))
		now, last := time.Now().UnixMilli(), shown.Load()
		if now-last > 100 && shown.CompareAndSwap(last, now) {
			fmt.Fprintf(a.stderr, "\r%d KiB\x1b[K", all>>10)
		}
	}
	return o, func() {
		if shown.Load() > 0 {
			fmt.Fprint(a.stderr, "\r\x1b[K")
		}
	}
}

// referenceTo parses what a command line names.
func referenceTo(text string) (source.Reference, error) {
	ref, err := source.Parse(text)
	if err != nil {
		return ref, &usageError{err}
	}
	return ref, nil
}

func (a *app) handPush() *cobra.Command {
	var how connection
	c := &cobra.Command{
		Use: "push FILE.wasm oci://REGISTRY/REPOSITORY:TAG|oci:DIR:TAG", Short: "Publish a hand in an OCI registry, or in a local OCI layout folder",
		Long: "Publish a hand in an OCI registry, or in a local OCI layout folder.\n\n" +
			"The module has to be one that would be admitted, with its manifest in it. Logins are those of docker login and oras login.",
		Example: "  glovebox hand push tickets.wasm oci://ghcr.io/me/tickets:1.2.3",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := referenceTo(args[1])
			if err != nil {
				return err
			}
			module, err := registry.ReadModule(args[0])
			if err != nil {
				return err
			}
			options, done := how.options(a)
			pushed, err := source.Push(c.Context(), ref, module, options)
			done()
			if err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"from": pushed.From, "digest": pushed.Digest, "bytes": pushed.Bytes, "annotations": pushed.Annotations})
			}
			a.printf("%s\n%s\n", pushed.From, pushed.Digest)
			return nil
		},
	}
	how.flags(c)
	return c
}

func (a *app) handPull() *cobra.Command {
	var (
		how    connection
		output string
	)
	c := &cobra.Command{
		Use: "pull FILE|https://…|oci://…|oci:DIR", Short: "Fetch a module without installing it, to look at it",
		Long: "Fetch a module without installing it, to look at it.\n\n" +
			"The file appears when the module is there whole and its digest is right, else not at all. A file that is there already is\nleft alone unless it is named with --output.",
		Example: "  glovebox hand pull oci://ghcr.io/me/tickets:1.2.3 -o tickets.wasm\n  glovebox hand inspect tickets.wasm",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := referenceTo(args[0])
			if err != nil {
				return err
			}
			options, done := how.options(a)
			artifact, err := source.Fetch(c.Context(), ref, options)
			done()
			if err != nil {
				return err
			}
			file := output
			if file == "" {
				// Nothing that a server says names a file.
				file = strings.TrimPrefix(artifact.Digest, "sha256:")[:16] + ".wasm"
				if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("%s is there already: name the file to write with --output", file)
				}
			}
			if err := replaceFile(file, artifact.Module); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"file": file, "from": artifact.From, "digest": artifact.Digest, "bytes": len(artifact.Module)})
			}
			a.printf("%s\n%s\n%s\n", file, artifact.From, artifact.Digest)
			return nil
		},
	}
	how.flags(c)
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default the beginning of the module's digest, with .wasm)")
	return c
}
