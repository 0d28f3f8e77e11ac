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

// The estimate is the sum of the weights of code points one by one, wherever in a text
// those that are not ASCII stand.
func TestEstimateOfMixedText(t *testing.T) {
	for _, r := range []string{"ü", "数", "😀", "\xff", "\u0800"} {
		for before := range 20 {
			for after := range 20 {
				text := strings.Repeat("a", before) + r + strings.Repeat("b", after) + r
				if got, want := tokens.Estimate(text), (before+after+2*quarters[r]+3)/4; got != want {
					t.Fatalf("Estimate(%q) = %d, want %d", text, got, want)
				}
			}
		}
	}
}

var quarters = map[string]int{"ü": 1, "数": 6, "😀": 8, "\xff": 1, "\u0800": 1}

func BenchmarkEstimate(b *testing.B) {
	for name, unit := range map[string]string{"plain": "Design review moved to Thursday 15:00, room 4. ", "words": "Prüfung “Größe 3” – auf Donnerstag verlegt… Привет. 会議は三時です。 "} {
		text := strings.Repeat(unit, 64<<10/len(unit))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tokens.Estimate(text)
			}
		})
	}
}

func FuzzCut(f *testing.F) {
	f.Add("hello, 世界 😀", 3)
	f.Add("\xff\xf0", 1)
	f.Add("plain words and 世 more plain words", 7)
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
