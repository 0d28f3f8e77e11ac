package tokens_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
)

func TestEstimate(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 1, "abcd": 1, "abcde": 2, "数据库": 5, "😀": 2, "😀a": 3, "\xff\xff": 1, "ﾊ": 2, "Ünïcö": 2,
	} {
		if got := tokens.Estimate(text); got != want {
			t.Errorf("Estimate(%q) = %d, want %d", text, got, want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("hello, 世界 😀", 3)
	f.Add("\xff\xf0", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		cut := tokens.Cut(text, limit)
		if !strings.HasPrefix(text, cut) || tokens.Estimate(cut) > max(limit, 0) {
			t.Fatalf("Cut(%q, %d) = %q of %d tokens", text, limit, cut, tokens.Estimate(cut))
		}
		if rest := text[len(cut):]; rest != "" && limit > 0 {
			_, size := utf8.DecodeRuneInString(rest)
			if tokens.Estimate(text[:len(cut)+size]) <= limit {
				t.Fatalf("Cut(%q, %d) = %q could be longer", text, limit, cut)
			}
		}
	})
}
