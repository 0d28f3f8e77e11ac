package mcp_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/control/controltest"
)

// BenchmarkIdle is what 200 clients take in memory, each with a session and a
// stream in which nothing happens. They have a bare connection, and take next to
// nothing themselves.
func BenchmarkIdle(b *testing.B) {
	const idle = 200
	var took controltest.Footprint
	for b.Loop() {
		s := serve(b)
		// The first session brings what all have in common.
		if id, why := s.begin(s.byAnna); id == "" {
			b.Fatal(why)
		}
		ids, connections := make([]string, idle), make([]net.Conn, idle)
		before := controltest.Measure()
		for i := range idle {
			var why string
			if ids[i], why = s.begin(s.byAnna); ids[i] == "" {
				b.Fatal(why)
			}
			connections[i] = s.listen(ids[i])
		}
		took.Add(controltest.Measure(), before)
		if n := s.handler.Sessions(); n != idle+1 {
			b.Fatalf("%d sessions", n)
		}
		for _, c := range connections {
			c.Close()
		}
		s.stop()
		s.handler.Close()
	}
	took.Report(b)
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
