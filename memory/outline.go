package memory

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
)

// MaxOutlineTokens is the most that an outline costs, without a frame.
const MaxOutlineTokens = 600

// Bounds of what an outline quotes.
const (
	outlineLine    = 120 // bytes of one line
	outlineLooks   = 64  // lines from which the kind is told
	outlineEntries = 200 // entries that are collected before the rest is counted
)

// Outline describes a text that is too long to be shown: what it seems to be, its
// size, and its headings, keys, columns, declarations, or first and last lines.
// The same text has the same outline; it takes time linear in the text. The
// outline quotes the text, so that it is as foreign as the text is.
func Outline(text string) string {
	s := survey(text)
	for _, describe := range []func(*surveyed) (kind string, entries []string, more int){
		outlineJSON, outlineLog, outlineTable, outlineCode, outlineMarkdown,
	} {
		if kind, entries, more := describe(s); kind != "" {
			return s.write(kind, entries, more)
		}
	}
	return s.write("Text", s.ends(), 0)
}

// surveyed is a text after one look at all of its lines.
type surveyed struct {
	text  string
	lines int
	// head are the first lines that are not blank, tail the last, both shortened.
	head, tail []string
	headings   [7][]string // by level; the zeroth has all of them in order
	headingsOf [7]int
	// declarations of source code; levels and stamps of a log.
	declarations    []string
	declared        int
	levels          [4]int
	stamped         int
	earliest, until string
}

const outlineTail = 5

var (
	declaration = regexp.MustCompile(`^(?:export |public |private |protected |static |async |pub(?:\([a-z]+\))? |default |abstract |final |unsafe )*(?:func|def|class|type|struct|enum|interface|trait|impl|fn|function|module|namespace|package|CREATE TABLE) ?[\w(<]`)
	stamp       = regexp.MustCompile(`^\W?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d)`)
	level       = regexp.MustCompile(`(?i)\b(?:(error|fatal|panic|critical)|(warn(?:ing)?)|(info|notice)|(debug|trace))\b`)
	levelNames  = [4]string{"errors", "warnings", "infos", "debug lines"}
)

func survey(text string) *surveyed {
	s := &surveyed{text: text}
	fenced := false
	for line := range strings.Lines(text) {
		s.lines++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		short := shorten(line)
		if len(s.head) < outlineLooks {
			s.head = append(s.head, short)
		}
		if s.tail = append(s.tail, short); len(s.tail) > outlineTail {
			s.tail = append(s.tail[:0], s.tail[1:]...)
		}
		if strings.HasPrefix(short, "```") {
			fenced = !fenced
		}
		if n := len(short) - len(strings.TrimLeft(short, "#")); !fenced && n >= 1 && n <= 6 && strings.HasPrefix(short[n:], " ") {
			s.headingsOf[n]++
			s.headingsOf[0]++
			for _, list := range []int{0, n} {
				if len(s.headings[list]) < outlineEntries {
					s.headings[list] = append(s.headings[list], short)
				}
			}
		}
		if declaration.MatchString(short) {
			s.declared++
			if len(s.declarations) < outlineEntries {
				s.declarations = append(s.declarations, fmt.Sprintf("%d: %s", s.lines, short))
			}
		}
		if when := stamp.FindString(short); when != "" {
			s.stamped++
			if s.earliest == "" {
				s.earliest = when
			}
			s.until = when
			if m := level.FindStringSubmatchIndex(short); m != nil {
				for i := range s.levels {
					if m[2*i+2] >= 0 {
						s.levels[i]++
					}
				}
			}
		}
	}
	return s
}

// shorten cuts a line to what an outline quotes of it.
func shorten(line string) string {
	if len(line) <= outlineLine {
		return line
	}
	end := outlineLine
	for end > 0 && !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}

// ends are the first and last lines.
func (s *surveyed) ends() []string {
	first := s.head[:min(len(s.head), 2*outlineTail)]
	if len(s.head) <= 2*outlineTail {
		return first
	}
	return append(append(first[:len(first):len(first)], "…"), s.tail...)
}

// write puts the outline together: as many entries as there is room for, and
// how many more there are.
func (s *surveyed) write(kind string, entries []string, more int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s, %s, about %s.", kind, plural(len(s.text), "byte"), plural(s.lines, "line"), plural(tokens.Estimate(s.text), "token"))
	room := MaxOutlineTokens - tokens.Estimate(b.String()) - tokens.Estimate("\n… and 1000000000 more")
	for i, e := range entries {
		cost := tokens.Estimate("\n" + e)
		if cost > room {
			more += len(entries) - i
			break
		}
		room -= cost
		b.WriteString("\n" + e)
	}
	if more > 0 {
		fmt.Fprintf(&b, "\n… and %d more", more)
	}
	return b.String()
}

