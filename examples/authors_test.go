package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	golang "github.com/gloveboxhq/glovebox/sdk/go/build"
)

const authors = "../docs/authors"

func pagesForAuthors(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(authors, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return pages
}

// fence is a fenced block of a page: the language, perhaps the file that it is, and
// its lines.
type fence struct {
	language, file, body string
	line                 int
}

// fences returns all fenced blocks of a page, in their order.
func fences(t *testing.T, page string) (all []fence) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var open *fence
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		info, isFence := strings.CutPrefix(line, "```")
		switch {
		case open == nil && isFence:
			language, file, _ := strings.Cut(strings.TrimSpace(info), " ")
			open = &fence{language: language, file: file, line: number}
		case open != nil && isFence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.body += line
		case strings.HasPrefix(line, "    "):
			t.Errorf("%s:%d: an indented block is not run: fence it", page, number)
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", page, open.line)
	}
	return all
}

// script makes one shell script of pages. A block of sh stands there as it is; one with
// the name of a file is that file, replaced by the first such block of a page and
// continued by the next ones. A block of text is what the commands before it print, in
// which … stands for anything on a line, or, alone, for any lines: it is returned with
// the number of the commands' block, before which the script prints the number.
func script(t *testing.T, pages ...string) (commands string, outputs map[int][]fence) {
	t.Helper()
	var s strings.Builder
	s.WriteString("set -eu\n")
	outputs = map[int][]fence{}
	number := 0
	for _, page := range pages {
		path, written := filepath.Join(authors, page), map[string]bool{}
		said := false // whether text can be what was printed
		for _, block := range fences(t, path) {
			switch {
			case block.language == "sh" && block.file == "":
				number++
				fmt.Fprintf(&s, "echo; echo '#%d#'\n%s", number, block.body)
				said = true
			case block.language == "text" && strings.HasPrefix(block.body, "FAIL"):
				// Of a hand that is broken on purpose: TestHandTest of host/cmd/glovebox.
			case block.language == "text" && said:
				block.file = fmt.Sprintf("%s:%d", path, block.line)
				outputs[number] = append(outputs[number], block)
			case block.file != "":
				redirection := ">"
				if written[block.file] {
					redirection = ">>"
				}
				written[block.file], said = true, false
				fmt.Fprintf(&s, "mkdir -p \"$(dirname '%s')\"\ncat %s'%s' <<'END OF FILE'\n%sEND OF FILE\n", block.file, redirection, block.file, block.body)
			default:
				t.Fatalf("%s:%d: a block of %q is neither run nor a file nor what was printed", path, block.line, block.language)
			}
		}
	}
	if number == 0 {
		t.Fatalf("%v have no commands", pages)
	}
	return s.String(), outputs
}

// shown makes a pattern of what a page says that is printed.
func shown(block string) *regexp.Regexp {
	var p strings.Builder
	p.WriteString("(?m)^")
	for line := range strings.Lines(block) {
		if line == "…\n" {
			p.WriteString("(?s:.*?)^")
			continue
		}
		parts := strings.Split(strings.TrimRight(line, " \n"), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		p.WriteString(strings.Join(parts, ".*") + " *\n")
	}
	return regexp.MustCompile(p.String())
}

// Who does what the pages for authors say sees what they show: each block is run, or is
// a file that is built, or is what was printed.
func TestPagesForAuthors(t *testing.T) {
	groups := []struct {
		pages []string
		needs []string // programs, and what installs them
		files map[string]string
	}{
		{pages: []string{"go.md", "testing.md", "publishing.md"}, needs: []string{"go"}},
		{pages: []string{"rust.md"}, needs: []string{"cargo", "wasm-ld"}},
		{pages: []string{"c.md"}, needs: []string{"clang", "wasm-ld", "make", "cc"}},
		{pages: []string{"assemblyscript.md"}, needs: []string{"node", "npm"}},
		{pages: []string{"command.md"}, needs: []string{"clang", "wasm-ld"}},
		{pages: []string{"permissions.md"}, files: map[string]string{"my-tickets.wasm": "hand-go"}},
	}
	run := map[string]bool{}
	for _, group := range groups {
		script(t, group.pages...)
		for _, page := range group.pages {
			run[page] = true
		}
	}
	for _, page := range pagesForAuthors(t) {
		if name := filepath.Base(page); !run[name] && len(fences(t, page)) > 0 {
			t.Errorf("%s has blocks and is not run", name)
		}
	}
	if testing.Short() {
		t.Skip("calls the toolchains of four languages")
	}
	path := glovebox(t) + string(os.PathListSeparator) + os.Getenv("PATH")
	for _, group := range groups {
		t.Run(strings.TrimSuffix(group.pages[0], ".md"), func(t *testing.T) {
			for _, program := range group.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is not installed, which %s says how to install", program, group.pages[0])
				}
			}
			dir := t.TempDir()
			for name, source := range group.files {
				module, err := golang.Hand(t.Context(), source, golang.Reactor)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), module, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			commands, outputs := script(t, group.pages...)
			command := exec.CommandContext(t.Context(), "sh", "-c", commands)
			command.Dir = dir
			command.Env = append(os.Environ(), "GLOVEBOX_HOME="+filepath.Join(dir, "home"), "PATH="+path, "TZ=UTC")
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			for number, blocks := range outputs {
				_, printed, _ := strings.Cut(string(output), fmt.Sprintf("#%d#\n", number))
				printed, _, _ = strings.Cut(printed, fmt.Sprintf("\n#%d#\n", number+1))
				for _, block := range blocks {
					if !shown(block.body).MatchString(printed) {
						t.Errorf("%s: this was printed instead:\n%s", block.file, printed)
					}
				}
			}
		})
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#: ]*)(#[^) ]*)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unsaid  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names of the headings of a page, as GitHub makes them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, found := range heading.FindAllSubmatch(text, -1) {
		all["#"+strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(string(found[1])), ""), " ", "-")] = true
	}
	return all
}

// The pages for authors name no file and no section that is not there.
func TestLinksForAuthors(t *testing.T) {
	for _, page := range pagesForAuthors(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllSubmatch(text, -1) {
			target := page
			if len(found[1]) > 0 {
				target = filepath.Join(authors, filepath.FromSlash(string(found[1])))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if anchor := string(found[2]); anchor != "" && !anchors(t, target)[anchor] {
				t.Errorf("%s: %s has no section %s", page, target, anchor)
			}
		}
	}
}
