package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path"
	"strings"
	"unicode/utf16"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// What is kept of one note. The rest is counted.
const (
	maxSections   = 8
	maxTasks      = 8
	maxPlanned    = 200
	maxTitle      = 120
	maxTaskText   = 120
	maxExcerpt    = 240
	maxLineBytes  = 4 << 10 // of one line, the rest of it is not looked at
	maxLinkBytes  = 1 << 10
	maxFrontLines = 200
)

// note is what is told of one file.
type note struct {
	listedNote
	title    string
	sections list // headings but the title
	open     list // tasks
	done     list
	excerpt  string
	planned  []planned
	broken   error
}

// list is the first few of many.
type list struct {
	first []string
	count int
}

func (l *list) add(s string, keep, most int) {
	if s = compose.OneLine(s, most); s == "" {
		return
	}
	if l.count++; len(l.first) < keep {
		l.first = append(l.first, s)
	}
}

// planned is an item of an Org file with a date in the window.
type planned struct {
	stamp
	what  string // such as "deadline"
	title string // with its keyword
	path  string
}

var errBinary = errors.New("not a text: it has NUL bytes")

// parse reads what is told of a note, of any content.
func parse(listed listedNote, content []byte, w window) *note {
	n := &note{listedNote: listed}
	text := decode(content)
	if strings.IndexByte(text[:min(len(text), 8<<10)], 0) >= 0 {
		n.broken = errBinary
		return n
	}
	switch formatOf(listed.path) {
	case formatMarkdown:
		readMarkdown(n, text)
	case formatOrg:
		readOrg(n, text, w)
	case formatText:
		readPlain(n, text)
	}
	if n.title == "" {
		base := path.Base(listed.path)
		n.title = compose.OneLine(strings.TrimSuffix(base, path.Ext(base)), maxTitle)
	}
	for i := range n.planned {
		if p := &n.planned[i]; p.title == "" {
			p.title = n.title // it stands above the first headline
		}
	}
	return n
}

// decode returns content as UTF-8 with line feeds: what begins with a byte order
// mark may be UTF-16, as the editor of Windows writes.
func decode(content []byte) string {
	var text string
	switch {
	case bytes.HasPrefix(content, []byte{0xFF, 0xFE}):
		text = decodeUTF16(content[2:], binary.LittleEndian)
	case bytes.HasPrefix(content, []byte{0xFE, 0xFF}):
		text = decodeUTF16(content[2:], binary.BigEndian)
	default:
		text = compose.Text(trimPartialRune(bytes.TrimPrefix(content, []byte("\xEF\xBB\xBF"))))
	}
	if strings.IndexByte(text, '\r') >= 0 {
		text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	}
	return text
}

func decodeUTF16(b []byte, order binary.ByteOrder) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

// trimPartialRune removes the beginning of a rune that the limit of a read has
// cut, which must not have the rest taken for another charset.
func trimPartialRune(b []byte) []byte {
	if len(b) < maxNoteBytes-3 {
		return b
	}
	for i := 1; i <= min(3, len(b)); i++ {
		if c := b[len(b)-i]; c >= 0xC0 {
			return b[:len(b)-i]
		} else if c < 0x80 {
			break
		}
	}
	return b
}

// lines calls f for each line of text, without its end and its trailing space,
// and not much of a long one.
func lines(text string, f func(line string)) {
	for line := range strings.Lines(text) {
		f(strings.TrimRight(line[:min(len(line), maxLineBytes)], " \t\n"))
	}
}

// excerpt collects the first words of a note.
type excerpt struct{ b strings.Builder }

func (e *excerpt) add(line string) {
	// Four bytes are the longest rune.
	if e.b.Len() < 4*maxExcerpt {
		e.b.WriteString(line)
		e.b.WriteByte('\n')
	}
}

func (e *excerpt) text() string { return compose.OneLine(unlink(e.b.String()), maxExcerpt) }

func readPlain(n *note, text string) {
	var words excerpt
	lines(text, func(line string) {
		if state, task, ok := checkbox(line); ok {
			n.addTask(state, task)
			return
		}
		words.add(line)
	})
	n.excerpt = words.text()
}

// addTask records an item of a checklist.
func (n *note) addTask(state byte, text string) {
	switch state {
	case 'x', 'X':
		n.done.add(unlink(text), maxTasks, maxTaskText)
	case '-': // cancelled
	default:
		n.open.add(unlink(text), maxTasks, maxTaskText)
	}
}

// checkbox reads an item of a checklist, such as "- [ ] buy milk" or
// "2. [x] call": the character between the brackets and the text. Both Markdown
// (GitHub's task lists) and Org write them so.
func checkbox(line string) (state byte, text string, ok bool) {
	s := strings.TrimLeft(line, " \t>")
	if len(s) < 2 {
		return 0, "", false
	}
	switch {
	case s[0] == '-' || s[0] == '*' || s[0] == '+':
		s = s[1:]
	case isDigit(s[0]):
		digits := 1
		for digits < len(s) && digits < 9 && isDigit(s[digits]) {
			digits++
		}
		if s = s[digits:]; s == "" || s[0] != '.' && s[0] != ')' {
			return 0, "", false
		}
		s = s[1:]
	default:
		return 0, "", false
	}
	rest := strings.TrimLeft(s, " \t")
	if rest == s || len(rest) < 4 || rest[0] != '[' || rest[2] != ']' || rest[3] != ' ' && rest[3] != '\t' {
		return 0, "", false
	}
	return rest[1], strings.TrimSpace(rest[4:]), true
}

// unlink replaces the links of Markdown, wikis and Org by their words, and
// leaves out pictures.
func unlink(s string) string {
	if strings.IndexByte(s, '[') < 0 {
		return s
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '[')
		if i < 0 {
			break
		}
		picture := i > 0 && s[i-1] == '!'
		words, size := linkWords(s[i:min(len(s), i+maxLinkBytes)])
		if size == 0 {
			b.WriteString(s[:i+1])
			s = s[i+1:]
			continue
		}
		if picture {
			b.WriteString(s[:i-1])
		} else {
			b.WriteString(s[:i] + words)
		}
		s = s[i+size:]
	}
	b.WriteString(s)
	return b.String()
}

// linkWords reads the link that s begins with: its words, and how many bytes it
// takes, 0 if it is none.
func linkWords(s string) (words string, size int) {
	if strings.HasPrefix(s, "[[") {
		inner, _, ok := strings.Cut(s[2:], "]]")
		if !ok || strings.Contains(inner, "\n\n") {
			return "", 0
		}
		size = len(inner) + 4
		if _, description, ok := strings.Cut(inner, "]["); ok {
			return description, size
		}
		if i := strings.LastIndexByte(inner, '|'); i >= 0 {
			return inner[i+1:], size
		}
		return inner, size
	}
	words, rest, ok := strings.Cut(s[1:], "](")
	if !ok || strings.ContainsAny(words, "[]") {
		return "", 0
	}
	for i, open := 0, 1; i < len(rest); i++ {
		switch rest[i] {
		case '\n':
			return "", 0
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return words, 1 + len(words) + 2 + i + 1
			}
		}
	}
	return "", 0
}
