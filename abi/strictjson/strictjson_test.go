package strictjson_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi/strictjson"
)

type kind string

type part struct {
	Text string `json:"text"`
}

type input struct {
	Words  string             `json:"words"`
	Kinds  []kind             `json:"kinds"`
	Limit  *int               `json:"limit"`
	Size   uint8              `json:"size"`
	Share  float64            `json:"share"`
	All    bool               `json:"all"`
	Part   part               `json:"part"`
	Parts  []*part            `json:"parts"`
	Named  map[string]part    `json:"named"`
	At     *time.Time         `json:"at"`
	Raw    json.RawMessage    `json:"raw"`
	Any    any                `json:"any"`
	Hidden string             `json:"-"`
	Weight map[string]float32 `json:"weight"`
	inside int
}

var limits = strictjson.Limits{Bytes: 1000, Depth: 8}

// What is told has the author's names and no word of Go.
func TestObjectSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"limit": "8"}`, "limit: it has to be a whole number, not a text"},
		{`{"limit": 1.5}`, "limit: it has to be a whole number, not 1.5"},
		{`{"limit": 99999999999999999999}`, "limit: the number is out of range"},
		{`{"limit": 1e` + strings.Repeat("0", 40) + `}`, "limit: it has to be a whole number, not 1e0000000000000000000000…"},
		{`{"size": -1}`, "size: it has to be a whole number from 0, not -1"},
		{`{"size": 256}`, "size: the number is out of range"},
		{`{"share": "all"}`, "share: it has to be a number, not a text"},
		{`{"share": 1e999}`, "share: the number is out of range"},
		{`{"words": 5}`, "words: it has to be a text, not a number"},
		{`{"words": ["a"]}`, "words: it has to be a text, not a list"},
		{`{"words": {}}`, "words: it has to be a text, not an object"},
		{`{"words": false}`, "words: it has to be a text, not true or false"},
		{`{"all": "yes"}`, "all: it has to be true or false, not a text"},
		{`{"kinds": "message"}`, "kinds: it has to be a list, not a text"},
		{`{"kinds": ["message", 7]}`, "kinds[1]: it has to be a text, not a number"},
		{`{"part": []}`, "part: it has to be an object, not a list"},
		{`{"part": {"text": 1}}`, "part.text: it has to be a text, not a number"},
		{`{"parts": [null, {"text": true}]}`, "parts[1].text: it has to be a text, not true or false"},
		{`{"parts": [{"txt": ""}]}`, `parts[0]: unknown field "txt"`},
		{`{"named": {"a b": {"text": 1}}}`, `named."a b".text: it has to be a text, not a number`},
		{`{"weight": {"x": 1e99}}`, "weight.x: the number is out of range"},
		{`{"at": "tomorrow"}`, "at: it has to be a time such as 2030-12-31T18:00:00Z"},
		{`{"at": 5}`, "at: it has to be a time such as 2030-12-31T18:00:00Z"},
		{`{"Words": "a"}`, `unknown field "Words"`},
		{`{"Hidden": "a"}`, `unknown field "Hidden"`},
		{`{"inside": 1}`, `unknown field "inside"`},
		{`{"": 1}`, `unknown field ""`},
		{`{"` + strings.Repeat("é", 100) + `": 1}`, `unknown field "` + strings.Repeat("é", 32) + `"…`},
		{`{"words": "a", "words": "b"}`, `the field "words" is there twice`},
		{`{"part": {"text": "a", "te\u0078t": null}}`, `part: the field "text" is there twice`},
		{``, "it is not a JSON object"},
		{`null`, "it is not a JSON object"},
		{`["words"]`, "it is not a JSON object"},
		{`{"words": "a"`, "it ends too early"},
		{`{"words": a}`, "it is not JSON: invalid character 'a'"},
		{`{} {}`, "it is not JSON: invalid character '{' after"},
		{"{\"words\": \"\xff\"}", "it is not UTF-8"},
		{`{"words": "` + strings.Repeat("a", 1000) + `"}`, "it is longer than 1000 bytes"},
		{`{"raw": ` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`, "it nests deeper than 8"},
	} {
		before := input{Words: "before", Limit: new(3)}
		in := before
		err := strictjson.Object([]byte(test.text), &in, limits)
		if wrong, ok := errors.AsType[*strictjson.Error](err); !ok || !strings.HasPrefix(wrong.Error(), test.want) {
			t.Errorf("%.60s: %v, want %q", test.text, err, test.want)
		}
		if !reflect.DeepEqual(in, before) {
			t.Errorf("%.60s: refused, and %+v is left of it", test.text, in)
		}
		if err != nil && (strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "unmarshal")) {
			t.Errorf("%.60s: %v", test.text, err)
		}
	}
}

