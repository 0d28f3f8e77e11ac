// Package sandbox is the box: it admits a module, compiles it once, and answers
// each query in a fresh instance that is thrown away afterwards. It gives a
// guest the functions of package abi and nothing else: what those reach comes in
// through Ports, and the zero Ports reach nothing.
//
// It knows neither sessions nor configuration. Whatever a guest says leaves it
// as a boundary.Content.
package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/cpu"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
)

// Config sets up an Engine. The zero value works, without a cache on disk.
type Config struct {
	// CacheDir keeps compiled modules between processes; "" means a directory
	// that Close removes. It holds native code that is trusted: the engine
	// makes it with mode 0700 and refuses one that others can write. Several
	// processes may share it.
	CacheDir string
	// Compiler compiles what the cache does not have; nil means to compile in
	// this process, under stricter caps than a module is admitted with.
	Compiler Compiler
	// CacheBytes bounds CacheDir; the modules not used for longest go first, and those
	// that a process has loaded stay, over the bound if they have to. Zero means 2 GiB.
	CacheBytes int64
	// CodeBytes bounds, about, what the code and the images of modules take in
	// memory; of those that were in no query for ten minutes, or in none yet, a
	// sixth of it may stay. What no query is in and was used longest ago is dropped,
	// and loaded again from the cache when it is asked, which takes from a few to
	// some hundred milliseconds, by its size. Zero means 1 GiB.
	CodeBytes int64
	// InFlight bounds the queries that were begun and are not yet answered;
	// zero means 64.
	InFlight int
	// Running bounds the queries that run guest code at the same instant;
	// zero means twice the number of processors. A query that waits for the
	// host gives its place to another.
	Running int
	// MemoryBytes bounds the linear memories of all queries together; zero
	// means 1 GiB.
	MemoryBytes int64
	// Images says how instances come to their first memory; the zero value is
	// the fastest way that the system has.
	Images Images
	// MaxWait is how long a query waits for a place at most, if its own
	// deadline is not earlier; zero means 5 s.
	MaxWait time.Duration
}

// Engine admits and runs modules. It is safe for concurrent use.
type Engine struct {
	config   Config
	cache    *cache
	ownCache string // to be removed by Close; "" if the cache is shared
	// runtime holds the host's functions once for all modules. Instances have no
	// names in it, so that no module finds another.
	runtime  wazero.Runtime
	compiled wazero.CompilationCache
	// provided are the modules of the host's functions. Instances are given them from
	// here: to look for each by its name they would take a lock of the runtime for
	// reading that each of them takes for writing when it begins and when it ends.
	provided map[string]api.Module
	stage    *stage
	inFlight *semaphore.Weighted
	running  *semaphore.Weighted
	memories *memoryPool
	// What all queries write stands apart from what they read.
	_ cpu.CacheLinePad
	// memory is what all linear memories hold now, in bytes.
	memory atomic.Int64
	_      cpu.CacheLinePad

	// opening keeps modules with the same bytes, by their hash, from being loaded at
	// once: the engine shares what it has of one before it is done with it.
	opening [64]sync.Mutex
	seed    maphash.Seed

	// work are the loads that run, the modules that are being closed and the look that
	// is to come: Close waits for them. None begins once closed is set; closing then
	// ends the loads.
	work    sync.WaitGroup
	closing context.Context
	close   context.CancelFunc

	mu sync.Mutex
	// closed, modules and programs are guarded by mu.
	closed   bool
	modules  map[*Module]struct{}
	programs map[string]*program
	// looking calls look; nil if there is nothing to look for. Guarded by mu.
	looking *time.Timer
	// codeBytes is what the programs' code takes.
	codeBytes atomic.Int64
}

// New returns an engine. It fails only if the cache directory cannot be used.
func New(config Config) (*Engine, error) {
	if config.CacheBytes == 0 {
		config.CacheBytes = 2 << 30
	}
	if config.CodeBytes == 0 {
		config.CodeBytes = 1 << 30
	}
	if config.InFlight == 0 {
		config.InFlight = 64
	}
	if config.Running == 0 {
		config.Running = 2 * runtime.GOMAXPROCS(0)
	}
	if config.MemoryBytes == 0 {
		config.MemoryBytes = 1 << 30
	}
	if config.MaxWait == 0 {
		config.MaxWait = 5 * time.Second
	}
	e := &Engine{
		config:   config,
		seed:     maphash.MakeSeed(),
		memories: newMemoryPool(),
		inFlight: semaphore.NewWeighted(int64(config.InFlight)),
		running:  semaphore.NewWeighted(int64(config.Running)),
		provided: map[string]api.Module{},
		modules:  map[*Module]struct{}{},
		programs: map[string]*program{},
	}
	e.closing, e.close = context.WithCancel(context.Background())
	if config.CacheDir == "" {
		var err error
		if e.ownCache, err = os.MkdirTemp("", "glovebox-cache-"); err != nil {
			return nil, fmt.Errorf("make compilation cache: %w", err)
		}
		config.CacheDir = e.ownCache
	}
	var err error
	if e.cache, err = openCache(config.CacheDir, config.CacheBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("open compilation cache: %w", err), os.RemoveAll(e.ownCache))
	}
	if err := e.boot(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("start engine: %w", err), e.Close())
	}
	return e, nil
}

