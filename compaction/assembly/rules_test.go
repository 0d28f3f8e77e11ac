package assembly_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

var providers = []assembly.Provider{"", assembly.Anthropic, assembly.OpenAIChat, assembly.OpenAIResponses, assembly.Gemini}

func user(parts ...assembly.Part) assembly.Message {
	return assembly.Message{Role: memory.RoleUser, Parts: parts}
}

func assistant(parts ...assembly.Part) assembly.Message {
	return assembly.Message{Role: memory.RoleAssistant, Parts: parts}
}

func text(s string) assembly.Part { return assembly.Part{Type: assembly.PartText, Text: s} }

func callPart(id string) assembly.Part {
	return assembly.Part{Type: assembly.PartCall, ID: id, Name: "look_up", Raw: json.RawMessage(`{"q":"pump"}`)}
}

func resultPart(id string) assembly.Part {
	return assembly.Part{Type: assembly.PartResult, ID: id, Name: "look_up", Text: "it leaks"}
}

func thinking(provider assembly.Provider) assembly.Part {
	return assembly.Part{Type: assembly.PartThinking, Name: string(provider), Raw: json.RawMessage(`{"type":"thinking","signature":"c2ln"}`)}
}

func with(m assembly.Message, breakpoint bool) assembly.Message {
	m.Breakpoint = breakpoint
	return m
}

// clean is three turns, the second with parallel calls, and breaks no rule.
func clean() assembly.Prompt {
	return assembly.Prompt{
		System:      "You look after pumps.",
		CacheSystem: true,
		Tools: []assembly.Tool{
			{Name: "look_up", Parameters: json.RawMessage(`{"anyOf":[{"required":["q"]},{"minProperties":1}],"properties":{"q":{"type":"string"}},"type":"object"}`)},
			{Name: "switch_off"},
		},
		Messages: []assembly.Message{
			user(text("Hello.")),
			assistant(text("Good morning.")),
			user(text("How is the pump?")),
			assistant(text("I look."), callPart("c1"), callPart("c2")),
			user(resultPart("c1"), resultPart("c2")),
			with(assistant(text("It leaks.")), true),
			user(text("Switch it off.")),
		},
	}
}

// running is a turn in which the provider thought before it called a tool.
func running(provider assembly.Provider) assembly.Prompt {
	p := clean()
	p.Messages = append(p.Messages, assistant(thinking(provider), text("I do."), callPart("c3")), user(resultPart("c3")))
	return p
}

func rulesOf(violations []assembly.Violation) []string {
	var names []string
	for _, v := range violations {
		if !slices.Contains(names, v.Rule) {
			names = append(names, v.Rule)
		}
	}
	return names
}

func TestCheckFindsNothingInCleanPrompts(t *testing.T) {
	for _, provider := range providers {
		if got := assembly.Check(clean(), provider); got != nil {
			t.Errorf("%q: three turns: %v", provider, got)
		}
		if provider != "" {
			if got := assembly.Check(running(provider), provider); got != nil {
				t.Errorf("%q: a running turn: %v", provider, got)
			}
		}
		one := assembly.Prompt{Messages: []assembly.Message{user(text("Hello."))}}
		if got := assembly.Check(one, provider); got != nil {
			t.Errorf("%q: one message: %v", provider, got)
		}
		one.Tools, one.CacheSystem = clean().Tools, true
		if got := assembly.Check(one, provider); got != nil {
			t.Errorf("%q: tools without a system text: %v", provider, got)
		}
	}
}

// breach is a prompt that breaks one rule.
type breach struct {
	rule     string
	name     string
	provider assembly.Provider
	prompt   assembly.Prompt
	message  int // where
	// also are rules that cannot be kept where this one is broken.
	also []string
}

