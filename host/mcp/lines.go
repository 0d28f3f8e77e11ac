package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Lines returns a transport on which each message is a line, of at most limit bytes.
// A line that is no message is answered with an error, and those around it are not
// lost by it. Neither in nor out is closed.
func Lines(in io.Reader, out io.Writer, limit int) sdk.Transport {
	to := &lineWriter{to: out}
	return &sdk.IOTransport{
		Reader: io.NopCloser(&messageReader{from: bufio.NewReader(in), limit: limit, refuse: func(code int64, why string) error {
			body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
			if err != nil {
				return err
			}
			_, err = to.Write(append(body, '\n'))
			return err
		}}),
		Writer: to, MaxLineLength: limit,
	}
}

// lineWriter keeps lines whole that several write.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *lineWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(line)
}

// Close implements io.Closer.
func (w *lineWriter) Close() error { return nil }

// messageReader passes on the lines that are messages.
type messageReader struct {
	from   *bufio.Reader
	limit  int
	refuse func(code int64, why string) error
	// left is what was not read yet of a message.
	left []byte
}

// Read implements io.Reader.
func (r *messageReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		line, err := r.line()
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if code, why := faultOf(line, r.limit); why != "" {
			if err := r.refuse(code, why); err != nil {
				return 0, err
			}
			continue
		}
		r.left = append(line, '\n')
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// line reads up to a line feed or the end. Of a line that is too long it keeps more
// than the limit, and not all.
func (r *messageReader) line() (line []byte, err error) {
	for {
		piece, err := r.from.ReadSlice('\n')
		if len(line) <= r.limit {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(line) > 0:
			return line, nil
		default:
			return line, err
		}
	}
}

// faultOf says what keeps a line from being a message; "" if nothing does.
func faultOf(line []byte, limit int) (code int64, why string) {
	switch {
	case len(line) >= limit:
		return jsonrpc.CodeInvalidRequest, "the message is too long"
	case !json.Valid(line):
		return jsonrpc.CodeParseError, "the line is not JSON"
	case line[0] != '{':
		return jsonrpc.CodeInvalidRequest, "the line is not one JSON object"
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return jsonrpc.CodeInvalidRequest, "the line is no message of JSON-RPC 2.0"
	}
	return 0, ""
}
