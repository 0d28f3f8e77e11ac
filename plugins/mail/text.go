package main

import (
	"bytes"
	"encoding/base64"
	"io"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"

	"github.com/emersion/go-message"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/encoding/htmlindex"
)

// The labels of the web's encoding standard are what mail programs mean:
// "iso-8859-1" with bytes of windows-1252, "gb2312" with characters of GBK.
func init() {
	message.CharsetReader = func(label string, r io.Reader) (io.Reader, error) {
		e, err := htmlindex.Get(label)
		if err != nil {
			return nil, err
		}
		return e.NewDecoder().Reader(r), nil
	}
}

// decodeCharset returns b as valid UTF-8. What is in an unknown charset is
// taken for UTF-8 if it is valid, else for windows-1252.
func decodeCharset(b []byte, label string) string {
	// RFC 2231 appends a language: "utf-8*en".
	label, _, _ = strings.Cut(strings.ToLower(label), "*")
	if e, err := htmlindex.Get(label); err == nil && label != "us-ascii" && label != "ascii" {
		if s, err := e.NewDecoder().Bytes(b); err == nil {
			return strings.ToValidUTF8(string(s), "\uFFFD")
		}
	}
	return compose.Text(b)
}

// decodeWords decodes the encoded words (RFC 2047) in a header value; what is
// malformed stays as it is. Unlike mime.WordDecoder it joins the bytes of
// neighbouring words before it decodes the charset, as mail programs do that
// split a word inside a character, and it knows no unknown charset.
func decodeWords(value string) string {
	// Much more than is ever shown, and little enough to search again and again.
	value = value[:min(len(value), 4096)]
	var out strings.Builder
	var pending []byte // bytes of the words just read, in charset
	var charset string
	flush := func() {
		if len(pending) > 0 {
			out.WriteString(decodeCharset(pending, charset))
			pending = pending[:0]
		}
	}
	afterWord := false
	for value != "" {
		start := strings.Index(value, "=?")
		if start < 0 {
			break
		}
		label, data, size, ok := encodedWord(value[start:])
		if between := value[:start]; !ok || !afterWord || strings.TrimSpace(between) != "" {
			// Space between two encoded words is not part of the text.
			flush()
			out.WriteString(compose.Text([]byte(between)))
		}
		if !ok {
			out.WriteString("=?")
			value, afterWord = value[start+2:], false
			continue
		}
		if !strings.EqualFold(label, charset) {
			flush()
			charset = label
		}
		pending = append(pending, data...)
		value, afterWord = value[start+size:], true
	}
	flush()
	out.WriteString(compose.Text([]byte(value)))
	return out.String()
}

// encodedWord reads the word "=?charset?B?data?=" that s begins with and
// returns its charset, bytes and length.
func encodedWord(s string) (charset string, data []byte, size int, ok bool) {
	// No charset has a longer name; the bound keeps decodeWords linear.
	mark := strings.IndexByte(s[2:min(len(s), 64)], '?')
	if mark < 1 || len(s) < 2+mark+3 || s[2+mark+2] != '?' {
		return "", nil, 0, false
	}
	charset = s[2 : 2+mark]
	text := s[2+mark+3:]
	// RFC 2047 allows 75 bytes; some programs encode a whole value as one word.
	end := strings.Index(text, "?=")
	if end < 0 {
		return "", nil, 0, false
	}
	switch s[2+mark+1] {
	case 'q', 'Q':
		data = decodeQ(text[:end])
	case 'b', 'B':
		data = decodeBase64(text[:end])
	default:
		return "", nil, 0, false
	}
	return charset, data, 2 + mark + 3 + end + 2, true
}

func decodeQ(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '_':
			out = append(out, ' ')
		case s[i] == '=' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		default:
			out = append(out, s[i])
		}
	}
	return out
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// decodeBase64 decodes as much of s as is base64, padded or not.
func decodeBase64(s string) []byte {
	s = strings.Map(func(r rune) rune {
		if r == '=' || r <= ' ' {
			return -1
		}
		return r
	}, s)
	out := make([]byte, base64.RawStdEncoding.DecodedLen(len(s)))
	n, _ := base64.RawStdEncoding.Decode(out, []byte(s))
	return out[:n]
}

// maxText bounds the text taken from one part, in bytes.
const maxText = 16 << 10

// htmlText returns the visible text of an HTML document, with a line break
// where a block ends. What a reply quotes and the signature are left out,
// unless there is nothing else.
func htmlText(document []byte) string {
	if own := visibleText(document, false); strings.TrimSpace(own) != "" {
		return own
	}
	return visibleText(document, true)
}

