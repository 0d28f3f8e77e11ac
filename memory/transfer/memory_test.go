package transfer_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory/transfer"
)

var streamed = flag.Int("streamed", 6, "MiB that TestConstantMemory streams")

// heapBound is what a stream may hold, however long it is.
const heapBound = 32 << 20

// sampler reads or writes on and measures what is alive meanwhile.
type sampler struct {
	t          *testing.T
	r          io.Reader
	sum        hash.Hash
	done, step int64
	most       uint64
}

func (s *sampler) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.pass(b[:n])
	return n, err
}

func (s *sampler) Write(b []byte) (int, error) {
	s.pass(b)
	return len(b), nil
}

func (s *sampler) pass(b []byte) {
	if s.sum != nil {
		s.sum.Write(b)
	}
	before := s.done / s.step
	s.done += int64(len(b))
	if s.done/s.step == before {
		return
	}
	// The other end of the stream goes on, and what it takes while garbage is collected
	// counts as alive: what is held is in all of several counts.
	held := uint64(math.MaxUint64)
	for range 4 {
		runtime.GC()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		held = min(held, live[0].Value.Uint64())
	}
	s.most = max(s.most, held)
}

func (s *sampler) check(what string, begun time.Time) {
	s.t.Helper()
	s.t.Logf("%s: %d MiB in %v, at most %d MiB alive, most resident %s", what, s.done>>20, time.Since(begun).Round(time.Millisecond), s.most>>20, resident())
	if s.most > heapBound {
		s.t.Errorf("%s holds %d MiB, more than %d", what, s.most>>20, heapBound>>20)
	}
	if s.most == 0 {
		s.t.Errorf("%s was not measured", what)
	}
}

// resident is the most memory that the process has had.
func resident() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		return "unknown"
	}
	kB, _ := strconv.Atoi(string(m[1]))
	return fmt.Sprintf("%d MiB", kB>>10)
}

// Whatever its length, a stream is read and written in the same memory: one
// conversation in one document, then all of it as an export, through a pipe.
func TestConstantMemory(t *testing.T) {
	ctx := t.Context()
	size := int64(*streamed) << 20
	sampled := func(r io.Reader) *sampler { return &sampler{t: t, r: r, step: max(size/12, 1)} }
	const each = 2048
	words := strings.Repeat("words of a conversation ", each/24)
	source := &generated{n: int(size / each), each: func(i int) string {
		message := fmt.Sprintf(`{"role":%q,"content":"%d %s"}`, []string{"user", "assistant"}[i%2], i, words)
		switch {
		case i == 0:
			return `{"messages":[` + message
		case i == int(size/each)-1:
			return ",\n" + message + "]}"
		}
		return ",\n" + message
	}}

	first, user := open(t)
	begun := time.Now()
	in := sampled(source)
	must(transfer.Import(ctx, first, user, in, options))(t)
	in.check("import of a transcript", begun)

	second, other := open(t)
	begun = time.Now()
	pipe, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := transfer.Export(ctx, first, user, to)
		to.CloseWithError(err)
		ended <- err
	}()
	moved := sampled(pipe)
	moved.sum = sha256.New()
	must(transfer.Import(ctx, second, other, moved, transfer.Options{}))(t)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	moved.check("export and import", begun)

	// S8
	begun = time.Now()
	again := sampled(nil)
	again.sum = sha256.New()
	if err := transfer.Export(ctx, second, other, again); err != nil {
		t.Fatal(err)
	}
	again.check("export", begun)
	if string(moved.sum.Sum(nil)) != string(again.sum.Sum(nil)) || moved.done != again.done {
		t.Errorf("%d bytes were imported, %d other ones exported", moved.done, again.done)
	}
}
