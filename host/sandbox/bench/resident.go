package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// resident is what a process holds in memory, in bytes.
type resident struct {
	// Rss counts a page that is mapped twice twice; Pss shares it out.
	Rss, Pss int64
	// PrivateDirty is what no other mapping or process shares and no file
	// holds.
	PrivateDirty int64
	// Heap is what the Go heap of the host holds in live objects, Code what
	// machine code the engine has mapped: parts of Rss.
	Heap, Code int64
}

func (r resident) minus(s resident) resident {
	return resident{r.Rss - s.Rss, r.Pss - s.Pss, r.PrivateDirty - s.PrivateDirty, r.Heap - s.Heap, r.Code - s.Code}
}

func (r resident) over(n int) resident {
	d := int64(n)
	return resident{r.Rss / d, r.Pss / d, r.PrivateDirty / d, r.Heap / d, r.Code / d}
}

// smaps is where Linux says what a process has mapped.
const smaps = "/proc/self/smaps"

// errNoSmaps says that what a process holds cannot be found out.
var errNoSmaps = errors.New("there is no " + smaps + ", which Linux has")

// finalize collects garbage, and returns when the finalizers of what was garbage before
// have run: they run one after the other.
func finalize() {
	ran := make(chan struct{})
	runtime.SetFinalizer(&struct{ last [64]byte }{}, func(any) { close(ran) })
	runtime.GC()
	<-ran
}

// measureResident collects garbage first, so that what is found is held by somebody. The
// error matches errNoSmaps on other systems.
func measureResident() (resident, error) {
	// What the first finalizers let go of may wait for others: the engine's unmap code.
	finalize()
	finalize()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	r := resident{Heap: int64(stats.HeapAlloc)}
	data, err := os.ReadFile(smaps)
	if errors.Is(err, fs.ErrNotExist) {
		return r, errNoSmaps
	}
	if err != nil {
		return r, fmt.Errorf("find out what this process holds: %w", err)
	}
	code := false
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(name)
		if len(fields) > 1 {
			// The head of a mapping: addresses, mode, offset, device, inode and,
			// if it has one, a name. Machine code that is no file is the engine's.
			code = strings.Contains(fields[1], "x") && len(strings.Fields(lines.Text())) == 5
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "Rss":
			r.Rss += kib << 10
			if code {
				r.Code += kib << 10
			}
		case "Pss":
			r.Pss += kib << 10
		case "Private_Dirty":
			r.PrivateDirty += kib << 10
		}
	}
	return r, lines.Err()
}
