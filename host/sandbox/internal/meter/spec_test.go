package meter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// specDirectory is where the engine's module keeps the specification's tests,
// converted by wast2json.
func specDirectory(t *testing.T) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Skipf("the specification's tests lie in the engine's module, which go list does not find: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(output)), "internal", "integration_test", "spectest")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the engine's module has no specification tests: %v", err)
	}
	return dir
}

type specCommand struct {
	Type       string
	Line       int
	Name, As   string
	Filename   string
	ModuleType string `json:"module_type"`
	Text       string
	Action     struct {
		Type, Module, Field string
		Args                []specValue
	}
}

type specValue struct {
	Type     string
	LaneType string `json:"lane_type"`
	Value    any
}

// bits is the value as the engine takes it.
func (v specValue) bits(t *testing.T) []uint64 {
	t.Helper()
	number := func(text string, bits int) uint64 {
		n, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch v.Type {
	case "i32", "f32":
		return []uint64{number(v.Value.(string), 32)}
	case "i64", "f64":
		return []uint64{number(v.Value.(string), 64)}
	case "v128":
		lanes := v.Value.([]any)
		width := 128 / len(lanes)
		var pair [2]uint64
		for i, lane := range lanes {
			pair[i*width/64] |= number(lane.(string), width) << (i * width % 64)
		}
		return pair[:]
	}
	if text, ok := v.Value.(string); ok && text != "null" {
		return []uint64{number(text, 64) + 1} // zero is the engine's null
	}
	return []uint64{0}
}

// world is one engine with what a test file has instantiated in it.
type world struct {
	runtime wazero.Runtime
	rewrite bool
	modules map[string]api.Module
	last    api.Module
	// instances are all that were made.
	instances []api.Module
	ticks     int
	// demands counts the tables that were filled on demand.
	demands int
}

// The slice is small, so that the tests tick often.
const (
	slice      = 200
	stackBytes = 16 << 20
)

func newWorld(t *testing.T, spectest []byte, rewrite bool) *world {
	t.Helper()
	w := &world{runtime: wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2)), rewrite: rewrite, modules: map[string]api.Module{}}
	t.Cleanup(func() { w.runtime.Close(context.Background()) })
	if _, err := w.runtime.NewHostModuleBuilder(meter.Module).NewFunctionBuilder().WithFunc(func(left int64) int64 {
		w.ticks++
		if left == meter.Overflow {
			panic(errors.New("stack overflow"))
		}
		return slice + left
	}).Export(meter.Tick).Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	module, err := w.instantiate(t, "spectest", spectest)
	if err != nil {
		t.Fatal(err)
	}
	w.modules["spectest"] = module
	return w
}

// instantiate returns an error for a module that cannot be, or whose start
// function traps.
func (w *world) instantiate(t *testing.T, name string, data []byte) (module api.Module, err error) {
	t.Helper()
	start := false
	if w.rewrite {
		m, err := wasm.Decode(data)
		if err != nil {
			return nil, err
		}
		if err := m.Validate(); err != nil {
			return nil, err
		}
		start = m.Start != nil
		original := data
		// No element is put into a table at once if it can be put there later.
		if data, err = meter.Rewrite(m, meter.Limits{StackBytes: stackBytes}); err != nil {
			return nil, err
		}
		w.demands += len(onDemand(t, decode(t, original), decode(t, data)))
	}
	compiled, err := w.runtime.CompileModule(t.Context(), data)
	if err != nil {
		return nil, err
	}
	if module, err = w.runtime.InstantiateModule(t.Context(), compiled, wazero.NewModuleConfig().WithName(name)); err != nil {
		return nil, err
	}
	w.instances = append(w.instances, module)
	if start {
		if _, err := module.ExportedFunction(meter.Start).Call(t.Context()); err != nil {
			return nil, err
		}
	}
	return module, nil
}

// module runs a module command and the registrations that follow it, which the
// engine wants with the instantiation.
func (w *world) module(t *testing.T, c specCommand, as string, data []byte) error {
	t.Helper()
	module, err := w.instantiate(t, as, data)
	if err != nil {
		return err
	}
	w.last = module
	if c.Name != "" {
		w.modules[c.Name] = module
	}
	return nil
}

// act runs an action and returns its results or the first line of the error.
func (w *world) act(t *testing.T, c specCommand) (results []uint64, trap string) {
	t.Helper()
	module := w.last
	if c.Action.Module != "" {
		module = w.modules[c.Action.Module]
	}
	if module == nil {
		return nil, "no module"
	}
	if c.Action.Type == "get" {
		return []uint64{module.ExportedGlobal(c.Action.Field).Get()}, ""
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits(t)...)
	}
	function := module.ExportedFunction(c.Action.Field)
	if function == nil {
		return nil, "no function"
	}
	if w.rewrite {
		// After a trap the frames of the last action are still counted; a hand's
		// instance is thrown away instead.
		for _, m := range w.instances {
			m.ExportedGlobal(meter.Stack).(api.MutableGlobal).Set(stackBytes)
		}
	}
	results, err := function.Call(t.Context(), args...)
	if err != nil {
		trap, _, _ = strings.Cut(err.Error(), "\n")
		if strings.Contains(trap, "stack overflow") {
			trap = "stack overflow"
		}
		return nil, trap
	}
	return results, ""
}

