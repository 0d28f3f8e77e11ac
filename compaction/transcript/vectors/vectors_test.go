package vectors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gloveboxhq/glovebox/compaction/transcript/vectors"
	"github.com/gloveboxhq/glovebox/memory"
)

// The shared vectors lie beside the checkout, not in it.
func readShared(t testing.TB, kind vectors.Kind) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "shared", "vectors", "lcm", string(kind)+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no shared/vectors/lcm/%s.json beside the checkout", kind)
	} else if err != nil {
		t.Fatal(err)
	}
	return data
}

func shared(t testing.TB, kind vectors.Kind) *vectors.File {
	t.Helper()
	file, err := vectors.Read(bytes.NewReader(readShared(t, kind)))
	if err != nil {
		t.Fatal(err)
	}
	if file.Kind != kind {
		t.Fatalf("the file of %s is of kind %s", kind, file.Kind)
	}
	return file
}

// deviating are our answers to the contentious cases of the shared vectors that we
// answer in another way, in brief: the ids of the output (* for a rewritten
// message, ? for a made up result), and behind a bar what was evicted.
var deviating = map[string]struct{ reason, answer string }{
	"append covered-row-evicted-and-restored-0": {vectors.ReasonNewestCounts, "a1 a2 a3 l1 | a0"},
	"append older-copy-acts-as-anchor-0":        {vectors.ReasonNewestCounts, "a0 a1 a2 l0 a3 a4"},
	"append between-two-identical-0":            {vectors.ReasonNewestCounts, "a0 a1 a2 l1 a3 a4"},
	"append evict-orphan-counts-0":              {vectors.ReasonEvictOnlyShown, "a1 a2 l0"},
	"append random-0":                           {vectors.ReasonEvictOnlyShown, "a3 a4 a5 l1 | a1 a2"},
	"append random-5":                           {vectors.ReasonEvictOnlyShown, "a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14 a15 l14 | a1 a2"},
	"repair result-before-call-0":               {vectors.ReasonEarlyResult, "m0 m2 m1 m3"},
	"repair id-only-inside-result-block-0":      {vectors.ReasonIDInBlock, "m0 m1 m2"},
	"repair random-1":                           {vectors.ReasonEarlyResult, "m0 m3 m2 m4 m6 m7 m8* m5 m9*"},
	"repair random-2":                           {vectors.ReasonEarlyResult, "m0 m1* m8 ?call_d83e m4 m5 m6* m3 m7 m9 m11"},
}

// brief is an answer as deviating has it.
func brief(t *testing.T, got json.RawMessage) string {
	t.Helper()
	var answer struct {
		Output []struct {
			ID      string
			Message *struct {
				ToolCallID string `json:"tool_call_id"`
			}
			Synthetic bool
		}
		EvictedIDs []string `json:"evicted_ids"`
	}
	if err := json.Unmarshal(got, &answer); err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, o := range answer.Output {
		switch {
		case o.Synthetic:
			words = append(words, "?"+o.Message.ToolCallID)
		case o.Message != nil:
			words = append(words, o.ID+"*")
		default:
			words = append(words, o.ID)
		}
	}
	if len(answer.EvictedIDs) > 0 {
		words = append(append(words, "|"), answer.EvictedIDs...)
	}
	return strings.Join(words, " ")
}

// A1, A5
func TestShared(t *testing.T) {
	for _, kind := range []vectors.Kind{vectors.Append, vectors.Repair, vectors.Tokens, vectors.Volatile, vectors.SummaryCover} {
		t.Run(string(kind), func(t *testing.T) {
			var totals vectors.Totals
			for _, c := range shared(t, kind).Cases {
				r, err := c.Run()
				if err != nil {
					t.Fatal(err)
				}
				totals.Add(r)
				known, deviates := deviating[string(kind)+" "+c.Name]
				switch {
				case r.Failed():
					t.Errorf("%s (contentious: %q)\n got %s\nwant %s", c.Name, c.Contentious, r.Got, r.Want)
				case r.Deviates != known.reason:
					t.Errorf("%s deviates because %q, want %q: %s", c.Name, r.Deviates, known.reason, brief(t, r.Got))
				case deviates && brief(t, r.Got) != known.answer:
					t.Errorf("%s: got  %s\nwant %s", c.Name, brief(t, r.Got), known.answer)
				}
			}
			t.Logf("%+v", totals)
		})
	}
}

