package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// Images says how instances come to their first memory.
//
// An image is the linear memory and the mutable globals of a module after
// everything in it that does not depend on a query has run: the start section,
// _initialize and the optional abi.ExportWarm. It is taken once, before any query,
// and every query begins from it in a fresh instance.
type Images int

// The ways.
const (
	// ImagesMapped begins with a private, copy-on-write mapping of the image,
	// whose pages all instances share until they write to them. Where the system
	// has no such mappings it is ImagesCopied.
	ImagesMapped Images = iota
	// ImagesCopied begins with a copy of the image, in memory of its own.
	ImagesCopied
	// ImagesOff instantiates the module as it is for each query.
	ImagesOff
)

// Stage is how far a module has come when a query begins.
type Stage string

// The stages.
const (
	// StagePlain is a module without an image.
	StagePlain Stage = "plain"
	// StageData has its data segments in place; everything else runs in each
	// query.
	StageData Stage = "data"
	// StageInitialised has run all that comes before the entry.
	StageInitialised Stage = "initialised"
	// StageWarmed has run abi.ExportWarm too.
	StageWarmed Stage = "warmed"
)

// ImageInfo tells what the queries of a module begin from.
type ImageInfo struct {
	Stage Stage
	// Bytes counts the bytes of the pages that are not all zero.
	Bytes int64
	// Reason says why there is no later stage; "" if there is none, or none was
	// asked for.
	Reason string
}

// Image tells what each query of the module begins from.
func (m *Module) Image() ImageInfo { return m.program.begins }

// notCarried says why an image cannot carry a valid module, or "" if one can.
// Beside memory and numbers in globals, instances have a state that the engine
// gives no way to restore: what a table holds, which segments were dropped,
// references and vectors in globals. So a module whose code may change any of that
// is instantiated plainly.
func notCarried(m *wasm.Module) (string, error) {
	for i, g := range m.Globals {
		if g.Mutable && (g.Type == wasm.V128 || g.Type.IsReference()) {
			return fmt.Sprintf("global %d is mutable and of type %v", m.Imported(wasm.KindGlobal)+i, g.Type), nil
		}
	}
	for i, s := range m.Data {
		at, constant := s.Place.ConstantI32()
		switch {
		case s.Mode != wasm.Active:
			return fmt.Sprintf("data segment %d is passive", i), nil
		case !constant:
			return fmt.Sprintf("data segment %d has a place that is computed", i), nil
		case len(m.Memories) == 0 || uint64(uint32(at))+uint64(len(s.Bytes)) > m.Memories[0].Min*wasm.PageBytes:
			return fmt.Sprintf("data segment %d lies outside of the memory", i), nil
		}
	}
	for i, s := range m.Elements {
		if s.Mode == wasm.Passive {
			return fmt.Sprintf("element segment %d is passive", i), nil
		}
	}
	for n, b := range m.Bodies {
		scanner := wasm.NewScanner(b.Expression)
		for scanner.More() {
			i, err := scanner.Next()
			if err != nil {
				return "", err
			}
			if what, ok := lastingOpcodes[i.Op]; ok {
				return fmt.Sprintf("function %d, code section at byte %d, has %s", m.Imported(wasm.KindFunction)+n, b.Offset, what), nil
			}
		}
	}
	return "", nil
}

// lastingOpcodes change what an image does not hold.
var lastingOpcodes = map[wasm.Opcode]string{
	wasm.OpTableSet: "table.set", wasm.OpTableGrow: "table.grow", wasm.OpTableFill: "table.fill", wasm.OpTableCopy: "table.copy",
	wasm.OpTableInit: "table.init", wasm.OpElemDrop: "elem.drop", wasm.OpMemoryInit: "memory.init", wasm.OpDataDrop: "data.drop",
}

// Bounds on the taking of an image.
const (
	// maxImageBytes bounds the pages that are not all zero.
	maxImageBytes = 32 << 20
	// imageFuel is what the steps before the entry may use together: a thousand
	// times what Go's runtime takes to begin.
	imageFuel = 1_000_000_000
	imageTime = 5 * time.Second
)

// imageClock is when images are taken, for the guest: a date that nobody takes for
// today's. Chance has a seed of its own, always the same. So an image depends on
// nothing but the module and its limits.
var imageClock = Fixed{Now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}

// errAsksHost ends a guest that does before a query what only a query can answer,
// or what the host would keep for it.
var errAsksHost = errors.New("calls the host")

// image is what a query begins from. It does not change once it is taken.
type image struct {
	Stage  Stage
	Reason string
	// Size is that of the linear memory, in bytes.
	Size uint64
	// Globals are the mutable globals of the original, in order.
	Globals []uint64
	// Passed is how far the guest has seen its clocks move. A query's go on from
	// there.
	Passed time.Duration
	// Calls are the exports that a query has yet to call, in order, entry last.
	Calls []string
	// Runs are the pages that are not all zero, and content is theirs, in order.
	Runs    []pageRun
	content []byte
	// passing says that another try may come further: the time was up, or others
	// had the engine's memory.
	passing bool

	// mapped is what mappings are made of; nil if each memory gets a copy.
	mapped *mappedImage
}

