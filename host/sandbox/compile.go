package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// Compiler compiles modules outside of this process, because compiling cannot
// be interrupted and takes what memory it wants. It is safe for concurrent use.
type Compiler interface {
	// Compile has CompileInto called, in a process that may be ended, with a
	// directory and a module. It returns when that process has ended.
	Compile(ctx context.Context, dir string, module []byte) error
}

// CompileInto compiles a module that was admitted into a directory, from which
// an engine with the same version and processor loads it. It is what a
// Compiler's process calls; it cannot be interrupted.
func CompileInto(ctx context.Context, dir string, module []byte) error {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return notKept(err)
	}
	defer cache.Close(ctx)
	engine := wazero.NewRuntimeWithConfig(ctx, runtimeConfig().WithCompilationCache(cache))
	defer engine.Close(ctx)
	if _, err := engine.CompileModule(withWorkers(ctx), module); err != nil {
		return notCompiled(err)
	}
	return nil
}

// notCompiled is why the engine has not compiled a module, or not loaded what was
// compiled: the machine's fault, or the module's.
func notCompiled(err error) error {
	if fault, ok := errors.AsType[*fs.PathError](err); ok {
		return notKept(fault)
	}
	if fault, ok := errors.AsType[*os.LinkError](err); ok {
		return notKept(fault)
	}
	if fault, ok := errors.AsType[syscall.Errno](err); ok {
		return notKept(fault)
	}
	return &abi.Error{Kind: abi.KindBadModule, Text: "the engine refuses the module: " + engineText(err)}
}

func notKept(err error) error {
	return &abi.Error{Kind: abi.KindUnavailable, Text: "keep the compiled module: make room for the compilation cache, or see that it can be written", Err: err}
}

func runtimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2).WithDebugInfoEnabled(false)
}

func withWorkers(ctx context.Context) context.Context {
	return experimental.WithCompilationWorkers(ctx, min(runtime.GOMAXPROCS(0), 4))
}

// compiledFolder is a folder in a cache entry:
//
//	<key>/wazero-…/…    the engine's file
//	<key>/module.wasm   the admitted module that it was compiled from
//	<key>/seal          written last: what the module is, and the digests of both
//	<key>/image         what instances begin from, if there is one
//
// The key says for which limits, engine and rewriting it was made.
type compiledFolder struct {
	path string
	// name is what the folder's files say they belong to, so that one that was
	// put into another's place is known.
	name string
}

// seal vouches for a compiled folder.
type seal struct {
	Name string
	admitted
	// Files maps the other files of the folder to their digests.
	Files map[string]string
}

// knows reports whether a file of the folder is the seal's, or beside it an image's.
func (s seal) knows(name string) bool {
	return s.Files[name] != "" || name == sealFile || name == imageFile || strings.HasPrefix(name, imagePrefix)
}

func (s seal) engineFiles() (names []string) {
	for name := range s.Files {
		if name != moduleFile {
			names = append(names, filepath.FromSlash(name))
		}
	}
	return names
}

// folder is the place of what is compiled from a module, by the digest of its code.
func (e *Engine) folder(code string, limits abi.Limits) compiledFolder {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d %d %d\n%s\n%d %d %d %v", code, meter.Version, joining, imageVersion, e.stage.engine,
		limits.TableElements, limits.StackBytes, limits.MemoryBytes, e.config.Images != ImagesOff))
	name := filepath.Join(entryName(code), hex.EncodeToString(sum[:16]))
	return compiledFolder{path: filepath.Join(e.cache.dir, name), name: filepath.ToSlash(name)}
}

const (
	sealFile   = "seal"
	moduleFile = "module.wasm"
	imageFile  = "image"
)

// read returns what was admitted; not ok if the folder is not whole, or not what
// this process or another of the same user wrote there.
func (f compiledFolder) read() (a admitted, ok bool) {
	if checkPrivate(filepath.Dir(f.path)) != nil || checkPrivate(f.path) != nil {
		return a, false
	}
	data, err := readVouched(filepath.Join(f.path, sealFile))
	if err != nil {
		return a, false
	}
	var s seal
	if json.Unmarshal(data, &s) != nil || s.Name != f.name || s.Files[moduleFile] == "" {
		return a, false
	}
	for name, digest := range s.Files {
		path := filepath.Join(f.path, filepath.FromSlash(name))
		// The file is read again when it is loaded, by its name.
		if checkPrivate(filepath.Dir(path)) != nil {
			return a, false
		}
		content, err := readOwn(path)
		if err != nil || Digest(content) != digest {
			return a, false
		}
		if name == moduleFile {
			s.module = content
		}
	}
	if err := filepath.WalkDir(f.path, func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(f.path, path); err == nil && !d.IsDir() && !s.knows(filepath.ToSlash(name)) {
			return fmt.Errorf("%s is not in the seal", path)
		}
		return err
	}); err != nil {
		return a, false
	}
	s.code = s.engineFiles()
	return s.admitted, len(s.Calls) > 0 && len(s.code) > 0
}

// isThere reports whether a folder that was read once has not been removed.
func (f compiledFolder) isThere(image bool) bool {
	_, err := os.Stat(filepath.Join(f.path, sealFile))
	if err == nil && image {
		_, err = os.Stat(filepath.Join(f.path, imageFile))
	}
	return err == nil
}

// vouched is the content of a file that begins with its own digest, on a line:
//
//	sha256:<64 hexadecimal digits>\n
//	<content>
func vouched(content []byte) []byte { return append([]byte(Digest(content)+"\n"), content...) }

