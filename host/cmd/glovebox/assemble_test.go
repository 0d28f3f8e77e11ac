package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// glovebox runs the program and returns its exit code and what it wrote.
func glovebox(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, failures bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &failures)
	return code, out.String(), failures.String()
}

// A3: a dump gives the prompt that it was made from, to the byte: also what a tool was
// called with, whose blanks an encoder would take away.
func TestDumpGivesTheSamePrompt(t *testing.T) {
	data := t.TempDir()
	transcript := `{"messages":[{"role":"system","content":"be brief <&>"}`
	for i := range 30 {
		transcript += fmt.Sprintf(`,{"role":"user","content":"question %[1]d, at some length and with words"},
			{"role":"assistant","content":[{"type":"tool_call","id":"c%[1]d","name":"look","input": { "b" : %[1]d,  "a":"<x>" }}]},
			{"role":"tool","tool_call_id":"c%[1]d","content":"found %[1]d"},
			{"role":"assistant","content":[{"type":"text","text":"answer %[1]d"}, { "type" : "hologram", "x" : [ 1, 2 ] }]}`, i)
	}
	transcript += `,{"role":"user","content":"and now?"}]}`
	config := filepath.Join(data, "glovebox.toml")
	if err := os.WriteFile(config, []byte("[compaction]\nkeep_recent = 5\n[boundary]\nmode = \"datamark\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := glovebox(transcript, "session", "import", "-", "--data", data); code != 0 {
		t.Fatal(stderr)
	}
	for _, compacted := range []bool{false, true} {
		if compacted {
			if code, _, stderr := glovebox("", "session", "compact", "last", "--data", data); code != 0 {
				t.Fatal(stderr)
			}
		}
		for _, budget := range []int{1, 700, 100_000} {
			t.Run(fmt.Sprintf("compacted %v, %d tokens", compacted, budget), func(t *testing.T) {
				code, dumped, stderr := glovebox("", "session", "context", "last", "--dump", "--budget", fmt.Sprint(budget), "--data", data)
				if code != 0 {
					t.Fatal(stderr)
				}
				if !json.Valid([]byte(dumped)) {
					t.Fatalf("dumped %s", dumped)
				}
				d, err := readDump([]byte(dumped))
				if err != nil {
					t.Fatal(err)
				}
				in, err := d.input(assembleOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got, gotReport, err := assembly.Assemble(in)
				if err != nil {
					t.Fatal(err)
				}
				want, wantReport := contextOf(t, data, budget)
				if in.Mode != boundary.ModeDatamark {
					t.Errorf("the mode is %q", in.Mode)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				if !compacted && budget > 700 && !strings.Contains(fmt.Sprintf("%s", got.Messages[1].Parts[0].Raw), "{ \"b\" : 0,  ") {
					t.Errorf("the call has lost its blanks: %s", got.Messages[1].Parts[0].Raw)
				}
				// What came before is not in a dump.
				gotReport.Trace, wantReport.Trace = assembly.Trace{}, assembly.Trace{}
				gotReport.PrefixReuse, wantReport.PrefixReuse = assembly.Reuse{}, assembly.Reuse{}
				if !reflect.DeepEqual(gotReport, wantReport) {
					t.Errorf("got  %+v\nwant %+v", gotReport, wantReport)
				}
				// And so does the command, by the table that session context prints.
				_, context, _ := glovebox("", "session", "context", "last", "--budget", fmt.Sprint(budget), "--data", data)
				context = withoutReuse.ReplaceAllString(context, "")
				code, table, stderr := glovebox(dumped, "assemble", "--from", "-")
				if code != 0 || table == "" || !strings.HasSuffix(context, table) {
					t.Errorf("exit code %d: %s\n%s\nwant the end of\n%s", code, stderr, table, context)
				}
			})
		}
	}
}

var withoutReuse = regexp.MustCompile(`(?m)^.*of the prompt begins as the one before it did\n`)

func contextOf(t *testing.T, data string, budget int) (assembly.Prompt, assembly.Report) {
	t.Helper()
	config, err := host.LoadConfig(filepath.Join(data, "glovebox.toml"))
	if err != nil {
		t.Fatal(err)
	}
	config.Data = data
	path, err := config.DatabasePath()
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := store.Sessions(t.Context(), user.ID, memory.SessionQuery{})
	if err != nil || len(sessions) != 1 {
		t.Fatal(len(sessions), err)
	}
	prompt, report, err := host.ContextOf(t.Context(), config, store, user.ID, sessions[0].ID, budget)
	if err != nil {
		t.Fatal(err)
	}
	return prompt, report
}