// pageRun is a run of pages of imagePage bytes.
type pageRun struct{ First, Count int }

const imagePage = 4 << 10

func (r pageRun) end() int { return r.First + r.Count }

func (i *image) bytes() int64 {
	pages := 0
	for _, r := range i.Runs {
		pages += r.Count
	}
	return int64(pages) * imagePage
}

// copyTo writes the image into memory that is zero and has at least its size.
func (i *image) copyTo(memory []byte) {
	from := i.content
	for _, r := range i.Runs {
		from = from[copy(memory[r.First*imagePage:r.end()*imagePage], from):]
	}
}

// newImage makes an image of a memory; not ok if it would be too large.
func newImage(memory []byte) (i *image, ok bool) {
	i = &image{Size: uint64(len(memory))}
	for page := 0; page*imagePage < len(memory); page++ {
		content := memory[page*imagePage : (page+1)*imagePage]
		if allZero(content) {
			continue
		}
		if len(i.content)+imagePage > maxImageBytes {
			return nil, false
		}
		if last := len(i.Runs) - 1; last >= 0 && i.Runs[last].end() == page {
			i.Runs[last].Count++
		} else {
			i.Runs = append(i.Runs, pageRun{page, 1})
		}
		i.content = append(i.content, content...)
	}
	return i, true
}

func allZero(page []byte) bool {
	return [imagePage]byte(page) == [imagePage]byte{}
}

// takeImage runs what a program's module runs before its entry, and takes the image
// after the last step that did so without a query; fromStart has it take none of them.
// The memory begins as the data segments leave it. An error says that the instance
// could not be had at all, or that ctx ended it.
func (p *program) takeImage(ctx context.Context, e *Engine, l *loadedCode, limits abi.Limits, data []wasm.DataSegment, fromStart bool) (*image, error) {
	limits.Fuel = imageFuel
	c := &call{module: &Module{engine: e, program: p, limits: limits}, code: l, ports: Ports{Fixed: &imageClock}, granted: slice, taking: true}
	limited := &c.limited
	limited.begin(ctx, c, imageTime)
	defer limited.end()
	c.begin()
	defer c.memory.release()
	guest := c.guest()
	instance, leave, err := c.instantiate(guest)
	defer leave()
	if err != nil && c.memory.crowded {
		return nil, &abi.Error{Kind: abi.KindUnavailable, Text: "queries hold the memory that all hands have together: load it again when there are fewer", Err: err}
	}
	if err != nil {
		return nil, c.explain(ctx, limited, err)
	}
	defer instance.Close(context.Background())
	for i, s := range data {
		at, _ := s.Place.ConstantI32()
		if !instance.Memory().Write(uint32(at), s.Bytes) {
			return nil, fmt.Errorf("data segment %d lies outside of the memory", i)
		}
	}

	taken, err := c.snapshot(instance)
	if err != nil {
		return nil, err
	}
	taken.Stage, taken.Calls = StageData, p.calls
	if fromStart {
		return taken, nil
	}
	entry := len(p.calls) - 1
	for _, step := range []struct {
		stage Stage
		calls []string
	}{{StageInitialised, p.calls[:entry]}, {StageWarmed, p.warm}} {
		if step.stage == StageWarmed && len(step.calls) == 0 {
			break
		}
		for _, name := range step.calls {
			_, err := callExport(guest, instance, name)
			if err == nil && c.memory.crowded {
				// What it made of that is not what every query would.
				err = errNoMemory
			}
			if err != nil {
				if ctx.Err() != nil {
					return nil, c.explain(ctx, limited, err)
				}
				taken.passing = limited.Err() != nil || errors.Is(err, errTimeIsUp) || c.memory.crowded
				taken.Reason = fmt.Sprintf("%s %s", stepName(name), c.whyNot(ctx, limited, err))
				return taken, nil
			}
		}
		next, err := c.snapshot(instance)
		if errors.Is(err, errImageTooLarge) {
			taken.Reason = err.Error()
			return taken, nil
		}
		if err != nil {
			return nil, err
		}
		next.Stage, next.Calls = step.stage, p.calls[entry:]
		taken = next
	}
	return taken, nil
}

var errImageTooLarge = fmt.Errorf("its memory holds more than %d MiB before the first query", maxImageBytes>>20)

// snapshot makes an image of an instance as it stands.
func (c *call) snapshot(instance api.Module) (*image, error) {
	taken, ok := newImage(c.memory.mapping.bytes[:c.memory.size])
	if !ok {
		return nil, errImageTooLarge
	}
	for _, name := range c.module.program.globals {
		taken.Globals = append(taken.Globals, instance.ExportedGlobal(name).Get())
	}
	taken.Passed = c.passed
	return taken, nil
}

// stepName is how people know an export that is called before the entry.
func stepName(export string) string {
	if export == meter.Start {
		return "its start section"
	}
	return export
}

// whyNot says what ended a step of takeImage.
func (c *call) whyNot(parent, limited context.Context, err error) string {
	if errors.Is(err, errAsksHost) {
		end, _ := errors.AsType[ending](err)
		return end.Error()
	}
	return c.explain(parent, limited, err).Error()
}
