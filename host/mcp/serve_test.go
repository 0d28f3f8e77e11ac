package mcp_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/host/mcp"
	"github.com/gloveboxhq/glovebox/memory"
)

// Who asks and closes their half is answered all the same, and the server ends then.
// It waits for longer than any call takes, and not for ever.
func TestCallsAreAnsweredAtTheEnd(t *testing.T) {
	s := serve(t)
	// The call reads the clock, and then finds nothing.
	const held = `{"jsonrpc": "2.0", "id": "held", "method": "tools/call", "params": {"name": "memory_topics", "arguments": {"agent": "nobody"}}}` + "\n"
	const cancel = `{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "held"}}` + "\n"
	for name, test := range map[string]struct {
		asked    string
		takes    time.Duration
		answered bool
	}{
		"at once":        {held, 0, true},
		"late":           {held, 14 * time.Second, true},
		"out of bound":   {held, 16 * time.Second, false},
		"the same twice": {held + held, time.Second, true}, // which is an error of the client's
		"cancelled":      {held + cancel, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				c := s.config
				c.User = func(context.Context) memory.UserID { return s.anna.ID }
				c.Now = func() time.Time {
					<-release
					return monday
				}
				in := initialize + "\n" + `{"jsonrpc": "2.0", "method": "notifications/initialized"}` + "\n" + test.asked
				var out bytes.Buffer
				start, ended := time.Now(), make(chan error, 1)
				go func() { ended <- mcp.Serve(context.Background(), c, mcp.Lines(strings.NewReader(in), &out, 1<<20)) }()
				synctest.Wait() // until it has met the end of its input, and the call runs
				<-time.After(test.takes)
				close(release)
				if err := <-ended; err != nil || time.Since(start) != test.takes {
					t.Errorf("it ended after %v: %v", time.Since(start), err)
				}
				if said := out.String(); strings.Contains(said, `"id":"held"`) != test.answered {
					t.Errorf("it said %s", said)
				}
			})
		})
	}
}

// A call takes at most 10 s, whatever it waits for.
func TestCallsTakeBoundedTime(t *testing.T) {
	s := serve(t)
	for takes, want := range map[time.Duration]string{9 * time.Second: "Nothing is remembered here.", 11 * time.Second: "the tool failed"} {
		synctest.Test(t, func(t *testing.T) {
			c := s.config
			c.User = func(context.Context) memory.UserID { return s.bert.ID }
			c.Now = func() time.Time {
				<-time.After(takes)
				return monday
			}
			in := initialize + "\n" + `{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "memory_topics"}}` + "\n"
			var out bytes.Buffer
			if err := mcp.Serve(context.Background(), c, mcp.Lines(strings.NewReader(in), &out, 1<<20)); err != nil {
				t.Error(err)
			}
			if said := out.String(); !strings.Contains(said, want) {
				t.Errorf("after %v: %s", takes, said)
			}
		})
	}
}
