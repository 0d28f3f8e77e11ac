package compose_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func TestOneLine(t *testing.T) {
	for s, want := range map[string]string{
		"plain":                  "plain",
		"":                       "",
		"  two\r\n\tlines ":      "two lines",
		"a\u202Eb\u200Bc\uFEFF":  "abc",
		"e\u0301 \u200D👩\u200D👧": "e\u0301 👩\u200D👧",
		"\xff\xfe":               "\uFFFD\uFFFD",
		"\uE000private":          "private",
		"li\u2028break\x00nul":   "li break nul",
		"twelve runes!":          "twelve…",
		"abcdefghijklmnop":       "abcdefghijk…",
		"字字字字字字字字字字字字字字": "字字字字字字字字字字字…",
		"exactly  12.":               "exactly 12.",
		"trailing punctuation, here": "trailing…",
	} {
		if got := compose.OneLine(s, 12); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", s, got, want)
		}
	}
}

func FuzzOneLine(f *testing.F) {
	f.Add("a \u202e\nb\xff", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = most&0xff + 1
		got := compose.OneLine(s, most)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > most || strings.ContainsAny(got, "\n\r\u2028\u2029\u202e") || strings.TrimSpace(got) != got {
			t.Fatalf("OneLine(%q, %d) = %q", s, most, got)
		}
	})
}

func TestText(t *testing.T) {
	if got := compose.Text([]byte("na\xefve \x80")) + compose.Text([]byte("naïve")); got != "naïve €naïve" {
		t.Errorf("got %q", got)
	}
}

// TestWithin: whatever the room, the list keeps to it, shows what matters most
// and counts the rest.
func TestWithin(t *testing.T) {
	list := compose.List{Heading: "Heading", Foot: "\n\nFoot", Unlisted: 7}
	for i := range 30 {
		brief := fmt.Sprintf("\n- entry %02d", i)
		list.Entries = append(list.Entries, compose.Entry{Brief: brief, Short: brief + " in short", Long: brief + strings.Repeat(" long", 20)})
	}
	before := 0
	for limit := 1; limit < 1_500; limit++ {
		reply := list.Within(limit)
		if n := tokens.Estimate(reply); n > limit {
			t.Fatalf("limit %d: %d tokens: %q", limit, n, reply)
		}
		shown := strings.Count(reply, "\n- entry")
		for i := range shown {
			if !strings.Contains(reply, fmt.Sprintf("entry %02d", i)) {
				t.Fatalf("limit %d: %d shown, and not no. %d: %q", limit, shown, i, reply)
			}
		}
		if shown > 0 && !strings.Contains(reply, fmt.Sprintf("\n… and %d more", 37-shown)) {
			t.Fatalf("limit %d: %d shown: %q", limit, shown, reply)
		}
		if shown < before-1 { // the foot takes the room of a line
			t.Fatalf("limit %d shows %d, a lower one %d", limit, shown, before)
		}
		before = shown
	}
	if reply := list.Within(1_500); before != 30 || !strings.Contains(reply, "entry 29 long long") || !strings.HasSuffix(reply, "\n… and 7 more\n\nFoot") {
		t.Errorf("%d of 30, %q", before, reply)
	}
	list.Unlisted = 0
	if reply := list.Within(0); tokens.Estimate(reply) > compose.DefaultTokens || strings.Contains(reply, "more") {
		t.Errorf("by default: %q", reply)
	}
}

// TestGroups: what has room is chosen by the order of the entries, and stands by
// groups, each below its line.
func TestGroups(t *testing.T) {
	list := compose.List{Heading: "Heading"}
	for i := range 12 {
		brief := fmt.Sprintf("\n- entry %02d", i)
		list.Entries = append(list.Entries, compose.Entry{Brief: brief, Long: brief + strings.Repeat(" long", 20), Group: fmt.Sprintf("Group %c, which has a line of its own:", 'A'+i%3)})
	}
	for limit := 1; limit < 600; limit++ {
		reply := list.Within(limit)
		if n := tokens.Estimate(reply); n > limit {
			t.Fatalf("limit %d: %d tokens: %q", limit, n, reply)
		}
		shown := strings.Count(reply, "\n- entry")
		if groups := strings.Count(reply, "\nGroup"); groups != min(shown, 3) || strings.Contains(reply, "\n\n\n") {
			t.Fatalf("limit %d: %d entries in %d groups: %q", limit, shown, groups, reply)
		}
		for i := range shown {
			if !strings.Contains(reply, fmt.Sprintf("entry %02d", i)) {
				t.Fatalf("limit %d: %d shown, and not no. %d: %q", limit, shown, i, reply)
			}
		}
	}
	for i := range list.Entries {
		list.Entries[i].Long = ""
	}
	want := "Heading\n\nGroup A, which has a line of its own:\n- entry 00\n- entry 03\n- entry 06\n- entry 09" +
		"\n\nGroup B, which has a line of its own:\n- entry 01\n- entry 04\n- entry 07\n- entry 10" +
		"\n\nGroup C, which has a line of its own:\n- entry 02\n- entry 05\n- entry 08\n- entry 11"
	if got := list.Within(600); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTrouble(t *testing.T) {
	var trouble compose.Trouble
	if trouble.Any() || trouble.Foot() != "" {
		t.Error("there is trouble in nothing")
	}
	for range 3 {
		trouble.Note("Read %d files.", 3)
	}
	for i := range 7 {
		trouble.Broken(fmt.Sprintf("%d\n.md", i), &fs.PathError{Op: "open", Path: "x", Err: errors.New("bad\nluck")})
	}
	want := "\n\nRead 3 files.\nCould not read: 0 .md (bad luck); 1 .md (bad luck); 2 .md (bad luck); 3 .md (bad luck); 4 .md (bad luck); and 2 more"
	if got := trouble.Foot(); got != want || !trouble.Any() || trouble.Problems() != 7 {
		t.Errorf("%d: %q, want %q", trouble.Problems(), got, want)
	}
	for i := range 100 {
		trouble.Note("%d", i)
	}
	if strings.Count(trouble.Foot(), "\n") > 12 {
		t.Errorf("no bound on notes: %q", trouble.Foot())
	}
}

func TestMoment(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2025, time.December, 31, 23, 30, 0, 0, time.UTC)
	q := hand.Query{Location: berlin, Now: at, From: at, To: at}
	if got := compose.Moment(at, q) + "|" + compose.Day(at.AddDate(-1, 0, 0), q) + "|" + compose.Span(q); got != "Thu 1 Jan 00:30|Wed 1 Jan 2025|from Thu 1 Jan 2026 00:30 to Thu 1 Jan 2026 00:30 (Europe/Berlin)" {
		t.Errorf("got %q", got)
	}
}