func outlineMarkdown(s *surveyed) (string, []string, int) {
	if s.headingsOf[0] < 2 {
		return "", nil, 0
	}
	if s.headingsOf[0] <= outlineEntries/4 {
		return "Markdown", s.headings[0], 0
	}
	// Too many to name: those of the highest levels.
	for n := 1; n < len(s.headings); n++ {
		if s.headingsOf[n] >= 2 {
			return fmt.Sprintf("Markdown with %s", plural(s.headingsOf[0], "heading")), s.headings[n], s.headingsOf[n] - len(s.headings[n])
		}
	}
	return "Markdown", s.headings[0], s.headingsOf[0] - len(s.headings[0])
}

func outlineCode(s *surveyed) (string, []string, int) {
	if s.declared < 3 || s.headingsOf[0] > s.declared {
		return "", nil, 0
	}
	return "Source code", s.declarations, s.declared - len(s.declarations)
}

func outlineLog(s *surveyed) (string, []string, int) {
	looked := 0
	for _, line := range s.head {
		if stamp.MatchString(line) {
			looked++
		}
	}
	if looked < 2 || 2*looked < len(s.head) {
		return "", nil, 0
	}
	entries := []string{fmt.Sprintf("from %s to %s, %d stamped lines", s.earliest, s.until, s.stamped)}
	for i, n := range s.levels {
		if n > 0 {
			entries = append(entries, fmt.Sprintf("%d %s", n, levelNames[i]))
		}
	}
	return "Log", append(entries, s.ends()...), 0
}

// outlineTable tells of lines that have the same number of separators.
func outlineTable(s *surveyed) (string, []string, int) {
	if len(s.head) < 3 {
		return "", nil, 0
	}
	for _, separator := range []string{"\t", ",", ";", "|"} {
		columns, alike := strings.Count(s.head[0], separator), 0
		for _, line := range s.head[1:] {
			// What is quoted may hold separators; what is shortened lacks some.
			if n := strings.Count(line, separator); n == columns || n > 0 && (strings.Contains(line, `"`) || strings.HasSuffix(line, "…")) {
				alike++
			}
		}
		if columns > 0 && 10*alike >= 9*(len(s.head)-1) {
			return fmt.Sprintf("Table (separated by %q)", separator),
				[]string{"columns: " + s.head[0], plural(s.lines-1, "row"), "first: " + s.head[1], "last: " + s.tail[len(s.tail)-1]}, 0
		}
	}
	return "", nil, 0
}

// outlineJSON tells the shape of one JSON value, or of lines of them.
func outlineJSON(s *surveyed) (string, []string, int) {
	begins := strings.TrimLeft(s.text, " \t\r\n")
	if begins == "" || begins[0] != '{' && begins[0] != '[' {
		return "", nil, 0
	}
	if json.Valid([]byte(s.text)) {
		w := &shapeWriter{decoder: json.NewDecoder(strings.NewReader(s.text))}
		w.value("$", 0)
		return "JSON", w.entries, w.more
	}
	first, rest, _ := strings.Cut(begins, "\n")
	second, _, _ := strings.Cut(rest, "\n")
	if !json.Valid([]byte(first)) || !json.Valid([]byte(second)) {
		return "", nil, 0
	}
	w := &shapeWriter{decoder: json.NewDecoder(strings.NewReader(first))}
	w.value("$", 0)
	return "JSON lines", append([]string{"shape of the first line:"}, w.entries...), w.more
}

// shapeWriter lists where in a JSON document what kind of value stands: of an
// array the first element, nothing below shapeDepth.
type shapeWriter struct {
	decoder *json.Decoder
	entries []string
	more    int
}

const shapeDepth = 4

// value reads one value, whose place gets an entry. The document is valid, which
// bounds its depth.
func (w *shapeWriter) value(place string, depth int) {
	token, err := w.decoder.Token()
	if err != nil {
		return
	}
	delimiter, nested := token.(json.Delim)
	if !nested {
		w.enter(place, depth, describeScalar(token))
		return
	}
	at := w.enter(place, depth, "")
	n := 0
	for ; w.decoder.More(); n++ {
		if delimiter == '[' {
			below := depth + 1
			if n > 0 {
				below = shapeDepth + 1
			}
			w.value(place+"[0]", below)
			continue
		}
		key, err := w.decoder.Token()
		if err != nil {
			return
		}
		name, _ := key.(string)
		// A place that nobody will see is not written: places would grow with
		// the depth.
		if depth < shapeDepth {
			w.value(place+"."+shorten(name), depth+1)
		} else {
			w.value("", depth+1)
		}
	}
	if _, err := w.decoder.Token(); err != nil && err != io.EOF {
		return
	}
	switch {
	case at < 0:
	case delimiter == '[':
		w.entries[at] += "array of " + plural(n, "element")
	default:
		w.entries[at] += "object of " + plural(n, "key")
	}
}

// enter adds an entry and returns its index, or -1.
func (w *shapeWriter) enter(place string, depth int, what string) int {
	if depth > shapeDepth {
		return -1
	}
	if len(w.entries) == outlineEntries {
		w.more++
		return -1
	}
	w.entries = append(w.entries, place+": "+what)
	return len(w.entries) - 1
}

func describeScalar(token json.Token) string {
	switch token.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case nil:
		return "null"
	}
	return "number"
}
