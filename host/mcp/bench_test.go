package mcp_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// BenchmarkIdle is what 200 clients take in memory, each with a session and a
// stream in which nothing happens. They have a bare connection, and take next to
// nothing themselves.
func BenchmarkIdle(b *testing.B) {
	const idle = 200
	var took footprint
	for b.Loop() {
		s := serve(b)
		// The first session brings what all have in common.
		if id, why := s.begin(s.byAnna); id == "" {
			b.Fatal(why)
		}
		ids, connections := make([]string, idle), make([]net.Conn, idle)
		before := measure()
		for i := range idle {
			var why string
			if ids[i], why = s.begin(s.byAnna); ids[i] == "" {
				b.Fatal(why)
			}
			connections[i] = s.listen(ids[i])
		}
		took.add(measure(), before)
		if n := s.handler.Sessions(); n != idle+1 {
			b.Fatalf("%d sessions", n)
		}
		for _, c := range connections {
			c.Close()
		}
		s.stop()
		s.handler.Close()
	}
	took.report(b)
}

// listen opens a session's stream.
func (s *system) listen(id string) net.Conn {
	s.t.Helper()
	host := strings.TrimPrefix(s.url, "http://")
	c, err := net.Dial("tcp", host)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", host, s.byAnna, id); err != nil {
		s.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatal(response, err)
	}
	return c
}

// footprint is memory in use when nothing happens any more, in bytes: every collection
// takes half of a stack that is no longer needed. Live is objects and stacks; held
// counts whole the pieces that the heap has given out in part.
type footprint struct{ live, held float64 }

func measure() footprint {
	var m runtime.MemStats
	for range 8 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return footprint{float64(m.HeapAlloc + m.StackInuse), float64(m.HeapInuse + m.StackInuse)}
}

// add adds what came between two footprints.
func (f *footprint) add(after, before footprint) {
	f.live += after.live - before.live
	f.held += after.held - before.held
}

// report gives the mean of n operations, in MB.
func (f footprint) report(b *testing.B) {
	b.ReportMetric(f.live/float64(b.N)/1e6, "live-MB")
	b.ReportMetric(f.held/float64(b.N)/1e6, "held-MB")
	b.ReportMetric(0, "ns/op")
}
