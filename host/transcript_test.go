package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// respelt writes a JSON value as another program may: with white space, and the keys
// of objects in another order.
func respelt(t *rapid.T, value any) []byte {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	var b bytes.Buffer
	b.WriteString(space.Draw(t, "space"))
	switch v := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		b.WriteByte('{')
		for i, key := range rapid.Permutation(keys).Draw(t, "keys") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(respelt(t, key))
			b.WriteByte(':')
			b.Write(respelt(t, v[key]))
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(respelt(t, item))
		}
		b.WriteByte(']')
	case int:
		fmt.Fprintf(&b, rapid.SampledFrom([]string{"%d", "%d.0", "%d.00e0", "%de0"}).Draw(t, "number"), v)
	default:
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(encoded)
	}
	b.WriteString(space.Draw(t, "space"))
	return b.Bytes()
}

func drawValue(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0 && depth > 0:
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			object[rapid.StringN(0, 3, -1).Draw(t, "key")] = drawValue(t, depth-1)
		}
		return object
	case kind == 1 && depth > 0:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	case kind == 2:
		return rapid.Bool().Draw(t, "bool")
	case kind == 3:
		return nil
	case kind == 4:
		return rapid.StringN(0, 5, -1).Draw(t, "string")
	}
	return rapid.IntRange(-1000, 1000).Draw(t, "int")
}

// exchange is a question, and an answer with calls and their results.
type exchange struct {
	question, answer string
	inputs           []any
	results          []string
}

// spelt writes exchanges as one of the clients does that there are.
func spelt(t *rapid.T, exchanges []exchange) []memory.Draft {
	source, err := boundary.ToolSource("f")
	if err != nil {
		t.Fatal(err)
	}
	text := func(words string) []memory.Block {
		around := rapid.SampledFrom([]string{"", " ", "\n"})
		blocks := []memory.Block{memory.Text(around.Draw(t, "before") + words + around.Draw(t, "behind"))}
		if rapid.Bool().Draw(t, "blank block") {
			blocks = append(blocks, memory.Text(" "))
		}
		return blocks
	}
	var all []memory.Draft
	say := func(role memory.Role, blocks ...memory.Block) {
		all = append(all, memory.Draft{Role: role, Blocks: blocks})
	}
	for i, e := range exchanges {
		// Results stand in messages of their own, or in that of the next question.
		if last := len(all) - 1; last >= 0 && all[last].Role == memory.RoleUser {
			all[last].Blocks = append(all[last].Blocks, text(e.question)...)
		} else {
			say(memory.RoleUser, text(e.question)...)
		}
		answer := text(e.answer)
		if rapid.Bool().Draw(t, "thoughts") {
			answer = slices.Insert(answer, 0, memory.Thinking("anthropic", "hm", []byte(`{}`)))
		}
		say(memory.RoleAssistant, answer...)
		apart := rapid.Bool().Draw(t, "calls apart")
		for k, input := range e.inputs {
			call := memory.ToolCall(fmt.Sprintf("c%d_%d", i, k), "f", respelt(t, input))
			if apart {
				say(memory.RoleAssistant, call)
			} else {
				last := &all[len(all)-1]
				last.Blocks = append(last.Blocks, call)
			}
		}
		role := rapid.SampledFrom([]memory.Role{memory.RoleTool, memory.RoleUser}).Draw(t, "results in")
		for k, words := range e.results {
			content, _ := boundary.Wrap(source, words, boundary.Unlimited)
			result := memory.ToolResult(fmt.Sprintf("c%d_%d", i, k), rapid.SampledFrom([]string{"", "f"}).Draw(t, "name"), content, false)
			if role == memory.RoleUser && k > 0 {
				last := &all[len(all)-1]
				last.Blocks = append(last.Blocks, result)
			} else {
				say(role, result)
			}
		}
	}
	return all
}

func digestsOf(t *rapid.T, messages []memory.Draft) (digests []memory.Digest) {
	rows, err := rowsOf(messages)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		digests = append(digests, r.Transcript)
	}
	return digests
}

// However a client writes a conversation down, it is the same, row for row; and with
// another word in it, it is another from there on.
func TestTranscriptsAreOfWhatIsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.StringMatching(`[a-zé]{1,3}( [a-z]{1,3})?`)
		exchanges := make([]exchange, rapid.IntRange(1, 4).Draw(t, "exchanges"))
		for i := range exchanges {
			e := &exchanges[i]
			e.question, e.answer = words.Draw(t, "question"), words.Draw(t, "answer")
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				e.inputs = append(e.inputs, map[string]any{"in": drawValue(t, 2)})
				e.results = append(e.results, words.Draw(t, "result"))
			}
		}
		one, other := digestsOf(t, spelt(t, exchanges)), digestsOf(t, spelt(t, exchanges))
		if !slices.Equal(one, other) {
			t.Fatalf("%d rows and %d rows are not the same", len(one), len(other))
		}
		at := rapid.IntRange(0, len(exchanges)-1).Draw(t, "changed")
		e := &exchanges[at]
		row := 0
		for _, before := range exchanges[:at] {
			row += 2 + len(before.results)
		}
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			e.question += "!"
		case 1:
			e.answer += "!"
			row++
		case 2:
			e.inputs[0] = map[string]any{"in": e.inputs[0]}
			row++
		case 3:
			e.results[0] += "!"
			row += 2
		}
		changed := digestsOf(t, spelt(t, exchanges))
		if len(changed) != len(one) || !slices.Equal(changed[:row], one[:row]) {
			t.Fatalf("a change of row %d changes what is before it", row)
		}
		for i := row; i < len(one); i++ {
			if changed[i] == one[i] {
				t.Fatalf("a change of row %d does not change row %d", row, i)
			}
		}
	})
}

// FuzzCallInput: whatever a model writes as the input of a call, reading it ends, and
// writing it again as a program does that has read it is the same input.
func FuzzCallInput(f *testing.F) {
	for _, input := range []string{`{}`, `{"a":1.0,"b":[1e3,-0,"\ud800"]}`, `{"a":1,"a":2}`, `[`, `{} {}`, `{"n":1e999}`, "\xff"} {
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		sum := appendInput(nil, input)
		var value map[string]any
		decoder := json.NewDecoder(bytes.NewReader(input))
		if decoder.Decode(&value) != nil || decoder.InputOffset() != int64(len(bytes.TrimRight(input, " \t\r\n"))) {
			return
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(appendInput(nil, again), sum) {
			t.Errorf("%q is not %q", again, input)
		}
	})
}
