package tokens_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
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

// A1. The shared vectors lie beside the checkout, not in it.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("../../../shared/vectors/lcm/tokens.json")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no shared/vectors/lcm/tokens.json beside the checkout")
	} else if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name  string
			Tags  []string
			Input struct {
				Text      string
				MaxTokens int `json:"max_tokens"`
			}
			Expect struct {
				Tokens *int
				Text   *string
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range file.Cases {
		if c.Expect.Tokens != nil {
			checked++
			if got := tokens.Estimate(c.Input.Text); got != *c.Expect.Tokens {
				t.Errorf("%s: Estimate = %d, want %d", c.Name, got, *c.Expect.Tokens)
			}
		}
		if c.Expect.Text != nil {
			checked++
			if got := tokens.Cut(c.Input.Text, c.Input.MaxTokens); got != *c.Expect.Text {
				t.Errorf("%s: Cut = %q, want %q", c.Name, got, *c.Expect.Text)
			}
		}
	}
	if checked < len(file.Cases) {
		t.Errorf("%d of %d cases checked", checked, len(file.Cases))
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
