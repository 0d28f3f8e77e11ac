package remote_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

// Wherever an answer is cut into pieces, it ends before the stop that is complete
// first, and what is heard is what is returned.
func TestAnswersEndBeforeAStop(t *testing.T) {
	letters := rapid.SampledFrom([]rune("aab é\n"))
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(letters, 1, 40).Draw(t, "text"))
		var stops []string
		for _, stop := range rapid.SliceOfN(rapid.SliceOfN(letters, 1, 5), 1, 4).Draw(t, "stops") {
			stops = append(stops, string(stop))
		}
		want, found := before(text, stops)
		want = strings.TrimLeftFunc(want, func(r rune) bool { return strings.TrimSpace(want) == "" })

		// As it is streamed, and at once.
		var heard []string
		s := remote.StopBefore(stops, func(piece string) { heard = append(heard, piece) })
		each := s.Listener()
		for rest := []rune(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			each(string(rest[:n]))
			rest = rest[n:]
		}
		streamed, failed := s.End(&llm.Response{Text: text, ToolCalls: []llm.ToolCall{{ID: "a"}}, Truncated: true}, nil)
		whole, wholeFailed := remote.StopBefore(stops, nil).End(&llm.Response{Text: text, ToolCalls: []llm.ToolCall{{ID: "a"}}, Truncated: true}, nil)
		if found == "" {
			if failed != nil || wholeFailed != nil || streamed.Text != text || whole.Text != text || streamed.Stopped != "" || len(streamed.ToolCalls) != 1 || !streamed.Truncated {
				t.Fatalf("nothing stops %q: %+v, %v and %+v, %v", text, streamed, failed, whole, wholeFailed)
			}
			want = text
		} else if streamed.Text != want || whole.Text != want || streamed.Stopped != found || whole.Stopped != found || streamed.ToolCalls != nil || streamed.Truncated {
			t.Fatalf("%q before %q: got %+v and %+v, want %q", text, stops, streamed, whole, want)
		}
		for _, f := range []*remote.Failure{failed, wholeFailed} {
			if (f != nil) != (want == "") || f != nil && !errors.Is(f, llm.ErrEmpty) {
				t.Fatalf("%q before %q: %v", text, stops, f)
			}
		}
		if joined := strings.Join(heard, ""); joined != want && (found != "" || strings.TrimSpace(text) != "") {
			t.Fatalf("heard %q, want %q", heard, want)
		}
		for i, piece := range heard {
			if piece == "" || !utf8.ValidString(piece) || i == 0 && strings.TrimSpace(piece) == "" {
				t.Fatalf("heard %q", heard)
			}
		}
	})
}

// before returns what stands before the stop that ends first, and of those that end
// there before the longest.
func before(text string, stops []string) (head, found string) {
	end := len(text) + 1
	for _, stop := range stops {
		at := strings.Index(text, stop)
		if at >= 0 && (at+len(stop) < end || at+len(stop) == end && len(stop) > len(found)) {
			head, found, end = text[:at], stop, at+len(stop)
		}
	}
	return head, found
}

// What nobody can say stops nothing, and costs nothing.
func TestStopsThatAreNone(t *testing.T) {
	s := remote.StopBefore([]string{"", "\xff"}, nil)
	if got, failed := s.End(&llm.Response{Text: "four"}, nil); failed != nil || got.Text != "four" || s.Listener() != nil {
		t.Errorf("got %+v, %v", got, failed)
	}
}

// An answer that failed stays as it is, and nothing more of it is heard.
func TestAStopOfWhatFailed(t *testing.T) {
	heard := ""
	s := remote.StopBefore([]string{"END"}, func(piece string) { heard += piece })
	s.Listener()("four E")
	wrong := &remote.Failure{Kind: llm.ErrUnavailable, What: "x"}
	if got, failed := s.End(&llm.Response{}, wrong); failed != wrong || got.Text != "" || heard != "four " {
		t.Errorf("got %+v, %v; heard %q", got, failed, heard)
	}
}
