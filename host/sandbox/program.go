package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/tetratelabs/wazero"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/cpu"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// program is what modules of the same code and limits share: the code, compiled
// once, and the image that their instances begin from.
type program struct {
	profile Profile
	// calls are the exports to call, in order, entry last; warm is what may be
	// called after them and before the entry, once.
	calls, warm []string
	// globals are the names of the globals that an image holds.
	globals []string
	// notCarried says why there can be no image; "" if there can.
	notCarried string
	// begins is what queries begin from.
	begins ImageInfo
	// config is what each instance begins with; usesWASI tells whether it
	// needs a world, of which worlds keeps those that are in no query.
	config   wazero.ModuleConfig
	usesWASI bool
	worlds   sync.Pool

	// loaded is closed when the program is there or err says why not.
	loaded chan struct{}
	err    error

	// folder is where the code can be loaded from again, by who has again. lasting says
	// that it cannot.
	folder  compiledFolder
	lasting bool
	again   *semaphore.Weighted

	// users are the modules that have the program; guarded by the engine's mu.
	users int

	// What all queries write stands apart from what they read. mu is the program's own,
	// so that queries of different hands do not wait for each other; the engine's is
	// taken before it.
	_  cpu.CacheLinePad
	mu sync.Mutex
	// What follows is guarded by mu. running are the queries that are in the program,
	// and used is when the last was over.
	running int
	used    time.Time
	// code is nil while it is dropped; lost says that a query could not have it loaded
	// again. held keeps the cache's entry from eviction, of what is not lasting, as long
	// as there is the program: what has none cannot be dropped.
	code          *loadedCode
	held          *flock.Flock
	dropped, lost bool
}

// loadedCode is what of a program takes memory.
type loadedCode struct {
	compiled wazero.CompiledModule
	// image is nil if instances are made plainly.
	image *image
	// bytes is about what it takes.
	bytes int64
}

func (l *loadedCode) free(e *Engine) error {
	if l.image != nil && l.image.mapped != nil {
		e.memories.forget(l.image.mapped)
		l.image.unmap()
	}
	return l.compiled.Close(context.Background())
}

// share returns the program of a key, which the first to ask for it loads, and whoever
// asks for it when it is gone. Whoever gets it has to unshare it.
func (e *Engine) share(ctx context.Context, key string, load func(*program) error) (*program, error) {
	for {
		e.mu.Lock()
		p, shared := e.programs[key]
		if !shared {
			p = &program{loaded: make(chan struct{}), again: semaphore.NewWeighted(1)}
			e.programs[key] = p
		}
		p.users++
		e.mu.Unlock()
		if shared {
			select {
			case <-p.loaded:
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), e.unshare(key, p))
			}
			if p.gone() {
				e.forget(key, p)
				if err := e.unshare(key, p); err != nil {
					return nil, err
				}
				continue
			}
		} else {
			if p.err = load(p); p.err != nil {
				e.forget(key, p)
			}
			close(p.loaded)
		}
		if p.err == nil {
			return p, nil
		}
		err := e.unshare(key, p)
		if !shared {
			return nil, errors.Join(p.err, err)
		}
		// Who loaded it may have failed for a reason that is not everybody's.
	}
}

// gone reports whether the program's code was dropped and cannot be loaded again.
func (p *program) gone() bool {
	p.mu.Lock()
	dropped, lost := p.dropped, p.lost
	p.mu.Unlock()
	return dropped && (lost || !p.folder.isThere(p.begins.Stage != StagePlain))
}

// forget has the next module that wants the program load it anew.
func (e *Engine) forget(key string, p *program) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.programs[key] == p {
		delete(e.programs, key)
	}
}

// unshare gives a program back; the last frees it.
func (e *Engine) unshare(key string, p *program) error {
	e.mu.Lock()
	p.users--
	last := p.users == 0
	if last && e.programs[key] == p {
		delete(e.programs, key)
	}
	e.mu.Unlock()
	if !last {
		return nil
	}
	return p.free(e)
}

