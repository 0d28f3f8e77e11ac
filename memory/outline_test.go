package memory_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	return b.String()
}

func TestOutline(t *testing.T) {
	for _, test := range []struct {
		name, text string
		says       []string
	}{
		{"text", lines(5000, func(i int) string { return fmt.Sprintf("the words of line %d", i) }),
			[]string{"Text of ", "5000 lines", "the words of line 0", "the words of line 4999"}},
		{"markdown", lines(40, func(i int) string { return fmt.Sprintf("## Part %d\n\n%s", i, strings.Repeat("words ", 2000)) }),
			[]string{"Markdown of ", "## Part 0", "## Part 39"}},
		{"markdown with many headings", "# One\n" + lines(900, func(i int) string { return fmt.Sprintf("### Detail %d\nwords", i) }) + "# Two\n",
			[]string{"Markdown with 902 headings", "\n# One", "\n# Two"}},
		{"markdown with code", "# One\n```\n# no heading\n```\n" + strings.Repeat("words\n", 20_000) + "# Two\n", []string{"Markdown of ", "# One\n# Two"}},
		{"JSON", `{"name":"x","rows":[` + strings.TrimSuffix(strings.Repeat(`{"id":1,"tags":["a"],"ok":true,"none":null},`, 4000), ",") + `],"a":{"b":{"c":{"d":{"e":1}}}}}`,
			[]string{"JSON of ", "$: object of 3 keys", "$.name: string", "$.rows: array of 4000 elements", "$.rows[0].id: number", "$.rows[0].none: null", "$.a.b.c.d: object of 1 key"}},
		{"JSON lines", lines(4000, func(i int) string { return fmt.Sprintf(`{"id":%d,"text":"words"}`, i) }), []string{"JSON lines of ", "4000 lines", "$.text: string"}},
		{"CSV", "id,name,note\n" + lines(4000, func(i int) string { return fmt.Sprintf(`%d,"n, %d",words`, i, i) }), []string{"Table (separated by \",\")", "columns: id,name,note", "4000 rows", `3999,"n, 3999",words`}},
		{"TSV", "id\tname\n" + lines(4000, func(i int) string { return fmt.Sprintf("%d\tname, of %d", i, i) }), []string{"Table (separated by \"\\t\")"}},
		{"a log", lines(4000, func(i int) string {
			return fmt.Sprintf("2026-03-23T%02d:%02d:00Z %s something", i/60%24, i%60, []string{"INFO", "ERROR", "DEBUG", "INFO"}[i%4])
		}),
			[]string{"Log of ", "from 2026-03-23T00:00:00 to 2026-03-23T18:39:00", "1000 errors", "2000 infos"}},
		{"Go", "package x\n" + lines(500, func(i int) string { return fmt.Sprintf("func f%d() {\n\treturn\n}\n", i) }), []string{"Source code of ", "1: package x", "func f0() {", "more"}},
		{"Python", lines(30, func(i int) string { return fmt.Sprintf("# a comment\nclass C%d:\n    pass\n", i) }), []string{"Source code of ", "2: class C0:"}},
		{"one long line", strings.Repeat("ä", 200_000), []string{"1 line,", "ä…"}},
		{"nothing", "", []string{"Text of 0 bytes, 0 lines"}},
	} {
		outline := memory.Outline(test.text)
		for _, part := range test.says {
			if !strings.Contains(outline, part) {
				t.Errorf("%s: no %q in\n%s", test.name, part, outline)
			}
		}
		if cost := tokens.Estimate(outline); cost > memory.MaxOutlineTokens || !utf8.ValidString(outline) {
			t.Errorf("%s: %d tokens", test.name, cost)
		}
	}
}

// Whatever the text, its outline is short, the same each time, and valid.
func TestOutlineOfAnything(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		piece := rapid.SampledFrom([]string{"# a ", "\n", "{\"a\":", "[", "]", "}", ",", "\"", "1", "func x", "2026-03-23 10:00:00", " error ", "```", "日本語", "😀😀😀", "word ", "\t", "|"})
		text := strings.Repeat(strings.Join(rapid.SliceOfN(rapid.OneOf(piece, rapid.String()), 0, 20).Draw(r, "pieces"), ""), rapid.IntRange(1, 50).Draw(r, "times"))
		outline := memory.Outline(text)
		if cost := tokens.Estimate(outline); cost > memory.MaxOutlineTokens {
			r.Errorf("%d tokens", cost)
		}
		if !utf8.ValidString(outline) || outline != memory.Outline(text) {
			r.Errorf("outline %q", outline)
		}
	})
}

// Hostile texts cost no more than others of their size: generously, for the
// machine may be busy.
func TestOutlineIsLinear(t *testing.T) {
	size := 4 << 20
	if testing.Short() {
		size = 256 << 10
	}
	for name, unit := range map[string]string{
		"headings": "# a\n", "brackets": "[", "objects": `{"a":`, "arrays": "[1],", "quotes": "\"", "commas": ",\n,", "hashes": "#", "declarations": "func a\n", "stamps": "10:00:00 error\n",
		"modifiers": "public static ", "spaces": " ", "lines": "\n", "keys": `"a":1,`,
	} {
		text := strings.Repeat(unit, size/len(unit))
		if name == "keys" {
			text = "{" + strings.TrimSuffix(text, ",") + "}"
		}
		begun := time.Now()
		memory.Outline(text)
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}
