package examples

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/host/handtest"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	assemblyscript "github.com/gloveboxhq/glovebox/sdk/assemblyscript/build"
	c "github.com/gloveboxhq/glovebox/sdk/c/build"
	golang "github.com/gloveboxhq/glovebox/sdk/go/build"
	rust "github.com/gloveboxhq/glovebox/sdk/rust/build"
	vectors "github.com/gloveboxhq/glovebox/testdata/abi"
)

var (
	sampleFile = flag.String("sample", "", "a module to run the cases of the sample hand against, with or without a manifest")
	sampleCase = flag.String("sample-case", "", "only the cases whose names hold this")
)

// samples are the sample hands, by language. Build returns the module without a
// manifest; an error that matches exec.ErrNotFound names a toolchain that is not
// installed.
var samples = []struct {
	language string
	build    func(t testing.TB) ([]byte, error)
	maxBytes int
}{
	{"go", func(t testing.TB) ([]byte, error) { return golang.Hand(t.Context(), "hand-go", golang.Reactor) }, 4 << 20},
	{"rust", func(t testing.TB) ([]byte, error) { return rust.Hand(t.Context(), "hand-rust") }, 128 << 10},
	{"c", func(t testing.TB) ([]byte, error) { return c.Hand(t.Context(), "hand-c", c.Reactor) }, 64 << 10},
	{"assemblyscript", func(t testing.TB) ([]byte, error) {
		return assemblyscript.Hand(t.Context(), "hand-assemblyscript", t.Output())
	}, 128 << 10},
}

func TestSamples(t *testing.T) {
	for _, sample := range samples {
		t.Run(sample.language, func(t *testing.T) {
			module := buildSample(t, sample.build)
			if len(module) > sample.maxBytes {
				t.Errorf("the module is %d bytes, more than %d", len(module), sample.maxBytes)
			}
			t.Logf("%d bytes", len(module))
			check(t, module)
		})
	}
}

