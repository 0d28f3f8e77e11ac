package assembly

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/memory"
)

func drawnPart() *rapid.Generator[Part] {
	return rapid.Custom(func(t *rapid.T) Part {
		return Part{
			Type:    rapid.SampledFrom([]PartType{PartText, PartThinking, PartCall, PartResult, PartOther}).Draw(t, "type"),
			Text:    rapid.StringN(0, 12, -1).Draw(t, "text"),
			ID:      rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "id"),
			Name:    rapid.SampledFrom([]string{"", "b", "grep"}).Draw(t, "name"),
			Raw:     json.RawMessage(rapid.SampledFrom([]string{"", "{}", `{"q":1}`}).Draw(t, "raw")),
			IsError: rapid.Bool().Draw(t, "is error"),
			Tokens:  rapid.IntRange(1, 100).Draw(t, "tokens"),
		}
	})
}

func drawnPrompt() *rapid.Generator[Prompt] {
	return rapid.Custom(func(t *rapid.T) Prompt {
		p := Prompt{System: rapid.String().Draw(t, "system")}
		for range rapid.IntRange(0, 2).Draw(t, "tools") {
			p.Tools = append(p.Tools, Tool{Name: rapid.StringMatching("[a-z]{1,5}").Draw(t, "tool"), Parameters: json.RawMessage("{}")})
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "messages") {
			role := memory.RoleUser
			if i%2 == 1 {
				role = memory.RoleAssistant
			}
			p.Messages = append(p.Messages, Message{Role: role, Parts: rapid.SliceOfN(drawnPart(), 1, 4).Draw(t, "parts")})
		}
		return p
	})
}

// cloned is p with its own messages and parts.
func cloned(p Prompt) Prompt {
	p.Tools = slices.Clone(p.Tools)
	p.Messages = slices.Clone(p.Messages)
	for i := range p.Messages {
		p.Messages[i].Parts = slices.Clone(p.Messages[i].Parts)
	}
	return p
}

// partAt returns the kth part of all messages.
func partAt(p Prompt, k int) (*Message, *Part) {
	for i := range p.Messages {
		if m := &p.Messages[i]; k < len(m.Parts) {
			return m, &m.Parts[k]
		} else {
			k -= len(m.Parts)
		}
	}
	return nil, nil
}

func partsOf(p Prompt) int {
	n := 0
	for _, m := range p.Messages {
		n += len(m.Parts)
	}
	return n
}

// The changes of a part that a provider sees.
var visible = map[string]func(*Part){
	"type":     func(p *Part) { p.Type += "x" },
	"text":     func(p *Part) { p.Text += "x" },
	"id":       func(p *Part) { p.ID += "x" },
	"name":     func(p *Part) { p.Name += "x" },
	"raw":      func(p *Part) { p.Raw = append(slices.Clone(p.Raw), ' ') },
	"is error": func(p *Part) { p.IsError = !p.IsError },
	// The same letters, in another field.
	"moved": func(p *Part) { p.ID, p.Name = "x", p.ID+p.Name },
}

