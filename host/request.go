package host

import (
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// request is what a model is asked with a prompt. It says all that the prompt
// does and nothing else; zero leaves maxOutput to the model.
func request(p assembly.Prompt, maxOutput int) llm.Request {
	r := llm.Request{System: p.System, CacheSystem: p.CacheSystem, MaxOutputTokens: maxOutput}
	for _, t := range p.Tools {
		r.Tools = append(r.Tools, llm.Tool(t))
	}
	for _, m := range p.Messages {
		r.Messages = append(r.Messages, requestMessage(m))
	}
	return r
}

func requestMessage(m assembly.Message) llm.Message {
	out := llm.Message{Role: llm.RoleUser, Text: m.Text(), Breakpoint: m.Breakpoint}
	if m.Role == memory.RoleAssistant {
		out.Role = llm.RoleAssistant
	} else {
		out.Images = imagesIn(m)
	}
	for _, p := range m.Parts {
		switch p.Type {
		case assembly.PartThinking:
			if len(p.Raw) == 0 || p.Name == "" {
				continue // it is not of a provider that takes it back
			}
			if p.Name != out.Provider {
				// Between two providers' thoughts the last ones count: they
				// are those of the latest turn.
				out.Provider, out.Thinking = p.Name, nil
			}
			out.Thinking = append(out.Thinking, p.Raw)
		case assembly.PartCall:
			out.ToolCalls = append(out.ToolCalls, llm.ToolCall{ID: p.ID, Name: p.Name, Input: p.Raw})
		case assembly.PartResult:
			out.ToolResults = append(out.ToolResults, llm.ToolResult{ID: p.ID, Name: p.Name, Text: p.Text, IsError: p.IsError})
		}
	}
	return out
}

// imagesIn are the pictures of a user's message, each before the words that stand for
// it in the text.
func imagesIn(m assembly.Message) []llm.Image {
	var images []llm.Image
	at, last, words := 0, -1, false
	for _, p := range m.Parts {
		if p.Type != assembly.PartText && p.Type != assembly.PartOther {
			continue
		}
		// As assembly.Message.Text joins them.
		switch {
		case !words:
		case p.Entry == last:
			at += len("\n")
		default:
			at += len("\n\n")
		}
		if p.Type == assembly.PartOther {
			if mediaType, data, url, ok := memory.ParseImage(p.Raw); ok {
				images = append(images, llm.Image{At: at, MediaType: mediaType, Data: data, URL: url})
			}
		}
		at, last, words = at+len(p.Text), p.Entry, true
	}
	return images
}
