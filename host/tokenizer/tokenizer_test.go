package tokenizer_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/dlclark/regexp2/v2"
	"github.com/tiktoken-go/tokenizer/codec"
	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/tokenizer"
)

func counter(t testing.TB, name string) *tokenizer.Counter {
	t.Helper()
	c, err := tokenizer.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The counts are those that OpenAI's cookbook and the tests of tiktoken state.
func TestPublishedCounts(t *testing.T) {
	for name, cases := range map[string]map[string]int{
		"cl100k_base": {
			"": 0, "hello world": 2, "tiktoken is great!": 6, "antidisestablishmentarianism": 6, "2 + 2 = 4": 7,
			"お誕生日おめでとう": 9, "rer": 1, "'rer": 2, "today\n ": 3, "today\n \n": 2, "today\n  \n": 2,
		},
		"o200k_base": {
			"": 0, "hello world": 2, "antidisestablishmentarianism": 6, "2 + 2 = 4": 7, "お誕生日おめでとう": 8,
		},
	} {
		c := counter(t, name)
		for text, want := range cases {
			if got := c.Count(text); got != want {
				t.Errorf("%s: %q costs %d, want %d", name, text, got, want)
			}
		}
	}
}

// tiktoken publishes the digests of its files, so the vocabularies are proved to
// be those and not nearly those.
func TestVocabularies(t *testing.T) {
	for name, c := range map[string]struct {
		codec *codec.Codec
		size  uint
		want  string
	}{
		"cl100k_base": {codec.NewCl100kBase(), 100_256, "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"},
		"o200k_base":  {codec.NewO200kBase(), 199_998, "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"},
	} {
		digest := sha256.New()
		for rank := range c.size {
			token, err := c.codec.Decode([]uint{rank})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			fmt.Fprintf(digest, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank)
		}
		if got := hex.EncodeToString(digest.Sum(nil)); got != c.want {
			t.Errorf("%s: digest %s, want %s", name, got, c.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	for _, name := range []string{"", "o200k", "O200K_BASE", "gpt2"} {
		_, err := tokenizer.Named(name)
		if !errors.Is(err, tokenizer.ErrUnknown) || !strings.Contains(err.Error(), "cl100k_base or o200k_base") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// patterns are OpenAI's. The group around them keeps regexp2 from taking the
// code that the codec package generated from them, which splits otherwise.
var patterns = map[string]*regexp2.Regexp{
	"cl100k_base": regexp2.MustCompile(`(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None),
	"o200k_base": regexp2.MustCompile(`(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|`+
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None),
}

// merged counts by the obvious way: look at all neighbours for every merge.
func merged(ranks map[string]int, piece string) int {
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		best, at := -1, 0
		for i := 0; i+1 < len(parts); i++ {
			if rank, ok := ranks[parts[i]+parts[i+1]]; ok && (best < 0 || rank < best) {
				best, at = rank, i
			}
		}
		if best < 0 {
			return len(parts)
		}
		parts = append(append(parts[:at:at], parts[at]+parts[at+1]), parts[at+2:]...)
	}
}

var vocabularies = sync.OnceValue(func() map[string]map[string]int {
	all := map[string]map[string]int{}
	for name, c := range map[string]*codec.Codec{"cl100k_base": codec.NewCl100kBase(), "o200k_base": codec.NewO200kBase()} {
		ranks := map[string]int{}
		for rank := uint(0); ; rank++ {
			token, err := c.Decode([]uint{rank})
			if err != nil {
				break
			}
			ranks[token] = int(rank)
		}
		all[name] = ranks
	}
	return all
})

func oracle(t rapid.TB, name, text string) int {
	n := 0
	m, err := patterns[name].FindStringMatch(text)
	for ; m != nil && err == nil; m, err = patterns[name].FindNextMatch(m) {
		n += merged(vocabularies()[name], m.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hard are the characters at which the patterns decide.
var hard = []string{
	"a", "b", "Z", "S", "s", "T", "é", "ß", "ǅ", "ʰ", "数", "ア", "ſ", "\u0301", "\u20dd", "1", "9", "٣", "½", "'", "'s", "'LL", "'Re", "'vE", "'ſ",
	" ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u0085", "\u3000", "\v", "!", "/", "//", "...", "（", "😀", "👨‍👩‍👧", "\u200b", "\x00", "\ufffd",
	"word", " word", "Word", "WORD", "<|endoftext|>", "```go\n", "\n\n    ",
}

func TestAgainstPatterns(t *testing.T) {
	for name := range patterns {
		c := counter(t, name)
		rapid.Check(t, func(t *rapid.T) {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(hard), 0, 24).Draw(t, "text"), "")
			if got, want := c.Count(text), oracle(t, name, text); got != want {
				t.Fatalf("%s: %q costs %d, want %d", name, text, got, want)
			}
		})
	}
}

// A text falls apart behind a letter or a number that white space follows, so
// what stands there costs what its parts do.
func TestAdds(t *testing.T) {
	part := rapid.SliceOfN(rapid.SampledFrom(hard), 0, 200)
	for name := range patterns {
		c := counter(t, name)
		rapid.Check(t, func(t *rapid.T) {
			a := strings.Join(part.Draw(t, "a"), "") + rapid.SampledFrom([]string{"a", "Z", "数", "7"}).Draw(t, "end")
			b := rapid.SampledFrom([]string{" ", "\n", "\t", "\u3000"}).Draw(t, "space") + strings.Join(part.Draw(t, "b"), "")
			if got, want := c.Count(a+b), c.Count(a)+c.Count(b); got != want {
				t.Fatalf("%s: %q + %q costs %d, apart %d", name, a, b, got, want)
			}
		})
	}
}

func FuzzCount(f *testing.F) {
	for _, text := range hard {
		f.Add(text)
	}
	f.Add("\xff\xfe half of a rune: \xe6\x95")
	cl, o := counter(f, "cl100k_base"), counter(f, "o200k_base")
	f.Fuzz(func(t *testing.T, text string) {
		for name, c := range map[string]*tokenizer.Counter{"cl100k_base": cl, "o200k_base": o} {
			n := c.Count(text)
			valid := string([]rune(text))
			switch {
			case n < (len(valid)+127)/128 || n > len(valid):
				t.Errorf("%s: %d bytes cost %d", name, len(valid), n)
			case n != c.Count(text) || n != c.Count(valid):
				t.Errorf("%s: %q costs %d, then %d, and as UTF-8 %d", name, text, n, c.Count(text), c.Count(valid))
			case len(valid) <= 512 && !hasNewerLetters(valid):
				if want := oracle(t, name, valid); n != want {
					t.Errorf("%s: %q costs %d, want %d", name, valid, n, want)
				}
			}
		}
	})
}

// hasNewerLetters reports characters that no version of Unicode assigns, or only
// some do: the tables of the oracle are not ours.
func hasNewerLetters(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.M, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co)
	})
}

// What is longer than any word is cut, which may cost a little more.
func TestLongRuns(t *testing.T) {
	for name := range patterns {
		c := counter(t, name)
		encoder := codec.NewO200kBase()
		if name == "cl100k_base" {
			encoder = codec.NewCl100kBase()
		}
		for _, unit := range []string{"a", " ", "\n", "!", "数", "😀", "A", "abcdefgh", "ab"} {
			text := strings.Repeat(unit, 64<<10/len(unit))
			want, err := encoder.Count(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Count(text); got < want || got > want+4*len(text)/4096 {
				t.Errorf("%s: %d of %q cost %d, whole %d", name, len(text)/len(unit), unit, got, want)
			}
		}
	}
}

// Time is linear: eight times the text takes at most 24 times as long, where a
// quadratic way would take 64 times. The ratio is of the best of three runs, and one
// that something else disturbed is taken again.
func TestLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	c := counter(t, "o200k_base")
	seed := 0
	best := func(unit string, size int) time.Duration {
		least := time.Hour
		for range 3 {
			seed++
			text := strings.Repeat(unit, size/len(unit)) + fmt.Sprint(seed) // never in the cache
			start := time.Now()
			c.Count(text)
			least = min(least, time.Since(start))
		}
		return least
	}
	for _, unit := range []string{"a", " ", "\n", " \n", "\n\t", " \r", "A", "\u0301A", "ʰA", "!", "'", "1", "\xff", "数"} {
		for attempt := 1; ; attempt++ {
			small, large := best(unit, 16<<10), best(unit, 128<<10)
			if large <= 24*small+20*time.Millisecond {
				break
			}
			if attempt == 5 {
				t.Errorf("%q: 16 KiB take %s, 128 KiB %s", unit, small, large)
				break
			}
		}
	}
}

func TestConcurrent(t *testing.T) {
	c := counter(t, "cl100k_base")
	text := strings.Repeat("The same text for all of them. ", 20)
	want := oracle(t, "cl100k_base", text)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if got := c.Count(text); got != want {
					t.Errorf("%d, want %d", got, want)
				}
				c.Count(fmt.Sprint(text, i, j))
			}
		})
	}
	wg.Wait()
}

func BenchmarkCount(b *testing.B) {
	const prose = "The quick brown fox jumps over the lazy dog, isn't it? 12345\n"
	for name, text := range map[string]string{
		"prose": strings.Repeat(prose, 1<<10), "letters": strings.Repeat("a", 1<<16), "breaks": strings.Repeat(" \n", 1<<15), "han": strings.Repeat("数据库。", 1<<12),
	} {
		b.Run("estimate/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tokens.Estimate(text)
			}
		})
		for _, vocabulary := range tokenizer.Names() {
			c := counter(b, vocabulary)
			c.Count(text)
			b.Run(vocabulary+"/known/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					c.Count(text)
				}
			})
			b.Run(vocabulary+"/new/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for i := 0; b.Loop(); i++ {
					c.Count(text + fmt.Sprint(i))
				}
			})
		}
	}
}
