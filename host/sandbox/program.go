package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// program is what modules of the same code and limits share: the code, compiled
// once, and the image that their instances begin from. It has a runtime of its own:
// programs share no name space, and the cache entry of one can be dropped without
// touching another's.
type program struct {
	profile Profile
	// calls are the exports to call, in order, entry last; warm is what may be
	// called after them and before the entry, once.
	calls, warm []string
	// globals are the names of the globals that an image holds.
	globals []string
	// notCarried says why there can be no image; "" if there can.
	notCarried string

	compiled wazero.CompiledModule
	// config is what each instance begins with; usesWASI tells whether it
	// needs a world, of which worlds keeps those that are in no query.
	config   wazero.ModuleConfig
	usesWASI bool
	worlds   sync.Pool
	// image is nil if instances are made plainly.
	image *image

	// loaded is closed when the program is there or err says why not.
	loaded chan struct{}
	err    error
	// users are the modules that have it; guarded by the engine's mu.
	users int
}

// share returns the program of a key, which the first to ask for it loads. Whoever
// gets it has to unshare it.
func (e *Engine) share(ctx context.Context, key string, load func(*program) error) (*program, error) {
	for {
		e.mu.Lock()
		p, shared := e.programs[key]
		if !shared {
			p = &program{loaded: make(chan struct{})}
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
		} else {
			if p.err = load(p); p.err != nil {
				e.mu.Lock()
				delete(e.programs, key)
				e.mu.Unlock()
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
	if p.image != nil {
		e.memories.forget(p.image)
		p.image.unmap()
	}
	if p.compiled == nil {
		return nil
	}
	return p.compiled.Close(context.Background())
}

// open loads what was compiled into a folder.
func (p *program) open(ctx context.Context, e *Engine, folder compiledFolder, a admitted) (err error) {
	p.profile, p.calls, p.warm, p.notCarried, p.usesWASI = a.Profile, a.Calls, a.Warm, a.NotCarried, a.UsesWASI
	for n := range a.Globals {
		p.globals = append(p.globals, meter.Global+strconv.Itoa(n))
	}
	remove, err := e.stage.put(folder)
	if err != nil {
		return fmt.Errorf("stage compiled module: %w", err)
	}
	defer remove()
	if p.compiled, err = e.runtime.CompileModule(ctx, a.module); err != nil {
		return notCompiled(err)
	}
	// An explicit source of chance: the engine's own is seeded per instance.
	p.config = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithSysWalltime().WithSysNanotime().WithRandSource(rand.Reader)
	return nil
}

// prepareImage reads the image that the folder has, or takes it and keeps it there.
// An image that cannot be kept is used all the same, and taken again next time. One of
// the data alone, for what runs from its start, is never kept.
func (p *program) prepareImage(ctx context.Context, e *Engine, folder compiledFolder, limits abi.Limits, data []wasm.DataSegment, fromStart bool) error {
	var taken *image
	if !fromStart {
		taken, _ = folder.readImage(p, limits)
	}
	if taken == nil {
		var err error
		if taken, err = p.takeImage(ctx, e, limits, data, fromStart); err != nil {
			return err
		}
		if !taken.passing && !fromStart {
			_ = folder.writeImage(taken)
		}
	}
	if e.config.Images == ImagesMapped {
		taken.mapInto()
	}
	p.image = taken
	return nil
}
