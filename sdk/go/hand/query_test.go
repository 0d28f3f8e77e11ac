package hand

import (
	"reflect"
	"testing"
)

// scanned are queries of the form that hosts write, others are for decodeQuery.
var (
	scanned = []string{
		`{"prompt":"what","from":"2026-03-23T00:00:00Z","to":"2026-03-24T00:00:00.123456789Z","now":"2026-03-24T08:00:00+01:00","timezone":"Europe/Berlin","max_output_tokens":256}`,
		sampleQuery,
		" {\n\"prompt\" : \"\" , \"config\" : { } }\t",
		`{}`,
		`{"max_output_tokens":0,"timezone":"UTC"}`,
		`{"prompt":"\u00e9\ud83d\ude00\ud83d \"\\\/\n","subject":"Grüße\u0000"}`,
		"{\"prompt\":\"\xff\xed\xa0\x80\"}",
		`{"config":{"n":3,"big":9007199254740993,"more":92233720368547758070,"whole":2.0,"much":1e300,"toomuch":1e999,"f":-1.5e-2,"l":["a","b"],"none":[],"s":"","t":true,"f":false,"n":4}}`,
	}
	others = []string{
		`{"a field of tomorrow":{"x":1},"prompt":"x"}`,
		`{"Prompt":"x"}`,
		`{"prompt":"x","prompt":"y"}`,
		`{"config":{"a":1},"config":{"b":2}}`,
		`{"prompt":null,"config":null,"max_output_tokens":null,"now":null}`,
		`{"pr\u006fmpt":"x"}`,
		`{"config":{"a":null,"b":{"c":1},"d":[1,null,"x"]}}`,
		`{"from":"2026-03-23"}`, `{"from":"2026-03-23T00:00:00"}`, `{"from":1}`, `{"from":"\u0032026-03-23T00:00:00Z"}`,
		`{"max_output_tokens":1.0}`, `{"max_output_tokens":"1"}`, `{"max_output_tokens":99999999999999999999}`, `{"max_output_tokens":01}`, `{"max_output_tokens":+1}`,
		`{"config":{"n":01}}`, `{"config":{"n":-}}`, `{"config":{"n":}}`, `{"config":{"n":tru}}`, `{"config":["n"]}`, `{"config":{"n":1,}}`, `{"config":{"n":[1]}}`, `{"config":{"n":["a",]}}`,
		``, ` `, `null`, `[]`, `{`, `{"prompt"`, `{"prompt":`, `{"prompt":"`, `{"prompt":"x`, `{"prompt":"\`, `{"prompt":"x"`, `{"prompt":"x",`, `{"prompt":"x",}`, `{"prompt" "x"}`, `{,}`,
		`{"prompt":"\x"}`, "{\"prompt\":\"a\nb\"}", `{} {}`, `{}x`, `{"prompt":"x"}}`,
	}
)

// both reads a query in both ways, which must not differ in what they make of it.
func both(t *testing.T, data string) (scanned bool) {
	t.Helper()
	fast, ok := scanQuery([]byte(data))
	if !ok {
		return false
	}
	slow, err := decodeQuery([]byte(data))
	if err != nil || !reflect.DeepEqual(fast, slow) {
		t.Errorf("%s\nscanned %#v\ndecoded %#v, %v", data, fast, slow, err)
	}
	return true
}

func TestScannedIsDecoded(t *testing.T) {
	for _, query := range scanned {
		if !both(t, query) {
			t.Errorf("%s is of the form that hosts write, and was not scanned", query)
		}
	}
	for _, query := range others {
		if both(t, query) {
			t.Errorf("%s is scanned", query)
		}
	}
}

func FuzzScanQuery(f *testing.F) {
	for _, query := range scanned {
		f.Add(query)
	}
	for _, query := range others {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) { both(t, query) })
}