func breaches() []breach {
	// edited returns what is left of a clean prompt after an edit.
	edited := func(edit func(*assembly.Prompt)) assembly.Prompt {
		p := clean()
		edit(&p)
		return p
	}
	messages := func(edit func([]assembly.Message) []assembly.Message) assembly.Prompt {
		return edited(func(p *assembly.Prompt) { p.Messages = edit(p.Messages) })
	}
	parts := func(message int, parts ...assembly.Part) assembly.Prompt {
		return edited(func(p *assembly.Prompt) { p.Messages[message].Parts = parts })
	}
	renamed := func(id, name string) assembly.Prompt {
		c, r := callPart(id), resultPart(id)
		c.Name, r.Name = name, name
		return messages(func(m []assembly.Message) []assembly.Message {
			m[3].Parts, m[4].Parts = []assembly.Part{c}, []assembly.Part{r}
			return m
		})
	}
	input := func(raw string) assembly.Prompt {
		c := callPart("c2")
		c.Raw = json.RawMessage(raw)
		return parts(3, callPart("c1"), c)
	}
	parameters := func(raw string) assembly.Prompt {
		return edited(func(p *assembly.Prompt) { p.Tools[0].Parameters = json.RawMessage(raw) })
	}
	named := func(r assembly.Part, name string) assembly.Part {
		r.Name = name
		return r
	}
	return []breach{
		{rule: "first_is_user", name: "no message", message: -1, prompt: assembly.Prompt{}},
		{rule: "first_is_user", name: "the assistant's", message: 0, prompt: messages(func(m []assembly.Message) []assembly.Message {
			return slices.Insert(m, 0, assistant(text("Hello.")))
		})},
		{rule: "roles_alternate", name: "two of the user", message: 7, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[6].Breakpoint = true
			return append(m, user(text("Now.")))
		})},
		{rule: "roles_alternate", name: "a tool's", message: 4, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[4].Role = memory.RoleTool
			return m
		})},
		{rule: "last_is_user", name: "the assistant's", message: 7, prompt: messages(func(m []assembly.Message) []assembly.Message {
			return append(m, assistant(text("I begin")))
		})},
		{rule: "calls_answered", name: "one of two", message: 3, prompt: parts(4, resultPart("c1"))},
		{rule: "calls_answered", name: "at the end", message: 7, prompt: messages(func(m []assembly.Message) []assembly.Message {
			return append(m, with(assistant(callPart("c3")), true), user(text("Well?")))
		})},
		{rule: "results_called", name: "of no call", message: 4, prompt: parts(4, resultPart("c1"), resultPart("c2"), resultPart("c3"))},
		{rule: "results_called", name: "two of one call", message: 4, prompt: parts(4, resultPart("c1"), resultPart("c2"), resultPart("c1"))},
		{rule: "results_called", name: "in the first message", message: 0, prompt: parts(0, resultPart("c0"), text("Hello."))},
		{rule: "results_first", name: "text before", message: 4, prompt: parts(4, text("Here."), resultPart("c1"), resultPart("c2"))},
		{rule: "results_together", name: "text between", message: 4, prompt: parts(4, resultPart("c1"), text("And."), resultPart("c2"))},
		{rule: "results_together", name: "two messages", message: 5, also: []string{"roles_alternate", "calls_answered", "results_called", "pair_unbroken"},
			prompt: messages(func(m []assembly.Message) []assembly.Message {
				m[4].Parts = m[4].Parts[:1]
				return slices.Insert(m, 5, user(resultPart("c2")))
			})},
		{rule: "result_name", name: "another", message: 4, prompt: parts(4, resultPart("c1"), named(resultPart("c2"), "switch_off"))},
		{rule: "pair_unbroken", name: "text behind a call", message: 3, prompt: parts(3, callPart("c1"), text("And."), callPart("c2"))},
		{rule: "pair_unbroken", name: "a message between", message: 3, also: []string{"roles_alternate", "calls_answered", "results_called"},
			prompt: messages(func(m []assembly.Message) []assembly.Message {
				return slices.Insert(m, 4, user(text("A refresh.")))
			})},
		{rule: "ids_unique", name: "of an earlier turn", message: 5, prompt: messages(func(m []assembly.Message) []assembly.Message {
			return slices.Insert(m, 5, assistant(callPart("c1")), user(resultPart("c1")))
		})},
		{rule: "ids_unique", name: "of the same message", message: 3, prompt: parts(3, callPart("c1"), callPart("c2"), callPart("c2"))},
		{rule: "id_form", name: "a character", message: 3, prompt: renamed("call.1", "look_up")},
		{rule: "id_form", name: "too long", message: 3, prompt: renamed(strings.Repeat("x", 41), "look_up")},
		{rule: "id_form", name: "empty", message: 3, prompt: renamed("", "look_up")},
		{rule: "name_form", name: "a character", message: 3, prompt: renamed("c1", "look up")},
		{rule: "name_form", name: "too long", message: 3, prompt: renamed("c1", strings.Repeat("x", 65))},
		{rule: "name_form", name: "a digit first", message: 3, prompt: renamed("c1", "3d")},
		{rule: "name_form", name: "of a tool", message: -1, prompt: edited(func(p *assembly.Prompt) { p.Tools[1].Name = "switch.off" })},
		{rule: "input_object", name: "none", message: 3, prompt: input("")},
		{rule: "input_object", name: "an array", message: 3, prompt: input(`[]`)},
		{rule: "input_object", name: "half", message: 3, prompt: input(`{"q":`)},
		{rule: "input_object", name: "not UTF-8", message: 3, prompt: input("{\"q\":\"\xff\"}")},
		{rule: "no_blank_text", name: "white space", message: 1, prompt: parts(1, text(" \n\u2003"))},
		{rule: "no_blank_text", name: "separators", message: 1, prompt: parts(1, text("\x1c\x1f"))},
		{rule: "no_blank_text", name: "a result", message: 4, prompt: parts(4, resultPart("c1"), assembly.Part{Type: assembly.PartResult, ID: "c2", Name: "look_up"})},
		{rule: "no_blank_text", name: "of another type", message: 0, prompt: parts(0, assembly.Part{Type: assembly.PartOther})},
		{rule: "no_blank_text", name: "no parts", message: 1, prompt: parts(1)},
		// No breakpoint is missed where none can stand.
		{rule: "no_blank_text", name: "before the last words", message: 5, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[5] = assistant(text("It leaks."), text(" "))
			return m
		})},
		{rule: "no_blank_text", name: "before the words before", message: 1, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[1].Parts = []assembly.Part{text(" ")}
			for len(m[5].Parts) < 20 {
				m[5].Parts = append(m[5].Parts, text("And it leaks."))
			}
			return m
		})},
		{rule: "parts_order", name: "of no known type", message: 1, prompt: parts(1, assembly.Part{Type: "image", Text: "a pump"})},
		{rule: "parts_order", name: "text before thinking", message: 7, provider: assembly.Anthropic, prompt: func() assembly.Prompt {
			p := running(assembly.Anthropic)
			p.Messages[7].Parts[0], p.Messages[7].Parts[1] = p.Messages[7].Parts[1], p.Messages[7].Parts[0]
			return p
		}()},
		{rule: "parts_order", name: "the user thinks", message: 2, prompt: parts(2, thinking(assembly.Anthropic), text("How is the pump?"))},
		{rule: "parts_order", name: "the user calls", message: 2, also: []string{"calls_answered"}, prompt: parts(2, text("How is the pump?"), callPart("c0"))},
		{rule: "parts_order", name: "the assistant answers", message: 1, also: []string{"results_called"}, prompt: parts(1, resultPart("c0"))},
		{rule: "thinking_provider", name: "of no provider", message: 7, prompt: running(assembly.Anthropic)},
		{rule: "thinking_provider", name: "of another", message: 7, provider: assembly.Gemini, prompt: running(assembly.Anthropic)},
		{rule: "thinking_provider", name: "of an earlier turn", message: 3, provider: assembly.Anthropic,
			prompt: parts(3, thinking(assembly.Anthropic), callPart("c1"), callPart("c2"))},
		{rule: "thinking_provider", name: "of the turn before", message: 5, provider: assembly.Anthropic,
			prompt: parts(5, thinking(assembly.Anthropic), text("It leaks."))},
		{rule: "thinking_provider", name: "of nobody", message: 7, prompt: running("")},
		{rule: "thinking_provider", name: "half", message: 7, provider: assembly.OpenAIResponses, prompt: func() assembly.Prompt {
			p := running(assembly.OpenAIResponses)
			p.Messages[7].Parts[0].Raw = p.Messages[7].Parts[0].Raw[:9]
			return p
		}()},
		{rule: "breakpoints", name: "five", message: -1, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[0].Breakpoint, m[1].Breakpoint, m[2].Breakpoint = true, true, true
			return m
		})},
		{rule: "breakpoints", name: "behind thinking", message: 7, provider: assembly.Anthropic, also: []string{"results_called"}, prompt: func() assembly.Prompt {
			p := running(assembly.Anthropic)
			p.Messages[7].Parts, p.Messages[7].Breakpoint = p.Messages[7].Parts[:1], true
			return p
		}()},
		{rule: "breakpoints", name: "behind blank text", message: 1, also: []string{"no_blank_text"}, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[1] = with(assistant(text("Good morning."), text(" ")), true)
			return m
		})},
		{rule: "breakpoints", name: "behind nothing", message: 1, also: []string{"no_blank_text"}, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[1] = with(assistant(), true)
			return m
		})},
		{rule: "breakpoint_reach", name: "none", message: 5, prompt: messages(func(m []assembly.Message) []assembly.Message {
			m[5].Breakpoint = false
			return m
		})},
		{rule: "breakpoint_reach", name: "20 blocks", message: 1, prompt: messages(func(m []assembly.Message) []assembly.Message {
			for len(m[5].Parts) < 20 {
				m[5].Parts = append(m[5].Parts, text("And it leaks."))
			}
			return m
		})},
		{rule: "tools_order", name: "later name first", message: -1, prompt: edited(func(p *assembly.Prompt) { slices.Reverse(p.Tools) })},
		{rule: "tools_order", name: "one name twice", message: -1, prompt: edited(func(p *assembly.Prompt) { p.Tools[1].Name = "look_up" })},
		{rule: "tools_order", name: "white space", message: -1, prompt: parameters(`{"type": "object"}`)},
		{rule: "tools_order", name: "keys", message: -1, prompt: parameters(`{"type":"object","required":[]}`)},
		{rule: "tools_order", name: "keys below", message: -1, prompt: parameters(`{"allOf":[{"b":1,"a":2}]}`)},
		{rule: "tools_order", name: "one key twice", message: -1, prompt: parameters(`{"a":1,"\u0061":2}`)},
		{rule: "tools_order", name: "no object", message: -1, prompt: parameters(`true`)},
		{rule: "tools_order", name: "half", message: -1, prompt: parameters(`{"a":"`)},
		{rule: "tools_order", name: "too deep", message: -1, prompt: parameters(nested(101))},
		{rule: "tools_order", name: "too large", message: -1, prompt: parameters(`{"a":"` + strings.Repeat("x", 256<<10) + `"}`)},
		{rule: "system_not_blank", name: "white space", message: -1, prompt: edited(func(p *assembly.Prompt) { p.System = "\n" })},
		{rule: "system_not_blank", name: "nothing to cache", message: -1, prompt: edited(func(p *assembly.Prompt) { p.System, p.Tools = "", nil })},
	}
}

