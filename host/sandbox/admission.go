package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// MaxModuleBytes bounds a module.
const MaxModuleBytes = 32 << 20

// Caps on what a module may consist of. The engine's compiler is quadratic in
// some of them, and honest modules stay far below: the largest body seen in a
// Go guest is 46 KB.
const (
	maxFunctions  = 100_000
	maxBodyBytes  = 256 << 10
	maxBranches   = 16_000 // blocks and conditional branches in one body
	maxNesting    = 1000
	maxLocalLoops = 1_000_000 // locals × loops of one body
	maxTypeValues = 1000      // parameters, and results
	// The engine keeps a name of each type until it is closed, and takes time that is
	// quadratic in its length to make it. Programs in Go have 17 types with 64 values.
	maxTypes         = 10_000
	maxAllTypeValues = 100_000
	maxTables        = 16
	maxGlobals       = 100_000
	maxImports       = 1000   // Go repeats some
	maxTargets       = 64_000 // labels of all branch tables in one body
	maxValues        = 1_000_000
)

// admitted is a module that may be compiled, as it goes to the engine.
type admitted struct {
	module  []byte
	Profile Profile
	// Calls are the exports to call, in order, the entry last; Warm is what may
	// be called before the entry, once.
	Calls, Warm []string
	// NotCarried says why an image cannot carry the module; "" if one can, and
	// then the module comes without its data.
	NotCarried string
	// Globals counts the globals that an image holds.
	Globals  int
	UsesWASI bool
	// code are the engine's files in the compiledFolder, by their names there.
	code []string
}

// permitted decodes a module and refuses what it asks for but may not have.
func permitted(module []byte, limits abi.Limits, granted []abi.Capability) (*wasm.Module, error) {
	refuse := func(kind abi.Kind, format string, args ...any) (*wasm.Module, error) {
		return nil, &abi.Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
	}
	m, err := decode(module)
	if err != nil {
		return nil, err
	}
	if _, err := profileOf(m); err != nil {
		return nil, err
	}
	for i, imported := range m.Imports {
		if imported.Kind != wasm.KindFunction {
			return refuse(abi.KindBadModule, "import %d is a %s: a hand imports functions only", i, imported.Kind)
		}
		if c, ok := abi.CapabilityOf(imported.Module); ok && !slices.Contains(granted, c) {
			return refuse(abi.KindNotGranted, "it imports %s, which needs the capability %q: grant it, or use a hand that does not need it", imported.Module, c)
		}
		functions, err := contract()
		if err != nil {
			return nil, err
		}
		switch want, ok := functions[function{imported.Module, imported.Name}]; {
		case !ok:
			return refuse(abi.KindBadModule, "import %d is not in ABI %d (%s)", i, abi.Version, plainName(imported))
		case int(imported.Function) < len(m.Types) && !equalTypes(m.Types[imported.Function], want):
			return refuse(abi.KindBadModule, "import %d is not in ABI %d with this type (%s): there it takes %v and returns %v", i, abi.Version, plainName(imported), want.Params, want.Results)
		}
	}
	for _, memory := range m.Memories {
		if memory.Min*wasm.PageBytes > uint64(limits.MemoryBytes) {
			return refuse(abi.KindOutOfMemory, "it needs %d MiB of memory from the start: the limit is %d MiB",
				memory.Min*wasm.PageBytes>>20, limits.MemoryBytes>>20)
		}
	}
	elements := uint64(0)
	for _, table := range m.Tables {
		elements += uint64(table.Min)
	}
	if elements > uint64(limits.TableElements) {
		return refuse(abi.KindOutOfMemory, "its tables begin with %d elements: the limit is %d", elements, limits.TableElements)
	}
	return m, nil
}

// admit decides whether a module may be compiled at all, before the engine sees
// a byte of it: it is held against the caps and validated as it is; only then
// is it clamped and metered, and its data taken out if an image is to hold them. It
// uses m up.
func admit(m *wasm.Module, limits abi.Limits, images bool) (a admitted, err error) {
	if a.Profile, err = profileOf(m); err != nil {
		return a, err
	}
	if err := checkCaps(m); err != nil {
		return a, &abi.Error{Kind: abi.KindBadModule, Text: "over a cap", Err: err}
	}
	if err := m.Validate(); err != nil {
		return a, &abi.Error{Kind: abi.KindBadModule, Text: "invalid module", Err: err}
	}
	if err := a.findCalls(m); err != nil {
		return a, err
	}
	a.UsesWASI = slices.ContainsFunc(m.Imports, func(i wasm.Import) bool { return i.Module == abi.ModuleWASI })
	if a.NotCarried, err = notCarried(m); err != nil {
		return a, err
	}
	images = images && a.NotCarried == ""
	if images {
		m.Remove(wasm.SectionData)
		m.Remove(wasm.SectionDataCount)
		for _, g := range m.Globals {
			if g.Mutable {
				a.Globals++
			}
		}
	} else {
		joinSegments(m)
	}
	a.module, err = meter.Rewrite(m, meter.Limits{
		TableElements: uint32(limits.TableElements), StackBytes: int32(limits.StackBytes), Slice: slice,
		Globals: images, EagerElements: meter.EagerElements,
	})
	if err != nil {
		return a, &abi.Error{Kind: abi.KindBadModule, Text: "the module cannot be metered", Err: err}
	}
	return a, nil
}

