package jsonsize_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi/jsonsize"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]jsonsize.Size{
		``:                               {},
		`7`:                              {},
		`"{[,"`:                          {},
		`"\"{[,"`:                        {},
		`"\\",{`:                         {Depth: 1, Values: 2},
		`{}`:                             {Depth: 1, Values: 1},
		`[1,2,3]`:                        {Depth: 1, Values: 3},
		`{"a":[{"b":[]}],"c":{}}`:        {Depth: 4, Values: 6},
		`[[],[],[]]`:                     {Depth: 2, Values: 6},
		`}}}[`:                           {Depth: 0, Values: 1},
		strings.Repeat("[", 100_000):     {Depth: 100_000, Values: 100_000},
		`{"a\\":"b\\\"{","c":["\u007b"]`: {Depth: 2, Values: 3},
	} {
		if got := jsonsize.Of([]byte(text)); got != want {
			t.Errorf("%.40q: got %+v, want %+v", text, got, want)
		}
	}
}

// FuzzOf holds it against the depth and the number of values that the standard
// library's decoder finds.
func FuzzOf(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"]",{"b":null}],"c":"\\"}`, `[[[]],{}]`, `"x"`, `[{"\"":","}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			jsonsize.Of(text)
			return
		}
		depth, most, tokens := 0, 0, 0
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			tokens++
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
				most = max(most, depth)
			case json.Delim('}'), json.Delim(']'):
				depth--
			}
		}
		if got := jsonsize.Of(text); got.Depth != most || got.Values > tokens {
			t.Errorf("got %+v for a depth of %d and %d tokens", got, most, tokens)
		}
	})
}