// The flag that the file gives to live messages is what their marks say: the
// fallback for imports and the structural way agree.
func TestSharedFlags(t *testing.T) {
	var file struct {
		Cases []struct {
			Name  string
			Input struct {
				Live []struct {
					ID       string
					Role     memory.Role
					Content  json.RawMessage
					Volatile bool
				}
			}
		}
	}
	if err := json.Unmarshal(readShared(t, vectors.Append), &file); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range file.Cases {
		for _, m := range c.Input.Live {
			var text string
			if json.Unmarshal(m.Content, &text) != nil {
				var blocks []struct{ Type, Text string }
				if err := json.Unmarshal(m.Content, &blocks); err != nil {
					t.Fatal(err)
				}
				var texts []string
				for _, b := range blocks {
					if b.Type == "text" {
						texts = append(texts, b.Text)
					}
				}
				text = strings.Join(texts, "\n")
			}
			checked++
			if marked := memory.MarkedSource(m.Role, text) != memory.SourceUnknown; marked != m.Volatile {
				t.Errorf("%s: %s is volatile %v, by its marks %v", c.Name, m.ID, m.Volatile, marked)
			}
		}
	}
	if checked == 0 {
		t.Error("there are no live messages")
	}
}

// An answer that is wrong has failed, whatever the file says of the case, unless a
// reason of ours explains just this difference.
func TestWrongAnswersFail(t *testing.T) {
	const (
		call   = `{"id":"m1","role":"assistant","content":[{"type":"tool_call","id":"x","name":"look"}]}`
		result = `{"id":"m0","role":"tool","tool_call_id":"x","content":"out"}`
		madeUp = `{"synthetic":true,"message":{"role":"tool","tool_call_id":"x","tool_name":"look","is_error":true}}`
	)
	early := `"input":{"messages":[` + result + `,` + call + `]},"expect":{"output":[{"id":"m1"},` + madeUp + `]}`
	rows := func(rows, live, expect string) string {
		return `"input":{"assembled":[` + rows + `],"live":[` + live + `],"assembled_cost":0,"budget":1000},"expect":` + expect
	}
	const marked = `"role":"user","content":"[Retry after the previous model attempt failed or timed out]","cost":5`
	for _, c := range []struct {
		name, kind, fields string
		deviates           string
	}{
		{"explained", "repair", `"contentious":"so it is",` + early, vectors.ReasonEarlyResult},
		{"not contentious", "repair", early, ""},
		{"another call", "repair", `"contentious":"so it is",` + strings.Replace(early, `"tool_call_id":"x","tool_name"`, `"tool_call_id":"y","tool_name"`, 1), ""},
		{"more than explained", "repair", `"contentious":"so it is","input":{"messages":[` + result + `,` + call + `]},"expect":{"output":[` + madeUp + `,{"id":"m1"}]}`, ""},
		{"a result behind its call", "repair", `"contentious":"so it is","input":{"messages":[` + call + `,` + result + `]},"expect":{"output":[{"id":"m1"},` + madeUp + `]}`, ""},
		{"expect of another shape", "repair", `"contentious":"so it is","input":{"messages":[` + result + `,` + call + `]},"expect":{"output":7}`, ""},
		{"expect is no object", "repair", `"contentious":"so it is","input":{"messages":[` + result + `]},"expect":[null]`, ""},
		{"several copies", "append", `"contentious":"so it is",` + rows(`{"id":"a0",`+marked+`},{"id":"a1",`+marked+`}`,
			`{"id":"l0","role":"user","content":"[Retry after the previous model attempt failed or timed out]\nb","cost":1},{"id":"l1",`+marked+`}`, `{}`), vectors.ReasonNewestCounts},
		{"one copy", "append", `"contentious":"so it is",` + rows(`{"id":"a0",`+marked+`}`,
			`{"id":"l0","role":"user","content":"[Retry after the previous model attempt failed or timed out]\nb","cost":1},{"id":"l1",`+marked+`}`, `{}`), ""},
		{"an id in a block", "append", `"contentious":"so it is",` + rows(`{"id":"a0","role":"assistant","content":[{"type":"tool_call","id":"x"}],"cost":1},`+
			`{"id":"a1","role":"tool","content":[{"type":"tool_result","tool_call_id":"x","text":"out"}],"cost":1}`, `{"id":"l1",`+marked+`}`, `{}`), vectors.ReasonIDInBlock},
		{"an early result", "append", `"contentious":"so it is",` + rows(`{"id":"a0","role":"tool","tool_call_id":"x","content":"out","cost":1},`+
			`{"id":"a1","role":"assistant","content":[{"type":"tool_call","id":"x"}],"cost":1}`, `{"id":"l1",`+marked+`}`, `{}`), vectors.ReasonEarlyResult},
		{"nothing appended", "append", `"contentious":"so it is",` + rows(`{"id":"a0",`+marked+`},{"id":"a1",`+marked+`}`, `{"id":"l1",`+marked+`}`, `{}`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := vectors.Parse([]byte(`{"kind":"` + c.kind + `","version":1,"placeholder_cost":3,"cases":[{"name":"c",` + c.fields + `}]}`))
			if err != nil {
				t.Fatal(err)
			}
			r, err := file.Cases[0].Run()
			if err != nil {
				t.Fatal(err)
			}
			if r.Pass || r.Deviates != c.deviates || r.Failed() != (c.deviates == "") {
				t.Errorf("pass %v, deviates %q, want %q: got %s", r.Pass, r.Deviates, c.deviates, r.Got)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	file := func(kind, input string) string {
		return `{"kind":"` + kind + `","version":1,"placeholder_cost":24,"cases":[{"name":"c","input":` + input + `,"expect":{}}]}`
	}
	const m = `{"id":"m","role":"user","content":"hi","cost":1}`
	for _, c := range []struct{ document, want string }{
		{``, "unexpected end"},
		{`[]`, "cannot unmarshal array"},
		{`null`, "it has no kind"},
		{`{"kind":"append","version":2,"cases":[{}]}`, "reads version 1"},
		{`{"kind":"append","cases":[{}]}`, "reads version 1"},
		{`{"kind":"append","version":1,"cases":[{}]}`, "no placeholder_cost"},
		{`{"kind":"append","version":1,"placeholder_cost":-1,"cases":[{}]}`, "placeholder_cost: a cost of -1"},
		{`{"kind":"repair","version":1,"cases":[{"name":"c","input":{"messages":[]}}]}`, "no expect"},
		{`{"kind":"repair","version":1,"cases":[{"name":"c","expect":{}}]}`, "no input"},
		{`{"kind":"repair","version":1,"cases":[{"input":{"messages":[]},"expect":{}}]}`, "no name"},
		{file("append", `{"live":[],"budget":1,"assembled_cost":1}`), "no assembled"},
		{file("append", `{"assembled":[],"budget":1,"assembled_cost":1}`), "no live"},
		{file("append", `{"assembled":[],"live":[],"assembled_cost":1}`), "no budget"},
		{file("append", `{"assembled":[],"live":[],"budget":1}`), "no assembled_cost"},
		{file("append", `{"assembled":[],"live":[],"budget":9e18,"assembled_cost":1}`), "budget"},
		{file("append", `{"assembled":[`+m+`],"live":[`+m+`],"budget":1,"assembled_cost":1}`), `assembled[0] and live[0] have the same id "m"`},
		{file("append", `{"assembled":[{"id":"m","role":"user","content":"hi"}],"live":[],"budget":1,"assembled_cost":1}`), `assembled[0] "m": it has no cost`},
		{file("append", `{"assembled":[{"id":"m","role":"user","content":"hi","cost":2000000000000}],"live":[],"budget":1,"assembled_cost":1}`), "out of range"},
		{file("repair", `{"messages":[{"role":"user","content":"hi"}]}`), "messages[0]: it has no id"},
		{file("repair", `{"messages":[{"id":"m","role":"owner","content":"hi"}]}`), `role "owner"`},
		{file("repair", `{"messages":[{"id":"m","role":"user","content":7}]}`), "neither a string nor a list"},
		{file("repair", `{"messages":[{"id":"m","role":"user","content":[{"text":"x"}]}]}`), "block 1: it has no type"},
		{file("repair", `{"messages":[{"id":"m","role":"user","content":[{"type":"text","text":7}]}]}`), "block 1: text"},
		{file("tokens", `{}`), "no text"},
		{file("volatile", `{}`), "no message"},
		{file("summary-cover", `{"message":`+m+`}`), "no summary"},
	} {
		_, err := vectors.Parse([]byte(c.document))
		if !errors.Is(err, vectors.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.document, err, c.want)
		}
	}
	endless := io.LimitReader(zeros{}, vectors.MaxFile+2)
	if _, err := vectors.Read(endless); !errors.Is(err, vectors.ErrInvalid) || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("of 64 MiB and more: %v", err)
	}
	failing := errors.New("the disk is gone")
	if _, err := vectors.Read(iotest.ErrReader(failing)); !errors.Is(err, failing) {
		t.Errorf("of a reader that fails: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestSummaryCarries(t *testing.T) {
	const message = "please oil the narrow turbine"
	for _, c := range []struct {
		message, summary string
		want             bool
	}{
		{message, message, true},
		{message, message + " was asked", true},
		{message, "They said: " + message, true},
		{message, "They said: " + message + ".", false},
		{message, `They said "` + message + `".`, true},
		{message, `They said '` + message + `'.`, true},
		{message, "They said `" + message + "`.", true},
		{message, "They said \u201c" + message + "\u201d.", false},
		{message, `6" long, ` + message + `.`, false},
		{message, `6" long, "` + message + `" it said.`, false},
		{message, `"no", "` + message + `" it said.`, true},
		{message, `"no" ` + message + ` "yes".`, false},
		{"please\u00a0oil\n the NARROW turbine\ufeff", `They said "` + message + `".`, true},
		{"please\u0085oil the narrow turbine", `They said "` + message + `".`, false},
		{"oil the narrow turbine", `They said "oil the narrow turbine".`, false},
		{message, "", false},
		{"", "", false},
		{"\u039f\u0394\u039f\u03a3 \u03c4\u03bf\u03c5 \u03ba\u03ae\u03c0\u03bf\u03c5 24, Athens", "\u03bf\u03b4\u03bf\u03c2 \u03c4\u03bf\u03c5 \u03ba\u03ae\u03c0\u03bf\u03c5 24, athens", true},
		// A text that ends in its own beginning.
		{strings.Repeat("ab", 20) + "c", `x "` + strings.Repeat("ab", 25) + `c" x`, true},
		{strings.Repeat("ab", 20) + "c", `x "` + strings.Repeat("ab", 19) + `c" x`, false},
	} {
		if got := vectors.SummaryCarries(c.message, c.summary); got != c.want {
			t.Errorf("SummaryCarries(%q, %q) = %v", c.message, c.summary, got)
		}
	}
}

func BenchmarkSummaryCarries(b *testing.B) {
	const size = 1 << 20
	long := strings.Repeat("a", size/2)
	for name, c := range map[string][2]string{
		"repeated": {long + "b", `x "` + strings.Repeat("a", size) + `" x`},
		"quotes":   {strings.Repeat("ab ", 20), strings.Repeat(`"'`, size/2)},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				vectors.SummaryCarries(c[0], c[1])
			}
		})
	}
}

// A1: whatever is in a file, it is an error or every case has an answer; an answer can
// be told again, and its explanation names every message.
func FuzzVectors(f *testing.F) {
	f.Add([]byte(`{"kind":"repair","version":1,"cases":[{"name":"c","contentious":"x","input":{"messages":[{"id":"m","role":"tool","content":[{"type":"tool_result","tool_call_id":"x","text":"o"}]},{"id":"n","role":"assistant","stop_reason":"stop","content":[{"type":"tool_call","id":"x","style":"function","arguments":{"b":[1e9]}},{"type":"reasoning","text":"t"},{"type":"tool_call","id":"x"},{"type":"hologram"}]}]},"expect":{"output":[]}}]}`))
	f.Add([]byte(`{"kind":"tokens","version":1,"cases":[{"name":"c","input":{"text":"\u6570","max_tokens":-1},"expect":{"text":""}},{"name":"d","input":{"text":"a"},"expect":{"tokens":1}}]}`))
	f.Add([]byte(`{"kind":"volatile","version":1,"cases":[{"name":"c","input":{"message":{"role":"user","content":"[Inter-session message]<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>><<<END_OPENCLAW_INTERNAL_CONTEXT>>>"}},"expect":{}}]}`))
	f.Add([]byte(`{"kind":"summary-cover","version":1,"cases":[{"name":"c","input":{"message":{"role":"user","content":"aaaaaaaaaaaaaaaaaaaaaaaab"},"summary":"x 'aaaaaaaaaaaaaaaaaaaaaaaab'"},"expect":{"covered":true}}]}`))
	f.Add([]byte(`{"kind":"append","version":1,"placeholder_cost":1,"cases":[{"name":"c","contentious":"x","input":{"assembled":[{"id":"a","role":"assistant","content":[{"type":"tool_call","id":"x"},{"type":"reasoning","text":"t"}],"cost":3}],"live":[{"id":"l","role":"system","content":"[Retry after the previous model attempt failed or timed out]","cost":2}],"protected":[0,-1],"assembled_cost":3,"budget":1},"expect":{}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := vectors.Parse(data)
		if err != nil {
			if !errors.Is(err, vectors.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		for i := range file.Cases {
			c := &file.Cases[i]
			r, err := c.Run()
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid(r.Got) || r.Pass && r.Deviates != "" || r.Deviates != "" && c.Contentious == "" {
				t.Fatalf("%+v", r)
			}
			again, err := c.Run()
			if err != nil || !bytes.Equal(again.Got, r.Got) {
				t.Fatalf("%s, then %s (%v)", r.Got, again.Got, err)
			}
			// Held against itself, it passes.
			c.Expect = r.Got
			if r, err = c.Run(); err != nil || !r.Pass {
				t.Fatalf("%s is not itself: %v", r.Got, err)
			}
			if c.Kind != vectors.Append && c.Kind != vectors.Repair {
				continue
			}
			e, err := c.Explain(nil)
			if err != nil {
				t.Fatal(err)
			}
			included := 0
			for _, entry := range e.Entries {
				if entry.Reason == "" || entry.Reason == "left out" {
					t.Fatalf("no reason for %+v", entry)
				}
				if entry.Included {
					included++
				}
			}
			if included != len(e.Prompt) {
				t.Fatalf("%d entries are in a prompt of %d messages", included, len(e.Prompt))
			}
		}
	})
}
