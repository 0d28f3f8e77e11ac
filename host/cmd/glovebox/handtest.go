package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/handtest"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	vectors "github.com/gloveboxhq/glovebox/testdata/abi"
)

// tested is what hand test prints.
type tested struct {
	File   string `json:"file"`
	Hand   string `json:"hand"`
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
	// Image is absent if the module is not loaded.
	Image  *beginning   `json:"image,omitempty"`
	Passed bool         `json:"passed"`
	Checks []testedRow  `json:"checks"`
	Limits testedLimits `json:"limits"`
}

type testedRow struct {
	Name   string      `json:"name"`
	Passed bool        `json:"passed"`
	Faults []string    `json:"faults,omitempty"`
	Note   string      `json:"note,omitempty"`
	Cost   *testedCost `json:"cost,omitempty"`
}

type testedCost struct {
	Tokens      int     `json:"tokens"`
	Bytes       int     `json:"bytes"`
	Ms          float64 `json:"ms"`
	Fuel        int64   `json:"fuel"`
	MemoryBytes int64   `json:"memory_bytes"`
	Calls       int     `json:"calls"`
}

// testedLimits are what a query may use at most where nothing is configured.
type testedLimits struct {
	Ms          float64 `json:"ms"`
	Fuel        int64   `json:"fuel"`
	MemoryBytes int64   `json:"memory_bytes"`
	Calls       int     `json:"calls"`
}

// handTester is one hand test command line.
type handTester struct {
	*app
	reference, name string
	granted         grantFlags
	values          []string
	timeout         time.Duration
	sample          bool
}

func (a *app) handTest() *cobra.Command {
	t := &handTester{app: a}
	watch := false
	c := &cobra.Command{
		Use:   "test FILE.wasm|bundled:NAME",
		Short: "Check that a hand keeps the contract, and show what it costs",
		Long: "Check that a hand keeps the contract, and show what it costs.\n\nThe module is held against its manifest and then asked the published queries, each several times: under the same\n" +
			"clock and random numbers, and under others, which reach what it does before the query too. It needs the grants\n" +
			"and values that it would be used with.",
		Example: "  glovebox hand test hand.wasm\n  glovebox hand test hand.wasm --files docs=testdata --grant kv --set project=demo --watch",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			t.reference = args[0]
			if !isModule(t.reference) {
				return usagef("%q is no module: name a file such as ./hand.wasm, or bundled:NAME", t.reference)
			}
			if t.sample && (!t.granted.isZero() || len(t.values) > 0) {
				return usagef("--sample brings its own files, values and configuration: leave out --files, --http, --allow-private, --grant and --set")
			}
			if err := checkTimeout(t.timeout); err != nil {
				return err
			}
			if watch {
				return t.watch(c.Context())
			}
			passed, err := t.run(c.Context())
			if err == nil && !passed {
				return errReported
			}
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&t.name, "name", "", "name for a file (default its manifest's)")
	t.granted.register(flags)
	flags.StringArrayVar(&t.values, "set", nil, "set a value of the hand: KEY=VALUE, repeatable")
	flags.DurationVar(&t.timeout, "timeout", 0, "wall time for each query (default 30s)")
	flags.BoolVar(&t.sample, "sample", false, "check the sample hand of an SDK, which abi/conformance/SAMPLE.md describes")
	flags.BoolVar(&watch, "watch", false, "check again whenever the file changes")
	return c
}

// run checks the module as it is now and prints what came of it. The error is of
// what kept the check from being done.
func (t *handTester) run(ctx context.Context) (passed bool, err error) {
	module, _, err := host.ModuleOf(t.reference, "")
	if err != nil {
		return false, err
	}
	if t.name != "" && !manifest.ValidName(t.name) {
		return false, usagef("--name %q: use 1 to 63 of a-z, 0-9 and -, not beginning with -", t.name)
	}
	shown := tested{File: t.reference, Hand: t.name, Digest: sandbox.Digest(module), Bytes: len(module)}
	if shown.Hand == "" {
		shown.Hand = nameOf(module, t.reference)
	}
	var report conformance.Report
	if t.sample {
		report, shown.Image, err = t.checkSample(ctx, module)
	} else {
		report, shown.Image, err = t.checkHand(ctx, module, shown.Hand)
	}
	if err != nil {
		return false, err
	}
	shown.add(report)
	if t.asJSON {
		return shown.Passed, t.printJSON(shown)
	}
	t.print(shown)
	return shown.Passed, nil
}

