package host_test

import (
	"fmt"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// BenchmarkRelay is the host's own time for one turn, with a model that answers at
// once, in sessions of 10 to 10,000 messages: of a client that sends the whole
// conversation, and of one that sends the end of a named one. What stands before the
// end is hashed and nothing else: what a prompt has room for is the same in all.
func BenchmarkRelay(b *testing.B) {
	for _, sends := range []string{"whole", "end"} {
		for _, length := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/messages=%d", sends, length), func(b *testing.B) {
				h, err := host.New(b.Context(), host.Config{Data: b.TempDir(), Cache: cacheDir, LLM: &model{}, Model: host.ModelConfig{ContextWindow: 2000, MaxOutputTokens: 500}})
				if err != nil {
					b.Fatal(err)
				}
				defer h.Close()
				c := host.Conversation{Session: "long"}
				for i := range length / 2 {
					c.Messages = append(c.Messages, fromUser(fmt.Sprintf("question %d of those about how it does", i)), fromModel(fmt.Sprintf("answer %d, which is that it does well", i)))
				}
				turn := func(text string) {
					c.Messages = append(c.Messages, fromUser(text))
					out, err := h.Relay(b.Context(), &c)
					if err != nil {
						b.Fatal(err)
					}
					c.Messages = append(c.Messages, seen(out))
				}
				turn("begin")
				if sends == "whole" {
					c.Session = ""
				}
				for i := 0; b.Loop(); i++ {
					if sends == "end" {
						c.Messages = c.Messages[len(c.Messages)-4:]
					}
					turn(fmt.Sprintf("and %d?", i))
				}
				if n, err := h.Store().Sessions(b.Context(), memory.UserID{}, memory.SessionQuery{}); err != nil || len(n) > 1 {
					b.Errorf("%d sessions, %v", len(n), err)
				}
			})
		}
	}
}
