package vectors_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction/transcript/vectors"
)

// The shared vectors lie beside the checkout, not in it.
func shared(t testing.TB, kind vectors.Kind) *vectors.File {
	t.Helper()
	path := filepath.Join("..", "..", "..", "..", "shared", "vectors", "lcm", string(kind)+".json")
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no shared/vectors/lcm/%s.json beside the checkout", kind)
	} else if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read, err := vectors.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if read.Kind != kind {
		t.Fatalf("%s is of kind %s", path, read.Kind)
	}
	return read
}

// deviating are our answers to the contentious cases of the shared vectors that we
// answer in another way, in brief: the ids of the output (* for a rewritten
// message, ? for a made up result), and behind a bar what was evicted.
var deviating = map[string]struct{ reason, answer string }{}

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
