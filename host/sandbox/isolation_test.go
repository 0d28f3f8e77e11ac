package sandbox_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	cbuild "github.com/gloveboxhq/glovebox/sdk/c/build"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
	rustbuild "github.com/gloveboxhq/glovebox/sdk/rust/build"
)

var (
	isolation     = flag.Int("isolation", 1200, "queries of TestIsolation that begin from mapped images; 100000 is the whole of it")
	isolationSeed = flag.Uint64("isolation-seed", 1, "what decides who is asked what in TestIsolation")
)

// The hands in testdata/isolation do one of three things.
//
//	dirty WORD MODE   writes the word, of 16 hexadecimal digits, into every kind of state
//	                  that the language has, takes more memory and fills it, and ends as
//	                  the mode says, by its first letter. If it answers, it has looked
//	                  that all is still as it was written: "kept WORD".
//	read              answers with a reading of all that it can see.
//	world             answers with the wall clock, another clock and chance.
//
// The upper half of each word is mark, the lower half the number of the query: a word that
// is found says who left it.
const mark = 0x5ca1ab1e

// reading is what a hand sees of its own state: eight numbers.
type reading struct {
	pages, hash    uint64 // of the memory as the query found it
	grown, nonzero uint64 // pages that it could grow by, and words in them that are not zero
	marks          uint64 // words that dirty queries left
	where, word    uint64 // the first of them
	state          uint64 // of globals, tables, or where its stack begins
}

func parseReading(text string) (r reading, err error) {
	fields := strings.Fields(text)
	all := []*uint64{&r.pages, &r.hash, &r.grown, &r.nonzero, &r.marks, &r.where, &r.word, &r.state}
	if len(fields) != len(all) {
		return r, fmt.Errorf("%d fields in a reading: %q", len(fields), text)
	}
	for i, field := range fields {
		if *all[i], err = strconv.ParseUint(field, 16, 64); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r reading) String() string {
	text := fmt.Sprintf("%d pages with the hash %016x, %d more with %d words that are not zero, state %016x", r.pages, r.hash, r.grown, r.nonzero, r.state)
	if r.marks > 0 {
		text += fmt.Sprintf("; %d words of others, the first at %#x of query %d", r.marks, r.where, uint32(r.word))
	}
	return text
}

// modes are how a dirty query ends.
var modes = []struct {
	name string
	// kinds are what it may end as; "" is an answer.
	kinds []abi.Kind
}{
	{"answer", []abi.Kind{""}},
	// While it waits for the host, the same hand is asked to read.
	{"wait", []abi.Kind{""}},
	{"grow", []abi.Kind{""}}, // to the limit and beyond
	{"trap", []abi.Kind{abi.KindTrap}},
	{"half", []abi.Kind{abi.KindTrap}},                       // in the middle of it all
	{"burst", []abi.Kind{abi.KindOutOfMemory, abi.KindTrap}}, // the same, and trap: a memory may have a limit of its own
	{"loop", []abi.Kind{abi.KindOutOfFuel}},
	{"recurse", []abi.Kind{abi.KindStackOverflow, abi.KindOutOfMemory, abi.KindTrap}},
	{"exit", []abi.Kind{abi.KindExit}},
	{"fail", []abi.Kind{abi.KindHandFailed}},
	{"sleep", []abi.Kind{abi.KindTimeout}},
	{"cancel", []abi.Kind{abi.KindTimeout}},
	{"panic", []abi.Kind{abi.KindUnavailable}}, // of the host, in a call of the hand
}

// specimen is a hand of testdata/isolation.
type specimen struct {
	name  string
	build func(ctx context.Context) ([]byte, error)
	// memory are the limits that it is loaded with. What is compiled is of one limit: Go,
	// which takes a second, has one.
	memory [2]int64
	// chancy says that its memory holds what the clock or chance have decided.
	chancy bool
	// command says that its failures have one kind: that it exited with a code.
	command bool
	// stage is where its queries begin.
	stage sandbox.Stage
}

const isolationDir = "testdata/isolation"

// specimens are all the hands; each is built once.
var specimens = []specimen{
	{name: "c", build: built(buildC), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StageInitialised},
	{name: "rust", build: built(buildRust), memory: [2]int64{2 << 20, 3 << 20}, stage: sandbox.StageInitialised},
	{name: "assemblyscript", build: built(buildAssemblyScript), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StageInitialised},
	{name: "go", build: built(buildGo(build.Reactor)), memory: [2]int64{16 << 20, 16 << 20}, stage: sandbox.StageWarmed, chancy: true},
	{name: "go-command", build: built(buildGo(build.Command)), memory: [2]int64{12 << 20, 12 << 20}, stage: sandbox.StageInitialised, chancy: true, command: true},
	{name: "globals", build: built(buildText("globals")), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StageInitialised},
	{name: "tables", build: built(buildText("tables")), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StagePlain},
	{name: "passive", build: built(buildText("passive")), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StagePlain},
	{name: "vectors", build: built(buildText("vectors")), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StagePlain},
	{name: "full", build: built(buildText("full")), memory: [2]int64{1 << 20, 2 << 20}, stage: sandbox.StageInitialised},
}

func built(build func(context.Context) ([]byte, error)) func(context.Context) ([]byte, error) {
	once := sync.OnceValues(func() ([]byte, error) { return build(context.Background()) })
	return func(context.Context) ([]byte, error) { return once() }
}

func buildC(ctx context.Context) ([]byte, error) {
	return cbuild.Hand(ctx, filepath.Join(isolationDir, "c"), cbuild.Reactor)
}

func buildRust(ctx context.Context) ([]byte, error) {
	return rustbuild.Hand(ctx, filepath.Join(isolationDir, "rust"))
}

func buildGo(profile build.Profile) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		return build.Hand(ctx, filepath.Join(isolationDir, "go"), profile)
	}
}