func names(of map[string]func(*Part)) []string {
	var all []string
	for name := range of {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func TestReuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawnPrompt().Draw(t, "prompt")
		system, tools := rapid.IntRange(0, 50).Draw(t, "system tokens"), rapid.IntRange(0, 50).Draw(t, "tools tokens")
		whole := system + tools
		for _, m := range p.Messages {
			for _, part := range m.Parts {
				whole += part.Tokens
			}
		}
		before := traceOf(p, system, tools)
		if got := (Trace{}).reuse(before); got != (Reuse{0, whole, false}) {
			t.Fatalf("after no prompt %+v, want 0 of %d", got, whole)
		}
		same := cloned(p)
		for i := range same.Messages {
			same.Messages[i].Breakpoint = true
			for j := range same.Messages[i].Parts {
				same.Messages[i].Parts[j].Entry++
			}
		}
		if got := before.reuse(traceOf(same, system, tools)); got != (Reuse{whole, whole, true}) {
			t.Fatalf("after the same prompt %+v, want all of %d", got, whole)
		}
		longer := cloned(p)
		longer.Messages = append(longer.Messages, Message{Role: memory.RoleUser, Parts: []Part{{Type: PartText, Text: "more", Tokens: 7}}})
		if got := before.reuse(traceOf(longer, system, tools)); got != (Reuse{whole, whole + 7, true}) {
			t.Fatalf("of a longer prompt %+v, want %d of %d", got, whole, whole+7)
		}
		if got := traceOf(longer, system, tools).reuse(before); got != (Reuse{whole, whole, false}) {
			t.Fatalf("of a shorter prompt %+v, want all of %d", got, whole)
		}
		n := partsOf(p)
		if n == 0 {
			return
		}
		k := rapid.IntRange(0, n-1).Draw(t, "changed")
		want := system + tools
		for i := range k {
			_, part := partAt(p, i)
			want += part.Tokens
		}
		other := cloned(p)
		m, part := partAt(other, k)
		switch how := rapid.SampledFrom(append(names(visible), "role")).Draw(t, "how"); {
		case how == "role":
			// The role is that of all parts of the message.
			first := k
			for first > 0 {
				if owner, _ := partAt(other, first-1); owner != m {
					break
				}
				first--
				_, part := partAt(p, first)
				want -= part.Tokens
			}
			m.Role += "x"
		default:
			visible[how](part)
		}
		if got := before.reuse(traceOf(other, system, tools)); got.Tokens != want {
			t.Fatalf("with another part %d, %d tokens are reused, want %d", k, got.Tokens, want)
		}
	})
}

func TestReuseOfToolsAndSystem(t *testing.T) {
	p := Prompt{
		System: "Be brief.", Tools: []Tool{{Name: "grep", Parameters: json.RawMessage(`{"type":"object"}`)}},
		Messages: []Message{{Role: memory.RoleUser, Parts: []Part{{Type: PartText, Text: "hello", Tokens: 5}}}},
	}
	before := traceOf(p, 10, 20)
	for _, test := range []struct {
		name   string
		change func(*Prompt)
		want   int
	}{
		{"nothing", func(*Prompt) {}, 35},
		{"what is said", func(p *Prompt) { p.Messages[0].Parts[0].Text = "bye" }, 30},
		{"the system text", func(p *Prompt) { p.System += " It is noon." }, 20},
		{"a tool's name", func(p *Prompt) { p.Tools[0].Name = "find" }, 0},
		{"a tool's description", func(p *Prompt) { p.Tools[0].Description = "finds" }, 0},
		{"a tool's parameters", func(p *Prompt) { p.Tools[0].Parameters = json.RawMessage(`{}`) }, 0},
		{"one more tool", func(p *Prompt) { p.Tools = append(p.Tools, Tool{Name: "expand"}) }, 0},
	} {
		now := cloned(p)
		test.change(&now)
		if got := before.reuse(traceOf(now, 10, 20)); got != (Reuse{test.want, 35, test.want == 35}) {
			t.Errorf("with another of %s: %+v, want %d", test.name, got, test.want)
		}
	}
	if got := (Reuse{}).Part(); got != 0 {
		t.Errorf("of nothing, %v is reused", got)
	}
	if got := (Reuse{Tokens: 3, Of: 4}).Part(); got != 0.75 {
		t.Errorf("3 of 4 are %v", got)
	}
}

func TestATraceIsOneAllocation(t *testing.T) {
	p := Prompt{System: "Be brief.", Tools: []Tool{{Name: "grep"}}}
	for i := range 100 {
		role := memory.RoleUser
		if i%2 == 1 {
			role = memory.RoleAssistant
		}
		p.Messages = append(p.Messages, Message{Role: role, Parts: []Part{{Type: PartText, Text: "some words of a message"}}})
	}
	var now Trace
	if n := testing.AllocsPerRun(50, func() { now = traceOf(p, 1, 1) }); n != 1 {
		t.Errorf("a trace is %v allocations", n)
	}
	if n := testing.AllocsPerRun(50, func() { now.reuse(now) }); n != 0 {
		t.Errorf("holding it against another is %v", n)
	}
}