// buildSample returns a sample with its manifest.
func buildSample(t testing.TB, build func(testing.TB) ([]byte, error)) []byte {
	t.Helper()
	module, err := build(t)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("install what builds it: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return withManifest(t, module)
}

// BenchmarkSample asks the sample of each language what costs it least, as the box is
// shipped: a fresh instance for each query, metered, all limits on.
func BenchmarkSample(b *testing.B) {
	for _, sample := range samples {
		b.Run("language="+sample.language, func(b *testing.B) {
			module := buildSample(b, sample.build)
			loaded := load(b, module)
			query := abi.Query{Prompt: "say hello", Timezone: "UTC", MaxOutputTokens: 100}
			b.ResetTimer()
			var fuel int64
			for b.Loop() {
				result, err := loaded.Query(b.Context(), query, sandbox.Ports{})
				if err != nil || result.Reply.Tokens() != 2 {
					b.Fatalf("%d tokens, %v", result.Reply.Tokens(), err)
				}
				fuel = result.Fuel
			}
			b.ReportMetric(float64(len(module)), "module-B")
			b.ReportMetric(float64(fuel), "fuel/op")
		})
	}
}

// TestSampleFile lets whoever writes an SDK run the cases before it has a row:
//
//	go test ./examples -run TestSampleFile -sample=/path/to/hand.wasm [-sample-case=kv]
func TestSampleFile(t *testing.T) {
	if *sampleFile == "" {
		t.Skip("there is no -sample")
	}
	module, err := os.ReadFile(*sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(module))
	check(t, withManifest(t, module))
}

// withManifest embeds sample.toml.
func withManifest(t testing.TB, module []byte) []byte {
	t.Helper()
	document, err := os.ReadFile("sample.toml")
	if err != nil {
		t.Fatal(err)
	}
	outline, err := wasm.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	return outline.WithCustom(abi.ManifestSection, document)
}

func check(t *testing.T, module []byte) {
	t.Helper()
	checkRefusals(t, module)
	engine := newEngine(t)
	run := handtest.Runner(loadInto(t, engine, module, sandbox.Options{}), loadInto(t, engine, module, sandbox.Options{FromStart: true}), nil)
	checkSample(t, run)
	checkHand(t, module, run)
}

// checkRefusals takes from a sample what lets it be loaded: its entry (H1), and what is
// granted (H6).
func checkRefusals(t *testing.T, module []byte) {
	t.Helper()
	engine, err := sandbox.New(sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	refused := func(what string, module []byte, granted []abi.Capability, kind abi.Kind, says ...string) {
		t.Helper()
		_, err := engine.Load(t.Context(), module, sandbox.Options{Name: "sample", Granted: granted})
		if !errors.Is(err, kind) {
			t.Errorf("%s: got %v, not %s", what, err, kind)
			return
		}
		for _, words := range says {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %q does not say %q", what, err, words)
			}
		}
	}
	entry := []byte(abi.ExportQuery)
	if !bytes.Contains(module, entry) {
		t.Fatal("the sample is no reactor")
	}
	refused("without an entry", bytes.ReplaceAll(module, entry, []byte("glovebox_no_entry")), abi.Capabilities(), abi.KindBadModule, abi.ExportQuery, abi.ExportStart)
	refused("of another version", bytes.ReplaceAll(module, entry, []byte(abi.ExportQueryPrefix+"2")), abi.Capabilities(), abi.KindABIMismatch, "needs ABI 2, this host speaks 1")
	for i, capability := range abi.Capabilities() {
		refused("without "+string(capability), module, slices.Delete(abi.Capabilities(), i, i+1), abi.KindNotGranted, capability.Module(), `"`+string(capability)+`"`)
	}
}

func checkSample(t *testing.T, run conformance.Runner) {
	t.Helper()
	sample, err := conformance.ReadSample(vectors.Files)
	if err != nil {
		t.Fatal(err)
	}
	report, err := sample.Check(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Checks) != len(sample.Cases) {
		t.Errorf("%d of %d cases were checked", len(report.Checks), len(sample.Cases))
	}
	for _, check := range report.Checks {
		if !strings.Contains(check.Name, *sampleCase) {
			continue
		}
		for _, fault := range check.Faults {
			t.Errorf("%s: %s", check.Name, fault)
		}
	}
}

// checkHand asks the sample what any hand is asked. Nothing of that reaches for what
// may be granted.
func checkHand(t *testing.T, module []byte, run conformance.Runner) {
	t.Helper()
	kit, err := conformance.ReadKit(vectors.Files)
	if err != nil {
		t.Fatal(err)
	}
	outline, err := sandbox.Inspect(module)
	if err != nil {
		t.Fatal(err)
	}
	hand := conformance.Hand{Refusal: outline.Refusal, Manifest: outline.Manifest, Load: func(context.Context) (conformance.Runner, func() error, error) {
		return run, func() error { return nil }, nil
	}}
	for _, i := range outline.Imports {
		hand.Imports = append(hand.Imports, i.Module)
	}
	report, err := kit.Check(t.Context(), hand)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Passed() {
		for _, check := range report.Checks {
			for _, fault := range check.Faults {
				t.Errorf("%s: %s", check.Name, fault)
			}
		}
	}
	if last := report.Checks[len(report.Checks)-1]; last.Cost == nil {
		t.Errorf("it is asked nothing: the last check is %s", last.Name)
	}
}

// load gives the module all it may import; what a case does not have is not
// granted all the same.
func load(t testing.TB, module []byte) *sandbox.Module { return loadWith(t, module, abi.Limits{}) }

func loadWith(t testing.TB, module []byte, limits abi.Limits) *sandbox.Module {
	t.Helper()
	return loadInto(t, newEngine(t), module, sandbox.Options{Limits: limits})
}

func newEngine(t testing.TB) *sandbox.Engine {
	t.Helper()
	engine, err := sandbox.New(sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

func loadInto(t testing.TB, engine *sandbox.Engine, module []byte, options sandbox.Options) *sandbox.Module {
	t.Helper()
	options.Name, options.Granted, options.Trusted = "sample", abi.Capabilities(), true
	loaded, err := engine.Load(context.Background(), module, options)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}
