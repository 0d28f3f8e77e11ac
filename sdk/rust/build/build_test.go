package build_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/sdk/rust/build"
)

const cargoManifest = `[package]
name = "small"
version = "0.1.0"
edition = "2021"

[lib]
crate-type = ["cdylib"]

[dependencies]
glovebox-hand = { path = "glovebox-hand" }

# Quicker to build than what is published.
[profile.release]
opt-level = 1
panic = "abort"
strip = true
`

// project writes a crate of one file, with the SDK's sources in it.
func project(t *testing.T, dir, source string) string {
	t.Helper()
	sdk := os.DirFS("..")
	for _, name := range []string{"Cargo.toml", "README.md", "src"} {
		err := fs.WalkDir(sdk, name, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(sdk, name)
			if err != nil {
				return err
			}
			write(t, filepath.Join(dir, "glovebox-hand", filepath.FromSlash(name)), string(data))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "Cargo.toml"), cargoManifest)
	write(t, filepath.Join(dir, "src", "lib.rs"), source)
	return dir
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// answer is a hand with these statements.
func answer(statements string) string {
	return "glovebox_hand::hand!(answer);\n" +
		"fn answer(query: &glovebox_hand::Query) -> Result<String, Box<dyn std::error::Error>> {\n" + statements + "\n}\n"
}

func hand(t *testing.T, dir string, targets ...string) []byte {
	t.Helper()
	module, err := build.Hand(t.Context(), dir, targets...)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("install what builds it: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func ask(t *testing.T, module []byte, prompt string) (sandbox.Result, error) {
	t.Helper()
	return askIn(t, sandbox.ImagesMapped, module, prompt)
}

func askIn(t *testing.T, images sandbox.Images, module []byte, prompt string) (sandbox.Result, error) {
	t.Helper()
	engine, err := sandbox.New(sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache"), Images: images})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: "small"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	return loaded.Query(t.Context(), abi.Query{Prompt: prompt, From: now.Add(-time.Hour), To: now, Now: now, Timezone: "UTC", MaxOutputTokens: 200}, sandbox.Ports{})
}

// What a hand does not use is not among its imports.
func TestModuleAsksForWhatItUses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		statements string
		want       []string
	}{
		{`Ok(query.prompt.clone())`, nil},
		{`Ok(format!("{:?}", glovebox_hand::files::root("docs").read("a", 9)?))`, []string{abi.ModuleFiles}},
		{`Ok(glovebox_hand::http::get("http://a.example").fetch()?.status.to_string())`, []string{abi.ModuleHTTP}},
		{`glovebox_hand::kv::set("a", "b")?; Ok(glovebox_hand::llm::prompt("a").complete()?.text)`, []string{abi.ModuleKV, abi.ModuleLLM}},
	} {
		outline, err := wasm.Decode(hand(t, project(t, dir, answer(c.statements))))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range outline.Imports {
			if _, asks := abi.CapabilityOf(i.Module); asks && !slices.Contains(got, i.Module) {
				got = append(got, i.Module)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: imports %v, want %v", c.statements, got, c.want)
		}
	}
}

// What warm! names is done once before the queries, and not at all on a host
// without images.
func TestWarm(t *testing.T) {
	source := `use std::cell::Cell;
use glovebox_hand::{hand, warm, Query};
thread_local! {
    static WARM: Cell<bool> = Cell::new(false);
    static SQUARES: Vec<usize> = (0..1000).map(|n| n * n).collect();
}
hand!(answer);
warm!(|| {
    SQUARES.with(|_| ());
    WARM.with(|warm| warm.set(true));
});
fn answer(query: &Query) -> Result<String, String> {
    Ok(format!("{} {}", SQUARES.with(|squares| squares[query.prompt.len()]), WARM.with(Cell::get)))
}
`
	for _, target := range []string{"wasm32-wasi", "wasm32-unknown-unknown"} {
		module := hand(t, project(t, t.TempDir(), source), targetsLike(target)...)
		for images, want := range map[sandbox.Images]string{sandbox.ImagesMapped: "9 true", sandbox.ImagesOff: "9 false"} {
			result, err := askIn(t, images, module, "123")
			if got := boundary.Neutral(result.Reply); err != nil || got != want {
				t.Errorf("%s, images %v: %q, %v, want %q", target, images, got, err, want)
			}
		}
	}
}

// targetsLike also gives the name that newer toolchains have.
func targetsLike(target string) []string {
	if target == "wasm32-wasi" {
		return []string{"wasm32-wasip1", "wasm32-wasi"}
	}
	return []string{target}
}

func TestAnswersAndFailures(t *testing.T) {
	source := answer(`    match query.prompt.as_str() {
        "index" => Ok([1, 2][query.prompt.len()].to_string()),
        "panic" => panic!("of {}", query.prompt),
        "fail" => Err("no such luck".into()),
        prompt => Ok(format!("{prompt} at {}", query.now)),
    }`)
	for _, target := range []string{"wasm32-wasi", "wasm32-unknown-unknown"} {
		dir := project(t, t.TempDir(), source)
		module := hand(t, dir, targetsLike(target)...)
		for _, c := range []struct {
			prompt, reply, said string
			kind                abi.Kind
		}{
			{"größe", "größe at 2026-03-23T09:00:00Z", "", ""},
			{"fail", "", "no such luck", abi.KindHandFailed},
			{"panic", "", "panicked at src/lib.rs:5: of panic", abi.KindTrap},
			{"index", "", "panicked at src/lib.rs:4: index out of bounds: the len is 2 but the index is 5", abi.KindTrap},
		} {
			result, err := ask(t, module, c.prompt)
			if got := abi.KindOf(err); got != c.kind || boundary.Neutral(result.Reply) != c.reply || boundary.Neutral(result.Said) != c.said {
				t.Errorf("%s, %s: %q, %q, %v", target, c.prompt, boundary.Neutral(result.Reply), boundary.Neutral(result.Said), err)
			}
		}
		if bytes.Contains(module, []byte(dir)) {
			t.Errorf("%s: the module holds the path of its sources", target)
		}
	}
}

// A dependency that lies outside has a name for a path.
func TestPathsOfDependencies(t *testing.T) {
	dir := project(t, t.TempDir(), answer(`Ok(outside::luck(query.prompt.len()))`))
	outside := t.TempDir()
	write(t, filepath.Join(outside, "Cargo.toml"), "[package]\nname = \"outside\"\nversion = \"1.2.3\"\nedition = \"2021\"\n")
	write(t, filepath.Join(outside, "src", "lib.rs"), "pub fn luck(n: usize) -> String {\n    panic!(\"out of {n}\")\n}\n")
	write(t, filepath.Join(dir, "Cargo.toml"), strings.Replace(cargoManifest, "[dependencies]\n", fmt.Sprintf("[dependencies]\noutside = { path = %q }\n", outside), 1))
	module := hand(t, dir)
	result, err := ask(t, module, "luck")
	if got, want := boundary.Neutral(result.Said), "panicked at /outside-1.2.3/src/lib.rs:2: out of 4"; got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if bytes.Contains(module, []byte(outside)) {
		t.Error("the module holds the path of a dependency")
	}
}

func TestBytesDependOnSourcesAlone(t *testing.T) {
	source := answer(`Ok(glovebox_hand::json::parse(&query.prompt)?.to_string())`)
	first := hand(t, project(t, t.TempDir(), source))
	t.Setenv("RUSTFLAGS", "-Copt-level=0")
	second := hand(t, project(t, filepath.Join(t.TempDir(), "somewhere", "else"), source))
	if !bytes.Equal(first, second) {
		t.Error("the same sources give other bytes in another place")
	}
}

func TestNoToolchain(t *testing.T) {
	dir := project(t, t.TempDir(), answer(`Ok("".into())`))
	for name, rustc := range map[string]string{
		"there is no cargo with a rustc": filepath.Join(t.TempDir(), "rustc"),
		"cannot build for wasm32-wasip1": withoutTargets(t),
	} {
		t.Setenv("RUSTC", rustc)
		_, err := build.Hand(t.Context(), dir)
		if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "rustup target add wasm32-wasip1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withoutTargets makes a toolchain whose libraries are not there.
func withoutTargets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"rustc", "cargo"} {
		file := filepath.Join(dir, name)
		write(t, file, "#!/bin/sh\necho /nowhere\n")
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "rustc")
}

func TestBadProjects(t *testing.T) {
	if _, err := build.Hand(t.Context(), t.TempDir()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "Cargo.toml") {
		t.Errorf("an empty folder: %v", err)
	}
	dir := project(t, t.TempDir(), answer(`Ok(query.colour)`))
	_, err := build.Hand(t.Context(), dir)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("install what builds it: %v", err)
	}
	if err == nil || !strings.Contains(err.Error(), "no field `colour`") {
		t.Errorf("a source that does not compile: %v", err)
	}
	write(t, filepath.Join(dir, "Cargo.toml"), strings.Replace(cargoManifest, `"cdylib"`, `"rlib"`, 1))
	write(t, filepath.Join(dir, "src", "lib.rs"), "")
	if _, err := build.Hand(t.Context(), dir); err == nil || !strings.Contains(err.Error(), `crate-type = ["cdylib"]`) {
		t.Errorf("a crate that is no module: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build.Hand(cancelled, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The first hand of the README is one: it passes its test, builds, and imports what its
// manifest asks for.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := project(t, t.TempDir(), block(t, readme, "rust", "hand!(answer)"))
	cargoFile := block(t, readme, "toml", "[dependencies]")
	write(t, filepath.Join(dir, "Cargo.toml"), strings.Replace(cargoFile, `glovebox-hand = "0.1"`, `glovebox-hand = { path = "glovebox-hand" }`, 1))
	asked, err := manifest.Parse([]byte(block(t, readme, "toml", "[[permissions]]")))
	if err != nil {
		t.Fatal(err)
	}
	outline, err := wasm.Decode(hand(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range outline.Imports {
		capability, asks := abi.CapabilityOf(i.Module)
		if _, permitted := asked.Permission(capability); asks && !permitted {
			t.Errorf("it imports %s, and the manifest does not ask for it", i.Module)
		}
	}
	cargo, rustc := native(t)
	if output, err := in(t, dir, cargo, rustc, "test").CombinedOutput(); err != nil || !strings.Contains(string(output), "1 passed") {
		t.Errorf("cargo test: %v\n%s", err, output)
	}
}

// block returns the first block of a language that holds a text.
func block(t *testing.T, document []byte, language, holding string) string {
	t.Helper()
	for _, found := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(document, -1) {
		if bytes.Contains(found[1], []byte(holding)) {
			return string(found[1])
		}
	}
	t.Fatalf("README.md has no block of %s with %s", language, holding)
	return ""
}

// The crates' own tests: the SDK's and the sample's.
func TestCrates(t *testing.T) {
	cargo, rustc := native(t)
	for _, dir := range []string{"..", filepath.Join("..", "..", "..", "examples", "hand-rust")} {
		output, err := in(t, dir, cargo, rustc, "test").CombinedOutput()
		passed := 0
		for _, count := range regexp.MustCompile(`test result: ok\. (\d+) passed`).FindAllStringSubmatch(string(output), -1) {
			var n int
			if _, err := fmt.Sscan(count[1], &n); err != nil {
				t.Fatal(err)
			}
			passed += n
		}
		if err != nil || passed == 0 {
			t.Errorf("cargo test in %s: %v, %d passed\n%s", dir, err, passed, output)
		}
	}
}

func TestFormatting(t *testing.T) {
	if err := exec.Command("cargo", "fmt", "--version").Run(); err != nil {
		t.Skip("install rustfmt: rustup component add rustfmt")
	}
	for _, dir := range []string{"..", filepath.Join("..", "..", "..", "examples", "hand-rust")} {
		command := exec.CommandContext(t.Context(), "cargo", "fmt", "--check")
		command.Dir = dir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("cargo fmt in %s: %v\n%s", dir, err, output)
		}
	}
}

// native finds a cargo, with the rustc beside it, that runs what it builds: it needs a
// linker too.
func native(t *testing.T) (cargo, rustc string) {
	t.Helper()
	for _, needed := range []string{"cargo", "rustc", "rustdoc", "cc"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("there is no %s: install Debian's cargo, rustc and gcc, or rustup's toolchain", needed)
		}
	}
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		t.Fatal(err)
	}
	return cargo, filepath.Join(filepath.Dir(cargo), "rustc")
}

func in(t *testing.T, dir, cargo, rustc string, args ...string) *exec.Cmd {
	command := exec.CommandContext(t.Context(), cargo, append(args, "--offline")...)
	command.Dir = dir
	command.Env = append(os.Environ(), "RUSTC="+rustc, "RUSTDOC="+filepath.Join(filepath.Dir(rustc), "rustdoc"))
	return command
}
