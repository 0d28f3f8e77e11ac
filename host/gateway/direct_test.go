package gateway_test

import (
	"context"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/memory"
)

// direct is TEMPORARY, until host.Relay is there.
func direct(base string) func(context.Context, host.Conversation) (host.Relayed, error) {
	return func(ctx context.Context, c host.Conversation) (out host.Relayed, err error) {
		m, err := openai.New(openai.Config{BaseURL: base, APIKey: openaitest.Key, Name: "scripted", MaxRetries: -1})
		if err != nil {
			return out, err
		}
		out.Placed = host.Placed{Session: memory.NewID[memory.SessionID](), New: true, Added: len(c.Messages)}
		if c.OnPlaced != nil {
			c.OnPlaced(out.Placed)
		}
		r := c.Ask
		r.System, r.Tools = c.System, c.Tools
		for _, d := range c.Messages {
			msg := llm.Message{Role: llm.RoleUser}
			if d.Role == memory.RoleAssistant {
				msg.Role = llm.RoleAssistant
			}
			for _, b := range d.Blocks {
				switch b.Type {
				case memory.BlockText:
					msg.Text += b.Text
				case memory.BlockToolCall:
					msg.ToolCalls = append(msg.ToolCalls, llm.ToolCall{ID: b.ID, Name: b.Name, Input: b.Input})
				case memory.BlockToolResult:
					msg.ToolResults = append(msg.ToolResults, llm.ToolResult{ID: b.ID, Name: b.Name, Text: b.External.Render()})
				}
			}
			if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == msg.Role {
				last := &r.Messages[n-1]
				last.Text += msg.Text
				last.ToolResults = append(last.ToolResults, msg.ToolResults...)
				continue
			}
			r.Messages = append(r.Messages, msg)
		}
		if c.OnEvent != nil {
			out.Response, err = m.Stream(ctx, r, func(text string) { c.OnEvent(host.Event{Text: text}) })
		} else {
			out.Response, err = m.Complete(ctx, r)
		}
		if err != nil {
			return out, err
		}
		out.Calls = out.Response.ToolCalls
		out.Message.ID = memory.NewID[memory.MessageID]()
		if out.Response.Text != "" {
			out.Message.Blocks = append(out.Message.Blocks, memory.Text(out.Response.Text))
		}
		return out, nil
	}
}

type both struct {
	*host.Host
	relay func(context.Context, host.Conversation) (host.Relayed, error)
}

func (s both) Relay(ctx context.Context, c host.Conversation) (host.Relayed, error) {
	return s.relay(ctx, c)
}