// readVouched reads a file's content if it is what was vouched for.
func readVouched(path string) ([]byte, error) {
	data, err := readOwn(path)
	if err != nil {
		return nil, err
	}
	digest, content, _ := bytes.Cut(data, []byte("\n"))
	if Digest(content) != string(digest) {
		return nil, fmt.Errorf("%s is not whole", path)
	}
	return content, nil
}

// readOwn reads a regular file that nobody else can write.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|atOnceNoLink, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	if writableByOthers(info) || ofAnother(info) {
		return nil, fmt.Errorf("%s is not this user's alone (mode %v)", path, info.Mode().Perm())
	}
	return io.ReadAll(io.LimitReader(file, maxCachedFile))
}

// maxCachedFile bounds what is read of one file of the cache: the code of the
// largest module takes a few times its size.
const maxCachedFile = 1 << 30

// write makes a folder beside the place and moves it there when it is whole, so
// that nobody sees less.
func (f compiledFolder) write(a admitted, compile func(dir string) error) (admitted, error) {
	fail := func(err error) (admitted, error) { return admitted{}, err }
	making, err := os.MkdirTemp(filepath.Dir(f.path), makingPrefix)
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(making)
	if err := compile(making); err != nil {
		return fail(err)
	}
	if err := os.WriteFile(filepath.Join(making, moduleFile), a.module, 0o600); err != nil {
		return fail(err)
	}
	s := seal{Name: f.name, admitted: a, Files: map[string]string{}}
	if err := filepath.WalkDir(making, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(making, path)
		s.Files[filepath.ToSlash(name)] = Digest(content)
		return err
	}); err != nil {
		return fail(err)
	}
	if a.code = s.engineFiles(); len(a.code) == 0 {
		return fail(&abi.Error{Kind: abi.KindUnavailable, Text: "the compiler left nothing"})
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(filepath.Join(making, sealFile), vouched(data), 0o600); err != nil {
		return fail(err)
	}
	// A folder that is not whole, or that another process has just made, gives
	// way. It may have what is another user's, and cannot be removed.
	if err := os.Rename(making, f.path); err == nil {
		return a, nil
	}
	if there, whole := f.read(); whole {
		return there, nil
	}
	aside := filepath.Join(filepath.Dir(f.path), makingPrefix+rand.Text())
	if err := os.Rename(f.path, aside); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(aside)
	if err = os.Rename(making, f.path); err == nil {
		return a, nil
	}
	if there, whole := f.read(); whole {
		return there, nil
	}
	return fail(err)
}

// maxInProcess is the longest compilation, as estimate has it, that is done
// without a Compiler. What is estimated to take so long takes at most a second
// and 512 MiB, as far as a search over generated modules has found.
const maxInProcess = 500 * time.Millisecond

// What the engine's compiler takes at worst, on one core of 2026: measured over
// generated modules, docs/benchmarks.md has the figures. It is quadratic in the
// blocks of a function, and again in the loops, which metering divides further.
const (
	costByte        = 300 * time.Nanosecond
	costFunction    = 10 * time.Microsecond
	costBranches    = 80 * time.Nanosecond  // × branches²
	costLoops       = 200 * time.Nanosecond // × loops²
	costLocalBranch = 1100 * time.Nanosecond
	costValue       = 2600 * time.Nanosecond // carried by calls, blocks and branches
	costCalls       = 40 * time.Nanosecond   // × calls²
)

// maxInProcessBody bounds one body: registers are allocated by function, and
// what that takes in memory is not in the estimate.
const maxInProcessBody = 64 << 10

// estimate says how long compiling a module takes at worst.
func estimate(m *wasm.Module) (time.Duration, error) {
	sum := 0.0
	values := callValues(m)
	for i, b := range m.Bodies {
		s, err := measure(m, values, i, b)
		if err != nil {
			return 0, err
		}
		branches, loops, locals := float64(s.branches), float64(s.loops), float64(s.locals)
		sum += float64(costFunction) + float64(costByte)*float64(b.Size) + float64(costBranches)*branches*branches +
			float64(costLoops)*loops*loops + float64(costLocalBranch)*locals*branches + float64(costValue)*float64(s.values) + float64(costCalls)*float64(s.calls)*float64(s.calls)
		if b.Size > maxInProcessBody {
			sum += float64(maxInProcess)
		}
	}
	return time.Duration(min(sum, float64(time.Hour))), nil
}

func checkInProcess(m *wasm.Module) error {
	takes, err := estimate(m)
	if err == nil && takes >= maxInProcess {
		err = fmt.Errorf("it may take %v, less than %v is spent in this process", takes.Round(100*time.Millisecond), maxInProcess)
	}
	return err
}

// prepare returns the admitted module, compiling it into its folder if need be. The
// entry of the cache is locked meanwhile. It uses m up.
func (e *Engine) prepare(ctx context.Context, m *wasm.Module, folder compiledFolder, limits abi.Limits, trusted bool) (admitted, error) {
	a, ok := folder.read()
	if ok {
		return a, nil
	}
	a, err := admit(m, limits, e.config.Images != ImagesOff)
	if err != nil {
		return admitted{}, err
	}
	compile := func(dir string) error { return CompileInto(ctx, dir, a.module) }
	switch {
	case trusted:
	case e.config.Compiler != nil:
		compile = func(dir string) error { return e.config.Compiler.Compile(ctx, dir, a.module) }
	default:
		if err := checkInProcess(m); err != nil {
			return admitted{}, &abi.Error{Kind: abi.KindBadModule, Text: "too much to compile without a compiler process, which the program does not name", Err: err}
		}
	}
	if a, err = folder.write(a, compile); err != nil {
		return admitted{}, err
	}
	e.cache.evict(filepath.Dir(folder.path))
	return a, nil
}