func TestObjectReadsWhatFits(t *testing.T) {
	in := input{Words: "stays", Size: 3}
	text := ` {"words": null, "limit": 8, "size": null, "kinds": ["message"], "part": {"text": "a"}, "parts": [{"text": "b"}, null],
		"named": {"x": {}}, "at": "2030-12-31T18:00:00Z", "raw": {"any": [1]}, "any": {"Go": 1, "Go": 2}, "share": 1e3, "all": true} ` + "\n"
	if err := strictjson.Object([]byte(text), &in, limits); err != nil {
		t.Fatal(err)
	}
	want := input{
		Words: "stays", Size: 3, Limit: new(8), Kinds: []kind{"message"}, Part: part{"a"}, Parts: []*part{{"b"}, nil}, Named: map[string]part{"x": {}},
		At: new(time.Date(2030, 12, 31, 18, 0, 0, 0, time.UTC)), Raw: json.RawMessage(`{"any": [1]}`), Any: map[string]any{"Go": 2.0}, Share: 1000, All: true,
	}
	if !reflect.DeepEqual(in, want) {
		t.Errorf("%+v, want %+v", in, want)
	}
}

// Who passes over fields is told the same of those that there are.
func TestExplain(t *testing.T) {
	for text, want := range map[string]string{
		`{"model": 4, "parts": [{"x": [{}], "text": ""}, {"text": 4}]}`: "parts[1].text: it has to be a text, not a number",
		`{"LIMIT": "4"}`: "LIMIT: it has to be a whole number, not a text",
		`{"limit": 4`:    "it ends too early",
		`[]`:             "it has to be an object, not a list",
	} {
		var in input
		err := json.Unmarshal([]byte(text), &in)
		if err == nil {
			t.Fatalf("%s fits", text)
		}
		if got := strictjson.Explain([]byte(text), &in, err); got.Error() != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// What is accepted is what encoding/json accepts, and what is refused is told in words.
func FuzzObject(f *testing.F) {
	for _, text := range []string{`{}`, `{"words":"a","limit":1}`, `{"parts":[{"text":1}]}`, `{"at":"2030-12-31T18:00:00Z"}`, `{"limit":1e2}`, `{"named":{"":{}}}`, `{"weight":{"a":1e39}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in, plain input
		err := strictjson.Object(data, &in, limits)
		plainErr := json.Unmarshal(data, &plain)
		if err == nil && (plainErr != nil || !reflect.DeepEqual(in, plain)) {
			t.Fatalf("%q is read as %+v, by encoding/json as %+v, %v", data, in, plain, plainErr)
		}
		if err != nil && (!reflect.DeepEqual(in, input{}) || strings.Contains(err.Error(), "json: ") || len(err.Error()) > 600) {
			t.Fatalf("%q: %v, with %+v", data, err, in)
		}
		if plainErr == nil {
			return
		}
		if e := strictjson.Explain(data, &plain, plainErr); e.Problem == "" || strings.Contains(e.Error(), "Go struct") {
			t.Fatalf("%q: %v explained as %v", data, plainErr, e)
		}
	})
}