// boot makes the runtime. Its compilation cache is a stage on which each module's own
// entry stands only while it is loaded.
func (e *Engine) boot(ctx context.Context) (err error) {
	if e.stage, err = e.cache.newStage(); err != nil {
		return err
	}
	if e.compiled, err = wazero.NewCompilationCacheWithDir(e.stage.dir); err != nil {
		return err
	}
	if err := e.stage.findEngine(); err != nil {
		return err
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, runtimeConfig().WithCompilationCache(e.compiled))
	if err := e.provideWASI(ctx); err != nil {
		return err
	}
	return e.provideHostFunctions(ctx)
}

// provide lets instances import a module of the host's functions.
func (e *Engine) provide(ctx context.Context, name string, functions interface {
	Compile(context.Context) (wazero.CompiledModule, error)
}) error {
	compiled, err := functions.Compile(ctx)
	if err == nil {
		e.provided[name], err = e.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig())
	}
	if err != nil {
		return fmt.Errorf("host module %s: %w", name, err)
	}
	return nil
}

// Close ends the loads that run, waits for the queries, and frees all modules. Later
// calls, and the loads, fail with abi.KindHostClosed.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	if e.looking != nil && e.looking.Stop() {
		e.work.Done()
	}
	modules := e.modules
	e.modules = nil
	// Before the lock is given back, so that none begins once anybody's Close returns.
	for m := range modules {
		m.shut()
	}
	e.mu.Unlock()
	e.close()
	e.work.Wait()

	var errs []error
	for m := range modules {
		m.queries.Wait()
		errs = append(errs, m.free())
	}
	e.memories.free()
	if e.runtime != nil {
		errs = append(errs, e.runtime.Close(context.Background()))
	}
	if e.compiled != nil {
		errs = append(errs, e.compiled.Close(context.Background()))
	}
	if e.stage != nil {
		errs = append(errs, e.stage.close())
	}
	if e.ownCache != "" {
		errs = append(errs, os.RemoveAll(e.ownCache))
	}
	return errors.Join(errs...)
}

// Options say how one module is loaded.
type Options struct {
	// Name is the hand's name, of the form that manifest.ValidName wants. It
	// stands in errors and in the source of the hand's words.
	Name string
	// Limits bound each query; zero fields are the defaults.
	Limits abi.Limits
	// Granted lists the capabilities that the module may import.
	Granted []abi.Capability
	// ModelTokens bounds what the model answers in one query, all together, in output
	// tokens; zero leaves that to the query's MaxOutputTokens, which bounds it too.
	ModelTokens int
	// Trusted lets the module be compiled in this process, whatever that
	// takes: it is part of the program.
	Trusted bool
	// FromStart has each query run all that comes before the entry itself, where
	// others begin from an image of it, and leaves abi.ExportWarm out: as slow as
	// without images. What is answered is to be the same, to which a test can hold a
	// module so. The code is shared with the module that begins from its image.
	FromStart bool
}

// Module is an admitted and compiled module. It is safe for concurrent use and
// belongs to its engine, whose Close frees it.
type Module struct {
	engine *Engine
	name   string
	source boundary.Source
	digest string
	limits abi.Limits
	// modelTokens is Options.ModelTokens.
	modelTokens int
	// program is shared under key with modules of the same code and limits.
	program *program
	key     string
	slots   *semaphore.Weighted
	queries sync.WaitGroup

	mu sync.Mutex
	// closed is guarded by mu: no query begins once it is set.
	closed bool
}

// Profile is how a module is entered.
type Profile string

// The profiles of package abi.
const (
	ProfileReactor Profile = "reactor"
	ProfileCommand Profile = "command"
)

