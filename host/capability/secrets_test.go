package capability_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/capability"
)

// spellings are ways in which a server may send value back.
func spellings(value, before, after string) map[string]string {
	whole := before + value + after
	jsonForm, _ := json.Marshal(value)
	percent, escaped := "", ""
	for i := range len(value) {
		percent += "%" + hex.EncodeToString([]byte{value[i]})
		escaped += `\u00` + hex.EncodeToString([]byte{value[i]})
	}
	base := base64.StdEncoding.EncodeToString([]byte(whole))
	return map[string]string{
		"plain":                  whole,
		"query":                  before + url.QueryEscape(value) + after,
		"path":                   before + url.PathEscape(value) + after,
		"percent, small":         before + strings.ToLower(url.QueryEscape(value)) + after,
		"percent, everything":    before + percent + after,
		"hexadecimal":            before + hex.EncodeToString([]byte(value)) + after,
		"HEXADECIMAL":            before + strings.ToUpper(hex.EncodeToString([]byte(value))) + after,
		"base64":                 base,
		"base64 for URLs":        base64.RawURLEncoding.EncodeToString([]byte(whole)),
		"base64, percent":        url.QueryEscape(base),
		"base64, JSON":           strings.ReplaceAll(base, "/", `\/`),
		"JSON":                   before + string(jsonForm) + after,
		"JSON, other":            before + strings.ReplaceAll(string(jsonForm), "/", `\/`) + after,
		"JSON, everything":       before + escaped + after,
		"twice, one in another":  value[:len(value)/2] + value + value[len(value)/2:],
		"twice, one after other": value + value,
	}
}

// H8: whatever is around it, at whatever place.
func TestRedactFindsEverySpelling(t *testing.T) {
	visible := rapid.StringOfN(rapid.RuneFrom(nil, &unicode.RangeTable{R16: []unicode.Range16{{Lo: ' ', Hi: '~', Stride: 1}}, LatinOffset: 1}), 8, 40, -1)
	around := rapid.StringOfN(rapid.RuneFrom([]rune("ab \"=\x00é")), 0, 5, -1)
	rapid.Check(t, func(t *rapid.T) {
		value := strings.TrimRight(visible.Draw(t, "value"), " ")
		if len(value) < 8 || strings.Contains("[redacted]", value) {
			t.Skip("no secret")
		}
		before, after := around.Draw(t, "before"), around.Draw(t, "after")
		forms := spellings(value, before, after)
		for _, name := range slices.Sorted(maps.Keys(forms)) {
			text := forms[name]
			if name == "percent, small" && strings.ToLower(value) != value {
				continue
			}
			clean := capability.Redact(value, text, len(text))
			if !strings.Contains(clean, "[redacted]") || strings.Contains(clean, value) {
				t.Fatalf("%s of %q in %q: %q", name, value, text, clean)
			}
			// Around it all is as it was.
			if name == "plain" && !strings.Contains(value, "\\") && !strings.Contains(value, "%") && (!strings.HasPrefix(clean, before) || !strings.HasSuffix(clean, after)) {
				t.Fatalf("%q became %q", text, clean)
			}
			// Cut anywhere, no more of it is seen.
			cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
			if part := capability.Redact(value, text, cut); !strings.HasPrefix(clean, part) {
				t.Fatalf("%s of %q cut at %d: %q is not the beginning of %q", name, value, cut, part, clean)
			}
		}
	})
}

func TestRedactLeavesOtherTextAlone(t *testing.T) {
	for _, text := range []string{"", "s3cr3t", "a normal answer: 100 % of \\ and \\u0041 and %41", secret[1:], strings.Repeat("%", 1000), strings.Repeat(`\`, 1001), `\u00`, "%4"} {
		if clean := capability.Redact(secret, text, len(text)); clean != text {
			t.Errorf("%q became %q", text, clean)
		}
	}
}

// A server cannot make redaction slow: neither with a text that is nearly a
// secret everywhere nor with one that is. A long secret costs about as much as
// a short one, not as many times more as it is longer.
func TestRedactTakesNoLongerForLongSecrets(t *testing.T) {
	const size = 1 << 20
	took := func(length int) time.Duration {
		value := strings.Repeat("a", length)
		least := time.Hour
		for range 3 {
			begin := time.Now()
			for _, text := range []string{strings.Repeat("a", size), strings.Repeat(value[1:]+"b", size/length), strings.Repeat("%61", size/3)} {
				capability.Redact(value, text, len(text))
			}
			least = min(least, time.Since(begin))
		}
		return least
	}
	if short, long := took(8), took(4096); long > 50*short {
		t.Errorf("512 times the length takes %v instead of %v", long, short)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add(secret, "before "+secret+" after", 12)
	f.Add("aaaaaaaa", "aaaaaaaaaaaaaa%61%61\\u0061", 20)
	f.Add(`a\u0041%41"'`, `a\\u0041%2541`, 5)
	f.Fuzz(func(t *testing.T, value, text string, cut int) {
		if len(value) < 8 || len(value) > 4096 || cut < 0 || strings.Contains("[redacted]", value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return
		}
		whole := text + value + text
		clean := capability.Redact(value, whole, len(whole))
		if !bytes.Contains([]byte(clean), []byte("[redacted]")) {
			t.Fatalf("%q is not found in %q", value, whole)
		}
		if part := capability.Redact(value, whole, cut); !strings.HasPrefix(clean, part) {
			t.Fatalf("cut at %d: %q is not the beginning of %q", cut, part, clean)
		}
	})
}
