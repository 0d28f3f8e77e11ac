package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// kept is a hand that was loaded once with a cache of its own, and what it left there.
type kept struct {
	caged
	dir string
	// files are those of the hand, by their names in its folder of the cache.
	folder string
	files  map[string]string
}

// keep loads a specimen into a new cache, and reads what is to be read.
func keep(t *testing.T, name string, memory int64) kept {
	t.Helper()
	k := kept{dir: filepath.Join(t.TempDir(), "cache")}
	k.specimen = specimens[slices.IndexFunc(specimens, func(s specimen) bool { return s.name == name })]
	k.needed(t)
	engine := newEngine(t, sandbox.Config{CacheDir: k.dir})
	k.module = cage(t, engine, k.specimen, memory, 0)
	var err error
	if k.first, _, err = k.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if image := k.module.Image(); image.Stage != k.stage || k.first.marks > 0 {
		t.Fatalf("%+v, %v", image, k.first)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	seals, err := filepath.Glob(filepath.Join(k.dir, "*", "*", "seal"))
	if err != nil || len(seals) != 1 {
		t.Fatalf("%d folders in the cache, %v", len(seals), err)
	}
	k.folder = filepath.Dir(seals[0])
	k.files = treeOf(t, k.folder)
	return k
}

// path is that of one file of the hand: of a name, or the engine's own, whose name it chooses.
func (k kept) path(t *testing.T, name string) string {
	t.Helper()
	if name != "code" {
		return filepath.Join(k.folder, name)
	}
	for path := range k.files {
		if filepath.Dir(path) != k.folder {
			return path
		}
	}
	t.Fatal("there is no code")
	return ""
}

// restore puts the files back as they were.
func (k kept) restore(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(k.folder); err != nil {
		t.Fatal(err)
	}
	for path, content := range k.files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// reload loads the hand again, with what the cache now has. It must read what it read at
// first, from an image: a file that is not what it was is made again, never believed.
func (k kept) reload(t *testing.T, memory int64) {
	t.Helper()
	engine := newEngine(t, sandbox.Config{CacheDir: k.dir})
	defer engine.Close()
	k.module = cage(t, engine, k.specimen, memory, 0)
	if err := k.readClean(t.Context(), false); err != nil {
		t.Error(err)
	}
	if image := k.module.Image(); image.Stage != k.stage {
		t.Errorf("it begins at %+v", image)
	}
	if k.folder == "" {
		return
	}
	for path, content := range treeOf(t, k.folder) {
		if k.files[path] != content && filepath.Base(path) != "seal" {
			t.Errorf("%s is not what it was", filepath.Base(path))
		}
		if info, err := os.Stat(path); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm()&0o022 != 0) {
			t.Errorf("%s: %v, %v", filepath.Base(path), info.Mode(), err)
		}
	}
}

const keptMemory = 1 << 20

// Files of the cache that were cut short, made longer or changed in any place are made
// again.
func TestCacheFilesThatAreDamaged(t *testing.T) {
	k := keep(t, "globals", keptMemory)
	for _, name := range []string{"image", "seal", "module.wasm", "code"} {
		t.Run(name, func(t *testing.T) {
			path := k.path(t, name)
			whole := k.files[path]
			damaged := map[string]string{
				"empty": "", "cut to one byte": whole[:1], "cut in the middle": whole[:len(whole)/2], "cut by one byte": whole[:len(whole)-1],
				"longer": whole + "\x00", "doubled": whole + whole, "zeros": strings.Repeat("\x00", len(whole)), "not a file of ours": "{}\n{}\n",
			}
			chance := rand.New(rand.NewPCG(1, 2))
			for range 40 {
				at := chance.IntN(len(whole))
				if name == "image" || name == "seal" {
					// What they begin with decides about the rest.
					at = chance.IntN(min(len(whole), 700))
				}
				flipped := []byte(whole)
				flipped[at] ^= 1 << chance.IntN(8)
				damaged[fmt.Sprintf("another bit at %d", at)] = string(flipped)
			}
			for _, how := range slices.Sorted(maps.Keys(damaged)) {
				k.restore(t)
				if err := os.WriteFile(path, []byte(damaged[how]), 0o600); err != nil {
					t.Fatal(err)
				}
				k.reload(t, keptMemory)
				if t.Failed() {
					t.Fatal(how)
				}
			}
			k.restore(t)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			k.reload(t, keptMemory)
		})
	}
}

// What is not a file, or not ours alone to write, is not read.
func TestCacheFilesThatAreNoFilesOfOurs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes do not tell who can write a file here")
	}
	k := keep(t, "globals", keptMemory)
	for _, name := range []string{"image", "seal", "module.wasm", "code"} {
		path := k.path(t, name)
		for how, change := range map[string]func() error{
			"others can write it":  func() error { return os.Chmod(path, 0o666) },
			"a group can write it": func() error { return os.Chmod(path, 0o620) },
			"a folder":             func() error { return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "inside"), 0o700)) },
			"a link to nothing":    func() error { return errors.Join(os.Remove(path), os.Symlink("/nowhere", path)) },
			"a device":             func() error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
		} {
			k.restore(t)
			if err := change(); err != nil {
				t.Fatal(err)
			}
			k.reload(t, keptMemory)
			if t.Failed() {
				t.Fatal(name, how)
			}
		}
	}
}