func visibleText(document []byte, quotations bool) string {
	z := html.NewTokenizer(bytes.NewReader(document))
	z.SetMaxBuf(maxBodyBytes)
	var b strings.Builder
	var skipped atom.Atom // the element whose content is left out
	depth := 0            // how many of them are open
	for b.Len() < maxText {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			if depth == 0 {
				b.Write(z.Text())
			}
		case html.StartTagToken:
			name, attributes := z.TagName()
			tag := atom.Lookup(name)
			switch {
			case depth > 0:
				if tag == skipped {
					depth++
				}
			case invisible(tag), tag == atom.Blockquote && !quotations, attributes && hidden(z, tag, quotations):
				skipped, depth = tag, 1
			default:
				b.WriteString(separator(tag))
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			tag := atom.Lookup(name)
			if depth == 0 {
				b.WriteString(separator(tag))
			} else if tag == skipped {
				depth--
			}
		case html.SelfClosingTagToken:
			name, _ := z.TagName()
			if depth == 0 {
				b.WriteString(separator(atom.Lookup(name)))
			}
		}
	}
	return b.String()
}

func invisible(tag atom.Atom) bool {
	switch tag {
	case atom.Script, atom.Style, atom.Head, atom.Title, atom.Template, atom.Noscript, atom.Svg, atom.Select:
		return true
	}
	return false
}

// hidden tells whether the element that z stands on is not shown, or, unless
// quotations are wanted, is what mail programs wrap a quoted mail in.
func hidden(z *html.Tokenizer, tag atom.Atom, quotations bool) bool {
	switch tag {
	case atom.Br, atom.Img, atom.Hr, atom.Meta, atom.Link, atom.Input, atom.Body, atom.Html, 0:
		// They have no content, or all of it.
		return false
	}
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "hidden":
			return true
		case "style":
			style := bytes.ToLower(bytes.ReplaceAll(value, []byte(" "), nil))
			if bytes.Contains(style, []byte("display:none")) {
				return true
			}
		}
		if quotations {
			continue
		}
		switch string(key) {
		case "class":
			for class := range bytes.FieldsSeq(value) {
				switch string(class) {
				case "gmail_quote", "gmail_attr", "gmail_signature", "moz-cite-prefix", "moz-signature", "yahoo_quoted", "protonmail_quote":
					return true
				}
			}
		case "id":
			switch string(value) {
			case "divRplyFwdMsg", "Signature":
				return true
			}
		}
	}
	return false
}

func separator(tag atom.Atom) string {
	switch tag {
	case atom.Br, atom.P, atom.Div, atom.Tr, atom.Li, atom.Ul, atom.Ol, atom.Table, atom.Hr, atom.Pre, atom.Section,
		atom.Article, atom.Header, atom.Footer, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		return "\n"
	case atom.Td, atom.Th, atom.Dd, atom.Dt:
		return " "
	}
	return ""
}

// ownWords returns what the writer of a plain text added: without quoted lines,
// the line that introduces them, the signature and the mail below. A text that
// is all quotation is returned whole.
func ownWords(text string) string {
	var kept []string
	said := false
	for line := range strings.Lines(text) {
		// A signature begins at "-- "; the space is often lost.
		bare := strings.TrimSpace(line)
		if bare == "--" || said && beginsOriginal(bare) {
			break
		}
		if strings.HasPrefix(bare, ">") {
			kept = dropAttribution(kept)
			continue
		}
		said = said || bare != ""
		kept = append(kept, line)
	}
	if own := strings.Join(kept, ""); strings.TrimSpace(own) != "" {
		return own
	}
	return text
}

// dropAttribution removes the words that introduce a quotation from the end of
// lines: one line that ends in a colon, or two if a program wrapped it. Blank
// lines at the end go too, so that each is looked at once.
func dropAttribution(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	last := len(lines) - 1
	if last < 0 || !strings.HasSuffix(strings.TrimSpace(lines[last]), ":") {
		return lines
	}
	if last > 0 && !beginsAttribution(lines[last]) && beginsAttribution(lines[last-1]) {
		last--
	}
	return lines[:last]
}

func beginsAttribution(line string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch strings.TrimSuffix(word, ",") {
	case "On", "Am", "Le", "El", "Il", "Op", "Em", "Den", "W", "Dne":
		return true
	}
	return false
}

// beginsOriginal tells whether line is where a mail program appends the mail
// that is answered.
func beginsOriginal(line string) bool {
	if strings.HasPrefix(line, "_____") && strings.Trim(line, "_") == "" {
		return true
	}
	if !strings.HasPrefix(line, "-----") || !strings.HasSuffix(line, "-----") {
		return false
	}
	inner := strings.ToLower(strings.Trim(line, "- "))
	for _, words := range []string{"original message", "original appointment", "forwarded message", "ursprüngliche nachricht", "message d'origine", "mensaje original", "messaggio originale"} {
		if inner == words {
			return true
		}
	}
	return false
}
