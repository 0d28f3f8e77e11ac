// Package tokens estimates how many model tokens a text costs, without a
// vocabulary. Every part that counts uses it, so that no two estimates
// disagree. It imports only the standard library.
package tokens

import "unicode/utf8"

// Weights are quarters of a token, so that sums stay exact.
const (
	quartersPerToken = 4
	quartersLatin    = 1
	quartersCJK      = 6
	quartersAstral   = 8
)

// Estimate returns the cost of text in tokens: the sum of a weight per code
// point (0.25; CJK 1.5; other code points above U+FFFF 2), rounded up. An
// invalid byte counts as one code point. It allocates nothing and takes time
// linear in len(text).
func Estimate(text string) int {
	quarters := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			n := ascii(text[i:])
			quarters += n * quartersLatin
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		quarters += weight(r)
		i += size
	}
	return (quarters + quartersPerToken - 1) / quartersPerToken
}

// Cut returns the longest prefix of text that ends on a code point boundary
// and whose estimate is at most max. A max of zero or less gives "".
func Cut(text string, max int) string {
	if max <= 0 {
		return ""
	}
	// Every code point costs at least a quarter, every byte at most two
	// tokens: a text this short fits without being looked at.
	if len(text) <= max/2 {
		return text
	}
	quarters, limit := 0, max*quartersPerToken
	if limit/quartersPerToken != max {
		return text
	}
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			room := (limit - quarters) / quartersLatin
			n := ascii(text[i:min(len(text), i+room)])
			if n == 0 {
				return text[:i]
			}
			quarters += n * quartersLatin
			i += n
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		quarters += weight(r)
		if quarters > limit {
			return text[:i]
		}
		i += size
	}
	return text
}

// ascii returns how many bytes of ASCII text begins with.
func ascii(text string) int {
	const word, high = 8, 0x8080_8080_8080_8080
	n := 0
	for ; len(text)-n >= word; n += word {
		b := text[n : n+word]
		// The compiler makes one load of it.
		if (uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24|
			uint64(b[4])<<32|uint64(b[5])<<40|uint64(b[6])<<48|uint64(b[7])<<56)&high != 0 {
			break
		}
	}
	for n < len(text) && text[n] < utf8.RuneSelf {
		n++
	}
	return n
}

func weight(r rune) int {
	switch {
	case r < 0x3000:
		return quartersLatin
	case r <= 0x303F, r >= 0x3040 && r <= 0x30FF, r >= 0x3400 && r <= 0x4DBF,
		r >= 0x4E00 && r <= 0x9FFF, r >= 0xAC00 && r <= 0xD7AF, r >= 0xFF00 && r <= 0xFFEF,
		r >= 0x20000 && r <= 0x2A6DF, r >= 0x2A700 && r <= 0x2B73F, r >= 0x2B740 && r <= 0x2B81F,
		r >= 0x2B820 && r <= 0x2CEAF, r >= 0x2CEB0 && r <= 0x2EBEF:
		return quartersCJK
	case r > 0xFFFF:
		return quartersAstral
	}
	return quartersLatin
}