func (p *program) free(e *Engine) error {
	p.mu.Lock()
	code, held := p.code, p.held
	p.code, p.held = nil, nil
	p.mu.Unlock()
	var errs []error
	if code != nil {
		e.codeBytes.Add(-code.bytes)
		errs = append(errs, code.free(e))
	}
	if held != nil {
		errs = append(errs, held.Unlock())
	}
	return errors.Join(errs...)
}

// describe takes over what is known of a module without its code.
func (p *program) describe(a admitted) {
	p.profile, p.calls, p.warm, p.notCarried, p.usesWASI = a.Profile, a.Calls, a.Warm, a.NotCarried, a.UsesWASI
	for n := range a.Globals {
		p.globals = append(p.globals, meter.Global+strconv.Itoa(n))
	}
	// An explicit source of chance: the engine's own is seeded per instance.
	p.config = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithSysWalltime().WithSysNanotime().WithRandSource(rand.Reader)
}

// open loads what was compiled into the program's folder, without an image.
func (p *program) open(ctx context.Context, e *Engine, a admitted) (*loadedCode, error) {
	bytes, remove, err := e.stage.put(p.folder, a.code)
	if err != nil {
		return nil, fmt.Errorf("stage compiled module: %w", err)
	}
	defer remove()
	opening := &e.opening[maphash.Bytes(e.seed, a.module)%uint64(len(e.opening))]
	opening.Lock()
	compiled, err := e.runtime.CompileModule(ctx, a.module)
	opening.Unlock()
	if err != nil {
		return nil, notCompiled(err)
	}
	return &loadedCode{compiled: compiled, bytes: bytes + int64(len(a.module))}, nil
}

// keep makes l the program's code. Unless a query waits for it, it is idle at once: of
// many that are loaded when a host starts, few may ever be asked.
func (p *program) keep(e *Engine, l *loadedCode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code, p.dropped, p.used = l, false, time.Now().Add(-idleAfter)
	e.codeBytes.Add(l.bytes)
}

// begin has the program's queries begin from an image.
func (l *loadedCode) begin(e *Engine, i *image) {
	l.bytes += i.bytes()
	if e.config.Images == ImagesMapped {
		i.mapInto()
	}
	l.image = i
}

// prepareImage reads the image that the folder has, or takes it and keeps it there.
// An image that cannot be kept is used all the same, and taken again next time. One of
// the data alone, for what runs from its start, is never kept.
func (p *program) prepareImage(ctx context.Context, e *Engine, l *loadedCode, limits abi.Limits, data []wasm.DataSegment, fromStart bool) error {
	var taken *image
	if !fromStart {
		taken, _ = p.folder.readImage(p, limits)
	}
	if taken == nil {
		var err error
		if taken, err = p.takeImage(ctx, e, l, limits, data, fromStart); err != nil {
			return err
		}
		p.lasting = taken.passing || fromStart || p.folder.writeImage(taken) != nil
	}
	p.begins = ImageInfo{Stage: taken.Stage, Bytes: taken.bytes(), Reason: taken.Reason}
	l.begin(e, taken)
	return nil
}

// use returns the program's code for a query, which ends with done. Code that was
// dropped is loaded again.
func (e *Engine) use(ctx context.Context, m *Module) (*loadedCode, error) {
	p := m.program
	p.mu.Lock()
	p.running++
	code := p.code
	p.mu.Unlock()
	if code != nil {
		return code, nil
	}
	code, err := e.loadAgain(ctx, m)
	if err != nil {
		p.done(time.Now())
		if ctx.Err() != nil {
			return nil, m.ended(ctx)
		}
		p.mu.Lock()
		p.lost = true
		p.mu.Unlock()
		return nil, &abi.Error{Hand: m.name, Kind: abi.KindUnavailable, Text: "its code was dropped while nobody asked for it, and cannot be loaded again from the compilation cache: load the hand anew", Err: err}
	}
	e.dropIdle()
	return code, nil
}