// A folder of the cache in which others can put something in the place of a file is not
// used: it is made again, or refused with what to do where it is not ours to remove.
func TestCacheFoldersThatOthersCanWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing here")
	}
	k := keep(t, "globals", keptMemory)
	for _, folder := range []string{k.folder, filepath.Dir(k.path(t, "code"))} {
		before, err := os.Stat(k.path(t, "code"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		k.reload(t, keptMemory)
		after, err := os.Stat(k.path(t, "code"))
		if err != nil || os.SameFile(before, after) {
			t.Errorf("the code in a folder that anybody can write was used: %v", err)
		}
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	// What was put there while it was open: a file that the engine might take for another
	// hand's, and a link in the place of the folder.
	plant := filepath.Join(filepath.Dir(k.path(t, "code")), strings.Repeat("ab", 32))
	if err := os.WriteFile(plant, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.reload(t, keptMemory)
	if _, err := os.Stat(plant); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is in a folder that does not vouch for it: %v", err)
	}
	moved := k.folder + "-moved"
	if err := errors.Join(os.Rename(k.folder, moved), os.Symlink(moved, k.folder)); err != nil {
		t.Fatal(err)
	}
	k.reload(t, keptMemory)
	if info, err := os.Lstat(k.folder); err != nil || !info.IsDir() {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	entry := filepath.Dir(k.folder)
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702} {
		if err := os.Chmod(entry, mode); err != nil {
			t.Fatal(err)
		}
		refusedWith(t, k, entry+" can be written by others")
	}
	if err := os.Chmod(entry, 0o755); err != nil {
		t.Fatal(err)
	}
	k.reload(t, keptMemory)
}

// What a process left that was killed while it wrote goes when the hand is loaded next,
// and stays while another process is at the hand.
func TestCacheIsTidied(t *testing.T) {
	k := keep(t, "globals", keptMemory)
	entry := filepath.Dir(k.folder)
	left := []string{filepath.Join(entry, ".making-1", "wazero", "code"), filepath.Join(k.folder, ".image-1")}
	elsewhere := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(elsewhere, ".image-1"), nil, 0o600), os.Symlink(elsewhere, filepath.Join(entry, "link"))); err != nil {
		t.Fatal(err)
	}
	leave := func() {
		for _, path := range left {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("half"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := func() (n int) {
		for _, path := range left {
			if _, err := os.Stat(path); err == nil {
				n++
			}
		}
		return n
	}
	lock := flock.New(filepath.Join(entry, "lock"))
	if err := lock.RLock(); err != nil {
		t.Fatal(err)
	}
	leave()
	busy := k
	busy.folder = ""
	busy.reload(t, keptMemory)
	if n := there(); n != len(left) {
		t.Errorf("%d of %d are there that another process may be writing", n, len(left))
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	k.reload(t, keptMemory)
	if n := there(); n != 0 {
		t.Errorf("%d of %d are there that nobody is writing", n, len(left))
	}
	if _, err := os.Stat(filepath.Join(elsewhere, ".image-1")); err != nil {
		t.Errorf("a file of elsewhere is gone: %v", err)
	}
}

// Files that are whole, and another's, are not used: those of another hand, of other limits,
// of another version, and whole folders under another's name.
func TestCacheFilesThatAreAnothers(t *testing.T) {
	k, other := keep(t, "globals", keptMemory), keep(t, "full", keptMemory)
	wide := keep(t, "globals", 2*keptMemory)
	for name, from := range map[string]kept{"another hand's": other, "another limit's": wide} {
		for _, file := range []string{"image", "seal", "module.wasm", "code"} {
			k.restore(t)
			if err := os.WriteFile(k.path(t, file), []byte(from.files[from.path(t, file)]), 0o600); err != nil {
				t.Fatal(err)
			}
			k.reload(t, keptMemory)
			if t.Failed() {
				t.Fatal(name, file)
			}
		}
		// All of it: only the name of the folder says what it is.
		if err := os.RemoveAll(k.folder); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(k.folder, os.DirFS(from.folder)); err != nil {
			t.Fatal(err)
		}
		k.reload(t, keptMemory)
		if t.Failed() {
			t.Fatal(name, "the folder")
		}
	}
	// A whole entry, with its lock, in the place of another.
	if err := errors.Join(os.RemoveAll(filepath.Dir(k.folder)), os.CopyFS(filepath.Dir(k.folder), os.DirFS(filepath.Dir(other.folder)))); err != nil {
		t.Fatal(err)
	}
	k.reload(t, keptMemory)
}

// forged is an image whose header was changed and that vouches for itself again.
func forged(t *testing.T, image string, change func(header map[string]any), content string) string {
	t.Helper()
	_, rest, _ := strings.Cut(image, "\n")
	encoded, pages, _ := strings.Cut(rest, "\n")
	var header map[string]any
	decoder := json.NewDecoder(strings.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&header); err != nil {
		t.Fatal(err)
	}
	change(header)
	changed, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	if content == "" {
		content = pages
	}
	rest = string(changed) + "\n" + content
	sum := sha256.Sum256([]byte(rest))
	return "sha256:" + hex.EncodeToString(sum[:]) + "\n" + rest
}

// An image that vouches for itself and says what cannot be is not used either, and harms
// nobody who looks at it.
func TestCacheImagesThatCannotBe(t *testing.T) {
	page := strings.Repeat("\x00", 4096)
	runs := func(runs ...int64) any {
		all := []any{}
		for i := 0; i < len(runs); i += 2 {
			all = append(all, map[string]any{"First": runs[i], "Count": runs[i+1]})
		}
		return all
	}
	for _, hand := range []string{"globals", "full"} {
		k := keep(t, hand, keptMemory)
		path := k.path(t, "image")
		image := k.files[path]
		if again := forged(t, image, func(map[string]any) {}, ""); len(again) != len(image) {
			t.Fatal("an image is not what this test takes it for")
		}
		for how, change := range map[string]struct {
			header  func(h map[string]any)
			content string
		}{
			"another name":               {func(h map[string]any) { h["Name"] = strings.Repeat("0", 64) + "/" + strings.Repeat("0", 32) }, ""},
			"no name":                    {func(h map[string]any) { delete(h, "Name") }, ""},
			"more than the limit":        {func(h map[string]any) { h["Size"] = 2 * keptMemory }, ""},
			"no whole pages":             {func(h map[string]any) { h["Size"] = keptMemory - 4096 }, ""},
			"less than its pages":        {func(h map[string]any) { h["Size"] = 65536 }, ""},
			"nothing":                    {func(h map[string]any) { h["Size"], h["Runs"] = 0, nil }, ""},
			"a size that overflows":      {func(h map[string]any) { h["Size"] = json.Number("18446744073709486080") }, ""},
			"no globals":                 {func(h map[string]any) { h["Globals"] = nil }, ""},
			"a global more":              {func(h map[string]any) { h["Globals"] = append(h["Globals"].([]any), 1) }, ""},
			"no calls":                   {func(h map[string]any) { h["Calls"] = nil }, ""},
			"another call":               {func(h map[string]any) { h["Calls"] = []string{"memory"} }, ""},
			"a call more":                {func(h map[string]any) { h["Calls"] = []string{"glovebox_query_v1", "glovebox_query_v1"} }, ""},
			"an unknown stage":           {func(h map[string]any) { h["Stage"] = "elsewhere" }, ""},
			"the stage of no image":      {func(h map[string]any) { h["Stage"] = "plain" }, ""},
			"a run beyond the memory":    {func(h map[string]any) { h["Runs"] = runs(1<<40, 1) }, page},
			"a run that overflows":       {func(h map[string]any) { h["Runs"] = runs(1<<52, 1) }, page},
			"a run that is negative":     {func(h map[string]any) { h["Runs"] = runs(-1, 1) }, page},
			"a run of nothing":           {func(h map[string]any) { h["Runs"] = runs(1, 0, 2, 1) }, page},
			"a run of negative length":   {func(h map[string]any) { h["Runs"] = runs(4, -2, 5, 3) }, page},
			"runs that overlap":          {func(h map[string]any) { h["Runs"] = runs(4, 2, 5, 1) }, page + page + page},
			"runs out of order":          {func(h map[string]any) { h["Runs"] = runs(6, 1, 5, 1) }, page + page},
			"pages that are missing":     {func(h map[string]any) { h["Runs"] = runs(4, 2) }, page},
			"pages that are nobody's":    {func(h map[string]any) { h["Runs"] = runs(4, 1) }, page + page},
			"a field that is no number":  {func(h map[string]any) { h["Size"] = "large" }, ""},
			"an export that is not warm": {func(h map[string]any) { h["Stage"] = "warmed" }, ""},
		} {
			k.restore(t)
			if err := os.WriteFile(path, []byte(forged(t, image, change.header, change.content)), 0o600); err != nil {
				t.Fatal(err)
			}
			k.reload(t, keptMemory)
			if t.Failed() {
				t.Fatal(hand, how)
			}
		}
	}
}

// A module without a memory takes none from an image that says that it has one.
func TestCacheImageOfNoMemory(t *testing.T) {
	dir := t.TempDir()
	module := entering(0x41, 0, 0x0b)
	module = bytes.Replace(module, []byte("\x05\x03\x01\x00\x01"), nil, 1) // the memory
	query := func() error {
		engine := newEngine(t, sandbox.Config{CacheDir: dir})
		defer engine.Close()
		loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: "none"})
		if err != nil {
			return err
		}
		_, err = loaded.Query(t.Context(), abi.Query{}, sandbox.Ports{})
		return err
	}
	if err := query(); err != nil {
		t.Fatal(err)
	}
	images, err := filepath.Glob(filepath.Join(dir, "*", "*", "image"))
	if err != nil || len(images) != 1 {
		t.Skipf("%d images, %v", len(images), err)
	}
	image, err := os.ReadFile(images[0])
	if err != nil {
		t.Fatal(err)
	}
	changed := forged(t, string(image), func(h map[string]any) {
		h["Size"], h["Runs"] = 65536, []any{map[string]any{"First": 0, "Count": 1}}
	}, strings.Repeat("x", 4096))
	if err := os.WriteFile(images[0], []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	// It may be refused when it is loaded or when it is asked: nothing of it is written anywhere.
	if err := query(); err != nil && !errors.Is(err, abi.KindTrap) {
		t.Error(err)
	}
}

// An image that says that it is larger than its module's memory can ever be, and within the
// limit of the hand, has nothing mapped or written beyond that memory.
func TestCacheImageLargerThanItsMemory(t *testing.T) {
	module := assembled(t, `(module (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
		(memory (export "memory") 3 3) (data (i32.const 0) "fine")
		(func (export "glovebox_query_v1") (result i32) (call $reply (i32.const 0) (i32.const 4))))`)
	for _, way := range ways[:2] {
		config := sandbox.Config{Images: way.images, CacheDir: t.TempDir()}
		query := func() (string, error) {
			engine := newEngine(t, config)
			defer engine.Close()
			loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: "small"})
			if err != nil {
				return "", err
			}
			said, _, err := ask(t, loaded, "", sandbox.Ports{})
			return said, err
		}
		if said, err := query(); err != nil || said != "fine" {
			t.Fatal(said, err)
		}
		images, err := filepath.Glob(filepath.Join(config.CacheDir, "*", "*", "image"))
		if err != nil || len(images) != 1 {
			t.Fatalf("%d images, %v", len(images), err)
		}
		image, err := os.ReadFile(images[0])
		if err != nil {
			t.Fatal(err)
		}
		// Its pages lie behind what there is of the memory.
		changed := forged(t, string(image), func(h map[string]any) {
			h["Size"], h["Runs"] = 64<<20, []any{map[string]any{"First": 63 << 8, "Count": 1}}
		}, strings.Repeat("x", 4096))
		if err := os.WriteFile(images[0], []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, err := query(); !errors.Is(err, abi.KindOutOfMemory) {
			t.Errorf("%s: it says %q, %v", way.name, said, err)
		}
	}
}

// A cache that is there and cannot be written is refused with its name, or loads what it has.
func TestCacheThatCannotBeWritten(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("modes do not stop this user")
	}
	k := keep(t, "globals", keptMemory)
	if err := filepath.WalkDir(k.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			t.Cleanup(func() { os.Chmod(path, 0o700) })
			err = os.Chmod(path, 0o500)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, k, k.dir)
}

// refusedWith expects an engine, or a hand in it, to be refused with words that say where.
func refusedWith(t *testing.T, k kept, where string) {
	t.Helper()
	engine, err := sandbox.New(sandbox.Config{CacheDir: k.dir})
	if err == nil {
		defer engine.Close()
		var module []byte
		if module, err = k.build(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = engine.Load(t.Context(), module, sandbox.Options{Name: k.name, Granted: abi.Capabilities(), Trusted: true})
		if err != nil && !errors.Is(err, abi.KindUnavailable) {
			t.Errorf("it is refused as %s", abi.KindOf(err))
		}
	}
	if err == nil || !strings.Contains(err.Error(), where) {
		t.Errorf("%v", err)
	}
}

// childCache names the cache of a process that TestCacheOfManyProcesses starts.
const childCache = "GLOVEBOX_ISOLATION_CACHE"

// TestCacheChild is the other process: it loads a hand when it is told to, and says what
// that reads.
func TestCacheChild(t *testing.T) {
	dir := os.Getenv(childCache)
	if dir == "" {
		t.Skip("is started by TestCacheOfManyProcesses")
	}
	engine := newEngine(t, sandbox.Config{CacheDir: dir})
	os.Stdin.Read(make([]byte, 1))
	module, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "hand.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	s := specimen{name: "shared", build: func(context.Context) ([]byte, error) { return module, nil }}
	c := caged{specimen: s, module: cage(t, engine, s, keptMemory, 0)}
	for n := range 50 {
		if n > 0 {
			if err := c.dirty(t.Context(), n, "answer", []abi.Kind{""}, true); err != nil {
				t.Error(err)
			}
		}
		r, _, err := c.read(t.Context())
		if err != nil || n > 0 && r != c.first {
			t.Fatal(r, err)
		}
		c.first = r
	}
	fmt.Printf("\n%s %v\n", c.module.Image().Stage, c.first)
}

// Processes that make the same image at once all begin from the same.
func TestCacheOfManyProcesses(t *testing.T) {
	k := keep(t, "globals", keptMemory)
	module := k.needed(t)
	for round := range 3 {
		dir := filepath.Join(t.TempDir(), "cache")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(filepath.Dir(dir), "hand.wasm"), module, 0o600)); err != nil {
			t.Fatal(err)
		}
		const processes = 4
		begin := make(chan struct{})
		var started, ended sync.WaitGroup
		started.Add(processes)
		for range processes {
			ended.Go(func() {
				command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCacheChild$", "-test.v")
				command.Env = append(os.Environ(), childCache+"="+dir)
				stdin, err := command.StdinPipe()
				var printed bytes.Buffer
				command.Stdout, command.Stderr = &printed, &printed
				if err == nil {
					err = command.Start()
				}
				started.Done()
				if err != nil {
					t.Error(err)
					return
				}
				<-begin
				stdin.Close()
				want := fmt.Sprintf("\n%s %v\n", k.stage, k.first)
				if err := command.Wait(); err != nil || !strings.Contains(printed.String(), want) {
					t.Errorf("%v, want %s: %s", err, want, &printed)
				}
			})
		}
		started.Wait()
		close(begin)
		ended.Wait()
		if images, err := filepath.Glob(filepath.Join(dir, "*", "*", "*image*")); err != nil || len(images) != 1 {
			t.Errorf("round %d: %d images, %v", round, len(images), err)
		}
	}
}
