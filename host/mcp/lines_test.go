package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"pgregory.net/rapid"

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

// Messages of any length come through as long as each is below the limit, however
// they come in pieces and whatever is between them.
func TestLinesOfAnyLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit, shortest = 6000, len(`{"jsonrpc":"2.0","method":""}`)
		var in bytes.Buffer
		var want []int
		refused := 0
		for range rapid.IntRange(1, 12).Draw(t, "lines") {
			size := rapid.OneOf(rapid.IntRange(shortest+1, limit+20), rapid.IntRange(limit-2, limit+2), rapid.SampledFrom([]int{511, 512, 1536, 4095, 4096})).Draw(t, "size")
			in.WriteString(`{"jsonrpc":"2.0","method":"` + strings.Repeat("m", size-shortest) + `"}`)
			in.WriteString(rapid.SampledFrom([]string{"\n", "\r\n", "\n\n", " \n\r\n", "\nx\n"}).Draw(t, "end"))
			if size < limit {
				want = append(want, size-shortest)
			} else {
				refused++
			}
		}
		refused += strings.Count(in.String(), "\nx\n")
		var from io.Reader = &in
		if rapid.Bool().Draw(t, "bytewise") {
			from = iotest.OneByteReader(from)
		}
		var out bytes.Buffer
		c, err := mcp.Lines(from, &out, limit).Connect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i, size := range want {
			m, err := c.Read(context.Background())
			if r, ok := m.(*jsonrpc.Request); err != nil || !ok || len(r.Method) != size {
				t.Fatalf("message %d of %v: %v, %v", i, want, m, err)
			}
		}
		if _, err := c.Read(context.Background()); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		if n := strings.Count(out.String(), "\n"); n != refused {
			t.Errorf("%d are refused, want %d", n, refused)
		}
	})
}