// buildAssemblyScript takes the compiler that the SDK is tested with, and not the SDK, whose
// hands have no collector: this one has a heap that it collects.
func buildAssemblyScript(ctx context.Context) ([]byte, error) {
	const sdk = "../../sdk/assemblyscript"
	compiler := filepath.Join(sdk, "node_modules", "assemblyscript", "bin", "asc.js")
	if _, err := os.Stat(compiler); err != nil {
		return nil, fmt.Errorf("the AssemblyScript compiler: %w: npm ci in %s", exec.ErrNotFound, sdk)
	}
	return compiled(ctx, "install Node.js 20 or newer", "node", compiler, filepath.Join(isolationDir, "assemblyscript", "index.ts"),
		"-O3", "--use", "abort=", "--runtime", "incremental", "--exportStart", "_initialize", "-o")
}

// buildText builds a hand in the text format, behind what all of them begin with.
func buildText(name string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		text := "(module\n"
		for _, part := range []string{"prelude", name} {
			source, err := os.ReadFile(filepath.Join(isolationDir, "wat", part+".wat"))
			if err != nil {
				return nil, err
			}
			text += string(source)
		}
		return assemble(ctx, text+")")
	}
}

// assemble builds a module in the text format.
func assemble(ctx context.Context, text string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "glovebox-isolation-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "hand.wat")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return compiled(ctx, "apt-get install wabt", "wat2wasm", source, "-o")
}

// compiled runs a compiler, whose last argument is where to write to.
func compiled(ctx context.Context, remedy, program string, args ...string) ([]byte, error) {
	if _, err := exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, exec.ErrNotFound, remedy)
	}
	dir, err := os.MkdirTemp("", "glovebox-isolation-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	output := filepath.Join(dir, "hand.wasm")
	if printed, err := exec.CommandContext(ctx, program, append(args, output)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", program, err, printed)
	}
	return os.ReadFile(output)
}

