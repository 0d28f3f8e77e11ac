package plugins_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/plugins"
	"github.com/gloveboxhq/glovebox/sdk/go/build"
)

var update = flag.Bool("update", false, "build the bundled hands and write them")

// record is bundled/build.toml.
type record struct {
	Toolchain string            `toml:"toolchain"`
	Digests   map[string]string `toml:"digests"`
}

func TestBundledHandsAreBuiltFromSource(t *testing.T) {
	var recorded record
	data, err := os.ReadFile("bundled/build.toml")
	if err != nil && !*update {
		t.Fatal(err)
	}
	if err := manifest.Decode(data, &recorded); err != nil {
		t.Fatal(err)
	}
	if recorded.Toolchain != runtime.Version() && !*update {
		t.Skipf("the bundled hands were built with %s, this is %s: digests can only be compared with the same toolchain", recorded.Toolchain, runtime.Version())
	}
	manifests, err := filepath.Glob("*/manifest.toml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("manifests %v, %v", manifests, err)
	}
	built := map[string]string{}
	for _, path := range manifests {
		name := filepath.Dir(path)
		module := buildHand(t, name)
		built[name] = sandbox.Digest(module)
		if *update {
			pack(t, name, module)
			continue
		}
		if built[name] != recorded.Digests[name] {
			t.Errorf("%s: the source builds to %s, recorded is %s: run go generate ./plugins", name, built[name], recorded.Digests[name])
		}
	}
	if *update {
		var b strings.Builder
		fmt.Fprintf(&b, "# Written by go generate ./plugins.\ntoolchain = %q\n\n[digests]\n", runtime.Version())
		for _, path := range manifests {
			fmt.Fprintf(&b, "%s = %q\n", filepath.Dir(path), built[filepath.Dir(path)])
		}
		if err := os.WriteFile("bundled/build.toml", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if len(plugins.Names()) != len(manifests) {
		t.Errorf("embedded are %v, there are %d manifests", plugins.Names(), len(manifests))
	}
}

func buildHand(t *testing.T, dir string) []byte {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(dir, "manifest.toml"))
	if err != nil {
		t.Fatal(err)
	}
	module, err := build.Hand(t.Context(), dir, build.Reactor)
	if err != nil {
		t.Fatal(err)
	}
	outline, err := wasm.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	return outline.WithCustom(abi.ManifestSection, document)
}

func pack(t *testing.T, name string, module []byte) {
	t.Helper()
	var compressed bytes.Buffer
	w := brotli.NewWriterLevel(&compressed, 9)
	if _, err := w.Write(module); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("bundled", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("bundled", name+".wasm.br"), compressed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes, %d compressed", name, len(module), compressed.Len())
}

func TestEmbeddedModulesAreTheRecordedOnes(t *testing.T) {
	var recorded record
	data, err := os.ReadFile("bundled/build.toml")
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Decode(data, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(plugins.Names()) == 0 || len(plugins.Names()) != len(recorded.Digests) {
		t.Fatalf("embedded are %v, recorded %v", plugins.Names(), recorded.Digests)
	}
	for _, name := range plugins.Names() {
		module, err := plugins.Module(name)
		if err != nil {
			t.Fatal(err)
		}
		outline, err := sandbox.Inspect(module)
		if err != nil || outline.Refusal != nil || outline.Digest != recorded.Digests[name] {
			t.Errorf("%s: %s is not the recorded %s, or is refused: %v, %v", name, outline.Digest, recorded.Digests[name], err, outline.Refusal)
		}
		m, err := manifest.Parse(outline.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		if err := registry.Agree(m, outline); err != nil || m.Name != name {
			t.Errorf("%s: manifest of %q: %v", name, m.Name, err)
		}
	}
	if _, err := plugins.Module("nonsense"); err == nil || !strings.Contains(err.Error(), plugins.Names()[0]) {
		t.Errorf("an unknown name: %v", err)
	}
}
