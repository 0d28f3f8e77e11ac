package mcp_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/gloveboxhq/glovebox/host/mcp"
)

// What is no message is answered, in order, and costs no message beside it.
func TestLines(t *testing.T) {
	const limit = 1000
	ping := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id) }
	for name, test := range map[string]struct {
		in   string
		code int
	}{
		"no JSON":           {"<script>", jsonrpc.CodeParseError},
		"half":              {`{"jsonrpc":"2.0",`, jsonrpc.CodeParseError},
		"two":               {ping(7) + ping(8), jsonrpc.CodeParseError},
		"a batch":           {"[" + ping(7) + "]", jsonrpc.CodeInvalidRequest},
		"null":              {"null", jsonrpc.CodeInvalidRequest},
		"another version":   {`{"jsonrpc":"1.0","id":7,"method":"ping"}`, jsonrpc.CodeInvalidRequest},
		"an id that is one": {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, jsonrpc.CodeInvalidRequest},
		"too long":          {`{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("x", 20*limit) + `"}`, jsonrpc.CodeInvalidRequest},
		"bytes":             {"\x00\xff\xfe", jsonrpc.CodeParseError},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			in := ping(1) + "\n" + test.in + "\r\n\n" + ping(2) // without a line feed at the end
			c, err := mcp.Lines(strings.NewReader(in), &out, limit).Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for id := range 2 {
				m, err := c.Read(t.Context())
				if r, ok := m.(*jsonrpc.Request); err != nil || !ok || r.ID.Raw() != int64(id+1) {
					t.Fatalf("read %+v, %v", m, err)
				}
			}
			if _, err := c.Read(t.Context()); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
			if said := out.String(); strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, fmt.Sprintf(`{"error":{"code":%d,`, test.code)) {
				t.Errorf("answered %q", said)
			}
		})
	}
}

// ones is an endless run of one byte.
type ones byte

func (b ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

// However long a line is, it takes no more memory than one of the limit.
func TestLinesTakeBoundedMemory(t *testing.T) {
	const limit, size = 64 << 10, 64 << 20
	for name, end := range map[string]string{"ended": "\n", "cut off": ""} {
		t.Run(name, func(t *testing.T) {
			in := io.MultiReader(io.LimitReader(ones('x'), size), strings.NewReader(end))
			var out bytes.Buffer
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c, err := mcp.Lines(in, &out, limit).Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Read(t.Context()); err != io.EOF {
				t.Errorf("read %v", err)
			}
			runtime.ReadMemStats(&after)
			// What grows piece by piece is copied a few times on its way.
			if took := after.TotalAlloc - before.TotalAlloc; took > 32*limit {
				t.Errorf("a line of %d bytes took %d", size, took)
			}
			if said := out.String(); !strings.Contains(said, "the message is too long") {
				t.Errorf("answered %q", said)
			}
		})
	}
}