// needed builds a specimen, or skips the test where there is no toolchain for it.
func (s specimen) needed(t *testing.T) []byte {
	t.Helper()
	module, err := s.build(t.Context())
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// caged is a specimen in an engine.
type caged struct {
	specimen
	module *sandbox.Module
	// first is what it reads in an engine that has never been asked anything else.
	first reading
}

// cage loads a specimen. Fuel is for as much as it ever needs.
func cage(t testing.TB, engine *sandbox.Engine, s specimen, memory, fuel int64) *sandbox.Module {
	t.Helper()
	module, err := s.build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := engine.Load(t.Context(), module, sandbox.Options{
		Name: s.name, Granted: []abi.Capability{abi.CapabilityFiles}, Trusted: true,
		// Each of eight workers may have a query that waits while another reads.
		Limits: abi.Limits{Timeout: 5 * time.Minute, MemoryBytes: memory, StackBytes: 4 << 20, Fuel: fuel, Concurrent: 16},
	})
	if err != nil {
		t.Fatal(s.name, err)
	}
	return loaded
}

// asked is the same query but for its prompt, what the user of the hand is called there and
// what is configured.
func asked(prompt, subject string) abi.Query {
	now := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	return abi.Query{Prompt: prompt, From: now.Add(-time.Hour), To: now, Now: now, Timezone: "UTC", MaxOutputTokens: 1000, Subject: subject, Config: map[string]any{"key": subject}}
}

// read asks for a reading in a world without chance.
func (c caged) read(ctx context.Context) (reading, sandbox.Result, error) {
	return readIn(ctx, c.module, sandbox.Ports{Fixed: &sandbox.Fixed{Now: time.Unix(1_800_000_000, 0), Seed: 7}})
}

func readIn(ctx context.Context, module *sandbox.Module, ports sandbox.Ports) (reading, sandbox.Result, error) {
	result, err := module.Query(ctx, asked("read", "reader"), ports)
	if err != nil {
		return reading{}, result, fmt.Errorf("%w: %s", err, boundary.Neutral(result.Said))
	}
	r, err := parseReading(boundary.Neutral(result.Reply))
	return r, result, err
}

// readClean asks for a reading, in a world with chance or without, and says what is wrong
// with it.
func (c caged) readClean(ctx context.Context, live bool) error {
	var r reading
	var err error
	if live {
		r, _, err = readIn(ctx, c.module, sandbox.Ports{})
	} else {
		r, _, err = c.read(ctx)
	}
	if err != nil {
		return err
	}
	return c.clean(r, live && c.chancy)
}

// clean says what is wrong with a reading.
func (c caged) clean(r reading, chancy bool) error {
	switch {
	case r.marks > 0:
		return fmt.Errorf("it reads what query %d left: %v", uint32(r.word), r)
	case r.nonzero > 0 || r.pages != c.first.pages || r.grown != c.first.grown:
		return fmt.Errorf("it reads %v; at first it was %v", r, c.first)
	case r != c.first && !chancy:
		return fmt.Errorf("it reads %v; at first it was %v", r, c.first)
	}
	return nil
}

// door is what is outside of the box: the host's end of a call in which something happens.
type door map[string]func()

func (door) List(context.Context, abi.FilesListRequest) (abi.FilesListResult, error) {
	return abi.FilesListResult{}, abi.KindNotFound
}

func (d door) Read(_ context.Context, r abi.FilesReadRequest) ([]byte, error) {
	if happen := d[r.Path]; happen != nil {
		happen()
	}
	return nil, abi.KindNotFound
}

// dirty asks for dirt; it says what is wrong with how that ends.
func (c caged) dirty(ctx context.Context, n int, mode string, kinds []abi.Kind, fixed bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var inner error
	open := door{
		"cancel": cancel,
		"panic":  func() { panic("a fault of the host") },
		"pause": func() {
			r, _, err := c.read(ctx)
			if inner = err; err == nil {
				inner = c.clean(r, false)
			}
		},
	}
	if mode == "sleep" {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, 5*time.Millisecond)
		defer stop()
	}
	ports := sandbox.Ports{Files: open}
	if fixed && mode != "sleep" {
		ports.Fixed = &sandbox.Fixed{Now: time.Unix(1_700_000_000, int64(n)), Seed: uint64(n)}
	}
	word := fmt.Sprintf("%08x%08x", mark, n)
	result, err := c.module.Query(ctx, asked("dirty "+word+" "+mode, "user "+word), ports)
	kind := abi.KindOf(err)
	if c.command && kind == abi.KindHandFailed {
		kind = kinds[0]
	}
	switch {
	case !slices.Contains(kinds, kind):
		return fmt.Errorf("it ended as %q: %w: %s", kind, err, boundary.Neutral(result.Said))
	case err == nil && boundary.Neutral(result.Reply) != "kept "+word:
		return fmt.Errorf("it says %q of the word %s", boundary.Neutral(result.Reply), word)
	case mode == "cancel" && !errors.Is(err, context.Canceled):
		return fmt.Errorf("it ended with %w", err)
	case inner != nil:
		return fmt.Errorf("asked meanwhile: %w", inner)
	}
	return nil
}