// findCalls finds the exports to call. The start section has become one, so that it
// runs under the limits.
func (a *admitted) findCalls(m *wasm.Module) error {
	if m.Start != nil {
		a.Calls = append(a.Calls, meter.Start)
	}
	type entry struct {
		name    string
		results []wasm.ValueType
		calls   *[]string
	}
	entries := []entry{
		{abi.ExportInitialize, nil, &a.Calls}, {abi.ExportWarm, nil, &a.Warm}, {abi.ExportQuery, []wasm.ValueType{wasm.I32}, &a.Calls},
	}
	if a.Profile == ProfileCommand {
		entries = []entry{{abi.ExportStart, nil, &a.Calls}}
	}
	for _, want := range entries {
		for _, e := range m.Exports {
			if e.Name != want.name || e.Kind != wasm.KindFunction {
				continue
			}
			t := m.FunctionType(e.Index)
			if len(t.Params) > 0 || !slices.Equal(t.Results, want.results) {
				if want.name == abi.ExportWarm {
					continue // it is another thing of that name
				}
				return &abi.Error{Kind: abi.KindBadModule, Text: fmt.Sprintf("export %q has the wrong type", want.name)}
			}
			*want.calls = append(*want.calls, want.name)
		}
	}
	return nil
}

func decode(module []byte) (*wasm.Module, error) {
	if len(module) > MaxModuleBytes {
		return nil, &abi.Error{Kind: abi.KindBadModule, Text: fmt.Sprintf("module is %d bytes: at most %d are allowed", len(module), MaxModuleBytes)}
	}
	m, err := wasm.Decode(module)
	if err != nil {
		return nil, &abi.Error{Kind: abi.KindBadModule, Text: "malformed module", Err: err}
	}
	return m, nil
}

// checkCaps refuses what would be too much for the engine's compiler.
func checkCaps(m *wasm.Module) error {
	for _, c := range []struct {
		what       string
		have, most int
	}{
		{"types", len(m.Types), maxTypes}, {"functions", len(m.Functions), maxFunctions}, {"tables", len(m.Tables), maxTables}, {"globals", len(m.Globals), maxGlobals},
		{"imports", len(m.Imports), maxImports},
	} {
		if c.have > c.most {
			return fmt.Errorf("%d %s: at most %d are allowed", c.have, c.what, c.most)
		}
	}
	values := 0
	for i, t := range m.Types {
		values += len(t.Params) + len(t.Results)
		if max(len(t.Params), len(t.Results)) > maxTypeValues {
			return fmt.Errorf("type %d has %d parameters and %d results: at most %d are allowed", i, len(t.Params), len(t.Results), maxTypeValues)
		}
	}
	if values > maxAllTypeValues {
		return fmt.Errorf("its types have %d parameters and results: at most %d are allowed", values, maxAllTypeValues)
	}
	perCall := callValues(m)
	for i, b := range m.Bodies {
		if err := checkBody(m, perCall, i, b); err != nil {
			return fmt.Errorf("function %d, code section at byte %d: %w", len(perCall)-len(m.Bodies)+i, b.Offset, err)
		}
	}
	return nil
}

func checkBody(m *wasm.Module, values []int, n int, b wasm.Body) error {
	if b.Size > maxBodyBytes {
		return fmt.Errorf("its body has %d bytes: at most %d are allowed", b.Size, maxBodyBytes)
	}
	s, err := measure(m, values, n, b)
	switch {
	case err != nil:
		return err
	case s.nesting > maxNesting:
		return fmt.Errorf("its blocks nest %d deep: at most %d are allowed", s.nesting, maxNesting)
	case s.branches > maxBranches:
		return fmt.Errorf("%d blocks and branches: at most %d are allowed", s.branches, maxBranches)
	case s.targets > maxTargets:
		return fmt.Errorf("%d labels in branch tables: at most %d are allowed", s.targets, maxTargets)
	case s.values > maxValues:
		return fmt.Errorf("its calls, blocks and branches carry %d values: at most %d are allowed", s.values, maxValues)
	case s.locals*s.loops > maxLocalLoops:
		return fmt.Errorf("%d locals and %d loops: the product is at most %d", s.locals, s.loops, maxLocalLoops)
	}
	return nil
}

