package host_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gloveboxhq/glovebox/"

// forbidden lists what a package must never reach, even through another one.
// A pattern "x/..." stands for x and all below it; the others are exact names:
// google/uuid reaches database/sql/driver, which is fine.
var forbidden = []struct {
	from []string
	to   []string
}{
	{[]string{"host/sandbox/..."}, []string{"memory/...", "compaction/...", "host/llm/...", "host/capability/...", "host/registry/...", "net/http", "database/sql", "os/exec"}},
	{[]string{"memory/...", "compaction/..."}, []string{"host/sandbox/...", "host/registry/...", "host/capability/..."}},
	{[]string{"compaction", "compaction/assembly", "compaction/transcript/..."}, []string{"memory/sqlite"}},
	{[]string{"compaction/assembly", "compaction/transcript"}, []string{"host/llm/...", "net/http", "database/sql"}},
	{[]string{"abi/...", "sdk/..."}, []string{"host/...", "memory/...", "compaction/..."}},
	{[]string{"host/handtest"}, []string{"memory/...", "compaction/..."}},
	{[]string{"host/boundary"}, []string{"host/...", "memory/...", "compaction/...", "net/http", "database/sql", "os/exec"}},
	{[]string{"memory"}, []string{"memory/...", "compaction/...", "host/llm/..."}},
	{[]string{"host/datafile"}, []string{"host/...", "memory/...", "compaction/...", "net/http", "database/sql", "os/exec"}},
	{[]string{"host/gaps"}, []string{"host/...", "memory/...", "compaction/...", "net/http", "os/exec"}},
	{[]string{"host/llm"}, []string{"memory/...", "compaction/...", "net/http", "database/sql"}},
	{[]string{"host/capability"}, []string{"memory/...", "compaction/...", "host/sandbox/...", "host/registry/..."}},
	{[]string{"host/registry", "host/registry/lock"}, []string{"memory/...", "compaction/...", "host/capability/...", "host/llm/...", "net/http", "database/sql"}},
	{[]string{"host/registry/source"}, []string{"memory/...", "compaction/...", "host/capability/...", "host/llm/...", "database/sql"}},
	// What a hand has fetched carries no trace of ours.
	{[]string{"host/capability", "host/sandbox/...", "memory/...", "compaction/..."}, []string{"go.opentelemetry.io/..."}},
	// The contract and the SDK of a guest are of the standard library alone.
	{[]string{"abi", "abi/tokens", "sdk/go/hand/..."}, []string{"*.*/..."}},
}

func TestForbiddenImports(t *testing.T) {
	output, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Deps \" \"}}", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	checked := 0
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module)
		for _, rule := range forbidden {
			if !slices.ContainsFunc(rule.from, func(p string) bool { return matches(p, from) }) {
				continue
			}
			checked++
			for _, dep := range fields[1:] {
				to, ours := strings.CutPrefix(dep, module)
				if i := slices.IndexFunc(rule.to, func(p string) bool { return forbids(p, to, ours) }); i >= 0 && to != from {
					t.Errorf("%s reaches %s: forbidden by %q", from, dep, rule.to[i])
				}
			}
		}
	}
	if checked < len(forbidden) {
		t.Errorf("%d packages checked for %d rules: the table names packages that do not exist", checked, len(forbidden))
	}
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

// forbids also knows the pattern for every module but ours and the standard
// library, whose first elements have no dot.
func forbids(pattern, to string, ours bool) bool {
	if pattern == "*.*/..." {
		first, _, _ := strings.Cut(to, "/")
		return !ours && strings.Contains(first, ".")
	}
	return matches(pattern, to)
}

// makers are the functions of host/boundary that make a Content or a Source.
var makers = []string{"Wrap", "HandSource", "SummarySource", "ToolSource"}

// plainReaders lists who may take external text out of its frame: for an index,
// for plain display, for a test of a hand or for an export, never for a prompt.
var plainReaders = []string{"memory", "host/cmd/glovebox", "host/dashboard", "host/handtest"}

// A constructor that is passed as a value could be given to something that
// hides where the text came from (see golang/go issue 56669); so each is only
// ever called. And Neutral is called by those alone who are listed.
func TestBoundaryIsUsedAsItIsMeant(t *testing.T) {
	root := ".."
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		relative, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(relative)
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		local := importName(file, module+"host/boundary")
		if local == "" {
			return nil
		}
		called := map[*ast.SelectorExpr]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if s, ok := call.Fun.(*ast.SelectorExpr); ok {
					called[s] = true
				}
			}
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); !ok || x.Name != local {
				return true
			}
			if slices.Contains(makers, s.Sel.Name) {
				seen[s.Sel.Name] = true
				if !called[s] {
					t.Errorf("%s uses boundary.%s as a value", name, s.Sel.Name)
				}
			}
			if s.Sel.Name == "Neutral" {
				seen["Neutral"] = true
				if !slices.Contains(plainReaders, pkg) {
					t.Errorf("%s takes external text out of its frame; %v may", name, plainReaders)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Wrap", "HandSource", "Neutral"} {
		if !seen[name] {
			t.Errorf("boundary.%s is used nowhere: this test looks at the wrong thing", name)
		}
	}
}

func importName(file *ast.File, importPath string) string {
	for _, i := range file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && p == importPath {
			if i.Name != nil {
				return i.Name.Name
			}
			return path.Base(importPath)
		}
	}
	return ""
}

// The top level is fixed.
func TestTopLevel(t *testing.T) {
	allowed := []string{"LICENSE", "README.md", "abi", "compaction", "docs", "examples", "go.mod", "go.sum", "host", "memory", "plugins", "sdk", "testdata"}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s has no place at the top level", e.Name())
		}
	}
}
