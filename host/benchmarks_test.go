package host_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every benchmark and flag that .ci/bench names is there, and docs/benchmarks/recorded.txt
// has a figure of each that it compares.
func TestBenchmarksAreThereAndRecorded(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	has := func(text, pattern string) bool { return regexp.MustCompile("(?m)" + pattern).MatchString(text) }
	sections := strings.Split(read(filepath.Join("..", "docs", "benchmarks", "recorded.txt")), "pkg: "+module)
	for _, header := range []string{`^machine: .+, go1\.`, `^date: \d{4}-\d\d-\d\d$`, `^load: [\d.]+$`} {
		if !has(sections[0], header) {
			t.Errorf("what is recorded does not begin with %s", header)
		}
	}
	figures := map[string]string{} // by the packages
	for _, section := range sections[1:] {
		of, lines, _ := strings.Cut(section, "\n")
		figures[of] += lines
	}
	calls := regexp.MustCompile(`(?m)^(bench|\s+go test) \./(\S+)(?: -run '\^\$' -bench)? (\S+)(.*)$`).FindAllStringSubmatch(read(filepath.Join("..", ".ci", "bench")), -1)
	for _, call := range calls {
		of, pattern := call[2], strings.Trim(call[3], "'")
		files, err := filepath.Glob(filepath.Join("..", of, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("./%s has %d files of tests, %v", of, len(files), err)
		}
		source := ""
		for _, file := range files {
			source += read(file)
		}
		benchmarks := strings.Split(pattern, "|")
		if pattern == "." {
			benchmarks = nil
			for _, all := range regexp.MustCompile(`(?m)^func Benchmark(\w+)`).FindAllStringSubmatch(source, -1) {
				benchmarks = append(benchmarks, all[1]+"$")
			}
		}
		for _, benchmark := range benchmarks {
			name, _, _ := strings.Cut(benchmark, "/")
			if whole, exact := strings.CutSuffix(name, "$"); !has(source, `^func Benchmark\w*`+whole+map[bool]string{false: `\w*`}[exact]+`\(b \*testing\.B\)`) {
				t.Errorf("./%s has no benchmark %s", of, benchmark)
			}
			if call[1] == "bench" && !has(figures[of], `^Benchmark`+strings.ReplaceAll(benchmark, "$", "")+`(-\d+)?\s+\d+\s+[\d.]+ ns/op`) {
				t.Errorf("nothing is recorded of ./%s %s", of, benchmark)
			}
		}
		for _, flag := range regexp.MustCompile(` -([a-z-]+)`).FindAllStringSubmatch(call[4], -1) {
			if !strings.Contains("benchtime count timeout", flag[1]) && !strings.Contains(source, `"`+flag[1]+`"`) {
				t.Errorf("the benchmarks of ./%s have no flag -%s", of, flag[1])
			}
		}
	}
	if len(calls) < 10 {
		t.Errorf("the script has %d calls of benchmarks", len(calls))
	}
}