// shape is what makes a body dear to compile.
type shape struct {
	locals   int // parameters included
	branches int // blocks and branches
	loops    int
	nesting  int // the deepest
	targets  int // labels of branch tables
	// calls counts calls and bulk instructions, values the parameters and
	// results of calls and blocks and what branches carry.
	calls, values int
}

// measure takes what callValues returned.
func measure(m *wasm.Module, values []int, n int, b wasm.Body) (s shape, err error) {
	s.locals = b.LocalCount
	// labels are what a branch to each open block carries.
	labels := []int{0}
	if t := m.Functions[n]; int(t) < len(m.Types) {
		s.locals += len(m.Types[t].Params)
		labels[0] = len(m.Types[t].Results)
	}
	carried := func(label uint32) int {
		if uint64(label) < uint64(len(labels)) {
			return labels[len(labels)-1-int(label)]
		}
		return 0
	}
	scanner := wasm.NewScanner(b.Expression)
	for scanner.More() {
		i, err := scanner.Next()
		if err != nil {
			return s, err
		}
		switch i.Op {
		case wasm.OpCall:
			s.calls++
			if uint64(i.Index) < uint64(len(values)) {
				s.values += values[i.Index]
			}
		case wasm.OpCallIndirect:
			s.calls++
			if int(i.Index) < len(m.Types) {
				s.values += len(m.Types[i.Index].Params) + len(m.Types[i.Index].Results)
			}
		case wasm.OpMemoryCopy, wasm.OpMemoryFill, wasm.OpMemoryInit, wasm.OpTableCopy, wasm.OpTableFill, wasm.OpTableInit, wasm.OpTableGrow:
			s.calls++
		case wasm.OpLoop, wasm.OpBlock, wasm.OpIf:
			s.branches++
			params, results, _ := m.BlockType(i.Block)
			s.values += len(params) + len(results)
			label := len(results)
			if i.Op == wasm.OpLoop {
				s.loops++
				label = len(params)
			}
			labels = append(labels, label)
			s.nesting = max(s.nesting, len(labels)-1)
		case wasm.OpBr, wasm.OpBrIf:
			s.branches++
			s.values += carried(i.Index)
		case wasm.OpBrTable:
			s.branches++
			s.targets += len(i.Targets)
			for _, label := range i.Targets {
				s.values += carried(label)
			}
		case wasm.OpEnd:
			if len(labels) > 1 {
				labels = labels[:len(labels)-1]
			}
		}
	}
	return s, nil
}

// callValues counts the parameters and results of each function. It is asked
// before validation: a type that does not exist counts nothing.
func callValues(m *wasm.Module) []int {
	var all []int
	add := func(t uint32) {
		n := 0
		if uint64(t) < uint64(len(m.Types)) {
			n = len(m.Types[t].Params) + len(m.Types[t].Results)
		}
		all = append(all, n)
	}
	for _, i := range m.Imports {
		if i.Kind == wasm.KindFunction {
			add(i.Function)
		}
	}
	for _, t := range m.Functions {
		add(t)
	}
	return all
}

// profileOf finds the entry. By WASI's convention a module that exports _start
// is a command, whatever else it exports: nothing else may be called in it.
func profileOf(m *wasm.Module) (Profile, error) {
	query, foreign := false, ""
	for _, e := range m.Exports {
		switch {
		case e.Kind != wasm.KindFunction:
		case e.Name == abi.ExportStart:
			return ProfileCommand, nil
		case e.Name == abi.ExportQuery:
			query = true
		case strings.HasPrefix(e.Name, abi.ExportQueryPrefix):
			foreign = strings.TrimPrefix(e.Name, abi.ExportQueryPrefix)
		}
	}
	switch {
	case query:
		return ProfileReactor, nil
	case isNumber(foreign):
		return "", &abi.Error{Kind: abi.KindABIMismatch, Text: fmt.Sprintf("needs ABI %s, this host speaks %d", foreign, abi.Version)}
	}
	return "", &abi.Error{Kind: abi.KindBadModule, Text: fmt.Sprintf(
		"it exports neither %s nor %s: build it as a reactor or as a WASI command", abi.ExportQuery, abi.ExportStart)}
}

func isNumber(s string) bool {
	return s != "" && len(s) < 10 && strings.Trim(s, "0123456789") == ""
}

// function names an import.
type function struct{ module, name string }

