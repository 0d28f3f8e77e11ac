package host_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// askedIn is where a context has who asked, as that of a request has its id.
type askedIn struct{}

// contexts is a log that keeps who asked for each line.
type contexts struct {
	mu sync.Mutex
	of map[string]any // guarded by mu; by message
}

func (c *contexts) Enabled(context.Context, slog.Level) bool { return true }
func (c *contexts) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *contexts) WithGroup(string) slog.Handler            { return c }
func (c *contexts) Handle(ctx context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[r.Message] = ctx.Value(askedIn{})
	return nil
}

// What goes wrong in a turn is logged on behalf of who asked, so that the line has
// the id of the request.
func TestLogOfATurnHasItsContext(t *testing.T) {
	server := openaitest.NewServer(t, openaitest.Calls("", openaitest.Call("a", "broken", `{}`)), openaitest.Text("Sorry."))
	log := &contexts{of: map[string]any{}}
	h := asking(t, host.Config{Log: slog.New(log)}, server, &testTool{name: "broken", call: func(context.Context, string, int) (boundary.Content, error) {
		return boundary.Content{}, errors.New("no such file")
	}})
	if _, err := h.Send(context.WithValue(t.Context(), askedIn{}, "r1"), host.Message{Text: "Please."}); err != nil {
		t.Fatal(err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.of["tool"] != "r1" {
		t.Errorf("the line about the tool is on behalf of %v", log.of["tool"])
	}
}
