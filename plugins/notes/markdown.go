package main

import (
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// readMarkdown finds the title, headings, tasks and first words of a Markdown
// text, line by line: headings of both kinds and fenced code as CommonMark 0.31
// has them, front matter as static site generators do. What is inside a line is
// left as it is but for links, and so is HTML but for comments, which nobody
// sees.
func readMarkdown(n *note, text string) {
	text, n.title = frontMatter(text)
	var words excerpt
	var open fence
	comment := false
	paragraph := "" // the line before, if a line of dashes makes it a heading
	heading := func(level int, title string) {
		if title = unlink(title); n.title == "" && level == 1 {
			n.title = compose.OneLine(title, maxTitle)
		} else if compose.OneLine(title, maxTitle) != n.title {
			n.sections.add(title, maxSections, maxTitle)
		}
	}
	lines(text, func(line string) {
		if open.length > 0 {
			if open.closedBy(line) {
				open = fence{}
			}
			return
		}
		line, comment = dropComments(line, comment)
		before := paragraph
		paragraph = ""
		if open = fenceOf(line); open.length > 0 {
			return
		}
		if level, title := atxHeading(line); level > 0 {
			heading(level, title)
			return
		}
		if level := underline(line); level > 0 && before != "" {
			heading(level, before)
			return
		}
		if before != "" {
			words.add(before)
		}
		if state, task, ok := checkbox(line); ok {
			n.addTask(state, task)
			return
		}
		if bare := strings.TrimSpace(line); bare == "" || isRule(bare) {
			words.add("")
		} else {
			paragraph = bare
		}
	})
	words.add(paragraph)
	n.excerpt = words.text()
}

// frontMatter returns what follows the YAML or TOML at the beginning of text,
// and the title that stands there.
func frontMatter(text string) (rest, title string) {
	mark, separator := "---", ":"
	if strings.HasPrefix(text, "+++\n") {
		mark, separator = "+++", "="
	} else if !strings.HasPrefix(text, "---\n") {
		return text, ""
	}
	rest = text[len(mark)+1:]
	for range maxFrontLines {
		line, after, more := strings.Cut(rest, "\n")
		line = strings.TrimRight(line[:min(len(line), maxLineBytes)], " \t")
		rest = after
		if line == mark || mark == "---" && line == "..." {
			return rest, title
		}
		key, value, ok := strings.Cut(line, separator)
		if ok && title == "" && strings.TrimRight(key, " ") == "title" {
			value = strings.TrimSpace(value)
			if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
				value = value[1 : len(value)-1]
			}
			title = compose.OneLine(value, maxTitle)
		}
		if !more {
			break
		}
	}
	return text, "" // it never ends: a rule, not front matter
}

// fence is the beginning of a block of code: the zero value is none.
type fence struct {
	char   byte
	length int
}

func fenceOf(line string) fence {
	s := strings.TrimLeft(line, " \t>")
	if len(s) < 3 || s[0] != '`' && s[0] != '~' {
		return fence{}
	}
	length := len(s) - len(strings.TrimLeft(s, s[:1]))
	if length < 3 || s[0] == '`' && strings.IndexByte(s[length:], '`') >= 0 {
		return fence{}
	}
	return fence{s[0], length}
}

func (f fence) closedBy(line string) bool {
	s := strings.TrimLeft(line, " \t>")
	return len(s) >= f.length && strings.Trim(s, string(rune(f.char))) == ""
}

// atxHeading reads a heading such as "## Title ##"; level 0 is none.
func atxHeading(line string) (level int, title string) {
	s := strings.TrimLeft(line, " ")
	if len(line)-len(s) > 3 {
		return 0, ""
	}
	level = len(s) - len(strings.TrimLeft(s, "#"))
	if level == 0 || level > 6 {
		return 0, ""
	}
	s = s[level:]
	if s != "" && s[0] != ' ' && s[0] != '\t' {
		return 0, ""
	}
	s = strings.TrimSpace(s)
	if bare := strings.TrimRight(s, "#"); bare == "" || strings.HasSuffix(bare, " ") {
		s = strings.TrimSpace(bare)
	}
	return level, s
}

// underline tells of which level the line makes the one before it a heading; 0
// is none.
func underline(line string) int {
	s := strings.TrimLeft(line, " ")
	switch {
	case len(line)-len(s) > 3 || s == "":
		return 0
	case strings.Trim(s, "=") == "":
		return 1
	case strings.Trim(s, "-") == "":
		return 2
	}
	return 0
}

// isRule tells whether a line, without space around it, is a rule across the
// page.
func isRule(s string) bool {
	bare := strings.ReplaceAll(s, " ", "")
	return len(bare) >= 3 && strings.ContainsAny(bare[:1], "-*_") && strings.Trim(bare, bare[:1]) == ""
}

// dropComments removes the comments of HTML from a line, which may begin inside
// one; inside says whether the next does.
func dropComments(line string, inside bool) (rest string, stillInside bool) {
	if !inside && !strings.Contains(line, "<!--") {
		return line, false
	}
	var b strings.Builder
	for {
		if inside {
			_, after, ok := strings.Cut(line, "-->")
			if !ok {
				return b.String(), true
			}
			line, inside = after, false
		}
		before, after, ok := strings.Cut(line, "<!--")
		b.WriteString(before)
		if !ok {
			return b.String(), false
		}
		line, inside = after, true
	}
}