// contract returns the type of every function that a hand may import. Those of WASI are
// the engine's, which has them all.
var contract = sync.OnceValues(func() (map[function]wasm.FunctionType, error) {
	all := map[function]wasm.FunctionType{}
	for _, f := range hostFunctions {
		t := wasm.FunctionType{Params: slices.Repeat([]wasm.ValueType{wasm.I32}, f.params)}
		if f.returns {
			t.Results = []wasm.ValueType{wasm.I32}
		}
		all[function{f.module, f.name}] = t
	}
	ctx := context.Background()
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	wasi, err := wasi_snapshot_preview1.NewBuilder(runtime).Compile(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the types of %s: %w", abi.ModuleWASI, err), runtime.Close(ctx))
	}
	for name, f := range wasi.ExportedFunctions() {
		all[function{abi.ModuleWASI, name}] = wasm.FunctionType{Params: typesOf(f.ParamTypes()), Results: typesOf(f.ResultTypes())}
	}
	return all, runtime.Close(ctx)
})

// typesOf are the engine's types as ours: both are the bytes of the binary format.
func typesOf(types []api.ValueType) (own []wasm.ValueType) {
	for _, t := range types {
		own = append(own, wasm.ValueType(t))
	}
	return own
}

func equalTypes(a, b wasm.FunctionType) bool {
	return slices.Equal(a.Params, b.Params) && slices.Equal(a.Results, b.Results)
}

// plainName shows an import in an error if its names are made of letters that
// cannot carry anything else; they are the author's words.
func plainName(i wasm.Import) string {
	name := i.Module + "." + i.Name
	plain := len(name) <= 80 && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-", r)
	}) < 0
	if !plain {
		return "its name is not shown: it is long or has unusual characters"
	}
	return name
}

// Outline is what a module says of itself without being run.
type Outline struct {
	Digest      string
	Bytes       int
	Profile     Profile
	Imports     []wasm.Import
	Exports     []wasm.Export
	Sections    []wasm.Section
	Permissions []abi.Capability
	// Memory is what the module declares, and is nil if it has none;
	// MemoryPages is what it can grow to with the default limits.
	Memory      *wasm.Memory
	MemoryPages uint64
	// Tables are what the module declares; TableMax are the maxima that they
	// are clamped to.
	Tables    []wasm.Table
	TableMax  []uint32
	Functions int
	// NoImage says why queries of the module cannot begin from an image; "" if
	// they can, or if Refusal is not nil. Warms says that it exports
	// abi.ExportWarm.
	NoImage string
	Warms   bool
	// Manifest is the manifest section; nil if the module has none.
	Manifest []byte
	// Refusal says why the module would not be admitted with the default
	// limits and all permissions granted; nil if it would.
	Refusal error
}

// Inspect reads a module's outline. It runs and compiles nothing. The error is
// of kind bad_module and returned only if the bytes are not a module; otherwise
// what is wrong is the outline's Refusal.
func Inspect(module []byte) (Outline, error) {
	out, m, err := describe(module)
	if err != nil {
		return Outline{}, err
	}
	if out.Profile, out.Refusal = profileOf(m); out.Refusal != nil {
		return out, nil
	}
	if m, out.Refusal = permitted(module, abi.DefaultLimits(), abi.Capabilities()); out.Refusal != nil {
		return out, nil
	}
	result, err := admit(m, abi.DefaultLimits(), true)
	if out.Refusal = err; err != nil {
		return out, nil
	}
	out.NoImage, out.Warms = result.NotCarried, len(result.Warm) > 0
	clamped, err := wasm.Decode(result.module)
	if err != nil {
		return Outline{}, &abi.Error{Kind: abi.KindBadModule, Text: "the metered module", Err: err}
	}
	for _, table := range clamped.Tables {
		out.TableMax = append(out.TableMax, *table.Max)
	}
	return out, nil
}

// Describe is Inspect without an opinion on whether the module would be admitted: the
// outline's Profile, Refusal, TableMax, NoImage and Warms are zero. It takes an
// eighth of the time, and is for modules that Load will have an opinion on.
func Describe(module []byte) (Outline, error) {
	out, _, err := describe(module)
	return out, err
}

func describe(module []byte) (Outline, *wasm.Module, error) {
	m, err := decode(module)
	if err != nil {
		return Outline{}, nil, err
	}
	out := Outline{
		Digest: Digest(module), Bytes: len(module), Imports: m.Imports, Exports: m.Exports, Sections: m.Sections,
		Tables: m.Tables, Functions: len(m.Functions),
	}
	if len(m.Memories) > 0 {
		out.Memory = &m.Memories[0]
		out.MemoryPages = uint64(abi.DefaultLimits().MemoryBytes) / wasm.PageBytes
		if most := out.Memory.Max; most != nil {
			out.MemoryPages = min(out.MemoryPages, *most)
		}
	}
	out.Manifest, _ = m.Custom(abi.ManifestSection)
	for _, i := range m.Imports {
		if c, ok := abi.CapabilityOf(i.Module); ok && !slices.Contains(out.Permissions, c) {
			out.Permissions = append(out.Permissions, c)
		}
	}
	return out, m, nil
}
