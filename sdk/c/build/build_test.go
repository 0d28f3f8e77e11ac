package build_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/sdk"
	"github.com/gloveboxhq/glovebox/sdk/c/build"
)

var temporaries []string

// temporary makes a folder that is there until the last test has run.
func temporary() (string, error) {
	dir, err := os.MkdirTemp("", "glovebox-c-")
	temporaries = append(temporaries, dir)
	return dir, err
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range temporaries {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

const smallest = `#include "glovebox.h"
void hand_answer(const gb_query *q) { gb_reply(q->prompt); }
`

func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func sdkFile(t *testing.T, name string) string {
	t.Helper()
	content, err := fs.ReadFile(sdk.Sources(), "c/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// hand builds, or skips the test where there is no toolchain.
func hand(t *testing.T, dir string, profile build.Profile) []byte {
	t.Helper()
	module, err := build.Hand(t.Context(), dir, profile)
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// What a hand imports is what it asks for: the SDK brings in nothing of its own.
func TestImportsAreWhatIsUsed(t *testing.T) {
	always := []string{"glovebox.fail", "glovebox.query_read", "glovebox.query_size"}
	for body, want := range map[string][]string{
		``:                            nil,
		`gb_reply(q->prompt);`:        {"glovebox.reply"},
		`gb_log(GB_INFO, q->prompt);`: {"glovebox.log"},
		`gb_buffer b = {0}; gb_files_read(q->prompt, q->prompt, 9, &b);`:           {"glovebox.result_read", "glovebox_files.read"},
		`gb_file f; gb_files_stat(q->prompt, q->prompt, &f);`:                      {"glovebox.result_read", "glovebox_files.list"},
		`gb_http_request r = {0}; gb_http_response a; gb_http_fetch(&r, &a);`:      {"glovebox.result_read", "glovebox_http.fetch"},
		`gb_kv_set(q->prompt, q->subject);`:                                        {"glovebox_kv.set"},
		`gb_str v; gb_kv_get(q->prompt, &v); gb_kv_delete(q->prompt);`:             {"glovebox.result_read", "glovebox_kv.get", "glovebox_kv.delete"},
		`gb_llm_request r = {0}; gb_llm_response a; gb_llm_complete(&r, &a);`:      {"glovebox.result_read", "glovebox_llm.complete"},
		`gb_config_integer(q, "n", gb_tokens(q->prompt), 0); gb_reply(q->prompt);`: {"glovebox.reply"},
	} {
		module := hand(t, project(t, map[string]string{"hand.c": "#include \"glovebox.h\"\nvoid hand_answer(const gb_query *q) { (void)q; " + body + " }\n"}), build.Reactor)
		outline, err := wasm.Decode(module)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range outline.Imports {
			got = append(got, i.Module+"."+i.Name)
		}
		slices.Sort(got)
		want = append(slices.Clone(always), want...)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s imports %v, want %v", body, got, want)
		}
		if len(module) > 32<<10 {
			t.Errorf("%s has %d bytes", body, len(module))
		}
	}
}

func TestBytesDependOnSourcesAlone(t *testing.T) {
	files := map[string]string{"hand.c": smallest + "#include <assert.h>\nconst char *file(void) { return __FILE__; }\n__attribute__((export_name(\"name\"))) const char *name(void) { return file(); }\n", "a.c": "int a;\n"}
	first := hand(t, project(t, files), build.Reactor)
	t.Setenv("CPATH", project(t, map[string]string{"assert.h": "#error of the machine\n"}))
	t.Setenv("PWD", t.TempDir())
	second := hand(t, project(t, files), build.Reactor)
	if !bytes.Equal(first, second) {
		t.Error("two folders give different modules")
	}
	if bytes.Contains(first, []byte(os.TempDir())) || !bytes.Contains(first, []byte("hand.c\x00")) {
		t.Error("the module holds a path, or not the name of the file")
	}
}

// Files of a project are files, whatever they are called, also where the project is the
// working directory: none is a flag of the compiler or a list of them.
func TestNamesAreNoFlags(t *testing.T) {
	dir := project(t, map[string]string{
		"hand.c": smallest + "extern int marked, listed;\n__attribute__((export_name(\"sum\"))) int sum(void) { return marked + listed; }\n",
		"-x.c":   "int marked = 1;\n", "@list.c": "int listed = 2;\n",
	})
	t.Chdir(dir)
	hand(t, ".", build.Reactor)
}

// What GB_WARM names is done once before the queries, and not at all on a host
// without images.
func TestWarm(t *testing.T) {
	module := hand(t, project(t, map[string]string{"hand.c": `#include "glovebox.h"
#include <stdlib.h>
static int *squares;
static int built;
static void build(void) {
    squares = malloc(1000 * sizeof *squares);
    for (int i = 0; i < 1000; i++) squares[i] = i * i;
    built++;
}
GB_WARM(build)
void hand_answer(const gb_query *q) {
    const char *warm = built ? "warm" : "cold";
    if (!built) build();
    gb_replyf("%d %s %d", squares[q->prompt.size], warm, built++);
}
`}), build.Reactor)
	for images, want := range map[sandbox.Images]string{sandbox.ImagesMapped: "9 warm 1", sandbox.ImagesOff: "9 cold 1"} {
		engine, err := sandbox.New(sandbox.Config{CacheDir: filepath.Join(t.TempDir(), "cache"), Images: images})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: "warm"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			result, err := loaded.Query(t.Context(), abi.Query{Prompt: "123"}, sandbox.Ports{})
			if got := boundary.Neutral(result.Reply); err != nil || got != want {
				t.Errorf("images %v: %q, %v, want %q from %+v", images, got, err, want, loaded.Image())
			}
		}
	}
}

// A project may carry the SDK: then that is what is built.
func TestOwnSDK(t *testing.T) {
	const more = "\n__attribute__((export_name(\"mark\"))) const char *mark(void) { return \"the project's own\"; }\n"
	for _, folder := range []string{"", "glovebox/"} {
		module := hand(t, project(t, map[string]string{
			"hand.c": smallest, folder + "glovebox.h": sdkFile(t, "glovebox.h"), folder + "glovebox.c": sdkFile(t, "glovebox.c") + more,
		}), build.Reactor)
		if !bytes.Contains(module, []byte("the project's own")) {
			t.Errorf("the SDK in %q was not used", folder)
		}
	}
}

func TestMessages(t *testing.T) {
	hand(t, project(t, map[string]string{"hand.c": smallest}), build.Reactor) // or skip
	for _, test := range []struct {
		name  string
		files map[string]string
		env   map[string]string
		want  []string
	}{
		{"no sources", map[string]string{"README.md": ""}, nil, []string{"no .c files"}},
		{"an error in the source", map[string]string{"hand.c": "#include \"glovebox.h\"\nvoid hand_answer(const gb_query *q) { gb_replay(q->prompt); return 1 }\n"}, nil, []string{"hand.c:2:", "error:"}},
		{"no hand", map[string]string{"hand.c": "int x;\n"}, nil, []string{"undefined symbol: hand_answer"}},
		{"no clang", map[string]string{"hand.c": smallest}, map[string]string{"PATH": t.TempDir()}, []string{"there is no clang", "lld", "wasi-libc", "libclang-rt-dev-wasm32", "WASI_SDK_PATH"}},
		{"no wasi-sdk", map[string]string{"hand.c": smallest}, map[string]string{"WASI_SDK_PATH": "/nowhere"}, []string{"/nowhere/bin/clang", "WASI_SDK_PATH is /nowhere"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			dir := project(t, test.files)
			_, err := build.Hand(t.Context(), dir, build.Reactor)
			if err == nil {
				t.Fatal("it is built")
			}
			for _, want := range append(test.want, dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
			if missing := errors.Is(err, exec.ErrNotFound); missing != (test.env != nil) {
				t.Errorf("that it is about the toolchain is %v: %v", missing, err)
			}
		})
	}
	if _, err := build.Hand(t.Context(), filepath.Join(t.TempDir(), "none"), build.Reactor); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// A wasi-sdk is laid out otherwise than Debian.
func TestWASISDK(t *testing.T) {
	files := map[string]string{"hand.c": smallest}
	want := hand(t, project(t, files), build.Reactor)
	clang, err := exec.LookPath("clang")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "share"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(clang, filepath.Join(root, "bin", "clang")), os.Symlink("/usr", filepath.Join(root, "share", "wasi-sysroot"))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WASI_SDK_PATH", root)
	if got := hand(t, project(t, files), build.Reactor); !bytes.Equal(got, want) {
		t.Error("the same clang gives another module")
	}
	if err := os.Remove(filepath.Join(root, "share", "wasi-sysroot")); err != nil {
		t.Fatal(err)
	}
	if _, err := build.Hand(t.Context(), project(t, files), build.Reactor); err == nil || !strings.Contains(err.Error(), "wasi-libc") {
		t.Errorf("without its sysroot: %v", err)
	}
}