// H14: the specification's own tests give the same results on rewritten modules
// as on the original ones, and what they call invalid is refused before
// anything is rewritten.
func TestSpecification(t *testing.T) {
	dir := specDirectory(t)
	spectest, err := os.ReadFile(filepath.Join(dir, "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "v2", "testdata", "*.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d test files, %v", len(files), err)
	}
	actions, refused, ticks, demands := 0, 0, 0, 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			a, r, w := runSpecification(t, file, spectest)
			actions, refused, ticks, demands = actions+a, refused+r, ticks+w.ticks, demands+w.demands
		})
	}
	t.Logf("%d actions, %d modules refused, %d ticks, %d tables filled on demand", actions, refused, ticks, demands)
	if ticks == 0 || demands == 0 {
		t.Error("nothing was metered, or no table filled on demand")
	}
}

func runSpecification(t *testing.T, file string, spectest []byte) (actions, refused int, rewritten *world) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var script struct{ Commands []specCommand }
	if err := json.Unmarshal(data, &script); err != nil {
		t.Fatal(err)
	}
	original := newWorld(t, spectest, false)
	rewritten = newWorld(t, spectest, true)
	read := func(c specCommand) []byte {
		module, err := os.ReadFile(filepath.Join(filepath.Dir(file), c.Filename))
		if err != nil {
			t.Fatal(err)
		}
		return module
	}
	for n, c := range script.Commands {
		where := fmt.Sprintf("%s:%d %s", filepath.Base(file), c.Line, c.Type)
		switch c.Type {
		case "module":
			as := registration(script.Commands[n:])
			module := read(c)
			if m, err := wasm.Decode(module); err != nil || string(m.Encode()) != string(module) {
				t.Errorf("%s: decoding and encoding: %v", where, err)
			}
			one, two := original.module(t, c, as, module), rewritten.module(t, c, as, module)
			if one != nil {
				t.Logf("%s: the engine: %v", where, one)
			}
			if (one == nil) != (two == nil) {
				t.Errorf("%s: original %v, rewritten %v", where, one, two)
			}
		case "register":
		case "action", "assert_return", "assert_trap", "assert_exhaustion":
			actions++
			one, trapOne := original.act(t, c)
			two, trapTwo := rewritten.act(t, c)
			if trapOne != trapTwo || !same(one, two) {
				t.Errorf("%s %s %v: original %x %q, rewritten %x %q", where, c.Action.Field, c.Action.Args, one, trapOne, two, trapTwo)
			}
			if c.Type == "assert_trap" != (trapOne != "") && c.Type != "assert_exhaustion" {
				t.Errorf("%s: the engine: %x %q", where, one, trapOne)
			}
		case "assert_invalid", "assert_malformed":
			if c.ModuleType == "text" {
				continue
			}
			refused++
			m, err := wasm.Decode(read(c))
			if err == nil {
				err = m.Validate()
			}
			if err == nil {
				t.Errorf("%s: %s: not refused (%s)", where, c.Filename, c.Text)
			}
		case "assert_unlinkable", "assert_uninstantiable":
			if c.ModuleType == "text" {
				continue
			}
			module := read(c)
			_, one := original.instantiate(t, "", module)
			_, two := rewritten.instantiate(t, "", module)
			// The engine tells of some when a function is called.
			if (one == nil) != (two == nil) {
				t.Errorf("%s: original %v, rewritten %v", where, one, two)
			}
		default:
			t.Errorf("%s: unknown command", where)
		}
	}
	return actions, refused, rewritten
}

// registration returns the name under which the module of the first command
// will be registered: the engine names a module when it is made.
func registration(commands []specCommand) string {
	named := commands[0].Name
	for _, c := range commands[1:] {
		switch {
		case c.Type == "register" && (c.Name == "" || c.Name == named):
			return c.As
		case c.Type == "module" && named == "":
			return ""
		}
	}
	return ""
}

// same compares results; the payload of a NaN is the engine's affair.
func same(one, two []uint64) bool {
	if len(one) != len(two) {
		return false
	}
	for i := range one {
		nan := math.IsNaN(math.Float64frombits(one[i])) && math.IsNaN(math.Float64frombits(two[i])) ||
			one[i]>>32 == 0 && two[i]>>32 == 0 && math.IsNaN(float64(math.Float32frombits(uint32(one[i])))) && math.IsNaN(float64(math.Float32frombits(uint32(two[i]))))
		if one[i] != two[i] && !nan {
			return false
		}
	}
	return true
}
