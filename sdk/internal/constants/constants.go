// Package constants writes the constants of the contract into the SDKs in other
// languages, from the Go packages abi and abi/tokens, so that no two disagree.
//
// Each file below templates has the path, within the folder sdk, of the file that
// is made of it, and ".tmpl" behind. It is a text/template over a Table.
package constants

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/template"
	"unicode"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
)

//go:generate go test -run TestFilesAgree -update .

//go:embed templates
var templates embed.FS

// Table is what the templates are given.
type Table struct {
	// Version is the major version of the contract.
	Version int
	// ExportQuery is the name of a reactor's entry, ExportWarm that of what a host
	// may call before.
	ExportQuery, ExportWarm string
	// Modules are the import modules of the contract, without WASI's.
	Modules []Name
	// Kinds are those that a guest can meet, by falling code: -1 first, and none
	// left out.
	Kinds []Number
	// Levels are those of the log call, by rising value from 0.
	Levels []Number
	// Bounds are fixed by the contract, Defaults what an operator may change.
	// Their names tell the unit: BYTES, TOKENS, MILLIS; else a number of things.
	Bounds, Defaults []Number
	// QuartersPerToken is what the weights are counted in.
	QuartersPerToken int
	// PlainQuarters is the weight of a code point that is in no range.
	PlainQuarters int
	// Weights are the ranges of other code points, in order, without overlap.
	Weights []Range
}

// Name is a constant string.
type Name struct{ Name, Value string }

// Number is a constant number.
type Number struct {
	Name  string
	Value int64
}

// Range is the code points First to Last, each of which costs Quarters of a
// token.
type Range struct {
	First, Last rune
	Quarters    int
}

// Of returns the table. Names are in lower case with underscores; those of kinds
// are the contract's own words.
func Of() Table {
	limits := abi.DefaultLimits()
	t := Table{
		Version:     abi.Version,
		ExportQuery: abi.ExportQuery,
		ExportWarm:  abi.ExportWarm,
		Modules:     []Name{{"core", abi.ModuleCore}},
		Bounds: []Number{
			{"max_prompt_bytes", abi.MaxPromptBytes},
			{"max_request_bytes", abi.MaxRequestBytes},
			{"max_failure_bytes", abi.MaxFailureBytes},
			{"max_page_entries", abi.MaxPageEntries},
			{"max_key_bytes", abi.MaxKeyBytes},
		},
		Defaults: []Number{
			{"default_output_bytes", int64(limits.OutputBytes)},
			{"default_log_bytes", int64(limits.LogBytes)},
			{"default_log_lines", int64(limits.LogLines)},
			{"default_calls", int64(limits.Calls)},
			{"default_file_read_bytes", limits.FileReadBytes},
			{"default_file_total_bytes", limits.FileTotalBytes},
			{"default_http_requests", int64(limits.HTTPRequests)},
			{"default_http_bytes", limits.HTTPBytes},
			{"default_http_timeout_millis", limits.HTTPTimeout.Milliseconds()},
			{"default_kv_value_bytes", limits.KVValueBytes},
			{"default_kv_total_bytes", limits.KVTotalBytes},
			{"default_llm_calls", int64(limits.LLMCalls)},
			{"default_llm_input_tokens", int64(limits.LLMInputTokens)},
		},
		QuartersPerToken: quartersPerToken,
		PlainQuarters:    quarters('a'),
	}
	for _, c := range abi.Capabilities() {
		t.Modules = append(t.Modules, Name{string(c), c.Module()})
	}
	for code := int32(-1); abi.KindOfCode(code) != ""; code-- {
		t.Kinds = append(t.Kinds, Number{string(abi.KindOfCode(code)), int64(code)})
	}
	for l := abi.LevelDebug; l <= abi.LevelError; l++ {
		t.Levels = append(t.Levels, Number{l.String(), int64(l)})
	}
	t.Weights = weights(t.PlainQuarters)
	return t
}

// quartersPerToken is the unit of the weights in ABI.md, the smallest of which is
// 0.25.
const quartersPerToken = 4

// quarters asks the estimator itself: so many copies of r cost in tokens what one
// costs in the unit.
func quarters(r rune) int { return tokens.Estimate(strings.Repeat(string(r), quartersPerToken)) }

func weights(plain int) []Range {
	var ranges []Range
	for r := rune(0); r <= unicode.MaxRune; r++ {
		q := quarters(r)
		if q == plain {
			continue
		}
		if n := len(ranges); n > 0 && ranges[n-1].Last == r-1 && ranges[n-1].Quarters == q {
			ranges[n-1].Last = r
			continue
		}
		ranges = append(ranges, Range{r, r, q})
	}
	return ranges
}

// Files returns the content of each file that is made of a template, by its path
// within the folder sdk.
func Files() (map[string][]byte, error) {
	table := Of()
	files := map[string][]byte{}
	err := fs.WalkDir(templates, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		target, ok := strings.CutSuffix(strings.TrimPrefix(name, "templates/"), ".tmpl")
		if !ok {
			return fmt.Errorf("%s: its name does not end in .tmpl", name)
		}
		text, err := templates.ReadFile(name)
		if err != nil {
			return err
		}
		parsed, err := template.New(path.Base(name)).Funcs(functions).Parse(string(text))
		if err != nil {
			return err
		}
		var made bytes.Buffer
		if err := parsed.Execute(&made, table); err != nil {
			return err
		}
		files[target] = made.Bytes()
		return nil
	})
	return files, err
}

// functions are the ways to write a name: upper gives MAX_KEY_BYTES, camel
// MaxKeyBytes.
var functions = template.FuncMap{
	"upper": strings.ToUpper,
	"camel": func(name string) string {
		var b strings.Builder
		for word := range strings.SplitSeq(name, "_") {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		return b.String()
	},
}
