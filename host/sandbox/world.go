package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"time"

	"github.com/tetratelabs/wazero"
)

// world is what WASI's functions reach in one instance at a time. The engine's
// configuration of it is made once for many queries, because each of its options
// copies all of it. It belongs to the query that entered it.
type world struct {
	config wazero.ModuleConfig
	// call and ctx are those of the query, nil between queries; query is its JSON
	// for a command.
	call  *call
	ctx   context.Context
	query bytes.Reader
}

func (p *program) newWorld() *world {
	w := &world{}
	w.config = p.config.
		WithRandSource(worldReader(func(b []byte) (int, error) { return random{w.call, w.ctx, rand.Reader}.Read(b) })).
		WithNanosleep(func(ns int64) { w.call.sleep(w.ctx, time.Duration(ns)) })
	if p.profile == ProfileCommand {
		w.config = w.config.WithStdin(&w.query).
			WithStdout(worldWriter(func(b []byte) (int, error) { return w.call.writeReply(b) })).
			WithStderr(worldWriter(func(b []byte) (int, error) { return w.call.writeFailure(b) }))
	} else {
		w.config = w.config.
			WithStdout(worldWriter(func(b []byte) (int, error) { return w.call.stdoutLog.Write(b) })).
			WithStderr(worldWriter(func(b []byte) (int, error) { return w.call.stderrLog.Write(b) }))
	}
	return w
}

type worldReader func([]byte) (int, error)

func (r worldReader) Read(b []byte) (int, error) { return r(b) }

type worldWriter func([]byte) (int, error)

func (w worldWriter) Write(b []byte) (int, error) { return w(b) }

// enterWorld gives the guest what WASI's functions need, until leave is called.
func (c *call) enterWorld(ctx context.Context) (config wazero.ModuleConfig, leave func()) {
	p := c.module.program
	w, ok := p.worlds.Get().(*world)
	if !ok {
		w = p.newWorld()
	}
	w.call, w.ctx = c, ctx
	w.query.Reset(c.query)
	config = w.config
	if c.ports.Fixed != nil {
		config = c.fixed(config, ctx)
	}
	return config, func() {
		w.call, w.ctx = nil, nil
		w.query.Reset(nil)
		p.worlds.Put(w)
	}
}

// random gives random bytes until its context is done. It gives them in pieces,
// so that a guest that asks for its whole memory cannot outstay a deadline.
type random struct {
	call *call
	ctx  context.Context
	from io.Reader
}

func (r random) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	b = b[:min(len(b), 64<<10)]
	r.call.charge(len(b))
	return r.from.Read(b)
}

// sleep gives up the guest's place meanwhile.
func (c *call) sleep(ctx context.Context, d time.Duration) {
	c.charge(0)
	c.leavePlace()
	defer c.takePlace(ctx)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		panic(ending{errTimeIsUp})
	case <-timer.C:
	}
}

// maxPassed is how long a guest may sleep while its image is taken: the machine's
// clock, which goes on from there, has to be later.
const maxPassed = time.Second

// fixed gives the guest the clock and the chance of Ports.Fixed.
func (c *call) fixed(config wazero.ModuleConfig, ctx context.Context) wazero.ModuleConfig {
	c.passed = 1 // a Go guest takes zero for a broken clock
	if from := c.code.image; from != nil && !c.taking {
		c.passed = max(c.passed, from.Passed)
	}
	began := c.passed - 1
	read := func() time.Duration {
		c.passed += time.Microsecond
		return c.passed
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], c.ports.Fixed.Seed)
	return config.
		WithWalltime(func() (int64, int32) {
			now := c.ports.Fixed.Now.Add(read() - began)
			return now.Unix(), int32(now.Nanosecond())
		}, 1).
		WithNanotime(func() int64 { return int64(read()) }, 1).
		WithNanosleep(func(ns int64) {
			c.charge(0)
			c.passed += min(time.Duration(ns), 1<<40)
			if c.taking && c.passed > maxPassed {
				panic(ending{fmt.Errorf("%w: it sleeps", errAsksHost)})
			}
		}).
		WithRandSource(random{c, ctx, mathrand.NewChaCha8(seed)})
}

// writeReply takes what a command writes to its standard output.
func (c *call) writeReply(b []byte) (int, error) {
	c.use(unitsLine)
	c.addReply(b)
	return len(b), nil
}

const failureBytes = 4 << 10

// writeFailure takes what a command writes to its standard error: lines of the log,
// the last bytes of which are its failure if it fails.
func (c *call) writeFailure(b []byte) (int, error) {
	c.charge(len(b))
	kept := append(c.stderr, b[max(0, len(b)-failureBytes):]...)
	c.stderr = kept[max(0, len(kept)-failureBytes):]
	return c.stderrLog.Write(b)
}
