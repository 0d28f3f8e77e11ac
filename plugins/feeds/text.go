package main

import (
	"bytes"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// document returns a body as UTF-8 from its first "<" or "{" on and without an
// XML declaration. The charset is the mark at its beginning, what the bytes
// themselves show, or what the server, then the document, says, in this order:
// most that are labelled otherwise and are valid UTF-8 are UTF-8.
func document(body []byte, contentType string, truncated bool) []byte {
	text := decode(body, contentType, truncated)
	if start := bytes.IndexAny(text, "<{"); start > 0 {
		text = text[start:]
	}
	return text[len(xmlDeclaration(text)):]
}

// xmlDeclaration returns the declaration that text begins with, or nothing.
func xmlDeclaration(text []byte) []byte {
	head := text[:min(len(text), 256)]
	end := bytes.Index(head, []byte("?>"))
	if end < 0 || !bytes.HasPrefix(bytes.TrimSpace(head), []byte("<?xml")) {
		return nil
	}
	return head[:end+2]
}

// declaredEncoding returns what an XML declaration says of the charset.
func declaredEncoding(declaration []byte) string {
	_, rest, _ := strings.Cut(string(declaration), "encoding")
	rest = strings.TrimLeft(rest, "= \t\r\n")
	if rest == "" || rest[0] != '"' && rest[0] != '\'' {
		return ""
	}
	label, _, _ := strings.Cut(rest[1:], rest[:1])
	return label
}

func decode(body []byte, contentType string, truncated bool) []byte {
	switch {
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return bytes.ToValidUTF8(body[3:], []byte("\uFFFD"))
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("<\x00")):
		return utf16(body, unicode.LittleEndian)
	case bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.HasPrefix(body, []byte("\x00<")):
		return utf16(body, unicode.BigEndian)
	}
	whole := body
	for i := 0; truncated && i < utf8.UTFMax && len(whole) > 0 && !utf8.Valid(whole[max(0, len(whole)-utf8.UTFMax-i):]); i++ {
		// The end may stand inside a character.
		whole = whole[:len(whole)-1]
	}
	// ISO-2022-JP is of ASCII characters and escapes.
	if utf8.Valid(whole) && bytes.IndexByte(whole, 0x1b) < 0 {
		return whole
	}
	_, parameters, _ := mime.ParseMediaType(contentType)
	for _, label := range []string{parameters["charset"], declaredEncoding(xmlDeclaration(body))} {
		if e, err := htmlindex.Get(label); err == nil {
			if text, err := e.NewDecoder().Bytes(body); err == nil {
				return bytes.ToValidUTF8(text, []byte("\uFFFD"))
			}
		}
	}
	return []byte(compose.Text(body))
}

func utf16(body []byte, order unicode.Endianness) []byte {
	text, _ := unicode.UTF16(order, unicode.UseBOM).NewDecoder().Bytes(body)
	return text
}

// enoughText is more than is ever shown of a text, in bytes.
const enoughText = 8 * maxExcerpt

// plainText returns the first words of HTML, with a space where a block ends. In a
// title, what is no element of HTML is text, as in "a Vec<T> for you".
func plainText(source string, title bool) string {
	z := html.NewTokenizer(strings.NewReader(source))
	var b strings.Builder
	var skipped atom.Atom // the element whose content is left out
	for {
		kind := z.Next()
		if kind == html.ErrorToken || b.Len() > enoughText {
			return b.String()
		}
		if kind == html.TextToken {
			if skipped == 0 {
				b.Write(z.Text())
			}
			continue
		}
		raw := string(z.Raw())
		name, _ := z.TagName()
		switch tag := atom.Lookup(name); {
		case kind == html.EndTagToken && tag == skipped:
			skipped = 0
			b.WriteByte(' ')
		case skipped != 0:
		case kind == html.StartTagToken && isInvisible(tag):
			skipped = tag
		case tag == 0 && title && kind != html.CommentToken && kind != html.DoctypeToken:
			b.WriteString(raw)
		case !isInline(tag):
			b.WriteByte(' ')
		}
	}
}

func isInvisible(tag atom.Atom) bool {
	switch tag {
	case atom.Script, atom.Style, atom.Head, atom.Title, atom.Template, atom.Noscript, atom.Svg, atom.Select, atom.Iframe, atom.Textarea:
		return true
	}
	return false
}

func isInline(tag atom.Atom) bool {
	switch tag {
	case atom.A, atom.Abbr, atom.B, atom.Bdi, atom.Bdo, atom.Big, atom.Cite, atom.Code, atom.Del, atom.Dfn, atom.Em, atom.Font, atom.I, atom.Ins, atom.Kbd,
		atom.Mark, atom.Q, atom.S, atom.Samp, atom.Small, atom.Span, atom.Strong, atom.Sub, atom.Sup, atom.Time, atom.Tt, atom.U, atom.Var, atom.Wbr:
		return true
	}
	return false
}