// nested returns an object of so many levels.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
}

// A2: the rules, each with what breaks it.
func TestCheckFindsEachBreach(t *testing.T) {
	for _, b := range breaches() {
		t.Run(b.rule+"/"+b.name, func(t *testing.T) {
			got := assembly.Check(b.prompt, b.provider)
			want := append([]string{b.rule}, b.also...)
			names := rulesOf(got)
			slices.Sort(want)
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Fatalf("broken: %v, want %v\n%v", names, want, got)
			}
			i := slices.IndexFunc(got, func(v assembly.Violation) bool { return v.Rule == b.rule })
			if got[i].Message != b.message || got[i].Detail == "" {
				t.Errorf("found in message %d (%s), want %d", got[i].Message, got[i].Detail, b.message)
			}
			if !slices.ContainsFunc(assembly.Rules(b.provider), func(r assembly.Rule) bool { return r.Name == b.rule }) {
				t.Errorf("Rules(%q) does not name it", b.provider)
			}
		})
	}
}

func TestEveryRuleCanBeBroken(t *testing.T) {
	broken := map[string]bool{}
	for _, b := range breaches() {
		broken[b.rule] = true
	}
	names := map[string]bool{}
	for _, r := range assembly.Rules("") {
		if !broken[r.Name] {
			t.Errorf("no prompt here breaks %s", r.Name)
		}
		if names[r.Name] || r.Text == "" || r.Source == "" {
			t.Errorf("rule %+v is a second of its name or lacks words", r)
		}
		names[r.Name] = true
	}
}

