package controltest

import (
	"runtime"
	"testing"
)

// Footprint is memory in use when nothing happens any more, in bytes. Live is objects
// and stacks; Held counts whole the pieces that the heap has given out in part.
type Footprint struct{ Live, Held float64 }

// Measure takes the process's footprint. Every collection takes half of a stack that is
// no longer needed.
func Measure() Footprint {
	var m runtime.MemStats
	for range 8 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return Footprint{float64(m.HeapAlloc + m.StackInuse), float64(m.HeapInuse + m.StackInuse)}
}

// Add adds what came between two footprints.
func (f *Footprint) Add(after, before Footprint) {
	f.Live += after.Live - before.Live
	f.Held += after.Held - before.Held
}

// Report gives the mean of the benchmark's operations, in MB, in place of their time.
func (f Footprint) Report(b *testing.B) {
	b.ReportMetric(f.Live/float64(b.N)/1e6, "live-MB")
	b.ReportMetric(f.Held/float64(b.N)/1e6, "held-MB")
	b.ReportMetric(0, "ns/op")
}