// zoo loads all specimens there are toolchains for, with each of their limits, into engines
// that share a cache. What each reads at first comes from engines of its own.
func zoo(t *testing.T, config sandbox.Config) (all []caged) {
	engines := []*sandbox.Engine{newEngine(t, config), newEngine(t, config)}
	for _, s := range specimens {
		if _, err := s.build(t.Context()); errors.Is(err, exec.ErrNotFound) {
			t.Logf("%s is left out: %v", s.name, err)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, memory := range s.memory {
			c, fuel := firstOf(t, config, s, memory)
			for _, engine := range engines {
				c.module = cage(t, engine, s, memory, fuel)
				all = append(all, c)
			}
		}
	}
	return all
}

// firstOf returns a specimen with its first reading, and the fuel that bounds its loops: what
// it needs at most, and half as much again.
func firstOf(t *testing.T, config sandbox.Config, s specimen, memory int64) (caged, int64) {
	t.Helper()
	engine := newEngine(t, config)
	defer engine.Close()
	c := caged{specimen: s, module: cage(t, engine, s, memory, 0)}
	first, result, err := c.read(t.Context())
	if err != nil {
		t.Fatal(s.name, err)
	}
	if first.marks > 0 || first.nonzero > 0 || first.pages == 0 || int64(first.pages+first.grown)<<16 > memory {
		t.Fatalf("%s of %d bytes reads at first %v", s.name, memory, first)
	}
	c.first = first
	dirty, err := c.module.Query(t.Context(), asked(fmt.Sprintf("dirty %08x%08x grow", mark, 0), "first"), sandbox.Ports{})
	if err != nil {
		t.Fatal(s.name, err)
	}
	return c, max(result.Fuel, dirty.Fuel) * 3 / 2
}

// ways are how instances can begin.
var ways = [...]struct {
	name   string
	images sandbox.Images
	// share is one of how many queries of TestIsolation begin so.
	share int
}{{"mapped", sandbox.ImagesMapped, 1}, {"copied", sandbox.ImagesCopied, 2}, {"off", sandbox.ImagesOff, 8}}

// No byte of a query is seen by another one, of whatever hand, with whatever limits, however
// it ended, and while it runs. It is so in each way that instances begin.
func TestIsolation(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			queries := *isolation / way.share
			if raced() {
				queries = min(queries, 200)
			}
			interleave(t, zoo(t, sandbox.Config{MemoryBytes: 4 << 30, Images: way.images}), queries)
		})
	}
}

// interleave asks for dirt and for readings, eight at a time, in an order that chance has
// decided.
func interleave(t *testing.T, hands []caged, queries int) {
	var next, answered atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for !t.Failed() {
				n := int(next.Add(2))
				if n > queries {
					return
				}
				chance := rand.New(rand.NewPCG(*isolationSeed, uint64(n)))
				c, mode := hands[chance.IntN(len(hands))], modes[chance.IntN(len(modes))]
				if err := c.dirty(t.Context(), n, mode.name, mode.kinds, chance.IntN(2) == 0); err != nil {
					t.Errorf("query %d: %s of %d pages is dirty and ends by %s: %v", n, c.name, c.first.pages+c.first.grown, mode.name, err)
				}
				if chance.IntN(4) == 0 {
					c = hands[chance.IntN(len(hands))]
				}
				if err := c.readClean(t.Context(), chance.IntN(2) == 0); err != nil {
					t.Errorf("query %d: %s of %d pages is asked to read: %v", n+1, c.name, c.first.pages+c.first.grown, err)
				}
				answered.Add(2)
			}
		})
	}
	group.Wait()
	t.Logf("%d queries of %d hands, seed %d", answered.Load(), len(hands), *isolationSeed)
}

