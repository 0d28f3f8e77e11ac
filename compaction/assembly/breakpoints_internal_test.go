package assembly

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/memory"
)

// sketch is a prompt of messages with so many parts each; the first is the
// user's. A part of 0 is an empty message, one below 0 ends with a thought.
func sketch(system string, parts ...int) Prompt {
	p := Prompt{System: system}
	for i, n := range parts {
		m := Message{Role: memory.RoleUser}
		if i%2 == 1 {
			m.Role = memory.RoleAssistant
		}
		for j := range max(n, -n) {
			m.Parts = append(m.Parts, Part{Type: PartText, Text: fmt.Sprint(i, ".", j)})
		}
		if n < 0 {
			m.Parts[len(m.Parts)-1] = Part{Type: PartThinking, Raw: []byte(`{}`)}
		}
		p.Messages = append(p.Messages, m)
	}
	return p
}

// where lists what is marked, "s" for tools and system.
func where(p Prompt) string {
	var all []string
	if p.CacheSystem {
		all = append(all, "s")
	}
	for i, m := range p.Messages {
		if m.Breakpoint {
			all = append(all, fmt.Sprint(i))
		}
	}
	return strings.Join(all, " ")
}

func TestPlaceBreakpoints(t *testing.T) {
	for _, test := range []struct {
		name         string
		prompt       Prompt
		inputs       []int
		summariesEnd int
		want         string
	}{
		{"nothing", Prompt{}, nil, -1, ""},
		{"no messages", sketch("s"), nil, -1, "s"},
		{"the first input", sketch("s", 1), []int{0}, -1, "s"},
		{"only tools", Prompt{Tools: []Tool{{Name: "grep"}}}, nil, -1, "s"},
		{"no system", sketch("", 1, 1, 1), []int{0, 2}, -1, "1"},
		{"the second input", sketch("s", 1, 1, 1), []int{0, 2}, -1, "s 1"},
		{"two inputs in one message", sketch("s", 1, 1, 2), []int{0, 2, 2}, -1, "s 1"},
		{"a chat", sketch("s", 1, 1, 1, 1, 1), []int{0, 2, 4}, -1, "s 3"},
		{"summaries before it", sketch("s", 3, 1, 1, 1, 1), []int{2, 4}, 0, "s 0 3"},
		{"summaries beside the first input", sketch("s", 3), []int{0}, 0, "s"},
		{"summaries end where the rest stays", sketch("s", 3, 1, 1), []int{2}, 1, "s 1"},
		{"the first round of calls", sketch("s", 1, 1, 1, 2, 1), []int{0, 2}, -1, "s 1 4"},
		{"the first turn has calls", sketch("s", 1, 2, 1), []int{0}, -1, "s 2"},
		{"the second round of calls", sketch("s", 1, 1, 1, 2, 1, 2, 1), []int{0, 2}, -1, "s 1 6"},
		{"a round of many calls", sketch("s", 1, 1, 1, 2, 1, 10, 10), []int{0, 2}, -1, "s 1 4 6"},
		{"a round of just so many", sketch("s", 1, 1, 1, 2, 1, 10, 9), []int{0, 2}, -1, "s 1 6"},
		{"after a turn with many calls", sketch("s", 1, 1, 1, 9, 9, 1, 1), []int{0, 2, 6}, -1, "s 1 5"},
		{"after a turn with fewer", sketch("s", 1, 1, 1, 9, 8, 1, 1), []int{0, 2, 6}, -1, "s 5"},
		{"many calls, and summaries", sketch("s", 4, 1, 1, 1, 1, 9, 9, 1, 1), []int{2, 4, 8}, 0, "s 0 3 7"},
		{"many calls in the first turn", sketch("s", 1, 15, 15, 1, 1), []int{0, 4}, -1, "s 3"},
		{"an answer that ends with a thought", sketch("s", 1, 1, 1, -2, 1), []int{0, 2, 4}, -1, "s 2"},
		{"an empty answer", sketch("s", 1, 1, 1, 0, 1), []int{0, 2, 4}, -1, "s 2"},
		{"nothing may have one", sketch("s", 0, -1, 1), []int{2}, 1, "s"},
		{"no input", sketch("s", 1, 1, 1), nil, 0, "s 0 2"},
	} {
		before := test.prompt
		placeBreakpoints(&test.prompt, test.inputs, test.summariesEnd)
		if got := where(test.prompt); got != test.want {
			t.Errorf("%s: marked are %q, want %q", test.name, got, test.want)
		}
		placeBreakpoints(&before, test.inputs, test.summariesEnd)
		if got := where(before); got != test.want {
			t.Errorf("%s: marked again are %q, want %q", test.name, got, test.want)
		}
	}
}

// A4: a turn finds what the turn before wrote, however many calls stood between, and
// a round of calls what the round before did.
func TestBreakpointsAreFoundAgain(t *testing.T) {
	// position of the end of message i, in blocks.
	end := func(p Prompt, i int) int { return blocksBetween(p.Messages, -1, i) }
	rapid.Check(t, func(t *rapid.T) {
		shape, inputs := []int{}, []int{}
		var written []int // ends of messages, in blocks, in the order of writing
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			inputs = append(inputs, len(shape))
			shape = append(shape, rapid.IntRange(1, 3).Draw(t, "input"))
			inLoop := []int{}
			for round := range rapid.IntRange(1, 6).Draw(t, "rounds") {
				p := sketch("s", shape...)
				placeBreakpoints(&p, inputs, rapid.IntRange(-1, len(shape)-1).Draw(t, "summaries"))
				if n := strings.Count(where(p), " ") + 1; n > maxBreakpoints {
					t.Fatalf("%d breakpoints: %s", n, where(p))
				}
				input := inputs[len(inputs)-1]
				found := 0
				for i, m := range p.Messages {
					if !m.Breakpoint {
						continue
					}
					for _, at := range append(slices.Clone(written), inLoop...) {
						if d := end(p, i) - at; d >= 0 && d < lookback {
							found = max(found, at)
						}
					}
					if i < input {
						written = append(written, end(p, i))
					} else if i > input {
						inLoop = append(inLoop, end(p, i))
					} else {
						t.Fatalf("a breakpoint on the message with the last input: %s", where(p))
					}
				}
				want := 0
				switch {
				case round > 1:
					want = end(p, len(p.Messages)-3)
				case round == 1 && input > 0:
					want = end(p, input-1)
				case round == 0 && len(inputs) > 1 && inputs[len(inputs)-2] > 0:
					want = end(p, inputs[len(inputs)-2]-1)
				}
				if found < want {
					t.Fatalf("round %d of turn %d reads %d blocks of %d; breakpoints %s of %v", round, len(inputs), found, want, where(p), shape)
				}
				calls := rapid.IntRange(1, 30).Draw(t, "calls")
				shape = append(shape, calls, calls)
			}
			shape = append(shape[:len(shape)-2], 1)
		}
	})
}