// Load admits and compiles a module. It takes as long as compiling does, or a
// few milliseconds if the cache has it. Errors are *abi.Error of the kinds
// bad_module, abi_mismatch, not_granted, out_of_memory (from the start),
// unavailable (the cache or the compiler) and host_closed.
func (e *Engine) Load(ctx context.Context, module []byte, options Options) (*Module, error) {
	fail := func(kind abi.Kind, text string, cause error) (*Module, error) {
		return nil, &abi.Error{Hand: options.Name, Kind: kind, Text: text, Err: cause}
	}
	source, err := boundary.HandSource(options.Name)
	if err != nil {
		return fail(abi.KindBadModule, "unusable name", err)
	}
	limits, err := options.Limits.WithDefaults()
	if err != nil {
		return fail(abi.KindBadModule, "unusable limits", err)
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fail(abi.KindHostClosed, "", nil)
	}
	e.work.Add(1)
	e.mu.Unlock()
	defer e.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.closing, cancel)()

	m := &Module{engine: e, name: options.Name, source: source, limits: limits, modelTokens: options.ModelTokens, slots: semaphore.NewWeighted(int64(limits.Concurrent))}
	if err := m.load(ctx, module, options); err != nil {
		if e.closing.Err() != nil {
			return fail(abi.KindHostClosed, "", err)
		}
		if refusal, ok := errors.AsType[*abi.Error](err); ok {
			refusal.Hand = options.Name
			return nil, refusal
		}
		return fail(abi.KindUnavailable, "it cannot be loaded", err)
	}
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.modules[m] = struct{}{}
	}
	e.mu.Unlock()
	if closed {
		return fail(abi.KindHostClosed, "", m.free())
	}
	return m, nil
}

func (m *Module) load(ctx context.Context, module []byte, options Options) error {
	e := m.engine
	m.digest = Digest(module)
	decoded, err := permitted(module, m.limits, options.Granted)
	if err != nil {
		return err
	}
	// Custom sections, the manifest among them, do not reach the engine: modules
	// that differ in them alone are one program.
	code := Digest(decoded.Bare())
	folder := e.folder(code, m.limits)
	m.key = folder.path
	if options.FromStart {
		m.key += " from its start"
	}
	m.program, err = e.share(ctx, m.key, func(p *program) (err error) {
		lock, err := e.cache.acquire(code)
		if err != nil {
			return err
		}
		defer func() {
			if err == nil && !p.lasting {
				p.held = lock
			} else {
				_ = lock.Unlock()
			}
		}()
		data := decoded.Data
		a, err := e.prepare(ctx, decoded, folder, m.limits, options.Trusted)
		if err != nil {
			return err
		}
		p.folder = folder
		p.describe(a)
		loaded, err := p.open(ctx, e, a)
		if err != nil {
			return err
		}
		p.begins = ImageInfo{Stage: StagePlain, Reason: p.notCarried}
		if e.config.Images != ImagesOff && p.notCarried == "" {
			if err := p.prepareImage(ctx, e, loaded, m.limits, data, options.FromStart); err != nil {
				return errors.Join(err, loaded.free(e))
			}
		}
		p.keep(e, loaded)
		return nil
	})
	if err != nil {
		return err
	}
	e.dropIdle()
	return nil
}

// Close waits for the module's queries and frees it. Later queries fail with
// abi.KindHostClosed. The engine's Close does the same for all modules.
func (m *Module) Close() error {
	e := m.engine
	e.mu.Lock()
	_, open := e.modules[m]
	delete(e.modules, m)
	if open {
		e.work.Add(1)
		m.shut()
	}
	e.mu.Unlock()
	if !open {
		return nil
	}
	defer e.work.Done()
	m.queries.Wait()
	return m.free()
}

// shut lets no more queries begin. The engine's mu is held.
func (m *Module) shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

func (m *Module) free() error { return m.engine.unshare(m.key, m.program) }

// Lost reports whether the module's code was dropped while nobody asked for it and is
// no longer in the compilation cache: queries fail with abi.KindUnavailable until it is
// loaded anew.
func (m *Module) Lost() bool { return m.program.gone() }

// Name returns the hand's name.
func (m *Module) Name() string { return m.name }

// Digest returns "sha256:" and the hexadecimal digest of the module's bytes.
func (m *Module) Digest() string { return m.digest }

// Profile returns how the module is entered.
func (m *Module) Profile() Profile { return m.program.profile }

// Limits returns the limits in force, none of them zero.
func (m *Module) Limits() abi.Limits { return m.limits }

// Digest returns "sha256:" and the hexadecimal digest of a module's bytes.
func Digest(module []byte) string {
	sum := sha256.Sum256(module)
	return "sha256:" + hex.EncodeToString(sum[:])
}
