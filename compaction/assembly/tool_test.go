package assembly_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
)

func TestCanonicalTools(t *testing.T) {
	given := []assembly.Tool{
		{Name: "write", Description: "Writes <a> file & more.", Parameters: json.RawMessage("\n{ \"type\" : \"object\",\t\"properties\":{\"b\":{\"maximum\":1.50e+3,\"enum\":[\"z\",\"a\"]},\"a\":{}},\"$x\":\"<&>\\u0041\" }\n")},
		{Name: "Read", Parameters: json.RawMessage(`null`)},
		{Name: "read"},
		{Name: "erase", Parameters: json.RawMessage(` {} `)},
	}
	before := slices.Clone(given)
	got, err := assembly.CanonicalTools(given)
	if err != nil {
		t.Fatal(err)
	}
	want := []assembly.Tool{
		{Name: "Read"},
		{Name: "erase", Parameters: json.RawMessage(`{}`)},
		{Name: "read"},
		{Name: "write", Description: "Writes <a> file & more.", Parameters: json.RawMessage(`{"$x":"<&>A","properties":{"a":{},"b":{"enum":["z","a"],"maximum":1.50e+3}},"type":"object"}`)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", got)
	}
	if !reflect.DeepEqual(given, before) {
		t.Error("the tools given were changed")
	}
	if got, err := assembly.CanonicalTools(nil); got != nil || err != nil {
		t.Errorf("no tools: %v, %v", got, err)
	}
}

// A4: the prefix holds however the caller came by the list.
func TestCanonicalToolsOfAnyOrder(t *testing.T) {
	tools := []assembly.Tool{{Name: "a"}, {Name: "b"}, {Name: "b2"}, {Name: "c", Parameters: json.RawMessage(`{"a":1,"b":2}`)}}
	want, err := assembly.CanonicalTools(tools)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	tools[3].Parameters = json.RawMessage(`{ "b":2, "a":1}`)
	for range 20 {
		random.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
		if got, err := assembly.CanonicalTools(tools); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

func TestCanonicalToolsRefuses(t *testing.T) {
	with := func(raw string) []assembly.Tool {
		return []assembly.Tool{{Name: "other"}, {Name: "this", Parameters: json.RawMessage(raw)}}
	}
	for name, c := range map[string]struct {
		tools []assembly.Tool
		want  string
	}{
		"no name":         {[]assembly.Tool{{}}, `tool "": name out of form`},
		"name":            {[]assembly.Tool{{Name: "a b"}}, `tool "a b": name out of form`},
		"long name":       {[]assembly.Tool{{Name: strings.Repeat("a", 1000)}}, `tool "` + strings.Repeat("a", 64) + `"…: name out of form`},
		"two of a name":   {[]assembly.Tool{{Name: "this"}, {Name: "that"}, {Name: "this"}}, `tool "this": two have this name`},
		"array":           {with(`[]`), `tool "this": parameters: no JSON object in UTF-8`},
		"half":            {with(`{"a":`), `tool "this": parameters: no JSON object in UTF-8`},
		"two objects":     {with(`{}{}`), `tool "this": parameters: no JSON object in UTF-8`},
		"words after":     {with(`{} x`), `tool "this": parameters: no JSON object in UTF-8`},
		"not UTF-8":       {with("{\"a\":\"\xff\"}"), `tool "this": parameters: no JSON object in UTF-8`},
		"too deep":        {with(nested(101)), `tool "this": parameters: over 100 levels deep`},
		"far too deep":    {with(strings.Repeat(`[`, 200_000)), `tool "this": parameters: over 100 levels deep`},
		"too large":       {with(`{"a":"` + strings.Repeat("x", 256<<10) + `"}`), `tool "this": parameters: over 256 KiB`},
		"grows too large": {with(`{"a":"` + strings.Repeat("\u2028", 80<<10) + `"}`), `tool "this": parameters: over 256 KiB`},
	} {
		got, err := assembly.CanonicalTools(c.tools)
		if got != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for name, raw := range map[string]string{
		"100 levels":      nested(100),
		"brackets quoted": `{"a":"` + strings.Repeat(`[{\"`, 200) + `"}`,
		"256 KiB":         `{"a":"` + strings.Repeat("x", 256<<10-8) + `"}`,
	} {
		if _, err := assembly.CanonicalTools(with(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What CanonicalTools makes keeps the rule, means the same, and stays as it is.
func FuzzCanonicalTools(f *testing.F) {
	for _, s := range []string{`{}`, `{"b":[{"y":1,"x":-0.0e9}],"a":"\u2028\ud800<"}`, `{"a\n":1,"aA":2,"a\"":3,"":{}}`, "{\"\xff\":1,\"\\ufffd\":2}", `[`, `{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := assembly.CanonicalTools([]assembly.Tool{{Name: "a", Parameters: raw}})
		if err != nil {
			if once != nil {
				t.Error("tools beside an error")
			}
			return
		}
		p := assembly.Prompt{Tools: once, Messages: []assembly.Message{user(text("Hello."))}}
		if got := assembly.Check(p, ""); len(got) != 0 {
			t.Fatalf("%s: %v", once[0].Parameters, got)
		}
		twice, err := assembly.CanonicalTools(once)
		if err != nil || !bytes.Equal(once[0].Parameters, twice[0].Parameters) {
			t.Fatalf("again: %s, %v", twice[0].Parameters, err)
		}
		if once[0].Parameters == nil {
			return
		}
		var was, is any
		if json.Unmarshal(raw, &was) == nil && (json.Unmarshal(once[0].Parameters, &is) != nil || !reflect.DeepEqual(was, is)) {
			t.Fatalf("%s became %s", raw, once[0].Parameters)
		}
	})
}
