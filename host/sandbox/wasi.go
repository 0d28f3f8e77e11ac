package sandbox

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/gloveboxhq/glovebox/abi"
)

// provideWASI adds the engine's WASI behind a door: what a call costs by the
// length of its lists and paths is charged before the engine walks over them,
// and no call begins when the time is up.
func (e *Engine) provideWASI(ctx context.Context) error {
	guarded := experimental.WithFunctionListenerFactory(ctx, experimental.FunctionListenerFactoryFunc(
		func(definition api.FunctionDefinition) experimental.FunctionListener {
			name := definition.Name()
			return wasiDoor{name, wasiLengths[name], wasiBeforeQuery[name]}
		}))
	return e.provide(guarded, wasi_snapshot_preview1.ModuleName, wasi_snapshot_preview1.NewBuilder(e.runtime))
}

// length is a parameter that says how much a function walks over, and what each
// of it costs in units.
type length struct {
	parameter int
	units     int64
}

// What an entry of a list, a subscription and eight bytes of a path cost.
const (
	unitsVector       = 8
	unitsSubscription = 64
	pathBytesPerUnit  = 8
	maxPathBytes      = 4 << 10
	// bytesPerEntry is the least that an entry of a list takes in memory.
	bytesPerEntry = 8
)

// wasiLengths are the functions of preview 1 that take lists or paths.
var wasiLengths = map[string][]length{
	"fd_read": {{2, unitsVector}}, "fd_write": {{2, unitsVector}}, "fd_pread": {{2, unitsVector}}, "fd_pwrite": {{2, unitsVector}},
	"sock_recv": {{2, unitsVector}}, "sock_send": {{2, unitsVector}}, "poll_oneoff": {{2, unitsSubscription}},
	"path_create_directory": {{2, 0}}, "path_filestat_get": {{3, 0}}, "path_filestat_set_times": {{3, 0}}, "path_link": {{3, 0}, {6, 0}},
	"path_open": {{3, 0}}, "path_readlink": {{2, 0}}, "path_remove_directory": {{2, 0}}, "path_rename": {{2, 0}, {5, 0}},
	"path_symlink": {{1, 0}, {4, 0}}, "path_unlink_file": {{2, 0}},
}

// wasiBeforeQuery are the functions that answer the same whatever the query is, and
// leave nothing behind in the host that matters: they may be called while an image is
// taken. The flags of a stream, which Go's runtime sets, change nothing here.
var wasiBeforeQuery = map[string]bool{
	"args_get": true, "args_sizes_get": true, "environ_get": true, "environ_sizes_get": true,
	"clock_res_get": true, "clock_time_get": true, "random_get": true, "sched_yield": true, "poll_oneoff": true,
	"fd_fdstat_get": true, "fd_fdstat_set_flags": true, "fd_filestat_get": true, "fd_prestat_get": true, "fd_prestat_dir_name": true,
}

// wasiDoor is called before each call of one function.
type wasiDoor struct {
	name        string
	lengths     []length
	beforeQuery bool
}

// Before implements experimental.FunctionListener.
func (d wasiDoor) Before(ctx context.Context, _ api.Module, _ api.FunctionDefinition, params []uint64, _ experimental.StackIterator) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	if c.taking && !d.beforeQuery {
		panic(ending{fmt.Errorf("%w: %s.%s", errAsksHost, abi.ModuleWASI, d.name)})
	}
	units := int64(0)
	for _, l := range d.lengths {
		if l.parameter >= len(params) {
			continue
		}
		// More than the memory holds is refused by the engine before it walks.
		n := int64(uint32(params[l.parameter]))
		if l.units == 0 {
			// There are no directories: whatever a path names is not there, and
			// the engine need not walk over all of a long one to say so.
			params[l.parameter] = min(params[l.parameter], maxPathBytes)
			units += min(n, maxPathBytes) / pathBytesPerUnit
		} else {
			units += min(n, int64(c.memory.size)/bytesPerEntry) * l.units
		}
	}
	c.use(units)
}

// After implements experimental.FunctionListener.
func (wasiDoor) After(context.Context, api.Module, api.FunctionDefinition, []uint64) {}

// Abort implements experimental.FunctionListener.
func (wasiDoor) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}