func (t *handTester) checkHand(ctx context.Context, module []byte, name string) (report conformance.Report, image *beginning, err error) {
	kit, err := conformance.ReadKit(vectors.Files)
	if err != nil {
		return report, nil, err
	}
	values, err := setValues(module, t.values)
	if err != nil {
		return report, nil, err
	}
	// What is wrong with the command line is no fault of the hand.
	if _, err := t.granted.config(); err != nil {
		return report, nil, err
	}
	outline, err := sandbox.Inspect(module)
	if err != nil {
		outline.Refusal = err
	}
	hand := conformance.Hand{Refusal: outline.Refusal, Manifest: outline.Manifest, Values: values}
	for _, i := range outline.Imports {
		hand.Imports = append(hand.Imports, i.Module)
	}
	hand.Load = func(ctx context.Context) (conformance.Runner, func() error, error) {
		config, cleanup, err := t.queryConfig(t.reference, name, t.granted, t.values, t.timeout)
		if err != nil {
			return nil, nil, err
		}
		free := func() error {
			cleanup()
			return nil
		}
		h, err := open(ctx, config)
		if err != nil {
			return nil, nil, errors.Join(withFlags(err, outline), free())
		}
		run, err := h.HandRunner(ctx, name)
		if err != nil {
			return nil, nil, errors.Join(err, h.Close(), free())
		}
		image = beginningIn(h, name)
		return run, func() error { return errors.Join(h.Close(), free()) }, nil
	}
	report, err = kit.Check(ctx, hand)
	return report, image, err
}

// withFlags says which flags would grant what a module imports and was not granted.
func withFlags(err error, outline sandbox.Outline) error {
	if abi.KindOf(err) != abi.KindNotGranted {
		return err
	}
	m, bad := manifest.Parse(outline.Manifest)
	if bad != nil {
		return err
	}
	var flags []string
	for _, p := range m.Permissions {
		switch p.Capability {
		case abi.CapabilityFiles:
			for _, root := range p.Paths {
				flags = append(flags, "--files "+root+"=DIR")
			}
		case abi.CapabilityHTTP:
			flags = append(flags, "--http RULE")
		default:
			flags = append(flags, "--grant "+string(p.Capability))
		}
	}
	return fmt.Errorf("%w; all that it asks for is granted by %s", err, strings.Join(flags, " "))
}

// checkSample gives the module every capability: each case decides what of it there
// is.
func (t *handTester) checkSample(ctx context.Context, module []byte) (conformance.Report, *beginning, error) {
	sample, err := conformance.ReadSample(vectors.Files)
	if err != nil {
		return conformance.Report{}, nil, err
	}
	compiler, err := registry.Self()
	if err != nil {
		return conformance.Report{}, nil, err
	}
	engine, err := sandbox.New(sandbox.Config{Compiler: compiler})
	if err != nil {
		return conformance.Report{}, nil, err
	}
	options := sandbox.Options{Name: "sample", Limits: abi.Limits{Timeout: t.timeout}, Granted: abi.Capabilities()}
	loaded, err := engine.Load(ctx, module, options)
	if err != nil {
		return conformance.Report{}, nil, errors.Join(err, engine.Close())
	}
	options.FromStart = true
	fromStart, err := engine.Load(ctx, module, options)
	if err != nil {
		return conformance.Report{}, nil, errors.Join(err, engine.Close())
	}
	report, err := sample.Check(ctx, handtest.Runner(loaded, fromStart, nil))
	return report, beginningOf(loaded.Image()), errors.Join(err, engine.Close())
}