func TestEveryRuleHasItsEvidence(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "providers.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Count(string(page), "\n| `")
	all := assembly.Rules("")
	if rows != len(all) {
		t.Errorf("docs/providers.md has %d rows for %d rules", rows, len(all))
	}
	for _, r := range all {
		if !strings.Contains(string(page), "\n| `"+r.Name+"` |") {
			t.Errorf("docs/providers.md has no row for %s", r.Name)
		}
	}
}

func TestRulesOfOneProviderAreAmongAll(t *testing.T) {
	all := assembly.Rules("")
	others := map[assembly.Provider][]string{
		assembly.Anthropic:       {"result_name"},
		assembly.OpenAIChat:      {"result_name", "breakpoints", "breakpoint_reach"},
		assembly.OpenAIResponses: {"result_name", "breakpoints", "breakpoint_reach"},
		assembly.Gemini:          {"breakpoints", "breakpoint_reach"},
	}
	for _, provider := range providers[1:] {
		own := slices.DeleteFunc(slices.Clone(all), func(r assembly.Rule) bool { return slices.Contains(others[provider], r.Name) })
		if got := assembly.Rules(provider); !slices.Equal(got, own) {
			t.Errorf("%s: %v, want %v", provider, got, own)
		}
	}
	if got := assembly.Rules("somebody"); !slices.Equal(got, all) {
		t.Errorf("an unknown provider has %d rules, want all %d", len(got), len(all))
	}
	p := clean()
	p.Messages[5].Breakpoint = false
	p.Messages[4].Parts[0].Name = "switch_off"
	for provider, want := range map[assembly.Provider][]string{
		assembly.OpenAIChat: nil, assembly.OpenAIResponses: nil,
		assembly.Anthropic: {"breakpoint_reach"}, assembly.Gemini: {"result_name"},
		"": {"result_name", "breakpoint_reach"},
	} {
		if got := rulesOf(assembly.Check(p, provider)); !slices.Equal(got, want) {
			t.Errorf("%q: broken: %v, want %v", provider, got, want)
		}
	}
}

// However many calls there are, it is the second of two results that is too many.
func TestSecondResultIsTheLater(t *testing.T) {
	for _, n := range []int{1, 5, 50} {
		var calls, results []assembly.Part
		for i := range n {
			calls, results = append(calls, callPart(fmt.Sprint("c", i))), append(results, resultPart(fmt.Sprint("c", i)))
		}
		p := assembly.Prompt{Messages: []assembly.Message{user(text("Look.")), assistant(calls...), user(append(results, results[0])...)}}
		want := []assembly.Violation{{Rule: "results_called", Message: 2, Detail: fmt.Sprintf("the result in part %d is the second of its call", n)}}
		if got := assembly.Check(p, ""); !slices.Equal(got, want) {
			t.Errorf("%d calls: %v", n, got)
		}
	}
}

// A breakpoint keeps what stays: 19 blocks on from the one before is the last
// from which a provider finds that, 20 is not.
func TestBreakpointReachAtTheBorder(t *testing.T) {
	turn := func(blocks int, before bool) assembly.Prompt {
		var lines []assembly.Part
		for i := range blocks - 1 {
			lines = append(lines, text(fmt.Sprint("line ", i)))
		}
		return assembly.Prompt{Messages: []assembly.Message{
			user(text("Hello.")), with(assistant(text("Good morning.")), before),
			user(text("Tell me.")), with(assistant(lines...), true),
			user(text("Thanks.")),
		}}
	}
	for _, c := range []struct {
		blocks int
		before bool
		broken bool
	}{{19, false, false}, {20, false, true}, {20, true, false}, {500, false, true}, {500, true, false}} {
		got := assembly.Check(turn(c.blocks, c.before), assembly.Anthropic)
		if (got != nil) != c.broken {
			t.Errorf("%d blocks, breakpoint before: %t: %v", c.blocks, c.before, got)
		}
	}
}

// What is told beside results can be the user's own words or not.
func TestBreakpointReachEitherWay(t *testing.T) {
	prompt := func(beforeTurn, beforeResults bool) assembly.Prompt {
		return assembly.Prompt{Messages: []assembly.Message{
			user(text("Hello.")), with(assistant(text("Good morning.")), beforeTurn),
			user(text("Look.")), with(assistant(callPart("c1")), beforeResults),
			user(resultPart("c1"), text("A refresh, or words of the user.")),
		}}
	}
	for _, c := range []struct{ turn, results, broken bool }{{true, false, false}, {false, true, false}, {true, true, false}, {false, false, true}} {
		if got := assembly.Check(prompt(c.turn, c.results), assembly.Anthropic); (got != nil) != c.broken {
			t.Errorf("breakpoint before the turn: %t, before the results: %t: %v", c.turn, c.results, got)
		}
	}
}

func TestThinkingStaysInTheRunningTurn(t *testing.T) {
	p := running(assembly.Anthropic)
	// Told in the middle of the turn, so thinking before it may stay.
	p.Messages[8].Parts = append(p.Messages[8].Parts, text("A refresh."))
	p.Messages = append(p.Messages, assistant(thinking(assembly.Anthropic), callPart("c4")), user(resultPart("c4")))
	if got := assembly.Check(p, assembly.Anthropic); len(got) != 0 {
		t.Errorf("in the running turn: %v", got)
	}
	p.Messages = append(p.Messages, with(assistant(text("Done.")), true), user(text("Thanks.")))
	got := assembly.Check(p, assembly.Anthropic)
	if names := rulesOf(got); !slices.Equal(names, []string{"thinking_provider"}) || len(got) != 2 {
		t.Errorf("a turn later: %v", got)
	}
}

func TestRuleError(t *testing.T) {
	p := clean()
	p.System = " "
	p.Messages = append(p.Messages, assistant(callPart("")), user(text(" ")), assistant(text("No.")))
	err := fmt.Errorf("assemble: %w", &assembly.RuleError{Provider: assembly.Gemini, Violations: assembly.Check(p, assembly.Gemini)})
	var broken *assembly.RuleError
	if !errors.As(err, &broken) || broken.Provider != assembly.Gemini || len(broken.Violations) != 5 {
		t.Fatalf("As gives %+v", broken)
	}
	const want = "assemble: prompt breaks the rules of gemini: last_is_user in message 9 (the last message is not the user's); " +
		"calls_answered in message 7 (the call in part 0 has no result in the next message); " +
		"id_form in message 7 (the id of part 0 is out of form); and 2 more"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	one := &assembly.RuleError{Violations: broken.Violations[4:]}
	if got := one.Error(); got != "prompt breaks the rules of providers: system_not_blank (the system text is blank)" {
		t.Error(got)
	}
	if got := (&assembly.RuleError{}).Error(); got != "prompt breaks the rules of providers" {
		t.Error(got)
	}
}

func TestValidIDAndName(t *testing.T) {
	for s, want := range map[string]struct{ id, name bool }{
		"toolu_01A09q90qw90lq917835lq9": {true, true}, "call_9": {true, true}, "-a": {true, false}, "7": {true, false},
		"": {false, false}, "a.b": {false, false}, "a:b": {false, false}, "ä": {false, false}, "a b": {false, false}, "a\x00": {false, false}, "\xff": {false, false},
		strings.Repeat("a", 40): {true, true}, strings.Repeat("a", 41): {false, true},
		strings.Repeat("a", 64): {false, true}, strings.Repeat("a", 65): {false, false},
	} {
		if got := assembly.ValidID(s); got != want.id {
			t.Errorf("ValidID(%q) = %t", s, got)
		}
		if got := assembly.ValidName(s); got != want.name {
			t.Errorf("ValidName(%q) = %t", s, got)
		}
	}
}

// generated is a conversation that keeps all rules of a provider.
func generated(r *rapid.T, provider assembly.Provider) assembly.Prompt {
	words := rapid.StringMatching(`[a-zäß.]{1,12}( [a-z?!]{1,8}){0,3}`)
	ids := 0
	p := assembly.Prompt{System: rapid.SampledFrom([]string{"", "You look after pumps."}).Draw(r, "system")}
	if rapid.Bool().Draw(r, "tools") {
		p.Tools = clean().Tools
	}
	p.CacheSystem = p.System != "" && rapid.Bool().Draw(r, "cache system")
	turns := rapid.IntRange(1, 5).Draw(r, "turns")
	var opened []int // the messages that open a turn
	for turn := range turns {
		opened = append(opened, len(p.Messages))
		p.Messages = append(p.Messages, user(text(words.Draw(r, "words"))))
		for range rapid.IntRange(0, 4).Draw(r, "rounds") {
			var said assembly.Message
			var told assembly.Message
			said.Role, told.Role = memory.RoleAssistant, memory.RoleUser
			if turn == turns-1 && provider != "" && rapid.Bool().Draw(r, "thinks") {
				said.Parts = append(said.Parts, thinking(provider))
			}
			if rapid.Bool().Draw(r, "talks") {
				said.Parts = append(said.Parts, text(words.Draw(r, "talk")))
			}
			for range rapid.IntRange(1, 9).Draw(r, "calls") {
				ids++
				id := fmt.Sprint("call_", ids)
				said.Parts = append(said.Parts, callPart(id))
				told.Parts = append(told.Parts, resultPart(id))
			}
			told.Parts = rapid.Permutation(told.Parts).Draw(r, "results")
			p.Messages = append(p.Messages, said, told)
		}
		if turn < turns-1 {
			p.Messages = append(p.Messages, assistant(text(words.Draw(r, "answer"))))
		}
	}
	if len(opened) > 1 {
		p.Messages[opened[turns-1]-1].Breakpoint = true
	}
	if len(opened) > 2 {
		p.Messages[opened[turns-2]-1].Breakpoint = true
	}
	return p
}

// TestEveryEditIsFound breaks prompts that keep all rules, each by one edit.
func TestEveryEditIsFound(t *testing.T) {
	// at draws a message that is of use.
	at := func(r *rapid.T, p *assembly.Prompt, of func(i int, m assembly.Message) bool) (int, bool) {
		var found []int
		for i, m := range p.Messages {
			if of(i, m) {
				found = append(found, i)
			}
		}
		if len(found) == 0 {
			return 0, false
		}
		return rapid.SampledFrom(found).Draw(r, "message"), true
	}
	has := func(t assembly.PartType) func(int, assembly.Message) bool {
		return func(_ int, m assembly.Message) bool {
			return slices.ContainsFunc(m.Parts, func(p assembly.Part) bool { return p.Type == t })
		}
	}
	first := func(m assembly.Message, t assembly.PartType) int {
		return slices.IndexFunc(m.Parts, func(p assembly.Part) bool { return p.Type == t })
	}
	edits := []struct {
		name, rule string
		edit       func(r *rapid.T, p *assembly.Prompt) bool
	}{
		{"drop the first message", "first_is_user", func(r *rapid.T, p *assembly.Prompt) bool {
			p.Messages = p.Messages[1:]
			return true
		}},
		{"drop the last message", "last_is_user", func(r *rapid.T, p *assembly.Prompt) bool {
			p.Messages = p.Messages[:len(p.Messages)-1]
			return len(p.Messages) > 0
		}},
		{"drop a message in the middle", "roles_alternate", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, func(i int, _ assembly.Message) bool { return i > 0 && i < len(p.Messages)-1 })
			if ok {
				p.Messages = slices.Delete(p.Messages, i, i+1)
			}
			return ok
		}},
		{"drop a result", "calls_answered", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartResult))
			if ok {
				p.Messages[i].Parts = slices.Delete(p.Messages[i].Parts, 0, 1)
			}
			return ok
		}},
		{"drop a call", "results_called", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartCall))
			if ok {
				j := first(p.Messages[i], assembly.PartCall)
				p.Messages[i].Parts = slices.Delete(p.Messages[i].Parts, j, j+1)
			}
			return ok
		}},
		{"repeat a result", "results_called", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartResult))
			if ok {
				p.Messages[i].Parts = append(p.Messages[i].Parts, p.Messages[i].Parts[0])
			}
			return ok
		}},
		{"say something before results", "results_first", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartResult))
			if ok {
				p.Messages[i].Parts = slices.Insert(p.Messages[i].Parts, 0, text("By the way."))
			}
			return ok
		}},
		{"say something between results", "results_together", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, func(_ int, m assembly.Message) bool {
				return len(m.Parts) > 1 && m.Parts[1].Type == assembly.PartResult
			})
			if ok {
				p.Messages[i].Parts = slices.Insert(p.Messages[i].Parts, 1, text("By the way."))
			}
			return ok
		}},
		{"say something after a call", "pair_unbroken", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartCall))
			if ok {
				p.Messages[i].Parts = append(p.Messages[i].Parts, text("By the way."))
			}
			return ok
		}},
		{"move results on by a turn", "pair_unbroken", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartResult))
			if ok {
				p.Messages = slices.Insert(p.Messages, i, user(text("By the way.")), assistant(text("Yes?")))
			}
			return ok
		}},
		{"rename a result", "result_name", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartResult))
			if ok {
				p.Messages[i].Parts[0].Name = "other"
			}
			return ok
		}},
		{"use an id again", "ids_unique", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartCall))
			if ok {
				id := p.Messages[i].Parts[first(p.Messages[i], assembly.PartCall)].ID
				p.Messages = append(p.Messages, assistant(callPart(id)), user(resultPart(id)))
			}
			return ok
		}},
		{"spoil an id", "id_form", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartResult))
			if ok {
				p.Messages[i].Parts[0].ID += rapid.SampledFrom([]string{"|", " ", "\x00", "é", strings.Repeat("0", 40)}).Draw(r, "suffix")
			}
			return ok
		}},
		{"spoil a name", "name_form", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartCall))
			if ok {
				p.Messages[i].Parts[first(p.Messages[i], assembly.PartCall)].Name = rapid.SampledFrom([]string{"", "a/b", "1a", strings.Repeat("a", 65)}).Draw(r, "name")
			}
			return ok
		}},
		{"cut an input", "input_object", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartCall))
			if ok {
				part := &p.Messages[i].Parts[first(p.Messages[i], assembly.PartCall)]
				part.Raw = part.Raw[:rapid.IntRange(0, len(part.Raw)-1).Draw(r, "length")]
			}
			return ok
		}},
		{"say nothing", "no_blank_text", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartText))
			if ok {
				p.Messages[i].Parts[first(p.Messages[i], assembly.PartText)].Text = rapid.StringMatching(`[ \t\n\r\v\x{a0}\x{3000}]*`).Draw(r, "white space")
			}
			return ok
		}},
		{"put thinking last", "parts_order", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartThinking))
			if ok {
				parts := p.Messages[i].Parts
				p.Messages[i].Parts = append(parts[1:len(parts):len(parts)], parts[0])
			}
			return ok
		}},
		{"let the user call", "parts_order", func(r *rapid.T, p *assembly.Prompt) bool {
			p.Messages[0].Parts = append(p.Messages[0].Parts, callPart("call_0"))
			return true
		}},
		{"change who thought", "thinking_provider", func(r *rapid.T, p *assembly.Prompt) bool {
			i, ok := at(r, p, has(assembly.PartThinking))
			if ok {
				p.Messages[i].Parts[0].Name += "2"
			}
			return ok
		}},
		{"go on to the next turn", "thinking_provider", func(r *rapid.T, p *assembly.Prompt) bool {
			_, ok := at(r, p, has(assembly.PartThinking))
			p.Messages = append(p.Messages, assistant(text("Done.")), user(text("Thanks.")))
			return ok
		}},
		{"put breakpoints everywhere", "breakpoints", func(r *rapid.T, p *assembly.Prompt) bool {
			for i := range p.Messages {
				p.Messages[i].Breakpoint = true
			}
			return len(p.Messages) > 4
		}},
		{"lose the breakpoints", "breakpoint_reach", func(r *rapid.T, p *assembly.Prompt) bool {
			had := false
			for i := range p.Messages {
				had = had || p.Messages[i].Breakpoint
				p.Messages[i].Breakpoint = false
			}
			return had
		}},
		{"turn the tools round", "tools_order", func(r *rapid.T, p *assembly.Prompt) bool {
			slices.Reverse(p.Tools)
			return len(p.Tools) > 1
		}},
		{"indent the parameters", "tools_order", func(r *rapid.T, p *assembly.Prompt) bool {
			if len(p.Tools) == 0 {
				return false
			}
			p.Tools[0].Parameters, _ = json.MarshalIndent(p.Tools[0].Parameters, "", " ")
			return true
		}},
		{"blank the system text", "system_not_blank", func(r *rapid.T, p *assembly.Prompt) bool {
			p.System = "\t"
			return true
		}},
	}
	rapid.Check(t, func(r *rapid.T) {
		provider := rapid.SampledFrom(providers).Draw(r, "provider")
		p := generated(r, provider)
		if got := assembly.Check(p, provider); len(got) != 0 {
			r.Fatalf("before the edit: %v", got)
		}
		e := edits[rapid.IntRange(0, len(edits)-1).Draw(r, "edit")]
		if !e.edit(r, &p) {
			r.Skip("nothing to edit")
		}
		if !slices.ContainsFunc(assembly.Rules(provider), func(rule assembly.Rule) bool { return rule.Name == e.rule }) {
			provider = ""
		}
		if got := rulesOf(assembly.Check(p, provider)); !slices.Contains(got, e.rule) {
			r.Fatalf("%s: broken: %v, want %s among them", e.name, got, e.rule)
		}
	})
}

// A6: were any rule quadratic, this would take far longer than all other tests.
func TestCheckTakesHugePrompts(t *testing.T) {
	const n = 50_000
	var calls, results, mixed []assembly.Part
	messages := make([]assembly.Message, 0, n)
	for i := range n {
		id := fmt.Sprint("c", i)
		calls = append(calls, callPart(id))
		results = append(results, resultPart(fmt.Sprint("c", n-i)))
		if i%10 == 0 {
			mixed = append(mixed, resultPart("r"), text("a"), callPart("r"), thinking("x"))
		}
		messages = append(messages, user(resultPart(id)), assistant(callPart(id)))
	}
	for name, p := range map[string]assembly.Prompt{
		"one pair":      {Messages: []assembly.Message{user(text("a")), assistant(calls...), user(results...)}},
		"one message":   {Messages: []assembly.Message{user(mixed...)}},
		"many messages": {Messages: messages},
		"only users":    {Messages: slices.Repeat([]assembly.Message{user(resultPart("a"))}, n)},
	} {
		if got := assembly.Check(p, ""); len(got) == 0 {
			t.Errorf("%s: nothing found", name)
		}
	}
}

// A2: whatever a prompt is, Check names rules of its provider and places in it, and
// leaves it as it is.
func FuzzCheck(f *testing.F) {
	for _, p := range []assembly.Prompt{clean(), running(assembly.Anthropic), running(assembly.Gemini)} {
		seed, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	for _, s := range []string{`{}`, `{"messages":[{}]}`, `{"messages":[{"role":"user","parts":[{}]},{"role":"tool","breakpoint":true}],"tools":[{"parameters":"\\"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p, before assembly.Prompt
		if json.Unmarshal(data, &p) != nil || json.Unmarshal(data, &before) != nil {
			return
		}
		for _, provider := range providers {
			rules := assembly.Rules(provider)
			for _, v := range assembly.Check(p, provider) {
				if !slices.ContainsFunc(rules, func(r assembly.Rule) bool { return r.Name == v.Rule }) ||
					v.Message < -1 || v.Message >= len(p.Messages) || v.Detail == "" {
					t.Errorf("%q: %+v", provider, v)
				}
			}
		}
		if !reflect.DeepEqual(p, before) {
			t.Error("the prompt was changed")
		}
	})
}

// long is a prompt of 199 messages in 20 turns, with 160 calls.
func long() assembly.Prompt {
	p := clean()
	p.Messages = nil
	for turn := range 20 {
		p.Messages = append(p.Messages, user(text("How is the pump today, and is anything new about it?")))
		for round := range 4 {
			a, b := fmt.Sprintf("call_%d_%d_a", turn, round), fmt.Sprintf("call_%d_%d_b", turn, round)
			p.Messages = append(p.Messages, assistant(text("I look."), callPart(a), callPart(b)), user(resultPart(a), resultPart(b)))
		}
		p.Messages = append(p.Messages, assistant(text("It leaks.")))
	}
	p.Messages = p.Messages[:len(p.Messages)-1]
	p.Messages[189].Breakpoint, p.Messages[179].Breakpoint = true, true
	return p
}

func TestCheckHardlyAllocates(t *testing.T) {
	if raced {
		t.Skip("the race detector makes the pools of encoding/json allocate")
	}
	p := long()
	if got := assembly.Check(p, ""); len(got) != 0 {
		t.Fatal(got)
	}
	// The prompt as it is passed on, and the ids that were met.
	if got := testing.AllocsPerRun(20, func() { assembly.Check(p, "") }); got > 4 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkCheck(b *testing.B) {
	p := long()
	b.ReportAllocs()
	for b.Loop() {
		if len(assembly.Check(p, "")) != 0 {
			b.Fatal("broken")
		}
	}
}
