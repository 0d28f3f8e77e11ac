package boundary

import (
	"html"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// folded is one letter of the folded view, with the bytes of the text that it
// stands for.
type folded struct {
	r          rune
	start, end int
	// opens says that only white space and quotation marks precede it on its
	// line.
	opens bool
	// apart says that separators stood between it and the one before.
	apart bool
}

// fold gives the view of text in which markers are looked for: look-alikes are
// one letter, case is gone, entities and escapes are decoded once, separators
// and what nobody sees are left out. Each letter leads back to the text.
func fold(text string) []folded {
	view := make([]folded, 0, len(text))
	opens, apart := true, true
	add := func(r rune, start, end int) {
		switch {
		case r == '\n':
			opens, apart = true, true
		case isSeparator(r):
			apart = true
		default:
			view = append(view, folded{r, start, end, opens, apart})
			apart = false
			if !strings.ContainsRune("><#*`\"'[(", r) {
				opens = false
			}
		}
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		end := i + size
		switch r {
		case '&':
			if decoded, n := entity(text[i:]); n > 0 {
				for _, d := range decoded {
					foldRune(d, func(f rune) { add(f, i, i+n) })
				}
				i += n
				continue
			}
		case '\\':
			if decoded, n := escape(text[i:]); n > 0 {
				foldRune(decoded, func(f rune) { add(f, i, i+n) })
				i += n
				continue
			}
		}
		foldRune(r, func(f rune) { add(f, i, end) })
		i = end
	}
	return view
}

// foldRune emits what r looks like: nothing, one letter or several.
func foldRune(r rune, emit func(rune)) {
	if r < utf8.RuneSelf {
		if r == '0' {
			r = 'o'
		}
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		emit(r)
		return
	}
	if look, ok := lookAlikes[r]; ok {
		emit(look)
		return
	}
	if isBidiControl(r) || isInvisible(r) || r >= 0xE0000 && r <= 0xE007F {
		return
	}
	decomposed := norm.NFKD.PropertiesString(string(r)).Decomposition()
	if decomposed == nil {
		if !unicode.Is(unicode.Mn, r) {
			emit(unicode.ToLower(r))
		}
		return
	}
	for _, d := range string(decomposed) {
		if unicode.Is(unicode.Mn, d) {
			continue
		}
		if look, ok := lookAlikes[d]; ok {
			d = look
		}
		if d == '0' {
			d = 'o'
		}
		emit(unicode.ToLower(d))
	}
}

func isSeparator(r rune) bool {
	return r == '_' || r == '.' || r == '-' || unicode.IsSpace(r)
}

// maxEntityBytes is more than the longest name of an HTML entity.
const maxEntityBytes = 34

// entity decodes the HTML entity at the beginning of text; n is 0 if there is
// none.
func entity(text string) (decoded string, n int) {
	for n = 1; n < len(text) && n < maxEntityBytes; n++ {
		c := text[n]
		if c == ';' {
			n++
			break
		}
		if c != '#' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
	}
	if n == 1 {
		return "", 0
	}
	decoded = html.UnescapeString(text[:n])
	if decoded == text[:n] {
		return "", 0
	}
	return decoded, n
}

// escape decodes the JSON or C escape at the beginning of text; n is 0 if
// there is none.
func escape(text string) (decoded rune, n int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch c := text[1]; c {
	case 'n', 'r':
		return '\n', 2
	case 't':
		return '\t', 2
	case '/', '"', '\'', '<', '>', '[', ']', '|', '_':
		return rune(c), 2
	case 'x':
		return hexEscape(text, 4)
	case 'u':
		first, n := hexEscape(text, 6)
		if first >= 0xD800 && first < 0xDC00 && n > 0 && strings.HasPrefix(text[n:], `\u`) {
			if second, m := hexEscape(text[n:], 6); second >= 0xDC00 && second < 0xE000 && m > 0 {
				return (first-0xD800)<<10 + (second - 0xDC00) + 0x10000, n + m
			}
		}
		return first, n
	}
	return 0, 0
}

func hexEscape(text string, n int) (rune, int) {
	if len(text) < n {
		return 0, 0
	}
	v, err := strconv.ParseUint(text[2:n], 16, 32)
	if err != nil {
		return 0, 0
	}
	return rune(v), n
}

// lookAlikes maps letters and signs to the ASCII ones that they can be taken
// for (after the confusables of Unicode Technical Standard #39, as far as they
// matter for the markers). What NFKD already unifies is not in it.
var lookAlikes = func() map[rune]rune {
	m := map[rune]rune{}
	for to, from := range map[rune]string{
		'a': "аАΑαɑᴀꭺᎪ", 'b': "ВвЬьΒβʙᏴᛒ", 'c': "сСϲϹᴄⲤⲥᏟꮯ", 'd': "ԁᴅᎠꭰ", 'e': "еЕΕεєЄɛᴇ℮Ꭼꭼⲉ", 'f': "ϝғƒꜰꞘ", 'g': "ɡԌԍɢᏀ",
		'h': "һҺНнΗʜᎻⲎ", 'i': "іІΙιıɪӀᎥⲓ", 'j': "јЈʝᴊᎫ", 'k': "кКΚκᴋᏦⲔ", 'l': "ӏʟⅼᏞƖ", 'm': "мМΜᴍᎷⲘ", 'n': "пΝηոɴⲚ",
		'o': "оОΟοσᴏօՕⲞⲟ〇", 'p': "рРΡρᴘᏢⲢ", 'q': "ԛԚ", 'r': "гʀᴦᎡꭱ", 's': "ѕЅꜱՏᏚ", 't': "тТΤτᴛᎢꭲⲦ", 'u': "υսᴜՍ", 'v': "νѵᴠᏙѴ",
		'w': "ωѡԝᴡᎳ", 'x': "хХΧχ×Ⲭⲭᚷⅹ", 'y': "уУΥγʏүҮᎩⲨ", 'z': "ΖᴢᏃ",
		'<': "‹«〈⟨《˂ᐸ❮❰≺⪡≪⧼", '>': "›»〉⟩》˃ᐳ❯❱≻⪢≫⧽", '|': "¦│∣ǀ⏐┃❘", '/': "⁄∕⧸╱", ':': "꞉∶ː։׃",
		'[': "【〔⟦❲", ']': "】〕⟧❳", '_': "▁‿⁀⎯", '-': "‐‑‒–—―−⁃➖", '.': "․·・。",
	} {
		for _, r := range from {
			m[r] = to
		}
	}
	return m
}()
