package sandbox

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/gloveboxhq/glovebox/host/sandbox/internal/meter"
)

// slice is how much fuel a guest uses before it must ask for more: about 0.05 ms
// of computing, or 20 ms at worst, when every unit waits for memory.
const slice = 256 << 10

// bytesPerUnit is how many bytes that a host call moves cost a unit, beside what
// the call itself costs, which the guest's own code charges.
const bytesPerUnit = 32

// ending is how the host ends a guest that calls it: the engine passes panics
// of host functions on as errors.
type ending struct{ error }

func (e ending) Unwrap() error { return e.error }

var (
	errOutOfFuel     = errors.New("out of fuel")
	errStackOverflow = errors.New("call stack used up")
	errTimeIsUp      = errors.New("time is up")
)

// tick is the host's end of metering: it holds what the guest has used against
// the limits, lets other goroutines run, and grants the next slice.
func tick(ctx context.Context, stack []uint64) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	left := int64(stack[0])
	c.ticked = true
	if left == meter.Overflow {
		panic(ending{errStackOverflow})
	}
	c.used += c.granted - left
	c.granted = 0
	more := c.module.limits.Fuel - c.used - c.hostFuel
	switch {
	case more < 0:
		panic(ending{errOutOfFuel})
	case !time.Now().Before(c.limited.deadline) || ctx.Err() != nil:
		panic(ending{errTimeIsUp})
	}
	c.ticked = false
	runtime.Gosched()
	c.granted = min(slice, more)
	stack[0] = api.EncodeI64(c.granted)
}

// charge takes from the fuel what a host call moves, and ends a guest that has
// used up its time or, with host calls alone, its fuel.
func (c *call) charge(bytes int) { c.use(int64(bytes / bytesPerUnit)) }

// use takes units from the fuel, like charge.
func (c *call) use(units int64) {
	c.hostFuel += units
	switch {
	case c.used+c.hostFuel > c.module.limits.Fuel:
		panic(ending{errOutOfFuel})
	case !time.Now().Before(c.limited.deadline):
		panic(ending{errTimeIsUp})
	}
}

// settle counts what a guest that has ended used of its last slice.
func (c *call) settle(instance api.Module) {
	if global := instance.ExportedGlobal(meter.Fuel); global != nil && !c.ticked {
		c.used += c.granted - int64(global.Get())
		c.granted = 0
	}
}

// fuel is what the guest has used.
func (c *call) fuel() int64 { return c.used + c.hostFuel }