// done ends what use began, for a query that was over at a time.
func (p *program) done(at time.Time) {
	p.mu.Lock()
	p.running--
	p.used = at
	p.mu.Unlock()
}

func (e *Engine) loadAgain(ctx context.Context, m *Module) (*loadedCode, error) {
	p := m.program
	if err := p.again.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer p.again.Release(1)
	p.mu.Lock()
	code := p.code
	p.mu.Unlock()
	if code != nil {
		return code, nil
	}
	a, ok := p.folder.read()
	if !ok {
		return nil, fmt.Errorf("%s is not whole", p.folder.path)
	}
	code, err := p.open(ctx, e, a)
	if err != nil {
		return nil, err
	}
	if p.begins.Stage != StagePlain {
		taken, err := p.folder.readImage(p, m.limits)
		if err != nil {
			return nil, errors.Join(err, code.free(e))
		}
		code.begin(e, taken)
	}
	p.keep(e, code)
	return code, nil
}

// Code is idle if it was in no query for idleAfter. One part in idleShare of
// Config.CodeBytes is what idle code may take: by default enough for all bundled hands.
// While there is more code than that, what has become idle is looked for every
// lookAfter.
const (
	idleAfter = 10 * time.Minute
	idleShare = 6
	lookAfter = time.Minute
)

// dropIdle drops code that no query is in, the longest unused first, until what is
// idle, and all together, is within its bound. What it drops can be loaded again: its
// entry of the cache is there, and kept from eviction. What cannot be dropped stays.
func (e *Engine) dropIdle() {
	tried := map[*program]bool{}
	for {
		p, key := e.toDrop(tried)
		if p == nil {
			return
		}
		tried[p] = true
		_ = e.drop(p)
		_ = e.unshare(key, p)
	}
}

// toDrop returns the program whose code is to be dropped next, but none that was
// tried; nil if there is none. Whoever gets it has to unshare it.
func (e *Engine) toDrop(tried map[*program]bool) (next *program, key string) {
	bound := e.config.CodeBytes / idleShare
	e.mu.Lock()
	defer e.mu.Unlock()
	codeBytes := e.codeBytes.Load()
	if codeBytes <= bound {
		return nil, ""
	}
	longAgo := time.Now().Add(-idleAfter)
	var idle, droppable int64
	var longest time.Time
	for k, p := range e.programs {
		bytes, running, used := p.droppable()
		droppable += bytes
		if bytes == 0 || running > 0 || tried[p] {
			continue
		}
		if !used.After(longAgo) {
			idle += bytes
		}
		if next == nil || used.Before(longest) {
			next, key, longest = p, k, used
		}
	}
	if next != nil && (idle > bound || codeBytes > e.config.CodeBytes) {
		next.users++
		return next, key
	}
	if droppable > bound && e.looking == nil && !e.closed {
		e.work.Add(1)
		e.looking = time.AfterFunc(lookAfter, e.look)
	}
	return nil, ""
}

// droppable is how much code could be dropped, the queries that are in it, and when
// the last was over.
func (p *program) droppable() (bytes int64, running int, used time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code != nil && !p.lasting {
		bytes = p.code.bytes
	}
	return bytes, p.running, p.used
}

// look drops what has become idle.
func (e *Engine) look() {
	defer e.work.Done()
	e.mu.Lock()
	e.looking = nil
	closed := e.closed
	e.mu.Unlock()
	if !closed {
		e.dropIdle()
	}
}

func (e *Engine) drop(p *program) error {
	if !p.folder.isThere(p.begins.Stage != StagePlain) {
		return nil
	}
	p.mu.Lock()
	code := p.code
	if p.running > 0 || code == nil {
		p.mu.Unlock()
		return nil
	}
	p.code, p.dropped, p.lost = nil, true, false
	p.mu.Unlock()
	e.codeBytes.Add(-code.bytes)
	return code.free(e)
}
