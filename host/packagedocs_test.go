package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every package has its row in docs/design.md, below what it imports, and every row its
// package.
func TestEveryPackageIsInTheDesign(t *testing.T) {
	design, err := os.ReadFile(filepath.Join("..", "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	below := 0
	for line := range strings.Lines(string(design)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			below++
			rows[name[1]] = below
		}
	}
	packages := map[string]bool{}
	output, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		if rows[name] == 0 {
			t.Errorf("docs/design.md has no row for %s", name)
			continue
		}
		packages[name] = true
		for _, imported := range fields[1:] {
			if of, ours := strings.CutPrefix(imported, module); ours && rows[of] > rows[name] {
				t.Errorf("docs/design.md has %s above %s, which it imports", name, of)
			}
		}
	}
	for name := range rows {
		if !packages[name] {
			t.Errorf("docs/design.md has a row for %s, which is no package", name)
		}
	}
}
