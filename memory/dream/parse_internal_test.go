package dream

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestParseObject(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"plain":                {`{"facts":[]}`, `{"facts":[]}`},
		"fenced":               {"Sure!\n```json\n{\"facts\": [ ]}\n```\nAnything else?", `{"facts":[]}`},
		"thought aloud":        {`<think>maybe {"facts":[1]} or {so}</think>{"facts":[2]}`, `{"facts":[2]}`},
		"another behind":       {`{"facts":[1]} as in {"text":"..."}`, `{"facts":[1]}`},
		"in any case":          {`{"Facts":[]}`, `{"Facts":[]}`},
		"trailing commas":      {`{"facts":[1,2,],}`, `{"facts":[1,2]}`},
		"broken lines":         {"{\"facts\":[\"a\nb\tc\"]}", `{"facts":["a\u000ab\u0009c"]}`},
		"needless escapes":     {`{"facts":["it\'s C:\work and \u12"]}`, `{"facts":["it's C:\\work and \\u12"]}`},
		"invalid UTF-8":        {"{\"facts\":[\"\xff\"]}", "{\"facts\":[\"\ufffd\"]}"},
		"numbers and nothing":  {`{"facts":[-1.5e3,true,null]}`, `{"facts":[-1.5e3,true,null]}`},
		"braces in strings":    {`{"facts":["} {\"facts\":[]}"]}`, `{"facts":["} {\"facts\":[]}"]}`},
		"behind a false start": {`{ I think } {"facts":[]}`, `{"facts":[]}`},
	} {
		got, err := parseObject(c.text, "facts")
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}

// M7.
func TestParseObjectRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		cutOff bool
	}{
		"nothing":         {"", false},
		"prose":           {"I have nothing to remember.", false},
		"another object":  {`{"error":"no"}`, false},
		"an array":        {`[{"text":"a"}]`, false},
		"a missing comma": {`{"facts":[1 2]}`, false},
		"no quotes":       {`{facts:[]}`, false},
		"deep":            {`{"facts":` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + `}`, false},
		"somewhat deep":   {`{"facts":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, false},
		"10 MB":           {`{"facts":["` + strings.Repeat("x", 10<<20) + `"]}`, false},
		"in a list":       {`{"facts":[{"text":"a"},`, true},
		"in a string":     {`{"facts":[{"text":"a`, true},
		"in an escape":    {`{"facts":["a\`, true},
		"in a word":       {`{"facts":tru`, true},
		"behind a name":   {`{"facts"`, true},
		"at once":         {`{`, true},
	} {
		got, err := parseObject(c.text, "facts")
		if !errors.Is(err, ErrUnreadable) || errors.Is(err, errCutOff) != c.cutOff {
			t.Errorf("%s: %.40s, %v", name, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"facts":[{"text":"a","from":["m1"]}]}`)
	f.Add("```json\n{\"facts\":[1,],}\n```")
	f.Add(`{{{{"a":{"facts":"\ud800\x"`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, fields := range [][]string{nil, {"facts"}} {
			got, err := parseObject(text, fields...)
			if err != nil {
				if !errors.Is(err, ErrUnreadable) {
					t.Fatalf("%q: %v", text, err)
				}
				continue
			}
			if !json.Valid(got) || !utf8.Valid(got) {
				t.Fatalf("%q: %q is no JSON", text, got)
			}
			o, err := readObject(got)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if again, err := parseObject(string(got), fields...); err != nil || string(again) != string(got) {
				t.Fatalf("%q: %q becomes %q, %v", text, got, again, err)
			}
			if n := len(o.names("facts", 3)); n > 3 {
				t.Fatalf("%q: %d names", text, n)
			}
		}
	})
}

// A long answer is read at once, whatever it holds: what takes quadratic time takes
// minutes.
func TestParseObjectIsLinear(t *testing.T) {
	for _, piece := range []string{`{`, `{"a":`, `{"facts":[`, `[`, `{"`, `{"\`, `"`, `{}`, `{"facts":{}}`, `{"a":1,`, `{"a":"\u00`, `{-`, "{\"a\":\"\x00\xff", `{"a":[],}`} {
		text := strings.Repeat(piece, maxAnswer/4/len(piece))
		for _, text := range []string{text, `{"facts":[` + text} {
			begun := time.Now()
			_, _ = parseObject(text, "facts")
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("%q takes %v", piece, took)
			}
		}
	}
}
