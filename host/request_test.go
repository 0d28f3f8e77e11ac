package host

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

func TestRequestSaysWhatThePromptDoes(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	got := request(assembly.Prompt{
		System: "Be kind.", CacheSystem: true,
		Tools: []assembly.Tool{{Name: "search", Description: "Searches.", Parameters: raw(`{"type":"object"}`)}, {Name: "now"}},
		Messages: []assembly.Message{
			{Role: memory.RoleUser, Parts: []assembly.Part{{Type: assembly.PartText, Text: "one"}, {Type: assembly.PartOther, Text: "two", Entry: 1}}, Breakpoint: true},
			{Role: memory.RoleAssistant, Parts: []assembly.Part{
				{Type: assembly.PartThinking, Name: "older", Raw: raw(`{"o":1}`)},
				{Type: assembly.PartThinking, Text: "nobody takes this back"},
				{Type: assembly.PartThinking, Name: "anthropic", Raw: raw(`{ "a":1.0 }`)},
				{Type: assembly.PartThinking, Name: "anthropic", Raw: raw(`{"b":"\u003c"}`)},
				{Type: assembly.PartText, Text: "three"},
				{Type: assembly.PartCall, ID: "c1", Name: "search", Raw: raw(`{"q":1}`)},
			}},
			{Role: memory.RoleUser, Parts: []assembly.Part{{Type: assembly.PartResult, ID: "c1", Name: "search", Text: "none", IsError: true}, {Type: assembly.PartText, Text: "four"}}},
		},
	}, 99)
	want := llm.Request{
		System: "Be kind.", CacheSystem: true, MaxOutputTokens: 99,
		Tools: []llm.Tool{{Name: "search", Description: "Searches.", Parameters: raw(`{"type":"object"}`)}, {Name: "now"}},
		Messages: []llm.Message{
			{Role: llm.RoleUser, Text: "one\n\ntwo", Breakpoint: true},
			{
				Role: llm.RoleAssistant, Provider: "anthropic", Thinking: []json.RawMessage{raw(`{ "a":1.0 }`), raw(`{"b":"\u003c"}`)},
				Text: "three", ToolCalls: []llm.ToolCall{{ID: "c1", Name: "search", Input: raw(`{"q":1}`)}},
			},
			{Role: llm.RoleUser, Text: "four", ToolResults: []llm.ToolResult{{ID: "c1", Name: "search", Text: "none", IsError: true}}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := request(assembly.Prompt{}, 0); got.Tools != nil || got.MaxOutputTokens != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}

// words are of every weight that the estimate has, and of lengths that leave
// quarters of a token.
var words = rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "bc", "seven words", "数据库", "😀", "\n\n", "é"}), 1, 12), func(parts []string) string {
	return "w" + strings.Join(parts, "")
})

func item(role memory.Role, source memory.Source, blocks ...memory.Block) memory.Item {
	return memory.Item{Message: &memory.Message{
		ID: memory.NewID[memory.MessageID](), Role: role, Source: source, At: time.Unix(0, 0).UTC(), Blocks: blocks, Tokens: memory.Count(blocks),
	}}
}

// A prompt costs what its pieces do and a share for each, which of calls and
// results includes an id of common length; where pieces are joined in one message,
// the request counts one share, and may round once.
func TestRequestCostsWhatThePromptDoes(t *testing.T) {
	source, err := boundary.ToolSource("search")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var items []memory.Item
		for i := range rapid.IntRange(1, 20).Draw(t, "items") {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				items = append(items, item(memory.RoleUser, memory.SourceUser, memory.Text(words.Draw(t, "asked"))))
			case 1:
				items = append(items, item(memory.RoleAssistant, memory.SourceAssistant, memory.Text(words.Draw(t, "said"))))
			case 2:
				id := fmt.Sprint("call_", i)
				result, _ := boundary.Wrap(source, words.Draw(t, "result"), boundary.Unlimited)
				items = append(items,
					item(memory.RoleAssistant, memory.SourceAssistant, memory.Text(words.Draw(t, "said")), memory.ToolCall(id, "search", json.RawMessage(`{"q":"`+strings.ReplaceAll(words.Draw(t, "input"), "\n", "")+`"}`))),
					item(memory.RoleTool, memory.SourceTool, memory.ToolResult(id, "search", result, i%2 == 0)))
			default:
				items = append(items, item(memory.RoleUser, memory.SourceScheduledTick, memory.Text(words.Draw(t, "tick")), memory.Text(words.Draw(t, "tock"))))
			}
		}
		items = append(items, item(memory.RoleUser, memory.SourceUser, memory.Text(words.Draw(t, "last"))))
		prompt, _, err := assembly.Assemble(assembly.Input{System: words.Draw(t, "system"), Items: items, Budget: rapid.IntRange(0, 4000).Draw(t, "budget")})
		if err != nil {
			t.Fatal(err)
		}
		parts := 0
		for _, m := range prompt.Messages {
			parts += len(m.Parts)
		}
		const perPart, rounding = 12, 1
		if got, most, least := request(prompt, 0).Tokens(), prompt.Tokens, prompt.Tokens-(perPart+rounding)*parts; got > most || got < least {
			t.Fatalf("the request costs %d, the prompt %d in %d parts", got, most, parts)
		}
	})
}

func TestCounter(t *testing.T) {
	if count := (Config{}).counter(); count != nil {
		t.Error("exact without a vocabulary")
	}
	for name, want := range map[string]int{"cl100k_base": 9, "o200k_base": 8} {
		count := Config{Model: ModelConfig{Tokenizer: name}}.counter()
		if got := count("お誕生日おめでとう"); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// A picture stands in the text where the words are that stand for it, however the
// parts of a message are joined.
func TestRequestHasPicturesInTheirPlaces(t *testing.T) {
	picture := func(data string) json.RawMessage {
		raw, err := memory.Image("image/png", []byte(data), "").MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	other := func(text string, raw json.RawMessage, entry int) assembly.Part {
		return assembly.Part{Type: assembly.PartOther, Text: text, Raw: raw, Entry: entry}
	}
	text := func(text string, entry int) assembly.Part {
		return assembly.Part{Type: assembly.PartText, Text: text, Entry: entry}
	}
	m := assembly.Message{Role: memory.RoleUser, Parts: []assembly.Part{
		{Type: assembly.PartResult, ID: "a", Name: "f", Text: "done"},
		other("[1]", picture("1"), 1), text("é", 1), other("[2]", picture("2"), 1), other("[3]", picture("3"), 2), text("last", 3),
		other("[no picture]", json.RawMessage(`{"type":"image","source":{}}`), 4), other("[4]", picture("4"), 4),
	}}
	got := requestMessage(m)
	if got.Text != m.Text() || len(got.Images) != 4 {
		t.Fatalf("%q with %+v", got.Text, got.Images)
	}
	for i, image := range got.Images {
		n := fmt.Sprint(i + 1)
		if image.MediaType != "image/png" || string(image.Data) != n || !strings.HasPrefix(got.Text[image.At:], "["+n+"]") {
			t.Errorf("picture %s is %q before %q", n, image.Data, got.Text[image.At:])
		}
	}
	m.Role = memory.RoleAssistant
	if got := requestMessage(m); len(got.Images) != 0 {
		t.Errorf("the assistant's are %+v", got.Images)
	}
}
