package memory_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gloveboxhq/glovebox/memory"
)

func TestTopicName(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"boat", "boat"},
		{"  The\tBOAT\r\n of\u2028mine\u00a0", "the boat of mine"},
		{"a/b?c#d%2f", "a/b?c#d%2f"},
		{"E\u0301COLE", "\u00e9cole"},
		{"\u0130stanbul", "istanbul"},
		{"I\u0307stanbul", "istanbul"},
		{"\u212aelvin", "kelvin"},
		{"\u1100\u1161", "\uac00"},
		{"\U0001f469\u200d\U0001f680", "\U0001f469\u200d\U0001f680"},
		{"bo\x00at\u202e\u200b\ufeff\U000e0041", "boat"},
		{"b\xff", "b\ufffd"},
		{"audit", "audit-topic"}, {" Export\n", "export-topic"}, {"im\u00adport", "import-topic"}, {".", ".-topic"}, {"..", "..-topic"},
		{"audit-topic", "audit-topic"}, {"audits", "audits"}, {"...", "..."},
		{strings.Repeat("x", memory.MaxTopicName), strings.Repeat("x", memory.MaxTopicName)},
		{strings.Repeat("e\u0301", memory.MaxTopicName/2), strings.Repeat("\u00e9", memory.MaxTopicName/2)},
		{strings.Repeat(" ", 10_000) + "x" + strings.Repeat("\n", 10_000), "x"},
	} {
		if got, err := memory.TopicName(test.name); got != test.want || err != nil {
			t.Errorf("%.40q: got %.80q, %v, want %.80q", test.name, got, err, test.want)
		}
	}
	for _, name := range []string{"", " \n", "\u200b\u202e", "\u200d\u200c", strings.Repeat("x", memory.MaxTopicName+1), strings.Repeat("\U0001f469", 10_000)} {
		if got, err := memory.TopicName(name); !errors.Is(err, memory.ErrInvalid) || got != "" {
			t.Errorf("%.40q: got %.40q, %v", name, got, err)
		}
	}
}

// Whatever the text was, its form is one line that shows what it holds, and is its
// own form.
func FuzzTopicForms(f *testing.F) {
	for _, seed := range []string{"The Boat", "I\u0307", "a\u0300\u0316\u0301", "\u1e9e\u0345\u03b1", "audit", strings.Repeat("\u0301", 64), "\xff\u202e", "\u03a3\u03a3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for what, form := range map[string]struct {
			of   func(string) (string, error)
			most int
		}{"name": {memory.TopicName, memory.MaxTopicName}, "content": {memory.TopicContent, memory.MaxTopicContent}} {
			formed, err := form.of(text)
			if err != nil {
				if !errors.Is(err, memory.ErrInvalid) || formed != "" {
					t.Fatalf("%s: %q, %v", what, formed, err)
				}
				continue
			}
			if formed == "" || len(formed) > form.most || !utf8.ValidString(formed) || strings.TrimSpace(formed) != formed || strings.Contains(formed, "  ") || strings.ContainsFunc(formed, unicode.IsControl) {
				t.Fatalf("%s: %q is formed as %q", what, text, formed)
			}
			if what == "name" && !norm.NFC.IsNormalString(formed) {
				t.Fatalf("%q is not composed", formed)
			}
			if again, err := form.of(formed); again != formed || err != nil {
				t.Fatalf("%s: %q, of %q, is formed again as %q, %v", what, formed, text, again, err)
			}
		}
	})
}

func TestFormsTakeLinearTime(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 10<<20), strings.Repeat(" ", 10<<20), strings.Repeat("\u200b", 3<<20), strings.Repeat("\u0301", 5<<20), strings.Repeat("\xff", 10<<20)} {
		begun := time.Now()
		memory.TopicName(text)
		memory.TopicContent(text)
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%d bytes of %.4q took %v", len(text), text, took)
		}
	}
}

func TestValidAt(t *testing.T) {
	at := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	hour := time.Hour
	heir := memory.NewID[memory.TopicID]()
	for _, test := range []struct {
		name  string
		topic memory.Topic
		want  string // at -1h, at, +1h, +2h
	}{
		{"open", memory.Topic{ValidFrom: at}, ".vvv"},
		{"expiring", memory.Topic{ValidFrom: at, ExpiresAt: at.Add(hour)}, ".v.."},
		{"superseded", memory.Topic{ValidFrom: at, SupersededBy: heir, SupersededAt: at.Add(2 * hour)}, ".vv."},
		{"superseded before it held", memory.Topic{ValidFrom: at, SupersededBy: heir, SupersededAt: at.Add(-hour)}, "...."},
		{"expired before it was superseded", memory.Topic{ValidFrom: at.Add(-hour), ExpiresAt: at, SupersededBy: heir, SupersededAt: at.Add(hour)}, "v..."},
		{"superseded nobody knows when", memory.Topic{ValidFrom: at, SupersededBy: heir}, "...."},
	} {
		got := ""
		for i := range 4 {
			if test.topic.ValidAt(at.Add(time.Duration(i-1) * hour)) {
				got += "v"
			} else {
				got += "."
			}
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// An extraction of an older export has texts for lists; whatever else it has that
// an extraction does not is refused.
func TestExtractionRecordReads(t *testing.T) {
	const head = `{"id":"019a0000-0000-7000-8000-000000000001","agent":"a","session_id":"019a0000-0000-7000-8000-000000000002","created_at":"2026-03-23T09:00:00Z"`
	for _, test := range []struct {
		text string
		want int
		fine bool
	}{
		{head + `}`, 0, true},
		{head + `,"facts":"","tasks":"  []\n"}`, 0, true},
		{head + `,"facts":"likes tea","open_items":"[\"a\",\"b\"]"}`, 2, true},
		{head + `,"facts":[{"text":"a"},{"text":"b","message_ids":["019a0000-0000-7000-8000-000000000003"]}]}`, 2, true},
		{head + `,"facts":null}`, 0, true},
		{head + `,"facts":{}}`, 0, false},
		{head + `,"facts":[1]}`, 0, false},
		{head + `,"facts":["a"]}`, 0, false},
		{head + `,"facts":[{"text":"a","trust":"direct"}]}`, 0, false},
		{head + `,"facts":[{"text":"a","message_ids":["x"]}]}`, 0, false},
		{head + `,"user_id":"x"}`, 0, false},
		{`[]`, 0, false},
	} {
		var r memory.Record
		err := json.Unmarshal([]byte(`{"kind":"extraction","extraction":`+test.text+`}`), &r)
		if (err == nil) != test.fine {
			t.Errorf("%s: %v", test.text, err)
		}
		if err == nil && r.Extraction.Len() != test.want {
			t.Errorf("%s: %+v", test.text, r.Extraction)
		}
	}
}
