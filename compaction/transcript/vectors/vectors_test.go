package vectors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