// add takes a report in, with what the hand's author wrote made harmless to a
// terminal.
func (s *tested) add(report conformance.Report) {
	s.Passed = report.Passed()
	d := abi.DefaultLimits()
	s.Limits = testedLimits{float64(d.Timeout.Milliseconds()), d.Fuel, d.MemoryBytes, d.Calls}
	for _, check := range report.Checks {
		row := testedRow{Name: check.Name, Passed: check.Passed(), Note: onOneLine(check.Note)}
		for _, fault := range check.Faults {
			row.Faults = append(row.Faults, onOneLine(fault))
		}
		if check.Name == conformance.CheckConfig && !row.Passed {
			row.Note = "values are given with --set KEY=VALUE"
		}
		if c := check.Cost; c != nil {
			row.Cost = &testedCost{c.Tokens, c.Bytes, float64(c.Took.Microseconds()) / 1000, c.Fuel, c.MemoryBytes, c.Calls}
		}
		s.Checks = append(s.Checks, row)
	}
}

func onOneLine(text string) string {
	return strings.Join(strings.Fields(printable(text)), " ")
}

func (t *handTester) print(s tested) {
	t.printf("%s  %s, %.1f KiB\n", s.Hand, s.Digest[:len("sha256:")+12], float64(s.Bytes)/1024)
	if s.Image != nil {
		t.printf("each query begins %s\n", s.Image)
	}
	t.printf("\n")
	rows := s.Checks
	if t.sample {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r testedRow) bool { return r.Passed })
	}
	failed := 0
	for _, row := range rows {
		state := "ok  "
		if !row.Passed {
			state = "FAIL"
			failed++
		}
		said := row.Faults
		if row.Note != "" {
			said = append(said, row.Note)
		}
		t.printf("%s\n", strings.TrimRight(fmt.Sprintf("%s  %-15s %s", state, row.Name, strings.Join(said, "\n"+strings.Repeat(" ", 22))), " "))
	}
	if !t.sample {
		t.printCosts(s)
	}
	t.printf("\n%d checks, %d failed\n", len(s.Checks), failed)
}

// printCosts shows what each query took, and what it may take at most.
func (t *handTester) printCosts(s tested) {
	if !slices.ContainsFunc(s.Checks, func(r testedRow) bool { return r.Cost != nil }) {
		return
	}
	t.printf("\n")
	table := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\ttokens\tbytes\tms\tfuel\tmemory\tcalls\t\n")
	for _, row := range s.Checks {
		if c := row.Cost; c != nil {
			fmt.Fprintf(table, "%s\t%d\t%d\t%.2f\t%d\t%s\t%d\t\n", row.Name, c.Tokens, c.Bytes, c.Ms, c.Fuel, mebibytes(c.MemoryBytes), c.Calls)
		}
	}
	fmt.Fprintf(table, "at most\t\t\t%.0f\t%d\t%s\t%d\t\n", s.Limits.Ms, s.Limits.Fuel, mebibytes(s.Limits.MemoryBytes), s.Limits.Calls)
	_ = table.Flush() // a failed write is remembered by stdout
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// watchEvery is how often a watched file is looked at: asking the file system costs
// nothing at that pace, and works on every system and share.
const watchEvery = 200 * time.Millisecond

// watch checks the file, and again whenever it has changed and been left alone
// since: a linker writes for a while. It ends with ctx, which is no failure.
func (t *handTester) watch(ctx context.Context) error {
	if strings.HasPrefix(t.reference, bundledPrefix) {
		return usagef("--watch is for a file: %s does not change", t.reference)
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last, checked fileState
	for first := true; ; first = false {
		seen := stateOf(t.reference)
		if first || seen == last && seen != checked {
			checked = seen
			if _, err := t.run(ctx); err != nil && ctx.Err() == nil {
				usage := (*usageError)(nil)
				if errors.As(err, &usage) {
					return err
				}
				printError(t.stderr, err)
			}
			if ctx.Err() == nil {
				fmt.Fprintf(t.stderr, "watching %s; Ctrl-C ends it\n", t.reference)
			}
		}
		last = seen
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// fileState tells one state of a file from another; the zero fileState is that of no file.
type fileState struct {
	modified time.Time
	size     int64
	mode     fs.FileMode
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{info.ModTime(), info.Size(), info.Mode()}
}