// All the hands of this suite can be built here, or it is said what is missing; and their
// queries begin where this suite takes them to begin.
func TestIsolationHandsBeginFromImages(t *testing.T) {
	for _, s := range specimens {
		t.Run(s.name, func(t *testing.T) {
			s.needed(t)
			for _, way := range ways {
				image := cage(t, newEngine(t, sandbox.Config{Images: way.images}), s, s.memory[0], 0).Image()
				want := s.stage
				if way.images == sandbox.ImagesOff {
					want = sandbox.StagePlain
				}
				if image.Stage != want || (image.Bytes > 0) != (want != sandbox.StagePlain) || s.stage == sandbox.StagePlain && image.Reason == "" {
					t.Errorf("%s: %+v, want %s", way.name, image, want)
				}
			}
		})
	}
}

// What a query reads at first does not depend on the way it began, nor on who made the image.
func TestIsolationReadsTheSameInEachWay(t *testing.T) {
	for _, s := range specimens {
		t.Run(s.name, func(t *testing.T) {
			s.needed(t)
			var first [len(ways)][2]reading
			for n, way := range ways {
				for again := range first[n] {
					forgetImages(t, cacheDir)
					c, _ := firstOf(t, sandbox.Config{Images: way.images}, s, s.memory[0])
					first[n][again] = c.first
				}
				if first[n][0] != first[n][1] {
					t.Errorf("%s: %v, and by another engine %v", way.name, first[n][0], first[n][1])
				}
			}
			// Where instances begin plainly, the clock and chance of the query have decided some of it.
			if first[0] != first[1] || first[0] != first[2] && !s.chancy {
				t.Errorf("%v", first)
			}
		})
	}
}

// forgetImages removes the images from a cache, so that they are taken again.
func forgetImages(t *testing.T, dir string) {
	t.Helper()
	images, err := filepath.Glob(filepath.Join(dir, "*", "*", "image"))
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		if err := os.Remove(image); err != nil {
			t.Fatal(err)
		}
	}
}

// In every query, the clocks and chance are the machine's.
func TestIsolationLeavesTheWorldAlive(t *testing.T) {
	for _, s := range specimens {
		t.Run(s.name, func(t *testing.T) {
			s.needed(t)
			for _, way := range ways {
				module := cage(t, newEngine(t, sandbox.Config{Images: way.images}), s, s.memory[0], 0)
				type world struct {
					now, since int64
					chance     string
				}
				var worlds []world
				for range 20 {
					before := time.Now().UnixNano()
					result, err := module.Query(t.Context(), asked("world", ""), sandbox.Ports{})
					after := time.Now().UnixNano()
					if err != nil {
						t.Fatal(err)
					}
					fields := strings.Fields(boundary.Neutral(result.Reply))
					if len(fields) < 3 || len(fields[2]) < 16 {
						t.Fatalf("%q", fields)
					}
					var w world
					w.now, _ = strconv.ParseInt(fields[0], 0, 64)
					w.since, _ = strconv.ParseInt(fields[1], 0, 64)
					w.chance = fields[2]
					if w.now < before || w.now > after {
						t.Errorf("%s: it is %d there, between %d and %d here", way.name, w.now, before, after)
					}
					for _, earlier := range worlds {
						if w.chance == earlier.chance || w.since <= earlier.since && !s.chancy {
							t.Errorf("%s: %v, and earlier %v", way.name, w, earlier)
						}
					}
					worlds = append(worlds, w)
				}
			}
		})
	}
}
